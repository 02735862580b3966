//! The kernel's own write pointers, and how they are set right.
//!
//! The kernel keeps a write pointer for each zone, and refuses writes elsewhere. If a zone is
//! changed behind its back, such as by a command through `sg` or `ng`, its pointer is *stale*: a
//! report shows the drive's, where the kernel then refuses every write. A report or a rescan does
//! not mend that, because the kernel asks the drive for a pointer only after a failed write.
//!
//! So the cure is such a failure: one block is written at the kernel's pointer, where the drive
//! refuses it, and the zone is reported. That must never be tried where the two pointers agree: the
//! write would succeed.

use crate::doctor::{KERNEL_WITH_POINTERS, KernelVersion};
use crate::ioctl::{self, Reported, Source};
use crate::pointers::{KernelPointers, compare, of_report, parse_plugs, settled};
use rustix::fs::OFlags;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zonal_core::SECTOR_BYTES;
use zonal_io::buffer::IoBuf;

/// Zones of one report.
const REPORTED: usize = 4096;

/// Pause between samples of write pointers: longer than a write takes, other than one that the drive
/// does not answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Zone whose write pointer the kernel has wrong. Pointers are sectors from the start of the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stale {
    /// Index of the zone.
    pub zone: u32,
    /// Write pointer of the drive.
    pub drive: u64,
    /// Write pointer of the kernel.
    pub kernel: u64,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stale { zone, drive, kernel } = self;
        write!(
            f,
            "the write pointer of zone {zone} is at sector {drive} on the drive, and at {kernel} in the kernel"
        )
    }
}

/// Reason why a zone is still stale.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealError {
    /// The kernel's pointer is at the end of the zone, where no write can be tried.
    #[error(
        "{0}, which takes the zone for full, so that no write can be tried: reset the zone, or unbind and bind the driver of the drive"
    )]
    Full(Stale),
    /// The pointers have changed in the meantime.
    #[error("{0}; the pointers have changed since, because another program writes the zone")]
    Moving(Stale),
    /// Writes are on their way to the drive, and may be why the kernel's pointer is ahead.
    #[error("{0}; writes are on their way to the drive, possibly to this zone, so that nothing is tried")]
    Busy(Stale),
    /// The drive has accepted the write.
    #[error("{0}, where the drive has accepted a block of zeroes, because another program writes the zone")]
    Accepted(Stale),
    /// The pointers differ as before.
    #[error("{0}, also after a refused write and a report: unbind and bind the driver of the drive")]
    Remains(Stale),
    /// The kernel refused a report.
    #[error("the zones cannot be reported: {0}")]
    Report(#[from] io::Error),
}

/// Place where the kernel shows its write pointers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelTable {
    /// Reports of the kernel's own table (Linux 6.19).
    Reports,
    /// Table of the debug file system, at this path (Linux 6.10).
    Debug(PathBuf),
    /// The kernel does not show them, with the reason.
    Hidden(String),
    /// The kernel has none.
    Absent,
}

impl KernelTable {
    /// Finds the table for an open block device with this kernel name.
    pub fn of(file: &File, name: &str) -> KernelTable {
        if ioctl::report(file, 0, 1, Source::Kernel).is_ok() {
            return KernelTable::Reports;
        }
        if KernelVersion::running().is_some_and(|version| version < KERNEL_WITH_POINTERS) {
            return KernelTable::Absent;
        }
        let path = Path::new("/sys/kernel/debug/block").join(name).join("zone_wplugs");
        match fs::read_to_string(&path).map(|text| parse_plugs(&text)) {
            Ok(Ok(_)) => KernelTable::Debug(path),
            Ok(Err(line)) => KernelTable::Hidden(format!("{}: unknown format: {line:?}", path.display())),
            Err(error) => KernelTable::Hidden(format!("{}: {error}", path.display())),
        }
    }

    /// Zones of `file`, which has `sectors` sectors, whose pointers differ at the moment.
    ///
    /// # Errors
    /// Those of the reports.
    pub fn stale(&self, file: &File, sectors: u64) -> io::Result<Vec<Stale>> {
        // The drive is asked first: its report corrects the pointers that the kernel knows to be
        // wrong.
        let drive = report_all(file, sectors, Source::Drive)?;
        let kernel = match self {
            KernelTable::Reports => of_report(&report_all(file, sectors, Source::Kernel)?),
            KernelTable::Debug(path) => plugs(path)?,
            KernelTable::Hidden(_) | KernelTable::Absent => return Ok(Vec::new()),
        };
        Ok(compare(&drive, &kernel))
    }

    /// Like [`KernelTable::stale`], without zones that are being written: differences that do not
    /// change for a third of a second. Sleeps if there are any.
    ///
    /// # Errors
    /// Those of the reports.
    pub fn settled(&self, file: &File, sectors: u64) -> io::Result<Vec<Stale>> {
        let mut is_first = true;
        settled(|| {
            if !std::mem::take(&mut is_first) {
                std::thread::sleep(PAUSE);
            }
            self.stale(file, sectors)
        })
    }

    /// Compares the pointers of a single zone, which begins at sector `start`.
    ///
    /// # Errors
    /// Those of the reports.
    pub fn stale_zone(&self, file: &File, zone: u32, start: u64) -> io::Result<Option<Stale>> {
        let drive = first(ioctl::report(file, start, 1, Source::Drive)?)?;
        let kernel = match self {
            KernelTable::Reports => {
                let kernel = first(ioctl::report(file, start, 1, Source::Kernel)?)?;
                of_report(&[kernel]).get(&0).copied()
            }
            KernelTable::Debug(path) => plugs(path)?.get(&zone).copied(),
            KernelTable::Hidden(_) | KernelTable::Absent => None,
        };
        let known = kernel.map(|kernel| (0, kernel)).into_iter().collect();
        Ok(compare(&[drive], &known).first().map(|found| Stale { zone, ..*found }))
    }
}

fn first(zones: Vec<Reported>) -> io::Result<Reported> {
    zones.first().copied().ok_or_else(|| io::Error::other("no zone was reported: the drive is gone"))
}

fn plugs(path: &Path) -> io::Result<KernelPointers> {
    let unknown = |line| io::Error::other(format!("{}: unknown format: {line:?}", path.display()));
    parse_plugs(&fs::read_to_string(path)?).map_err(unknown)
}

/// Reports all zones of `file`, which has `sectors` sectors.
///
/// # Errors
/// Those of the kernel, and that of a pulled drive, which reports no zones and no error.
pub fn report_all(file: &File, sectors: u64, source: Source) -> io::Result<Vec<Reported>> {
    let (mut zones, mut sector) = (Vec::new(), 0);
    while sector < sectors {
        let some = ioctl::report(file, sector, REPORTED, source)?;
        match some.last() {
            Some(last) if last.sectors > 0 => sector = last.start + last.sectors,
            _ => return Err(io::Error::other(format!("no zone reported at sector {sector}"))),
        }
        zones.extend(some);
    }
    Ok(zones)
}

/// Sets the kernel's pointer of a stale zone to the drive's. `file` is open for writing and direct
/// I/O, `directory` is that of the device in `sysfs`, and `block` the unit of writes in bytes.
///
/// The kernel's pointer of a zone that is being written is ahead of the drive's, too. So a pointer
/// that is ahead is left alone while any write is on its way to the drive.
///
/// # Errors
/// [`HealError`].
pub fn heal(
    file: &File,
    table: &KernelTable,
    directory: &Path,
    zone_sectors: u64,
    stale: Stale,
    block: u32,
) -> Result<(), HealError> {
    let start = u64::from(stale.zone) * zone_sectors;
    if stale.kernel > stale.drive && !has_no_writes(directory) {
        return Err(HealError::Busy(stale));
    }
    // The write below is harmless only while the pointers differ, so both are asked for again. A
    // write that began in the meantime has moved the kernel's.
    match table.stale_zone(file, stale.zone, start)? {
        None => return Ok(()),
        Some(found) if found != stale => return Err(HealError::Moving(found)),
        Some(_) => {}
    }
    if stale.kernel >= first(ioctl::report(file, start, 1, Source::Drive)?)?.capacity {
        return Err(HealError::Full(stale));
    }
    let zeroes = IoBuf::zeroed(block);
    if file.write_at(&zeroes, (start + stale.kernel) * SECTOR_BYTES).is_ok() {
        return Err(HealError::Accepted(stale));
    }
    match table.stale_zone(file, stale.zone, start)? {
        None => Ok(()),
        Some(still) => Err(HealError::Remains(still)),
    }
}

/// True if the kernel has no write in flight on the device.
fn has_no_writes(directory: &Path) -> bool {
    // The second number counts writes.
    let counts = fs::read_to_string(directory.join("inflight")).unwrap_or_default();
    counts.split_ascii_whitespace().nth(1) == Some("0")
}

/// Sets the kernel's pointers of stale zones of the block device at `path` right. Nobody else may
/// write the zones.
///
/// # Errors
/// [`HealError`] of the first zone that stays stale.
pub fn heal_device(path: &Path, facts: &crate::sysfs::Facts, stale: &[Stale]) -> Result<(), HealError> {
    let mut options = OpenOptions::new();
    // Exclusive, so that no file system begins to use it. A buffered write would reach the drive later.
    options.read(true).write(true).custom_flags((OFlags::DIRECT | OFlags::EXCL).bits() as i32);
    let file = options.open(path)?;
    let table = KernelTable::of(&file, &facts.name);
    stale.iter().try_for_each(|zone| {
        heal(&file, &table, &facts.directory, facts.zone_sectors, *zone, facts.write_unit)
    })
}
