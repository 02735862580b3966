//! A lock for critical sections of a few moves.
//!
//! Taking it costs one locked operation, releasing it a plain store: half of what a lock pays that has to look for
//! sleepers on release. A waiter therefore is never woken. It spins for about the time of a section. If the lock is
//! held for longer, its holder has lost the processor: the waiter yields, then sleeps, and looks again on its own.
//!
//! # For whom
//! Only for sections that call nothing of a caller, allocate seldom and never sleep.

use super::{AtomicBool, Ordering, PlainU32};
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use lock_api::GuardSend;
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
use std::time::Duration;

/// Looks before a waiter yields: some microseconds, many times a section.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
const SPINS_MAX: u32 = 200;

/// Looks before a waiter sleeps: the last few of them are yields.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
const YIELDS_END: u32 = SPINS_MAX + 20;

/// How long a waiter sleeps at a time: what a scheduler may keep a holder off its processor is more.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
const NAP: Duration = Duration::from_micros(50);

/// A mutex whose holders are brief. See the module.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub type ShortLock<T> = lock_api::Mutex<RawShortLock, T>;

/// What [`ShortLock`] locks with.
pub struct RawShortLock {
    held: AtomicBool,
    /// How often it was found taken; wraps. Changed by the holder only, so without a locked operation.
    waits: PlainU32,
}

/// How often `lock` was found taken by who had to have it. Wraps.
#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub fn waits_for<T>(lock: &ShortLock<T>) -> u32 {
    // SAFETY: it is neither locked nor unlocked here.
    unsafe { lock.raw() }.waits.load(Ordering::Relaxed)
}

// SAFETY: `held` goes from false to true in one locked operation, so it has one holder, and only that one sets it back.
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
        // A look does not take the line away from the holder, a try would.
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
            // A look does not take the line away from the holder, a try would.
            if !self.is_held() && self.take() {
                self.waits.store(self.waits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                return;
            }
            looks += 1;
            idle(looks);
        }
    }
}

/// Passes the time between two looks of a waiter.
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
    fn h52_waiter_gets_the_lock_when_the_holder_wakes_up() {
        /// Far more than a waiter takes that is not woken.
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

    /// How often a thread has given its processor away because it had nothing to do.
    #[cfg(target_os = "linux")]
    fn sleeps(thread: &std::path::Path) -> u64 {
        let status = std::path::Path::new("/proc").join(thread).join("status");
        let status = std::fs::read_to_string(status).expect("Linux describes its threads");
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|n| n.trim().parse().ok()).expect("a count")
    }

    /// A waiter does not burn its processor while the holder has lost its own.
    #[test]
    #[cfg(target_os = "linux")]
    fn h52_waiter_sleeps_while_the_holder_does() {
        /// Naps that show that it is not by chance.
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
            // Until the waiter had its share of the processor, however busy that is.
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
