//! Results of a replay: a benchmark's report with an additional part for replays.

use super::ledger::Ledger;
use super::player::{Layout, Measured};
use super::series::Series;
use super::trace::{Format, Trace};
use super::{Counts, ReplayOptions, Speed};
use crate::job::JobFile;
use crate::measure::Usage;
use crate::output::{Detail, binary, line};
use crate::report::{DirReport, Ended, JobReport, ModeReport, Report};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use zonal_core::{Nanos, SECTOR_BYTES};
use zonal_io::volume::Volume;

/// Number of lines that show the queue over time.
const LINES: usize = 16;

/// Maximum length of a bar in these lines.
const BAR: usize = 40;

/// Layout of the trace's disk on the zones, and its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Laid {
    /// Bytes per block of the map, equal to the device's block.
    pub block_bytes: u64,
    /// Zones of the log, including the reserve.
    pub zones: u32,
    /// Zones in reserve.
    pub reserve_zones: u32,
    /// Zones to which the trace's writes are distributed.
    pub open_zones: u32,
    /// Size of the resulting disk in bytes.
    pub disk_bytes: u64,
    /// Bytes written for the trace, in whole blocks.
    pub written_bytes: u64,
    /// Blocks moved by garbage collection.
    pub moved_blocks: u64,
    /// Zones reset by garbage collection.
    pub cleaned_zones: u64,
    /// Blocks read before writes that covered them in part.
    pub edge_blocks: u64,
    /// Unwritten blocks that were read, answered without the device.
    pub unmapped_blocks: u64,
    /// Reads of unwritten blocks only. They take no time, and are excluded from rates and
    /// latencies.
    pub unmapped_reads: u64,
    /// Bytes of these reads.
    pub unmapped_read_bytes: u64,
    /// Blocks read and checked.
    pub checked_blocks: u64,
    /// Blocks discarded by the trace.
    pub discarded_blocks: u64,
    /// Reads that waited for a write of the same blocks.
    pub reads_that_waited: u64,
}

/// Results specific to replays.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    /// Name of the trace.
    pub trace: String,
    /// Its format.
    pub format: Format,
    /// Timing of requests.
    pub speed: Speed,
    /// Maximum number of records in flight.
    pub depth: u32,
    /// True if the device has virtual time.
    pub is_virtual: bool,
    /// Duration of the replay in real time.
    pub took: Duration,
    /// Records ended, each exactly once.
    pub records: u64,
    /// Records started. Exceeds `records` only if a failed request ended the replay.
    pub begun: u64,
    /// Requests and events of the trace that are not replayed.
    pub skipped: u64,
    /// Records with an earlier time than the one before.
    pub backward: u64,
    /// Records that needed no request to the device.
    pub without_request: u64,
    /// Discards without effect, because the trace was replayed as it is.
    pub discards_passed_over: u64,
    /// Resets added before writes to the start of zones with data.
    pub resets_added: u64,
    /// Bytes written by the trace.
    pub trace_bytes: u64,
    /// Layout on a log, or `None` if the trace was replayed as it is.
    pub laid: Option<Laid>,
    /// Queue depth over time.
    pub series: Series,
}

impl Replay {
    /// Write amplification: bytes written to the device per byte written by the trace. `None`
    /// without writes.
    pub fn write_amplification(&self) -> Option<f64> {
        let written = match &self.laid {
            Some(laid) => laid.written_bytes + laid.moved_blocks * laid.block_bytes,
            None => self.trace_bytes,
        };
        (self.trace_bytes > 0).then(|| written as f64 / self.trace_bytes as f64)
    }
}

/// Results of a replay.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    /// Report in the form of a benchmark's, with one mode and one job. `lat` is the latency from
    /// the recorded arrival to the end, `slat` the part up to the first request, `clat` the rest.
    pub report: Report,
    /// Results specific to replays.
    pub replay: Replay,
}

pub(super) struct Outcome {
    pub(super) started: SystemTime,
    pub(super) usage: Usage,
    pub(super) took: Duration,
    pub(super) elapsed: Nanos,
    pub(super) ledger: Ledger,
    pub(super) measured: Measured,
    pub(super) notes: Vec<String>,
}

pub(super) fn report(
    outcome: Outcome,
    layout: &Layout,
    volume: &Volume,
    trace: &Trace,
    options: &ReplayOptions,
) -> ReplayReport {
    let Outcome { started, usage, took, elapsed, ledger, mut measured, notes } = outcome;
    let counts = measured.counts;
    let series = std::mem::take(&mut measured.series);
    let trace_bytes = measured.sectors[1] * SECTOR_BYTES;
    let job = job(measured, Duration::from_nanos(elapsed.0), &usage);
    let mode = ModeReport { jobs: vec![job], notes, ..ModeReport::of(volume) };
    let replay = Replay {
        trace: trace.name().to_owned(),
        format: trace.format(),
        speed: options.speed,
        depth: options.depth(),
        is_virtual: volume.device().insight().virtual_time,
        took,
        records: ledger.ended,
        begun: ledger.begun,
        skipped: trace.skipped(),
        backward: trace.backward(),
        without_request: counts.without_request,
        discards_passed_over: counts.discards_passed_over,
        resets_added: counts.resets_added,
        trace_bytes,
        laid: laid(layout, u64::from(volume.info().block_sectors) * SECTOR_BYTES, &counts, options),
        series,
    };
    ReplayReport { report: Report { started, modes: vec![mode], ended: Ended::Done }, replay }
}

/// Layout of the disk and accounts of the log, or `None` without a log.
fn laid(layout: &Layout, block_bytes: u64, counts: &Counts, options: &ReplayOptions) -> Option<Laid> {
    let Layout::Log(log) = layout else { return None };
    Some(Laid {
        block_bytes,
        zones: log.log_zones,
        reserve_zones: log.reserve_zones,
        open_zones: options.log.open_zones.max(1),
        disk_bytes: log.disk_blocks * block_bytes,
        written_bytes: log.account.written * block_bytes,
        moved_blocks: log.account.moved,
        cleaned_zones: log.account.cleaned,
        edge_blocks: counts.edges,
        unmapped_blocks: counts.unmapped,
        unmapped_reads: counts.unmapped_reads,
        unmapped_read_bytes: counts.unmapped_read_sectors * SECTOR_BYTES,
        checked_blocks: counts.checked,
        discarded_blocks: counts.discarded,
        reads_that_waited: counts.waited,
    })
}

/// Builds a job report of the replay.
fn job(measured: Measured, elapsed: Duration, usage: &Usage) -> JobReport {
    // A job that resembles the trace. It is never run.
    let spec = JobFile::parse_inline(["--name=replay", "--rw=randrw", "--lat_percentiles=1"]);
    let jobs = spec.expect("the options are the language's");
    let spec = Arc::new(jobs.specs().next().expect("there is one job").clone());
    let Measured { ios, sectors, latencies, .. } = measured;
    let mut latencies = latencies.into_iter();
    let dirs = [0, 1].map(|dir| {
        let [slat, clat, lat] = latencies.next().unwrap_or_default();
        DirReport {
            ios: ios[dir],
            bytes: sectors[dir] * SECTOR_BYTES,
            runtime: if ios[dir] == 0 { Duration::ZERO } else { elapsed },
            slat: Some(Box::new(slat)),
            clat: Some(Box::new(clat)),
            lat: Some(Box::new(lat)),
            ..DirReport::default()
        }
    });
    JobReport {
        dirs,
        flushes: measured.flushes,
        flush_lat: (measured.flushes > 0).then(|| Box::new(measured.flush)),
        resets: measured.resets,
        finishes: measured.finishes,
        errors: measured.errors,
        failure: measured.failure,
        elapsed,
        user: usage.user,
        system: usage.system,
        switches: usage.switches,
        depths: measured.depths,
        ..JobReport::new(&spec, 0, 0)
    }
}

impl ReplayReport {
    /// Formats the results as text.
    pub fn to_text(&self) -> String {
        let mut text = self.report.to_text();
        let replay = &self.replay;
        let pace = match replay.speed {
            Speed::Max => format!("as fast as possible, {} at a time", replay.depth),
            Speed::Times(1.0) => format!("at the recorded times, at most {} at a time", replay.depth),
            Speed::Times(factor) => {
                format!("{factor} times as fast as recorded, at most {} at a time", replay.depth)
            }
        };
        line!(text, "\nReplay of {} ({}), {pace}:", replay.trace, replay.format);
        let outcome = match replay.begun - replay.records {
            0 => "each executed once".to_owned(),
            left => format!("and {left} more were in flight when a request failed, which ended the replay"),
        };
        line!(
            text,
            "  records={}, {outcome}; {} needed no request; skipped={}, back in time={}",
            replay.records,
            replay.without_request,
            replay.skipped,
            replay.backward
        );
        match &replay.laid {
            Some(laid) => print_laid(&mut text, laid),
            None => line!(
                text,
                "  as it is: resets added={}, discards skipped={}",
                replay.resets_added,
                replay.discards_passed_over
            ),
        }
        if let Some(amplification) = replay.write_amplification() {
            line!(text, "  write amplification: {amplification:.3}");
        }
        if replay.is_virtual {
            line!(text, "  in virtual time; it took {:.3} s", replay.took.as_secs_f64());
        }
        print_series(&mut text, &replay.series);
        text
    }

    /// Formats the results as JSON: a benchmark's document with an additional object `replay`.
    pub fn to_json(&self, detail: Detail) -> String {
        let document = self.report.to_json(detail);
        let replay = serde_json::to_string_pretty(&self.object()).expect("numbers and text");
        // The document ends with its object. The new member is inserted before the closing brace.
        let members = document.trim_end().strip_suffix('}').expect("it is an object").trim_end();
        format!("{members},\n  \"replay\": {}\n}}", replay.replace('\n', "\n  "))
    }

    fn object(&self) -> Object<'_> {
        let replay = &self.replay;
        let spans = replay.series.spans.iter().enumerate().map(|(n, span)| Depth {
            depth_mean: replay.series.depth_mean(n),
            depth_max: span.depth_max,
            ended: span.ended,
        });
        Object {
            trace: &replay.trace,
            format: replay.format.name(),
            speed: match replay.speed {
                Speed::Times(factor) => Some(factor),
                Speed::Max => None,
            },
            depth: replay.depth,
            virtual_time: replay.is_virtual,
            records: replay.records,
            records_begun: replay.begun,
            records_without_request: replay.without_request,
            skipped: replay.skipped,
            back_in_time: replay.backward,
            resets_added: replay.resets_added,
            discards_passed_over: replay.discards_passed_over,
            trace_bytes_written: replay.trace_bytes,
            write_amplification: replay.write_amplification(),
            laid: replay.laid,
            span_ns: replay.series.span.0,
            queue: spans.collect(),
        }
    }
}

#[derive(Serialize)]
struct Object<'a> {
    trace: &'a str,
    format: &'static str,
    /// `null` means as fast as possible.
    speed: Option<f64>,
    depth: u32,
    virtual_time: bool,
    records: u64,
    records_begun: u64,
    records_without_request: u64,
    skipped: u64,
    back_in_time: u64,
    resets_added: u64,
    discards_passed_over: u64,
    trace_bytes_written: u64,
    write_amplification: Option<f64>,
    laid: Option<Laid>,
    span_ns: u64,
    queue: Vec<Depth>,
}

#[derive(Serialize)]
struct Depth {
    depth_mean: f64,
    depth_max: u32,
    ended: u64,
}

fn print_laid(text: &mut String, laid: &Laid) {
    line!(
        text,
        "  laid on zones as a log: a disk of {} in blocks of {} B on {} zones, {} of them in reserve, {} open for \
                 the trace and one for the cleaner",
        binary(laid.disk_bytes),
        laid.block_bytes,
        laid.zones,
        laid.reserve_zones,
        laid.open_zones
    );
    line!(
        text,
        "  log: written={}, moved blocks={}, zones cleaned={}, blocks read to complete writes={}, discarded={}",
        binary(laid.written_bytes),
        laid.moved_blocks,
        laid.cleaned_zones,
        laid.edge_blocks,
        laid.discarded_blocks
    );
    line!(
        text,
        "  reads: blocks never written={} (answered as zeroes, without the device), reads of these only={} (excluded from IOPS \
                 and latency), blocks checked={}, reads that waited for a write={}",
        laid.unmapped_blocks,
        laid.unmapped_reads,
        laid.checked_blocks,
        laid.reads_that_waited
    );
}

fn print_series(text: &mut String, series: &Series) {
    let most = series.spans.iter().map(|span| span.depth_max).max().unwrap_or_default();
    if most == 0 {
        return;
    }
    line!(text, "  queue over time (records in flight: mean, maximum):");
    let per_line = series.spans.len().div_ceil(LINES);
    for (n, spans) in series.spans.chunks(per_line).enumerate() {
        let first = n * per_line;
        let mean =
            (first..first + spans.len()).map(|n| series.depth_mean(n)).sum::<f64>() / spans.len() as f64;
        let depth_max = spans.iter().map(|span| span.depth_max).max().unwrap_or_default();
        let begin = Duration::from_nanos(first as u64 * series.span.0).as_secs_f64();
        let bar = "#".repeat((mean * BAR as f64 / f64::from(most)).round() as usize);
        line!(text, "{}", format!("    {begin:>10.3} s {mean:>9.2} {depth_max:>6} {bar}").trim_end());
    }
}
