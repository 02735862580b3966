//! The number of connections that a server may have, over all its threads.

use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Descriptors that are left for the device, the control socket, and what else the process has.
const OTHERS: u64 = 64;

/// Connections that a process can have at least, however few descriptors it may open: then the kernel refuses some.
const LEAST: usize = 16;

/// Connections that are possible, of those wanted: one takes a descriptor.
pub(super) fn possible(wanted: usize) -> usize {
    let left = getrlimit(Resource::Nofile).current.map(|all| all.saturating_sub(OTHERS) as usize);
    left.map_or(wanted, |left| left.max(LEAST).min(wanted))
}

/// See the module.
pub(super) struct Seats {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// Stands for one connection, and is free again when it is dropped.
pub(super) struct Seat(Arc<AtomicUsize>);

impl Seats {
    pub(super) fn new(max: usize) -> Seats {
        Seats { taken: Arc::default(), max }
    }

    /// One, if there is one.
    pub(super) fn take(&self) -> Option<Seat> {
        // One thread takes, all give back: what is read here is at most too large.
        let is_free = self.taken.load(Ordering::Relaxed) < self.max;
        is_free.then(|| {
            self.taken.fetch_add(1, Ordering::Relaxed);
            Seat(self.taken.clone())
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seat_that_is_dropped_is_free_again() {
        let seats = Seats::new(2);
        let first = seats.take().unwrap();
        let _second = seats.take().unwrap();
        assert!(seats.take().is_none());
        drop(first);
        assert!(seats.take().is_some());
    }

    #[test]
    fn number_of_connections_has_room_for_other_descriptors() {
        assert_eq!(possible(3), 3);
        assert!(possible(usize::MAX) >= LEAST);
    }
}
