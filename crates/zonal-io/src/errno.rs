//! Error numbers that a program would get if the device were one of the kernel's.
//!
//! The kernel returns one number for a failed request: its driver's status, translated by the table
//! `blk_errors` of `block/blk-core.c`. fio decides by this number whether a job continues, and a
//! ublk server passes a status to the kernel by it. So these are exactly the kernel's numbers, even
//! where others would be more descriptive: a write that is not at the write pointer is `EIO`, and a
//! medium error is `ENODATA`.

use rustix::io::Errno;
use zonal_core::{DeviceError, RequestError, ZoneError};

/// Returns the number for a failed request.
pub fn of(error: &RequestError) -> i32 {
    match *error {
        // Refused by the kernel before the device is involved.
        RequestError::OutOfRange { .. } => Errno::NOSPC,
        RequestError::Invalid(_) => Errno::INVAL,
        RequestError::WouldWait => Errno::AGAIN,
        RequestError::Cancelled => Errno::CANCELED,
        RequestError::NoSlot { .. } => Errno::TOOMANYREFS,
        RequestError::FateUnknown { error, .. }
        | RequestError::TornAppend { error, .. }
        | RequestError::GaveUp { error, .. }
        | RequestError::InPart { error, .. }
        | RequestError::Device(error) => return of_device(error),
        // Refused by the zone, or lost with another write: the driver has no separate status for
        // these.
        _ => Errno::IO,
    }
    .raw_os_error()
}

/// Returns the number for an error of the device.
pub fn of_device(error: DeviceError) -> i32 {
    match error {
        DeviceError::Zone(ZoneError::TooManyActive) => Errno::OVERFLOW,
        DeviceError::Zone(ZoneError::TooManyOpen) => Errno::TOOMANYREFS,
        DeviceError::OutOfRange => Errno::REMOTEIO,
        DeviceError::InvalidField => Errno::INVAL,
        DeviceError::Unsupported => Errno::OPNOTSUPP,
        DeviceError::Medium => Errno::NODATA,
        DeviceError::Busy => Errno::BUSY,
        DeviceError::TimedOut => Errno::TIMEDOUT,
        DeviceError::Gone => Errno::NODEV,
        DeviceError::OpenedForReading => Errno::ROFS,
        DeviceError::Os(number) if number > 0 => return number,
        _ => Errno::IO,
    }
    .raw_os_error()
}

/// Returns the error of a command that a driver has failed with this number.
///
/// What a number leaves open is [`DeviceError::Os`], after which the medium may have changed.
pub fn device_error(number: Errno) -> DeviceError {
    match number {
        Errno::OVERFLOW => DeviceError::Zone(ZoneError::TooManyActive),
        Errno::TOOMANYREFS => DeviceError::Zone(ZoneError::TooManyOpen),
        Errno::INVAL => DeviceError::InvalidField,
        Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS => DeviceError::Unsupported,
        Errno::NODATA | Errno::ILSEQ => DeviceError::Medium,
        // The driver had no memory or no request for it.
        Errno::BUSY | Errno::AGAIN | Errno::NOMEM => DeviceError::Busy,
        // The driver has ended the command, so that nothing of it happens later.
        Errno::TIMEDOUT | Errno::NOLINK | Errno::BADE | Errno::CANCELED | Errno::INTR => DeviceError::Aborted,
        Errno::NODEV | Errno::NXIO => DeviceError::Gone,
        Errno::ROFS | Errno::BADF | Errno::PERM => DeviceError::OpenedForReading,
        other => DeviceError::Os(other.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_core::{Sector, ZoneIndex};

    /// Derived by hand from `blk_errors` and `nvme_error_status`.
    const TABLE: [(&str, i32); 21] = [
        ("invalid-write", 5),
        ("boundary", 5),
        ("full", 5),
        ("read-only", 5),
        ("offline", 5),
        ("too-many-active", 75),
        ("too-many-open", 109),
        ("invalid-transition", 5),
        ("conventional", 5),
        ("sequential", 5),
        ("out-of-range", 121),
        ("invalid-field", 22),
        ("unsupported", 95),
        ("medium", 61),
        ("busy", 16),
        ("unit-attention", 5),
        ("aborted", 5),
        ("timed-out", 110),
        ("gone", 19),
        ("opened-for-reading", 30),
        ("stale", 5),
    ];

    #[test]
    fn every_device_error_has_the_kernels_number() {
        assert_eq!(DeviceError::all().count(), TABLE.len());
        for (word, number) in TABLE {
            let error = DeviceError::from_word(word).expect(word);
            assert_eq!(of_device(error), number, "{word}");
            assert_eq!(of(&RequestError::Device(error)), number, "{word}");
        }
        assert_eq!(of_device(DeviceError::Os(28)), 28);
        assert_eq!(of_device(DeviceError::Os(-1)), 5);
    }

    #[test]
    fn number_of_an_error_gives_the_error_or_leaves_it_open() {
        for error in DeviceError::all() {
            let back = device_error(Errno::from_raw_os_error(of_device(error)));
            let expected = match error {
                // The driver of the other side has given up.
                DeviceError::TimedOut => DeviceError::Aborted,
                _ if matches!(of_device(error), 5 | 121) => DeviceError::Os(of_device(error)),
                same => same,
            };
            assert_eq!(back, expected, "{error}");
        }
    }

    #[test]
    fn request_refused_before_the_device_has_the_block_layers_number() {
        let sector = Sector(8);
        let zone = ZoneIndex(3);
        assert_eq!(of(&RequestError::OutOfRange { sector }), 28);
        assert_eq!(of(&RequestError::Invalid("length")), 22);
        assert_eq!(of(&RequestError::ZoneFull { zone }), 5);
        let lost = RequestError::GaveUp { zone, offset: 0, rounds: 3, error: DeviceError::Medium };
        assert_eq!(of(&lost), 61);
    }
}
