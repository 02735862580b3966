//! Where a device was at work over time: the last, the lowest and the highest place of each bucket of time, and which
//! stripes of the address range were touched.
//!
//! A runner fills it with what its workers sent, as it ended. A device that knows where its head was can fill one with
//! that.

use super::buckets::{Bucket, Buckets};
use std::ops::Range;
use zonal_core::{Nanos, Sector};

/// Most stripes that a range is divided into.
pub const ROWS_MAX: usize = 256;

const WORDS: usize = ROWS_MAX / 64;

/// Places of one bucket of time.
#[derive(Clone, Copy, Default, Debug)]
pub struct PositionBucket {
    /// How many there were. Without any, the others mean nothing.
    pub count: u64,
    /// The lowest.
    pub min: Sector,
    /// The highest.
    pub max: Sector,
    /// The last, and when it was there.
    pub last: (Nanos, Sector),
    rows: [u64; WORDS],
}

impl PositionBucket {
    /// Runs of neighbouring stripes that were touched, rising.
    pub fn rows(&self) -> Vec<Range<usize>> {
        let is_set = |row: &usize| self.rows[row / 64] >> (row % 64) & 1 == 1;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for row in (0..ROWS_MAX).filter(is_set) {
            match runs.last_mut() {
                Some(run) if run.end == row => run.end += 1,
                _ => runs.push(row..row + 1),
            }
        }
        runs
    }
}

impl Bucket for PositionBucket {
    fn merge(&mut self, other: &PositionBucket) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if other.last.0 >= self.last.0 {
            self.last = other.last;
        }
        self.rows.iter_mut().zip(other.rows).for_each(|(own, other)| *own |= other);
    }
}

/// Places over time.
#[derive(Clone, Debug)]
pub struct PositionSeries {
    sectors: Range<Sector>,
    row_shift: u32,
    buckets: Buckets<PositionBucket>,
}

impl PositionSeries {
    /// None yet. `sectors`: the range that is divided into stripes; places outside of it count to its first or last.
    pub fn new(sectors: Range<Sector>) -> PositionSeries {
        let len = sectors.end.0.saturating_sub(sectors.start.0);
        let row_shift = (u64::BITS - len.leading_zeros()).saturating_sub(ROWS_MAX.ilog2());
        PositionSeries { sectors, row_shift, buckets: Buckets::default() }
    }

    /// The device was here at that time.
    #[inline]
    pub fn record(&mut self, at: Nanos, sector: Sector) {
        let row = sector.0.saturating_sub(self.sectors.start.0) >> self.row_shift;
        let row = row.min(ROWS_MAX as u64 - 1) as usize;
        let mut one =
            PositionBucket { count: 1, min: sector, max: sector, last: (at, sector), rows: [0; WORDS] };
        one.rows[row / 64] = 1 << (row % 64);
        self.buckets.at(at).merge(&one);
    }

    /// Adds the places of another series over the same range.
    ///
    /// # Panics
    /// If the ranges differ.
    pub fn add(&mut self, other: &PositionSeries) {
        assert_eq!(self.sectors, other.sectors, "stripes of one range are not those of another");
        self.buckets.add(&other.buckets);
    }

    /// Sectors of a run of stripes.
    pub fn sectors_of(&self, rows: &Range<usize>) -> Range<Sector> {
        let start = |row: usize| Sector(self.sectors.start.0 + ((row as u64) << self.row_shift));
        start(rows.start)..start(rows.end).min(self.sectors.end)
    }

    /// The buckets of time.
    pub fn buckets(&self) -> &Buckets<PositionBucket> {
        &self.buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(series: &PositionSeries) -> PositionBucket {
        assert_eq!(series.buckets().len(), 1);
        *series.buckets().iter().next().unwrap().1
    }

    #[test]
    fn bucket_tells_the_ends_and_the_last_place() {
        let mut series = PositionSeries::new(Sector(0)..Sector(1 << 20));
        for (at, sector) in [(1, 5000), (2, 90_000), (3, 10), (4, 7000)] {
            series.record(Nanos(at), Sector(sector));
        }
        let bucket = only(&series);
        assert_eq!((bucket.count, bucket.min, bucket.max), (4, Sector(10), Sector(90_000)));
        assert_eq!(bucket.last, (Nanos(4), Sector(7000)));
    }

    #[test]
    fn touched_stripes_hold_the_places_and_nothing_far_from_them() {
        let (start, end) = (1000, 1000 + 300_000);
        let mut series = PositionSeries::new(Sector(start)..Sector(end));
        for place in [start, start + 150_000, end - 1] {
            series.record(Nanos(1), Sector(place));
        }
        let stripes: Vec<_> = only(&series).rows().iter().map(|rows| series.sectors_of(rows)).collect();
        assert_eq!(stripes.len(), 3, "{stripes:?}");
        for (stripe, place) in stripes.iter().zip([start, start + 150_000, end - 1]) {
            assert!(stripe.contains(&Sector(place)), "{place} is not in {stripe:?}");
            assert!(stripe.end.0 - stripe.start.0 <= 300_000 / (ROWS_MAX as u64 / 2), "{stripe:?}");
        }
    }

    #[test]
    fn neighbouring_stripes_are_one_run() {
        let mut series = PositionSeries::new(Sector(0)..Sector(255));
        (10..20).chain([63, 64]).for_each(|sector| series.record(Nanos(1), Sector(sector)));
        assert_eq!(only(&series).rows(), [10..20, 63..65]);
    }

    #[test]
    fn place_outside_the_range_counts_to_its_end() {
        let mut series = PositionSeries::new(Sector(1000)..Sector(2000));
        series.record(Nanos(1), Sector(0));
        series.record(Nanos(2), Sector(1 << 40));
        let bucket = only(&series);
        assert_eq!(bucket.rows(), [0..1, 255..256]);
        assert_eq!((bucket.min, bucket.max), (Sector(0), Sector(1 << 40)));
    }

    #[test]
    fn last_place_of_two_jobs_is_the_later_one() {
        let series = |at, sector| {
            let mut series = PositionSeries::new(Sector(0)..Sector(1 << 30));
            series.record(Nanos(at), Sector(sector));
            series
        };
        for (mut first, second) in [(series(1, 10), series(2, 20)), (series(2, 20), series(1, 10))] {
            first.add(&second);
            assert_eq!(only(&first).last, (Nanos(2), Sector(20)));
        }
    }
}
