//! Jobs in virtual time: the same jobs, on one thread, with a clock that jumps.

use crate::support;
use crate::support::*;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zonal_bench::job::{Direction, Extent};
use zonal_bench::workload::Dir;
use zonal_bench::{BenchError, BenchOptions, Detail, Failure, HostRules, JobReport, Reopen, Report, run};
use zonal_io::device::Device;
use zonal_io::linear::Linear;
use zonal_io::volume::WriteMode;
use zonal_sim::profile::Profile;

const MICROS: u64 = 1000;

fn on(device: &Arc<Timeless>, arguments: &str) -> Report {
    let device: Arc<dyn Device> = device.clone();
    run_on(&device, WriteMode::PerZone, arguments)
}

fn error_on(device: &Arc<Timeless>, arguments: &str) -> BenchError {
    let device: Arc<dyn Device> = device.clone();
    try_run(&device, &[WriteMode::PerZone], arguments).unwrap_err()
}

/// Writes of `blocks` blocks of 4 KiB to zones.
fn writes(blocks: u64) -> String {
    format!("--name=w --rw=write --zonemode=zbd --bs=4k --offset=8z --size=16z --io_size={}", blocks * 4096)
}

fn lat(report: &Report, n: usize) -> (u64, u64) {
    let lat = job(report, n).dir(Dir::Write).lat.as_ref().unwrap();
    (lat.min(), lat.max())
}

#[test]
fn times_are_the_devices_to_the_nanosecond() {
    let report = on(&timeless(10 * MICROS, options()), &writes(100));
    let job = job(&report, 0);
    assert_eq!(job.elapsed, Duration::from_micros(1000));
    assert_eq!(lat(&report, 0), (10_000, 10_000));
    assert_eq!(job.dir(Dir::Write).iops(), 100_000.0);
    assert_eq!((job.user, job.system, job.switches), (Duration::ZERO, Duration::ZERO, 0));
    assert!(report.modes[0].is_virtual);
    assert!(report.to_text().contains("times are virtual"), "{}", report.to_text());
}

#[test]
fn depth_is_kept_in_zones_of_their_own() {
    let arguments = "--name=w --rw=write --zonemode=zbd --bs=4k --iodepth=4 --numjobs=16 --offset=8z --size=1z \
                     --offset_increment=1z --io_size=64k";
    let report = on(&timeless(10 * MICROS, options()), arguments);
    let jobs = &report.modes[0].jobs;
    assert_eq!(jobs.len(), 16);
    for job in jobs {
        // One write is issued. The three behind it wait for the zone and share the next command.
        assert_eq!(job.dir(Dir::Write).ios, 16);
        assert!(job.elapsed <= Duration::from_micros(110), "{:?}", job.elapsed);
    }
}

/// Each disk of a concatenation has a write at its head, as if it were alone.
#[test]
fn streams_in_mode_qd1_on_two_disks_have_the_rates_of_both() {
    let disk = || Profile::open("smr-hdd-30t", &[("size", "16G")]).unwrap().simulated("disk").unwrap();
    let stream = |name: &str, first: u32| {
        format!("--name={name} --rw=write --zonemode=zbd --bs=1M --iodepth=4 --offset={first}z --size=4z")
    };
    let alone = run_on(&disk(), WriteMode::Qd1, &stream("a", 0));
    let both: Arc<dyn Device> = Arc::new(Linear::concat([disk(), disk()]).unwrap());
    let both = run_on(&both, WriteMode::Qd1, &format!("{} {}", stream("a", 0), stream("b", 64)));
    let rate = |report: &Report, n| job(report, n).dir(Dir::Write).iops();
    for n in [0, 1] {
        let share = rate(&both, n) / rate(&alone, 0);
        assert!((0.98..1.02).contains(&share), "stream {n}: {share} of a disk's rate");
    }
}

/// In mode per-zone the last writes of a zone alternate with the first ones of the next zone.
#[test]
fn moves_of_a_disks_head_are_reported_by_mode() {
    let stream = "--name=a --rw=write --zonemode=zbd --bs=1M --iodepth=32 --size=4z";
    let disk = || Profile::open("smr-hdd-30t", &[("size", "16G")]).unwrap().simulated("disk").unwrap();
    let of = |mode| {
        let report = run_on(&disk(), mode, stream);
        let moves = report.modes[0].head_moves.unwrap();
        let json: serde_json::Value = serde_json::from_str(&report.to_json(Detail::Plain)).unwrap();
        let head = &json["zonal"]["modes"][0]["head"];
        assert_eq!(head["seeks"], moves.seeks);
        assert_eq!(head["positioning_ns"], moves.positioning_ns);
        let line = format!("  head: seeks={}, zone changes={},", moves.seeks, moves.zone_changes);
        assert!(report.to_text().contains(&line), "{}", report.to_text());
        let page = report.to_html(&zonal_bench::About::default());
        assert!(page.contains("<h2>Movements of the head</h2>") && page.contains("missed rotations"));
        moves
    };
    let (single, zones) = (of(WriteMode::Qd1), of(WriteMode::PerZone));
    assert!(single.seeks <= 1 && single.zone_changes == 3, "{single:?}");
    assert!(zones.seeks > 3 * 30 && zones.zone_changes > 3 * 30, "{zones:?}");
    assert!(zones.positioning_ns > 10 * single.positioning_ns, "{zones:?}, {single:?}");
    // Nothing is reported for a device without a head.
    let flash = Profile::open("zns-1t", &[("size", "16G")]).unwrap().simulated("flash").unwrap();
    let report = run_on(
        &flash,
        WriteMode::PerZone,
        "--name=a --rw=write --zonemode=zbd --bs=1M --size=1z --io_size=8M",
    );
    assert!(report.modes[0].head_moves.is_none() && !report.to_text().contains("  head:"));
    assert!(!report.to_html(&zonal_bench::About::default()).contains("Movements of the head"));
}

#[test]
fn host_cost_makes_a_worker_a_serial_processor() {
    let device: Arc<dyn Device> = timeless(10 * MICROS, options());
    let elapsed = |nanos: u64, depth: u32| {
        let arguments = "--name=r --rw=read --bs=4k --size=400k --slat_percentiles=1";
        let mut options = BenchOptions::new(jobs(&format!("{arguments} --iodepth={depth}")));
        options.host_nanos_per_io = Some(nanos);
        let report = run(&|| Ok(device.clone()), &options).unwrap();
        (job(&report, 0).elapsed.as_nanos() as u64, report)
    };
    assert_eq!(elapsed(0, 1).0, 100 * 10_000);
    let (took, report) = elapsed(2000, 1);
    assert_eq!(took, 100 * 12_000);
    let slat = job(&report, 0).dir(Dir::Read).slat.as_ref().unwrap();
    assert_eq!((slat.min(), slat.max()), (2000, 2000));
    // At a queue depth that hides the device, the processor is the bottleneck.
    assert_eq!(elapsed(2000, 32).0, 100 * 2000 + 10_000);
}

#[test]
fn hour_takes_no_hour() {
    let begin = Instant::now();
    let arguments = "--name=t --rw=write --zonemode=zbd --bs=4k --offset=8z --size=16z --time_based --runtime=3600 \
                     --rate_iops=10 --ramp_time=100";
    let report = on(&timeless(10 * MICROS, options()), arguments);
    assert_eq!(job(&report, 0).elapsed, Duration::from_secs(3600));
    let write = job(&report, 0).dir(Dir::Write);
    assert_eq!(write.ios, 36_000);
    // Samples are taken every half second. The first one marks the start of the measurement.
    assert!(write.rate.count() == 7200, "{}", write.rate.count());
    assert!((write.rate.mean() - 10.0).abs() < 1e-9, "{}", write.rate.mean());
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn pauses_and_rates_are_exact() {
    let device = timeless(10 * MICROS, options());
    let report = on(&device, &format!("{} --thinktime=1000", writes(10)));
    // 10 us each, and a pause of 1 ms after each.
    assert_eq!(job(&report, 0).elapsed, Duration::from_micros(10 * 10 + 10 * 1000));
    let report =
        on(&device, &format!("{} --thinktime=1000 --thinktime_spin=400 --thinktime_blocks=5", writes(10)));
    assert_eq!(job(&report, 0).elapsed, Duration::from_micros(10 * 10 + 2 * 1000));
    let report = on(&device, &format!("{} --rate_iops=1000", writes(10)));
    assert_eq!(job(&report, 0).elapsed, Duration::from_micros(9 * 1000 + 10));
}

#[test]
fn requests_during_the_ramp_are_not_counted() {
    let device = timeless(10 * MICROS, options());
    let report = on(
        &device,
        "--name=j --bs=4k --rw=write --zonemode=zbd --offset=4z --size=1z --io_size=400k --rate_iops=500 --ramp_time=100ms",
    );
    // One write every 2 ms: fifty during the ramp, and fifty from 100 to 198 ms.
    let found = job(&report, 0);
    assert_eq!(found.dir(Dir::Write).ios, 50);
    assert_eq!(found.elapsed, Duration::from_micros(98 * 1000 + 10));
    assert_eq!(found.dir(Dir::Write).clat.as_ref().unwrap().count(), 50);
    assert_eq!(found.depths.iter().sum::<u64>(), 50);
    let line =
        "--name=j --bs=4k --rw=read --size=8m --time_based --runtime=100ms --ramp_time=100ms --thinktime=1ms";
    let report = on(&device, line);
    // One read every 1.01 ms. The last one of the ramp completes at 99.99 ms, and 99 complete
    // within the following 100 ms.
    let found = job(&report, 0);
    assert_eq!(found.dir(Dir::Read).ios, 99);
    assert_eq!(found.elapsed, Duration::from_millis(100));
}

#[test]
fn loops_flushes_and_reads_work() {
    let device = timeless(10 * MICROS, options());
    let arguments =
        "--name=l --rw=write --zonemode=zbd --bs=64k --offset=8z --size=2z --loops=3 --fsync=4 --end_fsync=1";
    let report = on(&device, arguments);
    let written = job(&report, 0);
    assert_eq!((written.dir(Dir::Write).ios, written.resets), (96, 4));
    assert_eq!(written.flushes, 24 + 3);
    let report = on(
        &device,
        "--name=m --rw=randrw --zonemode=zbd --bs=4k --offset=8z --size=2z --iodepth=8 --io_size=1M",
    );
    let mixed = job(&report, 0);
    assert_eq!(mixed.dir(Dir::Read).ios + mixed.dir(Dir::Write).ios, 256);
}

#[test]
fn blocks_are_verified_in_virtual_time() {
    let inside = memory(&polled().with_completion_nsec(5000), Fault::None);
    let device: Arc<dyn Device> = Timeless::new(inside);
    let arguments = "--name=v --rw=randwrite --zonemode=zbd --bs=4k --iodepth=8 --numjobs=3 --offset=8z --size=4z \
                     --io_size=1M --verify=crc32c";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert!(!report.is_failed(), "{}", report.to_text());
    assert!(report.modes[0].verify.as_ref().unwrap().blocks > 0);
    let inside = memory(&polled().with_completion_nsec(5000), Fault::Drop { zone: 9, offset: 8 });
    let device: Arc<dyn Device> = Timeless::new(inside);
    assert!(run_on(&device, WriteMode::PerZone, arguments).is_failed());
}

#[test]
fn failure_that_ends_all_stops_the_others() {
    let inside = memory(&polled().with_completion_nsec(5000), Fault::Fail { zone: 8, offset: 80 });
    let device: Arc<dyn Device> = Timeless::new(inside);
    let arguments = "--name=bad --rw=write --zonemode=zbd --bs=4k --offset=8z --size=1z --exitall_on_error=1 \
                     --name=good --rw=write --zonemode=zbd --bs=4k --offset=20z --size=1z --time_based --runtime=100";
    let report = try_run(&device, &[WriteMode::PerZone], arguments).unwrap();
    let jobs = &report.modes[0].jobs;
    assert!(matches!(jobs[0].failure, Some(Failure::Request { .. })));
    assert!(jobs[1].elapsed < Duration::from_secs(1), "{:?}", jobs[1].elapsed);
}

/// The complete report of a job, except for the time at which the run started.
fn told(report: &Report) -> String {
    let mut json: serde_json::Value = serde_json::from_str(&report.to_json(Detail::Bins)).unwrap();
    for key in ["timestamp", "timestamp_ms", "time"] {
        json.as_object_mut().unwrap().remove(key);
    }
    json.to_string()
}

#[test]
fn same_jobs_say_the_same_to_the_byte() {
    let arguments = "--name=a --rw=randwrite --zonemode=zbd --bs=4k --iodepth=8 --numjobs=4 --offset=8z --size=16z \
                     --io_size=1M --max_open_zones=6 --name=b --rw=randread --bs=4k --iodepth=16 --io_size=1M --size=8M \
                     --name=c --rw=randrw --zonemode=zbd --bsrange=4k-64k --offset=24z --size=8z --io_size=4M --rate_iops=5000";
    let once = || {
        let device = timeless(10 * MICROS, options());
        let report = on(&device, arguments);
        assert!(!report.is_failed());
        let writes = device.writes.lock().unwrap().clone();
        (told(&report), writes)
    };
    let (first, second) = (once(), once());
    assert_eq!(first.0, second.0);
    assert_eq!(first.1, second.1);
    assert!(first.1.len() > 200);
}

/// Writes to each zone in order, as offset and length.
type ByZone = Vec<Vec<(u64, u32)>>;

/// Reads, writes, bytes, resets and finishes of each job, and the writes to each zone.
fn outcome(report: &Report, device: &Timeless) -> (Vec<[u64; 6]>, ByZone) {
    let numbers = |job: &JobReport| {
        let [read, write] = &job.dirs;
        [read.ios, read.bytes, write.ios, write.bytes, job.resets, job.finishes]
    };
    let mut zones = vec![Vec::new(); 64];
    for &(sector, sectors) in device.writes.lock().unwrap().iter() {
        zones[(sector * 512 / ZONE) as usize].push((sector, sectors));
    }
    (report.modes[0].jobs.iter().map(numbers).collect(), zones)
}

#[test]
fn real_and_virtual_time_do_the_same() {
    // No merging, since it depends on timing. Each zone has one writer, which determines the order.
    let arguments = "--name=a --rw=randwrite --zonemode=zbd --bs=4k --iodepth=8 --offset=8z --size=8z --io_size=2M \
                     --name=b --rw=write --zonemode=zbd --bs=16k --iodepth=4 --offset=16z --size=4z --loops=2 \
                     --name=c --rw=randwrite --zonemode=zbd --bsrange=4k-64k --offset=24z --size=8z --io_size=4M";
    let outcome_on = |device: Arc<Timeless>| {
        let opened: Arc<dyn Device> = device.clone();
        let mut options = BenchOptions::new(jobs(arguments));
        options.volume.merge = false;
        let report = run(&|| Ok(opened.clone()), &options).unwrap();
        outcome(&report, &device)
    };
    let virtual_time = outcome_on(timeless(10 * MICROS, options()));
    let real = Timeless::new_real(null(&polled()));
    assert_eq!(outcome_on(real), virtual_time);
}

#[test]
fn jobs_share_zones_in_virtual_time() {
    let arguments = "--name=s --rw=write --zonemode=zbd --bs=4k --iodepth=32 --numjobs=16 --offset=8z --size=8z \
                     --io_size=2M --max_open_zones=4 --group_reporting";
    for mode in [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Direct, WriteMode::ZoneLock] {
        let device: Arc<dyn Device> = timeless(10 * MICROS, options());
        let report = run_on(&device, mode, arguments);
        assert_eq!(job(&report, 0).dir(Dir::Write).ios, 16 * 512, "{mode}");
    }
}

/// A zone opened before it is held may be full by then, and no worker would close it.
#[test]
fn full_zones_do_not_stay_open_by_fios_rule() {
    for (open, seed) in (2..6).flat_map(|open| (1..5).map(move |seed| (open, seed))) {
        let device: Arc<dyn Device> = timeless(10 * MICROS, options());
        let arguments = format!(
            "--name=s --rw=randwrite --zonemode=zbd --bs=16k --iodepth=32 --numjobs=16 --offset=8z --size=48z \
             --io_size=8M --max_open_zones={open} --randseed={seed} --group_reporting"
        );
        let report = run_as(&device, WriteMode::PerZone, HostRules::Fio, &arguments);
        let written = job(&report, 0).dir(Dir::Write).ios;
        assert_eq!(written, 16 * 512, "{open} zones open, seed {seed}: {}", report.to_text());
    }
}

#[test]
fn jobs_that_wait_for_nothing_are_named() {
    let device = timeless(10 * MICROS, options());
    device.left.store(100, Ordering::Relaxed);
    let arguments = "--name=stuck --rw=write --zonemode=zbd --bs=4k --offset=8z --size=1z \
                     --name=also --rw=write --zonemode=zbd --bs=4k --offset=9z --size=1z --time_based --runtime=10";
    let error = error_on(&device, arguments);
    let BenchError::Deadlock { at, jobs } = &error else { panic!("{error}") };
    assert_eq!(*at, Duration::from_secs(10), "the second job could still be stopped");
    assert_eq!(jobs, &["stuck waits for its requests", "also waits for its requests"]);
    let said = error.to_string();
    assert!(said.contains("stuck waits for its requests, also waits"), "{said}");
}

/// With nothing in flight, no event would make the write path retry the command.
#[test]
fn command_that_a_quiet_device_is_too_busy_for_is_offered_again() {
    let device: Arc<dyn Device> = timeless(10 * MICROS, options());
    let busy = |count: &str| {
        let mut options = BenchOptions::new(jobs(&writes(8)));
        options.modes = vec![WriteMode::PerZone];
        let rule = format!("[[rule]]\non = \"writes\"\nskip = 3\n{count}\nfault = \"busy\"\n");
        options.fault = Some(zonal_io::fault::Plan::parse(&rule).unwrap());
        run(&|| Ok(device.clone()), &options)
    };
    let report = busy("count = 100").unwrap();
    assert_eq!(job(&report, 0).dir(Dir::Write).ios, 8);
    let error = busy("").unwrap_err();
    assert!(matches!(error, BenchError::Deadlock { .. }), "{error}");
}

#[test]
fn job_that_only_time_ends_ends_where_no_time_passes() {
    let device = Timeless::new(null(&options()));
    let arguments = "--name=e --rw=read --bs=4k --size=1M --time_based --runtime=10";
    let error = error_on(&device, arguments);
    assert!(matches!(error, BenchError::Endless { .. }), "{error}");
    assert!(error.to_string().contains("e runs"), "{error}");
    assert_eq!(job(&on(&device, "--name=e --rw=read --bs=4k --size=1M"), 0).elapsed, Duration::ZERO);
}

#[test]
fn end_beyond_all_bounds_is_an_error() {
    let device = timeless(10 * MICROS, options());
    device.left.store(3, Ordering::Relaxed);
    let error = error_on(&device, &format!("{} --time_based --runtime=400d", writes(9)));
    assert!(matches!(error, BenchError::Endless { .. }), "{error}");
    assert!(error.to_string().contains("w waits for its requests"), "{error}");
}

fn any_job() -> impl Strategy<Value = String> {
    let rw = prop_oneof![Just("write"), Just("randwrite"), Just("randrw"), Just("rw")];
    let pace = prop_oneof![
        4 => Just(""), 1 => Just("--rate_iops=3000"), 1 => Just("--thinktime=50"), 1 => Just("--fsync=7"),
    ];
    (rw, 1u32..40, 1u32..4, 0u32..5, 8u32..20, 1u32..6, pace, 1u32..64).prop_map(
        |(rw, depth, clones, open, offset, zones, pace, blocks)| {
            let open = if open == 0 { String::new() } else { format!("--max_open_zones={}", open + 8) };
            let amount = blocks * 16384;
            format!(
                "--rw={rw} --zonemode=zbd --bs=4k,8k --iodepth={depth} --numjobs={clones} --offset={offset}z \
                 --size={zones}z --io_size={amount} {pace} {}",
                if open.is_empty() { "" } else { "--job_max_open_zones=4" },
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// For arbitrary jobs: each transfers its amount, the device receives every byte, and a second
    /// run is identical.
    #[test]
    fn bytes_are_conserved(jobs in prop::collection::vec(any_job(), 1..5), nanos in 0u64..50_000, open in 4u32..12) {
        let arguments: String = jobs
            .iter()
            .enumerate()
            .map(|(n, job)| format!("--name=j{n} {job} --max_open_zones={open} "))
            .collect();
        let once = || {
            let device = timeless(nanos, options());
            let report = on(&device, &arguments);
            let sent: u64 = device.writes.lock().unwrap().iter().map(|&(_, sectors)| u64::from(sectors) * 512).sum();
            (report, sent)
        };
        let (report, sent) = once();
        prop_assert!(!report.is_failed(), "{}", report.to_text());
        let jobs = &report.modes[0].jobs;
        let written: u64 = jobs.iter().map(|job| job.dir(Dir::Write).bytes).sum();
        prop_assert_eq!(sent, written);
        for job in jobs {
            let bytes = job.dir(Dir::Read).bytes + job.dir(Dir::Write).bytes;
            let Extent::Bytes(wanted) = job.spec.io_size else { panic!("{:?}", job.spec.io_size) };
            // A mixed job may find nothing to read.
            let ends_early = job.lacked_zone || matches!(job.spec.pattern.direction, Direction::Mixed { .. });
            prop_assert!((ends_early || bytes >= wanted) && bytes < wanted + 8192, "{bytes} of {wanted}");
        }
        prop_assert_eq!(told(&once().0), told(&report));
    }
}

/// A drive that keeps the order of writes and delays the writes of each zone, which are
/// distinguished by length.
#[test]
fn sixteen_jobs_have_a_zone_each_for_themselves_under_fios_rule() {
    let ordered = options().with_preserves_write_order(true);
    let jobs: String = (1..=16)
        .map(|n| {
            format!(
                "--name=j{n} --rw=randwrite --zonemode=zbd --bs={}k --iodepth=32 --offset=8z --size=32z \
                 --io_size=2M --norandommap --max_open_zones=8 ",
                4 * n
            )
        })
        .collect();
    let deepest = |host: HostRules| {
        let device = timeless(10 * MICROS, ordered.clone());
        let opened: Arc<dyn Device> = device.clone();
        let mut options = BenchOptions::new(support::jobs(&jobs));
        (options.modes, options.volume.merge, options.host) = (vec![WriteMode::Pipelined], false, host);
        let report = run(&|| Ok(opened.clone()), &options).unwrap();
        assert!(!report.is_failed(), "{}", report.to_text());
        let most = *device.most_at_once.lock().unwrap();
        (most.0, most.1)
    };
    let (writes, jobs) = deepest(HostRules::Fio);
    assert!(writes <= 32 && writes > 1, "{writes}");
    assert_eq!(jobs, 1);
    let (_, jobs) = deepest(HostRules::Zonal);
    assert!(jobs > 1, "{jobs}");
}

fn simulated_ufs(changes: &str) -> Arc<dyn Device> {
    let mut registry = zonal_io::registry::Registry::default();
    zonal_sim::register(&mut registry);
    registry.open(&format!("sim:ufs-zoned,size=16G,keep=data{changes}")).unwrap()
}

fn run_unmerged(device: &Arc<dyn Device>, mode: WriteMode, jobs: &str) -> Report {
    let mut options = BenchOptions::new(support::jobs(jobs));
    (options.modes, options.volume.merge, options.reopen) = (vec![mode], false, Reopen::Same);
    let report = run(&|| Ok(device.clone()), &options).unwrap();
    assert!(!report.is_failed(), "{mode}: {}", report.to_text());
    report
}

/// Bursts of writes, each of which wakes the link.
#[test]
fn link_that_reorders_after_hibernation_costs_pipelined_writes_time_and_no_data() {
    const BURSTS: &str = "--name=w --rw=randwrite --zonemode=zbd --max_open_zones=3 --bs=4k --iodepth=16 --io_size=2M \
                          --thinktime=1ms --thinktime_blocks=16 --verify=crc32c";
    let redriven = |mode, changes: &str| {
        let sleeps = format!(",hibernate_after_us=200,wake_us=300{changes}");
        let report = run_unmerged(&simulated_ufs(&sleeps), mode, BURSTS);
        assert!(report.modes[0].jobs[0].elapsed > Duration::from_micros(512 / 16 * 1300), "the link slept");
        report.modes[0].statistics.redriven
    };
    let reorders = ",hibernate_reorders=1";
    let pipelined = redriven(WriteMode::Pipelined, reorders);
    assert!(pipelined > 30, "{pipelined}");
    assert_eq!(redriven(WriteMode::Pipelined, reorders), pipelined, "a run can be repeated");
    assert_eq!(redriven(WriteMode::Pipelined, ""), 0);
    for mode in [WriteMode::PerZone, WriteMode::Qd1, WriteMode::ZoneLock] {
        assert_eq!(redriven(mode, reorders), 0, "{mode}");
    }
}

/// The queues of a drive share its link, so their number changes nothing in virtual time.
#[test]
fn queues_of_a_simulated_drive_keep_the_order_of_pipelined_writes() {
    const JOB: &str = "--name=w --rw=randwrite --zonemode=zbd --max_open_zones=6 --bs=4k --iodepth=32 --io_size=4M \
                       --verify=crc32c";
    let of = |queues: usize| {
        let device = simulated_ufs(&format!(",queues={queues}"));
        assert_eq!(device.info().queues, queues);
        let report = run_unmerged(&device, WriteMode::Pipelined, JOB);
        assert_eq!(report.modes[0].statistics.redriven, 0);
        report.modes[0].jobs[0].elapsed
    };
    let one = of(1);
    assert_eq!([2, 4, 5].map(of), [one; 3]);
}
