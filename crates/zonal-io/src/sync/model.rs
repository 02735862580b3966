//! Primitives for model checkers: `loom`, which explores every schedule of a small program, or
//! `shuttle`, which explores many random ones of a larger program.
//!
//! Primitives of the checkers are re-exported, and missing ones are replaced here. [`ShortLock`]
//! and the queues are built on a mutex of the checker, so a model sees the operations and their
//! order, not their implementation. [`SpinShortLock`] is the production [`ShortLock`], for a model
//! of its own.
//!
//! # Canaries
//! A model that cannot fail proves nothing. [`with_canary`] breaks one of these primitives in a
//! known way for the duration of a call, and every model has to detect this.

mod atomics;
mod cell;
mod locks;
mod queues;
mod thread;

#[cfg(feature = "loom")]
use loom as checker;
#[cfg(feature = "shuttle")]
use shuttle as checker;

pub use atomics::{AtomicBool, AtomicU64};
pub use cell::Single;
pub use checker::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, ShortLock, SpinShortLock, waits_for};
pub use queues::{ArrayQueue, SegQueue};
pub use std::sync::Arc;
pub use thread::{Local, pause};

#[cfg(feature = "loom")]
pub use loom::{
    alloc::{alloc_zeroed, dealloc},
    sync::Arc as CountedArc,
};
#[cfg(feature = "shuttle")]
pub use std::{
    alloc::{alloc_zeroed, dealloc},
    sync::Arc as CountedArc,
};

use std::cell::Cell;

/// Defects that can be injected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// A compare-exchange is not atomic: it compares, and stores later.
    Exchange,
    /// A store is not ordered after earlier ones.
    Relaxed,
    /// A [`ShortLock`] admits every thread.
    Open,
    /// A push to a queue is lost if it races with another thread.
    LostPush,
    /// A sleeper is not woken.
    Unheard,
    /// A queue with commands is reported as idle.
    Idle,
    /// A thread treats another thread's data as its own.
    Mine,
    /// A thread sleeps until its deadline, regardless of later rings.
    Uncounted,
    /// A thread that is done hands the watch to no sleeper.
    Unwatched,
    /// A thread that has announced its wait sleeps without checking once more.
    Unlooked,
    /// The notice of a change is published before the change.
    Early,
}

std::thread_local! {
    // All threads of a model run on the thread that runs the model.
    static CANARY: Cell<Option<Canary>> = const { Cell::new(None) };
}

/// Runs `model` with one injected defect.
pub fn with_canary<R>(canary: Canary, model: impl FnOnce() -> R) -> R {
    struct Mend;
    impl Drop for Mend {
        fn drop(&mut self) {
            CANARY.set(None);
        }
    }
    CANARY.set(Some(canary));
    let _mend = Mend;
    model()
}

/// True if the running model has this defect.
pub fn is_broken(canary: Canary) -> bool {
    CANARY.get() == Some(canary)
}
