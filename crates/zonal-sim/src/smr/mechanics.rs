//! Platters and arm: where things are, how long it takes to get there and to read or write them.
//!
//! Zones lie from the outer edge inwards. The data rate falls with the radius, and with it the angle that a byte takes; all
//! of a zone has the rate of its place. Where a zone begins on its circle is drawn once a zone. Skew between tracks is part of
//! the rate, so that a stream that continues without a gap never misses a turn, whether it crosses tracks or zones. The
//! caller knows and says what continues a stream. Here are only places and times.

use crate::model::Span;
use zonal_core::{Geometry, Nanos, SECTOR_BYTES, Sector, ZoneIndex};

/// Numbers of a disk's mechanics.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MechanicsOptions {
    /// Data rate of the outermost zone, in bytes a second.
    pub outer_rate: f64,
    /// Rate of the innermost zone as a share of the outermost one's.
    pub inner_ratio: f64,
    /// One turn.
    pub turn: Span,
    /// Shortest move, to the next track: settling included. Zero: the arm needs no time at all.
    pub seek_single: Span,
    /// Move over a third of the stroke.
    pub seek_third: Span,
    /// Move from edge to edge.
    pub seek_full: Span,
    /// Draws where zones begin on their circles.
    pub seed: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Mechanics {
    geometry: Geometry,
    options: MechanicsOptions,
    zones: f64,
    /// `1 - inner_ratio^2`.
    fall: f64,
    /// Seek time is `seek_single + root * sqrt(d) + line * d`, in nanoseconds, over a share `d` of the stroke.
    root: f64,
    line: f64,
}

/// A place on the disk that is to be read or written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskPlace {
    /// Of the stroke, from the outer edge: 0 to 1.
    pub cylinder: f64,
    /// When the place comes round, from the beginning of each turn.
    pub phase: Span,
    /// Time to read or write it.
    pub transfer: Span,
}

impl Mechanics {
    /// Of a disk divided so.
    pub fn new(geometry: Geometry, options: MechanicsOptions) -> Mechanics {
        let single = options.seek_single as f64;
        let third = options.seek_third as f64 - single;
        let full = options.seek_full as f64 - single;
        // Through a third and all of the stroke.
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

    /// Rate in a zone as a share of the outermost one's.
    fn share(&self, zone: ZoneIndex) -> f64 {
        (1.0 - self.fall * f64::from(zone.0) / self.zones).sqrt()
    }

    /// Data rate of a zone, in bytes a second.
    pub fn rate(&self, zone: ZoneIndex) -> f64 {
        self.options.outer_rate * self.share(zone)
    }

    /// Where `sectors` from `sector` on are, all of one zone.
    #[inline]
    pub fn place(&self, sector: Sector, sectors: u32) -> DiskPlace {
        let zone = self.geometry.zone_of(sector);
        let share = self.share(zone);
        let nanos_a_sector = SECTOR_BYTES as f64 * 1e9 / (self.options.outer_rate * share);
        // Both ends are rounded, not the length: pieces of a stream add up.
        let offset = self.geometry.offset_of(sector);
        let start = (f64::from(offset) * nanos_a_sector) as u64;
        let end = (f64::from(offset + sectors) * nanos_a_sector) as u64;
        let turn = self.options.turn.max(1);
        let begin = hash(self.options.seed ^ u64::from(zone.0)) % turn;
        DiskPlace {
            cylinder: (1.0 - share) / (1.0 - self.options.inner_ratio),
            phase: (begin + start) % turn,
            transfer: end - start,
        }
    }

    /// Time to move the arm over this share of the stroke; to stay where it is takes a settling, too, because what
    /// comes next does not continue what came before.
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

    /// Time from `now`, with the arm where it has to be, until `place` is under the head.
    #[inline]
    pub fn rotation(&self, now: Nanos, place: &DiskPlace) -> Span {
        let turn = self.options.turn;
        if turn == 0 {
            return 0;
        }
        let angle = now.0 % turn;
        if place.phase >= angle { place.phase - angle } else { place.phase + turn - angle }
    }

    /// The zone that holds `sector`.
    pub fn zone_of(&self, sector: Sector) -> ZoneIndex {
        self.geometry.zone_of(sector)
    }

    /// The zone that the sector before `next` is in, where the head has been last.
    pub(super) fn zone_of_head(&self, next: Sector) -> ZoneIndex {
        self.geometry.zone_of(Sector(next.0.saturating_sub(1)))
    }
}

/// Mixes a number's bits (splitmix64).
fn hash(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
