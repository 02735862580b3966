//! Guest memory: files of the front end, mapped and accessed in place.
//!
//! The only module with unsafe code. [`Memory`] translates addresses, an [`Area`] is the memory of
//! a ring, and [`GuestBuffers`] are the bytes of one request. Each keeps the regions that it uses
//! mapped.
//!
//! # Concurrent writes by the guest
//! The guest may change its memory at any time. Numbers are therefore read and written as atomics,
//! once each, and the header of a request is copied before it is examined. Payload is lent to the
//! volume as buffers ([`zonal_io::buffer::IoBuf::from_raw`]). If the guest changes it meanwhile,
//! the medium gets one version or the other. Devices only copy payload or pass it to the kernel,
//! and make no decisions based on it.
//!
//! # Truncated files
//! A file shorter than its region is refused, and each file is sealed against shrinking when it is
//! mapped. Files that do not support seals, such as those on a file system, may be truncated later.
//! Access then reaches zero pages of this process instead of raising SIGBUS, and the region is
//! [lost](Memory::is_lost): see [`zonal_io::mapping`]. A queue checks for this before it reports
//! completions to the guest, and the connection ends. A write in flight at that moment may store
//! zeroes for payload that the guest has taken away.
//!
//! # Why not vm-memory
//! vm-memory 0.18 passes offset and length of a region to `mmap` and `munmap` unchanged. A region
//! that starts inside a page then cannot be mapped, and a mapping of huge pages with an odd length
//! is never unmapped; here both are rounded to the page size of the file. With this mapping kept,
//! the crate would only replace address lookup and header copies; the checks, the seal, the front
//! end's addresses and the lent buffers would stay.

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

/// Maximum regions of a guest. QEMU has as many as memory module slots, which are 256.
pub const REGIONS_MAX: usize = 256;

/// Size of a normal page in bytes.
const PAGE: u64 = 4096;

/// File system type with huge pages (`statfs(2)`).
const HUGETLBFS: i64 = 0x9584_58F6;

/// Reason why a region cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Empty, or beyond the end of an address space.
    #[error("invalid region: {len} bytes at {guest:#x}, {user:#x} and offset {offset:#x} of its file")]
    Range {
        /// Guest-physical address.
        guest: u64,
        /// Length in bytes.
        len: u64,
        /// Address in the front end.
        user: u64,
        /// Offset in its file.
        offset: u64,
    },
    /// Overlap with another region.
    #[error("regions overlap at {guest:#x}")]
    Overlap {
        /// Guest-physical address of the new region.
        guest: u64,
    },
    /// Already [`REGIONS_MAX`] regions.
    #[error("more than {REGIONS_MAX} regions")]
    TooMany,
    /// The descriptor is not a regular file.
    #[error("the descriptor of a region is not a regular file")]
    NotAFile,
    /// The file is shorter than the region.
    #[error("a region ends at offset {end}, beyond its file of {len} bytes")]
    FileTooShort {
        /// End of the region in the file.
        end: u64,
        /// Length of the file in bytes.
        len: u64,
    },
    /// Removal of a region that does not exist.
    #[error("no such region at {guest:#x}")]
    NotThere {
        /// Guest-physical address.
        guest: u64,
    },
    /// The mapping failed.
    #[error("a region cannot be mapped: {0}")]
    System(#[from] Errno),
}

/// Maps the pages of `file` with the bytes from `offset` to `end`. Also returns the address of the
/// first of these bytes.
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

/// Mapped region of guest memory.
pub struct Region {
    guest: u64,
    user: u64,
    len: u64,
    /// Address of the first byte in this process. The bytes after it are mapped for the region's
    /// length.
    first: NonNull<u8>,
    mapping: SharedMapping,
}

// SAFETY: as for the mapping, into which `first` points.
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
        // Seal before the length is checked. A file that does not support seals must not shrink:
        // see the module.
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

    /// Number of bytes from `guest` to the end of the region; `None` if outside.
    fn left(&self, guest: u64) -> Option<u64> {
        let offset = guest.checked_sub(self.guest)?;
        self.len.checked_sub(offset).filter(|left| *left > 0)
    }

    /// True if the file was found to be shorter than the region.
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    fn overlaps(&self, other: &Region) -> bool {
        self.guest < other.guest + other.len && other.guest < self.guest + self.len
    }
}

/// Regions of a guest in order of address, without overlap.
#[derive(Clone, Default)]
pub struct Memory {
    regions: Vec<Arc<Region>>,
}

impl Memory {
    /// Returns the memory with another region.
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

    /// Returns the memory without the region at these addresses. The region stays mapped while a
    /// request uses it.
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

    /// True if the file of a region was found to be shorter than the region.
    #[inline]
    pub fn is_lost(&self) -> bool {
        mapping::is_any_lost() && self.regions.iter().any(|region| region.is_lost())
    }

    /// Memory of a ring at an address of the front end; `None` if it is misaligned or not within
    /// one region.
    pub fn area(&self, user: u64, len: usize, align: usize) -> Option<Area> {
        let end = user.checked_add(len as u64)?;
        let has = |region: &&Arc<Region>| region.user <= user && end <= region.user + region.len;
        let region = self.regions.iter().find(has)?.clone();
        // SAFETY: the region is mapped for its length, in which this offset is.
        let ptr = unsafe { region.first.add((user - region.user) as usize) };
        ptr.addr().get().is_multiple_of(align).then_some(Area { ptr, len, align, region })
    }

    /// Region containing this guest-physical address.
    fn region(&self, guest: u64) -> Option<&Region> {
        let after = self.regions.partition_point(|region| region.guest <= guest);
        self.regions.get(after.checked_sub(1)?).map(|region| &**region)
    }

    /// Appends the location of `len` bytes from `guest` on to `spans`. Returns false if they are
    /// not all in memory.
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
            // Cannot wrap: regions end within the address space.
            guest = guest.wrapping_add(here);
        }
        true
    }
}

/// Mapped bytes. The owner keeps their memory mapped.
#[derive(Clone, Copy)]
struct Span {
    ptr: NonNull<u8>,
    len: u32,
}

/// Bytes of a request in one direction: few pieces, usually a header and a page.
type Spans = SmallVec<[Span; 4]>;

/// Appends a span, merging it with the last one if contiguous.
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

/// Copies from guest memory, in words where aligned, each byte once.
///
/// # Safety
/// `bytes.len()` bytes from `from` on are mapped.
unsafe fn copy_out(from: NonNull<u8>, bytes: &mut [u8]) {
    let len = bytes.len();
    let mut at = 0;
    while at < len {
        // SAFETY: before the end of the mapped bytes.
        let here = unsafe { from.add(at) };
        if len - at >= 8 && here.addr().get().is_multiple_of(8) {
            // SAFETY: eight mapped bytes, aligned; other accesses are atomic or by another process.
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

/// Copies to guest memory in the same way.
///
/// # Safety
/// `bytes.len()` bytes from `to` on are mapped.
unsafe fn copy_in(to: NonNull<u8>, bytes: &[u8]) {
    let mut left = bytes;
    let mut at = 0;
    while let Some(first) = left.first() {
        // SAFETY: before the end of the mapped bytes.
        let here = unsafe { to.add(at) };
        match left.first_chunk::<8>() {
            Some(word) if here.addr().get().is_multiple_of(8) => {
                let value = u64::from_ne_bytes(*word);
                // SAFETY: eight mapped bytes, aligned; other accesses are atomic or by another
                // process.
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

/// Memory of a ring: numbers read and written by both the guest and this process.
///
/// Offsets are in bytes. An offset that is out of bounds or misaligned panics: callers derive
/// offsets from the length of the ring, so it is a bug.
pub struct Area {
    ptr: NonNull<u8>,
    len: usize,
    align: usize,
    region: Arc<Region>,
}

// SAFETY: it points into its region, which it keeps mapped, and all access is atomic.
unsafe impl Send for Area {}

macro_rules! numbers {
    ($($atomic:ident, $number:ty, $load:ident, $store:ident;)*) => {
        $(
            /// Loads the number at `at`.
            #[inline]
            pub fn $load(&self, at: usize, order: Ordering) -> $number {
                <$number>::from_le(self.number::<$atomic>(at).load(order))
            }

            /// Stores the number at `at`.
            #[inline]
            pub fn $store(&self, at: usize, value: $number, order: Ordering) {
                self.number::<$atomic>(at).store(value.to_le(), order);
            }
        )*
    };
}

impl Area {
    /// Atomic at `at`. `T` is an atomic type of the standard library.
    #[inline]
    fn number<T>(&self, at: usize) -> &T {
        let is_inside = at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        assert!(
            is_inside && self.align >= align_of::<T>() && at.is_multiple_of(align_of::<T>()),
            "beyond a ring"
        );
        // SAFETY: within the area, which stays mapped with the region; aligned; and every value is
        // valid.
        unsafe { self.ptr.add(at).cast::<T>().as_ref() }
    }

    numbers! {
        AtomicU8, u8, load_u8, store_u8;
        AtomicU16, u16, load_u16, store_u16;
        AtomicU32, u32, load_u32, store_u32;
        AtomicU64, u64, load_u64, store_u64;
    }
}

/// Maps a file of this process as memory, which a front end keeps after this process has ended.
///
/// # Errors
/// [`MemoryError`].
pub fn map_area(file: &OwnedFd, offset: u64, len: u64) -> Result<Arc<Region>, MemoryError> {
    let region = MemoryRegion { guest: 0.into(), len: len.into(), user: 0.into(), offset: offset.into() };
    Region::new(&region, file).map(Arc::new)
}

impl Area {
    /// True if the file of its region was found to be shorter than the region.
    pub fn is_lost(&self) -> bool {
        mapping::is_any_lost() && self.region.is_lost()
    }

    /// Area of `len` bytes at `offset` of a region.
    pub fn of(region: &Arc<Region>, offset: u64, len: usize, align: usize) -> Option<Area> {
        let memory = Memory { regions: vec![region.clone()] };
        memory.area(region.user.checked_add(offset)?, len, align)
    }
}

#[cfg(test)]
mod tests;
