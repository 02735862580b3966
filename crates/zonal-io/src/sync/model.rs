//! The stand-ins that a model checker is given: `loom`, which goes through every schedule of a small program, or `shuttle`,
//! which goes through many random ones of a larger program.
//!
//! What is theirs is passed on as it is; what they lack has a small stand-in here: [`ShortLock`] and the queues are a lock of
//! theirs, so a model sees what is done under them and in which order, and not how they do it. [`SpinShortLock`] is the
//! [`ShortLock`] that ships, for a model of its own.
//!
//! # Canaries
//! A model that cannot fail proves nothing. [`with_canary`] breaks one of these stand-ins in a known way for the time of a
//! call, and every model has to find that out.

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

/// What is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// A compare-exchange looks, and stores later.
    Exchange,
    /// What is stored is not ordered after what was stored before.
    Relaxed,
    /// A [`ShortLock`] lets every thread in.
    Open,
    /// What is given to a queue while another thread is at it is lost.
    LostPush,
    /// A sleeper is not woken.
    Unheard,
    /// A queue that holds commands is said to be idle.
    Idle,
    /// A thread takes what belongs to another one for its own.
    Mine,
    /// A thread sleeps for the time that it was told, whatever has come since.
    Uncounted,
    /// A thread that leaves hands the watch to none of those that sleep.
    Unwatched,
    /// A thread that has said that it waits sleeps without another look.
    Unlooked,
    /// What tells of a change is raised before the change is shown.
    Early,
}

std::thread_local! {
    // All threads of a model run on the thread that runs the model.
    static CANARY: Cell<Option<Canary>> = const { Cell::new(None) };
}

/// Runs `model` with one thing broken.
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

/// Whether the model that runs has this broken.
pub fn is_broken(canary: Canary) -> bool {
    CANARY.get() == Some(canary)
}
