//! Executor of virtual time: runs tasks on one thread, with a clock that jumps to the next event.
//!
//! A task is a coroutine with its own stack. To wait, it yields the processor with the reason
//! ([`Pause`]). Nothing depends on the speed of the machine or on threads: the same tasks on the
//! same device behave identically, to the nanosecond.
//!
//! # One round of the loop
//! Every ready task runs until it waits. Then requests from other threads are carried out, and the
//! volume is polled. Tasks with a completion become ready. If there are none, the tasks that wait
//! for other tasks check again, if anything has happened since their last check. If still none is
//! ready, the clock jumps to the earliest of the volume's next deadline, the tasks' timers and the
//! host's alarms ([`Timeline::advance`]).
//!
//! # Termination
//! Every future event has a known time, or there is none. If there is none, the run fails and names
//! the waiting tasks ([`Stopped`]). Limits stop runs that are busy forever without progress.
//!
//! # Sections
//! A task that must not yield the processor waits in a [`Section`]: the volume continues, but all
//! other tasks are suspended.
//!
//! # Division of work
//! The executor is independent of jobs and files: the handling of time, results and progress is up
//! to the [`Host`]. A run with a single task that needs no stack of its own uses only a
//! [`Timeline`].

mod timeline;
mod wakes;

#[cfg(test)]
mod tests;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use timeline::earlier;
pub use timeline::{Halt, Section, Timeline, VirtualClock, run_until_idle};
pub use wakes::{EventCount, Wakes};
use zonal_core::Nanos;

/// Size of a task's stack. Only pages in use take memory.
const STACK_BYTES: usize = 1 << 20;

/// Longest virtual time of a run: a year. A wait beyond that is a mistake.
const TIME_MAX: Nanos = Nanos(365 * 24 * 3600 * 1_000_000_000);

/// Maximum number of turns at one instant for a task that only time can end.
const TURNS_MAX: u32 = 256;

/// Number of fruitless rounds of polling tasks before the clock jumps. In the first, a task may
/// have sent a request that the next poll completes.
const QUIET_POLLS: u32 = 2;

/// Maximum number of polling rounds at one instant, for some hundred million checks.
const POLLS_MAX: u32 = 1 << 24;

/// Rounds of the loop between two calls of [`Host::tick`].
const ROUNDS_PER_TICK: u32 = 4096;

/// Reason for a task to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause<C> {
    /// Until it is woken ([`Wakes`]).
    Answer,
    /// Until it is woken or another task meets the condition. The host can check if that is
    /// possible.
    Or(C),
    /// Until it is woken or this time has come.
    Until(Nanos),
    /// For something only the task can check. It is resumed after each poll, until no such task
    /// makes progress.
    Look,
    /// For nothing, but other tasks get a turn.
    Turn,
}

/// Lets a task yield.
pub struct Processor<'a, C>(&'a Yielder<(), Pause<C>>);

impl<C> Processor<'_, C> {
    /// Yields to other tasks, and returns when the wait may be over.
    #[inline]
    pub fn leave(&self, pause: Pause<C>) {
        self.0.suspend(pause);
    }
}

impl<C> std::fmt::Debug for Processor<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processor").finish_non_exhaustive()
    }
}

/// A task that has not started.
pub struct Task<C, R> {
    name: String,
    coroutine: Coroutine<(), Pause<C>, R>,
}

impl<C: 'static, R: 'static> Task<C, R> {
    /// Creates a task that runs `work`. Its name is used in messages.
    ///
    /// # Errors
    /// The operating system's error if the stack cannot be allocated.
    pub fn new(name: &str, work: impl FnOnce(&Processor<'_, C>) -> R + 'static) -> io::Result<Task<C, R>> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        let body = move |yielder: &Yielder<(), Pause<C>>, ()| work(&Processor(yielder));
        Ok(Task { name: name.to_owned(), coroutine: Coroutine::with_stack(stack, body) })
    }
}

impl<C, R> std::fmt::Debug for Task<C, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Notifications from tasks and completions to the executor.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Tasks with completed requests.
    pub wakes: Wakes,
    /// Count of events that other tasks may wait for.
    pub events: Rc<EventCount>,
}

impl Signals {
    /// Creates the signals for this number of tasks.
    pub fn new(tasks: usize) -> Signals {
        Signals { wakes: Wakes::new(tasks), events: Rc::default() }
    }
}

/// Choice of the tasks to resume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Tasks that are ready.
    Ready,
    /// All tasks.
    All,
}

/// Times at which the clock stops for the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alarms {
    /// Time of an event.
    pub event: Option<Nanos>,
    /// Time of a check by the host, which is not an event: a run with nothing else pending does not
    /// continue.
    pub look: Nanos,
}

/// Environment of a run.
pub trait Host {
    /// Condition that a task waits for and another task meets.
    type Condition: Copy;
    /// Result of a task.
    type Outcome;

    /// Returns false if the condition is certainly not met. Checking here is far cheaper than
    /// resuming the task.
    fn may_be_met(&self, _task: usize, _condition: Self::Condition) -> bool {
        true
    }

    /// True if only the passing of time ends a task.
    fn ends_by_time_alone(&self, _task: usize) -> bool {
        false
    }

    /// A task has ended with this result.
    fn task_ended(&mut self, task: usize, outcome: Self::Outcome, now: Nanos) -> Resume;

    /// Next times at which the clock stops for the host.
    fn alarms(&self) -> Alarms {
        Alarms { event: None, look: Nanos(u64::MAX) }
    }

    /// The clock has advanced to `now`.
    fn time_is(&mut self, _now: Nanos) -> Resume {
        Resume::Ready
    }

    /// The volume was polled.
    #[inline]
    fn was_polled(&mut self, _now: Nanos) {}

    /// Called regularly, independently of the clock.
    fn tick(&mut self, _now: Nanos) -> Resume {
        Resume::Ready
    }
}

/// A run that cannot continue, with the tasks that wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// Time since the start of the run.
    pub at: Duration,
    /// Reason.
    pub why: Halt,
    /// Tasks that have not ended, each with its activity. Equal adjacent entries are listed once.
    pub tasks: Vec<String>,
}

/// State of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskState<C> {
    /// In the queue of ready tasks.
    Ready,
    Answer,
    /// The condition was not met at this count of events.
    Or(C, u64),
    Until(Nanos),
    Look,
    Ended,
}

struct Fibre<C, R> {
    task: Task<C, R>,
    state: TaskState<C>,
    /// Its timer in the heap.
    timer: Option<Nanos>,
    /// True if it is in the list of tasks with a condition.
    is_listed: bool,
    /// Its condition, if it is ready only because an event may have met that.
    glance: Option<C>,
}

/// The tasks of a run and their loop. See the module.
pub struct Executor<'a, H: Host> {
    timeline: &'a Timeline,
    signals: Signals,
    host: &'a mut H,
    now: Nanos,
    begun: Nanos,
    fibres: Vec<Fibre<H::Condition, H::Outcome>>,
    /// Number of tasks that have not ended.
    alive: usize,
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    others: Vec<usize>,
    /// Swapped with `others` during its traversal. Empty in between.
    listed: Vec<usize>,
    /// Count of events when `others` was last checked.
    seen: u64,
    /// Some tasks in `others` no longer wait.
    have_left: bool,
    pollers: Pollers,
    turns: u32,
    /// Count of events when polls were last counted.
    happened: u64,
    rounds: u32,
}

/// Polling tasks, which check for themselves.
#[derive(Default)]
struct Pollers {
    waiting: Vec<usize>,
    /// Tasks that made progress. They check last: otherwise the first task could take all of a
    /// resource as it becomes free, and others none.
    progressed: Vec<usize>,
    /// Count of events at their last check.
    seen: u64,
    /// Rounds without progress since then.
    quiet: u32,
    /// Rounds at this instant.
    rounds: u32,
}

impl<'a, H: Host> Executor<'a, H> {
    /// Creates an executor. The tasks are numbered in `signals` by their position.
    pub fn new(
        timeline: &'a Timeline,
        tasks: Vec<Task<H::Condition, H::Outcome>>,
        signals: Signals,
        host: &'a mut H,
    ) -> Executor<'a, H> {
        let fibre =
            |task| Fibre { task, state: TaskState::Ready, timer: None, is_listed: false, glance: None };
        let fibres: Vec<_> = tasks.into_iter().map(fibre).collect();
        Executor {
            now: timeline.now(),
            begun: timeline.now(),
            alive: fibres.len(),
            ready: (0..fibres.len()).collect(),
            timers: BinaryHeap::new(),
            others: Vec::new(),
            listed: Vec::new(),
            seen: 0,
            have_left: false,
            // All of them check at the start.
            pollers: Pollers { quiet: 1, ..Pollers::default() },
            turns: 0,
            happened: 0,
            rounds: 0,
            timeline,
            signals,
            host,
            fibres,
        }
    }

    /// Runs all tasks to completion.
    ///
    /// # Errors
    /// [`Stopped`] if the run cannot continue.
    pub fn run(mut self) -> Result<(), Stopped> {
        self.timeline.has_news();
        loop {
            for _ in 0..self.ready.len() {
                self.run_next()?;
            }
            if self.alive == 0 {
                return Ok(());
            }
            if self.timeline.now() > self.now {
                // A task waited in a section.
                self.time_has_come();
            }
            let due = self.timeline.poll();
            self.host.was_polled(self.now);
            self.wake_answered();
            if self.ready.is_empty() {
                self.wake_others();
            }
            if self.ready.is_empty() {
                self.wake_pollers()?;
            }
            if self.ready.is_empty() {
                self.advance(due)?;
            }
            self.tick();
        }
    }

    /// Resumes the first ready task, until it waits or ends.
    fn run_next(&mut self) -> Result<(), Stopped> {
        let Some(n) = self.ready.pop_front() else { return Ok(()) };
        if let Some(condition) = self.fibres[n].glance.take()
            && !self.host.may_be_met(n, condition)
        {
            self.list(n, condition);
            return Ok(());
        }
        let fibre = &mut self.fibres[n];
        let happened = self.signals.events.count();
        let pause = match fibre.task.coroutine.resume(()) {
            CoroutineResult::Yield(pause) => pause,
            CoroutineResult::Return(outcome) => {
                self.task_ended(n, outcome);
                return Ok(());
            }
        };
        self.have_left |= fibre.is_listed && !matches!(pause, Pause::Or(_));
        match pause {
            Pause::Answer => fibre.state = TaskState::Answer,
            Pause::Or(condition) => self.list(n, condition),
            Pause::Until(time) => {
                fibre.state = TaskState::Until(time);
                if fibre.timer != Some(time) {
                    fibre.timer = Some(time);
                    self.timers.push(Reverse((time, n)));
                }
            }
            Pause::Look => {
                fibre.state = TaskState::Look;
                let progressed = self.signals.events.count() != happened;
                let Pollers { waiting, progressed: last, .. } = &mut self.pollers;
                if progressed { last.push(n) } else { waiting.push(n) }
            }
            Pause::Turn => {
                self.ready.push_back(n);
                self.turn_is_over(n)?;
            }
        }
        Ok(())
    }

    /// Adds a task to those that wait for a condition.
    fn list(&mut self, n: usize, condition: H::Condition) {
        let fibre = &mut self.fibres[n];
        fibre.state = TaskState::Or(condition, self.signals.events.count());
        if !std::mem::replace(&mut fibre.is_listed, true) {
            self.others.push(n);
        }
    }

    fn task_ended(&mut self, n: usize, outcome: H::Outcome) {
        self.have_left |= self.fibres[n].is_listed;
        self.fibres[n].state = TaskState::Ended;
        self.alive -= 1;
        self.signals.events.increment();
        let resume = self.host.task_ended(n, outcome, self.now);
        self.resume(resume);
    }

    /// Fails if a task never has to wait but only time can end it: it would run forever.
    fn turn_is_over(&mut self, n: usize) -> Result<(), Stopped> {
        self.turns += 1;
        match self.turns > TURNS_MAX && self.host.ends_by_time_alone(n) {
            true => Err(self.stopped(Halt::Endless("the device completes at once, so no time passes"))),
            false => Ok(()),
        }
    }

    fn wake(&mut self, n: usize) {
        let fibre = &mut self.fibres[n];
        fibre.glance = None;
        // Polling tasks are resumed after each poll anyway.
        if !matches!(fibre.state, TaskState::Ready | TaskState::Ended | TaskState::Look) {
            fibre.state = TaskState::Ready;
            self.ready.push_back(n);
        }
    }

    fn resume(&mut self, resume: Resume) {
        if resume == Resume::All {
            (0..self.fibres.len()).for_each(|n| self.wake(n));
        }
    }

    fn wake_answered(&mut self) {
        while let Some(n) = self.signals.wakes.take() {
            self.wake(n);
        }
    }

    /// Wakes tasks that wait for a condition, if an event since their last check may have met it.
    fn wake_others(&mut self) {
        let happened = self.signals.events.count();
        if self.others.is_empty() || happened == self.seen && !self.have_left {
            return;
        }
        (self.seen, self.have_left) = (happened, false);
        std::mem::swap(&mut self.others, &mut self.listed);
        let mut is_for_any = false;
        for &n in &self.listed {
            match self.fibres[n].state {
                TaskState::Or(_, seen) if seen == happened => self.others.push(n),
                TaskState::Or(condition, _) => is_for_any |= self.host.may_be_met(n, condition),
                _ => self.fibres[n].is_listed = false,
            }
        }
        for at in 0..self.listed.len() {
            let n = self.listed[at];
            match self.fibres[n].state {
                TaskState::Or(condition, seen) if seen != happened => self.recheck(n, condition, is_for_any),
                _ => {}
            }
        }
        self.listed.clear();
    }

    /// Wakes a task to check its condition in turn, or, if no condition can be met, keeps it
    /// waiting.
    fn recheck(&mut self, n: usize, condition: H::Condition, has_to: bool) {
        self.fibres[n].is_listed = false;
        if has_to {
            self.wake(n);
            self.fibres[n].glance = Some(condition);
        } else {
            self.list(n, condition);
        }
    }

    /// Resumes the polling tasks, unless none made progress in the last rounds.
    fn wake_pollers(&mut self) -> Result<(), Stopped> {
        let pollers = &mut self.pollers;
        if pollers.waiting.is_empty() && pollers.progressed.is_empty() {
            return Ok(());
        }
        let happened = self.signals.events.count();
        if std::mem::replace(&mut pollers.seen, happened) != happened {
            pollers.quiet = 0;
        }
        if pollers.quiet >= QUIET_POLLS {
            return Ok(());
        }
        pollers.quiet += 1;
        for list in [&mut pollers.waiting, &mut pollers.progressed] {
            for n in list.drain(..) {
                self.fibres[n].state = TaskState::Ready;
                self.ready.push_back(n);
            }
        }
        pollers.rounds += 1;
        match pollers.rounds > POLLS_MAX {
            true => Err(self.stopped(Halt::Endless("tasks keep making progress, but no time passes"))),
            false => Ok(()),
        }
    }

    /// Advances the clock to the next event. `due` is the volume's deadline.
    fn advance(&mut self, due: Option<Nanos>) -> Result<(), Stopped> {
        let happened = self.signals.events.count();
        if std::mem::replace(&mut self.happened, happened) != happened {
            self.timeline.has_news();
        }
        let alarms = self.host.alarms();
        let timer = self.timers.peek().map(|Reverse((time, _))| *time);
        let timer = earlier(timer, alarms.event);
        if earlier(due, timer).is_some_and(|next| next > TIME_MAX) {
            return Err(self.stopped(Halt::Endless("the next event is more than a year away")));
        }
        let has_come = self.timeline.advance(due, timer, alarms.look).map_err(|halt| self.stopped(halt))?;
        self.pollers.quiet = 0;
        if has_come {
            self.time_has_come();
        }
        Ok(())
    }

    fn time_has_come(&mut self) {
        let now = self.timeline.now();
        if now > self.now {
            self.pollers.rounds = 0;
        }
        (self.now, self.turns) = (now, 0);
        let resume = self.host.time_is(now);
        self.resume(resume);
        self.wake_by_timers();
    }

    fn wake_by_timers(&mut self) {
        while let Some(&Reverse((time, n))) = self.timers.peek()
            && time <= self.now
        {
            self.timers.pop();
            if self.fibres[n].timer == Some(time) {
                self.fibres[n].timer = None;
            }
            if matches!(self.fibres[n].state, TaskState::Until(until) if until <= self.now) {
                self.wake(n);
            }
        }
    }

    fn tick(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(ROUNDS_PER_TICK) {
            let resume = self.host.tick(self.now);
            self.resume(resume);
        }
    }

    #[cold]
    fn stopped(&self, why: Halt) -> Stopped {
        let mut tasks: Vec<String> = Vec::new();
        for Fibre { task, state, .. } in &self.fibres {
            let waits = match state {
                TaskState::Ended => continue,
                TaskState::Ready => "runs",
                TaskState::Answer => "waits for its requests",
                TaskState::Or(..) => "waits for another job",
                TaskState::Until(_) => "waits for its time",
                TaskState::Look => "waits",
            };
            tasks.push(format!("{} {waits}", task.name));
        }
        tasks.dedup();
        Stopped { at: Duration::from_nanos(self.now.0 - self.begun.0), why, tasks }
    }
}
