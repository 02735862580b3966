//! A disk laid on zones as a log: what a trace of an ordinary disk needs to run on a zoned one.
//!
//! Writes are appended to open zones, whatever their address. A map says where each block of the disk is; the blocks that
//! were overwritten are garbage, which stays until its zone is cleaned: what is left in it is moved to the end of the
//! log, and the zone is reset. The zone with least left is cleaned first. The module decides places and keeps account; it
//! sends nothing.
//!
//! # Invariants
//! - A block of the map is nowhere, with a write that has not ended, or at one block of the device that is below its
//!   zone's pointer. Of several writes of a block under way the last one counts, in whatever order they end.
//! - `live` of a zone is the number of its blocks that the map points at. It is exact once the zone's writes have ended,
//!   and only then may it be cleaned.
//! - A zone is reset once nothing in it is live and no read of it is under way.
//! - The last free zone is the cleaner's. So cleaning can always continue: with it and the reserve, some full zone
//!   has garbage while the disk has no more blocks than it was promised.
//!
//! # Why a write has a number before it has a place
//! With native zone append the device chooses the place. Reads of a block whose write has not ended wait for that write,
//! in every mode, so no reader needs the place before.

mod clean;
mod map;
#[cfg(test)]
mod tests;

pub(crate) use clean::{Move, Run};
pub(crate) use map::Home;
use map::Map;
use zonal_core::{Sector, ZoneCondition, ZoneDescriptor, ZoneIndex, ZoneType};
use zonal_io::device::DeviceInfo;

/// Share of the zones kept in reserve by default, in percent: what SSDs keep.
pub const RESERVE_PERCENT: u32 = 7;

/// No block of the disk.
const NO_BLOCK: u64 = u64::MAX;

/// How a disk is laid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Zones that the trace's writes go to in turn.
    pub open_zones: u32,
    /// Zones that the disk's size leaves to the log; `None`: 7 in 100, and no fewer than it needs.
    pub reserve_zones: Option<u32>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { open_zones: 1, reserve_zones: None }
    }
}

/// Why a disk cannot be laid on a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Too few zones are empty.
    #[error("{empty} empty zones, and a log needs {needed}; --reset empties all")]
    Zones {
        /// Empty zones.
        empty: u32,
        /// Zones that are needed, the reserve included.
        needed: u32,
    },
    /// The device has too few zones for a log, empty or not.
    #[error(
        "{zones} zones that can hold a log, and it needs {needed}, its reserve included: the drive is too small"
    )]
    TooSmall {
        /// Sequential zones of full size.
        zones: u32,
        /// Zones that are needed, the reserve included.
        needed: u32,
    },
    /// The reserve is too small for the cleaner.
    #[error("{reserve} zones in reserve; with {open} open zones a log needs {needed}")]
    Reserve {
        /// What was asked for.
        reserve: u32,
        /// Open zones of the trace.
        open: u32,
        /// What is needed.
        needed: u32,
    },
    /// The limit of open or active zones is too small.
    #[error("{open} open zones and the cleaner's need {}, but {left} can be open or active", open + 1)]
    Limit {
        /// Open zones of the trace.
        open: u32,
        /// What the device's limits leave.
        left: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogZoneState {
    /// Not the log's: conventional, or with data that it has not written.
    Foreign,
    Free,
    /// Some stream writes to it.
    Open,
    Full,
    /// What is left is being moved.
    Cleaning,
}

/// A zone of the log.
struct Zone {
    state: LogZoneState,
    /// Blocks given to writes.
    given: u32,
    live: u32,
    writes: u32,
    reads: u32,
    /// Which block of the disk is in each block of the zone.
    blocks: Box<[u64]>,
}

/// Who writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stream {
    Trace(u32),
    Cleaner,
}

/// Room in a zone for a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) zone: ZoneIndex,
    /// In blocks from the zone's start.
    pub(crate) offset: u32,
    pub(crate) blocks: u32,
}

/// A write of the trace, or a piece of one, under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WritePiece {
    number: u64,
    /// First block of the disk.
    pub(crate) block: u64,
    pub(crate) room: Room,
}

/// Where consecutive blocks of the disk are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// First block of the disk.
    pub(crate) block: u64,
    pub(crate) blocks: u32,
    /// `None`: nowhere.
    pub(crate) at: Option<(ZoneIndex, u32)>,
}

/// What the log did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Account {
    pub(crate) written: u64,
    pub(crate) moved: u64,
    pub(crate) cleaned: u64,
}

/// The log.
pub(crate) struct Log {
    zones: Box<[Zone]>,
    map: Map,
    /// Blocks of a zone.
    capacity: u32,
    zone_blocks: u64,
    block_sectors: u32,
    /// Free zones, the next one to be taken last.
    free: Vec<ZoneIndex>,
    streams: Box<[Option<ZoneIndex>]>,
    cleaner: clean::Cleaner,
    /// Most zones that may have a pointer that moves; 0: any number.
    open_max: u32,
    open: u32,
    next_number: u64,
    /// Blocks of the disk.
    pub(crate) disk_blocks: u64,
    pub(crate) log_zones: u32,
    pub(crate) reserve_zones: u32,
    pub(crate) account: Account,
}

/// Zones in reserve of `empty` ones.
fn reserve_of(options: LogOptions, empty: u32) -> Result<u32, LogError> {
    let open = options.open_zones.max(1);
    let needed = 2 * open + 3;
    let share = (u64::from(empty) * u64::from(RESERVE_PERCENT)).div_ceil(100) as u32;
    let reserve = options.reserve_zones.unwrap_or(share.max(needed));
    if reserve < needed { Err(LogError::Reserve { reserve, open, needed }) } else { Ok(reserve) }
}

/// Why fewer than `needed` zones are empty: those that could be are too few, or hold data.
fn too_few<'a>(zones: impl Iterator<Item = &'a ZoneDescriptor>, empty: u32, needed: u32) -> LogError {
    let is_dead =
        |z: &&ZoneDescriptor| matches!(z.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline);
    let zones = zones.filter(|z| !is_dead(z)).count() as u32;
    match zones < needed {
        true => LogError::TooSmall { zones, needed },
        false => LogError::Zones { empty, needed },
    }
}

impl Log {
    /// A log on the empty zones of a device.
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
            return Err(too_few(zones.iter().filter(can_hold), empty, reserve + 1));
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

    /// Room for up to `want` blocks at a stream's end. `None`: there is none until something ends, or a zone is cleaned.
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

    /// Begins to write up to `blocks` blocks of the disk. `None`: there is no room now.
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

    /// What was there is garbage.
    fn leave(&mut self, home: Home) {
        if let Home::At(block) = home {
            let (zone, _) = self.place_of(block);
            self.zone(zone).live -= 1;
        }
    }

    /// The piece has been written, from this offset of its zone on; its number, for the tasks that wait for it.
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

    /// A write to `zone` has ended.
    fn ended_in(&mut self, zone: ZoneIndex) {
        let entry = self.zone(zone);
        entry.writes -= 1;
        let is_closed = entry.state == LogZoneState::Full && entry.writes == 0;
        self.open -= u32::from(is_closed);
    }

    /// Where blocks of the disk are, in order. An error is the number of a write under way that has to end first.
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

    /// A read of this zone goes out.
    pub(crate) fn begin_read(&mut self, zone: ZoneIndex) {
        self.zone(zone).reads += 1;
    }

    pub(crate) fn end_read(&mut self, zone: ZoneIndex) {
        self.zone(zone).reads -= 1;
    }

    /// Blocks of the disk are needed no more.
    pub(crate) fn discard(&mut self, block: u64, blocks: u64) {
        if self.map.is_empty() {
            return;
        }
        for block in block..block + blocks {
            let old = self.map.clear(block);
            self.leave(old);
        }
    }

    /// Nothing of the disk is needed any more.
    pub(crate) fn discard_all(&mut self) {
        self.map.clear_all();
        self.zones.iter_mut().for_each(|zone| zone.live = 0);
    }

    /// Checks the books against the map: for tests, after every step.
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

/// How many zones of the log may be open at once; 0 is any number, or none where there is a limit.
fn open_max(info: &DeviceInfo, zones: &[ZoneDescriptor]) -> u32 {
    let active = zones.iter().filter(|z| z.condition.is_active()).count() as u32;
    let of_active = if info.active_max == 0 { u32::MAX } else { info.active_max.saturating_sub(active) };
    // Zones of others that are open are closed by the device when it needs to.
    let of_open = if info.open_max == 0 { u32::MAX } else { info.open_max };
    match of_active.min(of_open) {
        u32::MAX => 0,
        limit => limit,
    }
}
