//! Positions of a device over time: the last, lowest and highest position of each time bucket, and
//! the stripes of the address range that were touched.
//!
//! A runner records one series from the completed requests of its workers, and another from the
//! head's positions if the device has a head and reports them.
//!
//! # Width of a stripe
//! As narrow as the touched addresses allow, since with the full address range a few zones out of
//! many would share a stripe. Stripes start with the width of a sector and are merged in pairs when
//! a position lies outside of them. Boundaries are multiples of the width rather than relative to
//! the first position, so the series of several jobs can be added.

use super::buckets::{Bucket, Buckets};
use std::ops::Range;
use zonal_core::{Nanos, Sector};

/// Maximum number of stripes.
pub const ROWS_MAX: usize = 256;

const WORDS: usize = ROWS_MAX / 64;

/// Positions in one time bucket.
#[derive(Clone, Copy, Default, Debug)]
pub struct PositionBucket {
    /// Number of positions. If zero, the other fields are meaningless.
    pub count: u64,
    /// Lowest position.
    pub min: Sector,
    /// Highest position.
    pub max: Sector,
    /// Last position, with its time.
    pub last: (Nanos, Sector),
    rows: [u64; WORDS],
}

impl PositionBucket {
    /// Runs of neighbouring touched stripes, in ascending order.
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

/// Grid of a series: stripes of `1 << shift` sectors, starting with stripe number `first`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Grid {
    shift: u32,
    first: u64,
}

impl Grid {
    #[inline]
    fn row(&self, sector: Sector) -> Option<usize> {
        let row = (sector.0 >> self.shift).checked_sub(self.first)?;
        (row < ROWS_MAX as u64).then_some(row as usize)
    }

    fn start(&self, row: usize) -> Sector {
        Sector((self.first + row as u64) << self.shift)
    }

    /// Finds the narrowest grid, but not narrower than this one, that covers `low` to `high` and
    /// has spare stripes on the side of `place`.
    fn for_all(&self, low: Sector, high: Sector, place: Sector) -> Grid {
        let is_too_wide = |shift: &u32| (high.0 >> shift) - (low.0 >> shift) >= ROWS_MAX as u64;
        let shift = (self.shift..u64::BITS).find(|shift| !is_too_wide(shift)).unwrap_or(u64::BITS - 1);
        let first = match place == low {
            true => (high.0 >> shift).saturating_sub(ROWS_MAX as u64 - 1),
            false => low.0 >> shift,
        };
        Grid { shift, first }
    }
}

impl PositionBucket {
    /// Moves the touched stripes to another grid, which has room for them.
    fn divide(&mut self, from: &Grid, to: &Grid) {
        let mut rows = [0; WORDS];
        for row in self.rows().into_iter().flatten() {
            let row = to.row(from.start(row)).expect("a wider grid has room for all");
            rows[row / 64] |= 1 << (row % 64);
        }
        self.rows = rows;
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

/// Positions over time.
#[derive(Clone, Debug)]
pub struct PositionSeries {
    sectors: Range<Sector>,
    grid: Grid,
    /// Lowest and highest position, limited to `sectors`.
    ends: Option<(Sector, Sector)>,
    buckets: Buckets<PositionBucket>,
}

impl PositionSeries {
    /// Creates an empty series over `sectors`. Positions outside count as its first or last sector.
    pub fn new(sectors: Range<Sector>) -> PositionSeries {
        PositionSeries { sectors, grid: Grid::default(), ends: None, buckets: Buckets::default() }
    }

    /// Records the device's position at a point in time.
    #[inline]
    pub fn record(&mut self, at: Nanos, sector: Sector) {
        let place = sector.max(self.sectors.start).min(Sector(self.sectors.end.0.saturating_sub(1)));
        self.touch(place);
        let mut one =
            PositionBucket { count: 1, min: sector, max: sector, last: (at, sector), rows: [0; WORDS] };
        if let Some(row) = self.grid.row(place) {
            one.rows[row / 64] = 1 << (row % 64);
        }
        self.buckets.at(at).merge(&one);
    }

    /// Extends the grid to cover a position.
    #[inline]
    fn touch(&mut self, place: Sector) {
        let (low, high) = self.ends.map_or((place, place), |(low, high)| (low.min(place), high.max(place)));
        if self.ends.is_none() {
            self.grid = Grid { shift: 0, first: place.0 };
        }
        self.ends = Some((low, high));
        if self.grid.row(place).is_none() {
            self.divide(self.grid.for_all(low, high, place));
        }
    }

    #[cold]
    fn divide(&mut self, grid: Grid) {
        self.buckets.each(|bucket| bucket.divide(&self.grid, &grid));
        self.grid = grid;
    }

    /// Adds another series over the same range.
    ///
    /// # Panics
    /// If the ranges differ.
    pub fn add(&mut self, other: &PositionSeries) {
        assert_eq!(self.sectors, other.sectors, "places of one range are not those of another");
        let Some((low, high)) = other.ends else { return };
        let (low, high) = self.ends.map_or((low, high), |(a, b)| (low.min(a), high.max(b)));
        self.ends = Some((low, high));
        let coarser = Grid { shift: self.grid.shift.max(other.grid.shift), first: 0 };
        let common = coarser.for_all(low, high, high);
        let mut other = other.clone();
        self.divide(common);
        other.divide(common);
        self.buckets.add(&other.buckets);
    }

    /// Sectors of a run of stripes.
    pub fn sectors_of(&self, rows: &Range<usize>) -> Range<Sector> {
        let (start, end) = (self.grid.start(rows.start), self.grid.start(rows.end));
        start.max(self.sectors.start)..end.min(self.sectors.end)
    }

    /// Time buckets.
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
    fn bucket_has_min_max_and_last_position() {
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

    fn stripes(series: &PositionSeries) -> Vec<Range<u64>> {
        let runs = only(series).rows();
        runs.iter().map(|rows| series.sectors_of(rows)).map(|run| run.start.0..run.end.0).collect()
    }

    #[test]
    fn neighbouring_stripes_are_one_run() {
        let mut series = PositionSeries::new(Sector(0)..Sector(255));
        (10..20).chain([63, 64]).for_each(|sector| series.record(Nanos(1), Sector(sector)));
        assert_eq!(stripes(&series), [10..20, 63..65]);
    }

    #[test]
    fn few_zones_of_many_have_stripes_of_their_own() {
        const ZONE: u64 = 1 << 19;
        let mut series = PositionSeries::new(Sector(0)..Sector(112_000 * ZONE));
        for zone in [57_500, 57_502, 57_499, 57_506] {
            (0..ZONE).step_by(2048).for_each(|at| series.record(Nanos(1), Sector(zone * ZONE + at)));
        }
        let zones: Vec<u64> = stripes(&series).iter().map(|run| (run.end - run.start) / ZONE).collect();
        assert_eq!(zones, [2, 1, 1], "{:?}", stripes(&series));
    }

    #[test]
    fn stripes_of_two_jobs_are_those_of_one_that_did_both() {
        let places = |from: u64, step: u64| (0..100).map(move |n| from + n * step);
        let record = |places: &mut dyn Iterator<Item = u64>| {
            let mut series = PositionSeries::new(Sector(0)..Sector(1 << 40));
            places.for_each(|place| series.record(Nanos(1), Sector(place)));
            series
        };
        let (near, far) = (record(&mut places(1 << 20, 7)), record(&mut places(5, 1 << 14)));
        for (mut first, second) in [(near.clone(), &far), (far.clone(), &near)] {
            first.add(second);
            for place in places(1 << 20, 7).chain(places(5, 1 << 14)) {
                assert!(stripes(&first).iter().any(|run| run.contains(&place)), "{place} is in no stripe");
            }
            let shaded: u64 = stripes(&first).iter().map(|run| run.end - run.start).sum();
            assert!(shaded < 101 << 14, "{shaded} sectors for some hundred places");
        }
    }

    #[test]
    fn place_outside_the_range_counts_to_its_end() {
        let mut series = PositionSeries::new(Sector(1000)..Sector(2000));
        series.record(Nanos(2), Sector(1 << 40));
        series.record(Nanos(1), Sector(0));
        let bucket = only(&series);
        assert_eq!(stripes(&series), [1000..1004, 1996..2000]);
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
