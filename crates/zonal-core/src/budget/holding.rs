//! What the budget knows of one zone.

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
    /// An active slot: the zone is closed.
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

/// How a zone is made to give back slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    Closing,
    Finishing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    /// Whose slots they are: those of the class that asked first.
    pub class: WriterClass,
    pub held: Held,
    /// Opened by a command. Who did that wants it open.
    pub explicit: bool,
    /// Writes that have started and not ended; of an observed zone 1 while it is busy.
    pub writes: u32,
    /// Sectors written when it was last looked at.
    pub written: u32,
    /// It cannot be closed or finished as it is.
    pub stuck: bool,
    /// Granted and not used yet: what was held before.
    pub reserved: Option<Held>,
    /// Being closed or finished, for this class.
    pub leaving: Option<(Leaving, WriterClass)>,
    pub nearly_full: bool,
    /// Order of use.
    pub used: u64,
    /// In line, or, while it is leaving, about to be.
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

    /// What it needs to be written.
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

    /// What it adds to its class.
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
