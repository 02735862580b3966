//! Where the workers of a round meet before it begins.

use std::sync::{Condvar, Mutex, PoisonError};

/// Whether a round began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Open,
    Closed,
}

#[derive(Default)]
struct GateState {
    ready: usize,
    entry: Option<Entry>,
}

/// Holds workers until all are ready, or until one cannot be.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    /// A worker is ready. Returns when the round begins or is called off.
    pub(super) fn enter(&self) -> Entry {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ready += 1;
        self.changed.notify_all();
        loop {
            if let Some(entry) = state.entry {
                return entry;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `workers` are ready.
    pub(super) fn wait_for(&self, workers: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.ready < workers {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the workers go, to work or home.
    pub(super) fn open(&self, entry: Entry) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.entry.get_or_insert(entry);
        self.changed.notify_all();
    }
}
