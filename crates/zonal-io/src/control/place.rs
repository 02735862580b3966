//! Where control sockets lie: the directory, the file names, and what becomes of stale files.

use super::ControlError;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, geteuid, test_kill_process};
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest part of a device's name in a file name: the path of a Unix socket ends at 107 bytes.
const DEVICE_BYTES_MAX: usize = 32;

/// The ending of every control socket.
const ENDING: &str = ".sock";

/// Group's and others' permission bits.
const OTHERS: u32 = 0o077;

/// Names the one directory that control sockets are in `zonal` of.
const OWN_VARIABLE: &str = "ZONAL_RUNTIME_DIR";

/// The directory for this user's new control sockets, made if it is not there.
///
/// Of root it is `/run/zonal`. Of others it is `zonal` in `$XDG_RUNTIME_DIR` or in `/run/user/UID`, where those are directories of the user.
/// If there is none it is `/tmp/zonal-UID`. Where `$ZONAL_RUNTIME_DIR` is set, it is `zonal` in that.
///
/// # Errors
/// [`ControlError::Directory`] if it is another's, open to others, or no directory: then another user's process could
/// answer.
pub fn directory() -> Result<PathBuf, ControlError> {
    let mut directories = directories();
    let last = directories.pop().expect("there is always one");
    for path in directories {
        match private_directory(&path) {
            Err(ControlError::Io { .. }) => {}
            made => return made.map(|()| path),
        }
    }
    private_directory(&last)?;
    Ok(last)
}

/// Where control sockets of this user can be, whatever session each was made in: the first is for new ones, the next if that cannot be made.
pub(super) fn directories() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(own) = variable(OWN_VARIABLE) {
        return vec![own.join("zonal")];
    }
    let user = geteuid();
    let bases = [
        user.is_root().then(|| PathBuf::from("/run")),
        // After `su` or `sudo` the variable may still name another user's directory.
        variable("XDG_RUNTIME_DIR"),
        Some(PathBuf::from(format!("/run/user/{}", user.as_raw()))),
    ];
    let is_own = |base: &PathBuf| base.symlink_metadata().is_ok_and(|meta| meta.is_dir() && is_own(&meta));
    let mut directories: Vec<PathBuf> =
        bases.into_iter().flatten().filter(is_own).map(|base| base.join("zonal")).collect();
    directories.push(PathBuf::from(format!("/tmp/zonal-{}", user.as_raw())));
    directories.dedup();
    directories
}

/// Makes `path` or checks that it is a directory of this user, closed to others.
pub(super) fn private_directory(path: &Path) -> Result<(), ControlError> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(ControlError::io(path, "cannot make the directory", e)),
    }
    // Not following a link: in a directory that others can write, it may be theirs.
    let meta = path.symlink_metadata().map_err(|e| ControlError::io(path, "cannot look at it", e))?;
    let wrong = |what: String| Err(ControlError::Directory { path: path.to_owned(), what });
    if !meta.is_dir() {
        return wrong("it is no directory".to_owned());
    }
    if !is_own(&meta) {
        return wrong(format!("it belongs to user {}", meta.uid()));
    }
    if meta.mode() & OTHERS != 0 {
        return wrong(format!("its mode {:04o} lets others in", meta.mode() & 0o7777));
    }
    Ok(())
}

fn is_own(meta: &Metadata) -> bool {
    meta.uid() == geteuid().as_raw()
}

/// The file name for the `n`th volume that this process has on `device`, from 0.
pub(super) fn file_name(pid: u32, device: &str, n: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".=-".contains(c) { c } else { '_' };
    let device: String = device.chars().map(plain).take(DEVICE_BYTES_MAX).collect();
    match n {
        0 => format!("{pid}-{device}{ENDING}"),
        n => format!("{pid}-{device}+{n}{ENDING}"),
    }
}

/// The process that a file name tells of, or `None` if it is no control socket's.
pub(super) fn pid_of(name: &str) -> Option<u32> {
    name.strip_suffix(ENDING)?.split_once('-')?.0.parse().ok()
}

/// What answers at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    Nothing,
    Living,
    /// A socket on which no process listens, and whose process is gone or is this one.
    Stale,
    /// A file that is no socket, or a socket in the making.
    Other,
}

pub(super) fn look_at(path: &Path) -> Found {
    let Ok(meta) = path.symlink_metadata() else { return Found::Nothing };
    if !meta.file_type().is_socket() {
        return Found::Other;
    }
    match connect(path, Duration::from_millis(100)) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let living = pid_of(name).is_some_and(|pid| pid != std::process::id() && is_running(pid));
            if living { Found::Other } else { Found::Stale }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Found::Nothing,
        // A full backlog is a sign of life too.
        _ => Found::Living,
    }
}

/// Removes the socket at `path` if it is stale.
pub(super) fn remove_stale(path: &Path) -> bool {
    look_at(path) == Found::Stale && std::fs::remove_file(path).is_ok()
}

fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

pub(super) fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Connects to `path`, waiting for room in its backlog for `timeout` at most.
pub(super) fn connect(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let kind = rustix::net::sockopt::Timeout::Send;
    rustix::net::sockopt::set_socket_timeout(&fd, kind, Some(timeout))?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}
