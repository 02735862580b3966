//! Late execution of timed-out commands, and how a host rules it out by settling.

use super::flight::{LateCommand, Recipient, Scope};
use super::rule::Late;
use super::state::{FaultState, later};
use crate::device::Settled;
use zonal_core::{DeviceError, Nanos, ZoneIndex};

/// Time until a zone's timed-out commands are settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settling {
    /// This long after the host's first request.
    After(Nanos),
    /// Never: the device cannot tell.
    Never,
}

impl Default for Settling {
    fn default() -> Settling {
        Settling::After(Nanos(0))
    }
}

impl FaultState {
    /// Executes the late commands selected by `is_time`, in order of arrival.
    pub(super) fn run_late(&mut self, now: Nanos, is_time: impl Fn(&LateCommand) -> bool) {
        while let Some(at) = self.late.iter().position(&is_time) {
            let late = self.late.remove(at);
            let command = late.command();
            let is_refused = self.degraded.refuses(&self.geometry, command).is_some();
            if !is_refused && !self.reaches_degraded(command) {
                self.send_on(now, late.flight());
            }
        }
    }

    /// Implements [`crate::device::Device::settle`].
    pub(super) fn settle(&mut self, now: Nanos, zone: ZoneIndex) -> Settled {
        if self.off.is_some() {
            return Settled::Never(DeviceError::Gone);
        }
        (0..self.queues.len()).for_each(|queue| self.issue_held(now, queue));
        let own = match self.settling {
            _ if !self.is_unsettled(zone) => Settled::Yes,
            Settling::Never => Settled::Never(DeviceError::Aborted),
            Settling::After(time) => self.settle_after(now, zone, time),
        };
        match own {
            Settled::Yes => self.inner.settle(now, zone),
            other => other,
        }
    }

    fn is_unsettled(&self, zone: ZoneIndex) -> bool {
        self.unsettled.contains_key(&Some(zone)) || self.unsettled.contains_key(&None)
    }

    fn settle_after(&mut self, now: Nanos, zone: ZoneIndex, time: Nanos) -> Settled {
        let concerns = |about: Scope| about.is_none_or(|z| z == zone);
        let mut due = now;
        for (_, asked) in self.unsettled.iter_mut().filter(|(about, _)| concerns(**about)) {
            due = due.max(later(*asked.get_or_insert(now), time));
        }
        if due > now {
            return Settled::NotYet(Some(due));
        }
        let is_meant = move |late: &LateCommand| late.told.is_some() && concerns(late.scope);
        self.run_late(now, |late| is_meant(late) && late.when == Late::AtSettle);
        self.late.retain(|late| !is_meant(late));
        let is_on_its_way =
            |recipient: &Recipient| matches!(recipient, Recipient::Late(about) if concerns(*about));
        let waiting = self.queues.iter().flat_map(|q| &q.outbox);
        if self.flights.iter().chain(waiting).any(|f| is_on_its_way(&f.recipient)) {
            return Settled::NotYet(None);
        }
        self.unsettled.retain(|about, _| !concerns(*about));
        Settled::Yes
    }
}
