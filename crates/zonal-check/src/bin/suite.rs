//! `suite [--write DOCUMENT]`: builds and runs every test of the workspace, prints the slowest ones, and writes the times of all into a
//! document. The times that docs/TESTS.md has say which programs begin first.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread::{available_parallelism, scope};
use std::time::Instant;
use zonal_check::program::repository;
use zonal_check::suite::{Ended, Job, Program, known, tables};

/// Where the times are kept.
const KEPT: &str = "docs/TESTS.md";

/// Tests that are printed, and kept, as the slowest.
const SLOWEST: usize = 30;

fn main() -> ExitCode {
    let begin = Instant::now();
    let Some(programs) = build() else { return ExitCode::FAILURE };
    let built = begin.elapsed();
    let jobs: Result<Vec<Vec<Job>>, String> = programs.iter().map(Program::jobs).collect();
    let jobs = match jobs {
        Ok(jobs) => jobs.into_iter().flatten().collect(),
        Err(error) => {
            eprintln!("suite: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = run_all(jobs);
    let failed: Vec<&Ended> = ended.iter().filter(|ended| !ended.is_passed).collect();
    let tests: usize = ended.iter().map(Ended::passed).sum();
    let text = tables(&ended, SLOWEST);
    let summary = format!(
        "{tests} tests of {} programs and modules in {:.0} s, after {:.0} s of building.",
        ended.len(),
        (begin.elapsed() - built).as_secs_f64(),
        built.as_secs_f64()
    );
    print!("{}", text.split("\n\n").next().unwrap_or_default());
    println!("\n\n{summary}");
    for ended in &failed {
        println!("failed: {}", ended.name);
    }
    if let Some(document) = std::env::args().skip_while(|word| word != "--write").nth(1) {
        let text = format!("{summary}\n\n{text}");
        if let Err(error) = std::fs::write(&document, text) {
            eprintln!("suite: {document}: {error}");
            return ExitCode::FAILURE;
        }
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds the test programs; `None` if they do not build, which cargo has told.
fn build() -> Option<Vec<Program>> {
    let mut child = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"])
        .current_dir(repository())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cargo runs");
    let messages = BufReader::new(child.stdout.take().expect("it was asked for"));
    let programs =
        messages.lines().map_while(Result::ok).filter_map(|line| Program::of_message(&line)).collect();
    let is_built = child.wait().is_ok_and(|status| status.success());
    // And what the tests ask cargo for, before several of them ask at a time.
    let others = Command::new(env!("CARGO"))
        .args(["build", "--workspace", "--lib", "--bins", "--quiet"])
        .current_dir(repository())
        .status();
    (is_built && others.is_ok_and(|status| status.success())).then_some(programs)
}

/// Runs jobs, some at a time, and then those that need the machine.
fn run_all(mut jobs: Vec<Job>) -> Vec<Ended> {
    let kept = std::fs::read_to_string(repository().join(KEPT)).unwrap_or_default();
    let known = known(&kept);
    // What is not known may take long.
    let seconds = |job: &Job| known.get(job.name.as_str()).copied().unwrap_or(f64::INFINITY);
    jobs.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    let (alone, together): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(Job::is_alone);
    let (jobs, ended) = (Mutex::new(VecDeque::from(together)), Mutex::new(Vec::new()));
    let work = || {
        while let Some(job) = { jobs.lock().expect("no worker panics").pop_front() } {
            let end = told(job.run());
            ended.lock().expect("no worker panics").push(end);
        }
    };
    scope(|threads| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            threads.spawn(work);
        }
    });
    let mut ended = ended.into_inner().expect("no worker panics");
    ended.extend(alone.iter().map(|job| told(job.run())));
    ended
}

/// Prints how a job ended.
fn told(ended: Ended) -> Ended {
    let verdict = if ended.is_passed { "passed" } else { "FAILED" };
    println!("{:7.1} s  {}: {} tests {verdict}", ended.took.as_secs_f64(), ended.name, ended.passed());
    if !ended.is_passed {
        println!("{}", ended.output());
    }
    ended
}
