//! Where tasks that wait run: threads in the world's time, coroutines in virtual time.
//!
//! A task is a function of a [`Waiter`], the same in both. In virtual time all of them are on one thread, and leave the
//! processor where they wait. Then the write path is polled and all look again; once nobody got on in two rounds of that, the
//! clock jumps to what the device does next. If it does nothing any more the run has failed, and says who waits.
//!
//! # Whose turn it is
//! Room that comes free goes to whoever looks first. So those that got on look last: nobody gets on at the cost of others.

use crate::error::BenchError;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zonal_core::Nanos;
use zonal_fs::FileSystem;
use zonal_fs::waiter::{Polling, Waiter};
use zonal_io::clock::Clock;
use zonal_io::volume::Volume;

/// Room for the calls of a task, of which only what is touched takes memory.
const STACK_BYTES: usize = 1 << 20;

/// Rounds in which nobody gets on before the clock jumps: one may have sent something that the poll behind it answers.
const QUIET_ROUNDS: u32 = 2;

/// Jumps of the clock without anybody getting on: far more than any recovery takes.
const IDLE_JUMPS_MAX: u32 = 1 << 20;

/// Rounds at one instant. They are some hundred million looks.
const ROUNDS_MAX: u32 = 1 << 24;

/// Files' times in virtual time begin here, so that two runs say the same: 2026-01-01.
const WALL_BEGIN: i64 = 1_767_225_600_000_000_000;

/// What somebody who is given a waiter does.
type Work<R> = Box<dyn FnOnce(&dyn Waiter) -> R + Send>;

/// What is run: a name for messages, and what it does.
pub(super) struct Task<R> {
    pub(super) name: String,
    pub(super) work: Work<R>,
}

impl<R> Task<R> {
    pub(super) fn new(name: &str, work: impl FnOnce(&dyn Waiter) -> R + Send + 'static) -> Task<R> {
        Task { name: name.to_owned(), work: Box::new(work) }
    }
}

/// Whose time it is.
pub(super) enum World {
    /// The world's.
    Real(Clock),
    /// What the device says, so late.
    Virtual(Cell<Nanos>),
}

impl World {
    pub(super) fn of(is_virtual: bool) -> World {
        if is_virtual { World::Virtual(Cell::default()) } else { World::Real(Clock::start()) }
    }

    /// Runs `tasks` to their end, and what they gave in their order; meanwhile the zones of `tended` are tended.
    pub(super) fn run<R: Send + 'static>(
        &self,
        volume: &Arc<Volume>,
        tasks: Vec<Task<R>>,
        tended: Option<&FileSystem>,
    ) -> Result<Vec<R>, BenchError> {
        match self {
            World::Real(clock) => in_threads(*clock, tasks, tended),
            World::Virtual(clock) => in_coroutines(clock, volume, tasks, tended),
        }
    }

    /// Runs one task by itself.
    pub(super) fn alone<R: Send + 'static>(
        &self,
        volume: &Arc<Volume>,
        work: impl FnOnce(&dyn Waiter) -> R + Send + 'static,
    ) -> Result<R, BenchError> {
        let ran = self.run(volume, vec![Task::new("the file system", work)], None)?;
        Ok(ran.into_iter().next().expect("a task leaves something"))
    }
}

/// Tends the zones until `is_over`.
fn tend(fs: &FileSystem, waiter: &dyn Waiter, is_over: impl Fn() -> bool) {
    while !is_over() {
        match fs.background_step(waiter) {
            Ok(true) => waiter.done(),
            Ok(false) => waiter.wait(fs.volume()),
            // Whoever writes next learns why.
            Err(_) => return,
        }
    }
}

fn in_threads<R: Send + 'static>(
    clock: Clock,
    tasks: Vec<Task<R>>,
    tended: Option<&FileSystem>,
) -> Result<Vec<R>, BenchError> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(fs) = tended {
            let is_over = &is_over;
            scope.spawn(move || tend(fs, &Polling::new(clock), || is_over.load(Ordering::Acquire)));
        }
        let mut threads = Vec::new();
        let mut result = Ok(());
        for Task { name, work } in tasks {
            let builder = std::thread::Builder::new().name(name.chars().take(15).collect());
            match builder.spawn_scoped(scope, move || work(&Polling::new(clock))) {
                Ok(thread) => threads.push(thread),
                Err(error) => result = Err(BenchError::Thread { job: name, error }),
            }
        }
        let left: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Release);
        result?;
        Ok(left
            .into_iter()
            .map(|left| left.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect())
    })
}

/// What all coroutines have in common.
#[derive(Default)]
struct Common {
    now: Cell<Nanos>,
    /// Somebody got on.
    has_news: Cell<bool>,
    is_over: Cell<bool>,
}

/// The waiter of a coroutine.
struct Virtual<'a> {
    yielder: &'a Yielder<(), ()>,
    common: Rc<Common>,
}

impl Waiter for Virtual<'_> {
    fn now(&self) -> Nanos {
        self.common.now.get()
    }

    fn wall(&self) -> i64 {
        WALL_BEGIN + self.common.now.get().0 as i64
    }

    fn wait(&self, _: &Volume) {
        self.yielder.suspend(());
    }

    fn done(&self) {
        self.common.has_news.set(true);
    }
}

struct Fibre<R> {
    name: String,
    coroutine: Coroutine<(), (), Option<R>>,
    /// Its place in what is given back; of the one that tends, none.
    place: Option<usize>,
}

struct Loop<'a, R> {
    volume: &'a Volume,
    common: Rc<Common>,
    /// Those that got on the longest ago first.
    fibres: Vec<Fibre<R>>,
    begin: Nanos,
    left: Vec<Option<R>>,
    alive: usize,
    idle_jumps: u32,
    /// Rounds at this instant.
    rounds: u32,
}

fn in_coroutines<R: 'static>(
    clock: &Cell<Nanos>,
    volume: &Arc<Volume>,
    tasks: Vec<Task<R>>,
    tended: Option<&FileSystem>,
) -> Result<Vec<R>, BenchError> {
    let common = Rc::new(Common { now: clock.clone(), ..Common::default() });
    let alive = tasks.len();
    let mut fibres = Vec::new();
    for (place, Task { name, work }) in tasks.into_iter().enumerate() {
        fibres.push(fibre(name, Some(place), &common, move |waiter| Some(work(waiter)))?);
    }
    if let Some(fs) = tended.cloned() {
        let over = common.clone();
        let collector = move |waiter: &dyn Waiter| {
            tend(&fs, waiter, || over.is_over.get());
            None
        };
        fibres.push(fibre("the collector".to_owned(), None, &common, collector)?);
    }
    let left = std::iter::repeat_with(|| None).take(alive).collect();
    let begin = clock.get();
    let mut run = Loop { volume, common, fibres, begin, left, alive, idle_jumps: 0, rounds: 0 };
    run.run()?;
    clock.set(run.common.now.get());
    Ok(run.left.into_iter().flatten().collect())
}

fn fibre<R: 'static>(
    name: String,
    place: Option<usize>,
    common: &Rc<Common>,
    work: impl FnOnce(&dyn Waiter) -> Option<R> + 'static,
) -> Result<Fibre<R>, BenchError> {
    let no_stack = |error| BenchError::Thread { job: name.clone(), error };
    let stack = DefaultStack::new(STACK_BYTES).map_err(no_stack)?;
    let common = common.clone();
    let coroutine =
        Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| work(&Virtual { yielder, common }));
    Ok(Fibre { name, coroutine, place })
}

impl<R> Loop<'_, R> {
    fn run(&mut self) -> Result<(), BenchError> {
        let mut quiet = 0;
        while !self.fibres.is_empty() {
            quiet = if self.round() { 0 } else { quiet + 1 };
            self.count_round()?;
            let now = self.common.now.get();
            let due = self.volume.poll(now);
            if quiet >= QUIET_ROUNDS && !self.fibres.is_empty() {
                self.jump(due)?;
                quiet = 0;
            } else if quiet == 0 {
                self.idle_jumps = 0;
            }
        }
        Ok(())
    }

    /// Where everything is answered at once the clock stands; but it does not stand for ever.
    fn count_round(&mut self) -> Result<(), BenchError> {
        self.rounds += 1;
        match self.rounds > ROUNDS_MAX {
            true => Err(self.endless("somebody gets on again and again, and no time passes")),
            false => Ok(()),
        }
    }

    fn endless(&self, why: &'static str) -> BenchError {
        BenchError::Endless { at: self.elapsed(), why, jobs: self.waiting() }
    }

    /// Everybody looks once; whether anybody got on.
    fn round(&mut self) -> bool {
        let mut waiting = Vec::with_capacity(self.fibres.len());
        let (mut got_on, mut is_over) = (Vec::new(), false);
        for mut fibre in std::mem::take(&mut self.fibres) {
            self.common.has_news.set(false);
            match fibre.coroutine.resume(()) {
                CoroutineResult::Yield(()) if self.common.has_news.get() => got_on.push(fibre),
                CoroutineResult::Yield(()) => waiting.push(fibre),
                CoroutineResult::Return(left) => {
                    self.over(&fibre, left);
                    is_over = true;
                }
            }
        }
        let is_news = is_over || !got_on.is_empty();
        waiting.append(&mut got_on);
        self.fibres = waiting;
        is_news
    }

    fn over(&mut self, fibre: &Fibre<R>, left: Option<R>) {
        if let Some(place) = fibre.place {
            self.left[place] = left;
            self.alive -= 1;
        }
        self.common.is_over.set(self.alive == 0);
    }

    /// Lets the clock jump to what the device does next.
    fn jump(&mut self, due: Option<Nanos>) -> Result<(), BenchError> {
        let now = self.common.now.get();
        let Some(due) = due else {
            return Err(BenchError::Deadlock { at: self.elapsed(), jobs: self.waiting() });
        };
        self.idle_jumps += 1;
        if self.idle_jumps > IDLE_JUMPS_MAX {
            return Err(self.endless("the device asks to be polled again and again, and answers nothing"));
        }
        self.rounds = if due > now { 0 } else { self.rounds };
        self.common.now.set(now.max(due));
        self.volume.poll(now.max(due));
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.common.now.get().0 - self.begin.0)
    }

    fn waiting(&self) -> Vec<String> {
        self.fibres.iter().map(|fibre| format!("{} waits", fibre.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
    use zonal_io::volume::VolumeOptions;

    fn volume() -> Arc<Volume> {
        let options = EmulatedOptions { size: 1 << 30, zone_size: 1 << 20, ..EmulatedOptions::default() };
        let device = Arc::new(Emulated::new("null", &options, Null).unwrap());
        Arc::new(Volume::open(device, VolumeOptions::default()).unwrap())
    }

    #[test]
    fn tasks_that_nothing_can_wake_are_an_error_that_names_them() {
        let volume = volume();
        let on = volume.clone();
        let sleeper = Task::new("sleeper", move |waiter: &dyn Waiter| {
            loop {
                waiter.wait(&on);
            }
        });
        let ran: Result<Vec<()>, _> = World::of(true).run(&volume, vec![sleeper], None);
        let Err(BenchError::Deadlock { jobs, .. }) = ran else { panic!("{ran:?}") };
        assert_eq!(jobs, ["sleeper waits"]);
    }

    #[test]
    fn tasks_leave_what_they_have_in_their_order() {
        for is_virtual in [true, false] {
            let tasks = (0..5).map(|n| Task::new("t", move |waiter: &dyn Waiter| (n, waiter.now())));
            let left = World::of(is_virtual).run(&volume(), tasks.collect(), None).unwrap();
            assert_eq!(left.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        }
    }
}
