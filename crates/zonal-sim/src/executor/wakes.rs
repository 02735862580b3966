//! Tasks woken by completions, and a count of events.
//!
//! By its type, a completion function may be called on any thread, so its data is atomic. In a run
//! it is called on the executor's thread, so there are no locks and only relaxed orderings.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Woken tasks in order, each once until the executor takes it.
#[derive(Clone, Debug)]
pub struct Wakes(Arc<Ring>);

#[derive(Debug)]
struct Ring {
    is_woken: Box<[AtomicBool]>,
    /// One place for each task, so it never overflows.
    tasks: Box<[AtomicU32]>,
    next: AtomicU32,
    len: AtomicU32,
}

impl Wakes {
    /// Creates a queue for this number of tasks.
    pub fn new(tasks: usize) -> Wakes {
        Wakes(Arc::new(Ring {
            is_woken: (0..tasks).map(|_| AtomicBool::new(false)).collect(),
            tasks: (0..tasks).map(|_| AtomicU32::new(0)).collect(),
            next: AtomicU32::new(0),
            len: AtomicU32::new(0),
        }))
    }

    /// Wakes a task because one of its requests has completed.
    ///
    /// # Panics
    /// If there is no such task.
    #[inline]
    pub fn wake(&self, task: usize) {
        let Ring { is_woken, tasks, next, len } = &*self.0;
        if is_woken[task].load(Ordering::Relaxed) {
            return;
        }
        is_woken[task].store(true, Ordering::Relaxed);
        let woken = len.load(Ordering::Relaxed);
        let place = (next.load(Ordering::Relaxed) + woken) as usize;
        let place = if place < tasks.len() { place } else { place - tasks.len() };
        tasks[place].store(task as u32, Ordering::Relaxed);
        len.store(woken + 1, Ordering::Relaxed);
    }

    /// Removes the task that was woken first.
    #[inline]
    pub(super) fn take(&self) -> Option<usize> {
        let Ring { is_woken, tasks, next, len } = &*self.0;
        let left = len.load(Ordering::Relaxed).checked_sub(1)?;
        let place = next.load(Ordering::Relaxed) as usize;
        let task = tasks[place].load(Ordering::Relaxed) as usize;
        next.store(if place + 1 < tasks.len() { place as u32 + 1 } else { 0 }, Ordering::Relaxed);
        len.store(left, Ordering::Relaxed);
        is_woken[task].store(false, Ordering::Relaxed);
        Some(task)
    }
}

/// Count of events in a run. A task that waits for others checks again only after it has changed.
#[derive(Debug, Default)]
pub struct EventCount(Cell<u64>);

impl EventCount {
    /// Counts an event that another task may wait for.
    #[inline]
    pub fn increment(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// Number of events so far.
    #[inline]
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}
