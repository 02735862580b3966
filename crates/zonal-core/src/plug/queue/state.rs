//! States of a plug: the pending question about its zone, the reason for making it quiet, and the
//! combination of both.

use super::Queue;
use crate::plug::word::Word;

/// Pending question about a zone. At most one at a time, since each answer determines the next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::plug) enum Inquiry {
    /// None. If the pointer is unknown, the device is asked once nothing is in flight.
    #[default]
    None,
    /// The device is asked for the zone's state.
    Report {
        /// The zone has changed since, so the answer is ignored.
        is_outdated: bool,
    },
    /// The device is asked to settle the timed-out commands.
    Settle,
    /// The remains of a failed write are being read back.
    ReadBack {
        /// End of that write, in sectors from the zone's start.
        end: u32,
    },
    /// The device could not answer, and no request has arrived since. Asking again at once would be
    /// a busy loop.
    GaveUp,
}

impl Inquiry {
    /// Allows the device to be asked again, because a request or an event has arrived.
    pub(super) fn renew(&mut self) {
        if *self == Inquiry::GaveUp {
            *self = Inquiry::None;
        }
    }

    /// True if the device is asked for the zone's state.
    pub(in crate::plug) fn is_report(self) -> bool {
        matches!(self, Inquiry::Report { .. })
    }
}

/// Reason for making a zone quiet, and the progress.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::plug) enum Hold {
    /// Not wanted.
    #[default]
    None,
    /// For a reset of all zones. Waiting writes were aborted.
    Reset {
        /// Number of earlier requests still to be issued first.
        ahead: usize,
    },
    /// For a switch of the write mode. Waiting requests are kept.
    Switch,
    /// The zone is quiet until it is released.
    Quiet {
        /// True for a switch.
        keeps: bool,
    },
}

impl Hold {
    /// True if the zone is to become or stay quiet.
    pub(in crate::plug) fn is_wanted(self) -> bool {
        self != Hold::None
    }

    /// True if nothing more is issued until the zone is released.
    #[inline]
    pub(super) fn is_due(self) -> bool {
        !matches!(self, Hold::None | Hold::Reset { ahead: 1.. })
    }

    /// True if waiting requests are kept.
    pub(in crate::plug) fn keeps(self) -> bool {
        matches!(self, Hold::Switch | Hold::Quiet { keeps: true })
    }

    /// Number of requests still to be issued first.
    pub(in crate::plug) fn ahead(self) -> usize {
        if let Hold::Reset { ahead } = self { ahead } else { 0 }
    }

    /// Changes the number of requests to be issued first, if the reason has one.
    #[inline]
    pub(super) fn set_ahead(&mut self, change: impl FnOnce(usize) -> usize) {
        if let Hold::Reset { ahead } = self {
            *ahead = change(*ahead);
        }
    }
}

/// State of a plug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PlugState {
    /// Nothing is in flight, and no request waits.
    Idle,
    /// Positional writes are in flight, and no request waits.
    Writing,
    /// A write of a window is being submitted to the device.
    Issuing,
    /// Native appends are in flight, and no request waits.
    Appending,
    /// Requests wait.
    Waiting,
    /// The pointer is unknown, and commands are in flight.
    Recovering,
    /// The device is asked for the zone's state.
    Asking,
    /// The device is settling timed-out commands.
    Settling,
    /// The remains of a failed write are being read back.
    ReadingBack,
    /// The device could not report the zone's state, and no request has arrived since.
    Unknown,
    /// A management command is at the device.
    Frozen,
    /// The zone is to become quiet, but is not yet.
    Holding,
    /// The zone is quiet for a switch or a reset of all zones.
    Held,
}

impl PlugState {
    /// State of a plug without waiting requests.
    fn of_word(word: Word) -> PlugState {
        match (word.in_flight(), word.appending(), word.issuing()) {
            (_, _, true) => PlugState::Issuing,
            (0, _, _) => PlugState::Idle,
            (_, false, _) => PlugState::Writing,
            (_, true, _) => PlugState::Appending,
        }
    }

    /// Name in the graphs, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            PlugState::Idle => "idle",
            PlugState::Writing => "writing",
            PlugState::Issuing => "issuing",
            PlugState::Appending => "appending",
            PlugState::Waiting => "waiting",
            PlugState::Recovering => "recovering",
            PlugState::Asking => "asking",
            PlugState::Settling => "settling",
            PlugState::ReadingBack => "reading-back",
            PlugState::Unknown => "unknown",
            PlugState::Frozen => "frozen",
            PlugState::Holding => "holding",
            PlugState::Held => "held",
        }
    }
}

impl<T> Queue<T> {
    /// State of the plug with this word.
    pub fn state(&self, word: Word) -> PlugState {
        match (self.hold, self.inquiry) {
            _ if !word.waits() => PlugState::of_word(word),
            (Hold::Quiet { .. }, _) => PlugState::Held,
            _ if word.frozen() => PlugState::Frozen,
            (_, Inquiry::Report { .. }) => PlugState::Asking,
            (_, Inquiry::Settle) => PlugState::Settling,
            (_, Inquiry::ReadBack { .. }) => PlugState::ReadingBack,
            (Hold::Reset { .. } | Hold::Switch, _) => PlugState::Holding,
            (Hold::None, Inquiry::GaveUp) => PlugState::Unknown,
            (Hold::None, Inquiry::None) if word.recovers() => PlugState::Recovering,
            (Hold::None, Inquiry::None) => PlugState::Waiting,
        }
    }
}
