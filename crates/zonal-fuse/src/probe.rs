//! Probe of the running kernel: durability of a single write on a write-back mount.
//!
//! A program may request a sync of a single write (`RWF_DSYNC`, `RWF_SYNC`) to a file opened
//! without `O_DSYNC`. On a write-back mount the kernel must follow such a write with an `FSYNC`.
//! Some versions of Linux never send it, and no flag reveals that. So the probe mounts a file
//! system of its own, writes one byte, and counts the syncs.
//!
//! The mount is not attached to any directory, or only for a moment if `fusermount3` makes it, so
//! no other program can look up its file.

use crate::mount::{self, IfBusy, MountError, MountOptions};
use crate::serve::send;
use crate::session::first_request;
use crate::wire::init::Wanted;
use crate::wire::layout::{Attr, AttrOut, EntryOut, OpenOut, WriteOut};
use crate::wire::numbers::init;
use crate::wire::reply::{self, FOR_EVER};
use crate::wire::request::{Operation, parse};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, fsync, openat};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zonal_fs::ROOT;
use zonal_io::threads;

/// Time limit for a kernel that does not respond. A probe takes a few milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// Name and number of the only file.
const NAME: &str = "probe";
const INO: u64 = ROOT + 1;

/// Returns true if the kernel makes a synchronous single write durable on a write-back mount.
///
/// # Errors
/// Nothing can be mounted, or the operating system's error; `TimedOut` after five seconds.
pub fn syncs_single_writes() -> io::Result<bool> {
    let (device, root) = attach()?;
    let agreed = first_request(&device, &Wanted { writeback: true, pages: 1, background: 1 })?;
    if !agreed.has(init::WRITEBACK_CACHE) {
        return Ok(true);
    }
    let has_returned = Arc::<AtomicBool>::default();
    let (alive, dead) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let writer = {
        let has_returned = has_returned.clone();
        threads::spawn("zonal-probe", move || {
            // Closed last.
            let _dead = dead;
            write(&root, &has_returned)
        })?
    };
    let served = serve(&device, &alive, &has_returned);
    // Ends the calls of a writer that still waits.
    drop(device);
    let written = writer.join().map_err(|_| io::Error::other("the probe's thread panicked"))?;
    let is_synced = served?;
    written?;
    Ok(is_synced)
}

/// Mounts the probe's file system. Returns the kernel's device and the root directory, which is the
/// only access to it.
fn attach() -> io::Result<(OwnedFd, OwnedFd)> {
    if mount::is_root() {
        let device = mount::open_device().map_err(io::Error::other)?;
        let made = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let number = device.as_raw_fd().to_string();
        for (key, value) in [
            ("source", "zonal-probe"),
            ("fd", &number),
            ("rootmode", "40000"),
            ("user_id", "0"),
            ("group_id", "0"),
        ] {
            fsconfig_set_string(&made, key, value)?;
        }
        fsconfig_create(&made)?;
        let root = fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        return Ok((device, root));
    }
    let dir = tempfile::tempdir()?;
    let options = MountOptions {
        source: "zonal-probe".to_owned(),
        read_only: false,
        no_suid: true,
        no_dev: true,
        no_exec: true,
        allow_other: false,
    };
    let failed = |error: MountError| io::Error::other(error);
    let device = mount::mount(dir.path(), &options).map_err(failed)?;
    let root = openat(CWD, dir.path(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    mount::unmount(dir.path(), IfBusy::Detach).map_err(failed)?;
    Ok((device, root?))
}

/// Writes a byte that must be durable when the call returns.
fn write(root: &OwnedFd, has_returned: &AtomicBool) -> io::Result<()> {
    let file = openat(root, NAME, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let written = pwritev2(&file, &[IoSlice::new(b"x")], 0, ReadWriteFlags::DSYNC);
    has_returned.store(true, Ordering::SeqCst);
    written?;
    // Leaves no dirty page for the kernel to write at unmount.
    Ok(fsync(&file)?)
}

/// Answers the kernel until the writer has ended. Returns true if a sync arrived before the write
/// returned.
fn serve(device: &OwnedFd, alive: &OwnedFd, has_returned: &AtomicBool) -> io::Result<bool> {
    let begin = Instant::now();
    let mut memory = vec![0; 16 << 10];
    let mut is_synced = false;
    loop {
        let left = LIMIT.saturating_sub(begin.elapsed());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut watched = [PollFd::new(device, PollFlags::IN), PollFd::new(alive, PollFlags::IN)];
        match poll(&mut watched, Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if watched[1].revents().contains(PollFlags::HUP) {
            return Ok(is_synced);
        }
        if watched[0].revents().is_empty() {
            continue;
        }
        let length = match rustix::io::read(device, &mut *memory) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(error) => return Err(error.into()),
        };
        let request = parse(&memory[..length], false).map_err(io::Error::other)?;
        if matches!(request.operation, Operation::Fsync(_)) {
            is_synced |= !has_returned.load(Ordering::SeqCst);
        }
        let unique = request.header.unique;
        match answer(request.header.nodeid, &request.operation) {
            Some(Ok(body)) => send(device, reply::header(unique, body.len()), &body)?,
            Some(Err(errno)) => send(device, reply::error(unique, errno.raw_os_error()), &[])?,
            None => {}
        }
    }
}

/// Reply to a request for file `ino`, or `None` if the kernel expects none.
fn answer(ino: u64, operation: &Operation<'_>) -> Option<Result<Vec<u8>, Errno>> {
    let attr = |ino| {
        let mode = if ino == ROOT { 0o040_700 } else { 0o100_600 };
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Attr { ino, mode, nlink: 1, uid, gid, blksize: 4096, ..Attr::default() }
    };
    Some(Ok(match operation {
        Operation::Forget { .. } | Operation::BatchForget(_) => return None,
        Operation::Lookup { name } if *name == NAME.as_bytes() => {
            let entry: EntryOut = reply::entry(1, attr(INO), FOR_EVER);
            entry.as_bytes().to_vec()
        }
        Operation::Getattr(_) | Operation::Setattr(_) => {
            let attributes: AttrOut = reply::attr_out(attr(ino), FOR_EVER);
            attributes.as_bytes().to_vec()
        }
        Operation::Open(_) => OpenOut::default().as_bytes().to_vec(),
        Operation::Write { bytes, .. } => {
            WriteOut { size: bytes.len() as u32, padding: 0 }.as_bytes().to_vec()
        }
        Operation::Fsync(_) | Operation::Release(_) | Operation::Read(_) => Vec::new(),
        _ => return Some(Err(Errno::NOSYS)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::layout::{FsyncIn, InHeader};
    use crate::wire::numbers::opcode;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::pipe::pipe;

    #[test]
    fn probe_ends_and_leaves_nothing_mounted() {
        let begin = Instant::now();
        syncs_single_writes().unwrap();
        assert!(begin.elapsed() < LIMIT);
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains("zonal-probe"), "{mounts}");
    }

    /// A sync after the return of the write does not count.
    #[test]
    fn only_a_sync_before_the_write_returns_counts() {
        for is_late in [false, true] {
            let (ours, kernel) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::empty(), None).unwrap();
            let (alive, dead) = pipe().unwrap();
            let head = InHeader {
                len: (size_of::<InHeader>() + size_of::<FsyncIn>()) as u32,
                opcode: opcode::FSYNC,
                nodeid: INO,
                ..InHeader::default()
            };
            let request = [head.as_bytes(), FsyncIn::default().as_bytes()].concat();
            rustix::io::write(&kernel, &request).unwrap();
            let served = std::thread::spawn(move || serve(&ours, &alive, &AtomicBool::new(is_late)));
            rustix::io::read(&kernel, &mut [0; 64]).unwrap();
            drop(dead);
            assert_eq!(served.join().unwrap().unwrap(), !is_late);
        }
    }
}
