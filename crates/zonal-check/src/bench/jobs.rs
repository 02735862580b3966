//! Writes of the path benchmark, through the code that runs job files.

use super::Effort;
use super::measure::{Case, Samples, interleave, time};
use super::path::{Writer, null};
use super::report::{Bound, Report};
use std::hint::black_box;
use std::time::Instant;
use zonal_bench::job::JobFile;
use zonal_bench::workload::Dir;
use zonal_bench::{BenchOptions, run};
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::volume::WriteMode;

/// Nanoseconds per write of a sequential job in `mode` without latencies.
pub(super) fn job(device: EmulatedOptions, mode: WriteMode, merge: bool, depth: u32, count: u64) -> f64 {
    timed_job(device, mode, merge, depth, count, "--gtod_reduce=1")
}

fn timed_job(
    device: EmulatedOptions,
    mode: WriteMode,
    merge: bool,
    depth: u32,
    count: u64,
    latencies: &str,
) -> f64 {
    let size = count * 4096;
    let args = [
        "--name=write".to_owned(),
        "--rw=write".to_owned(),
        "--bs=4k".to_owned(),
        "--zonemode=zbd".to_owned(),
        latencies.to_owned(),
        format!("--iodepth={depth}"),
        // One zone holds all of it.
        "--size=1z".to_owned(),
        format!("--io_size={size}"),
    ];
    let jobs = JobFile::parse_inline(args).expect("the options are right");
    let mut options = BenchOptions::new(jobs);
    options.modes = vec![mode];
    options.volume.merge = merge;
    let report = run(&|| Ok(null(device.clone())), &options).expect("the job fits the device");
    assert!(!report.is_failed(), "{}", report.to_text());
    1e9 / report.modes[0].jobs[0].dir(Dir::Write).iops()
}

/// Queue depth 1 inline, and queue depth 16 polled into one zone, without and with merging.
pub(super) fn writes(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let inline = EmulatedOptions::default().with_size(1 << 42).with_zone_size(1 << 36);
    let polled = inline.clone().with_complete(CompleteMode::Poll);
    let mut cases = [
        Case::new("direct", || job(inline.clone(), WriteMode::Direct, false, 1, count)),
        Case::new("per-zone", || job(inline.clone(), WriteMode::PerZone, false, 1, count)),
        Case::new("unmerged", || job(polled.clone(), WriteMode::PerZone, false, 16, count)),
        Case::new("merged", || job(polled.clone(), WriteMode::PerZone, true, 16, count)),
    ];
    let samples = interleave(effort.rounds.min(7), &mut cases);
    let [direct, plugged, unmerged, merged] = &samples[..] else { unreachable!("four cases") };
    let rate = Samples { rounds: plugged.rounds.iter().map(|ns| 1e3 / ns).collect() };
    let cost = plugged.against(direct, |p, d| (p - d).max(0.01));
    report.add("job, direct, in line, depth 1", "", direct, "ns", Bound::None);
    report.add("job, per-zone, in line, depth 1", "", plugged, "ns", Bound::None);
    report.add("  the plug's cost", "direct", &cost, "ns", Bound::AtMost(20.0));
    report.add("  its rate", "", &rate, "M/s", Bound::AtLeast(20.0));
    report.add("job, per-zone, polled, depth 16, unmerged", "", unmerged, "ns", Bound::None);
    report.add("job, per-zone, polled, depth 16, merged", "", merged, "ns", Bound::None);
}

/// Overhead of a job: the same writes with latencies, without latencies, and without a job.
pub(super) fn cost(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let inline = EmulatedOptions::default().with_size(1 << 42).with_zone_size(1 << 36);
    let polled = inline.clone().with_complete(CompleteMode::Poll);
    for (what, device, depth) in [("in line, depth 1", inline, 1), ("polled, depth 16", polled, 16)] {
        let mut writer = Writer::new(null(device.clone()), WriteMode::PerZone, false);
        let mut cases = [
            Case::new("clock", || {
                time(count, || {
                    (0..count).for_each(|_| {
                        black_box(Instant::now());
                    })
                })
            }),
            Case::new("no job", || {
                let ns = time(count, || writer.write(0, count, depth));
                writer.reset_all();
                ns
            }),
            Case::new("job", || {
                timed_job(device.clone(), WriteMode::PerZone, false, depth as u32, count, "--gtod_reduce=0")
            }),
        ];
        let samples = interleave(effort.rounds.min(7), &mut cases);
        let [clock, bare, job] = &samples[..] else { unreachable!("three cases") };
        let added = job.against(bare, |job, bare| job - bare);
        let beyond = added.against(clock, |added, clock| (added - clock).max(0.01));
        // As for the cost of the plug: a difference below the machine's noise counts as none.
        let added = added.against(clock, |added, _| added.max(0.01));
        report.add(&format!("what a job adds to a write, {what}"), "no job", &added, "ns", Bound::None);
        report.add("  beyond one reading of the clock", "no job", &beyond, "ns", Bound::AtMost(15.0));
    }
}
