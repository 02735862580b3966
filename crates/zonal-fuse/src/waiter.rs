//! Waiting of a session's threads in the file system, during which other threads take their place
//! ([`pool`](crate::pool)).

use crate::pool::Pool;
use std::cell::Cell;
use zonal_core::Nanos;
use zonal_fs::waiter::{Bell, Polling, Wait};
use zonal_io::clock::Clock;
use zonal_io::volume::Volume;

/// Implementation of waiting for a session's thread: while it sleeps, another one takes its place.
pub(crate) struct MountWaiter<'a> {
    polling: Polling,
    pool: &'a Pool,
    /// Starts another thread.
    start: &'a dyn Fn(),
    began: Cell<Option<u64>>,
    is_away: Cell<bool>,
}

/// Minimum wait, in nanoseconds, for another thread to take over: about the cost of starting one.
const SHORT: u64 = 50_000;

impl<'a> MountWaiter<'a> {
    pub(crate) fn new(clock: Clock, pool: &'a Pool, start: &'a dyn Fn()) -> MountWaiter<'a> {
        MountWaiter {
            polling: Polling::new(clock),
            pool,
            start,
            began: Cell::new(None),
            is_away: Cell::new(false),
        }
    }

    /// Lets another thread take over until this one is back.
    fn leave(&self) {
        if !self.is_away.replace(true) && self.pool.leave() {
            (self.start)();
        }
    }

    pub(crate) fn come_back(&self) {
        self.began.set(None);
        if self.is_away.replace(false) {
            self.pool.come_back();
        }
    }

    /// Calls `wait`, which waits for other requests, while another thread takes over.
    pub(crate) fn away<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.leave();
        let result = wait();
        self.come_back();
        result
    }
}

impl Wait for MountWaiter<'_> {
    fn now(&self) -> Nanos {
        self.polling.now()
    }

    fn wall(&self) -> i64 {
        self.polling.wall()
    }

    fn wait(&self, volume: &Volume) {
        if !self.is_away.get() {
            let now = self.now().0;
            match self.began.get() {
                None => self.began.set(Some(now)),
                Some(began) if now.saturating_sub(began) > SHORT => self.leave(),
                Some(_) => {}
            }
        }
        self.polling.wait(volume);
    }

    fn begin_blocking(&self) {
        if !self.is_away.replace(true) && self.pool.leave_briefly() {
            (self.start)();
        }
    }

    fn done(&self) {
        self.polling.done();
        self.come_back();
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn sleep(&self, bell: &Bell) {
        self.leave();
        self.polling.sleep(bell);
    }
}
