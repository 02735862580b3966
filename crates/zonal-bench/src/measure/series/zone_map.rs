//! Condition and fill level of all zones of a device.

use zonal_core::{ZoneCondition, ZoneDescriptor};

/// Neighbouring zones with equal condition and fill level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneRun {
    /// Number of zones.
    pub zones: u32,
    /// Condition.
    pub condition: ZoneCondition,
    /// Written part of the capacity in percent: 0 only if empty, 100 only if completely written.
    pub fill: u8,
}

/// Run-length encoded zones in the order of the device. Of a hundred thousand zones, most are
/// alike.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZoneMap {
    /// Runs of equal zones.
    pub runs: Vec<ZoneRun>,
}

impl ZoneMap {
    /// Builds the map from zones in order.
    pub fn new<'a>(zones: impl IntoIterator<Item = &'a ZoneDescriptor>) -> ZoneMap {
        let mut runs: Vec<ZoneRun> = Vec::new();
        for zone in zones {
            let next = ZoneRun { zones: 1, condition: zone.condition, fill: fill(zone) };
            match runs.last_mut() {
                Some(last) if (last.condition, last.fill) == (next.condition, next.fill) => last.zones += 1,
                _ => runs.push(next),
            }
        }
        ZoneMap { runs }
    }
}

fn fill(zone: &ZoneDescriptor) -> u8 {
    let written = match zone.write_pointer {
        Some(pointer) => pointer.0.saturating_sub(zone.start.0),
        None if zone.condition == ZoneCondition::Full => return 100,
        None => return 0,
    };
    let capacity = zone.capacity.0.max(1);
    match (u128::from(written) * 100 / u128::from(capacity)) as u8 {
        0 if written > 0 => 1,
        100.. if written < capacity => 99,
        percent => percent.min(100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Sector, Sectors, ZoneIndex, ZoneType};

    fn zone(condition: ZoneCondition, written: Option<u64>) -> ZoneDescriptor {
        ZoneDescriptor {
            zone: ZoneIndex(0),
            start: Sector(8192),
            size: Sectors(8192),
            capacity: Sectors(6000),
            zone_type: ZoneType::SequentialWriteRequired,
            condition,
            write_pointer: written.map(|n| Sector(8192 + n)),
        }
    }

    #[test]
    fn zones_that_are_alike_are_one_run() {
        let empty = zone(ZoneCondition::Empty, Some(0));
        let open = |written| zone(ZoneCondition::ImpOpen, Some(written));
        let full = zone(ZoneCondition::Full, None);
        let map = ZoneMap::new(&[empty, empty, open(3000), open(3001), full, full, empty]);
        let runs: Vec<_> = map.runs.iter().map(|run| (run.zones, run.condition.name(), run.fill)).collect();
        assert_eq!(runs, [(2, "EMPTY", 0), (2, "IMP_OPEN", 50), (2, "FULL", 100), (1, "EMPTY", 0)]);
    }

    #[test]
    fn zone_is_neither_rounded_to_empty_nor_to_full() {
        assert_eq!(fill(&zone(ZoneCondition::Closed, Some(1))), 1);
        assert_eq!(fill(&zone(ZoneCondition::Closed, Some(5999))), 99);
        assert_eq!(fill(&zone(ZoneCondition::Closed, Some(6000))), 100);
    }
}
