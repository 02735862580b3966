//! Statistics of a file system: at rest, and while a process uses it.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program::{self, command, repository};

const DEVICE: i32 = 4;

fn zonal(dir: &Path, line: &str) -> String {
    String::from_utf8(program::run(dir, line).done()).unwrap()
}

fn json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&zonal(dir, line)).unwrap()
}

/// A directory with a drive `d` of 24 zones of 4 MiB.
fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create d --size 96M --zone-size 4M");
    dir
}

#[test]
fn file_system_at_rest_is_looked_at_and_stays_as_it_is() {
    let dir = drive();
    zonal(dir.path(), "mkfs d --label films --metadata m");
    fs::write(dir.path().join("in"), vec![7; 9 << 20]).unwrap();
    zonal(dir.path(), "put d in film --metadata m");
    let before = fs::read(dir.path().join("m")).unwrap();
    let stat = json(dir.path(), "stat d --metadata m --json");
    assert!(stat["volume"].is_null() && stat["counters"].is_null(), "{stat}");
    let files = &stat["files"];
    assert_eq!((files["label"].as_str(), files["used"].as_u64()), (Some("films"), Some(9 << 20)), "{stat}");
    assert!(files["activity"].is_null() && files["read_only"].is_null(), "{stat}");
    let zones = |state: &str| files["zones"][state].as_u64().unwrap();
    assert_eq!(zones("total"), ["free", "open", "full", "dead"].map(zones).iter().sum::<u64>(), "{stat}");
    assert_eq!((zones("total"), zones("full") + zones("open")), (22, 3), "{stat}");
    assert_eq!(files["open_zones"].as_array().map(Vec::len), Some(zones("open") as usize), "{stat}");
    let victims = files["victims"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap());
    assert_eq!(victims.sum::<u64>(), zones("full"), "{stat}");
    assert_eq!(files["resets"]["total"].as_u64(), Some(0), "{stat}");
    let text = zonal(dir.path(), "stat d --metadata m");
    assert!(text.contains("films\n") && text.contains("9 MiB used"), "{text}");
    assert!(fs::read(dir.path().join("m")).unwrap() == before, "it has not changed");
}

#[test]
fn stat_shows_reset_counts_after_files_are_removed() {
    let dir = drive();
    zonal(dir.path(), "mkfs d");
    fs::write(dir.path().join("in"), vec![7; 50 << 20]).unwrap();
    for _ in 0..3 {
        zonal(dir.path(), "put d in film");
        zonal(dir.path(), "rm d film");
    }
    let resets = &json(dir.path(), "stat d --json")["files"]["resets"];
    let of = |which: &str| resets[which].as_u64().unwrap();
    assert!(of("total") > 0 && of("most") > 0 && of("least") <= of("most"), "{resets}");
    assert!(resets["most_zone"].is_u64(), "{resets}");
}

/// A file benchmark that is stopped when dropped.
struct Bench(Child);

impl Bench {
    fn start(dir: &Path) -> Bench {
        let line = "bench --target=fs --device d --name=a --rw=randwrite --bs=1M --filesize=1M-4M --nrfiles=12 \
                    --time_based --runtime=120s";
        let mut bench = program::plain();
        bench.args(line.split_whitespace()).current_dir(dir).env("ZONAL_RUNTIME_DIR", dir);
        Bench(bench.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// First result of `look`, which is retried until it finds one.
fn soon<R>(what: &str, mut look: impl FnMut() -> Option<R>) -> R {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn stat_of_a_process_with_files_shows_collector_activity() {
    let dir = drive();
    let _bench = Bench::start(dir.path());
    let stat = soon("nothing was collected", || {
        // Without the device's name: with it, the command might open the device before the
        // benchmark does.
        let output = command(dir.path(), "stat --json").output().unwrap();
        let stat: Value = serde_json::from_slice(&output.stdout).ok()?;
        // All zones may be full or closed for a moment.
        let has_open = !stat["files"]["open_zones"].as_array()?.is_empty();
        (has_open && stat["files"]["activity"]["resets"].as_u64()? > 0).then_some(stat)
    });
    assert!(stat["counters"]["requests"].as_u64() > Some(0), "{stat}");
    let activity = &stat["files"]["activity"];
    assert!(activity["written_bytes"].as_u64() > Some(1 << 20), "{stat}");
    assert!(activity["write_amplification"].as_f64() >= Some(1.0), "{stat}");
    let text = zonal(dir.path(), "stat d");
    assert!(text.contains("\nrequests  ") && text.contains("\ncollected  "), "{text}");
    is_documented(&stat["files"]);
    let metrics = zonal(dir.path(), "stat d --metrics");
    is_exposition(&metrics);
    let sample = |line: &str| metrics.lines().any(|l| l.starts_with(line));
    assert!(sample("zonal_requests_total{device=\"image:d\"} "), "{metrics}");
    assert!(sample("zonal_files_zones{device=\"image:d\",state=\"free\"} "), "{metrics}");
    assert!(sample("zonal_files_moved_bytes_total{device=\"image:d\"} "), "{metrics}");
}

/// Each sample has a number, and follows the only header of its metric.
fn is_exposition(text: &str) {
    let mut seen = BTreeSet::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            current = kind.split(' ').next().unwrap();
            assert!(seen.insert(current), "{current} comes twice");
        } else if !line.starts_with("# HELP ") {
            let (name, rest) = line.split_once('{').unwrap();
            assert_eq!(name, current, "{line}");
            rest.rsplit_once("} ").unwrap().1.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        }
    }
    assert!(seen.len() > 30, "{text}");
}

/// The table in docs/FS.md lists exactly the existing fields.
fn is_documented(files: &Value) {
    let page = fs::read_to_string(repository().join("docs/FS.md")).unwrap();
    let table = page.split_once("| in `files` | is |").unwrap().1.split_once("\n\n").unwrap().0;
    let cells = table.lines().filter_map(|line| line.split('|').nth(1));
    let documented: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let mut found = BTreeSet::new();
    fields(files, "", &mut found);
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), documented);
}

fn fields(value: &Value, place: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
                if !value.is_object() || place == "activity" {
                    found.insert(if value.is_array() { format!("{place}[]") } else { place.clone() });
                }
                fields(value, &place, found);
            }
        }
        Value::Array(array) => {
            let first = array.first().unwrap_or_else(|| panic!("{place} is empty"));
            fields(first, &format!("{place}[]"), found);
        }
        _ => {}
    }
}

#[test]
fn stat_distinguishes_an_unformatted_device_from_a_missing_one() {
    let dir = drive();
    let refused = |line: &str| program::run(dir.path(), line).refused(DEVICE);
    let error = refused("stat d");
    assert!(
        error.contains("no running process has it open") && error.contains("no file system of Zonal"),
        "{error}"
    );
    let error = refused("stat nosuch");
    assert!(error.contains("no running process has it open"), "{error}");
    assert_eq!(error.matches("no such file").count(), 1, "{error}");
}
