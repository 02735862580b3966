//! Flight records of lost writes: `--record`, and `zonal why`, which explains and replays them.

use rustix::fs::{FileType, Mode};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use zonal_check::program::served::Served;
use zonal_check::program::{Said, run, zonal};
use zonal_core::plug::flight::end_of;

const FAILED: i32 = 1;

/// The third write of zone 1 fails with two of its blocks written.
const PLAN: &str =
    "[[rule]]\non = \"writes\"\nzones = \"1\"\nnth = 3\nfault = \"torn\"\nblocks = 2\nerror = \"medium\"\n";
const DRIVE: &str = "fault:plan=plan+null:size=64M,zone_size=4M";
const JOB: &str = "--name=j --rw=write --zonemode=zbd --bs=64k --iodepth=4 --offset=1z --size=1z";

fn place() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plan"), PLAN).unwrap();
    dir
}

/// Runs the job that loses a write, with these options, and returns its results.
fn lose(dir: &Path, options: &str) -> String {
    let Said { code, out, err, .. } = run(dir, &format!("bench --device {DRIVE} {options} {JOB}"));
    assert!(code == Some(FAILED) && err.contains("medium error"), "{err}");
    String::from_utf8(out).unwrap()
}

fn why(dir: &Path, file: &str) -> String {
    String::from_utf8(run(dir, &format!("why {file}")).done()).unwrap()
}

#[test]
fn lost_write_is_recorded_explained_and_replayed() {
    let dir = place();
    // A native append is recorded once more after an unsuccessful search for it.
    for (n, mode) in ["per-zone", "qd1", "zone-lock", "append"].into_iter().enumerate() {
        let results = lose(dir.path(), &format!("--write-mode {mode} --record a/r"));
        let records = if mode == "append" { 2 } else { 1 };
        assert!(results.contains(&format!("\nflight records: {records} in a/r\n")), "{mode}: {results}");
        // Records of earlier runs are kept.
        let told = why(dir.path(), &format!("a/r/000{n}-zone-1.flight"));
        assert!(told.starts_with("zone 1, 8192 sectors writable; "), "{mode}: {told}");
        let (calls, end) = told.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
        let failed = calls.lines().find(|line| line.contains("failed: medium error")).unwrap();
        assert!(failed.contains(" recovers "), "{mode}: {told}");
        assert!(
            calls.contains("the device reports the zone: sequential, write pointer at 258\n"),
            "{mode}: {told}"
        );
        let lost =
            end.lines().filter(|line| line.starts_with("lost in zone 1: 128 sectors at 256: medium error"));
        assert_eq!(lost.count(), 1, "{mode}: {told}");
        assert!(end.ends_with(" calls, all as recorded\n"), "{mode}: {told}");
    }
    let results = lose(dir.path(), "--write-mode direct --record a/r");
    assert!(results.contains("\nno flight records: mode direct has no write plugs\n"), "{results}");
}

#[test]
fn flight_record_of_a_served_drive_is_reported_at_exit() {
    let dir = place();
    let served = Served::start(dir.path(), &format!("{DRIVE} --record r"));
    let said = run(dir.path(), &format!("bench --device {} {JOB}", served.device()));
    assert_eq!(said.code, Some(FAILED), "{}", said.err);
    served.signal("-TERM");
    let (code, _, err) = served.wait();
    assert!(code == Some(0) && err.contains(": flight records: ") && err.ends_with(" in r\n"), "{err}");
    assert!(why(dir.path(), "r/0000-zone-1.flight").contains("\nlost in zone 1: "));
}

#[test]
fn damaged_record_is_one_error_and_a_changed_one_names_the_place() {
    let dir = place();
    lose(dir.path(), "--write-mode per-zone --record r");
    let record = fs::read(dir.path().join("r/0000-zone-1.flight")).unwrap();
    let error = |bytes: &[u8]| {
        fs::write(dir.path().join("f"), bytes).unwrap();
        run(dir.path(), "why f").refused(FAILED)
    };
    assert!(error(b"").ends_with("f: not a flight record"));
    assert!(error(&record[..record.len() / 2]).starts_with("zonal: f: "));
    assert!(error(&record[..record.len() - 2]).contains("f: truncated record: missing `end` line"));
    assert!(error(&[0xFF; 99]).ends_with("f: not a flight record"));
    assert!(error(&vec![b'\n'; 5 << 20]).contains("too long for a flight record"));
    assert!(error(b"size=1\n").ends_with("f: not a flight record"));
    assert!(
        error(b"zonal flight 1\n").contains("f: written by another version of Zonal; explain it with that")
    );
    assert!(run(dir.path(), "why missing").refused(FAILED).contains("missing: cannot read the record"));
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    for special in ["r", "pipe", "/dev/zero"] {
        let error = run(dir.path(), &format!("why {special}")).refused(FAILED);
        assert!(error.contains(": cannot read the record: not a regular file"), "{error}");
    }

    let text = String::from_utf8(record).unwrap();
    let number = 1 + text.lines().position(|line| line.contains(" resynced ")).unwrap();
    let changed = text.replace(" Fail:2", " Redrive:0");
    assert!(error(changed.as_bytes()).contains("f: damaged record: wrong checksum"));
    let body = &changed[..=changed.rfind("\nend ").unwrap()];
    fs::write(dir.path().join("f"), format!("{body}{}", end_of(body))).unwrap();
    let Said { code, out, err, .. } = run(dir.path(), "why f");
    let place = format!("zonal: f: the replay differs from the record: line {number}: resynced ");
    assert!(code == Some(FAILED) && err.starts_with(&place), "{err}");
    assert!(String::from_utf8(out).unwrap().contains("lost in zone 1: "));
}

#[test]
fn record_that_cannot_be_written_leaves_no_file() {
    let dir = place();
    fs::create_dir(dir.path().join("r\tr")).unwrap();
    let line = format!("bench --device {DRIVE} --write-mode per-zone {JOB} --record");
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]).arg(zonal());
    limited.args(line.split(' ')).arg("r\tr").current_dir(dir.path());
    limited.env("ZONAL_RUNTIME_DIR", dir.path()).env("XDG_CONFIG_HOME", dir.path());
    let results = String::from_utf8(limited.output().unwrap().stdout).unwrap();
    assert!(
        results.contains("\nflight records: 0 in r\\tr, 1 could not be written: File too large"),
        "{results}"
    );
    assert_eq!(fs::read_dir(dir.path().join("r\tr")).unwrap().count(), 0);
}

/// A thread that serves the mount would wait for itself.
#[test]
fn record_in_the_mount_itself_is_refused() {
    let dir = place();
    fs::create_dir(dir.path().join("m")).unwrap();
    std::os::unix::fs::symlink("m", dir.path().join("link")).unwrap();
    for record in ["m", "m/r/r", "link/r", "r/../m/r"] {
        let line = format!("mount ram:size=64M m --record {record} -o scratch");
        let error = run(dir.path(), &line).refused(FAILED);
        assert!(
            error.contains(&format!("{record}: flight records cannot be written inside the mount")),
            "{error}"
        );
    }
}

#[test]
fn directory_that_cannot_be_made_is_an_error_before_the_run() {
    let dir = place();
    for line in [
        format!("bench --device {DRIVE} --record plan/r {JOB}"),
        format!("serve {DRIVE} --record plan/r --listen 127.0.0.1:0"),
        "mount ram:size=64M m --record plan/r -o scratch".to_owned(),
    ] {
        fs::create_dir_all(dir.path().join("m")).unwrap();
        let error = run(dir.path(), &line).refused(FAILED);
        assert!(error.contains("plan/r: cannot write flight records: "), "{line}: {error}");
    }
}
