//! Reads of file data, with verification.

use super::core::{Core, Shared};
use super::error::FsError;
use super::fetch::{Buffers, Source, Span};
use super::logged_tails::KeptBlocks;
use super::map::{self, Mapped};
use super::ranges::check_kind;
use super::readers::Quick;
use super::write::CoreAndFile;
use super::write_buffer::WriteBuffer;
use crate::BLOCK_BYTES;
use crate::space::zone::{Pin, ZoneState};
use crate::waiter::Wait;
use smallvec::SmallVec;
use std::ops::Range;
use zonal_core::{RequestError, ZoneIndex};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Maximum number of commands in flight for one read, and of units in one batch.
pub(super) const DEPTH: usize = 32;

/// Maximum gap in blocks that is read along, including a unit's header.
pub(super) const ALONG_MAX: u32 = 16;

/// Destination of a read.
#[derive(Debug)]
pub enum Target<'a> {
    /// This buffer.
    Bytes(&'a mut [u8]),
    /// None: reads this many bytes of a device that keeps no data.
    Length(u64),
}

impl Target<'_> {
    fn len(&self) -> u64 {
        match self {
            Target::Bytes(bytes) => bytes.len() as u64,
            Target::Length(length) => *length,
        }
    }
}

/// Right of a read's caller to change the file's data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    HoldsFile,
    HoldsNothing,
}

/// Spans of a read; usually one or two.
pub(super) type Spans = SmallVec<[Span; 2]>;

/// Splits `mapped` blocks of a file into spans of one unit each, in order.
pub(super) fn spans(ino: u64, mapped: &Mapped) -> impl Iterator<Item = Span> + use<> {
    let Mapped { block, extent } = *mapped;
    let mut next = 0;
    std::iter::from_fn(move || {
        let left = extent.blocks.checked_sub(next).filter(|left| *left > 0)?;
        let place = extent.place(next);
        let blocks = (u32::from(extent.unit_blocks) - place.index).min(left);
        let span = Span { ino, block: block + u64::from(next), place, blocks };
        next += blocks;
        Some(span)
    })
}

impl Shared {
    /// Reads from `offset` on, up to the end of the file. Returns the number of bytes read.
    pub(super) fn read(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        target: Target<'_>,
    ) -> Result<u64, FsError> {
        self.read_for(Caller::HoldsNothing, waiter, ino, offset, target)
    }

    fn read_for(
        &self,
        caller: Caller,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        mut target: Target<'_>,
    ) -> Result<u64, FsError> {
        let Some(pinned) = self.pin_spans(caller, waiter, ino, offset, target.len())? else { return Ok(0) };
        let length = pinned.end - offset;
        let mut into = match &mut target {
            Target::Bytes(bytes) => Some(&mut bytes[..length as usize]),
            Target::Length(_) => None,
        };
        if let Some(into) = &mut into {
            clear_holes(pinned.shown(self), offset, into);
        }
        let result = fetch_all(self.source(), waiter, &pinned.spans, offset, into.as_deref_mut());
        match (&result, into) {
            // Some bytes may be wrong, or left in a buffer by an earlier read.
            (Err(_), Some(into)) => into.fill(0),
            (Ok(()), Some(into)) => show_kept(&pinned.kept, offset, into),
            (_, None) => {}
        }
        self.unpin_spans(waiter, &pinned, &result)?;
        result.map(|()| length)
    }

    /// Reads at most `length` bytes from `offset` on, and passes them to `show` in place, with
    /// zeroes for holes.
    pub(super) fn read_in_place<R>(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        length: u64,
        show: impl FnOnce(&[&[u8]]) -> R,
    ) -> Result<R, FsError> {
        let caller = Caller::HoldsNothing;
        let Some(pinned) = self.pin_spans(caller, waiter, ino, offset, length)? else { return Ok(show(&[])) };
        if !pinned.kept.is_empty() {
            self.unpin_spans(waiter, &pinned, &Ok(()))?;
            let mut bytes = vec![0; (pinned.end - offset) as usize];
            let read = self.read(waiter, ino, offset, Target::Bytes(&mut bytes))?;
            return Ok(show(&[&bytes[..read as usize]]));
        }
        let mut batches = Vec::new();
        let mut left = &pinned.spans[..];
        let mut result = Ok(());
        while !left.is_empty() && result.is_ok() {
            let (batch, rest) = split_batch(self.source(), left);
            left = rest;
            let mut fetched = self.source().fetch(waiter, batch);
            result = batch.iter().try_for_each(|span| fetched.verify(span));
            batches.push((batch, fetched));
        }
        self.unpin_spans(waiter, &pinned, &result)?;
        result?;
        let mut pieces = Pieces { at: offset, end: pinned.end, list: SmallVec::new() };
        if self.has_data() {
            for (batch, fetched) in &batches {
                batch.iter().for_each(|span| pieces.add(span.block * BLOCK, fetched.data(span)));
            }
        }
        pieces.add_zeroes(pinned.end);
        Ok(show(&pieces.list))
    }

    /// Pins the zones of a range of a file and returns its spans; `None` beyond the end of the
    /// file.
    fn pin_spans(
        &self,
        caller: Caller,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        length: u64,
    ) -> Result<Option<PinnedSpans>, FsError> {
        let Some(mut pinned) = self.pin_mapped(caller, waiter, ino, offset, length)? else { return Ok(None) };
        // After the wait for writes in flight, because changes may be refused since one of them failed.
        match self.kept_blocks(ino, &(offset / BLOCK..pinned.end.div_ceil(BLOCK))) {
            Ok(kept) => {
                pinned.kept = kept;
                Ok(Some(pinned))
            }
            Err(error) => {
                self.unpin_spans(waiter, &pinned, &Ok(()))?;
                Err(error)
            }
        }
    }

    fn pin_mapped(
        &self,
        caller: Caller,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        length: u64,
    ) -> Result<Option<PinnedSpans>, FsError> {
        let end = offset.saturating_add(length);
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let mut found = None;
        let mut spans = Spans::new();
        let mut quick = self.pin_without_core(ino, offset..end, None, &mut spans);
        if !matches!(quick, Quick::Pinned(_)) {
            found = Some(map::extents_to_keep(&self.reader, ino, &blocks)?);
        }
        if matches!(quick, Quick::Unknown) {
            let found = found.as_ref().map(|(extents, version)| (extents.as_slice(), *version));
            quick = self.pin_without_core(ino, offset..end, found, &mut spans);
        }
        if let Quick::Pinned(end) = quick {
            return Ok(Some(PinnedSpans { spans, end, is_quick: true, kept: KeptBlocks::new() }));
        }
        drop(self.lock_with_file(ino));
        let mut locked = self.lock_completed(caller, waiter, ino, &blocks)?;
        let core = &mut locked.core;
        let file = core.attributes(ino)?;
        check_kind(&file)?;
        let end = end.min(file.size);
        // Checked before pinning, because the end may be in the middle of a mapped block.
        if end <= offset {
            return Ok(None);
        }
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let found = match found.filter(|(_, version)| self.reader.map_version(ino) == *version) {
            Some((found, _)) => found,
            // Files have changed meanwhile, and the rows are in memory.
            None => map::extents(&core.rows, ino, &blocks)?,
        };
        let spans = core.pinned_spans(ino, &found, &blocks)?;
        Ok(Some(PinnedSpans { spans, end, is_quick: false, kept: KeptBlocks::new() }))
    }

    /// Ends a read with this result.
    fn unpin_spans(
        &self,
        waiter: &dyn Wait,
        pinned: &PinnedSpans,
        result: &Result<(), FsError>,
    ) -> Result<(), FsError> {
        match pinned.is_quick {
            true => self.readers.unpin(&pinned.spans),
            false => self.lock().unpin(&pinned.spans)?,
        }
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.note_lost_zone(waiter, error),
        }
    }

    /// Locks the core once none of the `blocks` of a file are in its write buffer or in flight. If
    /// they are written again and again meanwhile, holds the file to keep other writers out.
    fn lock_completed<'a>(
        &'a self,
        caller: Caller,
        waiter: &'a dyn Wait,
        ino: u64,
        blocks: &Range<u64>,
    ) -> Result<CoreAndFile<'a>, FsError> {
        let (mut held, mut is_second) = (None, false);
        loop {
            let is_held = caller == Caller::HoldsFile || held.is_some();
            let (mut found, mut mark) = (Unmapped::Nothing, None);
            let core = self.lock_file_when(waiter, ino, |core| {
                let mark = *mark.get_or_insert(core.next_sequence);
                found = core.unmapped_in(ino, blocks);
                match found {
                    Unmapped::InFlight(last) if is_held || last < mark => {
                        // On a file system that refuses changes, units may never complete. The call
                        // itself sends a combined one.
                        let has_pieces = core.nodes.here(ino).is_some_and(|node| node.combined > 0);
                        if has_pieces { Ok(false) } else { core.check_writable().map(|()| false) }
                    }
                    _ => Ok(true),
                }
            })?;
            let is_kept = || !self.nodes.take_changes() && self.has_tail(ino);
            if found == Unmapped::Nothing || found == Unmapped::Buffered && is_kept() {
                return Ok(CoreAndFile::new(core, held));
            }
            drop(core);
            if is_second && !is_held {
                held = Some(self.hold(waiter, ino)?);
            }
            is_second = true;
            if found == Unmapped::Buffered {
                self.send_tail(waiter, ino)?;
            }
        }
    }

    /// True if a file has a tail that no thread has taken.
    fn has_tail(&self, ino: u64) -> bool {
        self.nodes.here(ino).is_some_and(|node| matches!(node.write_buffer, WriteBuffer::Here(_)))
    }

    /// Reads a block of a held file as it is.
    pub(super) fn read_block(&self, waiter: &dyn Wait, ino: u64, block: u64) -> Result<Box<[u8]>, FsError> {
        let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
        self.read_for(Caller::HoldsFile, waiter, ino, block * BLOCK, Target::Bytes(&mut bytes))?;
        Ok(bytes)
    }

    /// Source of reads.
    pub(super) fn source(&self) -> Source<'_> {
        let Shared { drive, superblock, pool: units, small, unit_sums, begun, .. } = self;
        let (depth, along_max) = (DEPTH, ALONG_MAX);
        let (buffers, known) = (Some(Buffers { small, units }), Some(unit_sums));
        let has_data = self.has_data();
        Source { drive, superblock, has_data, buffers, known, begun, headers: None, depth, along_max }
    }
}

/// Reads spans in pinned zones, verifies them, and copies the parts that overlap `into`, which is
/// at `offset` of the file. Leaves `into` unchanged if the device keeps no data.
fn fetch_all(
    source: Source<'_>,
    waiter: &dyn Wait,
    spans: &[Span],
    offset: u64,
    mut into: Option<&mut [u8]>,
) -> Result<(), FsError> {
    let mut left = spans;
    while !left.is_empty() {
        let (batch, rest) = split_batch(source, left);
        left = rest;
        let mut fetched = source.fetch(waiter, batch);
        for span in batch {
            match &mut into {
                Some(into) if source.has_data => fetched.copy_verified(span, offset, into)?,
                _ => fetched.verify(span)?,
            }
        }
    }
    Ok(())
}

/// Splits off the spans of the next batch.
fn split_batch<'a>(source: Source<'_>, spans: &'a [Span]) -> (&'a [Span], &'a [Span]) {
    let mut blocks = 0;
    let few = spans.iter().take_while(|span| {
        blocks += span.blocks;
        blocks <= source.superblock.unit_blocks * DEPTH as u32
    });
    spans.split_at(few.count().max(1))
}

/// Spans in pinned zones.
struct PinnedSpans {
    spans: Spans,
    /// End of the requested bytes, or of the file.
    end: u64,
    /// True if pinned without the core.
    is_quick: bool,
    /// Blocks with newer data than the spans: see [`logged_tails`](super::logged_tails).
    kept: KeptBlocks,
}

impl PinnedSpans {
    /// Spans with bytes to return.
    fn shown(&self, shared: &Shared) -> &[Span] {
        if shared.has_data() { &self.spans } else { &[] }
    }
}

/// Contents of holes.
static ZEROES: [u8; 1 << 16] = [0; 1 << 16];

/// Contiguous bytes of a file, in place in memory.
struct Pieces<'a> {
    /// Start of the next piece.
    at: u64,
    end: u64,
    list: SmallVec<[&'a [u8]; 8]>,
}

impl<'a> Pieces<'a> {
    /// Adds the requested part of `bytes`, which are at `from` of the file, and zeroes before it.
    fn add(&mut self, from: u64, bytes: &'a [u8]) {
        self.add_zeroes(from);
        let to = self.end.min(from + bytes.len() as u64);
        if self.at < to {
            self.list.push(&bytes[(self.at - from) as usize..(to - from) as usize]);
            self.at = to;
        }
    }

    fn add_zeroes(&mut self, to: u64) {
        let to = to.min(self.end);
        while self.at < to {
            let length = (to - self.at).min(ZEROES.len() as u64);
            self.list.push(&ZEROES[..length as usize]);
            self.at += length;
        }
    }
}

/// Zeroes the parts of `into`, which is at `offset`, that are in none of the ordered `spans`.
fn clear_holes(spans: &[Span], offset: u64, into: &mut [u8]) {
    let end = offset + into.len() as u64;
    let mut at = offset;
    let ends = spans.iter().map(|span| (span.block * BLOCK, (span.block + u64::from(span.blocks)) * BLOCK));
    for (from, to) in ends.chain([(end, end)]) {
        let hole = at.min(end)..from.clamp(at.min(end), end);
        into[(hole.start - offset) as usize..(hole.end - offset) as usize].fill(0);
        at = at.max(to);
    }
}

/// Replaces bytes read from `offset` of a file by those of `kept` blocks.
fn show_kept(kept: &KeptBlocks, offset: u64, into: &mut [u8]) {
    let end = offset + into.len() as u64;
    for (block, bytes) in kept {
        let begin = block * BLOCK;
        let (from, to) = (begin.max(offset), (begin + BLOCK).min(end));
        into[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&bytes[(from - begin) as usize..(to - begin) as usize]);
    }
}

/// State of some blocks that are not in the map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unmapped {
    /// The number is that of the last write.
    InFlight(u64),
    /// In a tail, which another thread may have taken.
    Buffered,
    Nothing,
}

impl Core {
    /// Returns the state of any `blocks` that are not in the map yet.
    fn unmapped_in(&self, ino: u64, blocks: &Range<u64>) -> Unmapped {
        let Some(node) = self.nodes.here(ino) else { return Unmapped::Nothing };
        match node.dirty.last(blocks) {
            Some(last) => Unmapped::InFlight(last),
            None if node.write_buffer.has_any(blocks) => Unmapped::Buffered,
            None => Unmapped::Nothing,
        }
    }

    /// Returns the spans of blocks of a file with these `extents`. The zone of each span is pinned
    /// once, to prevent its reset.
    fn pinned_spans(&mut self, ino: u64, extents: &[Mapped], blocks: &Range<u64>) -> Result<Spans, FsError> {
        let found: Vec<Mapped> = extents.iter().filter_map(|m| m.within(blocks)).collect();
        if let Some(lost) = found.iter().find(|m| m.extent.is_lost()) {
            return Err(FsError::Gone { ino, block: lost.block });
        }
        let spans: Spans = found.iter().flat_map(|m| spans(ino, m)).collect();
        let mut space = self.space.lock();
        for span in &spans {
            let zone = ZoneIndex(span.place.zone);
            if space.book.zone(zone)?.state == ZoneState::Offline {
                return Err(span.read_error(RequestError::ZoneOffline { zone }));
            }
        }
        for (pinned, span) in spans.iter().enumerate() {
            // A wrong row may name a zone without data.
            if let Err(error) = space.book.pin(ZoneIndex(span.place.zone), Pin::Read) {
                drop(space);
                self.unpin(&spans[..pinned])?;
                return Err(error.into());
            }
        }
        drop(space);
        Ok(spans)
    }

    fn unpin(&mut self, spans: &[Span]) -> Result<(), FsError> {
        let (mut space, mut is_dead) = (self.space.lock(), false);
        for span in spans {
            let zone = ZoneIndex(span.place.zone);
            space.book.unpin(zone, Pin::Read)?;
            is_dead |= space.book.zone(zone)?.state == ZoneState::Dead;
        }
        drop(space);
        if is_dead {
            // The zone can be reset now.
            self.step_may_help();
        }
        Ok(())
    }
}
