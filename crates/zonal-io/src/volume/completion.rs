//! Decisions after the completion of a request's command, without access to a zone or a device.

use super::pending::{PendingRequest, RequestStage};
use super::retry::{RETRIES_MAX, is_retryable, is_transient};
use super::terms::Terms;
use zonal_core::{DeviceError, Op};

/// Next step after a command that succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NextStep {
    /// Issue the request's next command.
    Next,
    /// Cancelled by its caller between two commands.
    Cancelled,
    /// The drive has a volatile cache but no FUA: flush to make the write durable. The zone's next
    /// write does not wait for this.
    Flush,
    /// The request is complete.
    End,
}

/// Next step after a command that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FailureAction {
    /// Resubmit at once, in another form.
    Send,
    /// Cancelled by its caller, which may have caused the error.
    Cancelled,
    /// Retry later; the number of this retry.
    Later(u8),
    /// End the request with the error; for a write through a plug, recovery first finds out whether
    /// it was executed.
    End,
}

impl Terms {
    /// Decides after a successful command of `pending`. Its cancellation mark is checked only if
    /// `is_cancelling`, that is, while any request is being cancelled.
    pub(super) fn next_step(&self, pending: &mut PendingRequest, is_cancelling: bool) -> NextStep {
        let in_main = pending.stage != RequestStage::FlushBehind;
        if in_main && (pending.op.has_range() || pending.op == Op::Append) {
            pending.done += self.next_sectors(pending);
            if pending.op.is_read() {
                // Each piece of a long read has its own retries.
                pending.rounds = 0;
            }
            if pending.done < pending.sectors {
                return if is_cancelling && pending.is_cancelled() {
                    NextStep::Cancelled
                } else {
                    NextStep::Next
                };
            }
        }
        let is_cached = in_main && self.info.volatile_cache && !self.info.fua;
        if is_cached && pending.op.is_write() && pending.fua { NextStep::Flush } else { NextStep::End }
    }
}

/// Decides after a command of `pending` failed with `error`. `is_cancelling` as in
/// [`Terms::next_step`].
pub(super) fn failure_action(
    pending: &mut PendingRequest,
    error: DeviceError,
    is_cancelling: bool,
) -> FailureAction {
    let is_first = pending.stage == RequestStage::Main && pending.done == 0;
    if error == DeviceError::Unsupported && pending.op == Op::WriteZeroes && is_first {
        // Nothing was executed; resubmit as ordinary writes of zeroes.
        pending.stage = RequestStage::ZeroesAsWrites;
        return FailureAction::Send;
    }
    if pending.plugged {
        return FailureAction::End;
    }
    if is_cancelling && pending.is_cancelled() && is_transient(error) {
        return FailureAction::Cancelled;
    }
    if pending.rounds < RETRIES_MAX && is_retryable(pending.op, error) {
        pending.rounds += 1;
        return FailureAction::Later(pending.rounds);
    }
    FailureAction::End
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulated::{Emulated, EmulatedOptions, Null};
    use crate::volume::pending::Owner;
    use crate::volume::{Volume, VolumeOptions, channel::ChannelRef};
    use std::sync::Arc;
    use zonal_core::Nanos;

    #[test]
    fn request_longer_than_a_command_has_a_next_one_until_all_is_done() {
        let terms = Terms::of_drive(|_| {});
        for op in [Op::Read, Op::Write] {
            let mut pending = PendingRequest::unused();
            (pending.op, pending.sectors, pending.rounds) = (op, 96, 3);
            assert_eq!((terms.next_step(&mut pending, true), pending.done), (NextStep::Next, 64));
            // Each piece of a read has its own retries; a write counts rounds over its whole
            // length.
            assert_eq!(pending.rounds, if op == Op::Read { 0 } else { 3 });
            assert_eq!((terms.next_step(&mut pending, true), pending.done), (NextStep::End, 96));
        }
    }

    #[test]
    fn durable_write_is_flushed_once_where_the_drive_has_a_cache_and_no_fua() {
        let after = |cache: bool, fua: bool, stage: RequestStage| {
            let terms = Terms::of_drive(|info| (info.volatile_cache, info.fua) = (cache, fua));
            let mut pending = PendingRequest::unused();
            (pending.op, pending.sectors, pending.fua, pending.stage) = (Op::Write, 8, true, stage);
            (terms.next_step(&mut pending, false), pending.done)
        };
        assert_eq!(after(true, false, RequestStage::Main), (NextStep::Flush, 8));
        assert_eq!(after(true, false, RequestStage::FlushBehind), (NextStep::End, 0));
        assert_eq!(after(true, true, RequestStage::Main), (NextStep::End, 8));
        assert_eq!(after(false, false, RequestStage::Main), (NextStep::End, 8));
    }

    /// Decision for a request of `op` after `error`.
    fn action_of(
        op: Op,
        error: DeviceError,
        change: impl FnOnce(&mut PendingRequest),
    ) -> (FailureAction, RequestStage) {
        let mut pending = PendingRequest::unused();
        pending.op = op;
        change(&mut pending);
        (failure_action(&mut pending, error, false), pending.stage)
    }

    #[test]
    fn zeroes_that_the_drive_does_not_know_go_out_as_writes_once() {
        let unsupported =
            |change: fn(&mut PendingRequest)| action_of(Op::WriteZeroes, DeviceError::Unsupported, change);
        assert_eq!(unsupported(|_| {}), (FailureAction::Send, RequestStage::ZeroesAsWrites));
        assert_eq!(unsupported(|p| p.plugged = true), (FailureAction::Send, RequestStage::ZeroesAsWrites));
        assert_eq!(unsupported(|p| p.done = 8), (FailureAction::End, RequestStage::Main));
        assert_eq!(
            unsupported(|p| p.stage = RequestStage::ZeroesAsWrites),
            (FailureAction::End, RequestStage::ZeroesAsWrites)
        );
        assert_eq!(action_of(Op::Write, DeviceError::Unsupported, |_| {}).0, FailureAction::End);
    }

    #[test]
    fn read_is_sent_again_a_few_times_and_a_zones_write_never() {
        let busy = |op, change: fn(&mut PendingRequest)| action_of(op, DeviceError::Busy, change).0;
        assert_eq!(busy(Op::Read, |_| {}), FailureAction::Later(1));
        assert_eq!(busy(Op::Read, |p| p.rounds = RETRIES_MAX - 1), FailureAction::Later(RETRIES_MAX));
        assert_eq!(busy(Op::Read, |p| p.rounds = RETRIES_MAX), FailureAction::End);
        assert_eq!(busy(Op::Write, |p| p.plugged = true), FailureAction::End);
        assert_eq!(action_of(Op::Read, DeviceError::OutOfRange, |_| {}).0, FailureAction::End);
    }

    #[test]
    fn cancelled_request_sends_no_next_command_and_no_second_try() {
        let device = EmulatedOptions::default().with_size(16 << 20).with_zone_size(1 << 20);
        let device = Emulated::new("drive", &device, Null).unwrap();
        let volume = Volume::open(Arc::new(device), VolumeOptions::default()).unwrap();
        let (cancelled, other) = (volume.channel(|_| {}), volume.channel(|_| {}));
        volume.cancel(Nanos(0), &cancelled);
        let read_of = |channel| {
            let mut pending = PendingRequest::unused();
            (pending.op, pending.sectors) = (Op::Read, 96);
            pending.owner = Owner::Channel(ChannelRef::of(channel));
            pending
        };
        let terms = Terms::of_drive(|_| {});
        let mut read = read_of(&cancelled);
        assert_eq!((terms.next_step(&mut read, true), read.done), (NextStep::Cancelled, 64));
        assert_eq!(terms.next_step(&mut read_of(&cancelled), false), NextStep::Next);
        assert_eq!(terms.next_step(&mut read_of(&other), true), NextStep::Next);
        assert_eq!(
            failure_action(&mut read_of(&cancelled), DeviceError::Busy, true),
            FailureAction::Cancelled
        );
        assert_eq!(
            failure_action(&mut read_of(&cancelled), DeviceError::Busy, false),
            FailureAction::Later(1)
        );
        assert_eq!(failure_action(&mut read_of(&other), DeviceError::Busy, true), FailureAction::Later(1));
        // A medium error is not caused by the cancellation.
        assert_eq!(failure_action(&mut read_of(&cancelled), DeviceError::Medium, true), FailureAction::End);
    }
}
