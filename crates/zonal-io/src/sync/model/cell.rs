//! What a lock guards: under `loom`, accesses that are not ordered by it are found.

/// The guarded value.
pub(super) struct Guarded<T>(Inner<T>);

#[cfg(feature = "loom")]
type Inner<T> = loom::cell::UnsafeCell<T>;
#[cfg(feature = "shuttle")]
type Inner<T> = std::cell::UnsafeCell<T>;

/// An access to it; ends when dropped.
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

    /// Begins an access; only for the holder of the lock.
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
