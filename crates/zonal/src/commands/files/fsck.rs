//! `zonal fsck`.

use super::{On, drive, named, waiters};
use crate::exit::{Exit, Failure, OrExit};
use clap::Args;
use std::io::Write;
use zonal_fs::MountOptions;
use zonal_fs::fsck::{Finding, Options, Severity, check, repair};
use zonal_fs::make::{open_rows, superblock};

/// Rounds of a repair: what is mended may show what it hid.
const ROUNDS_MAX: u32 = 4;

/// Check a file system that nobody uses, and mend it if asked to
///
/// Prints one finding a line with its severity: `minor`, where an account or a name is off and nothing is lost, or `lost`. Nothing
/// is changed without --repair, which touches metadata only. Exits with 1 if anything wrong is left.
#[derive(Args, Debug)]
pub(crate) struct Fsck {
    #[command(flatten)]
    on: On,
    /// Read and verify all data as well
    #[arg(long)]
    data: bool,
    /// Mend what is found
    #[arg(long)]
    repair: bool,
    /// Print one JSON object a finding
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Fsck, out: &mut dyn Write) -> Result<(), Failure> {
    let Fsck { on, data, repair: is_repaired, json } = arguments;
    let (drive, waiters) = (drive(&on.device)?, waiters());
    let waiter = &*waiters();
    let damaged = |e| named(&on.device, e);
    let superblock = superblock(&drive, waiter).map_err(damaged).or_exit(Exit::Device)?;
    let rows = open_rows(&drive, &waiters, on.metadata.clone(), &superblock, &MountOptions::default());
    let mut rows = rows.map_err(damaged).or_exit(Exit::Device)?;
    let options = Options { data: *data };
    let mut found = check(&rows, &superblock, &drive, waiter, options).map_err(|e| named(&on.device, e))?;
    print(out, &found, *json)?;
    for _ in 0..ROUNDS_MAX {
        if !is_repaired || !found.iter().any(can_be_mended) {
            break;
        }
        repair(&mut rows, &found).map_err(|e| named(&on.device, e))?;
        found = check(&rows, &superblock, &drive, waiter, options).map_err(|e| named(&on.device, e))?;
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

/// Whether a repair changes anything about it.
fn can_be_mended(finding: &Finding) -> bool {
    !matches!(finding, Finding::Data { .. } | Finding::ReadOnlyZone { .. })
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
