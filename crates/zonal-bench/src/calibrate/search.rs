//! A search for the point that costs least, without derivatives and without chance.
//!
//! Costs come from simulations: they are not smooth, and some axes are words rather than numbers. So the search goes along
//! one axis after the other, from the best few of the points that it is given; steps get finer while nothing is gained.
//! What has been asked once is not asked again.

use std::collections::HashMap;

/// A value for each axis.
pub type Point = Vec<f64>;

/// How a value may change.
#[derive(Clone, PartialEq, Debug)]
pub enum Axis {
    /// One of these, all of which are tried.
    Any(Vec<f64>),
    /// One of these, in an order in which neighbours are alike.
    Ladder(Vec<f64>),
    /// Any value in between, by ratios.
    Scale(f64, f64),
}

/// Points from which the search goes on.
const KEPT: usize = 3;

/// Shares of the budget that are spent once the first points, and then each of the kept ones, are through.
const COARSE_SHARE: f64 = 0.7;

/// Ratios by which values on a scale are changed, from coarse to fine.
const RATIOS: [f64; 5] = [1.5, 1.2, 1.08, 1.03, 1.01];

/// By this ratio at least a cost has to fall to be worth going on.
const GAIN: f64 = 0.999;

/// Ratio of the steps with which it looks around after a hop.
const HOP_RATIO: f64 = 1.3;

/// See the module.
pub struct Search<'a> {
    axes: Vec<Axis>,
    budget: usize,
    enough: f64,
    normalise: &'a dyn Fn(&mut Point),
    known: HashMap<Vec<u64>, f64>,
}

/// A point and what it costs.
type Rated = (f64, Point);

impl<'a> Search<'a> {
    /// Along these axes, asking for at most `budget` costs. Points that `normalise` makes equal are.
    pub fn new(axes: Vec<Axis>, budget: usize, normalise: &'a dyn Fn(&mut Point)) -> Search<'a> {
        Search { axes, budget, enough: 0.0, normalise, known: HashMap::new() }
    }

    /// The same, content with a valley whose floor costs no more than this.
    #[must_use]
    pub fn content_with(mut self, cost: f64) -> Search<'a> {
        self.enough = cost;
        self
    }

    /// The point that costs least of those that were found from `starts`, of which there is at least one.
    pub fn run(&mut self, starts: Vec<Point>, cost: &mut dyn FnMut(&Point) -> f64) -> Point {
        let first = starts.first().cloned().unwrap_or_default();
        let mut rated: Vec<Rated> =
            starts.into_iter().filter_map(|p| self.rate(p, self.budget, cost)).collect();
        rated.sort_by(|a, b| a.0.total_cmp(&b.0));
        let rated = self.different(rated);
        let (begun, share) = (self.known.len(), rated.len().max(1));
        let coarse = (self.budget as f64 * COARSE_SHARE) as usize;
        let descended = rated.into_iter().enumerate().map(|(n, point)| {
            let until = begun + coarse.saturating_sub(begun) * (n + 1) / share;
            self.descend(point, &RATIOS[..2], until, cost)
        });
        let descended: Vec<Rated> = descended.collect();
        let best = descended.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        let Some(best) = best else { return first };
        let best = self.descend(best, &RATIOS, self.budget, cost);
        self.hop(best, cost).1
    }

    /// Leaves the valley it is in along one axis after the other, far enough to come down elsewhere, until nothing is gained
    /// from any of them.
    fn hop(&mut self, mut best: Rated, cost: &mut dyn FnMut(&Point) -> f64) -> Rated {
        let mut in_vain = 0;
        for axis in (0..self.axes.len()).cycle() {
            if in_vain >= self.axes.len() || self.known.len() >= self.budget || best.0 <= self.enough {
                break;
            }
            in_vain += 1;
            for value in self.elsewhere(axis, best.1[axis]) {
                let Some(there) = self.rate(with(&best.1, axis, value), self.budget, cost) else { break };
                let there = self.descend_but(axis, there, cost);
                if there.0 < best.0 * GAIN {
                    best = self.descend(there, &RATIOS, self.budget, cost);
                    in_vain = 0;
                }
            }
        }
        best
    }

    /// The best around a point along all axes but one, so that it does not go straight back.
    fn descend_but(&mut self, kept: usize, mut best: Rated, cost: &mut dyn FnMut(&Point) -> f64) -> Rated {
        for axis in (0..self.axes.len()).filter(|&axis| axis != kept) {
            best = self.along(axis, best, HOP_RATIO, self.budget, cost);
        }
        best
    }

    /// Values of an axis that are far from this one.
    fn elsewhere(&self, axis: usize, from: f64) -> Vec<f64> {
        let values = match &self.axes[axis] {
            Axis::Any(values) => values.clone(),
            Axis::Ladder(values) => vec![values[0], values[values.len() / 2], values[values.len() - 1]],
            Axis::Scale(low, high) => vec![(from / 2.0).max(*low), (from * 2.0).min(*high)],
        };
        values.into_iter().filter(|&value| value != from).collect()
    }

    /// The best few that differ in a word: what is best with one word says little about another.
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

    /// A point's cost; `None` if so many have been asked for that no other may be.
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

    /// Goes down along the axes, with each of the ratios until they gain nothing.
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

    /// The best along one axis: a step either way, and on in the direction that gains.
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

    /// The next value of an axis in this direction, if there is one.
    fn step(&self, axis: usize, from: f64, direction: i32, ratio: f64) -> Option<f64> {
        match &self.axes[axis] {
            Axis::Any(_) => None,
            Axis::Ladder(values) => {
                let distance = |value: &f64| (value - from).abs();
                let at = (0..values.len())
                    .min_by(|&a, &b| distance(&values[a]).total_cmp(&distance(&values[b])))?;
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

fn with(point: &Point, axis: usize, value: f64) -> Point {
    let mut point = point.clone();
    point[axis] = value;
    point
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valley along three axes, with its floor at word 2, step 8 and 37 on the scale.
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
    fn search_goes_down_to_the_floor_and_asks_nothing_twice() {
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
        // The scale does not matter where the word is 0.
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
