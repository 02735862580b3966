//! A trace of a zoned drive, played as it is: every request at its place.
//!
//! Owns what has to be known of each zone for that: how many requests of it are under way, and whether it has data.
//! Resets and the like wait for what is under way in their zone, since a reset aborts writes that wait. A write at the
//! start of a zone that has data is preceded by a reset, as fio does it: its logs have none, and without it the write
//! could only fail.

use super::trace::{Record, TraceOp};
use zonal_core::{Geometry, Op, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex};
use zonal_io::device::DeviceInfo;

#[derive(Clone, Copy, Default)]
struct Zone {
    under_way: u32,
    has_data: bool,
}

/// The zones of a drive that is written as it is.
pub(super) struct AsIs {
    geometry: Geometry,
    block_sectors: u32,
    zones: Box<[Zone]>,
    under_way: u32,
}

/// Why a record cannot be played as it is.
pub(super) enum Misfit {
    Beyond,
    Unaligned,
}

impl AsIs {
    pub(super) fn new(info: &DeviceInfo, zones: &[ZoneDescriptor]) -> AsIs {
        let has_data = |z: &ZoneDescriptor| {
            z.condition != ZoneCondition::NotWp && z.write_pointer.is_none_or(|pointer| pointer > z.start)
        };
        AsIs {
            geometry: info.geometry,
            block_sectors: info.block_sectors,
            zones: zones.iter().map(|z| Zone { under_way: 0, has_data: has_data(z) }).collect(),
            under_way: 0,
        }
    }

    /// Sectors that a trace may name.
    pub(super) fn sectors(&self) -> u64 {
        self.geometry.sectors().0
    }

    pub(super) fn check(&self, record: &Record) -> Result<(), Misfit> {
        let Record { op, sector, sectors, .. } = *record;
        if matches!(op, TraceOp::Flush | TraceOp::ResetAll) {
            return Ok(());
        }
        let length = if op.has_range() { sectors } else { Sectors(1) };
        if !self.geometry.contains(sector, length) {
            return Err(Misfit::Beyond);
        }
        let is_of_blocks = (sector.0 | sectors.0).is_multiple_of(self.block_sectors.into());
        let moves_data = op.has_range() && op != TraceOp::Discard;
        if moves_data && !is_of_blocks { Err(Misfit::Unaligned) } else { Ok(()) }
    }

    fn zones_of(&self, sector: Sector, sectors: u64) -> std::ops::RangeInclusive<usize> {
        let last = Sector(sector.0 + sectors.max(1) - 1);
        self.geometry.zone_of(sector).0 as usize..=self.geometry.zone_of(last).0 as usize
    }

    /// Whether nothing is under way in the zones of this range.
    pub(super) fn is_quiet(&self, sector: Sector, sectors: u64) -> bool {
        self.zones[self.zones_of(sector, sectors)].iter().all(|zone| zone.under_way == 0)
    }

    /// Whether nothing is under way at all.
    pub(super) fn is_all_quiet(&self) -> bool {
        self.under_way == 0
    }

    /// Zones that a write of this range enters at their starts and that have data.
    pub(super) fn to_be_reset(&self, sector: Sector, sectors: u64) -> Vec<ZoneIndex> {
        let zones = self.zones_of(sector, sectors).map(|n| ZoneIndex(n as u32));
        let enters = |zone: &ZoneIndex| self.geometry.start_of(*zone) >= sector;
        let has_data = |zone: &ZoneIndex| self.zones[zone.0 as usize].has_data;
        let is_conventional = |zone: &ZoneIndex| self.geometry.is_conventional(*zone);
        zones.filter(|zone| enters(zone) && has_data(zone) && !is_conventional(zone)).collect()
    }

    /// The zone start that management and appends of `sector` are sent to.
    pub(super) fn start_of(&self, sector: Sector) -> Sector {
        self.geometry.start_of(self.geometry.zone_of(sector))
    }

    /// A request of this range goes out.
    pub(super) fn begin(&mut self, op: Op, sector: Sector, sectors: u64) {
        let range = self.zones_of(sector, sectors);
        for zone in &mut self.zones[range] {
            zone.under_way += 1;
            match op {
                Op::Write | Op::Append | Op::ZoneFinish => zone.has_data = true,
                Op::ZoneReset => zone.has_data = false,
                _ => {}
            }
        }
        if op == Op::ResetAll {
            self.zones.iter_mut().for_each(|zone| zone.has_data = false);
        }
        self.under_way += 1;
    }

    /// It has ended.
    pub(super) fn end(&mut self, sector: Sector, sectors: u64) {
        let range = self.zones_of(sector, sectors);
        self.zones[range].iter_mut().for_each(|zone| zone.under_way -= 1);
        self.under_way -= 1;
    }
}
