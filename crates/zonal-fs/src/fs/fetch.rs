//! Blocks of zones, read together and verified.
//!
//! A read wants data and the headers of its units, which have the checksums. They are sorted by place, and what lies close
//! together is one command. The disk passes over what lies between anyway, and another command costs more than some blocks.
//!
//! # Invariants
//! - No piece fails for its neighbour: the pieces of a failed command are read again, one command each.
//! - A header is read and verified once for all that is wanted of its unit.

use super::error::FsError;
use crate::drive::{Answer, Drive};
use crate::format::{Header, Place, Superblock, UnitError, crc32c};
use crate::waiter::Waiter;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::collections::BTreeMap;
use zonal_core::{RequestError, Sector, ZoneIndex};
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::volume::Request;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Blocks of a file in one unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) ino: u64,
    /// First block of the file.
    pub(super) block: u64,
    pub(super) place: Place,
    pub(super) blocks: u32,
}

impl Span {
    /// It cannot be read.
    pub(super) fn read_error(&self, error: RequestError) -> FsError {
        let Span { ino, block, place, .. } = *self;
        FsError::Read { ino, block, zone: place.zone, at: place.block(), error }
    }
}

/// What is read from, and how.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) drive: &'a Drive,
    pub(super) superblock: &'a Superblock,
    /// Whether the device keeps what it is given.
    pub(super) has_data: bool,
    /// Buffers of a unit, if there are such.
    pub(super) pool: Option<&'a BufferPool>,
    /// Commands in flight at once.
    pub(super) depth: usize,
    /// Blocks between two pieces that are read along to save a command.
    pub(super) along_max: u32,
}

/// Blocks of a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ZoneBlocks {
    zone: u32,
    first: u32,
    blocks: u32,
}

impl ZoneBlocks {
    fn end(&self) -> u32 {
        self.first + self.blocks
    }
}

/// One command: what it reads, and what of that is wanted.
#[derive(PartialEq, Eq, Debug)]
struct Command {
    piece: ZoneBlocks,
    wanted: Vec<ZoneBlocks>,
}

/// Sorts what is wanted into commands of at most `blocks_max`, unless one piece is longer; up to `along_max` blocks between two
/// pieces are read along.
fn commands(mut wanted: Vec<ZoneBlocks>, blocks_max: u32, along_max: u32) -> Vec<Command> {
    wanted.sort_unstable();
    wanted.dedup();
    let mut commands: Vec<Command> = Vec::new();
    for piece in wanted {
        if let Some(Command { piece: last, wanted }) = commands.last_mut()
            && last.zone == piece.zone
            && piece.first <= last.end() + along_max
            && piece.end().max(last.end()) - last.first <= blocks_max
        {
            last.blocks = piece.end().max(last.end()) - last.first;
            wanted.push(piece);
            continue;
        }
        commands.push(Command { piece, wanted: vec![piece] });
    }
    commands
}

impl<'a> Source<'a> {
    fn is_verified(&self) -> bool {
        self.has_data && self.superblock.is_summed
    }

    /// Reads `spans`, whose zones are pinned, in the order of the drive.
    pub(super) fn fetch(self, waiter: &dyn Waiter, spans: &[Span]) -> Fetched<'a> {
        let data = |span: &Span| ZoneBlocks {
            zone: span.place.zone,
            first: span.place.block(),
            blocks: span.blocks,
        };
        let header = |span: &Span| ZoneBlocks { zone: span.place.zone, first: span.place.unit, blocks: 1 };
        let mut wanted: Vec<ZoneBlocks> = spans.iter().map(data).collect();
        if self.is_verified() {
            wanted.extend(spans.iter().map(header));
        }
        let mut parts = Vec::new();
        let mut again = Vec::new();
        let commands = commands(wanted, self.superblock.unit_blocks, self.along_max);
        let pieces: Vec<ZoneBlocks> = commands.iter().map(|command| command.piece).collect();
        for (command, answer) in commands.into_iter().zip(self.read(waiter, &pieces)) {
            match answer.0.is_err() && command.wanted.len() > 1 {
                true => again.extend(command.wanted),
                false => parts.push((command.piece, answer)),
            }
        }
        let answers = self.read(waiter, &again);
        parts.extend(again.into_iter().zip(answers));
        parts.sort_unstable_by_key(|(piece, _)| *piece);
        Fetched { source: self, parts, sums: BTreeMap::new() }
    }

    fn read(&self, waiter: &dyn Waiter, pieces: &[ZoneBlocks]) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(pieces.len());
        for few in pieces.chunks(self.depth) {
            answers.extend(self.drive.calls(waiter, few.iter().map(|piece| self.request(piece))));
        }
        answers
    }

    fn request(&self, piece: &ZoneBlocks) -> Request {
        let start = self.drive.volume().info().geometry.start_of(ZoneIndex(piece.zone));
        let sector = Sector(start.0 + u64::from(piece.first) * u64::from(BLOCK_SECTORS));
        let sectors = piece.blocks * BLOCK_SECTORS;
        let is_large =
            piece.blocks <= self.superblock.unit_blocks && piece.blocks > self.superblock.unit_blocks / 2;
        let buf = match self.pool {
            // A device that keeps no data fills no buffer.
            Some(pool) if is_large || !self.has_data => pool.take(),
            _ => IoBuf::zeroed(sectors * 512),
        };
        Request::read(sector, sectors, buf)
    }
}

/// What was read.
pub(super) struct Fetched<'a> {
    source: Source<'a>,
    /// In order of their places.
    parts: Vec<(ZoneBlocks, Answer)>,
    /// Checksums of units that were looked at.
    sums: BTreeMap<(u32, u32), Result<Vec<u32>, UnitError>>,
}

impl Fetched<'_> {
    /// Verifies what was read of a span, which was among those asked for.
    ///
    /// # Errors
    /// [`FsError::Read`], [`FsError::Unit`], [`FsError::Checksum`].
    pub(super) fn verify(&mut self, span: &Span) -> Result<(), FsError> {
        let Span { ino, block, place: Place { zone, unit, index }, .. } = *span;
        self.answered(span, span.place.block())?;
        if !self.source.is_verified() {
            return Ok(());
        }
        self.answered(span, unit)?;
        if !self.sums.contains_key(&(zone, unit)) {
            let header = Header::decode(self.at(zone, unit, 1), &self.source.superblock.uuid);
            self.sums.insert((zone, unit), header.map(|header| header.sums));
        }
        let sums = match &self.sums[&(zone, unit)] {
            Ok(sums) => sums,
            Err(error) => return Err(FsError::Unit { ino, block, zone, at: unit, error: *error }),
        };
        let data = self.data(span).chunks_exact(BLOCK);
        match data.zip(index as usize..).position(|(bytes, i)| sums.get(i) != Some(&crc32c(bytes))) {
            Some(i) => Err(FsError::Checksum {
                ino,
                block: block + i as u64,
                zone,
                at: span.place.block() + i as u32,
            }),
            None => Ok(()),
        }
    }

    /// The bytes of a span, which was verified; the device keeps data.
    pub(super) fn data(&self, span: &Span) -> &[u8] {
        self.at(span.place.zone, span.place.block(), span.blocks)
    }

    /// An error if the command with block `at` of a span's zone failed.
    fn answered(&self, span: &Span, at: u32) -> Result<(), FsError> {
        let (_, (result, _)) = self.part(span.place.zone, at);
        result.as_ref().map(drop).map_err(|error| span.read_error(*error))
    }

    fn at(&self, zone: u32, first: u32, blocks: u32) -> &[u8] {
        let (piece, (_, buf)) = self.part(zone, first);
        let skip = (first - piece.first) as usize * BLOCK;
        &buf[skip..skip + blocks as usize * BLOCK]
    }

    fn part(&self, zone: u32, first: u32) -> &(ZoneBlocks, Answer) {
        let behind = self.parts.partition_point(|(piece, _)| (piece.zone, piece.first) <= (zone, first));
        self.parts[..behind].last().expect("it was asked for")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(first: u32, blocks: u32) -> ZoneBlocks {
        ZoneBlocks { zone: 7, first, blocks }
    }

    fn read(wanted: &[ZoneBlocks], most: u32) -> Vec<(u32, u32, usize)> {
        let commands = commands(wanted.to_vec(), most, 16);
        commands.iter().map(|c| (c.piece.first, c.piece.blocks, c.wanted.len())).collect()
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
}
