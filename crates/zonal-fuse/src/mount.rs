//! Attaches the kernel's FUSE device to a directory, and detaches it.
//!
//! Root asks the kernel. Other users ask `fusermount3`, which is set-uid root, and gives the device back over a socket.

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

/// The type under which `mount` and `/proc/mounts` list it.
pub const TYPE: &str = "fuse.zonal";

/// How a directory is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// What `/proc/mounts` says is mounted.
    pub source: String,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Set-id bits and file capabilities do nothing.
    pub no_suid: bool,
    /// Device files are no devices.
    pub no_dev: bool,
    /// No program is run from it.
    pub no_exec: bool,
    /// Users who did not mount it may use it, too.
    pub allow_other: bool,
}

/// Why a directory cannot be mounted or unmounted.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The kernel's device.
    #[error("{DEVICE} cannot be opened: {0}; the kernel module `fuse` may not be there")]
    Device(#[source] io::Error),
    /// The kernel refuses.
    #[error("the kernel does not mount it: {0}")]
    Kernel(#[source] io::Error),
    /// The helper is not there.
    #[error("{HELPER} cannot be run; without it only root can mount; it is in the package fuse3")]
    NoHelper(#[source] io::Error),
    /// The helper refuses.
    #[error("{HELPER}: {0}")]
    Helper(String),
}

/// True if this process may mount without the helper.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts `dir`, and returns the device on which the kernel sends its requests.
///
/// # Errors
/// [`MountError`]; nothing is mounted then.
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

/// Gives a mounted directory other flags: whether it can be changed, and whether set-id bits, device files and programs count. The kernel
/// writes what it has cached before nothing can be changed any more.
///
/// # Errors
/// [`MountError::Kernel`]: all stays as it is. Only root may do it.
pub fn remount(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    let remounted = rustix::mount::mount_remount(dir, flags(options), c"");
    remounted.map_err(|e| MountError::Kernel(e.into()))
}

fn mount_by_helper(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let no_helper = MountError::NoHelper;
    let (ours, theirs) = UnixStream::pair().map_err(no_helper)?;
    // A comma ends an option.
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
    // The helper inherits its end.
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

/// What a helper has said, in a line.
fn said_by(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim().trim_start_matches(&format!("{HELPER}: ")).replace('\n', "; ");
    if text.is_empty() { "it has mounted nothing, and does not say why".to_owned() } else { text }
}

/// The descriptor that comes over a socket; `None` if the other end closes it without one.
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

/// How a directory is unmounted that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfBusy {
    /// It is not.
    Refuse,
    /// It goes from the tree of directories at once; who has it open keeps it.
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

/// Lets a mount have as many dirty pages as other file systems.
///
/// The kernel gives a FUSE mount one percent of what it gives others: who mounts it need not be trusted. Only root changes that.
///
/// # Errors
/// The kernel's, with the place of its setting.
pub fn allow_dirty_pages(dir: &Path) -> io::Result<()> {
    let device = fs::metadata(dir)?.dev();
    let place = format!("/sys/class/bdi/{}:{}", major(device), minor(device));
    // Without this one the share counts as a bound of its own.
    let _ = fs::write(format!("{place}/strict_limit"), "0");
    fs::write(format!("{place}/max_ratio"), "100")
        .map_err(|error| io::Error::new(error.kind(), format!("{place}: {error}")))
}

impl MountError {
    /// Whether the directory is in use.
    pub fn is_busy(&self) -> bool {
        match self {
            MountError::Kernel(error) => error.raw_os_error() == Some(Errno::BUSY.raw_os_error()),
            MountError::Helper(said) => said.contains("busy"),
            _ => false,
        }
    }
}
