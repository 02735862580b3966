//! JSON in the format of fio 3.33, for tools that read fio's output.
//!
//! fio's keys have the same meaning as in fio. Additional data is in objects named `zonal`, one for
//! the run and one for each job.

use crate::measure::Dir;
use crate::measure::{HISTOGRAM_MAX, Latency};
use crate::report::VerifyReport;
use crate::report::{DirReport, JobReport, Lack, ModeReport, Report};
use crate::report::{FilesPart, FilesReport};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use zonal_io::device::HeadMoves;
use zonal_io::volume::Statistics;

/// Level of detail of a JSON report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// fio's `json`.
    #[default]
    Plain,
    /// fio's `json+`, which adds every bin of the latency histograms.
    Bins,
}

/// An object that preserves the order of its keys.
struct Object<V>(Vec<(String, V)>);

impl<V: Serialize> Serialize for Object<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Document {
    #[serde(rename = "fio version")]
    version: &'static str,
    timestamp: u64,
    timestamp_ms: u64,
    time: String,
    #[serde(rename = "global options")]
    global_options: Object<String>,
    jobs: Vec<Job>,
    zonal: RunPart,
}

/// Data of the run that fio's format lacks.
#[derive(serde::Serialize)]
struct RunPart {
    /// Version of fio's format.
    format: &'static str,
    modes: Vec<Mode>,
}

#[derive(serde::Serialize)]
struct Mode {
    device: String,
    write_mode: &'static str,
    reason: &'static str,
    /// Options of the write path that do not have their defaults.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    write_path: BTreeMap<&'static str, String>,
    statistics: Statistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<HeadMoves>,
    commands_per_write: Option<f64>,
    notes: Vec<String>,
    verify: Option<Verified>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<FilesPart>,
}

#[derive(serde::Serialize)]
struct Verified {
    blocks: u64,
    bytes: u64,
    gone: u64,
    mismatches: u64,
    first: Vec<String>,
}

#[derive(serde::Serialize)]
struct Job {
    jobname: String,
    groupid: u32,
    error: i32,
    eta: u64,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Object<String>,
    read: Direction,
    write: Direction,
    trim: Direction,
    sync: Sync,
    job_runtime: u64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: u64,
    majf: u64,
    minf: u64,
    iodepth_level: Object<f64>,
    iodepth_submit: Object<f64>,
    iodepth_complete: Object<f64>,
    latency_ns: Object<f64>,
    latency_us: Object<f64>,
    latency_ms: Object<f64>,
    latency_depth: u32,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    desc: Option<String>,
    zonal: JobPart,
}

/// Data of a job that fio's format lacks.
#[derive(serde::Serialize)]
struct JobPart {
    write_mode: &'static str,
    jobs: u32,
    seed: u64,
    zone_resets: u64,
    zone_finishes: u64,
    lacked_zone: bool,
    lacked_data: bool,
    errors: u64,
    failure: Option<String>,
}

#[derive(serde::Serialize, Default)]
struct Direction {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Times,
    clat_ns: Times,
    lat_ns: Times,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
}

#[derive(serde::Serialize)]
struct Sync {
    total_ios: u64,
    lat_ns: Times,
}

#[derive(serde::Serialize, Default)]
struct Times {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Object<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Object<u64>>,
}

/// Reason why serialization cannot fail.
const ALWAYS: &str = "numbers, text and objects with text as keys";

impl Report {
    /// Formats the results as JSON in fio's format.
    pub fn to_json(&self, detail: Detail) -> String {
        serde_json::to_string_pretty(&self.document(detail)).expect(ALWAYS)
    }

    /// Formats the results as compact JSON.
    pub(super) fn to_compact_json(&self, detail: Detail) -> String {
        serde_json::to_string(&self.document(detail)).expect(ALWAYS)
    }

    fn document(&self, detail: Detail) -> Document {
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Document {
            version: concat!("zonal-", env!("CARGO_PKG_VERSION")),
            timestamp: since.as_secs(),
            timestamp_ms: since.as_millis() as u64,
            time: calendar(since),
            global_options: Object(Vec::new()),
            jobs: self.modes.iter().flat_map(|mode| jobs(mode, detail)).collect(),
            zonal: RunPart { format: "fio-3.33", modes: self.modes.iter().map(mode).collect() },
        }
    }
}

fn mode(mode: &ModeReport) -> Mode {
    Mode {
        device: mode.device.clone(),
        write_mode: mode.mode.name(),
        reason: mode.mode_reason,
        write_path: mode.options.iter().cloned().collect(),
        statistics: mode.statistics,
        head: mode.head_moves,
        commands_per_write: mode.commands_per_write(),
        notes: mode.notes.clone(),
        verify: mode.verify.as_ref().map(verified),
        files: mode.files.as_ref().map(FilesReport::part),
    }
}

fn verified(verify: &VerifyReport) -> Verified {
    Verified {
        blocks: verify.blocks,
        bytes: verify.bytes,
        gone: verify.gone,
        mismatches: verify.mismatches,
        first: verify.first.iter().map(ToString::to_string).collect(),
    }
}

fn jobs(mode: &ModeReport, detail: Detail) -> impl Iterator<Item = Job> + '_ {
    mode.jobs.iter().map(move |report| job(mode, report, detail))
}

fn job(mode: &ModeReport, report: &JobReport, detail: Detail) -> Job {
    let elapsed = report.elapsed.as_secs_f64() * f64::from(report.jobs);
    let share = |time: Duration| if elapsed > 0.0 { time.as_secs_f64() * 100.0 / elapsed } else { 0.0 };
    let options = report.spec.options().into_iter().map(|(name, value)| (name.to_owned(), value));
    let dir = |dir| direction(mode, report, dir, detail);
    Job {
        jobname: report.name.clone(),
        groupid: report.group,
        error: report.failure.as_ref().map_or(0, |failure| failure.errno()),
        eta: 0,
        elapsed: report.elapsed.as_secs_f64().ceil() as u64,
        options: Object(options.collect()),
        read: dir(Dir::Read),
        write: dir(Dir::Write),
        trim: Direction::default(),
        sync: Sync {
            total_ios: report.flushes,
            lat_ns: times(report, report.flush_lat.as_deref(), report.spec.clat_percentiles, detail),
        },
        job_runtime: (report.elapsed.as_millis() as u64) * u64::from(report.jobs),
        usr_cpu: share(report.user),
        sys_cpu: share(report.system),
        ctx: report.switches,
        majf: 0,
        minf: 0,
        iodepth_level: depths(&["1", "2", "4", "8", "16", "32", ">=64"], report.depths),
        iodepth_submit: depths(&BATCHES, one_at_a_time(report)),
        iodepth_complete: depths(&BATCHES, one_at_a_time(report)),
        latency_ns: shares(report, 1, &SHORT),
        latency_us: shares(report, 1000, &SHORT),
        latency_ms: shares(report, 1_000_000, &LONG),
        latency_depth: report.spec.iodepth,
        latency_target: 0,
        latency_percentile: 100.0,
        latency_window: 0,
        desc: report.spec.description.clone(),
        zonal: job_part(mode, report),
    }
}

fn job_part(mode: &ModeReport, report: &JobReport) -> JobPart {
    JobPart {
        write_mode: mode.mode.name(),
        jobs: report.jobs,
        seed: report.seed,
        zone_resets: report.resets,
        zone_finishes: report.finishes,
        lacked_zone: report.lacked_zone,
        lacked_data: report.lack() == Some(Lack::Data),
        errors: report.errors,
        failure: report.failure.as_ref().map(ToString::to_string),
    }
}

fn direction(mode: &ModeReport, job: &JobReport, dir: Dir, detail: Detail) -> Direction {
    let report = job.dir(dir);
    let spec = &job.spec;
    let bandwidth = report.bandwidth_bytes() as u64;
    let (bw, rate) = (&report.bandwidth, &report.rate);
    Direction {
        io_bytes: report.bytes,
        io_kbytes: report.bytes >> 10,
        bw_bytes: bandwidth,
        bw: bandwidth >> 10,
        iops: report.iops(),
        runtime: report.runtime.as_millis() as u64,
        total_ios: report.ios,
        short_ios: 0,
        drop_ios: 0,
        slat_ns: times(job, report.slat.as_deref(), spec.slat_percentiles, detail),
        clat_ns: times(job, report.clat.as_deref(), spec.clat_percentiles, detail),
        lat_ns: times(job, report.lat.as_deref(), spec.lat_percentiles, detail),
        bw_min: bw.min() as u64,
        bw_max: bw.max() as u64,
        bw_agg: share_of_group(mode, job.group, report, dir),
        bw_mean: bw.mean(),
        bw_dev: bw.stddev(),
        bw_samples: bw.count(),
        iops_min: rate.min() as u64,
        iops_max: rate.max() as u64,
        iops_mean: rate.mean(),
        iops_stddev: rate.stddev(),
        iops_samples: rate.count(),
    }
}

/// Sampled bandwidth as a percentage of the group's.
fn share_of_group(mode: &ModeReport, group: u32, report: &DirReport, dir: Dir) -> f64 {
    let of_group = mode.jobs.iter().filter(|job| job.group == group);
    let all: f64 = of_group.map(|job| job.dir(dir).bandwidth_bytes() / 1024.0).sum();
    if all > 0.0 { (report.bandwidth.mean() * 100.0 / all).min(100.0) } else { 0.0 }
}

fn times(job: &JobReport, latency: Option<&Latency>, has_percentiles: bool, detail: Detail) -> Times {
    let Some(latency) = latency.filter(|latency| latency.count() > 0) else { return Times::default() };
    let list = &job.spec.percentile_list;
    let percentiles = || list.iter().map(|&percent| (format!("{percent:.6}"), latency.percentile(percent)));
    Times {
        min: latency.min(),
        max: latency.max(),
        mean: latency.mean(),
        stddev: latency.stddev(),
        count: latency.count(),
        percentile: has_percentiles.then(|| Object(percentiles().collect())),
        bins: (has_percentiles && detail == Detail::Bins).then(|| Object(bins(latency))),
    }
}

/// Bins up to the end of fio's table, which its tools do not exceed.
fn bins(latency: &Latency) -> Vec<(String, u64)> {
    let mut bins: Vec<(u64, u64)> = Vec::new();
    for (nanos, count) in latency.bins() {
        let nanos = nanos.min(HISTOGRAM_MAX);
        match bins.last_mut() {
            Some(last) if last.0 == nanos => last.1 += count,
            _ => bins.push((nanos, count)),
        }
    }
    bins.into_iter().map(|(nanos, count)| (nanos.to_string(), count)).collect()
}

const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

/// Requests are submitted and completed one by one, which fio counts under 4.
fn one_at_a_time(report: &JobReport) -> [u64; 7] {
    [0, report.depths.iter().sum(), 0, 0, 0, 0, 0]
}

fn depths(names: &[&str; 7], counts: [u64; 7]) -> Object<f64> {
    let total: u64 = counts.iter().sum();
    let share = |count: u64| if total == 0 { 0.0 } else { count as f64 * 100.0 / total as f64 };
    Object(names.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), share(count))).collect())
}

const SHORT: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const LONG: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// Percentage of requests with a latency below each bound but not below the previous one.
fn shares(report: &JobReport, unit: u64, bounds: &[u64]) -> Object<f64> {
    let latencies = || report.dirs.iter().filter_map(|dir| dir.lat.as_ref().or(dir.clat.as_ref()));
    let total: u64 = latencies().map(|latency| latency.count()).sum();
    let share = |count: u64| if total == 0 { 0.0 } else { count as f64 * 100.0 / total as f64 };
    let count_below = |nanos: u64| latencies().map(|latency| latency.count_below(nanos)).sum::<u64>();
    // Latencies below one unit belong to the next smaller unit.
    let mut before = if unit == 1 { 0 } else { count_below(unit) };
    let mut shares: Vec<(String, f64)> = Vec::new();
    for &bound in bounds {
        let until = count_below(bound * unit);
        shares.push((bound.to_string(), share(until.saturating_sub(before))));
        before = until;
    }
    if bounds.len() > SHORT.len() {
        shares.push((">=2000".to_owned(), share(total - before)));
    }
    Object(shares)
}

/// Formats a time as `Sat Nov 21 12:16:43 2026`, in UTC.
pub(super) fn calendar(since_epoch: Duration) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = since_epoch.as_secs();
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let (weekday, month, day) = (WEEKDAYS[(days % 7) as usize], MONTHS[month], day + 1);
    format!("{weekday} {month} {day:2} {hour:02}:{minute:02}:{second:02} {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_handles_leap_years() {
        let at = |seconds| calendar(Duration::from_secs(seconds));
        assert_eq!(at(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(at(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(at(1_795_263_403), "Sat Nov 21 12:16:43 2026");
    }
}
