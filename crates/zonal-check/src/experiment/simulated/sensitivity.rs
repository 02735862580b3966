//! Sensitivity of a figure to the values of a profile.
//!
//! Each quantity of timing and host is increased and decreased by a fifth while all others stay
//! unchanged. Its elasticity is the change of the figure, in per cent, for a change of the value by
//! one per cent, between the two.

use super::{Trial, span};
use zonal_sim::profile::Source;
use zonal_sim::{Profile, Quantity};

/// Relative change of a value.
const STEP: f64 = 0.2;

/// Elasticities below this are noise, because the runs are too short.
const NOISE: f64 = 0.02;

/// A value, and the dependence of a figure on it.
#[derive(Clone, PartialEq, Debug)]
pub struct Dominant {
    /// Key of the value.
    pub key: String,
    /// Change of the figure in per cent, for one per cent of the value.
    pub elasticity: f64,
}

/// Figures with a decreased and with an increased value.
pub(super) struct Effect {
    quantity: Quantity,
    values: [f64; 2],
    figures: [f64; 2],
}

/// Effect of each quantity of the trial's profile.
pub(super) fn effects(trial: &Trial<'_>) -> Result<Vec<Effect>, String> {
    let Some((name, changes)) = trial.variant.profile() else { return Ok(Vec::new()) };
    let quantities = Profile::quantities(name, &changes).map_err(|e| e.to_string())?;
    let mut effects = Vec::new();
    for quantity in quantities {
        let values = less_and_more(&quantity);
        if values[0] == values[1] {
            continue;
        }
        let with = |value: f64| trial.figure(&format!("{}={value}", quantity.key));
        let figures = [with(values[0])?, with(values[1])?];
        effects.push(Effect { quantity, values, figures });
    }
    Ok(effects)
}

/// Zero stays zero, since it often means no limit. Whole numbers change by at least one.
fn less_and_more(quantity: &Quantity) -> [f64; 2] {
    let value = quantity.value;
    let [less, more] = [value * (1.0 - STEP), value * (1.0 + STEP)];
    match (quantity.is_whole, quantity.key.as_str()) {
        _ if value == 0.0 => [0.0, 0.0],
        (true, _) => [less.round().min(value - 1.0).max(1.0), more.round().max(value + 1.0)],
        // The inner edge is slower than the outer one.
        (false, "inner_ratio") => [less, more.min(0.999)],
        (false, _) => [less, more],
    }
}

impl Effect {
    fn elasticity(&self) -> f64 {
        let change = |[less, more]: [f64; 2]| (more / less).ln();
        change(self.figures) / change(self.values)
    }
}

/// The value with the largest elasticity, if any is above the noise.
pub(super) fn dominant(effects: &[Effect]) -> Option<Dominant> {
    let of = |effect: &Effect| Dominant { key: effect.quantity.key.clone(), elasticity: effect.elasticity() };
    let all = effects.iter().map(of).filter(|d| d.elasticity.abs() >= NOISE);
    all.max_by(|a, b| a.elasticity.abs().total_cmp(&b.elasticity.abs()))
}

/// Minimum and maximum of `figure` and of the figures with a changed value that was only assumed.
pub(super) fn range_of_assumed(effects: &[Effect], figure: f64) -> (f64, f64) {
    let assumed = effects.iter().filter(|effect| effect.quantity.source == Source::Assumed);
    let figures: Vec<f64> = assumed.flat_map(|effect| effect.figures).chain([figure]).collect();
    span(&figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(key: &str, value: f64, is_whole: bool, source: Source) -> Quantity {
        Quantity { key: key.to_owned(), value, is_whole, source, range: None }
    }

    #[test]
    fn value_is_made_a_fifth_more_and_less_and_a_thing_at_least() {
        let of = |key: &str, value, is_whole| less_and_more(&quantity(key, value, is_whole, Source::Assumed));
        assert_eq!(of("turn_us", 10.0, false), [8.0, 12.0]);
        assert_eq!(of("queue_depth", 32.0, true), [26.0, 38.0]);
        assert_eq!(of("cache_zone_commands", 2.0, true), [1.0, 3.0]);
        assert_eq!(of("cache_zone_bytes", 0.0, true), [0.0, 0.0]);
        assert_eq!(of("inner_ratio", 0.9, false)[1], 0.999);
    }

    #[test]
    fn value_that_moves_the_figure_most_is_named_with_its_share() {
        let effect = |key: &str, source, figures| Effect {
            quantity: quantity(key, 10.0, false, source),
            values: [8.0, 12.0],
            figures,
        };
        let effects = [
            effect("rate", Source::Assumed, [80.0, 120.0]),
            effect("seek", Source::Fitted, [144.0, 64.0]),
            effect("window", Source::Assumed, [100.0, 100.1]),
        ];
        let found = dominant(&effects).unwrap();
        assert_eq!(found.key, "seek");
        assert!((found.elasticity + 2.0).abs() < 1e-9, "{found:?}");
        assert_eq!(dominant(&effects[2..]), None);
        assert_eq!(range_of_assumed(&effects, 100.0), (80.0, 120.0));
    }
}
