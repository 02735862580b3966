//! Synchronous commands to `/dev/ublk-control`.

use crate::parameters::UnfitError;
use crate::wire::{self, ControlCommand, DeviceFacts, Parameters, feature};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Control device of the driver.
const CONTROL: &str = "/dev/ublk-control";

/// Required driver features, with their names for error messages.
const NEEDED: [(u64, &str); 3] = [
    (feature::IOCTL_ENCODE, "ioctl-encoded commands"),
    (feature::USER_COPY, "user copy"),
    (feature::ZONED, "zones"),
];

/// Reason why there is no block device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The driver is not loaded.
    #[error(
        "the kernel's ublk driver is not loaded; load it with 'modprobe ublk_drv' (Linux 6.6, with CONFIG_BLK_DEV_UBLK)"
    )]
    NoDriver,
    /// No permission to use the driver.
    #[error("cannot open {CONTROL} ({0}): creating block devices requires root")]
    NoRight(io::Error),
    /// io_uring is not available.
    #[error("io_uring is not available, which ublk requires: {0}")]
    NoRing(io::Error),
    /// The driver is too old or was built without zones.
    #[error("the ublk driver does not support {0}: zoned devices need Linux 6.6, with CONFIG_BLK_DEV_ZONED")]
    Lacks(&'static str),
    /// The driver does not support this drive.
    #[error(transparent)]
    Unfit(#[from] UnfitError),
    /// The block device left over by a killed server has other parameters.
    #[error("{0} waits for a server with its earlier options; start that server and end it first")]
    Changed(String),
    /// The kernel refused a command.
    #[error("ublk: {what}: {error}")]
    Refused {
        /// Description of the command, for messages.
        what: &'static str,
        /// Error of the kernel.
        error: io::Error,
    },
}

impl UblkError {
    pub(crate) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> UblkError {
        move |error| UblkError::Refused { what, error }
    }
}

/// Connection to the driver.
pub struct Control {
    file: OwnedFd,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Opens the control device and checks for the features that a zoned device needs.
    ///
    /// # Errors
    /// [`UblkError`] naming the missing feature.
    pub fn open() -> Result<Control, UblkError> {
        let file = rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|error| match io::Error::from(error) {
            error if error.kind() == ErrorKind::PermissionDenied => UblkError::NoRight(error),
            error if error.kind() == ErrorKind::NotFound => UblkError::NoDriver,
            error => UblkError::Refused { what: CONTROL, error },
        })?;
        let ring = new_ring().map_err(UblkError::NoRing)?;
        let mut control = Control { file, ring };
        let mut features = 0u64;
        // This command was introduced together with zones.
        let told = control.exchange(wire::control::GET_FEATURES, u32::MAX, &mut features);
        let is_told = told.is_ok();
        match NEEDED.iter().find(|(needed, _)| !is_told || features & needed == 0) {
            Some((_, what)) => Err(UblkError::Lacks(what)),
            None => Ok(control),
        }
    }

    /// Adds a device with the parameters in `facts`, and updates them with the resulting ones.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn add(&mut self, facts: &mut DeviceFacts) -> io::Result<()> {
        self.exchange(wire::control::ADD, facts.device, facts)
    }

    /// Queries the state of a device.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn facts(&mut self, device: u32) -> io::Result<DeviceFacts> {
        let mut facts = DeviceFacts::default();
        self.exchange(wire::control::GET_FACTS, device, &mut facts)?;
        Ok(facts)
    }

    /// Sets the parameters of a device.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn set_parameters(&mut self, device: u32, parameters: &Parameters) -> io::Result<()> {
        self.exchange(wire::control::SET_PARAMETERS, device, &mut { *parameters })
    }

    /// Queries the parameters of a device.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn parameters(&mut self, device: u32) -> io::Result<Parameters> {
        let mut parameters = Parameters { len: size_of::<Parameters>() as u32, ..Parameters::default() };
        self.exchange(wire::control::GET_PARAMETERS, device, &mut parameters)?;
        Ok(parameters)
    }

    /// Issues a command without a structure, one of [`wire::control`].
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn order(&mut self, command: u32, device: u32, data: u64) -> io::Result<()> {
        self.call(command, device, data, 0, 0)
    }

    /// Issues a command from a forked process that shares only the connection to the driver with
    /// this one. For commands that wait for requests of the disk: the kernel ends those requests
    /// once the files and the memory of a dead server are released. If a process is killed while
    /// its own command waits, it keeps both until the command completes, so neither would ever
    /// happen.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn command_in_child(&mut self, command: u32, device: u32, data: u64) -> io::Result<()> {
        let mut kept = [self.file.as_raw_fd(), self.ring.as_raw_fd()];
        kept.sort_unstable();
        // SAFETY: the child only makes system calls until it exits, and takes no lock and no
        // memory.
        match unsafe { libc::fork() } {
            // Fork failed: issue the command from this process.
            -1 => self.order(command, device, data),
            0 => {
                close_others(kept.map(|descriptor| descriptor as u32));
                let given = self.give(command, device, data, 0, 0);
                // SAFETY: exits without running this process's cleanup.
                unsafe { libc::_exit(given.is_err().into()) }
            }
            child => {
                wait_for(child);
                // Both processes share the ring, and the child leaves the completion in it.
                if self.ring.completion().is_empty() {
                    // Discard an entry left by a killed child, so that it is not submitted with the
                    // next command.
                    self.ring = new_ring()?;
                }
                self.answer()
            }
        }
    }

    /// Deletes a device. It disappears once its files are closed, possibly later, as a program may
    /// have the disk open.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        match self.command_in_child(wire::control::DELETE_LATER, device, 0) {
            // Older driver, which waits for the files to be closed.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
                self.command_in_child(wire::control::DELETE, device, 0)
            }
            ended => ended,
        }
    }

    /// Issues a command with a structure that the kernel reads or fills.
    fn exchange<T>(&mut self, command: u32, device: u32, value: &mut T) -> io::Result<()>
    where
        T: FromBytes + IntoBytes + Immutable + Clone,
    {
        let mut place = Box::new(value.clone());
        let address = (&raw mut *place) as u64;
        match self.call(command, device, 0, address, size_of::<T>() as u16) {
            Ok(()) => {
                *value = (*place).clone();
                Ok(())
            }
            Err(error) => {
                // After a failure of the ring the kernel may still use it.
                std::mem::forget(place);
                Err(error)
            }
        }
    }

    fn call(&mut self, command: u32, device: u32, data: u64, address: u64, len: u16) -> io::Result<()> {
        self.give(command, device, data, address, len)?;
        self.answer()
    }

    /// Submits a command and waits for its completion.
    fn give(&mut self, command: u32, device: u32, data: u64, address: u64, len: u16) -> io::Result<()> {
        let header =
            ControlCommand { device, queue: u16::MAX, len, address, data, path_len: 0, pad: 0, reserved: 0 };
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(header.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: `address` refers to memory that lives until the command has completed, and is
        // leaked on failure.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ if !self.ring.completion().is_empty() => return Ok(()),
                _ => {}
            }
        }
    }

    /// Result of the submitted command.
    fn answer(&mut self) -> io::Result<()> {
        let killed = || io::Error::other("the child process of a driver command was killed");
        match self.ring.completion().next().ok_or_else(killed)?.result() {
            number if number < 0 => Err(io::Error::from_raw_os_error(-number)),
            _ => Ok(()),
        }
    }
}

fn new_ring() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    IoUring::builder().build(4)
}

/// Closes all descriptors except these two, given in ascending order.
fn close_others(kept: [u32; 2]) {
    let before = kept[0].checked_sub(1).map(|last| (0, last));
    let others = [before, Some((kept[0] + 1, kept[1] - 1)), Some((kept[1] + 1, u32::MAX))];
    for (first, last) in others.into_iter().flatten().filter(|(first, last)| first <= last) {
        // SAFETY: only called in a process that uses no other descriptors.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Waits for a child to exit, ignoring the result. Works even if this process ignores SIGCHLD.
fn wait_for(child: i32) {
    if let Some(child) = Pid::from_raw(child) {
        while waitpid(Some(child), WaitOptions::empty()).err() == Some(Errno::INTR) {}
    }
}

/// Numbers of all devices of the driver.
///
/// # Errors
/// Errors of the operating system.
pub fn devices() -> io::Result<Vec<u32>> {
    let names = fs::read_dir("/dev")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<u32> = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok()).collect();
    found.sort_unstable();
    Ok(found)
}

/// Opens the character device of a device, which allows one opener at a time.
///
/// # Errors
/// Errors of the operating system; EBUSY if it is already open.
pub fn open_character_device(device: u32) -> io::Result<OwnedFd> {
    let path = format!("/dev/ublkc{device}");
    Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Path of the block device.
pub fn disk(device: u32) -> String {
    format!("/dev/ublkb{device}")
}
