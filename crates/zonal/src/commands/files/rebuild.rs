//! `zonal fsck --rebuild`.

use super::{OnToWrite, drive_to_write, named, waiters};
use crate::exit::{Exit, Failure, OrExit};
use crate::progress::Watch;
use crate::value;
use clap::Args;
use std::io::Write;
use zonal_fs::make::MakeOptions;
use zonal_fs::rebuild::{Origin, RebuildError, RebuildOptions, Rebuilt, rebuild};
use zonal_fs::scan::Depth;

/// What cannot be known from the zones alone.
const UNKNOWN: &str = "Not known from the zones, and so lost or as it was once:
  names that were changed since a file was last written or copied, and all but one of a file's;
  files that were deleted: they are back if their data was still there;
  files without data, directories without files, symbolic links;
  permissions, owners, times, attributes: files are their owner's only, and dated now;
  sizes that were changed since the last write, and holes made where there was data.";

/// Of use with --rebuild only.
#[derive(Args, Debug)]
pub(super) struct MadeWith {
    /// Although the metadata open and nothing in them is lost
    #[arg(long, short, requires = "rebuild")]
    force: bool,
    /// Where the superblock is gone: the name that the file system had
    #[arg(long, short = 'L', value_name = "NAME", requires = "rebuild")]
    label: Option<String>,
    /// Where the superblock is gone: the largest zone append that it was made with
    #[arg(long, value_name = "SIZE", value_parser = value::size, requires = "rebuild")]
    unit: Option<u64>,
    /// Where the superblock is gone: the zones that its metadata have at first
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
            return writeln!(out, "the superblock was put back from the metadata, which are sound");
        }
        Origin::Units => {
            writeln!(out, "the superblock is made again: what it said of space kept back is lost")?
        }
    }
    let Rebuilt { files, bytes, lost_and_found, units, uncommitted, torn, damaged, .. } = rebuilt;
    let Rebuilt { garbage_blocks, unreadable_blocks, replaced, earlier, .. } = rebuilt;
    writeln!(out, "{files} files of {}, {lost_and_found} of them in lost+found", value::human(*bytes))?;
    writeln!(
        out,
        "{units} units; left out: {torn} torn, {uncommitted} that no commit knew, {earlier} stale, pieces of files that are gone {replaced}"
    )?;
    writeln!(
        out,
        "{damaged} units with damaged data; {garbage_blocks} blocks of garbage, {unreadable_blocks} that cannot be read"
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
