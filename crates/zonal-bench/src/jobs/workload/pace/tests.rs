//! Workers in virtual time: requests take the time given by the test, and waiting is free.

use crate::job::JobFile;
use crate::jobs::plan::Plan;
use crate::jobs::workload::{Dir, Ended, Io, WorkerStep, Workload, Zones};
use std::collections::VecDeque;
use zonal_core::{Nanos, Sector};
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::volume::{WriteMode, report};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Trace of a worker.
#[derive(Default)]
struct Log {
    ios: Vec<(u64, Dir)>,
    /// Start of the measurement, and the number of I/Os before it.
    ramp: Option<(u64, usize)>,
    flushes: usize,
    spun: u64,
    end: u64,
}

impl Log {
    fn times(&self) -> Vec<u64> {
        self.ios.iter().map(|(at, _)| at / MS).collect()
    }

    fn count(&self, dir: Dir) -> usize {
        self.ios.iter().filter(|(_, d)| *d == dir).count()
    }
}

/// Runs a job of 4 KiB blocks until `until`. Each request takes `latency`.
fn run(options: &str, latency: u64, until: u64) -> Log {
    let drive = EmulatedOptions::default().with_size(64 << 20).with_zone_size(1 << 20).with_zone_nr_conv(32);
    let device = Emulated::new("null", &drive, Null).unwrap();
    let jobs = JobFile::parse_inline(format!("--name=j --bs=4k {options}").split_whitespace()).unwrap();
    let plan = Plan::new(jobs.jobs(), device.info(), WriteMode::PerZone).unwrap();
    let zones = report(&device, Sector(0), 100).unwrap();
    let zones = Zones::new(device.info().geometry, &zones, plan.zones_options(WriteMode::PerZone));
    zones.add_runnable(1);
    let mut workload = Workload::new(&plan.workers[0]).unwrap();
    let depth = plan.workers[0].spec.iodepth as usize;
    // Not zero, like a real clock.
    let mut now = 7 * SECOND;
    let begin = now;
    let mut running: VecDeque<(u64, Io)> = VecDeque::new();
    let mut log = Log::default();
    while now - begin < until {
        while running.front().is_some_and(|(end, _)| *end <= now) {
            let (_, io) = running.pop_front().unwrap();
            workload.io_ended(&io, &zones);
        }
        if running.len() >= depth {
            now = running[0].0;
            continue;
        }
        match workload.next(&zones) {
            WorkerStep::Io(io) => {
                workload.submitted(&io, &zones);
                running.push_back((now + latency, io));
                log.ios.push((now - begin, io.dir));
            }
            WorkerStep::Wait => now = running[0].0,
            step @ (WorkerStep::NotBefore(time) | WorkerStep::SpinUntil(time)) => {
                if matches!(step, WorkerStep::SpinUntil(_)) {
                    log.spun += time.0 - now;
                }
                now = now.max(time.0);
                workload.time_is(Nanos(now));
            }
            WorkerStep::Logged(_) => unreachable!("nothing is logged here"),
            WorkerStep::RampOver => log.ramp = Some((now - begin, log.ios.len())),
            WorkerStep::Flush => log.flushes += 1,
            WorkerStep::Reset(zone) => workload.ended(&Ended::Reset(zone, true), &zones),
            WorkerStep::Finish(zone) => workload.ended(&Ended::Finish(zone, true), &zones),
            WorkerStep::PassOver if !running.is_empty() => now = running[0].0,
            WorkerStep::PassOver if workload.next_pass(&zones) => {}
            WorkerStep::PassOver => break,
        }
    }
    log.end = now - begin;
    log
}

#[test]
fn job_without_pace_never_asks_for_the_time() {
    let log = run("--rw=write --size=1m", 0, 1);
    assert_eq!((log.ios.len(), log.end), (256, 0));
}

#[test]
fn rate_spaces_requests_evenly() {
    // 100 requests of 4 KiB per second.
    for options in ["--rate=400k", "--rate_iops=100", "--rate=0,400k"] {
        let log = run(&format!("--rw=write --size=32k {options}"), 0, SECOND);
        assert_eq!(log.times(), [0, 10, 20, 30, 40, 50, 60, 70], "{options}");
    }
}

#[test]
fn rate_of_iops_counts_smallest_blocks() {
    let log = run("--rw=write --size=1m --bssplit=4k:16k/100 --rate_iops=100", 0, 10 * SECOND);
    assert_eq!(log.times()[..4], [0, 40, 80, 120]);
}

#[test]
fn worker_that_was_slower_than_its_rate_catches_up() {
    // The first request takes 50 ms. Five more become due meanwhile.
    let log = run("--rw=write --size=64k --rate_iops=100 --fsync=0", 0, SECOND);
    assert_eq!(log.ios.len(), 16);
    let slow = run("--rw=write --size=64k --rate_iops=100", 50 * MS, 10 * SECOND);
    assert_eq!(slow.times()[..3], [0, 50, 100], "a device below the rate is not held back");
}

#[test]
fn unlimited_direction_proceeds_while_the_other_is_throttled() {
    let log = run("--rw=rw --size=16m --rate=,400k --time_based --runtime=9", MS, SECOND);
    assert!((100..=101).contains(&log.count(Dir::Write)), "{}", log.count(Dir::Write));
    assert!(log.count(Dir::Read) > 850, "{}", log.count(Dir::Read));
}

#[test]
fn mixed_rates_are_both_reached() {
    let log = run("--rw=randrw --norandommap --size=16m --rate_iops=300,100", 0, SECOND);
    assert!((300..=301).contains(&log.count(Dir::Read)), "{}", log.count(Dir::Read));
    assert!((100..=101).contains(&log.count(Dir::Write)), "{}", log.count(Dir::Write));
}

#[test]
fn share_of_zero_never_takes_the_others_turn() {
    let log = run("--rw=rw --rwmixread=100 --size=16m --rate=400k,0", 0, SECOND);
    assert_eq!(log.count(Dir::Write), 0);
    assert_eq!(log.count(Dir::Read), 100);
}

#[test]
fn poisson_process_has_the_mean_and_the_spread() {
    let log = run("--rw=write --size=16m --rate_iops=1000 --rate_process=poisson", 0, 10 * SECOND);
    let count = log.ios.len() as f64;
    assert!((count / (log.end as f64 / SECOND as f64) - 1000.0).abs() < 70.0, "{count} in {}", log.end);
    let gaps: Vec<f64> = log.ios.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64 / MS as f64).collect();
    let long = gaps.iter().filter(|&&gap| gap > 1.0).count() as f64 / gaps.len() as f64;
    assert!((long - (-1f64).exp()).abs() < 0.05, "{long} of the gaps are longer than their mean");
}

#[test]
fn pause_follows_each_request_or_so_many() {
    let log = run("--rw=write --size=16k --thinktime=5ms", MS, SECOND);
    assert_eq!(log.times(), [0, 6, 12, 18]);
    assert_eq!(log.end, 24 * MS, "fio pauses after the last one, too");
    let log = run("--rw=write --size=32k --thinktime=5ms --thinktime_blocks=4", MS, SECOND);
    assert_eq!(log.times(), [0, 1, 2, 3, 9, 10, 11, 12]);
}

#[test]
fn pause_begins_when_nothing_is_in_flight() {
    let options = "--rw=write --size=64k --thinktime=5ms --thinktime_blocks=4 --iodepth=8";
    // By issue: the pause is due after the fourth I/O and starts when all four have completed.
    let log = run(&format!("{options} --thinktime_blocks_type=issue"), 10 * MS, SECOND);
    assert_eq!(log.times(), [vec![0; 4], vec![15; 4], vec![30; 4], vec![45; 4]].concat());
    // By completion: the queue fills first, and completions while it drains count towards the next
    // pause.
    let log = run(options, 10 * MS, SECOND);
    assert_eq!(log.times()[..9], [0, 0, 0, 0, 0, 0, 0, 0, 15]);
}

#[test]
fn pause_that_spins_keeps_the_processor_busy_at_first() {
    let log = run("--rw=write --size=16k --thinktime=5ms --thinktime_spin=2ms", MS, SECOND);
    assert_eq!((log.spun, log.end), (8 * MS, 24 * MS));
    let log = run("--rw=write --size=16k --thinktime=5ms --thinktime_spin=2s", MS, SECOND);
    assert_eq!((log.spun, log.end), (20 * MS, 24 * MS));
}

#[test]
fn pause_by_time_takes_the_place_of_the_count() {
    let log = run("--rw=write --size=1m --thinktime=5ms --thinktime_iotime=20ms", MS, SECOND);
    // As in fio, due when `thinktime_iotime` and one pause have passed since the last one.
    assert_eq!(log.times()[24..27], [24, 30, 31]);
    let both = "--rw=write --size=1m --thinktime=5ms --thinktime_iotime=20ms --thinktime_blocks=8";
    assert_eq!(run(both, MS, SECOND).times()[7..9], [7, 13]);
}

#[test]
fn rate_catches_up_after_a_pause() {
    let log = run("--rw=write --size=40k --rate_iops=100 --thinktime=35ms --thinktime_blocks=5", 0, SECOND);
    assert_eq!(log.times(), [0, 10, 20, 30, 40, 75, 75, 75, 80, 90]);
}

#[test]
fn ramp_ends_once_and_rates_start_anew() {
    let log = run("--rw=write --size=16m --rate_iops=100 --ramp_time=995ms", 0, 2 * SECOND);
    assert_eq!(log.ramp, Some((995 * MS, 100)));
    assert_eq!(log.times()[99..102], [990, 995, 1005]);
}

#[test]
fn worker_is_free_behind_its_ramp() {
    let log = run("--rw=write --size=1m --ramp_time=100ms", MS, SECOND);
    assert_eq!((log.ios.len(), log.ramp, log.end), (256, Some((100 * MS, 100)), 256 * MS));
}

#[test]
fn counts_of_flushes_start_anew_behind_the_ramp() {
    let log = run("--rw=write --size=128k --fsync=10 --ramp_time=5ms", MS, SECOND);
    // 32 writes, 5 of them before the ramp ends.
    assert_eq!((log.ios.len(), log.flushes), (32, 2));
}
