//! Log-structured disk on zones: lets a trace of an ordinary disk run on a zoned drive.
//!
//! Writes are appended to open zones, whatever their address. A map has the place of each block of
//! the disk. Overwritten blocks are garbage until their zone is cleaned: its live data is moved to
//! the end of the log, and the zone is reset. The zone with the least live data is cleaned first.
//! The module assigns places and keeps accounts; it issues no requests.
//!
//! # Invariants
//! - A block of the map has no place, is in a write that has not completed, or is at one block of
//!   the device below its zone's write pointer. Of several writes of a block in flight the last one
//!   counts, in whatever order they complete.
//! - `live` of a zone is the number of its blocks in the map. It is exact once the zone's writes
//!   have completed, and only then can the zone be cleaned.
//! - A zone is reset once it has no live block and no read in flight.
//! - The last free zone belongs to the cleaner, so cleaning can always continue: with this zone and
//!   the reserve, some full zone has garbage as long as the disk does not exceed its size.
//!
//! # Why a write has a number before it has a place
//! With native zone append the device chooses the place. In every mode, reads of a block in a write
//! that has not completed wait for that write, so no reader needs the place before.

mod clean;
mod map;
#[cfg(test)]
mod tests;

pub(crate) use clean::{Move, Run};
pub(crate) use map::Home;
use map::Map;
use zonal_core::{Sector, ZoneCondition, ZoneDescriptor, ZoneIndex, ZoneType};
use zonal_io::device::DeviceInfo;

/// Default share of zones in reserve in percent, as in SSDs.
pub const RESERVE_PERCENT: u32 = 7;

/// Marks the absence of a block of the disk.
const NO_BLOCK: u64 = u64::MAX;

/// Layout options of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Number of zones that the trace's writes are distributed to.
    pub open_zones: u32,
    /// Zones in reserve, not counted in the disk's size; `None` for 7 percent, but no fewer than
    /// the log needs.
    pub reserve_zones: Option<u32>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { open_zones: 1, reserve_zones: None }
    }
}

/// Reason why a disk cannot be laid out on a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Too few empty zones.
    #[error("{empty} empty zones, but a log needs {needed}; --reset empties all zones")]
    Zones {
        /// Empty zones.
        empty: u32,
        /// Required zones, including the reserve.
        needed: u32,
    },
    /// The device has too few zones for a log, even if all were empty.
    #[error(
        "the drive is too small: it has {zones} zones that can hold a log, which needs {needed} with its reserve"
    )]
    TooSmall {
        /// Sequential zones of full size.
        zones: u32,
        /// Required zones, including the reserve.
        needed: u32,
    },
    /// The reserve is too small for the cleaner.
    #[error("{reserve} zones in reserve; with {open} open zones a log needs {needed}")]
    Reserve {
        /// Requested reserve.
        reserve: u32,
        /// Open zones of the trace.
        open: u32,
        /// Required reserve.
        needed: u32,
    },
    /// The limit on open or active zones is too low.
    #[error("{open} open zones and the cleaner's need {}, but {left} can be open or active", open + 1)]
    Limit {
        /// Open zones of the trace.
        open: u32,
        /// Number of zones that the device's limits allow.
        left: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogZoneState {
    /// Not part of the log: conventional, or with foreign data.
    Foreign,
    Free,
    /// A stream writes to it.
    Open,
    Full,
    /// Its live data is being moved.
    Cleaning,
}

/// A zone of the log.
struct Zone {
    state: LogZoneState,
    /// Blocks assigned to writes.
    given: u32,
    live: u32,
    writes: u32,
    reads: u32,
    /// Block of the disk stored in each block of the zone.
    blocks: Box<[u64]>,
}

/// Source of writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Trace(u32),
    Cleaner,
}

/// Room for a write in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) zone: ZoneIndex,
    /// Offset from the start of the zone, in blocks.
    pub(crate) offset: u32,
    pub(crate) blocks: u32,
}

/// A write of the trace, or part of one, in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WritePiece {
    number: u64,
    /// First block on the disk.
    pub(crate) block: u64,
    pub(crate) room: Room,
}

/// Consecutive blocks of the disk with their place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// First block on the disk.
    pub(crate) block: u64,
    pub(crate) blocks: u32,
    /// `None` if they have no place.
    pub(crate) at: Option<(ZoneIndex, u32)>,
}

/// Counters of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Account {
    pub(crate) written: u64,
    pub(crate) moved: u64,
    pub(crate) cleaned: u64,
}

/// State of the log.
pub(crate) struct Log {
    zones: Box<[Zone]>,
    map: Map,
    /// Blocks per zone.
    capacity: u32,
    zone_blocks: u64,
    block_sectors: u32,
    /// Free zones; the last one is taken first.
    free: Vec<ZoneIndex>,
    streams: Box<[Option<ZoneIndex>]>,
    cleaner: clean::Cleaner,
    /// Maximum number of open zones; 0 is no limit.
    open_max: u32,
    open: u32,
    next_number: u64,
    /// Number of blocks of the disk.
    pub(crate) disk_blocks: u64,
    pub(crate) log_zones: u32,
    pub(crate) reserve_zones: u32,
    pub(crate) account: Account,
}

/// Number of zones in reserve, out of `empty` zones.
fn reserve_of(options: LogOptions, empty: u32) -> Result<u32, LogError> {
    let open = options.open_zones.max(1);
    let needed = 2 * open + 3;
    let share = (u64::from(empty) * u64::from(RESERVE_PERCENT)).div_ceil(100) as u32;
    let reserve = options.reserve_zones.unwrap_or(share.max(needed));
    if reserve < needed { Err(LogError::Reserve { reserve, open, needed }) } else { Ok(reserve) }
}

/// Reason why fewer than `needed` zones are empty: there are too few usable zones, or they hold
/// data.
fn shortage<'a>(zones: impl Iterator<Item = &'a ZoneDescriptor>, empty: u32, needed: u32) -> LogError {
    let is_dead =
        |z: &&ZoneDescriptor| matches!(z.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline);
    let zones = zones.filter(|z| !is_dead(z)).count() as u32;
    match zones < needed {
        true => LogError::TooSmall { zones, needed },
        false => LogError::Zones { empty, needed },
    }
}

impl Log {
    /// Creates a log on the empty zones of a device.
    pub(crate) fn new(
        info: &DeviceInfo,
        zones: &[ZoneDescriptor],
        options: LogOptions,
    ) -> Result<Log, LogError> {
        let geometry = &info.geometry;
        let is_whole =
            |z: &ZoneDescriptor| u64::from(geometry.capacity_of(z.zone)) == geometry.zone_capacity().0;
        let is_free = |z: &&ZoneDescriptor| z.condition == ZoneCondition::Empty && is_whole(z);
        let free: Vec<ZoneIndex> = zones.iter().filter(is_free).map(|z| z.zone).rev().collect();
        let empty = free.len() as u32;
        let open = options.open_zones.max(1);
        let reserve = reserve_of(options, empty)?;
        if empty <= reserve {
            let can_hold = |z: &&ZoneDescriptor| z.zone_type != ZoneType::Conventional && is_whole(z);
            return Err(shortage(zones.iter().filter(can_hold), empty, reserve + 1));
        }
        let open_max = open_max(info, zones);
        if open_max != 0 && open_max < open + 1 || open_max == 0 && is_limited(info) {
            return Err(LogError::Limit { open, left: open_max });
        }
        let state_of =
            |z: &ZoneDescriptor| if is_free(&z) { LogZoneState::Free } else { LogZoneState::Foreign };
        let zone =
            |z| Zone { state: state_of(z), given: 0, live: 0, writes: 0, reads: 0, blocks: Box::default() };
        let capacity = (geometry.zone_capacity().0 / u64::from(info.block_sectors)) as u32;
        Ok(Log {
            zones: zones.iter().map(zone).collect(),
            map: Map::default(),
            capacity,
            zone_blocks: geometry.zone_size().0 / u64::from(info.block_sectors),
            block_sectors: info.block_sectors,
            free,
            streams: vec![None; open as usize].into(),
            cleaner: clean::Cleaner::default(),
            open_max,
            open: 0,
            next_number: 0,
            disk_blocks: u64::from(empty - reserve) * u64::from(capacity),
            log_zones: empty,
            reserve_zones: reserve,
            account: Account::default(),
        })
    }

    fn zone(&mut self, zone: ZoneIndex) -> &mut Zone {
        &mut self.zones[zone.0 as usize]
    }

    fn block_of(&self, zone: ZoneIndex, offset: u32) -> u64 {
        u64::from(zone.0) * self.zone_blocks + u64::from(offset)
    }

    fn place_of(&self, block: u64) -> (ZoneIndex, u32) {
        (ZoneIndex((block / self.zone_blocks) as u32), (block % self.zone_blocks) as u32)
    }

    /// First sector of a block in a zone.
    pub(crate) fn sector_of(&self, zone: ZoneIndex, offset: u32) -> Sector {
        Sector(self.block_of(zone, offset) * u64::from(self.block_sectors))
    }

    /// Reserves room for up to `want` blocks at the end of a stream. `None` if there is none until
    /// a request completes or a zone is cleaned.
    fn room(&mut self, stream: Stream, want: u32) -> Option<Room> {
        let at = match stream {
            Stream::Trace(n) => self.streams[n as usize],
            Stream::Cleaner => self.cleaner.end,
        };
        let zone = match at {
            Some(zone) => zone,
            None => self.open_zone(stream)?,
        };
        let capacity = self.capacity;
        let entry = self.zone(zone);
        let blocks = want.min(capacity - entry.given);
        let room = Room { zone, offset: entry.given, blocks };
        entry.given += blocks;
        entry.writes += 1;
        if entry.given == capacity {
            entry.state = LogZoneState::Full;
            *self.end_of(stream) = None;
        }
        Some(room)
    }

    fn end_of(&mut self, stream: Stream) -> &mut Option<ZoneIndex> {
        match stream {
            Stream::Trace(n) => &mut self.streams[n as usize],
            Stream::Cleaner => &mut self.cleaner.end,
        }
    }

    fn open_zone(&mut self, stream: Stream) -> Option<ZoneIndex> {
        let kept = if stream == Stream::Cleaner { 0 } else { 1 };
        let may_open = self.open_max == 0 || self.open < self.open_max;
        if self.free.len() <= kept || !may_open {
            return None;
        }
        let zone = self.free.pop()?;
        let capacity = self.capacity as usize;
        let entry = self.zone(zone);
        entry.state = LogZoneState::Open;
        entry.blocks = vec![NO_BLOCK; capacity].into();
        *self.end_of(stream) = Some(zone);
        self.open += 1;
        Some(zone)
    }

    /// Starts a write of up to `blocks` blocks of the disk. `None` if there is no room at present.
    pub(crate) fn begin_write(&mut self, stream: u32, block: u64, blocks: u32) -> Option<WritePiece> {
        let room = self.room(Stream::Trace(stream % self.streams.len() as u32), blocks)?;
        let number = self.next_number;
        self.next_number += 1;
        for block in block..block + u64::from(room.blocks) {
            let old = self.map.set(block, Home::Write(number));
            self.leave(old);
        }
        self.account.written += u64::from(room.blocks);
        Some(WritePiece { number, block, room })
    }

    /// Turns the block at the old place into garbage.
    fn leave(&mut self, home: Home) {
        if let Home::At(block) = home {
            let (zone, _) = self.place_of(block);
            self.zone(zone).live -= 1;
        }
    }

    /// Records that the piece was written, from this offset of its zone on. Returns its number, for
    /// the tasks that wait for it.
    pub(crate) fn end_write(&mut self, piece: &WritePiece, offset: u32) -> u64 {
        let Room { zone, blocks, .. } = piece.room;
        for n in 0..blocks {
            let block = piece.block + u64::from(n);
            let at = self.block_of(zone, offset + n);
            let is_newest = self.map.get(block) == Home::Write(piece.number);
            if is_newest {
                self.map.set(block, Home::At(at));
            }
            let entry = self.zone(zone);
            entry.blocks[(offset + n) as usize] = block;
            entry.live += u32::from(is_newest);
        }
        self.ended_in(zone);
        piece.number
    }

    /// Records that a write to `zone` has completed.
    fn ended_in(&mut self, zone: ZoneIndex) {
        let entry = self.zone(zone);
        entry.writes -= 1;
        let is_closed = entry.state == LogZoneState::Full && entry.writes == 0;
        self.open -= u32::from(is_closed);
    }

    /// Returns the places of blocks of the disk, in order. The error is the number of a write in
    /// flight that has to complete first.
    pub(crate) fn find(&self, block: u64, blocks: u64) -> Result<Vec<Extent>, u64> {
        let mut extents: Vec<Extent> = Vec::new();
        for block in block..block + blocks {
            let at = match self.map.get(block) {
                Home::Write(number) => return Err(number),
                Home::None => None,
                Home::At(at) => Some(self.place_of(at)),
            };
            match extents.last_mut() {
                Some(last) if last.at.map(|(zone, offset)| (zone, offset + last.blocks)) == at => {
                    last.blocks += 1
                }
                _ => extents.push(Extent { block, blocks: 1, at }),
            }
        }
        Ok(extents)
    }

    /// Records that a read of this zone is issued.
    pub(crate) fn begin_read(&mut self, zone: ZoneIndex) {
        self.zone(zone).reads += 1;
    }

    pub(crate) fn end_read(&mut self, zone: ZoneIndex) {
        self.zone(zone).reads -= 1;
    }

    /// Discards blocks of the disk.
    pub(crate) fn discard(&mut self, block: u64, blocks: u64) {
        if self.map.is_empty() {
            return;
        }
        for block in block..block + blocks {
            let old = self.map.clear(block);
            self.leave(old);
        }
    }

    /// Discards the whole disk.
    pub(crate) fn discard_all(&mut self) {
        self.map.clear_all();
        self.zones.iter_mut().for_each(|zone| zone.live = 0);
    }

    /// Checks the accounts against the map. Tests call it after every step.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        for (n, zone) in self.zones.iter().enumerate() {
            let zone_of = |n: usize| ZoneIndex(n as u32);
            let is_live = |(offset, &block): (usize, &u64)| {
                let at = self.block_of(zone_of(n), offset as u32);
                block != NO_BLOCK && self.map.get(block) == Home::At(at)
            };
            let live = zone.blocks.iter().enumerate().filter(|b| is_live(*b)).count();
            assert_eq!(live, zone.live as usize, "live blocks of zone {n}");
            assert_eq!(zone.state == LogZoneState::Free, self.free.contains(&zone_of(n)), "zone {n} is free");
        }
    }
}

fn is_limited(info: &DeviceInfo) -> bool {
    info.open_max != 0 || info.active_max != 0
}

/// Maximum number of open zones of the log. 0 means unlimited on a device without limits, and none
/// at all on a limited one.
fn open_max(info: &DeviceInfo, zones: &[ZoneDescriptor]) -> u32 {
    let active = zones.iter().filter(|z| z.condition.is_active()).count() as u32;
    let of_active = if info.active_max == 0 { u32::MAX } else { info.active_max.saturating_sub(active) };
    // The device closes open zones of others if necessary.
    let of_open = if info.open_max == 0 { u32::MAX } else { info.open_max };
    match of_active.min(of_open) {
        u32::MAX => 0,
        limit => limit,
    }
}
