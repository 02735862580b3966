//! Blocks of the file for writes that are still to come.
//!
//! A write into a hole makes the host's file system allocate blocks, and a sync then has to write
//! its journal, too. A program that syncs after each short write pays for that each time. So once a
//! short write to a zone follows a flush after another one, zeroes are written after it: the next
//! writes find blocks that are there.
//!
//! # Why no data is overwritten
//! Zeroes are written only above everything that has a place in the zone, while no other write to
//! the zone is transferred. A write that gets its place meanwhile waits.

use crate::sync::{AtomicU32, AtomicU64, Ordering, RwLock};
use zonal_core::ZoneIndex;

/// Locks; zones that share one wait for each other's zeroes.
const STRIPES: usize = 64;

/// Number of sectors of zeroes: 256 KiB.
const SECTORS: u32 = 512;

/// Longest write that zeroes follow, in sectors: 64 KiB.
const WRITE_MAX: u32 = 128;

/// Zeroes to write.
static ZEROES: [u8; SECTORS as usize * 512] = [0; SECTORS as usize * 512];

/// See the module.
pub(super) struct Ahead {
    stripes: Box<[Stripe; STRIPES]>,
    flushes: AtomicU64,
}

/// What is known of a zone, the last that was written of those that share the lock.
struct Stripe {
    /// Shared by transfers, exclusive for zeroes.
    transfers: RwLock<()>,
    zone: AtomicU32,
    /// Number of flushes before the last write.
    flushes: AtomicU64,
    /// End of the zeroes: offset in the zone, in sectors.
    end: AtomicU32,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        let stripe = |_| Stripe {
            transfers: RwLock::new(()),
            zone: AtomicU32::new(0),
            flushes: AtomicU64::new(0),
            end: AtomicU32::new(0),
        };
        let stripes = Box::new(std::array::from_fn(stripe));
        Ahead { stripes, flushes: AtomicU64::new(1) }
    }

    fn stripe(&self, zone: ZoneIndex) -> &Stripe {
        &self.stripes[zone.0 as usize % STRIPES]
    }

    /// Notes a flush.
    pub(super) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `transfer`, which writes to `zone`, while no zeroes are written there.
    pub(super) fn transfer<R>(&self, zone: ZoneIndex, transfer: impl FnOnce() -> R) -> R {
        let _shared = self.stripe(zone).transfers.read();
        transfer()
    }

    /// Calls `write` with zeroes for the sectors after `end`, the end of a write of `sectors` to
    /// `zone`, if further short writes are to be expected there, and nothing up to `capacity` has a
    /// place: then `is_last` returns true.
    pub(super) fn wrote(
        &self,
        zone: ZoneIndex,
        (end, sectors, capacity): (u32, u32, u32),
        is_last: impl FnOnce() -> bool,
        write: impl FnOnce(&[u8]),
    ) {
        let (stripe, flushes) = (self.stripe(zone), self.flushes.load(Ordering::Relaxed));
        let before = stripe.flushes.swap(flushes, Ordering::Relaxed);
        let is_same_zone = stripe.zone.swap(zone.0, Ordering::Relaxed) == zone.0;
        let has_zeroes = is_same_zone && end < stripe.end.load(Ordering::Relaxed);
        if !is_same_zone || before == flushes || before == 0 || sectors > WRITE_MAX {
            if !is_same_zone {
                stripe.end.store(0, Ordering::Relaxed);
            }
            return;
        }
        let count = SECTORS.min(capacity.saturating_sub(end));
        if has_zeroes || count == 0 {
            return;
        }
        let Some(_alone) = stripe.transfers.try_write() else { return };
        if is_last() {
            write(&ZEROES[..count as usize * 512]);
            stripe.end.store(end + count, Ordering::Relaxed);
        }
    }
}
