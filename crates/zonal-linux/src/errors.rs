//! Meaning of the errors of a block device.
//!
//! The kernel passes on little of what a drive says. A write that fails with EIO or EREMOTEIO may be
//! misplaced, in a full, read-only or offline zone, or on a bad block, and may be executed in part:
//! only a report of the zone tells. A drive that was pulled has no error of its own either. Some
//! commands fail with errors that also mean something else, and others "succeed"; what gives it away
//! is the size of its block device, which is then 0.
//!
//! | seen | of | means |
//! |---|---|---|
//! | EIO, EREMOTEIO | write | unknown; the write pointer decides |
//! | EIO, ENODATA, EILSEQ | read | medium error |
//! | ETOOMANYREFS | write, open | too many open zones |
//! | EOVERFLOW | write, open | too many active zones |
//! | ENOSPC | write | behind the end, or pulled |
//! | fewer bytes than asked for | read | pulled |
//! | no zones | report | pulled |
//! | EINVAL | reset | refused, or pulled |
//! | EINVAL | read, write | misaligned |
//! | EBADF, EROFS, EPERM | any | opened for reading |
//! | ENOTTY | report | no zones below a device-mapper target |
//! | EIO | flush | not durable, or pulled |

use rustix::io::Errno;
use zonal_core::{DeviceError, Op};
use zonal_io::errno;

/// Outcome of a command at the kernel, other than success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It failed with this error.
    Failed(Errno),
    /// It succeeded with fewer bytes or zones than asked for.
    Short,
}

/// True if `seen` may mean that the drive was pulled, so that its size has to be asked for.
pub fn may_be_gone(op: Op, seen: Seen) -> bool {
    match seen {
        Seen::Short => true,
        Seen::Failed(Errno::IO | Errno::NODEV | Errno::NXIO | Errno::REMOTEIO) => true,
        Seen::Failed(Errno::NOSPC) => matches!(op, Op::Write | Op::WriteZeroes),
        Seen::Failed(Errno::INVAL) => !matches!(op, Op::Read | Op::Write),
        Seen::Failed(_) => false,
    }
}

/// Error of a command. `size` is the size of the block device now, if it was asked for.
pub fn device_error(op: Op, seen: Seen, size: Option<u64>) -> DeviceError {
    if size == Some(0) {
        return DeviceError::Gone;
    }
    match (seen, op) {
        (Seen::Short, _) => DeviceError::Os(Errno::IO.raw_os_error()),
        (Seen::Failed(Errno::NOSPC), Op::Write | Op::WriteZeroes) => DeviceError::OutOfRange,
        (Seen::Failed(Errno::IO), Op::Read) => DeviceError::Medium,
        (Seen::Failed(number), _) => errno::device_error(number),
    }
}

/// Error of a write that the kernel has begun. A number that means "not executed" where a submission
/// is refused means nothing here: the write may consist of several commands, of which one failed.
pub fn of_sent_write(error: DeviceError, seen: Seen) -> DeviceError {
    match (error, seen) {
        (DeviceError::Gone | DeviceError::Zone(_), _) => error,
        (_, Seen::Failed(number)) if !error.is_uncertain() => DeviceError::Os(number.raw_os_error()),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Option<u64> = Some(1 << 30);

    #[test]
    fn pulled_drive_is_gone_whatever_it_says() {
        let signs = [
            (Op::Write, Seen::Failed(Errno::NOSPC)),
            (Op::Read, Seen::Short),
            (Op::Report, Seen::Short),
            (Op::ZoneReset, Seen::Failed(Errno::INVAL)),
            (Op::Flush, Seen::Failed(Errno::IO)),
            (Op::Read, Seen::Failed(Errno::IO)),
        ];
        for (op, seen) in signs {
            assert!(may_be_gone(op, seen), "{op:?} {seen:?}");
            assert_eq!(device_error(op, seen, Some(0)), DeviceError::Gone);
            assert_ne!(device_error(op, seen, WHOLE), DeviceError::Gone);
        }
    }

    #[test]
    fn error_of_a_write_decides_nothing_but_that_of_a_read_does() {
        let of = |op, number| device_error(op, Seen::Failed(number), WHOLE);
        for number in [Errno::IO, Errno::REMOTEIO] {
            let error = of(Op::Write, number);
            assert!(error.is_uncertain(), "{number}");
        }
        assert_eq!(of(Op::Read, Errno::IO), DeviceError::Medium);
        assert_eq!(of(Op::Read, Errno::NODATA), DeviceError::Medium);
        for number in [Errno::AGAIN, Errno::NOMEM, Errno::INVAL, Errno::NOSPC] {
            let (error, seen) = (of(Op::Write, number), Seen::Failed(number));
            assert!(!error.is_uncertain() && of_sent_write(error, seen).is_uncertain(), "{number}");
        }
        let full = of(Op::Write, Errno::TOOMANYREFS);
        assert_eq!(of_sent_write(full, Seen::Failed(Errno::TOOMANYREFS)), full);
        assert_eq!(of(Op::Write, Errno::NOSPC), DeviceError::OutOfRange);
        assert!(!of(Op::Write, Errno::TIMEDOUT).may_execute_late());
    }
}
