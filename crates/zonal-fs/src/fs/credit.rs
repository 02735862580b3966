//! Space, asked for before anything is written.

use super::core::{Core, Shared};
use super::error::FsError;
use super::seat::Seat;
use super::waiting::WaitsFor;
use crate::space::cost::Need;
use crate::space::credits::{Answer, Refusal, Ticket};
use crate::space::{Reservation, Urgency};
use crate::waiter::Waiter;

impl Shared {
    /// Reserves what a unit of up to `blocks` data blocks takes, and waits in line for it. A thread that waits collects if
    /// no other thread does.
    pub(super) fn reserve(&self, waiter: &dyn Waiter, blocks: u32) -> Result<Reservation, FsError> {
        let ticket = {
            let mut core = self.lock();
            let most = u64::from(blocks).min(core.credit.user().extents).max(1);
            match core.credit.reserve(need(most), Urgency::Wait) {
                Ok(reservation) => return Ok(reservation),
                Err(Refusal::NoSpace) => return Err(FsError::NoSpace),
                Err(Refusal::WouldWait) => return Err(FsError::WouldWait),
                Err(Refusal::Queued(ticket)) => ticket,
            }
        };
        let begin = waiter.now();
        let granted = self.wait_in_line(waiter, ticket);
        let mut core = self.core.lock();
        let stalled = waiter.now().0.saturating_sub(begin.0);
        core.statistics.stalls += 1;
        core.statistics.stalled_nanos += stalled;
        core.statistics.stall_nanos_max = core.statistics.stall_nanos_max.max(stalled);
        granted
    }

    /// Reserves a whole zone for the metadata store; `None` if users have less.
    pub(super) fn reserve_zone(&self, waiter: &dyn Waiter) -> Result<Option<Reservation>, FsError> {
        let need = self.need_of_zone();
        let ticket = match self.lock().credit.reserve(need, Urgency::Wait) {
            Ok(reservation) => return Ok(Some(reservation)),
            Err(Refusal::NoSpace | Refusal::WouldWait) => return Ok(None),
            Err(Refusal::Queued(ticket)) => ticket,
        };
        match self.wait_in_line(waiter, ticket) {
            Err(FsError::NoSpace) => Ok(None),
            other => other.map(Some),
        }
    }

    fn wait_in_line(&self, waiter: &dyn Waiter, mut ticket: Ticket) -> Result<Reservation, FsError> {
        let mut seat = Seat::new(self, waiter, WaitsFor::Space(ticket.number()));
        loop {
            let mut core = self.lock();
            if let Err(dead) = core.check_alive() {
                core.credit.abandon(ticket);
                seat.leave(&mut core);
                return Err(dead);
            }
            match core.credit.state(ticket) {
                Answer::Granted(reservation) => {
                    seat.leave(&mut core);
                    return Ok(reservation);
                }
                Answer::NoSpace => {
                    seat.leave(&mut core);
                    return Err(FsError::NoSpace);
                }
                Answer::Waiting(again) => ticket = again,
            }
            if !seat.should_step(&core) {
                seat.wait(core);
                continue;
            }
            seat.step_out(core);
            self.resend(waiter);
            match self.background_step(waiter) {
                Ok(true) => {}
                Ok(false) => seat.found_no_step(),
                Err(error) => {
                    self.core.lock().credit.abandon(ticket);
                    return Err(error);
                }
            }
        }
    }
}

/// What a unit of `blocks` data blocks takes.
fn need(blocks: u64) -> Need {
    Need { extents: blocks, available: blocks + 1 }
}

impl Core {
    /// Hands out room that was reserved.
    pub(super) fn spend(
        &mut self,
        reservation: &mut Reservation,
        extents: u64,
        available: u64,
    ) -> Result<(), FsError> {
        let need = Need { extents, available };
        self.credit.spend(reservation, need).map_err(|e| FsError::Account(e.to_string()))
    }

    /// Counts room that was handed out without a reservation: for a unit that failed.
    pub(super) fn room_lost(&mut self, blocks: u32) {
        self.credit.lost(Need { extents: 0, available: blocks.into() });
    }
}
