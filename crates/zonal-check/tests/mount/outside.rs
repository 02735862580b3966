//! Third-party tests, run as programs on a mount: pjdfstest and fsx.
//!
//! `scripts/setup.sh` installs them into `out/tools`. Without them these tests fail.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use zonal_check::program::mounted::MountPlace;
use zonal_check::program::repository;

/// Operations of each run of fsx.
const OPERATIONS: u64 = 4000;

fn tool(name: &str) -> PathBuf {
    let tool = repository().join("out/tools/bin").join(name);
    assert!(tool.exists(), "{name} is missing; scripts/setup.sh installs it");
    tool
}

/// Cases of pjdfstest that fail: none. The cases disabled by its list of features need file flags,
/// NFSv4 ACLs, or a remount to read-only.
const FAIL: [&str; 0] = [];

#[test]
fn pjdfstest_passes() {
    let place = MountPlace::new("256M");
    let mounted = place.mount("allow_other");
    std::fs::set_permissions(place.home(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let configuration = place.home().join("pjdfstest.toml");
    let users = "[dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    let features = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nstat_st_birthtime = {}\nutimensat = {}\nutime_now = {}\n";
    let settings = "[settings]\nnaptime = 0.01\nallow_remount = false\n";
    std::fs::write(&configuration, format!("{features}{settings}{users}")).unwrap();
    let output = Command::new(tool("pjdfstest"))
        .arg("-c")
        .arg(&configuration)
        .arg("-p")
        .arg(mounted.at(""))
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = said
        .lines()
        .filter(|line| line.ends_with("FAILED"))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(failed, FAIL);
    let passed = said.lines().filter(|line| line.trim_end().ends_with(" ok")).count();
    assert!(passed > 350, "{passed} have passed:\n{said}");
    mounted.end();
}

/// Configuration of fsx, with or without shared mappings.
fn configuration(maps: u32) -> String {
    format!(
        "flen = 1048576\nnomsyncafterwrite = true\n[opsize]\nmax = 131072\n[weights]\nclose_open = 1\ninvalidate = {maps}\n\
         mapread = {maps}\nmapwrite = {maps}\nread = 10\nwrite = 10\ntruncate = 3\nfsync = 1\nfdatasync = 1\n\
         posix_fallocate = 1\npunch_hole = 3\nsendfile = 3\nposix_fadvise = 1\ncopy_file_range = 5\n"
    )
}

/// Slow: it makes thousands of random calls of fsx.
#[test]
fn fsx_finds_nothing() {
    let operations = std::env::var("ZONAL_MOUNT_OPS").ok().and_then(|n| n.parse().ok()).unwrap_or(OPERATIONS);
    for options in ["writeback", "writethrough"] {
        let place = MountPlace::new("128M");
        let mounted = place.mount(options);
        for (seed, maps) in [(1, 0), (2, 10)] {
            let file = place.home().join("fsx.toml");
            std::fs::write(&file, configuration(maps)).unwrap();
            let output = Command::new(tool("fsx"))
                .arg("-f")
                .arg(&file)
                .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"])
                .arg(place.home())
                .arg(mounted.at("x"))
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{options}, seed {seed}: {said}");
        }
        mounted.end();
    }
}
