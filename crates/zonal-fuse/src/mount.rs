//! Attaches the kernel's FUSE device to a directory, and detaches it.
//!
//! Root calls the kernel directly. Other users run `fusermount3`, which is set-uid root and returns
//! the device over a socket.

use rustix::fs::{Mode, OFlags, major, minor};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::CString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// File system type in `mount` and `/proc/mounts`.
pub const TYPE: &str = "fuse.zonal";

/// Options of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// Source shown in `/proc/mounts`.
    pub source: String,
    /// Read-only.
    pub read_only: bool,
    /// Ignore set-id bits and file capabilities.
    pub no_suid: bool,
    /// Ignore device files.
    pub no_dev: bool,
    /// Do not allow programs to be run.
    pub no_exec: bool,
    /// Allow access by other users than the one who mounted it.
    pub allow_other: bool,
}

/// Reason why a directory cannot be mounted or unmounted.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel's device cannot be opened.
    #[error("cannot open {DEVICE}: {0}; the kernel module `fuse` may be missing")]
    Device(#[source] io::Error),
    /// Refused by the kernel.
    #[error("the kernel refused the mount: {0}")]
    Kernel(#[source] io::Error),
    /// The helper is missing.
    #[error("cannot run {HELPER}, which is needed to mount without root: install the package fuse3")]
    NoHelper(#[source] io::Error),
    /// Refused by the helper.
    #[error("{HELPER}: {0}")]
    Helper(String),
}

/// True if this process may mount without the helper.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts `dir`, and returns the device for the kernel's requests.
///
/// # Errors
/// [`MountError`]. Nothing is mounted in that case.
pub fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    if is_root() { mount_as_root(dir, options) } else { mount_by_helper(dir, options) }
}

/// Opens the kernel's device.
pub(crate) fn open_device() -> Result<OwnedFd, MountError> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    device.map_err(|e| MountError::Device(e.into()))
}

fn mount_as_root(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let mut data =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions", device.as_raw_fd());
    if options.allow_other {
        data += ",allow_other";
    }
    let flags = flags(options);
    let data = CString::new(data).expect("it has no zeroes");
    let mounted = rustix::mount::mount(options.source.as_str(), dir, TYPE, flags, data.as_c_str());
    mounted.map_err(|e| MountError::Kernel(e.into()))?;
    Ok(device)
}

fn flags(options: &MountOptions) -> MountFlags {
    let wanted = [
        (options.read_only, MountFlags::RDONLY),
        (options.no_suid, MountFlags::NOSUID),
        (options.no_dev, MountFlags::NODEV),
        (options.no_exec, MountFlags::NOEXEC),
    ];
    wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, flag)| flag).collect()
}

/// Changes the flags of a mount: read-only, set-id bits, device files and programs. Before it
/// becomes read-only, the kernel writes back its cache.
///
/// # Errors
/// [`MountError::Kernel`], without any change. Only root may do this.
pub fn remount(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    let remounted = rustix::mount::mount_remount(dir, flags(options), c"");
    remounted.map_err(|e| MountError::Kernel(e.into()))
}

fn mount_by_helper(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let no_helper = MountError::NoHelper;
    let (ours, theirs) = UnixStream::pair().map_err(no_helper)?;
    // A comma would end the option.
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut said = format!("fsname={source},subtype=zonal,default_permissions");
    for (is_wanted, word) in [
        (options.read_only, ",ro"),
        (options.no_suid, ",nosuid"),
        (options.no_dev, ",nodev"),
        (options.no_exec, ",noexec"),
        (options.allow_other, ",allow_other"),
    ] {
        said += if is_wanted { word } else { "" };
    }
    // The helper inherits its end of the socket.
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| no_helper(e.into()))?;
    let helper = Command::new(HELPER)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .args(["-o", &said, "--"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_helper)?;
    drop(theirs);
    let device = receive(&ours);
    let output = helper.wait_with_output().map_err(no_helper)?;
    match device {
        Ok(Some(device)) => Ok(device),
        _ => Err(MountError::Helper(said_by(&output.stderr))),
    }
}

/// Error output of the helper, as one line.
fn said_by(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim().trim_start_matches(&format!("{HELPER}: ")).replace('\n', "; ");
    if text.is_empty() { "nothing was mounted, without an error message".to_owned() } else { text }
}

/// Receives a descriptor over a socket. `None` if the other end is closed without sending one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// Handling of a directory in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfBusy {
    /// Fail.
    Refuse,
    /// Detach it from the directory tree at once. Programs keep what they have open.
    Detach,
}

/// Unmounts `dir`.
///
/// # Errors
/// [`MountError`].
pub fn unmount(dir: &Path, if_busy: IfBusy) -> Result<(), MountError> {
    if is_root() {
        let detach = if if_busy == IfBusy::Detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        let flags = detach | UnmountFlags::NOFOLLOW;
        return rustix::mount::unmount(dir, flags).map_err(|e| MountError::Kernel(e.into()));
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args((if_busy == IfBusy::Detach).then_some("-z")).arg("--").arg(dir);
    let output = helper.stdin(Stdio::null()).output().map_err(MountError::NoHelper)?;
    if output.status.success() { Ok(()) } else { Err(MountError::Helper(said_by(&output.stderr))) }
}

/// Allows a mount as many dirty pages as other file systems.
///
/// By default the kernel limits a FUSE mount to one percent of that, because its user may not be
/// trusted. Only root can change the limit.
///
/// # Errors
/// The kernel's error, with the path of the setting.
pub fn allow_dirty_pages(dir: &Path) -> io::Result<()> {
    let place = cache_settings(dir)?;
    // Otherwise the share is also a limit of its own.
    let _ = fs::write(format!("{place}/strict_limit"), "0");
    fs::write(format!("{place}/max_ratio"), "100")
        .map_err(|error| io::Error::new(error.kind(), format!("{place}: {error}")))
}

/// Read-ahead of a mount in KiB, several units of a file: the kernel requests the next ones while a
/// program reads the last. The same as that of btrfs.
const READ_AHEAD_KIB: u64 = 4096;

/// Raises the kernel's read-ahead for a mount, which is 128 KiB by default. Only root can change it.
///
/// # Errors
/// The kernel's error, with the path of the setting.
pub fn raise_read_ahead(dir: &Path) -> io::Result<()> {
    let setting = format!("{}/read_ahead_kb", cache_settings(dir)?);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{setting}: {error}"));
    let present = fs::read_to_string(&setting).map_err(named)?;
    if present.trim().parse().is_ok_and(|present: u64| present >= READ_AHEAD_KIB) {
        return Ok(());
    }
    fs::write(&setting, READ_AHEAD_KIB.to_string()).map_err(named)
}

/// Directory with the settings of the kernel's page cache for a mount.
fn cache_settings(dir: &Path) -> io::Result<String> {
    let device = fs::metadata(dir)?.dev();
    Ok(format!("/sys/class/bdi/{}:{}", major(device), minor(device)))
}

impl MountError {
    /// True if the directory is in use.
    pub fn is_busy(&self) -> bool {
        match self {
            MountError::Kernel(error) => error.raw_os_error() == Some(Errno::BUSY.raw_os_error()),
            MountError::Helper(said) => said.contains("busy"),
            _ => false,
        }
    }
}
