//! Execution of tasks that wait: threads in real time, tasks of the executor in virtual time.
//!
//! A task is a function of a [`Wait`], identical in both cases. In virtual time all tasks share one
//! thread and yield when they wait ([`zonal_sim::executor`]). Only the file system can tell whether
//! its wait is over, so its tasks check after each poll, those that made progress last.

use crate::error::BenchError;
use crate::jobs::run::runner::{TaskRunner, fibre, thread};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use zonal_core::Nanos;
use zonal_fs::FileSystem;
use zonal_fs::waiter::{Polling, Wait, Waiters, polling};
use zonal_io::clock::Clock;
use zonal_io::volume::Volume;
use zonal_sim::executor::{
    Executor, Halt, Host, Pause, Processor, Resume, Section, Signals, Stopped, Timeline, VirtualClock,
};

/// Start of file times in virtual time, 2026-01-01, so that runs are reproducible.
const WALL_BEGIN: i64 = 1_767_225_600_000_000_000;

/// Work of a task, which receives a waiter.
type Work<R> = Box<dyn FnOnce(&dyn Wait) -> R + Send>;

/// A task: its name for messages, and its work.
pub(super) struct Task<R> {
    pub(super) name: String,
    pub(super) work: Work<R>,
}

impl<R> Task<R> {
    pub(super) fn new(name: &str, work: impl FnOnce(&dyn Wait) -> R + Send + 'static) -> Task<R> {
        Task { name: name.to_owned(), work: Box::new(work) }
    }
}

impl TaskRunner {
    /// Runs `tasks` to their end and returns their results in order. Background work for the zones
    /// of `tended` runs meanwhile.
    pub(super) fn run<R: Send + 'static>(
        &self,
        tasks: Vec<Task<R>>,
        tended: Option<&FileSystem>,
    ) -> Result<Vec<R>, BenchError> {
        match self {
            TaskRunner::Real(clock) => in_threads(*clock, tasks, tended),
            TaskRunner::Virtual(clock) => in_virtual_time(&clock.timeline, tasks, tended),
        }
    }

    /// Waiters for the database, which has no waiter parameter, and holds its locks while a task
    /// waits inside.
    pub(super) fn waiters(&self) -> Waiters {
        match self {
            TaskRunner::Real(clock) => polling(*clock),
            TaskRunner::Virtual(clock) => {
                let clock = clock.timeline.clock().clone();
                Arc::new(move || Box::new(InSection(Section::new(clock.clone()))))
            }
        }
    }

    /// Runs a single task.
    pub(super) fn alone<R: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Wait) -> R + Send + 'static,
    ) -> Result<R, BenchError> {
        let ran = self.run(vec![Task::new("the file system", work)], None)?;
        Ok(ran.into_iter().next().expect("a task leaves something"))
    }
}

/// Performs background work for the zones until `is_over`.
fn maintain(fs: &FileSystem, waiter: &dyn Wait, is_over: impl Fn() -> bool) {
    while !is_over() {
        match fs.background_step(waiter) {
            Ok(true) => waiter.done(),
            Ok(false) => waiter.wait(fs.volume()),
            // The next writer gets the error.
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
            let tend = move || maintain(fs, &Polling::new(clock), || is_over.load(Ordering::Acquire));
            thread(scope, "the file system", tend)?;
        }
        let mut threads = Vec::new();
        let mut result = Ok(());
        for Task { name, work } in tasks {
            match thread(scope, &name, move || work(&Polling::new(clock))) {
                Ok(thread) => threads.push(thread),
                Err(error) => result = Err(error),
            }
        }
        let results: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Release);
        result?;
        Ok(results
            .into_iter()
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect())
    })
}

/// Waiter of a task in virtual time.
struct Virtual<'a> {
    processor: &'a Processor<'a, ()>,
    clock: VirtualClock,
    signals: Signals,
}

impl Wait for Virtual<'_> {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn wall(&self) -> i64 {
        WALL_BEGIN + self.now().0 as i64
    }

    fn wait(&self, _: &Volume) {
        self.processor.leave(Pause::Look);
    }

    fn done(&self) {
        self.signals.events.increment();
    }
}

/// Waiter of a task inside the database.
struct InSection(Section);

impl Wait for InSection {
    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn wall(&self) -> i64 {
        WALL_BEGIN + self.now().0 as i64
    }

    fn wait(&self, volume: &Volume) {
        if let Err(halt) = self.0.wait(volume) {
            // The database has no way to return this. Unwind out of it, which ends the run.
            std::panic::resume_unwind(Box::new(halt));
        }
    }

    fn done(&self) {
        self.0.done();
    }
}

/// Runs `work`. If it unwinds out of the database, returns the reason as an error.
fn unless_halted<R>(timeline: &Timeline, work: impl FnOnce() -> Result<R, Stopped>) -> Result<R, Stopped> {
    let begun = timeline.now();
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| match panic.downcast::<Halt>() {
        Ok(why) => {
            let at = Duration::from_nanos(timeline.now().0 - begun.0);
            Err(Stopped { at, why: *why, tasks: vec!["the metadata is waiting for the drive".to_owned()] })
        }
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Results of the tasks, by index. The collector has the last index and no result.
struct Results<R> {
    results: Vec<Option<R>>,
    alive: usize,
    is_over: Rc<Cell<bool>>,
}

impl<R> Host for Results<R> {
    type Condition = ();
    type Outcome = Option<R>;

    fn task_ended(&mut self, task: usize, result: Option<R>, _: Nanos) -> Resume {
        if let Some(place) = self.results.get_mut(task) {
            *place = result;
            self.alive -= 1;
        }
        self.is_over.set(self.alive == 0);
        Resume::Ready
    }
}

/// Work of an executor task. The collector returns `None`.
type Inside<R> = Box<dyn FnOnce(&dyn Wait) -> Option<R>>;

fn in_virtual_time<R: 'static>(
    timeline: &Timeline,
    tasks: Vec<Task<R>>,
    tended: Option<&FileSystem>,
) -> Result<Vec<R>, BenchError> {
    let signals = Signals::new(tasks.len() + 1);
    let alive = tasks.len();
    let results = std::iter::repeat_with(|| None).take(alive).collect();
    let mut host = Results { results, alive, is_over: Rc::default() };
    let task = |name: &str, work: Inside<R>| {
        let (clock, signals) = (timeline.clock().clone(), signals.clone());
        let work = move |processor: &Processor<'_, ()>| work(&Virtual { processor, clock, signals });
        fibre(name, work)
    };
    let mut fibres = Vec::new();
    for Task { name, work } in tasks {
        fibres.push(task(&name, Box::new(move |waiter| Some(work(waiter))))?);
    }
    if let Some(fs) = tended.cloned() {
        let is_over = host.is_over.clone();
        let collector = move |waiter: &dyn Wait| {
            maintain(&fs, waiter, || is_over.get());
            None
        };
        fibres.push(task("the collector", Box::new(collector))?);
    }
    let executor = Executor::new(timeline, fibres, signals.clone(), &mut host);
    unless_halted(timeline, || executor.run())?;
    Ok(host.results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_io::control::Errands;
    use zonal_io::device::Device;
    use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
    use zonal_io::volume::VolumeOptions;
    use zonal_sim::Profile;

    fn volume(is_virtual: bool) -> Arc<Volume> {
        let options = EmulatedOptions::default().with_size(1 << 30).with_zone_size(1 << 20);
        let device: Arc<dyn Device> = match is_virtual {
            true => Profile::open("zns-1t", &[]).unwrap().simulated("sim").unwrap(),
            false => Arc::new(Emulated::new("null", &options, Null).unwrap()),
        };
        Arc::new(Volume::open(device, VolumeOptions::default()).unwrap())
    }

    #[test]
    fn tasks_that_nothing_can_wake_are_an_error_that_names_them() {
        let volume = volume(true);
        let on = volume.clone();
        let sleeper = Task::new("sleeper", move |waiter: &dyn Wait| {
            loop {
                waiter.wait(&on);
            }
        });
        let ran: Result<Vec<()>, _> = TaskRunner::of(&volume, &Errands::default()).run(vec![sleeper], None);
        let Err(BenchError::Deadlock { jobs, .. }) = ran else { panic!("{ran:?}") };
        assert_eq!(jobs, ["sleeper waits"]);
    }

    #[test]
    fn wait_inside_the_database_that_nothing_can_end_ends_the_run_by_name() {
        let volume = volume(true);
        let runner = TaskRunner::of(&volume, &Errands::default());
        let (on, waiters) = (volume.clone(), runner.waiters());
        let ran: Result<Vec<()>, _> = runner.run(
            vec![
                Task::new("inside", move |_: &dyn Wait| {
                    loop {
                        waiters().wait(&on);
                    }
                }),
                Task::new("outside", |_: &dyn Wait| ()),
            ],
            None,
        );
        let Err(BenchError::Deadlock { jobs, .. }) = ran else { panic!("{ran:?}") };
        assert_eq!(jobs, ["the metadata is waiting for the drive"]);
    }

    #[test]
    fn task_results_are_returned_in_task_order() {
        for is_virtual in [true, false] {
            let tasks = (0..5).map(|n| Task::new("t", move |waiter: &dyn Wait| (n, waiter.now())));
            let results =
                TaskRunner::of(&volume(is_virtual), &Errands::default()).run(tasks.collect(), None).unwrap();
            assert_eq!(results.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        }
    }
}
