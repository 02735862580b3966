//! Translation of device commands to NVMe commands, and of their completions back.

use super::errors::device_error;
use super::identify::NamespaceFacts;
use super::queue::{Ended, HostData};
use crate::wire::{DatasetRange, ReportHeader, ReportedZone, Sqe, ZoneReceive, ZoneSend, io};
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};
use zonal_core::{
    DeviceError, Op, SECTOR_BYTES, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex,
    ZoneType,
};
use zonal_io::data::Data;
use zonal_io::device::{Command, CommandResult, Context, Output};

/// Bytes of a zone descriptor, and of a report header.
const DESCRIPTOR: u32 = size_of::<ReportedZone>() as u32;

/// Maximum bytes of a report per command.
const REPORT_MAX: u32 = 256 << 10;

/// Data memory of a command.
pub(super) enum Memory {
    None,
    /// Buffer of the caller, in either direction.
    Caller {
        data: Data,
        is_read: bool,
    },
    /// Data for the controller.
    Sent(Box<[u8]>),
    /// Data from the controller.
    Received(Box<[u8]>),
}

/// Command in flight, with the state needed at its completion.
pub(super) struct Job {
    pub(super) context: Option<Context>,
    op: Op,
    memory: Memory,
    report: Option<Box<Report>>,
}

impl Job {
    /// Sets the caller's context.
    pub(super) fn of(self, context: Option<Context>) -> Job {
        Job { context, ..self }
    }
}

/// Report that takes several commands.
struct Report {
    zones: Vec<ZoneDescriptor>,
    /// Start of the next command.
    next: Sector,
    /// Zones still to fetch.
    left: u32,
}

/// Next step after a completion.
pub(super) enum After {
    /// Complete the device command.
    End(CommandResult),
    /// Send another command for the same caller.
    Next(Sqe, Job),
}

/// Data of a Connect command.
impl From<Vec<u8>> for Job {
    fn from(data: Vec<u8>) -> Job {
        Job { context: None, op: Op::Flush, memory: Memory::Sent(data.into()), report: None }
    }
}

/// First step of a device command.
pub(super) enum Start {
    /// Send an NVMe command.
    Send(Sqe, Job),
    /// Completed without the controller.
    Answered(CommandResult),
}

impl NamespaceFacts {
    /// Translates `command`. Range and zone state are checked by the controller.
    pub(super) fn start(&self, command: &Command) -> Start {
        let Command { op, sector, sectors, data, .. } = *command;
        let is_zone_command = op.is_zone_management() || matches!(op, Op::Append | Op::ResetAll);
        let started = match op {
            Op::Report if !self.is_zoned => return Start::Answered(self.conventional_zones(sector, sectors)),
            Op::ResetAll if !self.is_zoned => return Start::Answered(Ok(Output::Done)),
            _ if is_zone_command && !self.is_zoned => Err(ZoneError::Conventional.into()),
            Op::Read => self.transfer(io::READ, command, Memory::Caller { data, is_read: true }),
            Op::Write => self.transfer(io::WRITE, command, Memory::Caller { data, is_read: false }),
            Op::Append => self.transfer(io::ZONE_APPEND, command, Memory::Caller { data, is_read: false }),
            Op::WriteZeroes => self.place(io::WRITE_ZEROES, command),
            Op::Verify => self.place(io::VERIFY, command),
            Op::Flush => Ok((self.sqe(io::FLUSH, [0; 6]), Memory::None)),
            Op::Discard => self.deallocate(sector, sectors),
            Op::ZoneClose => self.manage(sector, ZoneSend::CLOSE),
            Op::ZoneFinish => self.manage(sector, ZoneSend::FINISH),
            Op::ZoneOpen => self.manage(sector, ZoneSend::OPEN),
            Op::ZoneReset => self.manage(sector, ZoneSend::RESET),
            Op::ZoneOffline => self.manage(sector, ZoneSend::OFFLINE),
            Op::ResetAll => Ok(self.send_zone(ZoneSend { lba: 0, action: ZoneSend::RESET, is_all: true })),
            Op::Report => {
                let report = Report { zones: Vec::new(), next: sector, left: sectors };
                return match self.report(report) {
                    Ok((sqe, job)) => Start::Send(sqe, job),
                    Err(error) => Start::Answered(Err(error)),
                };
            }
        };
        match started {
            Ok((sqe, memory)) => Start::Send(sqe, Job { context: None, op, memory, report: None }),
            Err(error) => Start::Answered(Err(error)),
        }
    }

    fn sqe(&self, opcode: u8, cdw: [u32; 6]) -> Sqe {
        Sqe::new(opcode, self.nsid, cdw)
    }

    fn blocks(&self, sectors: u64) -> Result<u64, DeviceError> {
        let block = u64::from(self.block_sectors);
        match sectors % block {
            0 => Ok(sectors / block),
            _ => Err(DeviceError::InvalidField),
        }
    }

    /// Builds a command on a range of blocks, without data.
    fn place(&self, opcode: u8, command: &Command) -> Result<(Sqe, Memory), DeviceError> {
        let lba = self.blocks(command.sector.0)?;
        let blocks = self.blocks(command.sectors.into())?;
        let count = blocks.checked_sub(1).and_then(|count| u16::try_from(count).ok());
        let count = u32::from(count.ok_or(DeviceError::InvalidField)?);
        let fua = if command.fua && command.op.is_write() { Sqe::FUA } else { 0 };
        let mut sqe = self.sqe(opcode, [0, 0, count | fua, 0, 0, 0]);
        sqe.set_lba(lba);
        Ok((sqe, Memory::None))
    }

    fn transfer(&self, opcode: u8, command: &Command, memory: Memory) -> Result<(Sqe, Memory), DeviceError> {
        let bytes = command.sectors.checked_mul(SECTOR_BYTES as u32).ok_or(DeviceError::InvalidField)?;
        if command.data.len() != bytes as usize {
            return Err(DeviceError::InvalidField);
        }
        let (sqe, _) = self.place(opcode, command)?;
        let fits = bytes <= self.in_capsule && opcode != io::READ;
        Ok((if fits { sqe.with_capsule(bytes) } else { sqe.with_data(bytes) }, memory))
    }

    fn manage(&self, sector: Sector, action: u8) -> Result<(Sqe, Memory), DeviceError> {
        Ok(self.send_zone(ZoneSend { lba: self.blocks(sector.0)?, action, is_all: false }))
    }

    fn send_zone(&self, send: ZoneSend) -> (Sqe, Memory) {
        let mut sqe = self.sqe(0, [0; 6]);
        send.emit(&mut sqe);
        (sqe, Memory::None)
    }

    /// Builds a deallocation of one range (NVM 3.2.3).
    fn deallocate(&self, sector: Sector, sectors: u32) -> Result<(Sqe, Memory), DeviceError> {
        if self.is_zoned {
            return Err(ZoneError::Sequential.into());
        }
        let blocks = (self.blocks(sectors.into())? as u32).into();
        let range = DatasetRange { attributes: 0.into(), blocks, lba: self.blocks(sector.0)?.into() };
        let sqe = self.sqe(io::DATASET_MANAGEMENT, [0, DatasetRange::DEALLOCATE, 0, 0, 0, 0]);
        let sqe = if self.in_capsule >= 16 { sqe.with_capsule(16) } else { sqe.with_data(16) };
        Ok((sqe, Memory::Sent(range.as_bytes().into())))
    }

    /// Builds the next command of a report (ZNS 3.4.2). It is a partial report, so that the header
    /// counts only the returned zones.
    fn report(&self, report: Report) -> Result<(Sqe, Job), DeviceError> {
        let zones = report.left.clamp(1, REPORT_MAX / DESCRIPTOR - 1);
        let len = (zones + 1) * DESCRIPTOR;
        let sector = Sector(report.next.0 - report.next.0 % u64::from(self.block_sectors));
        let lba = self.blocks(sector.0)?;
        let mut sqe = self.sqe(0, [0; 6]).with_data(len);
        ZoneReceive { lba, len: len.into(), action: 0, option: 0, is_partial: true }.emit(&mut sqe);
        let memory = Memory::Received(vec![0; len as usize].into());
        Ok((sqe, Job { context: None, op: Op::Report, memory, report: Some(Box::new(report)) }))
    }

    /// Describes the zones of a namespace without zones: all are conventional.
    fn conventional_zones(&self, sector: Sector, count: u32) -> CommandResult {
        let geometry = self.geometry;
        if sector.0 >= geometry.sectors().0 {
            return Err(DeviceError::OutOfRange);
        }
        let first = geometry.zone_of(sector).0;
        let end = first.saturating_add(count).min(geometry.zones());
        let describe = |zone| {
            let zone = ZoneIndex(zone);
            let size = Sectors(geometry.size_of(zone).into());
            ZoneDescriptor {
                zone,
                start: geometry.start_of(zone),
                size,
                capacity: size,
                zone_type: ZoneType::Conventional,
                condition: ZoneCondition::NotWp,
                write_pointer: None,
            }
        };
        Ok(Output::Zones((first..end).map(describe).collect()))
    }

    /// Processes a completion: the result, or the next command of a report.
    pub(super) fn after(&self, ended: Ended<Job>) -> (Option<Context>, After) {
        let Ended { status, result, received, data: mut job, .. } = ended;
        let context = job.context.take();
        if !status.is_ok() {
            return (context, After::End(Err(device_error(status))));
        }
        if received as usize != job.receive_len() {
            return (context, After::End(Err(DeviceError::Aborted)));
        }
        let output = match (job.op, job.report.take(), job.memory) {
            (Op::Append, ..) => Ok(Output::Appended(self.sector(result))),
            (_, Some(report), Memory::Received(bytes)) => match self.reported(*report, &bytes) {
                Ok(report) if report.left > 0 => match self.report(report) {
                    Ok((sqe, job)) => return (context, After::Next(sqe, job)),
                    Err(error) => Err(error),
                },
                Ok(report) => Ok(Output::Zones(report.zones.into())),
                Err(error) => Err(error),
            },
            _ => Ok(Output::Done),
        };
        (context, After::End(output))
    }

    pub(super) fn sector(&self, lba: u64) -> Sector {
        Sector(lba.saturating_mul(self.block_sectors.into()))
    }

    /// Adds the received zones to the report. Fails if the controller describes other zones than
    /// requested.
    fn reported(&self, mut report: Report, bytes: &[u8]) -> Result<Report, DeviceError> {
        let (header, zones) = ReportHeader::ref_from_prefix(bytes).expect("a header");
        let zones = <[ReportedZone]>::ref_from_bytes(zones).expect("whole descriptors");
        let count = header.zones.get().min(u64::from(report.left)) as usize;
        for zone in zones.iter().take(count) {
            let zone = self.zone(zone).ok_or(DeviceError::Aborted)?;
            let is_next = self.geometry.zone_of(report.next) == zone.zone;
            if !is_next {
                return Err(DeviceError::Aborted);
            }
            report.left -= 1;
            report.next = zone.start + self.geometry.zone_size();
            report.zones.push(zone);
        }
        if count == 0 || report.next.0 >= self.geometry.sectors().0 {
            report.left = 0;
        }
        Ok(report)
    }

    /// Decodes a descriptor (ZNS 3.4.2.2.3); `None` if it is not a zone of this namespace.
    fn zone(&self, zone: &ReportedZone) -> Option<ZoneDescriptor> {
        let [capacity, start, pointer] =
            [zone.capacity, zone.start, zone.pointer].map(|blocks| self.sector(blocks.get()));
        let condition = ZoneCondition::from_code(zone.state >> 4)?;
        let is_in_range = start.0 < self.geometry.sectors().0;
        if zone.kind & 0x0F != ReportedZone::SEQUENTIAL_WRITE_REQUIRED
            || !is_in_range
            || condition == ZoneCondition::NotWp
        {
            return None;
        }
        let has_pointer = condition.is_active() || condition == ZoneCondition::Empty;
        Some(ZoneDescriptor {
            zone: self.geometry.zone_of(start),
            start,
            size: self.geometry.zone_size(),
            capacity: Sectors(capacity.0),
            zone_type: ZoneType::SequentialWriteRequired,
            condition,
            write_pointer: has_pointer.then_some(pointer),
        })
    }
}

impl HostData for Job {
    fn send_len(&self) -> usize {
        match &self.memory {
            Memory::Caller { data, is_read: false } => data.len(),
            Memory::Sent(bytes) => bytes.len(),
            Memory::Caller { is_read: true, .. } | Memory::Received(_) | Memory::None => 0,
        }
    }

    fn receive_len(&self) -> usize {
        match &self.memory {
            Memory::Caller { data, is_read: true } => data.len(),
            Memory::Received(bytes) => bytes.len(),
            Memory::Caller { is_read: false, .. } | Memory::Sent(_) | Memory::None => 0,
        }
    }

    fn for_each(&self, range: Range<usize>, take: &mut dyn FnMut(&[u8])) {
        match &self.memory {
            Memory::None => {}
            Memory::Caller { data, .. } => data.for_each(|at, piece| {
                let from = range.start.saturating_sub(at).min(piece.len());
                let to = range.end.saturating_sub(at).min(piece.len());
                if from < to {
                    take(&piece[from..to]);
                }
            }),
            Memory::Sent(bytes) | Memory::Received(bytes) => take(&bytes[range]),
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        match &mut self.memory {
            Memory::None | Memory::Sent(_) => {}
            Memory::Caller { data, .. } => data.for_each_mut(|begin, piece| {
                // Overlap of `bytes` with this piece.
                let skip = at.saturating_sub(begin).min(piece.len());
                let from = begin.saturating_sub(at).min(bytes.len());
                let len = (piece.len() - skip).min(bytes.len() - from);
                piece[skip..skip + len].copy_from_slice(&bytes[from..from + len]);
            }),
            Memory::Received(own) => own[at..at + bytes.len()].copy_from_slice(bytes),
        }
    }
}
