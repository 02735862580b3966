//! Jobs in real time on small emulated devices.

use crate::support;
use crate::support::{Fault, HOSTS, ZONE, job, memory, null, options, polled, run_as, run_on, try_run};
use std::time::{Duration, Instant};
use zonal_bench::workload::Dir;
use zonal_bench::{BenchError, Failure, PlanError};
use zonal_core::{DeviceError, Op, RequestError, Sector, ZoneCondition, ZoneIndex};
use zonal_io::device::Command;
use zonal_io::emulated::EmulatedOptions;
use zonal_io::volume::{WriteMode, report, run_alone};

const MODES: [WriteMode; 3] = [WriteMode::Direct, WriteMode::PerZone, WriteMode::Append];

fn conditions(device: &dyn zonal_io::device::Device) -> Vec<ZoneCondition> {
    report(device, Sector(0), 1000).unwrap().iter().map(|zone| zone.condition).collect()
}

#[test]
fn sequential_fill_leaves_every_zone_full_in_every_mode() {
    for mode in MODES {
        for (device, depth) in [(null(&options()), 1), (null(&polled()), 1), (null(&polled()), 32)] {
            let arguments =
                format!("--name=fill --rw=write --zonemode=zbd --bs=64k --offset=4z --iodepth={depth}");
            let report = run_on(&device, mode, &arguments);
            let job = job(&report, 0);
            assert_eq!((job.dir(Dir::Write).ios, job.resets), (60 * 16, 0), "{mode} {depth}");
            let conditions = conditions(&*device);
            assert!(conditions[4..].iter().all(|c| *c == ZoneCondition::Full), "{mode}: {conditions:?}");
        }
    }
}

#[test]
fn full_zones_are_reset_before_they_are_written_again() {
    for mode in MODES {
        let device = null(&polled());
        let arguments =
            "--name=twice --rw=write --zonemode=zbd --bs=64k --offset=4z --size=8z --loops=2 --iodepth=8";
        let report = run_on(&device, mode, arguments);
        assert_eq!((job(&report, 0).dir(Dir::Write).ios, job(&report, 0).resets), (2 * 8 * 16, 8), "{mode}");
    }
}

#[test]
fn sixteen_jobs_write_the_same_zones_within_the_limit() {
    // The device has the same limit, so one zone too many would fail a write.
    let options = polled().with_zone_max_open(6).with_zone_max_active(6);
    for (mode, host) in MODES.into_iter().flat_map(|mode| HOSTS.map(|host| (mode, host))) {
        let device = null(&options);
        let arguments = "--name=many --rw=randwrite --zonemode=zbd --zonesize=1M --bs=16k --offset=4z --numjobs=16 \
                         --iodepth=4 --norandommap --io_size=4M --group_reporting --max_open_zones=6";
        let report = run_as(&device, mode, host, arguments);
        let job = job(&report, 0);
        assert_eq!((job.jobs, job.dir(Dir::Write).ios), (16, 16 * 256), "{mode} {host:?}");
    }
}

#[test]
fn jobs_on_one_zone_lose_no_write() {
    for (mode, host) in MODES.into_iter().flat_map(|mode| HOSTS.map(|host| (mode, host))) {
        let device = null(&polled());
        let arguments = "--name=one --rw=write --zonemode=zbd --bs=4k --offset=4z --size=1z --io_size=96k --numjobs=8 \
                         --iodepth=16 --group_reporting";
        let report = run_as(&device, mode, host, arguments);
        assert_eq!(job(&report, 0).dir(Dir::Write).ios, 8 * 24, "{mode} {host:?}");
        let zone = zonal_io::volume::report(&*device, Sector(4 * 2048), 1).unwrap()[0];
        assert_eq!(zone.write_pointer, Some(Sector(4 * 2048 + 8 * 24 * 8)), "{mode}");
    }
}

#[test]
fn runtime_ends_a_job_that_would_go_on() {
    let device = null(&options());
    let begin = Instant::now();
    let arguments = "--name=long --rw=randwrite --zonemode=zbd --bs=4k --offset=4z --time_based --runtime=300ms \
                     --group_reporting --numjobs=2";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    let elapsed = job(&report, 0).elapsed;
    assert!(
        elapsed >= Duration::from_millis(290) && begin.elapsed() < Duration::from_secs(20),
        "{elapsed:?}"
    );
    assert!(job(&report, 0).resets > 0, "the device is written many times over");
}

#[test]
fn runtime_caps_a_job_that_is_not_time_based() {
    let device = null(&options().with_completion_nsec(20_000_000));
    let arguments = "--name=slow --rw=write --zonemode=zbd --bs=4k --offset=4z --runtime=200ms";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    let ios = job(&report, 0).dir(Dir::Write).ios;
    assert!((5..=12).contains(&ios), "{ios} writes of 20 ms in 200 ms");
}

#[test]
fn depth_keeps_as_many_in_flight() {
    let device = null(&options().with_completion_nsec(10_000_000));
    let arguments = "--name=deep --rw=randread --bs=4k --iodepth=16 --size=1M --io_size=256k --norandommap";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    let job = job(&report, 0);
    assert_eq!(job.dir(Dir::Read).ios, 64);
    assert!(
        job.elapsed < Duration::from_millis(400),
        "64 reads of 10 ms, 16 at a time, took {:?}",
        job.elapsed
    );
    assert!(job.depths[4] > 0, "{:?}", job.depths);
    let clat = job.dir(Dir::Read).clat.as_ref().unwrap();
    assert!(clat.min() >= 9_900_000, "{}", clat.min());
}

#[test]
fn stonewall_waits_and_groups_report_together() {
    let device = memory(&options(), support::Fault::None);
    let arguments = "--name=write --rw=write --zonemode=zbd --bs=64k --offset=4z --size=2z --numjobs=2 --group_reporting \
                     --offset_increment=2z \
                     --name=read --stonewall --rw=read --zonemode=zbd --bs=64k --offset=4z --size=4z";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    let jobs = &report.modes[0].jobs;
    assert_eq!(
        jobs.iter().map(|j| (j.name.as_str(), j.group, j.jobs)).collect::<Vec<_>>(),
        [("write", 0, 2), ("read", 1, 1)]
    );
    assert_eq!(jobs[1].dir(Dir::Read).ios, 64, "all that was written before");
}

#[test]
fn clones_without_group_reporting_are_reported_alone() {
    let device = null(&options());
    let arguments = "--name=a --rw=randread --bs=4k --size=1M --numjobs=3";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert_eq!(report.modes[0].jobs.len(), 3);
}

#[test]
fn first_error_is_reported_in_detail_and_ends_the_job() {
    let device = memory(&options(), support::Fault::Fail { zone: 5, offset: 128 });
    let arguments = "--name=bad --rw=write --zonemode=zbd --bs=64k --offset=4z --size=4z";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert!(report.is_failed());
    let job = &report.modes[0].jobs[0];
    let error = RequestError::Device(DeviceError::Medium);
    let sector = Sector(5 * 2048 + 128);
    assert_eq!(job.failure, Some(Failure::Request { op: Op::Write, sector, sectors: 128, error }));
    assert_eq!((job.errors, job.dir(Dir::Write).ios), (1, 17));
    assert_eq!(job.failure.as_ref().unwrap().errno(), 5);
}

#[test]
fn exitall_on_error_ends_the_others_and_later_rounds() {
    let device = memory(&options(), support::Fault::Fail { zone: 5, offset: 128 });
    let arguments = "--exitall_on_error --name=long --rw=randread --bs=4k --size=1M --time_based --runtime=1h \
                     --name=bad --rw=write --zonemode=zbd --bs=64k --offset=4z --size=4z \
                     --name=later --stonewall --rw=read --bs=4k --size=1M";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    let names: Vec<_> = report.modes[0].jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["long", "bad"]);
    assert!(report.modes[0].notes.iter().any(|note| note.contains("not run")));
}

#[test]
fn other_jobs_go_on_after_an_error() {
    let device = memory(&options(), support::Fault::Fail { zone: 5, offset: 0 });
    let arguments = "--name=bad --rw=write --zonemode=zbd --bs=64k --offset=5z --size=1z \
                     --name=good --rw=write --zonemode=zbd --bs=64k --offset=8z --size=4z";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert!(report.modes[0].jobs[0].failure.is_some());
    assert_eq!(report.modes[0].jobs[1].dir(Dir::Write).ios, 64);
}

#[test]
fn fsync_flushes_and_is_timed() {
    let device = null(&options());
    let arguments =
        "--name=f --rw=write --zonemode=zbd --bs=64k --offset=4z --size=1z --fsync=4 --end_fsync=1";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert_eq!(job(&report, 0).flushes, 5);
    assert_eq!(job(&report, 0).flush_lat.as_ref().unwrap().count(), 5);
}

#[test]
fn gtod_reduce_measures_nothing_and_counts_all() {
    let device = null(&polled());
    let arguments =
        "--name=g --rw=write --zonemode=zbd --bs=4k --offset=4z --size=4z --gtod_reduce=1 --iodepth=8";
    let report = run_on(&device, WriteMode::Append, arguments);
    let write = job(&report, 0).dir(Dir::Write);
    assert_eq!(write.ios, 1024);
    assert!(write.clat.is_none() && write.lat.is_none() && write.slat.is_none());
}

#[test]
fn answers_inside_submit_have_no_submission_latency() {
    let latencies = |device| {
        let report = run_on(&device, WriteMode::PerZone, "--name=l --rw=randread --bs=4k --size=1M");
        let read = job(&report, 0).dir(Dir::Read).clone();
        [read.slat, read.clat, read.lat].map(|latency| latency.unwrap().count())
    };
    assert_eq!(latencies(null(&options())), [0, 256, 256]);
    assert_eq!(latencies(null(&polled())), [256, 256, 256]);
}

#[test]
fn append_mode_writes_through_zone_appends() {
    let device = null(&polled());
    let arguments = "--name=a --rw=write --zonemode=zbd --bs=64k --size=8z --iodepth=16";
    let report = run_on(&device, WriteMode::Append, arguments);
    // Conventional zones have no appends, and yet every write succeeds.
    assert_eq!(job(&report, 0).dir(Dir::Write).ios, 8 * 16);
    assert_eq!(report.modes[0].statistics.merged, 0);
}

#[test]
fn waiting_writes_share_commands_in_per_zone_mode() {
    let device = null(&polled());
    let arguments = "--name=m --rw=write --zonemode=zbd --bs=4k --offset=4z --size=8z --iodepth=32";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert!(report.modes[0].commands_per_write().unwrap() < 0.5, "{}", report.to_text());
}

#[test]
fn modes_are_compared_on_erased_zones() {
    let device = null(&polled());
    let arguments = "--name=c --rw=write --zonemode=zbd --bs=4k --offset=4z --size=8z --iodepth=16";
    let report = try_run(&device, &MODES, arguments).unwrap();
    let comparison = report.comparison();
    assert_eq!(comparison.rows.iter().map(|row| row.mode).collect::<Vec<_>>(), MODES);
    assert_eq!(comparison.rows[0].ratio, Some(1.0));
    assert!(report.modes.iter().all(|mode| mode.jobs[0].resets == 0), "every mode finds empty zones");
    let table = report.comparison_table();
    assert!(table.starts_with("job") && table.lines().count() == 4, "{table}");
}

#[test]
fn read_only_and_offline_zones_are_passed_over() {
    use zonal_io::changes::ZoneSetting;
    use zonal_io::device::Device as _;
    use zonal_io::emulated::{Emulated, Null};
    let emulated = Emulated::new("null", &options(), Null).unwrap();
    emulated.set_zone(ZoneIndex(6), ZoneSetting::ReadOnly).unwrap();
    emulated.set_zone(ZoneIndex(8), ZoneSetting::Offline).unwrap();
    let device: std::sync::Arc<dyn zonal_io::device::Device> = std::sync::Arc::new(emulated);
    let arguments = "--name=w --rw=write --zonemode=zbd --bs=64k --offset=4z --size=8z --io_size=6z";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert!(job(&report, 0).dir(Dir::Write).ios >= 6 * 16);
}

#[test]
fn active_zones_elsewhere_lower_the_limit() {
    let options = options().with_zone_max_open(4).with_zone_max_active(4);
    let device = null(&options);
    let fill = "--name=w --rw=write --zonemode=zbd --bs=64k --size=1z --io_size=64k --offset_increment=1z --numjobs=3";
    run_on(&device, WriteMode::PerZone, &format!("{fill} --offset=4z"));
    let arguments = "--name=r --rw=randwrite --zonemode=zbd --bs=64k --offset=20z --norandommap --io_size=8M";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert_eq!(job(&report, 0).dir(Dir::Write).ios, 128);
    assert!(
        report.modes[0].notes.iter().any(|note| note.contains("limited to 1 of 4")),
        "{:?}",
        report.modes[0].notes
    );
}

#[test]
fn job_without_an_openable_zone_reports_it() {
    let device = null(&options());
    // The first job leaves its two zones open and partly written.
    let arguments = "--max_open_zones=2 --rw=write --zonemode=zbd --bs=64k --io_size=64k --name=hold --offset=4z \
                     --size=1z --numjobs=2 --offset_increment=1z --name=late --stonewall --offset=10z --size=4z";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    let late = report.modes[0].jobs.last().unwrap();
    assert!(late.lacked_zone && late.failure.is_none() && late.dir(Dir::Write).ios == 0);
    assert!(report.to_text().contains("ended early"), "{}", report.to_text());
}

#[test]
fn job_that_lost_its_writes_is_marked_and_not_compared() {
    // The first job leaves its two zones open and partly written. The second one only reads.
    let arguments = "--max_open_zones=2 --zonemode=zbd --bs=64k --name=hold --rw=write --io_size=64k --offset=4z --size=1z \
                     --numjobs=2 --offset_increment=1z --name=fill --stonewall --rw=read --offset=4z --size=2z \
                     --io_size=64k --name=late --stonewall --rw=randrw --offset=10z --size=4z";
    let report = try_run(&null(&polled()), &[WriteMode::PerZone, WriteMode::Qd1], arguments).unwrap();
    let late = report.modes[0].jobs.last().unwrap();
    assert!(
        late.lacked_zone && late.lack_in_words().unwrap().starts_with("skipped writes"),
        "{}",
        report.to_text()
    );
    let rows = report.comparison().rows;
    assert!(rows.iter().all(|row| row.lack.is_some() == row.ratio.is_none()), "{rows:?}");
    assert_eq!(rows.iter().filter(|row| row.lack.is_some()).count(), 4, "{rows:?}");
    let table = report.comparison_table();
    let marked = |line: &&str| line.starts_with("late") && line.ends_with("no zone");
    assert_eq!(table.lines().filter(marked).count(), 4, "{table}");
    assert!(table.contains("excluded from the comparison"), "{table}");
    assert!(report.to_text().contains("raise max_open_zones"), "{}", report.to_text());
    let page = report.to_html(&zonal_bench::About::default());
    assert!(page.contains("<b class=\"bad\">no zone</b>") && page.contains("job late: skipped writes"));
    assert!(page.contains("<data value=\"\">no zone</data>"), "in place of a ratio");
}

#[test]
fn read_job_without_data_reports_it() {
    for rw in ["read", "randread"] {
        let read = format!("--name=r --rw={rw} --zonemode=zbd --bs=64k --offset=4z --size=8z");
        let report =
            run_on(&null(&options()), WriteMode::PerZone, &format!("{read} --runtime=1 --time_based"));
        let job = job(&report, 0);
        assert_eq!((job.lack(), job.dir(Dir::Read).ios), (Some(zonal_bench::Lack::Data), 0), "{rw}");
        assert!(report.to_text().contains("no data in its range"), "{}", report.to_text());
        assert!(report.to_json(zonal_bench::Detail::Plain).contains("\"lacked_data\": true"));
        // If there is some data, the job reads that, and zones without data do not matter.
        let some = format!(
            "--name=w --rw=write --zonemode=zbd --bs=64k --offset=6z --size=1z {}",
            read.replace("--name=r", "--name=r --stonewall")
        );
        let report = run_on(&null(&options()), WriteMode::PerZone, &some);
        assert_eq!(report.modes[0].jobs[1].lack(), None, "{}", report.to_text());
        assert!(report.modes[0].jobs[1].dir(Dir::Read).ios > 0);
    }
}

/// 64 zones of 1 MiB, at most four of them active.
fn four_active() -> EmulatedOptions {
    options().with_zone_max_open(4).with_zone_max_active(4).with_zone_nr_conv(0)
}

/// Zones in this condition.
fn zones_that_are(device: &dyn zonal_io::device::Device, wanted: ZoneCondition) -> Vec<usize> {
    let conditions = conditions(device);
    (0..conditions.len()).filter(|&zone| conditions[zone] == wanted).collect()
}

/// Closes every open zone, as closing and reopening an image does.
fn close_open_zones(device: &dyn zonal_io::device::Device) {
    for zone in zones_that_are(device, ZoneCondition::ImpOpen) {
        let sector = Sector(zone as u64 * ZONE / 512);
        let close = Command::new(Op::ZoneClose, sector, 0);
        run_alone(device, &close).unwrap();
    }
}

#[test]
fn second_run_writes_on_in_zones_that_the_first_left_closed() {
    for mode in MODES {
        for rw in ["randwrite", "randrw", "write"] {
            let device = null(&four_active());
            let job = format!(
                "--name=x --rw={rw} --zonemode=zbd --bs=64k --norandommap --io_size=960k --offset=8z"
            );
            for round in 0..4 {
                let report = run_on(&device, mode, &job);
                assert_eq!(report.modes[0].jobs[0].errors, 0, "{mode} {rw} {round}: {}", report.to_text());
                assert!(!report.to_text().contains("limited to"), "{}", report.to_text());
                close_open_zones(&*device);
            }
            let changed =
                format!("--name=x --rw={rw} --zonemode=zbd --bs=16k --io_size=256k --offset=4z --size=60z");
            run_on(&device, mode, &changed);
        }
    }
}

#[test]
fn closed_zones_beyond_the_jobs_limit_are_kept_unless_their_slots_are_needed() {
    let closed_after = |zones: &str, arguments: &str| {
        let device = null(&four_active());
        // Each of four clones leaves its zone half written.
        let fill = "--name=x --rw=write --zonemode=zbd --bs=64k --size=1z --io_size=512k --offset_increment=1z --numjobs=4";
        run_on(&device, WriteMode::PerZone, &format!("{fill} --offset={zones}"));
        close_open_zones(&*device);
        assert_eq!(zones_that_are(&*device, ZoneCondition::Closed).len(), 4);
        let job = format!("--name=x --rw=write --zonemode=zbd --bs=64k --io_size=64k {arguments}");
        run_on(&device, WriteMode::PerZone, &job);
        let left = zones_that_are(&*device, ZoneCondition::Closed);
        (left.len(), zones_that_are(&*device, ZoneCondition::ImpOpen).len())
    };
    // One of the four is continued, and the others keep their data.
    assert_eq!(closed_after("8z", "--offset=8z --size=4z --max_open_zones=1"), (3, 1));
    // The set is as large as the device's limit, but this job may have only one zone of it. The
    // remaining slots belong to the set.
    assert_eq!(closed_after("8z", "--offset=8z --size=4z --job_max_open_zones=1"), (0, 1));
}

#[test]
fn active_zones_outside_the_range_are_reported_with_a_remedy() {
    let device = null(&four_active());
    run_on(
        &device,
        WriteMode::PerZone,
        "--name=x --rw=write --zonemode=zbd --bs=64k --size=1z --io_size=512k --offset=8z --offset_increment=2z --numjobs=4",
    );
    close_open_zones(&*device);
    let elsewhere = "--name=x --rw=write --zonemode=zbd --bs=64k --size=4z";
    let error = try_run(&device, &[WriteMode::PerZone], elsewhere).unwrap_err();
    let BenchError::Plan { error: error @ PlanError::NoActiveZoneLeft { .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(
        error.to_string(),
        "4 active zones lie outside the ranges that the jobs write, and the device allows 4: zones 8 (sector 16384), \
         10 (sector 20480), 12 (sector 24576), 14 (sector 28672); `zonal finish` fills such a zone and keeps its data, `zonal \
         reset` empties it",
    );
    // Only some of the four are in the range. The others reduce the limit, and a note says so.
    let some = run_on(&device, WriteMode::PerZone, &format!("{elsewhere} --offset=12z --io_size=64k"));
    assert!(some.to_text().contains("open zones limited to 2 of 4: 2 zones outside"), "{}", some.to_text());
    // A job that writes no zone needs no slot.
    for read in ["--zonemode=zbd --rw=randread", "--zonemode=none --rw=randread"] {
        run_on(&device, WriteMode::PerZone, &format!("--name=x --bs=64k --size=16M --io_size=64k {read}"));
    }
    // Follow the advice of the message.
    let sector = Sector(8 * ZONE / 512);
    let finish = Command::new(Op::ZoneFinish, sector, 0);
    run_alone(&*device, &finish).unwrap();
    run_on(&device, WriteMode::PerZone, elsewhere);
}

#[test]
fn blocks_above_the_largest_append_are_written_whole_by_default() {
    // Limits as on real drives: appends of 128 KiB, and commands smaller than the blocks, too.
    let options = polled().with_zone_append_max_sectors(256).with_max_sectors(384).with_zone_nr_conv(0);
    let jobs = [
        "--rw=write --zonemode=zbd",
        "--rw=randwrite --zonemode=zbd --norandommap --io_size=16M",
        "--rw=write --zonemode=none --iodepth=1 --size=8M",
        "--rw=write --zonemode=zbd --numjobs=4 --iodepth=8 --offset_increment=16z --size=16z",
    ];
    for job in jobs {
        let device = memory(&options, Fault::None);
        let arguments = format!("--name=x --bs=256k --verify=crc32c {job}");
        let report = try_run(&device, &[], &arguments).unwrap();
        let mode = &report.modes[0];
        assert_eq!(mode.jobs[0].failure, None, "{job}: {}", report.to_text());
        assert_eq!(mode.mode, WriteMode::PerZone, "{job}");
        assert_eq!(mode.mode_reason, "a job's block size exceeds the largest zone append");
        let verified = mode.verify.as_ref().unwrap();
        assert!(!verified.is_failed() && verified.blocks >= 32, "{job}: {verified:?}");
    }
    // Blocks within the append limit use appends, as the device suggests. The size of reads makes
    // no difference.
    for job in [
        "--rw=write --bs=128k --zonemode=zbd",
        "--rw=read --bs=256k",
        "--rw=randrw --bs=256k,128k --zonemode=zbd",
    ] {
        let report = try_run(&null(&options), &[], &format!("--name=x --size=8M {job}")).unwrap();
        let (mode, reason) = (report.modes[0].mode, report.modes[0].mode_reason);
        assert_eq!((mode, reason), (WriteMode::Append, "the device has native zone append"), "{job}");
    }
    // If mode append was requested explicitly, it is still refused.
    let error = misfit(&options, WriteMode::Append, "--name=x --bs=256k --rw=write --zonemode=zbd");
    assert_eq!(error, PlanError::BlockAboveAppend { block: 256 << 10, append: 128 << 10 });
}

fn misfit(options: &EmulatedOptions, mode: WriteMode, arguments: &str) -> PlanError {
    match try_run(&null(options), &[mode], arguments) {
        Err(BenchError::Plan { job, error }) => {
            assert_eq!(job, "x");
            error
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_suggest_a_remedy() {
    let small = options().with_zone_append_max_sectors(8).with_zone_max_open(7);
    let words = |arguments: &str| misfit(&small, WriteMode::Append, arguments).to_string();
    let large = words("--name=x --rw=write --zonemode=zbd --bs=8k");
    assert!(large.contains("use a smaller bs or --write-mode per-zone"), "{large}");
    let zbd = "--rw=write --zonemode=zbd --bs=4k";
    let limit = words(&format!("--name=a {zbd} --name=x {zbd} --max_open_zones=4"));
    assert!(limit.contains("the drive's limit of 7") && limit.contains("[global]"), "{limit}");
    let other = words(&format!("--name=a {zbd} --max_open_zones=5 --name=x {zbd} --max_open_zones=4"));
    assert!(other.contains("but 5 in an earlier job") && other.contains("[global]"), "{other}");
}

#[test]
fn jobs_that_do_not_fit_are_refused_with_the_facts() {
    let small = options().with_zone_max_open(4).with_zone_append_max_sectors(8);
    let check = |arguments: &str, expected: PlanError| {
        let arguments = format!("--name=x {arguments}");
        assert_eq!(misfit(&small, WriteMode::Append, &arguments), expected, "{arguments}");
    };
    check("--rw=read --bs=1000", PlanError::Unaligned { option: "bs", bytes: 1000, block: 512 });
    check("--rw=read --offset=100", PlanError::Unaligned { option: "offset", bytes: 100, block: 512 });
    check(
        "--rw=read --zonemode=zbd --zonesize=2M",
        PlanError::NotTheDevices { option: "zonesize", job: 2 << 20, device: 1 << 20 },
    );
    check(
        "--rw=write --zonemode=zbd --bs=4k --max_open_zones=5",
        PlanError::OpenZonesAboveDevice { asked: 5, limit: 4 },
    );
    check("--rw=write --zonemode=zbd --bs=8k", PlanError::BlockAboveAppend { block: 8192, append: 4096 });
    let without = options().with_zone_append_max_sectors(0);
    let error = misfit(&without, WriteMode::Append, "--name=x --rw=write --zonemode=zbd --bs=8k");
    assert_eq!(error, PlanError::NoAppend);
    check(
        "--rw=write --zonemode=zbd --bs=2M --offset=4z",
        PlanError::BlockAboveZone { block: 2 << 20, capacity: 1 << 20 },
    );
    check(
        "--rw=read --bs=4k --offset=1G",
        PlanError::OffsetBeyondDevice { clone: 0, offset: 1 << 30, device_bytes: 64 << 20 },
    );
    check("--rw=read --bs=8k --size=4k", PlanError::BlockAboveRange { block: 8192, range: 4096 });
    check(
        "--rw=write --zonemode=zbd --bs=4k --offset=5M --size=512k",
        PlanError::NoWholeZone { range: 512 << 10, zone: 1 << 20 },
    );
}

#[test]
fn range_is_rounded_to_whole_zones_with_a_note() {
    let device = null(&options());
    let arguments = "--name=r --rw=write --zonemode=zbd --bs=64k --offset=4200k --size=3M";
    let report = run_on(&device, WriteMode::PerZone, arguments);
    assert_eq!(report.modes[0].notes.len(), 2, "{:?}", report.modes[0].notes);
    assert_eq!(job(&report, 0).dir(Dir::Write).ios, 2 * 16);
}

#[test]
fn jobs_with_different_limits_are_refused() {
    let arguments = "--name=a --rw=write --zonemode=zbd --bs=4k --max_open_zones=3 \
                     --name=x --rw=write --zonemode=zbd --bs=4k --max_open_zones=4";
    let error = misfit(&options(), WriteMode::PerZone, arguments);
    assert_eq!(error, PlanError::OpenZonesDiffer { this: 4, other: 3 });
}

#[test]
fn random_writes_in_the_manner_of_the_fio_example() {
    let device = null(&options());
    let file = "[global]\nname=zbd-rand-write\ngroup_reporting\nrw=randwrite\nzonemode=zbd\nzonesize=1M\n\
                max_open_zones=32\nbs=512K\ndirect=1\nnumjobs=16\ntime_based\nruntime=300ms\n\n[dev1]\n\
                filename=null:\nioengine=psync\n";
    let jobs = zonal_bench::job::JobFile::parse(file, "zbd-rand-write.fio").unwrap();
    let options = zonal_bench::BenchOptions::new(jobs);
    let report = zonal_bench::run(&|| Ok(device.clone()), &options).unwrap();
    let job = job(&report, 0);
    assert_eq!((report.modes[0].jobs.len(), job.jobs), (1, 16));
    assert!(job.dir(Dir::Write).ios > 120, "{}", report.to_text());
}

#[test]
fn sequential_reads_in_the_manner_of_the_fio_example() {
    let device = null(&options());
    run_on(
        &device,
        WriteMode::PerZone,
        "--name=w --rw=write --zonemode=zbd --bs=256K --offset=30z --size=7z",
    );
    let file = "[global]\nname=zbd-seq-read\nrw=read\nbs=256K\ndirect=1\nnumjobs=1\nzonemode=zbd\nzonesize=1M\n\
                read_beyond_wp=0\n\n[dev1]\nfilename=null:\noffset=20971520\nsize=40M\nioengine=libaio\niodepth=16\n";
    let jobs = zonal_bench::job::JobFile::parse(file, "zbd-seq-read.fio").unwrap();
    let report = zonal_bench::run(&|| Ok(device.clone()), &zonal_bench::BenchOptions::new(jobs)).unwrap();
    assert_eq!(job(&report, 0).dir(Dir::Read).ios, 28, "seven zones were written");
}

#[test]
fn iolog_is_written_per_mode_with_the_issued_requests() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let device = memory(&options(), Fault::None);
    let modes = [WriteMode::PerZone, WriteMode::Append];
    let arguments =
        "--name=j --rw=write --bs=64k --zonemode=zbd --offset=4z --size=1z --io_size=128k --fsync=1";
    let report = try_run(&device, &modes, &format!("{arguments} --write_iolog={}", log.display())).unwrap();
    assert!(!report.is_failed(), "{}", report.to_text());
    for mode in modes {
        let text = std::fs::read_to_string(log.with_file_name(format!("log.{mode}"))).unwrap();
        let words: Vec<String> =
            text.lines().skip(1).map(|line| line.split(' ').skip(1).collect::<Vec<_>>().join(" ")).collect();
        let start = 4 << 20;
        let expected = [
            "memory add".to_owned(),
            "memory open".to_owned(),
            format!("memory write {start} 65536"),
            "memory sync 0 0".to_owned(),
            format!("memory write {} 65536", start + 65536),
            "memory sync 0 0".to_owned(),
            "memory close".to_owned(),
        ];
        assert_eq!(words, expected, "{mode}");
    }
}

#[test]
fn log_that_cannot_be_made_is_an_error() {
    let arguments = "--name=j --rw=read --bs=4k --size=4k --write_iolog=/nowhere/at/all";
    let error = try_run(&null(&options()), &[WriteMode::PerZone], arguments).unwrap_err();
    assert!(error.to_string().starts_with("job j: cannot write its log /nowhere/at/all: "), "{error}");
}
