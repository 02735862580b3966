//! Budget state of one zone.

use super::options::WriterClass;
use super::slots::Tally;
use super::waiters::Arrival;
use crate::device::Needs;
use crate::units::Nanos;
use crate::zone::ZoneCondition;

/// Slots that a zone holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    Nothing,
    /// An active slot. The zone is closed.
    Active,
    /// An active slot and an open one.
    Open,
}

impl Held {
    pub fn of(condition: ZoneCondition) -> Held {
        match (condition.is_open(), condition.is_active()) {
            (true, _) => Held::Open,
            (false, true) => Held::Active,
            (false, false) => Held::Nothing,
        }
    }
}

/// Operation that releases a zone's slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    Closing,
    Finishing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    /// Class that the slots are charged to: the first to ask for them.
    pub class: WriterClass,
    pub held: Held,
    /// Opened by a command, so it must not be closed to make room.
    pub explicit: bool,
    /// Writes started and not ended. For an observed zone, 1 while it is busy.
    pub writes: u32,
    /// Sectors written at the last observation.
    pub written: u32,
    /// Cannot be closed or finished in its present state.
    pub stuck: bool,
    /// Slots held before a grant that is not used yet.
    pub reserved: Option<Held>,
    /// Being closed or finished on behalf of this class.
    pub leaving: Option<(Leaving, WriterClass)>,
    pub nearly_full: bool,
    /// Time of last use, by the budget's counter.
    pub used: u64,
    /// In line; or, while the zone is being closed or finished, about to join it.
    pub waiting: Option<(Arrival, Nanos)>,
}

impl Holding {
    pub const fn new(class: WriterClass) -> Holding {
        Holding {
            class,
            held: Held::Nothing,
            explicit: false,
            writes: 0,
            written: 0,
            stuck: false,
            reserved: None,
            leaving: None,
            nearly_full: false,
            used: 0,
            waiting: None,
        }
    }

    pub fn is_busy(&self) -> bool {
        self.writes > 0 || self.reserved.is_some()
    }

    /// Slots needed to write the zone.
    pub fn needs(&self) -> Needs {
        match self.held {
            Held::Nothing => Needs::ActiveAndOpen,
            Held::Active => Needs::Open,
            Held::Open => Needs::Nothing,
        }
    }

    pub fn is_forgotten(&self) -> bool {
        self.held == Held::Nothing && self.waiting.is_none()
    }

    fn may_leave(&self) -> bool {
        !self.is_busy() && !self.explicit && !self.stuck && self.leaving.is_none() && self.waiting.is_none()
    }

    pub fn may_close(&self) -> bool {
        self.held == Held::Open && self.may_leave()
    }

    pub fn may_finish(&self) -> bool {
        self.held != Held::Nothing && self.nearly_full && self.may_leave()
    }

    /// Contribution to the class's tally.
    pub fn tally(&self) -> Tally {
        let open = self.held == Held::Open;
        let leaving = self.leaving.map(|(leaving, _)| leaving);
        let finishing = leaving == Some(Leaving::Finishing);
        Tally {
            open: open.into(),
            active: (self.held != Held::Nothing).into(),
            busy: self.is_busy().into(),
            closing: (leaving == Some(Leaving::Closing)).into(),
            finishing_open: (finishing && open).into(),
            finishing: finishing.into(),
        }
    }
}
