//! Benchmarks of the write path, as ratios within one run.
//!
//! Every row names its baseline. Row and baseline are measured in turn, round by round, so that
//! drift of the machine's speed affects both. The value is the median of the rounds; the spread is
//! that of the middle half. A row with a bound says whether it was met.

mod callers;
mod emulated;
mod files;
mod floor;
mod image;
pub mod instructions;
mod jobs;
mod measure;
mod memory;
mod modes;
mod mount;
mod path;
mod rehearsal;
mod report;
mod ring;
mod served;
mod shown;
mod threads;
mod waits;

pub use measure::{Case, Samples, interleave, mean, span};
pub(crate) use report::machine;
pub use report::{Bound, Report, Row};
pub use served::PATHS as SERVED_PATHS;
pub use shown::PATHS as SHOWN_PATHS;

/// Amount of measuring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Rounds of each case.
    pub rounds: usize,
    /// Operations of a round, for the cheapest kind; more expensive ones do fewer.
    pub operations: u64,
    /// Zones of the largest device.
    pub zones_max: u32,
}

impl Effort {
    /// Effort for published tables.
    pub const FULL: Effort = Effort { rounds: 15, operations: 1_000_000, zones_max: 1_000_000 };

    /// Just enough to check that every row still works.
    pub const TINY: Effort = Effort { rounds: 1, operations: 2_000, zones_max: 4096 };
}

/// Measures some rows.
type Part<'a> = &'a dyn Fn(&mut Report);

/// Measures everything, or `only` one part. `allocated` returns the number of bytes that the
/// process has allocated, if it counts them.
///
/// # Panics
/// If a request fails: a benchmark of failures measures nothing.
pub fn run(effort: Effort, allocated: Option<fn() -> usize>, only: Option<&str>) -> Report {
    let mut report = Report::new(effort);
    let parts: [(&str, Part<'_>); 27] = [
        ("in-line", &|r| path::in_line(effort, r)),
        ("queued", &|r| path::queued(effort, r)),
        ("pipelined", &|r| path::pipelined(effort, r)),
        ("scheduled", &|r| path::scheduled(effort, r)),
        ("jobs", &|r| jobs::writes(effort, r)),
        ("job-cost", &|r| jobs::cost(effort, r)),
        ("modes", &|r| modes::in_turn(effort, r)),
        ("zones", &|r| path::zones(effort, r)),
        ("memory", &|r| memory::plugs(effort, allocated, r)),
        ("own-zones", &|r| threads::own_zones(effort, r)),
        ("own-queues", &|r| threads::own_queues(effort, r)),
        ("empty-polls", &|r| threads::empty_polls(effort, r)),
        ("one-zone", &|r| threads::one_zone(effort, r)),
        ("crowd", &|r| threads::crowd(effort, r)),
        ("reads", &|r| threads::reads_beside_writes(effort, r)),
        ("seen", &|r| waits::seen(effort, r)),
        ("waiting-writers", &|r| waits::writers(effort, r)),
        ("ram", &|r| {
            emulated::ram_writes(effort, r);
            emulated::ram_rewrites(effort, r);
            emulated::ram_reads(effort, r);
        }),
        ("image", &|r| {
            emulated::image_open(effort, r);
            image::against_fio(effort, r);
        }),
        ("files", &|r| {
            files::writes(effort, r);
            files::reads(effort, r);
            floor::sums(effort, r);
            floor::writes(effort, r);
            floor::reads(effort, r);
        }),
        ("callers", &|r| {
            callers::beside_cold_metadata(effort, r);
            callers::syncs(effort, r);
            callers::small_data(effort, r);
            callers::two_threads(effort, r);
        }),
        ("mount", &|r| mount::rows(effort, r)),
        ("mount-streams", &|r| mount::streams(effort, r)),
        ("mount-on-disk", &|r| mount::on_disk(effort, r)),
        ("mount-million", &|r| mount::million(effort, r)),
        ("rehearsal", &|r| rehearsal::rows(effort, r)),
        ("served", &|r| served::rows(effort, r)),
    ];
    for (name, part) in parts {
        if only.is_none_or(|o| o == name) {
            part(&mut report);
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slow: it measures each row of the benchmark once.
    #[test]
    fn every_row_runs_and_is_written_down() {
        let report = run(Effort::TINY, None, None);
        assert!(report.rows().len() >= 26, "{}", report.to_text());
        assert!(report.rows().iter().all(|r| r.value.is_finite() && r.value > 0.0), "{}", report.to_text());
        assert_eq!(report.to_json()["rows"].as_array().map(Vec::len), Some(report.rows().len()));
    }
}
