//! `zonal mkfs`: makes a file system.

use super::{drive_to_write, hinted, named, waiters};
use crate::exit::{Exit, Failure, OrExit};
use crate::value;
use crate::write_path::WritePathAndMode;
use clap::Args;
use rustix::process::{getegid, geteuid};
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::format::{Metadata, Superblock};
use zonal_fs::make::{MakeError, MakeOptions, make, open};
use zonal_fs::superblocks;
use zonal_fs::{BLOCK_BYTES, Changes, MountOptions, ROOT};

/// Make a file system on a drive
///
/// Data goes to the sequential zones. Metadata goes to the conventional zones, or to a log in the
/// first sequential zones if there are none. With --metadata, it goes to a file beside the device,
/// which every later command has to name. The root directory belongs to the caller.
///
/// A device that contains data is refused without --yes.
#[derive(Args, Debug)]
pub(crate) struct Mkfs {
    /// Device name; see `zonal help devices`
    device: String,
    /// Label of the file system
    #[arg(long, short = 'L', value_name = "NAME", default_value = "")]
    label: String,
    /// Create this file for the metadata; if mkfs is killed, remove the file before the next
    /// attempt
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,
    /// Largest zone append, including a header of 4 KiB [default: the device's limit, at most
    /// {unit}]
    #[arg(long, value_name = "SIZE", value_parser = value::size)]
    unit: Option<u64>,
    /// Initial number of zones for metadata, on a drive without conventional zones
    #[arg(long, value_name = "ZONES")]
    log_zones: Option<u32>,
    /// Space that files cannot use, which helps garbage collection on a full device
    #[arg(long, value_name = "SIZE", value_parser = value::size, default_value = "0")]
    reserve: u64,
    /// Write data without checksums
    #[arg(long)]
    no_checksums: bool,
    /// Overwrite data on the device, which is lost
    #[arg(long, aliases = ["force", "fs-overwrite"], short_alias = 'f')]
    yes: bool,
    #[command(flatten)]
    write_path: WritePathAndMode,
}

pub(crate) fn run(arguments: &Mkfs, out: &mut dyn Write) -> Result<(), Failure> {
    let options = MakeOptions::default()
        .with_label(arguments.label.clone())
        .with_unit_bytes(arguments.unit.map(|bytes| bytes.try_into().unwrap_or(u32::MAX)))
        .with_beside(arguments.metadata.clone())
        .with_is_unsummed(arguments.no_checksums)
        .with_reserved_bytes(arguments.reserve)
        .with_log_zones(arguments.log_zones)
        .with_force(arguments.yes);
    let drive = drive_to_write(&arguments.device, &arguments.write_path)?;
    let made = make(&drive, &waiters(), random()?, &options);
    let superblock = made.map_err(|error| match error {
        MakeError::Unfit(_) => Failure { exit: Exit::Usage, error: named(&arguments.device, error) },
        MakeError::InUse { .. } => Failure { exit: Exit::Device, error: hinted(&arguments.device, error) },
        error => Failure { exit: Exit::Failed, error: hinted(&arguments.device, error) },
    })?;
    own_root(arguments, &drive)?;
    let found = superblocks::find(&drive, &*waiters()()).map_err(|error| named(&arguments.device, error))?;
    let taken = superblock.first_zone + found.copy.anchor.zones.len() as u32;
    let zones = drive.volume().info().geometry.zones() - taken;
    Ok(writeln!(out, "{}", describe(&superblock, zones))?)
}

/// Gives the root directory to a caller other than root, so that the same user can write to a
/// mount.
fn own_root(arguments: &Mkfs, drive: &Arc<Drive>) -> Result<(), Failure> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    if uid == 0 {
        return Ok(());
    }
    let own = || -> Result<(), MakeError> {
        let fs = open(drive, &waiters(), arguments.metadata.clone(), MountOptions::default())?;
        let waiter = waiters()();
        let changes = Changes { uid: Some(uid), gid: Some(gid), ..Changes::default() };
        fs.set_attributes(&*waiter, ROOT, &changes)?;
        Ok(fs.sync(&*waiter)?)
    };
    own().map_err(|error| named(&arguments.device, error).into())
}

fn describe(superblock: &Superblock, zones: u32) -> String {
    let uuid: String = superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let metadata = match superblock.metadata {
        Metadata::Conventional => "in conventional zones".to_owned(),
        Metadata::Logged => "in zones of their own".to_owned(),
        Metadata::Beside => "in a file beside the drive".to_owned(),
    };
    let unit = value::human(u64::from(superblock.unit_blocks * BLOCK_BYTES));
    let capacity = value::human(superblock.capacity_sectors * 512);
    format!(
        "file system {uuid}: {zones} zones of {capacity} for data, in appends of {unit}; metadata {metadata}"
    )
}

fn random() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    let mut source = File::open("/dev/urandom").or_exit(Exit::Failed)?;
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}
