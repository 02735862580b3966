//! How much room a log has, and which zone is emptied next. Nothing here touches the drive.

use super::super::error::BackendError;
use super::super::room::{PAGES_OF_NEW, Room as FileRoom};
use super::table::Table;
use super::{Room, State};
use crate::BLOCK_BYTES;

/// Zones that no page is counted upon: the current one and the one that is kept free.
const ZONES_RESERVED: u64 = 2;

/// One in so many blocks at most is a head, in batches of any length worth counting.
const HEADS_SHARE: u64 = 256;

/// Blocks of a zone for pages, where `blocks` are for parts.
fn pages_of_zone(blocks: u64) -> u64 {
    (blocks - blocks / HEADS_SHARE).saturating_sub(2)
}

/// Pages that may be live and waiting together in `zones` zones. An eighth of the room is what moving needs to gain by it.
fn usable(zones: u64, pages_of_zone: u64) -> u64 {
    zones.saturating_sub(ZONES_RESERVED) * pages_of_zone / 8 * 7
}

/// How long a file may get, for which so many pages can be used: a quarter is for those of a batch, which count twice.
fn longest(usable: u64) -> u64 {
    usable / 4 * 3
}

/// Pages that a new file may have on a log of `zones` zones of `zone_blocks` blocks.
pub fn pages_of_new(zones: u32, zone_blocks: u32) -> u64 {
    let checkpoint = 1 + Table::blocks_of(PAGES_OF_NEW);
    let parts = u64::from(zone_blocks).saturating_sub(checkpoint + 1);
    longest(usable(zones.into(), pages_of_zone(parts)))
}

impl State {
    /// Blocks of the next checkpoint.
    fn checkpoint_blocks(&self) -> u64 {
        let pages = self.len.div_ceil(u64::from(BLOCK_BYTES));
        1 + Table::blocks_of(pages).max(self.table.blocks().into())
    }

    /// Blocks for parts in a zone that is begun. The last one may be of no use.
    fn blocks_of_zone(&self, zone_blocks: u32) -> u64 {
        u64::from(zone_blocks).saturating_sub(self.checkpoint_blocks() + 1)
    }

    /// Whether the zone `slot` can be begun.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        let zone = &self.slots[slot];
        let is_current = self.current.is_some_and(|current| current.slot == slot);
        !zone.is_bad && !zone.is_needed && !is_current && self.table.live(slot) == 0
    }

    pub(super) fn free(&self) -> u64 {
        (0..self.slots.len()).filter(|&slot| self.is_free(slot)).count() as u64
    }

    /// Whether batches of `pages` have room in the current zone and `zones` more.
    pub(super) fn fits(&self, pages: u64, zones: u64, zone_blocks: u32) -> bool {
        pages + pages / HEADS_SHARE + 2 <= self.rest(zone_blocks) + zones * self.blocks_of_zone(zone_blocks)
    }

    /// Blocks for parts in the current zone.
    fn rest(&self, zone_blocks: u32) -> u64 {
        self.current.map_or(0, |current| u64::from(zone_blocks - current.block).saturating_sub(1))
    }

    /// Pages that have room in the current zone beside `pages`.
    pub(super) fn left_beside(&self, pages: u64, zone_blocks: u32) -> u64 {
        let rest = self.rest(zone_blocks);
        rest.saturating_sub(rest / HEADS_SHARE + 3 + pages)
    }

    /// The zone with the fewest live pages, of those that can be emptied.
    pub(super) fn victim(&self) -> Option<usize> {
        let is_current = |slot| self.current.is_some_and(|current| current.slot == slot);
        (0..self.slots.len())
            .filter(|&slot| {
                let zone = &self.slots[slot];
                !zone.is_bad && !zone.is_needed && !zone.is_stuck && !is_current(slot)
            })
            .filter(|&slot| self.table.live(slot) > 0)
            .min_by_key(|&slot| self.table.live(slot))
    }

    /// The zone whose pages come along with the next batch: one that takes no writes any more and may be lost as a whole, or,
    /// if there is little room, one that gives some.
    pub(super) fn comes_along(&self, zone_blocks: u32) -> Option<usize> {
        let falls = |slot: &usize| {
            let zone = &self.slots[*slot];
            zone.is_bad && !zone.is_stuck && self.table.live(*slot) > 0
        };
        let fallen = (0..self.slots.len()).find(falls);
        fallen.or_else(|| self.victim().filter(|&slot| self.is_pressed(slot, zone_blocks)))
    }

    /// Whether there is little room, and emptying `victim` gives some.
    fn is_pressed(&self, victim: usize, zone_blocks: u32) -> bool {
        let few = if self.slots.len() > 3 { 2 } else { 1 };
        self.free() <= few && u64::from(self.table.live(victim)) * 4 <= self.blocks_of_zone(zone_blocks) * 3
    }

    /// Pages that may be live and waiting together.
    fn usable(&self, zone_blocks: u32) -> u64 {
        let zones = self.slots.iter().filter(|slot| !slot.is_bad).count() as u64;
        usable(zones, pages_of_zone(self.blocks_of_zone(zone_blocks)))
    }

    /// How long a file of `pages` may get. One that is longer already, because zones were lost, has pages that take no room.
    pub(super) fn file_room(&self, pages: u64, zone_blocks: u32) -> FileRoom {
        let most = longest(self.usable(zone_blocks));
        match pages <= most {
            true => FileRoom::reach(pages, most),
            false => FileRoom { pages: self.table.mapped(), limit: most },
        }
    }

    pub(super) fn admit(&self, waiting: u64, fresh: u64, zone_blocks: u32) -> Result<(), BackendError> {
        let (needed, usable) = (self.table.mapped() + fresh + waiting, self.usable(zone_blocks));
        if needed > usable { Err(BackendError::Full { needed, usable }) } else { Ok(()) }
    }

    /// The zones that take no writes, as a checkpoint names them.
    pub(super) fn bad(&self) -> u64 {
        let bits = self.slots.iter().enumerate().map(|(slot, zone)| u64::from(zone.is_bad) << slot);
        bits.fold(0, |all, bit| all | bit)
    }

    pub(super) fn room(&self, zone_blocks: u32) -> Room {
        Room {
            pages: self.table.mapped(),
            usable: self.usable(zone_blocks),
            zones_free: self.free() as u32,
            zones_bad: self.slots.iter().filter(|slot| slot.is_bad).count() as u32,
        }
    }
}
