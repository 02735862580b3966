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

/// Bits of the events that a host can ask for: namespaces that have changed, and zones.
pub(super) const EVENTS: u32 = NAMESPACES | ZONES;
const NAMESPACES: u32 = 1 << 8;
const ZONES: u32 = 1 << 27;

/// Time to keep alive that a host can have at most, in milliseconds: an hour.
const KEEP_ALIVE_MAX: u32 = 3_600_000;

pub(super) struct Features {
    keep_alive: u32,
    events: u32,
    temperature: u32,
    has_cache: bool,
    host: [u8; 16],
}

impl Features {
    pub(super) fn new(keep_alive: u32, has_cache: bool, host: [u8; 16]) -> Features {
        Features { keep_alive: keep_alive.min(KEEP_ALIVE_MAX), events: 0, temperature: 0, has_cache, host }
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
            (id::TEMPERATURE, false) => self.temperature,
            (id::ARBITRATION | id::POWER | id::ERROR_RECOVERY | id::ATOMICITY | id::COMMAND_SETS, false) => 0,
            (id::HOST, false) => return Ok(Reply::Data(self.host.to_vec())),
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Reply::Done(value.into()))
    }

    pub(super) fn set(&mut self, sqe: &Sqe, is_discovery: bool) -> Result<u64, Status> {
        let (number, value) = (sqe.dword(10) as u8, sqe.dword(11));
        match (number, is_discovery) {
            (id::KEEP_ALIVE, _) if value > KEEP_ALIVE_MAX => return Err(Status::KEEP_ALIVE_INVALID),
            (id::KEEP_ALIVE, _) => self.keep_alive = value,
            (id::EVENTS, true) => self.events = 0,
            (id::EVENTS, false) => self.events = value & EVENTS,
            (id::QUEUES, false) => {
                if value as u16 == u16::MAX || (value >> 16) as u16 == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                let granted = Controller::queues_granted();
                return Ok(u64::from(granted << 16 | granted));
            }
            (id::TEMPERATURE, false) => self.temperature = value & 0xFFFF,
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
