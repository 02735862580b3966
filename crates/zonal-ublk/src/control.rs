//! Commands to `/dev/ublk-control`, each of which waits for its end.

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

/// Where commands go.
const CONTROL: &str = "/dev/ublk-control";

/// What the driver has to be able to do, and what a user calls it.
const NEEDED: [(u64, &str); 3] = [
    (feature::IOCTL_ENCODE, "commands with the numbers of ioctls"),
    (feature::USER_COPY, "copies by the server"),
    (feature::ZONED, "zones"),
];

/// Why there is no block device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// There is no driver.
    #[error(
        "the kernel's ublk driver is not there: `modprobe ublk_drv` loads it (Linux 6.6, with CONFIG_BLK_DEV_UBLK)"
    )]
    NoDriver,
    /// The process may not use it.
    #[error("{CONTROL} may not be opened ({0}): root makes block devices")]
    NoRight(io::Error),
    /// There are no rings.
    #[error("the kernel gives no io_uring, which ublk needs: {0}")]
    NoRing(io::Error),
    /// The driver is too old, or built without zones.
    #[error("the kernel's ublk driver has no {0}: zoned devices need Linux 6.6, with CONFIG_BLK_DEV_ZONED")]
    Lacks(&'static str),
    /// The driver cannot have this drive.
    #[error(transparent)]
    Unfit(#[from] UnfitError),
    /// The block device that a killed server has left is another.
    #[error("{0} waits for a server of this drive with other options: end that one first, started as it was")]
    Changed(String),
    /// The kernel refused a command.
    #[error("ublk: {what}: {error}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl UblkError {
    pub(crate) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> UblkError {
        move |error| UblkError::Refused { what, error }
    }
}

/// The way to the driver.
pub struct Control {
    file: OwnedFd,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
}

impl Control {
    /// Opens it, and sees whether the driver has what a zoned device needs.
    ///
    /// # Errors
    /// [`UblkError`] with what is missing.
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
        // The command is as old as zones are.
        let told = control.exchange(wire::control::GET_FEATURES, u32::MAX, &mut features);
        let is_told = told.is_ok();
        match NEEDED.iter().find(|(needed, _)| !is_told || features & needed == 0) {
            Some((_, what)) => Err(UblkError::Lacks(what)),
            None => Ok(control),
        }
    }

    /// Makes a device as `facts` say, which then say what it is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&mut self, facts: &mut DeviceFacts) -> io::Result<()> {
        self.exchange(wire::control::ADD, facts.device, facts)
    }

    /// What the kernel knows of a device.
    ///
    /// # Errors
    /// The kernel's.
    pub fn facts(&mut self, device: u32) -> io::Result<DeviceFacts> {
        let mut facts = DeviceFacts::default();
        self.exchange(wire::control::GET_FACTS, device, &mut facts)?;
        Ok(facts)
    }

    /// Says what a device is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_parameters(&mut self, device: u32, parameters: &Parameters) -> io::Result<()> {
        self.exchange(wire::control::SET_PARAMETERS, device, &mut { *parameters })
    }

    /// What a device is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn parameters(&mut self, device: u32) -> io::Result<Parameters> {
        let mut parameters = Parameters { len: size_of::<Parameters>() as u32, ..Parameters::default() };
        self.exchange(wire::control::GET_PARAMETERS, device, &mut parameters)?;
        Ok(parameters)
    }

    /// A command without a structure: one of [`wire::control`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn order(&mut self, command: u32, device: u32, data: u64) -> io::Result<()> {
        self.call(command, device, data, 0, 0)
    }

    /// The same by a process of its own, which has nothing of this one but the way to the driver: for commands that wait for requests of the
    /// disk. The kernel ends those once the files and the memory of a server that has ended are gone. A process that is killed while a
    /// command of its own waits keeps both until the command ends: neither would ever.
    ///
    /// # Errors
    /// The kernel's.
    pub fn order_apart(&mut self, command: u32, device: u32, data: u64) -> io::Result<()> {
        let mut kept = [self.file.as_raw_fd(), self.ring.as_raw_fd()];
        kept.sort_unstable();
        // SAFETY: the child makes system calls alone until it ends, and takes no lock and no memory.
        match unsafe { libc::fork() } {
            // There is no process to be had.
            -1 => self.order(command, device, data),
            0 => {
                close_others(kept.map(|descriptor| descriptor as u32));
                let given = self.give(command, device, data, 0, 0);
                // SAFETY: it ends the process, without what this one does at its end.
                unsafe { libc::_exit(given.is_err().into()) }
            }
            child => {
                wait_for(child);
                // Both have the ring, and the child leaves the answer in it.
                if self.ring.completion().is_empty() {
                    // What a child that was killed has left there is not to be given with the next command.
                    self.ring = new_ring()?;
                }
                self.answer()
            }
        }
    }

    /// Removes a device. It is gone once its files are closed, which may be later: a program may have the disk open.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        match self.order_apart(wire::control::DELETE_LATER, device, 0) {
            // A driver that waits for the files.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
                self.order_apart(wire::control::DELETE, device, 0)
            }
            ended => ended,
        }
    }

    /// A command with a structure that the kernel reads or fills.
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
                // The kernel may not be done with it, if the ring has failed.
                std::mem::forget(place);
                Err(error)
            }
        }
    }

    fn call(&mut self, command: u32, device: u32, data: u64, address: u64, len: u16) -> io::Result<()> {
        self.give(command, device, data, address, len)?;
        self.answer()
    }

    /// Gives the driver a command, and waits until there is an answer.
    fn give(&mut self, command: u32, device: u32, data: u64, address: u64, len: u16) -> io::Result<()> {
        let header =
            ControlCommand { device, queue: u16::MAX, len, address, data, path_len: 0, pad: 0, reserved: 0 };
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(header.as_bytes());
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(bytes).build();
        // SAFETY: `address` is of memory that stays until the command has ended, and longer if this fails.
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

    /// The answer to the command that was given.
    fn answer(&mut self) -> io::Result<()> {
        let killed = || io::Error::other("the process that gave a command to the driver was killed");
        match self.ring.completion().next().ok_or_else(killed)?.result() {
            number if number < 0 => Err(io::Error::from_raw_os_error(-number)),
            _ => Ok(()),
        }
    }
}

fn new_ring() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    IoUring::builder().build(4)
}

/// Closes all descriptors but these two, of which the first is the lower one.
fn close_others(kept: [u32; 2]) {
    let before = kept[0].checked_sub(1).map(|last| (0, last));
    let others = [before, Some((kept[0] + 1, kept[1] - 1)), Some((kept[1] + 1, u32::MAX))];
    for (first, last) in others.into_iter().flatten().filter(|(first, last)| first <= last) {
        // SAFETY: of a process that uses no others.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// Waits for a child, whatever becomes of it. Where this process has said that it asks for no child, the kernel tells its end all the same.
fn wait_for(child: i32) {
    if let Some(child) = Pid::from_raw(child) {
        while waitpid(Some(child), WaitOptions::empty()).err() == Some(Errno::INTR) {}
    }
}

/// The numbers of all devices of the driver.
///
/// # Errors
/// The operating system's.
pub fn devices() -> io::Result<Vec<u32>> {
    let names = fs::read_dir("/dev")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<u32> = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok()).collect();
    found.sort_unstable();
    Ok(found)
}

/// Opens the character device of a device, which has one opener at a time.
///
/// # Errors
/// The operating system's: EBUSY if it has one.
pub fn open_character_device(device: u32) -> io::Result<OwnedFd> {
    let path = format!("/dev/ublkc{device}");
    Ok(rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// The disk of a device.
pub fn disk(device: u32) -> String {
    format!("/dev/ublkb{device}")
}
