//! Preallocation for short synchronous writes.
//!
//! A write into a hole allocates blocks in the host's file system, so the next sync also commits its
//! journal. If a flush separates two short writes to a zone, zeroes are written behind the second,
//! and the next writes overwrite allocated blocks. Preallocation by `fallocate` does not help,
//! because the first write to such blocks changes the journal as well.
//!
//! # Why no data is overwritten
//! The zeroes are above all writes that have a place in the zone, and are written while no other
//! write to the zone is in progress. Later writes wait for them.

use crate::emulated::Placed;
use crate::sync::{AtomicU32, AtomicU64, Ordering, RwLock};
use zonal_core::ZoneIndex;

/// Number of locks, which zones share.
const STRIPES: usize = 64;

/// Number of sectors of zeroes: 256 KiB.
const SECTORS: u32 = 512;

/// Maximum length of a short write in sectors: 64 KiB.
const WRITE_MAX: u32 = 128;

/// Source of the zeroes.
static ZEROES: [u8; SECTORS as usize * 512] = [0; SECTORS as usize * 512];

/// See the module.
pub(super) struct Ahead {
    stripes: Box<[Stripe; STRIPES]>,
    flushes: AtomicU64,
}

/// State of the last written zone of those that share a lock.
struct Stripe {
    /// Held shared by transfers, exclusively for zeroes.
    transfers: RwLock<()>,
    zone: AtomicU32,
    /// Value of [`Ahead::flushes`] at the last write.
    flushes: AtomicU64,
    /// End of the zeroes: offset in the zone in sectors.
    end: AtomicU32,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        let stripe = |_| Stripe {
            transfers: RwLock::new(()),
            zone: AtomicU32::new(u32::MAX),
            flushes: AtomicU64::new(0),
            end: AtomicU32::new(0),
        };
        let stripes = Box::new(std::array::from_fn(stripe));
        Ahead { stripes, flushes: AtomicU64::new(0) }
    }

    fn stripe(&self, zone: ZoneIndex) -> &Stripe {
        &self.stripes[zone.0 as usize % STRIPES]
    }

    /// Counts a flush.
    pub(super) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `transfer`, which writes to `zone`.
    pub(super) fn transfer<R>(&self, zone: ZoneIndex, transfer: impl FnOnce() -> R) -> R {
        let _shared = self.stripe(zone).transfers.read();
        transfer()
    }

    /// Calls `write` with zeroes for the sectors behind the write `placed` if they are worthwhile. The
    /// zone has `capacity` sectors. `is_last` returns true if no write has a place behind this one.
    pub(super) fn wrote(
        &self,
        placed: &Placed,
        capacity: u32,
        is_last: impl FnOnce() -> bool,
        write: impl FnOnce(&[u8]),
    ) {
        let Placed { zone, offset, sectors, .. } = *placed;
        let (stripe, flushes) = (self.stripe(zone), self.flushes.load(Ordering::Relaxed));
        let is_flushed = stripe.flushes.swap(flushes, Ordering::Relaxed) != flushes;
        if stripe.zone.swap(zone.0, Ordering::Relaxed) != zone.0 {
            return stripe.end.store(0, Ordering::Relaxed);
        }
        let end = offset + sectors;
        let count = SECTORS.min(capacity.saturating_sub(end));
        let has_zeroes = end < stripe.end.load(Ordering::Relaxed);
        if !is_flushed || sectors > WRITE_MAX || has_zeroes || count == 0 {
            return;
        }
        let Some(_alone) = stripe.transfers.try_write() else { return };
        if is_last() {
            write(&ZEROES[..count as usize * 512]);
            stripe.end.store(end + count, Ordering::Relaxed);
        }
    }
}
