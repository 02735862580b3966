//! Limit on the connections of a server, across all threads.

use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Descriptors reserved for the device, the control socket and the rest of the process.
const OTHERS: u64 = 64;

/// Lower bound of the limit, even with fewer descriptors; the kernel then refuses some connections.
const LEAST: usize = 16;

/// Number of connections possible with the descriptor limit, at most `wanted`. Each takes one
/// descriptor.
pub(super) fn possible(wanted: usize) -> usize {
    let left = getrlimit(Resource::Nofile).current.map(|all| all.saturating_sub(OTHERS) as usize);
    left.map_or(wanted, |left| left.max(LEAST).min(wanted))
}

/// Counter of open connections with a maximum.
pub(super) struct Seats {
    taken: Arc<AtomicUsize>,
    max: usize,
}

/// Permission for one connection, returned on drop.
pub(super) struct Seat(Arc<AtomicUsize>);

impl Seats {
    pub(super) fn new(max: usize) -> Seats {
        Seats { taken: Arc::default(), max }
    }

    /// Takes a seat if one is free.
    pub(super) fn take(&self) -> Option<Seat> {
        // Only one thread takes seats and all threads return them, so the value read is at most too
        // high.
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
