//! Options of the write path from the command line: every command accepts each, a running process
//! can change them, and options kept for a device apply to later commands.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const DEVICE: i32 = 4;

/// Every option, with a value other than the default.
const ALL: &str = "--no-merge --force-mode --budget wait,grace=50ms --park=2M,30ms --qd1-quantum 1M,2ms --window 7 --nr-requests 9 --scheduler mq-deadline";

/// The options of [`ALL`] as reported by `zonal mode`.
const TOLD: [(&str, &str); 8] = [
    ("merge", "no"),
    ("qd1_quantum", "1M,2ms"),
    ("window", "7"),
    ("force", "yes"),
    ("nr_requests", "9"),
    ("scheduler", "mq-deadline"),
    ("budget", "wait,grace=50ms"),
    ("park", "2M,30ms"),
];

const JOB: &str =
    "--name=a --rw=write --zonemode=zbd --offset=4z --size=4z --bs=4k --time_based --runtime=60s";

/// A directory with a drive `d` of 16 zones of 16 MiB, two of them conventional, at most four open.
fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "create d --size 256M --zone-size 16M --zone-nr-conv 2 --zone-max-open 4");
    dir
}

fn run(dir: &Path, line: &str) -> String {
    String::from_utf8(program::run(dir, line).done()).unwrap()
}

fn refused(dir: &Path, line: &str, exit: i32) -> String {
    program::run(dir, line).refused(exit)
}

fn json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&run(dir, line)).unwrap()
}

/// A program that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `line` and waits until its control socket answers.
fn start(dir: &Path, line: &str) -> Running {
    let mut command = program::command(dir, line);
    let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !program::command(dir, "mode").output().unwrap().status.success() {
        assert!(Instant::now() < deadline, "zonal {line} opens no device");
    }
    running
}

/// Value of an option, and its source.
fn option(mode: &Value, name: &str) -> (String, String) {
    let options = mode["options"].as_array().unwrap();
    let found = options.iter().find(|option| option["name"] == name).unwrap();
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("value"), text("set_by"))
}

fn pair(value: &str, set_by: &str) -> (String, String) {
    (value.to_owned(), set_by.to_owned())
}

#[test]
fn every_option_reaches_bench_and_replay() {
    let dir = drive();
    fs::write(dir.path().join("t.csv"), "10,h,0,Write,0,4096,1\n6000000010,h,0,Write,4096,4096,1\n").unwrap();
    for line in [
        format!("bench --device d {ALL} --write-mode qd1 {JOB}"),
        format!("replay t.csv --device d {ALL} --write-mode qd1 --reset"),
    ] {
        let running = start(dir.path(), &line);
        let mode = json(dir.path(), "mode --json");
        for (name, value) in TOLD {
            assert_eq!(option(&mode, name), pair(value, "set by the caller"), "{name} of {line}");
        }
        assert_eq!(option(&mode, "mode"), pair("qd1", "set by the caller"));
        assert!(run(dir.path(), "stat").contains("\nwindow         7: set by the caller\n"));
        assert_eq!(
            option(&json(dir.path(), "stat --json")["volume"], "window"),
            pair("7", "set by the caller")
        );
        drop(running);
    }
}

#[test]
fn every_option_is_taken_by_the_commands_for_files() {
    let dir = drive();
    fs::write(dir.path().join("f"), "text").unwrap();
    for line in ["mkfs d", "put d f f", "fsck d --repair", "rm d f"] {
        run(dir.path(), &format!("{line} {ALL} --write-mode per-zone"));
        let error = refused(dir.path(), &format!("{line} --window 0"), USAGE);
        assert!(error.contains("not a number from 1 to 255"), "{error}");
        // The device does not preserve order, so the refusal shows that the options reach its
        // volume.
        let error = refused(dir.path(), &format!("{line} --write-mode pipelined"), DEVICE);
        assert!(error.contains("preserve the order"), "{error}");
    }
}

#[test]
fn running_process_changes_all_options_but_the_budget() {
    let dir = drive();
    let _running = start(dir.path(), &format!("bench --device d {JOB}"));
    let before = json(dir.path(), "mode d --json");
    assert_eq!(option(&before, "window"), pair("255", "default"));
    assert_eq!(option(&before, "park"), pair("none", "default"));
    let line = "mode d --set window=5 --set merge=no --set qd1_quantum=0 --set park=1M,10ms --set nr_requests=3 --set scheduler=mq-deadline --set qd1";
    let text = run(dir.path(), line);
    assert!(text.starts_with("qd1: set while running\n"), "{text}");
    assert!(text.contains("  window       5                  set while running\n"), "{text}");
    let after = json(dir.path(), "mode d --json");
    for (name, value) in [
        ("window", "5"),
        ("merge", "no"),
        ("qd1_quantum", "0"),
        ("park", "1M,10ms"),
        ("nr_requests", "3"),
        ("scheduler", "mq-deadline"),
    ] {
        assert_eq!(option(&after, name), pair(value, "set while running"), "{name}");
    }
    assert_eq!(option(&after, "force"), pair("no", "default"));
    let error = refused(dir.path(), "mode d --set budget=none --set window=6", FAILED);
    assert!(error.contains("while the volume is open"), "{error}");
    assert_eq!(option(&json(dir.path(), "mode d --json"), "window").0, "5", "a refusal changes nothing");
    for (set, said) in [
        ("windo=3", "did you mean window?"),
        ("window=0", "from 1 to 255"),
        ("fast", "unknown write mode"),
        ("window=1 --set window=2", "set twice"),
    ] {
        let error = refused(dir.path(), &format!("mode d --set {set}"), USAGE);
        assert!(error.contains(said), "{set}: {error}");
    }
}

#[test]
fn kept_options_count_until_they_are_forgotten() {
    let dir = drive();
    let told = run(dir.path(), "mode d --set qd1 --set window=5 --set merge=no --keep");
    assert_eq!(told, "kept for this device: mode=qd1 merge=no window=5\n");
    let info = run(dir.path(), "info ./d");
    assert!(info.contains("write mode             qd1: kept for this device\n"), "{info}");
    assert!(info.ends_with("kept for this device   mode=qd1 merge=no window=5\n"), "{info}");
    assert_eq!(json(dir.path(), "info d --json")["kept"]["window"], "5");
    // A second call adds to the first.
    run(dir.path(), "mode ./d --set window=6 --keep");

    let running = start(dir.path(), &format!("bench --device d --no-merge {JOB}"));
    let mode = json(dir.path(), "mode d --json");
    assert_eq!((&mode["mode"], &mode["reason"]), (&"qd1".into(), &"kept for this device".into()));
    assert_eq!(option(&mode, "window"), pair("6", "kept for this device"));
    assert_eq!(option(&mode, "merge"), pair("no", "set by the caller"));
    assert_eq!(mode["kept"]["mode"], "qd1");
    // Options of a running process are kept, too. A budget takes effect with the next one.
    let text = run(dir.path(), "mode image:d --set window=8 --set budget=wait --keep");
    assert!(
        text.ends_with("kept for this device: mode=qd1 merge=no window=8 budget=wait,grace=1s\n"),
        "{text}"
    );
    drop(running);
    let running = start(dir.path(), &format!("bench --device d --write-mode append --window 9 {JOB}"));
    let mode = json(dir.path(), "mode d --json");
    assert_eq!(option(&mode, "mode"), pair("append", "set by the caller"));
    assert_eq!(option(&mode, "window"), pair("9", "set by the caller"));
    assert_eq!(option(&mode, "budget"), pair("wait,grace=1s", "kept for this device"));
    drop(running);
    let running = start(dir.path(), &format!("bench --device d --no-kept {JOB}"));
    let mode = json(dir.path(), "mode d --json");
    assert_eq!((option(&mode, "window"), &mode["mode"]), (pair("255", "default"), &"append".into()));
    drop(running);

    let told = run(dir.path(), "mode d --forget");
    assert!(told.starts_with("no longer kept for this device: mode=qd1 merge=no"), "{told}");
    assert_eq!(run(dir.path(), "mode d --forget"), "nothing was kept for this device\n");
    assert!(run(dir.path(), "info d").ends_with("append: the device has native zone append\n"));
}

#[test]
fn kept_options_reach_replay_and_the_commands_for_files() {
    let dir = drive();
    // The device does not preserve order, so opening a volume with this option is refused.
    let file = dir.path().join("config/zonal/devices.toml");
    run(dir.path(), "mode d --set window=5 --keep");
    let text = fs::read_to_string(&file).unwrap().replace("window = \"5\"", "mode = \"pipelined\"");
    fs::write(&file, text).unwrap();
    fs::write(dir.path().join("t.csv"), "10,h,0,Write,0,4096,1\n").unwrap();
    for (line, exit) in [("replay t.csv --device d", USAGE), ("mkfs d", DEVICE), ("put d t.csv t", DEVICE)] {
        let error = refused(dir.path(), line, exit);
        assert!(error.contains("order"), "{line}: {error}");
    }
    run(dir.path(), "mkfs d --no-kept");
    run(dir.path(), "put d t.csv t --write-mode per-zone");
    assert_eq!(run(dir.path(), "get d t -"), "10,h,0,Write,0,4096,1\n", "reading takes no options");
    let error = refused(dir.path(), "mode d --set pipelined --keep", FAILED);
    assert!(error.contains("order"), "{error}");
}

#[test]
fn kept_options_are_a_devices_and_no_other_directory_has_them() {
    let dir = drive();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    run(dir.path(), "create other/d --size 256M --zone-size 16M");
    run(dir.path(), "mode d --set window=5 --keep");
    run(dir.path(), "mode null:size=1G --set window=6 --keep");
    let of = |line: &str| json(dir.path(), line)["kept"].clone();
    assert_eq!(of("info other/d --json"), serde_json::json!({}));
    assert_eq!(of("info null:size=1G --json"), serde_json::json!({ "window": "6" }));
    assert_eq!(of("info null:size=2G --json"), serde_json::json!({}));
    // From this directory, the drive has another name.
    let mut there = program::command(&other, "info ../d --json");
    let said = there.env("XDG_CONFIG_HOME", dir.path().join("config")).output().unwrap().stdout;
    let said: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(said["kept"], serde_json::json!({ "window": "5" }));
    let mode = fs::metadata(dir.path().join("config/zonal/devices.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let names: Vec<_> = fs::read_dir(dir.path().join("config/zonal")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left aside: {names:?}");
}

#[test]
fn damaged_file_of_kept_options_is_one_error_with_its_line() {
    let dir = drive();
    run(dir.path(), "mode d --set window=5 --keep");
    let file = dir.path().join("config/zonal/devices.toml");
    let whole = fs::read_to_string(&file).unwrap();
    let line = 1 + whole.lines().position(|line| line.starts_with("window")).unwrap();
    let commands = [
        "info d",
        "bench --device d --name=a --rw=read --size=4k",
        "mkfs d",
        "mode d --forget",
        "mode d --set qd1 --keep",
    ];
    for (from, to, said) in [
        ("\"5\"", "\"5", ""),
        ("\"5\"", "\"500\"", "option window: not a number from 1 to 255"),
        ("window", "windo", "did you mean window?"),
        ("\"5\"", "[]", "must be a string"),
    ] {
        fs::write(&file, whole.replace(from, to)).unwrap();
        for command in commands {
            let error = refused(dir.path(), command, FAILED);
            let place = format!("zonal: {}:{line}: ", file.display());
            assert!(error.starts_with(&place) && error.contains(said), "{command}: {error}");
        }
    }
    fs::write(&file, b"\n[\"\xff\"]\n").unwrap();
    assert!(refused(dir.path(), "info d", FAILED).contains("devices.toml:2: not UTF-8"));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(refused(dir.path(), "info d", FAILED).contains("not a file written by"));
    // A run without kept options does not read the file.
    run(dir.path(), "mkfs d --no-kept");
}

#[test]
fn two_that_keep_options_lose_none() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (1..=8).map(|n| format!("null:size={n}G")).collect();
    let line = |name: &String| format!("mode {name} --set window=5 --keep");
    let children: Vec<_> = names
        .iter()
        .map(|name| program::command(dir.path(), &line(name)).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let text = fs::read_to_string(dir.path().join("config/zonal/devices.toml")).unwrap();
    assert!(names.iter().all(|name| text.contains(&format!("[\"{name}\"]\nwindow = \"5\"\n"))), "{text}");
}

#[test]
fn without_a_home_nothing_is_kept_and_nothing_fails() {
    let dir = drive();
    let said = |line: &str| {
        let mut command = program::command(dir.path(), line);
        command.env_remove("XDG_CONFIG_HOME").env_remove("HOME").output().unwrap()
    };
    assert!(said("info d").status.success());
    assert!(said("mkfs d").status.success());
    let refused = said("mode d --set window=5 --keep");
    assert_eq!(refused.status.code(), Some(FAILED));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("neither HOME nor XDG_CONFIG_HOME"));
    // Relative paths are ignored, as the XDG specification requires.
    let relative = program::command(dir.path(), "info d").env("XDG_CONFIG_HOME", "config").output().unwrap();
    assert!(relative.status.success());
}
