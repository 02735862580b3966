//! Ranges of a file: seeking data and holes, zeroing, and copies between files.
//!
//! # Data and holes
//! A block of 4096 bytes is data if it is in an extent, or in the write buffer or in flight. A lost
//! block is data, too: reading it is an error. All other blocks are holes, and so is everything
//! from the end of the file on.
//!
//! The map is read without the lock, and after the pending blocks, so a block that arrives
//! meanwhile is found in one or the other. Blocks moved by garbage collection may join another
//! extent meanwhile, so an apparent end of the data is checked again.

use super::core::Shared;
use super::error::FsError;
use super::logged_tails::TailBlocks;
use super::map::{self, Mapped};
use super::node::Nodes;
use super::read::Target;
use super::setattr::{SetIds, note_change_of_data};
use super::write::Payload;
use super::write_buffer::WriteBuffer;
use crate::BLOCK_BYTES;
use crate::format::{Attributes, Extent, FileKind, RowError, SIZE_MAX, key};
use crate::store::View;
use crate::waiter::Wait;
use std::ops::{ControlFlow, Range};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bytes that a copy reads and writes at once: several units, and little memory.
const COPY_BYTES: u64 = 1 << 20;

/// Target of a seek.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// Written bytes: `SEEK_DATA`.
    Data,
    /// Bytes that read as zeroes and take no space, or the end of the file: `SEEK_HOLE`.
    Hole,
}

/// Effect of zeroing beyond the end of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroEnd {
    /// Keep the size, without zeroes beyond it.
    Keep,
    /// Extend the file to the end of the range, if that is later.
    Extend,
}

/// Returns an error unless the file is of a kind that has data.
pub(super) fn check_kind(file: &Attributes) -> Result<(), FsError> {
    match file.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid("not a regular file")),
    }
}

/// Blocks of a file in memory or in flight, in order. Ranges may overlap.
struct PendingBlocks(Vec<Range<u64>>);

impl PendingBlocks {
    /// Returns the first pending block from `block` on.
    fn next(&self, block: u64) -> Option<u64> {
        self.0.iter().filter(|range| range.end > block).map(|range| range.start.max(block)).min()
    }

    /// Number of pending blocks.
    fn count(&self) -> u64 {
        let mut end = 0;
        self.0
            .iter()
            .map(|range| {
                let new = range.end.saturating_sub(range.start.max(end));
                end = end.max(range.end);
                new
            })
            .sum()
    }

    /// Returns the end of the pending blocks that include `block`, or `block` if it is not pending.
    fn end(&self, block: u64) -> u64 {
        self.0.iter().fold(block, |at, range| if range.contains(&at) { range.end } else { at })
    }
}

impl PendingBlocks {
    fn of(nodes: &Nodes, ino: u64) -> PendingBlocks {
        let Some(node) = nodes.for_read(ino) else { return PendingBlocks(Vec::new()) };
        let dirty = node.dirty.parts(&(0..u64::MAX));
        let mut pending: Vec<_> = dirty.into_iter().filter_map(|(part, write)| write.map(|_| part)).collect();
        match &node.write_buffer {
            WriteBuffer::Nothing => {}
            WriteBuffer::Here(tail) => pending.push(tail.range()),
            WriteBuffer::Taken(range, _) => pending.push(range.clone()),
        }
        PendingBlocks(pending).sorted()
    }

    fn sorted(mut self) -> PendingBlocks {
        self.0.sort_unstable_by_key(|range| (range.start, range.end));
        self
    }

    /// Adds blocks that are only in rows.
    fn with(mut self, tails: &TailBlocks) -> PendingBlocks {
        self.0.extend(tails.keys().map(|(_, block)| *block..block + 1));
        self.sorted()
    }
}

/// Calls `show` for the extents of a file, from the one at or after `block` on, until it breaks.
fn walk(
    rows: &impl View,
    ino: u64,
    block: u64,
    mut show: impl FnMut(&Mapped) -> ControlFlow<()>,
) -> Result<(), FsError> {
    for mapped in map::extents(rows, ino, &(block..block + 1))? {
        if show(&mapped).is_break() {
            return Ok(());
        }
    }
    let mut damaged: Option<RowError> = None;
    rows.scan(&key::extent(ino, block + 1), &key::extent(ino, u64::MAX), |key, value| {
        let (_, block) = key::extent_parts(key);
        match Extent::decode(key, value) {
            Ok(extent) => show(&Mapped { block, extent }),
            Err(error) => {
                damaged = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    damaged.map_or(Ok(()), |error| Err(error.into()))
}

impl Shared {
    /// Number of blocks of a file that are in memory or in flight.
    pub(super) fn waiting_blocks(&self, ino: u64) -> u64 {
        let pending = PendingBlocks::of(&self.nodes, ino);
        match self.kept_tails(ino, &(0..u64::MAX)) {
            Ok(tails) => pending.with(&tails).count(),
            // Without blocks, copies would take the file for a hole and not meet the error.
            Err(_) => pending.count().max(1),
        }
    }

    /// Returns the first byte of this kind at or after `offset`.
    pub(super) fn seek(&self, ino: u64, offset: u64, what: Seek) -> Result<u64, FsError> {
        let (size, pending) = {
            let mut core = self.lock_with_file(ino);
            let file = core.attributes(ino)?;
            check_kind(&file)?;
            (file.size, PendingBlocks::of(&core.nodes, ino))
        };
        if offset >= size {
            return Err(FsError::NothingThere);
        }
        let pending = pending.with(&self.kept_tails(ino, &(0..u64::MAX))?);
        let block = offset / BLOCK;
        let found = match what {
            Seek::Data => self.next_data(ino, block, &pending)?,
            Seek::Hole => Some(self.next_hole(ino, block..size.div_ceil(BLOCK), &pending)?),
        };
        let found = found.map(|block| block.saturating_mul(BLOCK).max(offset));
        match what {
            Seek::Data => found.filter(|at| *at < size).ok_or(FsError::NothingThere),
            Seek::Hole => Ok(found.map_or(size, |at| at.min(size))),
        }
    }

    fn next_data(&self, ino: u64, block: u64, pending: &PendingBlocks) -> Result<Option<u64>, FsError> {
        let mut mapped = None;
        walk(&self.reader, ino, block, |next| {
            mapped = Some(next.block.max(block));
            ControlFlow::Break(())
        })?;
        Ok([mapped, pending.next(block)].into_iter().flatten().min())
    }

    /// Returns the first block of `range` that is a hole, or the end of the range.
    fn next_hole(&self, ino: u64, range: Range<u64>, pending: &PendingBlocks) -> Result<u64, FsError> {
        let mut at = range.start;
        loop {
            let from = at;
            at = pending.end(at);
            walk(&self.reader, ino, at, |next| {
                if next.block > at || at >= range.end {
                    return ControlFlow::Break(());
                }
                at = pending.end(next.end().max(at));
                ControlFlow::Continue(())
            })?;
            // An extent may have grown after the walk has passed it, so look again from here.
            if at == from || at >= range.end {
                return Ok(at.min(range.end));
            }
        }
    }

    /// Makes a range of a file read as zeroes, and frees its space.
    pub(super) fn zero_range(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        range: Range<u64>,
        end: ZeroEnd,
        set_ids: SetIds,
    ) -> Result<(), FsError> {
        if range.is_empty() {
            return Err(FsError::Invalid("empty range"));
        }
        if end == ZeroEnd::Extend && range.end > SIZE_MAX {
            return Err(FsError::TooLarge);
        }
        self.clear_range(waiter, ino, range, |file, range| {
            if end == ZeroEnd::Extend {
                file.size = file.size.max(range.end);
            }
            note_change_of_data(file, set_ids, waiter.wall());
        })
    }

    /// Copies bytes between files or within one. Returns the number of bytes, which is lower if the
    /// source ends early or if an error occurs after some have been copied. Holes stay holes.
    pub(super) fn copy_range(
        &self,
        waiter: &dyn Wait,
        (from, from_offset): (u64, u64),
        (to, to_offset): (u64, u64),
        length: u64,
        set_ids: SetIds,
    ) -> Result<u64, FsError> {
        let source = self.attributes(from)?;
        check_kind(&source)?;
        check_kind(&self.attributes(to)?)?;
        let length = length.min(source.size.saturating_sub(from_offset));
        if length == 0 {
            return Ok(0);
        }
        if to_offset.checked_add(length).is_none_or(|end| end > SIZE_MAX) {
            return Err(FsError::TooLarge);
        }
        if from == to && from_offset < to_offset + length && to_offset < from_offset + length {
            return Err(FsError::Invalid("source and target ranges overlap"));
        }
        let mut done = 0;
        while done < length {
            let source = (from, from_offset + done);
            match self.copy_some(waiter, source, (to, to_offset + done), length - done, set_ids) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                // Report the bytes copied. The caller gets the error if it recurs.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies the first data or the first hole of a range, and returns its length.
    fn copy_some(
        &self,
        waiter: &dyn Wait,
        (from, at): (u64, u64),
        (to, to_offset): (u64, u64),
        most: u64,
        set_ids: SetIds,
    ) -> Result<u64, FsError> {
        let data = match self.seek(from, at, Seek::Data) {
            // The source may have been truncated meanwhile.
            Err(FsError::NothingThere) => self.attributes(from)?.size.clamp(at, at + most),
            found => found?.min(at + most),
        };
        if data > at {
            let range = to_offset..to_offset + (data - at);
            self.zero_range(waiter, to, range, ZeroEnd::Extend, set_ids)?;
            return Ok(data - at);
        }
        let end = match self.seek(from, at, Seek::Hole) {
            Err(FsError::NothingThere) => return Ok(0),
            found => found?.min(at + most),
        };
        // End pieces on block boundaries of the target, to avoid read-modify-write by the next one.
        let whole = (to_offset + COPY_BYTES) / BLOCK * BLOCK - to_offset;
        let length = (end - at).min(whole);
        if !self.has_data() {
            let read = self.read(waiter, from, at, Target::Length(length))?;
            return self.write(waiter, to, to_offset, Payload::Length(read), set_ids);
        }
        let mut bytes = vec![0; length as usize];
        let read = self.read(waiter, from, at, Target::Bytes(&mut bytes))?;
        self.write(waiter, to, to_offset, Payload::Bytes(&bytes[..read as usize]), set_ids)
    }
}
