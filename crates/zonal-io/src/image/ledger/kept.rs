//! Blocks of the file that reset zones keep, so that the writes after a reset find them allocated.
//!
//! Owns the account: which zones keep blocks above their data, up to where, and how much that is together. Gives no block
//! back and knows no order of syncs: that is the [ledger](super)'s. No state of a zone speaks of these blocks, so no read
//! reaches what they hold.
//!
//! # Which zones keep theirs
//! The first that are reset, until the bound is reached; the blocks of later ones are given back. Drives that are written
//! round take the zones that were reset first, so these are the ones that profit.

use hashbrown::HashMap;
use zonal_core::ZoneIndex;

/// See the module. Lengths are in sectors.
pub(super) struct Kept {
    max: u64,
    zones: HashMap<ZoneIndex, Blocks>,
    /// Of all zones, the idle sectors.
    idle: u64,
}

struct Blocks {
    /// The file may have blocks up to this offset of the zone.
    end: u32,
    /// How much of that lay above the zone's data at the last commit.
    idle: u32,
}

impl Kept {
    /// Nothing yet, and never more than `max` sectors.
    pub(super) fn new(max: u64) -> Kept {
        Kept { max, zones: HashMap::new(), idle: 0 }
    }

    /// Up to where `zone` may have blocks above its data; 0 if it keeps none.
    pub(super) fn end(&self, zone: ZoneIndex) -> u32 {
        self.zones.get(&zone).map_or(0, |blocks| blocks.end)
    }

    /// The reset of `zone` is durable, and the file may have its blocks up to `end`. Up to where they stay.
    pub(super) fn reset(&mut self, zone: ZoneIndex, end: u32) -> u32 {
        self.written(zone, u32::MAX);
        let stays = (self.max - self.idle).min(u64::from(end)) as u32;
        if stays > 0 {
            self.zones.insert(zone, Blocks { end: stays, idle: stays });
            self.idle += u64::from(stays);
        }
        stays
    }

    /// `zone` holds data up to `written`, which needs the blocks that it lies in.
    pub(super) fn written(&mut self, zone: ZoneIndex, written: u32) {
        let Some(blocks) = self.zones.get_mut(&zone) else { return };
        let idle = blocks.end.saturating_sub(written);
        self.idle = self.idle - u64::from(blocks.idle) + u64::from(idle);
        blocks.idle = idle;
        if idle == 0 {
            self.zones.remove(&zone);
        }
    }

    /// Takes every zone that keeps blocks, and up to where.
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
        // A zone that is written again makes room, block by block.
        kept.written(ZoneIndex(0), 50);
        assert_eq!((kept.reset(ZoneIndex(2), 60), kept.idle), (50, 100));
        // Reset once more it has the same blocks, and counts with all of them.
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
