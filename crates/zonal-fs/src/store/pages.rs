//! Numbers of pages: which are in use.
//!
//! A table has its pages until the last view of it is gone, so that a reader finds them unchanged however long it takes. Then the next
//! commit may use their numbers again.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Consecutive pages in use.
#[derive(Debug)]
pub(super) struct Pages {
    /// Unique number, for caches.
    pub(super) number: u64,
    pub(super) range: Range<u64>,
    space: Arc<Space>,
}

impl Pages {
    pub(super) fn count(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.space.freed.lock().push(self.range.clone());
    }
}

/// Numbers of the pages in use.
#[derive(Default, Debug)]
pub(super) struct Space {
    /// Ranges in use: first page and end.
    used: Mutex<BTreeMap<u64, u64>>,
    /// Ranges whose use has ended.
    freed: Mutex<Vec<Range<u64>>>,
}

impl Space {
    fn pages(self: &Arc<Space>, range: Range<u64>) -> Arc<Pages> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Pages { number: NEXT.fetch_add(1, Ordering::Relaxed), range, space: self.clone() })
    }

    /// Takes the first `count` free pages that follow each other.
    pub(super) fn take(self: &Arc<Space>, count: u64) -> Arc<Pages> {
        let mut used = self.used.lock();
        let mut first = 0;
        for (&begin, &end) in used.iter() {
            if begin - first >= count {
                break;
            }
            first = end;
        }
        used.insert(first, first + count);
        self.pages(first..first + count)
    }

    /// Takes these pages; `None` if some of them are in use.
    pub(super) fn take_at(self: &Arc<Space>, range: Range<u64>) -> Option<Arc<Pages>> {
        let mut used = self.used.lock();
        let before = used.range(..range.end).next_back().map_or(0, |(_, end)| *end);
        if range.is_empty() || before > range.start {
            return None;
        }
        used.insert(range.start, range.end);
        Some(self.pages(range))
    }

    /// Returns the ranges whose use has ended, which are free from now on.
    pub(super) fn freed(&self) -> Vec<Range<u64>> {
        let freed = std::mem::take(&mut *self.freed.lock());
        let mut used = self.used.lock();
        for range in &freed {
            used.remove(&range.start);
        }
        freed
    }

    /// Ranges in use, in order.
    pub(super) fn used(&self) -> Vec<Range<u64>> {
        self.used.lock().iter().map(|(&begin, &end)| begin..end).collect()
    }

    /// Number of pages in use.
    pub(super) fn count(&self) -> u64 {
        self.used.lock().iter().map(|(begin, end)| end - begin).sum()
    }

    /// Page after the last one in use.
    pub(super) fn end(&self) -> u64 {
        self.used.lock().last_key_value().map_or(0, |(_, end)| *end)
    }
}
