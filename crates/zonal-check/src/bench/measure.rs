//! Measuring cases in turn.

use std::time::Instant;

/// Something to be measured: a round of it, returning nanoseconds an operation.
pub struct Case<'a> {
    /// Name in tables.
    pub name: &'static str,
    /// One round.
    pub round: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Case<'a> {
    /// A case whose round is `round`.
    pub fn new(name: &'static str, round: impl FnMut() -> f64 + 'a) -> Case<'a> {
        Case { name, round: Box::new(round) }
    }
}

/// A case's rounds, in nanoseconds an operation.
#[derive(Clone, Debug)]
pub struct Samples {
    /// In the order of measurement.
    pub rounds: Vec<f64>,
}

impl Samples {
    /// The middle one.
    pub fn median(&self) -> f64 {
        quantile(&self.rounds, 0.5)
    }

    /// Half the distance between the quartiles, as a part of the median.
    pub fn spread(&self) -> f64 {
        (quantile(&self.rounds, 0.75) - quantile(&self.rounds, 0.25)) / 2.0 / self.median()
    }

    /// The median of `by` applied to this and `other`, round by round: what drifts, drifts in both.
    pub fn against(&self, other: &Samples, by: impl Fn(f64, f64) -> f64) -> Samples {
        Samples { rounds: self.rounds.iter().zip(&other.rounds).map(|(&a, &b)| by(a, b)).collect() }
    }
}

/// The mean of these, which are one at least.
pub fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// The least and the most of these.
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

/// Measures all cases in turn, round by round, after one round of each that is not counted.
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

/// Nanoseconds an operation that `work` takes for `operations`.
pub fn time(operations: u64, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e9 / operations as f64
}
