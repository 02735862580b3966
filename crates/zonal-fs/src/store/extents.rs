//! Extents of files, kept in memory beside the rows.
//!
//! A search in the tables takes longer than a block takes from many a drive, and a file that is read or overwritten at random would pay for
//! it with each block. So what was looked up stays, and follows each change of the rows that is published.
//!
//! # Why they are right
//! - Extents of a file do not overlap: the extent that has a block is the only one, whatever else of the file is not kept.
//! - A change of rows comes here with the lock of the file's part, and raises the part's version. What a thread looked up is kept only
//!   if the version has stayed what it was before: a change meanwhile is not lost.
//! - The version comes with what is found. A thread that later finds it as it was knows that the file has these extents still.

use super::draft::{Layer, within};
use super::locked::{InOrder, Rank};
use crate::format::{Extent, key};
use crate::spread;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Parts, each with a lock and a version, of which a file has one. Files share them.
const PARTS: usize = 64;

/// Bytes that an extent takes in memory.
const EXTENT_BYTES: u64 = 48;

/// Extents with their first blocks in the file: most look-ups find one.
pub(crate) type Found = SmallVec<[(u64, Extent); 2]>;

/// Extents of a file.
#[derive(Default)]
struct OfFile {
    /// By their first blocks.
    extents: BTreeMap<u64, Extent>,
    /// Blocks that they have.
    blocks: u64,
}

impl OfFile {
    /// True if the extent is one more.
    fn insert(&mut self, block: u64, extent: Extent) -> bool {
        let before = self.extents.insert(block, extent);
        self.blocks += u64::from(extent.blocks);
        self.blocks -= before.map_or(0, |before| u64::from(before.blocks));
        before.is_none()
    }

    /// True if there was one.
    fn remove(&mut self, block: u64) -> bool {
        let before = self.extents.remove(&block);
        self.blocks -= before.map_or(0, |before| u64::from(before.blocks));
        before.is_some()
    }
}

/// Extents in memory.
pub(super) struct KeptExtents {
    parts: Box<[CachePadded<Part>]>,
    /// Extents in all parts: each is counted with the lock of its part.
    count: AtomicUsize,
    most: usize,
    /// The part that is emptied next.
    next: AtomicUsize,
}

#[derive(Default)]
struct Part {
    /// Drafts with extents that have been published.
    version: AtomicU64,
    files: Mutex<FxHashMap<u64, OfFile>>,
}

impl Part {
    fn lock(&self) -> InOrder<MutexGuard<'_, FxHashMap<u64, OfFile>>> {
        InOrder::lock(Rank::Extents, || self.files.lock())
    }
}

impl KeptExtents {
    /// Keeps extents in at most `bytes` of memory.
    pub(super) fn new(bytes: u64) -> KeptExtents {
        KeptExtents {
            parts: std::iter::repeat_with(CachePadded::default).take(PARTS).collect(),
            count: AtomicUsize::new(0),
            most: (bytes / EXTENT_BYTES) as usize,
            next: AtomicUsize::new(0),
        }
    }

    fn part(&self, file: u64) -> &Part {
        &self.parts[spread(file, PARTS)]
    }

    pub(super) fn version(&self, file: u64) -> u64 {
        self.part(file).version.load(Ordering::SeqCst)
    }

    /// The extents of `blocks`, whole and in order, if all of them are kept, and the version that the file's map has.
    pub(super) fn find(&self, file: u64, blocks: &Range<u64>) -> Option<(Found, u64)> {
        let part = self.part(file);
        let files = part.lock();
        let extents = &files.get(&file)?.extents;
        let (first, _) = extents.range(..=blocks.start).next_back()?;
        let (mut found, mut next) = (Found::new(), blocks.start);
        for (block, extent) in extents.range(first..) {
            let end = block + u64::from(extent.blocks);
            // A hole may lie between, or extents that were not looked up.
            if *block > next || end <= next {
                return None;
            }
            next = end;
            found.push((*block, *extent));
            if next >= blocks.end {
                return Some((found, part.version.load(Ordering::SeqCst)));
            }
        }
        None
    }

    /// True if the extents of all `blocks` that a file has are kept.
    pub(super) fn has_all(&self, file: u64, blocks: u64) -> bool {
        self.part(file).lock().get(&file).is_some_and(|kept| kept.blocks >= blocks)
    }

    /// Keeps extents that were looked up after the file's map had this version, if it has it still.
    pub(super) fn keep(&self, file: u64, extents: impl Iterator<Item = (u64, Extent)>, version: u64) {
        let part = self.part(file);
        {
            let mut files = part.lock();
            if part.version.load(Ordering::SeqCst) != version {
                return;
            }
            for (block, extent) in extents.take(self.most / 2) {
                let is_one_more = files.entry(file).or_default().insert(block, extent);
                self.count.fetch_add(usize::from(is_one_more), Ordering::Relaxed);
            }
        }
        self.empty_some();
    }

    /// Takes over the extents of a draft that is about to be shown.
    pub(super) fn follow(&self, draft: &Layer) {
        let (from, end) = key::all_extents();
        let mut changes =
            within(draft, &from, &end).map(|(key, change)| (key::extent_parts(key), key, change)).peekable();
        while let Some(((file, _), ..)) = changes.peek() {
            let (file, part) = (*file, self.part(*file));
            let mut files = part.lock();
            part.version.fetch_add(1, Ordering::SeqCst);
            let mut kept = files.get_mut(&file);
            while let Some(((_, block), key, change)) = changes.next_if(|((next, _), ..)| *next == file) {
                let Some(kept) = &mut kept else { continue };
                let extent = change.value.as_ref().and_then(|value| Extent::decode(key, value).ok());
                match extent {
                    Some(extent) => {
                        self.count.fetch_add(usize::from(kept.insert(block, extent)), Ordering::Relaxed)
                    }
                    None => self.count.fetch_sub(usize::from(kept.remove(block)), Ordering::Relaxed),
                };
            }
            if kept.is_some_and(|kept| kept.extents.is_empty()) {
                files.remove(&file);
            }
        }
        self.empty_some();
    }

    /// Empties parts in turn while there are too many extents.
    fn empty_some(&self) {
        for _ in 0..PARTS {
            if self.count.load(Ordering::Relaxed) <= self.most {
                return;
            }
            let part = &self.parts[self.next.fetch_add(1, Ordering::Relaxed) % PARTS];
            let mut files = part.lock();
            let gone = std::mem::take(&mut **files.guard_mut());
            self.count.fetch_sub(gone.values().map(|file| file.extents.len()).sum(), Ordering::Relaxed);
            // They are freed without the lock.
            drop(files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::draft::Draft;
    use super::*;
    use proptest::prelude::*;

    fn extent(blocks: u32) -> Extent {
        Extent { zone: 1, unit: 0, unit_blocks: 8, skip: 0, blocks }
    }

    /// The first blocks of what is found.
    fn found(kept: &KeptExtents, file: u64, blocks: Range<u64>) -> Option<Vec<u64>> {
        kept.find(file, &blocks).map(|(found, _)| found.iter().map(|(block, _)| *block).collect())
    }

    fn draft(changes: &[(u64, u64, Option<u32>)]) -> Draft {
        let mut draft = Draft::default();
        for (file, block, blocks) in changes {
            match blocks {
                Some(blocks) => draft.put(key::extent(*file, *block), extent(*blocks).encode()),
                None => draft.delete(key::extent(*file, *block)),
            }
        }
        draft
    }

    #[test]
    fn extents_are_found_where_nothing_is_missing() {
        let kept = KeptExtents::new(1 << 20);
        assert_eq!(found(&kept, 7, 0..1), None);
        kept.keep(7, [(10, extent(5)), (15, extent(5)), (30, extent(1))].into_iter(), 0);
        assert_eq!(found(&kept, 7, 12..13), Some(vec![10]));
        assert_eq!(found(&kept, 7, 10..20), Some(vec![10, 15]));
        for missing in [9..11, 12..21, 20..21, 29..31, 31..32] {
            assert_eq!(found(&kept, 7, missing), None);
        }
        assert_eq!(found(&kept, 8, 12..13), None, "of another file");
    }

    #[test]
    fn cached_extents_follow_published_changes() {
        let kept = KeptExtents::new(1 << 20);
        kept.keep(7, [(10, extent(5)), (20, extent(2))].into_iter(), 0);
        kept.follow(&draft(&[(7, 10, Some(2)), (7, 12, Some(1)), (7, 20, None), (8, 0, Some(1))]).layer);
        assert_eq!(found(&kept, 7, 10..13), Some(vec![10, 12]));
        assert!(kept.has_all(7, 3) && !kept.has_all(7, 4) && !kept.has_all(8, 0));
        assert_eq!((found(&kept, 7, 13..14), found(&kept, 7, 20..21)), (None, None));
        assert_eq!(found(&kept, 8, 0..1), None, "nothing of it was looked up");
        assert_eq!(kept.count.load(Ordering::Relaxed), 2);
        kept.follow(&draft(&[(7, 10, None), (7, 12, None)]).layer);
        assert_eq!(kept.count.load(Ordering::Relaxed), 0);
        assert!(kept.parts.iter().all(|part| part.lock().is_empty()));
    }

    #[test]
    fn extents_looked_up_before_a_change_are_not_cached() {
        let kept = KeptExtents::new(1 << 20);
        let before = kept.version(7);
        kept.follow(&draft(&[(7, 10, None)]).layer);
        kept.keep(7, [(10, extent(5))].into_iter(), before);
        assert_eq!(found(&kept, 7, 10..11), None);
        kept.keep(7, [(10, extent(5))].into_iter(), kept.version(7));
        assert_eq!(kept.find(7, &(10..11)).map(|(_, version)| version), Some(kept.version(7)));
    }

    #[test]
    fn few_are_kept() {
        let most = 1000;
        let kept = KeptExtents::new(most as u64 * EXTENT_BYTES);
        let mut seen = 0;
        for n in 0..10_000u64 {
            kept.keep(n % 100, (0..10).map(|i| (100 * n + 10 * i, extent(10))), 0);
            let there: usize = kept
                .parts
                .iter()
                .map(|part| part.lock().values().map(|file| file.extents.len()).sum::<usize>())
                .sum();
            assert_eq!(there, kept.count.load(Ordering::Relaxed));
            assert!(there <= most);
            seen = seen.max(there);
        }
        assert!(seen > most / 2);
        kept.keep(1, (0..2 * most as u64).map(|n| (10 * n, extent(10))), 0);
        assert!(kept.count.load(Ordering::Relaxed) <= most);
    }

    /// A thread empties a part to which another one has just added.
    #[test]
    fn extents_are_counted_while_threads_add_and_empty() {
        let most = 4;
        let kept = KeptExtents::new(most as u64 * EXTENT_BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..400_000u64 {
                        kept.keep(
                            7,
                            [(n % 50, extent(1)), (n % 50 + 1, extent(1))].into_iter(),
                            kept.version(7),
                        );
                        if n % 5 == 0 {
                            kept.follow(&draft(&[(7, n % 50, None)]).layer);
                        }
                    }
                });
            }
        });
        let there = kept.part(7).lock().get(&7).map_or(0, |file| file.extents.len());
        assert_eq!(there, kept.count.load(Ordering::Relaxed));
        assert!(there <= most, "{there} extents");
    }

    proptest! {
        /// What is found is what the rows have.
        #[test]
        fn found_extents_are_those_of_the_rows(
            steps in prop::collection::vec((0..3u64, 0..8u64, any::<bool>(), 0..3u8), 1..80)
        ) {
            let kept = KeptExtents::new(1 << 20);
            let mut rows: BTreeMap<(u64, u64), u32> = BTreeMap::new();
            for (n, (file, slot, is_there, how)) in steps.into_iter().enumerate() {
                let (block, blocks) = (slot * 4, n as u32 % 4 + 1);
                if how == 0 {
                    let of_file = rows.range((file, 0)..(file + 1, 0)).map(|((_, block), n)| (*block, extent(*n)));
                    kept.keep(file, of_file, kept.version(file));
                } else {
                    kept.follow(&draft(&[(file, block, is_there.then_some(blocks))]).layer);
                    match is_there {
                        true => _ = rows.insert((file, block), blocks),
                        false => _ = rows.remove(&(file, block)),
                    }
                }
                for slot in 0..8 {
                    let Some((found, _)) = kept.find(file, &(slot * 4..slot * 4 + 1)) else { continue };
                    prop_assert_eq!(found[0].1.blocks, rows[&(file, slot * 4)]);
                }
            }
        }
    }
}
