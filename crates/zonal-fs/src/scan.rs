//! Scan of a data zone without the metadata: finds units, and blocks that belong to none.
//!
//! Only a header tells where the next one is. A torn unit claims too many blocks, and later units
//! lie among them. So a scan compares the last block of each unit with its checksum. That is free,
//! because the block is read along with the next header. If it does not match, the next unit starts
//! at the first block that does not belong to the unit and is a header.
//!
//! A block covered by the checksums of a valid header is never taken for a header itself. So a file
//! that contains copies of units is just a file. Where headers are lost, or data has no checksums,
//! each block is taken at face value.

use crate::BLOCK_SECTORS;
use crate::drive::{Drive, is_lost};
use crate::format::{Header, UnitError, UnitPlace, Uuid, crc32c};
use crate::waiter::Wait;
use zonal_core::{DeviceError, RequestError, Sector, Sectors, ZoneCondition, ZoneDescriptor};

/// Maximum number of blocks per read.
const WINDOW_MAX: u32 = 64;

/// Number of blocks in a read that does not continue the previous one: the end of a unit, and the
/// next header.
const WINDOW_MIN: u32 = 2;

const BLOCK: usize = crate::BLOCK_BYTES as usize;

/// Depth of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Depth {
    /// Headers, and the last block of each unit.
    #[default]
    Headers,
    /// Every block.
    Data,
}

/// Contents of a zone, in order of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScanItem {
    /// A unit.
    Unit {
        /// Block of the header in the zone.
        block: u32,
        /// Contents of the header.
        header: Header,
        /// Checksum of the header.
        checksum: u32,
        /// State of the data.
        state: UnitState,
    },
    /// Blocks that belong to no unit.
    Garbage {
        /// First block.
        block: u32,
        /// Number of blocks.
        blocks: u32,
        /// Reason why the first block is not a header.
        why: UnitError,
    },
    /// Blocks that cannot be read.
    Unreadable {
        /// First block.
        block: u32,
        /// Number of blocks.
        blocks: u32,
    },
}

/// State of a unit's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitState {
    /// Intact, as far as the scan looked.
    Sound,
    /// Complete, but with this many damaged blocks among those that the scan looked at.
    Damaged(u32),
    /// Only this many blocks were written, because of a power cut or a failure.
    Torn(u32),
}

/// Number of written blocks in a zone.
pub fn written(zone: &ZoneDescriptor) -> u32 {
    let sectors = match zone.condition {
        ZoneCondition::Empty | ZoneCondition::NotWp | ZoneCondition::Offline => 0,
        ZoneCondition::Full | ZoneCondition::ReadOnly => zone.capacity.0,
        _ => zone.write_pointer.map_or(0, |pointer| pointer.0.saturating_sub(zone.start.0)),
    };
    (sectors.min(zone.capacity.0) / u64::from(BLOCK_SECTORS)) as u32
}

/// True if `unit` was written completely. `zones` is a report of all zones.
///
/// Unreadable data counts as written.
///
/// # Errors
/// The sector, and the error of a read that may succeed the next time.
pub(crate) fn was_written(
    drive: &Drive,
    waiter: &dyn Wait,
    uuid: &Uuid,
    zones: &[ZoneDescriptor],
    unit: &UnitPlace,
) -> Result<bool, (Sector, RequestError)> {
    let Some(zone) = zones.get(unit.zone as usize) else { return Ok(false) };
    if zone.condition == ZoneCondition::Offline {
        return Ok(true);
    }
    let blocks = unit.blocks + 1;
    if unit.block.checked_add(blocks).is_none_or(|end| end > written(zone)) {
        return Ok(false);
    }
    let at = zone.start + Sectors(u64::from(unit.block) * u64::from(BLOCK_SECTORS));
    let bytes = match drive.read(waiter, at, blocks * BLOCK_SECTORS) {
        // The write pointer of a read-only zone is unknown.
        Err(RequestError::Device(DeviceError::Zone(_))) if zone.condition == ZoneCondition::ReadOnly => {
            return Ok(false);
        }
        Err(error) if is_lost(&error) => return Ok(true),
        read => read.map_err(|error| (at, error))?,
    };
    let (header, data) = bytes.split_at(BLOCK);
    let Ok(decoded) = Header::decode(header, uuid) else { return Ok(false) };
    let sums = data.chunks(BLOCK).map(crc32c);
    Ok(Header::checksum_in(header) == unit.checksum && sums.eq(decoded.sums.iter().copied()))
}

/// Passes the contents of a zone of the file system `uuid` to `show`.
pub fn zone(
    drive: &Drive,
    waiter: &dyn Wait,
    uuid: &Uuid,
    zone: &ZoneDescriptor,
    depth: Depth,
    mut show: impl FnMut(ScanItem),
) {
    let window =
        Window { drive, waiter, start: zone.start, end: written(zone), first: 0, blocks: Vec::new() };
    let mut scan = Scan { window, uuid, zone: zone.zone.0, depth };
    let mut gap: Option<ScanItem> = None;
    let mut at = 0;
    while at < scan.window.end {
        let found = scan.at(at);
        at = found.end();
        match gap.as_mut().is_some_and(|gap| gap.takes(&found)) {
            true => {}
            false if matches!(found, ScanItem::Unit { .. }) => {
                gap.take().into_iter().for_each(&mut show);
                show(found);
            }
            false => gap.replace(found).into_iter().for_each(&mut show),
        }
    }
    gap.into_iter().for_each(show);
}

impl ScanItem {
    /// First block behind the item.
    fn end(&self) -> u32 {
        match self {
            ScanItem::Unit { block, header, state: UnitState::Sound | UnitState::Damaged(_), .. } => {
                block + 1 + header.blocks()
            }
            ScanItem::Unit { block, state: UnitState::Torn(blocks), .. } => block + 1 + blocks,
            ScanItem::Garbage { block, blocks, .. } | ScanItem::Unreadable { block, blocks } => {
                block + blocks
            }
        }
    }

    /// Absorbs `next`, which follows immediately, if both are gaps of the same kind.
    fn takes(&mut self, next: &ScanItem) -> bool {
        match (self, next) {
            (ScanItem::Garbage { blocks, .. }, ScanItem::Garbage { blocks: more, .. })
            | (ScanItem::Unreadable { blocks, .. }, ScanItem::Unreadable { blocks: more, .. }) => {
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
    fn at(&mut self, block: u32) -> ScanItem {
        match self.header(block) {
            Some(Ok(header)) => {
                let checksum = self.window.block(block).map_or(0, Header::checksum_in);
                let state = self.state(block, &header);
                ScanItem::Unit { block, header, checksum, state }
            }
            Some(Err(why)) => ScanItem::Garbage { block, blocks: 1, why },
            None => ScanItem::Unreadable { block, blocks: 1 },
        }
    }

    /// The header at `block`, or the reason why there is none; `None` if the block cannot be read.
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
            // Without checksums, the unit is valid if a header or the end follows.
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

    /// True if the block can be read and has this checksum.
    fn has(&mut self, block: u32, sum: u32) -> bool {
        self.window.block(block).is_some_and(|bytes| crc32c(bytes) == sum)
    }
}

/// Read-ahead window over the blocks of a zone.
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

    /// Reads blocks, one by one if they cannot all be read at once.
    fn read(&self, first: u32, count: u32) -> Vec<Option<Box<[u8]>>> {
        let sector = Sector(self.start.0 + u64::from(first) * u64::from(BLOCK_SECTORS));
        match self.drive.read(self.waiter, sector, count * BLOCK_SECTORS) {
            Ok(bytes) => bytes.chunks_exact(BLOCK).map(|block| Some(block.into())).collect(),
            Err(_) if count == 1 => vec![None],
            Err(_) => (first..first + count).flat_map(|block| self.read(block, 1)).collect(),
        }
    }
}
