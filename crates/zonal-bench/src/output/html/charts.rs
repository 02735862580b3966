//! Data of the charts, as JSON.
//!
//! Its size is bounded: a series has at most [`BUCKETS_MAX`](crate::measure::series::BUCKETS_MAX)
//! points, fewer for a job among many, and beyond [`JOBS_MAX`] jobs it has only their sum.

use super::tables::{labels, name_of};
use crate::measure::Dir;
use crate::measure::Latency;
use crate::measure::series::{
    Bucket, FlowBucket, FlowSeries, JobSeries, ModeSeries, PositionSeries, ZoneMap,
};
use crate::report::{DirReport, ModeReport, Report};
use serde::Serialize;
use zonal_core::{Nanos, Sector};

/// Maximum number of jobs of a mode with series of their own.
const JOBS_MAX: usize = 64;

/// Maximum number of lines in a chart at full resolution. More lines hide each other.
const FINE_LINES_MAX: usize = 4;

/// Number of points per line if there are more lines.
const COARSE_POINTS: usize = 128;

/// Minimum number of requests per point. Fewer would show the times of single requests rather than
/// a rate.
const IOS_A_POINT: u64 = 16;

/// Duration below which a run has at most [`SHORT_POINTS`] points. Intervals of microseconds would
/// show the scheduling of threads rather than the drive.
const SHORT: Nanos = Nanos(1_000_000_000);

/// Maximum number of points in a line of a short run.
const SHORT_POINTS: usize = 32;

/// Step between points of a percentile curve, in powers of ten of the remainder above.
const CURVE_STEP: f64 = 0.05;

#[derive(Serialize)]
struct Charts {
    modes: Vec<Mode>,
}

#[derive(Serialize)]
struct Mode {
    name: &'static str,
    /// All jobs combined, and each one if there are several.
    entries: Vec<Entry>,
    /// Number of jobs without an entry of their own.
    left_out: usize,
    zone_bytes: Option<u64>,
    /// Writable part of a zone.
    zone_capacity: Option<u64>,
    positions: Vec<Positions>,
    zones: Vec<[u32; 3]>,
}

#[derive(Serialize)]
struct Entry {
    label: String,
    dirs: Vec<Direction>,
}

#[derive(Serialize)]
struct Direction {
    dir: &'static str,
    flow: Option<Flow>,
    curve: Option<Curve>,
}

/// Points over time: the centre and length of each, and its content.
#[derive(Serialize, Default)]
struct Flow {
    t: Vec<f64>,
    seconds: Vec<f64>,
    ios: Vec<u64>,
    bytes: Vec<u64>,
    mean: Vec<Option<u64>>,
    p99: Vec<Option<u64>>,
    max: Vec<Option<u64>>,
}

/// Latency against percentile. A percentile p is placed at -log10(1 - p/100), which makes 90, 99
/// and 99.9 equidistant.
#[derive(Serialize)]
struct Curve {
    kind: &'static str,
    points: Vec<(f64, u64)>,
}

/// Positions over time, in zones and fractions of zones.
#[derive(Serialize)]
struct Positions {
    name: &'static str,
    from: Vec<f64>,
    to: Vec<f64>,
    last: Vec<f64>,
    min: Vec<f64>,
    max: Vec<f64>,
    /// Touched stripes, each with its start and end.
    stripes: Vec<Vec<f64>>,
}

/// Data of all charts.
pub(super) fn to_json(report: &Report) -> String {
    let modes = report.modes.len();
    let charts = Charts { modes: report.modes.iter().map(|each| mode(each, modes)).collect() };
    serde_json::to_string(&charts).expect("numbers and text")
}

/// Data of one out of `modes` modes.
fn mode(mode: &ModeReport, modes: usize) -> Mode {
    let series = mode.series.as_deref();
    let zones = series.and_then(|series| series.zones.as_ref());
    Mode {
        name: mode.mode.name(),
        entries: entries(mode, modes),
        left_out: if mode.jobs.len() > 1 { mode.jobs.len().saturating_sub(JOBS_MAX) } else { 0 },
        zone_bytes: series.map(|series| series.device.geometry.zone_size().bytes()),
        zone_capacity: series.map(|series| series.device.geometry.zone_capacity().bytes()),
        positions: series.map_or(Vec::new(), |series| positions(mode, series)),
        zones: zones.map_or(Vec::new(), zone_runs),
    }
}

fn entries(mode: &ModeReport, modes: usize) -> Vec<Entry> {
    let mut entries = vec![together(mode, points_of(modes))];
    if mode.jobs.len() > 1 {
        let points = points_of(modes * mode.jobs.len());
        for (label, job) in labels(mode).into_iter().zip(&mode.jobs).take(JOBS_MAX) {
            entries.push(entry(label, &job.dirs, job.series.as_deref(), points));
        }
    }
    entries
}

/// Maximum number of points per line for `lines` lines.
fn points_of(lines: usize) -> usize {
    if lines > FINE_LINES_MAX { COARSE_POINTS } else { usize::MAX }
}

/// Combines all jobs of a mode.
fn together(mode: &ModeReport, points: usize) -> Entry {
    let mut dirs = [DirReport::default(), DirReport::default()];
    for job in &mode.jobs {
        dirs.iter_mut().zip(&job.dirs).for_each(|(sum, dir)| sum.add(dir));
    }
    let label = match mode.jobs.as_slice() {
        [job] => job.name.clone(),
        jobs => format!("all {} jobs", jobs.len()),
    };
    entry(label, &dirs, sum_of_series(mode).as_ref(), points)
}

fn sum_of_series(mode: &ModeReport) -> Option<JobSeries> {
    let mut series = mode.jobs.iter().filter_map(|job| job.series.as_deref());
    let mut sum = series.next()?.clone();
    series.for_each(|series| sum.add(series));
    Some(sum)
}

fn entry(label: String, dirs: &[DirReport; 2], series: Option<&JobSeries>, points: usize) -> Entry {
    let used = [Dir::Read, Dir::Write].into_iter().filter(|dir| dirs[*dir as usize].ios > 0);
    let direction = |dir| Direction {
        dir: name_of(dir),
        flow: series.map(|series| flow(series.flow(dir), points)),
        curve: curve(&dirs[dir as usize]),
    };
    Entry { label, dirs: used.map(direction).collect() }
}

/// Rounds to microseconds, which is precise enough for a chart and short.
fn seconds(at: Nanos) -> f64 {
    (at.0 as f64 / 1000.0).round() / 1e6
}

fn flow(series: &FlowSeries, points_max: usize) -> Flow {
    let mut flow = Flow::default();
    for (from, to, bucket) in points(series, points_max) {
        let mean = bucket.mean().map(|mean| mean.round() as u64);
        flow.t.push(seconds(Nanos(from.0 / 2 + to.0 / 2)));
        flow.seconds.push((to.0 - from.0) as f64 / 1e9);
        flow.ios.push(bucket.ios);
        flow.bytes.push(bucket.bytes);
        flow.mean.push(mean);
        flow.p99.push(bucket.percentile(99.0));
        flow.max.push(mean.map(|_| bucket.nanos_max));
    }
    flow
}

/// Buckets from the first non-empty one on, wide enough for most to hold a meaningful number of
/// requests. A handful of requests becomes a single point with their mean.
fn points(series: &FlowSeries, points_max: usize) -> Vec<(Nanos, Nanos, FlowBucket)> {
    let busy = |series: &FlowSeries| series.iter().filter(|(_, bucket)| bucket.ios > 0).count();
    let Some(begun) = begun(series) else { return Vec::new() };
    let end = series.iter().last().map_or(begun, |(time, _)| time.end);
    let is_short = end.0 - begun.0 < SHORT.0;
    let points_max = if is_short { points_max.min(SHORT_POINTS) } else { points_max };
    let mut series = series.clone();
    let is_sparse = |series: &FlowSeries| series.ios() < busy(series) as u64 * IOS_A_POINT;
    // Empty buckets before a run that begins late on the axis do not count as points.
    while series.len() > 1 && (points_of_run(&series, begun) > points_max || is_sparse(&series)) {
        series.coarsen();
    }
    let width = series.width().0;
    let buckets = series.iter().map(|(time, bucket)| (time.start, time.end, bucket.clone()));
    let mut points: Vec<_> = buckets.skip_while(|(_, _, bucket)| bucket.ios == 0).collect();
    if let Some((from, to, _)) = points.first_mut() {
        *from = begun.clamp(*from, Nanos(to.0 - 1));
    }
    // A short bucket at either end would show an instantaneous rate.
    if let [.., (_, end, before), (from, to, last)] = points.as_mut_slice()
        && to.0 - from.0 < width / 2
    {
        before.merge(last);
        *end = *to;
        points.pop();
    }
    if let [(from, to, first), (start, _, second), ..] = points.as_mut_slice()
        && to.0 - from.0 < width / 2
    {
        second.merge(first);
        *start = *from;
        points.remove(0);
    }
    points
}

/// Start of a series' first requests, estimated from their latency, because buckets have times of
/// completion. `None` without requests.
fn begun(series: &FlowSeries) -> Option<Nanos> {
    let (time, first) = series.iter().find(|(_, bucket)| bucket.ios > 0)?;
    Some(Nanos(time.start.0.saturating_sub(first.nanos_max)))
}

/// Number of buckets from `begun` to the end of the series.
fn points_of_run(series: &FlowSeries, begun: Nanos) -> usize {
    series.len() - ((begun.0 / series.width().0) as usize).min(series.len())
}

fn curve(report: &DirReport) -> Option<Curve> {
    let kinds = [("clat", &report.clat), ("lat", &report.lat), ("slat", &report.slat)];
    let (kind, latency) = kinds
        .into_iter()
        .find_map(|(kind, latency)| Some((kind, latency.as_ref().filter(|l| l.count() > 0)?)))?;
    Some(Curve { kind, points: curve_points(latency) })
}

fn curve_points(latency: &Latency) -> Vec<(f64, u64)> {
    let end = (latency.count() as f64).log10();
    let steps = (end / CURVE_STEP).floor() as u32;
    let at = |x: f64| 100.0 * (1.0 - 10f64.powf(-x));
    let point = |n| {
        // The fastest request often completed before its submission was timed, so the curve starts
        // at one in a hundred.
        let x = if n == 0 { -0.99f64.log10() } else { f64::from(n) * CURVE_STEP };
        ((x * 1e4).round() / 1e4, latency.percentile(at(x)))
    };
    let mut points: Vec<_> = (0..=steps).map(point).collect();
    points.push(((end * 1e4).ceil() / 1e4 + 1e-4, latency.max()));
    points
}

fn positions(mode: &ModeReport, series: &ModeSeries) -> Vec<Positions> {
    let jobs = sum_of_series(mode);
    let mut all = Vec::new();
    for dir in [Dir::Read, Dir::Write] {
        let series = jobs.as_ref().map(|jobs| jobs.position(dir));
        all.extend(series.filter(|series| !series.buckets().is_empty()).map(|series| (name_of(dir), series)));
    }
    let head = series.head.as_ref().filter(|head| !head.buckets().is_empty());
    all.extend(head.map(|head| ("head", head)));
    let zone = series.device.geometry.zone_size().0;
    all.into_iter().map(|(name, series)| places(name, series, zone)).collect()
}

fn places(name: &'static str, series: &PositionSeries, zone_sectors: u64) -> Positions {
    let zone = |sector: Sector| (sector.0 as f64 / zone_sectors as f64 * 1e4).round() / 1e4;
    let mut places =
        Positions { name, from: vec![], to: vec![], last: vec![], min: vec![], max: vec![], stripes: vec![] };
    for (time, bucket) in series.buckets().iter().filter(|(_, bucket)| bucket.count > 0) {
        places.from.push(seconds(time.start));
        places.to.push(seconds(time.end));
        places.last.push(zone(bucket.last.1));
        places.min.push(zone(bucket.min));
        places.max.push(zone(bucket.max));
        let stripes = bucket.rows().into_iter().map(|rows| series.sectors_of(&rows));
        places.stripes.push(stripes.flat_map(|stripe| [zone(stripe.start), zone(stripe.end)]).collect());
    }
    places
}

fn zone_runs(map: &ZoneMap) -> Vec<[u32; 3]> {
    map.runs.iter().map(|run| [run.zones, run.condition as u32, u32::from(run.fill)]).collect()
}

#[cfg(test)]
mod tests;
