//! Commands that the volume sends again because the device did not carry them out: reads, and the commands of recovery.
//!
//! A read, a report and a flush that was refused change nothing, so a second try costs only time. The first one follows at
//! once: a device that was reset refuses one command and takes the next. Before each later retry the pause doubles, and a
//! poll sends the command when the pause is over. After [`RETRIES_MAX`] retries the error counts.

use super::pending::PendingRequest;
use super::turn::Stack;
use super::{Progress, Volume, earliest};
use crate::device::{CommandResult, Context, ContextKind};
use crate::sync::{AtomicUsize, Mutex, Ordering};
use zonal_core::{DeviceError, Nanos, Op};

/// Retries of one command. All pauses together are 102 ms.
pub(super) const RETRIES_MAX: u8 = 10;

/// The pause before the second retry, in nanoseconds. It doubles before each later one.
const PAUSE: u64 = 200_000;

/// Commands that wait for their next retry.
#[derive(Default)]
pub(super) struct Retries {
    /// The one thing that a poll reads while no command waits.
    len: AtomicUsize,
    waiting: Mutex<Vec<(Nanos, Context)>>,
}

impl Retries {
    /// Takes the requests out whose command fits.
    pub(super) fn cancel(&self, fits: impl Fn(&Context) -> bool) -> Vec<Box<PendingRequest>> {
        let taken: Vec<_> = self.waiting.lock().extract_if(.., |(_, context)| fits(context)).collect();
        self.len.fetch_sub(taken.len(), Ordering::Release);
        let pending = taken.into_iter().filter_map(|(_, context)| match context.0 {
            ContextKind::One(pending) => Some(pending),
            _ => None,
        });
        pending.collect()
    }
}

/// Whether a command that changes nothing may succeed when it is sent again.
pub(super) fn may_pass(error: DeviceError) -> bool {
    matches!(
        error,
        DeviceError::Busy | DeviceError::UnitAttention | DeviceError::Aborted | DeviceError::TimedOut
    )
}

/// The same of a caller's request. The device may still fill the buffer of a read that timed out, and what a flush was to keep
/// may be lost if the flush did not end well.
pub(super) fn request_may_pass(op: Op, error: DeviceError) -> bool {
    match op {
        Op::Verify => may_pass(error),
        Op::Read => may_pass(error) && error != DeviceError::TimedOut,
        Op::Flush => matches!(error, DeviceError::Busy | DeviceError::UnitAttention),
        _ => false,
    }
}

/// Whether a command that changes nothing is sent again after this answer and `retries` retries.
pub(super) fn is_retried(retries: u8, answer: &CommandResult) -> bool {
    retries < RETRIES_MAX && answer.as_ref().is_err_and(|error| may_pass(*error))
}

/// The pause before retry number `retry`, counted from 1.
pub(super) fn pause(retry: u8) -> Nanos {
    match retry {
        ..=1 => Nanos(0),
        later => Nanos(PAUSE << (later - 2)),
    }
}

impl Volume {
    /// Sends a command again after `retries` retries, this one included: at once or after a pause.
    #[cold]
    pub(super) fn retry_later(&self, now: Nanos, context: Context, retries: u8, stack: &mut Stack) {
        let pause = pause(retries);
        if pause.0 == 0 {
            return self.issue_and_stack(now, &mut Some(context), stack);
        }
        self.delayed.len.fetch_add(1, Ordering::Release);
        self.delayed.waiting.lock().push((Nanos(now.0.saturating_add(pause.0)), context));
        self.alarm.ring();
    }

    /// Sends the commands again whose time has come.
    #[inline]
    pub(super) fn retry_due(&self, now: Nanos, deadline: &mut Option<Nanos>) -> Progress {
        if self.delayed.len.load(Ordering::Acquire) == 0 {
            return Progress::None;
        }
        let due: Vec<(Nanos, Context)> = {
            let mut waiting = self.delayed.waiting.lock();
            let due: Vec<_> = waiting.extract_if(.., |(at, _)| *at <= now).collect();
            *deadline = waiting.iter().fold(*deadline, |deadline, (at, _)| earliest(deadline, Some(*at)));
            due
        };
        self.delayed.len.fetch_sub(due.len(), Ordering::Release);
        let progress = if due.is_empty() { Progress::None } else { Progress::Some };
        for (_, context) in due {
            let mut slot = Some(context);
            if let Some(mut result) = self.issue(now, &mut slot) {
                self.completed(now, &mut slot, &mut result);
            }
        }
        progress
    }
}
