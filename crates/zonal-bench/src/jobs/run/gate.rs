//! Start barrier for the workers of a round.

use std::sync::{Condvar, Mutex, PoisonError};

/// Result of waiting at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoundStart {
    Open,
    Closed,
}

#[derive(Default)]
struct GateState {
    ready: usize,
    start: Option<RoundStart>,
}

/// Holds workers until all are ready or the round is cancelled.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    /// Reports that a worker is ready, and waits until the round starts or is cancelled.
    pub(super) fn enter(&self) -> RoundStart {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ready += 1;
        self.changed.notify_all();
        loop {
            if let Some(start) = state.start {
                return start;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `workers` workers are ready.
    pub(super) fn wait_for(&self, workers: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.ready < workers {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Releases the workers, to start or to end.
    pub(super) fn open(&self, start: RoundStart) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.start.get_or_insert(start);
        self.changed.notify_all();
    }
}
