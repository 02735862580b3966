//! Finds the copies of the superblock on a drive, and writes them in turn.
//!
//! Each update writes two equal copies, one block each. On a drive with conventional zones, updates
//! alternate between blocks 0 and 1 and blocks 2 and 3. On other drives, they are appended to one
//! of two *homes*: sequential zones, zones 0 and 1 at first. When a home is full, the next update
//! goes to the other one, and only after its flush is the first one reset.
//!
//! # A home that cannot be written
//! The lowest free zone replaces it, and the copies in the other home name the new one. A search
//! for copies starts at zones 0 and 1 and follows the names.
//!
//! # Damage is not mistaken for age
//! The newest copy is valid. In a home, each block below the write pointer must be a copy or
//! zeroes. Any other block after the last copy may have been a newer copy, and is an error. In
//! conventional blocks a torn update is indistinguishable from damage. So the store starts writing
//! a zone only after two updates have named it: the older of the two then names all zones in use.
//!
//! # Active zones
//! A partly written home counts as active. So a drive without conventional zones has to allow
//! [`ACTIVE_MIN`] active zones.

use crate::drive::{Drive, is_lost as is_lost_answer, is_zone_limit_exceeded};
use crate::format::{Anchor, Metadata, STORE_ZONES_MAX, Superblock, SuperblockCopy, SuperblockError, Uuid};
use crate::make::MakeError;
use crate::space::open::{ACTIVE_MIN, HOMES, LimitError, OPEN_MIN};
use crate::store::backend::SegmentId;
use crate::store::backend::log::{begun, plan_pieces};
use crate::waiter::Wait;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::collections::BTreeSet;
use zonal_core::{DeviceError, Op, RequestError, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::Volume;

/// Number of equal copies that an update writes.
const TWINS: u32 = 2;

/// Blocks of the conventional zones reserved for copies.
pub const COPY_BLOCKS: u32 = 2 * TWINS;

/// Attempts to write an update in one place.
const TRIES_MAX: u32 = 8;

/// Maximum number of written zones that are searched for copies if zones 0 and 1 hold something
/// else. With more zones, a disk would take minutes only to find another owner's data.
const SEARCHED_MAX: usize = 4096;

/// Maximum number of homes followed by one search. Cycles are detected separately.
const HOMES_MAX: usize = 64;

/// Number of consecutive blocks without a copy after which the search of a home stops.
const GAP_MAX: u32 = 16;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Refuses a drive with too few zones for the file system of `superblock`, be it new or existing.
/// Without this check an update could find no active zone, or overwrite the only copy.
///
/// # Errors
/// [`LimitError`] if a limit is too low.
pub(crate) fn check_zones(volume: &Volume, superblock: &Superblock) -> Result<(), LimitError> {
    let info = volume.info();
    let is_conventional = info.geometry.conventional_zones() > 0;
    let needed = match superblock.metadata {
        _ if !is_conventional => ACTIVE_MIN,
        // The store needs one more.
        Metadata::Logged => OPEN_MIN + 1,
        Metadata::Conventional | Metadata::Beside => OPEN_MIN,
    };
    match [info.open_max, info.active_max].into_iter().filter(|max| *max > 0).min() {
        Some(limit) if limit < needed => Err(LimitError::Active { limit, needed }),
        _ if !is_conventional && superblock.first_zone < HOMES => {
            Err(LimitError::Homes { homes: superblock.first_zone })
        }
        _ => Ok(()),
    }
}

/// Destination of the next update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Pair 0 or 1 of the conventional blocks.
    Turn(u32),
    /// This block of home 0 or 1; `None` if the home has to be reset first.
    Home(usize, Option<u32>),
}

/// Result of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocatedCopy {
    /// The newest copy.
    pub copy: SuperblockCopy,
    next: Next,
}

/// A block that may hold a copy of the superblock.
#[derive(Debug)]
pub struct Candidate {
    /// Zone of the block.
    pub zone: ZoneIndex,
    /// Block number in the zone.
    pub block: u32,
    /// The copy, or the reason why there is none.
    pub found: Result<SuperblockCopy, MakeError>,
}

/// Finds the newest copy.
///
/// # Errors
/// [`MakeError::Superblock`] if there is none; [`MakeError::DamagedSuperblock`] if a damaged block
/// may have been a newer copy.
pub fn find(drive: &Drive, waiter: &dyn Wait) -> Result<LocatedCopy, MakeError> {
    let report = drive.report(waiter)?;
    let mut candidates = candidates(drive, waiter, &report);
    // A block that the drive failed to read may hold the newest copy.
    let is_open =
        |copy: &Candidate| matches!(&copy.found, Err(MakeError::Drive(answer)) if !is_lost_answer(answer));
    let open = candidates.iter().position(is_open);
    if let Some(Err(error)) = open.map(|place| candidates.swap_remove(place).found) {
        return Err(error);
    }
    let is_conventional = report[0].condition == ZoneCondition::NotWp;
    if is_conventional {
        return find_in_turns(candidates);
    }
    let first = find_in_homes(candidates, &report);
    let is_searched = match &first {
        Ok(found) => may_be_elsewhere(found, &report),
        Err(MakeError::Superblock(SuperblockError::Version(_)) | MakeError::DamagedSuperblock { .. }) => {
            false
        }
        Err(_) => {
            let is_at_a_loss =
                report[..2.min(report.len())].iter().all(|zone| is_lost(zone) || !is_written(zone));
            is_at_a_loss || report.iter().filter(|zone| is_written(zone)).count() <= SEARCHED_MAX
        }
    };
    if !is_searched {
        return first;
    }
    let copies = search_homes(drive, waiter, &report);
    if copies.is_empty() { first } else { find_in_homes(copies, &report) }
}

/// Returns damaged blocks that a later opening may need: those in conventional zones, or those of
/// the newest update in a home. A power cut in the middle of an update leaves such blocks, and
/// later updates overwrite them.
///
/// # Errors
/// As for [`find`].
pub fn damaged(drive: &Drive, waiter: &dyn Wait) -> Result<Vec<Candidate>, MakeError> {
    let report = drive.report(waiter)?;
    let newest = find(drive, waiter)?.copy.anchor.copy;
    let copies = candidates(drive, waiter, &report);
    let is_newest = |copy: &Candidate| copy.found.as_ref().is_ok_and(|found| found.anchor.copy == newest);
    let update = copies.iter().find(|copy| is_newest(copy)).map(|copy| (copy.zone, copy.block / TWINS));
    let is_conventional = report[0].condition == ZoneCondition::NotWp;
    let is_needed = |copy: &Candidate| is_conventional || Some((copy.zone, copy.block / TWINS)) == update;
    Ok(copies.into_iter().filter(|copy| copy.found.is_err() && is_needed(copy)).collect())
}

/// True if the zone can no longer be written.
fn is_lost(zone: &ZoneDescriptor) -> bool {
    matches!(zone.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline)
}

fn is_written(zone: &ZoneDescriptor) -> bool {
    crate::scan::written(zone) > 0
}

/// True if a newer copy may be in a home that no copy names yet. That is possible if the current
/// home cannot take another update, and the other one is read-only, offline, or was written without
/// a valid newer copy.
fn may_be_elsewhere(found: &LocatedCopy, report: &[ZoneDescriptor]) -> bool {
    let Next::Home(home, end) = found.next else { return false };
    let other = &report[found.copy.anchor.homes[1 - home].0 as usize];
    end.is_none() && (is_lost(other) || is_written(other))
}

/// Searches the start of each written zone for copies.
fn search_homes(drive: &Drive, waiter: &dyn Wait, report: &[ZoneDescriptor]) -> Vec<Candidate> {
    let mut all = Vec::new();
    for zone in report.iter().filter(|zone| is_written(zone)) {
        let copies = read(drive, waiter, zone, crate::scan::written(zone), TWINS);
        if copies.iter().any(|candidate| candidate.found.is_ok()) {
            all.extend(copies);
        }
    }
    all
}

/// Reads each block that may hold a copy: the first blocks of the conventional zones, or the blocks
/// below the write pointers of all homes.
pub fn candidates(drive: &Drive, waiter: &dyn Wait, report: &[ZoneDescriptor]) -> Vec<Candidate> {
    if report[0].condition == ZoneCondition::NotWp {
        return read(drive, waiter, &report[0], COPY_BLOCKS, COPY_BLOCKS);
    }
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    let mut ahead: Vec<ZoneIndex> = (0..2).map(ZoneIndex).collect();
    while let Some(zone) = ahead.pop() {
        let Some(described) = report.get(zone.0 as usize) else { continue };
        if seen.len() == HOMES_MAX || !seen.insert(zone) {
            continue;
        }
        let copies = read(drive, waiter, described, crate::scan::written(described), GAP_MAX);
        ahead.extend(copies.iter().filter_map(|c| c.found.as_ref().ok()).flat_map(|copy| copy.anchor.homes));
        all.extend(copies);
    }
    all
}

/// Reads blocks from the start of a zone. Stops after `gap` blocks without a copy at the start, or
/// after `gap` consecutive blocks of zeroes. A block that cannot be read is returned with its
/// error.
fn read(drive: &Drive, waiter: &dyn Wait, zone: &ZoneDescriptor, blocks: u32, gap: u32) -> Vec<Candidate> {
    let (mut all, mut zeroes) = (Vec::new(), 0);
    let is_zone = zone.condition != ZoneCondition::NotWp;
    for block in 0..blocks {
        let at = zone.start + Sectors(u64::from(block * BLOCK_SECTORS));
        let found = match drive.read(waiter, at, BLOCK_SECTORS) {
            Err(error) => Err(error.into()),
            Ok(bytes) if bytes.iter().all(|byte| *byte == 0) && is_zone => {
                // Probably the rest of a finished zone, unless a copy follows.
                zeroes += 1;
                if zeroes == gap {
                    break;
                }
                continue;
            }
            Ok(bytes) => SuperblockCopy::decode(&bytes).map_err(MakeError::from),
        };
        zeroes = 0;
        let is_other = matches!(&found, Err(MakeError::Superblock(SuperblockError::Magic)));
        all.push(Candidate { zone: zone.zone, block, found });
        // A zone that does not start with anything like a copy is not a home. In conventional
        // blocks, the second update is valid if the first one is lost.
        let is_home = !is_zone || all.iter().any(|candidate| candidate.found.is_ok());
        if is_other && !is_home && block + 1 >= gap {
            break;
        }
    }
    all
}

/// Searches for the segments of the store of file system `uuid` by their first blocks, if no
/// superblock names them. Returns `None` if none was found.
pub(crate) fn search(
    drive: &Drive,
    waiter: &dyn Wait,
    report: &[ZoneDescriptor],
    uuid: &Uuid,
) -> Option<Anchor> {
    let (piece_blocks, most) = plan_pieces(Metadata::Conventional, drive);
    let begins = |segment, at: Sector| {
        let block = drive.read(waiter, at, BLOCK_SECTORS).ok()?;
        begun(&block, uuid, segment).ok()
    };
    let is_conventional = report.first().is_some_and(|zone| zone.condition == ZoneCondition::NotWp);
    let pieces = (0..if is_conventional { most as u32 } else { 0 }).filter(|piece| {
        let block = u64::from(COPY_BLOCKS) + u64::from(*piece) * u64::from(piece_blocks);
        begins(SegmentId::conventional(*piece), Sector(block * u64::from(BLOCK_SECTORS))).is_some()
    });
    let pieces = pieces.max().map_or(0, |last| last + 1);
    let is_ours = |zone: &&ZoneDescriptor| {
        crate::scan::written(zone) > 0 && begins(SegmentId::zone(zone.zone), zone.start).is_some()
    };
    let zones: Vec<ZoneIndex> =
        report.iter().filter(is_ours).map(|zone| zone.zone).take(STORE_ZONES_MAX).collect();
    let homes = if is_conventional { [ZoneIndex(0); 2] } else { [ZoneIndex(0), ZoneIndex(1)] };
    let is_there = pieces > 0 || !zones.is_empty();
    is_there.then_some(Anchor {
        copy: 0,
        number: 0,
        batch: 0,
        homes,
        pieces,
        piece_blocks: if pieces > 0 { piece_blocks } else { 0 },
        zones,
    })
}

impl LocatedCopy {
    /// True if the next update has a destination: the current home, the other one, or a free zone.
    pub(crate) fn takes_update(&self, report: &[ZoneDescriptor], has_free: bool) -> bool {
        let takes = |zone: ZoneIndex| !is_lost(&report[zone.0 as usize]);
        let homes = self.copy.anchor.homes;
        match self.next {
            Next::Turn(_) => takes(ZoneIndex(0)),
            Next::Home(home, end) => {
                let appends = end.is_some() && takes(homes[home]);
                appends || takes(homes[1 - home]) || has_free
            }
        }
    }

    /// Wraps the result of [`search`] for opening the file system.
    pub(crate) fn of(superblock: Superblock, anchor: Anchor) -> LocatedCopy {
        let is_conventional = anchor.homes[0] == anchor.homes[1];
        let next = if is_conventional { Next::Turn(0) } else { Next::Home(1, None) };
        LocatedCopy { copy: SuperblockCopy { superblock, anchor }, next }
    }
}

fn find_in_turns(candidates: Vec<Candidate>) -> Result<LocatedCopy, MakeError> {
    let mut best: Option<(u32, SuperblockCopy)> = None;
    let mut failure = None;
    for Candidate { block, found, .. } in candidates {
        match found {
            Ok(copy) if best.as_ref().is_none_or(|(_, best)| copy.anchor.copy > best.anchor.copy) => {
                best = Some((block, copy));
            }
            Ok(_) => {}
            Err(error) => failure = worst(failure, error),
        }
    }
    match best {
        Some((block, copy)) => Ok(LocatedCopy { copy, next: Next::Turn(1 - block / TWINS) }),
        None => Err(failure.expect("a drive has blocks")),
    }
}

fn find_in_homes(candidates: Vec<Candidate>, report: &[ZoneDescriptor]) -> Result<LocatedCopy, MakeError> {
    let mut best: Option<(ZoneIndex, u32, SuperblockCopy)> = None;
    let mut failures: Vec<(ZoneIndex, u32, MakeError)> = Vec::new();
    for Candidate { zone, block, found } in candidates {
        match found {
            Ok(copy) if best.as_ref().is_none_or(|(.., best)| copy.anchor.copy >= best.anchor.copy) => {
                best = Some((zone, block, copy));
            }
            Ok(_) => {}
            Err(error) => failures.push((zone, block, error)),
        }
    }
    let Some((zone, block, copy)) = best else {
        let worst = failures.into_iter().fold(None, |before, (.., error)| worst(before, error));
        return Err(worst.unwrap_or(MakeError::Superblock(SuperblockError::Magic)));
    };
    // The second of the two copies may be torn by a failed write. Only a lost update would matter.
    let is_newer = |(z, b, _): &(ZoneIndex, u32, MakeError)| *z == zone && *b > (block | (TWINS - 1));
    if let Some((zone, block, _)) = failures.into_iter().find(is_newer) {
        return Err(MakeError::DamagedSuperblock { zone, block });
    }
    let home = usize::from(copy.anchor.homes[1] == zone);
    let described = &report[zone.0 as usize];
    let pointer = described.write_pointer.map(|pointer| (pointer - described.start).0);
    let is_open = described.condition.is_active()
        && pointer.is_some_and(|sectors| sectors % u64::from(BLOCK_SECTORS) == 0);
    let end = pointer.map(|sectors| (sectors / u64::from(BLOCK_SECTORS)) as u32).filter(|_| is_open);
    Ok(LocatedCopy { copy, next: Next::Home(home, end) })
}

/// Returns the more informative of two errors.
fn worst(before: Option<MakeError>, error: MakeError) -> Option<MakeError> {
    let rank = |error: &MakeError| match error {
        MakeError::Superblock(SuperblockError::Magic) => 0,
        MakeError::Drive(_) => 1,
        MakeError::Superblock(SuperblockError::Checksum) => 2,
        _ => 3,
    };
    match before {
        Some(before) if rank(&before) >= rank(&error) => Some(before),
        _ => Some(error),
    }
}

/// Retries a few times, because a failure of one command may be transient.
fn persist(mut attempt: impl FnMut() -> Result<(), RequestError>) -> Result<(), RequestError> {
    let is_final = |error: &RequestError| {
        matches!(error, RequestError::Device(DeviceError::Gone))
            || is_zone_limit_exceeded(error)
            || crate::drive::lasting_condition(error).is_some()
    };
    for _ in 1..TRIES_MAX {
        match attempt() {
            Err(error) if !is_final(&error) => {}
            result => return result,
        }
    }
    attempt()
}

/// Environment that an update needs.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) drive: &'a Drive,
    pub(crate) waiter: &'a dyn Wait,
    /// Returns the lowest free zone, to replace a home that cannot be written.
    pub(crate) free: &'a dyn Fn() -> Option<ZoneIndex>,
}

/// Writes the superblock updates of one file system.
#[derive(Debug)]
pub struct Writer {
    superblock: Superblock,
    anchor: Anchor,
    next: Next,
    /// True while the file system is being made. Updates stay in memory, so that an interrupted
    /// `mkfs` leaves no file system.
    is_unmade: bool,
}

impl Writer {
    /// A writer that continues after the copies that were found.
    pub fn after(found: &LocatedCopy) -> Writer {
        let SuperblockCopy { superblock, anchor } = found.copy.clone();
        Writer { superblock, anchor, next: found.next, is_unmade: false }
    }

    /// A writer for a file system that is being made. Nothing is written before `make`.
    pub fn unmade(superblock: Superblock, volume: &Volume, anchor: Anchor) -> Writer {
        let is_conventional = volume.info().geometry.conventional_zones() > 0;
        let next = if is_conventional { Next::Turn(0) } else { Next::Home(1, None) };
        Writer { superblock, anchor, next, is_unmade: true }
    }

    pub(crate) fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// Raises the number of pieces to at least `pieces`.
    pub(crate) fn raise_pieces(&mut self, pieces: u32) {
        self.anchor.pieces = self.anchor.pieces.max(pieces);
    }

    /// Raises the store number to at least `number`.
    pub(crate) fn raise_number(&mut self, number: u64) {
        self.anchor.number = self.anchor.number.max(number);
    }

    /// Completes a file system that was being made: it exists from now on.
    ///
    /// In conventional zones both pairs of blocks are written, so that no copy of an earlier file
    /// system is left.
    pub(crate) fn make(&mut self, site: &Site<'_>) -> Result<(), RequestError> {
        self.is_unmade = false;
        let anchor = self.anchor.clone();
        self.update(site, anchor.clone())?;
        match self.next {
            Next::Turn(_) => self.update(site, anchor),
            Next::Home(..) => Ok(()),
        }
    }

    /// Writes an update with the contents of `anchor` and the next copy number, and flushes it.
    ///
    /// # Errors
    /// Those of the drive. The previous copies are then still valid.
    pub(crate) fn record(&mut self, site: &Site<'_>, anchor: Anchor) -> Result<(), RequestError> {
        if self.is_unmade {
            self.anchor = Anchor { copy: self.anchor.copy, homes: self.anchor.homes, ..anchor };
            return Ok(());
        }
        self.update(site, anchor)
    }

    fn update(&mut self, site: &Site<'_>, anchor: Anchor) -> Result<(), RequestError> {
        let mut anchor = Anchor { copy: self.anchor.copy + 1, homes: self.anchor.homes, ..anchor };
        match self.next {
            Next::Turn(turn) => {
                let at = Sector(u64::from(turn * TWINS * BLOCK_SECTORS));
                persist(|| self.put(site, at, &anchor))?;
                site.drive.flush(site.waiter)?;
                self.next = Next::Turn(1 - turn);
            }
            Next::Home(home, end) => self.append(site, &mut anchor, home, end)?,
        }
        self.anchor = anchor;
        Ok(())
    }

    fn put(&self, site: &Site<'_>, at: Sector, anchor: &Anchor) -> Result<(), RequestError> {
        let copy = SuperblockCopy { superblock: self.superblock.clone(), anchor: anchor.clone() };
        let mut buf = IoBuf::zeroed(TWINS * BLOCK_BYTES);
        for twin in buf.chunks_exact_mut(BLOCK) {
            twin.copy_from_slice(&copy.encode());
        }
        site.drive.write(site.waiter, at, buf)
    }

    /// Appends an update to the current home, or starts the other one with it.
    fn append(
        &mut self,
        site: &Site<'_>,
        anchor: &mut Anchor,
        home: usize,
        end: Option<u32>,
    ) -> Result<(), RequestError> {
        let Site { drive, waiter, free } = *site;
        let geometry = drive.volume().info().geometry;
        let blocks = (geometry.zone_capacity().0 / u64::from(BLOCK_SECTORS)) as u32;
        // A power cut may have left only one of the two copies.
        let is_even = |end: &u32| end.is_multiple_of(TWINS) && *end + TWINS <= blocks;
        let room = end.filter(is_even);
        if let Some(end) = room {
            let at = geometry.start_of(anchor.homes[home]) + Sectors(u64::from(end * BLOCK_SECTORS));
            if self.put(site, at, anchor).is_ok() && drive.flush(waiter).is_ok() {
                self.next = Next::Home(home, Some(end + TWINS).filter(|end| *end + TWINS <= blocks));
                return Ok(());
            }
        }
        // The other home starts with this update. If it cannot be written, it is replaced.
        let other = 1 - home;
        loop {
            let error = match persist(|| self.begin(site, anchor, other)) {
                Ok(()) => break,
                Err(error) => error,
            };
            if matches!(error, RequestError::Device(DeviceError::Gone)) || is_zone_limit_exceeded(&error) {
                return Err(error);
            }
            match free() {
                Some(zone) => anchor.homes[other] = zone,
                None => return Err(error),
            }
        }
        let end = Some(TWINS);
        self.next = Next::Home(other, end);
        if anchor.homes == self.anchor.homes {
            // The new copy is durable, so the old ones can go. If the reset fails, they are older
            // anyway. A damaged anchor may name one home twice.
            if anchor.homes[home] != anchor.homes[other] {
                let _ = drive.zone(waiter, Op::ZoneReset, anchor.homes[home]);
            }
            return Ok(());
        }
        // The copies in the old home do not name the new one yet, so only a search of all zones
        // would find it. Write an update to the old home that does.
        let named = Anchor { copy: anchor.copy + 1, ..anchor.clone() };
        if self.begin(site, &named, home).is_ok() {
            *anchor = named;
            self.next = Next::Home(home, end);
        }
        Ok(())
    }

    /// Resets a home, writes the update there, and flushes it.
    fn begin(&self, site: &Site<'_>, anchor: &Anchor, home: usize) -> Result<(), RequestError> {
        let Site { drive, waiter, .. } = *site;
        let zone = anchor.homes[home];
        drive.zone(waiter, Op::ZoneReset, zone)?;
        self.put(site, drive.volume().info().geometry.start_of(zone), anchor)?;
        drive.flush(waiter)
    }
}
