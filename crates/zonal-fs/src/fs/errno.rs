//! Linux error numbers, for a front end that answers a kernel or a program.
//!
//! Every error has one number. The match has no catch-all arm, so a new error does not compile
//! without a decision.
//!
//! # Decisions
//! - Lost, unreadable and corrupt data is `EIO`, as with disks and Btrfs. No call returns such
//!   data.
//! - Inconsistent metadata is `EUCLEAN`, as in ext4 and XFS; `zonal fsck` has the details.
//! - Accepted data that later found no zone is `ENOSPC`; data lost to failed zones is `EIO`. A sync
//!   reports both.
//! - Running out of file numbers, positions or names is `ENOSPC`; too many names of one file are
//!   `EMLINK`.
//! - Bad names of extended attributes are `ERANGE` and oversized values `E2BIG`, because Linux
//!   returns these before it calls a file system.

use super::error::{FsError, Lost};
use rustix::io::Errno;

impl FsError {
    /// Returns the positive Linux error number: `ENOENT` for [`FsError::NotFound`], and so on.
    pub fn errno(&self) -> i32 {
        self.number().raw_os_error()
    }

    fn number(&self) -> Errno {
        match self {
            FsError::NotFound => Errno::NOENT,
            FsError::Exists | FsError::AttributeExists => Errno::EXIST,
            FsError::NotDirectory => Errno::NOTDIR,
            FsError::IsDirectory => Errno::ISDIR,
            FsError::NotEmpty => Errno::NOTEMPTY,
            FsError::NoAttribute => Errno::NODATA,
            FsError::AttributeName => Errno::RANGE,
            FsError::AttributeTooLarge => Errno::TOOBIG,
            FsError::NameTooLong | FsError::TargetTooLong => Errno::NAMETOOLONG,
            FsError::TooManyLinks => Errno::MLINK,
            FsError::NothingThere => Errno::NXIO,
            FsError::Invalid(_) => Errno::INVAL,
            FsError::TooLarge => Errno::FBIG,
            FsError::NoSpace | FsError::MetadataFull { .. } | FsError::Exhausted(_) => Errno::NOSPC,
            FsError::WouldWait => Errno::AGAIN,
            FsError::ReadOnly(_) => Errno::ROFS,
            FsError::Write { why: Lost::NoZone, .. } => Errno::NOSPC,
            FsError::Write { why: Lost::Request(_), .. }
            | FsError::Read { .. }
            | FsError::Gone { .. }
            | FsError::Checksum { .. }
            | FsError::Unit { .. }
            | FsError::Drive(_)
            | FsError::Store(_) => Errno::IO,
            FsError::Row(_) | FsError::Account(_) => Errno::UCLEAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RowError;
    use zonal_core::{RequestError, ZoneIndex};

    #[test]
    fn errors_have_the_numbers_of_linux() {
        let request = RequestError::ZoneOffline { zone: ZoneIndex(3) };
        let (ino, block, zone, at) = (2, 0, 3, 4);
        let row = RowError { key: Vec::new(), what: "damaged" };
        let all = [
            (FsError::NotFound, 2),
            (FsError::Write { ino, why: Lost::Request(request) }, 5),
            (FsError::Read { ino, block, zone, at, error: request }, 5),
            (FsError::Gone { ino, block }, 5),
            (FsError::Checksum { ino, block, zone, at }, 5),
            (FsError::Drive(request), 5),
            (FsError::NothingThere, 6),
            (FsError::AttributeTooLarge, 7),
            (FsError::WouldWait, 11),
            (FsError::Exists, 17),
            (FsError::AttributeExists, 17),
            (FsError::NotDirectory, 20),
            (FsError::IsDirectory, 21),
            (FsError::Invalid("why"), 22),
            (FsError::TooLarge, 27),
            (FsError::NoSpace, 28),
            (FsError::MetadataFull { pages: 2, usable: 1 }, 28),
            (FsError::Exhausted("why"), 28),
            (FsError::Write { ino, why: Lost::NoZone }, 28),
            (FsError::ReadOnly("why".into()), 30),
            (FsError::TooManyLinks, 31),
            (FsError::AttributeName, 34),
            (FsError::NameTooLong, 36),
            (FsError::TargetTooLong, 36),
            (FsError::NotEmpty, 39),
            (FsError::NoAttribute, 61),
            (FsError::Row(row), 117),
            (FsError::Account("why".into()), 117),
        ];
        for (error, number) in all {
            assert_eq!(error.errno(), number, "{error:?}");
        }
    }
}
