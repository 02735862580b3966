//! How much room a log has, and which segment is emptied next. Nothing here touches the drive.

use super::super::error::BackendError;
use super::super::room::Room as FileRoom;
use super::format::list_blocks;
use super::{LogState, Room, SEGMENTS_NEW, SegmentSlot};
use std::cmp::Reverse;
use zonal_core::ZoneIndex;

/// Segments whose room is not counted for pages: the current one and a free one.
const SEGMENTS_RESERVED: usize = 2;

/// At most one in this number of blocks is a head, in batches of any length worth counting.
const HEADS_SHARE: u64 = 256;

/// Pages of the table that one of its blocks has.
const PAGES_PER_TABLE_BLOCK: u64 = 512;

/// Blocks that a batch is said to need beside its pages.
const BATCH_BLOCKS: u64 = 2;

/// Free segments of which one may be given back: the next one, a spare one, and a third that a burst of writes would take again.
const FREE_MIN_TO_GIVE: usize = 3;

/// One in this number of blocks of a zone that the log can do without: so few live pages are moved for the zone to be given back.
const FEW_PART: u64 = 16;

/// Pages that a new log has room for, before it takes more segments.
pub const NEW_PAGES_MIN: u64 = 192;

/// Blocks of a segment for pages, where `blocks` are for parts.
fn pages_of_segment(blocks: u64) -> u64 {
    (blocks - blocks / HEADS_SHARE).saturating_sub(2)
}

/// Pages that may be live and waiting together in segments with room for `pages` each, ascending. An eighth of the room is
/// what moving needs to gain by it. Of two segments, the pages of one have to fit into the other, with room for more.
fn usable(pages: &[u64]) -> u64 {
    match pages {
        [] | [_] => 0,
        [smaller, _] => smaller / 8 * 5,
        _ => pages[..pages.len() - SEGMENTS_RESERVED].iter().sum::<u64>() / 8 * 7,
    }
}

/// Pages that may be in use, where `usable` may be live and waiting: a quarter is for the pages of a batch, which count twice.
fn longest(usable: u64) -> u64 {
    usable / 4 * 3
}

/// Pages that a new log of `segments` segments of `blocks` may have in use.
pub fn new_pages(segments: u32, blocks: u64) -> u64 {
    let parts = blocks.saturating_sub(1 + list_blocks(segments as usize) + 2);
    longest(usable(&vec![pages_of_segment(parts); segments as usize]))
}

/// True if a table has room in a segment of `blocks`: half of it at most. In a smaller one, the segment begins without.
pub(super) fn fits_table(table: u64, blocks: u32) -> bool {
    table * 2 <= blocks.into()
}

/// Pages that a log may have whose largest segments have `blocks`: its table fills half of one.
fn pages_max(blocks: u64) -> u64 {
    (blocks / 2).saturating_mul(PAGES_PER_TABLE_BLOCK)
}

impl LogState {
    /// Blocks of the next checkpoint in a segment of `blocks`. The next batch may have pages beyond those of today.
    pub(super) fn checkpoint_blocks(&self, blocks: u32) -> u64 {
        let table = u64::from(self.table.blocks()) + 1;
        let table = if fits_table(table, blocks) { table } else { 0 };
        1 + list_blocks(self.slots.len()) + table
    }

    /// Blocks for parts in a segment of `blocks` that is begun. The last one may be of no use.
    fn blocks_for_parts(&self, blocks: u32) -> u64 {
        u64::from(blocks).saturating_sub(self.checkpoint_blocks(blocks) + 1)
    }

    fn is_current(&self, slot: usize) -> bool {
        self.current.is_some_and(|current| current.slot == slot)
    }

    /// True if the segment `slot` can be begun.
    pub(super) fn is_free(&self, slot: usize) -> bool {
        let segment = &self.slots[slot];
        segment.is_usable()
            && !segment.is_needed
            && !segment.is_leaving
            && !self.is_current(slot)
            && self.table.live(slot) == 0
    }

    fn free_slots(&self) -> impl Iterator<Item = usize> {
        (0..self.slots.len()).filter(|&slot| self.is_free(slot))
    }

    pub(super) fn free(&self) -> usize {
        self.free_slots().count()
    }

    fn usable_slots(&self) -> impl Iterator<Item = &SegmentSlot> {
        self.slots.iter().filter(|slot| slot.is_usable())
    }

    /// True if the log has two segments only, so that all pages move when the current one is full.
    pub(super) fn is_pair(&self) -> bool {
        self.usable_slots().count() <= 2
    }

    /// True if batches of `pages` have room in the current segment and all free ones but `spared`, the largest.
    pub(super) fn fits(&self, pages: u64, spared: usize) -> bool {
        let rows = self.rows.blocks();
        let parts = |slot: usize| self.blocks_for_parts(self.slots[slot].blocks).saturating_sub(rows);
        let mut free: Vec<u64> = self.free_slots().map(parts).collect();
        free.sort_unstable();
        free.truncate(free.len().saturating_sub(spared));
        pages + pages / HEADS_SHARE + BATCH_BLOCKS <= self.rest() + free.iter().sum::<u64>()
    }

    /// Blocks for parts in the current segment.
    fn rest(&self) -> u64 {
        self.current
            .map_or(0, |current| u64::from(self.slots[current.slot].blocks - current.block).saturating_sub(1))
    }

    /// Pages that have room in the current segment beside `pages`.
    pub(super) fn left_beside(&self, pages: u64) -> u64 {
        let rest = self.rest();
        rest.saturating_sub(rest / HEADS_SHARE + 3 + pages)
    }

    /// Segment with the most garbage among those that can be emptied and for which `suits` is true. Segments differ in size, so the one with
    /// the fewest live pages may have no garbage at all.
    pub(super) fn victim(&self, suits: impl Fn(usize) -> bool) -> Option<usize> {
        let gain = |slot: usize| {
            let parts = pages_of_segment(self.blocks_for_parts(self.slots[slot].blocks));
            parts.saturating_sub(self.table.live(slot).into())
        };
        (0..self.slots.len())
            .filter(|&slot| {
                let segment = &self.slots[slot];
                segment.is_usable() && !segment.is_needed && !segment.is_stuck && !self.is_current(slot)
            })
            .filter(|&slot| self.table.live(slot) > 0 && gain(slot) > 0 && suits(slot))
            .max_by_key(|&slot| (gain(slot), Reverse(slot)))
    }

    /// The segment whose pages come along with the next batch. A segment that takes no writes any more may be lost as a whole,
    /// so it comes first. If there is little room, it is a segment that gives some.
    pub(super) fn comes_along(&self) -> Option<usize> {
        let is_failing = |slot: &usize| {
            let segment = &self.slots[*slot];
            (segment.is_bad || segment.is_suspect())
                && !segment.is_stuck
                && !self.is_current(*slot)
                && self.table.live(*slot) > 0
        };
        let failing = (0..self.slots.len()).find(is_failing);
        failing
            .or_else(|| self.victim(|_| true).filter(|&slot| self.is_pressed(slot)))
            .or_else(|| self.victim(|slot| self.has_few_pages(slot) && self.can_do_without(slot)))
    }

    fn has_few_pages(&self, slot: usize) -> bool {
        u64::from(self.table.live(slot)) * FEW_PART <= self.slots[slot].blocks.into()
    }

    /// True if `slot` is a zone, and the pages in use fit twice into the other segments.
    pub(super) fn can_do_without(&self, slot: usize) -> bool {
        let others = self.slots.iter().enumerate().filter(|(other, of)| *other != slot && of.is_usable());
        let rest = longest(self.usable_of(others.map(|(_, slot)| slot)));
        let fits = 2 * self.table.mapped() <= rest && rest >= NEW_PAGES_MIN;
        fits && self.slots[slot].segment.as_zone().is_some()
    }

    /// True if there is little room, and emptying `victim` gives some.
    fn is_pressed(&self, victim: usize) -> bool {
        let few = if self.usable_slots().count() > SEGMENTS_NEW { 2 } else { 1 };
        let parts = self.blocks_for_parts(self.slots[victim].blocks);
        self.free() <= few && u64::from(self.table.live(victim)) * 4 <= parts * 3
    }

    /// Pages that may be live and waiting together, if the segments are those of `slots`.
    fn usable_of<'a>(&self, slots: impl Iterator<Item = &'a SegmentSlot>) -> u64 {
        let (mut pages, mut largest) = (Vec::new(), 0);
        for slot in slots {
            pages.push(pages_of_segment(self.blocks_for_parts(slot.blocks)));
            largest = largest.max(slot.blocks.into());
        }
        pages.sort_unstable();
        usable(&pages).min(pages_max(largest))
    }

    /// Pages that may be live and waiting together.
    fn usable(&self) -> u64 {
        self.usable_of(self.usable_slots())
    }

    /// Pages in use, and how many may be.
    pub(super) fn file_room(&self) -> FileRoom {
        FileRoom { pages: self.table.mapped(), limit: longest(self.usable()), ..FileRoom::default() }
    }

    /// An empty zone that the log can do without.
    pub(super) fn spare(&self) -> Option<(usize, ZoneIndex)> {
        if self.free() < FREE_MIN_TO_GIVE {
            return None;
        }
        let zone = |slot: usize| Some((slot, self.slots[slot].segment.as_zone()?));
        let spare = self.free_slots().filter_map(zone).max_by_key(|(_, zone)| *zone)?;
        self.can_do_without(spare.0).then_some(spare)
    }

    pub(super) fn admit(&self, waiting: u64, fresh: u64) -> Result<(), BackendError> {
        let (needed, usable) = (self.table.mapped() + fresh + waiting, self.usable());
        if needed > usable { Err(BackendError::Full { needed, usable }) } else { Ok(()) }
    }

    pub(super) fn room(&self) -> Room {
        Room {
            pages: self.table.mapped(),
            usable: self.usable(),
            segments: self.slots.iter().filter(|slot| !slot.is_gone()).count() as u32,
            segments_free: self.free() as u32,
            segments_bad: self.slots.iter().filter(|slot| slot.is_bad && !slot.is_gone()).count() as u32,
            segments_suspect: self.slots.iter().filter(|slot| slot.is_suspect()).count() as u32,
        }
    }
}
