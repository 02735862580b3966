//! Measures cases in turn.

use std::time::Instant;

/// A case to measure. One round returns nanoseconds per operation.
pub struct Case<'a> {
    /// Name in tables.
    pub name: &'static str,
    /// Runs one round.
    pub round: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Case<'a> {
    /// Creates a case that runs `round`.
    pub fn new(name: &'static str, round: impl FnMut() -> f64 + 'a) -> Case<'a> {
        Case { name, round: Box::new(round) }
    }
}

/// Rounds of a case, in nanoseconds per operation.
#[derive(Clone, Debug)]
pub struct Samples {
    /// In order of measurement.
    pub rounds: Vec<f64>,
}

impl Samples {
    /// Median of the rounds.
    pub fn median(&self) -> f64 {
        quantile(&self.rounds, 0.5)
    }

    /// Half the interquartile range, relative to the median.
    pub fn spread(&self) -> f64 {
        (quantile(&self.rounds, 0.75) - quantile(&self.rounds, 0.25)) / 2.0 / self.median()
    }

    /// Applies `by` to the rounds of this and `other` pairwise, so that drift affects both sides.
    pub fn against(&self, other: &Samples, by: impl Fn(f64, f64) -> f64) -> Samples {
        Samples { rounds: self.rounds.iter().zip(&other.rounds).map(|(&a, &b)| by(a, b)).collect() }
    }
}

/// Mean of `figures`, which must not be empty.
pub fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// Minimum and maximum of `figures`.
pub fn span(figures: &[f64]) -> (f64, f64) {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(0.0, f64::max);
    (least, most)
}

fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// Measures all cases in turn, round by round, after one round of each for warming up.
pub fn interleave(rounds: usize, cases: &mut [Case<'_>]) -> Vec<Samples> {
    let mut samples = vec![Samples { rounds: Vec::new() }; cases.len()];
    for round in 0..=rounds {
        for (case, samples) in cases.iter_mut().zip(&mut samples) {
            let ns = (case.round)();
            if round > 0 {
                samples.rounds.push(ns);
            }
        }
    }
    samples
}

/// Nanoseconds per operation of `work`, which does `operations` of them.
pub fn time(operations: u64, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e9 / operations as f64
}
