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
use super::map::{self, Mapped};
use super::node;
use super::read::{self, Spans};
use crate::format::FileKind;
use crate::{BLOCK_BYTES, STRIPES, stripe};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use zonal_core::ZoneIndex;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads in flight from each zone that were pinned without the core.
pub(super) struct Readers {
    /// Counts of each zone, of which a thread uses one: threads that read one zone do not wait for each other's.
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
    pub(super) fn pin(&self, spans: &[Span]) -> bool {
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
        &self.stripes[stripe()]
    }

    /// Ends what the same thread began with a pin.
    pub(super) fn unpin(&self, spans: &[Span]) {
        let zones = self.own();
        for span in spans {
            zones[span.place.zone as usize].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// What the file's lock and the pins come to.
pub(super) enum Quick {
    /// The spans are pinned. Where the bytes end.
    Pinned(u64),
    /// The extents are not in memory: they have to be looked up.
    Unknown,
    /// The core has to be asked.
    Core,
}

impl Shared {
    /// Pins bytes of a file and gives their `spans`. The extents of all of them were looked up after the file's map had a version, or
    /// they are in memory.
    pub(super) fn pin_without_core(
        &self,
        ino: u64,
        bytes: Range<u64>,
        looked_up: Option<(&[Mapped], u64)>,
        spans: &mut Spans,
    ) -> Quick {
        if self.readers.has_lost.load(Ordering::Relaxed) {
            return Quick::Core;
        }
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let size = match self.nodes.for_read(ino) {
            Some(node) if node.dirty.touches(&blocks) || node.write_buffer.has_any(&blocks) => {
                return Quick::Core;
            }
            Some(node) => node.size,
            None if looked_up.is_none() => return Quick::Unknown,
            None => match node::attributes(&self.reader, ino) {
                Ok(attributes) if attributes.kind == FileKind::File => attributes.size,
                Ok(_) | Err(_) => return Quick::Core,
            },
        };
        let end = bytes.end.min(size);
        if end <= bytes.start {
            return Quick::Core;
        }
        let blocks = blocks.start..end.div_ceil(BLOCK);
        let kept;
        let (extents, version) = match looked_up {
            Some(looked_up) => looked_up,
            None => match map::kept_extents(&self.reader, ino, &blocks) {
                Some((extents, version)) => {
                    kept = extents;
                    (kept.as_slice(), version)
                }
                None => return Quick::Unknown,
            },
        };
        spans.clear();
        for mapped in extents.iter().filter_map(|extent| extent.within(&blocks)) {
            if mapped.extent.is_lost() {
                return Quick::Core;
            }
            for span in read::spans(ino, &mapped) {
                spans.push(span);
            }
        }
        if !self.readers.pin(spans) {
            return Quick::Core;
        }
        if self.reader.map_version(ino) != version {
            self.readers.unpin(spans);
            return Quick::Core;
        }
        Quick::Pinned(end)
    }
}
