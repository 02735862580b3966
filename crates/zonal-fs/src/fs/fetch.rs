//! Batched and verified reads of zone blocks.
//!
//! A read needs the data and the header of its unit, which has the owner and checksum of each
//! block. Headers that are not cached are read together with the data. Requests are sorted by
//! address, and nearby ones share a command: a disk passes over the gap anyway, and another command
//! costs more than a few blocks.
//!
//! # Invariants
//! - No piece fails because of a neighbour: pieces of a failed command are reread, with one command
//!   each.
//! - The header of a unit is read and verified once for all requested pieces.
//! - Data is returned only if the header assigns it to the requested file and blocks. Otherwise the
//!   drive has misdirected or lost a write.

use super::beginnings::Beginnings;
use super::error::FsError;
use super::map::HeaderSums;
use super::small_buffers::SmallBuffers;
use super::unit_sums::{UnitHeader, UnitSums};
use crate::drive::{Answer, Answers, Drive};
use crate::format::{BlockPlace, Header, Superblock, UnitError};
use crate::waiter::Wait;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use smallvec::SmallVec;
use std::ops::Range;
use zonal_core::{RequestError, Sector, ZoneIndex};
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::sums;
use zonal_io::volume::Request;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Blocks of a file in one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) ino: u64,
    /// First block of the file.
    pub(super) block: u64,
    pub(super) place: BlockPlace,
    pub(super) blocks: u32,
}

impl Span {
    /// Error of a failed read of this span.
    pub(super) fn read_error(&self, error: RequestError) -> FsError {
        let Span { ino, block, place, .. } = *self;
        FsError::Read { ino, block, zone: place.zone, at: place.block(), error }
    }
}

/// Source and parameters of a read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) drive: &'a Drive,
    pub(super) superblock: &'a Superblock,
    /// True if the device keeps data.
    pub(super) has_data: bool,
    /// Buffers reused between reads, if any.
    pub(super) buffers: Option<Buffers<'a>>,
    /// Cache of headers, if any.
    pub(super) known: Option<&'a UnitSums>,
    /// Beginnings of zones, compared with those in the headers.
    pub(super) begun: &'a Beginnings,
    /// Checksums of headers from the runs of the zones, if the caller has read them.
    pub(super) headers: Option<&'a HeaderSums>,
    /// Maximum number of commands in flight.
    pub(super) depth: usize,
    /// Maximum gap in blocks between two pieces that are read with one command.
    pub(super) along_max: u32,
}

/// Buffers for reads.
#[derive(Clone, Copy)]
pub(super) struct Buffers<'a> {
    pub(super) small: &'a SmallBuffers,
    /// Buffers of a whole unit.
    pub(super) units: &'a BufferPool,
}

/// Blocks of a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ZoneBlocks {
    zone: u32,
    first: u32,
    blocks: u32,
}

impl ZoneBlocks {
    fn of(span: &Span) -> ZoneBlocks {
        ZoneBlocks { zone: span.place.zone, first: span.place.block(), blocks: span.blocks }
    }

    fn end(&self) -> u32 {
        self.first + self.blocks
    }
}

/// Pieces of zones, in order. Most reads need one span and at most its header.
type Wanted = SmallVec<[ZoneBlocks; 4]>;

/// Unit, by its zone and first block there.
type Unit = (u32, u32);

/// Command, and the requested pieces that it reads.
#[derive(PartialEq, Eq, Debug)]
struct Command {
    piece: ZoneBlocks,
    /// Indices of requested pieces, in order of address.
    wanted: Range<usize>,
}

/// Commands of a read; usually one.
type Commands = SmallVec<[Command; 2]>;

/// Sorts the requested pieces and merges them into commands of at most `blocks_max`, unless a
/// single piece is longer. Gaps of up to `along_max` blocks are read along.
fn commands(wanted: &mut Wanted, blocks_max: u32, along_max: u32, commands: &mut Commands) {
    wanted.sort_unstable();
    wanted.dedup();
    for (i, piece) in wanted.iter().enumerate() {
        if let Some(Command { piece: last, wanted }) = commands.last_mut()
            && last.zone == piece.zone
            && piece.first <= last.end() + along_max
            && piece.end().max(last.end()) - last.first <= blocks_max
        {
            last.blocks = piece.end().max(last.end()) - last.first;
            wanted.end = i + 1;
            continue;
        }
        commands.push(Command { piece: *piece, wanted: i..i + 1 });
    }
}

impl<'a> Source<'a> {
    fn is_verified(&self) -> bool {
        self.has_data && self.superblock.is_summed
    }

    /// Reads `spans` in order of address. The caller has pinned their zones.
    pub(super) fn fetch(self, waiter: &dyn Wait, spans: &[Span]) -> Fetched<'a> {
        let mut fetched = Fetched {
            source: self,
            commands: Commands::new(),
            answers: Answers::new(),
            units: UnitsOfRead::new(),
        };
        fetched.fill(waiter, spans);
        fetched
    }

    /// Reads `pieces` and appends the answers.
    fn read(
        &self,
        waiter: &dyn Wait,
        pieces: impl ExactSizeIterator<Item = ZoneBlocks>,
        answers: &mut Answers,
    ) {
        let mut requests = pieces.map(|piece| self.request(&piece));
        while requests.len() > 0 {
            self.drive.calls_into(waiter, requests.by_ref().take(self.depth), answers);
        }
    }

    fn request(&self, piece: &ZoneBlocks) -> Request {
        let start = self.drive.volume().info().geometry.start_of(ZoneIndex(piece.zone));
        let sector = Sector(start.0 + u64::from(piece.first) * u64::from(BLOCK_SECTORS));
        let sectors = piece.blocks * BLOCK_SECTORS;
        let buf = self.buffers.and_then(|buffers| self.buffer(buffers, piece.blocks));
        Request::read(sector, sectors, buf.unwrap_or_else(|| IoBuf::zeroed(sectors * 512)))
    }

    /// Takes a buffer of at least this many blocks, if there are reusable ones.
    fn buffer(&self, Buffers { small, units }: Buffers<'_>, blocks: u32) -> Option<IoBuf> {
        let of_unit = self.superblock.unit_blocks;
        match blocks > of_unit / 2 {
            // The device keeps no data, so no buffer is filled.
            _ if !self.has_data => Some(units.take()),
            true => (blocks <= of_unit).then(|| units.take()),
            false => small.take(blocks),
        }
    }
}

/// Units of a read in order, each with its header once found in the cache or decoded.
type UnitsOfRead = SmallVec<[(Unit, Option<Result<UnitHeader, UnitError>>); 2]>;

/// Checksums computed from the data read.
type ComputedSums = SmallVec<[u32; 8]>;

/// Result of a read.
pub(super) struct Fetched<'a> {
    source: Source<'a>,
    /// Commands in order of address.
    commands: Commands,
    /// Answers to the commands.
    answers: Answers,
    units: UnitsOfRead,
}

impl Fetched<'_> {
    // Lists are filled in place: moving a new list would cost as much as building it.
    fn fill(&mut self, waiter: &dyn Wait, spans: &[Span]) {
        let source = self.source;
        let mut wanted = Wanted::new();
        for span in spans {
            wanted.push(ZoneBlocks::of(span));
        }
        if source.is_verified() {
            self.look_up(spans);
            for ((zone, first), known) in &self.units {
                if known.is_none() {
                    wanted.push(ZoneBlocks { zone: *zone, first: *first, blocks: 1 });
                }
            }
        }
        commands(&mut wanted, source.superblock.unit_blocks, source.along_max, &mut self.commands);
        source.read(waiter, self.commands.iter().map(|command| command.piece), &mut self.answers);
        let is_for_neighbours =
            |command: &Command, answer: &Answer| command.wanted.len() > 1 && answer.0.is_err();
        if self.commands.iter().zip(&self.answers).any(|(command, answer)| is_for_neighbours(command, answer))
        {
            self.read_again(waiter, &wanted);
        }
    }

    /// Rereads the pieces of failed commands that covered several, with a command each.
    #[cold]
    fn read_again(&mut self, waiter: &dyn Wait, wanted: &[ZoneBlocks]) {
        let (mut parts, mut again) = (Vec::new(), Vec::new());
        for (command, answer) in self.commands.drain(..).zip(self.answers.drain(..)) {
            match answer.0.is_err() && command.wanted.len() > 1 {
                true => again.extend(command.wanted.map(|i| Command { piece: wanted[i], wanted: i..i + 1 })),
                false => parts.push((command, answer)),
            }
        }
        let mut answers = Answers::new();
        self.source.read(waiter, again.iter().map(|command: &Command| command.piece), &mut answers);
        parts.extend(again.into_iter().zip(answers));
        parts.sort_unstable_by_key(|(command, _)| command.piece);
        for (command, answer) in parts {
            self.commands.push(command);
            self.answers.push(answer);
        }
    }

    /// Lists the units of `spans` in order, with their cached headers.
    fn look_up(&mut self, spans: &[Span]) {
        let (units, known) = (&mut self.units, self.source.known);
        for span in spans {
            units.push(((span.place.zone, span.place.unit), None));
        }
        units.sort_unstable_by_key(|(unit, _)| *unit);
        units.dedup_by_key(|(unit, _)| *unit);
        for ((zone, unit), unit_header) in units {
            *unit_header = known.and_then(|known| known.find(*zone, *unit)).map(Ok);
        }
    }

    /// Verifies the data of a span, which must have been among those requested.
    ///
    /// # Errors
    /// [`FsError::Read`], [`FsError::Unit`], [`FsError::Checksum`].
    pub(super) fn verify(&mut self, span: &Span) -> Result<(), FsError> {
        let Some(unit_header) = self.unit_header(span)? else { return Ok(()) };
        let mut found = ComputedSums::from_elem(0, span.blocks as usize);
        sums::of_blocks(self.data(span), &mut found);
        self.compare(span, unit_header, &found)
    }

    /// Verifies a whole span and copies the part that overlaps `into`, which is at `offset` of the
    /// file. The device keeps data. After an error `into` may contain wrong bytes.
    ///
    /// Both take a single pass: see [`sums`].
    ///
    /// # Errors
    /// As for [`Fetched::verify`].
    pub(super) fn copy_verified(&mut self, span: &Span, offset: u64, into: &mut [u8]) -> Result<(), FsError> {
        let unit_header = self.unit_header(span)?;
        let at = span.block * BLOCK as u64;
        let pieces = Pieces::new(at, self.data(span), offset, into);
        let Some(unit_header) = unit_header else {
            pieces.copy();
            return Ok(());
        };
        let mut found = ComputedSums::from_elem(0, span.blocks as usize);
        pieces.copy_and_sum(&mut found);
        self.compare(span, unit_header, &found)
    }

    /// Verifies that the unit of a span assigns it to the file, and returns the index of the unit;
    /// `None` if data is not verified.
    fn unit_header(&mut self, span: &Span) -> Result<Option<usize>, FsError> {
        let Span { ino, block, place: BlockPlace { zone, unit, index }, blocks } = *span;
        self.answered(span, span.place.block())?;
        if !self.source.is_verified() {
            return Ok(None);
        }
        let place = self.units.binary_search_by_key(&(zone, unit), |(of, _)| *of).expect("it was asked for");
        if self.units[place].1.is_none() {
            self.answered(span, unit)?;
            let unit_header = self.header(zone, unit);
            if let (Some(known), Ok(unit_header)) = (self.source.known, &unit_header) {
                known.remember(zone, unit, unit_header);
            }
            self.units[place].1 = Some(unit_header);
        }
        let failed = |error| Err(FsError::Unit { ino, block, zone, at: unit, error });
        match self.units[place].1.as_ref().expect("it was looked at") {
            Err(error) => failed(*error),
            Ok(unit_header) if !unit_header.holds(ino, block, index, blocks) => failed(UnitError::Other),
            Ok(_) => Ok(Some(place)),
        }
    }

    /// Decodes the header of a unit and verifies that it was written here after the zone's last
    /// reset.
    fn header(&self, zone: u32, unit: u32) -> Result<UnitHeader, UnitError> {
        let Source { superblock, begun, headers, .. } = self.source;
        let block = self.at(zone, unit, 1);
        let header = Header::decode(block, &superblock.uuid)?;
        let sum = Header::checksum_in(block);
        if header.zone != zone {
            return Err(UnitError::Elsewhere);
        }
        if headers.is_some_and(|known| !known.admit(zone, unit, sum)) {
            return Err(UnitError::Other);
        }
        match begun.of(zone).is_some_and(|begun| header.begun != begun) {
            true if headers.is_some_and(|known| known.has(zone, unit, sum)) => {
                Err(UnitError::Beginning(header.begun))
            }
            true => Err(UnitError::Earlier),
            false => Ok(UnitHeader::new(&header)),
        }
    }

    /// Compares checksums with those of the unit. The error names the first block that differs.
    fn compare(&self, span: &Span, unit_header: usize, found: &[u32]) -> Result<(), FsError> {
        let Span { ino, block, place, .. } = *span;
        let unit_header =
            self.units[unit_header].1.as_ref().and_then(|unit_header| unit_header.as_ref().ok());
        let unit_header = unit_header.map_or(&[][..], UnitHeader::sums);
        let mut pairs = found.iter().zip(place.index as usize..);
        match pairs.position(|(found, i)| unit_header.get(i) != Some(found)) {
            Some(i) => Err(FsError::Checksum {
                ino,
                block: block + i as u64,
                zone: place.zone,
                at: place.block() + i as u32,
            }),
            None => Ok(()),
        }
    }

    /// Bytes of a verified span. The device keeps data.
    pub(super) fn data(&self, span: &Span) -> &[u8] {
        self.at(span.place.zone, span.place.block(), span.blocks)
    }

    /// Returns the error of the command that read block `at` of a span's zone.
    fn answered(&self, span: &Span, at: u32) -> Result<(), FsError> {
        let (_, (result, _)) = self.part(span.place.zone, at);
        result.as_ref().map(drop).map_err(|error| span.read_error(*error))
    }

    fn at(&self, zone: u32, first: u32, blocks: u32) -> &[u8] {
        let (piece, (_, buf)) = self.part(zone, first);
        let skip = (first - piece.first) as usize * BLOCK;
        &buf[skip..skip + blocks as usize * BLOCK]
    }

    fn part(&self, zone: u32, first: u32) -> (&ZoneBlocks, &Answer) {
        let is_before = |command: &Command| (command.piece.zone, command.piece.first) <= (zone, first);
        let place = self.commands.partition_point(is_before).checked_sub(1).expect("it was asked for");
        (&self.commands[place].piece, &self.answers[place])
    }
}

/// Whole blocks that were read, and the target of a part of them.
struct Pieces<'a> {
    /// Blocks before the first that is copied whole; those copied whole; those after them.
    blocks: [&'a [u8]; 3],
    /// Targets: of a part of the first blocks, of the second, and of the start of the third.
    into: [&'a mut [u8]; 3],
    /// Bytes of the first blocks that are not copied.
    skip: usize,
}

impl<'a> Pieces<'a> {
    /// Splits `bytes`, which are at `at` of a file, by their overlap with `into`, which is at
    /// `offset`.
    fn new(at: u64, bytes: &'a [u8], offset: u64, into: &'a mut [u8]) -> Pieces<'a> {
        let end = at + bytes.len() as u64;
        let from = at.max(offset).min(end);
        let to = end.min(offset + into.len() as u64).max(from);
        let block = BLOCK as u64;
        let whole_from = from.next_multiple_of(block).min(end);
        let whole_to = (to / block * block).max(whole_from);
        let (before, rest) = bytes.split_at((whole_from - at) as usize);
        let (whole, after) = rest.split_at((whole_to - whole_from) as usize);
        let into = match from < to {
            true => &mut into[(from - offset) as usize..(to - offset) as usize],
            false => &mut [],
        };
        let (head, rest) = into.split_at_mut((whole_from.min(to) - from) as usize);
        let (body, tail) = rest.split_at_mut(whole.len());
        Pieces { blocks: [before, whole, after], into: [head, body, tail], skip: (from - at) as usize }
    }

    fn copy(self) {
        let Pieces { blocks: [before, whole, after], into: [head, body, tail], skip } = self;
        head.copy_from_slice(&before[skip..][..head.len()]);
        body.copy_from_slice(whole);
        tail.copy_from_slice(&after[..tail.len()]);
    }

    /// Copies, and computes the checksum of each block.
    fn copy_and_sum(self, found: &mut [u32]) {
        let Pieces { blocks: [before, whole, after], into: [head, body, tail], skip } = self;
        let (of_before, found) = found.split_at_mut(before.len() / BLOCK);
        let (of_whole, of_after) = found.split_at_mut(whole.len() / BLOCK);
        if !before.is_empty() {
            sums::of_blocks(before, of_before);
            head.copy_from_slice(&before[skip..][..head.len()]);
        }
        sums::copy_blocks(whole, body, of_whole);
        if !after.is_empty() {
            sums::of_blocks(after, of_after);
            tail.copy_from_slice(&after[..tail.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(first: u32, blocks: u32) -> ZoneBlocks {
        ZoneBlocks { zone: 7, first, blocks }
    }

    fn read(wanted: &[ZoneBlocks], most: u32) -> Vec<(u32, u32, usize)> {
        let mut found = Commands::new();
        commands(&mut wanted.iter().copied().collect(), most, 16, &mut found);
        found.iter().map(|c| (c.piece.first, c.piece.blocks, c.wanted.len())).collect()
    }

    #[test]
    fn pieces_close_together_are_one_command() {
        let wanted = [piece(40, 3), piece(0, 1), piece(10, 2), piece(0, 1), piece(20, 4)];
        assert_eq!(read(&wanted, 256), [(0, 43, 4)]);
    }

    #[test]
    fn pieces_far_apart_or_of_other_zones_or_beyond_the_longest_command_are_several() {
        assert_eq!(read(&[piece(0, 1), piece(18, 1)], 256), [(0, 1, 1), (18, 1, 1)]);
        assert_eq!(read(&[piece(0, 10), piece(10, 10)], 16), [(0, 10, 1), (10, 10, 1)]);
        let other = ZoneBlocks { zone: 8, ..piece(1, 1) };
        assert_eq!(read(&[piece(0, 1), other], 256), [(0, 1, 1), (1, 1, 1)]);
    }

    /// Tries every start and end of the requested range within three blocks at block 5.
    #[test]
    fn pieces_copy_the_requested_range_and_sum_every_block() {
        let (at, block) = (5 * BLOCK as u64, BLOCK as u64);
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|i| ((i * i) >> 5) as u8).collect();
        let mut sums = vec![0; 3];
        sums::of_blocks(&bytes, &mut sums);
        let edges: Vec<u64> =
            (3..10).flat_map(|n| [n * block - 1, n * block, n * block + 1, n * block + 700]).collect();
        for (offset, end) in
            edges.iter().flat_map(|a| edges.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b)
        {
            let mut expected = vec![9; (end - offset) as usize];
            for (i, byte) in (at..).zip(&bytes).filter(|(i, _)| (offset..end).contains(i)) {
                expected[(i - offset) as usize] = *byte;
            }
            let (mut with, mut without, mut found) =
                (vec![9; expected.len()], vec![9; expected.len()], vec![9; 3]);
            Pieces::new(at, &bytes, offset, &mut with).copy_and_sum(&mut found);
            Pieces::new(at, &bytes, offset, &mut without).copy();
            assert!(with == expected && without == expected, "{offset}..{end}");
            assert_eq!(found, sums, "{offset}..{end}");
        }
    }
}
