//! `zonal fsck`.

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

/// Rounds of a repair: what is mended may show what it hid.
const ROUNDS_MAX: u32 = 4;

/// Check a file system that is not in use, and with --repair repair it
///
/// Prints one finding a line with its severity: `minor`, where an account or a name is off and nothing is lost, or `lost`, and the
/// path of the file that it is about. Nothing is changed without --repair, which touches metadata only, and prints what is left
/// after it: what is lost stays lost, and reading it is an error until it is written again or the file is removed. Exits with 1 if
/// anything wrong is left.
///
/// Where pages of the metadata are lost, --repair reads all others, says what was in the lost ones as far as the others tell, and
/// writes the metadata again in one step. Files that could be read stay as they are. A file of which only the name is left
/// belongs to root afterwards and has its data; a read beyond them is an error. Names that are nowhere else are gone, and their
/// files are in lost+found.
///
/// With --rebuild metadata that are lost or damaged beyond repair are put together from the zones alone, and then checked. It says
/// what it found, and what cannot be known. Data is never touched; where the metadata open and nothing in them is lost, only
/// --force replaces them. If it is interrupted, it can be done again.
#[derive(Args, Debug)]
pub(crate) struct Fsck {
    #[command(flatten)]
    on: OnToWrite,
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
        let error = anyhow::anyhow!("{}: it may only be read, and nothing can be mended", on.device);
        return Err(error).or_exit(Exit::Device);
    }
    let damaged = |e| with_hint(&on.device, e);
    let superblock = superblock(&drive, &*waiters()).map_err(damaged).or_exit(Exit::Device)?;
    let job = Job { arguments, drive, waiters, superblock };
    let left = match job.open(Access::Verify) {
        Ok(rows) => job.check(rows, out)?,
        // Pages are lost, and what leads to them is not.
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
    Err(anyhow::anyhow!("{}: findings that are left: {lost} of something lost, {minor} minor", on.device)
        .into())
}

/// A file system that is checked.
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
        // With data all units are read; without, an unknown part of the headers.
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

    /// Looks at rows that can all be read, and mends them if that is asked for; how bad what is left is.
    fn check(&self, rows: Rows, out: &mut dyn Write) -> Result<Vec<Severity>, Failure> {
        let mut found = self.look(&rows)?;
        let copies = self.damaged_copies()?;
        self.print(out, &rows, &copies, FindingStage::Found)?;
        self.print(out, &rows, &found, FindingStage::Found)?;
        drop(rows);
        if !self.arguments.repair {
            return Ok(copies.iter().chain(&found).map(Finding::severity).collect());
        }
        if found.iter().any(Finding::can_be_mended) {
            let mounted = MountOptions::default();
            let mut rows = self.open(Access::Use(&mounted)).map_err(|error| self.hinted(error))?;
            rows.let_go();
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

    /// Writes the superblock again, if some of these copies are damaged.
    fn renew(&self, copies: &[Finding]) -> Result<(), Failure> {
        if copies.is_empty() {
            return Ok(());
        }
        renew_copies(&self.drive, &self.waiters, self.beside()).map_err(|error| self.hinted(error))
    }

    /// The same, of rows in lost pages: what is in the others takes their place.
    fn salvage(&self, error: &FsError, out: &mut dyn Write) -> Result<Vec<Severity>, Failure> {
        let Job { arguments, drive, waiters, .. } = self;
        let salvaged = salvage(drive, waiters, self.beside()).map_err(|error| self.hinted(error))?;
        if !arguments.repair {
            let device = self.device();
            let error = anyhow::anyhow!("{device}: {error}; --repair keeps all metadata that can be read");
            return Err(Failure { exit: Exit::Device, error });
        }
        let mut rows = salvaged.rows().map_err(|error| self.hinted(error))?;
        let copies = self.damaged_copies()?;
        self.print(out, &rows, &copies, FindingStage::Found)?;
        let damage =
            format!("{error}; all that is not named here was read or put back, and is written again");
        self.print_line(out, Severity::Minor, &damage, None, FindingStage::Found)?;
        for loss in &salvaged.losses {
            let path = loss.file().and_then(|ino| path(&rows, ino));
            self.print_line(out, Severity::Lost, &loss.to_string(), path, FindingStage::Found)?;
        }
        // A file whose blocks were just named as lost is not named again.
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

    /// Mends what is found, and what shows then; what is left.
    fn mend(&self, rows: &mut Rows, mut found: Vec<Finding>) -> Result<Vec<Finding>, Failure> {
        for _ in 0..ROUNDS_MAX {
            if !found.iter().any(Finding::can_be_mended) {
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

/// What keeps metadata from being opened, with what can be done about it.
fn with_hint(device: &str, error: MakeError) -> anyhow::Error {
    match error {
        MakeError::NeedsFile => hinted(device, error),
        MakeError::Superblock(SuperblockError::Version(_)) => named(device, error),
        refused if is_refusal(&refused) => named(device, refused),
        unread if unread.passing().is_some() => anyhow::anyhow!(
            "{device}: {unread}; if that stays so, --rebuild --force puts the metadata together from the zones"
        ),
        MakeError::Superblock(SuperblockError::Magic) => {
            anyhow::anyhow!("{device}: {error}; if there was one, --rebuild puts it together from the zones")
        }
        MakeError::Superblock(_) | MakeError::DamagedSuperblock { .. } => {
            anyhow::anyhow!("{device}: {error}; --rebuild puts it together from the zones")
        }
        lost => anyhow::anyhow!("{device}: {lost}; --rebuild puts them together from the zones"),
    }
}

/// Whether the metadata may be sound, and the way to them is not open: they are in use, of another drive, or cannot be written.
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
