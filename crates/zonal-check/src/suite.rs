//! The test programs of the workspace, run side by side, and the time of each test.
//!
//! A job is the unit tests of a crate, or one module of another test program. Its tests run one after the other, so the time between
//! two lines of its output is the time of a test: libtest on the stable toolchain tells no times. Jobs run side by side, the longest
//! first, except those that measure and have the machine to themselves.
//!
//! # Invariants
//! - Each test of a program is in one job.
//! - A job whose output does not say how it ended has failed, whatever its status.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Shortest time of a job that a document keeps.
const KEPT_MIN: Duration = Duration::from_secs(1);

/// Programs, and modules of programs, that measure times or processors: their jobs run alone.
const ALONE: [&str; 11] = [
    "zonal-bench fio_parity",
    "zonal-bench pace",
    "zonal-check all serve",
    "zonal-check crowd",
    "zonal-check fio_engine parity",
    "zonal-check storm",
    "zonal-fs large_files",
    "zonal-fs waiting",
    "zonal-io left",
    "zonal-nvme hostile",
    "zonal-sim timed",
];

/// A test program that cargo has built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Package and target, such as `zonal-fs all`, `zonal-fs lib` or `zonal example files`.
    pub name: String,
    /// The program.
    pub path: PathBuf,
    /// Where cargo would run it.
    pub directory: PathBuf,
    /// Whether its modules are jobs.
    pub has_modules: bool,
}

impl Program {
    /// The test program that a line of cargo's messages in JSON tells of; `None` for other lines.
    pub fn of_message(line: &str) -> Option<Program> {
        let message: Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        if message["profile"]["test"] != true {
            return None;
        }
        let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = directory.file_name()?.to_str()?.to_owned();
        let target = &message["target"];
        let name = target["name"].as_str()?;
        let (name, has_modules) = match target["kind"][0].as_str()? {
            "test" => (format!("{package} {name}"), true),
            "lib" => (format!("{package} lib"), false),
            kind => (format!("{package} {kind} {name}"), false),
        };
        Some(Program { name, path, directory, has_modules })
    }

    /// Its jobs.
    ///
    /// # Errors
    /// What the program says if it does not list its tests.
    pub fn jobs(&self) -> Result<Vec<Job>, String> {
        if !self.has_modules {
            return Ok(vec![Job { name: self.name.clone(), program: self.clone(), tests: Vec::new() }]);
        }
        let listed = self.command().args(["--list", "--format", "terse"]).output();
        let listed = listed.map_err(|error| format!("{}: {error}", self.path.display()))?;
        if !listed.status.success() {
            return Err(String::from_utf8_lossy(&listed.stderr).into_owned());
        }
        let modules = modules(&String::from_utf8_lossy(&listed.stdout));
        let name = |module: &str| format!("{} {module}", self.name).trim_end().to_owned();
        let job = |(module, tests): (String, _)| Job { name: name(&module), program: self.clone(), tests };
        Ok(modules.into_iter().map(job).collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory).stdin(Stdio::null());
        command
    }
}

/// The tests of a list, by their first module; those of no module under an empty name.
fn modules(list: &str) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
        let module = test.split_once("::").map_or("", |(module, _)| module);
        modules.entry(module.to_owned()).or_default().push(test.to_owned());
    }
    modules
}

/// A program, or some tests of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The program's name, and the module's.
    pub name: String,
    program: Program,
    /// Names of tests; all if there are none.
    tests: Vec<String>,
}

impl Job {
    /// Whether it has the machine to itself.
    pub fn is_alone(&self) -> bool {
        [&self.program.name, &self.name].into_iter().any(|name| ALONE.contains(&name.as_str()))
    }

    /// Runs it to its end.
    pub fn run(&self) -> Ended {
        let begin = Instant::now();
        let mut command = self.program.command();
        command.arg("--test-threads=1").stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.tests.is_empty() {
            command.arg("--exact").args(&self.tests);
        }
        let mut reading = Reading::default();
        let (status, errors) = match command.spawn() {
            Err(error) => (false, error.to_string()),
            Ok(mut child) => {
                let errors = child.stderr.take().map(|errors| std::thread::spawn(move || text_of(errors)));
                let output = child.stdout.take().map(BufReader::new);
                for line in output.into_iter().flat_map(|output| output.split(b'\n')).map_while(Result::ok) {
                    reading.line(begin.elapsed(), &String::from_utf8_lossy(&line));
                }
                let errors = errors.and_then(|errors| errors.join().ok()).unwrap_or_default();
                (child.wait().is_ok_and(|status| status.success()), errors)
            }
        };
        let is_passed = status && reading.passed.is_some();
        Ended { name: self.name.clone(), took: begin.elapsed(), is_passed, errors, reading }
    }
}

fn text_of(mut errors: ChildStderr) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is worth as much.
    let _ = errors.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A job that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// Whether all its tests have passed.
    pub is_passed: bool,
    errors: String,
    reading: Reading,
}

impl Ended {
    /// How many tests have passed.
    pub fn passed(&self) -> usize {
        self.reading.passed.unwrap_or(0)
    }

    /// The time of each test that ran.
    pub fn tests(&self) -> &[(String, Duration)] {
        &self.reading.tests
    }

    /// All that it said.
    pub fn output(&self) -> String {
        format!("{}{}", self.reading.output, self.errors)
    }
}

/// What was read of a job's output.
#[derive(Default, Debug)]
struct Reading {
    output: String,
    tests: Vec<(String, Duration)>,
    /// When the last test ended.
    before: Duration,
    passed: Option<usize>,
}

impl Reading {
    /// Takes a line that ended at a time since the job's begin.
    fn line(&mut self, at: Duration, line: &str) {
        self.output += line;
        self.output.push('\n');
        if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            if !end.starts_with("ignored") {
                let name = name.trim_end_matches(" - should panic").to_owned();
                self.tests.push((name, at.saturating_sub(self.before)));
            }
            self.before = at;
        } else if let Some(result) = line.strip_prefix("test result: ok. ") {
            self.passed = result.split(' ').next().and_then(|number| number.parse().ok());
        }
    }
}

/// The tests that took longest, and the jobs that took a second, as tables of a document.
pub fn tables(ended: &[Ended], tests_max: usize) -> String {
    let mut jobs: Vec<(&str, Duration, usize)> =
        ended.iter().map(|e| (e.name.as_str(), e.took, e.passed())).collect();
    jobs.sort_by_key(|&(name, took, _)| (std::cmp::Reverse(took), name));
    let mut tests: Vec<(&str, &str, Duration)> = ended
        .iter()
        .flat_map(|e| e.tests().iter().map(|(test, took)| (e.name.as_str(), test.as_str(), *took)))
        .collect();
    tests.sort_by_key(|&(name, test, took)| (std::cmp::Reverse(took), name, test));
    let mut text = "| seconds | test | of |\n|---|---|---|\n".to_owned();
    for (name, test, took) in tests.iter().take(tests_max) {
        text += &format!("| {:.1} | {test} | {name} |\n", took.as_secs_f64());
    }
    text += "\n| seconds | program, module | tests |\n|---|---|---|\n";
    for (name, took, passed) in jobs.into_iter().filter(|&(_, took, _)| took >= KEPT_MIN) {
        text += &format!("| {:.1} | {name} | {passed} |\n", took.as_secs_f64());
    }
    text
}

/// The seconds that each job of a document's table took.
pub fn known(document: &str) -> BTreeMap<&str, f64> {
    let rows = document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (seconds, name) = (cells.next()?.parse().ok()?, cells.next()?);
        Some((name, seconds))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenths: u64) -> Duration {
        Duration::from_millis(tenths * 100)
    }

    fn read(lines: &[(u64, &str)]) -> Reading {
        let mut reading = Reading::default();
        lines.iter().for_each(|&(tenths, line)| reading.line(at(tenths), line));
        reading
    }

    #[test]
    fn time_between_two_lines_is_that_of_a_test() {
        let reading = read(&[
            (0, "running 4 tests"),
            (3, "test a::short ... ok"),
            (3, "test a::left_out ... ignored, it takes minutes"),
            (20, "test a::long - should panic ... ok"),
            (21, "test b ... FAILED"),
        ]);
        let tests = [("a::short", 3), ("a::long", 17), ("b", 1)];
        assert_eq!(reading.tests, tests.map(|(name, tenths)| (name.to_owned(), at(tenths))));
        assert_eq!(reading.passed, None);
        let reading = read(&[(1, "test result: ok. 14 passed; 0 failed; 0 ignored; finished in 0.10s")]);
        assert_eq!(reading.passed, Some(14));
    }

    #[test]
    fn job_that_does_not_say_how_it_ended_has_failed() {
        let job = |path: &str| {
            let program =
                Program { name: "p".into(), path: path.into(), directory: "/".into(), has_modules: false };
            program.jobs().unwrap().remove(0).run()
        };
        for path in ["/bin/true", "/bin/false", "/nonexistent"] {
            assert!(!job(path).is_passed, "{path}");
        }
    }

    #[test]
    fn programs_and_modules_that_measure_are_alone() {
        let is_alone = |program: &str, job: &str| {
            let program =
                Program { name: program.into(), path: "/".into(), directory: "/".into(), has_modules: true };
            Job { name: job.into(), program, tests: Vec::new() }.is_alone()
        };
        assert!(is_alone("zonal-bench pace", "zonal-bench pace rates"));
        assert!(is_alone("zonal-check fio_engine", "zonal-check fio_engine parity"));
        assert!(!is_alone("zonal-check fio_engine", "zonal-check fio_engine jobs"));
    }

    #[test]
    fn tests_of_a_list_are_parted_by_their_module() {
        let list = "cold::a: test\nfront::files::b: test\ncold::c: test\nd: test\n";
        let parted = modules(list);
        assert_eq!(parted["cold"], ["cold::a", "cold::c"]);
        assert_eq!(parted["front"], ["front::files::b"]);
        assert_eq!(parted[""], ["d"]);
        assert_eq!(parted.len(), 3);
    }

    #[test]
    fn message_of_a_test_program_is_told_from_others() {
        let message = |kind: &str, test: bool| {
            format!(
                r#"{{"manifest_path":"/r/crates/zonal-fs/Cargo.toml","target":{{"kind":["{kind}"],"name":"n"}},
                    "profile":{{"test":{test}}},"executable":"/t/n-1"}}"#
            )
        };
        for (kind, name) in [("lib", "zonal-fs lib"), ("test", "zonal-fs n"), ("bin", "zonal-fs bin n")] {
            let program = Program::of_message(&message(kind, true)).unwrap();
            assert_eq!(
                (program.name.as_str(), program.directory.to_str()),
                (name, Some("/r/crates/zonal-fs"))
            );
            assert_eq!(Program::of_message(&message(kind, false)), None);
        }
        assert_eq!(Program::of_message(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn tables_are_read_back() {
        let ended = |name: &str, tenths| Ended {
            name: name.into(),
            took: at(tenths),
            is_passed: true,
            errors: String::new(),
            reading: read(&[(tenths, "test t ... ok"), (tenths, "test result: ok. 1 passed;")]),
        };
        let text = tables(&[ended("zonal-io lib", 12), ended("zonal-fs all cold", 45), ended("p", 3)], 1);
        assert_eq!(text.lines().nth(2), Some("| 4.5 | t | zonal-fs all cold |"));
        let known = known(&text);
        assert_eq!((known["zonal-fs all cold"], known["zonal-io lib"]), (4.5, 1.2));
        assert!(!known.contains_key("p"));
    }
}
