//! Samples of a rate over time.

/// Minimum, maximum, mean and standard deviation of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Samples {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
    sum_of_squares: f64,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { count: 0, min: f64::INFINITY, max: 0.0, sum: 0.0, sum_of_squares: 0.0 }
    }
}

impl Samples {
    /// Adds a sample.
    pub fn record(&mut self, value: f64) {
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    /// Adds the concurrent samples of another job. As in fio, sums are compared with sums.
    pub fn add(&mut self, other: &Samples) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let mean = self.mean() + other.mean();
        let deviation = self.stddev().hypot(other.stddev());
        let count = self.count + other.count;
        self.min += other.min;
        self.max += other.max;
        self.count = count;
        self.sum = mean * count as f64;
        self.sum_of_squares = deviation * deviation * (count as f64 - 1.0) + count as f64 * mean * mean;
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Minimum, or 0 if empty.
    pub fn min(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.min }
    }

    /// Maximum, or 0 if empty.
    pub fn max(&self) -> f64 {
        self.max
    }

    /// Mean, or 0 if empty.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Standard deviation, or 0 for fewer than two.
    pub fn stddev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        ((self.sum_of_squares - n * self.mean() * self.mean()) / (n - 1.0)).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_two_jobs_add_up() {
        let (mut a, mut b) = (Samples::default(), Samples::default());
        [10.0, 20.0, 30.0].iter().for_each(|&v| a.record(v));
        [1.0, 2.0, 3.0].iter().for_each(|&v| b.record(v));
        a.add(&b);
        assert_eq!((a.count(), a.min(), a.max()), (6, 11.0, 33.0));
        assert!((a.mean() - 22.0).abs() < 1e-9);
        assert!((a.stddev() - 101f64.sqrt()).abs() < 1e-6);
    }

    #[test]
    fn no_samples_are_zero() {
        let none = Samples::default();
        assert_eq!((none.min(), none.max(), none.mean(), none.stddev()), (0.0, 0.0, 0.0, 0.0));
    }
}
