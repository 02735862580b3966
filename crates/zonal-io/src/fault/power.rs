//! Power cuts: what becomes of everything that is under way.
//!
//! The wrapped device keeps its power: what it has taken it carries out, and it forgets nothing. What the host sees is
//! the difference: nothing that was under way is ever confirmed.

use super::flight::Whom;
use super::rule::InFlight;
use super::state::FaultState;
use crate::device::Context;
use zonal_core::{DeviceError, Nanos};

impl FaultState {
    /// Cuts power.
    pub(super) fn cut(&mut self, policy: InFlight) {
        self.off = Some(policy);
        self.was_cut = true;
        self.changes.gone = true;
        self.attention = 0;
        self.late.clear();
        self.unsettled.clear();
        let mut ends = Vec::new();
        for (number, queue) in self.queues.iter_mut().enumerate() {
            ends.extend(std::mem::take(&mut queue.ready).into_values().map(|r| (number, r.context)));
            let hosts = queue.outbox.drain(..).filter_map(|f| f.whom.into_host());
            ends.extend(hosts.map(|h| (number, h.context)));
        }
        for window in self.windows.drain(..) {
            let hosts = window.commands.into_iter().filter_map(|f| f.whom.into_host());
            ends.extend(hosts.map(|h| (h.queue, h.context)));
            ends.extend(window.answers.into_iter().map(|r| (window.queue, r.context)));
        }
        for flight in self.flights.iter_mut() {
            if let Whom::Host(host) | Whom::ResetAll(host, _) = &mut flight.whom {
                // The wrapped device may still use its bytes: it ends with the device's answer.
                host.is_cut = true;
            }
        }
        self.cut_as = policy;
        ends.into_iter().for_each(|(queue, context)| self.gone(queue, context));
    }

    /// Ends a command that was under way when power was cut.
    pub(super) fn gone(&mut self, queue: usize, context: Context) {
        match self.cut_as {
            InFlight::Lose => self.lost.push(context),
            InFlight::Fail => self.add_answer(Nanos(0), queue, context, Err(DeviceError::Gone)),
        }
    }
}
