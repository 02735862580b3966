//! A value that its users reach one at a time by an order of their own, without a lock.

use std::cell::UnsafeCell;

/// A value for one user at a time.
#[derive(Default)]
pub struct Single<T>(UnsafeCell<T>);

// SAFETY: who calls `with` promises that no two calls overlap, so the value moves from thread to thread.
unsafe impl<T: Send> Sync for Single<T> {}

impl<T> Single<T> {
    /// Calls `work` with the value.
    ///
    /// # Safety
    /// No other call of `with` overlaps with this one, neither on another thread nor inside `work`, and an order between
    /// threads lies between any two calls.
    #[inline(always)]
    pub unsafe fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller's promise.
        work(unsafe { &mut *self.0.get() })
    }
}
