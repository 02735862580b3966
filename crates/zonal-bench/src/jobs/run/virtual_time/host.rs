//! Actions of a round in virtual time outside its workers: samples, ends of runtimes, head
//! positions and the progress line.

use crate::jobs::run::progress::{PROGRESS_EVERY, Progress};
use crate::jobs::run::round::{Round, RoundResult, WorkerResult};
use crate::jobs::run::runner::VirtualClock;
use crate::jobs::run::watcher::Watcher;
use crate::jobs::workload::Awaits;
use crate::measure::series::PositionSeries;
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Sector};
use zonal_sim::executor::{Alarms, Host, Resume};

/// Positions of the device's head, if series are kept and the device reports them.
struct HeadWatch {
    /// Position left over from before the round. It does not belong to the round and may be far
    /// from the round's positions.
    stands: Option<Sector>,
    places: PositionSeries,
}

impl HeadWatch {
    fn note(&mut self, now: Nanos, place: Sector) {
        if self.stands != Some(place) {
            self.stands = None;
            self.places.record(now, place);
        }
    }
}

pub(super) struct RoundHost<'a> {
    round: &'a Round<'a>,
    clock: &'a VirtualClock,
    watcher: Watcher<'a>,
    head: Option<HeadWatch>,
    progress: &'a mut Progress,
    begun: Nanos,
    /// Time of the workers' clock.
    now: Nanos,
    /// Time of the next sample, and of the next end of a worker's runtime, if any.
    alarms: Alarms,
    results: Vec<(usize, WorkerResult)>,
    shown: Instant,
}

impl<'a> RoundHost<'a> {
    pub(super) fn new(
        round: &'a Round<'a>,
        clock: &'a VirtualClock,
        watcher: Watcher<'a>,
        progress: &'a mut Progress,
    ) -> RoundHost<'a> {
        progress.begins_in_virtual_time();
        let device = round.volume.device();
        let begun = clock.timeline.now();
        let mut host = RoundHost {
            alarms: Alarms { event: None, look: begun },
            begun,
            now: begun,
            results: Vec::new(),
            shown: Instant::now(),
            head: device.insight().head.filter(|_| round.series).map(|place| HeadWatch {
                stands: Some(place),
                places: PositionSeries::new(Sector(0)..Sector(device.info().geometry.sectors().0)),
            }),
            round,
            clock,
            watcher,
            progress,
        };
        host.stop_expired(begun);
        host.alarms.look = host.absolute(host.watcher.next_sample());
        host
    }

    /// Returns the results of the workers.
    pub(super) fn finish(self) -> RoundResult {
        let head = self.head.map(|head| head.places);
        RoundResult { results: self.results, samples: self.watcher.into_samples(), head }
    }

    fn stop_expired(&mut self, now: Nanos) {
        let next = self.watcher.stop(self.elapsed(now));
        self.alarms.event = next.map(|next| self.absolute(next));
    }

    fn elapsed(&self, now: Nanos) -> Duration {
        Duration::from_nanos(now.0 - self.begun.0)
    }

    fn absolute(&self, elapsed: Duration) -> Nanos {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        Nanos(self.begun.0.saturating_add(nanos))
    }

    #[cold]
    fn note_head(&mut self, now: Nanos) {
        if let (Some(head), Some(place)) = (&mut self.head, self.round.volume.device().insight().head) {
            head.note(now, place);
        }
    }
}

impl Host for RoundHost<'_> {
    type Condition = Awaits;
    type Outcome = WorkerResult;

    #[inline]
    fn may_be_met(&self, n: usize, awaits: Awaits) -> bool {
        match awaits {
            Awaits::Nothing => false,
            Awaits::Zone(zone) => self.round.zones.is_next(zone, self.round.workers()[n].number as u32),
            Awaits::Others => true,
        }
    }

    fn ends_by_time_alone(&self, n: usize) -> bool {
        self.round.workers()[n].spec.time_based
    }

    fn task_ended(&mut self, n: usize, result: WorkerResult, now: Nanos) -> Resume {
        let plan = &self.round.workers()[n];
        let fails_all = result.0.failure.is_some() && plan.spec.exitall_on_error;
        self.watcher.worker_ended(n, fails_all);
        self.results.push((plan.number, result));
        // This stops all workers if one failed that ends the others.
        self.stop_expired(now);
        if fails_all { Resume::All } else { Resume::Ready }
    }

    #[inline]
    fn alarms(&self) -> Alarms {
        self.alarms
    }

    fn time_is(&mut self, now: Nanos) -> Resume {
        self.clock.hand.increment(now.0 - self.now.0);
        self.now = now;
        if now >= self.alarms.look {
            self.watcher.sample(self.elapsed(now));
            self.alarms.look = self.absolute(self.watcher.next_sample());
        }
        if self.alarms.event.is_none_or(|stop| stop > now) {
            return Resume::Ready;
        }
        self.stop_expired(now);
        Resume::All
    }

    #[inline]
    fn was_polled(&mut self, now: Nanos) {
        if self.head.is_some() {
            self.note_head(now);
        }
    }

    fn tick(&mut self, now: Nanos) -> Resume {
        let time = Instant::now();
        if self.progress.is_shown() && time - self.shown >= PROGRESS_EVERY {
            self.shown = time;
            self.watcher.show(self.progress, self.elapsed(now));
        }
        if !self.watcher.is_interrupted() {
            return Resume::Ready;
        }
        self.stop_expired(now);
        Resume::All
    }
}
