//! The `zonal` program and the repository, for tests that use them from outside.

pub mod mounted;
pub mod served;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in crates/")
}

/// The `zonal` program, built like the running test.
///
/// Cargo builds a program for the tests of its own package only, so this asks for it.
///
/// # Panics
/// If it does not build.
pub fn zonal() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        // The test is TARGET/PROFILE/deps/NAME-HASH.
        let test = std::env::current_exe().expect("the test knows itself");
        let directory = test.ancestors().nth(2).expect("cargo's layout");
        let profile = directory.file_name().and_then(|n| n.to_str()).expect("cargo's layout");
        let profile = if profile == "debug" { "dev" } else { profile };
        let status = Command::new(env!("CARGO"))
            // The whole workspace, so that its crates are built with the same features as for the tests.
            .args(["build", "--bins", "--quiet", "--profile", profile])
            .current_dir(repository())
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the program does not build");
        directory.join("zonal")
    })
}

/// A test, or a part of one, is left out because of `why`.
///
/// # Panics
/// In continuous integration, where nothing is left out.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "in continuous integration nothing is skipped: {why}");
    println!("skipped: {why}");
}

/// Where no options are kept for devices: for runs that must not depend on what the developer keeps.
pub const NO_CONFIG: (&str, &str) = ("XDG_CONFIG_HOME", "/nonexistent");

/// The program without arguments, with [`NO_CONFIG`].
pub fn plain() -> Command {
    let mut command = Command::new(zonal());
    command.env(NO_CONFIG.0, NO_CONFIG.1);
    command
}

/// What the program said.
#[derive(Debug)]
pub struct Said {
    /// What it exited with; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
    line: String,
}

/// The program with the words of `line`, in `directory`, where its control sockets and its kept options go as well.
pub fn command(directory: &Path, line: &str) -> Command {
    let mut command = plain();
    command.args(line.split_whitespace()).current_dir(directory).env("ZONAL_RUNTIME_DIR", directory);
    command.env("XDG_CONFIG_HOME", directory.join("config"));
    // Whatever terminal the tests run in, help has the width of the documentation.
    command.env_remove("COLUMNS");
    command
}

/// Limit of threads under which a program runs.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLimit {
    /// Number of another user, for a test that the superuser runs, who has no such limit. The kernel counts all that a user runs, so a
    /// test has one to itself.
    pub user: u32,
    /// Processes and threads that the user may have.
    pub threads: u32,
}

/// Runs [`command`] with a limit of threads. All that is in the directory belongs to the user from the first call on.
///
/// # Panics
/// As [`run`], and if the directory cannot be given to the user.
pub fn run_limited(directory: &Path, line: &str, limit: ThreadLimit) -> Said {
    let ThreadLimit { user, threads } = limit;
    // Directories of builds may be closed to others.
    let copy = directory.join("zonal-program");
    let is_root = rustix::process::geteuid().is_root();
    if !copy.exists() {
        std::fs::copy(zonal(), &copy).expect("there is room");
        let paths =
            directory.read_dir().expect("it is there").map(|entry| entry.expect("it is there").path());
        for path in paths.chain([directory.to_owned()]).filter(|_| is_root) {
            std::os::unix::fs::chown(path, Some(user), Some(user)).expect("the superuser may");
        }
    }
    let mut limited = Command::new(if is_root { "setpriv" } else { "prlimit" });
    if is_root {
        limited
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .args(["--clear-groups", "prlimit"]);
    }
    limited.arg(format!("--nproc={threads}")).arg(copy).args(line.split_whitespace());
    limited.current_dir(directory).env("ZONAL_RUNTIME_DIR", directory).env(NO_CONFIG.0, NO_CONFIG.1);
    said(limited.stdin(Stdio::null()), line)
}

/// Runs [`command`] with nothing on standard input.
///
/// # Panics
/// If it does not start, or its errors are no text.
pub fn run(directory: &Path, line: &str) -> Said {
    said(command(directory, line).stdin(Stdio::null()), line)
}

/// Runs [`command`] with the file called `input` on standard input.
///
/// # Panics
/// As [`run`], and if there is no such file.
pub fn run_with(directory: &Path, line: &str, input: &str) -> Said {
    let input = std::fs::File::open(directory.join(input)).expect("the file is there");
    said(command(directory, line).stdin(input), line)
}

fn said(command: &mut Command, line: &str) -> Said {
    let output = command.output().expect("the program starts");
    let err = String::from_utf8(output.stderr).expect("errors are text");
    Said { code: output.status.code(), out: output.stdout, err, line: line.to_owned() }
}

impl Said {
    /// What it printed, of a line that has to succeed without a word on standard error.
    ///
    /// # Panics
    /// If it did not.
    pub fn done(self) -> Vec<u8> {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "zonal {}", self.line);
        self.out
    }

    /// The one line that it said, of a line that has to exit with `code` and print nothing.
    ///
    /// # Panics
    /// If it did not.
    pub fn refused(self, code: i32) -> String {
        let Said { err, line, .. } = self;
        assert_eq!((self.code, self.out.as_slice()), (Some(code), &b""[..]), "zonal {line}: {err}");
        let is_one_line = err.starts_with("zonal: ") && err.lines().count() == 1 && err.ends_with('\n');
        assert!(is_one_line, "zonal {line}: {err}");
        err.trim_end().to_owned()
    }
}
