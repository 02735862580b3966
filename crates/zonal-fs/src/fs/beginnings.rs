//! Which use of each zone counts: what [`Header::begun`](crate::format::Header::begun) says in all units that lie there.

use crate::format::Account;
use std::sync::atomic::{AtomicU64, Ordering};

/// For each zone, the sequence of the first unit since its last reset, or [`NONE`], or [`UNKNOWN`].
///
/// No order is needed: a unit is read after it came into the map, and a zone is reset once no read has it pinned.
#[derive(Debug)]
pub(crate) struct Beginnings(Vec<AtomicU64>);

/// No unit was sent to the zone since its reset, or none that counts.
const NONE: u64 = 0;

/// The zone has data of files, and its account was lost and counted again from their extents.
const UNKNOWN: u64 = u64::MAX;

impl Beginnings {
    /// Those of zones with these accounts. What lies in a zone without live blocks counts no more: the next unit begins a use.
    pub(super) fn new(accounts: &[Account]) -> Beginnings {
        let begun = |account: &Account| match account {
            Account { used: 0, .. } => NONE,
            Account { begun: 0, .. } => UNKNOWN,
            Account { begun, .. } => *begun,
        };
        Beginnings(accounts.iter().map(begun).map(AtomicU64::new).collect())
    }

    /// The beginning of a zone, if it is known.
    pub(super) fn of(&self, zone: u32) -> Option<u64> {
        let begun = self.0.get(zone as usize).map(|begun| begun.load(Ordering::Relaxed));
        begun.filter(|begun| !matches!(*begun, NONE | UNKNOWN))
    }

    /// The beginning of a zone that gets a unit of this sequence, which may be the first. The caller has the core.
    pub(super) fn begin(&self, zone: u32, sequence: u64) -> u64 {
        let begun = &self.0[zone as usize];
        match begun.load(Ordering::Relaxed) {
            NONE => begun.store(sequence, Ordering::Relaxed),
            UNKNOWN => {}
            begun => return begun,
        }
        sequence
    }

    /// A zone was reset.
    pub(super) fn was_reset(&self, zone: u32) {
        if let Some(begun) = self.0.get(zone as usize) {
            begun.store(NONE, Ordering::Relaxed);
        }
    }
}
