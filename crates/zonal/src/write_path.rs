//! The options of the write path on the command line: the same for every command that writes through a volume.

use crate::exit::Failure;
use crate::kept::Kept;
use crate::text::shown_word;
use anyhow::{Context, anyhow};
use clap::Args;
use rustix::fs::{Access, access};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use zonal_io::volume::{
    FLIGHT_RECORDS_MAX, OptionChanges, OptionKey, SetBy, Volume, VolumeOptions, WriteMode,
};

/// Heading of these options, which marks them: they have a topic, `zonal help write-path`.
pub(crate) const HEADING: &str = "Write path";

/// Value of `--park` without one.
static PARK: LazyLock<String> = LazyLock::new(|| VolumeOptions::default().text(OptionKey::Park));

/// Every option but the write mode, of which `bench` takes several.
#[derive(Args, Debug, Default)]
pub(crate) struct WritePath {
    /// Run mode pipelined also on a device that does not promise to keep the order of writes
    #[arg(help_heading = HEADING, long)]
    force_mode: bool,
    /// Do not let waiting contiguous writes share commands
    #[arg(help_heading = HEADING, long)]
    no_merge: bool,
    /// Keep the drive's limits of open and active zones: wait, close, finish or fail; or none [default: none]
    ///
    /// A write whose zone finds no slot free waits until a zone is filled, reset, finished or closed (wait); or the zone
    /// not used for longest is closed (close), or finished if it is nearly full (finish); or it fails at once (fail). A
    /// wait that nothing under way can end for the time of grace, by default {grace}, fails and names the zones in the way.
    /// With none the drive alone keeps its limits. Not in mode direct. Jobs with zonemode=zbd and file systems keep below
    /// the limits themselves; jobs meet the budget with ignore_zone_limits=1 only.
    #[arg(help_heading = HEADING, long, value_name = "POLICY[,grace=TIME]", value_parser = checked(OptionKey::Budget))]
    budget: Option<String>,
    /// Let writes that come before their predecessors wait for them; or none [default: none; with files {park}]
    ///
    /// At most BYTES a zone, until TIME after the zone last moved; without a value {park}. With none they fail. Not in the
    /// modes direct and zone-lock.
    #[arg(help_heading = HEADING, long, value_name = "BYTES,TIME", num_args = 0..=1, default_missing_value = PARK.as_str(), require_equals = true, value_parser = checked(OptionKey::Park))]
    park: Option<String>,
    /// In mode qd1, what a zone may write while writes of other zones wait [default: {qd1-quantum}]
    ///
    /// Until one of the two is reached; 0 of either: that has no bound. 0 alone: a zone is drained before the next one.
    #[arg(help_heading = HEADING, long, value_name = "BYTES,TIME", value_parser = checked(OptionKey::Qd1Quantum))]
    qd1_quantum: Option<String>,
    /// In mode pipelined, writes of a zone that are at the device at once at most, 1 to 255 [default: {window}]
    #[arg(help_heading = HEADING, long, value_name = "N", value_parser = checked(OptionKey::Window))]
    window: Option<String>,
    /// In mode zone-lock, requests that the scheduler has at most; others wait before it [default: {nr-requests}]
    #[arg(help_heading = HEADING, long, value_name = "N", value_parser = checked(OptionKey::NrRequests))]
    nr_requests: Option<String>,
    /// Take none of the options that `zonal mode --keep` has kept for the device
    #[arg(help_heading = HEADING, long)]
    no_kept: bool,
}

/// All options.
#[derive(Args, Debug, Default)]
pub(crate) struct WritePathAndMode {
    /// Write mode [default: what suits the device]; see `zonal help modes`
    #[arg(help_heading = HEADING, long, value_name = "MODE")]
    write_mode: Option<WriteMode>,
    #[command(flatten)]
    rest: WritePath,
}

/// Flight records, of commands that run for long.
#[derive(Args, Debug, Default)]
pub(crate) struct Record {
    /// Write a flight record into DIR for each zone that loses a write; `zonal why` explains one
    ///
    /// DIR is created if missing. A run writes {flight-records} files at most, and replaces none. Conventional zones and mode
    /// direct have no write plugs, and no records.
    #[arg(help_heading = HEADING, long = "record", value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Record {
    /// Makes the directory. An error if files cannot be made there.
    pub(crate) fn prepare(&self) -> Result<Option<&PathBuf>, Failure> {
        if let Some(directory) = &self.directory {
            let failed =
                || format!("{}: cannot write flight records there", shown_word(directory.as_os_str()));
            fs::create_dir_all(directory).with_context(failed)?;
            access(directory, Access::WRITE_OK | Access::EXEC_OK).with_context(failed)?;
        }
        Ok(self.directory.as_ref())
    }

    /// As [`Record::prepare`], for a mount at a path without symbolic links. A thread that serves the mount writes the
    /// records: inside the mount it would wait for itself.
    pub(crate) fn prepare_outside(&self, mount: &Path) -> Result<Record, Failure> {
        let Some(directory) = self.prepare()? else { return Ok(Record::default()) };
        let name = || shown_word(directory.as_os_str());
        // Links and `..` would be resolved through the mount later.
        let resolved = fs::canonicalize(directory).with_context(name)?;
        if resolved.starts_with(mount) {
            return Err(
                anyhow!("{}: inside the mount, where flight records cannot be written", name()).into()
            );
        }
        Ok(Record { directory: Some(resolved) })
    }

    /// Lets a volume write records, in the directory made ready by [`Record::prepare`].
    pub(crate) fn of(&self, volume: Volume) -> Volume {
        match &self.directory {
            Some(directory) => volume.recording(directory.clone(), FLIGHT_RECORDS_MAX),
            None => volume,
        }
    }
}

fn checked(key: OptionKey) -> impl Fn(&str) -> Result<String, String> + Clone {
    move |text| key.check(text).map(|()| text.to_owned())
}

impl WritePath {
    /// Options to open `device` with: `base`, what is kept for the device, and what the command line says. The last has
    /// `modes`, which may be none.
    pub(crate) fn options(
        &self,
        base: VolumeOptions,
        modes: &[WriteMode],
        device: &str,
    ) -> Result<VolumeOptions, Failure> {
        let mut options = base;
        if !self.no_kept {
            Kept::of(device)?.apply(&mut options, SetBy::Kept);
        }
        OptionChanges { mode: modes.first().copied(), ..self.changes() }.apply(&mut options, SetBy::Caller);
        Ok(options)
    }

    fn changes(&self) -> OptionChanges {
        let mut changes = OptionChanges::default();
        let texts = [
            (OptionKey::Budget, &self.budget),
            (OptionKey::Park, &self.park),
            (OptionKey::Qd1Quantum, &self.qd1_quantum),
            (OptionKey::Window, &self.window),
            (OptionKey::NrRequests, &self.nr_requests),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                changes.set(key.name(), text).expect("the command line has checked it");
            }
        }
        // A flag says one thing only; without it the options below count.
        changes.merge = self.no_merge.then_some(false);
        changes.force = self.force_mode.then_some(true);
        changes
    }
}

impl WritePathAndMode {
    /// As [`WritePath::options`].
    pub(crate) fn options(&self, base: VolumeOptions, device: &str) -> Result<VolumeOptions, Failure> {
        self.rest.options(base, self.write_mode.as_slice(), device)
    }
}
