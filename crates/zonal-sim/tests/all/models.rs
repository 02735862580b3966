//! Properties of all models for any commands, and the effects of a disk's and a flash drive's
//! mechanics.

use proptest::prelude::*;
use zonal_core::{Nanos, Op, Sector};
use zonal_sim::{Job, Model, Profile, Remote, Tag};

const MIB: u32 = 2048;

fn model(profile: &str, changes: &[(&str, &str)]) -> Box<dyn Model> {
    let profile = Profile::open(profile, changes).unwrap();
    profile.model(profile.emulated_options().geometry().unwrap())
}

fn job(op: Op, sector: u64, sectors: u32) -> Job {
    Job { op, sector: Sector(sector), sectors, fua: false, refused: false }
}

fn write(sector: u64, sectors: u32) -> Job {
    job(Op::Write, sector, sectors)
}

/// A sequential stream has neither seeks nor missed rotations; one of two zones in turn has a seek
/// for each write.
#[test]
fn movements_of_the_head_are_counted() {
    const ZONE: u64 = 524_288;
    let moves = |jobs: &[Job]| {
        let mut model = model("smr-hdd-30t", &[("policy", "fifo"), ("dwell", "0")]);
        play(&mut *model, jobs, 1);
        drain(&mut *model);
        model.head_moves().unwrap()
    };
    let stream: Vec<Job> = (0..300).map(|n| write(ZONE - 64 * 2048 + n * 2048, MIB)).collect();
    let found = moves(&stream);
    assert_eq!((found.seeks, found.zone_changes, found.missed_rotations), (1, 1, 0), "{found:?}");
    let in_turn: Vec<Job> = (0..200).map(|n| write(n % 2 * 1000 * ZONE + n / 2 * 2048, MIB)).collect();
    let found = moves(&in_turn);
    // The first write arrives after its sector has passed the head.
    assert_eq!((found.seeks, found.zone_changes, found.missed_rotations), (199, 199, 1), "{found:?}");
    // A seek over 1000 zones takes at least the shortest one.
    assert!(found.positioning_ns > 199 * 1_200_000, "{found:?}");
    // Each write of a slow host arrives after its sector has passed the head.
    let mut model = model("smr-hdd-30t", &[]);
    for at in [Nanos(0), Nanos(100_000_000)] {
        model.run(at, &mut |_, _| {});
        model.submit(at, 0, &write(at.0 / 100_000_000 * 2048, MIB));
    }
    drain(&mut *model);
    let found = model.head_moves().unwrap();
    assert_eq!((found.seeks, found.zone_changes, found.missed_rotations), (0, 0, 2), "{found:?}");
    assert_eq!(model_of_flash().head_moves(), None);
}

fn model_of_flash() -> Box<dyn Model> {
    model("zns-1t", &[])
}

/// Completions in order, with their times.
type Answers = Vec<(u64, Tag)>;

/// Runs these jobs on the drive, with up to `depth` in flight.
fn play(model: &mut dyn Model, jobs: &[Job], depth: usize) -> Answers {
    let mut answers = Answers::new();
    let (mut given, mut now) = (0, Nanos(0));
    while answers.len() < jobs.len() {
        while given < jobs.len() && given - answers.len() < depth {
            model.submit(now, given as Tag, &jobs[given]);
            given += 1;
        }
        let next = model.next().expect("a command waits for an answer");
        assert!(next >= now, "time runs backwards");
        now = next;
        model.run(now, &mut |at, tag| answers.push((at.0, tag)));
    }
    answers
}

/// As [`play`], but advances only to announced completion times, and submits new jobs then.
fn play_announced(model: &mut dyn Model, jobs: &[Job], depth: usize) -> Answers {
    let mut answers = Answers::new();
    let (mut given, mut now) = (0, Nanos(0));
    while answers.len() < jobs.len() {
        while given < jobs.len() && given - answers.len() < depth {
            model.submit(now, given as Tag, &jobs[given]);
            given += 1;
        }
        let from = model.answers_from().expect("a command waits for an answer");
        now = now.max(from);
        model.run(now, &mut |at, tag| {
            assert_eq!(at, now, "it was announced for later, or came before");
            answers.push((at.0, tag));
        });
    }
    answers
}

/// Runs until nothing is pending.
fn drain(model: &mut dyn Model) -> Nanos {
    let mut last = Nanos(0);
    while let Some(next) = model.next() {
        last = next;
        model.run(next, &mut |_, _| {});
    }
    last
}

/// Data rate in MB/s until everything is on the medium.
fn rate(model: &mut dyn Model, jobs: &[Job], depth: usize) -> f64 {
    let last = play(model, jobs, depth).last().map_or(0, |(at, _)| *at);
    let end = drain(model).0.max(last);
    jobs.iter().map(|j| f64::from(j.sectors) * 512.0).sum::<f64>() / (end as f64 / 1e9) / 1e6
}

/// `count` writes of 1 MiB that alternate between `zones` zones, at this distance in zones.
fn in_turn(zones: u64, apart: u64, count: u64) -> Vec<Job> {
    (0..count).map(|n| write((n % zones) * apart * 524_288 + n / zones * u64::from(MIB), MIB)).collect()
}

#[test]
fn stream_runs_at_the_rate_of_the_medium_at_any_depth() {
    for depth in [1, 2, 32] {
        let rate = rate(&mut *model("smr-hdd-26t", &[]), &in_turn(1, 0, 250), depth);
        assert!((248.0..251.5).contains(&rate), "depth {depth}: {rate} MB/s");
    }
}

#[test]
fn zones_in_turn_cost_seeks_and_turns_and_nothing_without_them() {
    let jobs = in_turn(8, 10_000, 400);
    let far = rate(&mut *model("smr-hdd-26t", &[("policy", "fifo"), ("dwell", "0")]), &jobs, 8);
    assert!(far < 80.0, "{far} MB/s");
    let weightless = [
        ("policy", "fifo"),
        ("seek_single_us", "0"),
        ("seek_third_us", "0"),
        ("seek_full_us", "0"),
        ("turn_us", "0"),
        ("inner_ratio", "0.999"),
    ];
    let free = rate(&mut *model("smr-hdd-26t", &weightless), &jobs, 8);
    assert!(free > 249.0, "{free} MB/s");
}

/// A disk that reorders cached writes, with these values changed.
fn sorting(changes: &[(&'static str, &'static str)]) -> Box<dyn Model> {
    let mut all = vec![("policy", "sptf"), ("cache_bytes", "24M"), ("cache_commands", "0"), ("dwell", "0")];
    all.extend(changes);
    model("smr-hdd-26t", &all)
}

/// Number of writes that the head makes in a zone before it moves to another, for each visit.
fn visits(model: &mut dyn Model, jobs: &[Job], depth: usize) -> Vec<u64> {
    let (mut given, mut answered, mut now) = (0, 0, Nanos(0));
    let mut seen = Visits::default();
    while given < jobs.len() {
        while given < jobs.len() && given - answered < depth {
            model.submit(now, given as Tag, &jobs[given]);
            given += 1;
        }
        now = model.next().expect("an answer is due");
        model.run(now, &mut |_, _| answered += 1);
        seen.look(model);
    }
    // With no write waiting, the head stays until its stream ends.
    seen.all
}

#[derive(Default)]
struct Visits {
    all: Vec<u64>,
    /// Zone of the write that finished last, and of the one at the head.
    last: Option<u64>,
    at: u64,
    written: u64,
}

impl Visits {
    /// Called after each event, so no two writes finish between two calls.
    fn look(&mut self, model: &dyn Model) {
        let written = model.totals().written;
        // When a write has finished, the head is already at the next one.
        let zone = (model.head().expect("a disk has a head").0.saturating_sub(1)) / 524_288;
        if written > self.written {
            let stays = self.last == Some(self.at);
            if !stays {
                self.all.push(0);
            }
            self.all.last_mut().into_iter().for_each(|visit| *visit += 1);
            self.last = Some(self.at);
        }
        (self.written, self.at) = (written, zone);
    }
}

/// Mean length of a visit, without the first and last few.
fn mean_visit(dwell: &'static str, apart: u64) -> f64 {
    let all = visits(&mut *sorting(&[("dwell", dwell)]), &in_turn(2, apart, 360), 4);
    let amid = &all[4..all.len() - 4];
    amid.iter().sum::<u64>() as f64 / amid.len() as f64
}

#[test]
fn visit_lasts_as_the_next_move_costs_near_zones_alternate() {
    // A write takes 4 to 5 ms. The shortest seek is 1.2 ms to a neighbour, and 8.2 ms over a third
    // of the stroke.
    for (apart, dwell, expected) in
        [(1, "1.5", 1.0), (40_000, "1.5", 3.0), (40_000, "0.9", 2.0), (40_000, "0.4", 1.0)]
    {
        let mean = mean_visit(dwell, apart);
        assert!((mean - expected).abs() < 0.1, "{apart} apart, dwell {dwell}: {mean} writes a visit");
    }
    let [stays, goes] =
        ["0", "1.5"].map(|dwell| rate(&mut *sorting(&[("dwell", dwell)]), &in_turn(2, 1, 400), 2));
    assert!(stays > 230.0, "what is there of a zone is written in one go: {stays} MB/s");
    let fifo = rate(&mut *sorting(&[("policy", "fifo"), ("dwell", "0")]), &in_turn(2, 1, 400), 2);
    assert!((0.95..1.15).contains(&(goes / fifo)), "after each write it moves: {goes}, {fifo} MB/s");
    let alone = rate(&mut *sorting(&[("dwell", "1.5")]), &in_turn(1, 0, 400), 32);
    assert!(alone > 247.0, "no write waits elsewhere: {alone} MB/s");
}

#[test]
fn move_that_was_not_paid_for_is_not_made() {
    // Independent of the policy, although the oldest or the nearest write would always be
    // elsewhere.
    for policy in ["fifo", "visit", "sptf", "asptf"] {
        let changes = [("dwell", "1.5"), ("policy", policy), ("alpha", "100")];
        let all = visits(&mut *sorting(&changes), &in_turn(2, 40_000, 360), 4);
        let amid = &all[4..all.len() - 4];
        assert!(amid.iter().all(|writes| *writes >= 3), "{policy}: {amid:?}");
    }
}

#[test]
fn write_that_waits_for_the_link_alone_ends_no_visit() {
    // The cache takes everything, and the link delivers a zone's writes faster than the head writes
    // them.
    let all = visits(&mut *sorting(&[("dwell", "1.5"), ("cache_bytes", "0")]), &in_turn(2, 40_000, 600), 32);
    assert!(all.len() < 6, "{all:?}");
}

#[test]
fn missed_turn_does_not_begin_the_stream_again() {
    let mut model = sorting(&[("dwell", "1.5"), ("cache_bytes", "4M")]);
    let near = in_turn(1, 0, 7);
    let far = |n: u64| write(40_000 * 524_288 + n * u64::from(MIB), MIB);
    model.submit(Nanos(0), 0, &near[0]);
    // The position has passed when the stream continues, and the cache fills up soon.
    let now = Nanos(drain(&mut *model).0 + 3_000_000);
    let rest: Vec<Job> = near[1..].iter().copied().chain((0..4).map(far)).collect();
    let order = [1, 7, 2, 8, 3, 9, 4, 10, 5, 6].map(|at: usize| rest[at - 1]);
    order.iter().enumerate().for_each(|(n, job)| model.submit(now, n as Tag + 1, job));
    let mut seen = Visits { written: model.totals().written, ..Visits::default() };
    while let Some(next) = model.next() {
        model.run(next, &mut |_, _| {});
        seen.look(&*model);
    }
    // Three writes pay for the move, including the one before the missed rotation.
    assert_eq!(seen.all[0], 2, "{:?}", seen.all);
}

#[test]
fn commands_that_wait_for_long_have_the_oldest_written_and_a_single_one_does_not() {
    // Jumps from zone to zone across the disk, each write in a different one.
    let place = |n: u64| n * 37 % 101 * 947 * 524_288 + n / 101 * u64::from(MIB);
    let jobs: Vec<Job> = (0..1000).map(|n| write(place(n), MIB)).collect();
    let of = |patience: &'static str, depth| rate(&mut *sorting(&[("patience_us", patience)]), &jobs, depth);
    let fifo = rate(&mut *sorting(&[("policy", "fifo")]), &jobs, 32);
    assert!(of("0", 32) > 1.4 * fifo, "order pays: {} and {fifo} MB/s", of("0", 32));
    let impatient = of("100000", 32);
    assert!((0.95..1.1).contains(&(impatient / fifo)), "{impatient} and {fifo} MB/s");
    assert_eq!(of("100000", 1), of("0", 1), "one command has its room in time");
}

#[test]
fn inner_zones_are_slower_by_their_place() {
    let ratios: Vec<f64> = [0.0, 0.5, 0.999]
        .map(|place| {
            let zone = (96_857.0 * place) as u64;
            let jobs: Vec<Job> = (0..250).map(|n| write(zone * 524_288 + n * u64::from(MIB), MIB)).collect();
            rate(&mut *model("smr-hdd-26t", &[]), &jobs, 4)
        })
        .to_vec();
    assert!((0.75..0.80).contains(&(ratios[1] / ratios[0])), "{ratios:?}");
    assert!((0.47..0.50).contains(&(ratios[2] / ratios[0])), "{ratios:?}");
}

#[test]
fn durable_writes_and_flushes_are_answered_once_the_medium_has_them() {
    let mut model = model("smr-hdd-26t", &[]);
    model.submit(Nanos(0), 0, &write(0, MIB));
    model.submit(Nanos(0), 1, &Job { fua: true, ..write(u64::from(MIB), MIB) });
    model.submit(Nanos(0), 2, &job(Op::Flush, 0, 0));
    let mut answers = Answers::new();
    let mut on_the_medium = Vec::new();
    while let Some(next) = model.next() {
        model.run(next, &mut |at, tag| answers.push((at.0, tag)));
        on_the_medium.resize(answers.len(), model.totals().written);
    }
    assert_eq!(answers.iter().map(|(_, tag)| *tag).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(on_the_medium, [0, u64::from(2 * MIB), u64::from(2 * MIB)]);
}

#[test]
fn flush_waits_for_earlier_writes_but_not_for_later_ones() {
    let far = write(50_000 * 524_288, MIB);
    let stream = in_turn(1, 0, 500);
    let mut jobs = stream[..8].to_vec();
    jobs.extend([far, job(Op::Flush, 0, 0)]);
    jobs.extend(&stream[8..]);
    let mut model = sorting(&[]);
    let answers = play(&mut *model, &jobs, 8);
    let at = |tag: Tag| answers.iter().find(|(_, t)| *t == tag).expect("all are answered").0;
    assert!(at(9) < at(8) + 150_000_000, "{} ms", (at(9) - at(8)) / 1_000_000);
    assert!(at(9) < at(499) / 4, "the stream goes on for long after");
}

#[test]
fn flush_has_something_to_do_where_the_cache_is_on() {
    let has_cache = |on| {
        let profile = Profile::open("smr-hdd-30t", &[("write_cache", on)]).unwrap();
        profile.simulated("x").unwrap().info().volatile_cache
    };
    assert_eq!((has_cache("1"), has_cache("0")), (true, false));
}

#[test]
fn refused_commands_cost_the_medium_nothing() {
    let mut model = model("smr-hdd-26t", &[]);
    let answers = play(&mut *model, &[Job { refused: true, ..write(0, MIB) }], 1);
    assert!(answers[0].0 < 1_000_000);
    assert_eq!(model.totals(), Default::default());
}

#[test]
fn reads_that_go_on_run_at_the_rate_of_the_medium() {
    let jobs: Vec<Job> = (0..250).map(|n| job(Op::Read, n * u64::from(MIB), MIB)).collect();
    for depth in [1, 4] {
        let rate = rate(&mut *model("smr-hdd-26t", &[]), &jobs, depth);
        assert!((240.0..252.0).contains(&rate), "depth {depth}: {rate} MB/s");
    }
}

#[test]
fn random_reads_get_faster_with_depth_and_none_is_forgotten() {
    let place = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 50_000_000_000 / 8 * 8;
    let jobs: Vec<Job> = (0..400).map(|n| job(Op::Read, place(n), 8)).collect();
    let of_depth = |depth| {
        let last = play(&mut *model("smr-hdd-26t", &[]), &jobs, depth).last().unwrap().0;
        400.0 / (last as f64 / 1e9)
    };
    let (one, many) = (of_depth(1), of_depth(32));
    // An average seek plus half a rotation; then the gain from reordering.
    assert!((60.0..120.0).contains(&one) && many > 1.5 * one, "{one} and {many} reads a second");
}

#[test]
fn arm_moves_by_the_curve_through_the_three_points_of_the_data_sheet() {
    // A disk without rotation and with the same rate everywhere: a short read takes only the seek
    // time.
    let still = [("turn_us", "0"), ("inner_ratio", "0.999"), ("read_ahead_us", "0")];
    let micros = |share: f64| {
        let zone = (96_857.0 * share) as u64;
        let read = |sector| job(Op::Read, sector, 8);
        let answers = play(&mut *model("smr-hdd-26t", &still), &[read(0), read(zone * 524_288 + 80_000)], 1);
        (answers[1].0 - answers[0].0) as f64 / 1000.0
    };
    // To another track, over a third, and over all of the stroke, as in the profile. Over a ninth:
    // 1200 + 8469 * sqrt(1/9) + 6331 / 9, on the curve through these points.
    for (share, expected) in [(0.0, 1200.0), (1.0 / 9.0, 4726.0), (1.0 / 3.0, 8200.0), (0.9999, 16_000.0)] {
        let took = micros(share);
        assert!(
            (expected - 50.0..expected + 150.0).contains(&took),
            "{share}: {took} us, {expected} by the curve"
        );
    }
}

#[test]
fn flash_flush_is_answered_after_all_writes_before_it() {
    let mut model = model("zns-1t", &[]);
    let mut answers = play(&mut *model, &[write(0, MIB), job(Op::Flush, 0, 0)], 2);
    answers.sort_by_key(|(_, tag)| *tag);
    // A mebibyte takes a zone 0.8 ms.
    assert!(answers[0].0 > 700_000 && answers[1].0 >= answers[0].0, "{answers:?}");
}

#[test]
fn flash_write_waits_for_its_zone_and_not_for_another() {
    let last = |zones: u64| {
        let jobs: Vec<Job> =
            (0..8).map(|n| write(n % zones * 4_194_304 + n / zones * u64::from(MIB), MIB)).collect();
        play(&mut *model("zns-1t", &[]), &jobs, 8).last().unwrap().0
    };
    let (one, many) = (last(1), last(8));
    // 1340 MB/s in a zone, 2700 in the drive.
    assert!((6_200_000..6_800_000).contains(&one), "{one} ns in one zone");
    assert!(many * 17 < one * 10, "{many} ns in eight zones, {one} in one");
}

#[test]
fn flash_overlaps_commands_and_keeps_their_order() {
    let jobs: Vec<Job> = (0..100).map(|n| write(n * 8, 8)).collect();
    let one = play(&mut *model("ufs-zoned", &[]), &jobs, 1);
    let many = play(&mut *model("ufs-zoned", &[]), &jobs, 16);
    assert!(many.is_sorted_by_key(|(_, tag)| *tag));
    let gain = one.last().unwrap().0 as f64 / many.last().unwrap().0 as f64;
    assert!((1.8..2.3).contains(&gain), "{gain}");
}

/// 4 KiB reads at pseudo-random positions across the drive.
fn random_reads(count: u64) -> Vec<Job> {
    let mut state = 1u64;
    let mut place = || {
        // Xorshift: multiples of a number would be distributed over the dies more evenly than
        // random ones.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % 1_900_000_000 / 8 * 8
    };
    (0..count).map(|_| job(Op::Read, place(), 8)).collect()
}

/// Published series of the drive in thousand reads per second, which the profile was fitted to.
#[test]
fn flash_random_reads_scale_with_depth_as_published() {
    let jobs = random_reads(20_000);
    for (depth, published) in [(1, 10.7), (2, 21.4), (4, 43.7), (8, 86.5), (16, 160.8), (32, 250.5)] {
        let last = play(&mut *model("zns-1t", &[]), &jobs, depth).last().unwrap().0;
        let rate = jobs.len() as f64 / (last as f64 / 1e6);
        let error = rate / published - 1.0;
        assert!(error.abs() < 0.15, "depth {depth}: {rate:.1} k/s, published {published}");
    }
}

#[test]
fn flash_read_of_an_idle_die_passes_one_that_waits_for_its_die() {
    let read = |sector| job(Op::Read, sector, 8);
    // The first two are on the same die.
    let answers = play(&mut *model("zns-1t", &[]), &[read(0), read(8), read(128)], 3);
    assert_eq!(answers.iter().map(|(_, tag)| *tag).collect::<Vec<_>>(), [0, 2, 1]);
    assert!(answers[2].0 * 10 > answers[0].0 * 19, "a die reads one after the other: {answers:?}");
}

#[test]
fn flash_large_reads_share_the_link_and_fill_it() {
    let jobs: Vec<Job> = (0..1000).map(|n| job(Op::Read, n * u64::from(MIB + 128), MIB)).collect();
    let rate = rate(&mut *model("zns-1t", &[]), &jobs, 64);
    // 64 dies of 800 MB/s behind a link of 7000.
    assert!((6_300.0..7_000.0).contains(&rate), "{rate} MB/s");
}

#[test]
fn flash_writes_take_the_same_time_beside_reads() {
    let writes: Vec<Job> = (0..400).map(|n| write(n % 14 * 4_194_304 + n / 14 * 256, 256)).collect();
    let reads = random_reads(400);
    let mixed: Vec<Job> = writes.iter().zip(&reads).flat_map(|(write, read)| [*write, *read]).collect();
    let alone = play(&mut *model("zns-1t", &[]), &writes, writes.len());
    let mut beside = play(&mut *model("zns-1t", &[]), &mixed, mixed.len());
    beside.retain(|(_, tag)| tag % 2 == 0);
    beside.iter_mut().for_each(|(_, tag)| *tag /= 2);
    assert_eq!(alone, beside);
}

/// Sectors that a zone of the ZNS drive holds, and the start of the second zone.
const ZNS_CAPACITY: u32 = 1077 * MIB;
const ZNS_SECOND: u64 = 4_194_304;

/// Time of `op` on the first zone with this share of it written, in milliseconds.
fn managed(op: Op, written: u32) -> f64 {
    let mut model = model("zns-1t", &[]);
    if written > 0 {
        model.submit(Nanos(0), 0, &write(0, written));
    }
    let begin = drain(&mut *model);
    model.submit(begin, 1, &job(op, 0, 0));
    (drain(&mut *model).0 - begin.0) as f64 / 1e6
}

/// Published means of a ZN540, by the share of the zone that is written.
#[test]
fn flash_reset_and_finish_take_as_long_as_published() {
    let of = |share: f64| (share * f64::from(ZNS_CAPACITY)) as u32;
    let resets = [(1.0 / 16.0, 5.15), (0.125, 6.32), (0.25, 8.14), (0.5, 11.61), (1.0, 16.19)];
    for (share, published) in resets {
        let error = managed(Op::ZoneReset, of(share)) / published - 1.0;
        assert!(error.abs() < 0.12, "reset at {share}: {error}");
    }
    let finishes = [(0.0, 907.51), (1.0 / 16.0, 848.27), (0.125, 792.7), (0.25, 681.05), (0.5, 456.76)];
    for (share, published) in finishes.into_iter().chain([(1.0, 3.07)]) {
        let error = managed(Op::ZoneFinish, of(share).clamp(8, ZNS_CAPACITY - 8)) / published - 1.0;
        assert!(error.abs() < 0.015, "finish at {share}: {error}");
    }
    for (op, written) in [(Op::ZoneReset, 0), (Op::ZoneFinish, 0), (Op::ZoneFinish, ZNS_CAPACITY)] {
        assert_eq!(managed(op, written), 0.01, "nothing to do: {op:?} with {written}");
    }
}

#[test]
fn flash_zone_that_is_finished_or_reset_is_full_or_empty() {
    let mut model = model("zns-1t", &[]);
    let mut now = Nanos(0);
    let mut time = |op| {
        model.submit(now, 0, &job(op, 0, 0));
        let begin = std::mem::replace(&mut now, drain(&mut *model));
        now.0 - begin.0
    };
    let (empty, full) = (10_000, 16_200_000);
    assert_eq!(time(Op::ZoneFinish), empty);
    assert_eq!(time(Op::ZoneReset), full);
    assert_eq!(time(Op::ZoneReset), empty);
    assert_eq!(time(Op::ZoneFinish), empty);
    assert_eq!([time(Op::ResetAll), time(Op::ResetAll)], [full, empty]);
}

#[test]
fn flash_zone_in_reset_is_busy_and_others_go_on() {
    let mut model = model("zns-1t", &[]);
    model.submit(Nanos(0), 0, &write(0, ZNS_CAPACITY));
    let begin = drain(&mut *model);
    let jobs = [job(Op::ZoneReset, 0, 0), write(0, 8), write(ZNS_SECOND, 8)];
    (0..).zip(&jobs).for_each(|(tag, job)| model.submit(begin, tag, job));
    let mut ends = [0; 3];
    while let Some(next) = model.next() {
        model.run(next, &mut |at, tag| ends[tag as usize] = at.0 - begin.0);
    }
    assert!(ends[0] == 16_200_000 && ends[1] > ends[0] && ends[2] < 100_000, "{ends:?}");
}

#[test]
fn flash_reset_takes_the_time_of_any_command_without_data_if_it_has_no_own() {
    let mut model = model("ufs-zoned", &[]);
    model.submit(Nanos(0), 0, &write(0, MIB));
    let begin = drain(&mut *model);
    model.submit(begin, 1, &job(Op::ZoneReset, 0, 0));
    // The link, a reset, the way back.
    assert_eq!(drain(&mut *model).0 - begin.0, 10_000 + 500_000 + 10_000);
}

/// Published differences between the formats of a ZN540, in microseconds: from the latency of 4 KiB
/// in the format of 4096 bytes, and from 8 KiB on that of the same write.
#[test]
fn flash_short_writes_take_longer_in_the_format_of_512_bytes() {
    let latency = |format: &'static str, sectors| {
        let changes = [("format", format), ("link_mb_s", "0"), ("drive_mb_s", "0"), ("zone_mb_s", "0")];
        play(&mut *model("zns-1t", &changes), &[write(0, sectors)], 1)[0].0 as f64 / 1e3
    };
    for (sectors, published) in [(1, 13.4), (2, 12.3), (8, 8.4)] {
        let longer = latency("512", sectors) - latency("4096", 8);
        assert!((longer - published).abs() < 3.0, "{sectors} sectors: {longer} us longer");
    }
    for sectors in [16, 256] {
        assert_eq!(latency("512", sectors), latency("4096", sectors), "{sectors} sectors");
    }
}

fn any_job() -> impl Strategy<Value = Job> {
    let op = prop_oneof![
        4 => Just(Op::Write),
        2 => Just(Op::Read),
        1 => Just(Op::WriteZeroes),
        1 => Just(Op::Flush),
        1 => Just(Op::ZoneReset),
    ];
    (op, 0u64..40, 0u64..256, 1u32..512, any::<bool>(), prop::bool::weighted(0.1)).prop_map(
        |(op, zone, at, blocks, fua, refused)| {
            let sectors = if matches!(op, Op::Flush | Op::ZoneReset) { 0 } else { blocks * 8 };
            Job { op, sector: Sector(zone * 524_288 * 50 + at * 1024), sectors, fua, refused }
        },
    )
}

fn any_changes() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let one_of = |key: &'static str, values: &'static [&'static str]| {
        prop::sample::select(values).prop_map(move |value| (key, value))
    };
    vec![
        one_of("policy", &["fifo", "visit", "sptf", "asptf"]).boxed(),
        one_of("write_cache", &["0", "1"]).boxed(),
        one_of("cache_bytes", &["0", "4096", "1M", "64M"]).boxed(),
        one_of("cache_commands", &["0", "1", "3"]).boxed(),
        one_of("cache_zone_commands", &["0", "1", "2"]).boxed(),
        one_of("cache_zone_bytes", &["0", "4096", "1M"]).boxed(),
        one_of("admits_in_order", &["0", "1"]).boxed(),
        one_of("window", &["0", "1", "3"]).boxed(),
        one_of("patience_us", &["0", "1000", "20000"]).boxed(),
        one_of("dwell", &["0", "0.1", "1.5"]).boxed(),
        one_of("turn_us", &["0", "8333.333"]).boxed(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every command completes once, submitted data is on the medium or held, and a repetition
    /// gives the same result.
    #[test]
    fn commands_are_answered_once_and_bytes_are_kept(
        jobs in prop::collection::vec(any_job(), 1..120),
        depth in 1usize..33,
        changes in any_changes(),
    ) {
        let play_all = || {
            let mut model = model("smr-hdd-26t", &changes);
            let answers = play(&mut *model, &jobs, depth);
            let totals = model.totals();
            assert_eq!(totals.submitted, totals.written + totals.held);
            drain(&mut *model);
            (answers, model.totals())
        };
        let (answers, totals) = play_all();
        let mut tags: Vec<Tag> = answers.iter().map(|(_, tag)| *tag).collect();
        tags.sort_unstable();
        prop_assert!(tags.iter().copied().eq(0..jobs.len() as Tag));
        let wanted: u64 =
            jobs.iter().filter(|j| j.op.is_write() && !j.refused).map(|j| u64::from(j.sectors)).sum();
        prop_assert_eq!((totals.submitted, totals.written, totals.held), (wanted, wanted, 0));
        prop_assert_eq!((answers, totals), play_all());
    }

    /// A caller that advances only to announced times sees the same completions as one that
    /// processes every event.
    #[test]
    fn answers_come_no_earlier_than_announced_and_are_the_same(
        jobs in prop::collection::vec(any_job(), 1..120),
        depth in 1usize..33,
        changes in any_changes(),
    ) {
        let all = play(&mut *model("smr-hdd-26t", &changes), &jobs, depth);
        let announced = play_announced(&mut *model("smr-hdd-26t", &changes), &jobs, depth);
        prop_assert_eq!(all, announced);
    }

    /// A distance delays the completions of a drive without moving parts by a round trip, and
    /// changes nothing else.
    #[test]
    fn distance_delays_each_answer_by_a_round_trip(
        jobs in prop::collection::vec(any_job(), 1..120),
        round_trip in 0u64..20_000_000,
    ) {
        let jobs: Vec<Job> = jobs.into_iter().map(|j| Job { sector: Sector(j.sector.0 % 1_000_000), ..j }).collect();
        let near = play(&mut *model("zns-1t", &[]), &jobs, jobs.len());
        let expected: Answers = near.iter().map(|(at, tag)| (at + round_trip, *tag)).collect();
        let far = || Remote::new(model("zns-1t", &[]), round_trip);
        prop_assert_eq!(&play(&mut far(), &jobs, jobs.len()), &expected);
        prop_assert_eq!(&play_announced(&mut far(), &jobs, jobs.len()), &expected);
    }

    /// More commands than the drive takes wait in front of it, and none is lost or overtaken.
    #[test]
    fn commands_in_front_of_a_full_drive_are_answered_once(
        jobs in prop::collection::vec(any_job(), 1..120),
        round_trip in 0u64..20_000_000,
        depth in 1usize..200,
    ) {
        let far = || Remote::new(model("smr-hdd-26t", &[("queue_depth", "4")]), round_trip);
        let answers = play(&mut far(), &jobs, depth);
        let mut tags: Vec<Tag> = answers.iter().map(|(_, tag)| *tag).collect();
        tags.sort_unstable();
        prop_assert!(tags.iter().copied().eq(0..jobs.len() as Tag));
        prop_assert_eq!(answers, play_announced(&mut far(), &jobs, depth));
    }

    #[test]
    fn flash_answers_once_in_order(jobs in prop::collection::vec(any_job(), 1..120), depth in 1usize..33) {
        let mut model = model("zns-1t", &[]);
        let jobs: Vec<Job> = jobs.into_iter().map(|j| Job { sector: Sector(j.sector.0 % 1_000_000), ..j }).collect();
        let mut tags: Vec<Tag> = play(&mut *model, &jobs, depth).iter().map(|(_, tag)| *tag).collect();
        tags.sort_unstable();
        prop_assert!(tags.iter().copied().eq(0..jobs.len() as Tag));
        let totals = model.totals();
        prop_assert_eq!((totals.submitted, totals.held), (totals.written, 0));
    }
}
