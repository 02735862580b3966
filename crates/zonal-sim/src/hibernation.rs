//! Hibernation of the link between host and drive, as of a UFS device with auto-hibernation.
//!
//! A link without commands goes to sleep after some time. The next command wakes it. Commands that
//! are submitted while it wakes up wait for its end; some host controllers then pass them on in
//! another order, so that even a queue that preserves order does not.

use crate::model::{Span, Tag};
use std::collections::VecDeque;
use zonal_core::Nanos;
use zonal_io::device::Command;
use zonal_io::fault::shuffle;

/// Parameters of hibernation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hibernation {
    /// Time without commands after which the link sleeps.
    pub after: Span,
    /// Time to wake up.
    pub wake: Span,
    /// True if commands that waited for the end of hibernation reach the drive in another order.
    pub reorders: bool,
}

/// A command that waits for the link.
pub(crate) type Held = (Tag, usize, Command);

/// A link that hibernates.
pub(crate) struct Link {
    options: Hibernation,
    /// Last completion of a command.
    idle_since: Nanos,
    /// End of waking up, while that is in progress.
    waking: Option<Nanos>,
    /// Commands that wait, in order of submission until the link is awake.
    held: VecDeque<Held>,
    /// Number of times that the link woke up: the seed of the order.
    wakes: u64,
}

impl Link {
    pub(crate) fn new(options: Hibernation) -> Link {
        Link { options, idle_since: Nanos(0), waking: None, held: VecDeque::new(), wakes: 0 }
    }

    /// A command has completed.
    pub(crate) fn completed(&mut self, at: Nanos) {
        self.idle_since = self.idle_since.max(at);
    }

    /// Holds a command submitted now if the link is not awake. Returns `true` if it does.
    pub(crate) fn holds(&mut self, now: Nanos, has_no_commands: bool, command: Held) -> bool {
        let idle = now.0.saturating_sub(self.idle_since.0);
        if has_no_commands && idle >= self.options.after {
            self.waking = Some(Nanos(now.0 + self.options.wake));
        }
        // Later ones stay behind those that the inner device was too busy for.
        let is_held = self.waking.is_some() || !self.held.is_empty();
        if is_held {
            self.held.push_back(command);
        }
        is_held
    }

    /// Time at which commands can be passed on, if any wait.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.waking.or((!self.held.is_empty()).then_some(self.idle_since))
    }

    /// Called when commands can be passed on. If the link has just woken up, determines their order.
    pub(crate) fn open(&mut self) {
        if self.waking.take().is_some() && self.options.reorders {
            shuffle(self.wakes, self.held.make_contiguous());
            self.wakes += 1;
        }
    }

    /// Command to pass on next.
    pub(crate) fn first(&self) -> Option<Held> {
        self.held.front().copied()
    }

    /// The first command has been passed on.
    pub(crate) fn passed(&mut self) {
        self.held.pop_front();
    }
}
