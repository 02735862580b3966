//! `zonal compare`: comparison of two benchmark results.

use super::results::{self, ResultFiles};
use crate::exit::{Exit, Failure, OrExit};
use crate::text::shown_word;
use anyhow::{Context, anyhow};
use clap::Args;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use zonal_bench::compare::{Results, ResultsComparison};

/// Maximum size of a result file: four times that of a thousand jobs with all latency bins.
const BYTES_MAX: u64 = 256 << 20;

/// Compare two results of `zonal bench --json`
///
/// Prints bandwidth, IOPS, mean latency and 99th percentile latency of each job and direction, with
/// the ratio B/A. Jobs are matched by name and write mode. Either file can also be a result of fio 3
/// (--output-format=json). Jobs that are in one file only, and figures that are not comparable, are
/// listed with the reason.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// Baseline result, for example from before a change
    a: PathBuf,
    /// Result to compare with the baseline
    b: PathBuf,
    /// Also write the comparison to FILE, as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Compare, out: &mut dyn Write) -> Result<(), Failure> {
    let comparison = ResultsComparison::new(&read(&arguments.a)?, &read(&arguments.b)?);
    if let Some(path) = &arguments.report {
        results::check_page(path).or_exit(Exit::Usage)?;
        if [&arguments.a, &arguments.b].into_iter().any(|input| is_same(input, path)) {
            return Err(Failure::usage(format!(
                "{}: one of the results to compare; give the report another name",
                shown_word(path.as_os_str())
            )));
        }
        let _file = ResultFiles::open([&arguments.report])?;
        results::write(path, &comparison.to_html())?;
    }
    write!(out, "{comparison}")?;
    if comparison.jobs.is_empty() {
        return Err(anyhow!("the results have no job and direction in common").into());
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
    let bytes = results::read_regular(path, BYTES_MAX, "longer than 256 MiB: not a result file")?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not text, so not JSON"))
}

fn is_same(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (fs::metadata(a), fs::metadata(b)) else { return false };
    results::is_one_file(&a, &b)
}
