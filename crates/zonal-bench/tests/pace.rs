//! Rates, pauses and `ramp_time` in real time. Only minimum durations are certain on a machine with
//! other work.

mod support;

use std::time::{Duration, Instant};
use support::{job, null, options, polled, run_on};
use zonal_bench::JobReport;
use zonal_bench::workload::Dir;
use zonal_io::volume::WriteMode;

fn run(arguments: &str) -> JobReport {
    let report = run_on(&null(&options()), WriteMode::PerZone, &format!("--name=j --bs=4k {arguments}"));
    job(&report, 0).clone()
}

#[test]
fn rate_is_kept() {
    let report = run("--rw=write --zonemode=zbd --offset=4z --size=1z --io_size=200k --rate_iops=500");
    assert_eq!(report.dir(Dir::Write).ios, 50);
    // The last of 50 requests is issued after 98 ms.
    assert!(report.elapsed >= Duration::from_millis(98), "{:?}", report.elapsed);
    assert!(report.dir(Dir::Write).iops() < 520.0);
}

#[test]
fn rate_is_kept_at_depth_and_by_each_clone() {
    let device = null(&polled());
    let arguments = "--name=j --bs=4k --rw=randread --size=200k --rate=1m --iodepth=16 --numjobs=2";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    for clone in 0..2 {
        let report = job(&report, clone);
        assert_eq!(report.dir(Dir::Read).ios, 50);
        assert!(report.elapsed >= Duration::from_millis(190), "{:?}", report.elapsed);
    }
}

#[test]
fn pauses_take_their_time() {
    let pauses =
        "--rw=write --zonemode=zbd --offset=4z --size=1z --io_size=80k --thinktime=2ms --thinktime_blocks=2";
    let report = run(pauses);
    assert!(report.elapsed >= Duration::from_millis(20), "{:?}", report.elapsed);
    let report = run(&format!("{pauses} --thinktime_spin=2ms"));
    assert!(report.elapsed >= Duration::from_millis(20), "{:?}", report.elapsed);
}

#[test]
fn stop_ends_a_pause() {
    let report = run("--rw=read --size=8k --thinktime=1000s --time_based --runtime=20ms");
    assert_eq!(report.dir(Dir::Read).ios, 1);
    assert!(report.elapsed < Duration::from_secs(100), "{:?}", report.elapsed);
}

/// Only checks that the ramp has passed. `virtual_time.rs` checks a run with a ramp exactly.
#[test]
fn runtime_begins_after_the_ramp() {
    let begin = Instant::now();
    let report = run("--rw=read --size=8m --time_based --runtime=100ms --ramp_time=100ms --thinktime=1ms");
    let whole = begin.elapsed();
    assert!(whole >= Duration::from_millis(200), "{whole:?}");
    let outside = whole - report.elapsed;
    assert!(outside >= Duration::from_millis(100), "{outside:?} of the run do not count");
    // There is a pause between two reads.
    let reads_max = report.elapsed.as_millis() as u64 + 2;
    assert!(report.dir(Dir::Read).ios <= reads_max, "{} of {reads_max}", report.dir(Dir::Read).ios);
}

#[test]
fn job_that_ends_within_its_ramp_is_reported_whole() {
    let report = run("--rw=read --size=400k --ramp_time=1000");
    assert_eq!(report.dir(Dir::Read).ios, 100);
}

#[test]
fn rate_below_its_bound_fails_the_job() {
    let arguments =
        "--name=j --bs=4k --rw=read --size=64m --rate_iops_min=200 --thinktime=10ms --rate_cycle=200";
    let report = run_on(&null(&options()), WriteMode::PerZone, arguments);
    let job = &report.modes[0].jobs[0];
    let failure = job.failure.as_ref().expect("a hundred are fewer than two hundred").to_string();
    assert!(failure.starts_with("rate_iops_min of 200 not met by reads: "), "{failure}");
    assert!(job.elapsed >= Duration::from_millis(2200), "{:?}", job.elapsed);
    let met = run("--rw=read --size=1m --rate_min=1");
    assert_eq!(met.dir(Dir::Read).ios, 256);
}
