//! File locks: many readers or one writer, with a report of the conflicting processes.
//!
//! A lock belongs to the open file. A second open in the same process is refused too, and closing
//! the file releases the lock. A POSIX lock would be released as soon as the process closes any
//! other descriptor of the file.
//!
//! # Finding the holder
//! The kernel refuses a lock of this kind without naming the holder: `F_OFD_GETLK` returns -1. But
//! `/proc/locks` lists every lock with its process and the device and inode of the file. On file
//! systems such as btrfs that device differs from the one of `stat`, so the open files of the
//! process are compared instead. Holders in other PID namespaces or on other hosts are not listed;
//! the error then reports an unknown process.

use crate::device::OpenMode;
use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Attempts to lock a file while no holder is listed, because the holder may just have released it.
const TRIES_MAX: u32 = 3;

/// Error of locking a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file is open elsewhere.
    #[error(transparent)]
    Held(#[from] Held),
    /// The operating system refuses to lock it.
    #[error("cannot be locked: {0}")]
    Os(#[source] io::Error),
}

/// A process that has a file open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Holder {
    /// Process ID.
    pub pid: u32,
    /// Access that it has opened the file for.
    pub mode: OpenMode,
}

/// Processes that have a file open, as far as known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held(Vec<Holder>);

impl Held {
    /// Returns the processes in ascending order, or none if the operating system does not list
    /// them.
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

/// Locks `file` until it is closed: shared for reading, exclusive for writing.
///
/// # Errors
/// [`LockError::Held`] if it is locked already; this does not wait.
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

/// Finds the processes that have locked `file`.
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

/// Parsed line of `/proc/locks`.
#[derive(PartialEq, Eq, Debug)]
struct Listed {
    holder: Holder,
    device: (u32, u32),
    inode: u64,
}

impl Listed {
    /// Parses the line of a lock that a process holds on a whole file. Other locks, and waiting
    /// processes, return `None`.
    fn parse(line: &str) -> Option<Listed> {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some("FLOCK"), Some(_advisory)) = (words.next(), words.next()) else { return None };
        let mode = match words.next()? {
            "READ" => OpenMode::Reading,
            "WRITE" => OpenMode::Writing,
            _ => return None,
        };
        // Processes of other namespaces have no number here.
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

/// True if one of the open files of the process is `found`. Those of another user's processes are
/// not visible.
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
