//! `zonal replay`: replays traces of other drives.

use super::bench::{Format as Output, Requests, exit_of, judge, read_faults, say_standings};
use super::results::{self, ResultFiles};
use crate::devices;
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;
use crate::write_path::WritePathAndMode;
use anyhow::Context;
use clap::{Args, ValueEnum};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use zonal_bench::replay::trace::{Format, Trace, TraceError, TraceOptions};
use zonal_bench::replay::{LogOptions, ReplayError, ReplayOptions, ReplayReport, Speed};
use zonal_bench::{Detail, Ended};

/// Replay a trace of another drive
///
/// A trace of an ordinary disk is laid out as a log on the empty zones of the device, and the cost
/// of that is reported. A trace of a zoned drive can be replayed --as-is. Every record is executed
/// once. See docs/REPLAY.md.
#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// Trace file, or - for standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Device to replay on
    #[arg(long, value_name = "DEVICE")]
    device: String,
    /// Format of the trace [default: detected]
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Option<TraceFormat>,
    /// Replay only records of this device, as the trace names it: 8,0 (blkparse), host.disk (msr),
    /// file name (iolog)
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Event of blkparse that is the record of a request: Q, its arrival, or D, its dispatch to the
    /// drive
    #[arg(long, value_name = "EVENT", default_value = "Q")]
    event: char,
    /// Speed relative to the recording, or max for as fast as possible
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    speed: Speed,
    /// Maximum records in flight [default: {depth-at-full-speed} with --speed=max, else
    /// {depth-at-times}]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Option<u32>,
    /// Replay requests at their recorded addresses, resets included, without a log
    ///
    /// A write to the start of a zone that has data is preceded by a reset, as in fio.
    #[arg(long, conflicts_with_all = ["open_zones", "reserve"])]
    as_is: bool,
    /// Wrap addresses beyond the end of the disk, or with --as-is of the device [default: refuse
    /// them]
    #[arg(long)]
    wrap: bool,
    /// Reset all zones first; all data is lost
    #[arg(long)]
    reset: bool,
    /// Proceed even if the device contains a file system or a partition table, which is lost
    #[arg(long, alias = "fs-overwrite")]
    yes: bool,
    /// Number of zones that writes are appended to in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    open_zones: u32,
    /// Zones reserved for the log and its cleaner [default: {reserve-percent} in 100]
    #[arg(long, value_name = "ZONES")]
    reserve: Option<u32>,
    /// Maximum number of records to replay
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    records: u64,
    /// Inject the faults of this plan; see docs/FAULT.md
    #[arg(long, value_name = "PLAN")]
    fault: Option<PathBuf>,
    /// Format of the results
    #[arg(long, value_name = "FORMAT", value_enum, value_delimiter = ',', default_value = "normal")]
    output_format: Vec<Output>,
    /// Write the results to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    write_path: WritePathAndMode,
}

/// Format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum TraceFormat {
    /// Binary, versions 1 and 2, as CloudPhysics published them
    Vscsi,
    /// Text printed by blkparse
    Blkparse,
    /// Comma-separated, as Microsoft Research Cambridge published them
    Msr,
    /// I/O logs of fio, versions 2 and 3
    Iolog,
}

impl From<TraceFormat> for Format {
    fn from(format: TraceFormat) -> Format {
        match format {
            TraceFormat::Vscsi => Format::Vscsi,
            TraceFormat::Blkparse => Format::Blkparse,
            TraceFormat::Msr => Format::Msr,
            TraceFormat::Iolog => Format::Iolog,
        }
    }
}

fn speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    let factor: Option<f64> = text.parse().ok();
    let factor = factor.filter(|factor| (1e-6..=1e6).contains(factor));
    factor.map(Speed::Times).ok_or_else(|| "not max, and not a factor from 0.000001 to 1000000".to_owned())
}

pub(crate) fn run(arguments: &Replay, out: &mut dyn Write) -> Result<(), Failure> {
    let mut options = options(arguments)?;
    let mut trace = open(arguments).map_err(|error| failure(error.into()))?;
    let _files = ResultFiles::open([&arguments.json, &arguments.output])?;
    let device = || devices::open(&arguments.device).map_err(|failure| failure.error.into());
    let interrupt = Interrupt::listen().context("cannot handle signals")?;
    options.interrupt = Some(interrupt.flag());
    let mut report = zonal_bench::replay::run(&device, &mut trace, &options).map_err(failure)?;
    say_standings(&mut report.report, &arguments.device, |_| Requests::Trace);
    write_results(arguments, &report, out)?;
    if matches!(report.report.ended, Ended::Interrupted) {
        return Err(interrupt.failure());
    }
    judge(&report.report)
}

fn options(arguments: &Replay) -> Result<ReplayOptions, Failure> {
    let mut options = ReplayOptions::default();
    options.speed = arguments.speed;
    options.depth = arguments.depth;
    options.as_is = arguments.as_is;
    options.log = LogOptions { open_zones: arguments.open_zones, reserve_zones: arguments.reserve };
    options.wrap = arguments.wrap;
    options.reset = arguments.reset;
    options.overwrite = arguments.yes;
    options.records_max = arguments.records;
    options.volume = arguments.write_path.options(options.volume, &arguments.device)?;
    options.fault = read_faults(arguments.fault.as_deref()).or_exit(Exit::Device)?;
    options.control = true;
    Ok(options)
}

fn open(arguments: &Replay) -> Result<Trace, TraceError> {
    let options = TraceOptions {
        format: arguments.format.map(Format::from),
        only: arguments.only.clone(),
        event: Some(arguments.event),
    };
    if arguments.trace == Path::new("-") {
        return Trace::new(Box::new(BufReader::new(io::stdin())), "standard input", &options);
    }
    Trace::open(&arguments.trace, &options)
}

/// Errors of the trace, or of its fit to the device, are usage errors; others are as for
/// benchmarks.
fn failure(error: ReplayError) -> Failure {
    let exit = match &error {
        ReplayError::Bench(error) => exit_of(error),
        ReplayError::Stalled { .. } => Exit::Device,
        ReplayError::Unbalanced { .. } => Exit::Verify,
        _ => Exit::Usage,
    };
    Failure { exit, error: error.into() }
}

fn write_results(arguments: &Replay, report: &ReplayReport, out: &mut dyn Write) -> Result<(), Failure> {
    let json = arguments.json.as_deref().map(|path| results::write(path, &report.to_json(Detail::Plain)));
    let formats = arguments.output_format.iter().map(|format| match format {
        Output::Normal => report.to_text(),
        Output::Json => report.to_json(Detail::Plain),
        Output::JsonPlus => report.to_json(Detail::Bins),
    });
    let printed = results::print(formats, arguments.output.as_deref(), out);
    [json, Some(printed)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_a_factor_or_max() {
        assert_eq!(speed("max"), Ok(Speed::Max));
        assert_eq!(speed("2.5"), Ok(Speed::Times(2.5)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e9", "fast"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
    }
}
