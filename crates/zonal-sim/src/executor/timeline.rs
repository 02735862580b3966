//! Virtual time of a volume driven by a single thread. It stands still as long as there is work to
//! do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zonal_core::{DeviceError, Nanos, RequestError};
use zonal_io::control::{ErrandGuard, Errands};
use zonal_io::device::Output;
use zonal_io::sync::Mutex;
use zonal_io::volume::{Request, Volume};

/// Maximum number of polls without an event: far more than any recovery takes.
const IDLE_POLLS_MAX: u32 = 1 << 20;

/// Number of consecutive fruitless polls after which nothing more can happen. Each of them
/// resubmits commands that the device was too busy for; one that is randomly busy accepts them in
/// the end.
const VAIN_POLLS_MAX: u32 = 1 << 10;

/// Earlier of two optional times.
#[inline]
pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Clock of virtual time. Clones share one clock.
///
/// Only one thread advances it, so no locked operations are needed. It counts fruitless polls,
/// which limits the number of jumps.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<Face>);

#[derive(Debug, Default)]
struct Face {
    nanos: AtomicU64,
    idle_polls: AtomicU32,
    vain_polls: AtomicU32,
}

/// Increments the count. Returns true if it is above the maximum.
#[inline]
fn is_above(count: &AtomicU32, max: u32) -> bool {
    let polls = count.load(Ordering::Relaxed) + 1;
    count.store(polls, Ordering::Relaxed);
    polls > max
}

impl VirtualClock {
    /// Time since the start.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.0.nanos.load(Ordering::Relaxed))
    }

    #[inline]
    fn has_news(&self) {
        self.0.idle_polls.store(0, Ordering::Relaxed);
    }

    /// See [`Timeline::advance`].
    #[inline]
    fn advance(&self, due: Option<Nanos>, timer: Option<Nanos>, stop: Nanos) -> Result<bool, Halt> {
        let now = self.now();
        if due.is_some_and(|due| due <= now) {
            return self.count_idle().map(|()| false);
        }
        let Some(next) = earlier(due, timer) else {
            return self.count_vain().map(|()| false);
        };
        self.0.vain_polls.store(0, Ordering::Relaxed);
        let next = next.min(stop).max(now);
        self.0.nanos.store(next.0, Ordering::Relaxed);
        if due == Some(next) {
            self.count_idle()?;
        }
        Ok(true)
    }

    /// Counts polls after which no future event is known.
    fn count_vain(&self) -> Result<(), Halt> {
        if is_above(&self.0.vain_polls, VAIN_POLLS_MAX) { Err(Halt::Deadlock) } else { Ok(()) }
    }

    /// Counts requests of the write path to be polled at once.
    #[inline]
    fn count_idle(&self) -> Result<(), Halt> {
        match is_above(&self.0.idle_polls, IDLE_POLLS_MAX) {
            true => Err(Halt::Endless("the device keeps asking to be polled but completes nothing")),
            false => Ok(()),
        }
    }
}

/// Reason why a run cannot continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// No future event is possible.
    Deadlock,
    /// Events repeat forever without progress; the text describes them.
    Endless(&'static str),
}

/// A critical section of a task: while the task waits in it, no other task runs. The drive
/// continues, and commands complete, but other tasks see their completions and timers only after
/// the section.
///
/// Code with locks of its own, such as a database, waits in a section. If a task were suspended
/// there, it would hold the locks, and the next task to need them would block the only thread.
#[derive(Debug)]
pub struct Section(VirtualClock);

impl Section {
    /// Creates a section in the time of `clock`.
    pub fn new(clock: VirtualClock) -> Section {
        Section(clock)
    }

    /// Present time.
    pub fn now(&self) -> Nanos {
        self.0.now()
    }

    /// Lets `volume` work until something may have happened.
    ///
    /// # Errors
    /// As [`Timeline::advance`].
    pub fn wait(&self, volume: &Volume) -> Result<(), Halt> {
        let due = volume.poll(self.now());
        self.0.advance(due, None, Nanos(u64::MAX)).map(drop)
    }

    /// Ends the wait: its condition is met.
    pub fn done(&self) {
        self.0.has_news();
    }
}

/// A volume and its virtual time. Only the caller submits and polls.
pub struct Timeline {
    volume: Arc<Volume>,
    clock: VirtualClock,
    errands: Option<ErrandGuard>,
}

impl Timeline {
    /// Creates the timeline of `volume`, starting at 0.
    pub fn new(volume: Arc<Volume>) -> Timeline {
        Timeline { volume, clock: VirtualClock::default(), errands: None }
    }

    /// Also carries out `errands` at their time: control requests to the volume and changes of its
    /// options.
    #[must_use]
    pub fn with_errands(mut self, errands: &Errands) -> Timeline {
        self.errands = Some(errands.attend());
        self
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Its clock.
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// Present time.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Carries out errands, then polls the volume once.
    #[inline]
    pub fn poll(&self) -> Option<Nanos> {
        if let Some(errands) = &self.errands {
            errands.run_pending();
        }
        self.volume.poll(self.now())
    }

    /// Restarts the count of fruitless polls, because something has happened.
    #[inline]
    pub fn has_news(&self) {
        self.clock.has_news();
    }

    /// Advances the clock after a poll that returned `due` and woke no task: to `due`, to `timer`
    /// if that is earlier, but not beyond `stop`. Returns true if a time has come; otherwise only
    /// another poll can help.
    ///
    /// # Errors
    /// [`Halt`] if no future event is possible, or the device asks for polls endlessly.
    #[inline]
    pub fn advance(&self, due: Option<Nanos>, timer: Option<Nanos>, stop: Nanos) -> Result<bool, Halt> {
        self.clock.advance(due, timer, stop)
    }

    /// Polls and advances the time until `has_come` returns true, while no task runs.
    ///
    /// # Errors
    /// As [`Timeline::advance`].
    pub fn run_until(&self, mut has_come: impl FnMut() -> bool) -> Result<(), Halt> {
        self.has_news();
        while !has_come() {
            let due = self.poll();
            if !has_come() {
                self.advance(due, None, Nanos(u64::MAX))?;
            }
        }
        self.has_news();
        Ok(())
    }

    /// Performs one request while no task runs.
    ///
    /// # Errors
    /// The error of the request, or a time-out if the device does not complete it.
    pub fn call(&self, request: Request) -> Result<Output, RequestError> {
        let answer = Arc::new(Mutex::new(None));
        let left = answer.clone();
        let channel = self.volume.channel(move |completion| *left.lock() = Some(completion.result));
        self.volume.submit(self.now(), &channel, request);
        let silent = Err(RequestError::Device(DeviceError::TimedOut));
        match self.run_until(|| answer.lock().is_some()) {
            Ok(()) => answer.lock().take().unwrap_or(silent),
            Err(_) => silent,
        }
    }
}

/// Polls `volume` from `now` on until it has nothing more to do, advancing the time by the
/// deadlines that polls return. Returns the final time. For volumes with their time kept by the
/// caller.
///
/// # Errors
/// [`Halt::Endless`] if the volume never becomes idle.
pub fn run_until_idle(volume: &Volume, mut now: Nanos) -> Result<Nanos, Halt> {
    for _ in 0..IDLE_POLLS_MAX {
        match volume.poll(now) {
            Some(due) => now = now.max(due),
            None => return Ok(now),
        }
    }
    Err(Halt::Endless("the volume does not come to rest"))
}

impl std::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timeline({:?}, {:?})", self.volume.info().name, self.now())
    }
}
