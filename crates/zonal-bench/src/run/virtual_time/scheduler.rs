//! Who runs next in virtual time, and when it is.
//!
//! # One round of the loop
//! Every worker that is ready runs until it has nothing to do; then the write path is polled; who has got an answer by
//! that is ready. Is nobody, those that wait for others look again, if anything happened since they looked last. Only if
//! nobody is ready then does the clock jump: to the earliest of the write path's next deadline, the workers' timers, the
//! end of somebody's time and the next sample.
//!
//! # Why it ends
//! A worker that waits is resumed after something happened, and never just to look. So what can happen is either known
//! with its time, or nothing will happen any more: then the jobs that still wait are named, and the run has failed. The
//! bounds below end what happens for ever without getting on.

use super::{Common, Left, Pause, VirtualClock};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::run::round::Round;
use crate::run::threads::Ran;
use crate::run::watcher::Watcher;
use crate::series::PositionSeries;
use crate::workload::Awaits;
use corosensei::{Coroutine, CoroutineResult};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Sector};

/// Longest virtual time of a run: a year. Beyond it a job waits for something that was not meant.
const TIME_MAX: Nanos = Nanos(365 * 24 * 3600 * 1_000_000_000);

/// Polls of the write path after which nothing had happened: far more than any recovery takes.
const IDLE_POLLS_MAX: u32 = 1 << 20;

/// Polls in a row that lead to nothing, after which nothing is left that could happen. The write path offers a command again
/// with each, that a device was too busy for: one that is busy by chance takes it in the end.
pub(crate) const VAIN_POLLS_MAX: u32 = 1 << 10;

/// Turns at one instant of a job that ends by time alone. They are some ten million requests.
const TURNS_MAX: u32 = 256;

/// Time between two updates of the progress line, the world's.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Rounds of the loop between two looks at the world: at its clock, and whether somebody there ends the run.
const ROUNDS_PER_LOOK: u32 = 4096;

/// What a worker is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It is in the queue.
    Ready,
    /// It waits for one of its requests.
    Ending,
    /// It waits for one of its requests, or for this, of which nothing was to be had when so much had happened.
    Or(Awaits, u64),
    /// It waits for a time.
    Until(Nanos),
    Over,
}

struct Fibre {
    coroutine: Coroutine<(), Pause, Left>,
    state: State,
    /// The timer that it has in the heap.
    timer: Option<Nanos>,
    /// Whether it is on the list of those that wait for more than their requests.
    is_listed: bool,
    /// What it waits for, if it is ready only because something happened that may have been that.
    glance: Option<Awaits>,
}

/// Where the device's head has been, where series are kept and it tells.
struct HeadWatch {
    /// Where it stands from before the round. That is no place of the round's, and may be far from all of them.
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

pub(super) struct Scheduler<'a> {
    round: &'a Round<'a>,
    clock: &'a VirtualClock,
    common: Rc<Common>,
    watcher: Watcher<'a>,
    head: Option<HeadWatch>,
    progress: &'a mut Progress,
    now: Nanos,
    begun: Nanos,
    fibres: Vec<Fibre>,
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    others: Vec<usize>,
    /// The same while they are gone through; empty in between.
    listed: Vec<usize>,
    /// How much had happened when these were looked at.
    looked: u64,
    /// Some of these do not wait any more.
    have_left: bool,
    /// Workers that are not over.
    alive: usize,
    /// When the next sample is taken.
    sample_at: Nanos,
    /// When somebody has run for its time next, if anybody will.
    stop_at: Option<Nanos>,
    turns: u32,
    idle_polls: u32,
    vain_polls: u32,
    happened: u64,
    results: Vec<(usize, Left)>,
    rounds: u32,
    shown: Instant,
}

impl<'a> Scheduler<'a> {
    pub(super) fn new(
        round: &'a Round<'a>,
        clock: &'a VirtualClock,
        common: &Rc<Common>,
        coroutines: Vec<Coroutine<(), Pause, Left>>,
        watcher: Watcher<'a>,
        progress: &'a mut Progress,
    ) -> Scheduler<'a> {
        let fibre =
            |coroutine| Fibre { coroutine, state: State::Ready, timer: None, is_listed: false, glance: None };
        let device = round.volume.device();
        let fibres: Vec<Fibre> = coroutines.into_iter().map(fibre).collect();
        Scheduler {
            now: clock.now(),
            begun: clock.now(),
            ready: (0..fibres.len()).collect(),
            alive: fibres.len(),
            timers: BinaryHeap::new(),
            others: Vec::new(),
            listed: Vec::new(),
            looked: 0,
            have_left: false,
            sample_at: Nanos(0),
            stop_at: None,
            turns: 0,
            idle_polls: 0,
            vain_polls: 0,
            happened: 0,
            results: Vec::new(),
            rounds: 0,
            shown: Instant::now(),
            common: common.clone(),
            round,
            clock,
            fibres,
            watcher,
            head: device.head().filter(|_| round.series).map(|place| HeadWatch {
                stands: Some(place),
                places: PositionSeries::new(Sector(0)..Sector(device.info().geometry.sectors().0)),
            }),
            progress,
        }
    }

    /// Runs all workers to their end.
    pub(super) fn run(mut self) -> Result<Ran, BenchError> {
        self.progress.begins_in_virtual_time();
        self.stop_who_is_due();
        self.sample_at = self.absolute(self.watcher.next_sample());
        loop {
            for _ in 0..self.ready.len() {
                self.run_next()?;
            }
            if self.alive == 0 {
                break;
            }
            let due = self.round.volume.poll(self.now);
            if self.head.is_some() {
                self.note_head();
            }
            self.wake_answered();
            if self.ready.is_empty() {
                self.wake_others();
            }
            if self.ready.is_empty() {
                self.advance(due)?;
            }
            self.look_at_the_world();
        }
        let results = std::mem::take(&mut self.results);
        Ok(Ran { results, samples: self.watcher.into_samples(), head: self.head.map(|head| head.places) })
    }

    /// Resumes the first that is ready, until it pauses or is over.
    fn run_next(&mut self) -> Result<(), BenchError> {
        let Some(n) = self.ready.pop_front() else { return Ok(()) };
        if let Some(awaits) = self.fibres[n].glance.take()
            && !self.is_there(n, awaits)
        {
            self.list(n, awaits);
            return Ok(());
        }
        let fibre = &mut self.fibres[n];
        let pause = match fibre.coroutine.resume(()) {
            CoroutineResult::Yield(pause) => pause,
            CoroutineResult::Return(left) => {
                self.over(n, left);
                return Ok(());
            }
        };
        self.have_left |= fibre.is_listed && !matches!(pause, Pause::Or(_));
        match pause {
            Pause::Ending => fibre.state = State::Ending,
            Pause::Or(awaits) => self.list(n, awaits),
            Pause::Until(time) => {
                fibre.state = State::Until(time);
                if fibre.timer != Some(time) {
                    fibre.timer = Some(time);
                    self.timers.push(Reverse((time, n)));
                }
            }
            Pause::Turn => {
                self.ready.push_back(n);
                self.turn_is_over(n)?;
            }
        }
        Ok(())
    }

    /// Lets a worker wait for more than its requests.
    fn list(&mut self, n: usize, awaits: Awaits) {
        let fibre = &mut self.fibres[n];
        fibre.state = State::Or(awaits, self.common.happenings.count());
        if !std::mem::replace(&mut fibre.is_listed, true) {
            self.others.push(n);
        }
    }

    /// Whether a worker would get on, or may: to let it find out costs far more than to look from here.
    #[inline]
    fn is_there(&self, n: usize, awaits: Awaits) -> bool {
        match awaits {
            Awaits::Nobody => false,
            Awaits::Zone(zone) => self.round.zones.is_next(zone, self.round.workers()[n].number as u32),
            Awaits::Others => true,
        }
    }

    fn over(&mut self, n: usize, left: Left) {
        self.have_left |= self.fibres[n].is_listed;
        self.fibres[n].state = State::Over;
        self.alive -= 1;
        self.common.happenings.one_more();
        let plan = &self.round.workers()[n];
        let fails_all = left.0.failure.is_some() && plan.spec.exitall_on_error;
        self.watcher.over(n, fails_all);
        self.results.push((plan.number, left));
        if fails_all {
            self.watcher.stop_all();
            self.wake_all();
        }
        self.stop_who_is_due();
    }

    /// A job whose requests are all answered at once, and that only time ends, does not end.
    fn turn_is_over(&mut self, n: usize) -> Result<(), BenchError> {
        self.turns += 1;
        match self.turns > TURNS_MAX && self.round.workers()[n].spec.time_based {
            true => Err(self.endless("the device answers at once, so that no time passes")),
            false => Ok(()),
        }
    }

    fn wake(&mut self, n: usize) {
        let fibre = &mut self.fibres[n];
        fibre.glance = None;
        if !matches!(fibre.state, State::Ready | State::Over) {
            fibre.state = State::Ready;
            self.ready.push_back(n);
        }
    }

    fn wake_all(&mut self) {
        (0..self.fibres.len()).for_each(|n| self.wake(n));
    }

    fn wake_answered(&mut self) {
        while let Some(n) = self.common.post.awake() {
            self.wake(n);
        }
    }

    /// Wakes those that wait for more than their requests, if anything happened since they looked that may have been that.
    fn wake_others(&mut self) {
        let happened = self.common.happenings.count();
        if self.others.is_empty() || happened == self.looked && !self.have_left {
            return;
        }
        (self.looked, self.have_left) = (happened, false);
        std::mem::swap(&mut self.others, &mut self.listed);
        let mut is_anybodys = false;
        for &n in &self.listed {
            match self.fibres[n].state {
                State::Or(_, seen) if seen == happened => self.others.push(n),
                State::Or(awaits, _) => is_anybodys |= self.is_there(n, awaits),
                _ => self.fibres[n].is_listed = false,
            }
        }
        for at in 0..self.listed.len() {
            let n = self.listed[at];
            match self.fibres[n].state {
                State::Or(awaits, seen) if seen != happened => self.let_look(n, awaits, is_anybodys),
                _ => {}
            }
        }
        self.listed.clear();
    }

    /// Lets a worker look in its turn, or at once, if there is nothing for anybody.
    fn let_look(&mut self, n: usize, awaits: Awaits, has_to: bool) {
        self.fibres[n].is_listed = false;
        if has_to {
            self.wake(n);
            self.fibres[n].glance = Some(awaits);
        } else {
            self.list(n, awaits);
        }
    }

    /// Lets the clock jump to what happens next, `due` being the write path's deadline.
    fn advance(&mut self, due: Option<Nanos>) -> Result<(), BenchError> {
        if due.is_some_and(|due| due <= self.now) {
            return self.count_idle();
        }
        let timer = self.timers.peek().map(|Reverse((time, _))| *time);
        let Some(next) = [due, timer, self.stop_at].into_iter().flatten().min() else {
            return self.count_vain();
        };
        self.vain_polls = 0;
        if next > TIME_MAX {
            return Err(self.endless("the next thing to happen is more than a year away"));
        }
        self.now = next.min(self.sample_at).max(self.now);
        self.clock.advance_to(self.now);
        self.turns = 0;
        if self.now >= self.sample_at {
            self.watcher.sample(self.elapsed());
            self.sample_at = self.absolute(self.watcher.next_sample());
        }
        if due == Some(self.now) {
            self.count_idle()?;
        }
        if self.stop_at.is_some_and(|stop| stop <= self.now) {
            self.stop_who_is_due();
            self.wake_all();
        }
        self.wake_by_timers();
        Ok(())
    }

    /// Counts polls after which nothing is known that will happen.
    fn count_vain(&mut self) -> Result<(), BenchError> {
        self.vain_polls += 1;
        match self.vain_polls > VAIN_POLLS_MAX {
            true => Err(BenchError::Deadlock { at: self.elapsed(), jobs: self.waiting() }),
            false => Ok(()),
        }
    }

    /// Counts times that the write path asks to be polled, since something happened.
    fn count_idle(&mut self) -> Result<(), BenchError> {
        let happened = self.common.happenings.count();
        if std::mem::replace(&mut self.happened, happened) != happened {
            self.idle_polls = 0;
        }
        self.idle_polls += 1;
        match self.idle_polls > IDLE_POLLS_MAX {
            true => Err(self.endless("the device asks to be polled again and again, and answers nothing")),
            false => Ok(()),
        }
    }

    fn wake_by_timers(&mut self) {
        while let Some(&Reverse((time, n))) = self.timers.peek()
            && time <= self.now
        {
            self.timers.pop();
            if self.fibres[n].timer == Some(time) {
                self.fibres[n].timer = None;
            }
            if matches!(self.fibres[n].state, State::Until(until) if until <= self.now) {
                self.wake(n);
            }
        }
    }

    fn stop_who_is_due(&mut self) {
        let next = self.watcher.stop(self.elapsed());
        self.stop_at = next.map(|next| self.absolute(next));
    }

    #[cold]
    fn note_head(&mut self) {
        if let (Some(head), Some(place)) = (&mut self.head, self.round.volume.device().head()) {
            head.note(self.now, place);
        }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now.0 - self.begun.0)
    }

    fn absolute(&self, elapsed: Duration) -> Nanos {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        Nanos(self.begun.0.saturating_add(nanos))
    }

    fn endless(&self, why: &'static str) -> BenchError {
        BenchError::Endless { at: self.elapsed(), why, jobs: self.waiting() }
    }

    /// The jobs that are not over, each with what it waits for.
    fn waiting(&self) -> Vec<String> {
        let mut jobs: Vec<String> = Vec::new();
        for (fibre, plan) in self.fibres.iter().zip(self.round.workers()) {
            let waits = match fibre.state {
                State::Over => continue,
                State::Ready => "runs",
                State::Ending => "waits for its requests",
                State::Or(..) => "waits for another job",
                State::Until(_) => "waits for its time",
            };
            let name = &plan.spec.name;
            jobs.push(format!("{name} {waits}"));
        }
        jobs.dedup();
        jobs
    }

    fn look_at_the_world(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            return;
        }
        if self.watcher.is_interrupted() {
            self.stop_who_is_due();
            self.wake_all();
        }
        if self.progress.is_shown() {
            self.show();
        }
    }

    fn show(&mut self) {
        let now = Instant::now();
        if now - self.shown >= PROGRESS_EVERY {
            self.shown = now;
            self.watcher.show(self.progress, self.elapsed());
        }
    }
}
