//! Namespace: a part of a volume, addressed in logical blocks.

use super::{TargetError, TargetOptions};
use crate::status::Status;
use crate::wire::{DatasetRange, ReportHeader, ReportedZone, Sqe, ZoneReceive, ZoneSend, io};
use zerocopy::{FromBytes, FromZeros, IntoBytes};
use zonal_core::device::ZoneAction;
use zonal_core::{Op, Sector, ZoneCondition, ZoneDescriptor};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::{Part, Request};

/// A namespace of a target.
pub struct Namespace {
    nsid: u32,
    part: Part,
    nguid: [u8; 16],
    uuid: [u8; 16],
    is_read_only: bool,
    is_zoned: bool,
    /// Append limit as reported to hosts (ZNS 4.1.5.2, ZASL). May be smaller than the limit of the
    /// device.
    append_sectors_max: u32,
}

/// Status of a refused command.
pub type IoError = Status;

/// Zone report request of a host (ZNS 3.4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport {
    which: ReportedZones,
    /// Buffer size of the host in bytes.
    pub len: u32,
    /// True to count only the zones that fit, false to count all that match.
    is_partial: bool,
}

/// Selection of zones for a report (ZNS 3.4.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReportedZones {
    All,
    /// Zones in this condition.
    In(ZoneCondition),
    /// Zones with an attribute that the controller never sets.
    WithAttributes,
}

impl ReportedZones {
    fn has(self, zone: &ZoneDescriptor) -> bool {
        match self {
            ReportedZones::All => true,
            ReportedZones::In(condition) => zone.condition == condition,
            ReportedZones::WithAttributes => false,
        }
    }
}

impl ZoneReport {
    /// True if the report covers only the leading zones, as many as fit.
    fn is_of_first_zones(&self) -> bool {
        self.is_partial && self.which == ReportedZones::All
    }
}

/// Volume request or requests for a command.
#[derive(Debug)]
pub enum IoCommand {
    /// One request.
    One(Request),
    /// Several requests. The command completes with the last one.
    Several(Vec<Request>),
    /// Zone report in the host's format.
    Report(ZoneReport, Request),
    /// Action on all zones that are [affected](Namespace::affected_zones).
    AllZones(Op),
}

impl Namespace {
    /// Creates a namespace over `part`, with either conventional or sequential zones only.
    pub(super) fn new(
        nsid: u32,
        part: Part,
        append_sectors_max: u32,
        options: &TargetOptions,
    ) -> Result<Namespace, TargetError> {
        let geometry = part.info().geometry;
        let is_zoned = geometry.conventional_zones() == 0;
        let is_whole = geometry.sectors().0.is_multiple_of(geometry.zone_size().0);
        if is_zoned && !is_whole {
            return Err(TargetError::Namespace(
                "the last zone is smaller than the others, but a zoned namespace needs zones of equal size"
                    .to_owned(),
            ));
        }
        let uuid = options.identity.bytes();
        let mut nguid = uuid;
        // Namespaces of one drive differ in the last byte.
        nguid[15] = nguid[15].wrapping_add(nsid as u8 - 1);
        let is_read_only = options.read_only || part.info().read_only;
        Ok(Namespace { nsid, uuid: nguid, nguid, part, is_read_only, is_zoned, append_sectors_max })
    }

    /// Namespace number.
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Zones of the namespace.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// True if it uses the Zoned Namespace command set.
    pub fn is_zoned(&self) -> bool {
        self.is_zoned
    }

    /// True if hosts may only read.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// NGUID and UUID.
    pub fn identifiers(&self) -> ([u8; 16], [u8; 16]) {
        (self.nguid, self.uuid)
    }

    /// Sectors per logical block.
    pub fn block_sectors(&self) -> u32 {
        self.part.info().block_sectors
    }

    /// Logical block size in bytes, as a power of two.
    pub fn block_shift(&self) -> u8 {
        (self.block_sectors() * 512).ilog2() as u8
    }

    /// Converts sectors to logical blocks.
    pub fn blocks(&self, sectors: u64) -> u64 {
        sectors / u64::from(self.block_sectors())
    }

    fn sector(&self, lba: u64) -> Result<Sector, IoError> {
        lba.checked_mul(u64::from(self.block_sectors())).map(Sector).ok_or(Status::LBA_OUT_OF_RANGE)
    }

    /// Commands Supported and Effects entry of an I/O command (Base 5.1.12.1.6): supported (bit 0),
    /// changes data (bit 1).
    pub(super) fn effects(opcode: u8, is_zoned: bool, verifies: bool) -> u32 {
        match opcode {
            io::FLUSH | io::READ => 0b01,
            io::VERIFY if verifies => 0b01,
            io::WRITE | io::WRITE_ZEROES | io::DATASET_MANAGEMENT => 0b11,
            io::ZONE_MANAGEMENT_RECEIVE if is_zoned => 0b01,
            io::ZONE_MANAGEMENT_SEND | io::ZONE_APPEND if is_zoned => 0b11,
            _ => 0,
        }
    }

    /// Checks that the namespace supports the opcode.
    ///
    /// # Errors
    /// [`Status::INVALID_OPCODE`].
    pub fn check_opcode(&self, opcode: u8) -> Result<(), Status> {
        let verifies = self.part.info().verify_sectors_max > 0;
        match Namespace::effects(opcode, self.is_zoned, verifies) {
            0 => Err(Status::INVALID_OPCODE),
            _ => Ok(()),
        }
    }

    /// Bytes of data from host to controller with this command.
    ///
    /// # Errors
    /// A status if the command is refused regardless of its data.
    pub fn data_from_host(&self, sqe: &Sqe) -> Result<u32, IoError> {
        match sqe.opcode {
            io::WRITE | io::ZONE_APPEND => self.bytes(sqe),
            // Linux always sends 256 ranges, regardless of their number.
            io::DATASET_MANAGEMENT => Ok((((sqe.dword(10) & 0xFF) + 1) * 16).max(sqe.data.len.get())),
            _ => Ok(0),
        }
    }

    /// Bytes of data from controller to host with this command.
    ///
    /// # Errors
    /// A status if the command is refused.
    pub fn data_to_host(&self, sqe: &Sqe) -> Result<u32, IoError> {
        match sqe.opcode {
            io::READ => self.bytes(sqe),
            io::ZONE_MANAGEMENT_RECEIVE => Ok(u32::try_from(ZoneReceive::parse(sqe).len).unwrap_or(u32::MAX)),
            _ => Ok(0),
        }
    }

    fn bytes(&self, sqe: &Sqe) -> Result<u32, IoError> {
        Ok(((sqe.dword(12) & 0xFFFF) + 1) * self.block_sectors() * 512)
    }

    /// Memory in bytes that a command needs for zone descriptors and for the requests made from
    /// them. Counts all zones that may have to be examined, possibly far more than fit in the
    /// host's buffer.
    pub fn memory_for_zones(&self, sqe: &Sqe) -> usize {
        let zones = self.part.info().geometry.zones() as usize;
        match sqe.opcode {
            io::ZONE_MANAGEMENT_RECEIVE => match self.report(sqe) {
                Ok(IoCommand::Report(report, _)) if report.is_of_first_zones() => {
                    zones.min((report.len / 64) as usize) * size_of::<ZoneDescriptor>()
                }
                Ok(_) => zones * size_of::<ZoneDescriptor>(),
                Err(_) => 0,
            },
            io::ZONE_MANAGEMENT_SEND => match self.manage(sqe) {
                Ok(IoCommand::One(request)) if request.op != Op::ResetAll => 0,
                // The volume expands a reset of all zones into one request per zone.
                Ok(_) => zones * (size_of::<ZoneDescriptor>() + size_of::<Request>()),
                Err(_) => 0,
            },
            _ => 0,
        }
    }

    /// Translates a command for the volume. `buf` holds the data from the host or receives the data
    /// for it.
    ///
    /// # Errors
    /// A status if the command is refused regardless of zone state.
    pub fn command(&self, sqe: &Sqe, buf: IoBuf) -> Result<IoCommand, IoError> {
        let request = match sqe.opcode {
            io::FLUSH => Request::flush(),
            io::READ => {
                let (sector, sectors) = self.range(sqe)?;
                Request::read(sector, sectors, buf)
            }
            io::WRITE => {
                let (sector, sectors) = self.range(sqe)?;
                Request::write(sector, sectors, buf)
            }
            io::WRITE_ZEROES => {
                let (sector, sectors) = self.range(sqe)?;
                Request::write_zeroes(sector, sectors)
            }
            io::VERIFY => {
                let (sector, sectors) = self.range(sqe)?;
                Request::verify(sector, sectors)
            }
            io::DATASET_MANAGEMENT => return self.deallocate(sqe, &buf),
            io::ZONE_APPEND if self.is_zoned => {
                let (sector, sectors) = self.range(sqe)?;
                self.check_zone_start(sector)?;
                if sectors > self.append_sectors_max {
                    return Err(Status::INVALID_FIELD);
                }
                Request::append(sector, sectors, buf)
            }
            io::ZONE_MANAGEMENT_SEND if self.is_zoned => return self.manage(sqe),
            io::ZONE_MANAGEMENT_RECEIVE if self.is_zoned => return self.report(sqe),
            _ => return Err(Status::INVALID_OPCODE),
        };
        self.check_writable(request.op)?;
        let has_fua = matches!(sqe.opcode, io::WRITE | io::WRITE_ZEROES | io::ZONE_APPEND);
        let is_durable = has_fua && sqe.dword(12) & Sqe::FUA != 0;
        Ok(IoCommand::One(if is_durable { request.fua() } else { request }))
    }

    fn check_writable(&self, op: Op) -> Result<(), IoError> {
        match self.is_read_only && !op.is_read() && !matches!(op, Op::Flush | Op::Report | Op::Verify) {
            true => Err(Status::WRITE_PROTECTED),
            false => Ok(()),
        }
    }

    /// Deallocation of ranges (NVM 3.2.3). It is advisory: zoned namespaces use reset instead, and
    /// a device without discard keeps its data.
    fn deallocate(&self, sqe: &Sqe, ranges: &[u8]) -> Result<IoCommand, IoError> {
        self.check_writable(Op::Discard)?;
        let has_discard = !self.is_zoned && self.part.info().discard_sectors_max > 0;
        let mut requests = Vec::new();
        let count = (sqe.dword(10) & 0xFF) as usize + 1;
        let (ranges, _) = <[DatasetRange]>::ref_from_prefix(ranges).expect("any bytes");
        for range in ranges.iter().take(count) {
            let sectors =
                range.blocks.get().checked_mul(self.block_sectors()).ok_or(Status::LBA_OUT_OF_RANGE)?;
            let sector = self.sector(range.lba.get())?;
            let end = sector.0.checked_add(u64::from(sectors)).ok_or(Status::LBA_OUT_OF_RANGE)?;
            if end > self.part.info().geometry.sectors().0 {
                return Err(Status::LBA_OUT_OF_RANGE);
            }
            if sectors > 0 && sqe.dword(11) & DatasetRange::DEALLOCATE != 0 && has_discard {
                requests.push(Request::discard(sector, sectors));
            }
        }
        Ok(IoCommand::Several(requests))
    }

    fn range(&self, sqe: &Sqe) -> Result<(Sector, u32), IoError> {
        let sectors = ((sqe.dword(12) & 0xFFFF) + 1) * self.block_sectors();
        let sector = self.sector(sqe.lba())?;
        let end = sector.0.checked_add(u64::from(sectors)).ok_or(Status::LBA_OUT_OF_RANGE)?;
        match end <= self.part.info().geometry.sectors().0 {
            true => Ok((sector, sectors)),
            false => Err(Status::LBA_OUT_OF_RANGE),
        }
    }

    fn check_zone_start(&self, sector: Sector) -> Result<(), IoError> {
        match self.part.info().geometry.offset_of(sector) {
            0 => Ok(()),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Converts a logical block, which has to be the first of a zone.
    fn zone_start(&self, lba: u64) -> Result<Sector, IoError> {
        let sector = self.sector(lba)?;
        if sector.0 >= self.part.info().geometry.sectors().0 {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        self.check_zone_start(sector)?;
        Ok(sector)
    }

    /// Zone Management Send (ZNS 3.4.3).
    fn manage(&self, sqe: &Sqe) -> Result<IoCommand, IoError> {
        let ZoneSend { lba, action, is_all } = ZoneSend::parse(sqe);
        let sector = match is_all {
            true => Sector(0),
            false => self.zone_start(lba)?,
        };
        let op = match action {
            ZoneSend::CLOSE => Op::ZoneClose,
            ZoneSend::FINISH => Op::ZoneFinish,
            ZoneSend::OPEN => Op::ZoneOpen,
            ZoneSend::RESET => Op::ZoneReset,
            ZoneSend::OFFLINE => Op::ZoneOffline,
            _ => return Err(Status::INVALID_FIELD),
        };
        self.check_writable(op)?;
        if is_all {
            return Ok(match op {
                Op::ZoneReset => IoCommand::One(Request::reset_all()),
                _ => IoCommand::AllZones(op),
            });
        }
        Ok(IoCommand::One(Request::zone(op, sector)))
    }

    /// Returns the start sectors of the zones affected by an action on all zones (ZNS 3.4.3.1), in
    /// rounds. `zones` is all zones of the namespace.
    ///
    /// # Errors
    /// [`Status::TOO_MANY_OPEN`] if not all of them can be opened; then none is.
    pub fn affected_zones(&self, op: Op, zones: &[ZoneDescriptor]) -> Result<Vec<Vec<Sector>>, IoError> {
        let rounds = ZoneAction::of(op).map(|action| action.in_rounds(zones)).unwrap_or_default();
        let open_max = self.part.info().open_max as usize;
        let stay_open = zones.iter().filter(|zone| zone.condition == ZoneCondition::ExpOpen).count();
        let concerned: usize = rounds.iter().map(Vec::len).sum();
        match op == Op::ZoneOpen && open_max > 0 && stay_open + concerned > open_max {
            true => Err(Status::TOO_MANY_OPEN),
            false => Ok(rounds.iter().map(|round| round.iter().map(|zone| zone.start).collect()).collect()),
        }
    }

    /// Zone Management Receive (ZNS 3.4.2).
    fn report(&self, sqe: &Sqe) -> Result<IoCommand, IoError> {
        let ZoneReceive { lba, action, option, is_partial, .. } = ZoneReceive::parse(sqe);
        let sector = self.sector(lba)?;
        if sector.0 >= self.part.info().geometry.sectors().0 {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        // An extended report requires zone descriptor extensions, which are not supported.
        if action != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let which = match option {
            0 => ReportedZones::All,
            1 => ReportedZones::In(ZoneCondition::Empty),
            2 => ReportedZones::In(ZoneCondition::ImpOpen),
            3 => ReportedZones::In(ZoneCondition::ExpOpen),
            4 => ReportedZones::In(ZoneCondition::Closed),
            5 => ReportedZones::In(ZoneCondition::Full),
            6 => ReportedZones::In(ZoneCondition::ReadOnly),
            7 => ReportedZones::In(ZoneCondition::Offline),
            9 => ReportedZones::WithAttributes,
            _ => return Err(Status::INVALID_FIELD),
        };
        let len = self.data_to_host(sqe)?;
        if len < 64 {
            return Err(Status::INVALID_FIELD);
        }
        let fits = (len / 64).saturating_sub(1).max(1);
        let report = ZoneReport { which, len, is_partial };
        let zones = if report.is_of_first_zones() { fits } else { u32::MAX };
        Ok(IoCommand::Report(report, Request::report(sector, zones)))
    }

    /// Encodes a report: a header and one descriptor per zone (ZNS 3.4.2.2).
    pub fn reported(&self, report: &ZoneReport, zones: &[ZoneDescriptor]) -> Vec<u8> {
        let mut bytes = vec![0; report.len as usize];
        let room = (report.len as usize).saturating_sub(64) / 64;
        let mut count = 0;
        for zone in zones.iter().filter(|zone| report.which.has(zone)) {
            if count < room {
                let at = 64 * (count + 1);
                bytes[at..at + 64].copy_from_slice(self.describe(zone).as_bytes());
            } else if report.is_partial {
                break;
            }
            count += 1;
        }
        let header = ReportHeader { zones: (count as u64).into(), ..FromZeros::new_zeroed() };
        bytes[..64].copy_from_slice(header.as_bytes());
        bytes
    }

    fn describe(&self, zone: &ZoneDescriptor) -> ReportedZone {
        // The standard leaves the pointer undefined in some states. Hosts cope best with the end of
        // the zone.
        let pointer = zone.write_pointer.map_or(zone.start.0 + zone.capacity.0, |sector| sector.0);
        ReportedZone {
            kind: ReportedZone::SEQUENTIAL_WRITE_REQUIRED,
            state: (zone.condition as u8) << 4,
            capacity: self.blocks(zone.capacity.0).into(),
            start: self.blocks(zone.start.0).into(),
            pointer: self.blocks(pointer).into(),
            ..ReportedZone::new_zeroed()
        }
    }
}
