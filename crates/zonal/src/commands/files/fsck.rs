//! `zonal fsck`.

use super::rebuild::MadeWith;
use super::{On, drive, named, rebuild, waiters};
use crate::exit::{Exit, Failure, OrExit};
use clap::Args;
use std::io::Write;
use zonal_fs::fsck::{Finding, Options, Severity, check, repair};
use zonal_fs::make::{Access, MakeError, open_rows, superblock};
use zonal_fs::scan::Depth;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::BackendError;
use zonal_fs::{MountOptions, OpenError};

/// Rounds of a repair: what is mended may show what it hid.
const ROUNDS_MAX: u32 = 4;

/// Check a file system that nobody uses, and mend it if asked to
///
/// Prints one finding a line with its severity: `minor`, where an account or a name is off and nothing is lost, or `lost`. Nothing
/// is changed without --repair, which touches metadata only. Exits with 1 if anything wrong is left.
///
/// With --rebuild metadata that are lost or damaged beyond repair are put together from the zones alone, and then checked. It says
/// what it found, and what cannot be known. Data is never touched; where the metadata open and nothing in them is lost, only
/// --force replaces them. If it is interrupted, it can be done again.
#[derive(Args, Debug)]
pub(crate) struct Fsck {
    #[command(flatten)]
    on: On,
    /// Read and verify all data as well
    #[arg(long)]
    data: bool,
    /// Mend what is found
    #[arg(long, conflicts_with = "rebuild")]
    repair: bool,
    /// Put the metadata together from the zones; with --data every block is verified meanwhile
    #[arg(long)]
    rebuild: bool,
    #[command(flatten)]
    made_with: MadeWith,
    /// Print one JSON object a finding
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Fsck, out: &mut dyn Write) -> Result<(), Failure> {
    let Fsck { on, data, repair: is_repaired, json, made_with, rebuild: is_rebuilt } = arguments;
    if *is_rebuilt {
        let depth = if *data { Depth::Data } else { Depth::Headers };
        rebuild::run(on, made_with, depth, *json, out)?;
    }
    let (drive, waiters) = (drive(&on.device)?, waiters());
    let waiter = &*waiters();
    let damaged = |e| named(&on.device, e);
    let superblock = superblock(&drive, waiter).map_err(damaged).or_exit(Exit::Device)?;
    let reach = |access| {
        let rows = open_rows(&drive, &waiters, on.metadata.clone(), &superblock, access);
        rows.map_err(|error| with_hint(&on.device, error)).or_exit(Exit::Device)
    };
    let options = Options { data: *data };
    let look =
        |rows: &Rows| check(rows, &superblock, &drive, waiter, options).map_err(|e| named(&on.device, e));
    let rows = reach(Access::Verify)?;
    let mut found = look(&rows)?;
    print(out, &found, *json)?;
    drop(rows);
    if *is_repaired && found.iter().any(Finding::can_be_mended) {
        let mounted = MountOptions::default();
        let mut rows = reach(Access::Use(&mounted))?;
        for _ in 0..ROUNDS_MAX {
            repair(&mut rows, &found).map_err(|e| named(&on.device, e))?;
            found = look(&rows)?;
            if !found.iter().any(Finding::can_be_mended) {
                break;
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    out.flush()?;
    let lost = found.iter().filter(|f| f.severity() == Severity::Lost).count();
    let minor = found.len() - lost;
    Err(anyhow::anyhow!("{}: {lost} findings of something lost and {minor} minor ones are left", on.device)
        .into())
}

/// What keeps metadata from being opened, with what can be done about it.
fn with_hint(device: &str, error: MakeError) -> anyhow::Error {
    match error {
        MakeError::NeedsFile
        | MakeError::Open(OpenError::OtherDrive { .. })
        | MakeError::Backend(BackendError::InUse { .. } | BackendError::File { .. }) => named(device, error),
        lost => anyhow::anyhow!("{device}: {lost}; --rebuild puts them together from the zones"),
    }
}

fn print(out: &mut dyn Write, findings: &[Finding], json: bool) -> Result<(), Failure> {
    for finding in findings {
        let severity = match finding.severity() {
            Severity::Minor => "minor",
            Severity::Lost => "lost",
        };
        match json {
            true => {
                writeln!(out, "{}", serde_json::json!({ "severity": severity, "what": finding.to_string() }))?
            }
            false => writeln!(out, "{severity:<5} {finding}")?,
        }
    }
    Ok(())
}
