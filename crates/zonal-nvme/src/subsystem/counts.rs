//! Transfer counters for the SMART log (Base 5.1.12.1.3). Each I/O queue has its own, updated by
//! the thread that owns the queue.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Transfer totals of all hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostCounts {
    /// Read commands.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write and append commands.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands that failed with media errors.
    pub media_errors: u64,
}

/// Counters of one queue, updated by one thread only.
#[derive(Default)]
pub struct QueueCounts([AtomicU64; 5]);

impl QueueCounts {
    fn add(&self, n: usize, more: u64) {
        // Only one thread updates, so load and store lose nothing.
        self.0[n].store(self.0[n].load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    /// Counts a read of `bytes`.
    pub fn add_read(&self, bytes: u32) {
        self.add(0, 1);
        self.add(1, bytes.into());
    }

    /// Counts a write or append of `bytes`.
    pub fn add_write(&self, bytes: u32) {
        self.add(2, 1);
        self.add(3, bytes.into());
    }

    /// Counts a media error.
    pub fn add_media_error(&self) {
        self.add(4, 1);
    }
}

/// Counters of all queues, including closed ones.
#[derive(Default)]
pub(super) struct AllCounts(Mutex<(Vec<Arc<QueueCounts>>, [u64; 5])>);

impl AllCounts {
    pub(super) fn open(&self) -> Arc<QueueCounts> {
        let counts = Arc::<QueueCounts>::default();
        self.0.lock().0.push(counts.clone());
        counts
    }

    pub(super) fn close(&self, counts: &Arc<QueueCounts>) {
        let (open, gone) = &mut *self.0.lock();
        open.retain(|other| !Arc::ptr_eq(other, counts));
        for (sum, n) in gone.iter_mut().zip(&counts.0) {
            *sum += n.load(Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self) -> HostCounts {
        let (open, gone) = &*self.0.lock();
        let sum = |n: usize| gone[n] + open.iter().map(|c| c.0[n].load(Ordering::Relaxed)).sum::<u64>();
        let [reads, read_bytes, writes, written_bytes, media_errors] = std::array::from_fn(sum);
        HostCounts { reads, read_bytes, writes, written_bytes, media_errors }
    }
}
