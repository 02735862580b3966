//! Zones of a scripted device: states and bytes by the rules, one command at a time.

use super::Answer;
use zonal_core::{
    DeviceError, Geometry, Op, SECTOR_BYTES, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneError,
    ZoneIndex, ZoneType,
};
use zonal_io::data::Data;
use zonal_io::device::{Command, CommandResult, Output};

pub(super) struct Zones {
    geometry: Geometry,
    zones: Vec<Zone>,
    /// Timed-out commands that may still be executed, with their bytes.
    late: Vec<(Command, Vec<u8>)>,
}

struct Zone {
    condition: ZoneCondition,
    pointer: u32,
    bytes: Vec<u8>,
}

/// Payload of a command as contiguous bytes.
fn bytes_of(command: &Command) -> Vec<u8> {
    let mut bytes = vec![0; command.data.len()];
    command.data.for_each(|from, piece| bytes[from..from + piece.len()].copy_from_slice(piece));
    bytes
}

/// Byte offset of a sector.
const fn at(sectors: u32) -> usize {
    sectors as usize * SECTOR_BYTES as usize
}

impl Zones {
    pub(super) fn new(geometry: Geometry) -> Zones {
        let zone = |z| {
            let (condition, bytes) = match geometry.is_conventional(z) {
                true => (ZoneCondition::NotWp, vec![0; at(geometry.size_of(z))]),
                false => (ZoneCondition::Empty, Vec::new()),
            };
            Zone { condition, pointer: 0, bytes }
        };
        let zones = (0..geometry.zones()).map(|z| zone(ZoneIndex(z))).collect();
        Zones { geometry, zones, late: Vec::new() }
    }

    fn zone(&mut self, zone: ZoneIndex) -> &mut Zone {
        &mut self.zones[zone.0 as usize]
    }

    pub(super) fn state(&self, zone: ZoneIndex) -> (ZoneCondition, u32) {
        let zone = &self.zones[zone.0 as usize];
        (zone.condition, zone.pointer)
    }

    pub(super) fn set(&mut self, zone: ZoneIndex, condition: ZoneCondition, pointer: u32) {
        let zone = self.zone(zone);
        (zone.condition, zone.pointer) = (condition, pointer);
        zone.bytes.resize(at(pointer), 0);
    }

    pub(super) fn bytes(&self, sector: Sector, sectors: u32) -> Vec<u8> {
        let zone = &self.zones[self.geometry.zone_of(sector).0 as usize];
        let from = at(self.geometry.offset_of(sector));
        (from..from + at(sectors)).map(|n| zone.bytes.get(n).copied().unwrap_or(0)).collect()
    }

    pub(super) fn describe(&self, zone: ZoneIndex) -> ZoneDescriptor {
        let (condition, pointer) = self.state(zone);
        let start = self.geometry.start_of(zone);
        use ZoneCondition::{Full, NotWp, Offline, ReadOnly};
        let has_pointer = !matches!(condition, NotWp | Full | ReadOnly | Offline);
        ZoneDescriptor {
            zone,
            start,
            size: Sectors(self.geometry.size_of(zone).into()),
            capacity: Sectors(self.geometry.capacity_of(zone).into()),
            zone_type: match condition {
                NotWp => ZoneType::Conventional,
                _ => ZoneType::SequentialWriteRequired,
            },
            condition,
            write_pointer: has_pointer.then(|| start + Sectors(pointer.into())),
        }
    }

    pub(super) fn execute(&mut self, command: &Command, answer: Answer) -> CommandResult {
        match answer {
            Answer::Obey => self.obey(command),
            Answer::Refuse(error) => Err(error),
            Answer::Reply(result) => result,
            Answer::Torn(sectors, error) => {
                let part = Command { sectors, ..*command };
                self.write(&part).expect("what is torn would have been written");
                Err(error)
            }
            Answer::Late => {
                self.late.push((Command { data: Data::NONE, ..*command }, bytes_of(command)));
                Err(DeviceError::TimedOut)
            }
        }
    }

    /// Executes late commands of one zone, or all of them.
    pub(super) fn execute_late(&mut self, zone: Option<ZoneIndex>) -> usize {
        let geometry = self.geometry;
        let is_due =
            |c: &Command| zone.is_none_or(|z| geometry.zone_of(c.sector) == z || c.op == Op::ResetAll);
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|(c, _)| is_due(c));
        self.late = later;
        let due: Vec<(Command, Vec<u8>)> = due;
        let executed = due.iter().filter(|(command, bytes)| match command.op {
            op if op.is_write() => self.write_bytes(command, bytes).is_ok(),
            _ => self.obey(command).is_ok(),
        });
        executed.count()
    }

    pub(super) fn forget_late(&mut self) {
        self.late.clear();
    }

    fn obey(&mut self, command: &Command) -> CommandResult {
        let zone = self.geometry.zone_of(command.sector);
        match command.op {
            Op::Read => self.read(command),
            Op::Write | Op::WriteZeroes => self.write(command).map(|_| Output::Done),
            Op::Append => self.write(command).map(Output::Appended),
            Op::Flush => Ok(Output::Done),
            Op::Report => {
                let last = (u64::from(zone.0) + u64::from(command.sectors)).min(self.geometry.zones().into());
                Ok(Output::Zones((zone.0..last as u32).map(|z| self.describe(ZoneIndex(z))).collect()))
            }
            Op::ResetAll => {
                for zone in self.geometry.conventional_zones()..self.geometry.zones() {
                    // Zones that cannot be reset are left unchanged.
                    let _ = self.manage(ZoneIndex(zone), Op::ZoneReset);
                }
                Ok(Output::Done)
            }
            op => self.manage(zone, op).map(|()| Output::Done).map_err(DeviceError::Zone),
        }
    }

    fn manage(&mut self, index: ZoneIndex, op: Op) -> Result<(), ZoneError> {
        let capacity = self.geometry.capacity_of(index);
        let zone = self.zone(index);
        use ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen, NotWp, Offline, ReadOnly};
        let next = match (op, zone.condition) {
            (_, NotWp) => return Err(ZoneError::Conventional),
            (Op::ZoneOffline, Offline | ReadOnly) => Offline,
            (_, Offline | ReadOnly) => return Err(ZoneError::InvalidTransition),
            (Op::ZoneReset, _) => Empty,
            (Op::ZoneFinish, _) => Full,
            (Op::ZoneOffline, _) | (_, Full) => return Err(ZoneError::InvalidTransition),
            (Op::ZoneOpen, _) => ExpOpen,
            (_, ExpOpen | ImpOpen | Closed) => Closed,
            (_, Empty) => return Err(ZoneError::InvalidTransition),
        };
        zone.condition = next;
        zone.pointer = match next {
            Empty | Offline => 0,
            Full => capacity,
            _ => zone.pointer,
        };
        if next == Empty {
            zone.bytes.clear();
        }
        Ok(())
    }

    /// Executes a write or append, and returns its address.
    fn write(&mut self, command: &Command) -> Result<Sector, DeviceError> {
        self.write_bytes(command, &bytes_of(command))
    }

    /// Writes as many of these bytes as the command is long.
    fn write_bytes(&mut self, command: &Command, bytes: &[u8]) -> Result<Sector, DeviceError> {
        let index = self.geometry.zone_of(command.sector);
        let (capacity, conventional) =
            (self.geometry.capacity_of(index), self.geometry.is_conventional(index));
        let offset = self.geometry.offset_of(command.sector);
        let zone = &mut self.zones[index.0 as usize];
        match zone.condition {
            ZoneCondition::Full => return Err(ZoneError::Full.into()),
            ZoneCondition::ReadOnly => return Err(ZoneError::ReadOnly.into()),
            ZoneCondition::Offline => return Err(ZoneError::Offline.into()),
            _ => {}
        }
        let offset = if command.op == Op::Append { zone.pointer } else { offset };
        if !conventional && offset != zone.pointer {
            return Err(ZoneError::InvalidWrite.into());
        }
        if command.sectors > capacity - offset {
            return Err(ZoneError::Boundary.into());
        }
        let end = offset + command.sectors;
        if zone.bytes.len() < at(end) {
            zone.bytes.resize(at(end), 0);
        }
        let target = &mut zone.bytes[at(offset)..at(end)];
        target.fill(0);
        if command.op != Op::WriteZeroes {
            // A torn command has more bytes than are written.
            target.copy_from_slice(&bytes[..target.len()]);
        }
        if !conventional {
            zone.pointer = end;
            zone.condition = if end == capacity { ZoneCondition::Full } else { ZoneCondition::ImpOpen };
        }
        Ok(self.geometry.start_of(index) + Sectors(offset.into()))
    }

    fn read(&mut self, command: &Command) -> CommandResult {
        let zone = self.geometry.zone_of(command.sector);
        if self.state(zone).0 == ZoneCondition::Offline {
            return Err(ZoneError::Offline.into());
        }
        let bytes = self.bytes(command.sector, command.sectors);
        assert_eq!(command.data.len(), bytes.len(), "a read brings its buffer");
        command.data.for_each_mut(|from, piece| piece.copy_from_slice(&bytes[from..from + piece.len()]));
        Ok(Output::Done)
    }
}
