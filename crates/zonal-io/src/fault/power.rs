//! Power cuts, and the fate of everything in flight.
//!
//! The wrapped device keeps its power: it executes all commands it has accepted and loses nothing.
//! Only the host sees the cut: nothing in flight is ever acknowledged.

use super::flight::Recipient;
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
            let hosts = queue.outbox.drain(..).filter_map(|f| f.recipient.into_host());
            ends.extend(hosts.map(|h| (number, h.context)));
        }
        for window in self.windows.drain(..) {
            let hosts = window.commands.into_iter().filter_map(|f| f.recipient.into_host());
            ends.extend(hosts.map(|h| (h.queue, h.context)));
            ends.extend(window.answers.into_iter().map(|r| (window.queue, r.context)));
        }
        for flight in self.flights.iter_mut() {
            if let Recipient::Host(host) | Recipient::ResetAll(host, _) = &mut flight.recipient {
                // The wrapped device may still access its bytes, so it ends with the device's
                // answer.
                host.is_cut = true;
            }
        }
        self.cut_as = policy;
        ends.into_iter().for_each(|(queue, context)| self.fail_in_flight(queue, context));
    }

    /// Ends a command that was in flight when power was cut.
    pub(super) fn fail_in_flight(&mut self, queue: usize, context: Context) {
        match self.cut_as {
            InFlight::Lose => self.lost.push(context),
            InFlight::Fail => self.add_answer(Nanos(0), queue, context, Err(DeviceError::Gone)),
        }
    }
}
