//! What a budget is told: the policy, the classes, how full a zone is.

use crate::device::Limits;
use crate::units::{Nanos, ZoneIndex};
use std::fmt;

/// What happens to a write whose zone needs a slot when none is free. Each of the first three does what the one before
/// does, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Policy {
    /// It waits until a zone is filled, reset, finished or closed.
    #[default]
    Wait,
    /// The open zone that was not used for longest is closed. That frees an open slot, but no active one.
    Close,
    /// Where closing does not help, a zone that is nearly full is finished. What it had left is lost until its reset.
    Finish,
    /// It fails at once, as it would at the drive.
    Fail,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 4] = [Policy::Wait, Policy::Close, Policy::Finish, Policy::Fail];

    /// The name by which it is chosen.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Wait => "wait",
            Policy::Close => "close",
            Policy::Finish => "finish",
            Policy::Fail => "fail",
        }
    }

    /// The policy of that name.
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

/// Index of a class of writers, into [`Options::minimums`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WriterClass(pub u8);

impl WriterClass {
    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// How a budget is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What happens when no slot is free.
    pub policy: Policy,
    /// For how long nothing may have been under way that could end a wait before that fails. 0: it fails at once.
    ///
    /// A writer that sends its next write only when the last one has ended leaves its zone without one for a moment; with
    /// such writers this wants to be longer than the moment.
    pub grace: Nanos,
    /// For each class of writers the slots, open and active ones each, that no other class may take. At least one class.
    pub minimums: Vec<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options { policy: Policy::Wait, grace: Nanos(0), minimums: vec![0] }
    }
}

/// Why a budget cannot be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// There is no class, or more than 256.
    #[error("{classes} classes of writers; 1 to 256 can be kept apart")]
    Classes {
        /// How many.
        classes: usize,
    },
    /// The classes' minimums are more than there is.
    #[error("the classes' minimums make {minimums} slots, the drive has {limit}")]
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

/// How full a zone is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Sectors written.
    pub written: u32,
    /// Sectors that can be written.
    pub capacity: u32,
}

impl Fill {
    /// A zone fuller than this, in percent, may be finished to make room. What is lost by it stays below a twentieth.
    pub const FINISH_ABOVE_PERCENT: u64 = 95;

    /// Whether the zone may be finished to make room for another.
    pub const fn is_nearly_full(self) -> bool {
        self.written as u64 * 100 > self.capacity as u64 * Fill::FINISH_ABOVE_PERCENT
    }
}

/// A wait that nothing under way can end, or that the policy does not allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The zone that did not get its slot.
    pub zone: ZoneIndex,
    /// The zones that hold what it lacks, in ascending order: the open ones, or all active ones if it lacks an active slot.
    pub holders: Vec<ZoneIndex>,
}
