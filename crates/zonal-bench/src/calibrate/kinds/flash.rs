//! Runs and values of a flash drive: cost per command and per byte, for one zone and for the whole
//! drive.

use crate::calibrate::error::CalibrateError;
use crate::calibrate::runs::{Order, Outcome, Run, Runs, ZoneSpread};
use crate::calibrate::search::{Axis, Point};
use zonal_io::device::DeviceInfo;
use zonal_io::volume::WriteMode;
use zonal_sim::profile::{FlashValues, Sourced};

const ONE_4K: &str = "one-4K";
const ONE_32K: &str = "one-32K";
const ONE_1M: &str = "one-1M";
const EIGHT_4K: &str = "eight-4K";
const EIGHT_128K: &str = "eight-128K";

/// Number of zones, common to all runs.
const ZONES: u32 = 8;

/// The five runs, a second or two on a real drive. The run of medium size shows the cost per
/// command of a zone. For small writes the drive as a whole is the bottleneck.
pub(super) fn runs(info: &DeviceInfo) -> Result<Vec<Run>, CalibrateError> {
    let geometry = &info.geometry;
    let there = geometry.sequential_zones();
    let active = [info.open_max, info.active_max].into_iter().filter(|&max| max != 0).min();
    let zones = ZONES.min(active.unwrap_or(ZONES));
    if there < ZONES {
        return Err(CalibrateError::TooSmall { needed: ZONES, there, active: 0 });
    }
    let capacity = geometry.zone_capacity().bytes();
    let run = |name, block: u64, bytes: u64, zones| {
        let block = block.min(capacity / 8);
        let bytes = bytes.min(capacity / 4) / block * block;
        Run {
            name,
            block,
            bytes,
            places: vec![ZoneSpread::of(geometry.conventional_zones(), 1, zones)],
            order: Order::Sequential,
            mode: WriteMode::PerZone,
        }
    };
    Ok(vec![
        run(ONE_4K, 4096, 16 << 20, 1),
        run(ONE_32K, 32 << 10, 64 << 20, 1),
        run(ONE_1M, 1 << 20, 256 << 20, 1),
        run(EIGHT_4K, 4096, 4 << 20, zones),
        run(EIGHT_128K, 128 << 10, 64 << 20, zones),
    ])
}

pub(super) fn axes() -> Vec<Axis> {
    vec![
        Axis::Scale(0.1, 10_000.0),
        Axis::Scale(1.0, 100_000.0),
        Axis::Scale(0.1, 10_000.0),
        Axis::Scale(1.0, 100_000.0),
    ]
}

/// Derives a fixed time in microseconds and a rate in MB/s from the times of sequential writes of
/// two sizes.
fn service(small: (f64, f64), large: (f64, f64)) -> (f64, f64) {
    let rate = (large.0 - small.0) / (large.1 - small.1).max(1e-9);
    let rate = rate.clamp(1e6, 1e11);
    ((small.1 - small.0 / rate).max(1e-7) * 1e6, rate / 1e6)
}

/// Initial points from the sizes alone: the zone from its runs, the drive from its own.
pub(super) fn starts(values: &FlashValues, host: u64, runs: &Runs, measured: &[Outcome]) -> Vec<Point> {
    let took = |name: &str| {
        let at = runs.position(name).expect("it is one of the runs");
        let (run, outcome) = (&runs.list()[at], &measured[at]);
        (run.block as f64, outcome.seconds * run.block as f64 / outcome.bytes as f64)
    };
    // Time to the zone and back, without overlap.
    let around = (values.link_us.value + values.answer_us.value) / 1e6 + host as f64 / 1e9;
    let link = if values.link_mb_s.value == 0.0 { 0.0 } else { 1.0 / (values.link_mb_s.value * 1e6) };
    let alone = |(bytes, time): (f64, f64)| (bytes, (time - around - bytes * link).max(1e-7));
    let zone = service(alone(took(ONE_4K)), alone(took(ONE_1M)));
    let drive = service(took(EIGHT_4K), took(EIGHT_128K));
    let old = [values.zone_us.value.max(0.1), values.zone_mb_s.value.max(1.0)];
    vec![
        vec![zone.0, zone.1, drive.0, drive.1],
        vec![old[0], zone.1, drive.0, drive.1],
        vec![old[0], old[1], values.drive_us.value.max(0.1), values.drive_mb_s.value.max(1.0)],
    ]
}

pub(super) fn put(values: &mut FlashValues, point: &Point) {
    let value = |at: usize, runs: &str| Sourced::measured((point[at] * 1e3).round() / 1e3, runs);
    let zone = [ONE_4K, ONE_32K, ONE_1M].join(", ");
    let drive = [EIGHT_4K, EIGHT_128K].join(", ");
    values.zone_us = value(0, &zone);
    values.zone_mb_s = value(1, &zone);
    values.drive_us = value(2, &drive);
    values.drive_mb_s = value(3, &drive);
}
