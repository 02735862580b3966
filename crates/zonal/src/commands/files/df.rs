//! `zonal df`: space and files of a file system.

use super::drive_to_read;
use crate::commands::files::waiters;
use crate::commands::plugs::mount_of;
use crate::exit::{Exit, Failure, OrExit};
use crate::text::shown_word;
use crate::value::{human, rounded};
use anyhow::Context;
use clap::Args;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use zonal_fs::{MountOptions, Status, make};
use zonal_io::control::{self, Endpoint};

/// Show the space and the number of files of a file system
///
/// Sizes are those of file data, without metadata.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Df {
    /// Device with the file system, or directory of a `zonal mount`
    device: OsString,
    /// Print sizes as 4.0K, 1.5M or 2.0G, in powers of 1024
    #[arg(long, short = 'h', conflicts_with = "json")]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
    /// Metadata file, if the metadata is kept beside the device
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Space and number of files.
struct Room {
    size: u64,
    used: u64,
    free: u64,
    /// Files of all kinds.
    files: u64,
}

pub(crate) fn run(arguments: &Df, out: &mut dyn Write) -> Result<(), Failure> {
    let Df { device, human_readable, metadata, json, help: _ } = arguments;
    let room = match mount_of(Path::new(device)) {
        Ok((dir, endpoint)) => of_mount(&dir, &endpoint).with_context(|| shown_word(device))?,
        Err(error) if Path::new(device).is_dir() => return Err(error),
        Err(_) => of_device(device, metadata.clone())?,
    };
    let Room { size, used, free, files } = room;
    if *json {
        let object = serde_json::json!({ "size": size, "used": used, "free": free, "files": files });
        return Ok(writeln!(out, "{object}")?);
    }
    let percent = used.saturating_mul(100).div_ceil(size.max(1));
    let [size, used, free] = [size, used, free].map(if *human_readable { rounded } else { human });
    Ok(writeln!(
        out,
        "{}: {used} used ({percent}%), {free} free, of {size}; {files} files",
        shown_word(device)
    )?)
}

impl Room {
    fn new(status: &Status, files: u64) -> Room {
        Room { size: status.size, used: status.used, free: status.free, files }
    }
}

/// Reads the space of a file system that a process has mounted.
fn of_mount(dir: &Path, endpoint: &Endpoint) -> anyhow::Result<Room> {
    let told = control::files(&endpoint.path)?.context("its process has no file system")?;
    let files = rustix::fs::statvfs(dir)?;
    Ok(Room::new(&serde_json::from_value(told)?, files.f_files - files.f_ffree))
}

/// Reads the space of a file system that no process has open.
fn of_device(device: &OsString, metadata: Option<PathBuf>) -> Result<Room, Failure> {
    let name = device.to_str().with_context(|| shown_word(device)).or_exit(Exit::Device)?;
    let drive = drive_to_read(name)?;
    let fs = make::look(&drive, &waiters(), metadata, MountOptions::default());
    let fs = fs.with_context(|| shown_word(device)).or_exit(Exit::Device)?;
    let files = fs.files().with_context(|| shown_word(device))?;
    Ok(Room::new(&fs.status(), files.used))
}
