//! Open and active resources over all zones of a device.

use super::machine::Needs;
use crate::error::ZoneError;
use crate::geometry::{Geometry, GeometryError};
use crate::units::ZoneIndex;
use crate::zone::ZoneCondition;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Open and active limits in effect; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Largest number of open zones.
    pub open_max: u32,
    /// Largest number of active zones.
    pub active_max: u32,
}

impl Limits {
    /// The effect of limits as a device states them on `geometry`; see [`Geometry::limits`].
    ///
    /// # Errors
    /// [`GeometryError::OpenAboveActive`].
    pub fn new(geometry: &Geometry, open_max: u32, active_max: u32) -> Result<Limits, GeometryError> {
        let (open_max, active_max) = geometry.limits(open_max, active_max)?;
        Ok(Limits { open_max, active_max })
    }

    /// Whether nothing is limited, so that nothing has to be counted.
    pub const fn is_none(&self) -> bool {
        self.open_max == 0 && self.active_max == 0
    }
}

/// Who holds open and active resources.
///
/// Owned by the caller that changes conditions: every change has to come through [`Resources::moved`], and between
/// [`Resources::admit`] and the change it allows nothing else may move.
#[derive(Clone, Debug)]
pub struct Resources {
    limits: Limits,
    /// Implicitly open zones, from which victims are taken. Never larger than the open limit, if there is one.
    implicit: BTreeSet<u32>,
    explicit: u32,
    closed: u32,
    /// The last victim: the search for the next one begins after it, so that all take their turn.
    last_victim: u32,
}

impl Resources {
    /// With no zone active.
    pub const fn new(limits: Limits) -> Resources {
        // The first search then begins at zone 0.
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

    /// Whether a zone may take `needs`, and which implicitly open zone has to be closed first.
    ///
    /// A closed zone that is opened again is active already: it needs an open resource only, also when all active ones
    /// are taken.
    ///
    /// # Errors
    /// [`ZoneError::TooManyActive`], then [`ZoneError::TooManyOpen`]. Where both limits are equal an empty zone
    /// therefore always meets the active one.
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

    /// The implicitly open zone whose turn it is to be closed.
    fn victim(&self) -> Option<ZoneIndex> {
        let behind = (Bound::Excluded(self.last_victim), Bound::Unbounded);
        let next = self.implicit.range(behind).next();
        next.or_else(|| self.implicit.first()).map(|&z| ZoneIndex(z))
    }

    /// Whether every closed zone can be opened at once without closing another.
    pub fn can_open_closed(&self) -> bool {
        self.limits.open_max == 0 || self.active() <= self.limits.open_max
    }

    /// `zone` went from one condition to another.
    ///
    /// # Panics
    /// If a counter would fall below zero: the zone was not counted under `from`.
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

    /// `zone`, which [`Resources::admit`] named, was closed and is now in condition `to`.
    pub fn evicted(&mut self, zone: ZoneIndex, to: ZoneCondition) {
        self.moved(zone, ZoneCondition::ImpOpen, to);
        self.last_victim = zone.0;
    }

    /// Compares the counters with the conditions of all zones, zone 0 first.
    ///
    /// # Errors
    /// What was counted and what there is.
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
