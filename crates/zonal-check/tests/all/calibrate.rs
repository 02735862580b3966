//! `zonal calibrate` from the command line: protection of existing data, and the state it leaves
//! behind.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread::sleep;
use std::time::Duration;
use zonal_check::program;

fn run(dir: &Path, line: &str) -> Output {
    program::command(dir, line).output().unwrap()
}

/// Names in a directory, without that of the control sockets.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "zonal");
    names.sort();
    names
}

/// Output of a command that must succeed.
fn zonal(dir: &Path, line: &str) -> String {
    let output = run(dir, line);
    assert!(output.status.success(), "zonal {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(dir: &Path, line: &str, exit: i32) -> String {
    let output = run(dir, line);
    assert_eq!(output.status.code(), Some(exit), "zonal {line}");
    String::from_utf8(output.stderr).unwrap()
}

/// Slow: it calibrates a drive in real time.
#[test]
fn drive_with_data_is_calibrated_only_with_yes_and_left_empty() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    zonal(dir, "create d --size 1G --zone-size 64M --zone-nr-conv 2");
    zonal(
        dir,
        "bench --device d --name=w --rw=write --zonemode=zbd --bs=64k --offset=3z --size=2z --io_size=1M",
    );
    let said = refused(dir, "calibrate d -o p.toml", 4);
    assert!(said.contains("are not empty: 3; --yes"), "{said}");
    assert_eq!(names(dir), ["d"]);
    let printed = zonal(dir, "calibrate d -o p.toml --yes");
    for run in ["one-4K", "one-1M", "eight-4K", "eight-128K"] {
        assert!(printed.lines().any(|line| line.starts_with(run)), "{printed}");
    }
    let zones = zonal(dir, "report d");
    assert!(zones.lines().skip(2).all(|line| line.contains("(em)")), "{zones}");
    assert_eq!(names(dir), ["d", "p.toml"]);
    let profile = fs::read_to_string(dir.join("p.toml")).unwrap();
    assert!(profile.contains("# one-4K") && profile.contains("source = \"measured\""), "{profile}");
    // The profile reproduces the zones of the measured drive.
    let info = zonal(dir, "info sim:p.toml");
    assert!(info.contains("16, of which 2 conventional"), "{info}");
}

#[test]
fn interrupted_or_failed_calibration_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let line = "calibrate sim:smr-hdd-30t -o p.toml";
    let mut child = program::command(dir, line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it cannot be through yet");
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(dir.join("plan"), "[[rule]]\non = \"write\"\nzones = 3\nfault = \"refuse\"\n").unwrap();
    let said = refused(dir, "calibrate fault:plan=plan+null:size=1G,zone_size=64M -o p.toml", 4);
    assert!(said.contains("run eight-4K: write"), "{said}");
    assert_eq!(names(dir), ["plan"]);
    // The drive's zones are left empty, too.
    zonal(dir, "create d --size 1G --zone-size 64M");
    let said = refused(dir, "calibrate fault:plan=plan+d -o p.toml", 4);
    assert!(said.contains("run eight-4K: write"), "{said}");
    let zones = zonal(dir, "report d");
    assert!(zones.lines().all(|line| line.contains("(em)")), "{zones}");
}

#[test]
fn calibrations_that_cannot_be_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let said = refused(dir, "calibrate sim:zns-1t -o nowhere/p.toml", 2);
    assert!(said.contains("nowhere/p.toml: its directory does not exist"), "{said}");
    let said = refused(dir, "calibrate sim:zns-1t -o p.toml --base smr-hdd-30t", 2);
    assert!(said.contains("profile smr-hdd-30t is for a disk, but the drive is flash"), "{said}");
    let said = refused(dir, "calibrate sim:smr-hdd-30t,size=8G -o p.toml", 2);
    assert!(said.contains("need 275 sequential zones, but the drive has 32"), "{said}");
    assert_eq!(names(dir), [""; 0]);
}
