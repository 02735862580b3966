//! The directory of a mount, and what the kernel allows it.

use crate::exit::Failure;
use crate::text::shown_word;
use anyhow::{Context, anyhow};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use zonal_fuse::mount::{IfBusy, unmount};

/// The absolute path of a directory that something can be mounted at. A mount there whose process was killed goes.
pub(super) fn prepare(dir: &Path) -> Result<PathBuf, Failure> {
    let name = || shown_word(dir.as_os_str());
    let is_dead = |error: &std::io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    // Attributes may still be in the kernel's cache. What a file system has left is not.
    if rustix::fs::statfs(dir).map_err(std::io::Error::from).as_ref().is_err_and(is_dead) {
        // Its name cannot be resolved, but that of the directory it is in.
        unmount(&std::path::absolute(dir)?, IfBusy::Refuse)
            .with_context(|| format!("{}: a mount there was killed, and cannot be cleared away", name()))?;
    }
    let metadata = fs::metadata(dir).with_context(name)?;
    if !metadata.is_dir() {
        return Err(anyhow!("{}: not a directory", name()).into());
    }
    Ok(fs::canonicalize(dir).with_context(name)?)
}

/// Has the kernel write what it has cached of a file system. What fails is told by the log.
pub(super) fn write_cached(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(dir) = rustix::fs::open(dir, flags, Mode::empty()) {
        let _ = rustix::fs::syncfs(&dir);
    }
}

/// Lets a mount have as many dirty pages as other file systems, where that is allowed; what there is to say of it.
pub(super) fn allow_dirty_pages(dir: &Path, writeback: bool) -> Option<String> {
    if !writeback || !rustix::process::geteuid().is_root() {
        return None;
    }
    Some(match zonal_fuse::mount::allow_dirty_pages(dir) {
        Ok(()) => {
            "dirty pages: up to 100% of what the kernel allows all file systems, instead of 1%".to_owned()
        }
        Err(error) => format!("dirty pages stay at 1% of what the kernel allows all file systems: {error}"),
    })
}
