//! Logged tails: short buffered data that a sync makes durable in rows, without a unit.
//!
//! A small sync would write a unit and a batch of rows, in two places. So the blocks of a short
//! tail are put into rows of their own, and one batch in the log of the store makes them durable
//! together with the other changes. The tail stays buffered, and goes to a zone later, as part of
//! a longer unit. Until then these rows are the only durable copy.
//!
//! On a rotational drive each place that is written costs a seek, so every short tail is logged.
//! Elsewhere, only a sync without others beside it does so: several that share a commit write their
//! units while they wait for each other, which takes less time than rows for all of them.
//!
//! # Invariants
//! - A row of a block is deleted by the change that maps newer or the same data of the block, or by
//!   the one that deletes the file. So each commit has the data in exactly one of the two.
//! - A tail is logged only while no write of its file is in flight, so a unit in flight never has
//!   older data than a row that its completion deletes.
//! - If logged data cannot be written to a zone, the file system becomes read-only. The rows keep
//!   the data for the next opening.
//!
//! # After a crash
//! An opening writes the blocks that it finds in rows like any other data. While changes are
//! refused, as in an inspection, reads and seeks find these blocks in the rows.

use super::core::{Core, Shared};
use super::credit::CallRoom;
use super::error::{FsError, Lost};
use super::node::NodeGuard;
use super::room::Touched;
use super::write::Payload;
use super::write_buffer::WriteBuffer;
use crate::BLOCK_BYTES;
use crate::format::key;
use crate::store::View;
use crate::waiter::Wait;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Maximum number of blocks that a sync logs. A unit for more costs little in comparison.
const BLOCKS_MAX: u64 = 2;

/// Call that is making a file durable, counted until it is dropped.
pub(super) struct OngoingSync<'a>(&'a AtomicU32);

impl<'a> OngoingSync<'a> {
    pub(super) fn begin(count: &'a AtomicU32) -> OngoingSync<'a> {
        count.fetch_add(1, Relaxed);
        OngoingSync(count)
    }

    fn is_alone(&self) -> bool {
        self.0.load(Relaxed) == 1
    }
}

impl Drop for OngoingSync<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Data of blocks that are in rows, by file and block.
pub(super) type TailBlocks = BTreeMap<(u64, u64), Vec<u8>>;

/// Data of whole blocks of a file.
pub(super) type KeptBlocks = BTreeMap<u64, Vec<u8>>;

impl Core {
    /// Puts the tail of a file into rows. Returns false if the caller has to send it.
    pub(super) fn log_tail(&mut self, ino: u64) -> Result<bool, FsError> {
        let backend = self.rows.backend();
        if backend.log().is_none() {
            // The rows are in memory.
            return Ok(false);
        }
        let room = backend.row_room() as u64;
        let (end, rows) = {
            let Some(mut guard) = self.nodes.here(ino) else { return Ok(false) };
            let node = &mut *guard;
            // Only a unit has the announced path.
            let needs_unit = node.cut.is_some() || node.failure.is_some() || node.announced.is_some();
            if needs_unit || !node.in_flight.is_empty() {
                return Ok(false);
            }
            let WriteBuffer::Here(tail) = &mut node.write_buffer else { return Ok(false) };
            let blocks = tail.unlogged();
            let count = blocks.end - blocks.start;
            // The rest of the room is for the other changes of the commit.
            let is_short = count <= BLOCKS_MAX && room >= (count + 1) * 2 * BLOCK;
            if !is_short || tail.buf.is_empty() {
                return Ok(false);
            }
            if blocks.is_empty() && !node.is_ahead_of_row && node.attributes.size >= tail.end {
                return Ok(true);
            }
            let rows: Vec<_> = blocks.clone().map(|block| (block, trimmed(tail.bytes_of(block)))).collect();
            let end = tail.end;
            // Under the same lock, since a writer may add to the tail without the core.
            tail.note_logged();
            node.note_logged(blocks);
            (end, rows)
        };
        self.update(ino, |file| file.size = file.size.max(end))?;
        for (block, bytes) in rows {
            self.rows.put(key::tail(ino, block), bytes);
        }
        Ok(true)
    }

    /// Deletes the rows of blocks whose data is mapped now.
    pub(super) fn unlog(&mut self, ino: u64, mapped: &Range<u64>) {
        let Some(mut node) = self.nodes.here(ino) else { return };
        let gone: Vec<u64> = node.logged.extract_if(.., |block| mapped.contains(block)).collect();
        drop(node);
        gone.into_iter().for_each(|block| self.rows.delete(key::tail(ino, block)));
    }

    /// Refuses changes if some of the lost blocks of a file are in rows, to keep the rows. Those of
    /// an unnamed file are deleted: no opening needs them.
    pub(super) fn keep_logged_tail(&mut self, ino: u64, lost: &[Range<u64>], why: Lost) {
        let is_lost = |block: &u64| lost.iter().any(|range| range.contains(block));
        let has_rows = |node: NodeGuard<'_>| (node.logged.iter().any(is_lost), node.attributes.links > 0);
        match self.nodes.here(ino).map(has_rows) {
            Some((true, true)) => {
                let kept = "it is kept in the metadata, and the next opening writes it";
                self.make_read_only_because(format!(
                    "synced data of file {ino} cannot be written: {why}; {kept}"
                ));
            }
            Some((true, false)) => lost.iter().for_each(|range| self.unlog(ino, range)),
            _ => {}
        }
    }
}

impl Shared {
    /// Makes a short tail of a file part of the next commit, or sends it.
    pub(super) fn log_or_send_tail(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        sync: &OngoingSync<'_>,
    ) -> Result<(), FsError> {
        let pays = sync.is_alone() || self.drive.volume().info().rotational;
        let is_logged = {
            let mut core = self.lock();
            core.check_writable()?;
            pays && core.admits_rows() && core.log_tail(ino)?
        };
        if is_logged { Ok(()) } else { self.sync_tail(waiter, ino) }
    }

    /// Returns the blocks in rows of files that were in use at a power cut. Deletes the other rows:
    /// those of unnamed files, and beyond the end of a file.
    pub(super) fn tails_to_restore(&self, waiter: &dyn Wait) -> Result<TailBlocks, FsError> {
        let (from, end) = key::tails();
        let (mut kept, mut last) = (TailBlocks::new(), None);
        for ((ino, block), bytes) in self.tails_between(&from, &end)? {
            let end = match last {
                Some((of, end)) if of == ino => end,
                _ => self.restored_size(ino)?.div_ceil(BLOCK),
            };
            last = Some((ino, end));
            if block < end {
                kept.insert((ino, block), bytes);
            } else {
                self.admit(waiter, Touched::Changed)?;
                self.lock().rows.delete(key::tail(ino, block));
            }
        }
        Ok(kept)
    }

    /// Size of a file, or 0 if it has no name.
    fn restored_size(&self, ino: u64) -> Result<u64, FsError> {
        match self.attributes(ino) {
            Ok(file) => Ok(if self.reader.get(&key::orphan(ino))?.is_none() { file.size } else { 0 }),
            Err(FsError::NotFound) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Writes `tails` to zones. If that fails, the file system is read-only.
    pub(super) fn restore_tails(&self, waiter: &dyn Wait, tails: TailBlocks) -> Result<(), FsError> {
        match self.write_tails(waiter, tails) {
            Err(FsError::NoSpace) => {
                let why = "no zone has room for the data of the last syncs, which is still in the metadata";
                self.lock().make_read_only_because(why.into());
                Ok(())
            }
            // No zone took a unit.
            Err(FsError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    fn write_tails(&self, waiter: &dyn Wait, tails: TailBlocks) -> Result<(), FsError> {
        let mut blocks = tails.into_iter().peekable();
        while let Some(((ino, first), bytes)) = blocks.next() {
            let mut data = whole(bytes);
            let mut end = first + 1;
            while let Some((_, bytes)) = blocks.next_if(|(at, _)| *at == (ino, end)) {
                data.extend(whole(bytes));
                end += 1;
            }
            data.truncate((self.attributes(ino)?.size - first * BLOCK) as usize);
            self.admit(waiter, Touched::Changed)?;
            let _held = self.hold(waiter, ino)?;
            if let Some(mut node) = self.lock().nodes.here(ino) {
                node.note_logged(first..end);
            }
            let (payload, mut room) = (Payload::Bytes(&data), CallRoom::new(self));
            let written = self.put(waiter, ino, first * BLOCK, payload, Touched::Changed, &mut room)?;
            if written < data.len() as u64 {
                return Err(FsError::NoSpace);
            }
        }
        Ok(())
    }

    /// Returns the blocks in rows between these keys.
    fn tails_between(&self, from: &[u8], end: &[u8]) -> Result<TailBlocks, FsError> {
        let mut blocks = TailBlocks::new();
        self.reader.scan(from, end, |key, value| {
            blocks.insert(key::extent_parts(key), value.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(blocks)
    }

    /// Returns the blocks of a file in `range` whose newest data is in rows and cannot be written to
    /// zones, because changes are refused.
    pub(super) fn kept_tails(&self, ino: u64, range: &Range<u64>) -> Result<TailBlocks, FsError> {
        match self.nodes.take_changes() {
            true => Ok(TailBlocks::new()),
            false => self.tails_between(&key::tail(ino, range.start), &key::tail(ino, range.end)),
        }
    }

    /// Returns the newest data of blocks that is only in rows, or in a write buffer, because changes
    /// are refused.
    pub(super) fn kept_blocks(&self, ino: u64, range: &Range<u64>) -> Result<KeptBlocks, FsError> {
        let tails = self.kept_tails(ino, range)?;
        let mut kept: KeptBlocks =
            tails.into_iter().map(|((_, block), bytes)| (block, whole(bytes))).collect();
        if self.nodes.take_changes() {
            return Ok(kept);
        }
        if let Some(node) = self.nodes.for_read(ino)
            && let WriteBuffer::Here(tail) = &node.write_buffer
            && !tail.buf.is_empty()
        {
            let blocks = tail.range();
            let blocks = blocks.start.max(range.start)..blocks.end.min(range.end);
            kept.extend(blocks.map(|block| (block, tail.bytes_of(block).to_vec())));
        }
        Ok(kept)
    }
}

/// Returns a block without the zeroes at its end.
fn trimmed(block: &[u8]) -> Vec<u8> {
    let len = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    block[..len].to_vec()
}

/// Returns a block with the zeroes at its end.
fn whole(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(BLOCK as usize, 0);
    bytes
}
