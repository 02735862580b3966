//! Mechanics of a disk: positions, positioning times and transfer times.
//!
//! Zones are laid out from the outer edge inwards. The data rate falls with the radius and is
//! constant within a zone. The angle at which a zone starts is random but fixed. Track skew is part
//! of the rate, so a continuous stream never misses a rotation, even across tracks and zones. It is
//! up to the caller to decide if a command continues a stream; this module has only positions and
//! times.

use crate::model::Span;
use zonal_core::{Geometry, Nanos, SECTOR_BYTES, Sector, ZoneIndex};

/// Mechanical parameters of a disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MechanicsOptions {
    /// Data rate of the outermost zone, in bytes per second.
    pub outer_rate: f64,
    /// Data rate of the innermost zone, relative to the outermost one.
    pub inner_ratio: f64,
    /// Time of one rotation.
    pub rotation: Span,
    /// Time of the shortest seek, to the next track, including settling. 0: seeks take no time at
    /// all.
    pub seek_single: Span,
    /// Seek time over a third of the stroke.
    pub seek_third: Span,
    /// Seek time over the full stroke.
    pub seek_full: Span,
    /// Seed of the start angles of zones.
    pub seed: u64,
}

/// Mechanics of a disk. See the module.
#[derive(Clone, Debug)]
pub struct Mechanics {
    geometry: Geometry,
    options: MechanicsOptions,
    zones: f64,
    /// `1 - inner_ratio^2`.
    fall: f64,
    /// Seek time over a share `d` of the stroke is `seek_single + root * sqrt(d) + line * d`, in
    /// nanoseconds.
    root: f64,
    line: f64,
}

/// Position of a range of sectors on the disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskPlace {
    /// Radial position, from 0 at the outer edge to 1.
    pub cylinder: f64,
    /// Time within each rotation at which its start is under the head.
    pub phase: Span,
    /// Transfer time.
    pub transfer: Span,
}

impl Mechanics {
    /// Creates the mechanics of a disk with `geometry`.
    pub fn new(geometry: Geometry, options: MechanicsOptions) -> Mechanics {
        let single = options.seek_single as f64;
        let third = options.seek_third as f64 - single;
        let full = options.seek_full as f64 - single;
        // Fits the curve to a third and to all of the stroke.
        let root = (third - full / 3.0) / ((1.0f64 / 3.0).sqrt() - 1.0 / 3.0);
        Mechanics {
            geometry,
            options,
            zones: f64::from(geometry.zones()),
            fall: 1.0 - options.inner_ratio * options.inner_ratio,
            root,
            line: full - root,
        }
    }

    /// Data rate of a zone, relative to the outermost one.
    fn share(&self, zone: ZoneIndex) -> f64 {
        (1.0 - self.fall * f64::from(zone.0) / self.zones).sqrt()
    }

    /// Data rate of a zone, in bytes per second.
    pub fn rate(&self, zone: ZoneIndex) -> f64 {
        self.options.outer_rate * self.share(zone)
    }

    /// Position of `sectors` from `sector`, all in one zone.
    #[inline]
    pub fn place(&self, sector: Sector, sectors: u32) -> DiskPlace {
        let zone = self.geometry.zone_of(sector);
        let share = self.share(zone);
        let nanos_a_sector = SECTOR_BYTES as f64 * 1e9 / (self.options.outer_rate * share);
        // Rounds both ends rather than the length, so that the pieces of a stream add up.
        let offset = self.geometry.offset_of(sector);
        let start = (f64::from(offset) * nanos_a_sector) as u64;
        let end = (f64::from(offset + sectors) * nanos_a_sector) as u64;
        let turn = self.options.rotation.max(1);
        let begin = hash(self.options.seed ^ u64::from(zone.0)) % turn;
        DiskPlace {
            cylinder: (1.0 - share) / (1.0 - self.options.inner_ratio),
            phase: (begin + start) % turn,
            transfer: end - start,
        }
    }

    /// Seek time over this share of the stroke. Distance 0 also takes a settling time, because the
    /// command does not continue the previous one.
    pub fn seek(&self, distance: f64) -> Span {
        if self.options.seek_single == 0 {
            return 0;
        }
        let nanos = self.options.seek_single as f64 + self.root * distance.sqrt() + self.line * distance;
        nanos.max(0.0) as u64
    }

    /// Time from `now`, with the arm at `cylinder`, until `place` is under the head.
    #[inline]
    pub fn positioning(&self, now: Nanos, cylinder: f64, place: &DiskPlace) -> Span {
        let seek = self.seek((place.cylinder - cylinder).abs());
        seek + self.rotation(Nanos(now.0 + seek), place)
    }

    /// Time from `now`, with the arm in position, until `place` is under the head.
    #[inline]
    pub fn rotation(&self, now: Nanos, place: &DiskPlace) -> Span {
        let turn = self.options.rotation;
        if turn == 0 {
            return 0;
        }
        let angle = now.0 % turn;
        if place.phase >= angle { place.phase - angle } else { place.phase + turn - angle }
    }

    /// Zone of `sector`.
    pub fn zone_of(&self, sector: Sector) -> ZoneIndex {
        self.geometry.zone_of(sector)
    }

    /// Zone of the sector before `next`, which the head accessed last.
    pub(super) fn zone_of_head(&self, next: Sector) -> ZoneIndex {
        self.geometry.zone_of(Sector(next.0.saturating_sub(1)))
    }
}

/// Mixes the bits of a number (splitmix64).
fn hash(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
