//! Parameters of an SMR disk.

use super::{CacheLimits, MechanicsOptions, Order};
use crate::model::Span;

/// Parameters of an SMR disk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SmrOptions {
    /// Platters and arm.
    pub mechanics: MechanicsOptions,
    /// Maximum number of commands at the drive.
    pub queue_depth: u32,
    /// Data rate of the link, in bytes per second.
    pub link_rate: f64,
    /// Link time of a command in addition to its data.
    pub command: Span,
    /// Time of a command without data, such as a reset.
    pub manage: Span,
    /// True if writes complete in the cache.
    pub write_cache: bool,
    /// Limits of the cache.
    pub cache: CacheLimits,
    /// True if a write waits for earlier ones without room in the cache.
    pub admits_in_order: bool,
    /// Bytes of cache that survive a power loss: the size of the cache while it is disabled.
    pub protected_bytes: u64,
    /// Order of destaging.
    pub order: Order,
    /// Time for which the head keeps reading after the last read.
    pub read_ahead: Span,
    /// Consecutive reads before a cached write gets its turn.
    pub reads_before_write: u32,
}

impl SmrOptions {
    /// Effective limits of the cache, enabled or disabled.
    pub(super) fn cache_limits(&self) -> CacheLimits {
        match self.write_cache {
            true => self.cache,
            false => CacheLimits { bytes: self.protected_bytes.max(1), ..self.cache },
        }
    }
}
