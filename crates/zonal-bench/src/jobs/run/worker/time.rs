//! Time base of a worker: real time, or virtual time, which can jump.
//!
//! A [`Worker`] is the same in both and differs only in how it waits: in real time it polls the
//! write path, spins, yields and sleeps; in virtual time it yields to the executor
//! ([`virtual_time`](crate::jobs::run::virtual_time)), which resumes it when something has
//! happened.

use super::Worker;
use crate::jobs::run::inbox::{Inbox, Mail, Places};
use crate::jobs::workload::Awaits;
use crate::measure::Usage;
use quanta::Clock;
use std::time::Duration;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;
use zonal_io::volume::Backoff;

/// Longest sleep until a given time. Bounds the delay in noticing a stop, and a completion reaped
/// by another thread.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Longest sleep with nothing in flight. Bounds the delay in noticing a stop.
const REST_MAX: Duration = Duration::from_millis(10);

/// Margin by which a sleeper wakes early, about the lateness of kernel timers.
const SLEEP_MARGIN: Duration = Duration::from_micros(60);

/// Event awaited by a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::jobs::run) enum Awaited {
    /// Completion of one of its requests.
    Ending,
    /// Completion, or this event.
    Or(Awaits),
}

/// Time as seen by a worker.
pub(in crate::jobs::run) trait Time: Sized {
    /// Inbox for its completions.
    type Inbox: Mail;

    /// True if slots get their buffers with their first request, on a device that keeps no data.
    /// Allocating all of them first takes longer than many a simulated run, and few are needed if
    /// jobs wait for each other's zones.
    const MAKES_BUFFERS_LATE: bool = false;

    /// True if one clock reading serves as the end of one interval and the start of the next. A
    /// reading costs tens of nanoseconds in real time, and nothing in virtual time.
    const ONE_READING_SERVES_TWICE: bool = false;

    /// Creates the inbox of a worker in this time base.
    fn inbox(&self, clock: Option<Clock>, places: Places, buffers: Vec<IoBuf>) -> Self::Inbox;

    /// Processor time used by the worker so far.
    fn usage() -> Usage;

    /// Called when a request is about to be issued at `now`. Returns the time at which it is
    /// issued.
    fn issue_time(worker: &mut Worker<'_, Self>, now: Nanos) -> Nanos;

    /// Drives the write path and handles completions. Returns once something of interest may have
    /// happened.
    fn wait(worker: &mut Worker<'_, Self>, awaited: Awaited);

    /// As [`Time::wait`], for a worker that has nothing to do before `time`, which lies in the
    /// future.
    fn rest(worker: &mut Worker<'_, Self>, time: Nanos);

    /// Busy-waits for part of the time until `time`.
    fn spin(worker: &mut Worker<'_, Self>, time: Nanos);
}

/// Real time.
#[derive(Default)]
pub(in crate::jobs::run) struct Real {
    backoff: Backoff,
}

impl Time for Real {
    type Inbox = Inbox;

    const ONE_READING_SERVES_TWICE: bool = true;

    fn inbox(&self, clock: Option<Clock>, places: Places, buffers: Vec<IoBuf>) -> Inbox {
        Inbox::new(clock, places, buffers)
    }

    fn usage() -> Usage {
        Usage::now()
    }

    #[inline(always)]
    fn issue_time(_: &mut Worker<'_, Real>, now: Nanos) -> Nanos {
        now
    }

    fn wait(worker: &mut Worker<'_, Real>, _: Awaited) {
        let volume = worker.environment.volume;
        worker.read_clock_again();
        let now = worker.now;
        let due = volume.poll(now);
        worker.time_has_passed();
        if worker.reap() > 0 {
            worker.time.backoff.reset();
        } else if worker.in_flight == 0 {
            // Only another worker can make progress possible, and no device wakes this one then.
            std::thread::yield_now();
        } else {
            worker.time.backoff.pause(volume, now, due);
        }
    }

    fn rest(worker: &mut Worker<'_, Real>, time: Nanos) {
        let due = worker.environment.volume.poll(worker.now);
        worker.reap();
        let wake = due.map_or(time, |due| due.min(time));
        let left = Duration::from_nanos(wake.0.saturating_sub(worker.now.0)).saturating_sub(SLEEP_MARGIN);
        if left.is_zero() {
            // A thread that yields this shortly before its time may resume long after it.
            std::hint::spin_loop();
        } else if worker.in_flight == 0 {
            std::thread::sleep(left.min(REST_MAX));
        } else {
            worker.environment.volume.wait(left.min(SLEEP_MAX));
        }
    }

    fn spin(_: &mut Worker<'_, Real>, _: Nanos) {
        std::hint::spin_loop();
    }
}
