//! `zonal fsck`.

use super::rebuild::MadeWith;
use super::{On, drive, hinted, named, rebuild, waiters};
use crate::exit::{Exit, Failure, OrExit};
use crate::text::{harmless, shown};
use clap::Args;
use rustix::io::Errno;
use std::io::Write;
use zonal_core::{DeviceError, RequestError};
use zonal_fs::fsck::{Finding, Options, Severity, check, path, repair};
use zonal_fs::make::{Access, MakeError, open_rows, superblock};
use zonal_fs::scan::Depth;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::BackendError;
use zonal_fs::{MountOptions, OpenError};
use zonal_io::device::OpenMode;

/// Rounds of a repair: what is mended may show what it hid.
const ROUNDS_MAX: u32 = 4;

/// Check a file system that nobody uses, and mend it if asked to
///
/// Prints one finding a line with its severity: `minor`, where an account or a name is off and nothing is lost, or `lost`, and the
/// path of the file that it is about. Nothing is changed without --repair, which touches metadata only, and prints what is left
/// after it: what is lost stays lost, and reading it is an error until it is written anew or the file is removed. Exits with 1 if
/// anything wrong is left.
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
    let mode = if *is_repaired { OpenMode::Writing } else { OpenMode::Reading };
    let (drive, waiters) = (drive(&on.device, mode)?, waiters());
    if *is_repaired && drive.volume().info().read_only {
        let error = anyhow::anyhow!("{}: it may only be read, and nothing can be mended", on.device);
        return Err(error).or_exit(Exit::Device);
    }
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
    print(out, &rows, &found, (Stage::Found, *json))?;
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
        print(out, &rows, &found, (Stage::Left, *json))?;
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
        MakeError::NeedsFile => hinted(device, error),
        refused if is_refusal(&refused) => named(device, refused),
        lost => anyhow::anyhow!("{device}: {lost}; --rebuild puts them together from the zones"),
    }
}

/// Whether the metadata may be sound, and the way to them is not open: they are in use, of another drive, or cannot be written.
fn is_refusal(error: &MakeError) -> bool {
    match error {
        MakeError::Open(OpenError::OtherDrive { .. }) => true,
        MakeError::Drive(error) | MakeError::Backend(BackendError::Request { error, .. }) => {
            cannot_write(error)
        }
        MakeError::Backend(error) => matches!(
            error,
            BackendError::InUse { .. }
                | BackendError::Claimed
                | BackendError::File { .. }
                | BackendError::Full { .. }
                | BackendError::Unfit(_)
                | BackendError::UnfitZone { .. }
        ),
        _ => false,
    }
}

/// Whether a device refused a request because of where it is, and not because of what it holds.
fn cannot_write(error: &RequestError) -> bool {
    let RequestError::Device(error) = error else { return false };
    match error {
        DeviceError::OpenedForReading => true,
        DeviceError::Os(number) => {
            let refused = [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::NOSPC, Errno::DQUOT];
            refused.iter().any(|errno| errno.raw_os_error() == *number)
        }
        _ => false,
    }
}

/// When a finding was made.
#[derive(Clone, Copy)]
enum Stage {
    Found,
    /// After a repair.
    Left,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Found => "found",
            Stage::Left => "left",
        }
    }
}

fn print(
    out: &mut dyn Write,
    rows: &Rows,
    findings: &[Finding],
    (stage, json): (Stage, bool),
) -> Result<(), Failure> {
    if let (Stage::Left, false, false) = (stage, json, findings.is_empty()) {
        writeln!(out, "left after the repair:")?;
    }
    for finding in findings {
        let severity = match finding.severity() {
            Severity::Minor => "minor",
            Severity::Lost => "lost",
        };
        let path = finding.file().and_then(|ino| path(rows, ino));
        if json {
            let (what, stage) = (finding.to_string(), stage.name());
            let path = path.map(|path| String::from_utf8_lossy(&path).into_owned());
            writeln!(
                out,
                "{}",
                serde_json::json!({ "severity": severity, "what": what, "path": path, "stage": stage })
            )?;
            continue;
        }
        let path = path.map_or(String::new(), |path| format!(" ({})", shown(&path)));
        writeln!(out, "{severity:<5} {}{path}", harmless(&finding.to_string()))?;
    }
    Ok(())
}
