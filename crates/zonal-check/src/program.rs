//! The `zonal` program and the repository, for tests of the command line.

pub mod mounted;
pub mod served;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in crates/")
}

/// Path of the `zonal` program, built with the profile of the running test.
///
/// Cargo builds programs only for tests of their own package, so this runs `cargo build`.
///
/// # Panics
/// If the build fails.
pub fn zonal() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        // The test is TARGET/PROFILE/deps/NAME-HASH.
        let test = std::env::current_exe().expect("the test knows itself");
        let directory = test.ancestors().nth(2).expect("cargo's layout");
        let profile = directory.file_name().and_then(|n| n.to_str()).expect("cargo's layout");
        let profile = if profile == "debug" { "dev" } else { profile };
        let status = Command::new(env!("CARGO"))
            // Builds the whole workspace, so that features are unified as for the tests.
            .args(["build", "--bins", "--quiet", "--profile", profile])
            .current_dir(repository())
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the program does not build");
        directory.join("zonal")
    })
}

/// Reports that a test, or a part of one, is skipped, with the reason `why`.
///
/// # Panics
/// In continuous integration, where nothing may be skipped.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "in continuous integration nothing is skipped: {why}");
    println!("skipped: {why}");
}

/// Variable that hides the developer's saved device options, for runs that must not depend on them.
pub const NO_CONFIG: (&str, &str) = ("XDG_CONFIG_HOME", "/nonexistent");

/// The program without arguments, with [`NO_CONFIG`].
pub fn plain() -> Command {
    let mut command = Command::new(zonal());
    command.env(NO_CONFIG.0, NO_CONFIG.1);
    command
}

/// Output of the program.
#[derive(Debug)]
pub struct Said {
    /// Exit code; `None` if it was killed by a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
    line: String,
}

/// The program with the words of `line` as arguments, in `directory`, which also holds its control
/// sockets and saved options.
pub fn command(directory: &Path, line: &str) -> Command {
    let mut command = plain();
    command.args(line.split_whitespace()).current_dir(directory).env("ZONAL_RUNTIME_DIR", directory);
    command.env("XDG_CONFIG_HOME", directory.join("config"));
    // Help is as wide as in the documentation, whatever the terminal.
    command.env_remove("COLUMNS");
    command
}

/// Limit on the threads of a program.
#[derive(Clone, Copy, Debug)]
pub struct ThreadLimit {
    /// User id to switch to if the test runs as root, to whom no such limit applies. The kernel
    /// counts all threads of a user, so each test needs its own.
    pub user: u32,
    /// Maximum number of processes and threads of the user.
    pub threads: u32,
}

/// Runs [`command`] with a limit on threads. The first call gives the directory and its contents to
/// the user.
///
/// # Panics
/// As [`run`], and if the directory cannot be given to the user.
pub fn run_limited(directory: &Path, line: &str, limit: ThreadLimit) -> Said {
    let ThreadLimit { user, threads } = limit;
    // Build directories may be inaccessible to other users.
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

/// Runs [`command`] with empty standard input.
///
/// # Panics
/// If it does not start, or its standard error is not UTF-8.
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
    /// Standard output of a command that must succeed without any message.
    ///
    /// # Panics
    /// If it did not.
    pub fn done(self) -> Vec<u8> {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "zonal {}", self.line);
        self.out
    }

    /// Error message of a command that must exit with `code`, print nothing, and write exactly one
    /// line to standard error.
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
