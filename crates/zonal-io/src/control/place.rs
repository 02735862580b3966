//! Location of control sockets: directory, file names, and removal of stale files.

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

/// Maximum length of the device name in a file name; the path of a Unix socket is limited to 107
/// bytes.
const DEVICE_BYTES_MAX: usize = 32;

/// File name suffix of control sockets.
const ENDING: &str = ".sock";

/// Permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Environment variable with the parent of the only directory (`zonal`) for control sockets.
const OWN_VARIABLE: &str = "ZONAL_RUNTIME_DIR";

/// Returns the directory for this user's new control sockets, creating it if necessary.
///
/// For root it is `/run/zonal`. For other users it is `zonal` in `$XDG_RUNTIME_DIR` or
/// `/run/user/UID`, if these are directories of the user, and otherwise `/tmp/zonal-UID`. If
/// `$ZONAL_RUNTIME_DIR` is set, it is `zonal` in that directory.
///
/// # Errors
/// [`ControlError::Directory`] if it belongs to another user, is accessible to others, or is not a
/// directory, because a process of another user could then answer.
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

/// Directories in which this user may have control sockets, from any session. New ones go into the
/// first that can be created.
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

/// Creates `path`, or checks that it is a directory of this user without access for others.
pub(super) fn private_directory(path: &Path) -> Result<(), ControlError> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(ControlError::io(path, "cannot create the directory", e)),
    }
    // Does not follow a link, which may belong to others if they can write the parent directory.
    let meta = path.symlink_metadata().map_err(|e| ControlError::io(path, "cannot stat it", e))?;
    let wrong = |what: String| Err(ControlError::Directory { path: path.to_owned(), what });
    if !meta.is_dir() {
        return wrong("not a directory".to_owned());
    }
    if !is_own(&meta) {
        return wrong(format!("belongs to user {}", meta.uid()));
    }
    if meta.mode() & OTHERS != 0 {
        return wrong(format!("mode {:04o} gives other users access", meta.mode() & 0o7777));
    }
    Ok(())
}

fn is_own(meta: &Metadata) -> bool {
    meta.uid() == geteuid().as_raw()
}

/// File name for the `n`th volume (from 0) that this process has open on `device`.
pub(super) fn file_name(pid: u32, device: &str, n: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".=-".contains(c) { c } else { '_' };
    let device: String = device.chars().map(plain).take(DEVICE_BYTES_MAX).collect();
    match n {
        0 => format!("{pid}-{device}{ENDING}"),
        n => format!("{pid}-{device}+{n}{ENDING}"),
    }
}

/// Process ID in a file name, or `None` if it is not a control socket's.
pub(super) fn pid_of(name: &str) -> Option<u32> {
    name.strip_suffix(ENDING)?.split_once('-')?.0.parse().ok()
}

/// Result of probing a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SocketState {
    Nothing,
    Living,
    /// A socket without a listener, whose process is gone or is this one.
    Stale,
    /// A file that is not a socket, or a socket that is still being set up.
    Other,
}

pub(super) fn probe(path: &Path) -> SocketState {
    let Ok(meta) = path.symlink_metadata() else { return SocketState::Nothing };
    if !meta.file_type().is_socket() {
        return SocketState::Other;
    }
    match connect(path, Duration::from_millis(100)) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let living = pid_of(name).is_some_and(|pid| pid != std::process::id() && is_running(pid));
            if living { SocketState::Other } else { SocketState::Stale }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => SocketState::Nothing,
        // A full backlog also means that a server is running.
        _ => SocketState::Living,
    }
}

/// Removes the socket at `path` if it is stale.
pub(super) fn remove_stale(path: &Path) -> bool {
    probe(path) == SocketState::Stale && std::fs::remove_file(path).is_ok()
}

fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

pub(super) fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Connects to `path`, waiting at most `timeout` for space in its backlog.
pub(super) fn connect(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let fd = socket()?;
    let kind = rustix::net::sockopt::Timeout::Send;
    rustix::net::sockopt::set_socket_timeout(&fd, kind, Some(timeout))?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}
