//! Zone operations of the kernel's block layer, as blocking calls on an open block device.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use zonal_core::{Geometry, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneType};

/// `struct blk_zone` of `linux/blkzoned.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BlkZone {
    start: u64,
    len: u64,
    wp: u64,
    kind: u8,
    cond: u8,
    non_seq: u8,
    reset: u8,
    resv: [u8; 4],
    capacity: u64,
    reserved: [u8; 24],
}

/// Header of `struct blk_zone_report`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ReportHeader {
    sector: u64,
    zones: u32,
    flags: u32,
}

/// `struct blk_zone_range`.
#[repr(C)]
struct ZoneRange {
    sector: u64,
    sectors: u64,
}

#[cfg(any(
    target_arch = "powerpc",
    target_arch = "powerpc64",
    target_arch = "mips",
    target_arch = "mips64",
    target_arch = "sparc",
    target_arch = "sparc64"
))]
compile_error!("the numbers of zone ioctls differ on this machine");

// Numbers of `linux/blkzoned.h` and `linux/fs.h`, on machines with the generic encoding.
const REPORT: libc::c_ulong = 0xC010_1282;
const RESET: libc::c_ulong = 0x4010_1283;
const OPEN: libc::c_ulong = 0x4010_1286;
const CLOSE: libc::c_ulong = 0x4010_1287;
const FINISH: libc::c_ulong = 0x4010_1288;
const REPORT_V2: libc::c_ulong = 0xC010_128E;
const SIZE: libc::c_ulong = 0x8000_1272 | (size_of::<usize>() as libc::c_ulong) << 16;

/// Flag of the answer: the capacities are valid (Linux 5.9).
const HAS_CAPACITY: u32 = 1;
/// Flag of the request: the zones as the kernel believes them to be, without asking the drive.
const CACHED: u32 = 1 << 31;

/// Largest number of zones of one call.
const REPORTED_MAX: usize = 4096;

/// A zone as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reported {
    /// First sector.
    pub start: u64,
    /// Size in sectors.
    pub sectors: u64,
    /// Capacity in sectors.
    pub capacity: u64,
    /// Write pointer, an absolute sector. Without meaning in some conditions.
    pub pointer: u64,
    /// Type: 1 conventional, 2 sequential, 3 sequential preferred.
    pub kind: u8,
    /// Condition: see [`condition`].
    pub condition: u8,
}

/// Conditions of a zone in a report, as in `linux/blkzoned.h`.
pub mod condition {
    /// Empty.
    pub const EMPTY: u8 = 1;
    /// Opened by a command.
    pub const EXPLICITLY_OPEN: u8 = 3;
    /// Closed.
    pub const CLOSED: u8 = 4;
    /// Readable only.
    pub const READ_ONLY: u8 = 13;
    /// Full.
    pub const FULL: u8 = 14;
    /// Neither readable nor writable.
    pub const OFFLINE: u8 = 15;
}

/// Source of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The drive.
    Drive,
    /// The kernel's own table of write pointers (Linux 6.19).
    Kernel,
}

/// Action on a range of zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Empties the zones.
    Reset,
    /// Opens the zones explicitly.
    Open,
    /// Closes the zones.
    Close,
    /// Fills the zones.
    Finish,
}

/// Calls an ioctl with a pointer to `argument`.
///
/// # Safety
/// The request `number` accesses no more than the memory of `argument`.
unsafe fn call<T>(file: &File, number: libc::c_ulong, argument: *mut T) -> io::Result<()> {
    // SAFETY: promised by the caller; the descriptor is open.
    match unsafe { libc::ioctl(file.as_raw_fd(), number as _, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Reports up to `max` zones from the one that contains `sector`.
///
/// # Errors
/// Those of the kernel. ENOTTY from [`Source::Kernel`] means that this kernel cannot report them.
pub fn report(file: &File, sector: u64, max: usize, source: Source) -> io::Result<Vec<Reported>> {
    const HEAD: usize = size_of::<ReportHeader>();
    let max = max.clamp(1, REPORTED_MAX);
    // Entries of 64 bytes; the header fills a quarter of the first.
    let mut memory = vec![BlkZone::default(); max + 1];
    let head = memory.as_mut_ptr().cast::<ReportHeader>();
    let number = if source == Source::Kernel { REPORT_V2 } else { REPORT };
    let flags = if source == Source::Kernel { CACHED } else { 0 };
    // SAFETY: the memory has room for a header of 16 bytes and `max` entries, and is aligned to 8.
    let header = unsafe {
        head.write(ReportHeader { sector, zones: max as u32, flags });
        call(file, number, head)?;
        head.read()
    };
    let count = (header.zones as usize).min(max);
    let entry = |n: usize| {
        // SAFETY: `count` entries after the header are within the memory; any bytes are a `BlkZone`.
        unsafe { head.cast::<u8>().add(HEAD + n * size_of::<BlkZone>()).cast::<BlkZone>().read_unaligned() }
    };
    let zone = |raw: BlkZone| Reported {
        start: raw.start,
        sectors: raw.len,
        capacity: if header.flags & HAS_CAPACITY != 0 { raw.capacity } else { raw.len },
        pointer: raw.wp,
        kind: raw.kind,
        condition: raw.cond,
    };
    Ok((0..count).map(|n| zone(entry(n))).collect())
}

/// Performs `action` on the zones of a range.
///
/// # Errors
/// Those of the kernel.
pub fn manage(file: &File, action: Action, sector: u64, sectors: u64) -> io::Result<()> {
    let number = match action {
        Action::Reset => RESET,
        Action::Open => OPEN,
        Action::Close => CLOSE,
        Action::Finish => FINISH,
    };
    let mut range = ZoneRange { sector, sectors };
    // SAFETY: these requests read a `struct blk_zone_range`.
    unsafe { call(file, number, &raw mut range) }
}

/// Size in bytes; 0 after the drive was pulled.
///
/// # Errors
/// Those of the kernel.
pub fn size(file: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: the request writes 8 bytes.
    unsafe { call(file, SIZE, &raw mut bytes)? };
    Ok(bytes)
}

impl Reported {
    /// Condition, if it is one of a zone.
    pub fn zone_condition(&self) -> Option<ZoneCondition> {
        Some(match self.condition {
            0 => ZoneCondition::NotWp,
            1 => ZoneCondition::Empty,
            2 => ZoneCondition::ImpOpen,
            3 => ZoneCondition::ExpOpen,
            4 => ZoneCondition::Closed,
            13 => ZoneCondition::ReadOnly,
            14 => ZoneCondition::Full,
            15 => ZoneCondition::Offline,
            _ => return None,
        })
    }

    /// Position of the write pointer in the zone in sectors, if it has one: 0 in an empty zone, the
    /// capacity in a full one.
    pub fn written(&self) -> Option<u64> {
        match self.condition {
            1 => Some(0),
            14 => Some(self.capacity),
            // 0xFF is an active zone in the kernel's table.
            2..=4 | 0xFF => Some(self.pointer.saturating_sub(self.start).min(self.capacity)),
            _ => None,
        }
    }

    /// Descriptor of the zone; `None` if it does not fit `geometry` or has unknown values.
    pub fn descriptor(&self, geometry: &Geometry) -> Option<ZoneDescriptor> {
        let start = Sector(self.start);
        if self.start >= geometry.sectors().0 || geometry.offset_of(start) != 0 {
            return None;
        }
        let condition = self.zone_condition()?;
        let zone_type = match self.kind {
            1 => ZoneType::Conventional,
            2 => ZoneType::SequentialWriteRequired,
            _ => return None,
        };
        use ZoneCondition::{Closed, Empty, ExpOpen, ImpOpen};
        let has_pointer = matches!(condition, Empty | ImpOpen | ExpOpen | Closed);
        let written = self.written().unwrap_or(0);
        Some(ZoneDescriptor {
            zone: geometry.zone_of(start),
            start,
            size: Sectors(self.sectors),
            capacity: Sectors(self.capacity),
            zone_type,
            condition,
            write_pointer: has_pointer.then_some(Sector(self.start + written)),
        })
    }
}

/// Error number of a failed call; EIO if it has none.
pub fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
