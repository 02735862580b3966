//! Segments: the pieces of a place that the store writes from their start, one after the other.
//!
//! A segment is a sequential zone, or an equal piece of the conventional zones, or an equal piece of a file beside the drive.
//! The store treats all of them alike; this module knows what each kind can do. It owns no segment's content and decides
//! nothing.
//!
//! # What a piece lacks
//! A piece has no write pointer, is not reset, and takes writes anywhere. The store needs none of that: it reads what lies
//! there and believes only blocks that name the file system, the segment, their place and the beginning of the segment.

use super::disk::{Disk, Write};
use super::error::{BackendError, SegmentId, SegmentPlace};
use crate::BLOCK_SECTORS;
use crate::format::Anchor;
use crate::superblocks::COPY_BLOCKS;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use zonal_core::{Op, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::image::backing::Backing;

/// Bytes of a block.
const BLOCK: u64 = crate::BLOCK_BYTES as u64;

/// Blocks that a file is said to find on a host's disk that does not tell how full it is.
const BLOCKS_UNKNOWN: u64 = 4096;

/// Pieces of a file at most: their numbers have thirty bits.
const PIECES_MAX: u64 = 1 << 29;

/// A file that holds segments, and its name for messages.
#[derive(Clone)]
pub struct StoreFile {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) path: PathBuf,
}

/// Segments by their kind. See the module.
pub(in crate::insides::store) struct Segments {
    disk: Disk,
    file: Option<StoreFile>,
    /// Blocks of a piece.
    piece_blocks: u32,
    /// Blocks of a zone.
    zone_blocks: u32,
}

/// A segment as it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// Blocks below the write pointer; `None` where there is no pointer.
    pub(super) written: Option<u32>,
    /// It takes no writes.
    pub(super) is_bad: bool,
    /// It can be read.
    pub(super) is_readable: bool,
    /// It can be written at the block `written`.
    pub(super) is_appendable: bool,
    /// It counts against the drive's limit of active zones.
    pub(super) is_active: bool,
}

impl Seen {
    /// A piece.
    const PIECE: Seen =
        Seen { written: None, is_bad: false, is_readable: true, is_appendable: true, is_active: false };
}

/// Bytes for a place.
pub(super) struct SegmentWrite {
    pub(super) at: SegmentPlace,
    pub(super) bytes: IoBuf,
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl StoreFile {
    /// Whole pieces of `blocks` blocks that the file is long enough for.
    pub(super) fn pieces(&self, blocks: u32) -> Result<u32, BackendError> {
        let len = self.backing.len().map_err(self.failed("asking for its length"))?;
        Ok((len.saturating_sub(BLOCK) / (u64::from(blocks.max(1)) * BLOCK)).min(PIECES_MAX) as u32)
    }

    pub(super) fn failed(&self, doing: &'static str) -> impl Fn(std::io::Error) -> BackendError + use<> {
        let path = self.path.clone();
        move |source| BackendError::File { path: path.clone(), doing, source }
    }
}

impl Segments {
    pub(super) fn new(disk: Disk, file: Option<StoreFile>, piece_blocks: u32) -> Segments {
        let capacity = disk.drive().volume().info().geometry.zone_capacity().0;
        let zone_blocks = (capacity / u64::from(BLOCK_SECTORS)) as u32;
        Segments { disk, file, piece_blocks, zone_blocks }
    }

    /// True if they lie in a file beside the drive.
    pub(super) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Blocks of the largest segment, which the table counts with.
    pub(super) fn stride(&self, has_pieces: bool) -> u32 {
        match (&self.file, has_pieces) {
            (Some(_), _) => self.piece_blocks,
            (None, true) => self.piece_blocks.max(self.zone_blocks),
            (None, false) => self.zone_blocks,
        }
    }

    /// The segments of a store.
    pub(super) fn of(&self, anchor: &Anchor) -> Vec<SegmentId> {
        let piece = |n| match self.file {
            Some(_) => SegmentId::file(n),
            None => SegmentId::conventional(n),
        };
        (0..anchor.pieces).map(piece).chain(anchor.zones.iter().map(|zone| SegmentId::zone(*zone))).collect()
    }

    /// Blocks of a segment.
    pub(super) fn blocks(&self, segment: SegmentId) -> u32 {
        if segment.as_zone().is_some() { self.zone_blocks } else { self.piece_blocks }
    }

    /// Where a block lies on the drive.
    fn sector(&self, at: SegmentPlace) -> Sector {
        let blocks = match at.segment.as_zone() {
            Some(zone) => {
                let start = self.disk.drive().volume().info().geometry.start_of(zone);
                return start + Sectors(u64::from(at.block) * u64::from(BLOCK_SECTORS));
            }
            None => {
                u64::from(COPY_BLOCKS)
                    + u64::from(at.segment.piece()) * u64::from(self.piece_blocks)
                    + u64::from(at.block)
            }
        };
        Sector(blocks * u64::from(BLOCK_SECTORS))
    }

    /// Where a block lies in the file, whose first block is its header.
    fn offset(&self, at: SegmentPlace) -> u64 {
        let blocks = u64::from(at.segment.piece()) * u64::from(self.piece_blocks) + u64::from(at.block);
        (1 + blocks) * BLOCK
    }

    /// Fills `out` from `at` on.
    pub(super) fn read(&self, at: SegmentPlace, out: &mut [u8]) -> Result<(), BackendError> {
        match &self.file {
            Some(file) => {
                let offset = self.offset(at);
                let len = file.backing.len().map_err(file.failed("asking for its length"))?;
                // A file that was cut short has damaged pages, and no error of its own.
                let there = len.saturating_sub(offset).min(out.len() as u64) as usize;
                let (there, rest) = out.split_at_mut(there);
                rest.fill(0);
                file.backing.read_at(there, offset).map_err(file.failed("reading metadata"))
            }
            None => self.disk.read(self.sector(at), out),
        }
    }

    /// Writes all of `writes`, in this order where they follow each other in a zone. After an error any of them may have
    /// been carried out.
    pub(super) fn write(&self, writes: impl IntoIterator<Item = SegmentWrite>) -> Result<(), BackendError> {
        match &self.file {
            Some(file) => writes.into_iter().try_for_each(|SegmentWrite { at, bytes }| {
                file.backing.write_at(&bytes, self.offset(at)).map_err(file.failed("writing metadata"))
            }),
            None => {
                let write = |SegmentWrite { at, bytes }| Write { at: self.sector(at), bytes };
                self.disk.write(writes.into_iter().map(write))
            }
        }
    }

    /// Makes durable what was acknowledged.
    pub(super) fn flush(&self) -> Result<(), BackendError> {
        match &self.file {
            Some(file) => file.backing.sync().map_err(file.failed("syncing metadata")),
            None => self.disk.flush(),
        }
    }

    /// Resets a zone. A piece needs no reset: its next beginning has a higher number.
    pub(super) fn empty(&self, segment: SegmentId) -> Result<(), BackendError> {
        segment.as_zone().map_or(Ok(()), |zone| self.disk.manage(Op::ZoneReset, zone))
    }

    /// Finishes a zone, so that it counts no more as active.
    pub(super) fn finish(&self, segment: SegmentId) -> Result<(), BackendError> {
        segment.as_zone().map_or(Ok(()), |zone| self.disk.manage(Op::ZoneFinish, zone))
    }

    /// True if the last block of a zone ends where the zone ends, so that a zone that is written to its end is full.
    pub(super) fn zones_end_with_a_block(&self) -> bool {
        self.disk.drive().volume().info().geometry.zone_capacity().0.is_multiple_of(u64::from(BLOCK_SECTORS))
    }

    /// Allocates piece `piece` of the file on the host's disk; it reads as zeroes. If there is no room for it, the file has its
    /// old length. A piece of conventional zones gets zeroes in its first block, which says that it was never begun.
    pub(super) fn allocate(&self, piece: u32) -> Result<(), BackendError> {
        let Some(file) = &self.file else {
            let at = SegmentPlace { segment: SegmentId::conventional(piece), block: 0 };
            return self.write([SegmentWrite { at, bytes: IoBuf::zeroed(crate::BLOCK_BYTES) }]);
        };
        let at = self.offset(SegmentPlace { segment: SegmentId::file(piece), block: 0 });
        let failed = file.failed("allocating the next piece");
        let len = file.backing.len().map_err(&failed)?;
        let result = fill_with_zeroes(&*file.backing, at, u64::from(self.piece_blocks) * BLOCK);
        if result.is_err() {
            // What is left would count as a piece. The first error is the one to tell.
            let _ = file.backing.set_len(len);
        }
        result.map_err(failed)
    }

    /// Blocks of the pieces from `piece` on that the file can have on the host's disk as it is, or the conventional zones have.
    pub(super) fn blocks_left(&self, piece: u32) -> u64 {
        match &self.file {
            Some(file) => {
                let len = file.backing.len().unwrap_or(0);
                let room = file.backing.room().ok().flatten();
                // Without an answer: not so much that it would be missed.
                room.map_or(BLOCKS_UNKNOWN, |room| room.saturating_sub(len) / BLOCK)
            }
            None => {
                let geometry = self.disk.drive().volume().info().geometry;
                let end =
                    geometry.start_of(ZoneIndex(geometry.conventional_zones())).0 / u64::from(BLOCK_SECTORS);
                let used = u64::from(COPY_BLOCKS) + u64::from(piece) * u64::from(self.piece_blocks);
                end.saturating_sub(used)
            }
        }
    }

    /// What each segment is like.
    pub(super) fn survey(&self, segments: &[SegmentId]) -> Result<Vec<Seen>, BackendError> {
        let zones = match segments.iter().any(|segment| segment.as_zone().is_some()) {
            true => self.disk.report()?,
            false => Vec::new(),
        };
        let see = |segment: &SegmentId| match segment.as_zone() {
            Some(zone) => zones
                .get(zone.0 as usize)
                .map_or(Err(BackendError::UnfitZone { zone, why: "is not on the drive" }), |described| {
                    self.see(zone, described)
                }),
            None => Ok(Seen::PIECE),
        };
        segments.iter().map(see).collect()
    }

    fn see(&self, zone: ZoneIndex, described: &ZoneDescriptor) -> Result<Seen, BackendError> {
        if described.condition == ZoneCondition::NotWp {
            return Err(BackendError::UnfitZone { zone, why: "is conventional" });
        }
        let offset = described.write_pointer.map(|pointer| pointer.0.saturating_sub(described.start.0));
        let blocks = offset.map(|offset| (offset / u64::from(BLOCK_SECTORS)) as u32);
        let is_bad = matches!(described.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline);
        let written = match described.condition {
            ZoneCondition::Empty | ZoneCondition::Offline => 0,
            _ => blocks.unwrap_or(self.zone_blocks).min(self.zone_blocks),
        };
        Ok(Seen {
            written: Some(written),
            is_bad,
            is_readable: described.condition != ZoneCondition::Offline,
            is_appendable: offset.is_some_and(|offset| offset % u64::from(BLOCK_SECTORS) == 0) && !is_bad,
            is_active: described.condition.is_active(),
        })
    }
}

/// Zeroes that are written take their room; a hole would take it later, from a host's disk that may be full by then.
fn fill_with_zeroes(backing: &dyn Backing, at: u64, bytes: u64) -> std::io::Result<()> {
    if backing.len()? < at + bytes {
        backing.set_len(at + bytes)?;
    }
    let zeroes = vec![0; 1 << 20];
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(zeroes.len() as u64);
        backing.write_at(&zeroes[..step as usize], at + done)?;
        done += step;
    }
    backing.sync()
}
