//! Garbage collection: choice of a zone, the data to move, and the end of the zone's reset.

use super::{Home, Log, LogZoneState, NO_BLOCK, Room, Stream};
use zonal_core::ZoneIndex;

/// State of the cleaner.
#[derive(Default)]
pub(super) struct Cleaner {
    /// Zone to which it writes.
    pub(super) end: Option<ZoneIndex>,
    victim: Option<Victim>,
}

struct Victim {
    zone: ZoneIndex,
    /// Offset up to which it has been scanned.
    next: u32,
    /// Runs in flight.
    moves: u32,
    is_reset: bool,
}

/// Contiguous blocks of a zone to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) zone: ZoneIndex,
    pub(crate) offset: u32,
    pub(crate) blocks: u32,
}

/// Part of a run with its new place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Move {
    pub(crate) from: Run,
    pub(crate) room: Room,
}

impl Log {
    /// True if free zones are so few that one has to be cleaned.
    fn is_short(&self) -> bool {
        self.free.len() < self.streams.len() + 2
    }

    /// Returns the next blocks to move, at most `max`, and counts them as being read. Chooses a new
    /// victim if necessary.
    pub(crate) fn next_run(&mut self, max: u32) -> Option<Run> {
        if self.cleaner.victim.is_none() && self.is_short() {
            let zone = self.choose()?;
            self.zone(zone).state = LogZoneState::Cleaning;
            self.cleaner.victim = Some(Victim { zone, next: 0, moves: 0, is_reset: false });
        }
        let victim = self.cleaner.victim.as_ref()?;
        let (zone, next) = (victim.zone, victim.next);
        let blocks = &self.zones[zone.0 as usize].blocks;
        let is_live = |offset: u32| {
            let block = blocks[offset as usize];
            block != NO_BLOCK && self.map.get(block) == Home::At(self.block_of(zone, offset))
        };
        let begin = (next..self.capacity).find(|&offset| is_live(offset)).unwrap_or(self.capacity);
        let end_max = begin.saturating_add(max).min(self.capacity);
        let end = (begin..end_max).find(|&offset| !is_live(offset)).unwrap_or(end_max);
        let victim = self.cleaner.victim.as_mut().expect("it was just there");
        victim.next = end;
        if begin == end {
            return None;
        }
        victim.moves += 1;
        self.begin_read(zone);
        Some(Run { zone, offset: begin, blocks: end - begin })
    }

    /// Chooses the full zone with the least live data, if cleaning it frees anything.
    fn choose(&self) -> Option<ZoneIndex> {
        let can_be = |zone: &super::Zone| {
            zone.state == LogZoneState::Full && zone.writes == 0 && zone.live < self.capacity
        };
        let zones = self.zones.iter().enumerate().filter(|(_, zone)| can_be(zone));
        zones.min_by_key(|(_, zone)| zone.live).map(|(n, _)| ZoneIndex(n as u32))
    }

    /// Reserves room for a run that has been read, or for its first part.
    pub(crate) fn begin_move(&mut self, from: Run) -> Option<Move> {
        let room = self.room(Stream::Cleaner, from.blocks)?;
        self.account.moved += u64::from(room.blocks);
        Some(Move { from: Run { blocks: room.blocks, ..from }, room })
    }

    /// Records that the blocks are at their new place, from this offset of the zone on. Blocks
    /// written or discarded meanwhile are garbage there.
    pub(crate) fn end_move(&mut self, moved: &Move, offset: u32) {
        let Move { from, room } = moved;
        for n in 0..from.blocks {
            let block = self.zones[from.zone.0 as usize].blocks[(from.offset + n) as usize];
            let is_live = self.map.get(block) == Home::At(self.block_of(from.zone, from.offset + n));
            let at = self.block_of(room.zone, offset + n);
            let entry = self.zone(room.zone);
            entry.blocks[(offset + n) as usize] = block;
            if is_live {
                entry.live += 1;
                self.zone(from.zone).live -= 1;
                self.map.set(block, Home::At(at));
            }
        }
        self.ended_in(room.zone);
    }

    /// Records that the whole run is at its new place.
    pub(crate) fn end_run(&mut self, run: Run) {
        let victim = self.cleaner.victim.as_mut().expect("runs are of the zone that is cleaned");
        debug_assert_eq!(victim.zone, run.zone);
        victim.moves -= 1;
    }

    /// Returns the victim once, when it can be reset.
    pub(crate) fn next_reset(&mut self) -> Option<ZoneIndex> {
        let capacity = self.capacity;
        let victim = self.cleaner.victim.as_mut()?;
        let entry = &self.zones[victim.zone.0 as usize];
        let is_through = victim.next >= capacity && victim.moves == 0 && entry.reads == 0;
        if !is_through || victim.is_reset {
            return None;
        }
        debug_assert_eq!(entry.live, 0, "what is live has been moved");
        victim.is_reset = true;
        Some(victim.zone)
    }

    /// Records that the zone has been reset.
    pub(crate) fn end_reset(&mut self, zone: ZoneIndex) {
        self.cleaner.victim = None;
        let entry = self.zone(zone);
        entry.state = LogZoneState::Free;
        (entry.given, entry.blocks) = (0, Box::default());
        self.free.insert(0, zone);
        self.account.cleaned += 1;
    }
}
