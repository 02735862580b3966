//! Fill of the storage of the rows, with the changes that are not in it yet.
//!
//! A commit that runs out of space fails, so an operation that adds rows checks here first. The place knows how many
//! pages its tables take. Changes that are in no table yet count with all their bytes, deletions too, because a deletion takes room
//! until it is merged with what it deletes.
//!
//! # What is kept back
//! A fifth of the pages, and some at least: merges write their pages beside those that they replace, and taking rows away adds
//! deletions. How much one commit may change is bounded by [`Gauge::changes_max`].
//!
//! # When everything is merged
//! Rows that were replaced or deleted take room until they are merged. Where room runs out, all tables are merged, unless too little has
//! changed since the last time to gain by it.

use super::backend::{PAGE, Room};

/// One in this number of pages is kept back.
const KEPT_PART: u64 = 5;

/// Pages that are kept back at least, for the smallest tables and a merge of them.
const KEPT_MIN: u64 = 48;

/// Bytes that a row takes beside its key and value, at most.
const ROW_BYTES: u64 = 16;

/// Up to this number of pages everything is merged whenever anything has changed.
const MERGED_AT_ONCE: u64 = 4096;

/// Above it everything is merged once changes come to one in this number of pages.
const CHANGED_PART: u64 = 32;

/// Free pages for each change that waits for a commit.
const FREE_PART: u64 = 6;

/// Blocks of segments that could be taken, for each change that waits: not all of a segment is for pages.
const GROWTH_PART: u64 = 12;

/// Changes that may wait wherever the place is larger.
const CHANGES_MAX: u64 = 20_000;

/// Bytes that the file system changes of its own account between two merges.
const NOTHING_BYTES: u64 = 512;

/// Changes that may wait for a commit on the smallest place.
const CHANGES_MIN: u64 = 24;

/// State of the storage after a commit.
#[must_use = "it is what settles the rows"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    pub(super) room: Option<Room>,
    /// Totals that are in tables now; `None` after a commit to the log.
    pub(super) tally: Option<Tally>,
    /// All tables were merged.
    pub(super) is_squeezed: bool,
}

/// Bytes that a row takes.
pub(super) fn bytes_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64 + ROW_BYTES
}

/// Bytes of changes; counted up only.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Tally {
    changed: u64,
    deleted: u64,
}

impl Tally {
    /// A row of `bytes` bytes was put.
    pub(super) fn put(&mut self, bytes: u64) {
        self.changed += bytes;
    }

    /// A row was deleted whose key takes `bytes` bytes.
    pub(super) fn deleted(&mut self, bytes: u64) {
        self.changed += bytes;
        self.deleted += bytes;
    }

    pub(super) fn add(&mut self, other: Tally) {
        self.changed += other.changed;
        self.deleted += other.deleted;
    }
}

/// Fill of the storage, with all changes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Gauge {
    room: Option<Room>,
    tally: Tally,
    /// Totals that are in tables.
    settled: Tally,
    /// Totals when all tables were last merged, or it was tried in vain.
    squeezed: Option<Tally>,
    /// Bytes of deletions when the place last gave room back, or it was tried in vain.
    compacted: u64,
}

/// Pages of a place that is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// In use at most, what is not committed included.
    pub pages: u64,
    /// That may be.
    pub usable: u64,
}

impl Gauge {
    pub(super) fn new(room: Option<Room>) -> Gauge {
        Gauge { room, ..Gauge::default() }
    }

    /// Returns a gauge with all changes so far.
    pub(super) fn with(self, tally: Tally) -> Gauge {
        Gauge { tally, ..self }
    }

    /// A layer is durable.
    pub(super) fn settle(&mut self, committed: Committed) {
        self.room = committed.room;
        self.settled = committed.tally.unwrap_or(self.settled);
        if committed.is_squeezed {
            self.squeezed = committed.tally;
        }
    }

    /// Returns the fill, or `None` if the storage has no bounds.
    pub fn fill(&self) -> Option<Fill> {
        let Room { pages, limit, .. } = self.room?;
        let waiting = self.tally.changed - self.settled.changed;
        let kept = (limit / KEPT_PART).max(KEPT_MIN);
        Some(Fill { pages: pages + waiting.div_ceil(PAGE as u64), usable: limit.saturating_sub(kept) })
    }

    /// True if rows may be added.
    pub fn has_room(&self) -> bool {
        self.has_room_for(0)
    }

    /// True if rows may be added that take this many pages.
    pub fn has_room_for(&self, pages: u64) -> bool {
        self.fill().is_none_or(|fill| fill.pages + pages <= fill.usable)
    }

    fn changed_since(&self) -> Tally {
        let Tally { changed, deleted } = self.squeezed.unwrap_or_default();
        Tally { changed: self.tally.changed - changed, deleted: self.tally.deleted - deleted }
    }

    /// Bytes of changes after which a merge of all tables pays.
    fn enough(&self, pages: u64) -> u64 {
        if pages <= MERGED_AT_ONCE { NOTHING_BYTES } else { pages / CHANGED_PART * PAGE as u64 / 2 }
    }

    /// True if a merge of all tables may give room.
    pub fn is_stale(&self) -> bool {
        let Some(Room { pages, .. }) = self.room else { return false };
        self.squeezed.is_none() || self.changed_since().changed > self.enough(pages)
    }

    /// Pages that the place may have in use, as it is now.
    pub fn limit(&self) -> u64 {
        self.room.map_or(u64::MAX, |room| room.limit)
    }

    /// True if so much was deleted that a merge of all tables gives room.
    pub fn has_freed(&self) -> bool {
        let Some(Room { pages, .. }) = self.room else { return false };
        self.changed_since().deleted > pages / CHANGED_PART * PAGE as u64 / 8
    }

    /// True if the tables contain so many deletions made since the place last gave room back that
    /// it may do so again.
    pub(super) fn is_sparse(&self) -> bool {
        self.is_many(self.settled.deleted)
    }

    /// Like [`Gauge::is_sparse`], once everything is in tables.
    pub(super) fn will_be_sparse(&self) -> bool {
        self.is_many(self.tally.deleted)
    }

    fn is_many(&self, deleted: u64) -> bool {
        let Some(Room { pages, limit, .. }) = self.room else { return false };
        (deleted - self.compacted) * 8 > (3 * pages).max(limit) * PAGE as u64
    }

    /// Records that all that is in tables was merged and the place gave room back, or that this was tried in vain. Changes that came
    /// meanwhile are in no table yet.
    pub(super) fn compacted(&mut self) {
        self.squeezed = Some(self.settled);
        self.compacted = self.settled.deleted;
    }

    /// The place has more room, or less.
    pub(super) fn set_room(&mut self, room: Option<Room>) {
        self.room = room;
    }

    /// All tables were merged when so much had changed, or it was tried to make room in vain.
    pub(super) fn squeezed(&mut self, tally: Tally) {
        self.squeezed = Some(tally);
    }

    /// Changes that may wait for a commit, where a file system has `blocks` in free zones. Of the room that there is, or can be had in
    /// the midst of a commit, a part is enough.
    pub fn changes_max(&self, blocks: u64) -> usize {
        let Some(Room { limit, growth, takes_zones, .. }) = self.room else { return usize::MAX };
        let free = limit.saturating_sub(self.fill().map_or(0, |fill| fill.pages));
        let growth = growth + if takes_zones { blocks } else { 0 };
        let changes = (free / FREE_PART).max(growth / GROWTH_PART).min(CHANGES_MAX);
        changes.max(limit / CHANGED_PART).max(CHANGES_MIN) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = PAGE as u64;

    const ROOM: Room = Room { pages: 100, limit: 1000, growth: 0, takes_zones: false };

    fn settle(gauge: &mut Gauge, tally: Tally, pages: u64) {
        let room = Some(Room { pages, ..gauge.room.unwrap() });
        gauge.settle(Committed { room, tally: Some(tally), is_squeezed: false });
    }

    #[test]
    fn boundless_place_is_never_full_or_merged() {
        let mut gauge = Gauge::new(None);
        gauge.tally.put(1 << 40);
        assert!(gauge.has_room() && !gauge.is_stale());
        assert_eq!((gauge.fill(), gauge.changes_max(0)), (None, usize::MAX));
    }

    #[test]
    fn changes_count_with_their_bytes_until_they_are_in_tables() {
        let mut gauge = Gauge::new(Some(ROOM));
        gauge.tally.put(300 * BYTES);
        let sealed = gauge.tally;
        gauge.tally.put(300 * BYTES);
        gauge.tally.deleted(100 * BYTES);
        assert_eq!(gauge.fill(), Some(Fill { pages: 800, usable: 800 }));
        assert!(gauge.has_room() && !gauge.has_room_for(1));
        settle(&mut gauge, sealed, 150);
        assert_eq!(gauge.fill(), Some(Fill { pages: 550, usable: 800 }));
    }

    #[test]
    fn place_is_sparse_through_deletions_in_tables_until_it_is_compacted() {
        let mut gauge = Gauge::new(Some(ROOM));
        gauge.tally.deleted(126 * BYTES);
        assert!(gauge.will_be_sparse() && !gauge.is_sparse(), "a merge of the tables frees nothing");
        gauge.compacted();
        assert!(gauge.will_be_sparse() && !gauge.is_sparse());
        let tally = gauge.tally;
        settle(&mut gauge, tally, 100);
        assert!(gauge.is_sparse());
        gauge.compacted();
        assert!(!gauge.will_be_sparse() && !gauge.is_sparse());
    }

    #[test]
    fn full_place_is_merged_again_only_after_changes() {
        let mut gauge = Gauge::new(Some(Room { pages: 900, ..ROOM }));
        assert!(!gauge.has_room() && gauge.is_stale());
        gauge.settle(Committed { room: gauge.room, tally: Some(gauge.tally), is_squeezed: true });
        assert!(!gauge.has_room() && !gauge.is_stale());
        gauge.tally.deleted(BYTES);
        assert!(gauge.is_stale());
        gauge.squeezed(gauge.tally);
        assert!(!gauge.is_stale());
        gauge.room = Some(Room { pages: 1 << 20, limit: 1 << 20, ..ROOM });
        gauge.tally.deleted(1 << 20);
        assert!(!gauge.is_stale(), "a merge of four gigabytes for one megabyte");
        gauge.tally.deleted(1 << 26);
        assert!(gauge.is_stale());
    }

    #[test]
    fn small_place_takes_few_changes() {
        let gauge = Gauge::new(Some(Room { pages: 200, limit: 258, ..ROOM }));
        assert_eq!(gauge.changes_max(0), 24);
        assert_eq!(gauge.changes_max(1 << 20), 24, "it does not take zones");
        let growing = Gauge::new(Some(Room { pages: 200, limit: 258, growth: 1200, takes_zones: true }));
        assert_eq!((growing.changes_max(0), growing.changes_max(1 << 30)), (100, CHANGES_MAX as usize));
        let smallest = Gauge::new(Some(Room { pages: 10, limit: 20, ..ROOM }));
        assert!(!smallest.has_room());
    }
}
