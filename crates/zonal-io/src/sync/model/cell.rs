//! Values guarded by a lock: `loom` detects accesses that the lock does not order.

/// Guarded value.
pub(super) struct Guarded<T>(Inner<T>);

#[cfg(feature = "loom")]
type Inner<T> = loom::cell::UnsafeCell<T>;
#[cfg(feature = "shuttle")]
type Inner<T> = std::cell::UnsafeCell<T>;

/// Access to the value; ends when dropped.
pub(super) struct Access<T> {
    #[cfg(feature = "loom")]
    ptr: loom::cell::MutPtr<T>,
    #[cfg(feature = "shuttle")]
    ptr: *mut T,
}

impl<T> Guarded<T> {
    pub(super) fn new(value: T) -> Guarded<T> {
        Guarded(Inner::new(value))
    }

    /// Begins an access. Only for the holder of the lock.
    #[track_caller]
    pub(super) fn access(&self) -> Access<T> {
        #[cfg(feature = "loom")]
        return Access { ptr: self.0.get_mut() };
        #[cfg(feature = "shuttle")]
        return Access { ptr: self.0.get() };
    }
}

impl<T> Access<T> {
    pub(super) fn get(&self) -> *mut T {
        #[cfg(feature = "loom")]
        return self.ptr.with(|p| p);
        #[cfg(feature = "shuttle")]
        return self.ptr;
    }
}

/// Replacement for `sync::Single`.
pub struct Single<T>(Guarded<T>);

impl<T: Default> Default for Single<T> {
    fn default() -> Single<T> {
        Single(Guarded::new(T::default()))
    }
}

// SAFETY: as for the original.
unsafe impl<T: Send> Sync for Single<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Single<T> {}

impl<T> Single<T> {
    /// Calls `work` with the value.
    ///
    /// # Safety
    /// As for the original.
    #[track_caller]
    pub unsafe fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let access = self.0.access();
        // SAFETY: the caller's promise, which `loom` checks.
        work(unsafe { &mut *access.get() })
    }
}
