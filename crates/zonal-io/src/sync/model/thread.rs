//! Thread-local state of the model's threads, as opposed to the thread that runs the model.

use super::checker;
use std::cell::{Cell, RefCell};

/// Lets other threads run, when a thread can do nothing but retry.
pub fn pause() {
    checker::thread::yield_now();
}

/// Replacement for `std::thread::LocalKey`.
pub struct Local<T: 'static>(pub &'static checker::thread::LocalKey<T>);

impl<T: 'static> Local<T> {
    /// Calls `f` with the thread's value.
    ///
    /// # Errors
    /// If the thread is ending.
    pub fn try_with<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, Ended> {
        self.0.try_with(f).map_err(|_| Ended)
    }

    /// Like [`Local::try_with`], but with the initial value in a thread that is exiting.
    fn with<R>(&self, f: impl Fn(&T) -> R) -> R {
        self.try_with(&f).unwrap_or_else(|_| f(&(self.0.init)()))
    }
}

/// Error: the thread is exiting and its values are gone.
#[derive(Debug)]
pub struct Ended;

impl<T: 'static> Local<Cell<T>> {
    /// Returns a copy of the value.
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        // A thread that is exiting has no value.
        let _ = self.try_with(|c| drop(c.replace(value)));
    }

    /// Replaces the value and returns the old one.
    pub fn replace(&self, value: T) -> T {
        self.try_with(|c| c.replace(value)).expect("the thread is not ending")
    }

    /// Takes the value and leaves the default.
    pub fn take(&self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }
}

impl<T: 'static> Local<RefCell<T>> {
    /// Calls `f` with the value.
    pub fn with_borrow_mut<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.try_with(|c| f(&mut c.borrow_mut())).expect("the thread is not ending")
    }
}
