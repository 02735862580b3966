//! `zonal bench`: workloads in fio's job language.

mod page;

pub(crate) use page::Requests;

use crate::commands::results::{self, ResultFiles};
use crate::devices;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::value::{nearest, size};
use crate::write_path::{Record, WritePath};
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use zonal_bench::job::{Direction, Environment, JobError, JobFile, JobParser, TEXT_BYTES_MAX, ignored};
use zonal_bench::{
    About, BenchError, BenchOptions, Detail, Ended, FilesOptions, HostRules, MetadataPlace, ModeReport,
    Reopen, Report,
};
use zonal_core::Nanos;
use zonal_fs::space::ZoneOrder;
use zonal_io::fault::{self, read_plan};
use zonal_io::volume::{WriteMode, parse_time};

/// Run workloads in fio's job language
///
/// Everything that is not an option below belongs to the job language: job files, and options such
/// as --rw=write. --name begins a job; options before the first --name apply to all jobs. An option
/// of fio that would change a job and is not supported here is refused. An option that cannot
/// matter is ignored, see --list-ignored.
#[derive(Args, Debug)]
#[command(override_usage = "zonal bench [OPTIONS] [JOBFILE]... [--JOB-OPTION[=VALUE]]...")]
pub(crate) struct Bench {
    /// Device to run on, whatever the jobs name
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Write modes to run the jobs in, one after the other [default: depends on the device]
    ///
    /// The modes are direct, zone-lock, per-zone, qd1, pipelined and append, separated by commas;
    /// `zonal help modes` explains them. With more than one, all zones of the device are reset
    /// before each mode, and a table compares the modes.
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    write_mode: Vec<WriteMode>,
    /// Inject the faults of this plan while the jobs run; see docs/FAULT.md
    ///
    /// The data that the jobs leave is verified on the device without faults.
    #[arg(long, value_name = "PLAN")]
    fault: Option<PathBuf>,
    /// CPU time of each request in virtual time [default: that of the drive's profile]
    ///
    /// A request arrives at the write path this much later than it was made, and than the one
    /// before it.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    host_time: Option<Nanos>,
    /// Rules by which jobs share zones with zonemode=zbd
    ///
    /// With fio's rules, a zone belongs to one job from the first of its reads and writes in flight
    /// there to the end of the last. A job that needs the zone of another one completes all its
    /// requests in flight, then waits. With Zonal's rules, any number of jobs have writes to a zone
    /// in flight, and the write path keeps them in order.
    #[arg(long, value_name = "RULE", value_enum, default_value = "fio")]
    host: Host,
    /// Target of the jobs
    ///
    /// zones: blocks of the device itself. fs: files in a file system that is made on the device,
    /// which is erased; see docs/BENCH.md.
    #[arg(long, value_name = "TARGET", value_enum, default_value = "zones")]
    target: Target,
    /// Proceed even if the device contains a file system or a partition table, which is lost
    #[arg(long, alias = "fs-overwrite")]
    yes: bool,
    /// Refuse jobs that write, and open the device for reading
    #[arg(long, conflicts_with = "yes")]
    readonly: bool,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    write_path: WritePath,
    #[command(flatten)]
    record: Record,
    /// Set an option in every job, whatever the job says; changes are noted on standard error
    #[arg(long, value_name = "OPTION=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Run only this section of the job files
    #[arg(long, value_name = "NAME")]
    section: Vec<String>,
    /// Format of the results
    #[arg(long, value_name = "FORMAT", value_enum, value_delimiter = ',', default_value = "normal")]
    output_format: Vec<Format>,
    /// Write the results to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the results to this file as a self-contained HTML page with charts over time
    ///
    /// The time of every request is recorded, even if a job disables that. An existing file is
    /// replaced if it is a regular file and not an image.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// List options that are accepted without effect, with the reason: those of the jobs, or all of
    /// them without jobs
    #[arg(long)]
    list_ignored: bool,
    /// Job files, and options of the job language
    // They are moved behind a `--` before clap parses them.
    #[arg(last = true, hide = true)]
    job: Vec<String>,
}

/// Format of the results.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Format {
    /// Plain text
    #[value(alias = "text")]
    Normal,
    /// JSON as printed by fio, one object
    Json,
    /// JSON with all latencies
    #[value(name = "json+")]
    JsonPlus,
}

/// Rules by which jobs share zones.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Host {
    /// fio's rules
    Fio,
    /// Only the rules of the write path
    Zonal,
}

/// Target of the jobs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Target {
    /// Zones of the device
    Zones,
    /// Files in a file system
    Fs,
}

/// Choice of the next free zone.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Order {
    /// The one with the lowest number
    Lowest,
    /// The next after the one opened last
    RoundRobin,
}

/// Place of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum FsMetadata {
    /// In memory, at no cost to the drive
    Memory,
    /// On the drive, which must keep data; a simulated one does with keep=data in its name
    Drive,
}

/// File system of --target=fs.
#[derive(Args, Debug)]
struct Files {
    /// Maximum open zones of the file system [default: the drive's limit, at most {open-zones}]
    #[arg(long, value_name = "ZONES")]
    fs_max_open_zones: Option<u32>,
    /// Choice of the next free zone of the file system
    #[arg(long, value_name = "ORDER", value_enum, default_value = "lowest")]
    fs_zone_order: Order,
    /// Largest append of the file system [default: the drive's limit, at most {unit}]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    fs_unit: Option<u64>,
    /// Bytes in write buffers and in flight before writers of files wait [default: {dirty}]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    fs_dirty: Option<u64>,
    /// Write the files of the jobs before they begin, until PERCENT of the file system is used
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    fs_fill: Option<u8>,
    /// Place of the metadata of the file system
    #[arg(long, value_name = "PLACE", value_enum, default_value = "memory")]
    fs_metadata: FsMetadata,
}

impl Files {
    fn options(&self) -> FilesOptions {
        FilesOptions {
            max_open_zones: self.fs_max_open_zones,
            zone_order: match self.fs_zone_order {
                Order::Lowest => ZoneOrder::LowestIndex,
                Order::RoundRobin => ZoneOrder::RoundRobin,
            },
            unit_bytes: self.fs_unit,
            dirty_bytes: self.fs_dirty.unwrap_or(FilesOptions::default().dirty_bytes),
            fill_percent: self.fs_fill,
            metadata: match self.fs_metadata {
                FsMetadata::Memory => MetadataPlace::Memory,
                FsMetadata::Drive => MetadataPlace::Drive,
            },
        }
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((option, value)) if !option.is_empty() => Ok((option.to_owned(), value.to_owned())),
        _ => Err("not OPTION=VALUE".to_owned()),
    }
}

pub(crate) fn run(arguments: &Bench, out: &mut dyn Write) -> Result<(), Failure> {
    if arguments.list_ignored && arguments.job.is_empty() {
        return list_ignored(out);
    }
    let mut jobs = jobs(arguments)?;
    if arguments.list_ignored {
        for used in jobs.ignored() {
            writeln!(out, "{}: {}: {}", used.origin, used.name, used.reason)?;
        }
        return Ok(());
    }
    if let Some(path) = &arguments.report {
        results::check_page(path).or_exit(Exit::Usage)?;
    }
    let device = device(arguments, &mut jobs).or_exit(Exit::Usage)?;
    let _files = ResultFiles::open([&arguments.json, &arguments.output, &arguments.report])?;
    for change in jobs.changes() {
        note(&change.to_string());
    }
    if let Some(told) = told(&jobs) {
        note(&told);
    }
    let about = page::about(&device);
    let interrupt = Interrupt::listen().context("cannot handle signals")?;
    let mut report = execute(arguments, jobs, &device, &interrupt)?;
    say_standings(&mut report, &device, Requests::of);
    write_results(arguments, &report, &about, out)?;
    match &report.ended {
        Ended::Interrupted => Err(interrupt.failure()),
        Ended::BrokenOff(error) => Err(Failure { exit: exit_of(error), error: anyhow!(error.clone()) }),
        _ => judge(&report),
    }
}

/// Adds notes on the accuracy of simulated drives.
pub(crate) fn say_standings(report: &mut Report, device: &str, requests: fn(&ModeReport) -> Requests<'_>) {
    for mode in &mut report.modes {
        let standings = page::standings(device, &requests(mode));
        mode.notes.splice(0..0, standings);
    }
}

/// Describes the ignored options that ask for missing output or another way of measuring, with the
/// reasons.
fn told(jobs: &JobFile) -> Option<String> {
    let mut reasons: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for used in jobs.ignored().iter().filter(|used| used.warns) {
        match reasons.iter_mut().find(|(reason, _)| *reason == used.reason) {
            Some((_, names)) => drop(names.insert(used.name)),
            None => reasons.push((used.reason, BTreeSet::from([used.name]))),
        }
    }
    let each = reasons.iter().map(|(reason, names)| {
        format!("{} ({reason})", names.iter().copied().collect::<Vec<_>>().join(", "))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("without effect: {}; --list-ignored says more", each.join("; ")))
}

fn list_ignored(out: &mut dyn Write) -> Result<(), Failure> {
    for option in ignored() {
        writeln!(out, "{:<28} {}", option.name, option.reason)?;
    }
    Ok(())
}

/// Prints a note that is not a result.
fn note(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "{text}");
}

fn jobs(arguments: &Bench) -> Result<JobFile, Failure> {
    let mut parser = JobParser::new(Environment::of_process());
    parser.only_sections(&arguments.section);
    let files = parser.command_line(&arguments.job).or_exit(Exit::Usage)?;
    for name in &files {
        let bytes = read_job_file(name).with_context(|| format!("{name}: cannot read the job file"));
        let bytes = bytes.or_exit(Exit::Usage)?;
        if bytes.starts_with(&zonal_io::image::format::MAGIC) {
            return Err(Failure::usage(format!(
                "{name}: an image, not a job file; name a device with --device"
            )));
        }
        parser.file_bytes(&bytes, name).or_exit(Exit::Usage)?;
    }
    let mut jobs = parser.finish().map_err(|e| match e {
        JobError::Several { errors } => {
            errors.iter().for_each(|error| note(&format!("zonal: {error}{}", hint(error))));
            Failure::usage(format!("bench: {} errors in the jobs, none of which was run", errors.len()))
        }
        JobError::NoJobs { .. } if files.is_empty() => Failure::usage(
            "bench: no job given: name a job file, or begin a job with --name, as in --name=fill --rw=write",
        ),
        e => Failure::usage(format!("{e}{}", hint(&e))),
    })?;
    for (option, value) in &arguments.set {
        jobs.override_option(option, value).or_exit(Exit::Usage)?;
    }
    Ok(jobs)
}

/// Suggests an option of this command for an unknown option of the job language.
fn hint(error: &JobError) -> String {
    let option = match error {
        JobError::Unknown { name, nearest: None, .. } => own_option(name),
        _ => None,
    };
    option.map_or(String::new(), |option| format!(", did you mean `--{option}`?"))
}

/// Option of this command that resembles an unknown name of the job language: nearly the same, or
/// with the name as one of its words.
fn own_option(name: &str) -> Option<String> {
    let definition = Bench::augment_args(clap::Command::new("bench"));
    let name = name.replace('_', "-");
    let names: Vec<&str> = definition.get_arguments().filter_map(clap::Arg::get_long).collect();
    let has_word = |option: &&str| option.split('-').any(|word| word == name);
    let found = names.iter().copied().find(has_word);
    found.or_else(|| nearest(&name, names.iter().copied())).map(str::to_owned)
}

/// Reads a job file. A file that is too long, such as a device, is cut after the limit, which the
/// parser detects.
fn read_job_file(name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(name)?.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the only device of a run. A device on the command line overrides those of the jobs.
fn device(arguments: &Bench, jobs: &mut JobFile) -> anyhow::Result<String> {
    if let Some(device) = &arguments.device {
        let same = |name: &Option<String>| name.as_ref().is_none_or(|name| name == device);
        if !jobs.specs().all(|job| same(&job.filename)) {
            jobs.override_option("filename", device)?;
        }
        return Ok(device.clone());
    }
    let mut names: Vec<_> = jobs.specs().map(|job| job.filename.as_deref()).collect();
    names.dedup();
    match names.as_slice() {
        [Some(name)] => Ok((*name).to_owned()),
        [.., None] | [None, ..] => Err(anyhow!("no device given: use --device or the job option filename")),
        [a, b, ..] => {
            let names = [a, b].map(|name| name.unwrap_or_default());
            Err(anyhow!("the jobs name several devices, {} and {}; a run uses only one", names[0], names[1]))
        }
        [] => Err(anyhow!("no job given")),
    }
}

fn execute(arguments: &Bench, jobs: JobFile, device: &str, interrupt: &Interrupt) -> Result<Report, Failure> {
    let mut options = BenchOptions::new(jobs);
    options.modes.clone_from(&arguments.write_mode);
    options.volume = arguments.write_path.options(options.volume, &arguments.write_mode, device)?;
    options.host_nanos_per_io = arguments.host_time.map(|time| time.0);
    options.host = match arguments.host {
        Host::Fio => HostRules::Fio,
        Host::Zonal => HostRules::Zonal,
    };
    options.overwrite = arguments.yes;
    options.files = (arguments.target == Target::Fs).then(|| arguments.files.options());
    options.fault = read_faults(arguments.fault.as_deref()).or_exit(Exit::Device)?;
    options.reopen = reopen(device);
    options.record = arguments.record.prepare()?.cloned();
    options.progress = true;
    options.control = true;
    options.series = arguments.report.is_some();
    options.interrupt = Some(interrupt.flag());
    if arguments.readonly {
        check_reads_only(&options)?;
    }
    let open = || match arguments.readonly {
        true => devices::open_to_read(device).map_err(|failure| failure.error.into()),
        false => devices::open(device).map_err(|failure| failure.error.into()),
    };
    zonal_bench::run(&open, &options).map_err(|error| Failure { exit: exit_of(&error), error: error.into() })
}

/// Refuses a run with `--readonly` that would change the device.
fn check_reads_only(options: &BenchOptions) -> Result<(), Failure> {
    let writer = options.jobs.specs().find(|job| job.pattern.direction != Direction::Read);
    let why = match writer {
        Some(job) => format!("job {} writes", job.name),
        None if options.files.is_some() => "--target=fs makes a file system".to_owned(),
        None if options.writes() => "several write modes reset every zone of the device".to_owned(),
        None => return Ok(()),
    };
    Err(Failure::usage(format!("bench: --readonly is set, but {why}")))
}

/// Reads the plan from a file, if there is one. It counts as a part of the device, so the exit code
/// is that of a device whose name contains the plan.
pub(crate) fn read_faults(plan: Option<&Path>) -> anyhow::Result<Option<fault::Plan>> {
    plan.map(read_plan).transpose().map_err(|e| anyhow!(e))
}

/// Images keep their data when they are closed. For other devices, the name does not tell.
fn reopen(device: &str) -> Reopen {
    let is_image = device.starts_with("image:") || Path::new(device).is_file();
    if is_image { Reopen::Again } else { Reopen::Same }
}

pub(crate) fn exit_of(error: &BenchError) -> Exit {
    match error {
        BenchError::Device(_)
        | BenchError::Volume(_)
        | BenchError::Zones { .. }
        | BenchError::Owned(_)
        | BenchError::Faults(_) => Exit::Device,
        BenchError::Plan { .. } | BenchError::NothingToVerify { .. } | BenchError::NoOrder { .. } => {
            Exit::Usage
        }
        _ => Exit::Failed,
    }
}

fn write_results(
    arguments: &Bench,
    report: &Report,
    about: &About,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let json = arguments.json.as_deref().map(|path| results::write(path, &report.to_json(Detail::Plain)));
    let page = arguments.report.as_deref().map(|path| results::write(path, &report.to_html(about)));
    let formats = arguments.output_format.iter().map(|format| match format {
        Format::Normal => report.to_text(),
        Format::Json => report.to_json(Detail::Plain),
        Format::JsonPlus => report.to_json(Detail::Bins),
    });
    let printed = results::print(formats, arguments.output.as_deref(), out);
    // A result that cannot be written does not prevent the others from being written.
    [json, page, Some(printed)].into_iter().flatten().collect()
}

/// Turns failures of the jobs into an error.
pub(crate) fn judge(report: &Report) -> Result<(), Failure> {
    let jobs = || report.modes.iter().flat_map(|mode| &mode.jobs);
    let failed = || jobs().filter_map(|job| Some((job, job.failure.as_ref()?)));
    let is_mismatch = |failure: &zonal_bench::Failure| matches!(failure, zonal_bench::Failure::Verify { .. });
    let mismatched = report.modes.iter().filter_map(|m| m.verify.as_ref()).any(|v| v.is_failed());
    let verify = failed().find(|(_, failure)| is_mismatch(failure));
    let Some((job, failure)) = verify.or_else(|| failed().next()) else {
        return match mismatched {
            true => Err(anyhow!("verification failed")).or_exit(Exit::Verify),
            false => Ok(()),
        };
    };
    let exit = if mismatched || is_mismatch(failure) { Exit::Verify } else { Exit::Failed };
    let count = match failed().count() {
        1 => String::new(),
        n => format!(" (and {} more failed)", n - 1),
    };
    let hint = if job.needs_zonemode() { "; the job ignores zones, try zonemode=zbd" } else { "" };
    Err(anyhow!("job {}: {failure}{count}{hint}", job.name)).or_exit(exit)
}
