//! The same writes through the machinery that runs job files.

use super::Effort;
use super::measure::{Case, Samples, interleave};
use super::path::null;
use super::report::{Bound, Report};
use zonal_bench::job::JobFile;
use zonal_bench::workload::Dir;
use zonal_bench::{BenchOptions, run};
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::volume::WriteMode;

/// Nanoseconds a write of a sequential job in `mode`.
pub(super) fn job(device: EmulatedOptions, mode: WriteMode, merge: bool, depth: u32, count: u64) -> f64 {
    let size = count * 4096;
    let args = [
        "--name=write".to_owned(),
        "--rw=write".to_owned(),
        "--bs=4k".to_owned(),
        "--zonemode=zbd".to_owned(),
        "--gtod_reduce=1".to_owned(),
        format!("--iodepth={depth}"),
        // One zone takes it all.
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

/// Depth 1 in line, and depth 16 polled into one zone, merging off and on.
pub(super) fn writes(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let inline = EmulatedOptions { size: 1 << 42, zone_size: 1 << 36, ..EmulatedOptions::default() };
    let polled = EmulatedOptions { complete: CompleteMode::Poll, ..inline.clone() };
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
