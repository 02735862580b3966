//! Metadata of which some pages are lost: everything else is kept as it is.
//!
//! All rows that can be read go into a database in memory. A lost row that the others tell is put back. A reader of any other
//! lost row is told an error. The caller checks and repairs the rows there. Then [`Salvaged::put_back`] writes them in place of
//! the damaged ones, in one batch. After a cut at any time the metadata are what they were, or what they became.
//!
//! # What is put back
//! - A name without its position, and a file's first name without its entry: each is in another row.
//! - A file or directory of which only the name is left, as a new one of that kind which belongs to root. Data in extents stay,
//!   and a block that is lost follows them: how long the file was is not known.
//! - Where extents may be missing, lost blocks.
//!
//! Other names of a file, extended attributes and targets of symbolic links are nowhere else.

use super::repair::directory;
use crate::BLOCK_BYTES;
use crate::drive::Drive;
use crate::format::{Attributes, Entry, Extent, Kind, key};
use crate::fs::map::EXTENT_BLOCKS_MAX;
use crate::fs::names::name_at;
use crate::fs::{FsError, ROOT};
use crate::make::{self, Beside, MakeError};
use crate::store::backend::Memory;
use crate::store::{Gap, Rows, StoreError, salvage as salvage_rows};
use crate::superblocks;
use crate::waiter::Waiters;
use redb::StorageBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Rows that become durable in the copy together.
const CHANGES_MAX: usize = 50_000;

/// Bytes of the copy that are written at once.
const CHUNK: usize = 1 << 20;

/// Bytes of cache for the database in memory.
const CACHE_BYTES: usize = 16 << 20;

/// The rows that were left, in memory.
#[derive(Debug)]
pub struct Salvaged {
    /// Where the rows are.
    memory: Memory,
    /// What was lost.
    pub losses: Vec<Loss>,
}

/// What was lost with damaged pages.
#[derive(thiserror::Error, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// All that was known of a file but its name.
    #[error("file {ino}: its attributes are lost; it belongs to root now, and how long it was is not known")]
    Attributes {
        /// The file.
        ino: u64,
    },
    /// Data that may have been there.
    #[error("file {ino}, block {block}: where {blocks} blocks lie is lost")]
    Extents {
        /// The file.
        ino: u64,
        /// First of its blocks.
        block: u64,
        /// How many.
        blocks: u64,
    },
    /// Rows of a kind, some of which may have been others than those that were put back.
    #[error("{what} {first} to {} may be lost", last_of(*.last))]
    Rows {
        /// What the rows say, and of what.
        what: &'static str,
        /// First file or directory of which there may be any.
        first: u64,
        /// The last one.
        last: u64,
    },
}

/// The last file or directory of a range.
fn last_of(last: u64) -> String {
    if last == u64::MAX { "the last".to_owned() } else { last.to_string() }
}

impl Loss {
    /// The file that it is about, if it is about one.
    pub fn file(&self) -> Option<u64> {
        match *self {
            Loss::Attributes { ino } | Loss::Extents { ino, .. } => Some(ino),
            Loss::Rows { .. } => None,
        }
    }
}

/// Reads what is left of the metadata of a file system. Nothing is changed.
///
/// # Errors
/// [`MakeError`]: they cannot be reached, or what is lost is not in single rows, so that a rebuild is all that helps.
pub fn salvage(drive: &Arc<Drive>, waiters: &Waiters, beside: Option<Beside>) -> Result<Salvaged, MakeError> {
    let found = superblocks::find(drive, &*waiters())?;
    let store = make::look_at_store(drive, waiters, beside, &found)?;
    let memory = Memory::new();
    let mut rows = Rows::open(memory.clone(), CACHE_BYTES)?;
    let gaps = salvage_rows(store, |(key, value)| {
        rows.put(key, value);
        relieve(&mut rows)
    })?;
    let of_the_whole = key::counter("");
    if gaps.iter().any(|gap| gap.kind == of_the_whole[0]) {
        return Err(FsError::Invalid("the rows of the file system as a whole are lost").into());
    }
    let losses = complete(&mut rows, &gaps, waiters().wall())?;
    commit(&mut rows)?;
    drop(rows);
    Ok(Salvaged { memory, losses })
}

impl Salvaged {
    /// The rows, to be checked and repaired. They have to be closed before they are opened again.
    ///
    /// # Errors
    /// The database's.
    pub fn rows(&self) -> Result<Rows, MakeError> {
        Ok(Rows::open(self.memory.clone(), CACHE_BYTES)?)
    }

    /// Writes the rows in place of those that the file system has, all of them in one batch.
    ///
    /// # Errors
    /// [`MakeError`]; then the metadata are what they were, damaged as they are.
    pub fn put_back(
        &self,
        drive: &Arc<Drive>,
        waiters: &Waiters,
        beside: Option<Beside>,
    ) -> Result<(), MakeError> {
        let found = superblocks::find(drive, &*waiters())?;
        let store = make::open_store(drive, waiters, beside, &found)?;
        self.copy_to(&store).map_err(|error| StoreError::from(redb::StorageError::from(error)).into())
    }

    fn copy_to(&self, store: &impl StorageBackend) -> std::io::Result<()> {
        let len = self.memory.len()?;
        store.set_len(0)?;
        store.set_len(len)?;
        let mut bytes = vec![0; CHUNK];
        for at in (0..len).step_by(CHUNK) {
            let bytes = &mut bytes[..CHUNK.min((len - at) as usize)];
            self.memory.read(at, bytes)?;
            // Pages that were never written are zeroes, and take no room.
            let mut page_at = at;
            for page in bytes.chunks(BLOCK_BYTES as usize) {
                if page.iter().any(|byte| *byte != 0) {
                    store.write(page_at, page)?;
                }
                page_at += page.len() as u64;
            }
        }
        store.sync_data()
    }
}

fn relieve(rows: &mut Rows) -> Result<(), StoreError> {
    if rows.changes() < CHANGES_MAX { Ok(()) } else { commit(rows) }
}

fn commit(rows: &mut Rows) -> Result<(), StoreError> {
    let sealed = rows.seal().expect("nobody else has the rows");
    rows.settled(sealed.commit()?)
}

/// Puts back what is known of the rows in `gaps`; what is not.
fn complete(rows: &mut Rows, gaps: &[Gap], now: i64) -> Result<Vec<Loss>, FsError> {
    let lost = Lost(gaps);
    put_entries_back(rows, &lost)?;
    put_positions_back(rows, &lost)?;
    let mut losses: BTreeSet<Loss> = put_files_back(rows, &lost, now)?.into_iter().collect();
    losses.extend(note_lost_extents(rows, &lost)?);
    let are_names_there = !lost.has_kind(&key::inodes().0) && has_all_names(rows)?;
    let told = gaps.iter().filter(|gap| !are_names_there || gap.kind != key::all_entries().0[0]);
    losses.extend(told.filter_map(Lost::told));
    Ok(losses.into_iter().collect())
}

/// The gaps.
struct Lost<'a>(&'a [Gap]);

impl Lost<'_> {
    fn may_hold(&self, key: &[u8]) -> bool {
        self.0.iter().any(|gap| gap.may_hold(key))
    }

    fn of_kind(&self, key: &[u8]) -> impl Iterator<Item = &Gap> {
        let kind = key[0];
        self.0.iter().filter(move |gap| gap.kind == kind)
    }

    fn has_kind(&self, key: &[u8]) -> bool {
        self.of_kind(key).next().is_some()
    }

    /// A gap as the loss that it may be, where nothing else tells of what was in it.
    fn told(gap: &Gap) -> Option<Loss> {
        let what = [
            (key::all_entries().0, "names in directories"),
            (key::attribute(0, b""), "extended attributes of files"),
        ];
        let (_, what) = what.into_iter().find(|(key, _)| key[0] == gap.kind)?;
        let number = |key: &Option<Vec<u8>>, other| key.as_ref().map_or(other, |key| key::parts(key).0);
        Some(Loss::Rows { what, first: number(&gap.after, 0), last: number(&gap.before, u64::MAX) })
    }
}

/// Rows of a kind as `read` sees them, those left out that it does not understand.
fn gathered<T>(
    rows: &Rows,
    (from, end): (Vec<u8>, Vec<u8>),
    mut read: impl FnMut(&[u8], &[u8]) -> Option<T>,
) -> Result<Vec<T>, FsError> {
    let mut gathered = Vec::new();
    rows.scan(&from, &end, |key, value| {
        gathered.extend(read(key, value));
        ControlFlow::Continue(())
    })?;
    Ok(gathered)
}

/// First names of files, whose positions have them.
fn put_entries_back(rows: &mut Rows, lost: &Lost<'_>) -> Result<(), FsError> {
    if !lost.has_kind(&key::all_entries().0) {
        return Ok(());
    }
    let files = gathered(rows, key::inodes(), |key, value| {
        let file = Attributes::decode(key, value).ok().filter(|file| file.links > 0)?;
        Some((key::parts(key).0, file.kind, file.parent, file.position))
    })?;
    for (ino, kind, parent, position) in files {
        let Some(name) = name_at(rows, parent, position) else { continue };
        let key = key::entry(parent, &name);
        if lost.may_hold(&key) && rows.get(&key)?.is_none() {
            rows.put(key, Entry { ino, kind, position }.encode());
            relieve(rows)?;
        }
    }
    Ok(())
}

/// Whether each file has as many names as it says.
fn has_all_names(rows: &Rows) -> Result<bool, FsError> {
    let mut names: BTreeMap<u64, u32> = BTreeMap::new();
    let entries = key::all_entries();
    for ino in gathered(rows, entries, |key, value| Some(Entry::decode(key, value).ok()?.ino))? {
        *names.entry(ino).or_default() += 1;
    }
    let missing = gathered(rows, key::inodes(), |key, value| {
        let (ino, file) = (key::parts(key).0, Attributes::decode(key, value).ok()?);
        let wanted = match file.kind {
            Kind::Directory => u32::from(ino != ROOT),
            _ => file.links,
        };
        (names.get(&ino).copied().unwrap_or(0) < wanted).then_some(ino)
    })?;
    Ok(missing.is_empty())
}

/// Positions of names.
fn put_positions_back(rows: &mut Rows, lost: &Lost<'_>) -> Result<(), FsError> {
    if !lost.has_kind(&key::all_positions().0) {
        return Ok(());
    }
    let names = gathered(rows, key::all_entries(), |key, value| {
        let (parent, name) = key::parts(key);
        let position = key::position(parent, Entry::decode(key, value).ok()?.position);
        lost.may_hold(&position).then(|| (position, name.to_vec()))
    })?;
    for (position, name) in names {
        if rows.get(&position)?.is_none() {
            rows.put(position, name);
            relieve(rows)?;
        }
    }
    Ok(())
}

/// Files of which a name is left.
fn put_files_back(rows: &mut Rows, lost: &Lost<'_>, now: i64) -> Result<Vec<Loss>, FsError> {
    let mut losses = Vec::new();
    if !lost.has_kind(&key::inodes().0) {
        return Ok(losses);
    }
    let names = gathered(rows, key::all_entries(), |key, value| {
        let Entry { ino, kind, position } = Entry::decode(key, value).ok()?;
        // Which device it was is not known.
        let is_known = !matches!(kind, Kind::Character | Kind::Block);
        (is_known && lost.may_hold(&key::inode(ino))).then(|| (ino, kind, key::parts(key).0, position))
    })?;
    for (ino, kind, parent, position) in names {
        let key = key::inode(ino);
        if rows.get(&key)?.is_some() {
            continue;
        }
        let file = match kind {
            Kind::Directory => directory(parent, position),
            kind => found_file(rows, ino, Attributes::new(kind, 0o600, parent, position, now))?,
        };
        rows.put(key, file.encode());
        losses.push(Loss::Attributes { ino });
        relieve(rows)?;
    }
    Ok(losses)
}

/// A file with the size of what is left of it: of its data, and of a block that is lost.
fn found_file(rows: &mut Rows, ino: u64, file: Attributes) -> Result<Attributes, FsError> {
    match file.kind {
        Kind::File => {
            let end = end_of_last(rows, ino, u64::MAX)?;
            rows.put(key::extent(ino, end), Extent::lost(1).encode());
            Ok(Attributes { size: (end + 1) * u64::from(BLOCK_BYTES), ..file })
        }
        Kind::Symlink => {
            let target = rows.get(&key::target(ino))?;
            Ok(Attributes { size: target.map_or(0, |target| target.len() as u64), ..file })
        }
        _ => Ok(file),
    }
}

/// Where the last extent of a file ends that begins before `block`; 0 without one.
fn end_of_last(rows: &Rows, ino: u64, block: u64) -> Result<u64, FsError> {
    let last = rows.last(&key::extent(ino, 0), &key::extent(ino, block))?;
    Ok(last.map_or(0, |(key, value)| {
        let blocks = Extent::decode(&key, &value).map_or(0, |extent| extent.blocks);
        key::extent_parts(&key).1.saturating_add(blocks.into())
    }))
}

/// Where extents of a file may be missing, it has lost blocks. A file whose extents have as many blocks as it says has lost none.
fn note_lost_extents(rows: &mut Rows, lost: &Lost<'_>) -> Result<Vec<Loss>, FsError> {
    let mut losses = Vec::new();
    if !lost.has_kind(&key::all_extents().0) {
        return Ok(losses);
    }
    let mut there: BTreeMap<u64, u64> = BTreeMap::new();
    for (ino, blocks) in gathered(rows, key::all_extents(), |key, value| {
        Some((key::extent_parts(key).0, Extent::decode(key, value).ok()?.blocks))
    })? {
        *there.entry(ino).or_default() += u64::from(blocks);
    }
    let files = gathered(rows, key::inodes(), |key, value| {
        let (ino, file) = (key::parts(key).0, Attributes::decode(key, value).ok()?);
        let is_short = there.get(&ino).copied().unwrap_or(0) < file.blocks;
        (file.kind == Kind::File && is_short).then_some((ino, file.size.div_ceil(BLOCK_BYTES.into())))
    })?;
    for (ino, blocks) in files {
        for gap in lost.of_kind(&key::all_extents().0) {
            if let Some(Range { start, end }) = holes(rows, ino, blocks, gap)? {
                for block in (start..end).step_by(EXTENT_BLOCKS_MAX as usize) {
                    let blocks = (end - block).min(EXTENT_BLOCKS_MAX.into()) as u32;
                    rows.put(key::extent(ino, block), Extent::lost(blocks).encode());
                }
                losses.push(Loss::Extents { ino, block: start, blocks: end - start });
                relieve(rows)?;
            }
        }
    }
    Ok(losses)
}

/// The blocks of a file of `blocks` blocks whose extents may have been in `gap`.
fn holes(rows: &Rows, ino: u64, blocks: u64, gap: &Gap) -> Result<Option<Range<u64>>, FsError> {
    let place = |key: &Option<Vec<u8>>| key.as_deref().map(key::extent_parts);
    let start = match place(&gap.after) {
        Some((of, _)) if of > ino => return Ok(None),
        Some((of, block)) if of == ino => end_of_last(rows, ino, block)?,
        _ => 0,
    };
    let end = match place(&gap.before) {
        Some((of, _)) if of < ino => return Ok(None),
        Some((of, block)) if of == ino => block.min(blocks),
        _ => blocks,
    };
    Ok((start < end).then_some(start..end))
}
