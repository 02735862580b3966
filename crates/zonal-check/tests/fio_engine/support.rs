//! Building the engine, running fio with it, and parsing its reports.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;
use zonal_check::program::{self, plain, repository, zonal};

/// Zones of 1 MiB with a capacity of 768 KiB, the first four conventional: small, so that jobs
/// reach all kinds of ends.
pub const SMALL: &str = "size=128M,zone_size=1M,zone_capacity=768k,zone_nr_conv=4,zone_max_open=16";

/// True if fio is installed.
pub fn has_fio() -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok();
    if !found {
        program::skip("fio is not installed; scripts/setup.sh installs it");
    }
    found
}

fn folder() -> &'static Path {
    zonal().parent().unwrap()
}

/// A script of the repository, set up to build with the profile of this test.
pub fn script(name: &str) -> Command {
    let mut command = Command::new(repository().join("scripts").join(name));
    let profile = if folder().ends_with("debug") { "dev" } else { "release" };
    command.env("PROFILE", profile).env("CARGO_TARGET_DIR", folder().parent().unwrap());
    command.current_dir(repository());
    command
}

fn build(sanitize: Option<&str>) -> PathBuf {
    let mut command = script("fio-engine.sh");
    if let Some(sanitize) = sanitize {
        command.env("SANITIZE", sanitize);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = String::from_utf8(output.stdout).unwrap();
    repository().join(path.trim_end())
}

/// Path of the engine; `None` without fio.
pub fn engine() -> Option<&'static Path> {
    static ENGINE: OnceLock<Option<PathBuf>> = OnceLock::new();
    ENGINE.get_or_init(|| has_fio().then(|| build(None))).as_deref()
}

/// Path of an engine with its C part under AddressSanitizer.
pub fn checked_engine() -> Option<PathBuf> {
    // The two builds must not run concurrently.
    engine().map(|_| build(Some("address")))
}

/// Result of one run of fio.
pub struct Run {
    pub output: Output,
    text: String,
    report: Value,
}

/// Reads, writes, bytes written and resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub written: u64,
    pub resets: u64,
}

impl Run {
    /// Standard error of fio.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub fn job(&self, n: usize) -> &Value {
        &self.report["jobs"][n]
    }

    /// Error number of each job.
    pub fn numbers(&self) -> Vec<u64> {
        self.report["jobs"].as_array().unwrap().iter().map(|j| j["error"].as_u64().unwrap()).collect()
    }

    /// Sum over all jobs.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for job in self.report["jobs"].as_array().unwrap() {
            counts.reads += job["read"]["total_ios"].as_u64().unwrap();
            counts.writes += job["write"]["total_ios"].as_u64().unwrap();
            counts.written += job["write"]["io_bytes"].as_u64().unwrap();
        }
        // Only the text report has these.
        for line in self.text.lines() {
            if let Some((before, _)) = line.split_once(" zone resets") {
                counts.resets += before.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
            }
        }
        counts
    }

    /// Asserts that the run and all of its jobs succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Run {
        let said = self.errors();
        assert!(
            self.output.status.success() && said.is_empty(),
            "{}\n{said}\n{}",
            self.output.status,
            self.text
        );
        assert!(self.numbers().iter().all(|n| *n == 0), "{}", self.text);
        self
    }
}

/// Runs fio in `directory` with `arguments`, which include engine and jobs.
pub fn fio(directory: &Path, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Run {
    let mut command = Command::new("fio");
    command.args(["--output-format=normal,json", "--output=report"]).args(arguments).current_dir(directory);
    prepare(&mut command);
    let output = command.output().unwrap();
    let text = std::fs::read_to_string(directory.join("report")).unwrap_or_default();
    // fio prints both reports in sequence, after its messages.
    let json: String = text
        .lines()
        .skip_while(|l| *l != "{")
        .take_while(|l| !l.is_empty())
        .flat_map(|line| [line, "\n"])
        .collect();
    let report = serde_json::from_str(&json).unwrap_or(Value::Null);
    Run { output, text, report }
}

/// Runs the jobs in `arguments` (separated by blanks) on `device` in an empty directory.
pub fn run_on(engine: &Path, device: &str, arguments: &str) -> Run {
    run_in(&tempfile::tempdir().unwrap(), engine, device, arguments)
}

/// Like `run_on`, in a directory that may hold an image.
pub fn run_in(directory: &TempDir, engine: &Path, device: &str, arguments: &str) -> Run {
    let engine = format!("--ioengine=external:{}", engine.display());
    let device = format!("--device={device}");
    let mut all = Vec::new();
    for argument in arguments.split_whitespace() {
        all.push(argument);
        // Options of a job follow its name.
        if argument.starts_with("--name=") {
            all.extend([engine.as_str(), device.as_str()]);
        }
    }
    fio(directory.path(), &all, |_| {})
}

/// Runs `zonal` with `arguments` in `directory`, and returns its output.
pub fn run_zonal(directory: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = plain().args(arguments).current_dir(directory).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// A directory with an image `disk.zonal` like [`SMALL`].
pub fn with_image() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = vec!["create".to_owned(), "disk.zonal".to_owned()];
    for option in SMALL.split(',') {
        let (key, value) = option.split_once('=').unwrap();
        arguments.extend([format!("--{}", key.replace('_', "-")), value.to_owned()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_zonal(directory.path(), &arguments).unwrap();
    directory
}
