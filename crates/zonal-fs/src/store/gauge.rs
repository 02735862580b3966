//! How full the place of the rows is, with what is not in it yet.
//!
//! Told by its place that there is no room, the database takes nothing any more. So an operation that adds rows asks here
//! before. The place knows how many pages have room in it; a page that the database has freed keeps its room until it is used
//! again. How many are in use costs a walk over all of them, and is measured where rows were taken away. In between a bound is
//! reckoned from the bytes that came since: of rows that are committed those that were not there before, of others all.
//!
//! # What is kept back
//! A fifth of the pages, and some at least. A commit writes its pages beside those that it replaces, which come free two
//! commits later; taking rows away does, too. How much one commit may change is bounded by [`Gauge::changes_max`].
//!
//! # Why it is measured again only after changes
//! The answer would be the same. On a large place it takes many changes, because the walk is long.

use super::backend::Room;

/// One in this number of pages is kept back.
const KEPT_PART: u64 = 5;

/// Pages that are kept back at least: a commit of a few changes rewrites a dozen pages of its own account.
const KEPT_MIN: u64 = 96;

/// Half of a page is empty where rows come in order of their keys.
const ROW_BYTES_OF_PAGE: u64 = 2048;

/// Bytes that a row takes beside its key and value.
const ROW_BYTES: u64 = 16;

/// Up to this number of pages they are counted whenever anything has changed.
const COUNTED_AT_ONCE: u64 = 4096;

/// Above it they are counted once one in this number of them has changed.
const CHANGED_PART: u64 = 32;

/// Free pages for each change that waits for a commit.
const FREE_PART: u64 = 6;

/// Blocks of segments that could be taken, for each change that waits: not all of a segment is for pages.
const GROWTH_PART: u64 = 12;

/// Pages of a place that are left as they are, however many are free: those of a new file system, and room for a few commits.
const SPARSE_MIN: u64 = 96;

/// Changes that may wait wherever the place is larger.
const CHANGES_MAX: u64 = 20_000;

/// Bytes that a commit changes of its own account.
const NOTHING_BYTES: u64 = 512;

/// Changes that may wait for a commit on the smallest place.
const CHANGES_MIN: u64 = 24;

/// A count of all pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PageCount {
    /// Pages in use.
    pages: u64,
    /// Bytes that had been changed by then.
    changed: u64,
    /// Bytes of rows that had been taken away by then.
    deleted: u64,
}

/// What a commit has seen of the database's place.
#[must_use = "it is what settles the rows"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    pub(super) room: Option<Room>,
    /// Additions to the database; `None` after a commit to the log.
    pub(super) in_database: Option<InDatabase>,
}

/// Additions of a commit to the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InDatabase {
    /// Totals at the time of the seal.
    pub(super) tally: Tally,
    /// Bytes of rows that did not exist before.
    pub(super) fresh: u64,
    /// Pages in use, if they were counted.
    pub(super) pages: Option<u64>,
}

/// Bytes that a row takes.
pub(super) fn bytes_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64 + ROW_BYTES
}

/// What the bytes of rows come to; counted up only.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Tally {
    put: u64,
    changed: u64,
    deleted: u64,
}

impl Tally {
    /// A row of `bytes` bytes was put.
    pub(super) fn put(&mut self, bytes: u64) {
        self.put += bytes;
        self.changed += bytes;
    }

    /// A row was taken away.
    pub(super) fn deleted(&mut self, bytes: u64) {
        self.changed += bytes;
        self.deleted += bytes;
    }

    pub(super) fn add(&mut self, other: Tally) {
        self.put += other.put;
        self.changed += other.changed;
        self.deleted += other.deleted;
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Gauge {
    room: Option<Room>,
    tally: Tally,
    /// Of what was put, the part that is committed.
    settled: u64,
    /// Bytes of that which were not there before, since the last walk.
    fresh: u64,
    walk: Option<PageCount>,
    /// What had been changed when it was last found full.
    full_at: Option<u64>,
    /// Bytes of rows that had been taken away when the database was last compacted.
    compacted_at: u64,
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

    /// The same, with all that has changed by now.
    pub(super) fn with(self, tally: Tally) -> Gauge {
        Gauge { tally, ..self }
    }

    /// A layer is durable.
    pub(super) fn settle(&mut self, committed: Committed) {
        self.room = committed.room;
        let Some(InDatabase { tally, fresh, pages }) = committed.in_database else { return };
        self.settled = tally.put;
        self.fresh += fresh;
        if let Some(pages) = pages {
            self.walk = Some(PageCount { pages, changed: tally.changed, deleted: tally.deleted });
            self.fresh = 0;
        }
    }

    /// How full the place is; `None` if it has no bounds.
    pub fn fill(&self) -> Option<Fill> {
        let Room { pages, limit, .. } = self.room?;
        let waiting = self.tally.put - self.settled;
        let counted = self.walk.map(|walk| walk.pages + self.fresh.div_ceil(ROW_BYTES_OF_PAGE));
        let known = counted.map_or(pages, |counted| pages.min(counted));
        let kept = (limit / KEPT_PART).max(KEPT_MIN);
        Some(Fill { pages: known + waiting.div_ceil(ROW_BYTES_OF_PAGE), usable: limit.saturating_sub(kept) })
    }

    /// Whether rows may be added.
    pub fn has_room(&self) -> bool {
        self.has_room_for(0)
    }

    /// Whether rows may be added that take this many pages.
    pub fn has_room_for(&self, pages: u64) -> bool {
        self.fill().is_none_or(|fill| fill.pages + pages <= fill.usable)
    }

    /// Whether to count the pages again may say something else.
    pub fn is_stale(&self) -> bool {
        let Some(Room { pages, .. }) = self.room else { return false };
        let since = self.walk.map(|walk| walk.changed).max(self.full_at);
        let enough = match pages {
            ..=COUNTED_AT_ONCE => NOTHING_BYTES,
            _ => pages / CHANGED_PART * ROW_BYTES_OF_PAGE,
        };
        since.is_none_or(|since| self.tally.changed - since > enough)
    }

    /// Pages that the place may have in use, as it is now.
    pub fn limit(&self) -> u64 {
        self.room.map_or(u64::MAX, |room| room.limit)
    }

    /// Whether so much was taken away that pages may have come free.
    pub fn has_freed(&self) -> bool {
        let Some(Room { pages, .. }) = self.room else { return false };
        let deleted = self.tally.deleted - self.walk.map_or(0, |walk| walk.deleted);
        deleted > pages / CHANGED_PART * ROW_BYTES_OF_PAGE / 4
    }

    /// True if about half of all rows were taken away since the place was opened or compacted, and it is large enough to matter: most of
    /// its pages may be free, and keep their room.
    pub(super) fn is_sparse(&self) -> bool {
        let Some(Room { pages, .. }) = self.room else { return false };
        let deleted = self.tally.deleted - self.compacted_at;
        pages > SPARSE_MIN && deleted * 4 > pages * ROW_BYTES_OF_PAGE * 3
    }

    /// The database was compacted when so much had changed.
    pub(super) fn compacted(&mut self, tally: Tally) {
        self.compacted_at = tally.deleted;
    }

    /// The place has more room, or less.
    pub(super) fn set_room(&mut self, room: Option<Room>) {
        self.room = room;
    }

    /// It was tried to make room, in vain, when so much had changed.
    pub(super) fn found_full(&mut self, tally: Tally) {
        self.full_at = Some(tally.changed);
    }

    /// Changes that may wait for a commit, where a file system has `blocks` in free zones. Each may take two pages, which count
    /// twice until they are durable: so of the room that there is, or can be had in the midst of a commit, a part is enough.
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

    const PAGE: u64 = 2 * ROW_BYTES_OF_PAGE;

    const ROOM: Room = Room { pages: 1000, limit: 1000, growth: 0, takes_zones: false };

    fn gauge() -> Gauge {
        Gauge::new(Some(ROOM))
    }

    /// Everything so far is committed, of which so much is fresh.
    fn settle(gauge: &mut Gauge, fresh: u64, pages: Option<u64>) {
        let in_database = Some(InDatabase { tally: gauge.tally, fresh, pages });
        gauge.settle(Committed { room: gauge.room, in_database });
    }

    #[test]
    fn boundless_place_is_never_full_or_counted() {
        let mut gauge = Gauge::new(None);
        gauge.tally.put(1 << 40);
        assert!(gauge.has_room() && !gauge.is_stale());
        assert_eq!((gauge.fill(), gauge.changes_max(0)), (None, usize::MAX));
    }

    #[test]
    fn uncounted_file_is_taken_for_full_pages_and_counted() {
        let mut gauge = gauge();
        assert!(!gauge.has_room() && gauge.is_stale());
        settle(&mut gauge, 0, Some(100));
        assert_eq!(gauge.fill(), Some(Fill { pages: 100, usable: 800 }));
        assert!(gauge.has_room() && !gauge.is_stale());
    }

    #[test]
    fn rows_put_since_count_twice_and_those_before_the_seal_do_not() {
        let mut gauge = gauge();
        gauge.tally.put(100 * PAGE);
        let sealed = gauge.tally;
        gauge.tally.put(349 * PAGE);
        let in_database = Some(InDatabase { tally: sealed, fresh: 100 * PAGE, pages: Some(100) });
        gauge.settle(Committed { room: gauge.room, in_database });
        assert!(gauge.has_room());
        gauge.tally.put(2 * PAGE);
        assert!(!gauge.has_room() && gauge.is_stale());
    }

    #[test]
    fn overwritten_rows_need_no_extra_pages_once_committed() {
        let mut gauge = gauge();
        settle(&mut gauge, 0, Some(100));
        gauge.tally.put(400 * PAGE);
        assert!(!gauge.has_room());
        settle(&mut gauge, 10 * PAGE, None);
        assert_eq!(gauge.fill(), Some(Fill { pages: 120, usable: 800 }));
    }

    #[test]
    fn full_place_is_counted_again_only_after_changes() {
        let mut gauge = gauge();
        settle(&mut gauge, 0, Some(900));
        assert!(!gauge.has_room() && !gauge.is_stale());
        gauge.tally.deleted(PAGE);
        assert!(gauge.is_stale());
        gauge.found_full(gauge.tally);
        assert!(!gauge.is_stale());
        gauge.room = Some(Room { pages: 1 << 20, limit: 1 << 20, ..ROOM });
        settle(&mut gauge, 0, Some(1 << 20));
        gauge.tally.deleted(1 << 20);
        assert!(!gauge.is_stale(), "a walk over four gigabytes for one");
        gauge.tally.deleted(1 << 26);
        assert!(gauge.is_stale());
    }

    #[test]
    fn small_place_keeps_pages_of_a_commit_and_few_changes() {
        let gauge = Gauge::new(Some(Room { pages: 200, limit: 258, ..ROOM }));
        assert_eq!(gauge.fill(), Some(Fill { pages: 200, usable: 162 }));
        assert_eq!(gauge.changes_max(0), 24);
        assert_eq!(gauge.changes_max(1 << 20), 24, "it does not take zones");
        let growing = Gauge::new(Some(Room { pages: 200, limit: 258, growth: 1200, takes_zones: true }));
        assert_eq!((growing.changes_max(0), growing.changes_max(1 << 30)), (100, CHANGES_MAX as usize));
        let smallest = Gauge::new(Some(Room { pages: 10, limit: 20, ..ROOM }));
        assert!(!smallest.has_room());
    }
}
