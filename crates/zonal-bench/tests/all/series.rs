//! Series over time agree with the totals, and cost nothing unless requested.

use crate::support;
use crate::support::{Fault, jobs, memory, null, options, polled, run_on};
use std::sync::Arc;
use zonal_bench::series::{BUCKETS_MAX, PositionSeries};
use zonal_bench::workload::Dir;
use zonal_bench::{BenchOptions, JobReport, Reopen, Report, run};
use zonal_core::{Nanos, SECTOR_BYTES, ZoneCondition};
use zonal_io::device::Device;
use zonal_io::volume::WriteMode;

const MIX: &str = "--name=mix --rw=randrw --zonemode=zbd --bs=4k --offset=4z --size=16z --io_size=2M --iodepth=4 --numjobs=2 \
                   --name=fill --stonewall --rw=write --zonemode=zbd --bs=64k --offset=8z --size=4z --gtod_reduce=1";

fn recorded(device: &Arc<dyn Device>, mode: WriteMode, arguments: &str) -> Report {
    let mut options = BenchOptions::new(jobs(arguments));
    options.modes = vec![mode];
    options.reopen = Reopen::Same;
    options.series = true;
    run(&|| Ok(device.clone()), &options).unwrap()
}

/// First and last sector touched.
fn ends(positions: &PositionSeries) -> Option<(u64, u64)> {
    let buckets = || positions.buckets().iter().map(|(_, b)| b).filter(|b| b.count > 0);
    Some((buckets().map(|b| b.min.0).min()?, buckets().map(|b| b.max.0).max()?))
}

/// Checks that every request in the totals is in the series, with its bytes, at a time within the
/// run.
fn check(job: &JobReport) {
    assert_eq!(job.failure, None);
    let series = job.series.as_ref().expect("series were asked for");
    for dir in [Dir::Read, Dir::Write] {
        let (flow, total) = (series.flow(dir), job.dir(dir));
        let bytes: u64 = flow.iter().map(|(_, bucket)| bucket.bytes).sum();
        assert_eq!((flow.ios(), bytes), (total.ios, total.bytes), "{} {dir:?}", job.name);
        let places: u64 = series.position(dir).buckets().iter().map(|(_, b)| b.count).sum();
        assert_eq!(places, total.ios, "{} {dir:?}", job.name);
        assert!(flow.len() <= BUCKETS_MAX);
    }
}

#[test]
fn series_add_up_to_the_totals() {
    for mode in [WriteMode::PerZone, WriteMode::Append, WriteMode::ZoneLock, WriteMode::Direct] {
        for device in [null(&options()), null(&polled())] {
            let report = recorded(&device, mode, MIX);
            let jobs = &report.modes[0].jobs;
            assert_eq!(jobs.len(), 3);
            jobs.iter().for_each(check);
        }
    }
}

#[test]
fn series_of_a_verified_job_hold_its_checking_reads_too() {
    let device = memory(&options(), Fault::None);
    let report = recorded(
        &device,
        WriteMode::Append,
        "--name=v --rw=randwrite --zonemode=zbd --bs=4k --offset=4z --size=4z --io_size=1M --iodepth=8 --verify=crc32c",
    );
    check(&report.modes[0].jobs[0]);
    assert!(report.modes[0].jobs[0].dir(Dir::Read).ios > 0);
}

#[test]
fn series_exclude_the_ramp_time() {
    let report = recorded(
        &null(&options()),
        WriteMode::PerZone,
        "--name=r --rw=write --zonemode=zbd --bs=4k --offset=4z --size=4z --time_based --runtime=100ms --ramp_time=50ms",
    );
    check(&report.modes[0].jobs[0]);
    let series = report.modes[0].jobs[0].series.as_ref().unwrap();
    let busy = series.flow(Dir::Write).iter().find(|(_, bucket)| bucket.ios > 0);
    let (time, _) = busy.unwrap();
    assert!(time.end >= Nanos(50_000_000), "{time:?}");
}

#[test]
fn places_are_those_of_the_jobs_zones() {
    let zone = support::ZONE / SECTOR_BYTES;
    for mode in [WriteMode::PerZone, WriteMode::Append] {
        let line = "--name=w --rw=write --zonemode=zbd --bs=64k --offset=8z --size=4z";
        let report = recorded(&null(&options()), mode, line);
        let series = report.modes[0].jobs[0].series.as_ref().unwrap();
        let (low, high) = ends(series.position(Dir::Write)).unwrap();
        assert_eq!((low, high), (8 * zone, 12 * zone - 128), "{mode}");
        assert_eq!(ends(series.position(Dir::Read)), None);
    }
}

#[test]
fn rounds_follow_each_other_on_one_axis() {
    let report = recorded(&null(&options()), WriteMode::PerZone, MIX);
    let jobs = &report.modes[0].jobs;
    let times = |job: &JobReport| {
        let series = job.series.as_ref().unwrap();
        let busy: Vec<_> =
            series.flow(Dir::Write).iter().filter(|(_, b)| b.ios > 0).map(|(t, _)| t).collect();
        (busy[0].start, busy[busy.len() - 1].end)
    };
    let (_, first_ends) = times(&jobs[0]).max(times(&jobs[1]));
    let (_, second_ends) = times(&jobs[2]);
    assert!(second_ends > first_ends, "{second_ends:?} is not behind {first_ends:?}");
}

#[test]
fn zone_map_shows_the_state_left_by_the_jobs() {
    let line = "--name=w --rw=write --zonemode=zbd --bs=64k --offset=8z --size=4z --io_size=2624k";
    let report = recorded(&null(&options()), WriteMode::PerZone, line);
    let map = report.modes[0].series.as_ref().unwrap().zones.as_ref().unwrap();
    let runs: Vec<_> = map.runs.iter().map(|run| (run.zones, run.condition, run.fill)).collect();
    let (full, open, empty) = (ZoneCondition::Full, ZoneCondition::ImpOpen, ZoneCondition::Empty);
    let begun = [(4, ZoneCondition::NotWp, 0), (4, empty, 0), (2, full, 100), (1, open, 56), (53, empty, 0)];
    assert_eq!(runs, begun);
}

#[test]
fn nobody_asked_keeps_no_series() {
    let small = options().with_zone_nr_conv(0);
    let report =
        run_on(&null(&small), WriteMode::PerZone, "--name=w --rw=write --zonemode=zbd --bs=64k --size=2z");
    let mode = &report.modes[0];
    assert!(mode.series.is_none() && mode.jobs.iter().all(|job| job.series.is_none()));
}
