//! Runner of the workspace's test programs: the quick lane in parallel, the full lane one at a
//! time, with the time of each test.
//!
//! A job is the unit tests of a crate, or one module of another test program. Its tests run one
//! after the other, and the time of a test is the time between two lines of output, because libtest
//! on the stable toolchain does not print times.
//!
//! # Lanes
//! The full lane consists of the programs that cargo does not test by default (`test = false` in
//! the manifest) and the tests marked `#[ignore]`. They measure time or processor usage, or take
//! long, so each job has the machine to itself. All other tests are in the quick lane.
//!
//! # Invariants
//! - Each test of a program is in one job.
//! - A job without a result in its output has failed, whatever its exit status.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Shortest time of a job that the table records.
const KEPT_MIN: Duration = Duration::from_secs(1);

/// Longest time of a quick-lane test without a documented reason.
const UNEXPLAINED_MAX: Duration = Duration::from_secs(5);

/// Prefix of the line in a test's documentation that explains why it takes long.
const REASON: &str = "/// Slow: ";

/// A test program built by cargo.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Package and target, such as `zonal-fs all`, `zonal-fs lib` or `zonal example files`.
    pub name: String,
    /// Path of the program.
    pub path: PathBuf,
    /// Working directory, as cargo would set it.
    pub directory: PathBuf,
    /// True if each of its modules is a job.
    pub has_modules: bool,
    /// True if cargo does not test it by default, so that all its tests are in the full lane.
    pub is_full: bool,
}

impl Program {
    /// Parses a line of cargo's JSON messages; `None` if it is not about a test program.
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
        let is_full = target["test"] == false;
        Some(Program { name, path, directory, has_modules, is_full })
    }

    /// Jobs of the program in a lane; none if it has no test there.
    ///
    /// # Errors
    /// Standard error of the program if it does not list its tests.
    pub fn jobs(&self, lane: Lane) -> Result<Vec<Job>, String> {
        let mut all = self.list(false)?;
        let ignored = self.list(true)?;
        match (lane, self.is_full) {
            (Lane::Quick, true) => return Ok(Vec::new()),
            (Lane::Quick, false) => all.retain(|test| !ignored.contains(test)),
            (Lane::Full, true) => {}
            (Lane::Full, false) => all = ignored,
        }
        let jobs = modules(all, self.has_modules).into_iter().map(|(module, tests)| {
            let name = format!("{} {module}", self.name).trim_end().to_owned();
            Job { name, program: self.clone(), tests }
        });
        Ok(jobs.collect())
    }

    /// Lists its tests, or only the ignored ones.
    fn list(&self, ignored: bool) -> Result<Vec<String>, String> {
        let mut command = self.command();
        command.args(["--list", "--format", "terse"]).args(ignored.then_some("--ignored"));
        let listed = command.output().map_err(|error| format!("{}: {error}", self.path.display()))?;
        if !listed.status.success() {
            return Err(String::from_utf8_lossy(&listed.stderr).into_owned());
        }
        let listed = String::from_utf8_lossy(&listed.stdout);
        Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory).stdin(Stdio::null());
        command
    }
}

/// Groups tests by their first module, those outside of a module under an empty name. Unless
/// `by_module`, all are under an empty name.
fn modules(tests: Vec<String>, by_module: bool) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in tests {
        let module = test.split_once("::").filter(|_| by_module).map_or("", |(module, _)| module);
        modules.entry(module.to_owned()).or_default().push(test);
    }
    modules
}

/// Tests that run before every change lands, or only before a release and when their own area
/// changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Tests of `make test`.
    Quick,
    /// Tests of `make check` that `make test` leaves out.
    Full,
}

/// Tests of one program that run in one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Names of the program and the module.
    pub name: String,
    program: Program,
    tests: Vec<String>,
}

impl Job {
    /// True if `selector` is the job's name or the first words of it, such as `zonal-check mount`.
    pub fn is_selected(&self, selector: &str) -> bool {
        self.name.strip_prefix(selector).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    /// Runs the job to its end.
    pub fn run(&self) -> Ended {
        let begin = Instant::now();
        let mut command = self.program.command();
        command.args(["--test-threads=1", "--include-ignored", "--exact"]).args(&self.tests);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
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
        let is_passed = status && reading.has_passed && reading.tests.len() == self.tests.len();
        Ended { name: self.name.clone(), took: begin.elapsed(), is_passed, errors, reading }
    }
}

fn text_of(mut errors: ChildStderr) -> String {
    let mut bytes = Vec::new();
    // Bytes read before an error are kept.
    let _ = errors.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A completed job.
#[derive(Debug)]
pub struct Ended {
    /// Name of the job.
    pub name: String,
    /// Run time of the job.
    pub took: Duration,
    /// True if all of its tests passed.
    pub is_passed: bool,
    errors: String,
    reading: Reading,
}

impl Ended {
    /// Numbers of passed and of failed tests. A job that ended without a result counts as at least
    /// one failure.
    pub fn counts(&self) -> (usize, usize) {
        let failed = self.reading.failed.max(usize::from(!self.is_passed));
        (self.reading.tests.len() - self.reading.failed, failed)
    }

    /// Time of each test that ran.
    pub fn tests(&self) -> &[(String, Duration)] {
        &self.reading.tests
    }

    /// Everything that it printed.
    pub fn output(&self) -> String {
        format!("{}{}", self.reading.output, self.errors)
    }
}

/// Parsed output of a job.
#[derive(Default, Debug)]
struct Reading {
    output: String,
    tests: Vec<(String, Duration)>,
    /// End of the previous test.
    before: Duration,
    failed: usize,
    /// True once the result line says that all tests passed.
    has_passed: bool,
}

impl Reading {
    /// Parses a line that was complete `at` this time since the start of the job.
    fn line(&mut self, at: Duration, line: &str) {
        self.output += line;
        self.output.push('\n');
        if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            if !end.starts_with("ignored") {
                let name = name.trim_end_matches(" - should panic").to_owned();
                self.tests.push((name, at.saturating_sub(self.before)));
                self.failed += usize::from(end.starts_with("FAILED"));
            }
            self.before = at;
        }
        self.has_passed |= line.starts_with("test result: ok. ");
    }
}

/// Tables of the slowest tests with their reasons, and of the jobs that took at least a second.
pub fn tables(ended: &[Ended], tests_max: usize, reasons: &BTreeMap<String, String>) -> String {
    let mut jobs: Vec<(&str, Duration, usize)> =
        ended.iter().map(|e| (e.name.as_str(), e.took, e.counts().0)).collect();
    jobs.sort_by_key(|&(name, took, _)| (std::cmp::Reverse(took), name));
    let mut tests: Vec<(&str, &str, Duration)> = ended
        .iter()
        .flat_map(|e| e.tests().iter().map(|(test, took)| (e.name.as_str(), test.as_str(), *took)))
        .collect();
    tests.sort_by_key(|&(name, test, took)| (std::cmp::Reverse(took), name, test));
    let mut text = "| seconds | test | of | why |\n|---|---|---|---|\n".to_owned();
    for (name, test, took) in tests.iter().take(tests_max) {
        let function = test.rsplit("::").next().unwrap_or_default();
        let why = match reasons.get(function) {
            Some(reason) => reason,
            None if *took > UNEXPLAINED_MAX => "NO REASON GIVEN",
            None => "",
        };
        text += &format!("| {:.1} | {test} | {name} | {why} |\n", took.as_secs_f64());
    }
    text += "\n| seconds | program, module | tests |\n|---|---|---|\n";
    for (name, took, passed) in jobs.into_iter().filter(|&(_, took, _)| took >= KEPT_MIN) {
        text += &format!("| {:.1} | {name} | {passed} |\n", took.as_secs_f64());
    }
    text
}

/// Reasons of slow tests in a source file, by function name, from the line `/// Slow: REASON` of
/// their documentation.
pub fn reasons(source: &str) -> impl Iterator<Item = (String, String)> {
    let mut reason = None;
    source.lines().filter_map(move |line| {
        let line = line.trim_start();
        if let Some(text) = line.strip_prefix(REASON) {
            reason = Some(text.to_owned());
            return None;
        }
        if line.starts_with("///") || line.starts_with('#') {
            return None;
        }
        let reason = reason.take()?;
        let name = line.strip_prefix("fn ")?.split('(').next()?;
        Some((name.to_owned(), reason))
    })
}

/// Seconds of each job in a printed table.
pub fn known(table: &str) -> BTreeMap<&str, f64> {
    let rows = table.lines().filter_map(|line| {
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
        assert_eq!((reading.failed, reading.has_passed), (1, false));
        let reading = read(&[(1, "test result: ok. 14 passed; 0 failed; 0 ignored; finished in 0.10s")]);
        assert!(reading.has_passed);
    }

    fn program(path: &str, is_full: bool) -> Program {
        Program { name: "p q".into(), path: path.into(), directory: "/".into(), has_modules: true, is_full }
    }

    #[test]
    fn job_that_does_not_say_how_it_ended_has_failed() {
        for path in ["/bin/true", "/bin/false", "/nonexistent"] {
            let job = Job { name: "p".into(), program: program(path, false), tests: vec!["t".into()] };
            let ended = job.run();
            assert!(!ended.is_passed, "{path}");
            assert_eq!(ended.counts(), (0, 1), "{path}");
        }
    }

    /// This program has no ignored test.
    #[test]
    fn tests_are_in_one_lane_each() {
        let this = std::env::current_exe().unwrap();
        let jobs = |lane, is_full| program(this.to_str().unwrap(), is_full).jobs(lane).unwrap();
        let names = |jobs: &[Job]| jobs.iter().map(|job| job.name.clone()).collect::<Vec<_>>();
        assert!(names(&jobs(Lane::Quick, false)).contains(&"p q suite".to_owned()));
        assert_eq!(names(&jobs(Lane::Full, false)), [""; 0]);
        assert_eq!(names(&jobs(Lane::Quick, true)), [""; 0]);
        assert_eq!(jobs(Lane::Full, true).len(), jobs(Lane::Quick, false).len());
    }

    #[test]
    fn selector_is_a_whole_word_of_the_name() {
        let job = Job { name: "p q mount".into(), program: program("/", false), tests: Vec::new() };
        assert!(["p", "p q", "p q mount"].iter().all(|selector| job.is_selected(selector)));
        assert!(!["p q m", "q", "p q mount kills"].iter().any(|selector| job.is_selected(selector)));
    }

    #[test]
    fn tests_of_a_list_are_parted_by_their_module() {
        let list = || ["cold::a", "front::files::b", "cold::c", "d"].map(str::to_owned).to_vec();
        let parted = modules(list(), true);
        assert_eq!(parted["cold"], ["cold::a", "cold::c"]);
        assert_eq!(parted["front"], ["front::files::b"]);
        assert_eq!(parted[""], ["d"]);
        assert_eq!(parted.len(), 3);
        assert_eq!(modules(list(), false)[""], list());
    }

    #[test]
    fn messages_of_test_programs_are_recognized() {
        let message = |kind: &str, test: bool, by_default: bool| {
            format!(
                r#"{{"manifest_path":"/r/crates/zonal-fs/Cargo.toml","profile":{{"test":{test}}},"executable":"/t/n-1",
                    "target":{{"kind":["{kind}"],"name":"n","test":{by_default}}}}}"#
            )
        };
        for (kind, name) in [("lib", "zonal-fs lib"), ("test", "zonal-fs n"), ("bin", "zonal-fs bin n")] {
            for by_default in [true, false] {
                let program = Program::of_message(&message(kind, true, by_default)).unwrap();
                assert_eq!(
                    (program.name.as_str(), program.directory.to_str(), program.is_full),
                    (name, Some("/r/crates/zonal-fs"), !by_default)
                );
                assert_eq!(Program::of_message(&message(kind, false, by_default)), None);
            }
        }
        assert_eq!(Program::of_message(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn reason_belongs_to_the_function_that_it_documents() {
        let source =
            "/// Slow: boots a guest.\n#[test]\nfn a() {\n}\n/// Slow: lost\nconst B: u8 = 0;\nfn c() {\n";
        assert_eq!(reasons(source).collect::<Vec<_>>(), [("a".to_owned(), "boots a guest.".to_owned())]);
    }

    #[test]
    fn tables_are_read_back() {
        let ended = |name: &str, tenths| Ended {
            name: name.into(),
            took: at(tenths),
            is_passed: true,
            errors: String::new(),
            reading: read(&[(tenths, "test m::t ... ok"), (tenths, "test result: ok. 1 passed;")]),
        };
        let ended = [ended("zonal-io lib", 12), ended("zonal-fs all cold", 65), ended("p", 3)];
        let reason = BTreeMap::from([("t".to_owned(), "it sleeps.".to_owned())]);
        let line = |reasons| tables(&ended, 1, reasons).lines().nth(2).unwrap().to_owned();
        assert_eq!(line(&reason), "| 6.5 | m::t | zonal-fs all cold | it sleeps. |");
        assert_eq!(line(&BTreeMap::new()), "| 6.5 | m::t | zonal-fs all cold | NO REASON GIVEN |");
        let text = tables(&ended, 1, &reason);
        let known = known(&text);
        assert_eq!((known["zonal-fs all cold"], known["zonal-io lib"]), (6.5, 1.2));
        assert!(!known.contains_key("p"));
    }
}
