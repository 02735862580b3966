//! `zonal fsck`: checks and repairs a file system.

use super::rebuild::MadeWith;
use super::{OnToWrite, drive_to_read, drive_to_write, hinted, named, rebuild, waiters};
use crate::devices::for_each_zone;
use crate::exit::{Exit, Failure, OrExit};
use crate::progress::Watch;
use crate::text::{harmless, shown, shown_word};
use clap::Args;
use rustix::io::Errno;
use std::io::Write;
use std::sync::Arc;
use zonal_core::{DeviceError, RequestError, ZoneIndex};
use zonal_fs::drive::Drive;
use zonal_fs::format::{Superblock, SuperblockError};
use zonal_fs::fsck::{
    Finding, Options, Severity, check, damaged_copies, path, renew_copies, repair, salvage,
};
use zonal_fs::make::{Access, Beside, MakeError, open_rows, superblock};
use zonal_fs::scan::Depth;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::BackendError;
use zonal_fs::waiter::Waiters;
use zonal_fs::{FsError, MountOptions, OpenError};

/// Maximum number of rounds of a repair, because a repair may reveal more findings.
const ROUNDS_MAX: u32 = 4;

/// Check a file system that is not in use, and with --repair repair it
///
/// Prints one finding per line, with the path of the file and a severity: `minor` if an account or
/// a name is wrong and nothing is lost, or `lost`. The exit code is 1 if findings are left.
///
/// Nothing is changed without --repair. --repair changes metadata only, and prints the findings
/// that are left. Lost data stays lost: reading it fails until it is written again or the file is
/// removed.
///
/// If pages of the metadata are lost, --repair reads all others, reports the contents of the lost
/// ones as far as the others tell, and writes the metadata again in one step. Readable files stay
/// as they are. A file of which only the name is left keeps its data and belongs to root; reading
/// beyond the data fails. Names that exist nowhere else are lost, and their files are in
/// lost+found.
///
/// --rebuild makes metadata again that is lost or damaged beyond repair, from the zones alone, and
/// then checks it. It reports what it found, and what the zones do not record. Data is never
/// changed. If the metadata opens and nothing in it is lost, only --force replaces it. An
/// interrupted rebuild can be repeated.
#[derive(Args, Debug)]
pub(crate) struct Fsck {
    #[command(flatten)]
    on: OnToWrite,
    /// Also read and verify all data
    #[arg(long)]
    data: bool,
    /// Repair the findings
    #[arg(long, conflicts_with = "rebuild")]
    repair: bool,
    /// Make the metadata again from the zones; with --data, also verify every block
    #[arg(long)]
    rebuild: bool,
    #[command(flatten)]
    made_with: MadeWith,
    /// Print one JSON object per finding
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Fsck, out: &mut dyn Write) -> Result<(), Failure> {
    let Fsck { on: to_write, data, repair: is_repaired, json, made_with, rebuild: is_rebuilt } = arguments;
    let on = &to_write.on;
    if *is_rebuilt {
        let depth = if *data { Depth::Data } else { Depth::Headers };
        rebuild::run(to_write, made_with, depth, *json, out)?;
    }
    let drive = match is_repaired {
        true => drive_to_write(&on.device, &to_write.write_path)?,
        false => drive_to_read(&on.device)?,
    };
    let waiters = waiters();
    if *is_repaired && drive.volume().info().read_only {
        let error = anyhow::anyhow!("{}: the device may only be read, so nothing can be repaired", on.device);
        return Err(error).or_exit(Exit::Device);
    }
    let damaged = |e| with_hint(&on.device, e);
    let superblock = superblock(&drive, &*waiters()).map_err(damaged).or_exit(Exit::Device)?;
    let job = Job { arguments, drive, waiters, superblock };
    let left = match job.open(Access::Verify) {
        Ok(rows) => job.check(rows, out)?,
        // Pages are lost, but not the structures that lead to them.
        Err(MakeError::Fs(error)) => job.salvage(&error, out)?,
        Err(error) => return Err(job.hinted(error)),
    };
    if left.is_empty() {
        let depth = if *data { "all data was read" } else { "metadata and zones agree" };
        if !json {
            writeln!(out, "{}: clean; {depth}", shown_word(on.device.as_ref()))?;
        }
        return Ok(());
    }
    out.flush()?;
    let lost = left.iter().filter(|severity| **severity == Severity::Lost).count();
    let minor = left.len() - lost;
    Err(anyhow::anyhow!("{}: unrepaired: {lost} lost, {minor} minor", on.device).into())
}

/// File system that is checked.
struct Job<'a> {
    arguments: &'a Fsck,
    drive: Arc<Drive>,
    waiters: Waiters,
    superblock: Superblock,
}

impl Job<'_> {
    fn device(&self) -> &str {
        &self.arguments.on.on.device
    }

    fn open(&self, access: Access<'_>) -> Result<Rows, MakeError> {
        let Job { arguments, drive, waiters, superblock } = self;
        open_rows(drive, waiters, arguments.on.on.metadata.clone(), superblock, access)
    }

    fn hinted(&self, error: MakeError) -> Failure {
        Failure { exit: Exit::Device, error: with_hint(self.device(), error) }
    }

    fn look(&self, rows: &Rows) -> Result<Vec<Finding>, Failure> {
        let options = Options::default().with_data(self.arguments.data);
        // With --data, all units are read; otherwise an unknown part of the headers.
        let total = if self.arguments.data { self.written_bytes() } else { 0 };
        let _watch = Watch::begin("fsck", self.drive.volume(), total);
        let found = check(rows, &self.superblock, &self.drive, &*(self.waiters)(), options);
        Ok(found.map_err(|e| named(self.device(), e))?)
    }

    /// Bytes in the zones for data, or 0 if the drive does not report them.
    fn written_bytes(&self) -> u64 {
        let device = self.drive.volume().device();
        let first = device.info().geometry.start_of(ZoneIndex(self.superblock.first_zone));
        let mut sum = 0;
        let counted = for_each_zone(&**device, first, u32::MAX, |zone| {
            sum += zone.write_pointer.map_or(zone.capacity.bytes(), |pointer| (pointer - zone.start).bytes());
            Ok(())
        });
        counted.map_or(0, |()| sum)
    }

    /// Checks readable rows, and repairs them on request. Returns the severities of the findings
    /// that are left.
    fn check(&self, rows: Rows, out: &mut dyn Write) -> Result<Vec<Severity>, Failure> {
        let mut found = self.look(&rows)?;
        let copies = self.damaged_copies()?;
        self.print(out, &rows, &copies, FindingStage::Found)?;
        self.print(out, &rows, &found, FindingStage::Found)?;
        drop(rows);
        if !self.arguments.repair {
            return Ok(copies.iter().chain(&found).map(Finding::severity).collect());
        }
        if found.iter().any(Finding::is_repairable) {
            let mounted = MountOptions::default();
            let mut rows = self.open(Access::Use(&mounted)).map_err(|error| self.hinted(error))?;
            found = self.mend(&mut rows, found)?;
            self.print(out, &rows, &found, FindingStage::Left)?;
        }
        self.renew(&copies)?;
        Ok(found.iter().map(Finding::severity).collect())
    }

    fn damaged_copies(&self) -> Result<Vec<Finding>, Failure> {
        damaged_copies(&self.drive, &*(self.waiters)()).map_err(|error| self.hinted(error))
    }

    fn beside(&self) -> Option<Beside> {
        self.arguments.on.on.metadata.clone().map(Beside::Path)
    }

    /// Writes the superblock again if some of its copies are damaged.
    fn renew(&self, copies: &[Finding]) -> Result<(), Failure> {
        if copies.is_empty() {
            return Ok(());
        }
        renew_copies(&self.drive, &self.waiters, self.beside()).map_err(|error| self.hinted(error))
    }

    /// Like `check`, for a store with lost pages: it is replaced by the rows of the other pages.
    fn salvage(&self, error: &FsError, out: &mut dyn Write) -> Result<Vec<Severity>, Failure> {
        let Job { arguments, drive, waiters, .. } = self;
        let salvaged = salvage(drive, waiters, self.beside()).map_err(|error| self.hinted(error))?;
        if !arguments.repair {
            let device = self.device();
            let error = anyhow::anyhow!("{device}: {error}; --repair keeps all readable metadata");
            return Err(Failure { exit: Exit::Device, error });
        }
        let mut rows = salvaged.rows().map_err(|error| self.hinted(error))?;
        let copies = self.damaged_copies()?;
        self.print(out, &rows, &copies, FindingStage::Found)?;
        let damage =
            format!("{error}; everything not listed here was read or restored, and is written again");
        self.print_line(out, Severity::Minor, &damage, None, FindingStage::Found)?;
        for loss in &salvaged.losses {
            let path = loss.file().and_then(|ino| path(&rows, ino));
            self.print_line(out, Severity::Lost, &loss.to_string(), path, FindingStage::Found)?;
        }
        // A file whose lost blocks were just reported is not reported again.
        let is_news = |finding: &Finding| match finding {
            Finding::Gone { ino, .. } => !salvaged.losses.iter().any(|loss| loss.file() == Some(*ino)),
            _ => true,
        };
        let found = self.look(&rows)?;
        let news: Vec<Finding> = found.iter().filter(|finding| is_news(finding)).cloned().collect();
        self.print(out, &rows, &news, FindingStage::Found)?;
        let mut left = self.mend(&mut rows, found)?;
        left.retain(is_news);
        self.print(out, &rows, &left, FindingStage::Left)?;
        drop(rows);
        salvaged.put_back(drive, waiters, self.beside()).map_err(|error| self.hinted(error))?;
        self.renew(&copies)?;
        let losses = salvaged.losses.iter().map(|_| Severity::Lost);
        Ok(losses.chain(left.iter().map(Finding::severity)).collect())
    }

    /// Repairs the findings and those that appear then. Returns the findings that are left.
    fn mend(&self, rows: &mut Rows, mut found: Vec<Finding>) -> Result<Vec<Finding>, Failure> {
        for _ in 0..ROUNDS_MAX {
            if !found.iter().any(Finding::is_repairable) {
                break;
            }
            repair(rows, &found).map_err(|e| named(self.device(), e))?;
            found = self.look(rows)?;
        }
        Ok(found)
    }

    fn print(
        &self,
        out: &mut dyn Write,
        rows: &Rows,
        findings: &[Finding],
        stage: FindingStage,
    ) -> Result<(), Failure> {
        if let (FindingStage::Left, false, false) = (stage, self.arguments.json, findings.is_empty()) {
            writeln!(out, "left after the repair:")?;
        }
        for finding in findings {
            let path = finding.file().and_then(|ino| path(rows, ino));
            self.print_line(out, finding.severity(), &finding.to_string(), path, stage)?;
        }
        Ok(())
    }

    fn print_line(
        &self,
        out: &mut dyn Write,
        severity: Severity,
        what: &str,
        path: Option<Vec<u8>>,
        stage: FindingStage,
    ) -> Result<(), Failure> {
        let severity = match severity {
            Severity::Minor => "minor",
            Severity::Lost => "lost",
        };
        if self.arguments.json {
            let path = path.map(|path| String::from_utf8_lossy(&path).into_owned());
            let line = serde_json::json!({ "severity": severity, "what": what, "path": path, "stage": stage.name() });
            writeln!(out, "{line}")?;
        } else {
            let path = path.map_or(String::new(), |path| format!(" ({})", shown(&path)));
            writeln!(out, "{severity:<5} {}{path}", harmless(what))?;
        }
        Ok(())
    }
}

/// Error of opening the metadata, with a remedy.
fn with_hint(device: &str, error: MakeError) -> anyhow::Error {
    match error {
        MakeError::NeedsFile => hinted(device, error),
        MakeError::Superblock(SuperblockError::Version(_)) => named(device, error),
        refused if is_refusal(&refused) => named(device, refused),
        unread if unread.passing().is_some() => anyhow::anyhow!(
            "{device}: {unread}; if this persists, use --rebuild --force to make the metadata again from the zones"
        ),
        MakeError::Superblock(SuperblockError::Magic) => {
            anyhow::anyhow!(
                "{device}: {error}; if there was one, use --rebuild to make it again from the zones"
            )
        }
        MakeError::Superblock(_) | MakeError::DamagedSuperblock { .. } => {
            anyhow::anyhow!("{device}: {error}; use --rebuild to make it again from the zones")
        }
        lost => anyhow::anyhow!("{device}: {lost}; use --rebuild to make the metadata again from the zones"),
    }
}

/// True if the metadata may be sound, but cannot be accessed: in use, of another drive, or not
/// writable.
fn is_refusal(error: &MakeError) -> bool {
    match error {
        MakeError::Open(OpenError::OtherDrive { .. } | OpenError::Limits(_)) => true,
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

/// True if a device refused a request for reasons other than its contents.
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

/// Stage at which a finding was made.
#[derive(Clone, Copy)]
enum FindingStage {
    Found,
    /// After a repair.
    Left,
}

impl FindingStage {
    fn name(self) -> &'static str {
        match self {
            FindingStage::Found => "found",
            FindingStage::Left => "left",
        }
    }
}
