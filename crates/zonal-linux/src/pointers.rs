//! Comparison of the kernel's write pointers with those of the drive.
//!
//! The kernel keeps a write pointer of its own for each partly written zone, and refuses writes
//! elsewhere. It loses track of changes that bypass it, such as a reset by SCSI passthrough.
//!
//! # Why a difference is looked at again
//! The kernel's pointer moves when a write is submitted, the drive's when it is executed. A
//! difference is stale only if it remains as it is.

use crate::ioctl::Reported;
use crate::stale::Stale;
use std::collections::BTreeMap;
use std::io;

/// Samples in which a difference has to remain the same.
pub(crate) const SAMPLES: usize = 4;

/// Write pointers of the kernel in sectors from the start of the zone; zones without one are
/// missing.
pub(crate) type KernelPointers = BTreeMap<u32, u64>;

/// Flag of a plug with writes in flight, and one of which the kernel reports the zone before the
/// next write. The pointers of these may differ.
const UNSETTLED: u32 = 0b11;

/// Parses `zone_wplugs` of the kernels from 6.10 to 6.18: zone, flags, references, write pointer and
/// number of waiting writes, in a line each. Plugs with unsettled pointers are left out.
///
/// # Errors
/// The first line of another format.
pub(crate) fn parse_plugs(text: &str) -> Result<KernelPointers, String> {
    let mut found = KernelPointers::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let plug = parse_plug(line).ok_or_else(|| line.to_owned())?;
        let (zone, flags, pointer, waiting) = plug;
        if flags & UNSETTLED == 0 && waiting == 0 {
            found.insert(zone, pointer);
        }
    }
    Ok(found)
}

fn parse_plug(line: &str) -> Option<(u32, u32, u64, u64)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [zone, flags, references, pointer, waiting] = words[..] else { return None };
    references.parse::<u32>().ok()?;
    let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
    Some((zone.parse().ok()?, flags, pointer.parse().ok()?, waiting.parse().ok()?))
}

/// Write pointers in a report of the kernel's own table.
pub(crate) fn of_report(zones: &[Reported]) -> KernelPointers {
    let is_inside = |zone: &Reported| zone.pointer <= zone.start + zone.sectors;
    let pointer = |zone: &Reported| match zone.condition {
        // A pointer outside of the zone is none.
        2..=4 | 0xFF if !is_inside(zone) => None,
        _ => zone.written(),
    };
    (0u32..).zip(zones).filter_map(|(index, zone)| Some((index, pointer(zone)?))).collect()
}

/// Zones whose pointers differ.
pub(crate) fn compare(drive: &[Reported], kernel: &KernelPointers) -> Vec<Stale> {
    let differs = |(zone, kernel): (&u32, &u64)| {
        let reported = drive.get(*zone as usize)?;
        let written = reported.written()?;
        // The kernel marks a full zone with a pointer beyond it.
        let kernel = (*kernel).min(reported.capacity);
        (kernel != written).then_some(Stale { zone: *zone, drive: written, kernel })
    };
    kernel.iter().filter_map(differs).collect()
}

/// Differences that are the same in each of [`SAMPLES`] samples. Stops at a sample without any.
///
/// # Errors
/// Those of `sample`.
pub(crate) fn settled(mut sample: impl FnMut() -> io::Result<Vec<Stale>>) -> io::Result<Vec<Stale>> {
    let mut stale = sample()?;
    for _ in 1..SAMPLES {
        if stale.is_empty() {
            break;
        }
        let again = sample()?;
        stale.retain(|zone| again.contains(zone));
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(index: u64, condition: u8, written: u64) -> Reported {
        let start = index * 1024;
        Reported { start, sectors: 1024, capacity: 1000, pointer: start + written, kind: 2, condition }
    }

    #[test]
    fn plugs_are_parsed_and_unsettled_ones_are_left_out() {
        let text = "3 0x0 1 128 0\n4 0x1 3 256 2\n5 0x2 1 8 0\n6 0x4 1 1024 0\n";
        assert_eq!(parse_plugs(text), Ok([(3, 128), (6, 1024)].into()));
        let newer = "3 0x0 1 0x3 128 0";
        assert_eq!(parse_plugs(newer), Err(newer.to_owned()));
        assert_eq!(parse_plugs(""), Ok(KernelPointers::new()));
    }

    #[test]
    fn pointer_ahead_behind_and_of_a_full_zone_are_stale() {
        let drive =
            [zone(0, 1, 0), zone(1, 2, 64), zone(2, 14, 0), zone(3, 4, 8), zone(4, 0, 0), zone(5, 14, 0)];
        // Zone 3 agrees, zone 4 is conventional, zone 5 is full for both.
        let kernel = [(0, 8), (1, 128), (2, 512), (3, 8), (4, 16), (5, u64::from(u32::MAX))].into();
        let expected = [(0, 0, 8), (1, 64, 128), (2, 1000, 512)];
        let expected = expected.map(|(zone, drive, kernel)| Stale { zone, drive, kernel });
        assert_eq!(compare(&drive, &kernel), expected);
    }

    #[test]
    fn report_of_the_kernel_has_pointers_of_active_empty_and_full_zones() {
        let mut unknown = zone(3, 0xFF, 0);
        unknown.pointer = u64::MAX;
        let zones = [zone(0, 0xFF, 64), zone(1, 1, 0), zone(2, 14, 0), unknown, zone(4, 0, 0)];
        assert_eq!(of_report(&zones), [(0, 64), (1, 0), (2, 1000)].into());
    }

    #[test]
    fn difference_that_moves_is_not_stale() {
        let stale = |drive| Stale { zone: 7, drive, kernel: 64 };
        let mut drive = 0;
        let moving = settled(|| {
            drive += 8;
            Ok(vec![stale(drive)])
        });
        assert_eq!(moving.unwrap(), []);
        assert_eq!(settled(|| Ok(vec![stale(8)])).unwrap(), [stale(8)]);
    }
}
