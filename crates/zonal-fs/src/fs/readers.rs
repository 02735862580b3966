//! Reads that need no lock of the core: the file's own lock, and a pin on each zone.
//!
//! # Why a pinned zone still has what was looked up
//! A reader takes the version of the file's map, looks up the extents, sees in the file that no write of them is in flight, pins
//! the zones, and compares the version. A thread that takes blocks out of a map raises the version, and only later, after a commit,
//! does another thread see that the zone has no pin and reset it. Both sides write before they read, in one order for all threads:
//! a reader that finds the version as it was has pinned before the zone could be found without a pin.
//!
//! # Why it sees each write that was made before
//! A write that has not completed is in the file. A write that completes is shown in the map, which raises the version, before it
//! leaves the file ([`flight`](super::flight)).
//!
//! If any of this is not so, the read takes the core.

use super::core::Shared;
use super::fetch::Span;
use super::map::Mapped;
use super::node;
use super::read::spans;
use crate::BLOCK_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use zonal_core::ZoneIndex;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Counts of each zone, of which a thread uses one: threads that read one zone do not wait for each other's.
const STRIPES: usize = 4;

thread_local! {
    /// The counts that the thread uses.
    static STRIPE: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

/// Reads in flight from each zone that were pinned without the core.
pub(super) struct Readers {
    stripes: [Box<[AtomicU32]>; STRIPES],
    /// A zone was lost: what reads of it are told, the core knows.
    has_lost: AtomicBool,
}

impl Readers {
    pub(super) fn new(zones: u32) -> Readers {
        let stripe = |_| (0..zones).map(|_| AtomicU32::new(0)).collect();
        Readers { stripes: std::array::from_fn(stripe), has_lost: AtomicBool::new(false) }
    }

    /// Whether a zone is read, and must not be reset. For a thread that has the core.
    pub(super) fn is_reading(&self, zone: ZoneIndex) -> bool {
        let reads = self.stripes.iter().filter_map(|zones| zones.get(zone.0 as usize));
        reads.into_iter().any(|reads| reads.load(Ordering::SeqCst) > 0)
    }

    pub(super) fn note_lost(&self) {
        self.has_lost.store(true, Ordering::Relaxed);
    }

    /// Pins the zone of each span; false, and nothing is pinned, if a row names a zone that there is not.
    fn pin(&self, spans: &[Span]) -> bool {
        let zones = self.own();
        if spans.iter().any(|span| span.place.zone as usize >= zones.len()) {
            return false;
        }
        for span in spans {
            zones[span.place.zone as usize].fetch_add(1, Ordering::SeqCst);
        }
        true
    }

    /// The counts of the calling thread.
    fn own(&self) -> &[AtomicU32] {
        STRIPE.with(|stripe| &self.stripes[*stripe])
    }

    /// Ends what the same thread began with a pin.
    pub(super) fn unpin(&self, spans: &[Span]) {
        let zones = self.own();
        for span in spans {
            zones[span.place.zone as usize].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Shared {
    /// The spans of bytes of a file that has these `extents`, pinned, and where the bytes end; `None` if the core has to be asked.
    /// The extents were looked up when the file's map had this `version`.
    pub(super) fn pin_without_core(
        &self,
        ino: u64,
        bytes: Range<u64>,
        extents: &[Mapped],
        version: u64,
    ) -> Option<(Vec<Span>, u64)> {
        if self.readers.has_lost.load(Ordering::Relaxed) {
            return None;
        }
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let size = match self.nodes.here(ino) {
            Some(node) if node.dirty.touches(&blocks) || node.write_buffer.has_any(&blocks) => return None,
            Some(node) => node.size,
            None => node::attributes(&self.reader, ino).ok()?.size,
        };
        let end = bytes.end.min(size);
        if end <= bytes.start {
            return None;
        }
        let blocks = blocks.start..end.div_ceil(BLOCK);
        let found = extents.iter().filter_map(|extent| extent.within(&blocks));
        let mut pieces = Vec::new();
        for mapped in found {
            if mapped.extent.is_lost() {
                return None;
            }
            pieces.extend(spans(ino, &mapped));
        }
        if !self.readers.pin(&pieces) {
            return None;
        }
        if self.reader.map_version(ino) != version {
            self.readers.unpin(&pieces);
            return None;
        }
        Some((pieces, end))
    }
}
