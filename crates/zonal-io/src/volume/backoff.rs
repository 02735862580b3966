//! Waiting of an idle thread.

use super::Volume;
use crate::sync::IS_MODEL;
use std::time::Duration;
use zonal_core::Nanos;

/// Waits without progress before the thread yields the processor.
const SPINS_MAX: u32 = if IS_MODEL { 0 } else { 200 };

/// Waits without progress before a thread without a deadline sleeps, whatever its clock says.
const YIELDS_MAX: u32 = if IS_MODEL { 0 } else { 2000 };

/// Nanoseconds without progress after which a thread sleeps if its waits are usually long. Less than
/// the cost of a sleep and a wake-up.
const SPIN_TIME: u64 = 20_000;

/// Nanoseconds without progress after which a thread sleeps if its waits are usually short. Several
/// times the cost of a wake-up, since a helper thread may have to wake up first.
const YIELD_TIME: u64 = 250_000;

/// Among waits that are usually long, one in this many may yield: if the thread slept, it does not
/// know how short the wait could have been.
const TRY_INTERVAL: u8 = 16;

/// Upper limit of [`Backoff::trust`].
const TRUST_MAX: u8 = 8;

/// Trust after the first short wait, and loss of trust in a long one. With fewer than four short
/// waits to each long one, yielding costs more than it saves.
const TRUST_STEP: u8 = 4;

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
///
/// Yielding is for waits that usually end meanwhile. A thread that waits for a disk, for example,
/// sleeps after 20 us.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    /// Pauses since the last progress.
    idle: u32,
    /// Time of the first of them.
    since: Nanos,
    /// Above 0 if waits are usually short.
    trust: u8,
    /// Waits since the last one that could yield.
    waits: u8,
    /// This wait may yield for [`YIELD_TIME`].
    yields: bool,
    /// True if the thread has slept in this wait.
    has_slept: bool,
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
        if self.idle == 0 {
            self.begin(now);
        }
        self.idle = self.idle.saturating_add(1);
        let waited = now.0.saturating_sub(self.since.0);
        if self.idle <= SPINS_MAX {
            if waited < SPIN_TIME {
                return std::hint::spin_loop();
            }
            self.idle = SPINS_MAX + 1;
        }
        if self.idle <= YIELDS_MAX && waited >= if self.yields { YIELD_TIME } else { SPIN_TIME } {
            self.idle = YIELDS_MAX + 1;
        }
        let left = due.map(|due| Duration::from_nanos(due.0.saturating_sub(now.0)));
        let longest = SLEEP_MAX * (self.idle.saturating_sub(YIELDS_MAX) / SLEEPS + 1).min(LONGEST);
        let sleep = left.map_or(longest, |left| left.saturating_sub(SLEEP_MARGIN).min(longest));
        if sleep.is_zero() || self.idle <= YIELDS_MAX && left.is_none() {
            return yield_now();
        }
        self.has_slept = true;
        volume.wait_unless(sleep, has_come);
    }

    /// Begins a wait.
    fn begin(&mut self, now: Nanos) {
        self.since = now;
        self.has_slept = false;
        self.waits += 1;
        self.yields = self.trust > 0 || self.waits >= TRY_INTERVAL;
        if self.yields {
            self.waits = 0;
        }
    }

    /// Decides from a wait how long the next ones may yield. A wait that did not yield shows nothing.
    fn end(&mut self) {
        if self.yields {
            self.trust = match (self.trust, self.has_slept) {
                (trust, true) => trust.saturating_sub(TRUST_STEP),
                (0, false) => TRUST_STEP,
                (trust, false) => (trust + 1).min(TRUST_MAX),
            };
        }
    }

    /// True if the next pause is too short for other threads to get the processor.
    pub(crate) fn is_spinning(&self) -> bool {
        self.idle < SPINS_MAX
    }

    /// Skips to sleeping, for a thread that has already slept.
    pub fn skip_to_sleep(&mut self) {
        if self.idle > 0 {
            self.has_slept = true;
            self.end();
        }
        self.yields = false;
        self.idle = YIELDS_MAX;
    }

    /// Restarts after progress, since more is likely to follow soon.
    #[inline]
    pub fn reset(&mut self) {
        if self.idle > 0 {
            self.end();
            self.idle = 0;
        }
    }
}

/// Yields the processor to other threads.
fn yield_now() {
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    crate::sync::model::pause();
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of waits that may yield, of so many in a row with this outcome.
    fn yielding(backoff: &mut Backoff, waits: u32, has_slept: bool) -> u32 {
        (0..waits)
            .map(|_| {
                backoff.begin(Nanos(0));
                backoff.has_slept = has_slept || !backoff.yields;
                backoff.end();
                u32::from(backoff.yields)
            })
            .sum()
    }

    #[test]
    fn long_waits_yield_only_in_trials() {
        let mut backoff = Backoff::default();
        let tries = u32::from(TRY_INTERVAL);
        assert_eq!(yielding(&mut backoff, 10 * tries, true), 10);
        assert_eq!(yielding(&mut backoff, 2 * tries, false), tries + 1, "all of them from a trial on");
        assert_eq!(yielding(&mut backoff, tries, true), 2, "until the trust is lost");
    }

    #[test]
    fn rare_long_wait_does_not_end_yielding() {
        let mut backoff = Backoff::default();
        yielding(&mut backoff, u32::from(TRY_INTERVAL), false);
        for _ in 0..100 {
            assert_eq!(yielding(&mut backoff, 5, false), 5);
            assert_eq!(yielding(&mut backoff, 1, true), 1);
        }
    }
}
