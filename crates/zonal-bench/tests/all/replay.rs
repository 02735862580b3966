//! Replays of traces: requests that reach the device, their times, and the report.

use crate::support::{Fault, ZONE, memory, null, options, polled, run_on};
use std::io::Cursor;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zonal_bench::replay::trace::{Trace, TraceOptions};
use zonal_bench::replay::{LogError, LogOptions, ReplayError, ReplayOptions, ReplayReport, Speed, run};
use zonal_bench::{Detail, DirReport, Failure};
use zonal_core::{Nanos, Op, Sector};
use zonal_io::device::{Command, Context, Device, Insight, Submitted, Wrapper};
use zonal_io::volume::WriteMode;

const MODES: [WriteMode; 5] =
    [WriteMode::PerZone, WriteMode::Append, WriteMode::Qd1, WriteMode::ZoneLock, WriteMode::Pipelined];

/// Number of reads before a replay.
const PROBES: usize = 2;

/// A device in virtual time that records its commands with their times.
struct Witness {
    inner: Arc<dyn Device>,
    seen: Mutex<Vec<(Nanos, Op, Sector, u32)>>,
    /// Index of the first command, without reports, that is not answered.
    mute_from: usize,
}

impl Witness {
    fn new(inner: Arc<dyn Device>) -> Arc<Witness> {
        Witness::mute_from(inner, usize::MAX)
    }

    fn mute_from(inner: Arc<dyn Device>, mute_from: usize) -> Arc<Witness> {
        Arc::new(Witness { inner, seen: Mutex::default(), mute_from })
    }

    /// Commands of the replay, without the initial reads that determine whether the device keeps
    /// data.
    fn seen(&self) -> Vec<(Nanos, Op, Sector, u32)> {
        self.seen.lock().unwrap()[PROBES..].to_vec()
    }

    fn sectors_of(&self, op: Op) -> u64 {
        self.seen().iter().filter(|command| command.1 == op).map(|command| u64::from(command.3)).sum()
    }
}

impl Wrapper for Witness {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn insight(&self) -> Insight {
        Insight { virtual_time: true, ..self.inner.insight() }
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let mut seen = self.seen.lock().unwrap();
        if command.op != Op::Report && seen.len() >= self.mute_from {
            context.take();
            return Submitted::Accepted;
        }
        let submitted = self.inner.submit(now, queue, command, context);
        if command.op != Op::Report && !matches!(submitted, Submitted::Busy) {
            seen.push((now, command.op, command.sector, command.sectors));
        }
        submitted
    }

    fn has_news(&self, _: usize) -> bool {
        panic!("a thread waits for virtual time");
    }
}

fn trace(text: &str) -> Trace {
    Trace::new(Box::new(Cursor::new(text.to_owned())), "trace", &TraceOptions::default()).unwrap()
}

fn options_with(change: impl FnOnce(&mut ReplayOptions)) -> ReplayOptions {
    let mut options = ReplayOptions::default();
    change(&mut options);
    options
}

fn at_full_speed() -> ReplayOptions {
    options_with(|options| options.speed = Speed::Max)
}

fn try_replay(
    device: &Arc<dyn Device>,
    text: &str,
    options: &ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    run(&|| Ok(device.clone()), &mut trace(text), options)
}

fn replay(device: &Arc<dyn Device>, text: &str, options: &ReplayOptions) -> ReplayReport {
    try_replay(device, text, options).unwrap_or_else(|error| panic!("{error}"))
}

fn failure(report: &ReplayReport) -> Option<&Failure> {
    report.report.modes[0].jobs[0].failure.as_ref()
}

fn dirs(report: &ReplayReport) -> &[DirReport; 2] {
    &report.report.modes[0].jobs[0].dirs
}

/// A disk of 44 MiB that is filled, overwritten in scattered pieces, and read at the same time:
/// `requests` lines, with addresses that are not aligned to blocks of 4 KiB.
fn busy_disk(requests: u64) -> String {
    let mut text = String::new();
    let mut place = 12_345u64;
    for n in 0..requests {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (sector, sectors) = ((place >> 33) % 90_000, 1 + (place >> 20) % 96);
        let kind = if n % 3 == 0 { "Read" } else { "Write" };
        text += &format!("{},h,0,{kind},{},{}\n", n * 500, sector * 512, sectors * 512);
    }
    text
}

/// Number of requests and bytes of one kind in such a text.
fn sum(text: &str, kind: &str) -> (u64, u64) {
    let sizes = text.lines().filter(|line| line.contains(kind));
    let sizes = sizes.map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap());
    sizes.fold((0, 0), |(ios, bytes), size| (ios + 1, bytes + size))
}

/// Slow: replays and compares a trace in six modes.
#[test]
fn disk_laid_on_zones_reads_as_it_was_written_in_every_mode() {
    let text = busy_disk(6000);
    for (mode, blocksize) in MODES.into_iter().flat_map(|mode| [(mode, 512), (mode, 4096)]) {
        let device = polled().with_preserves_write_order(true).with_blocksize(blocksize);
        let device = memory(&device.clone().with_completion_nsec(2000), Fault::None);
        let options = options_with(|options| {
            options.speed = Speed::Max;
            options.volume.mode = Some(mode);
            options.log.open_zones = 2;
        });
        let report = replay(&device, &text, &options);
        assert_eq!(failure(&report), None, "{mode}, {blocksize}");
        let [read, write] = dirs(&report);
        let laid = report.replay.laid.unwrap();
        let asked = (read.ios + laid.unmapped_reads, read.bytes + laid.unmapped_read_bytes);
        assert_eq!(asked, sum(&text, "Read"), "{mode}, {blocksize}");
        assert_eq!((write.ios, write.bytes), sum(&text, "Write"), "{mode}, {blocksize}");
        assert_eq!((report.replay.records, report.replay.begun), (6000, 6000));
        assert!(
            laid.checked_blocks > 1000 && laid.cleaned_zones > 50 && laid.moved_blocks > 1000,
            "{laid:?}"
        );
        assert_eq!(laid.edge_blocks > 1000, blocksize == 4096, "{laid:?}");
        assert!(report.replay.write_amplification().unwrap() > 1.1, "{laid:?}");
    }
}

#[test]
fn replay_report_matches_the_commands_at_the_device() {
    let text = busy_disk(4000);
    let witness = Witness::new(null(&polled()));
    let device: Arc<dyn Device> = witness.clone();
    let report =
        replay(&device, &text, &options_with(|options| options.volume.mode = Some(WriteMode::PerZone)));
    let laid = report.replay.laid.unwrap();
    let written = witness.sectors_of(Op::Write) * 512;
    assert_eq!(written, laid.written_bytes + laid.moved_blocks * laid.block_bytes);
    assert_eq!(laid.written_bytes, sum(&text, "Write").1, "blocks are sectors here");
    let ratio = written as f64 / sum(&text, "Write").1 as f64;
    assert_eq!(report.replay.write_amplification(), Some(ratio));
    let resets = witness.seen().iter().filter(|command| command.1 == Op::ZoneReset).count() as u64;
    assert_eq!((resets, report.report.modes[0].jobs[0].resets), (laid.cleaned_zones, laid.cleaned_zones));
    let (_, asked) = sum(&text, "Read");
    let read = witness.sectors_of(Op::Read) * 512;
    assert_eq!(read, asked - laid.unmapped_blocks * 512 + laid.moved_blocks * 512);
}

#[test]
fn virtual_time_repeats_to_the_nanosecond() {
    let text = busy_disk(3000);
    let once = || {
        let witness = Witness::new(null(&polled().with_completion_nsec(70_000)));
        let device: Arc<dyn Device> = witness.clone();
        let report = replay(&device, &text, &ReplayOptions::default());
        (witness.seen(), report.replay.series.clone(), report.report.modes[0].jobs[0].elapsed)
    };
    assert_eq!(once(), once());
}

/// Three writes, the second half a millisecond after the first, the third an hour later.
const THREE: &str = "0,h,0,Write,0,4096\n5000,h,0,Write,8192,4096\n36000000000,h,0,Write,16384,4096\n";

#[test]
fn requests_go_out_at_their_times_and_an_hour_of_virtual_time_takes_no_time() {
    let hour = 3_600_000_000_000;
    for (speed, factor) in [(1.0, 1), (10.0, 10)] {
        let witness = Witness::new(null(&polled().with_completion_nsec(1_000_000)));
        let device: Arc<dyn Device> = witness.clone();
        let begin = Instant::now();
        let report = replay(&device, THREE, &options_with(|options| options.speed = Speed::Times(speed)));
        assert!(begin.elapsed() < Duration::from_secs(60));
        // In mode append they do not wait for each other.
        let times: Vec<u64> = witness.seen().iter().map(|command| command.0.0).collect();
        assert_eq!(times, [0, 500_000 / factor, hour / factor]);
        let elapsed = report.report.modes[0].jobs[0].elapsed;
        assert_eq!(elapsed, Duration::from_nanos(hour / factor + 1_000_000));
    }
}

#[test]
fn time_counts_from_the_recorded_arrival() {
    let device: Arc<dyn Device> = Witness::new(null(&polled().with_completion_nsec(1_000_000)));
    let report = replay(&device, THREE, &options_with(|options| options.depth = Some(1)));
    let [_, write] = dirs(&report);
    let of = |latency: &Option<Box<zonal_bench::Latency>>| {
        let latency = latency.as_ref().unwrap();
        (latency.count(), latency.min(), latency.max())
    };
    // The second one has to wait half a millisecond for a free slot.
    assert_eq!(of(&write.slat), (3, 0, 500_000));
    assert_eq!(of(&write.clat), (3, 1_000_000, 1_000_000));
    assert_eq!(of(&write.lat), (3, 1_000_000, 1_500_000));
}

#[test]
fn real_time_is_kept_too() {
    let device = null(&options());
    let begin = Instant::now();
    let text = "0,h,0,Write,0,4096\n600000,h,0,Write,8192,4096\n";
    replay(&device, text, &ReplayOptions::default());
    assert!(begin.elapsed() >= Duration::from_millis(60), "{:?}", begin.elapsed());
}

#[test]
fn queue_depth_series_counts_requests_in_flight() {
    let device: Arc<dyn Device> = Witness::new(null(&polled().with_completion_nsec(1_000_000)));
    let text = "0,h,0,Write,0,4096\n0,h,0,Write,8192,4096\n0,h,0,Write,16384,4096\n20000,h,0,Write,0,4096\n";
    let report = replay(&device, text, &ReplayOptions::default());
    let series = &report.replay.series;
    assert_eq!(series.span, Nanos(1_000_000));
    let means: Vec<f64> = (0..3).map(|n| series.depth_mean(n)).collect();
    assert_eq!(means, [3.0, 0.0, 1.0]);
    assert_eq!(series.spans.iter().map(|span| span.ended).sum::<u64>(), 4);
}

#[test]
fn read_of_a_write_under_way_waits_for_it() {
    let witness = Witness::new(null(&polled().with_completion_nsec(1_000_000)));
    let device: Arc<dyn Device> = witness.clone();
    let text = "0,h,0,Write,0,4096\n0,h,0,Read,0,4096\n0,h,0,Read,65536,4096\n";
    let report = replay(&device, text, &ReplayOptions::default());
    let times: Vec<(u64, Op)> = witness.seen().iter().map(|command| (command.0.0, command.1)).collect();
    assert_eq!(times, [(0, Op::Append), (1_000_000, Op::Read)]);
    let laid = report.replay.laid.unwrap();
    assert_eq!((laid.reads_that_waited, laid.unmapped_blocks), (1, 8));
    assert_eq!(report.replay.without_request, 1);
}

#[test]
fn reads_of_unwritten_blocks_are_counted_apart_without_latency() {
    let device = null(&polled().with_completion_nsec(1_000_000));
    // The last read covers a written and an unwritten block.
    let text =
        "0,h,0,Write,0,4096\n20000,h,0,Read,65536,4096\n20000,h,0,Read,131072,8192\n40000,h,0,Read,0,8192\n";
    let report = replay(&device, text, &ReplayOptions::default());
    let laid = report.replay.laid.unwrap();
    assert_eq!((laid.unmapped_reads, laid.unmapped_blocks), (2, 8 + 16 + 8));
    assert_eq!((report.replay.records, report.replay.without_request), (4, 2));
    let read = report.report.modes[0].jobs[0].dir(zonal_bench::workload::Dir::Read);
    assert_eq!((read.ios, read.bytes), (1, 8192));
    for latency in [&read.lat, &read.clat] {
        let latency = latency.as_ref().unwrap();
        assert_eq!(latency.count(), 1);
        assert!(latency.min() >= 1_000_000, "{} ns", latency.min());
    }
    assert!(report.to_text().contains("reads of these only=2 (excluded from IOPS"), "{}", report.to_text());
}

#[test]
fn misplaced_block_fails_the_replay() {
    let device = memory(&options(), Fault::Swap { zone: 4, offsets: [0, 8] });
    let text = "0,h,0,Write,0,4096\n0,h,0,Write,40960,4096\n0,h,0,Read,40960,4096\n";
    let options = options_with(|options| options.volume.mode = Some(WriteMode::PerZone));
    let report = replay(&device, text, &options);
    let sector = Sector(4 * ZONE / 512 + 8);
    let expected = Failure::Misplaced { sector, expected: Sector(80), found: Some(Sector(0)) };
    assert_eq!(failure(&report), Some(&expected));
}

#[test]
fn failed_request_ends_the_replay_and_is_reported() {
    let device = memory(&options(), Fault::Fail { zone: 4, offset: 8 });
    let text = "0,h,0,Write,0,4096\n0,h,0,Write,40960,4096\n90000000000,h,0,Write,81920,4096\n";
    let options = options_with(|options| options.volume.mode = Some(WriteMode::PerZone));
    let report = replay(&device, text, &options);
    let is_told = matches!(failure(&report), Some(Failure::Request { op: Op::Write, sectors: 8, .. }));
    assert!(is_told && report.report.is_failed(), "{:?}", failure(&report));
    assert_eq!(dirs(&report)[1].ios, 1);
}

#[test]
fn device_that_falls_silent_stops_a_replay_in_virtual_time() {
    let device: Arc<dyn Device> = Witness::mute_from(null(&polled()), PROBES + 2);
    let error = try_replay(&device, THREE, &options_with(|options| options.depth = Some(1))).unwrap_err();
    assert!(matches!(error, ReplayError::Stalled { .. }), "{error}");
    assert!(error.to_string().starts_with("trace: line 3: deadlock"), "{error}");
}

#[test]
fn address_beyond_the_disk_names_the_record_or_is_folded() {
    let device = null(&options());
    let text = "0,h,0,Write,0,4096\n0,h,0,Write,1099511627776,8192\n";
    let error = try_replay(&device, text, &at_full_speed()).unwrap_err().to_string();
    let sectors = (60 - 5) * ZONE / 512;
    let expected = format!(
        "trace: line 2: sectors 2147483648 to 2147483664 lie beyond the disk that fits the device of {sectors} \
         sectors; --wrap folds addresses"
    );
    assert_eq!(error, expected);
    let options = options_with(|options| options.wrap = true);
    assert_eq!(replay(&device, text, &options).replay.records, 2);
}

#[test]
fn log_that_does_not_fit_is_refused_and_a_reset_makes_room() {
    let device = memory(&options(), Fault::None);
    run_on(
        &device,
        WriteMode::PerZone,
        "--name=fill --rw=write --zonemode=zbd --bs=64k --offset=4z --size=56z",
    );
    let error = try_replay(&device, THREE, &at_full_speed()).unwrap_err();
    assert!(
        matches!(error, ReplayError::Log { error: LogError::Zones { empty: 4, needed: 6 }, .. }),
        "{error}"
    );
    let options = options_with(|options| {
        options.reset = true;
        options.speed = Speed::Max;
        options.log = LogOptions { open_zones: 1, reserve_zones: Some(20) };
    });
    let laid = replay(&device, THREE, &options).replay.laid.unwrap();
    assert_eq!((laid.zones, laid.reserve_zones, laid.disk_bytes), (60, 20, 40 * ZONE));
}

fn as_is() -> ReplayOptions {
    options_with(|options| {
        options.as_is = true;
        options.speed = Speed::Max;
        options.volume.mode = Some(WriteMode::PerZone);
    })
}

#[test]
fn zoned_trace_is_played_where_it_was_resets_included() {
    let witness =
        Witness::new(null(&polled().with_size(512 << 20).with_zone_size(64 << 20).with_zone_nr_conv(0)));
    let device: Arc<dyn Device> = witness.clone();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/trace/accept/blkparse-zoned.txt");
    let mut options = as_is();
    options.volume.merge = false;
    options.speed = Speed::Times(1.0);
    let report = replay(&device, &std::fs::read_to_string(path).unwrap(), &options);
    assert_eq!(failure(&report), None);
    let commands: Vec<(Op, u64, u32)> = witness.seen().iter().map(|c| (c.1, c.2.0, c.3)).collect();
    let zone = 131_072;
    let expected = [
        (Op::Write, 0, 8),
        (Op::Write, 8, 8),
        (Op::ZoneOpen, zone, 0),
        (Op::Write, zone, 16),
        (Op::ZoneFinish, zone, 0),
        (Op::ZoneReset, 0, 0),
        (Op::Write, 0, 24),
        (Op::Read, 0, 8),
        (Op::ZoneClose, 0, 0),
        (Op::ResetAll, 0, 0),
    ];
    assert_eq!(commands, expected);
    assert_eq!((report.replay.laid, report.replay.resets_added), (None, 0));
}

#[test]
fn log_that_a_job_wrote_is_played_as_it_is_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("job.log");
    let line = format!(
        "--name=log --rw=write --zonemode=zbd --bs=64k --iodepth=8 --offset=4z --size=3z --io_size=5m --write_iolog={}",
        path.display()
    );
    run_on(&null(&options()), WriteMode::PerZone, &line);
    let text = std::fs::read_to_string(path).unwrap();
    let device = memory(&polled(), Fault::None);
    for (time, resets) in [(0, 2), (1, 5)] {
        let report = replay(&device, &text, &as_is());
        assert_eq!(failure(&report), None, "time {time}");
        let [_, write] = dirs(&report);
        assert_eq!((write.ios, write.bytes), (80, 5 << 20));
        // The job starts two zones over. The second time all zones have data.
        assert_eq!(report.replay.resets_added, resets, "time {time}");
    }
}

#[test]
fn reset_of_a_trace_waits_for_the_writes_before_it() {
    let device: Arc<dyn Device> =
        Witness::new(memory(&polled().with_completion_nsec(1_000_000), Fault::None));
    let mut text = String::new();
    let zone = 4 * ZONE / 512;
    for round in 0..3 {
        for n in 0..8 {
            text += &format!("8,0 1 1 0.00000000{round} 1 Q W {} + 8 [x]\n", zone + n * 8);
        }
        text += &format!("8,0 1 1 0.00000000{round} 1 Q ZR {zone} + 2048 [x]\n");
    }
    let mut options = as_is();
    options.volume.merge = false;
    let report = replay(&device, &text, &options);
    assert_eq!((failure(&report), report.replay.records), (None, 27));
    assert_eq!(report.report.modes[0].jobs[0].resets, 3);
}

#[test]
fn record_that_does_not_fit_as_it_is_names_its_place() {
    let blocks = null(&options().with_blocksize(4096));
    let of =
        |text: &str, options: &ReplayOptions| try_replay(&blocks, text, options).unwrap_err().to_string();
    assert_eq!(
        of("0,h,0,Read,0,4096\n0,h,0,Write,512,4096\n", &as_is()),
        "trace: line 2: 8 sectors at 1 are not aligned to the device's blocks of 8 sectors"
    );
    let beyond = of("0,h,0,Read,0,4096\n0,h,0,Read,67108864,4096\n", &as_is());
    assert!(beyond.starts_with("trace: line 2: sectors 131072 to 131080 lie beyond the device"), "{beyond}");
    let append = of("8,0 1 1 0.0 1 Q ZA 8192 + 8 [x]\n", &at_full_speed());
    assert_eq!(append, "trace: line 1: zone append on a log; use --as-is for a trace of a zoned drive");
}

#[test]
fn malformed_record_ends_the_replay_with_its_place() {
    let device = null(&options());
    let error = try_replay(&device, "0,h,0,Write,0,4096\n0,h,0,Write,0\n", &at_full_speed()).unwrap_err();
    assert_eq!(error.to_string(), "trace: line 2: 5 columns instead of 6, or 7 with the response time");
}

#[test]
fn json_is_a_benchmarks_with_the_replay_in_it() {
    let device: Arc<dyn Device> = Witness::new(null(&polled()));
    let report = replay(&device, &busy_disk(500), &ReplayOptions::default());
    let json: serde_json::Value = serde_json::from_str(&report.to_json(Detail::Plain)).unwrap();
    assert_eq!(json["jobs"][0]["write"]["total_ios"], dirs(&report)[1].ios);
    let replay = &json["replay"];
    assert_eq!(replay["records"], 500);
    assert_eq!(replay["write_amplification"].as_f64(), report.replay.write_amplification());
    assert_eq!(replay["laid"]["zones"], 60);
    let ended: u64 =
        replay["queue"].as_array().unwrap().iter().map(|span| span["ended"].as_u64().unwrap()).sum();
    assert_eq!(ended, 500);
    let text = report.to_text();
    for line in
        ["records=500, each executed once", "write amplification: 1.", "queue over time", "in virtual time"]
    {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
}
