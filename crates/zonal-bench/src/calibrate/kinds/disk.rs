//! Runs and values of an SMR disk: rates at three positions, and the behaviour of the head between
//! zones.

use crate::calibrate::Residual;
use crate::calibrate::error::CalibrateError;
use crate::calibrate::runs::{Order, Outcome, Run, Runs, ZoneSpread};
use crate::calibrate::search::{Axis, Point};
use zonal_io::device::DeviceInfo;
use zonal_io::volume::WriteMode;
use zonal_sim::profile::{SmrValues, Sourced};
use zonal_sim::smr::Policy;

/// Runs that measure the media rate, from the outer edge inwards.
pub(super) const POSITIONS: [&str; 3] = ["outer", "middle", "inner"];

const PAIR: &str = "pair";
const FAR_2: &str = "far-2";
const FAR_8: &str = "far-8";
const FAR_64: &str = "far-64";
const MANY_1M: &str = "many-1M";
const MANY_128K: &str = "many-128K";
const MANY_4K: &str = "many-4K";
const SHARED: &str = "shared";

/// Two streams this many zones apart. The length of a visit as a function of the seek distance
/// distinguishes destaging policies.
const APART: [(&str, u32); 6] = [
    ("apart-20", 20),
    ("apart-200", 200),
    ("apart-1000", 1000),
    ("apart-5000", 5000),
    ("apart-20000", 20_000),
    ("apart-60000", 60_000),
];

/// Intermediate numbers of zones across the whole disk. They show where the drive's patience ends,
/// and whether it is a time, which small writes do not reach, or a number of commands.
const FAR_16: &str = "far-16";
const FAR_16_SMALL: &str = "far-16-256K";
const FAR_32: &str = "far-32";

/// Queue depth 1 on the whole drive, which shows the reordering in its cache.
const QD1_128: &str = "qd1-128";

/// Runs used by the search: all but the positions.
const SEARCHED: &str = "all runs but outer, middle, inner";

/// Maximum number of zones written concurrently.
const MANY: u32 = 128;

/// Zones left partly written, as a multiple of those written concurrently: by random writes, by two
/// runs on half of the zones, by sequential and by shared writes.
const PARTLY_WRITTEN_FACTOR: u32 = 4;

/// Minimum number of zones written concurrently.
const MANY_MIN: u32 = 16;

/// Number of places for runs on two zones. The relative position of two zones is random, so a mean
/// is taken. Adjacent zones get more places, because the arm hardly moves there.
const PAIRS: u32 = 16;
const FARS: u32 = 12;

/// Number of places for the run on eight zones, and for the run on half of the zones.
const EIGHTS: u32 = 3;
const HALVES: u32 = 2;

/// Number of times that shared zones are written, number of jobs that share them, and their queue
/// depth.
const SHARED_PASSES: usize = 2;
const SHARERS: u32 = 16;
const SHARERS_DEPTH: u32 = 8;

/// Minimum distance between neighbouring zones of the large runs: the number of uses of a zone
/// below, so that runs do not overlap.
const STRIDE_MIN: u32 = 6 + CLUSTER + 2;

/// Zone uses of the runs on wide disks, after those of the other runs: two for each distance, then
/// one per run.
const APART_USE: u32 = STRIDE_MIN;
const FAR_USE: u32 = APART_USE + 2 * APART.len() as u32;

/// Runs on wide disks that use each zone of the large runs once.
const FAR_RUNS: u32 = 4;

/// Distance between neighbouring zones of the large runs on a disk wide enough for these runs. The
/// shorter distances fit in between.
const STRIDE_WIDE: u32 = FAR_USE + FAR_RUNS + 200;

/// Maximum number of zones that one of them writes concurrently.
const WIDE_ZONES: u32 = 32;

/// Places per distance.
const APART_PLACES: u32 = 6;

/// Number of neighbouring zones per job in the run with random writes.
const CLUSTER: u32 = 8;

const MIB: u64 = 1 << 20;

/// Size of the smallest writes in bytes, a block of any drive.
const SMALL: u64 = 4096;

/// Zones available to runs: as many zones as there are strides, starting at the first sequential
/// zone, then the strides, and two zones after them.
struct Span {
    first: u32,
    stride: u32,
    many: u32,
}

impl Span {
    fn of(info: &DeviceInfo) -> Result<Span, CalibrateError> {
        let geometry = &info.geometry;
        // The last zone may be smaller than the others.
        let there = geometry.sequential_zones().saturating_sub(1);
        let open = if info.open_max == 0 { MANY } else { info.open_max };
        // Zones of earlier runs are partly written as well.
        let others = if info.active_max == 0 { 0 } else { 2 * (PAIRS + FARS) + 8 * EIGHTS };
        let active = match info.active_max {
            0 => open,
            max => open.min(max.saturating_sub(others) / PARTLY_WRITTEN_FACTOR),
        };
        let many = MANY.min(active).min(there.saturating_sub(2) / (STRIDE_MIN + 1));
        if many < MANY_MIN {
            let active = if active < MANY_MIN { PARTLY_WRITTEN_FACTOR * MANY_MIN + others } else { 0 };
            return Err(CalibrateError::TooSmall {
                needed: MANY_MIN * (STRIDE_MIN + 1) + 3,
                there: there + 1,
                active,
            });
        }
        let first = geometry.conventional_zones() + many;
        Ok(Span { first, stride: (there - 2 - many) / many, many })
    }

    /// Zone `use_of` of stride `n`.
    fn at(&self, n: u32, use_of: u32) -> u32 {
        self.first + n * self.stride + use_of
    }
}

/// Runs on disks with many zones and no limit on active zones: those before the runs with shared
/// zones, and the one after.
fn runs_of_wide(
    span: &Span,
    run: &dyn Fn(&'static str, u64, u64, Vec<ZoneSpread>) -> Run,
) -> (Vec<Run>, Option<Run>) {
    let two = |(n, (name, zones)): (usize, (&'static str, u32))| {
        let use_of = APART_USE + 2 * n as u32;
        // A different use of a zone some strides away, or a zone between the uses of neighbouring
        // strides.
        let strides = (f64::from(zones) / f64::from(span.stride)).round() as u32;
        let apart = if strides == 0 { zones } else { strides.min(span.many - 1) * span.stride + 1 };
        let room = span.many - strides.min(span.many - 1);
        let count = APART_PLACES.min(room);
        let places =
            (0..count).map(|n| ZoneSpread::of(span.at(n * room / count, use_of), apart, 2)).collect();
        run(name, MIB, 32 * MIB, places)
    };
    let over_all = |use_of: u32, zones: u32| {
        vec![ZoneSpread::of(span.at(0, FAR_USE + use_of), span.many / zones * span.stride, zones)]
    };
    let all = ZoneSpread::of(span.at(0, FAR_USE + 3), span.stride, span.many);
    let mut runs: Vec<Run> = APART.into_iter().enumerate().map(two).collect();
    runs.push(run(FAR_16, MIB, 24 * MIB, over_all(0, 16)));
    runs.push(run(FAR_16_SMALL, MIB / 4, 6 * MIB, over_all(1, 16)));
    runs.push(run(FAR_32, MIB, 12 * MIB, over_all(2, WIDE_ZONES)));
    (runs, Some(Run { mode: WriteMode::Qd1, ..run(QD1_128, MIB, 4 * MIB, vec![all]) }))
}

/// All runs, two to three minutes on a real disk.
pub(super) fn runs(info: &DeviceInfo) -> Result<Vec<Run>, CalibrateError> {
    let span = Span::of(info)?;
    let capacity = info.geometry.zone_capacity().bytes();
    let part = |of: u64, block: u64| of.min(capacity / 2).max(block) / block * block;
    let block = (MIB.min(capacity / 8) / SMALL * SMALL).max(SMALL);
    let sequential = |name, n: u32| Run {
        name,
        block,
        bytes: (2 * capacity).min(512 * MIB) / block * block,
        places: vec![ZoneSpread { in_a_row: 2, ..ZoneSpread::of(span.at(n, 0), 2, 1) }],
        order: Order::Sequential,
        mode: WriteMode::PerZone,
    };
    let run = |name, block, bytes, places| Run {
        name,
        block,
        bytes: part(bytes, block),
        places,
        order: Order::Sequential,
        mode: WriteMode::PerZone,
    };
    let spread = |count: u32, among: u32| {
        let room = span.many - among;
        let count = count.min(room);
        (0..count).map(move |n| n * room / count)
    };
    let pairs = spread(PAIRS, 1).map(|n| ZoneSpread::of(span.at(n, 2), 1, 2)).collect();
    let third = span.many / 3;
    let far = spread(FARS.min(third), third)
        .map(|n| ZoneSpread::of(span.at(n, 4), third * span.stride, 2))
        .collect();
    let eighth = span.many / 8;
    let eight = (0..EIGHTS)
        .map(|n| ZoneSpread::of(span.at(n * eighth / EIGHTS, 5), eighth * span.stride, 8))
        .collect();
    let half = |n| ZoneSpread::of(span.at(n, 7 + CLUSTER), 2 * span.stride, span.many / 2);
    let many = || vec![ZoneSpread::of(span.at(0, 6 + CLUSTER), span.stride, span.many)];
    let clusters = ZoneSpread {
        in_a_row: CLUSTER,
        ..ZoneSpread::of(span.at(0, 6), CLUSTER * span.stride, span.many / CLUSTER)
    };
    let at_random =
        Run { order: Order::Random { depth: CLUSTER }, ..run(MANY_1M, block, 12 * block, vec![clusters]) };
    let at_random = Run { bytes: at_random.bytes * u64::from(CLUSTER), ..at_random };
    let side_by_side = ZoneSpread { in_a_row: span.many, ..ZoneSpread::of(span.first - span.many, 0, 1) };
    let shared = Run {
        order: Order::Shared { jobs: SHARERS, depth: SHARERS_DEPTH },
        mode: WriteMode::Qd1,
        ..run(SHARED, block, (16 * MIB).min(capacity / 4), vec![side_by_side; SHARED_PASSES])
    };
    let has_room = span.many >= WIDE_ZONES && span.stride >= STRIDE_WIDE;
    let is_wide = has_room && info.active_max == 0 && capacity >= 128 * MIB;
    let (wide, in_qd1) = if is_wide { runs_of_wide(&span, &run) } else { (Vec::new(), None) };
    let mut runs = vec![
        sequential(POSITIONS[0], 0),
        sequential(POSITIONS[1], span.many / 2),
        sequential(POSITIONS[2], span.many),
        run(PAIR, block, 48 * MIB, pairs),
        run(FAR_2, block, 64 * MIB, far),
        run(FAR_8, block, 48 * MIB, eight),
        run(FAR_64, block, 6 * MIB, (0..HALVES).map(half).collect()),
        at_random,
        run(MANY_128K, (block / 8).max(SMALL), 2 * block, many()),
        run(MANY_4K, SMALL, 16 * SMALL, many()),
    ];
    runs.extend(wide);
    runs.extend([shared].into_iter().chain(in_qd1));
    Ok(runs)
}

/// Derives the outer rate and the inner ratio from the positions. The square of the rate is linear
/// in the position.
pub(super) fn rates(values: &mut SmrValues, zones: u64, runs: &Runs, measured: &[Outcome]) {
    let points: Vec<(f64, f64)> = POSITIONS
        .iter()
        .filter_map(|name| runs.position(name))
        .map(|at| {
            let place = (f64::from(runs.list()[at].places[0].first) + 0.5) / zones as f64;
            (place, measured[at].megabytes_a_second().powi(2))
        })
        .collect();
    let (at_edge, slope) = line(&points);
    let ratio = (1.0 + slope / at_edge).max(0.0).sqrt();
    let rows = POSITIONS.join(", ");
    values.outer_rate_mb_s = Sourced::measured(rounded(at_edge.sqrt()), &rows);
    values.inner_ratio = Sourced::measured(rounded(ratio.clamp(0.01, 0.999)), &rows);
}

/// Fits a straight line by least squares. Returns its value at 0 and its slope.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let slope = mean(&|p| (p.0 - x) * (p.1 - y)) / mean(&|p| (p.0 - x).powi(2));
    (y - slope * x, slope)
}

/// Rounds to the significant digits.
fn rounded(value: f64) -> f64 {
    let digits = 10f64.powi(4 - value.abs().max(1e-9).log10().floor() as i32);
    (value * digits).round() / digits
}

/// Weight of a run's error. In runs of small writes each zone is visited only a few times, so they
/// are noisier.
pub(super) fn weight(run: &str) -> f64 {
    match run {
        MANY_128K => 0.25,
        MANY_4K => 0.15,
        _ => 1.0,
    }
}

pub(super) fn correct(values: &mut SmrValues, residuals: &[Residual]) -> bool {
    let lost = |name: &str| residuals.iter().find(|r| r.run == name).map(|r| 1.0 / (1.0 + r.error()));
    let (Some(outer), Some(inner)) = (lost(POSITIONS[0]), lost(POSITIONS[2])) else { return false };
    values.outer_rate_mb_s.value = rounded(values.outer_rate_mb_s.value * outer);
    values.inner_ratio.value = rounded((values.inner_ratio.value * inner / outer).clamp(0.01, 0.999));
    true
}

const POLICY: usize = 0;
const ALPHA: usize = 1;
const WINDOW: usize = 2;
const CACHE_MIB: usize = 3;
const CACHE_COMMANDS: usize = 4;
const ZONE_COMMANDS: usize = 5;
const ZONE_MIB: usize = 6;
const SEEK_SINGLE: usize = 7;
const SEEK_THIRD: usize = 8;
const SEEK_FULL: usize = 9;
const PATIENCE_MS: usize = 10;
const DWELL: usize = 11;
const IN_ORDER: usize = 12;
const AXES: usize = 13;

/// Maximum size of a command in the runs.
const COMMAND_MIB_MAX: f64 = 1.0;

/// Top of a ladder of limits: unlimited.
const NO_LIMIT: f64 = 0.0;

/// Cache limits per zone, in MiB.
const ZONE_MIBS: [f64; 11] = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0];

pub(super) fn axes() -> Vec<Axis> {
    let ladder = |steps: &[f64]| Axis::Ladder(steps.iter().copied().chain([NO_LIMIT]).collect());
    vec![
        Axis::Any((0..Policy::ALL.len()).map(|n| n as f64).collect()),
        Axis::Scale(0.05, 2.0),
        ladder(&[2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
        Axis::Scale(1.0, 1024.0),
        ladder(&[16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0]),
        ladder(&[1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0]),
        ladder(&ZONE_MIBS),
        Axis::Scale(50.0, 4000.0),
        Axis::Scale(2000.0, 20_000.0),
        Axis::Scale(4000.0, 40_000.0),
        ladder(&[25.0, 50.0, 75.0, 100.0, 125.0, 150.0, 200.0, 250.0, 300.0, 500.0]),
        ladder(&[0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 3.0, 4.0]),
        Axis::Any(vec![0.0, 1.0]),
    ]
}

/// Smallest initial cache. It never fills if zones have small limits.
const CACHE_MIB_MIN: f64 = 16.0;

/// Initial values of policy, alpha, patience in ms, and dwell.
const POLICIES: [(usize, f64, f64, f64); 8] = [
    (0, 0.5, NO_LIMIT, NO_LIMIT),
    (1, 0.5, NO_LIMIT, NO_LIMIT),
    (2, 0.5, NO_LIMIT, NO_LIMIT),
    (2, 0.5, 120.0, 1.5),
    (2, 0.5, 200.0, 1.0),
    (3, 0.4, NO_LIMIT, NO_LIMIT),
    (3, 0.75, NO_LIMIT, NO_LIMIT),
    (3, 0.5, 150.0, 1.5),
];

/// Initial points: each policy, with cache limits derived from the flush times.
pub(super) fn starts(values: &SmrValues, command_max: u64, runs: &Runs, measured: &[Outcome]) -> Vec<Point> {
    let held = |name: &str| {
        let at = runs.position(name).expect("it is one of the runs");
        let (outcome, places) = (&measured[at], runs.list()[at].places.len() as f64);
        outcome.flushing / places * outcome.megabytes_a_second() * 1e6 / MIB as f64
    };
    let cache = [PAIR, FAR_2, FAR_8, FAR_64, MANY_1M].map(held).into_iter().fold(CACHE_MIB_MIN, f64::max);
    let command = command_max.clamp(SMALL, MIB) as f64 / MIB as f64;
    let limits = zone_limits(held(PAIR), command);
    let point = |&(policy, alpha, patience, dwell): &(usize, f64, f64, f64), limit: &Limit| {
        let mut point = vec![NO_LIMIT; AXES];
        (point[POLICY], point[ALPHA]) = (policy as f64, alpha);
        (point[PATIENCE_MS], point[DWELL]) = (patience, dwell);
        (point[CACHE_MIB], point[IN_ORDER]) = (cache, f64::from(u8::from(values.admits_in_order.value)));
        (point[ZONE_COMMANDS], point[ZONE_MIB]) = (limit.commands, limit.mib);
        point[SEEK_SINGLE] = values.seek_single_us.value;
        point[SEEK_THIRD] = values.seek_third_us.value;
        point[SEEK_FULL] = values.seek_full_us.value;
        point
    };
    POLICIES.iter().flat_map(|policy| limits.iter().map(move |limit| point(policy, limit))).collect()
}

/// Cache limits per zone.
struct Limit {
    commands: f64,
    mib: f64,
}

/// Limits per zone, in bytes or in commands of `command` MiB, with which writes to two zones can
/// leave `held` MiB to flush. That is everything cached for the last zone, and the part of the
/// other zone not yet written. The search covers further combinations.
fn zone_limits(held: f64, command: f64) -> Vec<Limit> {
    let may_be = ZONE_MIBS.into_iter().filter(|mib| (0.45 * held..=1.15 * held + 1.0).contains(mib));
    let limits = may_be.flat_map(|mib| {
        let commands = (mib / command).round().max(1.0);
        [Limit { commands, mib: NO_LIMIT }, Limit { commands: NO_LIMIT, mib }]
    });
    let unlimited = Limit { commands: NO_LIMIT, mib: NO_LIMIT };
    let is_none_likely = held > 12.0;
    limits.chain(is_none_likely.then_some(unlimited)).collect()
}

pub(super) fn normalise(point: &mut Point) {
    drop_redundant_limits(point);
    let policy = Policy::ALL[point[POLICY] as usize];
    if policy != Policy::Asptf {
        point[ALPHA] = 0.5;
    }
    if policy == Policy::Fifo {
        point[PATIENCE_MS] = NO_LIMIT;
    }
    point[ALPHA] = rounded(point[ALPHA]);
    point[CACHE_MIB] = point[CACHE_MIB].round().max(1.0);
    for seek in [SEEK_SINGLE, SEEK_THIRD, SEEK_FULL] {
        point[seek] = point[seek].round();
    }
    point[SEEK_THIRD] = point[SEEK_THIRD].max(point[SEEK_SINGLE]);
    point[SEEK_FULL] = point[SEEK_FULL].max(point[SEEK_THIRD]);
}

/// Removes limits that other limits keep from taking effect.
fn drop_redundant_limits(point: &mut Point) {
    let of_zone = point[ZONE_COMMANDS];
    if of_zone == NO_LIMIT {
        return;
    }
    if point[ZONE_MIB] >= of_zone * COMMAND_MIB_MAX {
        point[ZONE_MIB] = NO_LIMIT;
    }
    if point[CACHE_COMMANDS] >= of_zone * f64::from(MANY) {
        point[CACHE_COMMANDS] = NO_LIMIT;
    }
}

pub(super) fn put(values: &mut SmrValues, point: &Point) {
    let of = |at: usize| Sourced::measured(point[at], SEARCHED);
    let limit = |at: usize| Sourced::measured(point[at] as u32, SEARCHED);
    let mib = |at: usize| Sourced::measured((point[at] * MIB as f64) as u64, SEARCHED);
    values.policy = Sourced::measured(Policy::ALL[point[POLICY] as usize], SEARCHED);
    values.alpha = of(ALPHA);
    values.window = limit(WINDOW);
    values.cache_bytes = mib(CACHE_MIB);
    values.cache_commands = limit(CACHE_COMMANDS);
    values.cache_zone_commands = limit(ZONE_COMMANDS);
    values.cache_zone_bytes = mib(ZONE_MIB);
    values.admits_in_order = Sourced::measured(point[IN_ORDER] != 0.0, SEARCHED);
    values.patience_us = Sourced::measured(point[PATIENCE_MS] * 1000.0, SEARCHED);
    values.dwell = of(DWELL);
    values.seek_single_us = of(SEEK_SINGLE);
    values.seek_third_us = of(SEEK_THIRD);
    values.seek_full_us = of(SEEK_FULL);
}
