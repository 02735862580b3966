//! `zonal list` and `zonal doctor` on this machine, which may have any drives or none.

use crate::cli::{DEVICE, USAGE, drive, refused, zonal};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};
use zonal_check::program;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn list_has_a_running_process_and_its_device() {
    let dir = drive();
    assert_eq!(parsed(&zonal(dir.path(), "list --json"))["processes"], serde_json::json!([]));
    let mut bench = program::command(dir.path(), "bench --device d --name=a --rw=write --zonemode=zbd")
        .args("--offset=4z --size=4z --bs=4k --time_based --runtime=60s".split(' '))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let listed = loop {
        assert!(Instant::now() < deadline, "the process was not listed");
        let listed = parsed(&zonal(dir.path(), "list --json"));
        if listed["processes"].as_array().is_some_and(|processes| !processes.is_empty()) {
            break listed;
        }
    };
    let process = &listed["processes"][0];
    assert_eq!((&process["pid"], &process["device"]), (&bench.id().into(), &"image:d".into()));
    assert!(process["mounted"].is_null(), "{process}");
    let text = zonal(dir.path(), "list");
    assert!(text.lines().any(|line| line.starts_with("PROCESS ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with(&bench.id().to_string())), "{text}");
    bench.kill().unwrap();
    bench.wait().unwrap();
}

#[test]
fn doctor_refuses_anything_but_a_block_device() {
    let dir = drive();
    let error = refused(dir.path(), "doctor d", DEVICE);
    assert_eq!(error, "zonal: d: is not a block device");
    let error = refused(dir.path(), "doctor blk:d,queues=2", DEVICE);
    assert_eq!(error, "zonal: d: is not a block device");
    let error = refused(dir.path(), "doctor ram:size=1M", USAGE);
    assert!(error.starts_with("zonal: ram:size=1M: only block devices are examined"), "{error}");
    let output = program::command(dir.path(), "doctor blk:nowhere --json --heal").output().unwrap();
    let report = parsed(&String::from_utf8(output.stdout).unwrap());
    assert_eq!((output.status.code(), &report["fit"]), (Some(DEVICE), &false.into()));
    assert_eq!(report["findings"][0]["key"], "no-device");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "zonal: nowhere: unusable; 1 finding; nothing was healed\n");
}

#[test]
fn doctor_examines_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let output = program::command(dir.path(), "doctor --json").output().unwrap();
    let report = parsed(&String::from_utf8(output.stdout).unwrap());
    let findings = report["findings"].as_array().unwrap();
    let has = |severity: &str| findings.iter().any(|finding| finding["severity"] == severity);
    let expected = if has("unusable") { 4 } else { i32::from(has("finding")) };
    assert_eq!(output.status.code(), Some(expected), "{report}");
    assert_eq!(report["fit"], expected == 0);
}
