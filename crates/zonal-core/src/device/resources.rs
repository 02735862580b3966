//! Open and active resources over all zones of a device.

use super::machine::Needs;
use crate::error::ZoneError;
use crate::geometry::{Geometry, GeometryError};
use crate::units::ZoneIndex;
use crate::zone::ZoneCondition;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Effective open and active limits. 0: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Maximum number of open zones.
    pub open_max: u32,
    /// Maximum number of active zones.
    pub active_max: u32,
}

impl Limits {
    /// Effective limits for those reported by a device with `geometry`; see [`Geometry::limits`].
    ///
    /// # Errors
    /// [`GeometryError::OpenAboveActive`].
    pub fn new(geometry: &Geometry, open_max: u32, active_max: u32) -> Result<Limits, GeometryError> {
        let (open_max, active_max) = geometry.limits(open_max, active_max)?;
        Ok(Limits { open_max, active_max })
    }

    /// True if there is no limit, so that counting is unnecessary.
    pub const fn is_none(&self) -> bool {
        self.open_max == 0 && self.active_max == 0
    }
}

/// Open and active resources in use.
///
/// Owned by the code that changes conditions: every change must go through [`Resources::moved`],
/// and no other change may be made between [`Resources::admit`] and the change it allows.
#[derive(Clone, Debug)]
pub struct Resources {
    limits: Limits,
    /// Implicitly open zones, the candidates for eviction. At most as many as the open limit, if
    /// there is one.
    implicit: BTreeSet<u32>,
    explicit: u32,
    closed: u32,
    /// Last victim. The search for the next one starts behind it, for a round-robin order.
    last_victim: u32,
}

impl Resources {
    /// Creates an account without active zones.
    pub const fn new(limits: Limits) -> Resources {
        // The first search starts at zone 0.
        Resources { limits, implicit: BTreeSet::new(), explicit: 0, closed: 0, last_victim: u32::MAX }
    }

    /// The limits.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Number of open zones.
    pub fn open(&self) -> u32 {
        self.implicit.len() as u32 + self.explicit
    }

    /// Number of active zones.
    pub fn active(&self) -> u32 {
        self.open() + self.closed
    }

    /// Number of implicitly open, explicitly open and closed zones.
    pub fn counts(&self) -> (u32, u32, u32) {
        (self.implicit.len() as u32, self.explicit, self.closed)
    }

    /// Returns the implicitly open zone to close first, if any, so that a zone can take `needs`.
    ///
    /// A closed zone is already active: it needs only an open resource, even when all active ones
    /// are in use.
    ///
    /// # Errors
    /// [`ZoneError::TooManyActive`], then [`ZoneError::TooManyOpen`]. If both limits are equal, an
    /// empty zone therefore always fails on the active one.
    pub fn admit(&self, needs: Needs) -> Result<Option<ZoneIndex>, ZoneError> {
        match needs {
            Needs::Nothing => return Ok(None),
            Needs::ActiveAndOpen | Needs::Active if self.active_is_exhausted() => {
                return Err(ZoneError::TooManyActive);
            }
            Needs::Active => return Ok(None),
            Needs::ActiveAndOpen | Needs::Open => {}
        }
        if self.limits.open_max == 0 || self.open() < self.limits.open_max {
            return Ok(None);
        }
        self.victim().map(Some).ok_or(ZoneError::TooManyOpen)
    }

    fn active_is_exhausted(&self) -> bool {
        self.limits.active_max != 0 && self.active() >= self.limits.active_max
    }

    /// Next victim among the implicitly open zones.
    fn victim(&self) -> Option<ZoneIndex> {
        let behind = (Bound::Excluded(self.last_victim), Bound::Unbounded);
        let next = self.implicit.range(behind).next();
        next.or_else(|| self.implicit.first()).map(|&z| ZoneIndex(z))
    }

    /// True if all closed zones can be opened at once without evicting another.
    pub fn can_open_closed(&self) -> bool {
        self.limits.open_max == 0 || self.active() <= self.limits.open_max
    }

    /// Records a change of condition.
    ///
    /// # Panics
    /// If `zone` was not counted under `from`.
    pub fn moved(&mut self, zone: ZoneIndex, from: ZoneCondition, to: ZoneCondition) {
        if from == to {
            return;
        }
        match from {
            ZoneCondition::ImpOpen => assert!(self.implicit.remove(&zone.0), "zone {zone} was not counted"),
            ZoneCondition::ExpOpen => self.explicit = less_one(self.explicit),
            ZoneCondition::Closed => self.closed = less_one(self.closed),
            _ => {}
        }
        match to {
            ZoneCondition::ImpOpen => assert!(self.implicit.insert(zone.0), "zone {zone} counted twice"),
            ZoneCondition::ExpOpen => self.explicit += 1,
            ZoneCondition::Closed => self.closed += 1,
            _ => {}
        }
    }

    /// Records that `zone`, the victim of [`Resources::admit`], was closed and is now in condition
    /// `to`.
    pub fn evicted(&mut self, zone: ZoneIndex, to: ZoneCondition) {
        self.moved(zone, ZoneCondition::ImpOpen, to);
        self.last_victim = zone.0;
    }

    /// Compares the counters with the conditions of all zones, zone 0 first.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&self, conditions: impl IntoIterator<Item = ZoneCondition>) -> Result<(), String> {
        let (mut implicit, mut explicit, mut closed) = (BTreeSet::new(), 0, 0);
        for (zone, condition) in (0..).zip(conditions) {
            match condition {
                ZoneCondition::ImpOpen => drop(implicit.insert(zone)),
                ZoneCondition::ExpOpen => explicit += 1,
                ZoneCondition::Closed => closed += 1,
                _ => {}
            }
        }
        let counted = (&self.implicit, self.explicit, self.closed);
        let found = (&implicit, explicit, closed);
        if counted != found {
            return Err(format!("counted (implicit, explicit, closed) {counted:?}, found {found:?}"));
        }
        let Limits { open_max, active_max } = self.limits;
        if open_max != 0 && self.open() > open_max || active_max != 0 && self.active() > active_max {
            return Err(format!("{found:?} exceeds the limits {open_max} open, {active_max} active"));
        }
        Ok(())
    }
}

fn less_one(count: u32) -> u32 {
    count.checked_sub(1).expect("a zone leaves a condition it was counted under")
}
