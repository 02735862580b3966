//! Memory for the data of commands: a limit per target, and the share of each queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Default limit for the data of all queues of a target, in bytes.
pub const TARGET_MEMORY_MAX: usize = 1 << 30;

/// Bytes reserved for each queue from connect on. Enough for as many queues as a server accepts
/// connections.
pub const QUEUE_MEMORY_MIN: usize = TARGET_MEMORY_MAX / crate::server::CONNECTIONS_MAX;

/// Memory of a target, shared by the threads of its queues.
pub(crate) struct TargetMemory {
    left: AtomicUsize,
}

impl TargetMemory {
    pub(super) fn new(max: usize) -> Arc<TargetMemory> {
        Arc::new(TargetMemory { left: AtomicUsize::new(max) })
    }

    /// Reserves memory for a new queue; `None` if the target has too little left.
    pub(super) fn queue(self: &Arc<TargetMemory>) -> Option<QueueMemory> {
        self.take(QUEUE_MEMORY_MIN).then(|| QueueMemory { target: self.clone(), held: QUEUE_MEMORY_MIN })
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.left.try_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Memory of one queue. Grows and shrinks with its use in steps of [`QUEUE_MEMORY_MIN`] and is
/// returned on drop.
pub(crate) struct QueueMemory {
    target: Arc<TargetMemory>,
    held: usize,
}

/// Memory to reserve for this number of bytes in use.
fn held_for(bytes: usize) -> usize {
    bytes.next_multiple_of(QUEUE_MEMORY_MIN).max(QUEUE_MEMORY_MIN)
}

impl QueueMemory {
    /// True if the queue may use this number of bytes.
    pub(crate) fn has(&self, bytes: usize) -> bool {
        bytes <= self.held || held_for(bytes) - self.held <= self.target.left.load(Ordering::Relaxed)
    }

    /// Reserves memory for this number of bytes in use. Returns false if the target has too little
    /// left.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        if bytes <= self.held {
            return true;
        }
        let held = held_for(bytes);
        let is_taken = self.target.take(held - self.held);
        if is_taken {
            self.held = held;
        }
        is_taken
    }

    /// Returns memory beyond the need for this number of bytes in use.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let held = held_for(bytes);
        if held < self.held {
            self.target.give(self.held - held);
            self.held = held;
        }
    }

    /// True if this queue holds more than the minimum and the target has too little left for
    /// another queue to hold as much.
    pub(crate) fn is_over_share(&self) -> bool {
        self.held > QUEUE_MEMORY_MIN && self.target.left.load(Ordering::Relaxed) < self.held
    }
}

impl Drop for QueueMemory {
    fn drop(&mut self) {
        self.target.give(self.held);
    }
}
