//! The kernel's own write pointers, and how they are set right.
//!
//! The kernel keeps a write pointer for each zone, and refuses writes elsewhere. If a zone is
//! changed behind its back, such as by a command through `sg` or `ng`, its pointer is *stale*: a
//! report shows the drive's, where the kernel then refuses every write. Neither a report nor a
//! rescan mends that, because the kernel asks the drive for a pointer only after the drive has
//! failed a write.
//!
//! So the cure is such a failure: one block is written at the kernel's pointer, where the drive
//! refuses it, and the zone is reported. That must never be tried where the two pointers agree: the
//! write would succeed.

use crate::ioctl::{self, Reported, Source};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use zonal_io::buffer::IoBuf;

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// A zone whose pointer the kernel and the drive do not agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stale {
    /// First sector of the zone.
    pub start: u64,
    /// Capacity of the zone in sectors.
    pub capacity: u64,
    /// The kernel's pointer, in sectors from the start.
    pub kernel: u64,
    /// The drive's pointer, in sectors from the start.
    pub drive: u64,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stale { start, kernel, drive, .. } = self;
        write!(
            f,
            "the zone at sector {start} is written up to offset {drive}, but the kernel expects the next write at {kernel}"
        )
    }
}

/// Reason why a zone is still stale.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HealError {
    /// The kernel has no pointer in the zone at which a write could be tried.
    #[error("{0}; the kernel takes the zone for full, so no write can be tried there: reset the zone, or unbind and bind the drive's driver")]
    Full(Stale),
    /// The pointers have changed in the meantime: somebody writes the zone.
    #[error("{0}; the pointers have changed since: another program writes the zone")]
    Moving(Stale),
    /// The drive has accepted the write.
    #[error("{0}; the drive has accepted a block of zeroes there: another program writes the zone")]
    Accepted(Stale),
    /// The pointers differ as before.
    #[error("{0}, also after a refused write and a report: unbind and bind the drive's driver")]
    Remains(Stale),
    /// The kernel refused a report.
    #[error("the zones cannot be reported: {0}")]
    Report(#[from] io::Error),
}

/// Source of the kernel's pointers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pointers {
    /// Reports of the kernel's table (Linux 6.19).
    Reports,
    /// Table of the debug file system, at this path (Linux 6.10).
    Debug(std::path::PathBuf),
    /// None: the kernel has no pointers, or does not show them.
    Hidden,
}

impl Pointers {
    /// Finds the source for an open block device with this kernel name.
    pub fn of(file: &File, name: &str) -> Pointers {
        if ioctl::report(file, 0, 1, Source::Kernel).is_ok() {
            return Pointers::Reports;
        }
        let path = std::path::Path::new("/sys/kernel/debug/block").join(name).join("zone_wplugs");
        match fs::read(&path) {
            Ok(_) => Pointers::Debug(path),
            Err(_) => Pointers::Hidden,
        }
    }

    /// Compares the kernel's pointers with those of the drive for the zones in `reported`. Zones
    /// that are being written may seem stale.
    ///
    /// # Errors
    /// Those of the report.
    pub fn stale(&self, file: &File, reported: &[Reported]) -> io::Result<Vec<Stale>> {
        let (Some(first), true) = (reported.first(), *self != Pointers::Hidden) else { return Ok(Vec::new()) };
        let kernel: Vec<Option<u64>> = match self {
            Pointers::Reports => {
                let mut all = Vec::new();
                while all.len() < reported.len() {
                    let sector = reported[all.len()].start;
                    let some = ioctl::report(file, sector, reported.len() - all.len(), Source::Kernel)?;
                    if some.is_empty() {
                        break;
                    }
                    all.extend(some.iter().map(Reported::written));
                }
                all
            }
            Pointers::Debug(path) => {
                let table = fs::read_to_string(path)?;
                let size = first.sectors.max(1);
                let known: std::collections::HashMap<u64, u64> = table.lines().filter_map(parse_plug).collect();
                reported.iter().map(|zone| known.get(&(zone.start / size)).copied()).collect()
            }
            Pointers::Hidden => Vec::new(),
        };
        let pair = |(zone, kernel): (&Reported, Option<u64>)| {
            let (drive, kernel) = (zone.written()?, kernel?);
            let differs = zone.kind == 2 && drive != kernel;
            differs.then_some(Stale { start: zone.start, capacity: zone.capacity, kernel, drive })
        };
        Ok(reported.iter().zip(kernel).filter_map(pair).collect())
    }
}

/// Parses a line of `zone_wplugs`, as of Linux 6.10 to 6.18: the zone's number, flags, references,
/// and write pointer in sectors from the start.
fn parse_plug(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let zone = words.next()?.parse().ok()?;
    let (_flags, _references) = (words.next()?, words.next()?);
    Some((zone, words.next()?.parse().ok()?))
}

/// Reports all zones of `file`, which has `sectors` sectors.
///
/// # Errors
/// Those of the kernel.
pub fn report_all(file: &File, sectors: u64) -> io::Result<Vec<Reported>> {
    let mut zones: Vec<Reported> = Vec::new();
    loop {
        let from = zones.last().map_or(0, |zone| zone.start + zone.sectors);
        if from >= sectors {
            return Ok(zones);
        }
        let some = ioctl::report(file, from, usize::MAX, Source::Drive)?;
        if some.is_empty() {
            return Ok(zones);
        }
        zones.extend(some);
    }
}

/// Sets the kernel's pointer of a stale zone to the drive's. `file` is open for writing and direct
/// I/O, `block` is the unit of writes in bytes, and nobody else writes the zone.
///
/// # Errors
/// [`HealError`].
pub fn heal(file: &File, pointers: &Pointers, stale: Stale, block: u32) -> Result<(), HealError> {
    if stale.kernel >= stale.capacity {
        return Err(HealError::Full(stale));
    }
    // The write below is harmless only while the pointers differ, so both are asked for again.
    let found = look(file, pointers, stale.start)?;
    if found != Some(stale) {
        return match found {
            None => Ok(()),
            Some(_) => Err(HealError::Moving(stale)),
        };
    }
    let zeroes = IoBuf::zeroed(block);
    if file.write_at(&zeroes, (stale.start + stale.kernel) * SECTOR).is_ok() {
        return Err(HealError::Accepted(stale));
    }
    match look(file, pointers, stale.start)? {
        None => Ok(()),
        Some(still) => Err(HealError::Remains(still)),
    }
}

/// Reports one zone from the drive and compares the kernel's pointer.
fn look(file: &File, pointers: &Pointers, start: u64) -> io::Result<Option<Stale>> {
    let zone = ioctl::report(file, start, 1, Source::Drive)?;
    if zone.is_empty() {
        return Err(Errno::NODEV.into());
    }
    Ok(pointers.stale(file, &zone)?.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_the_debug_file_system_is_parsed() {
        assert_eq!(parse_plug("12 0x2 1 4096 0"), Some((12, 4096)));
        assert_eq!(parse_plug("Zone no: 12, flags 0x2"), None);
        assert_eq!(parse_plug(""), None);
    }

    #[test]
    fn zone_that_only_one_side_has_a_pointer_for_is_not_stale() {
        let file = tempfile::tempfile().unwrap();
        let zone = Reported { start: 0, sectors: 64, capacity: 64, pointer: 8, kind: 2, condition: 2 };
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), "0 0x0 1 16 0\n2 0x0 1 8 0\n").unwrap();
        let pointers = Pointers::Debug(path.path().to_owned());
        let zones = [zone, Reported { start: 64, pointer: 72, ..zone }, Reported { start: 128, pointer: 136, ..zone }];
        let stale = pointers.stale(&file, &zones).unwrap();
        assert_eq!(stale, [Stale { start: 0, capacity: 64, kernel: 16, drive: 8 }]);
        assert_eq!(Pointers::Hidden.stale(&file, &zones).unwrap(), []);
    }
}
