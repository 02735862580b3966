//! Beginnings: expected [`Header::begun`](crate::format::Header::begun) of the units in each zone.

use crate::format::Account;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sequence of the first unit after the last reset of each zone, or [`NONE`], or [`UNKNOWN`].
///
/// Relaxed loads and stores suffice: a unit is read only after it was mapped, and a zone is reset
/// only while no read pins it.
#[derive(Debug)]
pub(crate) struct Beginnings(Vec<AtomicU64>);

/// No live unit has been written since the last reset.
const NONE: u64 = 0;

/// The account of the zone was lost, and a repair has recounted it from file extents.
const UNKNOWN: u64 = u64::MAX;

impl Beginnings {
    /// Creates the beginnings of zones with these accounts. In a zone without live blocks, the next
    /// unit sets a new one.
    pub(super) fn new(accounts: &[Account]) -> Beginnings {
        let begun = |account: &Account| match account {
            Account { used: 0, .. } => NONE,
            Account { begun: 0, .. } => UNKNOWN,
            Account { begun, .. } => *begun,
        };
        Beginnings(accounts.iter().map(begun).map(AtomicU64::new).collect())
    }

    /// Returns the beginning of a zone, if it is known.
    pub(super) fn of(&self, zone: u32) -> Option<u64> {
        let begun = self.0.get(zone as usize).map(|begun| begun.load(Ordering::Relaxed));
        begun.filter(|begun| !matches!(*begun, NONE | UNKNOWN))
    }

    /// Returns the beginning for a unit that is about to be written, and sets it if this is the
    /// first unit. The caller holds the core.
    pub(super) fn begin(&self, zone: u32, sequence: u64) -> u64 {
        let begun = &self.0[zone as usize];
        match begun.load(Ordering::Relaxed) {
            NONE => begun.store(sequence, Ordering::Relaxed),
            UNKNOWN => {}
            begun => return begun,
        }
        sequence
    }

    /// Forgets the beginning of a zone after a reset.
    pub(super) fn was_reset(&self, zone: u32) {
        if let Some(begun) = self.0.get(zone as usize) {
            begun.store(NONE, Ordering::Relaxed);
        }
    }
}
