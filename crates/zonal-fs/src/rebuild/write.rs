//! Writes the results as rows of an empty store.

use super::overlay;
use super::tree::{Tree, UnlinkedFile};
use super::units::{FoundUnits, UnitRecord};
use super::{RebuildError, Rebuilt};
use crate::drive::Drive;
use crate::format::{Account, RunPiece, Superblock, Uuid, key};
use crate::fs::map::Tails;
use crate::fs::{FsError, ROOT, files, number};
use crate::make::{self, MakeError, create_rows};
use crate::store::backend::BackendError;
use crate::store::backend::file::lock_to_replace;
use crate::store::backend::log::Log;
use crate::store::{Row, Rows};
use crate::superblocks;
use crate::waiter::Waiters;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of rows held in memory before a commit.
const CHANGES_MAX: usize = 50_000;

/// Suffix of a file beside the drive until it is complete.
const UNFINISHED: &str = ".rebuild";

/// Creates an empty store in place of the metadata, and writes all rows to it.
pub(super) fn write(
    drive: &Arc<Drive>,
    waiters: &Waiters,
    superblock: &Superblock,
    superblocks: superblocks::Writer,
    place: Option<Beside>,
    mut found: FoundUnits,
) -> Result<Rebuilt, RebuildError> {
    found.drop_uncommitted();
    let unfinished = place.as_ref().map(|place| make::Beside::Path(place.unfinished.clone()));
    let mut writer =
        Writer { rows: create_rows(drive, waiters, unfinished.as_ref(), superblock, superblocks)? };
    let counts = writer.all(&mut found, superblock, waiters().wall())?;
    let backend = writer.rows.close();
    if let Some(place) = place {
        place.put()?;
    }
    backend.log().map_or(Ok(()), Log::make).map_err(MakeError::from)?;
    Ok(counts)
}

struct Writer {
    rows: Rows,
}

impl Writer {
    fn all(&mut self, found: &mut FoundUnits, superblock: &Superblock, now: i64) -> Result<Rebuilt, FsError> {
        self.runs(found)?;
        // Taken out, because the loop sorts them by file while it borrows paths from `found`.
        let mut entries = std::mem::take(&mut found.entries);
        entries.retain(|entry| entry.ino > ROOT);
        entries.sort_unstable_by_key(|entry| entry.ino);
        let mut counts = found.counts.clone();
        let mut used: BTreeMap<u32, u32> = BTreeMap::new();
        let mut files = Vec::new();
        for entries in entries.chunk_by_mut(|a, b| a.ino == b.ino) {
            let file = overlay::file(entries);
            let UnitRecord { ino, born, size, sequence, .. } = *file.newest;
            for extent in &file.extents {
                *used.entry(extent.extent.zone).or_default() += extent.extent.blocks;
                self.put((key::extent(ino, extent.block), extent.extent.encode()))?;
            }
            counts.replaced += file.replaced;
            counts.bytes = counts.bytes.saturating_add(size);
            let blocks = file.extents.iter().map(|mapped| u64::from(mapped.extent.blocks)).sum();
            files.push(UnlinkedFile { ino, born, size, blocks, sequence, path: found.path(file.newest) });
        }
        counts.files = files.len() as u64;
        let next = files.last().map_or(ROOT, |file| file.ino) + 1;
        let number = number::rebuilt(found.last_number);
        let tree = self.names(files, Tree::new(next, number::generation(number), now))?;
        counts.lost_and_found = tree.lost_and_found;
        for (zone, used) in used {
            let begun = found.begun(zone);
            self.put((key::zone(zone), Account { used, resets: 0, begun }.encode()))?;
        }
        files::put(&mut self.rows, counts.files + tree.directories_count(), number);
        self.last(&tree, number, superblock)?;
        Ok(counts)
    }

    /// Writes the runs of all zones.
    fn runs(&mut self, found: &FoundUnits) -> Result<(), FsError> {
        let mut tails = Tails::default();
        for unit in found.entries.chunk_by(|a, b| (a.zone, a.unit) == (b.zone, b.unit)) {
            let piece = |e: &UnitRecord| RunPiece { ino: e.ino, block: e.block, blocks: e.blocks.into() };
            let UnitRecord { zone, unit: block, .. } = unit[0];
            let header = found.header(zone, block);
            tails.note(&mut self.rows, zone, block, header, unit.iter().map(piece).collect());
            self.commit_if_large()?;
        }
        Ok(())
    }

    /// Enters the files, newest first.
    fn names(&mut self, mut files: Vec<UnlinkedFile<'_>>, mut tree: Tree) -> Result<Tree, FsError> {
        files.sort_unstable_by_key(|file| (std::cmp::Reverse(file.sequence), file.ino));
        for file in &files {
            for row in tree.name(file) {
                self.put(row)?;
            }
        }
        for row in tree.directories() {
            self.put(row)?;
        }
        Ok(tree)
    }

    /// Writes the rows that make the store a valid file system.
    fn last(&mut self, tree: &Tree, number: u64, superblock: &Superblock) -> Result<(), FsError> {
        self.commit()?;
        self.rows.put(key::counter("ino"), tree.next().to_le_bytes().to_vec());
        self.rows.put(key::counter("sequence"), number.to_le_bytes().to_vec());
        self.rows.put(key::counter("superblock"), superblock.encode().to_vec());
        self.commit()
    }

    fn put(&mut self, (key, value): Row) -> Result<(), FsError> {
        self.rows.put(key, value);
        self.commit_if_large()
    }

    fn commit_if_large(&mut self) -> Result<(), FsError> {
        if self.rows.changes() < CHANGES_MAX { Ok(()) } else { self.commit() }
    }

    fn commit(&mut self) -> Result<(), FsError> {
        let committed = self.rows.seal().expect("nothing else has the rows").commit()?;
        self.rows.settled(committed);
        Ok(())
    }
}

/// A file beside the drive that replaces an existing one once it is complete.
pub(super) struct Beside {
    path: PathBuf,
    unfinished: PathBuf,
    /// The existing file, locked until it is replaced.
    _replaced: Option<File>,
}

impl Beside {
    /// Locks the existing file. It has to hold metadata of the file system `uuid`.
    ///
    /// # Errors
    /// If the file is something else, in use, or unreadable. Nothing was changed then.
    pub(super) fn new(path: &Path, uuid: &Uuid) -> Result<Beside, RebuildError> {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let refused = |error| match error {
            BackendError::NotOurs { .. } => RebuildError::NotReplaced(error),
            error => MakeError::from(error).into(),
        };
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(UNFINISHED);
        let place = Beside {
            _replaced: lock_to_replace(&path, uuid).map_err(refused)?,
            unfinished: unfinished.into(),
            path,
        };
        let failed = |source| RebuildError::File { path: place.unfinished.clone(), source };
        // May be left over from a killed rebuild.
        if lock_to_replace(&place.unfinished, uuid).map_err(refused)?.is_some() {
            std::fs::remove_file(&place.unfinished).map_err(failed)?;
        }
        Ok(place)
    }

    fn put(self) -> Result<(), RebuildError> {
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let put = std::fs::rename(&self.unfinished, &self.path);
        put.and_then(|()| File::open(directory)?.sync_all())
            .map_err(|source| RebuildError::File { path: self.path, source })
    }
}
