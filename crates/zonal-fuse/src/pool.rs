//! Pool of threads: large enough that a request never waits for a sleeping thread.
//!
//! A thread is *active* while it reads or processes a request. The pool maintains the wanted number
//! of active threads. A thread that sleeps in the file system, waiting for space or for the drive,
//! is not active: a parked or new one replaces it, so that reads and look-ups continue while
//! writers sleep. When it wakes, there may be one thread too many, which parks after its request.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of threads of a mount. A caller that waits takes one; beyond this number requests
/// wait in the kernel.
const THREADS_MAX: usize = 512;

/// Maximum number of parked threads. Programs that sync in parallel sleep and wake all the time.
const PARKED_MAX: usize = 16;

pub(crate) struct Pool {
    /// Wanted number of active threads.
    wanted: usize,
    active: AtomicUsize,
    rest: Mutex<Rest>,
    wakes: Condvar,
}

struct Rest {
    all: usize,
    parked: usize,
    is_over: bool,
}

/// Next action of a thread after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Read the next request.
    Read,
    /// End the thread.
    End,
}

impl Pool {
    /// Creates a pool with no active thread yet, for `wanted` of them.
    pub(crate) fn new(wanted: usize) -> Pool {
        let rest = Mutex::new(Rest { all: 0, parked: 0, is_over: false });
        Pool { wanted: wanted.max(1), active: AtomicUsize::new(0), rest, wakes: Condvar::new() }
    }

    /// Number of threads to start at first. They count as active from now on.
    pub(crate) fn first(&self) -> usize {
        self.rest.lock().all = self.wanted;
        self.active.store(self.wanted, Ordering::Relaxed);
        self.wanted
    }

    /// Before the next request, parks the thread if enough others are active.
    pub(crate) fn next(&self) -> Next {
        if self.active.load(Ordering::Relaxed) <= self.wanted {
            return Next::Read;
        }
        let mut rest = self.rest.lock();
        if self.active.load(Ordering::Relaxed) <= self.wanted {
            return Next::Read;
        }
        self.active.fetch_sub(1, Ordering::Relaxed);
        if rest.is_over || rest.parked >= PARKED_MAX {
            rest.all -= 1;
            return Next::End;
        }
        rest.parked += 1;
        while self.active.load(Ordering::Relaxed) >= self.wanted && !rest.is_over {
            self.wakes.wait(&mut rest);
        }
        rest.parked -= 1;
        self.active.fetch_add(1, Ordering::Relaxed);
        Next::Read
    }

    /// An active thread is about to sleep. Returns true if the caller must start another one, which
    /// already counts as active.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        self.leave_to(self.wanted)
    }

    /// Like [`Pool::leave`], for a thread that blocks for about as long as the drive takes. It is
    /// replaced only if no other thread is active.
    #[must_use]
    pub(crate) fn leave_briefly(&self) -> bool {
        self.leave_to(1)
    }

    /// Leaves; the thread is replaced if fewer than `enough` others are active.
    fn leave_to(&self, enough: usize) -> bool {
        let active = self.active.fetch_sub(1, Ordering::Relaxed) - 1;
        if active >= enough {
            return false;
        }
        let mut rest = self.rest.lock();
        if self.active.load(Ordering::Relaxed) >= enough || rest.is_over {
            return false;
        }
        if rest.parked > 0 {
            self.wakes.notify_one();
            return false;
        }
        let has_room = rest.all < THREADS_MAX;
        if has_room {
            rest.all += 1;
            self.active.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// A sleeping thread is active again.
    pub(crate) fn come_back(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// A counted thread could not be started, or has ended.
    pub(crate) fn thread_ended(&self) {
        let mut rest = self.rest.lock();
        rest.all -= 1;
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends parked threads at the end of the mount.
    pub(crate) fn end(&self) {
        self.rest.lock().is_over = true;
        self.wakes.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread::JoinHandle;
    use std::time::Duration;

    /// Runs a superfluous thread until it is parked.
    fn park(pool: &Arc<Pool>) -> JoinHandle<Next> {
        let parked = {
            let pool = pool.clone();
            std::thread::spawn(move || pool.next())
        };
        while pool.rest.lock().parked == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        parked
    }

    #[test]
    fn thread_that_sleeps_is_replaced_and_parks_when_it_is_one_too_many() {
        let pool = Arc::new(Pool::new(1));
        assert_eq!(pool.first(), 1);
        assert!(pool.leave(), "it was the only one");
        // Both are awake now.
        pool.come_back();
        let parked = park(&pool);
        assert_eq!(pool.next(), Next::Read, "one is not too many");
        assert!(!pool.leave(), "one is parked");
        assert_eq!(parked.join().unwrap(), Next::Read);
    }

    #[test]
    fn number_of_threads_is_bounded() {
        let pool = Pool::new(2);
        let mut all = pool.first();
        for _ in 0..2 * THREADS_MAX {
            if pool.active.load(Ordering::Relaxed) > 0 && pool.leave() {
                all += 1;
            }
        }
        assert_eq!(all, THREADS_MAX);
    }

    #[test]
    fn end_wakes_those_that_are_parked() {
        let pool = Arc::new(Pool::new(1));
        pool.first();
        pool.come_back();
        let parked = park(&pool);
        pool.end();
        parked.join().unwrap();
    }
}
