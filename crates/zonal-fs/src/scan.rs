//! What lies in a zone for data, by the zone alone: units one after the other, and blocks of no unit.
//!
//! Only a header says where the next one is. A unit that a cut made short claims too many blocks, and later units lie among
//! them. So a scan compares the last block of each unit with its checksum. That costs nothing: the block is read along with
//! the header after it. Where it is wrong, the next unit begins at the first block that is not the unit's own, and is a
//! header.
//!
//! A scan never takes a block for a header if a sound header vouches for it. So a file with copies of units is only a file.
//! Where headers are lost, or data has no checksums, each block counts for what it looks like.

use crate::BLOCK_SECTORS;
use crate::drive::Drive;
use crate::format::{Header, UnitError, Uuid, crc32c};
use crate::waiter::Wait;
use zonal_core::{Sector, ZoneCondition, ZoneDescriptor};

/// Blocks that are read together at most.
const WINDOW_MAX: u32 = 64;

/// Blocks of a read that does not begin where the last one ended: the end of a unit, and the header after it.
const WINDOW_MIN: u32 = 2;

const BLOCK: usize = crate::BLOCK_BYTES as usize;

/// What a scan looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Depth {
    /// Headers, and the last block of each unit.
    #[default]
    Headers,
    /// Every block.
    Data,
}

/// What is found, in order of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A header, with what follows it.
    Unit {
        /// Its block in the zone.
        block: u32,
        /// What it says.
        header: Header,
        /// Its checksum.
        checksum: u32,
        /// How its data is.
        state: UnitState,
    },
    /// Blocks that no header vouches for.
    Garbage {
        /// The first.
        block: u32,
        /// How many.
        blocks: u32,
        /// Why the first is no header.
        why: UnitError,
    },
    /// Blocks that cannot be read.
    Unreadable {
        /// The first.
        block: u32,
        /// How many.
        blocks: u32,
    },
}

/// How the data of a unit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitState {
    /// It is what the header says, as far as the scan looked.
    Sound,
    /// It is all there, and this many of the blocks that the scan looked at are damaged.
    Damaged(u32),
    /// Only this many blocks are there: a cut or a failure ended the write.
    Torn(u32),
}

/// Blocks of a zone that have been written.
pub fn written(zone: &ZoneDescriptor) -> u32 {
    let sectors = match zone.condition {
        ZoneCondition::Empty | ZoneCondition::NotWp | ZoneCondition::Offline => 0,
        ZoneCondition::Full | ZoneCondition::ReadOnly => zone.capacity.0,
        _ => zone.write_pointer.map_or(0, |pointer| pointer.0.saturating_sub(zone.start.0)),
    };
    (sectors.min(zone.capacity.0) / u64::from(BLOCK_SECTORS)) as u32
}

/// Shows what lies in a zone of the file system `uuid`.
pub fn zone(
    drive: &Drive,
    waiter: &dyn Wait,
    uuid: &Uuid,
    zone: &ZoneDescriptor,
    depth: Depth,
    mut show: impl FnMut(Found),
) {
    let window =
        Window { drive, waiter, start: zone.start, end: written(zone), first: 0, blocks: Vec::new() };
    let mut scan = Scan { window, uuid, zone: zone.zone.0, depth };
    let mut gap: Option<Found> = None;
    let mut at = 0;
    while at < scan.window.end {
        let found = scan.at(at);
        at = found.end();
        match gap.as_mut().is_some_and(|gap| gap.takes(&found)) {
            true => {}
            false if matches!(found, Found::Unit { .. }) => {
                gap.take().into_iter().for_each(&mut show);
                show(found);
            }
            false => gap.replace(found).into_iter().for_each(&mut show),
        }
    }
    gap.into_iter().for_each(show);
}

impl Found {
    /// The block after it.
    fn end(&self) -> u32 {
        match self {
            Found::Unit { block, header, state: UnitState::Sound | UnitState::Damaged(_), .. } => {
                block + 1 + header.blocks()
            }
            Found::Unit { block, state: UnitState::Torn(blocks), .. } => block + 1 + blocks,
            Found::Garbage { block, blocks, .. } | Found::Unreadable { block, blocks } => block + blocks,
        }
    }

    /// Takes `next` in, which follows it, if both are gaps of one kind.
    fn takes(&mut self, next: &Found) -> bool {
        match (self, next) {
            (Found::Garbage { blocks, .. }, Found::Garbage { blocks: more, .. })
            | (Found::Unreadable { blocks, .. }, Found::Unreadable { blocks: more, .. }) => {
                *blocks += more;
                true
            }
            _ => false,
        }
    }
}

struct Scan<'a> {
    window: Window<'a>,
    uuid: &'a Uuid,
    zone: u32,
    depth: Depth,
}

impl Scan<'_> {
    fn at(&mut self, block: u32) -> Found {
        match self.header(block) {
            Some(Ok(header)) => {
                let checksum = self.window.block(block).map_or(0, Header::checksum_in);
                let state = self.state(block, &header);
                Found::Unit { block, header, checksum, state }
            }
            Some(Err(why)) => Found::Garbage { block, blocks: 1, why },
            None => Found::Unreadable { block, blocks: 1 },
        }
    }

    /// The header at `block`, or why there is none; nothing if it cannot be read.
    fn header(&mut self, block: u32) -> Option<Result<Header, UnitError>> {
        let header = Header::decode(self.window.block(block)?, self.uuid);
        Some(header.and_then(|h| if h.zone == self.zone { Ok(h) } else { Err(UnitError::Elsewhere) }))
    }

    fn is_header(&mut self, block: u32) -> bool {
        matches!(self.header(block), Some(Ok(_)))
    }

    fn state(&mut self, block: u32, header: &Header) -> UnitState {
        let (first, next) = (block + 1, block + 1 + header.blocks());
        let end = self.window.end;
        let is_right = match header.sums.last() {
            Some(sum) => next <= end && self.has(next - 1, *sum),
            // Without checksums the header after it has to prove it.
            None => next == end || next < end && self.is_header(next),
        };
        if is_right && (self.depth == Depth::Headers || header.sums.is_empty()) {
            return UnitState::Sound;
        }
        let mut wrong = 0;
        for at in first..next {
            let sum = header.sums.get((at - first) as usize);
            if at >= end {
                return UnitState::Torn(at - first);
            }
            if sum.is_some_and(|sum| self.has(at, *sum)) {
                continue;
            }
            if self.is_header(at) {
                return UnitState::Torn(at - first);
            }
            wrong += u32::from(sum.is_some());
        }
        if wrong > 0 { UnitState::Damaged(wrong) } else { UnitState::Sound }
    }

    /// Whether a block can be read and has this checksum.
    fn has(&mut self, block: u32, sum: u32) -> bool {
        self.window.block(block).is_some_and(|bytes| crc32c(bytes) == sum)
    }
}

/// Blocks of a zone that were read together.
struct Window<'a> {
    drive: &'a Drive,
    waiter: &'a dyn Wait,
    start: Sector,
    end: u32,
    first: u32,
    /// `None` for a block that cannot be read.
    blocks: Vec<Option<Box<[u8]>>>,
}

impl Window<'_> {
    fn block(&mut self, block: u32) -> Option<&[u8]> {
        let behind = self.first + self.blocks.len() as u32;
        if !(self.first..behind).contains(&block) {
            let continues = block == behind && !self.blocks.is_empty();
            let wanted = if continues { self.blocks.len() as u32 * 2 } else { WINDOW_MIN };
            let count = wanted.min(WINDOW_MAX).min(self.end - block);
            (self.first, self.blocks) = (block, self.read(block, count));
        }
        self.blocks[(block - self.first) as usize].as_deref()
    }

    /// Reads blocks; one by one where not all of them can be read.
    fn read(&self, first: u32, count: u32) -> Vec<Option<Box<[u8]>>> {
        let sector = Sector(self.start.0 + u64::from(first) * u64::from(BLOCK_SECTORS));
        match self.drive.read(self.waiter, sector, count * BLOCK_SECTORS) {
            Ok(bytes) => bytes.chunks_exact(BLOCK).map(|block| Some(block.into())).collect(),
            Err(_) if count == 1 => vec![None],
            Err(_) => (first..first + count).flat_map(|block| self.read(block, 1)).collect(),
        }
    }
}
