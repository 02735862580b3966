//! Value without a lock, for users that are ordered by other means.

use std::cell::UnsafeCell;

/// Value for one user at a time.
#[derive(Default)]
pub struct Single<T>(UnsafeCell<T>);

// SAFETY: callers of `with` promise that no two calls overlap, so the value moves from thread to
// thread.
unsafe impl<T: Send> Sync for Single<T> {}

impl<T> Single<T> {
    /// Calls `work` with the value.
    ///
    /// # Safety
    /// No other call of `with` may overlap with this one, neither on another thread nor inside
    /// `work`, and successive calls on different threads have to be synchronized.
    #[inline(always)]
    pub unsafe fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller's promise.
        work(unsafe { &mut *self.0.get() })
    }
}
