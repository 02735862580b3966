//! Deterministic derivative-free search for the point with the lowest cost.
//!
//! Costs are results of simulations and not smooth, and some axes are categorical. The search
//! therefore moves along one axis at a time, starting from the best of the given points and of
//! points scattered around them. It then explores from there by changing a few axes at once, with
//! pseudo-random steps from a fixed seed. Known costs are not recomputed.
//!
//! # Why not a library
//! Of the 13 values of a disk two are categorical and six have ordered steps. Nelder-Mead, COBYLA
//! and similar methods search continuous values. Libraries that handle categories model the cost as
//! a Gaussian process, and depend on linear algebra.

use std::collections::HashMap;

/// A value per axis.
pub type Point = Vec<f64>;

/// Range of a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Axis {
    /// One of these; all of them are tried.
    Any(Vec<f64>),
    /// One of these, ordered such that neighbours are similar.
    Ladder(Vec<f64>),
    /// Any value in between, on a logarithmic scale.
    Scale(f64, f64),
}

/// Points with which the search continues.
const KEPT: usize = 3;

/// Share of the budget spent after the descents from the first points, and then from each of the
/// kept ones.
const COARSE_SHARE: f64 = 0.65;

/// Share of the budget spent after scattering, and the number of best points to scatter around.
const SCATTER_SHARE: f64 = 0.35;
const SCATTERED_FROM: usize = 8;

/// Share of the budget after which exploration ends.
const WANDER_SHARE: f64 = 0.9;

/// Ratios by which values on a scale change, from coarse to fine.
const RATIOS: [f64; 5] = [1.5, 1.2, 1.08, 1.03, 1.01];

/// Factor by which a cost has to fall for the search to go on.
const GAIN: f64 = 0.999;

/// Maximum number of axes changed at once in exploration.
const AXES_AT_ONCE: usize = 4;

/// Step lengths of exploration: rungs of a ladder, with one step in `LEAPS` to any rung, and a
/// ratio on a scale.
const RUNGS: usize = 2;
const LEAPS: usize = 4;
const FAR_RATIO: f64 = 1.8;

/// Maximum number of points tried per unit of the budget.
const TRIES_PER_COST: usize = 8;

/// State of a search. See the module documentation.
pub struct Search<'a> {
    axes: Vec<Axis>,
    budget: usize,
    enough: f64,
    normalise: &'a dyn Fn(&mut Point),
    known: HashMap<Vec<u64>, f64>,
}

/// A cost with its point.
type Rated = (f64, Point);

impl<'a> Search<'a> {
    /// Creates a search along these axes with a budget of `budget` cost evaluations. Points are
    /// equal if `normalise` makes them equal.
    pub fn new(axes: Vec<Axis>, budget: usize, normalise: &'a dyn Fn(&mut Point)) -> Search<'a> {
        Search { axes, budget, enough: 0.0, normalise, known: HashMap::new() }
    }

    /// Stops the search at a point that costs no more than this.
    #[must_use]
    pub fn stop_at(mut self, cost: f64) -> Search<'a> {
        self.enough = cost;
        self
    }

    /// Returns the point with the lowest cost found from `starts`, which must not be empty.
    pub fn run(&mut self, starts: Vec<Point>, cost: &mut dyn FnMut(&Point) -> f64) -> Point {
        let first = starts.first().cloned().unwrap_or_default();
        let mut rated: Vec<Rated> =
            starts.into_iter().filter_map(|p| self.rate(p, self.budget, cost)).collect();
        rated.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.scatter(&mut rated, cost);
        let rated = self.different(rated);
        let (begun, share) = (self.known.len(), rated.len().max(1));
        let coarse = (self.budget as f64 * COARSE_SHARE) as usize;
        let descended = rated.into_iter().enumerate().map(|(n, point)| {
            let until = begun + coarse.saturating_sub(begun) * (n + 1) / share;
            self.descend(point, &RATIOS[..2], until, cost)
        });
        let descended: Vec<Rated> = descended.collect();
        if descended.is_empty() {
            return first;
        }
        self.wander(descended, cost).1
    }

    /// Explores from the best point and at times from others, a few axes at a time, since values
    /// that compensate each other cannot be found along a single axis. Descends from each better
    /// point.
    fn wander(&mut self, mut kept: Vec<Rated>, cost: &mut dyn FnMut(&Point) -> f64) -> Rated {
        let mut draw = Draw(0);
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        kept[0] = self.descend(kept[0].clone(), &RATIOS, self.budget, cost);
        let until = (self.budget as f64 * WANDER_SHARE) as usize;
        // Known points yield no information and must not be tried forever.
        for n in 0..self.budget * TRIES_PER_COST {
            kept.sort_by(|a, b| a.0.total_cmp(&b.0));
            if kept[0].0 <= self.enough || self.known.len() >= until {
                break;
            }
            // The best point gets every other turn.
            let at = if n % 2 == 0 { 0 } else { n / 2 % kept.len() };
            let point = self.around(&kept[at].1, 1 + n % AXES_AT_ONCE, LEAPS, &mut draw);
            let Some(there) = self.rate(point, until, cost) else { break };
            if there.0 < kept[at].0 * GAIN {
                kept[at] = self.descend(there, &RATIOS[2..3], until, cost);
            }
        }
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        let best = kept.swap_remove(0);
        self.descend(best, &RATIOS[2..], self.budget, cost)
    }

    /// Adds points that differ from the best on a few axes, on ladders by any number of rungs. If a
    /// limit matters only in combination with another one, no step along one axis improves the
    /// cost.
    fn scatter(&mut self, rated: &mut Vec<Rated>, cost: &mut dyn FnMut(&Point) -> f64) {
        let mut draw = Draw(1);
        let until = (self.budget as f64 * SCATTER_SHARE) as usize;
        for n in 0..self.budget {
            if rated.is_empty() || self.known.len() >= until {
                return;
            }
            let from = draw.below(rated.len().min(SCATTERED_FROM));
            let point = self.around(&rated[from].1, 1 + n % AXES_AT_ONCE, 1, &mut draw);
            let Some(there) = self.rate(point, until, cost) else { return };
            if rated.iter().all(|other| other.1 != there.1) {
                let at = rated.partition_point(|other| other.0 <= there.0);
                rated.insert(at, there);
            }
        }
    }

    /// Returns a point with other values on a few axes. One in `leaps` steps on a ladder goes to
    /// any rung.
    fn around(&self, point: &Point, axes: usize, leaps: usize, draw: &mut Draw) -> Point {
        let mut point = point.clone();
        for _ in 0..axes {
            let axis = draw.below(self.axes.len());
            point[axis] = match &self.axes[axis] {
                Axis::Any(values) => values[draw.below(values.len())],
                Axis::Ladder(values) if draw.below(leaps) == 0 => values[draw.below(values.len())],
                Axis::Ladder(values) => {
                    let from = nearest(values, point[axis]);
                    let last = values.len() - 1;
                    values[(from + draw.below(2 * RUNGS + 1)).saturating_sub(RUNGS).min(last)]
                }
                Axis::Scale(low, high) => {
                    let exponent = draw.below(201) as f64 / 100.0 - 1.0;
                    (point[axis] * FAR_RATIO.powf(exponent)).clamp(*low, *high)
                }
            };
        }
        point
    }

    /// Selects the best points that differ in a category, since the best point of one category says
    /// little about the others.
    fn different(&self, rated: Vec<Rated>) -> Vec<Rated> {
        let words = |point: &Point| -> Vec<f64> {
            let is_word = |axis: &&usize| matches!(self.axes[**axis], Axis::Any(_));
            (0..self.axes.len()).collect::<Vec<_>>().iter().filter(is_word).map(|&axis| point[axis]).collect()
        };
        let mut kept: Vec<Rated> = Vec::new();
        for one in rated {
            if kept.len() < KEPT && kept.iter().all(|other| words(&other.1) != words(&one.1)) {
                kept.push(one);
            }
        }
        kept
    }

    /// Returns a point with its cost, or `None` if it is unknown and `until` costs have been
    /// computed.
    fn rate(&mut self, mut point: Point, until: usize, cost: &mut dyn FnMut(&Point) -> f64) -> Option<Rated> {
        (self.normalise)(&mut point);
        let key: Vec<u64> = point.iter().map(|value| value.to_bits()).collect();
        let known = self.known.get(&key).copied();
        if known.is_none() && self.known.len() >= until {
            return None;
        }
        let cost = known.unwrap_or_else(|| cost(&point));
        self.known.insert(key, cost);
        Some((cost, point))
    }

    /// Descends along the axes, with each ratio until it gains nothing.
    fn descend(
        &mut self,
        mut best: Rated,
        ratios: &[f64],
        until: usize,
        cost: &mut dyn FnMut(&Point) -> f64,
    ) -> Rated {
        for &ratio in ratios {
            loop {
                let before = best.0;
                for axis in 0..self.axes.len() {
                    best = self.along(axis, best, ratio, until, cost);
                }
                if best.0 >= before * GAIN || self.known.len() >= until {
                    break;
                }
            }
        }
        best
    }

    /// Finds the best point along one axis: a step in either direction, continued while it
    /// improves.
    fn along(
        &mut self,
        axis: usize,
        mut best: Rated,
        ratio: f64,
        until: usize,
        cost: &mut dyn FnMut(&Point) -> f64,
    ) -> Rated {
        if let Axis::Any(values) = &self.axes[axis] {
            for value in values.clone() {
                let point = with(&best.1, axis, value);
                best = self.rate(point, until, cost).filter(|other| other.0 < best.0).unwrap_or(best);
            }
            return best;
        }
        for direction in [1, -1] {
            let mut gained = false;
            while let Some(value) = self.step(axis, best.1[axis], direction, ratio) {
                let Some(next) = self.rate(with(&best.1, axis, value), until, cost) else { return best };
                if next.0 >= best.0 {
                    break;
                }
                (best, gained) = (next, true);
            }
            if gained {
                break;
            }
        }
        best
    }

    /// Next value of an axis in this direction, if any.
    fn step(&self, axis: usize, from: f64, direction: i32, ratio: f64) -> Option<f64> {
        match &self.axes[axis] {
            Axis::Any(_) => None,
            Axis::Ladder(values) => {
                let at = nearest(values, from);
                let next = at.checked_add_signed(direction as isize)?;
                values.get(next).copied()
            }
            Axis::Scale(low, high) => {
                let value = (from * ratio.powi(direction)).clamp(*low, *high);
                (value != from).then_some(value)
            }
        }
    }
}

/// Index of the value nearest to `to`.
fn nearest(values: &[f64], to: f64) -> usize {
    let distance = |at: &usize| (values[*at] - to).abs();
    (0..values.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

/// Deterministic random numbers (splitmix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

fn with(point: &Point, axis: usize, value: f64) -> Point {
    let mut point = point.clone();
    point[axis] = value;
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valley along three axes with its minimum at category 2, step 8 and 37 on the scale.
    fn cost(point: &Point) -> f64 {
        let word = if point[0] == 2.0 { 0.0 } else { 5.0 };
        word + (point[1].ln() - 8f64.ln()).abs() + (point[2].ln() - 37f64.ln()).abs()
    }

    fn axes() -> Vec<Axis> {
        vec![
            Axis::Any(vec![0.0, 1.0, 2.0]),
            Axis::Ladder(vec![1.0, 2.0, 4.0, 8.0, 16.0]),
            Axis::Scale(1.0, 1000.0),
        ]
    }

    #[test]
    fn search_finds_the_minimum_and_evaluates_no_point_twice() {
        let mut asked = Vec::new();
        let mut search = Search::new(axes(), 200, &|_| ());
        let found = search.run(vec![vec![0.0, 1.0, 900.0], vec![1.0, 16.0, 2.0]], &mut |point| {
            assert!(!asked.contains(point));
            asked.push(point.clone());
            cost(point)
        });
        assert_eq!((found[0], found[1]), (2.0, 8.0));
        assert!((found[2] / 37.0).ln().abs() < 0.03, "{found:?}");
    }

    #[test]
    fn spent_budget_ends_the_search_with_the_best_so_far() {
        let mut asked = 0;
        let mut search = Search::new(axes(), 7, &|_| ());
        let found = search.run(vec![vec![0.0, 1.0, 900.0]], &mut |point| {
            asked += 1;
            cost(point)
        });
        assert_eq!(asked, 7);
        assert!(cost(&found) < cost(&vec![0.0, 1.0, 900.0]));
    }

    #[test]
    fn equal_points_are_asked_for_once() {
        let mut asked = 0;
        // The scale has no effect in category 0.
        let normalise = |point: &mut Point| point[2] = if point[0] == 0.0 { 1.0 } else { point[2] };
        let mut search = Search::new(
            vec![Axis::Any(vec![0.0]), Axis::Any(vec![1.0]), Axis::Scale(1.0, 9.0)],
            50,
            &normalise,
        );
        search.run(vec![vec![0.0, 1.0, 5.0]], &mut |_| {
            asked += 1;
            1.0
        });
        assert_eq!(asked, 1);
    }
}
