//! `zonal unmount` and `zonal sync`.

use super::mount::place::elsewhere;
use super::plugs::{mount_of, mounted_device};
use crate::exit::Failure;
use crate::text::shown_word;
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use zonal_fuse::mount::{IfBusy, unmount};

/// Unmount a file system
///
/// When the command ends, everything written is on the device. A directory in use stays mounted. If
/// `mount --bind` has mounted the file system at a second directory, only this one is unmounted,
/// and the process of the mount ends with the last one.
#[derive(Args, Debug)]
pub(crate) struct Unmount {
    /// Mounted directory, or its device
    dir: PathBuf,
}

/// Make everything written to a mount durable
///
/// The `sync` of the system does not do that: the kernel does not pass it on to FUSE file systems.
#[derive(Args, Debug)]
pub(crate) struct Sync {
    /// Mounted directory, or its device
    dir: PathBuf,
}

/// Time after which a process that has not ended is asked for other mounts.
const ASK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub(crate) fn run(arguments: &Unmount) -> Result<(), Failure> {
    let name = || shown_word(arguments.dir.as_os_str());
    let (dir, endpoint) = mount_of(&arguments.dir)?;
    let process = Pid::from_raw(endpoint.pid as i32).ok_or_else(|| anyhow!("{}: process 0", name()))?;
    let process = pidfd_open(process, PidfdFlags::empty()).with_context(name)?;
    // Errors of writing are reported here: after the unmount there is no caller left.
    let synced = sync_dir(&dir);
    unmount(&dir, IfBusy::Refuse).map_err(|error| match error.is_busy() {
        true => anyhow!("{}: in use; close its open files and directories, and try again", name()),
        false => anyhow::Error::new(error).context(name()),
    })?;
    // The device is free for others once the process has ended. If the file system is also mounted
    // at another directory, the process goes on serving that. It reports its mounts, and is asked
    // repeatedly in case it could not answer.
    while poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&ASK_EVERY)).with_context(name)? == 0 {
        if let Some(other) = mounted_device(&endpoint).and_then(elsewhere) {
            let other = shown_word(other.as_os_str());
            let _ = writeln!(std::io::stderr(), "zonal: {}: unmounted; still mounted at {other}", name());
            break;
        }
    }
    synced.with_context(|| format!("{}: unmounted, but not everything written is durable", name()))?;
    Ok(())
}

pub(crate) fn run_sync(arguments: &Sync) -> Result<(), Failure> {
    let name = || shown_word(arguments.dir.as_os_str());
    let (dir, _) = mount_of(&arguments.dir)?;
    Ok(sync_dir(&dir).with_context(name)?)
}

/// Makes everything below a mounted directory durable: the kernel's page cache, and the file
/// system.
pub(super) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    let dir: OwnedFd =
        rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // A program killed while it updated the size or times of a file leaves EINTR for the next sync.
    // The error does not concern data, and the kernel reports it once.
    rustix::io::retry_on_intr(|| rustix::fs::syncfs(&dir))?;
    // An fsync of the root covers the whole file system.
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&dir))?)
}
