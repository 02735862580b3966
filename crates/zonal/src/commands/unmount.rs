//! `zonal unmount`, and `zonal sync`.

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
/// All that was written is on the device when this ends. A directory that is in use stays mounted. Where
/// `mount --bind` has given it a second directory, this one goes, and the process of the mount goes with the last.
#[derive(Args, Debug)]
pub(crate) struct Unmount {
    /// The directory, or the device
    dir: PathBuf,
}

/// Make everything written to a mount durable
///
/// `sync` does that for no FUSE file system: the kernel does not pass it on.
#[derive(Args, Debug)]
pub(crate) struct Sync {
    /// The directory, or the device
    dir: PathBuf,
}

/// Time after which a process that does not end is asked where it is mounted.
const ASK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub(crate) fn run(arguments: &Unmount) -> Result<(), Failure> {
    let name = || shown_word(arguments.dir.as_os_str());
    let (dir, endpoint) = mount_of(&arguments.dir)?;
    let process = Pid::from_raw(endpoint.pid as i32).ok_or_else(|| anyhow!("{}: process 0", name()))?;
    let process = pidfd_open(process, PidfdFlags::empty()).with_context(name)?;
    // What cannot be written is told here: after the unmount there is no caller to tell.
    let synced = sync_dir(&dir);
    unmount(&dir, IfBusy::Refuse).map_err(|error| match error.is_busy() {
        true => anyhow!("{}: it is in use", name()),
        false => anyhow::Error::new(error).context(name()),
    })?;
    // The device is free for others once the process has ended. Where the directory was mounted at another one as well, the process
    // serves that one still. It tells both, and is asked again in case it could not answer.
    while poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&ASK_EVERY)).with_context(name)? == 0 {
        if let Some(other) = mounted_device(&endpoint).and_then(elsewhere) {
            let other = shown_word(other.as_os_str());
            let _ = writeln!(std::io::stderr(), "zonal: {}: unmounted; it is still at {other}", name());
            break;
        }
    }
    synced.with_context(|| format!("{}: unmounted, but not all that was written is there", name()))?;
    Ok(())
}

pub(crate) fn run_sync(arguments: &Sync) -> Result<(), Failure> {
    let name = || shown_word(arguments.dir.as_os_str());
    let (dir, _) = mount_of(&arguments.dir)?;
    Ok(sync_dir(&dir).with_context(name)?)
}

/// Makes everything under a mounted directory durable: what the kernel has cached, and what the file system has.
pub(super) fn sync_dir(dir: &Path) -> std::io::Result<()> {
    let dir: OwnedFd =
        rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // A program that was killed while it told the size or the times of a file leaves this error for who syncs next. It says
    // nothing of data, and the kernel tells it once.
    rustix::io::retry_on_intr(|| rustix::fs::syncfs(&dir))?;
    // Of the root, that is of everything.
    Ok(rustix::io::retry_on_intr(|| rustix::fs::fsync(&dir))?)
}
