//! A submitter's view of the drive: the volume itself, or a part of it with numbers of its own.

use rand::{Rng, RngExt};
use std::ops::Range;
use zonal_core::{Geometry, Op, Sector, ZoneIndex};
use zonal_io::device::Output;
use zonal_io::volume::{Completion, PartKind, Request};

/// Zones of the volume, and the kind of part that they form; `None` is the whole volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Face {
    pub zones: Range<u32>,
    pub kind: Option<PartKind>,
}

impl Face {
    pub fn volume(zones: u32) -> Face {
        Face { zones: 0..zones, kind: None }
    }

    /// A random part of a drive with this number of zones.
    pub fn part(rng: &mut impl Rng, zones: u32) -> Face {
        let first = rng.random_range(0..zones);
        let end = rng.random_range(first + 1..=zones);
        let kind = if rng.random_ratio(1, 2) { PartKind::Range } else { PartKind::Drive };
        Face { zones: first..end, kind: Some(kind) }
    }

    pub fn is_drive(&self) -> bool {
        self.kind == Some(PartKind::Drive)
    }

    fn start(&self, g: &Geometry) -> u64 {
        g.start_of(ZoneIndex(self.zones.start)).0
    }

    /// Number in this face of the volume's sector `sector`. Sectors before the part wrap around.
    pub fn here(&self, g: &Geometry, op: Op, sector: Sector) -> Sector {
        let has_address = !matches!(op, Op::Flush | Op::ResetAll);
        if has_address { Sector(sector.0.wrapping_sub(self.start(g))) } else { sector }
    }

    /// True if a request in the numbers of this face must be refused because of its range.
    pub fn refuses(&self, g: &Geometry, request: &Request) -> bool {
        let end = self.zones.end - 1;
        let sectors = g.start_of(ZoneIndex(end)).0 + u64::from(g.size_of(ZoneIndex(end))) - self.start(g);
        let length = match request.op {
            Op::Flush | Op::ResetAll => return false,
            Op::Report => 1,
            op if op.is_zone_management() => 1,
            _ => u64::from(request.sectors),
        };
        length == 0 || request.sector.0.checked_add(length).is_none_or(|end| end > sectors)
    }

    /// Translates a completion to the volume's numbers. Zones beyond the part are translated, too,
    /// so that the model can detect them.
    pub fn there(&self, g: &Geometry, mut completion: Completion) -> Completion {
        let start = self.start(g);
        let zone = |zone: ZoneIndex| Some(ZoneIndex(zone.0.wrapping_add(self.zones.start)));
        let sector = |sector: Sector| Sector(sector.0.wrapping_add(start));
        match &mut completion.result {
            Ok(Output::Appended(at)) => *at = sector(*at),
            Ok(Output::Zones(zones)) => zones.iter_mut().for_each(|described| {
                described.zone = ZoneIndex(described.zone.0.wrapping_add(self.zones.start));
                described.start = sector(described.start);
                described.write_pointer = described.write_pointer.map(sector);
            }),
            Ok(Output::Done) => {}
            Err(error) => *error = error.renumbered(zone, sector),
        }
        completion
    }
}
