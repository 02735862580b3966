//! Waiting of an idle thread.

use super::Volume;
use crate::sync::IS_MODEL;
use std::time::Duration;
use zonal_core::Nanos;

/// Waits without progress before the thread yields the processor.
const SPINS_MAX: u32 = if IS_MODEL { 0 } else { 200 };

/// Waits without progress before a thread without a deadline sleeps.
const YIELDS_MAX: u32 = if IS_MODEL { 0 } else { 2000 };

/// Initial maximum of a sleep; bounds the delay until completions reaped by another thread are
/// seen.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Number of sleeps without progress after which the maximum grows by [`SLEEP_MAX`]. A thread that
/// has waited for long thus sleeps for at most an eighth of that time, and uses little of the
/// processor.
const SLEEPS: u32 = 8;

/// Longest sleep, in multiples of [`SLEEP_MAX`].
const LONGEST: u32 = 10;

/// Time by which a sleeper wakes early, about the lateness of the kernel's timers.
const SLEEP_MARGIN: Duration = Duration::from_micros(60);

/// Strategy of a thread that waits for completions: it spins, then yields, then sleeps on the
/// device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    idle: u32,
}

#[allow(clippy::absurd_extreme_comparisons, reason = "a model neither spins nor yields")]
impl Backoff {
    /// Waits after a poll at `now` without progress. `due` is the time of the next poll, if the
    /// volume gave one.
    #[inline]
    pub fn pause(&mut self, volume: &Volume, now: Nanos, due: Option<Nanos>) {
        self.pause_unless(volume, now, due, || false);
    }

    /// Like [`Backoff::pause`], but returns at once if `has_come` is true: see
    /// [`Volume::wait_unless`].
    #[inline]
    pub fn pause_unless(
        &mut self,
        volume: &Volume,
        now: Nanos,
        due: Option<Nanos>,
        has_come: impl FnOnce() -> bool,
    ) {
        self.idle = self.idle.saturating_add(1);
        if self.idle <= SPINS_MAX {
            return std::hint::spin_loop();
        }
        let left = due.map(|due| Duration::from_nanos(due.0.saturating_sub(now.0)));
        let longest = SLEEP_MAX * (self.idle.saturating_sub(YIELDS_MAX) / SLEEPS + 1).min(LONGEST);
        let sleep = left.map_or(longest, |left| left.saturating_sub(SLEEP_MARGIN).min(longest));
        if sleep.is_zero() || self.idle <= YIELDS_MAX && left.is_none() {
            return yield_now();
        }
        volume.wait_unless(sleep, has_come);
    }

    /// True if the next pause is too short for other threads to get the processor.
    pub(crate) fn is_spinning(&self) -> bool {
        self.idle < SPINS_MAX
    }

    /// Skips to sleeping, for a thread that has already slept.
    pub fn skip_to_sleep(&mut self) {
        self.idle = YIELDS_MAX;
    }

    /// Restarts after progress, since more is likely to follow soon.
    #[inline]
    pub fn reset(&mut self) {
        self.idle = 0;
    }
}

/// Yields the processor to other threads.
fn yield_now() {
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    crate::sync::model::pause();
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    std::thread::yield_now();
}
