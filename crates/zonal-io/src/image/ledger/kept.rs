//! Blocks of the file that reset zones keep, so that rewriting them needs no allocation.
//!
//! Owns the accounting: the zones that keep blocks above their data, the end of these blocks, and
//! their total. Does not free blocks and is independent of the order of syncs; both belong to the
//! [ledger](super). No zone state includes these blocks, so no read returns their contents.
//!
//! # Which zones keep their blocks
//! The first ones to be reset, up to the limit; the blocks of later ones are freed. Drives that are
//! written cyclically reuse the zones that were reset first, so these benefit.

use hashbrown::HashMap;
use zonal_core::ZoneIndex;

/// Accounting of kept blocks; see the module. Lengths are in sectors.
pub(super) struct Kept {
    max: u64,
    zones: HashMap<ZoneIndex, Blocks>,
    /// Total of all zones' idle sectors.
    idle: u64,
}

struct Blocks {
    /// End of the blocks that the file may have for the zone.
    end: u32,
    /// Sectors of these above the zone's data at the last commit.
    idle: u32,
}

impl Kept {
    /// Empty accounting with a limit of `max` sectors.
    pub(super) fn new(max: u64) -> Kept {
        Kept { max, zones: HashMap::new(), idle: 0 }
    }

    /// End of the blocks that `zone` may have above its data; 0 if it keeps none.
    pub(super) fn end(&self, zone: ZoneIndex) -> u32 {
        self.zones.get(&zone).map_or(0, |blocks| blocks.end)
    }

    /// Records that the reset of `zone` is durable and the file may have its blocks up to `end`.
    /// Returns the end of those to keep.
    pub(super) fn reset(&mut self, zone: ZoneIndex, end: u32) -> u32 {
        self.written(zone, u32::MAX);
        let stays = (self.max - self.idle).min(u64::from(end)) as u32;
        if stays > 0 {
            self.zones.insert(zone, Blocks { end: stays, idle: stays });
            self.idle += u64::from(stays);
        }
        stays
    }

    /// Records that `zone` has data up to `written`; the blocks below are in use.
    pub(super) fn written(&mut self, zone: ZoneIndex, written: u32) {
        let Some(blocks) = self.zones.get_mut(&zone) else { return };
        let idle = blocks.end.saturating_sub(written);
        self.idle = self.idle - u64::from(blocks.idle) + u64::from(idle);
        blocks.idle = idle;
        if idle == 0 {
            self.zones.remove(&zone);
        }
    }

    /// Removes and returns all zones that keep blocks, with the end of these.
    pub(super) fn take(&mut self) -> Vec<(ZoneIndex, u32)> {
        self.idle = 0;
        let mut all: Vec<_> = self.zones.drain().map(|(zone, blocks)| (zone, blocks.end)).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_keep_their_blocks_up_to_the_bound_and_no_more() {
        let mut kept = Kept::new(100);
        assert_eq!([0, 1, 2].map(|zone| kept.reset(ZoneIndex(zone), 60)), [60, 40, 0]);
        assert_eq!([0, 1, 2].map(|zone| kept.end(ZoneIndex(zone))), [60, 40, 0]);
        // Rewriting a zone makes room, block by block.
        kept.written(ZoneIndex(0), 50);
        assert_eq!((kept.reset(ZoneIndex(2), 60), kept.idle), (50, 100));
        // Reset again, it has the same blocks, and all of them count.
        assert_eq!((kept.reset(ZoneIndex(0), 60), kept.idle), (10, 100));
    }

    #[test]
    fn zone_that_was_written_as_far_as_before_keeps_nothing() {
        let mut kept = Kept::new(100);
        kept.reset(ZoneIndex(3), 60);
        kept.written(ZoneIndex(3), 60);
        assert_eq!((kept.end(ZoneIndex(3)), kept.idle, kept.take()), (0, 0, vec![]));
        kept.reset(ZoneIndex(5), 8);
        kept.reset(ZoneIndex(4), 8);
        assert_eq!((kept.take(), kept.idle), (vec![(ZoneIndex(4), 8), (ZoneIndex(5), 8)], 0));
    }
}
