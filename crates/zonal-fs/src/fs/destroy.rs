//! Deletion of files in pieces, so that no thread has to wait for the whole of it.
//!
//! A file may have a hundred thousand extents, and as many extended attributes. Freeing each of
//! them changes a row and an account; doing all of this in one critical section of the core would
//! take a tenth of a second.
//!
//! # Deleted files
//! The change that removes a file's last name or use deletes its rows, except those of its blocks
//! and most of its extended attributes. From then on no call finds the file. An orphan row
//! ([`key::orphan`]) remains until the last blocks and attributes are freed, so the next mount can
//! free the rest after a crash. The thread that ended the file frees the blocks before its call
//! returns, and releases the lock between pieces. A thread that must not wait stops when too many
//! changes wait for a commit. The next deletion, background step or lack of space frees the rest.
//!
//! The end of a use only queues the file, because a commit may be due before its rows fit. Until
//! the file leaves the queue, it exists, and is kept if it is used or named again.
//!
//! # Truncated files
//! Blocks are freed from the end, and each piece shortens the size in the row. So any commit in
//! between has the file at an intermediate size. Callers see the new size from the start.

use super::core::{Core, Shared};
use super::error::FsError;
use super::map::{self, Mapped};
use super::room::Touched;
use super::waiting::WaitsFor;
use crate::BLOCK_BYTES;
use crate::format::key;
use crate::space::Reservation;
use crate::space::cost::Need;
use crate::store::View;
use crate::waiter::Wait;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, Range};
use zonal_core::ZoneIndex;

/// Extents (or attributes) freed in one critical section, in less than a millisecond.
pub(super) const PIECE_EXTENTS: usize = 256;

/// Rows of a file that are still to be deleted.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// All, if the file is still unnamed and unused.
    All,
    /// Its blocks, from this one on, and its extended attributes.
    From(u64),
    /// Its extended attributes.
    Attributes,
}

/// Deleted files with rows left.
#[derive(Default, Debug)]
pub(super) struct DeletedFiles {
    line: VecDeque<(u64, Rest)>,
    /// Number of files ever queued.
    came: u64,
    /// Files that left the queue because their rows cannot be read. Their orphan rows stay.
    failed: BTreeMap<u64, FsError>,
}

impl DeletedFiles {
    /// Queues an unnamed and unused file.
    pub(super) fn add_whole(&mut self, ino: u64) {
        self.add(ino, Rest::All);
    }

    fn add(&mut self, ino: u64, rest: Rest) {
        self.line.push_back((ino, rest));
        self.came += 1;
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Returns the number of files ever queued, unless the queue is empty.
    pub(super) fn mark(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.came)
    }

    /// Returns an error of a file that left the queue because of it.
    pub(super) fn take_failure(&mut self) -> Option<FsError> {
        self.failed.pop_first().map(|(_, error)| error)
    }

    /// Returns the number of files that have left the queue.
    fn left(&self) -> u64 {
        self.came - self.line.len() as u64
    }
}

/// Splits the blocks `range` of a file into pieces, in ascending order.
fn pieces(rows: &impl View, ino: u64, range: &Range<u64>) -> Result<Vec<Range<u64>>, FsError> {
    let mut cuts = vec![range.start];
    let mut extents = 0;
    rows.scan(&key::extent(ino, range.start), &key::extent(ino, range.end), |key, _| {
        if extents > 0 && extents % PIECE_EXTENTS == 0 {
            cuts.push(key::extent_parts(key).1);
        }
        extents += 1;
        ControlFlow::Continue(())
    })?;
    cuts.push(range.end);
    Ok(cuts.windows(2).map(|cut| cut[0]..cut[1]).collect())
}

/// Returns the end of the piece of a file that starts at `block`; `None` if it is the last one.
pub(super) fn end_of_piece(rows: &impl View, ino: u64, block: u64) -> Result<Option<u64>, FsError> {
    let (mut extents, mut end) = (0, None);
    rows.scan(&key::extent(ino, block), &key::extent(ino, u64::MAX), |key, _| {
        if extents == PIECE_EXTENTS {
            end = Some(key::extent_parts(key).1);
            return ControlFlow::Break(());
        }
        extents += 1;
        ControlFlow::Continue(())
    })?;
    Ok(end)
}

/// Returns the keys of the first extended attributes of a file, at most a piece of them, and
/// whether there are more.
pub(super) fn attributes_of_piece(rows: &impl View, ino: u64) -> Result<(Vec<Vec<u8>>, bool), FsError> {
    let (mut keys, mut has_more) = (Vec::new(), false);
    let (from, end) = key::attributes(ino);
    rows.scan(&from, &end, |key, _| {
        if keys.len() == PIECE_EXTENTS {
            has_more = true;
            return ControlFlow::Break(());
        }
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok((keys, has_more))
}

/// Rows and extents to delete with a file.
pub(super) struct Deletion {
    ino: u64,
    /// Left for later.
    rest: Option<Rest>,
    extents: Vec<Mapped>,
    keys: Vec<Vec<u8>>,
    has_row: bool,
}

impl Core {
    /// Reads everything that has to be deleted with a file that is neither named nor in use.
    pub(super) fn plan_deletion(&self, ino: u64) -> Result<Deletion, FsError> {
        let next = end_of_piece(&self.rows, ino, 0)?;
        let extents = map::extents(&self.rows, ino, &(0..next.unwrap_or(u64::MAX)))?;
        let has_row = self.rows.get(&key::inode(ino))?.is_some();
        let (mut keys, has_more) = attributes_of_piece(&self.rows, ino)?;
        keys.extend([key::inode(ino), key::target(ino)]);
        let rest = next.map(Rest::From).or(has_more.then_some(Rest::Attributes));
        Ok(Deletion { ino, rest, extents, keys, has_row })
    }

    /// Deletes the rows and extents of a file. If there are many extents or attributes, most are
    /// left for [`Shared::free_deleted`].
    pub(super) fn apply_deletion(&mut self, end: Deletion) -> Result<(), FsError> {
        let ino = end.ino;
        if let Some(rest) = self.begin_deletion(end)? {
            self.deleted.add(ino, rest);
        }
        Ok(())
    }

    fn begin_deletion(&mut self, end: Deletion) -> Result<Option<Rest>, FsError> {
        let Deletion { ino, rest, extents, keys, has_row } = end;
        let end = if let Some(Rest::From(block)) = rest { block } else { u64::MAX };
        self.unmap_found(ino, &(0..end), extents)?;
        // A deleted file may have left its orphan row.
        if has_row {
            self.rows.draft().file_destroyed();
        }
        keys.into_iter().for_each(|key| self.rows.delete(key));
        match rest {
            Some(_) => self.rows.put(key::orphan(ino), Vec::new()),
            None => self.rows.delete(key::orphan(ino)),
        }
        self.room.wake_all(|what| matches!(what, WaitsFor::File(of) | WaitsFor::Hold(of) if of == ino));
        if let Some(node) = self.nodes.remove(ino) {
            node.logged.into_iter().for_each(|block| self.rows.delete(key::tail(ino, block)));
            self.drop_write_buffer(node.write_buffer);
            node.zone.into_iter().for_each(|zone| self.space.lock().open.leave(zone));
        }
        Ok(rest)
    }

    /// Frees the first extents of a file from `block` on or, if none are left, its first
    /// attributes. Returns the rest.
    fn free_piece(&mut self, ino: u64, block: Option<u64>) -> Result<Option<Rest>, FsError> {
        if let Some(block) = block {
            let next = end_of_piece(&self.rows, ino, block)?;
            self.unmap(ino, &(block..next.unwrap_or(u64::MAX)))?;
            if next.is_some() {
                return Ok(next.map(Rest::From));
            }
        }
        let (keys, has_more) = attributes_of_piece(&self.rows, ino)?;
        keys.into_iter().for_each(|key| self.rows.delete(key));
        Ok(has_more.then_some(Rest::Attributes))
    }

    /// Begins to destroy a queued file, unless it has been used or named again. Changes nothing if
    /// any row is unreadable.
    fn destroy_if_unused(&mut self, ino: u64) -> Result<Option<Rest>, FsError> {
        if self.is_used(ino) {
            return Ok(None);
        }
        if self.rows.get(&key::orphan(ino))?.is_none() {
            self.drop_if_unused(ino);
            return Ok(None);
        }
        let end = self.plan_deletion(ino)?;
        self.begin_deletion(end)
    }

    /// Space that becomes free if blocks of a file are freed: data blocks, and the blocks of zones
    /// that have no others.
    fn gain_of(&self, ino: u64, range: &Range<u64>) -> Result<Need, FsError> {
        let mut freed: BTreeMap<u32, u32> = BTreeMap::new();
        for part in map::extents(&self.rows, ino, range)?.iter().filter_map(|mapped| mapped.within(range)) {
            if !part.extent.is_lost() {
                *freed.entry(part.extent.zone).or_default() += part.extent.blocks;
            }
        }
        let space = self.space.lock();
        let mut gain = Need::default();
        for (zone, blocks) in freed {
            let account = space.book.zone(ZoneIndex(zone))?;
            if account.is_writable() {
                gain.extents += u64::from(blocks);
            }
            if account.is_settled() && account.used == blocks {
                gain.available += u64::from(account.capacity);
            }
        }
        Ok(gain)
    }

    /// Frees blocks of a file. With a `size`, also limits the size in its row to that.
    fn free_end(&mut self, ino: u64, piece: &Range<u64>, size: Option<u64>) -> Result<(), FsError> {
        self.free(ino, piece)?;
        match size {
            Some(size) => self.update(ino, |file| file.size = file.size.min(size)),
            None => Ok(()),
        }
    }

    /// Frees a piece of the first file in the queue. A file with unreadable rows leaves the queue,
    /// and [`Shared::end_deletion`] returns the error: the next mount tries again.
    pub(super) fn free_piece_of_gone(&mut self) -> Result<(), FsError> {
        let Some((ino, rest)) = self.deleted.line.pop_front() else { return Ok(()) };
        let left = match rest {
            Rest::All => self.destroy_if_unused(ino),
            Rest::From(block) => self.free_piece(ino, Some(block)),
            Rest::Attributes => self.free_piece(ino, None),
        };
        let left = match left {
            Err(error @ (FsError::Row(_) | FsError::Store(_))) => {
                self.deleted.failed.insert(ino, error);
                return Ok(());
            }
            left => left?,
        };
        match (rest, left) {
            // Garbage collection cannot have mapped copies to the freed range: a copy only replaces
            // blocks that the file still has.
            (_, Some(left)) => self.deleted.line.push_front((ino, left)),
            (Rest::All, None) => {}
            (_, None) => self.rows.delete(key::orphan(ino)),
        }
        Ok(())
    }
}

impl Shared {
    /// Frees the rest of all files queued before `mark` was taken. Without a waiter, stops if a
    /// commit is due first.
    pub(super) fn free_deleted(&self, mark: Option<u64>, waiter: Option<&dyn Wait>) -> Result<(), FsError> {
        let Some(came) = mark else { return Ok(()) };
        loop {
            {
                let core = self.core.lock();
                if core.deleted.left() >= came || waiter.is_none() && !core.admits_changes() {
                    return Ok(());
                }
            }
            if let Some(waiter) = waiter {
                self.admit(waiter, Touched::Changed)?;
            }
            self.free_next_piece()?;
        }
    }

    /// Frees a piece of the first file in the queue.
    pub(super) fn free_next_piece(&self) -> Result<(), FsError> {
        let first = self.lock().deleted.line.front().copied();
        if let Some((ino, rest)) = first {
            // Reads the rows of the piece before taking the lock.
            if let Rest::All = rest {
                let _ = self.reader.get(&key::orphan(ino));
                self.prefetch_file(ino);
            }
            let block = if let Rest::From(block) = rest { block } else { 0 };
            let _ = end_of_piece(&self.reader, ino, block);
            let _ = attributes_of_piece(&self.reader, ino);
        }
        let mut core = self.lock();
        let freed = core.free_piece_of_gone();
        core.yield_to_waiters();
        freed
    }

    /// Frees a file whose use has ended, if `mark` says that it was queued. Returns its error if its
    /// rows cannot be read.
    pub(super) fn end_deletion(
        &self,
        ino: u64,
        mark: Option<u64>,
        waiter: Option<&dyn Wait>,
    ) -> Result<(), FsError> {
        if mark.is_none() {
            return Ok(());
        }
        self.free_deleted(mark, waiter)?;
        self.core.lock().deleted.failed.remove(&ino).map_or(Ok(()), Err)
    }

    /// Frees the last piece of a held file's `blocks` that makes room for `need`, and adds that to
    /// `room` in the same step, before another thread takes it. Returns false, without effect, if
    /// there is none.
    pub(super) fn free_for(
        &self,
        waiter: &dyn Wait,
        (ino, blocks): (u64, &Range<u64>),
        room: &mut Reservation,
        need: Need,
    ) -> Result<bool, FsError> {
        for piece in pieces(&self.reader, ino, blocks)?.into_iter().rev() {
            self.admit(waiter, Touched::Changed)?;
            self.prefetch_map(ino, &piece);
            let mut core = self.lock_file_when(waiter, ino, |core| core.is_at_rest(ino))?;
            let gain = core.gain_of(ino, &piece)?;
            if self.space.lock().credit.advance(room, need, gain) {
                let freed = core.free(ino, &piece);
                core.yield_to_waiters();
                return freed.map(|()| true);
            }
        }
        Ok(false)
    }

    /// Frees blocks of a held file, starting from the end. With a `size`, which callers see
    /// already, each piece shortens the size in the row.
    pub(super) fn free_blocks(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        blocks: &Range<u64>,
        size: Option<u64>,
    ) -> Result<(), FsError> {
        if blocks.start >= blocks.end {
            return Ok(());
        }
        for piece in pieces(&self.reader, ino, blocks)?.into_iter().rev() {
            self.admit(waiter, Touched::Changed)?;
            self.prefetch_map(ino, &piece);
            let mut core = self.lock_file_when(waiter, ino, |core| core.is_at_rest(ino))?;
            let end =
                |size| if piece.start == blocks.start { size } else { piece.start * u64::from(BLOCK_BYTES) };
            let freed = core.free_end(ino, &piece, size.map(end));
            core.yield_to_waiters();
            freed?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Drive;
    use crate::format::{FileKind, Metadata, Superblock};
    use crate::fs::names::ROOT;
    use crate::fs::{FileSystem, MountOptions, NewFile, Payload, Target};
    use crate::fsck;
    use crate::store::Rows;
    use crate::store::backend::Memory;
    use crate::waiter::Polling;
    use std::sync::Arc;
    use zonal_io::clock::Clock;
    use zonal_io::volume::{Volume, VolumeOptions};

    const BLOCK: u64 = BLOCK_BYTES as u64;

    /// Pieces of the test file; the last one is partial.
    const PIECES: usize = 4;
    const EXTENTS: usize = PIECES * PIECE_EXTENTS - 7;

    fn waiter() -> Polling {
        Polling::new(Clock::start())
    }

    struct Bench {
        volume: Arc<Volume>,
        superblock: Superblock,
        memory: Memory,
        fs: Option<FileSystem>,
        ino: u64,
    }

    fn block_of(extent: u64) -> [u8; BLOCK as usize] {
        [extent as u8 | 1; BLOCK as usize]
    }

    impl Bench {
        /// Creates a file system with a file of which every other block is a hole.
        fn new() -> Bench {
            let device =
                zonal_io::registry::Registry::default().open("ram:size=64M,zone_size=4M,blocksize=4096");
            let volume = Arc::new(Volume::open(device.unwrap(), VolumeOptions::default()).unwrap());
            let superblock =
                Superblock::new(*b"zonal-pieces-of!", &volume.info().geometry, 64, Metadata::Beside, 0);
            let memory = Memory::new();
            let mut rows = Rows::open(memory.clone(), 1 << 20).unwrap();
            FileSystem::make(&mut rows, &superblock, &waiter()).unwrap();
            drop(rows);
            let mut bench = Bench { volume, superblock, memory, fs: None, ino: 0 };
            bench.open();
            let fs = bench.fs();
            let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
            let open = fs.open_file(ino).unwrap();
            for extent in 0..EXTENTS as u64 {
                fs.write(&waiter(), ino, 2 * extent * BLOCK, Payload::Bytes(&block_of(extent))).unwrap();
            }
            open.close(&waiter()).unwrap();
            fs.sync(&waiter()).unwrap();
            bench.ino = ino;
            bench
        }

        fn open(&mut self) {
            let rows = Rows::open(self.memory.clone(), 1 << 20).unwrap();
            let options = MountOptions::default();
            let fs = FileSystem::open(
                self.volume.clone(),
                rows,
                self.superblock.clone(),
                options,
                true,
                &waiter(),
            );
            self.fs = Some(fs.unwrap());
        }

        fn fs(&self) -> &FileSystem {
            self.fs.as_ref().unwrap()
        }

        /// Commits, checks the rows as after a crash, and mounts the file system again.
        fn cut(&mut self) {
            self.fs().0.commit(&waiter()).unwrap();
            self.fs().forbid_changes("the power is cut");
            self.fs = None;
            let rows = Rows::open(self.memory.clone(), 1 << 20).unwrap();
            let drive = Drive::new(self.volume.clone());
            let options = fsck::Options { data: true };
            let found = fsck::check(&rows, &self.superblock, &drive, &waiter(), options).unwrap();
            assert!(found.is_empty(), "{found:?}");
            drop(rows);
            self.open();
        }
    }

    #[test]
    fn file_removed_in_pieces_is_gone_after_a_cut_between_any() {
        for done in 0..PIECES {
            let mut bench = Bench::new();
            let before = bench.fs().usage();
            {
                let mut core = bench.fs().0.lock();
                core.unlink(ROOT, b"f", 0).unwrap();
                assert_eq!(core.deleted.mark(), Some(1));
                for _ in 0..done {
                    core.free_piece_of_gone().unwrap();
                }
                // The first piece was freed together with the name.
                assert_eq!(core.deleted.is_empty(), done == PIECES - 1);
                let left = EXTENTS.saturating_sub((done + 1) * PIECE_EXTENTS) as u64;
                assert_eq!(core.usage().used, left);
            }
            assert!(matches!(bench.fs().attributes(bench.ino), Err(FsError::NotFound)));
            assert!(matches!(bench.fs().open_file(bench.ino), Err(FsError::NotFound)));
            bench.cut();
            let fs = bench.fs();
            assert_eq!((before.used, fs.usage().used), (EXTENTS as u64, 0));
            assert_eq!(fs.files().unwrap().used, 1);
            fs.sync(&waiter()).unwrap();
            fs.check();
            bench.cut();
            assert!(bench.fs().0.lock().deleted.is_empty());
        }
    }

    #[test]
    fn attributes_of_a_file_that_is_gone_go_in_pieces_and_none_is_left_after_a_cut() {
        const ATTRIBUTES: usize = 3 * PIECE_EXTENTS + 1;
        // Number of steps: one for each piece left, with or without blocks before the attributes.
        for (has_blocks, pieces) in [(false, 4), (true, PIECES + 2)] {
            for done in 0..pieces {
                let mut bench = Bench::new();
                let (fs, mut ino) = (bench.fs(), bench.ino);
                if !has_blocks {
                    fs.unlink(&waiter(), ROOT, b"f").unwrap();
                    ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
                }
                for n in 0..ATTRIBUTES {
                    fs.set_xattr(&waiter(), ino, format!("user.{n}").as_bytes(), b"value").unwrap();
                }
                {
                    let mut core = fs.0.lock();
                    core.unlink(ROOT, b"f", 0).unwrap();
                    for _ in 0..done {
                        assert!(!core.deleted.is_empty(), "after {done}");
                        core.free_piece_of_gone().unwrap();
                    }
                    assert_eq!(core.deleted.is_empty(), done == pieces - 1);
                    let left = attributes_of_piece(&core.rows, ino).unwrap().0.len();
                    assert_eq!(left == 0, done == pieces - 1, "{left} are left after {done}");
                }
                assert!(matches!(fs.xattrs(ino), Err(FsError::NotFound)));
                bench.cut();
                let core = bench.fs().0.lock();
                assert_eq!(attributes_of_piece(&core.rows, ino).unwrap(), (Vec::new(), false));
                assert!(core.deleted.is_empty());
                assert_eq!(core.rows.get(&key::orphan(ino)).unwrap(), None);
            }
        }
    }

    #[test]
    fn file_cut_short_in_pieces_has_a_size_between_after_a_cut() {
        let whole = (2 * EXTENTS as u64 - 1) * BLOCK;
        let mut sizes = Vec::new();
        for done in 0..=PIECES {
            let mut bench = Bench::new();
            let (fs, ino) = (bench.fs(), bench.ino);
            let blocks = 1..whole / BLOCK;
            let parts = pieces(&fs.0.reader, ino, &blocks).unwrap();
            assert_eq!(parts.len(), PIECES);
            for piece in parts.iter().rev().take(done) {
                let size = if piece.start == 1 { 100 } else { piece.start * BLOCK };
                fs.0.lock().free_end(ino, piece, Some(size)).unwrap();
            }
            bench.cut();
            let fs = bench.fs();
            let size = fs.attributes(ino).unwrap().size;
            let mut found = vec![0; size as usize];
            fs.read(&waiter(), ino, 0, Target::Bytes(&mut found)).unwrap();
            for (n, block) in (0..).zip(found.chunks(BLOCK as usize)) {
                let there = if n % 2 == 0 { block_of(n / 2) } else { [0; BLOCK as usize] };
                assert!(*block == there[..block.len()], "block {n} after {done} pieces");
            }
            sizes.push(size);
        }
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
        assert_eq!((sizes[0], sizes[PIECES]), (whole, 100));
    }

    #[test]
    fn truncation_in_pieces_frees_all_and_is_durable_once_synced() {
        let mut bench = Bench::new();
        let (fs, ino) = (bench.fs(), bench.ino);
        let before = fs.attributes(ino).unwrap();
        // The clock of timestamps has a resolution of some milliseconds.
        while waiter().wall() <= before.mtime {}
        fs.truncate(&waiter(), ino, 2 * BLOCK + 100).unwrap();
        let after = fs.attributes(ino).unwrap();
        assert_eq!((after.size, after.blocks), (2 * BLOCK + 100, 2));
        assert!(after.mtime > before.mtime);
        fs.truncate(&waiter(), ino, before.size).unwrap();
        let mut found = vec![9; before.size as usize];
        fs.read(&waiter(), ino, 0, Target::Bytes(&mut found)).unwrap();
        assert!(found[..BLOCK as usize] == block_of(0));
        assert!(found[2 * BLOCK as usize..][..100] == block_of(1)[..100]);
        assert!(found[2 * BLOCK as usize + 100..].iter().all(|byte| *byte == 0));
        fs.truncate(&waiter(), ino, BLOCK).unwrap();
        fs.sync(&waiter()).unwrap();
        bench.cut();
        let now = bench.fs().attributes(ino).unwrap();
        assert_eq!((now.size, now.blocks, bench.fs().usage().used), (BLOCK, 1, 1));
    }
}
