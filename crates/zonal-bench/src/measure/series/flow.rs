//! Requests completed by a job in each time bucket, and their latencies.
//!
//! # Why two representations
//! Requests complete in order of time, so only one bucket is being recorded. It has a full table of
//! bins, of which a few lines are in the cache. The others keep only their non-empty bins,
//! typically some tens.

use super::buckets::{Bucket, Buckets};
use zonal_core::Nanos;

/// Bins per octave, as a power of two. The resolution is 6%.
const SUB_BITS: u32 = 4;

/// Total number of bins.
const BINS: usize = ((64 - SUB_BITS as usize) << SUB_BITS) + (1 << SUB_BITS);

/// Times below 16 ns have a bin each. Longer times are binned by their leading five bits.
#[inline]
fn bin_of(nanos: u64) -> usize {
    let octave = (nanos | (1 << SUB_BITS)).ilog2() - SUB_BITS;
    ((octave as usize) << SUB_BITS) + (nanos >> octave) as usize
}

/// Longest time of a bin.
fn longest_of(bin: usize) -> u64 {
    let octave = (bin >> SUB_BITS).saturating_sub(1) as u32;
    let leading = (bin as u64) - (u64::from(octave) << SUB_BITS);
    (leading << octave) + ((1 << octave) - 1)
}

/// Requests completed in one time bucket.
#[derive(Clone, Default, Debug)]
pub struct FlowBucket {
    /// Number of requests.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of their latencies in nanoseconds.
    pub nanos: u64,
    /// Maximum latency in nanoseconds.
    pub nanos_max: u64,
    /// Non-empty bins in ascending order.
    bins: Vec<(u16, u64)>,
}

impl FlowBucket {
    /// Mean latency in nanoseconds; `None` without requests.
    pub fn mean(&self) -> Option<f64> {
        (self.ios > 0).then(|| self.nanos as f64 / self.ios as f64)
    }

    /// Percentile of the latency to within 6%; `None` without requests.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let rank = ((self.ios as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        let reaches = |(_, count): &&(u16, u64)| {
            seen += count;
            seen >= rank
        };
        let (bin, _) = self.bins.iter().find(reaches)?;
        Some(longest_of(usize::from(*bin)).min(self.nanos_max))
    }
}

impl Bucket for FlowBucket {
    fn merge(&mut self, other: &FlowBucket) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.nanos_max = self.nanos_max.max(other.nanos_max);
        for &(bin, count) in &other.bins {
            match self.bins.binary_search_by_key(&bin, |(bin, _)| *bin) {
                Ok(n) => self.bins[n].1 += count,
                Err(n) => self.bins.insert(n, (bin, count)),
            }
        }
    }
}

/// Requests and latencies over time.
pub type FlowSeries = Buckets<FlowBucket>;

impl FlowSeries {
    /// Total number of requests.
    pub fn ios(&self) -> u64 {
        self.iter().map(|(_, bucket)| bucket.ios).sum()
    }
}

/// A series during recording.
pub(super) struct FlowRecorder {
    series: FlowSeries,
    /// Time of the last completion, which lies in the open bucket.
    at: Nanos,
    open: FlowBucket,
    bins: Box<[u32; BINS]>,
    /// Range of bins that may be non-empty.
    used: (usize, usize),
}

impl Default for FlowRecorder {
    fn default() -> FlowRecorder {
        FlowRecorder {
            series: FlowSeries::default(),
            at: Nanos(0),
            open: FlowBucket::default(),
            bins: Box::new([0; BINS]),
            used: (BINS, 0),
        }
    }
}

impl FlowRecorder {
    #[inline]
    pub(super) fn record(&mut self, at: Nanos, nanos: u64, bytes: u64) {
        let index = self.series.index(at);
        // After a change of the width the indices differ, so the index of the open bucket is not
        // stored.
        if index != self.series.index(self.at) || self.open.ios == u64::from(u32::MAX) {
            self.close();
        }
        self.at = at;
        let open = &mut self.open;
        open.ios += 1;
        open.bytes += bytes;
        open.nanos = open.nanos.saturating_add(nanos);
        open.nanos_max = open.nanos_max.max(nanos);
        let bin = bin_of(nanos);
        self.bins[bin] += 1;
        self.used = (self.used.0.min(bin), self.used.1.max(bin));
    }

    /// Stores the open bucket in the series.
    fn close(&mut self) {
        let (low, high) = std::mem::replace(&mut self.used, (BINS, 0));
        if self.open.ios == 0 {
            return;
        }
        for bin in low..=high {
            let count = std::mem::take(&mut self.bins[bin]);
            if count > 0 {
                self.open.bins.push((bin as u16, u64::from(count)));
            }
        }
        let open = std::mem::take(&mut self.open);
        self.series.at(self.at).merge(&open);
    }

    pub(super) fn finish(mut self) -> FlowSeries {
        self.close();
        self.series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(samples: impl IntoIterator<Item = (u64, u64)>) -> FlowSeries {
        let mut recorder = FlowRecorder::default();
        samples.into_iter().for_each(|(at, nanos)| recorder.record(Nanos(at), nanos, 8));
        recorder.finish()
    }

    #[test]
    fn every_time_is_in_a_bin_that_is_not_6_percent_longer() {
        let mut last = 0;
        for nanos in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + (1 << bit) / 3]) {
            let bin = bin_of(nanos);
            assert!(bin < BINS && bin >= last, "{nanos}");
            last = bin_of(nanos).max(last);
            let longest = longest_of(bin);
            assert_eq!(bin_of(longest), bin, "{nanos}");
            assert!(longest >= nanos && longest - nanos <= nanos / 16, "{nanos} in a bin up to {longest}");
        }
        assert_eq!(bin_of(u64::MAX), BINS - 1);
    }

    #[test]
    fn series_of_a_long_run_has_every_request_and_its_time() {
        let series = recorded((0..50_000).map(|n| (n * 7_000_000, 1000 + n % 100)));
        assert_eq!(series.ios(), 50_000);
        assert!(series.len() <= super::super::BUCKETS_MAX);
        for (_, bucket) in series.iter() {
            assert_eq!(bucket.bytes, bucket.ios * 8);
            assert_eq!(bucket.bins.iter().map(|(_, count)| count).sum::<u64>(), bucket.ios);
            assert!((1000.0..1100.0).contains(&bucket.mean().unwrap()));
        }
    }

    #[test]
    fn percentile_of_a_bucket_is_close_and_not_above_the_maximum() {
        let series = recorded((1..=1000).map(|n| (n, n * 1000)));
        let (_, bucket) = series.iter().next().unwrap();
        let p99 = bucket.percentile(99.0).unwrap();
        assert!((990_000..=1_000_000).contains(&p99), "{p99}");
        assert_eq!((bucket.percentile(100.0), bucket.nanos_max), (Some(1_000_000), 1_000_000));
        assert_eq!((bucket.mean(), FlowBucket::default().percentile(99.0)), (Some(500_500.0), None));
    }

    #[test]
    fn out_of_order_completion_is_counted_in_its_own_bucket() {
        let series = recorded([(0, 10), (500_000, 20), (100, 30)]);
        let ios: Vec<u64> = series.iter().map(|(_, bucket)| bucket.ios).collect();
        assert_eq!((ios[0], ios[ios.len() - 1], series.ios()), (2, 1, 3));
    }

    #[test]
    fn widening_does_not_mix_the_open_bucket_with_one_that_takes_its_number() {
        let series = recorded([(300 << 16, 10), (600 << 16, 20)]);
        let busy = series.iter().filter(|(_, bucket)| bucket.ios > 0);
        let starts: Vec<u64> = busy.map(|(time, _)| time.start.0).collect();
        assert_eq!(starts, [300 << 16, 600 << 16]);
    }

    #[test]
    fn flows_of_two_jobs_add_up_with_their_percentiles() {
        let mut slow = recorded((0..100).map(|n| (n, 9000)));
        slow.add(&recorded((0..900).map(|n| (n * 1_000_000, 100))));
        assert_eq!(slow.ios(), 1000);
        let (_, first) = slow.iter().next().unwrap();
        assert_eq!(first.percentile(99.0), Some(9000));
    }
}
