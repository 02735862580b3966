//! The superblock, or what it must have been.

use super::{RebuildError, RebuildOptions};
use crate::drive::Drive;
use crate::format::{Header, Superblock, SuperblockError, UnitError, key};
use crate::make::{self, MakeError, MakeOptions};
use crate::scan;
use crate::store::Rows;
use crate::waiter::Waiter;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::collections::BTreeSet;
use zonal_core::{Op, ZoneDescriptor, ZoneType};

/// Where a superblock is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// It was there.
    #[default]
    Drive,
    /// From the copy among the metadata.
    Metadata,
    /// From the units, and what was said that the file system was made with.
    Units,
}

/// What the first units of the zones tell of a superblock.
#[derive(Default)]
struct Told {
    uuids: BTreeSet<[u8; 16]>,
    unit_blocks: u32,
    is_unsummed: bool,
    first_zone: Option<u32>,
}

/// The superblock that is there, or else what it must have been.
pub(super) fn find(
    drive: &Drive,
    waiter: &dyn Waiter,
    report: &[ZoneDescriptor],
    options: &RebuildOptions,
) -> Result<(Superblock, Origin), RebuildError> {
    for found in make::superblocks(drive, waiter) {
        match found {
            Ok(superblock) => return Ok((superblock, Origin::Drive)),
            Err(error @ MakeError::Superblock(SuperblockError::Version(_))) => {
                return Err(RebuildError::Version(error.to_string()));
            }
            Err(_) => {}
        }
    }
    let told = Told::of(drive, waiter, report)?;
    Ok((told.superblock(drive, report, options)?, Origin::Units))
}

/// The superblock as the metadata have it.
pub(super) fn own(rows: &Rows) -> Option<Superblock> {
    Superblock::decode(&rows.get(&key::counter("superblock")).ok()??).ok()
}

/// Writes the superblock where it belongs. A sequential zone that has it is its alone.
pub(super) fn put_back(
    drive: &Drive,
    waiter: &dyn Waiter,
    superblock: &Superblock,
) -> Result<(), RebuildError> {
    let report = drive.report(waiter).map_err(MakeError::from)?;
    let zone = &report[0];
    if zone.zone_type != ZoneType::Conventional && scan::written(zone) > 0 {
        drive.zone(waiter, Op::ZoneReset, zone.zone).map_err(MakeError::from)?;
    }
    Ok(make::write_superblock(drive, waiter, superblock)?)
}

impl Told {
    fn of(drive: &Drive, waiter: &dyn Waiter, report: &[ZoneDescriptor]) -> Result<Told, RebuildError> {
        let mut told = Told::default();
        for zone in report.iter().filter(|zone| scan::written(zone) > 0) {
            let Ok(block) = drive.read(waiter, zone.start, BLOCK_SECTORS) else { continue };
            match Header::decode_any(&block) {
                Ok(header) if header.zone == zone.zone.0 => {
                    told.uuids.insert(header.uuid);
                    told.unit_blocks = told.unit_blocks.max(header.blocks() + 1);
                    told.is_unsummed |= header.sums.is_empty();
                    told.first_zone.get_or_insert(header.zone);
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
            0 => return no("no zone begins with a unit".into()),
            several => return no(format!("there are units of {several} file systems")),
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
        let superblock = make::plan(drive, report, uuid, &with)?;
        match self.first_zone.filter(|zone| *zone < superblock.first_zone) {
            Some(zone) => no(format!(
                "zone {zone} has data, where the metadata would lie: with fewer zones for their log, or a file beside, \
                 there would have been less before it"
            )),
            None => Ok(superblock),
        }
    }
}
