//! Text in the layout of fio's normal output.

use super::line;
use super::quantity::{Prefixes, quantity, short};
use crate::measure::Dir;
use crate::measure::Latency;
use crate::measure::Samples;
use crate::report::{DirReport, JobReport, ModeReport, Report, VerifyReport};
use zonal_core::SECTOR_BYTES;

/// Width of a line of percentiles in characters.
const LINE: usize = 73;

impl Report {
    /// Formats the results as text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for mode in &self.modes {
            print_mode(&mut text, mode);
        }
        if self.modes.len() > 1 {
            text += &format!("\n{}", self.comparison());
        }
        text
    }
}

fn print_mode(text: &mut String, mode: &ModeReport) {
    line!(text, "{}: write mode {} ({})", mode.device.trim_end_matches(':'), mode.mode, mode.mode_reason);
    if !mode.options.is_empty() {
        let options: Vec<String> =
            mode.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        line!(text, "write path: {}", options.join(", "));
    }
    for note in &mode.notes {
        line!(text, "{note}");
    }
    for job in &mode.jobs {
        print_job(text, job);
    }
    let mut groups: Vec<u32> = mode.jobs.iter().map(|job| job.group).collect();
    groups.dedup();
    for group in groups {
        print_group(text, mode, group);
    }
    if let Some(files) = &mode.files {
        line!(text, "\nFile system:");
        files.lines().iter().for_each(|line| line!(text, "{line}"));
    }
    print_path(text, mode);
}

fn print_job(text: &mut String, job: &JobReport) {
    line!(text, "");
    let errno = job.failure.as_ref().map_or(0, crate::report::Failure::errno);
    line!(text, "{}: (groupid={}, jobs={}): err={errno:2}", job.name, job.group, job.jobs);
    if let Some(description) = &job.spec.description {
        line!(text, "  Description  : [{description}]");
    }
    if let Some(failure) = &job.failure {
        line!(text, "  error: {failure}{}", more(job.errors));
    }
    if let Some(lack) = job.lack_in_words() {
        line!(text, "  {lack}");
    }
    for dir in [Dir::Read, Dir::Write] {
        print_dir(text, job, dir);
    }
    if let Some(latency) = &job.flush_lat {
        line!(text, "  fsync/fdatasync:");
        print_latency(text, "sync", latency);
    }
    let elapsed = job.elapsed.as_secs_f64() * f64::from(job.jobs);
    let share =
        |time: std::time::Duration| if elapsed > 0.0 { time.as_secs_f64() * 100.0 / elapsed } else { 0.0 };
    line!(
        text,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}",
        share(job.user),
        share(job.system),
        job.switches
    );
    print_depths(text, job);
    let [read, write] = &job.dirs;
    line!(
        text,
        "     issued rwts: total={},{},0,{} short=0,0,0,0 dropped=0,0,0,0",
        read.ios,
        write.ios,
        job.flushes
    );
}

fn more(errors: u64) -> String {
    if errors > 1 { format!(" (and {} more)", errors - 1) } else { String::new() }
}

fn print_dir(text: &mut String, job: &JobReport, dir: Dir) {
    let report = job.dir(dir);
    if report.runtime.is_zero() {
        return;
    }
    let (name, resets) = match dir {
        Dir::Read => ("read", String::new()),
        Dir::Write => ("write", format!("; {} zone resets", job.resets)),
    };
    let bandwidth = report.bandwidth_bytes();
    line!(
        text,
        "  {name}: IOPS={}, BW={} ({})({}/{}msec){resets}",
        quantity(report.iops(), Prefixes::Decimal, ""),
        quantity(bandwidth, Prefixes::Binary, "B/s"),
        quantity(bandwidth, Prefixes::Decimal, "B/s"),
        quantity(report.bytes as f64, Prefixes::Binary, "B"),
        report.runtime.as_millis()
    );
    let spec = &job.spec;
    let kinds = [
        ("slat", &report.slat, spec.slat_percentiles),
        ("clat", &report.clat, spec.clat_percentiles),
        (" lat", &report.lat, spec.lat_percentiles),
    ];
    for (name, latency, _) in &kinds {
        if let Some(latency) = latency.as_ref().filter(|latency| latency.count() > 0) {
            print_latency(text, name, latency);
        }
    }
    for (name, latency, is_wanted) in &kinds {
        if let Some(latency) = latency.as_ref().filter(|latency| *is_wanted && latency.count() > 0) {
            print_percentiles(text, name.trim(), latency, &spec.percentile_list);
        }
    }
    print_samples(text, report);
}

/// Divisor and name of the unit for a range of latencies.
fn unit(min: u64, max: u64) -> (f64, &'static str) {
    match (min, max) {
        (2_000_001.., 99_999_999..) => (1e6, "msec"),
        (2_001.., 99_999..) => (1e3, "usec"),
        _ => (1.0, "nsec"),
    }
}

fn print_latency(text: &mut String, name: &str, latency: &Latency) {
    let (divisor, unit) = unit(latency.min(), latency.max());
    let of = |nanos: u64| short(nanos as f64 / divisor, Prefixes::Decimal, "", 6);
    line!(
        text,
        "    {name} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        of(latency.min()),
        of(latency.max()),
        latency.mean() / divisor,
        latency.stddev() / divisor
    );
}

fn print_percentiles(text: &mut String, name: &str, latency: &Latency, list: &[f64]) {
    let values: Vec<u64> = list.iter().map(|&percent| latency.percentile(percent)).collect();
    let (Some(&min), Some(&max)) = (values.iter().min(), values.iter().max()) else { return };
    let (divisor, unit) = unit(min, max);
    line!(text, "    {name} percentiles ({unit}):");
    let value = |nanos: u64| (nanos as f64 / divisor).ceil();
    let width = format!("{}", value(max)).len().max(5);
    let decimals = list.iter().map(|percent| decimals_of(*percent)).max().unwrap_or(2).max(2);
    let cells = list.iter().zip(&values).map(|(percent, &nanos)| {
        format!(" {percent:w$.decimals$}th=[{:width$}]", value(nanos), w = decimals + 3)
    });
    let cells: Vec<String> = cells.collect();
    let per_line = (LINE / (cells[0].len() + 1)).max(1);
    let lines = cells.len().div_ceil(per_line);
    for (n, cells) in cells.chunks(per_line).enumerate() {
        line!(text, "     |{}{}", cells.join(","), if n + 1 == lines { "" } else { "," });
    }
}

/// Number of decimals that a percentile needs.
fn decimals_of(percent: f64) -> usize {
    let text = format!("{percent}");
    text.split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

fn print_samples(text: &mut String, report: &DirReport) {
    let show = |samples: &Samples, divisor: f64| {
        format!(
            "min={:5.0}, max={:5.0}, avg={:5.2}, stdev={:5.2}, samples={}",
            samples.min() / divisor,
            samples.max() / divisor,
            samples.mean() / divisor,
            samples.stddev() / divisor,
            samples.count()
        )
    };
    if report.bandwidth.count() > 0 {
        let is_large = report.bandwidth.mean() > 1024.0 * 1024.0;
        let (divisor, unit) = if is_large { (1024.0, "MiB") } else { (1.0, "KiB") };
        line!(text, "   bw (  {unit}/s): {}", show(&report.bandwidth, divisor));
        line!(text, "   iops        : {}", show(&report.rate, 1.0));
    }
}

fn print_depths(text: &mut String, job: &JobReport) {
    let total: u64 = job.depths.iter().sum();
    let names = ["1", "2", "4", "8", "16", "32", ">=64"];
    let shares: Vec<String> = names
        .iter()
        .zip(job.depths)
        .map(|(name, n)| format!("{name}={:.1}%", n as f64 * 100.0 / total.max(1) as f64))
        .collect();
    line!(text, "  IO depths    : {}", shares.join(", "));
}

fn print_group(text: &mut String, mode: &ModeReport, group: u32) {
    line!(text, "\nRun status group {group} (all jobs):");
    for (dir, name) in [(Dir::Read, "   READ"), (Dir::Write, "  WRITE")] {
        let reports: Vec<&DirReport> = mode
            .jobs
            .iter()
            .filter(|job| job.group == group)
            .map(|job| job.dir(dir))
            .filter(|report| !report.runtime.is_zero())
            .collect();
        if reports.is_empty() {
            continue;
        }
        let bytes: u64 = reports.iter().map(|report| report.bytes).sum();
        let runtimes = || reports.iter().map(|report| report.runtime);
        let (shortest, longest) =
            (runtimes().min().unwrap_or_default(), runtimes().max().unwrap_or_default());
        let rates = || reports.iter().map(|report| report.bandwidth_bytes());
        let (slowest, fastest) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        let all = bytes as f64 / longest.as_secs_f64();
        let both =
            |value, unit| (quantity(value, Prefixes::Binary, unit), quantity(value, Prefixes::Decimal, unit));
        let ((bw, bw_alt), (min, min_alt)) = (both(all, "B/s"), both(slowest, "B/s"));
        let ((max, max_alt), (io, io_alt)) = (both(fastest, "B/s"), both(bytes as f64, "B"));
        line!(
            text,
            "{name}: bw={bw} ({bw_alt}), {min}-{max} ({min_alt}-{max_alt}), io={io} ({io_alt}), run={}-{}msec",
            shortest.as_millis(),
            longest.as_millis()
        );
    }
}

fn print_path(text: &mut String, mode: &ModeReport) {
    let statistics = &mode.statistics;
    line!(text, "\nWrite path ({}):", mode.mode);
    line!(
        text,
        "  requests={} ({}), commands={}, queued={}, merged={}, busy={}, failed={}, resyncs={}",
        statistics.requests,
        quantity(statistics.sectors as f64 * SECTOR_BYTES as f64, Prefixes::Binary, "B"),
        statistics.commands,
        statistics.queued,
        statistics.merged,
        statistics.busy,
        statistics.failed,
        statistics.resyncs
    );
    let met =
        [statistics.plug_waits, statistics.plug_retries, statistics.device_waits, statistics.device_retries];
    if met != [0; 4] {
        line!(
            text,
            "  contention: contended locks={}, retried updates={}; in the device {} and {}",
            met[0],
            met[1],
            met[2],
            met[3]
        );
    }
    if statistics.device_copies > 0 {
        line!(
            text,
            "  copied because of the alignment of their memory: {} commands",
            statistics.device_copies
        );
    }
    if let Some(commands) = mode.commands_per_write() {
        line!(text, "  commands per write: {commands:.3}");
    }
    if let Some(moves) = mode.head_moves {
        line!(
            text,
            "  head: seeks={}, zone changes={}, missed rotations={}; seeks and rotational latency took {:.3} s",
            moves.seeks,
            moves.zone_changes,
            moves.missed_rotations,
            moves.positioning_ns as f64 / 1e9
        );
    }
    mode.verify.iter().for_each(|verify| print_verify(text, verify));
}

fn print_verify(text: &mut String, verify: &VerifyReport) {
    line!(
        text,
        "\nVerify (bare device): {} blocks ({}) read back, {} bad, {} overwritten or reset since",
        verify.blocks,
        quantity(verify.bytes as f64, Prefixes::Binary, "B"),
        verify.mismatches,
        verify.gone
    );
    for mismatch in &verify.first {
        line!(text, "  {mismatch}");
    }
    let left = verify.mismatches - verify.first.len() as u64;
    if left > 0 {
        line!(text, "  and {left} more");
    }
}
