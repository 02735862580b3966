//! Random choices shared by several tests.

use rand::{Rng, RngExt};
use zonal_core::Nanos;
use zonal_io::fault::{Effect, Plan, Reordered, Rule, Settling};

/// Extra latency of some commands, and the time for which some are held so that others overtake
/// them.
pub const DELAY: Nanos = Nanos(50_000);
pub const HOLD: Nanos = Nanos(30_000);

pub fn one_of<T: Copy>(rng: &mut impl Rng, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}

/// A plan of these rules, plus late completions, which are out of order if `may_reorder` is set.
pub fn plan(rng: &mut impl Rng, mut rules: Vec<Rule>, may_reorder: bool) -> Plan {
    rules.push(Rule::new(Effect::Delay(DELAY)).rate(one_of(rng, &[0.0, 0.1, 0.5])));
    if may_reorder && rng.random_ratio(1, 4) {
        let (what, window, hold) = (Reordered::Completion, 3, HOLD);
        rules.push(Rule::new(Effect::Reorder { what, window, hold }).rate(0.2));
    }
    let settling = Settling::After(Nanos(one_of(rng, &[0, 200_000])));
    Plan { settling, ..Plan::of(rng.next_u64(), rules) }
}
