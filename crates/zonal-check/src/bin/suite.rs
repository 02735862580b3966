//! `suite TABLES [--full SELECTOR...]`: builds and runs the tests of the quick lane, or the
//! selected tests of the full lane, prints the slowest ones, and writes all times to the file
//! TABLES. The next run reads that file to start the longest jobs first.
//!
//! A selector is a test program of a package, or a module of one, as in
//! `zonal-check/fio_engine/parity`.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread::{available_parallelism, scope};
use std::time::Instant;
use zonal_check::program::repository;
use zonal_check::suite::{Ended, Job, Lane, Program, known, reasons, tables};

const USAGE: &str = "usage: suite TABLES [--full SELECTOR...]";

/// Number of slowest tests that are printed and recorded.
const SLOWEST: usize = 30;

/// Long jobs of the quick lane. They start first if no times are known, so that the last jobs to
/// run are short.
const FIRST: [&str; 12] = [
    "zonal-check all files",
    "zonal-check mount ends",
    "zonal-bench all calibrate",
    "zonal-fs all damage",
    "zonal-check fio_engine jobs",
    "zonal-check all serve",
    "zonal-check all trees",
    "zonal-check mount kills",
    "zonal-check guest",
    "zonal-fs all plans",
    "zonal-fs all store",
    "zonal-check mount programs",
];

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("suite: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns true if all tests passed.
fn run() -> Result<bool, String> {
    let mut words = std::env::args().skip(1);
    let document = words.next().ok_or(USAGE)?;
    let lane = match words.next().as_deref() {
        None => Lane::Quick,
        Some("--full") => Lane::Full,
        Some(word) => return Err(format!("unknown argument {word}; {USAGE}")),
    };
    let selectors: Vec<String> = words.map(|word| word.replace('/', " ")).collect();
    if lane == Lane::Full && selectors.is_empty() {
        return Err(format!("--full needs a selector; {USAGE}"));
    }
    let begin = Instant::now();
    let programs = match lane {
        Lane::Quick => build(&["--workspace"])?,
        Lane::Full => build(&options(&selectors)?)?,
    };
    let built = begin.elapsed();
    let mut jobs = Vec::new();
    for program in &programs {
        jobs.extend(program.jobs(lane)?);
    }
    if lane == Lane::Full {
        for selector in &selectors {
            if !jobs.iter().any(|job| job.is_selected(selector)) {
                return Err(format!("selector {selector} matches no test of the full lane"));
            }
        }
        jobs.retain(|job| selectors.iter().any(|selector| job.is_selected(selector)));
    }
    if jobs.is_empty() {
        return Err("no tests found".to_owned());
    }
    let before = fs::read_to_string(&document).unwrap_or_default();
    let ended = run_all(jobs, lane, &known(&before));
    let (passed, failed) =
        ended.iter().map(Ended::counts).fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    let text = tables(&ended, SLOWEST, &all_reasons());
    println!("\n{}\n", text.split("\n\n").next().unwrap_or_default());
    println!(
        "{} programs and modules in {:.0} s, after {:.0} s of building.",
        ended.len(),
        (begin.elapsed() - built).as_secs_f64(),
        built.as_secs_f64()
    );
    for ended in ended.iter().filter(|ended| !ended.is_passed) {
        println!("failed: {}", ended.name);
    }
    println!("{passed} passed, {failed} failed");
    if lane == Lane::Quick {
        fs::write(&document, text).map_err(|error| format!("{document}: {error}"))?;
    }
    Ok(failed == 0)
}

/// Options of cargo that build the programs of the full lane's selectors.
fn options(selectors: &[String]) -> Result<Vec<&str>, String> {
    let mut options = Vec::new();
    for selector in selectors {
        let mut words = selector.split(' ');
        options.extend(["--package", words.next().unwrap_or_default()]);
        match words.next() {
            Some("lib") => options.push("--lib"),
            Some(target) => options.extend(["--test", target]),
            None => return Err(format!("selector {selector} names no program of the package")),
        }
    }
    Ok(options)
}

/// Builds the test programs, and everything that tests would build with cargo themselves, before
/// several of them run it concurrently.
fn build(options: &[&str]) -> Result<Vec<Program>, String> {
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).current_dir(repository());
        command
    };
    let messages = ["--no-run", "--message-format", "json-render-diagnostics"];
    let mut child = cargo(&[&["test"], options, &messages].concat())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo: {error}"))?;
    let messages = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
    let programs =
        messages.lines().map_while(Result::ok).filter_map(|line| Program::of_message(&line)).collect();
    let is_built = child.wait().is_ok_and(|status| status.success());
    let others = cargo(&["build", "--lib", "--bins", "--quiet"]).status();
    if is_built && others.is_ok_and(|status| status.success()) {
        return Ok(programs);
    }
    Err("building the tests failed".to_owned())
}

/// Runs jobs, the longest first: one per processor at a time, or one at a time in the full lane.
fn run_all(mut jobs: Vec<Job>, lane: Lane, known: &BTreeMap<&str, f64>) -> Vec<Ended> {
    let seconds = |job: &Job| match known.get(job.name.as_str()) {
        Some(seconds) => *seconds,
        None if known.is_empty() && !FIRST.contains(&job.name.as_str()) => 0.0,
        None => f64::INFINITY,
    };
    jobs.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    let workers = if lane == Lane::Full { 1 } else { available_parallelism().map_or(1, usize::from) };
    let (jobs, ended) = (Mutex::new(VecDeque::from(jobs)), Mutex::new(Vec::new()));
    let work = || {
        while let Some(job) = { jobs.lock().expect("no worker panics").pop_front() } {
            let end = told(job.run());
            ended.lock().expect("no worker panics").push(end);
        }
    };
    scope(|threads| {
        for _ in 0..workers {
            threads.spawn(work);
        }
    });
    ended.into_inner().expect("no worker panics")
}

/// Prints the result of a job.
fn told(ended: Ended) -> Ended {
    let verdict = if ended.is_passed { "passed" } else { "FAILED" };
    println!("{:7.1} s  {}: {} tests {verdict}", ended.took.as_secs_f64(), ended.name, ended.tests().len());
    if !ended.is_passed {
        println!("{}", ended.output());
    }
    ended
}

/// Collects the reasons that tests of the workspace give for taking long.
fn all_reasons() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut directories = vec![repository().join("crates")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension() == Some(Path::new("rs").as_os_str()) {
                all.extend(reasons(&fs::read_to_string(path).unwrap_or_default()));
            }
        }
    }
    all
}
