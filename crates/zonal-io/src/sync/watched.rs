//! Counters of contention between threads.
//!
//! They cost nothing without contention, since they are updated only after a lock was found taken
//! or an exchange has failed.

use super::{CachePadded, Mutex, MutexGuard, Ordering, PlainU64, slot_if_any};

/// Mutex that counts contended acquisitions.
#[derive(Default)]
pub struct Watched<T> {
    mutex: Mutex<T>,
    /// Changed only by the holder, so without an atomic read-modify-write.
    waits: PlainU64,
}

impl<T> Watched<T> {
    /// Creates a mutex around `value`.
    pub fn new(value: T) -> Watched<T> {
        Watched { mutex: Mutex::new(value), waits: PlainU64::new(0) }
    }

    /// Takes the lock, waiting if necessary.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.mutex.try_lock() {
            Some(guard) => guard,
            None => self.lock_later(),
        }
    }

    #[cold]
    fn lock_later(&self) -> MutexGuard<'_, T> {
        let guard = self.mutex.lock();
        self.waits.store(self.waits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        guard
    }

    /// Number of contended acquisitions.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

/// Lines of a [`Tally`]: this many threads count without contending for a cache line.
const LINES: usize = 16;

/// Counter for slow paths used by many threads at once, on several cache lines.
#[derive(Default)]
pub struct Tally(Box<[CachePadded<PlainU64>; LINES]>);

impl Tally {
    /// Adds one. Inlined and free of calls: even a rarely executed call would make the write path
    /// save its registers.
    #[inline(always)]
    pub fn add_one(&self) {
        self.0[slot_if_any() % LINES].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the sum.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|line| line.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_lock_free_is_not_counted_and_taken_is() {
        let lock = Watched::new(0);
        *lock.lock() += 1;
        assert_eq!(lock.waits(), 0);
        std::thread::scope(|s| {
            let held = lock.lock();
            let waiter = s.spawn(|| *lock.lock());
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(held);
            assert_eq!(waiter.join().expect("the waiter ends"), 1);
        });
        assert_eq!(lock.waits(), 1);
    }

    #[test]
    fn tally_of_more_threads_than_lines_loses_nothing() {
        let tally = Tally::default();
        std::thread::scope(|s| {
            (0..2 * LINES).for_each(|_| drop(s.spawn(|| (0..1000).for_each(|_| tally.add_one()))));
        });
        assert_eq!(tally.sum(), 2 * LINES as u64 * 1000);
    }
}
