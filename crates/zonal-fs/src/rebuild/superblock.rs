//! Finds or reconstructs the superblock.

use super::{RebuildError, RebuildOptions};
use crate::drive::Drive;
use crate::format::{Anchor, Header, Metadata, Superblock, SuperblockCopy, SuperblockError, UnitError, key};
use crate::make::{self, MakeError, MakeOptions};
use crate::scan;
use crate::store::Rows;
use crate::store::backend::log::SEGMENTS_MIN;
use crate::superblocks::{self, LocatedCopy, Site, Writer};
use crate::waiter::Wait;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::collections::BTreeSet;
use zonal_core::{ZoneCondition, ZoneDescriptor, ZoneIndex};

/// Source of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// The copies on the drive.
    #[default]
    Drive,
    /// The copy in the metadata.
    Metadata,
    /// An older copy, or the units and the given options.
    Units,
}

/// Minimum gap between the store numbers before and after a rebuild.
const NUMBERS_SKIPPED: u64 = 1 << 32;

/// The file system, as known before its metadata are read.
pub(super) struct Basis {
    pub(super) superblock: Superblock,
    pub(super) origin: Origin,
    /// Location of the metadata, if it was found.
    pub(super) found: Option<LocatedCopy>,
}

/// Parameters collected from the first units of the zones.
#[derive(Default)]
struct UnitSurvey {
    uuids: BTreeSet<[u8; 16]>,
    unit_blocks: u32,
    is_unsummed: bool,
    /// Zones that start with a unit.
    zones: BTreeSet<u32>,
}

/// Finds the superblock, or reconstructs it.
pub(super) fn find(
    drive: &Drive,
    waiter: &dyn Wait,
    report: &[ZoneDescriptor],
    options: &RebuildOptions,
) -> Result<Basis, RebuildError> {
    match superblocks::find(drive, waiter) {
        Ok(found) => {
            let superblock = found.copy.superblock.clone();
            return Ok(Basis { superblock, origin: Origin::Drive, found: Some(found) });
        }
        Err(error @ MakeError::Superblock(SuperblockError::Version(_))) => {
            return Err(RebuildError::Version(error.to_string()));
        }
        Err(error) if error.passing().is_some() && !options.force => return Err(RebuildError::Unread(error)),
        Err(_) => {}
    }
    // An older copy has the same parameters.
    let copies = superblocks::candidates(drive, waiter, report).into_iter();
    let older: Option<SuperblockCopy> = copies.filter_map(|candidate| candidate.found.ok()).next();
    let superblock = match older {
        Some(copy) => copy.superblock,
        None => UnitSurvey::of(drive, waiter, report)?.superblock(drive, report, options)?,
    };
    let found = superblocks::search(drive, waiter, report, &superblock.uuid);
    let planned = || make::plan_anchor(drive, report, &superblock, &options.made_with);
    // A store starts with several segments, but a search finds only those that have been written.
    let anchor = match (superblock.metadata, found) {
        // The pieces are in the file.
        (Metadata::Beside, _) => Some(planned()?),
        (_, None) => None,
        (Metadata::Conventional, Some(found)) => {
            let Anchor { pieces, piece_blocks, .. } = planned()?;
            Some(Anchor { pieces: found.pieces.max(pieces), piece_blocks, ..found })
        }
        (Metadata::Logged, Some(found)) => Some(with_empty_zones(found, planned()?.zones.len(), report)),
    };
    let found = anchor.map(|anchor| LocatedCopy::of(superblock.clone(), anchor));
    Ok(Basis { superblock, origin: Origin::Units, found })
}

/// Adds empty zones for those that the store had not written yet; any empty ones will do.
fn with_empty_zones(mut anchor: Anchor, wanted: usize, report: &[ZoneDescriptor]) -> Anchor {
    let is_free =
        |zone: &&ZoneDescriptor| zone.condition == ZoneCondition::Empty && !anchor.homes.contains(&zone.zone);
    let missing = wanted.saturating_sub(anchor.zones.len());
    anchor.zones.extend(report.iter().filter(is_free).take(missing).map(|zone| zone.zone));
    anchor.zones.sort_unstable();
    anchor
}

fn is_lost(zone: &ZoneDescriptor) -> bool {
    matches!(zone.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline)
}

/// Chooses zones without data for the new metadata. The old store may have left behind unknown
/// store numbers. The new ones start with the current time in nanoseconds, which is above all of
/// them because numbers grow by less than one per nanosecond.
pub(super) fn place(
    drive: &Drive,
    waiter: &dyn Wait,
    report: &[ZoneDescriptor],
    basis: &Basis,
    options: &RebuildOptions,
) -> Result<Writer, RebuildError> {
    let is_logged = basis.superblock.metadata == Metadata::Logged;
    let with_zones = |mut anchor: Anchor| -> Result<Anchor, RebuildError> {
        // The new store counts its batches from the beginning.
        anchor.batch = 0;
        if is_logged {
            let wanted = anchor.zones.len().max(SEGMENTS_MIN);
            anchor.zones =
                UnitSurvey::of(drive, waiter, report)?.zones_without_data(report, basis, wanted)?;
        }
        Ok(anchor)
    };
    let mut writer = match (basis.origin, &basis.found) {
        (Origin::Drive, Some(found)) => {
            let mut found = found.clone();
            found.copy.anchor = with_zones(found.copy.anchor)?;
            Writer::after(&found)
        }
        _ => {
            let anchor = make::plan_anchor(drive, report, &basis.superblock, &options.made_with)?;
            Writer::unmade(basis.superblock.clone(), drive.volume(), with_zones(anchor)?)
        }
    };
    let passed = writer.anchor().number.saturating_add(NUMBERS_SKIPPED);
    writer.raise_number(passed.max(waiter.wall().max(0) as u64));
    Ok(writer)
}

/// The superblock stored in the metadata.
pub(super) fn own(rows: &Rows) -> Option<Superblock> {
    Superblock::decode(&rows.get(&key::counter("superblock")).ok()??).ok()
}

/// Writes a superblock for the metadata that were found.
pub(super) fn put_back(
    drive: &Drive,
    waiter: &dyn Wait,
    superblock: &Superblock,
    anchor: Anchor,
) -> Result<(), RebuildError> {
    let mut writer = Writer::unmade(superblock.clone(), drive.volume(), anchor);
    Ok(writer.make(&Site { drive, waiter, free: &|| None }).map_err(MakeError::from)?)
}

impl UnitSurvey {
    /// Returns the zones that the store had, plus others that do not start with a unit, until
    /// `wanted` of them are writable.
    fn zones_without_data(
        &self,
        report: &[ZoneDescriptor],
        basis: &Basis,
        wanted: usize,
    ) -> Result<Vec<ZoneIndex>, RebuildError> {
        let mut zones = basis.found.as_ref().map_or_else(Vec::new, |found| found.copy.anchor.zones.clone());
        let is_sound = |zone: &&ZoneIndex| report.get(zone.0 as usize).is_some_and(|zone| !is_lost(zone));
        let mut sound = zones.iter().filter(is_sound).count();
        let ours = report.iter().filter(|zone| zone.zone.0 >= basis.superblock.first_zone && !is_lost(zone));
        for ZoneDescriptor { zone, .. } in ours {
            if sound < wanted && !zones.contains(zone) && !self.zones.contains(&zone.0) {
                zones.push(*zone);
                sound += 1;
            }
        }
        zones.sort_unstable();
        match sound {
            ..SEGMENTS_MIN => Err(RebuildError::NoSuperblock("no two zones are left for metadata".into())),
            _ => Ok(zones),
        }
    }

    fn of(drive: &Drive, waiter: &dyn Wait, report: &[ZoneDescriptor]) -> Result<UnitSurvey, RebuildError> {
        let mut told = UnitSurvey::default();
        for zone in report.iter().filter(|zone| scan::written(zone) > 0) {
            let Ok(block) = drive.read(waiter, zone.start, BLOCK_SECTORS) else { continue };
            match Header::decode_any(&block) {
                Ok(header) if header.zone == zone.zone.0 => {
                    told.uuids.insert(header.uuid);
                    told.unit_blocks = told.unit_blocks.max(header.blocks() + 1);
                    told.is_unsummed |= header.sums.is_empty();
                    told.zones.insert(header.zone);
                }
                Err(error @ UnitError::Version(_)) => return Err(RebuildError::Version(error.to_string())),
                _ => {}
            }
        }
        Ok(told)
    }

    fn superblock(
        &self,
        drive: &Drive,
        report: &[ZoneDescriptor],
        options: &RebuildOptions,
    ) -> Result<Superblock, RebuildError> {
        let no = |why: String| Err(RebuildError::NoSuperblock(why));
        let uuid = match self.uuids.len() {
            1 => *self.uuids.first().expect("there is one"),
            0 => return no("no zone starts with a unit".into()),
            several => return no(format!("there are units of {several} different file systems")),
        };
        let mut with = MakeOptions {
            beside: options.beside.clone(),
            is_unsummed: self.is_unsummed,
            ..options.made_with.clone()
        };
        let usual = make::plan(drive, report, uuid, &with)?;
        if with.unit_bytes.is_none() && usual.unit_blocks < self.unit_blocks {
            with.unit_bytes = Some(self.unit_blocks * BLOCK_BYTES);
        }
        Ok(make::plan(drive, report, uuid, &with)?)
    }
}
