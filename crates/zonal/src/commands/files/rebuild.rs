//! `zonal fsck --rebuild`: makes the metadata again from the zones.

use super::{OnToWrite, drive_to_write, named, waiters};
use crate::exit::{Exit, Failure, OrExit};
use crate::progress::Watch;
use crate::value;
use clap::Args;
use std::io::Write;
use zonal_fs::make::MakeOptions;
use zonal_fs::rebuild::{Origin, RebuildError, RebuildOptions, Rebuilt, rebuild};
use zonal_fs::scan::Depth;

/// Information that the zones do not contain.
const UNKNOWN: &str = "Not recorded in the zones, and therefore lost or outdated:
  names changed since the last write or copy of a file, and all but one of its names;
  deletions: deleted files are back if their data still existed;
  files without data, directories without files, symbolic links;
  permissions, owners, times, attributes: files are accessible to their owner only, and have the current time;
  sizes changed since the last write, and holes punched into data.";

/// Options of --rebuild.
#[derive(Args, Debug)]
pub(super) struct MadeWith {
    /// Rebuild even if the metadata opens and nothing in it is lost
    #[arg(long, short, requires = "rebuild")]
    force: bool,
    /// If the superblock is lost: label of the file system
    #[arg(long, short = 'L', value_name = "NAME", requires = "rebuild")]
    label: Option<String>,
    /// If the superblock is lost: largest zone append that the file system was made with
    #[arg(long, value_name = "SIZE", value_parser = value::size, requires = "rebuild")]
    unit: Option<u64>,
    /// If the superblock is lost: initial number of zones for metadata
    #[arg(long, value_name = "ZONES", requires = "rebuild")]
    log_zones: Option<u32>,
}

impl MadeWith {
    fn options(&self) -> MakeOptions {
        MakeOptions::default()
            .with_label(self.label.clone().unwrap_or_default())
            .with_unit_bytes(self.unit.map(|bytes| bytes.try_into().unwrap_or(u32::MAX)))
            .with_log_zones(self.log_zones)
    }
}

pub(super) fn run(
    OnToWrite { on, write_path }: &OnToWrite,
    made_with: &MadeWith,
    depth: Depth,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let options = RebuildOptions::default()
        .with_beside(on.metadata.clone())
        .with_force(made_with.force)
        .with_depth(depth)
        .with_made_with(made_with.options());
    let drive = drive_to_write(&on.device, write_path)?;
    let watch = Watch::begin("rebuild", drive.volume(), 0);
    let rebuilt = rebuild(&drive, &waiters(), &options);
    drop(watch);
    let rebuilt = rebuilt.map_err(|error| {
        let exit = match error {
            RebuildError::Fs(_) | RebuildError::File { .. } => Exit::Failed,
            _ => Exit::Device,
        };
        Failure { exit, error: named(&on.device, error) }
    })?;
    tell(&rebuilt, json, out).or_exit(Exit::Failed)
}

fn tell(rebuilt: &Rebuilt, json: bool, out: &mut dyn Write) -> std::io::Result<()> {
    if json {
        return writeln!(out, "{}", object(rebuilt));
    }
    match rebuilt.superblock {
        Origin::Drive => {}
        Origin::Metadata => {
            return writeln!(out, "the superblock was restored from the metadata, which is sound");
        }
        Origin::Units => writeln!(out, "a new superblock was made; the amount of reserved space is lost")?,
    }
    let Rebuilt { files, bytes, lost_and_found, units, uncommitted, torn, damaged, .. } = rebuilt;
    let Rebuilt { garbage_blocks, unreadable_blocks, replaced, earlier, .. } = rebuilt;
    writeln!(out, "{files} files of {}, {lost_and_found} of them in lost+found", value::human(*bytes))?;
    writeln!(
        out,
        "{units} units; skipped: {torn} torn, {uncommitted} uncommitted, {earlier} stale, {replaced} pieces of deleted files"
    )?;
    writeln!(
        out,
        "{damaged} units with damaged data; {garbage_blocks} blocks of garbage, {unreadable_blocks} unreadable blocks"
    )?;
    writeln!(out, "{UNKNOWN}")
}

fn object(rebuilt: &Rebuilt) -> serde_json::Value {
    let superblock = match rebuilt.superblock {
        Origin::Drive => "drive",
        Origin::Metadata => "metadata",
        Origin::Units => "units",
    };
    serde_json::json!({
        "rebuilt": {
            "superblock": superblock,
            "files": rebuilt.files,
            "bytes": rebuilt.bytes,
            "lost_and_found": rebuilt.lost_and_found,
            "units": rebuilt.units,
            "torn": rebuilt.torn,
            "uncommitted": rebuilt.uncommitted,
            "earlier": rebuilt.earlier,
            "replaced": rebuilt.replaced,
            "damaged": rebuilt.damaged,
            "garbage_blocks": rebuilt.garbage_blocks,
            "unreadable_blocks": rebuilt.unreadable_blocks,
        }
    })
}
