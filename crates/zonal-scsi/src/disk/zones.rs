//! Zone commands, and checks of ranges against zones.

use super::identify::own;
use super::{Disk, Invocation, Started};
use crate::sense::{CheckCondition, SenseCode};
use crate::status::Failure;
use crate::wire::{ReportHeader, ReportZones, ReportedZone, ZoneAction, ZoneOut, bits};
use crate::work::{AllZonesWork, Moved, OneRequest, ReportWork, Work, ZoneWork};
use zonal_core::{Sector, ZoneCondition, ZoneDescriptor, ZoneIndex, ZoneType};
use zonal_io::volume::Request;

/// Reporting options of REPORT ZONES (ZBC 5.10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZoneFilter {
    All,
    /// Zones in this condition, except gaps.
    In(ZoneCondition),
    /// Zones with a property that never occurs here.
    WithProperties,
    AllButGaps,
    /// Zones without a write pointer: conventional zones and gaps.
    WithoutPointer,
}

impl ZoneFilter {
    pub(crate) fn parse(option: u8) -> Option<ZoneFilter> {
        Some(match option {
            0x00 => ZoneFilter::All,
            0x01 => ZoneFilter::In(ZoneCondition::Empty),
            0x02 => ZoneFilter::In(ZoneCondition::ImpOpen),
            0x03 => ZoneFilter::In(ZoneCondition::ExpOpen),
            0x04 => ZoneFilter::In(ZoneCondition::Closed),
            0x05 => ZoneFilter::In(ZoneCondition::Full),
            0x06 => ZoneFilter::In(ZoneCondition::ReadOnly),
            0x07 => ZoneFilter::In(ZoneCondition::Offline),
            // Reset recommended, and non-sequential resources active.
            0x10 | 0x11 => ZoneFilter::WithProperties,
            0x3E => ZoneFilter::AllButGaps,
            0x3F => ZoneFilter::WithoutPointer,
            _ => return None,
        })
    }

    pub(crate) fn has(self, zone: &ZoneDescriptor) -> bool {
        match self {
            ZoneFilter::All | ZoneFilter::AllButGaps => true,
            ZoneFilter::In(condition) => zone.condition == condition,
            ZoneFilter::WithProperties => false,
            ZoneFilter::WithoutPointer => zone.condition == ZoneCondition::NotWp,
        }
    }

    pub(crate) fn has_gaps(self) -> bool {
        matches!(self, ZoneFilter::All | ZoneFilter::WithoutPointer)
    }
}

impl Disk {
    /// Zone alignment method and granularity of page B6h (ZBC 6.4.3).
    pub(super) fn alignment(&self) -> (u8, u64) {
        const CONSTANT_LENGTH: u8 = 1;
        const CONSTANT_START_OFFSET: u8 = 8;
        let granularity = self.in_blocks(self.geometry().zone_size().0);
        match self.has_gaps() {
            true => (CONSTANT_START_OFFSET, granularity),
            false => (CONSTANT_LENGTH, 0),
        }
    }

    /// Header of a report with `len` bytes of descriptors.
    pub(crate) fn report_header(&self, len: u64) -> ReportHeader {
        let geometry = self.geometry();
        let is_whole = geometry.sectors().0.is_multiple_of(geometry.zone_size().0);
        let same = match (geometry.conventional_zones() > 0, is_whole) {
            _ if self.has_gaps() => 0,
            (false, true) => 1,
            (false, false) => 2,
            (true, true) => 3,
            (true, false) => 0,
        };
        let granularity = self.alignment().1;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        ReportHeader {
            len: len.into(),
            same,
            last_lba: (self.blocks() - 1).into(),
            granularity: granularity.into(),
            ..ReportHeader::default()
        }
    }

    /// Descriptor of a zone for the initiator. Its length is the capacity.
    pub(crate) fn described(&self, zone: &ZoneDescriptor) -> ReportedZone {
        ReportedZone {
            zone_type: match zone.zone_type {
                ZoneType::Conventional => ReportedZone::CONVENTIONAL,
                ZoneType::SequentialWriteRequired => ReportedZone::SEQUENTIAL,
            },
            condition: (zone.condition as u8) << 4,
            len: self.in_blocks(zone.capacity.0).into(),
            start: self.in_blocks(zone.start.0).into(),
            write_pointer: zone.write_pointer.map_or(u64::MAX, |sector| self.in_blocks(sector.0)).into(),
            ..ReportedZone::default()
        }
    }

    /// Descriptor of the gap after a zone, if any.
    pub(crate) fn gap_after(&self, zone: &ZoneDescriptor) -> Option<ReportedZone> {
        (zone.capacity < zone.size).then(|| ReportedZone {
            zone_type: ReportedZone::GAP,
            condition: (ZoneCondition::NotWp as u8) << 4,
            len: self.in_blocks(zone.size.0 - zone.capacity.0).into(),
            start: self.in_blocks(zone.start.0 + zone.capacity.0).into(),
            write_pointer: u64::MAX.into(),
            ..ReportedZone::default()
        })
    }

    pub(super) fn report_zones(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let ReportZones { lba, len, options, .. } = own(invocation)?;
        let is_partial = options & bits::PARTIAL != 0;
        let filter = ZoneFilter::parse(options & 0x3F).ok_or(CheckCondition::in_cdb_bit(14, 5))?;
        let sector = self.sector(lba.get())?;
        let room = invocation.data_in_len.min(len.get() as usize) as u32;
        Ok(Started::Working(Work::Report(ReportWork::new(self, sector, filter, is_partial, room))))
    }

    pub(super) fn zone_out(&self, invocation: &Invocation<'_>) -> Result<Started, Failure> {
        let ZoneOut { action, lba, is_all } =
            ZoneOut::parse(invocation.cdb).ok_or(CheckCondition::in_cdb_bit(1, 4))?;
        if is_all {
            return Ok(Started::Working(match action {
                ZoneAction::Reset => OneRequest::new(Request::reset_all(), Moved::Nothing).into(),
                action => Work::AllZones(AllZonesWork::new(action)),
            }));
        }
        let sector = self.sector(lba)?;
        let geometry = self.geometry();
        let is_start = geometry.offset_of(sector) == 0;
        if !is_start || geometry.is_conventional(geometry.zone_of(sector)) {
            return Err(CheckCondition::in_cdb(2).into());
        }
        Ok(Started::Working(Work::Zone(ZoneWork::new(action, sector))))
    }

    /// Checks that a read does not touch a gap (ZBC 4.4.3.7). It may cross zones and extend beyond
    /// write pointers.
    pub(super) fn check_read(&self, sector: Sector, sectors: u64) -> Result<(), CheckCondition> {
        let geometry = self.geometry();
        if sectors == 0 || !self.has_gaps() {
            return Ok(());
        }
        let last = Sector(sector.0 + sectors - 1);
        let last_zone = geometry.zone_of(last);
        // Conventional zones are first and have no gaps.
        let first_with_gap = geometry.zone_of(sector).0.max(geometry.conventional_zones());
        let is_in_gap = match last_zone.0 {
            zone if zone < first_with_gap => false,
            zone if zone > first_with_gap => true,
            _ => geometry.offset_of(last) >= geometry.capacity_of(last_zone),
        };
        if is_in_gap { Err(SenseCode::ATTEMPT_TO_ACCESS_GAP_ZONE.into()) } else { Ok(()) }
    }

    /// Checks that a write stays within conventional zones or within one sequential zone (ZBC
    /// 4.4.3.4).
    pub(super) fn check_write(&self, sector: Sector, sectors: u64) -> Result<(), CheckCondition> {
        let geometry = self.geometry();
        let end = sector.0 + sectors;
        if sectors == 0 || end <= self.conventional_end().0 {
            return Ok(());
        }
        let zone: ZoneIndex = geometry.zone_of(sector);
        if geometry.is_conventional(zone) {
            return Err(SenseCode::WRITE_BOUNDARY_VIOLATION.into());
        }
        let (offset, capacity) = (geometry.offset_of(sector), geometry.capacity_of(zone));
        match u64::from(offset) + sectors <= u64::from(capacity) {
            true => Ok(()),
            false if offset >= capacity => Err(SenseCode::ATTEMPT_TO_ACCESS_GAP_ZONE.into()),
            false => Err(SenseCode::WRITE_BOUNDARY_VIOLATION.into()),
        }
    }
}
