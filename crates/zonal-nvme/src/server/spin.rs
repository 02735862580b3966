//! Short spin for the next command before a thread sleeps.
//!
//! A host that waits for each response sends its next command a few microseconds later. If the
//! thread is asleep by then, it has to be woken, possibly along with an idle processor. On virtual
//! machines that takes longer than the command itself. So a thread that has just responded spins
//! for [`SPIN`] before it sleeps.
//!
//! # Cost
//! A successful spin is free, because the thread has work. A spin that finds nothing is charged to
//! an allowance, which grows by one twentieth of the elapsed time, up to [`ALLOWANCE_MAX`]. Without
//! allowance the thread sleeps at once. Clients that are always slightly late therefore cost at
//! most 5 % of a core, however many there are. A spin that overran its limit means that other work
//! wanted the core, so it is charged whatever it found.

use zonal_core::Nanos;

/// Duration of a spin in nanoseconds: twice the time that a host on the same machine takes from a
/// response to its next command.
const SPIN: u64 = 20_000;

/// Divisor of the elapsed time: the share available for spins that find nothing.
const SHARE: u64 = 20;

/// Maximum allowance in nanoseconds: fifty spins.
const ALLOWANCE_MAX: u64 = 50 * SPIN;

/// Spin allowance of a thread.
pub(super) struct Spin {
    allowance: u64,
    /// Time up to which the allowance has been credited.
    grown: Nanos,
}

impl Spin {
    /// Full allowance for a new thread.
    pub(super) fn new(now: Nanos) -> Spin {
        Spin { allowance: ALLOWANCE_MAX, grown: now }
    }

    /// Deadline of a spin after a response; `None` if the allowance is used up.
    pub(super) fn until(&mut self, now: Nanos) -> Option<Nanos> {
        // Divide the whole difference and keep the remainder, so that many short intervals add up
        // as well.
        let grown = now.0.saturating_sub(self.grown.0) / SHARE;
        self.allowance = (self.allowance + grown).min(ALLOWANCE_MAX);
        self.grown = Nanos(self.grown.0 + grown * SHARE);
        (self.allowance >= SPIN).then(|| Nanos(now.0.saturating_add(SPIN)))
    }

    /// Ends the spin that began at `begun`, and charges it.
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

    /// Microseconds spent spinning in one second, if the next command arrives `pause` after each
    /// response.
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
