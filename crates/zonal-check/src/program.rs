//! The `zonal` program and the repository, for tests that use them from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
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
            .args(["build", "--workspace", "--bins", "--quiet", "--profile", profile])
            .current_dir(repository())
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the program does not build");
        directory.join("zonal")
    })
}
