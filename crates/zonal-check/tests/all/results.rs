//! Results from the command line: possible destinations, and their survival of signals, a full disk
//! and later failures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use zonal::bench::{Detail, simulate};
use zonal_check::program;
use zonal_io::volume::WriteMode;

const JOB: &str = "--name=x --rw=write --zonemode=zbd --bs=4k --size=1z --io_size=64k";

fn run(dir: &Path, line: &str) -> Output {
    program::command(dir, line).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn drive() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    assert!(run(dir.path(), "create d --size 64M --zone-size 4M").status.success());
    fs::write(dir.path().join("t"), "0,h,0,Write,0,4096\n").unwrap();
    dir
}

#[test]
fn results_logs_and_profiles_replace_no_image() {
    let dir = drive();
    let dir = dir.path();
    let before = fs::read(dir.join("d")).unwrap();
    for line in [
        format!("bench --device sim:zns-1t {JOB} --json d"),
        format!("bench --device sim:zns-1t {JOB} --output d"),
        format!("bench --device sim:zns-1t {JOB} --report d"),
        format!("bench --device sim:zns-1t {JOB} --write_iolog=d"),
        format!("bench --device d {JOB} --json d"),
        "replay t --device sim:zns-1t --json d".to_owned(),
        "replay t --device sim:zns-1t --output d".to_owned(),
        "calibrate sim:zns-1t -o d".to_owned(),
        "info trace:file=d,overwrite=1+null:".to_owned(),
    ] {
        let output = run(dir, &line);
        assert!(!output.status.success() && said(&output).contains("image"), "{line}: {}", said(&output));
        assert!(fs::read(dir.join("d")).unwrap() == before, "{line}");
    }
}

#[test]
fn calibration_takes_the_place_of_no_link_or_device() {
    let dir = drive();
    let dir = dir.path();
    std::os::unix::fs::symlink("/dev/null", dir.join("link")).unwrap();
    let output = run(dir, "calibrate sim:zns-1t -o link");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(dir.join("link").is_symlink());
}

#[test]
fn results_that_would_share_a_file_are_refused_before_the_run() {
    let dir = drive();
    let dir = dir.path();
    let output = run(dir, &format!("bench --device sim:zns-1t {JOB} --json same --output ./same"));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("other results go to the same file"), "{}", said(&output));
    assert!(!dir.join("same").exists());
}

#[test]
fn run_that_does_not_begin_leaves_no_empty_files() {
    let dir = drive();
    let dir = dir.path();
    fs::write(dir.join("old"), "").unwrap();
    let output = run(dir, &format!("bench --device sim:no-such {JOB} --json new --output old"));
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(!dir.join("new").exists() && dir.join("old").exists());
}

#[test]
fn result_that_cannot_be_written_keeps_no_other_back() {
    let dir = drive();
    let dir = dir.path();
    let output =
        run(dir, &format!("bench --device sim:zns-1t {JOB} --json /dev/full --output text --report page"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).starts_with("zonal: /dev/full: cannot write the results"), "{}", said(&output));
    assert!(fs::read_to_string(dir.join("text")).unwrap().contains("issued rwts"));
    assert!(fs::read_to_string(dir.join("page")).unwrap().contains("</html>"));
    // Results that cannot be written to the file are printed instead.
    let output = run(dir, &format!("bench --device sim:zns-1t {JOB} --output /dev/full"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(printed(&output).contains("issued rwts"), "{}", printed(&output));
}

#[test]
fn unsuitable_mode_is_refused_before_any_mode_runs() {
    let dir = drive();
    let dir = dir.path();
    assert!(run(dir, &format!("bench --device d {JOB} --offset=3z")).status.success());
    let before = printed(&run(dir, "report d"));
    // Runs in two modes start with empty zones.
    let line = format!("bench --device d --write-mode per-zone,pipelined {JOB}");
    assert_eq!(run(dir, &line).status.code(), Some(2));
    let line = "bench --device d --write-mode per-zone,append --name=x --rw=write --zonemode=zbd --bs=2M";
    assert_eq!(run(dir, line).status.code(), Some(2));
    assert_eq!(printed(&run(dir, "report d")), before);
}

#[test]
fn mode_that_breaks_off_costs_no_results_of_those_before_it() {
    let dir = drive();
    let dir = dir.path();
    fs::write(dir.join("plan"), "[[rule]]\non = \"append\"\nfault = \"busy\"\n").unwrap();
    let device = "fault:plan=plan+sim:zns-1t";
    let output =
        run(dir, &format!("bench --device {device} --write-mode per-zone,append,qd1 {JOB} --json j"));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("deadlock after"), "{}", said(&output));
    let text = printed(&output);
    assert!(text.contains("Write path (per-zone)") && text.contains("not run: append, qd1"), "{text}");
    assert!(fs::read_to_string(dir.join("j")).unwrap().contains("not run: append, qd1"));
}

/// Control sockets of the runs in `dir`.
fn sockets(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("zonal"));
    entries.map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
}

/// A running command. It is killed if its test fails first.
struct AtWork(Option<Child>);

impl AtWork {
    fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a benchmark that does not end on its own.
fn endless(dir: &Path, device: &str) -> AtWork {
    let line = format!(
        "bench --device {device} --write-mode per-zone,qd1 --name=x --rw=write --zonemode=zbd --bs=4k --iodepth=4 \
         --size=4z --time_based --runtime=1000000 --json j"
    );
    at_work(dir, &line, 5)
}

/// Starts a command and waits until it has submitted `requests` requests: one more than its depth
/// means that one of them has completed.
fn at_work(dir: &Path, line: &str, requests: u64) -> AtWork {
    let mut bench =
        AtWork(program::command(dir, line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().ok());
    let deadline = Instant::now() + Duration::from_secs(60);
    while submitted(dir) < Some(requests) {
        assert!(Instant::now() < deadline && !bench.has_ended(), "it does not begin");
        sleep(Duration::from_millis(10));
    }
    bench
}

/// Requests that the running command has submitted. None before its device is open.
fn submitted(dir: &Path) -> Option<u64> {
    let output = run(dir, "stat --json");
    let stat: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    stat["counters"]["requests"].as_u64()
}

/// Output of a run after it was asked to end.
fn ended(mut bench: AtWork) -> Output {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !bench.has_ended() {
        assert!(Instant::now() < deadline, "it does not end");
        sleep(Duration::from_millis(10));
    }
    bench.0.take().unwrap().wait_with_output().unwrap()
}

fn signal(bench: &AtWork, name: &str) {
    let status =
        Command::new("kill").args([name, &bench.0.as_ref().unwrap().id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn interrupted_run_writes_its_results_and_leaves_no_socket() {
    for (device, name, code) in [
        ("ram:size=64M,zone_size=4M", "-INT", 130),
        ("sim:zns-1t", "-INT", 130),
        ("sim:zns-1t", "-TERM", 143),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let bench = endless(dir.path(), device);
        signal(&bench, name);
        let output = ended(bench);
        assert_eq!(output.status.code(), Some(code), "{device}: {}", said(&output));
        assert!(said(&output).contains("zonal: interrupted"), "{device}: {}", said(&output));
        let text = printed(&output);
        assert!(text.contains("interrupted before its end; not run: qd1"), "{device}: {text}");
        let json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(dir.path().join("j")).unwrap()).unwrap();
        assert!(json["jobs"][0]["write"]["total_ios"].as_u64() > Some(0), "{device}");
        assert!(sockets(dir.path()).is_empty(), "{device}");
    }
}

#[test]
fn interrupted_replay_writes_its_results_and_leaves_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // The second record follows after an hour.
    fs::write(dir.join("t"), "0,h,0,Write,0,4096\n36000000000,h,0,Write,0,4096\n").unwrap();
    let line = "replay t --device ram:size=64M,zone_size=4M";
    let replay = at_work(dir, line, 1);
    signal(&replay, "-INT");
    let output = ended(replay);
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(printed(&output).contains("interrupted before the end of the trace"), "{}", printed(&output));
    assert!(sockets(dir).is_empty());
}

#[test]
fn library_measures_what_the_program_does() {
    let dir = drive();
    let job = "[x]\nrw=randwrite\nbs=64k\niodepth=16\nsize=8z\nio_size=64M\nzonemode=zbd\nmax_open_zones=4\n";
    fs::write(dir.path().join("job"), job).unwrap();
    let output = run(dir.path(), "bench job --device sim:zns-1t --write-mode append --output-format json");
    assert!(output.status.success(), "{}", said(&output));
    let report = simulate(job, "sim:zns-1t", Some(WriteMode::Append)).unwrap();
    let jobs = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["jobs"].take();
    assert_eq!(jobs(&printed(&output)), jobs(&report.to_json(Detail::Plain)));
}

/// Switches the mode of a run on a simulated drive repeatedly, once it has submitted `requests`
/// requests, queries it, and ends it.
fn switch_and_ask(dir: &Path, line: &str, (requests, switches): (u64, usize)) -> Output {
    let bench = at_work(dir, line, requests);
    let device = line.split_once("--device ").unwrap().1.split(' ').next().unwrap();
    for line in ["mode --set qd1", "zone --zone 3 --set offline"] {
        let output = run(dir, line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        let why = format!("--set needs a device; open: {device}");
        assert!(said(&output).contains(&why), "{line}: {}", said(&output));
    }
    for mode in ["qd1", "per-zone", "pipelined --force", "qd1", "per-zone"].iter().cycle().take(switches) {
        let output = run(dir, &format!("mode {device} --set {mode} --set merge=no"));
        assert!(output.status.success(), "{line}, {mode}: {}", said(&output));
        let text = printed(&output);
        let name = mode.split(' ').next().unwrap();
        assert!(text.starts_with(&format!("{name}: set while running")), "{line}: {text}");
        for question in ["plugs", "stat --json"] {
            let output = run(dir, question);
            assert!(output.status.success(), "{line}, {question}: {}", said(&output));
        }
    }
    signal(&bench, "-INT");
    ended(bench)
}

/// Slow: the run lasts until its mode has been switched.
#[test]
fn run_on_a_simulated_drive_continues_when_its_mode_is_switched() {
    for (device, zones) in [("sim:smr-hdd-30t", 40_000), ("sim:zns-1t,checked=zone", 190)] {
        let dir = tempfile::tempdir().unwrap();
        // Only its own requests can wake this job.
        let line = format!(
            "bench --device {device} --write-mode per-zone --name=x --rw=write --zonemode=zbd --bs=4k --size={zones}z"
        );
        let output = switch_and_ask(dir.path(), &line, (2, 20));
        assert_eq!(output.status.code(), Some(130), "{device}: {}", said(&output));
        let first = printed(&output).lines().next().unwrap_or_default().to_owned();
        assert_eq!(first, format!("{device}: write mode per-zone (set while running)"));
    }
}

#[test]
fn file_jobs_on_a_simulated_drive_continue_when_their_mode_is_switched() {
    let dir = tempfile::tempdir().unwrap();
    let line = "bench --device sim:smr-hdd-30t,size=100G --target fs --write-mode per-zone --name=x --rw=randwrite \
                --bs=64k --filesize=64M --nrfiles=4 --numjobs=3 --time_based --runtime=1000000 --json j";
    // More than laying out the files takes.
    let output = switch_and_ask(dir.path(), line, (10_000, 10));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("j")).unwrap()).unwrap();
    assert!(json["jobs"][0]["write"]["total_ios"].as_u64() > Some(0));
}

#[test]
fn replay_on_a_simulated_drive_continues_when_its_mode_is_switched() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than the switches take.
    let line = |n: u64| format!("{},h,0,Write,{},4096\n", n * 1000, n * 7919 % (1 << 20) * 4096);
    fs::write(dir.path().join("t"), (0..2_000_000).map(line).collect::<String>()).unwrap();
    let output = switch_and_ask(dir.path(), "replay t --device sim:zns-1t --write-mode per-zone", (2, 5));
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
}
