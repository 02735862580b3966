//! `zonal compare`: two results of benchmarks side by side.

use super::results::{self, ResultFiles};
use crate::exit::{Exit, Failure, OrExit};
use crate::text::shown_word;
use anyhow::{Context, anyhow};
use clap::Args;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use zonal_bench::compare::{Results, ResultsComparison};

/// Longest file that is read. A thousand jobs with all bins of their latencies have a quarter of it.
const BYTES_MAX: u64 = 256 << 20;

/// Compare two results of `zonal bench --json`
///
/// Prints bandwidth, IOPS, mean and 99th percentile of the latency of each job and direction, and B divided by A. Jobs are matched by
/// name and write mode. Results of fio 3 (--output-format=json) can be compared with each other and with those of Zonal. What is in one
/// file only, or cannot be compared, is listed with the reason.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// First result, such as the one before a change
    a: PathBuf,
    /// Second result
    b: PathBuf,
    /// Write the comparison to this file as an HTML page too, which needs no other file and no network
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Compare, out: &mut dyn Write) -> Result<(), Failure> {
    let comparison = ResultsComparison::new(&read(&arguments.a)?, &read(&arguments.b)?);
    if let Some(path) = &arguments.report {
        results::check_page(path).or_exit(Exit::Usage)?;
        if [&arguments.a, &arguments.b].into_iter().any(|input| is_same(input, path)) {
            return Err(Failure::usage(format!(
                "{}: a result that is compared; give the report another name",
                shown_word(path.as_os_str())
            )));
        }
        let _file = ResultFiles::open([&arguments.report])?;
        results::write(path, &comparison.to_html())?;
    }
    write!(out, "{comparison}")?;
    if comparison.jobs.is_empty() {
        return Err(anyhow!("no job and direction is in both results").into());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Results, Failure> {
    let name = shown_word(path.as_os_str());
    let text =
        read_text(path).with_context(|| format!("{name}: cannot read the results")).or_exit(Exit::Usage)?;
    Results::parse(&name, &text).with_context(|| name.clone()).or_exit(Exit::Usage)
}

fn read_text(path: &Path) -> io::Result<String> {
    // A pipe without a writer would block.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    if File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > BYTES_MAX {
        return Err(io::Error::new(ErrorKind::InvalidData, "too long for results"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not text, so not JSON"))
}

fn is_same(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}
