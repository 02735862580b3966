//! Bounded number of time buckets: when they are used up, neighbours are merged in pairs.
//!
//! # Invariants
//! - There are at most [`BUCKETS_MAX`] buckets, all of the same width, which is a power of two and
//!   only grows.
//! - Bucket `n` covers the time from `n` to `n + 1` widths after zero.
//! - Every recorded event is in exactly one bucket, whatever the sequence of widths.

use std::ops::Range;
use zonal_core::Nanos;

/// Maximum number of buckets in a series, about the resolution of a chart.
pub const BUCKETS_MAX: usize = 512;

/// The initial width is 2^16 ns, 66 us. Runs of 33 ms and more use all buckets.
const FIRST_SHIFT: u32 = 16;

/// Content of a bucket.
pub trait Bucket: Clone + Default {
    /// Adds the content of another bucket.
    fn merge(&mut self, other: &Self);
}

/// Buckets starting at time zero.
#[derive(Clone, Debug)]
pub struct Buckets<B> {
    /// Binary logarithm of the width in nanoseconds.
    shift: u32,
    buckets: Vec<B>,
    until: Nanos,
}

impl<B> Default for Buckets<B> {
    fn default() -> Buckets<B> {
        Buckets { shift: FIRST_SHIFT, buckets: Vec::new(), until: Nanos(0) }
    }
}

impl<B: Bucket> Buckets<B> {
    /// Bucket of a point in time.
    #[inline]
    pub fn at(&mut self, at: Nanos) -> &mut B {
        let index = self.index(at);
        if index >= self.buckets.len() {
            self.buckets.resize_with(index + 1, B::default);
        }
        &mut self.buckets[index]
    }

    /// Index of the bucket of a point in time, making room if necessary. Valid until the next call.
    #[inline]
    pub fn index(&mut self, at: Nanos) -> usize {
        self.until = self.until.max(at);
        while at.0 >> self.shift >= BUCKETS_MAX as u64 {
            self.coarsen();
        }
        (at.0 >> self.shift) as usize
    }

    /// Doubles the width of the buckets.
    #[cold]
    pub fn coarsen(&mut self) {
        self.shift += 1;
        for n in 0..self.buckets.len().div_ceil(2) {
            let mut merged = std::mem::take(&mut self.buckets[2 * n]);
            if let Some(second) = self.buckets.get(2 * n + 1) {
                merged.merge(second);
            }
            self.buckets[n] = merged;
        }
        self.buckets.truncate(self.buckets.len().div_ceil(2));
    }

    /// Adds a series with the same time zero. The result has the larger of the two widths.
    pub fn add(&mut self, other: &Buckets<B>) {
        while self.shift < other.shift {
            self.coarsen();
        }
        for (n, bucket) in other.buckets.iter().enumerate() {
            self.at(Nanos((n as u64) << other.shift)).merge(bucket);
        }
        self.until = self.until.max(other.until);
    }

    /// Applies a change to each bucket.
    pub(super) fn each(&mut self, change: impl FnMut(&mut B)) {
        self.buckets.iter_mut().for_each(change);
    }

    /// Width of a bucket.
    pub fn width(&self) -> Nanos {
        Nanos(1 << self.shift)
    }

    /// Number of buckets, including empty ones between others.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// True if nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Iterates over the buckets with their time ranges. The last range ends at the last recorded
    /// event.
    pub fn iter(&self) -> impl Iterator<Item = (Range<Nanos>, &B)> {
        self.buckets.iter().enumerate().map(|(n, bucket)| {
            let (from, to) = ((n as u64) << self.shift, (n as u64 + 1) << self.shift);
            (
                Nanos(from)..Nanos(if n + 1 == self.buckets.len() { self.until.0.max(from + 1) } else { to }),
                bucket,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Default, PartialEq, Eq, Debug)]
    struct Moments(Vec<u64>);

    impl Bucket for Moments {
        fn merge(&mut self, other: &Moments) {
            self.0.extend(&other.0);
        }
    }

    fn of(moments: &[u64]) -> Buckets<Moments> {
        let mut buckets = Buckets::<Moments>::default();
        moments.iter().for_each(|&at| buckets.at(Nanos(at)).0.push(at));
        buckets
    }

    /// Checks that every event lies within the time of its bucket, and that none is missing.
    fn check(buckets: &Buckets<Moments>, moments: &[u64]) {
        assert!(buckets.len() <= BUCKETS_MAX, "{} buckets", buckets.len());
        let mut found = Vec::new();
        for (time, bucket) in buckets.iter() {
            for &at in &bucket.0 {
                assert!(time.start.0 <= at && at <= time.end.0, "{at} is not in {time:?}");
                found.push(at);
            }
        }
        let mut moments = moments.to_vec();
        moments.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, moments);
    }

    #[test]
    fn time_beyond_the_last_bucket_makes_all_wider() {
        let moments: Vec<u64> = (0..100_000).map(|n| n * 1_000_000).collect();
        let buckets = of(&moments);
        assert!(buckets.len() > BUCKETS_MAX / 2, "{} buckets", buckets.len());
        check(&buckets, &moments);
    }

    #[test]
    fn one_moment_at_the_end_of_time_is_kept() {
        check(&of(&[0, 1 << 40, u64::MAX >> 1]), &[0, 1 << 40, u64::MAX >> 1]);
    }

    #[test]
    fn last_bucket_ends_with_the_last_moment() {
        let buckets = of(&[5, 70_000]);
        let times: Vec<_> = buckets.iter().map(|(time, _)| (time.start.0, time.end.0)).collect();
        assert_eq!(times, [(0, 65_536), (65_536, 70_000)]);
    }

    #[test]
    fn series_made_coarser_than_it_has_to_be_adds_up_all_the_same() {
        let mut coarse = of(&[5, 100_000, 300_000]);
        (0..3).for_each(|_| coarse.coarsen());
        let mut sum = of(&[200_000]);
        sum.add(&coarse);
        check(&sum, &[5, 100_000, 200_000, 300_000]);
    }

    proptest! {
        #[test]
        fn added_series_hold_what_both_held(
            a in proptest::collection::vec(0..u64::MAX >> 20, 0..200),
            b in proptest::collection::vec(0..u64::MAX >> 30, 0..200),
        ) {
            for (first, second) in [(&a, &b), (&b, &a)] {
                let mut sum = of(first);
                sum.add(&of(second));
                check(&sum, &[first.as_slice(), second].concat());
            }
        }
    }
}
