//! Latencies: exact extremes and moments, and a histogram for the percentiles.

use hdrhistogram::Histogram;

/// Longest latency that the histogram resolves, in nanoseconds: the end of fio's own table (17 s),
/// which its tools do not exceed. Longer ones count as this value in percentiles; minimum, maximum
/// and mean are exact.
pub const HISTOGRAM_MAX: u64 = 17_112_760_320;

/// Significant digits of percentiles: 1%, finer than fio's 1.5%, at 30 KiB per histogram.
const DIGITS: u8 = 2;

/// Latencies of one kind, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    min: u64,
    max: u64,
    sum: u128,
    sum_of_squares: f64,
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl Latency {
    /// Creates an empty set.
    pub fn new() -> Latency {
        let histogram = Histogram::new_with_bounds(1, HISTOGRAM_MAX, DIGITS);
        Latency {
            min: u64::MAX,
            max: 0,
            sum: 0,
            sum_of_squares: 0.0,
            histogram: histogram.expect("the bounds and digits are in range"),
        }
    }

    /// Adds one latency.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
        self.sum += u128::from(nanos);
        self.sum_of_squares += nanos as f64 * nanos as f64;
        self.histogram.saturating_record(nanos);
    }

    /// Adds all latencies of another set.
    pub fn add(&mut self, other: &Latency) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    /// Number of latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Minimum, or 0 if empty.
    pub fn min(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min }
    }

    /// Maximum, or 0 if empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean, or 0 if empty.
    pub fn mean(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            n => self.sum as f64 / n as f64,
        }
    }

    /// Sample standard deviation, or 0 for fewer than two.
    pub fn stddev(&self) -> f64 {
        let n = self.count() as f64;
        if n < 2.0 {
            return 0.0;
        }
        let squares = self.sum_of_squares - n * self.mean() * self.mean();
        (squares / (n - 1.0)).max(0.0).sqrt()
    }

    /// Percentile, or 0 if empty.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent).min(self.max)
    }

    /// Number of latencies below `nanos`, to the histogram's precision.
    pub fn count_below(&self, nanos: u64) -> u64 {
        match nanos {
            0 => 0,
            n => self.histogram.count_between(0, n - 1),
        }
    }

    /// Bins in ascending order, with their counts. A bin is named by its upper end and starts after
    /// the previous bin.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_since_last_iteration()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact_and_percentiles_close() {
        let mut latency = Latency::new();
        (1..=1000).for_each(|n| latency.record(n * 100));
        assert_eq!((latency.count(), latency.min(), latency.max()), (1000, 100, 100_000));
        assert!((latency.mean() - 50_050.0).abs() < 1e-6);
        assert!((latency.stddev() - 28_881.94).abs() < 0.1, "{}", latency.stddev());
        let median = latency.percentile(50.0);
        assert!((49_500..=50_500).contains(&median), "{median}");
        assert_eq!(latency.percentile(100.0), 100_000);
    }

    #[test]
    fn empty_is_all_zero() {
        let latency = Latency::new();
        assert_eq!((latency.count(), latency.min(), latency.max(), latency.percentile(99.0)), (0, 0, 0, 0));
        assert_eq!((latency.mean(), latency.stddev()), (0.0, 0.0));
    }

    #[test]
    fn added_equals_recorded_together() {
        let (mut a, mut b, mut both) = (Latency::new(), Latency::new(), Latency::new());
        for n in 0..500u64 {
            let nanos = n * n + 1;
            if n % 3 == 0 {
                a.record(nanos)
            } else {
                b.record(nanos)
            }
            both.record(nanos);
        }
        a.add(&b);
        assert_eq!((a.count(), a.min(), a.max()), (both.count(), both.min(), both.max()));
        assert_eq!(a.bins().collect::<Vec<_>>(), both.bins().collect::<Vec<_>>());
        assert!((a.stddev() - both.stddev()).abs() < 1e-3);
    }

    #[test]
    fn time_beyond_the_table_keeps_the_exact_maximum() {
        let mut latency = Latency::new();
        latency.record(100_000_000_000);
        assert_eq!(latency.max(), 100_000_000_000);
        assert!(latency.bins().all(|(nanos, _)| nanos < 2 * HISTOGRAM_MAX));
    }
}
