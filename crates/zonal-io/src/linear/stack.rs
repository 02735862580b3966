//! Rules for combining the descriptions of several devices into one.

use crate::badblocks::BadRange;
use crate::device::{Device, DeviceInfo};
use crate::sync::Arc;
use std::iter;
use std::ops::Range;
use zonal_core::{Geometry, GeometryError, Personality, Sector, Sectors, ZoneDescriptor, ZoneIndex};

/// Error of combining devices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinearError {
    /// There are no devices.
    #[error("no devices to combine")]
    Nothing,
    /// The range is empty or exceeds the device.
    #[error("zones {first}..{end} are not on {device}, which has {zones} zones")]
    Range {
        /// Device.
        device: String,
        /// First zone of the range.
        first: u32,
        /// First zone after the range.
        end: u32,
        /// Number of zones of the device.
        zones: u32,
    },
    /// Zone sizes differ.
    #[error("{device} has zones of {size} sectors, {first} of {first_size}")]
    ZoneSize {
        /// Device that does not fit.
        device: String,
        /// Its zone size in sectors.
        size: u64,
        /// First device.
        first: String,
        /// Zone size of the first device.
        first_size: u64,
    },
    /// Zone capacities differ.
    #[error("{device} has zones with a capacity of {capacity} sectors, {first} of {first_capacity}")]
    ZoneCapacity {
        /// Device that does not fit.
        device: String,
        /// Its zone capacity in sectors.
        capacity: u64,
        /// First device.
        first: String,
        /// Zone capacity of the first device.
        first_capacity: u64,
    },
    /// The devices follow different standards.
    #[error("{device} follows {personality:?}, {first} does not")]
    Personality {
        /// Device that does not fit.
        device: String,
        /// Its standard.
        personality: Personality,
        /// First device.
        first: String,
    },
    /// Conventional zones would follow sequential ones.
    #[error("{device} has conventional zones, which have to precede all sequential zones")]
    ConventionalInside {
        /// Device that does not fit.
        device: String,
    },
    /// A device other than the last ends in a smaller zone.
    #[error("{device} ends in a smaller zone; only the last device may")]
    SmallerZoneInside {
        /// Device that does not fit.
        device: String,
    },
    /// A device occurs twice.
    #[error("{device} is given twice")]
    Twice {
        /// Device.
        device: String,
    },
    /// The combined zones are not a valid geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// Consecutive zones of a device, and their location in the combined one.
pub(crate) struct LinearPiece {
    pub(super) device: Arc<dyn Device>,
    /// Range on the inner device.
    pub(crate) zones: Range<u32>,
    /// Index of the first zone in the combined device.
    pub(super) first: u32,
    zone_shift: u32,
}

impl LinearPiece {
    pub(super) fn new(device: Arc<dyn Device>, zones: Range<u32>) -> Result<LinearPiece, LinearError> {
        let info = device.info();
        let has = info.geometry.zones();
        if zones.is_empty() || zones.end > has {
            let (device, first, end) = (info.name.clone(), zones.start, zones.end);
            return Err(LinearError::Range { device, first, end, zones: has });
        }
        let zone_shift = info.geometry.zone_size().0.trailing_zeros();
        Ok(LinearPiece { device, zones, first: 0, zone_shift })
    }

    /// Creates a single piece and the description of the device that it forms.
    pub(crate) fn alone(
        device: Arc<dyn Device>,
        zones: Range<u32>,
    ) -> Result<(LinearPiece, DeviceInfo), LinearError> {
        let name = format!("linear:zone={},zones={}+{}", zones.start, zones.len(), device.info().name);
        let mut piece = LinearPiece::new(device, zones)?;
        let info = stack(&name, std::slice::from_mut(&mut piece))?;
        Ok((piece, info))
    }

    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Zone of the inner device that contains a sector of it.
    pub(crate) fn zone_of(&self, there: Sector) -> ZoneIndex {
        self.info().geometry.zone_of(there)
    }

    /// Translates a zone descriptor of the inner device.
    pub(crate) fn descriptor_to_outer(&self, zone: ZoneDescriptor) -> ZoneDescriptor {
        ZoneDescriptor {
            zone: self.zone_to_outer(zone.zone),
            start: self.to_outer(zone.start),
            write_pointer: zone.write_pointer.map(|at| self.to_outer(at)),
            ..zone
        }
    }

    fn outer_start(&self) -> u64 {
        u64::from(self.first) << self.zone_shift
    }

    fn inner_start(&self) -> u64 {
        u64::from(self.zones.start) << self.zone_shift
    }

    /// First sector after the piece.
    pub(super) fn outer_end(&self) -> u64 {
        self.outer_start() + self.sectors()
    }

    fn sectors(&self) -> u64 {
        let geometry = &self.info().geometry;
        let last = ZoneIndex(self.zones.end - 1);
        geometry.start_of(last).0 + u64::from(geometry.size_of(last)) - self.inner_start()
    }

    /// Translates a sector to the inner device.
    pub(crate) fn to_inner(&self, sector: Sector) -> Sector {
        Sector(sector.0 - self.outer_start() + self.inner_start())
    }

    /// Translates a sector of the inner device.
    pub(super) fn to_outer(&self, sector: Sector) -> Sector {
        Sector(sector.0 - self.inner_start() + self.outer_start())
    }

    /// Translates the part of a range of sectors that lies in the piece to the inner device.
    pub(super) fn range_to_inner(&self, range: BadRange) -> Option<BadRange> {
        self.shift(range, self.outer_start(), self.inner_start())
    }

    /// Translates the part of a range of sectors of the inner device that lies in the piece.
    pub(super) fn range_to_outer(&self, range: BadRange) -> Option<BadRange> {
        self.shift(range, self.inner_start(), self.outer_start())
    }

    fn shift(&self, range: BadRange, from: u64, to: u64) -> Option<BadRange> {
        let first = range.first.max(from);
        let last = range.last.min(from + self.sectors() - 1);
        (first <= last).then(|| BadRange { first: first - from + to, last: last - from + to, ..range })
    }

    pub(crate) fn zone_to_inner(&self, zone: ZoneIndex) -> ZoneIndex {
        ZoneIndex(zone.0 - self.first + self.zones.start)
    }

    pub(crate) fn zone_to_outer(&self, zone: ZoneIndex) -> ZoneIndex {
        ZoneIndex(zone.0 - self.zones.start + self.first)
    }

    /// True if a command for the whole inner device reaches exactly this piece.
    pub(super) fn is_whole(&self) -> bool {
        self.zones == (0..self.info().geometry.zones())
    }

    /// True if zone indices are the same here and at the inner device.
    pub(super) fn is_in_place(&self) -> bool {
        self.first == self.zones.start
    }

    fn conventional(&self) -> u32 {
        let there = self.info().geometry.conventional_zones();
        there.saturating_sub(self.zones.start).min(self.zones.len() as u32)
    }

    /// Open and active limits; 0 if there are too few zones here for them to matter.
    fn limits(&self) -> [u32; 2] {
        let sequential = self.zones.len() as u32 - self.conventional();
        [self.info().open_max, self.info().active_max].map(|max| if max >= sequential { 0 } else { max })
    }
}

/// Lays out pieces in sequence and describes the combined device as `name`.
pub(super) fn stack(name: &str, pieces: &mut [LinearPiece]) -> Result<DeviceInfo, LinearError> {
    check_alike(pieces)?;
    let mut sectors = 0;
    let mut zones = 0u32;
    for piece in pieces.iter_mut() {
        piece.first = zones;
        sectors += piece.sectors();
        // Overflow is refused below, since the sectors cannot be divided into so few zones.
        zones = zones.saturating_add(piece.zones.len() as u32);
    }
    let one = pieces[0].info();
    let (zone_size, capacity) = (one.geometry.zone_size(), one.geometry.zone_capacity());
    let conventional = pieces.iter().map(LinearPiece::conventional).sum();
    let geometry = Geometry::of_part(Sectors(sectors), zone_size, capacity, conventional)?;
    let infos = || pieces.iter().map(LinearPiece::info);
    let least = |of: fn(&DeviceInfo) -> u32| infos().map(of).min().unwrap_or(0);
    // Block sizes are powers of two, so the largest is a multiple of all others.
    let block_sectors = infos().map(|i| i.block_sectors).max().unwrap_or(1);
    let whole_blocks = |n: u32| n / block_sectors * block_sectors;
    // Pieces without conventional zones have nothing to discard.
    let discard = pieces.iter().filter(|p| p.conventional() > 0).map(|p| p.info().discard_sectors_max);
    let limit =
        |which: usize| pieces.iter().map(|p| p.limits()[which]).filter(|&n| n != 0).min().unwrap_or(0);
    let active_max = limit(1);
    let open_max = if active_max == 0 { limit(0) } else { limit(0).min(active_max) };
    Ok(DeviceInfo {
        name: name.to_owned(),
        identity: None,
        cache: None,
        geometry,
        block_sectors,
        open_max: if open_max == 0 { active_max } else { open_max },
        active_max,
        command_sectors_max: whole_blocks(least(|i| i.command_sectors_max)).max(block_sectors),
        label: infos().filter_map(|i| i.label.clone()).reduce(|all, label| format!("{all}, {label}")),
        memory_align: infos().map(|i| i.memory_align).max().unwrap_or(1),
        append_sectors_max: whole_blocks(least(|i| i.append_sectors_max)),
        write_zeroes_sectors_max: whole_blocks(least(|i| i.write_zeroes_sectors_max)),
        verify_sectors_max: whole_blocks(least(|i| i.verify_sectors_max)),
        discard_sectors_max: whole_blocks(discard.min().unwrap_or(0)),
        volatile_cache: infos().any(|i| i.volatile_cache),
        fua: infos().all(|i| i.fua),
        rotational: infos().any(|i| i.rotational),
        spindles: spindles(pieces),
        read_only: infos().any(|i| i.read_only),
        keeps_order: infos().all(|i| i.keeps_order),
        personality: one.personality,
        queues: infos().map(|i| i.queues).min().unwrap_or(1),
    })
}

/// First zone of each spindle except the first. Each device has its own spindles.
fn spindles(pieces: &[LinearPiece]) -> Vec<ZoneIndex> {
    let of = |piece: &LinearPiece| {
        let is_inside = |zone: &&ZoneIndex| piece.zones.start < zone.0 && zone.0 < piece.zones.end;
        let inside = piece.info().spindles.iter().filter(is_inside).map(|zone| piece.zone_to_outer(*zone));
        iter::once(ZoneIndex(piece.first)).chain(inside).collect::<Vec<_>>()
    };
    pieces.iter().flat_map(of).skip(1).collect()
}

/// Checks that the pieces can be combined.
fn check_alike(pieces: &[LinearPiece]) -> Result<(), LinearError> {
    let one = pieces.first().ok_or(LinearError::Nothing)?.info();
    let first = || one.name.clone();
    let mut has_sequential = false;
    for (n, piece) in pieces.iter().enumerate() {
        let info = piece.info();
        let device = info.name.clone();
        if pieces[..n].iter().any(|p| Arc::ptr_eq(&p.device, &piece.device)) {
            return Err(LinearError::Twice { device });
        }
        let (size, first_size) = (info.geometry.zone_size().0, one.geometry.zone_size().0);
        if size != first_size {
            return Err(LinearError::ZoneSize { device, size, first: first(), first_size });
        }
        let (capacity, first_capacity) = (info.geometry.zone_capacity().0, one.geometry.zone_capacity().0);
        if capacity != first_capacity {
            return Err(LinearError::ZoneCapacity { device, capacity, first: first(), first_capacity });
        }
        if info.personality != one.personality {
            return Err(LinearError::Personality { device, personality: info.personality, first: first() });
        }
        if has_sequential && piece.conventional() > 0 {
            return Err(LinearError::ConventionalInside { device });
        }
        has_sequential |= piece.conventional() < piece.zones.len() as u32;
        let is_last = n + 1 == pieces.len();
        if !is_last && piece.sectors() != u64::from(piece.zones.len() as u32) * size {
            return Err(LinearError::SmallerZoneInside { device });
        }
    }
    Ok(())
}
