//! Pages around those that were read.
//!
//! Pages that a batch wrote lie one after the other, and a search that reads one often wants the others next: where a read costs a seek, it
//! takes its neighbours along. What is kept is bytes as they lie on the drive. A page of them counts only if its sum is right, which names
//! the beginning of its segment: what a segment had before it was begun again never does.

use super::super::error::{SegmentId, SegmentPlace};
use super::super::paged::PAGE;
use super::super::segment::Segments;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// Windows that are kept.
const WINDOWS: usize = 16;

/// Pages of a window on a disk: they take little longer than one.
const OF_DISK: u32 = 32;

/// Pages of a window on other drives.
const OF_FLASH: u32 = 8;

/// Pages that were read ahead.
pub(super) struct Ahead {
    /// Pages of a window.
    pages: u32,
    windows: Cache<(SegmentId, u32), Arc<Vec<u8>>>,
}

impl Ahead {
    pub(super) fn new(segments: &Segments) -> Ahead {
        let pages = if segments.disk().drive().volume().info().rotational { OF_DISK } else { OF_FLASH };
        Ahead { pages, windows: Cache::new(WINDOWS) }
    }

    /// Reads pages that lie from `at` on in a segment with `written` blocks, with those around them; false if they are to be read alone.
    pub(super) fn read(&self, segments: &Segments, at: SegmentPlace, written: u32, out: &mut [u8]) -> bool {
        let (window, first) = (at.block / self.pages, at.block % self.pages);
        let from = first as usize * PAGE;
        let wanted = from..from + out.len();
        let end = (window + 1).saturating_mul(self.pages).min(written);
        let length = end.saturating_sub(window * self.pages) as usize * PAGE;
        // A file of the host's is read ahead by the host.
        if segments.is_file() || length < wanted.end {
            return false;
        }
        let key = (at.segment, window);
        if let Some(known) = self.windows.get(&key).filter(|known| known.len() >= wanted.end) {
            out.copy_from_slice(&known[wanted]);
            return true;
        }
        let mut bytes = vec![0; length];
        let start = SegmentPlace { block: window * self.pages, ..at };
        // What cannot be read may be another page.
        if segments.read(start, &mut bytes).is_err() {
            return false;
        }
        out.copy_from_slice(&bytes[wanted]);
        self.windows.insert(key, Arc::new(bytes));
        true
    }

    /// Nothing is kept any more.
    pub(super) fn clear(&self) {
        self.windows.clear();
    }

    /// Drops the window of a page that has changed.
    pub(super) fn forget(&self, at: SegmentPlace) {
        self.windows.remove(&(at.segment, at.block / self.pages));
    }
}
