//! Drive that completes commands when a test tells it to, and threads on queues chosen by a test.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Op, Sector};
use zonal_io::clock::Clock;
use zonal_io::device::{Command, CommandResult, Completed, Context, Device, DeviceInfo, Submitted};
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::news::Wakeups;
use zonal_io::sync::Mutex;
use zonal_io::volume::Volume;

/// Sectors of a zone.
pub const ZONE: u64 = 2048;

/// Minimum cost of a lost wakeup: the sleep time of threads here.
pub const LONG: Duration = Duration::from_secs(6);

/// Time beyond the duration of a test. A caller with a deadline sleeps at once, without 2000 yields
/// first.
pub const FAR: Duration = Duration::from_secs(1000);

/// Maximum time to wait for a step of a thread that is not blocked.
pub const PATIENCE: Duration = Duration::from_secs(60);

std::thread_local! {
    /// Queue of this thread's last command.
    static QUEUE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Handling of a command by the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Completes in `submit`.
    AtOnce,
    /// Completes in the first `poll` after this time.
    After(Duration),
    /// Completes after [`Held::answer`].
    ByHand,
    /// Refuses it: the queue is full.
    NoRoom,
}

type Hook = Box<dyn FnOnce() + Send>;

struct Standing {
    sector: Sector,
    due: Option<Nanos>,
    context: Context,
    result: CommandResult,
}

#[derive(Default)]
struct Queue {
    standing: VecDeque<Standing>,
    has_news: bool,
}

struct HeldState {
    queues: Vec<Queue>,
    answer: Answer,
    sent: Vec<Op>,
    at_submit: Option<Hook>,
    after_look: Option<Hook>,
    /// Receives a message when a thread is about to sleep in a wait of its volume.
    bedtime: Option<mpsc::Sender<()>>,
}

/// Drive under the control of a test, see the module documentation. Reports complete at once,
/// without hooks.
pub struct Held {
    inner: Emulated<Null>,
    wakeups: Wakeups,
    state: Mutex<HeldState>,
}

impl Held {
    /// Creates a drive with this number of queues and this handling of commands.
    pub fn new(queues: usize, answer: Answer) -> Arc<Held> {
        let options = EmulatedOptions::default()
            .with_size(256 << 20)
            .with_zone_size(ZONE * 512)
            .with_submit_queues(queues as u32);
        let state = HeldState {
            queues: std::iter::repeat_with(Queue::default).take(queues).collect(),
            answer,
            sent: Vec::new(),
            at_submit: None,
            after_look: None,
            bedtime: None,
        };
        Arc::new(Held {
            inner: Emulated::new("held", &options, Null).unwrap(),
            wakeups: Wakeups::new(queues),
            state: Mutex::new(state),
        })
    }

    /// Sets the handling of further commands.
    pub fn set(&self, answer: Answer) {
        self.state.lock().answer = answer;
    }

    /// Commands accepted so far.
    pub fn sent(&self) -> Vec<Op> {
        self.state.lock().sent.clone()
    }

    /// Waits until this number of commands was accepted.
    pub fn await_sent(&self, commands: usize) {
        let begin = Instant::now();
        while self.sent().len() < commands {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.sent());
            sleep(Duration::from_micros(100));
        }
    }

    /// Calls `hook` in the `submit` of the next command, before it returns.
    pub fn at_submit(&self, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().at_submit = Some(Box::new(hook));
    }

    /// Calls `hook` in the next `poll`, after it has looked and before it returns.
    pub fn after_look(&self, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().after_look = Some(Box::new(hook));
    }

    /// Receiver of a message once a thread has found nothing and is about to sleep in a wait of the
    /// volume.
    pub fn bedtime(&self) -> mpsc::Receiver<()> {
        let (sender, asleep) = mpsc::channel();
        self.state.lock().bedtime = Some(sender);
        asleep
    }

    /// Waits until this happens again, for a thread that sleeps for short times.
    pub fn await_sleeper(&self) {
        self.bedtime().recv_timeout(PATIENCE).expect("a thread comes to sleep");
    }

    /// Completes the commands at `sector` for the next polls, without a ring. Returns their queues.
    pub fn publish(&self, sector: Sector) -> Vec<usize> {
        let mut state = self.state.lock();
        let mut queues = Vec::new();
        for (n, queue) in state.queues.iter_mut().enumerate() {
            for standing in queue.standing.iter_mut().filter(|standing| standing.sector == sector) {
                standing.due = Some(Nanos(0));
                queue.has_news = true;
                queues.push(n);
            }
        }
        queues
    }

    /// Completes the commands at `sector`, and rings.
    pub fn answer(&self, sector: Sector) {
        self.publish(sector).into_iter().for_each(|queue| self.wakeups.ring(queue));
    }

    /// Completes all commands from here on, so that all threads end.
    fn release(&self) {
        let mut state = self.state.lock();
        state.answer = Answer::AtOnce;
        for queue in &mut state.queues {
            queue.standing.iter_mut().for_each(|standing| standing.due = Some(Nanos(0)));
            queue.has_news = true;
        }
        drop(state);
        self.wakeups.ring_all();
    }
}

/// Releases the drive at the end of the test's scope, even if the test fails.
pub struct Release<'a>(pub &'a Held);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Device for Held {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        QUEUE.set(queue);
        if command.op == Op::Report {
            return self.inner.submit(now, queue, command, context);
        }
        let mut state = self.state.lock();
        let (answer, hook) = (state.answer, state.at_submit.take());
        drop(state);
        hook.into_iter().for_each(|hook| hook());
        if answer == Answer::NoRoom {
            return Submitted::Busy;
        }
        let submitted = self.inner.submit(now, queue, command, context);
        let mut state = self.state.lock();
        state.sent.push(command.op);
        let due = match answer {
            Answer::After(time) => Some(Nanos(now.0 + time.as_nanos() as u64)),
            Answer::ByHand => None,
            Answer::AtOnce | Answer::NoRoom => return submitted,
        };
        let Submitted::Done(result) = submitted else { panic!("the drive inside answers at once") };
        let context = context.take().expect("a command has its context");
        let its = &mut state.queues[queue];
        its.standing.push_back(Standing { sector: command.sector, due, context, result });
        its.has_news |= due.is_some();
        drop(state);
        if due.is_some() {
            self.wakeups.ring(queue);
        }
        Submitted::Accepted
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let mut state = self.state.lock();
        let its = &mut state.queues[queue];
        its.has_news = false;
        for _ in 0..budget {
            let is_due = |standing: &Standing| standing.due.is_some_and(|due| due <= now);
            let Some(Standing { context, result, .. }) =
                its.standing.iter().position(is_due).and_then(|at| its.standing.remove(at))
            else {
                break;
            };
            done(Completed { context, result });
        }
        let due = its.standing.iter().filter_map(|standing| standing.due).min();
        let hook = state.after_look.take();
        drop(state);
        hook.into_iter().for_each(|hook| hook());
        due
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.state.lock().queues[queue].standing.is_empty()
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    fn has_news(&self, queue: usize) -> bool {
        let mut state = self.state.lock();
        let has_news = state.queues[queue].has_news;
        if !has_news && let Some(bedtime) = state.bedtime.take() {
            // The test may have given up.
            let _ = bedtime.send(());
        }
        has_news
    }
}

/// Runs `work` on a new thread of this queue of `volume`, and waits for it.
pub fn on_queue(volume: &Volume, clock: Clock, queue: usize, work: impl FnOnce() + Send) {
    let work: Box<dyn FnOnce() + Send + '_> = Box::new(work);
    place(volume, clock, queue, work);
}

/// Threads of other queues live until the work has ended, so that their numbers are not reused.
fn place<'a>(volume: &'a Volume, clock: Clock, queue: usize, work: Box<dyn FnOnce() + Send + 'a>) {
    let run = move || {
        volume.report(&clock, Sector(0), 1).unwrap();
        match QUEUE.get() == queue {
            true => work(),
            false => place(volume, clock, queue, work),
        }
    };
    if let Err(panic) = scope(|threads| threads.spawn(run).join()) {
        resume_unwind(panic);
    }
}
