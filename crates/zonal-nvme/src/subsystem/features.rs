//! Features (Base 5.1.25) of a controller.

use super::Reply;
use super::controller::Controller;
use crate::status::Status;
use crate::wire::{Sqe, admin, event, feature};

/// Optional events that hosts can enable: namespace and zone changes.
pub(super) const EVENTS_OPTIONAL: u32 = event::NAMESPACES | event::ZONES;

/// Critical warning events, mandatory for every controller. They never occur here.
const EVENTS_CRITICAL: u32 = 0x3F;

/// Maximum keep alive timeout in milliseconds: one hour.
pub(super) const KEEP_ALIVE_MAX: u32 = 3_600_000;

/// Granularity of the timeout in milliseconds (Base 5.1.13.2.1; KAS is in units of 100 ms).
pub(super) const KEEP_ALIVE_UNIT: u32 = 1000;

/// Temperature thresholds that are never exceeded (Base 5.1.25.1.3).
const THRESHOLDS: [u16; 2] = [0xFFFF, 0];

pub(super) struct Features {
    keep_alive: u32,
    events: u32,
    /// Upper and lower thresholds for temperature events. The reported temperature is constant.
    thresholds: [u16; 2],
    has_cache: bool,
    host: [u8; 16],
}

impl Features {
    pub(super) fn new(keep_alive: u32, has_cache: bool, host: [u8; 16]) -> Features {
        Features { keep_alive: in_units(keep_alive), events: 0, thresholds: THRESHOLDS, has_cache, host }
    }

    /// Keep alive timeout in milliseconds; 0 means none.
    pub(super) fn keep_alive(&self) -> u32 {
        self.keep_alive
    }

    pub(super) fn has_zone_events(&self) -> bool {
        self.events & event::ZONES != 0
    }

    pub(super) fn has_namespace_events(&self) -> bool {
        self.events & event::NAMESPACES != 0
    }

    /// Bytes of data from the host with this admin command.
    pub(super) fn data(sqe: &Sqe) -> u32 {
        match (sqe.opcode, sqe.dword(10) as u8) {
            (admin::SET_FEATURES, feature::HOST) => 16,
            _ => 0,
        }
    }

    pub(super) fn get(&self, sqe: &Sqe, is_discovery: bool) -> Result<Reply, Status> {
        let number = sqe.dword(10) as u8;
        // Current, default and saved values are equal, except for features set by the host;
        // capabilities describe the changeable ones.
        let value = match (number, is_discovery) {
            (feature::KEEP_ALIVE, _) => self.keep_alive,
            (feature::EVENTS, _) => self.events,
            (feature::QUEUES, false) => Controller::queues_granted() << 16 | Controller::queues_granted(),
            (feature::WRITE_CACHE, false) => u32::from(self.has_cache),
            (feature::TEMPERATURE, false) => self.thresholds[threshold(sqe)?].into(),
            (
                feature::ARBITRATION
                | feature::POWER
                | feature::ERROR_RECOVERY
                | feature::ATOMICITY
                | feature::COMMAND_SETS,
                false,
            ) => 0,
            (feature::HOST, false) => return Ok(Reply::Data(self.host.to_vec())),
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Reply::Done(value.into()))
    }

    pub(super) fn set(&mut self, sqe: &Sqe, is_discovery: bool, has_queues: bool) -> Result<u64, Status> {
        const SAVE: u32 = 1 << 31;
        let (number, value) = (sqe.dword(10) as u8, sqe.dword(11));
        if sqe.dword(10) & SAVE != 0 {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        match (number, is_discovery) {
            (feature::KEEP_ALIVE, _) if value > KEEP_ALIVE_MAX => return Err(Status::KEEP_ALIVE_INVALID),
            (feature::KEEP_ALIVE, _) => self.keep_alive = in_units(value),
            (feature::EVENTS, false) if value & !(EVENTS_OPTIONAL | EVENTS_CRITICAL) == 0 => {
                self.events = value
            }
            (feature::EVENTS, true) if value == 0 => {}
            // Base 5.1.25.1.6: only before I/O queues exist.
            (feature::QUEUES, false) if has_queues => return Err(Status::SEQUENCE_ERROR),
            (feature::QUEUES, false) => {
                if value as u16 == u16::MAX || (value >> 16) as u16 == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                let granted = Controller::queues_granted();
                return Ok(u64::from(granted << 16 | granted));
            }
            (feature::TEMPERATURE, false) => self.thresholds[threshold(sqe)?] = value as u16,
            (feature::WRITE_CACHE, false) if (value & 1 == 1) == self.has_cache => {}
            // The cache setting belongs to the device, and there is only one command set profile.
            (feature::WRITE_CACHE, false) => return Err(Status::FEATURE_NOT_CHANGEABLE),
            (feature::COMMAND_SETS, false) if value & 0x1FF == 0 => {}
            (feature::ARBITRATION | feature::POWER | feature::ERROR_RECOVERY | feature::ATOMICITY, false)
                if value == 0 => {}
            (feature::HOST, false) => return Err(Status::SEQUENCE_ERROR),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(0)
    }
}

fn in_units(keep_alive: u32) -> u32 {
    keep_alive.next_multiple_of(KEEP_ALIVE_UNIT)
}

/// Threshold selected by a command: only the composite temperature exists; hosts may also select
/// all.
fn threshold(sqe: &Sqe) -> Result<usize, Status> {
    match (sqe.dword(11) >> 20 & 3, sqe.dword(11) >> 16 & 0xF) {
        (which @ (0 | 1), 0 | 0xF) => Ok(which as usize),
        _ => Err(Status::INVALID_FIELD),
    }
}
