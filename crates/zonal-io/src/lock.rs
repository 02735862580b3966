//! Locks of files: any number of readers or one writer, and which process is in the way.
//!
//! A lock belongs to the open file. A second opener in the same process is refused too, and the lock ends when the file is
//! closed. A POSIX lock would end as soon as the process closes any other descriptor of the file.
//!
//! # How the holder is found
//! The kernel refuses such a lock without a process: `F_OFD_GETLK` answers -1 for the holder. But `/proc/locks` lists every
//! lock with its process, the file's device and its inode. On file systems such as btrfs that device is not what `stat`
//! tells; there the open files of the process decide. A holder in another PID namespace or on another host is not
//! listed. Then the error says that the process is not known.

use crate::device::OpenMode;
use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Times that a lock is asked for while no holder is listed: the holder may just have let go.
const TRIES_MAX: u32 = 3;

/// Why a file cannot be locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file is open elsewhere.
    #[error(transparent)]
    Held(#[from] Held),
    /// The operating system does not lock it.
    #[error("cannot be locked: {0}")]
    Os(#[source] io::Error),
}

/// A process that has a file open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// What it has the file open for.
    pub mode: OpenMode,
}

/// The processes that have a file open, as far as they are known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held(Vec<Holder>);

impl Held {
    /// The processes in the order of their numbers; none if the operating system does not tell them.
    pub fn holders(&self) -> &[Holder] {
        &self.0
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return f.write_str("in use by another process, which the operating system does not name");
        };
        f.write_str(match first.mode {
            OpenMode::Reading => "in use for reading by ",
            OpenMode::Writing => "in use by ",
        })?;
        if first.pid == last.pid {
            let own = if first.pid == std::process::id() { " (this one)" } else { "" };
            return write!(f, "process {}{own}", first.pid);
        }
        let pids: Vec<String> = self.0.iter().map(|holder| holder.pid.to_string()).collect();
        write!(f, "processes {}", pids.join(", "))
    }
}

impl std::error::Error for Held {}

/// Locks `file` until it is closed: for reading beside other readers, for writing alone.
///
/// # Errors
/// [`LockError::Held`] if another opener is in the way; it is not waited for.
pub fn lock(file: &File, mode: OpenMode) -> Result<(), LockError> {
    let operation = match mode {
        OpenMode::Reading => FlockOperation::NonBlockingLockShared,
        OpenMode::Writing => FlockOperation::NonBlockingLockExclusive,
    };
    let mut tries = 0;
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(LockError::Os(error.into())),
        }
        let held = holders(file);
        tries += 1;
        if !held.0.is_empty() || tries == TRIES_MAX {
            return Err(held.into());
        }
    }
}

/// The processes with a lock of `file`.
fn holders(file: &File) -> Held {
    let (Ok(found), Ok(locks)) = (file.metadata(), fs::read_to_string("/proc/locks")) else {
        return Held::default();
    };
    let is_it = |lock: &Listed| lock.is_of(&found) || has_open(lock.holder.pid, &found);
    let same_inode = locks.lines().filter_map(Listed::parse).filter(|lock| lock.inode == found.ino());
    let mut holders: Vec<Holder> = same_inode.filter(is_it).map(|lock| lock.holder).collect();
    holders.sort_unstable();
    holders.dedup();
    Held(holders)
}

/// A line of `/proc/locks`.
#[derive(PartialEq, Eq, Debug)]
struct Listed {
    holder: Holder,
    device: (u32, u32),
    inode: u64,
}

impl Listed {
    /// A lock of a whole file that a process has; other locks, and processes that wait for one, are none.
    fn parse(line: &str) -> Option<Listed> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some("FLOCK"), Some(_advisory)) = (words.next(), words.next()) else { return None };
        let mode = match words.next()? {
            "READ" => OpenMode::Reading,
            "WRITE" => OpenMode::Writing,
            _ => return None,
        };
        // A process of another namespace has no number here.
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
        let mut place = words.next()?.splitn(3, ':');
        let mut hex = || u32::from_str_radix(place.next()?, 16).ok();
        let device = (hex()?, hex()?);
        let inode = place.next()?.parse().ok()?;
        Some(Listed { holder: Holder { pid, mode }, device, inode })
    }

    fn is_of(&self, found: &Metadata) -> bool {
        self.device == (major(found.dev()), minor(found.dev()))
    }
}

/// Whether one of the open files of a process is `found`. Those of another user's process are not shown.
fn has_open(pid: u32, found: &Metadata) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_it = |other: Metadata| (other.dev(), other.ino()) == (found.dev(), found.ino());
    files.flatten().any(|file| fs::metadata(file.path()).is_ok_and(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_lock_is_read_and_every_other_line_is_not() {
        let lock = Listed::parse("1: FLOCK  ADVISORY  WRITE 30819 fe:1f:5414917 0 EOF").unwrap();
        let holder = Holder { pid: 30819, mode: OpenMode::Writing };
        assert_eq!(lock, Listed { holder, device: (0xfe, 0x1f), inode: 5_414_917 });
        for other in [
            "",
            "1: -> FLOCK  ADVISORY  WRITE 30819 fe:00:5414917 0 EOF",
            "2: POSIX  ADVISORY  READ 30819 fe:00:5414917 0 EOF",
            "3: OFDLCK ADVISORY  READ -1 fe:00:5414917 0 EOF",
            "4: FLOCK  ADVISORY  WRITE 0 fe:00:5414917 0 EOF",
            "5: FLOCK  ADVISORY  WRITE 7 fe:00",
        ] {
            assert_eq!(Listed::parse(other), None, "{other}");
        }
    }

    #[test]
    fn readers_share_a_file_and_a_writer_has_it_alone() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let opened = || File::open(named.path()).unwrap();
        let (first, second) = (opened(), opened());
        lock(&first, OpenMode::Reading).unwrap();
        lock(&second, OpenMode::Reading).unwrap();
        let refused = lock(named.as_file(), OpenMode::Writing).unwrap_err().to_string();
        let own = format!("process {} (this one)", std::process::id());
        assert_eq!(refused, format!("in use for reading by {own}"));
        drop((first, second));
        lock(named.as_file(), OpenMode::Writing).unwrap();
        let refused = lock(&opened(), OpenMode::Reading).unwrap_err().to_string();
        assert_eq!(refused, format!("in use by {own}"));
    }

    #[test]
    fn holders_are_named_in_one_sentence() {
        let reader = |pid| Holder { pid, mode: OpenMode::Reading };
        let several = Held(vec![reader(4_000_001), reader(4_000_002)]);
        assert_eq!(several.to_string(), "in use for reading by processes 4000001, 4000002");
        assert!(Held::default().to_string().starts_with("in use by another process"));
    }
}
