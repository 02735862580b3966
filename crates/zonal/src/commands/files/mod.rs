//! Files on a zoned drive without a mount: `mkfs`, `put`, `get`, `cat`, `ls`, `mkdir`, `mv`, `tar`, `rm`, `df`, `fsck`, `dump`.

pub(crate) mod df;
pub(crate) mod dump;
pub(crate) mod fsck;
pub(crate) mod get;
mod get_tree;
mod journey;
mod kept;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
mod pipe;
pub(crate) mod put;
mod put_tree;
mod rebuild;
pub(crate) mod rm;
mod salvage;
pub(crate) mod tar;

use crate::devices;
use crate::exit::{Exit, Failure, OrExit};
use crate::text::shown_word;
use crate::write_path::WritePathAndMode;
use clap::Args;
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::format::{FileKind, SuperblockError};
use zonal_fs::make::{self, MakeError};
use zonal_fs::store::backend::BackendError;
use zonal_fs::waiter::{Polling, Waiters, polling};
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::volume::{Volume, VolumeOptions};

/// Location of a file system.
#[derive(Args, Debug)]
pub(crate) struct On {
    /// Device with the file system; see `zonal help devices`
    device: String,
    /// Metadata file, if the metadata is kept beside the device
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,
}

/// Location of a file system to write to, and options of the write path.
#[derive(Args, Debug)]
pub(crate) struct OnToWrite {
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    write_path: WritePathAndMode,
}

/// Open file system, and its waiter.
pub(crate) struct Opened {
    pub(crate) fs: FileSystem,
    pub(crate) waiter: Polling,
}

/// Function that opens a file system.
type OpenFs = fn(&Arc<Drive>, &Waiters, Option<PathBuf>, MountOptions) -> Result<FileSystem, MakeError>;

impl OnToWrite {
    /// Opens the file system for writing.
    fn open(&self) -> Result<Opened, Failure> {
        self.on.open_with(drive_to_write(&self.on.device, &self.write_path)?, make::open)
    }
}

impl On {
    /// Opens the file system for reading: nothing is written, and others may read it, too.
    fn look(&self) -> Result<Opened, Failure> {
        self.open_with(drive_to_read(&self.device)?, make::look)
    }

    fn open_with(&self, drive: Arc<Drive>, open: OpenFs) -> Result<Opened, Failure> {
        let clock = Clock::start();
        let opened = open(&drive, &polling(clock), self.metadata.clone(), MountOptions::default());
        let fs = opened.map_err(|e| hinted(&self.device, e)).or_exit(Exit::Device)?;
        Ok(Opened { fs, waiter: Polling::new(clock) })
    }
}

/// Options of a volume under a file system, which enforces the drive's limits itself.
fn under_files() -> VolumeOptions {
    VolumeOptions::default().without_budget()
}

/// Opens the device `name` for reading.
pub(crate) fn drive_to_read(name: &str) -> Result<Arc<Drive>, Failure> {
    drive(devices::open_to_read(name)?, under_files())
}

/// Opens the device `name` for writing.
fn drive_to_write(name: &str, write_path: &WritePathAndMode) -> Result<Arc<Drive>, Failure> {
    let options = write_path.options(under_files(), name)?;
    drive(devices::open(name)?, options)
}

fn drive(device: Arc<dyn Device>, options: VolumeOptions) -> Result<Arc<Drive>, Failure> {
    let volume = Volume::open(device, options).or_exit(Exit::Device)?;
    Ok(Arc::new(Drive::new(Arc::new(volume))))
}

/// Error with the name of its subject.
fn named<E: std::error::Error + Send + Sync + 'static>(name: &str, error: E) -> anyhow::Error {
    anyhow::Error::new(error).context(name.to_owned())
}

/// Error of making or opening a file system, with a remedy if there is one.
pub(crate) fn hinted(device: &str, error: MakeError) -> anyhow::Error {
    let remedy = match &error {
        MakeError::InUse { .. } => " (--yes)".to_owned(),
        MakeError::NeedsFile => " (--metadata)".to_owned(),
        // Nothing tells another key from an empty drive.
        MakeError::Superblock(SuperblockError::Magic) if device.contains("crypt:") => {
            format!(
                ", or it was made with another key; `zonal mkfs {device}` makes one if the drive is empty"
            )
        }
        MakeError::Superblock(SuperblockError::Magic) => {
            format!("; `zonal mkfs {device}` makes one, `zonal fsck {device} --rebuild` restores a lost one")
        }
        MakeError::Backend(BackendError::Exists { .. }) => "; remove it, or name another file".to_owned(),
        MakeError::DamagedSuperblock { .. } | MakeError::Backend(BackendError::Damaged { .. }) => {
            format!("; `zonal fsck {device} --rebuild` makes the metadata again from the zones")
        }
        _ => return named(device, error),
    };
    anyhow::anyhow!("{device}: {error}{remedy}")
}

/// Failure of an operation on a path.
fn failed(path: &OsStr, error: FsError) -> Failure {
    let exit = match &error {
        FsError::Checksum { .. } | FsError::Unit { .. } | FsError::Gone { .. } => Exit::Verify,
        _ => Exit::Failed,
    };
    Failure { exit, error: named(&shown_word(path), error) }
}

/// Names in a path from the root, without `.` and empty ones.
fn names(path: &OsStr) -> Result<Vec<&[u8]>, Failure> {
    let names = path.as_bytes().split(|byte| *byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty() && *name != b".").collect();
    if names.contains(&&b".."[..]) {
        let path = shown_word(path);
        return Err(Failure::usage(format!("{path}: paths start at the root and cannot contain `..`")));
    }
    Ok(names)
}

/// New file that belongs to the caller.
fn own(kind: FileKind, mode: u16) -> NewFile {
    NewFile { uid: geteuid().as_raw(), gid: getegid().as_raw(), ..NewFile::new(kind, mode) }
}

/// Waiters for a file system in real time.
pub(crate) fn waiters() -> Waiters {
    polling(Clock::start())
}
