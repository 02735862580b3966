//! Requests of a SCSI host device (VIRTIO 5.6.6).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a command, as the configuration space says if no driver changes it.
pub const CDB_LEN: usize = 32;
/// Bytes of sense data, likewise.
pub const SENSE_LEN: usize = 96;

/// Feature: events of units that come and leave (VIRTIO 5.6.3).
pub const HOTPLUG: u64 = 1 << 1;
/// Feature: events of units that change.
pub const CHANGE: u64 = 1 << 2;
/// Feature: of devices from before the standard: descriptors may divide a request anywhere.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// Feature: indirect descriptors (VIRTIO 6).
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Feature: notifications by index.
pub const EVENT_IDX: u64 = 1 << 29;
/// Feature: not a device of before the standard.
pub const VERSION_1: u64 = 1 << 32;

/// What precedes the data of a command (VIRTIO 5.6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandHeader {
    /// Target and logical unit: see [`address`].
    pub lun: [u8; 8],
    /// The driver's number of the command.
    pub tag: U64,
    /// Task attribute.
    pub attribute: u8,
    /// Priority.
    pub priority: u8,
    /// Command reference number.
    pub crn: u8,
    /// The command.
    pub cdb: [u8; CDB_LEN],
}

/// What precedes the data that a command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandResponse {
    /// Bytes of sense data.
    pub sense_len: U32,
    /// Bytes of the buffer that were not moved.
    pub residual: U32,
    /// Status qualifier of SAM.
    pub qualifier: U16,
    /// Status of SAM.
    pub status: u8,
    /// One of [`response`].
    pub response: u8,
    /// Sense data.
    pub sense: [u8; SENSE_LEN],
}

impl Default for CommandResponse {
    fn default() -> CommandResponse {
        CommandResponse {
            sense_len: 0.into(),
            residual: 0.into(),
            qualifier: 0.into(),
            status: 0,
            response: response::OK,
            sense: [0; SENSE_LEN],
        }
    }
}

/// Task management on the control queue (VIRTIO 5.6.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ManagementRequest {
    /// [`control::MANAGEMENT`].
    pub request: U32,
    /// One of [`function`].
    pub function: U32,
    /// Target and logical unit.
    pub lun: [u8; 8],
    /// The driver's number of a command.
    pub tag: U64,
}

/// A query of, or subscription to, asynchronous notifications (VIRTIO 5.6.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NotificationRequest {
    /// [`control::QUERY`] or [`control::SUBSCRIBE`].
    pub request: U32,
    /// Target and logical unit.
    pub lun: [u8; 8],
    /// Notifications.
    pub events: U32,
}

/// The answer to a [`NotificationRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NotificationResponse {
    /// Notifications that there are.
    pub events: U32,
    /// One of [`response`].
    pub response: u8,
}

/// Requests of the control queue.
pub mod control {
    /// Task management.
    pub const MANAGEMENT: u32 = 0;
    /// Which notifications there are.
    pub const QUERY: u32 = 1;
    /// Which notifications are wanted.
    pub const SUBSCRIBE: u32 = 2;
}

/// Functions of task management.
pub mod function {
    /// Ends one command.
    pub const ABORT_TASK: u32 = 0;
    /// Ends the commands of this initiator.
    pub const ABORT_TASK_SET: u32 = 1;
    /// Clears an auto contingent allegiance, which this device does not have.
    pub const CLEAR_ACA: u32 = 2;
    /// Ends all commands.
    pub const CLEAR_TASK_SET: u32 = 3;
    /// Ends the initiator's commands, as the loss of its connection does.
    pub const I_T_NEXUS_RESET: u32 = 4;
    /// Ends all commands of the logical unit.
    pub const LOGICAL_UNIT_RESET: u32 = 5;
    /// Whether a command has not ended.
    pub const QUERY_TASK: u32 = 6;
    /// Whether any command has not ended.
    pub const QUERY_TASK_SET: u32 = 7;
}

/// Values of the response byte.
pub mod response {
    /// The command has ended with a status. Of a function: it is complete.
    pub const OK: u8 = 0;
    /// Ended by an Abort.
    pub const ABORTED: u8 = 2;
    /// No such target.
    pub const BAD_TARGET: u8 = 3;
    /// Ended by a reset.
    pub const RESET: u8 = 4;
    /// A function has found what it asks for.
    pub const FUNCTION_SUCCEEDED: u8 = 10;
    /// There is no such function.
    pub const FUNCTION_REJECTED: u8 = 11;
    /// No such logical unit.
    pub const INCORRECT_LUN: u8 = 12;
}

/// Bytes of a command's header.
pub const HEADER_LEN: usize = size_of::<CommandHeader>();
/// Bytes of a command's response.
pub const RESPONSE_LEN: usize = size_of::<CommandResponse>();

const _: () = assert!(HEADER_LEN == 51 && RESPONSE_LEN == 108);

/// The logical unit that these eight bytes name, or `None` if the target is another one: 1, the target, which is 0 here, and the unit
/// by the flat or the peripheral method (VIRTIO 5.6.6.1, SAM 4.7.7).
pub fn address(lun: [u8; 8]) -> Option<u16> {
    let unit = u16::from_be_bytes([lun[2], lun[3]]);
    (lun[0] == 1 && lun[1] == 0 && unit >> 15 == 0).then_some(unit & 0x3FFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_of_target_0_by_flat_or_peripheral_method() {
        assert_eq!(address([1, 0, 0x40, 0, 0, 0, 0, 0]), Some(0));
        assert_eq!(address([1, 0, 0, 5, 0, 0, 0, 0]), Some(5));
        assert_eq!(address([1, 0, 0x41, 2, 0, 0, 0, 0]), Some(0x102));
        assert_eq!(address([1, 1, 0x40, 0, 0, 0, 0, 0]), None);
        assert_eq!(address([0, 0, 0x40, 0, 0, 0, 0, 0]), None);
        assert_eq!(address([0xC1, 1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(address([1, 0, 0xC0, 0, 0, 0, 0, 0]), None);
    }
}
