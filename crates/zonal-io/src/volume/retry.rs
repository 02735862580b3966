//! Retries of commands that the device did not execute: reads, and the commands of recovery.
//!
//! A refused read, report or flush has changed nothing, so a retry costs only time. The first retry
//! follows at once, since a device after a reset refuses one command and accepts the next. The
//! pause before each later retry doubles; a poll resubmits the command when it is over. After
//! [`RETRIES_MAX`] retries the error is returned.

use super::pending::PendingRequest;
use super::turn::Stack;
use super::{Progress, Volume, earliest};
use crate::device::{CommandResult, Context, ContextKind};
use crate::sync::{AtomicUsize, Mutex, Ordering};
use zonal_core::{DeviceError, Nanos, Op};

/// Maximum of retries per command. All pauses add up to 102 ms.
pub(super) const RETRIES_MAX: u8 = 10;

/// Pause before the second retry, in nanoseconds. Doubles before each later one.
const PAUSE: u64 = 200_000;

/// Commands waiting for their next retry.
#[derive(Default)]
pub(super) struct Retries {
    /// The only field that a poll reads while no command waits.
    len: AtomicUsize,
    waiting: Mutex<Vec<(Nanos, Context)>>,
}

impl Retries {
    /// Removes the requests with matching commands.
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

/// True if a command without side effects may succeed when retried.
pub(super) fn is_transient(error: DeviceError) -> bool {
    matches!(
        error,
        DeviceError::Busy | DeviceError::UnitAttention | DeviceError::Aborted | DeviceError::TimedOut
    )
}

/// Like [`is_transient`], for a caller's request. A read that timed out is not retried, since the
/// device may still fill the buffer. A flush is retried only if it was refused, since otherwise
/// data may be lost.
pub(super) fn is_retryable(op: Op, error: DeviceError) -> bool {
    match op {
        Op::Verify => is_transient(error),
        Op::Read => is_transient(error) && error != DeviceError::TimedOut,
        Op::Flush => matches!(error, DeviceError::Busy | DeviceError::UnitAttention),
        _ => false,
    }
}

/// True if a command without side effects is retried after this result and `retries` retries.
pub(super) fn is_retried(retries: u8, answer: &CommandResult) -> bool {
    retries < RETRIES_MAX && answer.as_ref().is_err_and(|error| is_transient(*error))
}

/// Pause before retry number `retry`, counted from 1.
pub(super) fn pause(retry: u8) -> Nanos {
    match retry {
        ..=1 => Nanos(0),
        later => Nanos(PAUSE << (later - 2)),
    }
}

impl Volume {
    /// Resubmits a command, at once or after a pause, as retry number `retries`.
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

    /// Resubmits the commands that are due.
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
