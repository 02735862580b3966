//! Command statuses (SAM 5.3.1), and the single mapping from errors to them.
//!
//! Initiators retry after BUSY, so it is returned only for commands that were not executed. A write
//! with unknown outcome fails with HARDWARE ERROR, because a retry could execute it twice.

use crate::sense::{CheckCondition, SenseCode};
use zonal_core::{DeviceError, RequestError, ZoneError};

/// Success.
pub const GOOD: u8 = 0x00;
/// Failure, explained by the sense data.
pub const CHECK_CONDITION: u8 = 0x02;
/// Not executed; may be retried.
pub const BUSY: u8 = 0x08;
/// The queue is full. Not executed; may be retried.
pub const TASK_SET_FULL: u8 = 0x28;
/// Aborted before completion.
pub const TASK_ABORTED: u8 = 0x40;

/// Failed outcome of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// CHECK CONDITION.
    Check(CheckCondition),
    /// BUSY.
    Busy,
    /// TASK ABORTED.
    Aborted,
}

impl From<SenseCode> for Failure {
    fn from(code: SenseCode) -> Failure {
        Failure::Check(code.into())
    }
}

impl From<CheckCondition> for Failure {
    fn from(condition: CheckCondition) -> Failure {
        Failure::Check(condition)
    }
}

impl Failure {
    /// Status code.
    pub const fn status(&self) -> u8 {
        match self {
            Failure::Check(_) => CHECK_CONDITION,
            Failure::Busy => BUSY,
            Failure::Aborted => TASK_ABORTED,
        }
    }

    /// Failure for a request error.
    pub fn of_request(error: &RequestError, is_read: bool) -> Failure {
        match *error {
            RequestError::NotAtWritePointer { .. }
            | RequestError::PredecessorLost { .. }
            | RequestError::PredecessorMissing { .. } => SenseCode::UNALIGNED_WRITE_COMMAND.into(),
            // The zone was reset or finished while the write waited, so its position is gone.
            RequestError::Aborted { .. } => SenseCode::UNALIGNED_WRITE_COMMAND.into(),
            RequestError::BeyondCapacity { .. } => SenseCode::WRITE_BOUNDARY_VIOLATION.into(),
            RequestError::ZoneFull { .. } => Failure::of_zone(ZoneError::Full),
            RequestError::ZoneReadOnly { .. } => SenseCode::ZONE_IS_READ_ONLY.into(),
            RequestError::ZoneOffline { .. } => SenseCode::ZONE_IS_OFFLINE.into(),
            RequestError::Conventional { .. }
            | RequestError::Sequential { .. }
            | RequestError::Invalid(_) => SenseCode::INVALID_FIELD_IN_CDB.into(),
            RequestError::OutOfRange { .. } => SenseCode::LBA_OUT_OF_RANGE.into(),
            RequestError::WouldWait => Failure::Busy,
            RequestError::NoSlot { .. } => SenseCode::INSUFFICIENT_ZONE_RESOURCES.into(),
            // Some or all of the data may be on the medium; a retry could write it twice.
            RequestError::FateUnknown { error, .. }
            | RequestError::InPart { error, .. }
            | RequestError::TornAppend { error, .. } => Failure::of_device(error, is_read).in_part(),
            RequestError::GaveUp { error, .. } => Failure::of_device(error, is_read),
            RequestError::Cancelled => Failure::Aborted,
            RequestError::Device(error) => Failure::of_device(error, is_read),
        }
    }

    /// Failure for a partly executed command, which must not be retried as a whole.
    #[must_use]
    pub fn in_part(self) -> Failure {
        match self {
            Failure::Busy => SenseCode::INTERNAL_TARGET_FAILURE.into(),
            other => other,
        }
    }

    /// Failure for a device error.
    pub fn of_device(error: DeviceError, is_read: bool) -> Failure {
        match error {
            DeviceError::Zone(error) => Failure::of_zone(error),
            DeviceError::OutOfRange => SenseCode::LBA_OUT_OF_RANGE.into(),
            DeviceError::InvalidField => SenseCode::INVALID_FIELD_IN_CDB.into(),
            DeviceError::Unsupported => SenseCode::INVALID_OPERATION_CODE.into(),
            DeviceError::Medium | DeviceError::Os(_) if is_read => SenseCode::UNRECOVERED_READ_ERROR.into(),
            DeviceError::Medium | DeviceError::Stale | DeviceError::Os(_) => {
                SenseCode::RECORDED_ENTITY_NOT_FOUND.into()
            }
            DeviceError::Busy | DeviceError::UnitAttention => Failure::Busy,
            DeviceError::Aborted | DeviceError::TimedOut => SenseCode::INTERNAL_TARGET_FAILURE.into(),
            DeviceError::Gone => SenseCode::NOT_READY_MANUAL_INTERVENTION.into(),
            DeviceError::OpenedForReading => SenseCode::WRITE_PROTECTED.into(),
        }
    }

    /// Failure for a command refused by a zone (ZBC 4.4.3).
    pub fn of_zone(error: ZoneError) -> Failure {
        let code = match error {
            ZoneError::InvalidWrite => SenseCode::UNALIGNED_WRITE_COMMAND,
            ZoneError::Boundary => SenseCode::WRITE_BOUNDARY_VIOLATION,
            ZoneError::ReadOnly => SenseCode::ZONE_IS_READ_ONLY,
            ZoneError::Offline => SenseCode::ZONE_IS_OFFLINE,
            ZoneError::TooManyActive | ZoneError::TooManyOpen => SenseCode::INSUFFICIENT_ZONE_RESOURCES,
            ZoneError::Full
            | ZoneError::InvalidTransition
            | ZoneError::Conventional
            | ZoneError::Sequential => SenseCode::INVALID_FIELD_IN_CDB,
        };
        code.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::key::*;

    fn triple(failure: Failure) -> Option<(u8, u8, u8)> {
        match failure {
            Failure::Check(condition) => {
                let SenseCode { key, asc, ascq } = condition.code();
                Some((key, asc, ascq))
            }
            Failure::Busy | Failure::Aborted => None,
        }
    }

    /// Numbers as compared by Linux.
    #[test]
    fn refusals_of_zones_have_the_standards_numbers() {
        let table = [
            (ZoneError::Boundary, (ILLEGAL_REQUEST, 0x21, 0x05)),
            (ZoneError::Full, (ILLEGAL_REQUEST, 0x24, 0x00)),
            (ZoneError::ReadOnly, (DATA_PROTECT, 0x27, 0x08)),
            (ZoneError::Offline, (DATA_PROTECT, 0x2C, 0x0E)),
            (ZoneError::InvalidWrite, (ILLEGAL_REQUEST, 0x21, 0x04)),
            (ZoneError::TooManyActive, (DATA_PROTECT, 0x55, 0x0E)),
            (ZoneError::TooManyOpen, (DATA_PROTECT, 0x55, 0x0E)),
            (ZoneError::InvalidTransition, (ILLEGAL_REQUEST, 0x24, 0x00)),
            (ZoneError::Conventional, (ILLEGAL_REQUEST, 0x24, 0x00)),
            (ZoneError::Sequential, (ILLEGAL_REQUEST, 0x24, 0x00)),
        ];
        assert_eq!(table.map(|(error, _)| error), ZoneError::ALL);
        for (error, numbers) in table {
            assert_eq!(triple(Failure::of_zone(error)), Some(numbers), "{error}");
        }
    }

    #[test]
    fn errors_of_devices_have_the_standards_numbers() {
        let table = [
            (DeviceError::OutOfRange, Some((ILLEGAL_REQUEST, 0x21, 0x00))),
            (DeviceError::InvalidField, Some((ILLEGAL_REQUEST, 0x24, 0x00))),
            (DeviceError::Unsupported, Some((ILLEGAL_REQUEST, 0x20, 0x00))),
            (DeviceError::Medium, Some((MEDIUM_ERROR, 0x14, 0x00))),
            (DeviceError::Busy, None),
            (DeviceError::UnitAttention, None),
            (DeviceError::Aborted, Some((HARDWARE_ERROR, 0x44, 0x00))),
            (DeviceError::TimedOut, Some((HARDWARE_ERROR, 0x44, 0x00))),
            (DeviceError::Gone, Some((NOT_READY, 0x04, 0x03))),
            (DeviceError::OpenedForReading, Some((DATA_PROTECT, 0x27, 0x00))),
            (DeviceError::Stale, Some((MEDIUM_ERROR, 0x14, 0x00))),
        ];
        let all = DeviceError::all().filter(|error| !matches!(error, DeviceError::Zone(_)));
        assert_eq!(all.collect::<Vec<_>>(), table.map(|(error, _)| error));
        for (error, numbers) in table {
            assert_eq!(triple(Failure::of_device(error, false)), numbers, "{error}");
        }
        assert_eq!(triple(Failure::of_device(DeviceError::Medium, true)), Some((MEDIUM_ERROR, 0x11, 0x00)));
        assert_eq!(triple(Failure::of_device(DeviceError::Os(5), true)), Some((MEDIUM_ERROR, 0x11, 0x00)));
        assert_eq!(triple(Failure::of_device(DeviceError::Os(5), false)), Some((MEDIUM_ERROR, 0x14, 0x00)));
    }

    #[test]
    fn requests_that_failed_have_the_standards_numbers() {
        use zonal_core::budget::{Holders, Refusal};
        use zonal_core::{Sector, ZoneIndex};
        let zone = ZoneIndex(3);
        let (write_pointer, offset) = (8, 16);
        let unaligned = Some((ILLEGAL_REQUEST, 0x21, 0x04));
        let field = Some((ILLEGAL_REQUEST, 0x24, 0x00));
        let busy = DeviceError::Busy;
        let internal = Some((HARDWARE_ERROR, 0x44, 0x00));
        let table = [
            (RequestError::NotAtWritePointer { zone, write_pointer, offset }, unaligned),
            (RequestError::PredecessorLost { zone, lost_at: 8, offset }, unaligned),
            (RequestError::PredecessorMissing { zone, write_pointer, offset }, unaligned),
            (RequestError::Aborted { zone }, unaligned),
            (RequestError::BeyondCapacity { zone, end: 9, capacity: 8 }, Some((ILLEGAL_REQUEST, 0x21, 0x05))),
            (RequestError::ZoneFull { zone }, field),
            (RequestError::ZoneReadOnly { zone }, Some((DATA_PROTECT, 0x27, 0x08))),
            (RequestError::ZoneOffline { zone }, Some((DATA_PROTECT, 0x2C, 0x0E))),
            (RequestError::Conventional { zone }, field),
            (RequestError::Sequential { zone }, field),
            (RequestError::Invalid("length"), field),
            (RequestError::OutOfRange { sector: Sector(1) }, Some((ILLEGAL_REQUEST, 0x21, 0x00))),
            (
                RequestError::NoSlot { zone, holders: Holders::from(&Refusal { zone, holders: vec![] }) },
                Some((DATA_PROTECT, 0x55, 0x0E)),
            ),
            (RequestError::FateUnknown { zone, offset, write_pointer, error: busy }, internal),
            (RequestError::TornAppend { zone, offset, sectors: 8, error: busy }, internal),
            (RequestError::InPart { sector: Sector(1), written: 1, error: busy }, internal),
            (
                RequestError::InPart { sector: Sector(1), written: 1, error: DeviceError::Medium },
                Some((MEDIUM_ERROR, 0x14, 0x00)),
            ),
            (RequestError::GaveUp { zone, offset, rounds: 3, error: DeviceError::Aborted }, internal),
        ];
        for (error, numbers) in table {
            assert_eq!(triple(Failure::of_request(&error, false)), numbers, "{error}");
        }
        assert_eq!(Failure::of_request(&RequestError::Cancelled, true).status(), TASK_ABORTED);
        assert_eq!(Failure::of_request(&RequestError::WouldWait, true).status(), BUSY);
        assert_eq!(Failure::of_request(&busy.into(), true).status(), BUSY);
    }

    #[test]
    fn only_commands_not_executed_may_be_retried() {
        for error in DeviceError::all() {
            for is_read in [false, true] {
                let is_busy = Failure::of_device(error, is_read) == Failure::Busy;
                assert_eq!(
                    is_busy,
                    matches!(error, DeviceError::Busy | DeviceError::UnitAttention),
                    "{error}"
                );
            }
        }
    }
}
