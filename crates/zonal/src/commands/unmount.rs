//! `zonal unmount`, and `zonal sync`.

use super::mount::place::elsewhere;
use super::plugs::mount_of;
use crate::exit::Failure;
use crate::text::shown_word;
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zonal_fuse::mount::{IfBusy, unmount};

/// Unmount a directory of `zonal mount`
///
/// All that was written is on the device when this ends. A directory that is in use stays mounted. Where
/// `mount --bind` has given it a second directory, this one goes, and the process of the mount goes with the last.
#[derive(Args, Debug)]
pub(crate) struct Unmount {
    /// The directory, or the device
    dir: PathBuf,
}

/// Make everything durable that was written to a directory of `zonal mount`
///
/// `sync` does that for no FUSE file system: the kernel does not pass it on.
#[derive(Args, Debug)]
pub(crate) struct Sync {
    /// The directory, or the device
    dir: PathBuf,
}

pub(crate) fn run(arguments: &Unmount) -> Result<(), Failure> {
    let name = || shown_word(arguments.dir.as_os_str());
    let (dir, process) = mount_of(&arguments.dir)?;
    let own = std::fs::metadata(&dir).with_context(name)?.dev();
    let process = Pid::from_raw(process.pid as i32).ok_or_else(|| anyhow!("{}: process 0", name()))?;
    let process = pidfd_open(process, PidfdFlags::empty()).with_context(name)?;
    // What cannot be written is told here: after the unmount there is no caller to tell.
    let synced = sync_dir(&dir);
    unmount(&dir, IfBusy::Refuse).map_err(|error| match error.is_busy() {
        true => anyhow!("{}: it is in use", name()),
        false => anyhow::Error::new(error).context(name()),
    })?;
    match elsewhere(own) {
        // The directory was mounted at another one as well, and the process serves that one still.
        Some(other) => {
            let other = shown_word(other.as_os_str());
            let _ = writeln!(std::io::stderr(), "zonal: {}: unmounted; it is still at {other}", name());
        }
        // The device is free for others once the process has ended.
        None => drop(poll(&mut [PollFd::new(&process, PollFlags::IN)], None).with_context(name)?),
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
