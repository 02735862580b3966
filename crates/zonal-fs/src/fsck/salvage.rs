//! Salvage of metadata with some lost pages.
//!
//! All readable rows are copied into a store in memory. Lost rows are restored if other rows
//! determine them. Reading any other lost row is an error. The caller checks and repairs the rows
//! there. Then [`Salvaged::put_back`] writes them over the damaged ones in one batch. A power cut
//! at any time leaves either the old metadata or the new.
//!
//! # Restored rows
//! - The position of a name, and the entry of a file's first name: each can be derived from another
//!   row.
//! - A file or directory of which only the name is left, as a new one of that type, owned by root.
//!   Data in extents is kept. One lost block follows it, because the length of the file is unknown.
//! - Lost blocks, where extents may be missing.
//!
//! Other names of a file, extended attributes and targets of symbolic links are stored only once
//! and cannot be restored.

use super::repair::{directory, restore_file};
use crate::BLOCK_BYTES;
use crate::drive::Drive;
use crate::format::{Attributes, Entry, Extent, FileKind, Position, key};
use crate::fs::files::{FILES, FILES_AS_OF};
use crate::fs::map::EXTENT_BLOCKS_MAX;
use crate::fs::names::name_at;
use crate::fs::{FsError, ROOT};
use crate::make::{self, Beside, MakeError};
use crate::store::backend::{Backend, Memory};
use crate::store::{Gap, Gaps, Rows, StoreError, salvage as salvage_rows};
use crate::superblocks;
use crate::waiter::Waiters;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Number of rows committed to the copy at a time.
const CHANGES_MAX: usize = 50_000;

/// Global rows that a file system cannot be opened without, or that would be wrong if they were outdated.
const COUNTERS: [&str; 5] = ["ino", "sequence", "superblock", FILES, FILES_AS_OF];

/// Cache of the store in memory, in bytes.
const CACHE_BYTES: usize = 16 << 20;

/// Salvaged rows, in memory.
#[derive(Debug)]
pub struct Salvaged {
    /// Storage of the rows.
    memory: Memory,
    /// Losses, sorted.
    pub losses: Vec<Loss>,
}

/// Loss caused by damaged pages.
#[derive(thiserror::Error, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// All attributes of a file, which has only a name or data left.
    #[error("file {ino}: attributes lost; now owned by root, size unknown")]
    Attributes {
        /// The file.
        ino: u64,
    },
    /// Location of data that the file may have had.
    #[error("file {ino}, block {block}: location of {blocks} blocks lost")]
    Extents {
        /// The file.
        ino: u64,
        /// First of the blocks.
        block: u64,
        /// Length in blocks.
        blocks: u64,
    },
    /// Rows of a kind, some of which may not have been restored.
    #[error("{what} {first} to {} may be lost", last_of(*.last))]
    Rows {
        /// Contents and owners of the rows.
        what: &'static str,
        /// First file or directory that may be affected.
        first: u64,
        /// Last file or directory that may be affected.
        last: u64,
    },
}

/// Formats the last file or directory of a range.
fn last_of(last: u64) -> String {
    if last == u64::MAX { "the last".to_owned() } else { last.to_string() }
}

impl Loss {
    /// The file concerned, if there is just one.
    pub fn file(&self) -> Option<u64> {
        match *self {
            Loss::Attributes { ino } | Loss::Extents { ino, .. } => Some(ino),
            Loss::Rows { .. } => None,
        }
    }
}

/// Reads the remaining metadata of a file system. Nothing is changed.
///
/// # Errors
/// [`MakeError`] if the metadata cannot be reached, or if the loss is not limited to single rows,
/// so that only a rebuild helps.
pub fn salvage(drive: &Arc<Drive>, waiters: &Waiters, beside: Option<Beside>) -> Result<Salvaged, MakeError> {
    let found = superblocks::find(drive, &*waiters())?;
    let store = make::open_store_read_only(drive, waiters, beside, &found)?;
    let memory = Memory::new();
    let mut rows = Rows::open(memory.clone(), CACHE_BYTES)?;
    let gaps = salvage_rows(store, &key::KINDS, |(key, value)| {
        rows.put(key, value);
        commit_if_large(&mut rows)
    })?;
    for key in COUNTERS.map(key::counter) {
        // A row that was read is newer than one that was lost.
        let is_lost = gaps.may_hold(&key) && rows.get(&key)?.is_none();
        if !is_lost {
            continue;
        }
        return Err(FsError::Invalid("the global rows of the file system are lost").into());
    }
    let losses = complete(&mut rows, &gaps, waiters().wall())?;
    commit(&mut rows)?;
    drop(rows);
    Ok(Salvaged { memory, losses })
}

impl Salvaged {
    /// Opens the rows for checks and repairs. They have to be closed before they are opened again.
    ///
    /// # Errors
    /// Those of the store.
    pub fn rows(&self) -> Result<Rows, MakeError> {
        Ok(Rows::open(self.memory.clone(), CACHE_BYTES)?)
    }

    /// Replaces the rows of the file system, all in one batch.
    ///
    /// # Errors
    /// [`MakeError`]. The metadata are then unchanged, with their damage.
    pub fn put_back(
        &self,
        drive: &Arc<Drive>,
        waiters: &Waiters,
        beside: Option<Beside>,
    ) -> Result<(), MakeError> {
        let found = superblocks::find(drive, &*waiters())?;
        let store = make::open_store(drive, waiters, beside, &found)?;
        Ok(self.replace(Arc::new(store))?)
    }

    fn replace(&self, store: Arc<dyn Backend>) -> Result<(), StoreError> {
        // The log forgets pages that are not in use, which take room until then.
        let _ = Rows::open_shared(store.clone(), CACHE_BYTES);
        let mut rows = Rows::replacing(store, CACHE_BYTES)?;
        rows.squeeze();
        Rows::open(self.memory.clone(), CACHE_BYTES)?.scan(&[], &[u8::MAX], |key, value| {
            rows.put(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
        commit(&mut rows)
    }
}

fn commit_if_large(rows: &mut Rows) -> Result<(), StoreError> {
    if rows.changes() < CHANGES_MAX { Ok(()) } else { commit(rows) }
}

fn commit(rows: &mut Rows) -> Result<(), StoreError> {
    let sealed = rows.seal().expect("nothing else has the rows");
    rows.settled(sealed.commit()?);
    Ok(())
}

/// Restores rows in `gaps` as far as possible, and returns the losses.
fn complete(rows: &mut Rows, gaps: &Gaps, now: i64) -> Result<Vec<Loss>, FsError> {
    let lost = Lost(gaps);
    put_entries_back(rows, &lost)?;
    put_positions_back(rows, &lost)?;
    let found = put_files_back(rows, &lost, now)?;
    let mut losses: BTreeSet<Loss> = found.iter().map(|&ino| Loss::Attributes { ino }).collect();
    losses.extend(note_lost_extents(rows, &lost, &found)?);
    let are_names_there = !lost.has_kind(&key::inodes().0) && has_all_names(rows)?;
    let told = gaps.iter().filter(|gap| !are_names_there || gap.kind != key::all_entries().0[0]);
    losses.extend(told.filter_map(Lost::potential_loss));
    Ok(losses.into_iter().collect())
}

/// Gaps in the keys.
struct Lost<'a>(&'a Gaps);

impl Lost<'_> {
    fn may_hold(&self, key: &[u8]) -> bool {
        self.0.may_hold(key)
    }

    fn of_kind(&self, key: &[u8]) -> impl Iterator<Item = &Gap> {
        let kind = key[0];
        self.0.iter().filter(move |gap| gap.kind == kind)
    }

    fn has_kind(&self, key: &[u8]) -> bool {
        self.of_kind(key).next().is_some()
    }

    /// The potential loss of a gap in rows that no other rows determine.
    fn potential_loss(gap: &Gap) -> Option<Loss> {
        let what = [
            (key::all_entries().0, "names in directories"),
            (key::attribute(0, b""), "extended attributes of files"),
            (key::tails().0, "last blocks of files"),
        ];
        let (_, what) = what.into_iter().find(|(key, _)| key[0] == gap.kind)?;
        let number = |key: &Option<Vec<u8>>, other| key.as_ref().map_or(other, |key| key::parts(key).0);
        Some(Loss::Rows { what, first: number(&gap.from, 0), last: number(&gap.before, u64::MAX) })
    }
}

/// Decodes rows of a kind with `read`, and skips those that it rejects.
fn all_of<T>(
    rows: &Rows,
    (from, end): (Vec<u8>, Vec<u8>),
    mut read: impl FnMut(&[u8], &[u8]) -> Option<T>,
) -> Result<Vec<T>, FsError> {
    let mut all = Vec::new();
    rows.scan(&from, &end, |key, value| {
        all.extend(read(key, value));
        ControlFlow::Continue(())
    })?;
    Ok(all)
}

/// Restores entries of first names from their positions.
fn put_entries_back(rows: &mut Rows, lost: &Lost<'_>) -> Result<(), FsError> {
    if !lost.has_kind(&key::all_entries().0) {
        return Ok(());
    }
    let files = all_of(rows, key::inodes(), |key, value| {
        let file = Attributes::decode(key, value).ok().filter(|file| file.links > 0)?;
        Some((key::parts(key).0, file.kind, file.parent, file.position))
    })?;
    for (ino, kind, parent, position) in files {
        let Some(name) = name_at(rows, parent, position) else { continue };
        let key = key::entry(parent, &name);
        if rows.get(&key)?.is_none() && lost.may_hold(&key) {
            rows.put(key, Entry { ino, kind, position }.encode());
            commit_if_large(rows)?;
        }
    }
    Ok(())
}

/// True if each file has as many names as its link count.
fn has_all_names(rows: &Rows) -> Result<bool, FsError> {
    let mut names: BTreeMap<u64, u32> = BTreeMap::new();
    let entries = key::all_entries();
    for ino in all_of(rows, entries, |key, value| Some(Entry::decode(key, value).ok()?.ino))? {
        *names.entry(ino).or_default() += 1;
    }
    let missing = all_of(rows, key::inodes(), |key, value| {
        let (ino, file) = (key::parts(key).0, Attributes::decode(key, value).ok()?);
        let wanted = match file.kind {
            FileKind::Directory => u32::from(ino != ROOT),
            _ => file.links,
        };
        (names.get(&ino).copied().unwrap_or(0) < wanted).then_some(ino)
    })?;
    Ok(missing.is_empty())
}

/// Restores positions from the names.
fn put_positions_back(rows: &mut Rows, lost: &Lost<'_>) -> Result<(), FsError> {
    if !lost.has_kind(&key::all_positions().0) {
        return Ok(());
    }
    let names = all_of(rows, key::all_entries(), |key, value| {
        let (parent, name) = key::parts(key);
        let position = key::position(parent, Entry::decode(key, value).ok()?.position);
        lost.may_hold(&position).then(|| (position, name.to_vec()))
    })?;
    for (position, name) in names {
        if rows.get(&position)?.is_none() {
            rows.put(position, name);
            commit_if_large(rows)?;
        }
    }
    Ok(())
}

/// Restores files that have a name or data left, and returns their numbers.
fn put_files_back(rows: &mut Rows, lost: &Lost<'_>, now: i64) -> Result<BTreeSet<u64>, FsError> {
    let mut found = BTreeSet::new();
    if !lost.has_kind(&key::inodes().0) {
        return Ok(found);
    }
    let names = all_of(rows, key::all_entries(), |key, value| {
        let Entry { ino, kind, position } = Entry::decode(key, value).ok()?;
        // The device number of a device file is lost.
        let is_known = !matches!(kind, FileKind::Character | FileKind::Block);
        (is_known && lost.may_hold(&key::inode(ino))).then(|| (ino, kind, key::parts(key).0, position))
    })?;
    for (ino, kind, parent, position) in names {
        let key = key::inode(ino);
        if rows.get(&key)?.is_some() {
            continue;
        }
        let file = Attributes::new(kind, 0o600, parent, position, now);
        match kind {
            FileKind::File => restore_file(rows, ino, parent, position, now)?,
            FileKind::Directory => rows.put(key, directory(parent, position).encode()),
            FileKind::Symlink => {
                let size = rows.get(&key::target(ino))?.map_or(0, |target| target.len() as u64);
                rows.put(key, Attributes { size, ..file }.encode());
            }
            _ => rows.put(key, file.encode()),
        }
        found.insert(ino);
        commit_if_large(rows)?;
    }
    let nameless: BTreeSet<u64> = all_of(rows, key::all_extents(), |key, _| {
        let ino = key::extent_parts(key).0;
        lost.may_hold(&key::inode(ino)).then_some(ino)
    })?
    .into_iter()
    .collect();
    for ino in nameless {
        if rows.get(&key::inode(ino))?.is_none() {
            restore_file(rows, ino, ROOT, Position::START, now)?;
            found.insert(ino);
            commit_if_large(rows)?;
        }
    }
    Ok(found)
}

/// Adds lost blocks where extents of a file may be missing. A file with as many blocks in its
/// extents as in its attributes has lost none. Files in `found` have no such count, and end with a
/// lost block.
fn note_lost_extents(rows: &mut Rows, lost: &Lost<'_>, found: &BTreeSet<u64>) -> Result<Vec<Loss>, FsError> {
    let mut losses = Vec::new();
    if !lost.has_kind(&key::all_extents().0) {
        return Ok(losses);
    }
    let mut there: BTreeMap<u64, u64> = BTreeMap::new();
    for (ino, blocks) in all_of(rows, key::all_extents(), |key, value| {
        Some((key::extent_parts(key).0, Extent::decode(key, value).ok()?.blocks))
    })? {
        *there.entry(ino).or_default() += u64::from(blocks);
    }
    let files = all_of(rows, key::inodes(), |key, value| {
        let (ino, file) = (key::parts(key).0, Attributes::decode(key, value).ok()?);
        let is_found = found.contains(&ino);
        let is_short = is_found || there.get(&ino).copied().unwrap_or(0) < file.blocks;
        let blocks = file.size.div_ceil(BLOCK_BYTES.into()).saturating_sub(is_found.into());
        (file.kind == FileKind::File && is_short).then_some((ino, blocks))
    })?;
    for (ino, blocks) in files {
        for gap in lost.of_kind(&key::all_extents().0) {
            for Range { start, end } in holes(rows, ino, blocks, gap)? {
                for block in (start..end).step_by(EXTENT_BLOCKS_MAX as usize) {
                    let blocks = (end - block).min(EXTENT_BLOCKS_MAX.into()) as u32;
                    rows.put(key::extent(ino, block), Extent::lost(blocks).encode());
                }
                losses.push(Loss::Extents { ino, block: start, blocks: end - start });
                commit_if_large(rows)?;
            }
        }
    }
    Ok(losses)
}

/// Length of the key of an extent.
const EXTENT_KEY_BYTES: usize = 17;

/// Maximum number of blocks of a hole for which each is looked up in the filter of a gap.
const BLOCKS_LOOKED_UP: u64 = 1 << 16;

/// Blocks of a file of `blocks` blocks without extents, the extents of which may have been in `gap`.
fn holes(rows: &Rows, ino: u64, blocks: u64, gap: &Gap) -> Result<Vec<Range<u64>>, FsError> {
    // A gap may begin or end after the key of an extent: then the key has one byte more.
    let place = |key: &Option<Vec<u8>>| {
        let (key, rest) = key.as_deref()?.split_at_checked(EXTENT_KEY_BYTES)?;
        let (ino, block) = key::extent_parts(key);
        Some((ino, block, !rest.is_empty()))
    };
    let start = match place(&gap.from) {
        Some((of, ..)) if of > ino => return Ok(Vec::new()),
        Some((of, block, is_after)) if of == ino => block + u64::from(is_after),
        _ => 0,
    };
    // Lost extents begin before the first of these blocks. They may end after it, where an extent was deleted.
    let (starts_end, end) = match place(&gap.before) {
        Some((of, ..)) if of < ino => return Ok(Vec::new()),
        Some((of, block, is_after)) if of == ino => (block + u64::from(is_after), blocks),
        _ => (blocks, blocks),
    };
    let extents = all_of(rows, (key::extent(ino, 0), key::extent(ino + 1, 0)), |key, value| {
        let block = key::extent_parts(key).1;
        Some(block..block + u64::from(Extent::decode(key, value).ok()?.blocks))
    })?;
    let (mut holes, mut next) = (Vec::new(), start);
    for there in extents.into_iter().chain(std::iter::once(end..end)) {
        let hole = next..there.start.min(end);
        // The first extent that is lost may begin later in the hole.
        let mut starts = hole.start..hole.end.min(starts_end);
        let is_long = starts.end.saturating_sub(starts.start) > BLOCKS_LOOKED_UP;
        let first = starts
            .by_ref()
            .take(BLOCKS_LOOKED_UP as usize)
            .find(|block| gap.may_hold(&key::extent(ino, *block)));
        holes.extend(first.or(is_long.then_some(hole.start)).map(|first| first..hole.end));
        next = next.max(there.end);
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(kind: u8, from: Option<Vec<u8>>, before: Option<Vec<u8>>) -> Gap {
        Gap::new(kind, from, before)
    }

    /// Lost blocks of a file according to its extents.
    fn lost_blocks(rows: &Rows, ino: u64) -> Vec<Range<u64>> {
        let extents = all_of(rows, (key::extent(ino, 0), key::extent(ino + 1, 0)), |key, value| {
            let extent = Extent::decode(key, value).ok().filter(Extent::is_lost)?;
            let block = key::extent_parts(key).1;
            Some(block..block + u64::from(extent.blocks))
        });
        extents.unwrap()
    }

    #[test]
    fn lost_last_extent_of_a_gap_reaches_to_the_next_extent() {
        let mut rows = Rows::open(Memory::new(), 1 << 20).unwrap();
        for block in [0, 50] {
            let extent = Extent { zone: 9, unit: 0, unit_blocks: 100, skip: 0, blocks: 10 };
            rows.put(key::extent(5, block), extent.encode());
        }
        let after = |block| [key::extent(5, block), vec![0]].concat();
        let hole = |from, before| {
            let holes = holes(&rows, 5, 100, &gap(b'E', Some(from), Some(before))).unwrap();
            assert_eq!(holes.len(), 1);
            holes[0].clone()
        };
        // The extent at block 20 is lost, and was the last of its table.
        assert_eq!(hole(key::extent(5, 20), after(20)), 20..50);
        assert_eq!(hole(after(20), key::extent(5, 50)), 21..50);
        assert_eq!(hole(key::extent(5, 60), after(60)), 60..100);
        assert_eq!(hole(key::extent(5, 0), key::extent(5, 50)), 10..50);
    }

    #[test]
    fn file_without_attributes_has_lost_blocks_wherever_extents_may_be_missing() {
        let mut rows = Rows::open(Memory::new(), 1 << 20).unwrap();
        let extent = |blocks| Extent { zone: 9, unit: 0, unit_blocks: 100, skip: 0, blocks }.encode();
        let attributes = Attributes::new(FileKind::File, 0o644, ROOT, Position(3), 0);
        rows.put(key::inode(ROOT), directory(ROOT, Position::START).encode());
        // 5 has a name, 7 has none, and 6 in between has lost nothing.
        rows.put(
            key::entry(ROOT, b"five"),
            Entry { ino: 5, kind: FileKind::File, position: Position(3) }.encode(),
        );
        rows.put(
            key::inode(6),
            Attributes { blocks: 10, size: 30 * u64::from(BLOCK_BYTES), ..attributes }.encode(),
        );
        for (ino, block, blocks) in [(5, 0, 10), (5, 30, 4), (6, 20, 10), (7, 3, 2)] {
            rows.put(key::extent(ino, block), extent(blocks));
        }
        let gaps = Gaps::new(vec![
            gap(b'E', Some(key::extent(5, 0)), Some(key::extent(5, 30))),
            gap(b'E', Some(key::extent(6, 20)), Some(key::extent(7, 3))),
            gap(b'I', Some(key::inode(ROOT)), Some(key::inode(6))),
            gap(b'I', Some(key::inode(6)), None),
        ]);
        let losses = complete(&mut rows, &gaps, 0).unwrap();
        assert_eq!(lost_blocks(&rows, 5), [10..30, 34..35]);
        assert_eq!(lost_blocks(&rows, 6), []);
        assert_eq!(lost_blocks(&rows, 7), [0..3, 5..6]);
        let size = |ino| {
            let key = key::inode(ino);
            Attributes::decode(&key, &rows.get(&key).unwrap().unwrap()).unwrap().size
        };
        assert_eq!([5, 7].map(size), [35, 6].map(|blocks| blocks * u64::from(BLOCK_BYTES)));
        let expected = [
            Loss::Attributes { ino: 5 },
            Loss::Attributes { ino: 7 },
            Loss::Extents { ino: 5, block: 10, blocks: 20 },
            Loss::Extents { ino: 7, block: 0, blocks: 3 },
        ];
        assert_eq!(losses, expected);
    }
}
