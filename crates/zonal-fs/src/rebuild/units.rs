//! Collects the units in the zones.

use super::Rebuilt;
use crate::drive::Drive;
use crate::format::{Extent, Header, NUMBERS_SKIPPED, Superblock};
use crate::fs::map::Mapped;
use crate::scan::{self, Depth, ScanItem, UnitState};
use crate::waiter::Wait;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::size_of;
use zonal_core::{ZoneDescriptor, ZoneType};

/// A record of a complete unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitRecord {
    pub(super) ino: u64,
    pub(super) block: u64,
    pub(super) size: u64,
    pub(super) number: u64,
    pub(super) sequence: u64,
    pub(super) zone: u32,
    pub(super) unit: u32,
    /// Index in `FoundUnits::paths`.
    path: u32,
    /// Data blocks of the unit.
    unit_blocks: u16,
    /// Data blocks of the unit ahead of the record's.
    skip: u16,
    pub(super) blocks: u16,
    pub(super) born: u16,
}

// Kept small, as there is one for each piece on the drive.
const _: () = assert!(size_of::<UnitRecord>() == 64);

/// Everything found in the zones.
#[derive(Default)]
pub(super) struct FoundUnits {
    /// Records, by zone and block.
    pub(super) entries: Vec<UnitRecord>,
    paths: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u32>,
    /// `Header::since` of all headers: the counter at each opening that left a unit.
    openings: BTreeSet<u64>,
    /// Highest number in any header.
    pub(super) last_number: u64,
    /// Zone, block and header checksum of each unit, ascending.
    headers: Vec<(u32, u32, u32)>,
    /// Highest `Header::begun` of each zone.
    begun: BTreeMap<u32, u64>,
    pub(super) counts: Rebuilt,
}

impl UnitRecord {
    /// The blocks, and their location.
    pub(super) fn mapped(&self) -> Mapped {
        let UnitRecord { block, zone, unit, unit_blocks, skip, blocks, .. } = *self;
        Mapped { block, extent: Extent { zone, unit, unit_blocks, skip, blocks: blocks.into() } }
    }
}

/// Reads all data zones.
pub(super) fn read_all(
    drive: &Drive,
    waiter: &dyn Wait,
    superblock: &Superblock,
    report: &[ZoneDescriptor],
    depth: Depth,
) -> FoundUnits {
    let mut units = FoundUnits::default();
    let is_data = |zone: &&ZoneDescriptor| {
        zone.zone.0 >= superblock.first_zone && zone.zone_type != ZoneType::Conventional
    };
    for zone in report.iter().filter(is_data) {
        let mut found = Vec::new();
        scan::zone(drive, waiter, &superblock.uuid, zone, depth, |one| found.push(one));
        units.take_zone(zone.zone.0, found);
    }
    units
}

impl FoundUnits {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Path of a record's file; empty if its header has none.
    pub(super) fn path(&self, entry: &UnitRecord) -> &[u8] {
        &self.paths[entry.path as usize]
    }

    /// Header checksum of a unit; 0 if there is none.
    pub(super) fn header(&self, zone: u32, unit: u32) -> u32 {
        let place = self.headers.binary_search_by_key(&(zone, unit), |(zone, unit, _)| (*zone, *unit));
        place.map_or(0, |place| self.headers[place].2)
    }

    /// First sequence of a zone since its last reset; 0 without units.
    pub(super) fn begun(&self, zone: u32) -> u64 {
        self.begun.get(&zone).copied().unwrap_or(0)
    }

    /// Adds the units of a zone, except stale ones from before its last reset.
    fn take_zone(&mut self, zone: u32, found: Vec<ScanItem>) {
        let begun = |found: &ScanItem| match found {
            ScanItem::Unit { header, .. } => Some(header.begun),
            _ => None,
        };
        let last = found.iter().filter_map(begun).max();
        self.begun.extend(last.map(|begun| (zone, begun)));
        for one in found {
            match one {
                ScanItem::Unit { header, .. } if Some(header.begun) != last => {
                    self.counts.earlier += 1;
                    self.note(&header);
                }
                other => self.take(zone, other),
            }
        }
    }

    fn take(&mut self, zone: u32, found: ScanItem) {
        match found {
            ScanItem::Garbage { blocks, .. } => self.counts.garbage_blocks += u64::from(blocks),
            ScanItem::Unreadable { blocks, .. } => self.counts.unreadable_blocks += u64::from(blocks),
            ScanItem::Unit { header, state: UnitState::Torn(_), .. } => {
                self.counts.torn += 1;
                self.note(&header);
            }
            ScanItem::Unit { block, header, checksum, state } => {
                self.counts.damaged += u64::from(matches!(state, UnitState::Damaged(_)));
                self.counts.units += 1;
                self.note(&header);
                self.headers.push((zone, block, checksum));
                self.take_unit(zone, block, &header);
            }
        }
    }

    /// Records the numbers in a header, whether or not its data is intact.
    fn note(&mut self, header: &Header) {
        self.openings.insert(header.since);
        let numbers = header.records.iter().map(|record| record.number).chain([header.sequence]);
        self.last_number = numbers.fold(self.last_number, u64::max);
    }

    fn take_unit(&mut self, zone: u32, unit: u32, header: &Header) {
        let mut skip = 0;
        for (record, path) in header.records.iter().zip(&header.paths) {
            let path = self.number_of(path);
            self.entries.push(UnitRecord {
                ino: record.ino,
                block: record.block,
                size: record.size,
                number: record.number,
                sequence: header.sequence,
                zone,
                unit,
                path,
                unit_blocks: header.blocks() as u16,
                skip,
                blocks: record.blocks as u16,
                born: record.born,
            });
            skip += record.blocks as u16;
        }
    }

    fn number_of(&mut self, path: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.paths.len() as u32;
        self.paths.push(path.to_vec());
        self.numbers.insert(path.to_vec(), number);
        number
    }

    /// Removes units that were in no commit at the next opening of the file system.
    pub(super) fn drop_uncommitted(&mut self) {
        let openings = std::mem::take(&mut self.openings);
        let is_known = |entry: &UnitRecord| {
            let since = openings.range(..=entry.sequence).next_back();
            since.is_none_or(|since| entry.sequence - since >= NUMBERS_SKIPPED)
        };
        let mut gone = BTreeSet::new();
        self.entries.retain(|entry| {
            let stays = is_known(entry);
            if !stays {
                gone.insert((entry.zone, entry.unit));
            }
            stays
        });
        self.counts.uncommitted = gone.len() as u64;
        self.counts.units -= self.counts.uncommitted;
    }
}
