//! Lower bounds of zones' write pointers, so that reads of a zone being written rarely touch its
//! word.
//!
//! Each write moves the cache line of its zone's word to the writer's core, and a read of the word
//! moves it back: 50 to 100 ns each. So a zone has a second word on another line, its *floor*: the
//! number of sectors from the zone's start that hold data of the present generation. A read below
//! the floor needs nothing else. A read above it loads the zone's word, and raises the floor if it
//! lags far behind: a floor's line changes whenever the written amount has doubled, and then every
//! [`STEP_MAX`] sectors.
//!
//! # Invariants
//! - A floor is raised only within a generation, by a compare-exchange with the floor loaded before
//!   the zone's word.
//! - Removing data changes the zone's word, then the floor, and completes after both. A read that
//!   raises the floor from an earlier word then finds a different floor, and its exchange fails.
//! - If a failed write removes data without a new generation, the floor stays at zero for the rest
//!   of the generation.

use super::zones::Readable;
use crate::sync::{Ordering, WordTable};
use zonal_core::ZoneIndex;

/// Maximum lag of a floor behind its zone's write pointer before a read raises it: 1 MiB.
const STEP_MAX: u32 = 2048;

const GENERATION_SHIFT: u32 = 36;
const FROZEN: u64 = 1 << 32;

/// A floor: sectors in bits 0 to 31, frozen flag in bit 32, generation from bit 36 on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Floor(u64);

impl Floor {
    fn new(generation: u32, sectors: u32) -> Floor {
        Floor(u64::from(generation) << GENERATION_SHIFT | u64::from(sectors))
    }

    /// Result of a read of `sectors` from `offset`, if they are all below the floor.
    #[inline]
    pub(super) fn readable(self, offset: u32, sectors: u32) -> Option<Readable> {
        let is_below = u64::from(offset) + u64::from(sectors) <= u64::from(self.0 as u32);
        is_below
            .then_some(Readable { data_sectors: sectors, generation: (self.0 >> GENERATION_SHIFT) as u32 })
    }
}

/// The floors of all zones.
pub(super) struct Floors(WordTable);

impl Floors {
    pub(super) fn new(zones: u32) -> Floors {
        Floors(WordTable::new(zones))
    }

    #[inline]
    pub(super) fn load(&self, zone: ZoneIndex) -> Floor {
        Floor(self.0.word(zone.0).load(Ordering::Acquire))
    }

    /// Raises the floor from `seen` to `written`, if it lags far enough and is still `seen`. The
    /// zone's word, according to which these sectors are written in `generation`, was loaded after
    /// `seen`.
    #[inline]
    pub(super) fn raise(&self, zone: ZoneIndex, seen: Floor, generation: u32, written: u32) {
        let floor = seen.0 as u32;
        let is_far = written > floor.saturating_add(floor.min(STEP_MAX));
        let is_of_now = seen.0 >> GENERATION_SHIFT == u64::from(generation) && seen.0 & FROZEN == 0;
        if is_far && is_of_now {
            self.exchange(zone, seen, Floor::new(generation, written));
        }
    }

    #[cold]
    fn exchange(&self, zone: ZoneIndex, seen: Floor, next: Floor) {
        // On failure, another read has raised the floor, or data was removed.
        _ = self.0.word(zone.0).compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Resets the floor of a zone that has lost its data and now has `generation`.
    pub(super) fn lower(&self, zone: ZoneIndex, generation: u32) {
        self.put(zone, Floor::new(generation, 0).0);
    }

    /// Freezes the floor at zero for a zone that has lost some of its data within `generation`.
    #[cold]
    pub(super) fn freeze(&self, zone: ZoneIndex, generation: u32) {
        self.put(zone, Floor::new(generation, 0).0 | FROZEN);
    }

    fn put(&self, zone: ZoneIndex, floor: u64) {
        // A swap, because the model checker may order a plain store before a concurrent exchange.
        self.0.word(zone.0).swap(floor, Ordering::AcqRel);
    }
}
