//! `zonal bench`: workloads in fio's job language.

mod page;

use crate::devices;
use crate::commands::results::{self, ResultFiles};
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
    About, BenchError, BenchOptions, Detail, Ended, FilesOptions, HostRules, MetadataPlace, Reopen, Report,
};
use zonal_core::Nanos;
use zonal_fs::space::ZoneOrder;
use zonal_io::fault::{self, read_plan};
use zonal_io::volume::{WriteMode, parse_time};

/// Run workloads in fio's job language
///
/// What is not one of the options below belongs to the job language: job files, and options such as --rw=write, which
/// begin a job with --name and stand before the first --name for all of them. An option of fio's that would change what
/// a job does and is not supported here is refused. An option that cannot matter is ignored, see --list-ignored.
#[derive(Args, Debug)]
#[command(override_usage = "zonal bench [OPTIONS] [JOBFILE]... [--JOB-OPTION[=VALUE]]...")]
pub(crate) struct Bench {
    /// Run on this device, whatever the jobs name
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Write modes to run the jobs in, one after the other [default: what suits the device]
    ///
    /// They are direct, zone-lock, per-zone, qd1, pipelined and append, separated by commas. With more than one, every zone
    /// of the device is reset before each, and a table compares them. `zonal help modes` says what they do.
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    write_mode: Vec<WriteMode>,
    /// Let the device fail as this plan says while the jobs run; see docs/FAULT.md
    ///
    /// What the jobs leave is verified on the device without faults.
    #[arg(long, value_name = "PLAN")]
    fault: Option<PathBuf>,
    /// What each request costs the processor of its job in virtual time [default: what the drive's profile says]
    ///
    /// So much later a request is with the write path than it was made, and than the one before it.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    host_time: Option<Nanos>,
    /// How jobs share zones with zonemode=zbd
    ///
    /// By fio's rule a zone is one job's from the first of its reads and writes in flight there to the end of the last,
    /// and a job that comes to another's zone lets all that it has in flight end, then waits. By Zonal's any number of
    /// jobs have writes of a zone in flight; the write path keeps them in order.
    #[arg(long, value_name = "RULE", value_enum, default_value = "fio")]
    host: Host,
    /// What the jobs work with
    ///
    /// Zones: blocks of the device itself. Fs: files, in a file system that is made on the device, which is erased; see
    /// docs/BENCH.md.
    #[arg(long, value_name = "TARGET", value_enum, default_value = "zones")]
    target: Target,
    /// Write although there is a file system or a partition table on the device, which is lost
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
    /// Set an option in every job, whatever the job says; what that changes is told on standard error
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
    /// Write the results to this file as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results to this file as an HTML page too, with charts over time, which needs no other file and no network
    ///
    /// It takes the time of every request, also where a job spares that. A file that is there is replaced if it is a
    /// regular one and no image.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// List the options that are accepted without effect and why: those that the jobs use, or all if there is no job
    #[arg(long)]
    list_ignored: bool,
    /// Job files, and options of the job language
    // They are put after a `--` before clap sees them.
    #[arg(last = true, hide = true)]
    job: Vec<String>,
}

/// Format of the results.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Format {
    /// For people
    #[value(alias = "text")]
    Normal,
    /// As fio prints it, one object
    Json,
    /// The same with all latencies
    #[value(name = "json+")]
    JsonPlus,
}

/// How jobs share zones.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Host {
    /// As fio's jobs do
    Fio,
    /// As the write path allows
    Zonal,
}

/// What jobs work with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Target {
    /// The zones of the device
    Zones,
    /// Files
    Fs,
}

/// Which free zone the file system opens.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Order {
    /// The first
    Lowest,
    /// The next after the zone opened last
    RoundRobin,
}

/// Where the metadata are.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum FsMetadata {
    /// In memory, where they take no time of the drive
    Memory,
    /// On the drive, which has to keep data: a simulated one does with keep=data in its name
    Drive,
}

/// The file system of --target=fs.
#[derive(Args, Debug)]
struct Files {
    /// Zones that the file system has open at once [default: what the drive allows, {open-zones} at most]
    #[arg(long, value_name = "ZONES")]
    fs_max_open_zones: Option<u32>,
    /// Which free zone the file system opens
    #[arg(long, value_name = "ORDER", value_enum, default_value = "lowest")]
    fs_zone_order: Order,
    /// Bytes of the largest append of the file system [default: what the drive takes, at most {unit}]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    fs_unit: Option<u64>,
    /// Bytes in write buffers or in flight before the file system lets writers wait [default: {dirty}]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    fs_dirty: Option<u64>,
    /// Before the jobs begin, write their files until PERCENT of the file system is used
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    fs_fill: Option<u8>,
    /// Where the metadata of the file system are
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
        page::check(path).or_exit(Exit::Usage)?;
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
    let interrupt = Interrupt::listen().context("cannot listen for Ctrl-C")?;
    let mut report = execute(arguments, jobs, &device, &interrupt)?;
    say_standings(&mut report, &device);
    write_results(arguments, &report, &about, out)?;
    match &report.ended {
        Ended::Interrupted => Err(interrupt.failure()),
        Ended::BrokenOff(error) => Err(Failure { exit: exit_of(error), error: anyhow!(error.clone()) }),
        _ => judge(&report),
    }
}

/// Says of simulated drives what their figures are worth.
pub(crate) fn say_standings(report: &mut Report, device: &str) {
    for mode in &mut report.modes {
        mode.notes.splice(0..0, page::standings(device));
    }
}

/// The ignored options of the jobs that ask for what will be missing, or for another way to measure, with the reasons.
fn told(jobs: &JobFile) -> Option<String> {
    let mut reasons: Vec<(&str, BTreeSet<&str>)> = Vec::new();
    for used in jobs.ignored().iter().filter(|used| used.is_told) {
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

/// A word to the user that is no result.
fn note(text: &str) {
    // The user need not be able to read it.
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
                "{name}: an image and no job file; a device is given with --device"
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

/// The option of this command that a name of the job language looks like: most of it, or a word of it.
fn own_option(name: &str) -> Option<String> {
    let definition = Bench::augment_args(clap::Command::new("bench"));
    let name = name.replace('_', "-");
    let names: Vec<&str> = definition.get_arguments().filter_map(clap::Arg::get_long).collect();
    let has_word = |option: &&str| option.split('-').any(|word| word == name);
    let found = names.iter().copied().find(has_word);
    found.or_else(|| nearest(&name, names.iter().copied())).map(str::to_owned)
}

/// The bytes of a job file. A file too long, such as a device, is cut after the limit, where the parser sees it.
fn read_job_file(name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(name)?.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The one device of a run. Where the command line names it, the jobs are made to agree.
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
            Err(anyhow!("the jobs name several devices, {} and {}; a run has one", names[0], names[1]))
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

/// Refuses a run of `--readonly` that would change the device.
fn check_reads_only(options: &BenchOptions) -> Result<(), Failure> {
    let writer = options.jobs.specs().find(|job| job.pattern.direction != Direction::Read);
    let why = match writer {
        Some(job) => format!("job {} writes", job.name),
        None if options.files.is_some() => "--target=fs makes a file system".to_owned(),
        None if options.writes() => "several write modes reset every zone of the device".to_owned(),
        None => return Ok(()),
    };
    Err(Failure::usage(format!("bench: --readonly is set, and {why}")))
}

/// The plan in a file, if there is one. It is a part of the device, which exits alike if its name holds the plan.
pub(crate) fn read_faults(plan: Option<&Path>) -> anyhow::Result<Option<fault::Plan>> {
    plan.map(read_plan).transpose().map_err(|e| anyhow!(e))
}

/// An image keeps its data when it is closed; of what else a device is made of, the name does not tell.
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
    // What cannot be written keeps nothing else from being written.
    [json, page, Some(printed)].into_iter().flatten().collect()
}

/// Turns what went wrong in the jobs into an error.
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
    let hint = if job.needs_zonemode() { "; the job does not look at zones, zonemode=zbd would" } else { "" };
    Err(anyhow!("job {}: {failure}{count}{hint}", job.name)).or_exit(exit)
}
