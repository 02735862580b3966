//! Statuses, and the one table from errors to them.
//!
//! Every error of a zone's state or position has `DNR`: a host that sent the command again would get the same answer
//! (ZNS 2.1.1.2; Linux sends again what has no `DNR`).

use zonal_core::{DeviceError, RequestError, ZoneError};

/// A command's status (Base 4.2.3): type, code, and whether it is of no use to send the command again.
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

            /// Every status with a name.
            pub const ALL: &'static [Status] = &[$(Status::$name),*];
        }
    };
}

statuses! {
    /// The command has succeeded.
    SUCCESS = (0, 0x00, false);
    /// The opcode is not supported.
    INVALID_OPCODE = (0, 0x01, true);
    /// A field has a value that it may not have.
    INVALID_FIELD = (0, 0x02, true);
    /// The controller failed.
    INTERNAL_ERROR = (0, 0x06, true);
    /// The host asked for the command's end.
    ABORT_REQUESTED = (0, 0x07, true);
    /// The command's queue was deleted.
    ABORTED_QUEUE_DELETED = (0, 0x08, true);
    /// There is no such namespace.
    INVALID_NAMESPACE = (0, 0x0B, true);
    /// The command comes too early.
    SEQUENCE_ERROR = (0, 0x0C, true);
    /// The data pointer's length is not the command's.
    DATA_LENGTH_INVALID = (0, 0x0F, true);
    /// The data pointer's type is none that the transport has.
    SGL_TYPE_INVALID = (0, 0x11, true);
    /// The data pointer's offset lies outside the capsule.
    SGL_OFFSET_INVALID = (0, 0x16, true);
    /// The controller's time to keep alive is out of its range.
    KEEP_ALIVE_INVALID = (0, 0x19, true);
    /// The namespace may not be written.
    WRITE_PROTECTED = (0, 0x20, true);
    /// Nothing was carried out; it may be sent again.
    INTERRUPTED = (0, 0x21, false);
    /// Data were damaged between host and target.
    TRANSIENT_TRANSPORT_ERROR = (0, 0x22, false);
    /// Blocks beyond the namespace's end.
    LBA_OUT_OF_RANGE = (0, 0x80, true);
    /// The device is not there.
    NOT_READY = (0, 0x82, true);

    /// More commands to abort than the controller takes at once.
    ABORT_LIMIT = (1, 0x03, true);
    /// More requests for events than the controller keeps.
    EVENT_LIMIT = (1, 0x05, true);
    /// There is no such log page.
    INVALID_LOG_PAGE = (1, 0x09, true);
    /// The feature's value is kept until the controller's end only.
    FEATURE_NOT_SAVEABLE = (1, 0x0D, true);
    /// The feature keeps its value.
    FEATURE_NOT_CHANGEABLE = (1, 0x0E, true);
    /// The format of the connect command is unknown.
    CONNECT_FORMAT = (1, 0x80, true);
    /// The controller has no room.
    CONNECT_BUSY = (1, 0x81, false);
    /// A parameter of the connect command is wrong.
    CONNECT_INVALID = (1, 0x82, true);
    /// The command is for queues of the other kind.
    INVALID_QUEUE_TYPE = (1, 0x85, true);

    /// The command goes beyond its zone, or beyond what can be written of it.
    ZONE_BOUNDARY = (1, 0xB8, true);
    /// The zone is full.
    ZONE_FULL = (1, 0xB9, true);
    /// The zone is read-only.
    ZONE_READ_ONLY = (1, 0xBA, true);
    /// The zone is offline.
    ZONE_OFFLINE = (1, 0xBB, true);
    /// The write does not begin at the zone's pointer.
    ZONE_INVALID_WRITE = (1, 0xBC, true);
    /// No active zone is left.
    TOO_MANY_ACTIVE = (1, 0xBD, true);
    /// No open zone is left.
    TOO_MANY_OPEN = (1, 0xBE, true);
    /// The zone's state does not allow the action.
    ZONE_TRANSITION = (1, 0xBF, true);

    /// The medium failed a write.
    WRITE_FAULT = (2, 0x80, true);
    /// The medium failed a read.
    READ_ERROR = (2, 0x81, true);
}

impl Status {
    /// Bit 15 of the field: the host is not to send the command again.
    pub const DNR: u16 = 0x4000;

    /// The code with its type, as hosts print it: bits 10:0, and `DNR`.
    pub const fn number(self) -> u16 {
        (self.kind as u16) << 8 | self.code as u16 | if self.is_final { Status::DNR } else { 0 }
    }

    /// The field of a completion: above the phase tag, which is zero over fabrics.
    pub const fn field(self) -> u16 {
        self.number() << 1
    }

    /// The status of a completion's field (Base 4.2.3): as a host takes it.
    pub const fn from_field(field: u16) -> Status {
        let number = field >> 1;
        Status { kind: (number >> 8 & 7) as u8, code: number as u8, is_final: number & Status::DNR != 0 }
    }

    /// Whether the two are one status, whether or not it is of use to send the command again.
    pub const fn is_like(self, other: Status) -> bool {
        self.kind == other.kind && self.code == other.code
    }

    /// Whether it is of no use to send the command again.
    pub const fn is_final(self) -> bool {
        self.is_final
    }

    /// Whether it is that of success.
    pub const fn is_ok(self) -> bool {
        self.kind == 0 && self.code == 0
    }

    /// What a request that failed answers.
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
            // The zone was reset or finished while the write waited: it has no place any more.
            RequestError::Aborted { .. } => Status::ZONE_INVALID_WRITE,
            RequestError::NoSlot { .. } => Status::TOO_MANY_ACTIVE,
            // A part of it, or all, may be there: sent again it would be there twice.
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

    /// What a command that the device failed answers.
    pub fn of_device(error: DeviceError, is_read: bool) -> Status {
        match error {
            DeviceError::Zone(error) => Status::of_zone(error),
            DeviceError::OutOfRange => Status::LBA_OUT_OF_RANGE,
            DeviceError::InvalidField => Status::INVALID_FIELD,
            DeviceError::Unsupported => Status::INVALID_OPCODE,
            DeviceError::Medium | DeviceError::Os(_) if is_read => Status::READ_ERROR,
            DeviceError::Medium | DeviceError::Os(_) => Status::WRITE_FAULT,
            DeviceError::Busy | DeviceError::UnitAttention => Status::INTERRUPTED,
            // Whether it was carried out is not known: sent again it would be carried out twice.
            DeviceError::Aborted | DeviceError::TimedOut => Status::INTERNAL_ERROR,
            DeviceError::Gone => Status::NOT_READY,
            DeviceError::OpenedForReading => Status::WRITE_PROTECTED,
        }
    }

    /// What a zone's refusal answers.
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

    /// ZNS 4.1.2, in the numbers that hosts print.
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
    fn only_what_was_not_carried_out_may_be_sent_again() {
        for error in DeviceError::all() {
            for is_read in [false, true] {
                let again = Status::of_device(error, is_read).number() & Status::DNR == 0;
                let was_not = matches!(error, DeviceError::Busy | DeviceError::UnitAttention);
                assert_eq!(again, was_not, "{error}");
            }
        }
    }
}
