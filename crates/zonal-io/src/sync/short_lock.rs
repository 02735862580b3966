//! Lock for critical sections of a few instructions.
//!
//! Locking costs one atomic read-modify-write, unlocking a plain store: half the cost of a lock
//! that has to check for sleepers when unlocked. Waiters are therefore never woken. A waiter spins
//! for about the duration of a section. If the lock is held for longer, its holder was preempted:
//! the waiter then yields, later sleeps, and checks again by itself.
//!
//! # Restrictions
//! Only for sections that call no code of a caller, rarely allocate, and never sleep.

use super::{AtomicBool, Ordering, PlainU32};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use lock_api::GuardSend;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use std::time::Duration;

/// Checks before a waiter yields: some microseconds, many times the duration of a section.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
const SPINS_MAX: u32 = 200;

/// Checks before a waiter sleeps; the last few of them are yields.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
const YIELDS_END: u32 = SPINS_MAX + 20;

/// Duration of one sleep of a waiter, less than a scheduler may keep the holder off its processor.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
const NAP: Duration = Duration::from_micros(50);

/// Mutex for short critical sections. See the module documentation.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub type ShortLock<T> = lock_api::Mutex<RawShortLock, T>;

/// Raw lock of [`ShortLock`].
pub struct RawShortLock {
    held: AtomicBool,
    /// Number of contended acquisitions; wraps. Changed only by the holder, so without an atomic
    /// read-modify-write.
    waits: PlainU32,
}

/// Number of contended acquisitions of `lock`, without `try_lock`. Wraps.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub fn waits_for<T>(lock: &ShortLock<T>) -> u32 {
    // SAFETY: it is neither locked nor unlocked here.
    unsafe { lock.raw() }.waits.load(Ordering::Relaxed)
}

// SAFETY: `held` changes from false to true in one atomic operation, so there is one holder, and
// only the holder sets it back.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
unsafe impl lock_api::RawMutex for RawShortLock {
    const INIT: RawShortLock = RawShortLock { held: AtomicBool::new(false), waits: PlainU32::new(0) };

    type Guard = GuardSend;

    #[inline]
    fn lock(&self) -> GuardSend {
        RawShortLock::lock(self);
        GuardSend::new()
    }

    #[inline]
    fn try_lock(&self) -> Option<GuardSend> {
        RawShortLock::try_lock(self).then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock(&self, _: GuardSend) {
        RawShortLock::unlock(self);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.is_held()
    }
}

impl RawShortLock {
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    pub(super) fn new() -> RawShortLock {
        RawShortLock { held: AtomicBool::new(false), waits: PlainU32::new(0) }
    }

    #[inline]
    pub(super) fn lock(&self) {
        if !self.take() {
            self.take_later();
        }
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        // A load leaves the cache line shared; a compare-exchange would take it from the holder.
        !self.is_held() && self.take()
    }

    /// Only for the holder.
    #[inline]
    pub(super) fn unlock(&self) {
        self.held.store(false, Ordering::Release);
    }

    #[inline]
    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    #[inline]
    fn take(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn take_later(&self) {
        let mut looks = 0;
        loop {
            // A load leaves the cache line shared; a compare-exchange would take it from the
            // holder.
            if !self.is_held() && self.take() {
                self.waits.store(self.waits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                return;
            }
            looks += 1;
            idle(looks);
        }
    }
}

/// Passes the time between two checks of a waiter.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
#[inline]
fn idle(looks: u32) {
    match looks {
        0..SPINS_MAX => std::hint::spin_loop(),
        SPINS_MAX..YIELDS_END => std::thread::yield_now(),
        YIELDS_END.. => std::thread::sleep(NAP),
    }
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
fn idle(_: u32) {
    super::model::pause();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn lock_many_threads_each_addition_counts() {
        let sum = ShortLock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..100_000).for_each(|_| *sum.lock() += 1));
            }
        });
        assert_eq!(*sum.lock(), 400_000);
    }

    #[test]
    fn h52_waiter_acquires_the_lock_after_a_sleeping_holder_releases_it() {
        /// Far longer than a waiter needs, as it is not woken.
        const STUCK: Duration = Duration::from_secs(20);
        let lock = Arc::new(ShortLock::new(0));
        let held = lock.lock();
        let (sender, got) = std::sync::mpsc::channel();
        let theirs = lock.clone();
        let waiter = std::thread::spawn(move || sender.send(*theirs.lock()).expect("the test waits"));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished(), "the waiter got a lock that is held");
        drop(held);
        assert_eq!(got.recv_timeout(STUCK), Ok(0), "the waiter ends");
        waiter.join().expect("the waiter ends");
        assert_eq!(waits_for(&lock), 1, "once it was free, once it was taken");
    }

    /// Number of voluntary context switches of a thread.
    #[cfg(target_os = "linux")]
    fn sleeps(thread: &std::path::Path) -> u64 {
        let status = std::path::Path::new("/proc").join(thread).join("status");
        let status = std::fs::read_to_string(status).expect("Linux describes its threads");
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|n| n.trim().parse().ok()).expect("a count")
    }

    /// A waiter does not consume processor time while the holder is preempted.
    #[test]
    #[cfg(target_os = "linux")]
    fn h52_waiter_sleeps_while_the_holder_does() {
        /// Number of sleeps that rules out chance.
        #[cfg(not(any(feature = "loom", feature = "shuttle")))]
        const NAPS: u64 = 5;
        let lock = ShortLock::new(());
        let held = lock.lock();
        let (sender, waiting) = std::sync::mpsc::channel();
        std::thread::scope(|s| {
            s.spawn(|| {
                let thread = std::fs::read_link("/proc/thread-self").expect("Linux names its threads");
                sender.send((sleeps(&thread), thread)).expect("the test waits");
                drop(lock.lock());
            });
            let (before, thread) = waiting.recv().expect("the waiter begins");
            // Wait until the waiter had its share of the processor, however busy it is.
            let naps = || sleeps(&thread) - before;
            let slept = (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                naps() >= NAPS
            });
            drop(held);
            assert!(slept, "it does not sleep");
        });
    }

    #[test]
    fn try_lock_held_is_refused() {
        let lock = ShortLock::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
