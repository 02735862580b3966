//! Requests of a SCSI host device (VIRTIO 5.6.6).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a command descriptor in bytes: the default of the configuration space.
pub const CDB_LEN: usize = 32;
/// Length of sense data in bytes: the default of the configuration space.
pub const SENSE_LEN: usize = 96;

/// Feature: events for added and removed units (VIRTIO 5.6.3).
pub const HOTPLUG: u64 = 1 << 1;
/// Feature: events for changed units.
pub const CHANGE: u64 = 1 << 2;
/// Legacy feature: descriptors may split a request anywhere.
pub const ANY_LAYOUT: u64 = 1 << 27;
/// Feature: indirect descriptors (VIRTIO 6).
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Feature: notifications by index.
pub const EVENT_IDX: u64 = 1 << 29;
/// Feature: not a legacy device.
pub const VERSION_1: u64 = 1 << 32;

/// Header of a command, before its data (VIRTIO 5.6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandHeader {
    /// Target and logical unit: see [`address`].
    pub lun: [u8; 8],
    /// Tag chosen by the driver.
    pub tag: U64,
    /// Task attribute.
    pub attribute: u8,
    /// Priority.
    pub priority: u8,
    /// Command reference number.
    pub crn: u8,
    /// Command descriptor.
    pub cdb: [u8; CDB_LEN],
}

/// Response of a command, before the data that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CommandResponse {
    /// Length of the sense data in bytes.
    pub sense_len: U32,
    /// Bytes of the buffer that were not transferred.
    pub residual: U32,
    /// SAM status qualifier.
    pub qualifier: U16,
    /// SAM status.
    pub status: u8,
    /// Response code, see [`response`].
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
    /// Function code, see [`function`].
    pub function: U32,
    /// Target and logical unit.
    pub lun: [u8; 8],
    /// Tag of a command, chosen by the driver.
    pub tag: U64,
}

/// Query of, or subscription to, asynchronous notifications (VIRTIO 5.6.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NotificationRequest {
    /// [`control::QUERY`] or [`control::SUBSCRIBE`].
    pub request: U32,
    /// Target and logical unit.
    pub lun: [u8; 8],
    /// Notification bits.
    pub events: U32,
}

/// Response to a [`NotificationRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NotificationResponse {
    /// Supported notifications.
    pub events: U32,
    /// Response code, see [`response`].
    pub response: u8,
}

/// Request types of the control queue.
pub mod control {
    /// Task management.
    pub const MANAGEMENT: u32 = 0;
    /// Query supported notifications.
    pub const QUERY: u32 = 1;
    /// Subscribe to notifications.
    pub const SUBSCRIBE: u32 = 2;
}

/// Task management functions.
pub mod function {
    /// Abort one command.
    pub const ABORT_TASK: u32 = 0;
    /// Abort the commands of this initiator.
    pub const ABORT_TASK_SET: u32 = 1;
    /// Clear an auto contingent allegiance, which this device does not have.
    pub const CLEAR_ACA: u32 = 2;
    /// Abort all commands.
    pub const CLEAR_TASK_SET: u32 = 3;
    /// Abort the initiator's commands, as on loss of its connection.
    pub const I_T_NEXUS_RESET: u32 = 4;
    /// Abort all commands of the logical unit.
    pub const LOGICAL_UNIT_RESET: u32 = 5;
    /// Query whether a command is in progress.
    pub const QUERY_TASK: u32 = 6;
    /// Query whether any command is in progress.
    pub const QUERY_TASK_SET: u32 = 7;
}

/// Response codes.
pub mod response {
    /// The command completed with a status, or the function is complete.
    pub const OK: u8 = 0;
    /// Aborted by a task management function.
    pub const ABORTED: u8 = 2;
    /// No such target.
    pub const BAD_TARGET: u8 = 3;
    /// Aborted by a reset.
    pub const RESET: u8 = 4;
    /// The function found a matching command.
    pub const FUNCTION_SUCCEEDED: u8 = 10;
    /// Unsupported function.
    pub const FUNCTION_REJECTED: u8 = 11;
    /// No such logical unit.
    pub const INCORRECT_LUN: u8 = 12;
}

/// Length of a command header in bytes.
pub const HEADER_LEN: usize = size_of::<CommandHeader>();
/// Length of a command response in bytes.
pub const RESPONSE_LEN: usize = size_of::<CommandResponse>();

const _: () = assert!(HEADER_LEN == 51 && RESPONSE_LEN == 108);

/// Logical unit of this address; `None` for another target. The address consists of 1, the target,
/// which is 0 here, and the unit in flat or peripheral format (VIRTIO 5.6.6.1, SAM 4.7.7).
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
