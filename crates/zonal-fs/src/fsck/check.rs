//! Checks of a file system.

use super::{Absent, Finding};
use crate::BLOCK_SECTORS;
use crate::drive::Drive;
use crate::dump::{Row, RowKind};
use crate::format::{
    Account, Attributes, Entry, Extent, FILES_END, FileKind, Position, Run, Superblock, UnitError, key,
    positioned,
};
use crate::fs::files::{FILES, FILES_AS_OF};
use crate::fs::inspect::{self, HeaderSums};
use crate::fs::names::named;
use crate::fs::number::generation;
use crate::fs::{FsError, ROOT};
use crate::store::Rows;
use crate::store::backend::Stop;
use crate::store::backend::log::has_empty_zone;
use crate::superblocks;
use crate::waiter::Wait;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use zonal_core::{ZoneCondition, ZoneDescriptor};

/// Scope of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// Read and verify all data.
    pub data: bool,
}

zonal_core::setters! {
    Options
    /// True to read and verify all data.
    with_data data: bool;
}

/// An extent of a file.
#[derive(Clone, Copy)]
struct FileExtent {
    ino: u64,
    block: u64,
    extent: Extent,
}

/// Blocks of a file, as recorded in the runs of a zone.
struct RunSpan {
    /// First block in the zone.
    place: u32,
    /// First block of the file.
    block: u64,
    blocks: u32,
}

impl RunSpan {
    fn continues_with(&self, next: &RunSpan) -> bool {
        self.place + self.blocks == next.place && self.block + u64::from(self.blocks) == next.block
    }

    fn holds(&self, span: &RunSpan) -> bool {
        let skip = span.place - self.place;
        skip + span.blocks <= self.blocks && self.block + u64::from(skip) == span.block
    }
}

/// Blocks of a file in one zone, sorted by place.
///
/// A power cut after the reset of a zone and before the next commit leaves runs of the zone's
/// previous contents. They can lie among the runs of newer data, even of the same file.
struct RunSpans {
    pieces: Vec<RunSpan>,
    /// For each piece, the largest end of it and all pieces ahead of it.
    ends: Vec<u32>,
}

impl RunSpans {
    fn new(mut pieces: Vec<RunSpan>) -> RunSpans {
        pieces.sort_by_key(|piece| piece.place);
        let mut end = 0;
        let ends = pieces.iter().map(|piece| {
            end = end.max(piece.place + piece.blocks);
            end
        });
        RunSpans { ends: ends.collect(), pieces }
    }

    /// True if one of the pieces contains `span`.
    fn hold(&self, span: &RunSpan) -> bool {
        let before = self.pieces.partition_point(|piece| piece.place <= span.place);
        let may_hold = |at: &usize| self.ends[*at] >= span.place + span.blocks;
        (0..before).rev().take_while(may_hold).any(|at| self.pieces[at].holds(span))
    }
}

/// Contents of all rows, read once.
#[derive(Default)]
struct Snapshot {
    files: BTreeMap<u64, Attributes>,
    entries: Vec<(u64, Vec<u8>, Entry)>,
    positions: BTreeMap<(u64, Position), Vec<u8>>,
    held: Vec<FileExtent>,
    runs: Vec<(u32, u32, Run)>,
    accounts: BTreeMap<u32, Account>,
    orphans: BTreeSet<u64>,
    /// Symbolic links that have a target.
    links: BTreeSet<u64>,
    /// Files that have extended attributes, or data in rows.
    attributed: BTreeSet<u64>,
    next: u64,
    /// Last opening of the file system according to the sequence counter.
    opening: u32,
    findings: Vec<Finding>,
}

/// Checks a file system that is not mounted, and returns the findings in order.
///
/// # Errors
/// If the store or the drive cannot be read at all.
pub fn check(
    rows: &Rows,
    superblock: &Superblock,
    drive: &Drive,
    waiter: &dyn Wait,
    options: Options,
) -> Result<Vec<Finding>, FsError> {
    let report = drive.report(waiter)?;
    let mut seen = Snapshot::of(rows)?;
    seen.check_names();
    seen.check_positions();
    seen.check_blocks();
    seen.check_accounts(&report);
    seen.check_places(superblock, &report);
    seen.check_shared();
    seen.check_runs();
    seen.check_writers(rows, drive, waiter, &report);
    if options.data {
        seen.check_data(superblock, drive, waiter)?;
    }
    if seen.findings.is_empty() {
        seen.check_count(rows)?;
    }
    seen.findings.sort();
    seen.findings.dedup();
    Ok(seen.findings)
}

impl Snapshot {
    fn of(rows: &Rows) -> Result<Snapshot, FsError> {
        let mut seen = Snapshot::default();
        let next = rows.get(&key::counter("ino"))?;
        seen.next = next.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes);
        if seen.next > FILES_END {
            seen.next = 0;
        }
        let sequence = rows.get(&key::counter("sequence"))?;
        let sequence = sequence.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes);
        seen.opening = generation(sequence);
        seen.scan(rows, key::inodes(), |seen, key, value| {
            seen.files.insert(key::parts(key).0, Attributes::decode(key, value).ok()?);
            Some(())
        })?;
        seen.scan(rows, key::all_entries(), |seen, key, value| {
            let (parent, name) = key::parts(key);
            seen.entries.push((parent, name.to_vec(), named(key, value).ok()?));
            Some(())
        })?;
        seen.scan(rows, key::all_positions(), |seen, key, value| {
            seen.positions.insert(key::position_parts(key), positioned(key, value).ok()?.to_vec());
            Some(())
        })?;
        seen.scan(rows, key::all_extents(), |seen, key, value| {
            let (ino, block) = key::extent_parts(key);
            seen.held.push(FileExtent { ino, block, extent: Extent::decode(key, value).ok()? });
            Some(())
        })?;
        seen.scan(rows, key::all_runs(), |seen, key, value| {
            let (zone, at) = key::run_parts(key);
            seen.runs.push((zone, at, Run::decode(key, value).ok()?));
            Some(())
        })?;
        seen.scan(rows, key::zones(), |seen, key, value| {
            seen.accounts.insert(key::parts(key).0 as u32, Account::decode(key, value).ok()?);
            Some(())
        })?;
        seen.scan(rows, key::orphans(), |seen, key, _| {
            seen.orphans.insert(key::parts(key).0);
            Some(())
        })?;
        seen.scan(rows, key::tails(), |seen, key, _| {
            seen.attributed.insert(key::parts(key).0);
            Some(())
        })?;
        seen.scan(rows, key::targets(), |seen, key, _| {
            seen.links.insert(key::parts(key).0);
            Some(())
        })?;
        seen.scan(rows, key::all_attributes(), |seen, key, _| {
            seen.attributed.insert(key::parts(key).0);
            Some(())
        })?;
        Ok(seen)
    }

    /// Reads a range of rows. A row that cannot be decoded is a finding.
    fn scan(
        &mut self,
        rows: &Rows,
        (from, end): (Vec<u8>, Vec<u8>),
        take: impl Fn(&mut Snapshot, &[u8], &[u8]) -> Option<()>,
    ) -> Result<(), FsError> {
        rows.scan(&from, &end, |key, value| {
            // A row whose key has the wrong length is never found by a lookup.
            let is_sound = Row::of(key, value).kind() != RowKind::Damaged;
            if !is_sound || take(self, key, value).is_none() {
                self.findings.push(Finding::DamagedRow { key: key.to_vec() });
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn check_names(&mut self) {
        let mut names: BTreeMap<u64, u32> = BTreeMap::new();
        let mut below: BTreeMap<u64, u32> = BTreeMap::new();
        let is_directory = |ino| self.files.get(&ino).is_some_and(|file| file.kind == FileKind::Directory);
        // A repair replaces a root that is not a directory, and the new root keeps its names.
        if !is_directory(ROOT) {
            self.findings.push(Finding::NoName { ino: ROOT });
        }
        for (parent, name, Entry { ino, kind: said, .. }) in &self.entries {
            let (parent, ino, name) = (*parent, *ino, name.clone());
            if parent != ROOT && !is_directory(parent) {
                self.findings.push(Finding::NoDirectory { parent, name });
                continue;
            }
            let Some(file) = self.files.get(&ino) else {
                self.findings.push(Finding::NoSuchFile { parent, name, ino });
                continue;
            };
            *names.entry(ino).or_default() += 1;
            *below.entry(parent).or_default() += u32::from(file.kind == FileKind::Directory);
            if file.kind != *said {
                self.findings.push(Finding::WrongKind { parent, name, said: *said, kind: file.kind });
            }
        }
        for (&ino, file) in self.files.iter().filter(|(ino, _)| **ino != ROOT || is_directory(ROOT)) {
            let own = names.get(&ino).copied().unwrap_or(0);
            let is_known = ino == ROOT || self.orphans.contains(&ino);
            let found = match file.kind {
                FileKind::Directory => 2 + below.get(&ino).copied().unwrap_or(0),
                _ => own,
            };
            if own == 0 && !is_known {
                self.findings.push(Finding::NoName { ino });
            } else if file.links != found && !self.orphans.contains(&ino) {
                self.findings.push(Finding::Links { ino, links: file.links, found });
            }
        }
        // The next opening deletes these rows of an orphan.
        let attributed = self.attributed.difference(&self.orphans).copied().collect();
        let is_nothing = |ino: &&u64| !self.files.contains_key(ino);
        let nothing: Vec<u64> = self.links.union(&attributed).filter(is_nothing).copied().collect();
        self.findings.extend(nothing.into_iter().map(|ino| Finding::NoFile { ino }));
        let leads_nowhere =
            |(ino, file): &(&u64, &Attributes)| file.kind == FileKind::Symlink && !self.links.contains(ino);
        let nowhere = self.files.iter().filter(leads_nowhere).map(|(&ino, _)| Finding::NoTarget { ino });
        self.findings.extend(nowhere);
        let largest = self.files.keys().next_back().copied().unwrap_or(ROOT);
        if self.next <= largest {
            self.findings.push(Finding::NextFile { next: self.next, largest });
        }
        let largest = self.files.values().map(|file| file.generation).max().unwrap_or(0);
        if self.opening < largest {
            self.findings.push(Finding::Opening { last: self.opening, largest });
        }
    }

    /// Compares names with positions, and the next position of each directory with those in use.
    fn check_positions(&mut self) {
        let mut largest: BTreeMap<u64, Position> = BTreeMap::new();
        for ((parent, position), name) in &self.positions {
            largest.insert(*parent, *position);
            let place = self.entries.binary_search_by(|(of, other, _)| (of, other).cmp(&(parent, name)));
            if place.map_or(true, |place| self.entries[place].2.position != *position) {
                let (parent, position, name) = (*parent, position.0, name.clone());
                self.findings.push(Finding::PositionOfNothing { parent, position, name });
            }
        }
        for (parent, name, Entry { ino, position, .. }) in &self.entries {
            let is_directory = *parent == ROOT
                || self.files.get(parent).is_some_and(|file| file.kind == FileKind::Directory);
            // A name without a file, or outside a directory, is removed by the repair.
            let stays = is_directory && self.files.contains_key(ino);
            if stays && self.positions.get(&(*parent, *position)) != Some(name) {
                let (parent, position, name) = (*parent, position.0, name.clone());
                self.findings.push(Finding::NoPosition { parent, position, name });
            }
            largest.entry(*parent).and_modify(|most| *most = (*most).max(*position)).or_insert(*position);
        }
        for (parent, largest) in largest {
            let Some(file) = self.files.get(&parent).filter(|file| file.kind == FileKind::Directory) else {
                continue;
            };
            if file.next_position <= largest {
                let (next, largest) = (file.next_position.0, largest.0);
                self.findings.push(Finding::NextPosition { parent, next, largest });
            }
        }
    }

    /// Compares the block count of each file with its extents.
    fn check_blocks(&mut self) {
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for FileExtent { ino, extent, .. } in &self.held {
            *found.entry(*ino).or_default() += u64::from(extent.blocks);
        }
        for (&ino, file) in self.files.iter().filter(|(_, file)| file.kind == FileKind::File) {
            let (blocks, found) = (file.blocks, found.get(&ino).copied().unwrap_or(0));
            if blocks != found {
                self.findings.push(Finding::Blocks { ino, blocks, found });
            }
        }
    }

    /// Checks that the file and the place of each extent exist. Extents and runs without a place
    /// are dropped, because their length may be any number and later checks rely on it.
    fn check_places(&mut self, superblock: &Superblock, report: &[ZoneDescriptor]) {
        let mut previous: Option<FileExtent> = None;
        for held in &self.held {
            let FileExtent { ino, block, extent } = *held;
            let overlaps = previous.filter(|p| p.ino == ino && p.block + u64::from(p.extent.blocks) > block);
            if let Some(p) = overlaps {
                self.findings.push(Finding::Overlap { ino, block: p.block, next: block });
            }
            previous = Some(*held);
            match self.files.get(&ino) {
                // The next opening frees the data of an orphan.
                None if self.orphans.contains(&ino) => {}
                None => self.findings.push(Finding::NoAttributes { ino }),
                Some(file) if file.kind != FileKind::File => self.findings.push(Finding::NoFile { ino }),
                Some(_) => {}
            }
            let (blocks, zone) = (extent.blocks, extent.zone);
            if extent.is_lost() {
                self.findings.push(Finding::Gone { ino, block, blocks });
            } else if let Some(why) = absent(&extent, superblock, report) {
                self.findings.push(Finding::Nowhere { ino, block, blocks, zone, why });
            }
        }
        self.held.retain(|held| absent(&held.extent, superblock, report).is_none());
        self.runs.retain(|(zone, at, run)| {
            let (zone, unit, unit_blocks, blocks) = (*zone, *at, run.unit_blocks, run.blocks());
            let whole = Extent { zone, unit, unit_blocks, skip: 0, blocks };
            blocks > 0 && absent(&whole, superblock, report).is_none()
        });
    }

    /// Finds blocks used by several extents.
    fn check_shared(&mut self) {
        let mut spans: Vec<(u32, u32, u32, u64, u64)> = Vec::new();
        for FileExtent { ino, block, extent } in &self.held {
            for span in inspect::spans(*ino, *block, extent) {
                spans.push((extent.zone, span.0, span.1, *ino, *block + span.2));
            }
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            let [(zone, at, blocks, other, _), (next_zone, next_at, _, ino, block)] = *pair else { continue };
            if zone == next_zone && next_at < at + blocks {
                self.findings.push(Finding::Shared { ino, block, zone, at: next_at, other });
            }
        }
    }

    /// Finds extents that are missing from the runs of their zones.
    fn check_runs(&mut self) {
        let known = self.known();
        for FileExtent { ino, block, extent } in &self.held {
            let pieces = known.get(&(*ino, extent.zone));
            for (place, blocks, offset) in inspect::spans(*ino, *block, extent) {
                let span = RunSpan { place, block: block + offset, blocks };
                if !pieces.is_some_and(|pieces| pieces.hold(&span)) {
                    let (ino, zone) = (*ino, extent.zone);
                    self.findings.push(Finding::Unknown { ino, block: span.block, blocks, zone });
                }
            }
        }
    }

    /// Collects the pieces of each file in each zone from the runs. Adjacent pieces are joined,
    /// because an extent may span several.
    fn known(&self) -> BTreeMap<(u64, u32), RunSpans> {
        let mut known: BTreeMap<(u64, u32), Vec<RunSpan>> = BTreeMap::new();
        for (zone, at, run) in &self.runs {
            let mut skip = 0;
            for piece in &run.pieces {
                let (zone, unit, unit_blocks) = (*zone, *at, run.unit_blocks);
                let whole = Extent { zone, unit, unit_blocks, skip: 0, blocks: skip + piece.blocks };
                let extent = whole.part(skip..skip + piece.blocks);
                skip += piece.blocks;
                let pieces = known.entry((piece.ino, zone)).or_default();
                for (place, blocks, offset) in inspect::spans(piece.ino, piece.block, &extent) {
                    let next = RunSpan { place, block: piece.block + offset, blocks };
                    match pieces.last_mut() {
                        Some(last) if last.continues_with(&next) => last.blocks += blocks,
                        _ => pieces.push(next),
                    }
                }
            }
        }
        known.into_iter().map(|(of, pieces)| (of, RunSpans::new(pieces))).collect()
    }

    fn check_accounts(&mut self, report: &[ZoneDescriptor]) {
        let mut files: BTreeMap<u32, u32> = BTreeMap::new();
        for held in &self.held {
            let files = files.entry(held.extent.zone).or_default();
            *files = files.saturating_add(held.extent.blocks);
        }
        for zone in 0..report.len() as u32 {
            let account = self.accounts.get(&zone).map_or(0, |account| account.used);
            let files = files.get(&zone).copied().unwrap_or(0);
            if files > 0 && report[zone as usize].condition == ZoneCondition::ReadOnly {
                self.findings.push(Finding::ReadOnlyZone { zone, blocks: files });
            }
            if account != files {
                self.findings.push(Finding::Account { zone, account, files });
            }
        }
    }

    /// Compares the count of files with the number of their rows, if the last commit maintained it.
    /// A repair of any other finding recounts anyway.
    fn check_count(&mut self, rows: &Rows) -> Result<(), FsError> {
        let counter = |name| {
            let row = rows.get(&key::counter(name))?;
            Ok::<_, FsError>(row.and_then(|row| row.try_into().ok()).map(u64::from_le_bytes))
        };
        let sequence = counter("sequence")?.unwrap_or(0);
        let (files, found) = (counter(FILES)?.unwrap_or(0), self.files.len() as u64);
        if counter(FILES_AS_OF)? == Some(sequence) && files != found {
            self.findings.push(Finding::Files { files, found });
        }
        Ok(())
    }

    /// Finds reasons why a mount could not change the file system.
    fn check_writers(&mut self, rows: &Rows, drive: &Drive, waiter: &dyn Wait, report: &[ZoneDescriptor]) {
        // Rows outside the drive's store are not affected.
        let Some(log) = rows.backend().log() else { return };
        self.findings.extend(log.stop().map(|why| Finding::NoChanges { why }));
        let Ok(found) = superblocks::find(drive, waiter) else { return };
        let has_free = has_empty_zone(drive, waiter, &found.copy.anchor);
        if !found.takes_update(report, has_free) {
            self.findings.push(Finding::NoChanges { why: Stop::Superblock });
        }
    }

    /// Reads and verifies all data that has a valid place.
    fn check_data(
        &mut self,
        superblock: &Superblock,
        drive: &Drive,
        waiter: &dyn Wait,
    ) -> Result<(), FsError> {
        let zones = drive.volume().info().geometry.zones();
        let accounts: Vec<_> =
            (0..zones).map(|zone| self.accounts.get(&zone).copied().unwrap_or_default()).collect();
        let mut headers = HeaderSums::default();
        self.runs.iter().for_each(|(zone, at, run)| headers.add(*zone, *at, run));
        let reader = inspect::Reader::new(drive.volume().clone(), superblock.clone(), &accounts, headers);
        for FileExtent { ino, block, extent } in &self.held {
            for (at, error) in reader.verify(waiter, *ino, *block, extent)? {
                if let FsError::Unit { zone, error: UnitError::Beginning(units), .. } = error {
                    let account = self.accounts.get(&zone).map_or(0, |account| account.begun);
                    self.findings.push(Finding::Beginning { zone, account, units });
                    continue;
                }
                self.findings.push(Finding::Data { ino: *ino, block: at, what: error.to_string() });
            }
        }
        Ok(())
    }
}

/// Returns the reason why the data of an extent cannot be at its place.
fn absent(extent: &Extent, superblock: &Superblock, report: &[ZoneDescriptor]) -> Option<Absent> {
    let Some(zone) = report.get(extent.zone as usize) else { return Some(Absent::NoZone) };
    if zone.zone.0 < superblock.first_zone {
        return Some(Absent::Reserved);
    }
    let end = u64::from(extent.place(extent.blocks - 1).block() + 1) * u64::from(BLOCK_SECTORS);
    let written = match zone.condition {
        ZoneCondition::Offline => return Some(Absent::Offline),
        ZoneCondition::Full | ZoneCondition::ReadOnly => zone.capacity.0,
        _ => zone.write_pointer.map_or(0, |pointer| pointer.0 - zone.start.0),
    };
    (end > written).then_some(Absent::BeyondPointer)
}
