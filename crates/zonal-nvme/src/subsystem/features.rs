//! Features (Base 5.1.25): those that a host of this target can have.

use super::Reply;
use super::controller::Controller;
use crate::status::Status;
use crate::wire::Sqe;

mod id {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER: u8 = 0x02;
    pub const TEMPERATURE: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const WRITE_CACHE: u8 = 0x06;
    pub const QUEUES: u8 = 0x07;
    pub const ATOMICITY: u8 = 0x0A;
    pub const EVENTS: u8 = 0x0B;
    pub const KEEP_ALIVE: u8 = 0x0F;
    pub const COMMAND_SETS: u8 = 0x19;
    pub const HOST: u8 = 0x81;
}

/// Bits of the events that a host can ask for and a controller need not have: namespaces that have changed, and zones.
pub(super) const EVENTS_OPTIONAL: u32 = NAMESPACES | ZONES;
const NAMESPACES: u32 = 1 << 8;
const ZONES: u32 = 1 << 27;

/// Bits of those that every controller takes: critical warnings, of which none comes.
const EVENTS_CRITICAL: u32 = 0x3F;

/// Time to keep alive that a host can have at most, in milliseconds: an hour.
pub(super) const KEEP_ALIVE_MAX: u32 = 3_600_000;

/// Unit of that time, in milliseconds (Base 5.1.13.2.1, KAS, in units of 100 ms).
pub(super) const KEEP_ALIVE_UNIT: u32 = 1000;

/// Temperatures that none is above, and none below (Base 5.1.25.1.3).
const THRESHOLDS: [u16; 2] = [0xFFFF, 0];

pub(super) struct Features {
    keep_alive: u32,
    events: u32,
    /// Over which, and under which, a host wants to hear of the temperature. It stays the same.
    thresholds: [u16; 2],
    has_cache: bool,
    host: [u8; 16],
}

impl Features {
    pub(super) fn new(keep_alive: u32, has_cache: bool, host: [u8; 16]) -> Features {
        Features { keep_alive: in_units(keep_alive), events: 0, thresholds: THRESHOLDS, has_cache, host }
    }

    /// In milliseconds; 0 is no limit.
    pub(super) fn keep_alive(&self) -> u32 {
        self.keep_alive
    }

    pub(super) fn tells_zones(&self) -> bool {
        self.events & ZONES != 0
    }

    pub(super) fn tells_namespaces(&self) -> bool {
        self.events & NAMESPACES != 0
    }

    /// Bytes that a host sends with a command of the admin queue.
    pub(super) fn data(sqe: &Sqe) -> u32 {
        use crate::wire::admin::SET_FEATURES;
        match (sqe.opcode, sqe.dword(10) as u8) {
            (SET_FEATURES, id::HOST) => 16,
            _ => 0,
        }
    }

    pub(super) fn get(&self, sqe: &Sqe, is_discovery: bool) -> Result<Reply, Status> {
        let number = sqe.dword(10) as u8;
        // Current, default and saved values are the same but for those that a host sets; capabilities are what can change.
        let value = match (number, is_discovery) {
            (id::KEEP_ALIVE, _) => self.keep_alive,
            (id::EVENTS, _) => self.events,
            (id::QUEUES, false) => Controller::queues_granted() << 16 | Controller::queues_granted(),
            (id::WRITE_CACHE, false) => u32::from(self.has_cache),
            (id::TEMPERATURE, false) => self.thresholds[threshold(sqe)?].into(),
            (id::ARBITRATION | id::POWER | id::ERROR_RECOVERY | id::ATOMICITY | id::COMMAND_SETS, false) => 0,
            (id::HOST, false) => return Ok(Reply::Data(self.host.to_vec())),
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
            (id::KEEP_ALIVE, _) if value > KEEP_ALIVE_MAX => return Err(Status::KEEP_ALIVE_INVALID),
            (id::KEEP_ALIVE, _) => self.keep_alive = in_units(value),
            (id::EVENTS, false) if value & !(EVENTS_OPTIONAL | EVENTS_CRITICAL) == 0 => self.events = value,
            (id::EVENTS, true) if value == 0 => {}
            // Base 5.1.25.1.6: before there are I/O queues.
            (id::QUEUES, false) if has_queues => return Err(Status::SEQUENCE_ERROR),
            (id::QUEUES, false) => {
                if value as u16 == u16::MAX || (value >> 16) as u16 == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                let granted = Controller::queues_granted();
                return Ok(u64::from(granted << 16 | granted));
            }
            (id::TEMPERATURE, false) => self.thresholds[threshold(sqe)?] = value as u16,
            (id::WRITE_CACHE, false) if (value & 1 == 1) == self.has_cache => {}
            // The cache is the device's, and the only profile of command sets is the first.
            (id::WRITE_CACHE, false) => return Err(Status::FEATURE_NOT_CHANGEABLE),
            (id::COMMAND_SETS, false) if value & 0x1FF == 0 => {}
            (id::ARBITRATION | id::POWER | id::ERROR_RECOVERY | id::ATOMICITY, false) if value == 0 => {}
            (id::HOST, false) => return Err(Status::SEQUENCE_ERROR),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(0)
    }
}

fn in_units(keep_alive: u32) -> u32 {
    keep_alive.next_multiple_of(KEEP_ALIVE_UNIT)
}

/// Which threshold a command is about. There is one temperature, the composite one; a host may also say all.
fn threshold(sqe: &Sqe) -> Result<usize, Status> {
    match (sqe.dword(11) >> 20 & 3, sqe.dword(11) >> 16 & 0xF) {
        (which @ (0 | 1), 0 | 0xF) => Ok(which as usize),
        _ => Err(Status::INVALID_FIELD),
    }
}
