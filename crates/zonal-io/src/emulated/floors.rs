//! What reads of a zone that is being written may know without a look at its word.
//!
//! Each write takes the line of its zone's word to the writer's core, and a read that looks at the word takes it back: 50
//! to 100 ns for each. So a zone has a second word on another line, its *floor*: the number of sectors from the zone's start
//! that hold data of this generation. A read below the floor needs no more. A read above it looks at the zone's word, and raises the
//! floor if that has moved far: the line of a floor changes whenever what is written has doubled, and once in
//! [`STEP_MAX`] sectors.
//!
//! # Invariants
//! - A floor is raised by an exchange of the floor that was read before the zone's word was, and only within a generation.
//! - What takes data away changes the zone's word, then the floor, and is answered after both. A floor that a read raises
//!   from the earlier word then meets another floor, and the exchange fails.
//! - In a generation in which data was taken away without a new generation, by a failed write, the floor stays at zero.

use super::zones::Readable;
use crate::sync::{Ordering, WordTable};
use zonal_core::ZoneIndex;

/// The most sectors by which a zone's pointer stands above its floor before a read raises that: 1 MiB.
const STEP_MAX: u32 = 2048;

const GENERATION_SHIFT: u32 = 36;
const FROZEN: u64 = 1 << 32;

/// A floor: sectors in bits 0 to 31, whether it is frozen in bit 32, the generation from bit 36 on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Floor(u64);

impl Floor {
    fn new(generation: u32, sectors: u32) -> Floor {
        Floor(u64::from(generation) << GENERATION_SHIFT | u64::from(sectors))
    }

    /// What a read of `sectors` from `offset` finds, if all of them lie below the floor.
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

    /// Raises the floor from `seen` to `written`, if that is worth it and the floor is still `seen`. The zone's word, which
    /// says that these sectors are written in `generation`, was read after `seen`.
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
        // Where it fails another read has raised the floor, or data was taken away.
        _ = self.0.word(zone.0).compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The zone has lost its data, and `generation` is that of what comes next.
    pub(super) fn lower(&self, zone: ZoneIndex, generation: u32) {
        self.put(zone, Floor::new(generation, 0).0);
    }

    /// The zone has lost some of its data and keeps its `generation`.
    #[cold]
    pub(super) fn freeze(&self, zone: ZoneIndex, generation: u32) {
        self.put(zone, Floor::new(generation, 0).0 | FROZEN);
    }

    fn put(&self, zone: ZoneIndex, floor: u64) {
        // A swap, because the checker of schedules assumes that a plain store beside an exchange may come before it.
        self.0.word(zone.0).swap(floor, Ordering::AcqRel);
    }
}
