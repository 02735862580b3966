//! Reads without the core's lock: they need only the file's lock, and a pin on each zone.
//!
//! # Why a pinned zone still has the data that was looked up
//! A reader takes the version of the file's map, looks up the extents, checks in the file that they
//! have no writes in flight, pins the zones, and compares the version. A thread that removes blocks
//! from a map increments the version first; only after a later commit can another thread find the
//! zone unpinned and reset it. Both sides write before they read, in one total order. So a reader
//! that finds the version unchanged had pinned the zone before it could be found unpinned.
//!
//! # Why reads see all earlier writes
//! A write that has not completed is in the file. A write that completes is published in the map,
//! which increments the version, before it is removed from the file ([`flight`](super::flight)).
//!
//! If any of these checks fails, the read takes the core.

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

/// Number of reads in flight from each zone that were pinned without the core.
pub(super) struct Readers {
    /// Counters of each zone. Each thread uses one stripe, to avoid contention between readers.
    stripes: [Box<[AtomicU32]>; STRIPES],
    /// True if a zone has been lost. Then all reads take the core, which checks the state of zones.
    has_lost: AtomicBool,
}

impl Readers {
    pub(super) fn new(zones: u32) -> Readers {
        let stripe = |_| (0..zones).map(|_| AtomicU32::new(0)).collect();
        Readers { stripes: std::array::from_fn(stripe), has_lost: AtomicBool::new(false) }
    }

    /// True if a zone is being read and must not be reset. The caller holds the core.
    pub(super) fn is_reading(&self, zone: ZoneIndex) -> bool {
        let reads = self.stripes.iter().filter_map(|zones| zones.get(zone.0 as usize));
        reads.into_iter().any(|reads| reads.load(Ordering::SeqCst) > 0)
    }

    pub(super) fn note_lost(&self) {
        self.has_lost.store(true, Ordering::Relaxed);
    }

    /// Pins the zone of each span. Returns false without pinning any if a row names a zone that
    /// does not exist.
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

    /// Counters of the calling thread.
    fn own(&self) -> &[AtomicU32] {
        &self.stripes[stripe()]
    }

    /// Unpins zones that the same thread has pinned.
    pub(super) fn unpin(&self, spans: &[Span]) {
        let zones = self.own();
        for span in spans {
            zones[span.place.zone as usize].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Result of an attempt to pin without the core.
pub(super) enum Quick {
    /// The spans are pinned, and the bytes end here.
    Pinned(u64),
    /// The extents are not in memory and have to be looked up.
    Unknown,
    /// The core is needed.
    Core,
}

impl Shared {
    /// Pins a range of a file and returns its `spans`. All its extents are in memory, or have been
    /// looked up after the map had the given version.
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
