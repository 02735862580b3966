//! The wait of a thread that has nothing to do.

use super::Volume;
use crate::sync::IS_MODEL;
use std::time::Duration;
use zonal_core::Nanos;

/// Waits without news before other threads get the processor.
const SPINS_MAX: u32 = if IS_MODEL { 0 } else { 200 };

/// Waits without news before a thread sleeps that does not know for how long.
const YIELDS_MAX: u32 = if IS_MODEL { 0 } else { 2000 };

/// Longest of the first sleeps: bounds how late a thread sees what another thread has reaped.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// After each of this many sleeps without news the later ones are longer by [`SLEEP_MAX`]: a thread that has waited for long sleeps
/// for an eighth of that at most, and takes little of the processor.
const SLEEPS: u32 = 8;

/// Times [`SLEEP_MAX`] that a sleep lasts at most.
const LONGEST: u32 = 10;

/// How much earlier than due a sleeper wakes: the kernel's timers are about that late.
const SLEEP_MARGIN: Duration = Duration::from_micros(60);

/// How a thread waits for completions: it spins, then yields, then sleeps on the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    idle: u32,
}

#[allow(clippy::absurd_extreme_comparisons, reason = "a model neither spins nor yields")]
impl Backoff {
    /// A poll at `now` brought no news, and the next one is to come at `due`, if the volume knows: waits for it.
    #[inline]
    pub fn pause(&mut self, volume: &Volume, now: Nanos, due: Option<Nanos>) {
        self.pause_unless(volume, now, due, || false);
    }

    /// As [`Backoff::pause`], unless what the thread waits for `has_come`: see [`Volume::wait_unless`].
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
            return give_way();
        }
        volume.wait_unless(sleep, has_come);
    }

    /// Whether the next pause is too short for other threads to get the processor.
    pub(crate) fn is_spinning(&self) -> bool {
        self.idle < SPINS_MAX
    }

    /// The thread has slept already: it does so again as soon as it has nothing to do.
    pub fn skip_to_sleep(&mut self) {
        self.idle = YIELDS_MAX;
    }

    /// News came: the next is likely near.
    #[inline]
    pub fn reset(&mut self) {
        self.idle = 0;
    }
}

/// Lets other threads have the processor.
fn give_way() {
    #[cfg(any(feature = "loom", feature = "shuttle"))]
    crate::sync::model::pause();
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    std::thread::yield_now();
}
