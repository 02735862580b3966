//! Locks with the interfaces of the originals.

use super::cell::{Access, Guarded};
use super::{Canary, checker, is_broken};
use crate::sync::short_lock::RawShortLock;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

/// Replacement for `parking_lot::Mutex`.
#[derive(Debug)]
pub struct Mutex<T>(checker::sync::Mutex<T>);

/// Replacement for `parking_lot::MutexGuard`. The inner guard is missing only while the holder
/// sleeps.
pub struct MutexGuard<'a, T>(Option<checker::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Creates a mutex around `value`.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(checker::sync::Mutex::new(value))
    }

    /// Takes the lock.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    /// Value, by exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("its holder is awake")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("its holder is awake")
    }
}

/// Replacement for `parking_lot::Condvar`. Timeouts never expire under `loom`, which reports a
/// thread that is not woken as a deadlock. They expire at once under `shuttle`: a driver relies on
/// timeouts, and no caller may rely on more.
#[derive(Debug)]
pub struct Condvar(checker::sync::Condvar);

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Condvar {
        Condvar(checker::sync::Condvar::new())
    }

    /// Sleeps until woken.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().expect("its holder is awake");
        guard.0 = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
    }

    /// Sleeps until woken or timed out.
    #[track_caller]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        #[cfg(feature = "shuttle")]
        {
            let _ = guard;
            super::pause();
        }
        #[cfg(feature = "loom")]
        self.wait(guard);
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        if !is_broken(Canary::Unheard) {
            self.0.notify_one();
        }
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        if !is_broken(Canary::Unheard) {
            self.0.notify_all();
        }
    }
}

/// Replacement for `parking_lot::RwLock`.
#[derive(Debug)]
pub struct RwLock<T>(checker::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates a lock around `value`.
    pub fn new(value: T) -> RwLock<T> {
        RwLock(checker::sync::RwLock::new(value))
    }

    /// Takes the lock for reading.
    #[track_caller]
    pub fn read(&self) -> checker::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for writing.
    #[track_caller]
    pub fn write(&self) -> checker::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for writing, unless another thread has it.
    #[track_caller]
    pub fn try_write(&self) -> Option<checker::sync::RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }
}

/// Replacement for the production [`ShortLock`](crate::sync::ShortLock): the same guarantees
/// without spinning, which would dominate the schedules of a model.
pub struct ShortLock<T> {
    lock: checker::sync::Mutex<()>,
    value: Guarded<T>,
}

// SAFETY: the lock admits one holder at a time to the value.
unsafe impl<T: Send> Sync for ShortLock<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for ShortLock<T> {}

/// Access of the holder.
pub struct ShortLockGuard<'a, T> {
    // Dropped before the lock is released.
    access: Access<T>,
    _lock: Option<checker::sync::MutexGuard<'a, ()>>,
}

impl<T> ShortLock<T> {
    /// Creates a lock around `value`.
    pub fn new(value: T) -> ShortLock<T> {
        ShortLock { lock: checker::sync::Mutex::new(()), value: Guarded::new(value) }
    }

    /// Takes the lock.
    #[track_caller]
    pub fn lock(&self) -> ShortLockGuard<'_, T> {
        let open = is_broken(Canary::Open);
        let lock = (!open).then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        ShortLockGuard { access: self.value.access(), _lock: lock }
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<ShortLockGuard<'_, T>> {
        let lock = self.lock.try_lock().ok()?;
        Some(ShortLockGuard { access: self.value.access(), _lock: Some(lock) })
    }
}

impl<T: Default> Default for ShortLock<T> {
    fn default() -> ShortLock<T> {
        ShortLock::new(T::default())
    }
}

impl<T> Deref for ShortLockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held, and its holder has the only access.
        unsafe { &*self.access.get() }
    }
}

impl<T> DerefMut for ShortLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and its holder has the only access.
        unsafe { &mut *self.access.get() }
    }
}

/// Production lock around a value with checked accesses.
pub struct SpinShortLock<T> {
    raw: RawShortLock,
    value: Guarded<T>,
}

// SAFETY: to be verified by a model of this type.
unsafe impl<T: Send> Sync for SpinShortLock<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for SpinShortLock<T> {}

impl<T: Copy> SpinShortLock<T> {
    /// Creates a lock around `value`.
    pub fn new(value: T) -> SpinShortLock<T> {
        SpinShortLock { raw: RawShortLock::new(), value: Guarded::new(value) }
    }

    /// Changes the value under the lock.
    pub fn change(&self, change: impl FnOnce(T) -> T) {
        self.raw.lock();
        self.change_held(change);
    }

    /// Like [`SpinShortLock::change`] if the lock is free; returns true if it was.
    pub fn try_change(&self, change: impl FnOnce(T) -> T) -> bool {
        let is_ours = self.raw.try_lock();
        if is_ours {
            self.change_held(change);
        }
        is_ours
    }

    fn change_held(&self, change: impl FnOnce(T) -> T) {
        {
            let access = self.value.access();
            // SAFETY: the lock is held; `access` reports to the checker, which stops if that is not
            // enough.
            unsafe { *access.get() = change(*access.get()) };
        }
        self.raw.unlock();
    }
}

/// As in production. Models count no waits.
pub fn waits_for<T>(_lock: &ShortLock<T>) -> u32 {
    0
}
