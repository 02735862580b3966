//! Encoding of replies.

use super::layout::*;
use std::time::Duration;
use zonal_fs::format::{Attributes, FileKind};

/// Time for which the kernel may cache replies: indefinitely, because no other program changes the
/// file system, and the kernel is notified of changes by the daemon.
pub const FOR_EVER: Duration = Duration::from_secs(1 << 40);

/// Block size in bytes, as in `stat`: the preferred size of reads and writes.
const BLOCK_BYTES: u32 = 4096;

/// Unit of the block count of `stat`, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// Header of a reply to request `unique` with a body of `length` bytes.
pub fn header(unique: u64, length: usize) -> OutHeader {
    OutHeader { len: (size_of::<OutHeader>() + length) as u32, error: 0, unique }
}

/// Header of a reply that fails request `unique`. `errno` is positive.
pub fn error(unique: u64, errno: i32) -> OutHeader {
    OutHeader { error: -errno, ..header(unique, 0) }
}

/// Type and permissions of a file, as in `st_mode`.
pub fn mode(file: &Attributes) -> u32 {
    let kind = match file.kind {
        FileKind::File => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Pipe => 0o010_000,
        FileKind::Socket => 0o140_000,
        FileKind::Character => 0o020_000,
        FileKind::Block => 0o060_000,
    };
    kind | u32::from(file.mode)
}

/// Type of file in a mode, if it is valid.
pub fn kind(mode: u32) -> Option<FileKind> {
    Some(match mode & 0o170_000 {
        // `mknod` without a type creates a regular file.
        0o100_000 | 0 => FileKind::File,
        0o040_000 => FileKind::Directory,
        0o120_000 => FileKind::Symlink,
        0o010_000 => FileKind::Pipe,
        0o140_000 => FileKind::Socket,
        0o020_000 => FileKind::Character,
        0o060_000 => FileKind::Block,
        _ => return None,
    })
}

/// Splits nanoseconds since 1970 into seconds, in two's complement, and nanoseconds.
pub fn split(nanos: i64) -> (u64, u32) {
    const SECOND: i64 = 1_000_000_000;
    (nanos.div_euclid(SECOND) as u64, nanos.rem_euclid(SECOND) as u32)
}

/// Reverse of [`split`]. Times before 1677 or after 2262 are clamped.
pub fn join(seconds: u64, nanos: u32) -> i64 {
    const SECOND: i128 = 1_000_000_000;
    let all = i128::from(seconds as i64) * SECOND + i128::from(nanos);
    all.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Attributes of file `ino`.
pub fn attr(ino: u64, file: &Attributes) -> Attr {
    let ((atime, atimensec), (mtime, mtimensec), (ctime, ctimensec)) =
        (split(file.atime), split(file.mtime), split(file.ctime));
    Attr {
        ino,
        size: file.size,
        blocks: file.blocks * (u64::from(BLOCK_BYTES) / STAT_BLOCK_BYTES),
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        mode: mode(file),
        nlink: file.links,
        uid: file.uid,
        gid: file.gid,
        rdev: file.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Reply with attributes that the kernel may cache for this time.
pub fn attr_out(attr: Attr, valid: Duration) -> AttrOut {
    AttrOut { attr_valid: valid.as_secs(), attr_valid_nsec: 0, dummy: 0, attr }
}

/// Reply about a file. The kernel may cache its name indefinitely, and its attributes for this
/// time.
pub fn entry(generation: u32, attr: Attr, valid: Duration) -> EntryOut {
    EntryOut {
        nodeid: attr.ino,
        generation: generation.into(),
        entry_valid: FOR_EVER.as_secs(),
        attr_valid: valid.as_secs(),
        attr,
        ..EntryOut::default()
    }
}

/// Reply that a name does not exist, which the kernel may cache, too.
pub fn no_entry() -> EntryOut {
    EntryOut { entry_valid: FOR_EVER.as_secs(), ..EntryOut::default() }
}

/// Reply to `STATX`, with the creation time.
pub fn statx_out(ino: u64, file: &Attributes, valid: Duration) -> StatxOut {
    /// `STATX_BASIC_STATS` and `STATX_BTIME`.
    const ALL: u32 = 0x7ff | 0x800;
    let time = |nanos| {
        let (sec, nsec) = split(nanos);
        SxTime { sec: sec as i64, nsec, reserved: 0 }
    };
    let stat = Statx {
        mask: ALL,
        blksize: BLOCK_BYTES,
        nlink: file.links,
        uid: file.uid,
        gid: file.gid,
        mode: mode(file) as u16,
        ino,
        size: file.size,
        blocks: file.blocks * (u64::from(BLOCK_BYTES) / STAT_BLOCK_BYTES),
        atime: time(file.atime),
        btime: time(file.btime),
        ctime: time(file.ctime),
        mtime: time(file.mtime),
        rdev_major: (file.rdev >> 8) & 0xfff,
        rdev_minor: (file.rdev & 0xff) | ((file.rdev >> 12) & 0xfff00),
        ..Statx::default()
    };
    StatxOut { attr_valid: valid.as_secs(), stat, ..StatxOut::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_trip() {
        for nanos in [0, 1, -1, 999_999_999, 1_000_000_000, -1_000_000_001, i64::MIN, i64::MAX] {
            let (seconds, part) = split(nanos);
            assert!(part < 1_000_000_000);
            assert_eq!(join(seconds, part), nanos);
        }
        assert_eq!(join(i64::MAX as u64, 0), i64::MAX);
        assert_eq!(join(i64::MIN as u64, 0), i64::MIN);
    }

    #[test]
    fn each_kind_has_its_mode() {
        for bits in [0o01, 0o02, 0o04, 0o06, 0o10, 0o12, 0o14] {
            let kind = kind(bits << 12).unwrap();
            let file = Attributes::new(kind, 0o7777, 1, zonal_fs::format::Position::START, 0);
            assert_eq!(mode(&file), bits << 12 | 0o7777);
        }
        assert_eq!(kind(0o030_000), None);
    }
}
