//! Guest memory: files of the front end, mapped, and read and written where they lie.
//!
//! The one module with code that the compiler cannot check. [`Memory`] translates addresses, an [`Area`] is the memory of a ring, and
//! [`GuestBuffers`] are the bytes of one request. Each of them keeps the regions that it uses mapped.
//!
//! # Who else writes there
//! The guest changes its memory whenever it likes. So numbers are read and written as atomics, each once, and a request's header is
//! copied before it is looked at. Payload is lent to the volume as buffers ([`zonal_io::buffer::IoBuf::from_raw`]). What a guest
//! changes meanwhile ends on the medium in one form or another. Devices copy payload or hand it to the kernel, and decide nothing by it.
//!
//! # Files that shrink
//! A file is refused that is shorter than its region, and each file is sealed against shrinking when it is mapped. Some files take no
//! seals, such as those on a file system, and may be truncated later. Then an access finds zero pages of this process instead of
//! raising SIGBUS, and the region is [lost](Memory::is_lost): see [`zonal_io::mapping`]. A queue checks this before it tells the guest
//! of ended requests, and the connection ends. A write in flight at that moment may store zeroes for payload that the guest
//! has taken away.
//!
//! # Why not the crate vm-memory
//! vm-memory 0.18 passes offset and length of a region to `mmap` and `munmap` as they are. A region that starts inside a page then
//! cannot be mapped, and a mapping of large pages with an odd length is never unmapped; here both are rounded to the page size of the
//! file. With this mapping kept, the crate would replace the lookup of addresses and the copies of headers only, and the checks, the
//! seal, the front end's addresses and the lent buffers would stay.

mod buffers;

pub use buffers::GuestBuffers;

use crate::wire::message::MemoryRegion;
use rustix::fs::{FileType, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use zonal_io::mapping::{self, SharedMapping};

/// Regions of one guest at most. QEMU has as many as slots for memory modules, which are 256.
pub const REGIONS_MAX: usize = 256;

/// Bytes of an ordinary page.
const PAGE: u64 = 4096;

/// Kind of a file system whose files have large pages (`statfs(2)`).
const HUGETLBFS: i64 = 0x9584_58F6;

/// Why a region cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// It has no bytes, or ends beyond the last address.
    #[error("a region of {len} bytes at {guest:#x}, {user:#x} and {offset:#x} of its file")]
    Range {
        /// Guest-physical address.
        guest: u64,
        /// Bytes.
        len: u64,
        /// Address in the front end.
        user: u64,
        /// Offset in its file.
        offset: u64,
    },
    /// Another region has these addresses.
    #[error("regions overlap at {guest:#x}")]
    Overlap {
        /// Guest-physical address of the new one.
        guest: u64,
    },
    /// There are [`REGIONS_MAX`].
    #[error("more than {REGIONS_MAX} regions")]
    TooMany,
    /// What comes with it is no file.
    #[error("a region's descriptor is no file")]
    NotAFile,
    /// The file ends before the region.
    #[error("a region ends at {end} of a file of {len} bytes")]
    FileTooShort {
        /// End of the region in its file.
        end: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// A region is to be removed that is not there.
    #[error("no such region at {guest:#x}")]
    NotThere {
        /// Guest-physical address.
        guest: u64,
    },
    /// The operating system does not map it.
    #[error("a region cannot be mapped: {0}")]
    System(#[from] Errno),
}

/// Maps the pages of `file` that have the bytes from `offset` to `end`. Returns the address of the first of these bytes as well.
fn map(file: &OwnedFd, offset: u64, end: u64) -> Result<(SharedMapping, NonNull<u8>), MemoryError> {
    let system = fstatfs(file)?;
    let page = match system.f_type as i64 {
        HUGETLBFS => (system.f_bsize as u64).max(PAGE),
        _ => PAGE,
    };
    let from = offset / page * page;
    let len = end.checked_next_multiple_of(page).and_then(|to| usize::try_from(to - from).ok());
    let mapping = SharedMapping::new(file, from, len.ok_or(Errno::OVERFLOW)?)?;
    // SAFETY: `offset` is less than a page after `from`, and before `end`, which is mapped.
    let first = unsafe { mapping.base().add((offset - from) as usize) };
    Ok((mapping, first))
}

/// A region of guest memory, mapped.
pub struct Region {
    guest: u64,
    user: u64,
    len: u64,
    /// Where its first byte is here. The bytes after it are mapped for the region's length.
    first: NonNull<u8>,
    mapping: SharedMapping,
}

// SAFETY: as of the mapping, in which `first` points.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new(region: &MemoryRegion, file: &OwnedFd) -> Result<Region, MemoryError> {
        let MemoryRegion { guest, len, user, offset } = *region;
        let (guest, len, user, offset) = (guest.get(), len.get(), user.get(), offset.get());
        let range = MemoryError::Range { guest, len, user, offset };
        let end = [guest, user, offset].map(|first| first.checked_add(len));
        let [Some(_), Some(_), Some(end)] = end else { return Err(range) };
        if len == 0 || isize::try_from(len).is_err() {
            return Err(range);
        }
        let facts = fstat(file)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(MemoryError::NotAFile);
        }
        // Before its length is looked at. A file that takes no seals has to keep its length: see the module.
        if fcntl_get_seals(file).is_ok_and(|seals| !seals.contains(SealFlags::SHRINK)) {
            let _ = fcntl_add_seals(file, SealFlags::SHRINK);
        }
        let file_len = fstat(file)?.st_size as u64;
        if end > file_len {
            return Err(MemoryError::FileTooShort { end, len: file_len });
        }
        let (mapping, first) = map(file, offset, end)?;
        Ok(Region { guest, user, len, first, mapping })
    }

    /// How many bytes follow from `guest` on, if it has that address.
    fn left(&self, guest: u64) -> Option<u64> {
        let offset = guest.checked_sub(self.guest)?;
        self.len.checked_sub(offset).filter(|left| *left > 0)
    }

    /// True once its file was found to be shorter than the region.
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    fn overlaps(&self, other: &Region) -> bool {
        self.guest < other.guest + other.len && other.guest < self.guest + self.len
    }
}

/// The regions of a guest, in the order of their addresses. They do not overlap.
#[derive(Clone, Default)]
pub struct Memory {
    regions: Vec<Arc<Region>>,
}

impl Memory {
    /// The same memory with one more region.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`] and [`MemoryError::TooMany`].
    pub fn with(&self, region: Region) -> Result<Memory, MemoryError> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        if self.regions.iter().any(|other| other.overlaps(&region)) {
            return Err(MemoryError::Overlap { guest: region.guest });
        }
        let mut regions = self.regions.clone();
        let place = regions.partition_point(|other| other.guest < region.guest);
        regions.insert(place, Arc::new(region));
        Ok(Memory { regions })
    }

    /// The same memory without the region of these addresses. It stays mapped while a request uses it.
    ///
    /// # Errors
    /// [`MemoryError::NotThere`].
    pub fn without(&self, region: &MemoryRegion) -> Result<Memory, MemoryError> {
        let MemoryRegion { guest, len, user, .. } = *region;
        let key = (guest.get(), len.get(), user.get());
        let place = self.regions.iter().position(|other| (other.guest, other.len, other.user) == key);
        let place = place.ok_or(MemoryError::NotThere { guest: guest.get() })?;
        let mut regions = self.regions.clone();
        regions.remove(place);
        Ok(Memory { regions })
    }

    /// Number of regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// True once the file of a region was found to be shorter than the region.
    #[inline]
    pub fn is_lost(&self) -> bool {
        mapping::is_any_lost() && self.regions.iter().any(|region| region.is_lost())
    }

    /// The memory of a ring, by the front end's address, or `None` if no region has all of it, or it is not aligned.
    pub fn area(&self, user: u64, len: usize, align: usize) -> Option<Area> {
        let end = user.checked_add(len as u64)?;
        let has = |region: &&Arc<Region>| region.user <= user && end <= region.user + region.len;
        let region = self.regions.iter().find(has)?.clone();
        // SAFETY: the region is mapped for its length, in which this offset is.
        let ptr = unsafe { region.first.add((user - region.user) as usize) };
        ptr.addr().get().is_multiple_of(align).then_some(Area { ptr, len, align, region })
    }

    /// The region with this guest-physical address.
    fn region(&self, guest: u64) -> Option<&Region> {
        let after = self.regions.partition_point(|region| region.guest <= guest);
        self.regions.get(after.checked_sub(1)?).map(|region| &**region)
    }

    /// Adds where the `len` bytes from `guest` on lie to `spans`. Returns whether all of them are memory.
    fn spans(&self, guest: u64, len: u32, spans: &mut Spans) -> bool {
        let (mut guest, mut left) = (guest, u64::from(len));
        while left > 0 {
            let Some(region) = self.region(guest) else { return false };
            let Some(here) = region.left(guest) else { return false };
            let here = here.min(left);
            // SAFETY: the region is mapped for its length, in which this offset is.
            let ptr = unsafe { region.first.add((guest - region.guest) as usize) };
            push(spans, Span { ptr, len: here as u32 });
            left -= here;
            // It cannot wrap where bytes are left of a region that ends there.
            guest = guest.wrapping_add(here);
        }
        true
    }
}

/// Bytes that are mapped. What has one keeps the memory that it came from.
#[derive(Clone, Copy)]
struct Span {
    ptr: NonNull<u8>,
    len: u32,
}

/// The bytes of a request in one direction: few pieces, mostly a header and a page.
type Spans = SmallVec<[Span; 4]>;

/// Adds a span, to the last one if it continues that.
fn push(spans: &mut Spans, span: Span) {
    if let Some(last) = spans.last_mut()
        && last.ptr.as_ptr().wrapping_add(last.len as usize) == span.ptr.as_ptr()
        && let Some(len) = last.len.checked_add(span.len)
    {
        last.len = len;
        return;
    }
    spans.push(span);
}

/// Copies out of guest memory: by words where it is aligned, each byte once.
///
/// # Safety
/// `bytes.len()` bytes from `from` on are mapped.
unsafe fn copy_out(from: NonNull<u8>, bytes: &mut [u8]) {
    let len = bytes.len();
    let mut at = 0;
    while at < len {
        // SAFETY: it is before the end of what is mapped.
        let here = unsafe { from.add(at) };
        if len - at >= 8 && here.addr().get().is_multiple_of(8) {
            // SAFETY: eight mapped bytes, aligned; others access them as atomics, or are another program.
            let word = unsafe { here.cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed);
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            at += 8;
        } else {
            // SAFETY: one mapped byte; as above.
            bytes[at] = unsafe { here.cast::<AtomicU8>().as_ref() }.load(Ordering::Relaxed);
            at += 1;
        }
    }
}

/// Copies into guest memory likewise.
///
/// # Safety
/// `bytes.len()` bytes from `to` on are mapped.
unsafe fn copy_in(to: NonNull<u8>, bytes: &[u8]) {
    let mut left = bytes;
    let mut at = 0;
    while let Some(first) = left.first() {
        // SAFETY: it is before the end of what is mapped.
        let here = unsafe { to.add(at) };
        match left.first_chunk::<8>() {
            Some(word) if here.addr().get().is_multiple_of(8) => {
                let value = u64::from_ne_bytes(*word);
                // SAFETY: eight mapped bytes, aligned; others access them as atomics, or are another program.
                unsafe { here.cast::<AtomicU64>().as_ref() }.store(value, Ordering::Relaxed);
                (left, at) = (&left[8..], at + 8);
            }
            _ => {
                // SAFETY: one mapped byte; as above.
                unsafe { here.cast::<AtomicU8>().as_ref() }.store(*first, Ordering::Relaxed);
                (left, at) = (&left[1..], at + 1);
            }
        }
    }
}

/// Memory of a ring: numbers that the guest and this side read and write.
///
/// Offsets are in bytes. An offset that is beyond the area or not aligned is a mistake of the caller, who computes them from the ring's
/// own length, and panics.
pub struct Area {
    ptr: NonNull<u8>,
    len: usize,
    align: usize,
    region: Arc<Region>,
}

// SAFETY: it points into its region, which it holds, and all access is by atomics.
unsafe impl Send for Area {}

macro_rules! numbers {
    ($($atomic:ident, $number:ty, $load:ident, $store:ident;)*) => {
        $(
            /// The number at `at`.
            #[inline]
            pub fn $load(&self, at: usize, order: Ordering) -> $number {
                <$number>::from_le(self.number::<$atomic>(at).load(order))
            }

            /// Puts the number at `at`.
            #[inline]
            pub fn $store(&self, at: usize, value: $number, order: Ordering) {
                self.number::<$atomic>(at).store(value.to_le(), order);
            }
        )*
    };
}

impl Area {
    /// An atomic of this area. `T` is one of the standard library's.
    #[inline]
    fn number<T>(&self, at: usize) -> &T {
        let is_inside = at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        assert!(
            is_inside && self.align >= align_of::<T>() && at.is_multiple_of(align_of::<T>()),
            "beyond a ring"
        );
        // SAFETY: inside the area, which is mapped while the region is held; aligned; and every value is valid.
        unsafe { self.ptr.add(at).cast::<T>().as_ref() }
    }

    numbers! {
        AtomicU8, u8, load_u8, store_u8;
        AtomicU16, u16, load_u16, store_u16;
        AtomicU32, u32, load_u32, store_u32;
        AtomicU64, u64, load_u64, store_u64;
    }
}

/// A file of this process as memory, which a front end keeps when this process has ended.
///
/// # Errors
/// [`MemoryError`].
pub fn map_area(file: &OwnedFd, offset: u64, len: u64) -> Result<Arc<Region>, MemoryError> {
    let region = MemoryRegion { guest: 0.into(), len: len.into(), user: 0.into(), offset: offset.into() };
    Region::new(&region, file).map(Arc::new)
}

impl Area {
    /// True once the file of its region was found to be shorter than the region.
    pub fn is_lost(&self) -> bool {
        mapping::is_any_lost() && self.region.is_lost()
    }

    /// The `len` bytes from `offset` on of a region.
    pub fn of(region: &Arc<Region>, offset: u64, len: usize, align: usize) -> Option<Area> {
        let memory = Memory { regions: vec![region.clone()] };
        memory.area(region.user.checked_add(offset)?, len, align)
    }
}

#[cfg(test)]
mod tests;
