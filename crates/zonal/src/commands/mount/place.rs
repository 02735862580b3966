//! Directory of a mount, and limits that the kernel sets for it.

use super::super::plugs::mounted_device;
use crate::exit::Failure;
use crate::text::shown_word;
use anyhow::{Context, anyhow};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zonal_fuse::mount::{IfBusy, unmount};
use zonal_linux::mounts::mounts;

/// Returns the absolute path of a directory to mount at. A killed mount there is cleared away.
pub(super) fn prepare(dir: &Path) -> Result<PathBuf, Failure> {
    let name = || shown_word(dir.as_os_str());
    let is_dead = |error: &std::io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    // Attributes may still be in the kernel's cache, but the free space is not.
    if rustix::fs::statfs(dir).map_err(std::io::Error::from).as_ref().is_err_and(is_dead) {
        clear_away(dir)?;
    }
    let metadata = fs::metadata(dir).with_context(name)?;
    if !metadata.is_dir() {
        return Err(anyhow!("{}: not a directory", name()).into());
    }
    let dir = fs::canonicalize(dir).with_context(name)?;
    if is_mounted(&dir) {
        return Err(anyhow!("{}: already mounted by `zonal mount`", name()).into());
    }
    Ok(dir)
}

/// Refuses a directory (a path without symbolic links) that contains files of this process. A mount
/// would hide them from the next command, and the process would deadlock when it looks them up.
pub(super) fn check_outside(dir: &Path, metadata: Option<&Path>) -> Result<(), Failure> {
    let mut files = own_files();
    files.extend(metadata.and_then(|path| Some(("the metadata file", fs::canonicalize(path).ok()?))));
    refuse_inside(dir, &files).map_err(Failure::from)
}

fn refuse_inside(dir: &Path, files: &[(&str, PathBuf)]) -> anyhow::Result<()> {
    let name = || shown_word(dir.as_os_str());
    if dir == Path::new("/") {
        return Err(anyhow!(
            "{}: the root directory cannot be covered by a mount; choose another directory",
            name()
        ));
    }
    match files.iter().find(|(_, path)| path.starts_with(dir)) {
        Some((what, path)) => Err(anyhow!(
            "{}: a mount would hide {what} in it, {}; choose another directory",
            name(),
            shown_word(path.as_os_str())
        )),
        None => Ok(()),
    }
}

/// Files that this process needs, without symbolic links: open files such as the image and the log,
/// the program, and the directory of control sockets. Standard input, output and error were opened
/// by the caller and do not count.
fn own_files() -> Vec<(&'static str, PathBuf)> {
    const STANDARD: [&str; 3] = ["0", "1", "2"];
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open = open.filter(|entry| STANDARD.iter().all(|fd| entry.file_name() != *fd));
    let open = open.filter_map(|entry| fs::read_link(entry.path()).ok()).map(|path| ("an open file", path));
    let program = std::env::current_exe().ok().map(|path| ("the running program", path));
    let sockets = zonal_io::control::directory().ok().and_then(|path| fs::canonicalize(path).ok());
    let sockets = sockets.map(|path| ("the directory of control sockets", path));
    open.chain(program).chain(sockets).collect()
}

/// Unmounts a dead mount, lazily if programs still have files open there, because no server answers
/// them anymore.
fn clear_away(dir: &Path) -> Result<(), Failure> {
    let failed = || format!("{}: cannot clear away a killed mount", shown_word(dir.as_os_str()));
    // The path itself cannot be resolved, but that of its parent can.
    let path = std::path::absolute(dir)?;
    let path = match (path.parent(), path.file_name()) {
        (Some(parent), Some(last)) => fs::canonicalize(parent).with_context(failed)?.join(last),
        _ => path,
    };
    match unmount(&path, IfBusy::Refuse) {
        Err(error) if error.is_busy() => {}
        other => return Ok(other.with_context(failed)?),
    }
    // Detaching would also detach file systems mounted inside.
    if let Some(inner) = mounts().into_iter().find(|mount| mount.dir != path && mount.dir.starts_with(&path))
    {
        let (inner, outer) = (shown_word(inner.dir.as_os_str()), shown_word(path.as_os_str()));
        return Err(
            anyhow!("{}: {inner} is mounted in it; `umount -l {outer}` detaches both", failed()).into()
        );
    }
    unmount(&path, IfBusy::Detach).with_context(failed)?;
    let dir = shown_word(dir.as_os_str());
    let _ = writeln!(
        std::io::stderr(),
        "zonal: {dir}: cleared away a killed mount with open files or directories; programs have to open them again"
    );
    Ok(())
}

/// True if a file system of `zonal mount` is mounted at a path without symbolic links, even if
/// another one covers it.
pub(super) fn is_mounted(dir: &Path) -> bool {
    mounts().iter().any(|mount| mount.dir == dir && mount.kind == OWN_KIND)
}

/// True if a file system of `zonal mount` is mounted at a path and not covered by another one.
pub(super) fn is_on_top(dir: &Path) -> bool {
    let device = fs::metadata(dir).map(|there| there.dev());
    mounts().iter().any(|mount| {
        mount.kind == OWN_KIND && mount.dir == dir && device.as_ref().ok() == Some(&mount.device)
    })
}

/// Returns a directory where the file system with this number is mounted.
pub(crate) fn elsewhere(device: u64) -> Option<PathBuf> {
    mounts().into_iter().find(|mount| mount.device == device).map(|mount| mount.dir)
}

/// Type of the file systems of `zonal mount` in the kernel.
const OWN_KIND: &[u8] = b"fuse.zonal";

/// Returns the directory where the file system with this number can be unmounted: `dir`, or the one
/// it was moved to.
pub(super) fn now(device: u64, dir: &Path) -> Option<PathBuf> {
    let is_here = |dir: &Path| fs::metadata(dir).is_ok_and(|there| there.dev() == device);
    let elsewhere = || mounts().into_iter().filter(|mount| mount.device == device).map(|mount| mount.dir);
    if is_here(dir) { Some(dir.to_owned()) } else { elsewhere().find(|dir| is_here(dir)) }
}

/// True if a process served a mount that is unmounted, and is about to end.
pub(super) fn is_ending(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if line.is_empty() {
        // It has exited, or is about to close its files: a process gives up its memory first.
        return true;
    }
    let mut words = line.split(|byte| *byte == 0);
    let (program, command) = (words.next().unwrap_or_default(), words.next());
    let program = Path::new(OsStr::from_bytes(program)).file_name().unwrap_or_default();
    if command != Some(b"mount") && !program.as_bytes().starts_with(b"mount.") {
        return false;
    }
    let endpoints = zonal_io::control::list().unwrap_or_default();
    let told = endpoints.iter().find(|endpoint| endpoint.pid == pid).map(mounted_device);
    !told.flatten().is_some_and(|device| mounts().iter().any(|mount| mount.device == device))
}

/// Returns the `-o` options of a serving process, or none if they cannot be read.
pub(super) fn options_of(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    options_in(line.split(|byte| *byte == 0).map(String::from_utf8_lossy))
}

fn options_in<'a>(mut words: impl Iterator<Item = Cow<'a, str>>) -> Vec<String> {
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix("-o") {
            Some("") => options.extend(words.next().map(Cow::into_owned)),
            Some(joined) => options.push(joined.strip_prefix('=').unwrap_or(joined).to_owned()),
            None => {}
        }
    }
    options
}

/// Makes the kernel write its cached data of a file system. Errors are in the log.
pub(super) fn write_cached(dir: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(dir) = rustix::fs::open(dir, flags, Mode::empty()) {
        let _ = rustix::fs::syncfs(&dir);
    }
}

/// Lets a mount have as many dirty pages as other file systems, if that is allowed. Returns a line
/// for the log.
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

/// Lets the kernel read ahead as much of a mount's files as of a disk's, if that is allowed. Returns
/// a line for the log if it fails.
pub(super) fn raise_read_ahead(dir: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let failed = zonal_fuse::mount::raise_read_ahead(dir).err();
    failed.map(|error| format!("the kernel reads only 128 KiB ahead: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_command_line_are_found() {
        let words =
            ["zonal", "mount", "d", "/mnt", "-o", "ro,threads=3", "--log", "-x", "-onosuid", "-o=uid=3"];
        assert_eq!(options_in(words.into_iter().map(Cow::from)), ["ro,threads=3", "nosuid", "uid=3"]);
    }

    #[test]
    fn directory_is_refused_if_it_is_the_root_or_holds_an_own_file() {
        let files = [("the log", PathBuf::from("/srv/drives/log"))];
        let refused = |dir: &str| refuse_inside(Path::new(dir), &files).err().map(|error| error.to_string());
        assert!(refused("/").unwrap().contains("root directory"));
        for dir in ["/srv", "/srv/drives"] {
            let said = refused(dir).unwrap();
            assert!(said.starts_with(dir) && said.contains("the log in it, /srv/drives/log"), "{said}");
        }
        assert_eq!((refused("/srv/drive"), refused("/srv/drives/mnt")), (None, None));
    }
}
