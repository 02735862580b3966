//! Options of a budget: policy, classes, and the fill level of a zone.

use crate::device::Limits;
use crate::units::{Nanos, ZoneIndex};
use std::fmt;

/// Treatment of a write whose zone needs a slot when none is free. `Close` also waits, and `Finish`
/// also closes and waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Policy {
    /// Wait until a zone is filled, reset, finished or closed.
    #[default]
    Wait,
    /// Close the least recently used open zone. That frees an open slot but no active one.
    Close,
    /// If closing does not help, finish a nearly full zone. Its remaining space is lost until its
    /// reset.
    Finish,
    /// Fail at once, as the drive would.
    Fail,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 4] = [Policy::Wait, Policy::Close, Policy::Finish, Policy::Fail];

    /// Name used in options and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Wait => "wait",
            Policy::Close => "close",
            Policy::Finish => "finish",
            Policy::Fail => "fail",
        }
    }

    /// Returns the policy with this name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }

    pub(super) fn may_close(self) -> bool {
        matches!(self, Policy::Close | Policy::Finish)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Index of a writer class, into [`Options::minimums`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WriterClass(pub u8);

impl WriterClass {
    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// Options of a budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Policy when no slot is free.
    pub policy: Policy,
    /// Time after which a wait fails if nothing in flight could end it. 0: it fails at once.
    ///
    /// A writer that sends its next write only after the previous one has completed leaves its zone
    /// idle for a moment. Set this above the duration of such gaps.
    pub grace: Nanos,
    /// Number of open slots, and of active slots, reserved for each writer class. At least one
    /// class.
    pub minimums: Vec<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options { policy: Policy::Wait, grace: Nanos(0), minimums: vec![0] }
    }
}

/// Invalid options of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// There are no classes, or more than 256.
    #[error("{classes} writer classes, but 1 to 256 are supported")]
    Classes {
        /// Number of classes.
        classes: usize,
    },
    /// The minimums add up to more than the limit.
    #[error("the minimums of all classes add up to {minimums} slots, but the drive has {limit}")]
    Minimums {
        /// Sum of the minimums.
        minimums: u64,
        /// The smaller limit.
        limit: u32,
    },
}

impl Options {
    pub(super) fn validate(&self, limits: Limits) -> Result<(), BudgetError> {
        let classes = self.minimums.len();
        if !(1..=256).contains(&classes) {
            return Err(BudgetError::Classes { classes });
        }
        let minimums = self.minimums.iter().map(|&m| u64::from(m)).sum();
        let limit = [limits.open_max, limits.active_max].into_iter().filter(|&l| l != 0).min();
        match limit.filter(|&limit| minimums > u64::from(limit)) {
            Some(limit) => Err(BudgetError::Minimums { minimums, limit }),
            None => Ok(()),
        }
    }
}

/// Fill level of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Written sectors.
    pub written: u32,
    /// Writable sectors.
    pub capacity: u32,
}

impl Fill {
    /// Fill level in percent above which a zone may be finished to make room: less than a twentieth
    /// of it is lost.
    pub const FINISH_ABOVE_PERCENT: u64 = 95;

    /// True if the zone may be finished to make room for another.
    pub const fn is_nearly_full(self) -> bool {
        self.written as u64 * 100 > self.capacity as u64 * Fill::FINISH_ABOVE_PERCENT
    }
}

/// A wait that nothing in flight can end, or that the policy does not allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Zone that did not get its slot.
    pub zone: ZoneIndex,
    /// Zones that hold the missing slot, in ascending order: the open ones, or all active ones if
    /// an active slot is missing.
    pub holders: Vec<ZoneIndex>,
}
