//! `zonal calibrate`: fits the profile of a drive to a few short runs on it.

use crate::atomic_file::{AtomicFile, directory};
use crate::devices::{self, Overwrite};
use crate::exit::{Exit, Failure, OrExit};
use anyhow::{Context, anyhow};
use clap::Args;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use zonal_bench::calibrate::{
    CalibrateError, Calibrated, Fitting, Outcome, RESIDUAL_MAX, Runs, SIMULATED_MAX, base_for, fit, measure,
};
use zonal_io::device::Device;
use zonal_io::image::is_image;
use zonal_sim::Profile;

/// Measure a drive and write a profile for simulating it
///
/// The command writes to some zones of the drive, which it lists, and resets them before and
/// afterwards: their data is lost. If one of them is not empty, it requires --yes, unless the drive
/// is simulated.
///
/// On a large SMR disk there are 21 runs of a few seconds, on a smaller one eleven: in order at
/// three positions, two zones at growing distances, eight to 64 distant zones, many zones with
/// writes of 1 MiB, 128 KiB and 4 KiB, and zones shared by jobs. On flash there are five runs of a
/// second or less. Then the same runs are simulated with different values until the results match
/// the measurements. Use the profile as sim:FILE; see docs/CALIBRATE.md.
#[derive(Args, Debug)]
pub(crate) struct Calibrate {
    /// Device name; see `zonal help devices`
    device: String,
    /// File to write the profile to
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Profile, or its file, for values that the runs do not determine [default: one for the same
    /// kind of drive]
    #[arg(long, value_name = "PROFILE")]
    base: Option<String>,
    /// Proceed even if the zones to use contain data, or the device a file system or a partition
    /// table; it is lost
    #[arg(long, aliases = ["force", "fs-overwrite"])]
    yes: bool,
}

pub(crate) fn run(arguments: &Calibrate, out: &mut dyn Write) -> Result<(), Failure> {
    check_output(&arguments.output)?;
    let device = devices::open_to_overwrite(&arguments.device, Overwrite { yes: arguments.yes })?;
    let info = device.info();
    let base = arguments.base.as_deref().unwrap_or_else(|| base_for(info));
    let base = Profile::open(base, &[]).or_exit(Exit::Usage)?;
    let runs = Runs::new(info, &base).or_exit(Exit::Usage)?;
    check_zones(arguments, &*device, &runs)?;
    note(&format!("writing to these zones, and resetting them: {}", runs.zones()));
    let measured = measure(&device, &runs).map_err(failed)?;
    let mut progress = Progress::default();
    let mut found =
        fit(info, &base, &runs, &measured, SIMULATED_MAX, &mut |at| progress.show(at)).map_err(failed)?;
    progress.finish();
    describe(&mut found.profile, arguments, &base);
    let table = table(&found);
    write_profile(&arguments.output, &text(&found, &table))?;
    write!(out, "{table}")?;
    writeln!(out, "{}", verdict(&found.profile))?;
    Ok(writeln!(out, "{}: use it as sim:{}", arguments.output.display(), path_of(&arguments.output))?)
}

/// Path of a profile in the name of a device. Without a slash or a dot, it would be taken for a
/// profile's name.
fn path_of(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains(['/', '.']) { text } else { format!("./{text}") }
}

fn failed(error: CalibrateError) -> Failure {
    let exit = match error {
        CalibrateError::Failed { .. } | CalibrateError::Reset { .. } | CalibrateError::Zones(_) => {
            Exit::Device
        }
        _ => Exit::Failed,
    };
    Failure { exit, error: error.into() }
}

/// Checks the output file first: a drive must not be written for minutes in vain, and a profile
/// must not replace a device or an image.
fn check_output(output: &Path) -> Result<(), Failure> {
    let refused = |why| Err(Failure::usage(format!("{}: {why}", output.display())));
    if !directory(output).is_dir() || output.file_name().is_none() {
        return refused("its directory does not exist");
    }
    if is_image(output) {
        return refused("an image, which is never replaced by a profile");
    }
    match output.symlink_metadata() {
        Ok(found) if !found.is_file() => refused("not a regular file"),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses to lose data without consent.
fn check_zones(arguments: &Calibrate, device: &dyn Device, runs: &Runs) -> Result<(), Failure> {
    if arguments.yes || device.insight().virtual_time {
        return Ok(());
    }
    let with_data = runs.zones_with_data(device).map_err(failed)?;
    if with_data.0.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "{}: zones to be written and reset are not empty: {with_data}; --yes erases them",
        arguments.device
    ))
    .or_exit(Exit::Device)
}

/// Prints a note that is not a result.
fn note(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Progress of the fit: a line that is updated on a terminal, an occasional line elsewhere.
#[derive(Default)]
struct Progress {
    shown: usize,
}

/// Number of simulated sets of runs between two lines.
const EVERY: usize = 50;

impl Progress {
    fn show(&mut self, at: Fitting) {
        let is_terminal = io::stderr().is_terminal();
        if !is_terminal && at.simulated < self.shown + EVERY {
            return;
        }
        self.shown = at.simulated;
        let Fitting { simulated, simulated_max, error } = at;
        let line =
            format!("fitting: {simulated} of at most {simulated_max} simulated, error {:.1}%", error * 100.0);
        match is_terminal {
            true => {
                let _ = write!(io::stderr(), "\r{line}   ");
            }
            false => note(&line),
        }
    }

    fn finish(&self) {
        if io::stderr().is_terminal() {
            note("");
        }
    }
}

/// Sets the name and description of the profile.
fn describe(profile: &mut Profile, arguments: &Calibrate, base: &Profile) {
    let stem = arguments.output.file_stem().unwrap_or_default().to_string_lossy();
    profile.name = stem.into_owned();
    profile.title = format!("{}, as measured", arguments.device);
    profile.about = format!(
        "Measured by zonal calibrate. Values whose source is not \"measured\" are those of the profile {}.",
        base.name
    );
}

/// Table of the measured and simulated results of each run.
fn table(found: &Calibrated) -> String {
    let mut text = format!(
        "{:<12} {:>14} {:>14} {:>8}   {}\n",
        "run", "measured MB/s", "simulated MB/s", "error", "time of the last flush"
    );
    for residual in &found.residuals {
        let rate = |outcome: &Outcome| outcome.megabytes_a_second();
        let flush = |outcome: &Outcome| outcome.flushing_share() * 100.0;
        text += &format!(
            "{:<12} {:>14.1} {:>14.1} {:>+7.1}%   {:.0}% measured, {:.0}% simulated\n",
            residual.run,
            rate(&residual.measured),
            rate(&residual.simulated),
            residual.error() * 100.0,
            flush(&residual.measured),
            flush(&residual.simulated),
        );
    }
    text
}

/// Describes the worst residual, and whether the profile is calibrated.
fn verdict(profile: &Profile) -> String {
    let (worst, max) = (profile.worst_residual_percent.unwrap_or(0.0), RESIDUAL_MAX * 100.0);
    match profile.calibrated {
        true => format!("worst residual {worst:.1}%: calibrated"),
        false => format!(
            "worst residual {worst:.1}%: above the limit of {max:.0}%, so the profile is not marked as calibrated"
        ),
    }
}

/// Text of the profile file: the residuals as comments, then the profile.
fn text(found: &Calibrated, table: &str) -> String {
    let head = format!("Residuals of the fitted runs, after {} simulations:", found.simulated);
    found.profile.to_toml([head.as_str(), ""].into_iter().chain(table.lines()).chain([""]))
}

/// Writes the profile atomically.
fn write_profile(output: &Path, text: &str) -> Result<(), Failure> {
    let written = AtomicFile::create(output, 0o666).and_then(|mut whole| {
        whole.file().write_all(text.as_bytes())?;
        whole.commit()
    });
    let written = written.with_context(|| format!("{}: cannot write the profile", output.display()));
    written.map_err(|e| anyhow!(e)).or_exit(Exit::Failed)
}
