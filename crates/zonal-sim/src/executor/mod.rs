//! Virtual time: tasks that wait, on one thread, and a clock that jumps to what happens next.
//!
//! A task is a coroutine with a stack of its own. Where it has to wait, it leaves the processor and says what for
//! ([`Pause`]). Nothing here depends on how fast the machine is or on threads: the same tasks on the same device do the same,
//! to the nanosecond.
//!
//! # One round of the loop
//! Every task that is ready runs until it waits. Then the errands of other threads are done, and the volume is polled. A task
//! that has got an answer by that is ready. If none is, those that wait for other tasks look again, if anything happened
//! since they looked. Only if none is ready then does the clock jump: to the earliest of the volume's next deadline, the tasks'
//! timers and the host's alarms ([`Timeline::advance`]).
//!
//! # Why it ends
//! What can happen is either known with its time, or nothing will happen any more. Then the run has failed, and names the
//! tasks that wait ([`Stopped`]). Bounds end what happens for ever and leads nowhere.
//!
//! # Sections
//! Where a task may not leave the processor, it waits in a [`Section`]: the volume works, and all other tasks stand still.
//!
//! # Who does what
//! The executor knows no job and no file: what a run does with its clock, its results and its progress line is its [`Host`].
//! A run of one task that needs no stack of its own has a [`Timeline`] alone.

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
pub use timeline::{Halt, Section, Timeline, VirtualClock, rest};
pub use wakes::{Happenings, Wakes};
use zonal_core::Nanos;

/// Room for the calls of a task, of which only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// Longest virtual time of a run: a year. Beyond it a task waits for something that was not meant.
const TIME_MAX: Nanos = Nanos(365 * 24 * 3600 * 1_000_000_000);

/// Turns at one instant of a task that ends by time alone.
const TURNS_MAX: u32 = 256;

/// Rounds in which no task that looks found anything, before the clock jumps: one may have sent something that the poll after
/// the round answers.
const QUIET_LOOKS: u32 = 2;

/// Rounds at one instant in which tasks look. They are some hundred million looks.
const LOOKS_MAX: u32 = 1 << 24;

/// Rounds of the loop between two looks at the world.
const ROUNDS_PER_LOOK: u32 = 4096;

/// What a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause<C> {
    /// That it is woken ([`Wakes`]).
    Answer,
    /// That, or what another task brings. The host can see whether it may be there.
    Or(C),
    /// That, or this time.
    Until(Nanos),
    /// For what the task alone can see. It looks after each poll, until no task that looks gets on any more.
    Look,
    /// For nothing: other tasks have their turn.
    Turn,
}

/// What a task leaves when it waits.
pub struct Processor<'a, C>(&'a Yielder<(), Pause<C>>);

impl<C> Processor<'_, C> {
    /// Leaves the processor to other tasks, and returns when `pause` may be over.
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

/// A task that has not begun.
pub struct Task<C, R> {
    name: String,
    coroutine: Coroutine<(), Pause<C>, R>,
}

impl<C: 'static, R: 'static> Task<C, R> {
    /// A task that does `work`. Its name is for messages.
    ///
    /// # Errors
    /// The operating system's, if it gives no memory for the stack.
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

/// How tasks and completions tell the executor what happens.
#[derive(Clone, Debug)]
pub struct Signals {
    /// Who was answered.
    pub wakes: Wakes,
    /// How much has happened that another task may wait for.
    pub happenings: Rc<Happenings>,
}

impl Signals {
    /// For `tasks` tasks.
    pub fn new(tasks: usize) -> Signals {
        Signals { wakes: Wakes::new(tasks), happenings: Rc::default() }
    }
}

/// Whether the executor resumes all tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Those that have a reason of their own.
    Ready,
    /// All.
    All,
}

/// When the host wants the clock to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alarms {
    /// Something happens then.
    pub event: Option<Nanos>,
    /// The host looks then, which leads to nothing: a run with this alone before it does not continue.
    pub look: Nanos,
}

/// What a run does outside its tasks.
pub trait Host {
    /// What a task waits for that another task brings.
    type Condition: Copy;
    /// What a task leaves.
    type Left;

    /// Whether a task would get on, or may. To let it find out costs far more than to look from here.
    fn is_there(&self, _task: usize, _condition: Self::Condition) -> bool {
        true
    }

    /// Whether nothing but time ends a task.
    fn ends_by_time_alone(&self, _task: usize) -> bool {
        false
    }

    /// A task is over.
    fn over(&mut self, task: usize, left: Self::Left, now: Nanos) -> Resume;

    /// When the clock stops next for the host.
    fn alarms(&self) -> Alarms {
        Alarms { event: None, look: Nanos(u64::MAX) }
    }

    /// The clock stands at `now`.
    fn time_is(&mut self, _now: Nanos) -> Resume {
        Resume::Ready
    }

    /// The volume was polled.
    #[inline]
    fn was_polled(&mut self, _now: Nanos) {}

    /// From time to time, whatever the clock says.
    fn look_at_the_world(&mut self, _now: Nanos) -> Resume {
        Resume::Ready
    }
}

/// A run that does not continue, and who waits for what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// Since the run began.
    pub at: Duration,
    /// Why.
    pub why: Halt,
    /// The tasks that are not over, each with what it does; what tasks of one name have in common is there once.
    pub tasks: Vec<String>,
}

/// What a task is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskState<C> {
    /// It is in the queue.
    Ready,
    Answer,
    /// Of this nothing was to be had when so much had happened.
    Or(C, u64),
    Until(Nanos),
    Look,
    Ended,
}

struct Fibre<C, R> {
    task: Task<C, R>,
    state: TaskState<C>,
    /// The timer that it has in the heap.
    timer: Option<Nanos>,
    /// Whether it is on the list of those that wait for more than an answer.
    is_listed: bool,
    /// What it waits for, if it is ready only because something happened that may have been that.
    glance: Option<C>,
}

/// The tasks of a run and their loop. See the module.
pub struct Executor<'a, H: Host> {
    timeline: &'a Timeline,
    signals: Signals,
    host: &'a mut H,
    now: Nanos,
    begun: Nanos,
    fibres: Vec<Fibre<H::Condition, H::Left>>,
    /// Tasks that are not over.
    alive: usize,
    ready: VecDeque<usize>,
    timers: BinaryHeap<Reverse<(Nanos, usize)>>,
    others: Vec<usize>,
    /// The same while they are gone through; empty in between.
    listed: Vec<usize>,
    /// How much had happened when these were looked at.
    seen: u64,
    /// Some of these do not wait any more.
    have_left: bool,
    lookers: Lookers,
    turns: u32,
    /// How much had happened when polls were counted last.
    happened: u64,
    rounds: u32,
}

/// The tasks that look for themselves.
#[derive(Default)]
struct Lookers {
    waiting: Vec<usize>,
    /// Those that got on. They look last: what comes free is had by the task that looks first, and none may have all of it.
    got_on: Vec<usize>,
    /// How much had happened when they looked.
    seen: u64,
    /// Rounds since, in which none got on.
    quiet: u32,
    /// Rounds at this instant.
    rounds: u32,
}

impl<'a, H: Host> Executor<'a, H> {
    /// The executor of `tasks`, whose numbers in `signals` are their places.
    pub fn new(
        timeline: &'a Timeline,
        tasks: Vec<Task<H::Condition, H::Left>>,
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
            // All of them look at the beginning.
            lookers: Lookers { quiet: 1, ..Lookers::default() },
            turns: 0,
            happened: 0,
            rounds: 0,
            timeline,
            signals,
            host,
            fibres,
        }
    }

    /// Runs all tasks to their end.
    ///
    /// # Errors
    /// [`Stopped`] if they have none.
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
                self.wake_lookers()?;
            }
            if self.ready.is_empty() {
                self.advance(due)?;
            }
            self.look_at_the_world();
        }
    }

    /// Resumes the first that is ready, until it pauses or is over.
    fn run_next(&mut self) -> Result<(), Stopped> {
        let Some(n) = self.ready.pop_front() else { return Ok(()) };
        if let Some(condition) = self.fibres[n].glance.take()
            && !self.host.is_there(n, condition)
        {
            self.list(n, condition);
            return Ok(());
        }
        let fibre = &mut self.fibres[n];
        let happened = self.signals.happenings.count();
        let pause = match fibre.task.coroutine.resume(()) {
            CoroutineResult::Yield(pause) => pause,
            CoroutineResult::Return(left) => {
                self.over(n, left);
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
                let got_on = self.signals.happenings.count() != happened;
                let Lookers { waiting, got_on: last, .. } = &mut self.lookers;
                if got_on { last.push(n) } else { waiting.push(n) }
            }
            Pause::Turn => {
                self.ready.push_back(n);
                self.turn_is_over(n)?;
            }
        }
        Ok(())
    }

    /// Lets a task wait for more than an answer.
    fn list(&mut self, n: usize, condition: H::Condition) {
        let fibre = &mut self.fibres[n];
        fibre.state = TaskState::Or(condition, self.signals.happenings.count());
        if !std::mem::replace(&mut fibre.is_listed, true) {
            self.others.push(n);
        }
    }

    fn over(&mut self, n: usize, left: H::Left) {
        self.have_left |= self.fibres[n].is_listed;
        self.fibres[n].state = TaskState::Ended;
        self.alive -= 1;
        self.signals.happenings.one_more();
        let resume = self.host.over(n, left, self.now);
        self.resume(resume);
    }

    /// A task that never has to wait, and that only time ends, does not end.
    fn turn_is_over(&mut self, n: usize) -> Result<(), Stopped> {
        self.turns += 1;
        match self.turns > TURNS_MAX && self.host.ends_by_time_alone(n) {
            true => Err(self.stopped(Halt::Endless("the device answers at once, so that no time passes"))),
            false => Ok(()),
        }
    }

    fn wake(&mut self, n: usize) {
        let fibre = &mut self.fibres[n];
        fibre.glance = None;
        // A fibre that looks does so after each poll.
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

    /// Wakes those that wait for another task, if anything happened since they looked that may have been that.
    fn wake_others(&mut self) {
        let happened = self.signals.happenings.count();
        if self.others.is_empty() || happened == self.seen && !self.have_left {
            return;
        }
        (self.seen, self.have_left) = (happened, false);
        std::mem::swap(&mut self.others, &mut self.listed);
        let mut is_for_any = false;
        for &n in &self.listed {
            match self.fibres[n].state {
                TaskState::Or(_, seen) if seen == happened => self.others.push(n),
                TaskState::Or(condition, _) => is_for_any |= self.host.is_there(n, condition),
                _ => self.fibres[n].is_listed = false,
            }
        }
        for at in 0..self.listed.len() {
            let n = self.listed[at];
            match self.fibres[n].state {
                TaskState::Or(condition, seen) if seen != happened => self.let_look(n, condition, is_for_any),
                _ => {}
            }
        }
        self.listed.clear();
    }

    /// Lets a task look in its turn, or at once, if there is nothing for any.
    fn let_look(&mut self, n: usize, condition: H::Condition, has_to: bool) {
        self.fibres[n].is_listed = false;
        if has_to {
            self.wake(n);
            self.fibres[n].glance = Some(condition);
        } else {
            self.list(n, condition);
        }
    }

    /// Lets the tasks look that do so themselves, unless none got on in the last rounds of that.
    fn wake_lookers(&mut self) -> Result<(), Stopped> {
        let lookers = &mut self.lookers;
        if lookers.waiting.is_empty() && lookers.got_on.is_empty() {
            return Ok(());
        }
        let happened = self.signals.happenings.count();
        if std::mem::replace(&mut lookers.seen, happened) != happened {
            lookers.quiet = 0;
        }
        if lookers.quiet >= QUIET_LOOKS {
            return Ok(());
        }
        lookers.quiet += 1;
        for list in [&mut lookers.waiting, &mut lookers.got_on] {
            for n in list.drain(..) {
                self.fibres[n].state = TaskState::Ready;
                self.ready.push_back(n);
            }
        }
        lookers.rounds += 1;
        match lookers.rounds > LOOKS_MAX {
            true => Err(self.stopped(Halt::Endless("tasks get on again and again, and no time passes"))),
            false => Ok(()),
        }
    }

    /// Lets the clock jump to what happens next, `due` being the volume's deadline.
    fn advance(&mut self, due: Option<Nanos>) -> Result<(), Stopped> {
        let happened = self.signals.happenings.count();
        if std::mem::replace(&mut self.happened, happened) != happened {
            self.timeline.has_news();
        }
        let alarms = self.host.alarms();
        let timer = self.timers.peek().map(|Reverse((time, _))| *time);
        let timer = earlier(timer, alarms.event);
        if earlier(due, timer).is_some_and(|next| next > TIME_MAX) {
            return Err(self.stopped(Halt::Endless("the next thing to happen is more than a year away")));
        }
        let has_come = self.timeline.advance(due, timer, alarms.look).map_err(|halt| self.stopped(halt))?;
        self.lookers.quiet = 0;
        if has_come {
            self.time_has_come();
        }
        Ok(())
    }

    fn time_has_come(&mut self) {
        let now = self.timeline.now();
        if now > self.now {
            self.lookers.rounds = 0;
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

    fn look_at_the_world(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            let resume = self.host.look_at_the_world(self.now);
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
