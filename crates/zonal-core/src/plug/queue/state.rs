//! The states of a plug: what is asked about its zone, for what the zone is made quiet, and what comes of both.

use super::Queue;
use crate::plug::word::Word;

/// What is asked about a zone. One question at a time: each answer decides what is asked next.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::plug) enum Inquiry {
    /// Nothing. If the pointer is not known, the device is asked once nothing is in flight.
    #[default]
    None,
    /// The device is asked where the zone stands.
    Report {
        /// Something has happened to the zone since: the answer does not count.
        is_outdated: bool,
    },
    /// The device is asked to see to it that no command that timed out is executed any more.
    Settle,
    /// What a failed write may have left is being read back.
    ReadBack {
        /// Where that write ends, in sectors from the zone's start.
        end: u32,
    },
    /// The device could not answer, and no request has come since: asking again would spin.
    GaveUp,
}

impl Inquiry {
    /// A request or news has come: the device is worth asking again.
    pub(super) fn renew(&mut self) {
        if *self == Inquiry::GaveUp {
            *self = Inquiry::None;
        }
    }

    /// Whether the device was asked where the zone stands.
    pub(in crate::plug) fn is_report(self) -> bool {
        matches!(self, Inquiry::Report { .. })
    }
}

/// For what a zone is made quiet, and how far that is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::plug) enum Hold {
    /// For nothing.
    #[default]
    None,
    /// For a reset of all zones: what waited was aborted.
    Reset {
        /// How many of the first requests came before that and go first.
        ahead: usize,
    },
    /// For a switch of the mode: what waits stays, for afterwards.
    Switch,
    /// It is quiet, until it is released.
    Quiet {
        /// Whether for a switch.
        keeps: bool,
    },
}

impl Hold {
    /// Whether a thread wants the zone quiet.
    pub(in crate::plug) fn is_wanted(self) -> bool {
        self != Hold::None
    }

    /// Whether nothing goes out any more before the zone is released.
    #[inline]
    pub(super) fn is_due(self) -> bool {
        !matches!(self, Hold::None | Hold::Reset { ahead: 1.. })
    }

    /// Whether what waits stays for afterwards.
    pub(in crate::plug) fn keeps(self) -> bool {
        matches!(self, Hold::Switch | Hold::Quiet { keeps: true })
    }

    /// How many requests go first.
    pub(in crate::plug) fn ahead(self) -> usize {
        if let Hold::Reset { ahead } = self { ahead } else { 0 }
    }

    /// Sets how many requests go first, where any do.
    #[inline]
    pub(super) fn set_ahead(&mut self, change: impl FnOnce(usize) -> usize) {
        if let Hold::Reset { ahead } = self {
            *ahead = change(*ahead);
        }
    }
}

/// The state of a plug.
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
    /// The pointer is not known, and something is in flight.
    Recovering,
    /// The device is asked where the zone stands.
    Asking,
    /// The device settles commands that timed out.
    Settling,
    /// What a failed write may have left is being read back.
    ReadingBack,
    /// The device could not say where the zone stands, and no request has come since.
    Unknown,
    /// A management command is at the device.
    Frozen,
    /// A thread wants the zone quiet, which it is not yet.
    Holding,
    /// The zone is quiet for a switch or a reset of all zones.
    Held,
}

impl PlugState {
    /// The state of a plug without a queue: no request waits.
    fn of_word(word: Word) -> PlugState {
        match (word.in_flight(), word.appending(), word.issuing()) {
            (_, _, true) => PlugState::Issuing,
            (0, _, _) => PlugState::Idle,
            (_, false, _) => PlugState::Writing,
            (_, true, _) => PlugState::Appending,
        }
    }

    /// In small letters, as the graphs name it.
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
    /// The state of the plug with this word.
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
