//! Mapping from statuses to device errors, and errors of attaching.

use super::queue::QueueError;
use crate::status::Status;
use std::io;
use std::net::SocketAddr;
use zonal_core::{DeviceError, GeometryError, ZoneError};

/// Device error for each status of a controller: the inverse of [`Status::of_device`] where that
/// has one.
///
/// If a status does not determine how much was executed, neither does the error.
const TABLE: &[(Status, DeviceError)] = &[
    (Status::INVALID_OPCODE, DeviceError::Unsupported),
    (Status::INVALID_FIELD, DeviceError::InvalidField),
    (Status::INTERNAL_ERROR, DeviceError::Aborted),
    (Status::ABORT_REQUESTED, DeviceError::Aborted),
    (Status::ABORTED_QUEUE_DELETED, DeviceError::Aborted),
    (Status::INVALID_NAMESPACE, DeviceError::Gone),
    (Status::SEQUENCE_ERROR, DeviceError::Gone),
    (Status::DATA_LENGTH_INVALID, DeviceError::InvalidField),
    (Status::SGL_TYPE_INVALID, DeviceError::InvalidField),
    (Status::SGL_OFFSET_INVALID, DeviceError::InvalidField),
    (Status::KEEP_ALIVE_INVALID, DeviceError::InvalidField),
    (Status::WRITE_PROTECTED, DeviceError::OpenedForReading),
    (Status::INTERRUPTED, DeviceError::Busy),
    (Status::TRANSIENT_TRANSPORT_ERROR, DeviceError::Busy),
    (Status::LBA_OUT_OF_RANGE, DeviceError::OutOfRange),
    (Status::NOT_READY, DeviceError::Gone),
    (Status::EVENT_LIMIT, DeviceError::InvalidField),
    (Status::ABORT_LIMIT, DeviceError::Busy),
    (Status::INVALID_LOG_PAGE, DeviceError::InvalidField),
    (Status::FEATURE_NOT_CHANGEABLE, DeviceError::InvalidField),
    (Status::FEATURE_NOT_SAVEABLE, DeviceError::InvalidField),
    (Status::INVALID_QUEUE_TYPE, DeviceError::InvalidField),
    (Status::CONNECT_FORMAT, DeviceError::InvalidField),
    (Status::CONNECT_BUSY, DeviceError::Busy),
    (Status::CONNECT_INVALID, DeviceError::InvalidField),
    (Status::ZONE_BOUNDARY, DeviceError::Zone(ZoneError::Boundary)),
    (Status::ZONE_FULL, DeviceError::Zone(ZoneError::Full)),
    (Status::ZONE_READ_ONLY, DeviceError::Zone(ZoneError::ReadOnly)),
    (Status::ZONE_OFFLINE, DeviceError::Zone(ZoneError::Offline)),
    (Status::ZONE_INVALID_WRITE, DeviceError::Zone(ZoneError::InvalidWrite)),
    (Status::TOO_MANY_ACTIVE, DeviceError::Zone(ZoneError::TooManyActive)),
    (Status::TOO_MANY_OPEN, DeviceError::Zone(ZoneError::TooManyOpen)),
    (Status::ZONE_TRANSITION, DeviceError::Zone(ZoneError::InvalidTransition)),
    (Status::WRITE_FAULT, DeviceError::Medium),
    (Status::READ_ERROR, DeviceError::Medium),
];

/// Error for a failed command. A status that is not in the table does not tell how much was
/// executed.
pub fn device_error(status: Status) -> DeviceError {
    let known = TABLE.iter().find(|(known, _)| known.is_like(status));
    known.map_or(DeviceError::Aborted, |(_, error)| *error)
}

/// Reason why a drive cannot be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No connection to the controller's address.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Address of the controller.
        address: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The connection broke or timed out.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The controller violated the protocol.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The controller refused a command during attach.
    #[error("the controller refused {what}: status {:#06x}", status.number())]
    Refused {
        /// Description of the command, for messages.
        what: &'static str,
        /// Status of the completion.
        status: Status,
    },
    /// The controller did not become ready.
    #[error("the controller is not ready after {0} s")]
    NotReady(u64),
    /// No such namespace, or none at all.
    #[error("{}", match nsid { Some(nsid) => format!("there is no namespace {nsid}"), None => "there is no namespace".to_owned() })]
    NoNamespace {
        /// Requested namespace.
        nsid: Option<u32>,
    },
    /// The namespace has a property that devices do not support.
    #[error("namespace {nsid} has {what}")]
    Namespace {
        /// Namespace number.
        nsid: u32,
        /// Unsupported property.
        what: &'static str,
    },
    /// The reported zones do not form a valid geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The zone report failed.
    #[error("the zones cannot be read: {0}")]
    Report(DeviceError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_but_success_has_its_error() {
        for status in Status::ALL {
            let rows = TABLE.iter().filter(|(known, _)| known.is_like(*status)).count();
            assert_eq!(rows, usize::from(!status.is_ok()), "{:#06x}", status.number());
        }
        assert_eq!(TABLE.len(), Status::ALL.len() - 1);
    }

    #[test]
    fn device_errors_keep_their_meaning_over_the_wire() {
        for error in DeviceError::all().chain([DeviceError::Os(5)]) {
            for is_read in [false, true] {
                let back = device_error(Status::of_device(error, is_read));
                let expected = match error {
                    DeviceError::UnitAttention => DeviceError::Busy,
                    DeviceError::TimedOut => DeviceError::Aborted,
                    DeviceError::Os(_) | DeviceError::Stale => DeviceError::Medium,
                    DeviceError::Zone(ZoneError::Conventional | ZoneError::Sequential) => {
                        DeviceError::InvalidField
                    }
                    same => same,
                };
                assert_eq!(back, expected, "{error}");
            }
        }
    }

    #[test]
    fn unknown_status_makes_the_outcome_uncertain() {
        for field in [0x0FFE, 0xFFFE, 0x0E00] {
            assert!(device_error(Status::from_field(field)).is_uncertain(), "{field:#x}");
        }
    }
}
