//! Who was answered, and whether anything happened.
//!
//! A completion function may be called by any thread as far as its type goes, so what it touches is atomic. In a run it is
//! called by the thread of the executor: nothing here locks, and no order is asked for but that of one thread.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Tasks that were woken, in the order of their wake-ups, each once until the executor takes it.
#[derive(Clone, Debug)]
pub struct Wakes(Arc<Ring>);

#[derive(Debug)]
struct Ring {
    is_woken: Box<[AtomicBool]>,
    /// As many places as tasks, so that it is never too small.
    tasks: Box<[AtomicU32]>,
    next: AtomicU32,
    len: AtomicU32,
}

impl Wakes {
    /// For `tasks` tasks.
    pub fn new(tasks: usize) -> Wakes {
        Wakes(Arc::new(Ring {
            is_woken: (0..tasks).map(|_| AtomicBool::new(false)).collect(),
            tasks: (0..tasks).map(|_| AtomicU32::new(0)).collect(),
            next: AtomicU32::new(0),
            len: AtomicU32::new(0),
        }))
    }

    /// Wakes a task: one of its requests has been answered.
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

    /// Takes the task that was woken first.
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

/// What happens in a run, counted. A task that waits for others looks again only after it has changed.
#[derive(Debug, Default)]
pub struct Happenings(Cell<u64>);

impl Happenings {
    /// Something happened that another task may have waited for.
    #[inline]
    pub fn one_more(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// How much has.
    #[inline]
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}
