//! What an SMR disk is made from.

use super::{CacheLimits, MechanicsOptions, Order};
use crate::model::Span;

/// Numbers of an SMR disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SmrOptions {
    /// Platters and arm.
    pub mechanics: MechanicsOptions,
    /// Commands that the drive holds at a time.
    pub queue_depth: u32,
    /// Data rate of the link, in bytes a second.
    pub link_rate: f64,
    /// Time that a command takes on the link in addition to its data.
    pub command: Span,
    /// Time for a command that touches no data, such as a reset.
    pub manage: Span,
    /// Whether writes are answered from the cache.
    pub write_cache: bool,
    /// What the cache holds.
    pub cache: CacheLimits,
    /// Whether a write waits for those that came before it and find no room in the cache.
    pub admits_in_order: bool,
    /// What is safe from a loss of power although it is not on the medium: bytes of the cache while that is off.
    pub protected_bytes: u64,
    /// Which cached write is next.
    pub order: Order,
    /// For how long the head keeps reading after a read that nothing follows.
    pub read_ahead: Span,
    /// Reads in a row before a cached write has its turn.
    pub reads_before_write: u32,
}

impl SmrOptions {
    /// What the cache holds, be it on or off.
    pub(super) fn cache_limits(&self) -> CacheLimits {
        match self.write_cache {
            true => self.cache,
            false => CacheLimits { bytes: self.protected_bytes.max(1), ..self.cache },
        }
    }
}
