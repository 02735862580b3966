//! Whose time a worker lives in: the world's, or virtual time, which jumps.
//!
//! A [`Worker`] is the same in both. It differs in what it does where nothing is to be done: in real time it polls the
//! write path, spins, yields and sleeps; in virtual time it leaves the processor to the executor
//! ([`virtual_time`](crate::jobs::run::virtual_time)), which comes back when something has happened.

use super::Worker;
use crate::jobs::run::inbox::{Inbox, Mail, Places};
use crate::jobs::workload::Awaits;
use crate::measure::Usage;
use quanta::Clock;
use std::time::Duration;
use zonal_core::Nanos;
use zonal_io::buffer::IoBuf;
use zonal_io::volume::Backoff;

/// Longest sleep until a time: bounds how late a completion is seen that another thread reaped, and a stop.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Longest sleep with nothing in flight: bounds how late a stop is seen.
const REST_MAX: Duration = Duration::from_millis(10);

/// How much earlier than due a sleeper wakes: the kernel's timers are about that late.
const SLEEP_MARGIN: Duration = Duration::from_micros(60);

/// What a worker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::jobs::run) enum Awaited {
    /// The end of one of its requests.
    Ending,
    /// That, or this.
    Or(Awaits),
}

/// Time, as a worker sees it.
pub(in crate::jobs::run) trait Time: Sized {
    /// Where its completions go.
    type Inbox: Mail;

    /// Whether a slot has no buffer before its first request, on a device that keeps no data. To make all of them first
    /// takes longer than many a run on a simulated drive, and few are needed where jobs wait for each other's zones.
    const MAKES_BUFFERS_LATE: bool = false;

    /// Whether a reading of the clock serves for the end of one thing and the beginning of the next. It costs tens of
    /// nanoseconds in real time, and nothing in virtual time.
    const ONE_READING_SERVES_TWICE: bool = false;

    /// The inbox of a worker that lives in this time.
    fn inbox(&self, clock: Option<Clock>, places: Places, buffers: Vec<IoBuf>) -> Self::Inbox;

    /// Processor time of the worker so far.
    fn usage() -> Usage;

    /// A request is about to go out at `now`; when it does.
    fn goes_out(worker: &mut Worker<'_, Self>, now: Nanos) -> Nanos;

    /// Lets the write path get on, and takes in what has ended; returns after anything of interest may have happened.
    fn wait(worker: &mut Worker<'_, Self>, awaited: Awaited);

    /// The same, of a worker that has nothing to do before `time`, which is not over.
    fn rest(worker: &mut Worker<'_, Self>, time: Nanos);

    /// Part of the time until `time`, with the processor kept busy.
    fn spin(worker: &mut Worker<'_, Self>, time: Nanos);
}

/// The world's time.
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
    fn goes_out(_: &mut Worker<'_, Real>, now: Nanos) -> Nanos {
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
            // Only another worker can bring news, and no device wakes this one then.
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
            // A thread that yields this short before its time may be back long after it.
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
