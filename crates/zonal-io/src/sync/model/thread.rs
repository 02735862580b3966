//! What belongs to a thread of the model and not to the thread that runs the model.

use super::checker;
use std::cell::{Cell, RefCell};

/// Lets other threads run, where a thread can do nothing but look again.
pub fn pause() {
    checker::thread::yield_now();
}

/// For `std::thread::LocalKey`.
pub struct Local<T: 'static>(pub &'static checker::thread::LocalKey<T>);

impl<T: 'static> Local<T> {
    /// Calls `f` with the thread's value.
    ///
    /// # Errors
    /// If the thread is ending.
    pub fn try_with<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, Ended> {
        self.0.try_with(f).map_err(|_| Ended)
    }

    /// The same; a thread that is ending has the value that it began with.
    fn with<R>(&self, f: impl Fn(&T) -> R) -> R {
        self.try_with(&f).unwrap_or_else(|_| f(&(self.0.init)()))
    }
}

/// The thread is ending, and its values are gone.
#[derive(Debug)]
pub struct Ended;

impl<T: 'static> Local<Cell<T>> {
    /// A copy.
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Replaces it.
    pub fn set(&self, value: T) {
        // A thread that is ending has none any more.
        let _ = self.try_with(|c| drop(c.replace(value)));
    }

    /// Replaces it, and returns what was there.
    pub fn replace(&self, value: T) -> T {
        self.try_with(|c| c.replace(value)).expect("the thread is not ending")
    }

    /// Takes it, and leaves the default.
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
