//! The time of a volume that one thread has to itself: it stands still until nothing is left to do in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zonal_core::{DeviceError, Nanos, RequestError};
use zonal_io::control::{Attendance, Errands};
use zonal_io::device::Output;
use zonal_io::sync::Mutex;
use zonal_io::volume::{Request, Volume};

/// Polls after which nothing had happened: far more than any recovery takes.
const IDLE_POLLS_MAX: u32 = 1 << 20;

/// Polls in a row that lead to nothing, after which nothing is left that could happen. With each, the write path offers
/// again a command for which a device was too busy: a device that is busy by chance takes it in the end.
const VAIN_POLLS_MAX: u32 = 1 << 10;

/// The earlier of two times that may be known.
#[inline]
pub(super) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What the time is. Clones are the same clock.
///
/// One thread lets it jump, so nothing here is a locked operation. It counts the polls that led to nothing, which bounds the
/// jumps.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<Face>);

#[derive(Debug, Default)]
struct Face {
    nanos: AtomicU64,
    idle_polls: AtomicU32,
    vain_polls: AtomicU32,
}

/// Counts one more; whether it is too many.
#[inline]
fn is_above(count: &AtomicU32, max: u32) -> bool {
    let polls = count.load(Ordering::Relaxed) + 1;
    count.store(polls, Ordering::Relaxed);
    polls > max
}

impl VirtualClock {
    /// Time since the beginning.
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

    /// Counts polls after which nothing is known that will happen.
    fn count_vain(&self) -> Result<(), Halt> {
        if is_above(&self.0.vain_polls, VAIN_POLLS_MAX) { Err(Halt::Deadlock) } else { Ok(()) }
    }

    /// Counts times that the write path asks to be polled, since something happened.
    #[inline]
    fn count_idle(&self) -> Result<(), Halt> {
        match is_above(&self.0.idle_polls, IDLE_POLLS_MAX) {
            true => Err(Halt::Endless("the device asks to be polled again and again, and answers nothing")),
            false => Ok(()),
        }
    }
}

/// Why a run does not continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// Nothing is left that could happen.
    Deadlock,
    /// Something happens for ever, and leads nowhere: this.
    Endless(&'static str),
}

/// A section of a task that no other task may enter before it is left: the wait in it leaves the processor to none. The
/// drive works meanwhile, and answers come; but what other tasks wait for, their times included, they see after the section.
///
/// Code that locks for itself, as a database does, waits in a section: a task that was suspended in there would hold its locks, and
/// the next one to come would stop the only thread.
#[derive(Debug)]
pub struct Section(VirtualClock);

impl Section {
    /// In the time of `clock`.
    pub fn new(clock: VirtualClock) -> Section {
        Section(clock)
    }

    /// What the time is.
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

    /// What the caller waited for has come.
    pub fn done(&self) {
        self.0.has_news();
    }
}

/// A volume and its time. The caller alone submits and polls.
pub struct Timeline {
    volume: Arc<Volume>,
    clock: VirtualClock,
    errands: Option<Attendance>,
}

impl Timeline {
    /// The time of `volume`, from its beginning.
    pub fn new(volume: Arc<Volume>) -> Timeline {
        Timeline { volume, clock: VirtualClock::default(), errands: None }
    }

    /// The same, which does `errands` at its time: what is asked of the volume, and the options that are changed.
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

    /// What the time is.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Does the errands, then polls the volume once.
    #[inline]
    pub fn poll(&self) -> Option<Nanos> {
        if let Some(errands) = &self.errands {
            errands.look();
        }
        self.volume.poll(self.now())
    }

    /// Something has happened: what leads nowhere is counted from here.
    #[inline]
    pub fn has_news(&self) {
        self.clock.has_news();
    }

    /// Lets the clock jump to what happens next, after a poll that returned `due` and woke no task: to that, or to `timer`
    /// if it is earlier. At `stop`, if that is earlier still, the clock stops before. Returns whether a time has come; if not,
    /// another poll is what is left.
    ///
    /// # Errors
    /// [`Halt`] if nothing is left that could happen, or the device asks for polls without end.
    #[inline]
    pub fn advance(&self, due: Option<Nanos>, timer: Option<Nanos>, stop: Nanos) -> Result<bool, Halt> {
        self.clock.advance(due, timer, stop)
    }

    /// Polls and lets the time pass until `has_come`, while no task is at work.
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

    /// Carries out one request while no task is at work.
    ///
    /// # Errors
    /// The request's; that it timed out, if the device does not answer.
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

/// Polls `volume` from `now` on until it has nothing more to do, and lets the time follow the deadlines that polls return; what
/// the time is then. For a volume whose time the caller keeps.
///
/// # Errors
/// [`Halt::Endless`] if that never comes.
pub fn rest(volume: &Volume, mut now: Nanos) -> Result<Nanos, Halt> {
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
