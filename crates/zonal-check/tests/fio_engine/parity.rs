//! Comparison of `zonal bench` and fio with the engine, on equal job files.

use crate::support::{Counts, SMALL, engine, fio, run_zonal};
use serde_json::Value;
use std::path::Path;

/// Runs `jobs` with fio on the engine.
fn by_fio(engine: &Path, device: &str, jobs: &str) -> (Counts, f64) {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "[global]\nioengine=external:{}\ndevice={device}\nwrite_mode=per-zone\n{jobs}",
        engine.display()
    );
    std::fs::write(directory.path().join("job.fio"), text).unwrap();
    let run = fio(directory.path(), &["job.fio"], |_| {}).succeeded();
    let rate = ["read", "write"].iter().map(|d| run.job(0)[d]["iops"].as_f64().unwrap()).sum();
    (run.counts(), rate)
}

/// Runs `jobs` with `zonal bench`.
fn by_bench(device: &str, jobs: &str) -> (Counts, f64) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("job.fio"), jobs).unwrap();
    let arguments = ["bench", "--device", device, "--write-mode", "per-zone", "--json", "report", "job.fio"];
    run_zonal(directory.path(), &arguments).unwrap();
    let report = std::fs::read_to_string(directory.path().join("report")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let mut counts = Counts::default();
    for job in report["jobs"].as_array().unwrap() {
        counts.reads += job["read"]["total_ios"].as_u64().unwrap();
        counts.writes += job["write"]["total_ios"].as_u64().unwrap();
        counts.written += job["write"]["io_bytes"].as_u64().unwrap();
        counts.resets += job["zonal"]["zone_resets"].as_u64().unwrap();
    }
    let rate = ["read", "write"].iter().map(|d| report["jobs"][0][d]["iops"].as_f64().unwrap()).sum();
    (counts, rate)
}

fn agree(device: &str, jobs: &str) {
    let Some(engine) = engine() else { return };
    let (theirs, _) = by_fio(engine, device, jobs);
    let (ours, _) = by_bench(device, jobs);
    assert!(ours.writes + ours.reads > 0, "{jobs}");
    assert_eq!(ours, theirs, "{jobs}");
}

/// Options of all jobs.
const GLOBAL: &str = "[global]\nzonemode=zbd\nthread\ndirect=1\nbs=32k\niodepth=8\n";

/// Deterministic jobs: their operations do not depend on chance or on thread scheduling.
const JOBS: [(&str, &str); 10] = [
    ("a fill", "[a]\nrw=write\noffset=4z\nsize=8z\n"),
    ("fills with resets", "[a]\nrw=write\noffset=4z\nsize=8z\nloops=3\n"),
    ("an amount beyond the range", "[a]\nrw=write\noffset=4z\nsize=4z\nio_size=10M\n"),
    (
        "two jobs in turn over each other's zones",
        "[a]\nrw=write\noffset=4z\nsize=8z\n[b]\nstonewall\nrw=write\nbs=16k\noffset=4z\nsize=12z\n",
    ),
    (
        "clones side by side",
        "[a]\nrw=write\nnumjobs=4\noffset=4z\noffset_increment=8z\nsize=8z\nio_size=2M\nmax_open_zones=8\n",
    ),
    (
        "reads of what was written",
        "[a]\nrw=write\noffset=4z\nsize=3z\nio_size=1600k\n[b]\nstonewall\nrw=read\noffset=4z\nsize=10z\n",
    ),
    ("a verified fill", "[a]\nrw=write\noffset=4z\nsize=6z\nloops=2\nverify=crc32c\n"),
    (
        "random writes that fill a limited set",
        "[a]\nrw=randwrite\noffset=4z\nsize=6z\nverify=crc32c\nmax_open_zones=3\n",
    ),
    ("flushes between", "[a]\nrw=write\noffset=4z\nsize=4z\nfsync=5\nend_fsync=1\n"),
    ("conventional zones", "[a]\nzonemode=none\nrw=randwrite\nbs=4k\nsize=2M\niodepth=32\n"),
];

#[test]
#[ignore = "it compares runs of two programs and needs the machine to itself"]
fn ten_job_files_write_and_reset_as_much_by_fio_and_by_bench() {
    // Jobs alternate between inline and polled completion, which have different completion orders.
    for ((what, job), how) in JOBS.iter().zip(["", ",complete=poll"].iter().cycle()) {
        agree(&format!("ram:{SMALL}{how}"), &format!("# {what}\n{GLOBAL}{job}"));
    }
}

/// The device or the job limits the rate. A machine may stall during one run, so the medians of
/// alternating rounds are compared.
#[test]
#[ignore = "it measures rates"]
fn rates_set_by_device_or_job_are_the_same_within_15_percent() {
    let Some(engine) = engine() else { return };
    let slow = "null:size=128M,zone_size=16M,completion_nsec=400000";
    for (device, job) in [
        (slow, "[a]\nrw=randread\nread_beyond_wp=1\nsize=128M\niodepth=8\ntime_based\nruntime=400ms\n"),
        (slow, "[a]\nrw=write\nsize=4z\niodepth=1\ntime_based\nruntime=400ms\n"),
        ("null:size=128M,zone_size=16M", "[a]\nrw=write\nsize=4z\nrate_iops=2000\nio_size=32M\n"),
    ] {
        let jobs = format!("{GLOBAL}{job}");
        let [mut theirs, mut ours] = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            theirs.push(by_fio(engine, device, &jobs).1);
            ours.push(by_bench(device, &jobs).1);
        }
        for rates in [&mut theirs, &mut ours] {
            rates.sort_by(f64::total_cmp);
        }
        assert!((theirs[1] - ours[1]).abs() <= 0.15 * ours[1], "fio {theirs:?} and bench {ours:?}\n{jobs}");
    }
}
