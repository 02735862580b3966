//! Differences between the two standards, one switch each.

use crate::zone::Personality;

/// Differences between the standards, as switches. [`Rules::of`] sets them for a personality.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Closing an unwritten open zone empties it (ZBC). Otherwise it is closed and remains active
    /// (ZNS).
    pub close_unwritten_empties: bool,
    /// As `close_unwritten_empties`, for zones that the device closes on its own to make room for
    /// another.
    pub evict_unwritten_empties: bool,
    /// Finishing an empty or closed zone opens it in between and needs the resources for that
    /// (ZBC).
    pub finish_needs_resources: bool,
    /// Opening a full zone succeeds without effect (ZBC). Otherwise it is an invalid transition
    /// (ZNS).
    pub open_full_succeeds: bool,
    /// Closing an empty or full zone succeeds without effect (ZBC). Otherwise it is an invalid
    /// transition (ZNS).
    pub close_idle_succeeds: bool,
    /// A command exists that takes a read-only zone offline (ZNS).
    pub has_offline_command: bool,
}

impl Rules {
    const ZNS: Rules = Rules {
        close_unwritten_empties: false,
        evict_unwritten_empties: false,
        finish_needs_resources: false,
        open_full_succeeds: false,
        close_idle_succeeds: false,
        has_offline_command: true,
    };

    const ZBC: Rules = Rules {
        close_unwritten_empties: true,
        evict_unwritten_empties: true,
        finish_needs_resources: true,
        open_full_succeeds: true,
        close_idle_succeeds: true,
        has_offline_command: false,
    };

    /// Rules of `personality`.
    #[inline]
    pub const fn of(personality: Personality) -> Rules {
        match personality {
            Personality::Zns => Rules::ZNS,
            Personality::Zbc => Rules::ZBC,
        }
    }
}
