//! Looks for the next command for a moment before a thread sleeps.
//!
//! A host that waits for each answer sends its next command a few microseconds after it. A thread that sleeps meanwhile has to be
//! woken, and a processor that has gone to sleep with it as well: on virtual machines that takes longer than the command. So a
//! thread that has just answered looks for [`SPIN`] before it sleeps.
//!
//! # What it may cost
//! A spin that finds something costs nothing: the thread has work. A spin that finds nothing is paid from an allowance, which grows by
//! one twentieth of the time that passes, up to [`ALLOWANCE_MAX`]. A thread without it sleeps at once. So clients that are always a
//! little late cost at most 5 % of a core, however many they are. A spin that took longer than it may shows that other work wanted
//! the core; it is paid whatever it found.

use zonal_core::Nanos;

/// How long a thread looks, in nanoseconds: twice what a host on the same machine takes from an answer to its next command.
const SPIN: u64 = 20_000;

/// One part of this number of the time goes to spins that find nothing, at most.
const SHARE: u64 = 20;

/// What is kept of the allowance, in nanoseconds: fifty spins.
const ALLOWANCE_MAX: u64 = 50 * SPIN;

/// The allowance of a thread. See the module.
pub(super) struct Spin {
    allowance: u64,
    /// Until when the allowance has grown.
    grown: Nanos,
}

impl Spin {
    /// Of a thread that begins.
    pub(super) fn new(now: Nanos) -> Spin {
        Spin { allowance: ALLOWANCE_MAX, grown: now }
    }

    /// Until when a thread that has just answered may look, if it may.
    pub(super) fn until(&mut self, now: Nanos) -> Option<Nanos> {
        // A clock's difference is divided, and not its parts: many short ones grow it as well.
        let grown = now.0.saturating_sub(self.grown.0) / SHARE;
        self.allowance = (self.allowance + grown).min(ALLOWANCE_MAX);
        self.grown = Nanos(self.grown.0 + grown * SHARE);
        (self.allowance >= SPIN).then(|| Nanos(now.0.saturating_add(SPIN)))
    }

    /// A spin that began at `begun` is over, and has found something or not.
    pub(super) fn end(&mut self, begun: Nanos, now: Nanos, has_found: bool) {
        let took = now.0.saturating_sub(begun.0);
        if !has_found || took > 2 * SPIN {
            self.allowance = self.allowance.saturating_sub(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread spins in a second, in microseconds, if something comes so long after each answer.
    fn spun(pause: u64, after_sleep: u64) -> u64 {
        let (mut spin, mut now, mut spun) = (Spin::new(Nanos(0)), 0, 0);
        while now < 1_000_000_000 {
            match spin.until(Nanos(now)) {
                Some(until) => {
                    let found = now + pause <= until.0;
                    let end = if found { now + pause } else { until.0 };
                    spin.end(Nanos(now), Nanos(end), found);
                    spun += end - now;
                    now = if found { end } else { now + pause + after_sleep };
                }
                None => now += pause + after_sleep,
            }
        }
        spun / 1000
    }

    #[test]
    fn host_that_is_quick_is_always_waited_for() {
        assert!(spun(5_000, 0) >= 999_000);
    }

    #[test]
    fn hosts_that_are_late_cost_a_twentieth_of_a_core() {
        for pause in [20_001, 25_000, 100_000, 300_000] {
            let spun = spun(pause, 5_000);
            assert!(spun <= 50_000 + ALLOWANCE_MAX / 1000 + 20, "{pause} ns: {spun} us");
            assert!(spun >= 40_000, "{pause} ns: {spun} us");
        }
        assert!(spun(10_000_000, 0) <= 2_100);
    }

    #[test]
    fn spin_that_lost_the_core_is_paid_though_it_found_something() {
        let mut spin = Spin::new(Nanos(0));
        spin.end(Nanos(0), Nanos(3_000_000), true);
        assert_eq!(spin.until(Nanos(0)), None);
        assert_eq!(spin.until(Nanos(SHARE * SPIN - 1)), None);
        assert!(spin.until(Nanos(SHARE * SPIN)).is_some());
    }
}
