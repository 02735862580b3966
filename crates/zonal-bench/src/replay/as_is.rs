//! Replays a trace of a zoned drive as it is, with every request at its recorded place.
//!
//! Owns the state of each zone that this needs: the number of requests in flight, and whether it
//! has data. Resets and other zone commands wait for the requests in flight in their zone, since a
//! reset aborts waiting writes. As in fio, a write to the start of a zone with data is preceded by
//! a reset: fio's logs contain no resets, and the write would fail without one.

use super::trace::{Record, TraceOp};
use zonal_core::{Geometry, Op, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex};
use zonal_io::device::DeviceInfo;

#[derive(Clone, Copy, Default)]
struct Zone {
    under_way: u32,
    has_data: bool,
}

/// Zones of a drive with requests at their recorded places.
pub(super) struct AsIs {
    geometry: Geometry,
    block_sectors: u32,
    zones: Box<[Zone]>,
    under_way: u32,
}

/// Reason why a record cannot be replayed as it is.
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

    /// Number of sectors that a trace can address.
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

    /// True if nothing is in flight in the zones of this range.
    pub(super) fn is_quiet(&self, sector: Sector, sectors: u64) -> bool {
        self.zones[self.zones_of(sector, sectors)].iter().all(|zone| zone.under_way == 0)
    }

    /// True if nothing is in flight at all.
    pub(super) fn is_all_quiet(&self) -> bool {
        self.under_way == 0
    }

    /// Zones with data that a write of this range enters at their start.
    pub(super) fn to_be_reset(&self, sector: Sector, sectors: u64) -> Vec<ZoneIndex> {
        let zones = self.zones_of(sector, sectors).map(|n| ZoneIndex(n as u32));
        let enters = |zone: &ZoneIndex| self.geometry.start_of(*zone) >= sector;
        let has_data = |zone: &ZoneIndex| self.zones[zone.0 as usize].has_data;
        let is_conventional = |zone: &ZoneIndex| self.geometry.is_conventional(*zone);
        zones.filter(|zone| enters(zone) && has_data(zone) && !is_conventional(zone)).collect()
    }

    /// Start of the zone of `sector`, the address of zone commands and appends.
    pub(super) fn start_of(&self, sector: Sector) -> Sector {
        self.geometry.start_of(self.geometry.zone_of(sector))
    }

    /// Records that a request for this range is issued.
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

    /// Records that the request has completed.
    pub(super) fn end(&mut self, sector: Sector, sectors: u64) {
        let range = self.zones_of(sector, sectors);
        self.zones[range].iter_mut().for_each(|zone| zone.under_way -= 1);
        self.under_way -= 1;
    }
}
