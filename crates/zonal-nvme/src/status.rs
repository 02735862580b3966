//! Status codes, and the single mapping from errors to them.
//!
//! Every error about a zone's state or position sets `DNR`, because a retry would fail again (ZNS
//! 2.1.1.2). Linux retries commands that fail without `DNR`.

use zonal_core::{DeviceError, RequestError, ZoneError};

/// Status of a command (Base 4.2.3): type, code, and the Do Not Retry bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Status {
    kind: u8,
    code: u8,
    is_final: bool,
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = ($kind:literal, $code:literal, $is_final:literal);)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status { kind: $kind, code: $code, is_final: $is_final };)*

            /// All named statuses.
            pub const ALL: &'static [Status] = &[$(Status::$name),*];
        }
    };
}

statuses! {
    /// Success.
    SUCCESS = (0, 0x00, false);
    /// The opcode is not supported.
    INVALID_OPCODE = (0, 0x01, true);
    /// A field has an invalid value.
    INVALID_FIELD = (0, 0x02, true);
    /// The controller failed.
    INTERNAL_ERROR = (0, 0x06, true);
    /// The host aborted the command.
    ABORT_REQUESTED = (0, 0x07, true);
    /// The command's queue was deleted.
    ABORTED_QUEUE_DELETED = (0, 0x08, true);
    /// There is no such namespace.
    INVALID_NAMESPACE = (0, 0x0B, true);
    /// The command is out of sequence.
    SEQUENCE_ERROR = (0, 0x0C, true);
    /// The length in the data pointer does not match the command.
    DATA_LENGTH_INVALID = (0, 0x0F, true);
    /// The transport does not support this type of data pointer.
    SGL_TYPE_INVALID = (0, 0x11, true);
    /// The data pointer's offset lies outside the capsule.
    SGL_OFFSET_INVALID = (0, 0x16, true);
    /// The keep alive timeout is out of range.
    KEEP_ALIVE_INVALID = (0, 0x19, true);
    /// The namespace is write-protected.
    WRITE_PROTECTED = (0, 0x20, true);
    /// The command was not executed and may be retried.
    INTERRUPTED = (0, 0x21, false);
    /// Data was corrupted between host and target.
    TRANSIENT_TRANSPORT_ERROR = (0, 0x22, false);
    /// The range extends beyond the end of the namespace.
    LBA_OUT_OF_RANGE = (0, 0x80, true);
    /// The device is not available.
    NOT_READY = (0, 0x82, true);

    /// Too many Abort commands outstanding.
    ABORT_LIMIT = (1, 0x03, true);
    /// Too many event requests outstanding.
    EVENT_LIMIT = (1, 0x05, true);
    /// There is no such log page.
    INVALID_LOG_PAGE = (1, 0x09, true);
    /// The feature cannot be saved: its value lasts as long as the controller.
    FEATURE_NOT_SAVEABLE = (1, 0x0D, true);
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = (1, 0x0E, true);
    /// Unknown format of the Connect command.
    CONNECT_FORMAT = (1, 0x80, true);
    /// No free controller or queue.
    CONNECT_BUSY = (1, 0x81, false);
    /// Invalid parameter of the Connect command.
    CONNECT_INVALID = (1, 0x82, true);
    /// The command is not valid on this type of queue.
    INVALID_QUEUE_TYPE = (1, 0x85, true);

    /// The command crosses the boundary of its zone, or its writable capacity.
    ZONE_BOUNDARY = (1, 0xB8, true);
    /// The zone is full.
    ZONE_FULL = (1, 0xB9, true);
    /// The zone is read-only.
    ZONE_READ_ONLY = (1, 0xBA, true);
    /// The zone is offline.
    ZONE_OFFLINE = (1, 0xBB, true);
    /// The write does not start at the write pointer.
    ZONE_INVALID_WRITE = (1, 0xBC, true);
    /// No active zone resources are left.
    TOO_MANY_ACTIVE = (1, 0xBD, true);
    /// No open zone resources are left.
    TOO_MANY_OPEN = (1, 0xBE, true);
    /// The zone's state does not permit the action.
    ZONE_TRANSITION = (1, 0xBF, true);

    /// Write error of the medium.
    WRITE_FAULT = (2, 0x80, true);
    /// Read error of the medium.
    READ_ERROR = (2, 0x81, true);
}

impl Status {
    /// Do Not Retry, as bit 14 of [`number`](Status::number).
    pub const DNR: u16 = 0x4000;

    /// Type and code as printed by hosts (bits 10:0), with `DNR`.
    pub const fn number(self) -> u16 {
        (self.kind as u16) << 8 | self.code as u16 | if self.is_final { Status::DNR } else { 0 }
    }

    /// Status field of a completion. The phase tag below it is zero over fabrics.
    pub const fn field(self) -> u16 {
        self.number() << 1
    }

    /// Decodes the status field of a completion (Base 4.2.3).
    pub const fn from_field(field: u16) -> Status {
        let number = field >> 1;
        Status { kind: (number >> 8 & 7) as u8, code: number as u8, is_final: number & Status::DNR != 0 }
    }

    /// True if type and code are equal, regardless of `DNR`.
    pub const fn is_like(self, other: Status) -> bool {
        self.kind == other.kind && self.code == other.code
    }

    /// True if the command must not be retried.
    pub const fn is_final(self) -> bool {
        self.is_final
    }

    /// True for success.
    pub const fn is_ok(self) -> bool {
        self.kind == 0 && self.code == 0
    }

    /// Status of a failed request.
    pub fn of_request(error: &RequestError, is_read: bool) -> Status {
        match *error {
            RequestError::NotAtWritePointer { .. }
            | RequestError::PredecessorLost { .. }
            | RequestError::PredecessorMissing { .. } => Status::ZONE_INVALID_WRITE,
            RequestError::BeyondCapacity { .. } => Status::ZONE_BOUNDARY,
            RequestError::ZoneFull { .. } => Status::ZONE_FULL,
            RequestError::ZoneReadOnly { .. } => Status::ZONE_READ_ONLY,
            RequestError::ZoneOffline { .. } => Status::ZONE_OFFLINE,
            RequestError::Conventional { .. }
            | RequestError::Sequential { .. }
            | RequestError::Invalid(_) => Status::INVALID_FIELD,
            RequestError::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE,
            RequestError::WouldWait => Status::INTERRUPTED,
            // The zone was reset or finished while the write waited, so its position is gone.
            RequestError::Aborted { .. } => Status::ZONE_INVALID_WRITE,
            RequestError::NoSlot { .. } => Status::TOO_MANY_ACTIVE,
            // Some or all of the data may be on the medium; a retry could write it twice.
            RequestError::FateUnknown { error, .. }
            | RequestError::InPart { error, .. }
            | RequestError::TornAppend { error, .. } => match Status::of_device(error, is_read) {
                status if status.is_final => status,
                _ => Status::INTERNAL_ERROR,
            },
            RequestError::GaveUp { error, .. } => Status::of_device(error, is_read),
            RequestError::Cancelled => Status::ABORT_REQUESTED,
            RequestError::Device(error) => Status::of_device(error, is_read),
        }
    }

    /// Status of a command that failed at the device.
    pub fn of_device(error: DeviceError, is_read: bool) -> Status {
        match error {
            DeviceError::Zone(error) => Status::of_zone(error),
            DeviceError::OutOfRange => Status::LBA_OUT_OF_RANGE,
            DeviceError::InvalidField => Status::INVALID_FIELD,
            DeviceError::Unsupported => Status::INVALID_OPCODE,
            DeviceError::Medium | DeviceError::Os(_) if is_read => Status::READ_ERROR,
            DeviceError::Medium | DeviceError::Stale | DeviceError::Os(_) => Status::WRITE_FAULT,
            DeviceError::Busy | DeviceError::UnitAttention => Status::INTERRUPTED,
            // The command may have been executed; a retry could execute it twice.
            DeviceError::Aborted | DeviceError::TimedOut => Status::INTERNAL_ERROR,
            DeviceError::Gone => Status::NOT_READY,
            DeviceError::OpenedForReading => Status::WRITE_PROTECTED,
        }
    }

    /// Status of a command refused by a zone.
    pub fn of_zone(error: ZoneError) -> Status {
        match error {
            ZoneError::InvalidWrite => Status::ZONE_INVALID_WRITE,
            ZoneError::Boundary => Status::ZONE_BOUNDARY,
            ZoneError::Full => Status::ZONE_FULL,
            ZoneError::ReadOnly => Status::ZONE_READ_ONLY,
            ZoneError::Offline => Status::ZONE_OFFLINE,
            ZoneError::TooManyActive => Status::TOO_MANY_ACTIVE,
            ZoneError::TooManyOpen => Status::TOO_MANY_OPEN,
            ZoneError::InvalidTransition => Status::ZONE_TRANSITION,
            ZoneError::Conventional | ZoneError::Sequential => Status::INVALID_FIELD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ZNS 4.1.2, with the numbers as printed by hosts.
    #[test]
    fn refusals_of_zones_have_the_standards_numbers_and_are_final() {
        let table = [
            (ZoneError::Boundary, 0x41B8),
            (ZoneError::Full, 0x41B9),
            (ZoneError::ReadOnly, 0x41BA),
            (ZoneError::Offline, 0x41BB),
            (ZoneError::InvalidWrite, 0x41BC),
            (ZoneError::TooManyActive, 0x41BD),
            (ZoneError::TooManyOpen, 0x41BE),
            (ZoneError::InvalidTransition, 0x41BF),
            (ZoneError::Conventional, 0x4002),
            (ZoneError::Sequential, 0x4002),
        ];
        assert_eq!(table.map(|(error, _)| error), ZoneError::ALL);
        for (error, number) in table {
            assert_eq!(Status::of_zone(error).number(), number, "{error}");
        }
    }

    #[test]
    fn only_commands_not_executed_may_be_retried() {
        for error in DeviceError::all() {
            for is_read in [false, true] {
                let again = Status::of_device(error, is_read).number() & Status::DNR == 0;
                let was_not = matches!(error, DeviceError::Busy | DeviceError::UnitAttention);
                assert_eq!(again, was_not, "{error}");
            }
        }
    }
}
