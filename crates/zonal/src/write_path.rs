//! Options of the write path, shared by all commands that write through a volume.

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
    FLIGHT_RECORDS_MAX, OptionChanges, OptionKey, SchedulerKind, SetBy, Volume, VolumeOptions, WriteMode,
};

/// Heading of these options. It marks them as described in the topic `zonal help write-path`.
pub(crate) const HEADING: &str = "Write path";

/// Value of `--park` without an argument.
static PARK: LazyLock<String> = LazyLock::new(|| VolumeOptions::default().text(OptionKey::Park));

/// All options except the write mode, of which `bench` takes several.
#[derive(Args, Debug, Default)]
pub(crate) struct WritePath {
    /// Allow mode pipelined on a device that does not guarantee the order of writes
    #[arg(help_heading = HEADING, long)]
    force_mode: bool,
    /// Do not merge contiguous waiting writes
    #[arg(help_heading = HEADING, long)]
    no_merge: bool,
    /// Enforce the drive's limits of open and active zones: wait, close, finish, fail or none
    /// [default: none]
    ///
    /// The policy decides what happens if a write needs one more open or active zone than the
    /// limits allow. wait: it waits until a zone is full, reset, finished or closed. close: the
    /// least recently used zone is closed; if that does not help, the write waits. finish: like
    /// close, but if closing does not help, a nearly full zone is finished. fail: the write fails
    /// at once. A wait that nothing in flight can end fails after the grace period, by default
    /// {grace}, and names the zones that hold the slots. With none, only the drive enforces its
    /// limits, and refuses such a write. Not available in mode direct. Jobs with zonemode=zbd and
    /// file systems stay below the limits themselves, so the budget affects a job only with
    /// ignore_zone_limits=1.
    #[arg(help_heading = HEADING, long, value_name = "POLICY[,grace=TIME]", value_parser = checked(OptionKey::Budget))]
    budget: Option<String>,
    /// Hold writes ahead of the write pointer for their predecessors; --park=none holds none
    /// [default: none; with a file system {park}]
    ///
    /// At most BYTES per zone, until TIME has passed since the zone last advanced; without a value
    /// {park}. With none, such writes fail. Not available in modes direct and zone-lock.
    #[arg(help_heading = HEADING, long, value_name = "BYTES,TIME", num_args = 0..=1, default_missing_value = PARK.as_str(), require_equals = true, value_parser = checked(OptionKey::Park))]
    park: Option<String>,
    /// In mode qd1, quantum of a zone while writes of other zones wait [default: {qd1-quantum}]
    ///
    /// The turn of a zone ends after BYTES or TIME, whichever is reached first. 0 for one of them
    /// means no limit; 0 alone drains each zone before the next one.
    #[arg(help_heading = HEADING, long, value_name = "BYTES,TIME", value_parser = checked(OptionKey::Qd1Quantum))]
    qd1_quantum: Option<String>,
    /// In mode pipelined, maximum writes of a zone at the device, 1 to 255 [default: {window}]
    #[arg(help_heading = HEADING, long, value_name = "N", value_parser = checked(OptionKey::Window))]
    window: Option<String>,
    /// In mode zone-lock, maximum requests in the scheduler; others wait [default: {nr-requests}]
    #[arg(help_heading = HEADING, long, value_name = "N", value_parser = checked(OptionKey::NrRequests))]
    nr_requests: Option<String>,
    /// Order in which commands wait for a full device queue [default: {scheduler}]
    ///
    /// none: in order of arrival. mq-deadline: sorted by address, reads first, with deadlines, as by
    /// the scheduler of that name in Linux. The writes of a zone keep their order. Not available in
    /// modes direct and zone-lock, which have an order of their own.
    #[arg(help_heading = HEADING, long, value_name = "NAME", value_parser = SchedulerKind::ALL.map(SchedulerKind::name))]
    scheduler: Option<String>,
    /// Ignore the options kept for the device by `zonal mode --keep`
    #[arg(help_heading = HEADING, long)]
    no_kept: bool,
}

/// All options of the write path.
#[derive(Args, Debug, Default)]
pub(crate) struct WritePathAndMode {
    /// Write mode [default: depends on the device]; see `zonal help modes`
    #[arg(help_heading = HEADING, long, value_name = "MODE")]
    write_mode: Option<WriteMode>,
    #[command(flatten)]
    rest: WritePath,
}

/// Flight records of long-running commands.
#[derive(Args, Debug, Default)]
pub(crate) struct Record {
    /// Write a flight record to DIR for each zone that loses a write; `zonal why` explains it
    ///
    /// DIR is created if missing. A run writes at most {flight-records} files, and replaces none.
    /// Conventional zones and mode direct have no write plugs, and therefore no records.
    #[arg(long = "record", value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Record {
    /// Creates the directory. Fails if files cannot be created in it.
    pub(crate) fn prepare(&self) -> Result<Option<&PathBuf>, Failure> {
        if let Some(directory) = &self.directory {
            let failed = || format!("{}: cannot write flight records", shown_word(directory.as_os_str()));
            fs::create_dir_all(directory).with_context(failed)?;
            access(directory, Access::WRITE_OK | Access::EXEC_OK).with_context(failed)?;
        }
        Ok(self.directory.as_ref())
    }

    /// Like [`Record::prepare`], for a mount at a path without symbolic links. The records are
    /// written by a thread that serves the mount, so a directory inside the mount would deadlock.
    pub(crate) fn prepare_outside(&self, mount: &Path) -> Result<Record, Failure> {
        let Some(directory) = self.prepare()? else { return Ok(Record::default()) };
        let name = || shown_word(directory.as_os_str());
        // Later, links and `..` would be resolved through the mount.
        let resolved = fs::canonicalize(directory).with_context(name)?;
        if resolved.starts_with(mount) {
            return Err(anyhow!(
                "{}: flight records cannot be written inside the mount; choose another directory",
                name()
            )
            .into());
        }
        Ok(Record { directory: Some(resolved) })
    }

    /// Makes a volume write records to the directory prepared by [`Record::prepare`].
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
    /// Options for opening `device`, by ascending priority: `base`, those kept for the device, and
    /// those of the command line, including `modes`, which may be empty.
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
            (OptionKey::Scheduler, &self.scheduler),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                changes.set(key.name(), text).expect("the command line has checked it");
            }
        }
        // A flag that is not given leaves the lower layers in force.
        changes.merge = self.no_merge.then_some(false);
        changes.force = self.force_mode.then_some(true);
        changes
    }
}

impl WritePathAndMode {
    /// See [`WritePath::options`].
    pub(crate) fn options(&self, base: VolumeOptions, device: &str) -> Result<VolumeOptions, Failure> {
        self.rest.options(base, self.write_mode.as_slice(), device)
    }
}
