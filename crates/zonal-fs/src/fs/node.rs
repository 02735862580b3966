//! Files in memory: those that are open, being changed by a call, or with writes in flight.
//!
//! Other files are dropped from memory; their rows are complete.

use super::error::{FsError, Lost};
use super::write_buffer::WriteBuffer;
use crate::format::{Attributes, key};
use crate::space::Opened;
use crate::spread;
use crate::store::locked::{InOrder, Rank};
use crate::store::{Rows, View};
use crossbeam_utils::CachePadded;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Blocks of a file with a write in flight, each with the last write that covers it.
#[derive(Default, Debug)]
pub(crate) struct DirtyBlocks(BTreeMap<u64, (u32, u64)>);

impl DirtyBlocks {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if any block of `range` is dirty.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        self.0
            .range(..range.end)
            .next_back()
            .is_some_and(|(from, (blocks, _))| from + u64::from(*blocks) > range.start)
    }

    /// Returns the last write of any block of `range`.
    pub(crate) fn last(&self, range: &Range<u64>) -> Option<u64> {
        self.parts(range).into_iter().filter_map(|(_, number)| number).max()
    }

    /// Assigns `range` to write `number`, and returns the writes that had any of it.
    pub(crate) fn take(&mut self, range: &Range<u64>, number: u64) -> impl Iterator<Item = u64> + use<> {
        let had = self.cut(range);
        self.0.insert(range.start, ((range.end - range.start) as u32, number));
        had.into_iter().map(|(_, whose)| whose)
    }

    /// True if write `number` has exactly this range, which is the usual case.
    fn is_whole(&self, range: &Range<u64>, number: u64) -> bool {
        self.0.get(&range.start) == Some(&((range.end - range.start) as u32, number))
    }

    /// Makes `range` clean, and returns its dirty parts, each with its write.
    fn cut(&mut self, range: &Range<u64>) -> SmallVec<[(Range<u64>, u64); 1]> {
        let mut had = SmallVec::new();
        while let Some((&from, &(blocks, number))) = self.0.range(..range.end).next_back() {
            let end = from + u64::from(blocks);
            if end <= range.start {
                break;
            }
            self.0.remove(&from);
            if from < range.start {
                self.0.insert(from, ((range.start - from) as u32, number));
            }
            if end > range.end {
                self.0.insert(range.end, ((end - range.end) as u32, number));
            }
            had.push((from.max(range.start)..end.min(range.end), number));
        }
        had.reverse();
        had
    }

    /// Splits `range` into parts, each with its write, or `None` if it is clean.
    pub(crate) fn parts(&self, range: &Range<u64>) -> Vec<(Range<u64>, Option<u64>)> {
        let before = self.0.range(..range.start).next_back();
        let mut parts = Vec::new();
        let mut at = range.start;
        for (from, (blocks, number)) in before.into_iter().chain(self.0.range(range.clone())) {
            let (from, end) = ((*from).max(at), (from + u64::from(*blocks)).min(range.end));
            if from >= end {
                continue;
            }
            if at < from {
                parts.push((at..from, None));
            }
            parts.push((from..end, Some(*number)));
            at = end;
        }
        if at < range.end {
            parts.push((at..range.end, None));
        }
        parts
    }

    /// Returns the parts of `range` that belong to write `number` and to no later one.
    pub(crate) fn own(&self, range: &Range<u64>, number: u64) -> SmallVec<[Range<u64>; 1]> {
        if self.is_whole(range, number) {
            return SmallVec::from([range.clone()]);
        }
        let parts = self.parts(range).into_iter();
        parts.filter(|(_, whose)| *whose == Some(number)).map(|(part, _)| part).collect()
    }

    /// Ends write `number` of `range`, and returns the parts not covered by a later write.
    pub(crate) fn end(&mut self, range: &Range<u64>, number: u64) -> SmallVec<[Range<u64>; 1]> {
        if self.is_whole(range, number) {
            self.0.remove(&range.start);
            return SmallVec::from([range.clone()]);
        }
        let had = self.cut(range);
        let mut own = SmallVec::new();
        for (part, whose) in had {
            match whose == number {
                true => own.push(part),
                false => drop(self.0.insert(part.start, ((part.end - part.start) as u32, whose))),
            }
        }
        own
    }
}

/// Writes of a file in flight, each with the oldest write that it stands for.
///
/// If a newer write in flight covers an older one, the completion of the older has no effect, and
/// the file has neither until the newer completes. So the newer write stands for the older, and a
/// sync that waits for the older waits for both.
#[derive(Default, Debug)]
pub(crate) struct WritesInFlight(BTreeMap<u64, u64>);

impl WritesInFlight {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins write `number`, over blocks that the writes `over` had.
    pub(crate) fn begin(&mut self, number: u64, over: impl Iterator<Item = u64>) {
        let oldest = over.filter_map(|over| self.0.get(&over)).fold(number, |oldest, over| oldest.min(*over));
        self.0.insert(number, oldest);
    }

    pub(crate) fn end(&mut self, number: u64) {
        self.0.remove(&number);
    }

    /// True if any write before `mark` has not completed, or is covered by a write that has not.
    pub(crate) fn has_before(&self, mark: u64) -> bool {
        self.0.values().any(|oldest| *oldest < mark)
    }

    /// True if a write from `mark` on stands for an older one.
    pub(crate) fn has_over(&self, mark: u64) -> bool {
        self.0.range(mark..).any(|(_, oldest)| *oldest < mark)
    }
}

/// File in memory.
#[derive(Debug)]
pub(crate) struct Node {
    /// As in the row, or newer.
    pub(crate) attributes: Attributes,
    /// True if the row lacks changes: see [`writers`](super::writers).
    pub(crate) is_ahead_of_row: bool,
    /// Size in bytes, including writes in flight. Never less than in the row, except while the file
    /// is being truncated.
    pub(crate) size: u64,
    pub(crate) dirty: DirtyBlocks,
    pub(crate) in_flight: WritesInFlight,
    pub(crate) write_buffer: WriteBuffer,
    /// Blocks whose data is in rows: see [`logged_tails`](super::logged_tails).
    pub(crate) logged: Vec<u64>,
    /// Number of its pieces in combined units.
    pub(crate) combined: u32,
    /// End of its last piece that joined a combined unit, unless a tail was begun since.
    pub(crate) scattered: Option<u64>,
    /// A call is changing the data; others that want to change it wait.
    pub(crate) is_held: bool,
    /// A thread is waiting for the write buffer, or about to.
    pub(crate) is_awaited: bool,
    /// Number of open handles.
    pub(crate) handles: u32,
    /// Zone of its last data.
    pub(crate) zone: Option<Opened>,
    /// First data loss since the last sync that reported one.
    pub(crate) failure: Option<Lost>,
    /// Number of data losses, and the reason of the last. Unlike `failure`, no caller takes it from
    /// another.
    pub(crate) losses: Option<(u64, Lost)>,
    /// New size of a truncation in progress.
    pub(crate) cut: Option<u64>,
    /// Future path, announced by the writer until the next sync.
    pub(crate) announced: Option<Vec<u8>>,
}

impl Node {
    /// Creates a file that no caller uses yet.
    fn new(attributes: Attributes) -> Node {
        Node {
            size: attributes.size,
            attributes,
            is_ahead_of_row: false,
            dirty: DirtyBlocks::default(),
            in_flight: WritesInFlight::default(),
            write_buffer: WriteBuffer::Nothing,
            logged: Vec::new(),
            combined: 0,
            scattered: None,
            is_held: false,
            is_awaited: false,
            handles: 0,
            zone: None,
            failure: None,
            losses: None,
            cut: None,
            announced: None,
        }
    }

    /// Notes that the data of blocks is in rows.
    pub(super) fn note_logged(&mut self, blocks: Range<u64>) {
        // The block of the last sync is often among them.
        self.logged.retain(|block| !blocks.contains(block));
        self.logged.extend(blocks);
    }

    /// Records a data loss.
    pub(crate) fn lose(&mut self, why: Lost) {
        self.failure.get_or_insert(why);
        self.losses = Some((self.losses.map_or(1, |(count, _)| count + 1), why));
    }

    fn is_idle(&self) -> bool {
        let has_buffered = !self.write_buffer.is_nothing();
        let has_users = self.handles > 0 || !self.in_flight.is_empty() || self.is_held || has_buffered;
        let has_users = has_users || !self.logged.is_empty();
        // A file without a name must not get one once data was lost.
        let has_loss = self.failure.is_some() || self.attributes.links == 0 && self.losses.is_some();
        !has_users && !has_loss && self.announced.is_none()
    }
}

/// Locked file in memory.
pub(crate) type NodeGuard<'a> = InOrder<MappedMutexGuard<'a, Node>>;

/// Number of locks for the files in memory.
const SHARDS: usize = 512;

/// All files in memory. Each has a lock, shared with a few others. Files are changed by the thread
/// that holds the core; other threads can see the current state of a file with only its lock. One
/// kind of change needs no core: [`writers`](super::writers).
pub(crate) struct Nodes {
    shards: Box<[CachePadded<Shard>]>,
    takes_changes: AtomicBool,
}

#[derive(Default)]
struct Shard {
    files: Mutex<FxHashMap<u64, Node>>,
    /// True if a file in the shard may be busy: one was changed after all had been found idle.
    may_be_busy: AtomicBool,
    /// Number of rows of its files published without the core: see [`Nodes::note_published`].
    published: AtomicU64,
}

impl Shard {
    fn lock(&self) -> InOrder<MutexGuard<'_, FxHashMap<u64, Node>>> {
        InOrder::lock(Rank::File, || self.files.lock())
    }
}

impl Default for Nodes {
    fn default() -> Nodes {
        let shards = std::iter::repeat_with(CachePadded::default).take(SHARDS).collect();
        Nodes { shards, takes_changes: AtomicBool::new(true) }
    }
}

impl Nodes {
    fn shard(&self, ino: u64) -> &Shard {
        &self.shards[spread(ino, SHARDS)]
    }

    /// Locks the files of a shard for changes.
    fn files(&self, ino: u64) -> InOrder<MutexGuard<'_, FxHashMap<u64, Node>>> {
        let shard = self.shard(ino);
        let files = shard.lock();
        if !shard.may_be_busy.load(Ordering::Relaxed) {
            shard.may_be_busy.store(true, Ordering::Release);
        }
        files
    }

    /// Returns the file, reading its row unless it is in memory. The caller holds the core: other
    /// threads publish rows only through [`Nodes::note_published`].
    pub(crate) fn get(&self, rows: &Rows, ino: u64) -> Result<NodeGuard<'_>, FsError> {
        loop {
            if let Some(there) = self.here(ino) {
                return Ok(there);
            }
            let published = self.shard(ino).published.load(Ordering::Acquire);
            let attributes = attributes(rows, ino)?;
            let mut files = self.files(ino);
            // Another thread may have published a newer row when there was no file in memory to
            // update.
            if self.shard(ino).published.load(Ordering::Acquire) == published {
                files.entry(ino).or_insert_with(|| Node::new(attributes));
                return Ok(files.map(|files| {
                    MutexGuard::map(files, |files| files.get_mut(&ino).expect("it was put there"))
                }));
            }
        }
    }

    /// Records a row with these attributes, published by a thread without the core.
    pub(crate) fn note_published(&self, ino: u64, attributes: Attributes) {
        let mut files = self.files(ino);
        self.shard(ino).published.fetch_add(1, Ordering::Release);
        if let Some(node) = files.get_mut(&ino) {
            node.attributes = attributes;
        }
    }

    /// Returns the file if it is in memory.
    pub(crate) fn here(&self, ino: u64) -> Option<NodeGuard<'_>> {
        self.files(ino).filter_map(|files| MutexGuard::try_map(files, |files| files.get_mut(&ino)).ok())
    }

    /// Like [`Nodes::here`] for a reader: does not mark the shard as busy.
    pub(crate) fn for_read(&self, ino: u64) -> Option<NodeGuard<'_>> {
        let files = self.shard(ino).lock();
        files.filter_map(|files| MutexGuard::try_map(files, |files| files.get_mut(&ino)).ok())
    }

    /// Attributes of a file in memory. The size includes writes in flight.
    pub(crate) fn attributes(&self, ino: u64) -> Option<Attributes> {
        let files = self.shard(ino).lock();
        files.get(&ino).map(|node| Attributes { size: node.size, ..node.attributes })
    }

    /// Returns the files with buffered data or writes in flight, in ascending order.
    pub(crate) fn busy(&self) -> Vec<u64> {
        let is_busy = |node: &Node| !node.in_flight.is_empty() || !node.write_buffer.is_nothing();
        let mut busy = Vec::new();
        for shard in self.shards.iter().filter(|shard| shard.may_be_busy.load(Ordering::Acquire)) {
            let (files, before) = (shard.lock(), busy.len());
            busy.extend(files.iter().filter(|(_, node)| is_busy(node)).map(|(ino, _)| *ino));
            shard.may_be_busy.store(busy.len() > before, Ordering::Release);
        }
        busy.sort_unstable();
        busy
    }

    /// True if the file is in memory and no caller uses it.
    pub(crate) fn is_idle(&self, ino: u64) -> bool {
        self.here(ino).is_some_and(|node| node.is_idle())
    }

    /// True if files may still be changed.
    pub(crate) fn take_changes(&self) -> bool {
        self.takes_changes.load(Ordering::Acquire)
    }

    /// Refuses all changes of files from now on.
    pub(crate) fn refuse_changes(&self) {
        self.takes_changes.store(false, Ordering::Release);
    }

    /// Removes a file that is unused, or that has been deleted.
    pub(crate) fn remove(&self, ino: u64) -> Option<Node> {
        self.files(ino).remove(&ino)
    }
}

/// Reads the attributes of a file from its row.
pub(crate) fn attributes(rows: &impl View, ino: u64) -> Result<Attributes, FsError> {
    let key = key::inode(ino);
    let value = rows.get(&key)?.ok_or(FsError::NotFound)?;
    Ok(Attributes::decode(&key, &value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn write_over_one_in_flight_stands_for_it() {
        let (mut dirty, mut in_flight) = (DirtyBlocks::default(), WritesInFlight::default());
        for (number, range) in [(5, 0..4), (6, 10..12), (9, 3..11), (12, 11..20), (15, 40..41)] {
            in_flight.begin(number, dirty.take(&range, number));
        }
        assert!(!in_flight.has_before(5) && in_flight.has_before(6));
        // The file has nothing of write 5 in block 3: write 9 stands for it and has not completed.
        in_flight.end(5);
        assert!(in_flight.has_before(6));
        in_flight.end(9);
        // Write 12 covers 6, but not 9.
        assert!(!in_flight.has_before(6) && in_flight.has_before(7));
        in_flight.end(6);
        assert!(in_flight.has_before(7));
        in_flight.end(12);
        assert!(!in_flight.has_before(13) && in_flight.has_before(16));
        in_flight.end(15);
        assert!(in_flight.is_empty());
    }

    proptest! {
        #[test]
        fn each_block_is_the_last_writers(
            writes in prop::collection::vec((0..20u64, 1..8u64), 1..30), order in any::<prop::sample::Index>()
        ) {
            let mut dirty = DirtyBlocks::default();
            let mut owner = [None; 32];
            for (number, (from, blocks)) in writes.iter().enumerate() {
                let _ = dirty.take(&(*from..from + blocks), number as u64);
                (*from..from + blocks).for_each(|b| owner[b as usize] = Some(number as u64));
            }
            let first = order.index(writes.len());
            for i in (first..writes.len()).chain(0..first) {
                let (from, blocks) = writes[i];
                let own: Vec<u64> = dirty.end(&(from..from + blocks), i as u64).into_iter().flatten().collect();
                let expected: Vec<u64> = (from..from + blocks).filter(|b| owner[*b as usize] == Some(i as u64)).collect();
                prop_assert_eq!(own, expected);
                owner.iter_mut().filter(|o| **o == Some(i as u64)).for_each(|o| *o = None);
                for b in 0..32 {
                    prop_assert_eq!(dirty.touches(&(b..b + 1)), owner[b as usize].is_some());
                }
                let parts = dirty.parts(&(3..29));
                let each = parts.iter().flat_map(|(part, write)| part.clone().map(|b| (b, *write)));
                let each: Vec<_> = each.collect();
                let expected: Vec<_> = (3..29).map(|b| (b, owner[b as usize])).collect();
                prop_assert_eq!(each, expected);
            }
            prop_assert!(dirty.is_empty());
        }
    }
}
