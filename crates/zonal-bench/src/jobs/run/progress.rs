//! Progress line: rate, percentage and time left, on standard error if that is a terminal.

use crate::jobs::plan::{Plan, WorkerPlan};
use crate::jobs::run::measure::Watch;
use crate::jobs::workload::Dir;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use zonal_core::SECTOR_BYTES;
use zonal_io::sync::CachePadded;

/// Real time between updates of the line.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Steps of the bar.
const STEPS: u64 = 1000;

/// The progress line, if shown.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    rounds: usize,
    seen: (Duration, u64, u64),
    /// Real time at the start of the round, if the round is in virtual time.
    virtual_since: Option<Instant>,
}

impl Progress {
    pub(super) fn new(is_wanted: bool, plan: &Plan) -> Progress {
        let is_shown = is_wanted && std::io::stderr().is_terminal();
        let bar = is_shown.then(|| {
            let bar = ProgressBar::new(STEPS);
            let style = ProgressStyle::with_template("{bar:24} {percent:>3}% {msg} left {eta}");
            bar.set_style(style.expect("the template is right"));
            bar
        });
        Progress { bar, rounds: plan.rounds.len(), seen: (Duration::ZERO, 0, 0), virtual_since: None }
    }

    pub(super) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    /// Starts a round in virtual time.
    pub(super) fn begins_in_virtual_time(&mut self) {
        self.virtual_since = Some(Instant::now());
    }

    /// Shows the progress of the workers of a round.
    pub(super) fn update(
        &mut self,
        round: usize,
        workers: &[WorkerPlan],
        watches: &[CachePadded<Watch>],
        elapsed: Duration,
    ) {
        let Some(bar) = &self.bar else { return };
        let sum = |of: &dyn Fn(&Watch) -> u64| watches.iter().map(|watch| of(watch)).sum::<u64>();
        let ios = sum(&|watch| watch.ios(Dir::Read) + watch.ios(Dir::Write));
        let sectors = sum(&|watch| watch.sectors(Dir::Read) + watch.sectors(Dir::Write));
        let (before, ios_before, sectors_before) = self.seen;
        if elapsed <= before || ios < ios_before || sectors < sectors_before {
            self.seen = (Duration::ZERO, 0, 0);
        } else {
            let seconds = (elapsed - before).as_secs_f64();
            let iops = (ios - ios_before) as f64 / seconds;
            let mib = (sectors - sectors_before) as f64 * SECTOR_BYTES as f64 / (1 << 20) as f64 / seconds;
            let speed = self.virtual_since.map(|begun| speed(elapsed, begun.elapsed())).unwrap_or_default();
            bar.set_message(format!("{iops:.0} IOPS {mib:.1} MiB/s{speed}"));
            self.seen = (elapsed, ios, sectors);
        }
        let done =
            workers.iter().zip(watches).map(|(worker, watch)| share(worker, watch, elapsed)).sum::<f64>();
        let of_round = done / workers.len().max(1) as f64;
        let all = (round as f64 + of_round) / self.rounds.max(1) as f64;
        bar.set_position((all * STEPS as f64) as u64);
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Formats the elapsed virtual time and its speed relative to real time.
fn speed(elapsed: Duration, really: Duration) -> String {
    let times = elapsed.as_secs_f64() / really.as_secs_f64().max(1e-9);
    format!(", {:.1} s virtual at {times:.1}x", elapsed.as_secs_f64())
}

/// Fraction of a worker's job that is done, 0 to 1: by time or by amount, whichever is larger.
fn share(worker: &WorkerPlan, watch: &Watch, elapsed: Duration) -> f64 {
    let runtime = worker.spec.runtime.map(|runtime| runtime + worker.spec.pace.ramp_time);
    let by_time = runtime.map_or(0.0, |runtime| elapsed.as_secs_f64() / runtime.as_secs_f64());
    let done = watch.sectors(Dir::Read) + watch.sectors(Dir::Write);
    let by_amount = match worker.spec.time_based {
        true => 0.0,
        false => done as f64 / worker.total_sectors as f64,
    };
    by_time.max(by_amount).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_is_shown_with_its_speed() {
        assert_eq!(speed(Duration::from_secs(90), Duration::from_millis(500)), ", 90.0 s virtual at 180.0x");
    }
}
