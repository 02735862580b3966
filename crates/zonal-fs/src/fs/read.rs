//! Data of a file, read and verified.

use super::core::{Core, Shared};
use super::error::FsError;
use super::map::{self, Mapped};
use crate::drive::Drive;
use crate::format::{HEADER_BYTES, Header, Place, Superblock, crc32c};
use crate::space::zone::Pin;
use crate::waiter::Waiter;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::ops::Range;
use zonal_core::{RequestError, Sector, ZoneIndex};
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::volume::Request;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Data blocks that are read along although nobody asked, to have a unit's header in the same command.
const ALONG_MAX: u32 = 16;

/// Commands that are out at once for one read.
const BATCH: usize = 32;

/// Where read bytes go.
#[derive(Debug)]
pub enum Target<'a> {
    /// Here.
    Bytes(&'a mut [u8]),
    /// Nowhere: so many are read of a device that keeps none.
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

/// Blocks of a file in one unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) ino: u64,
    /// First block of the file.
    pub(super) block: u64,
    pub(super) place: Place,
    pub(super) blocks: u32,
}

impl Span {
    fn checksum_error(&self, i: u32) -> FsError {
        let Span { ino, block, place, .. } = *self;
        FsError::Checksum { ino, block: block + u64::from(i), zone: place.zone, at: place.block() + i }
    }
}

/// The units that `mapped` blocks of a file lie in, one after the other.
pub(super) fn spans(ino: u64, mapped: &Mapped) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut i = 0;
    while i < mapped.extent.blocks {
        let place = mapped.extent.place(i);
        let blocks = (u32::from(mapped.extent.unit_blocks) - place.index).min(mapped.extent.blocks - i);
        spans.push(Span { ino, block: mapped.block + u64::from(i), place, blocks });
        i += blocks;
    }
    spans
}

impl Shared {
    /// Reads from `offset` on; how many bytes there were.
    pub(super) fn read(
        &self,
        waiter: &dyn Waiter,
        ino: u64,
        offset: u64,
        mut target: Target<'_>,
    ) -> Result<u64, FsError> {
        let end = offset.saturating_add(target.len());
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let (spans, end) = {
            let mut core = self.lock_when(waiter, |core| Ok(!core.is_pending(ino, &blocks)))?;
            let end = end.min(core.attributes(ino)?.size);
            let spans = core.pinned_spans(ino, &(offset / BLOCK..end.div_ceil(BLOCK)))?;
            (spans, end)
        };
        if end <= offset {
            return Ok(0);
        }
        if let Target::Bytes(bytes) = &mut target {
            let shown = if self.has_data() { &spans[..] } else { &[] };
            clear_holes(shown, offset, &mut bytes[..(end - offset) as usize]);
        }
        let result = self.fetch_all(waiter, &spans, |block, bytes| {
            let Target::Bytes(into) = &mut target else { return };
            copy(block * BLOCK, bytes, offset, &mut into[..(end - offset) as usize]);
        });
        let mut core = self.lock();
        for span in &spans {
            core.book.unpin(ZoneIndex(span.place.zone), Pin::Read)?;
        }
        result.map(|()| end - offset)
    }

    /// A block of a file, as it is.
    pub(super) fn read_block(&self, waiter: &dyn Waiter, ino: u64, block: u64) -> Result<Box<[u8]>, FsError> {
        let mut bytes = vec![0; BLOCK as usize].into_boxed_slice();
        self.read(waiter, ino, block * BLOCK, Target::Bytes(&mut bytes))?;
        Ok(bytes)
    }

    /// Reads spans whose zones are pinned, verifies them, and shows each block of a file with its bytes. On a device that
    /// keeps no data nothing is shown.
    pub(super) fn fetch_all(
        &self,
        waiter: &dyn Waiter,
        spans: &[Span],
        show: impl FnMut(u64, &[u8]),
    ) -> Result<(), FsError> {
        fetch_all(&self.drive, &self.superblock, (self.has_data(), Some(&self.pool)), waiter, spans, show)
    }
}

/// Reads spans, verifies them, and shows each block of a file with its bytes, if the device keeps any.
pub(super) fn fetch_all(
    drive: &Drive,
    superblock: &Superblock,
    (has_data, pool): (bool, Option<&BufferPool>),
    waiter: &dyn Waiter,
    spans: &[Span],
    mut show: impl FnMut(u64, &[u8]),
) -> Result<(), FsError> {
    let fetch = Fetch { drive, superblock, has_data, pool };
    for batch in spans.chunks(BATCH) {
        let requests = batch.iter().flat_map(|span| fetch.requests(span));
        let mut answers = drive.calls(waiter, requests).into_iter();
        for span in batch {
            let parts = fetch.parts(span);
            let mut bufs = Vec::with_capacity(parts);
            for (result, buf) in answers.by_ref().take(parts) {
                result.map_err(|error| read_error(span, error))?;
                bufs.push(buf);
            }
            if has_data {
                fetch.verify(span, &bufs, &mut show)?;
            }
        }
    }
    Ok(())
}

/// What is read, and how.
struct Fetch<'a> {
    drive: &'a Drive,
    superblock: &'a Superblock,
    has_data: bool,
    /// Buffers as large as any read, if there are such.
    pool: Option<&'a BufferPool>,
}

impl Fetch<'_> {
    fn is_verified(&self) -> bool {
        self.has_data && self.superblock.is_summed
    }

    /// Whether the header of a span's unit is read along with its blocks.
    fn has_header_along(&self, span: &Span) -> bool {
        span.place.index <= ALONG_MAX
    }

    /// Requests that a span takes.
    fn parts(&self, span: &Span) -> usize {
        if self.is_verified() && !self.has_header_along(span) { 2 } else { 1 }
    }

    /// What has to be read for a span: its blocks, and the header of their unit along with them or apart.
    fn requests(&self, span: &Span) -> Vec<Request> {
        let Place { zone, unit, index } = span.place;
        let read = |from: u32, blocks: u32| {
            let start = self.drive.volume().info().geometry.start_of(ZoneIndex(zone));
            let sector = Sector(start.0 + u64::from(from * BLOCK_SECTORS));
            let sectors = blocks * BLOCK_SECTORS;
            let buf = self.pool.map_or_else(|| IoBuf::zeroed(sectors * 512), BufferPool::take);
            Request::read(sector, sectors, buf)
        };
        match (self.is_verified(), self.has_header_along(span)) {
            (true, true) => vec![read(unit, 1 + index + span.blocks)],
            (true, false) => vec![read(unit, 1), read(span.place.block(), span.blocks)],
            (false, _) => vec![read(span.place.block(), span.blocks)],
        }
    }

    fn verify(&self, span: &Span, bufs: &[IoBuf], show: &mut impl FnMut(u64, &[u8])) -> Result<(), FsError> {
        let Place { zone, unit, index } = span.place;
        let data = match bufs {
            [whole] if self.superblock.is_summed => {
                &whole[HEADER_BYTES + (u64::from(index) * BLOCK) as usize..]
            }
            [data] | [_, data] => &data[..],
            _ => unreachable!("one request a span or two"),
        };
        let mut sums = Vec::new();
        if self.superblock.is_summed {
            let header = Header::decode(&bufs[0], &self.superblock.uuid);
            let (ino, block) = (span.ino, span.block);
            let header = header.map_err(|error| FsError::Unit { ino, block, zone, at: unit, error })?;
            sums = header.sums;
        }
        for (i, bytes) in (0..span.blocks).zip(data.chunks_exact(BLOCK as usize)) {
            if self.superblock.is_summed && sums.get((index + i) as usize) != Some(&crc32c(bytes)) {
                return Err(span.checksum_error(i));
            }
            show(span.block + u64::from(i), bytes);
        }
        Ok(())
    }
}

fn read_error(span: &Span, error: RequestError) -> FsError {
    let Span { ino, block, place, .. } = *span;
    FsError::Read { ino, block, zone: place.zone, at: place.block(), error }
}

/// Fills with zeroes what of `into`, which is at `offset`, lies in none of `spans`, which are in order.
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

/// Copies what of `bytes`, which are at `at`, lies in `into`, which is at `offset`.
fn copy(at: u64, bytes: &[u8], offset: u64, into: &mut [u8]) {
    let (from, to) = (at.max(offset), (at + bytes.len() as u64).min(offset + into.len() as u64));
    if from < to {
        into[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
    }
}

impl Core {
    fn is_pending(&mut self, ino: u64, blocks: &Range<u64>) -> bool {
        self.nodes.here(ino).is_some_and(|node| node.pending.touches(blocks))
    }

    /// The spans of blocks of a file, each with its zone pinned once, so that it is not reset meanwhile.
    fn pinned_spans(&mut self, ino: u64, blocks: &Range<u64>) -> Result<Vec<Span>, FsError> {
        let found = map::extents(&self.rows, ino, blocks)?;
        let spans: Vec<Span> =
            found.iter().filter_map(|m| m.within(blocks)).flat_map(|m| spans(ino, &m)).collect();
        for span in &spans {
            self.book.pin(ZoneIndex(span.place.zone), Pin::Read)?;
        }
        Ok(spans)
    }
}
