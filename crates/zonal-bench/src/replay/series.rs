//! Number of records in flight over time.
//!
//! Keeps a bounded number of spans whatever the length of a replay: when they are used up,
//! neighbouring spans are merged in pairs, which doubles their length.

use zonal_core::Nanos;

/// Maximum number of spans. All but the shortest replays have at least half of it.
const SPANS_MAX: usize = 240;

/// Initial length of a span in nanoseconds.
const SPAN_MIN: u64 = 1_000_000;

/// One span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Total time in flight of all records within the span, in nanoseconds.
    pub busy: u64,
    /// Maximum number of records in flight at once.
    pub depth_max: u32,
    /// Records that ended in the span.
    pub ended: u64,
}

/// Queue depth over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    /// Length of a span.
    pub span: Nanos,
    /// The spans. The last one may be incomplete.
    pub spans: Vec<Span>,
    at: Nanos,
    depth: u32,
}

impl Default for Series {
    fn default() -> Series {
        Series { span: Nanos(SPAN_MIN), spans: Vec::new(), at: Nanos(0), depth: 0 }
    }
}

impl Series {
    /// Sets the number of records in flight to `depth` from `now` on.
    pub(super) fn set(&mut self, now: Nanos, depth: u32) {
        self.pass_to(now);
        self.depth = depth;
        let span = self.span_of(now);
        span.depth_max = span.depth_max.max(depth);
    }

    /// Counts a record that has ended.
    pub(super) fn ended(&mut self, now: Nanos) {
        self.span_of(now).ended += 1;
    }

    /// Mean number of records in flight in a span.
    pub fn depth_mean(&self, n: usize) -> f64 {
        let begin = n as u64 * self.span.0;
        let length = self.span.0.min(self.at.0.saturating_sub(begin));
        if length == 0 { 0.0 } else { self.spans[n].busy as f64 / length as f64 }
    }

    fn pass_to(&mut self, now: Nanos) {
        while self.at < now {
            let end = (self.at.0 / self.span.0).saturating_add(1).saturating_mul(self.span.0);
            let until = Nanos(end.min(now.0));
            let (busy, depth) = (u64::from(self.depth) * (until.0 - self.at.0), self.depth);
            let span = self.span_of(self.at);
            span.busy += busy;
            span.depth_max = span.depth_max.max(depth);
            self.at = until;
        }
    }

    fn span_of(&mut self, at: Nanos) -> &mut Span {
        while at.0 / self.span.0 >= SPANS_MAX as u64 {
            self.fold();
        }
        let n = (at.0 / self.span.0) as usize;
        if n >= self.spans.len() {
            self.spans.resize(n + 1, Span::default());
        }
        &mut self.spans[n]
    }

    fn fold(&mut self) {
        let pair = |pair: &[Span]| Span {
            busy: pair.iter().map(|span| span.busy).sum(),
            depth_max: pair.iter().map(|span| span.depth_max).max().unwrap_or_default(),
            ended: pair.iter().map(|span| span.ended).sum(),
        };
        self.spans = self.spans.chunks(2).map(pair).collect();
        self.span = Nanos(self.span.0 * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_has_the_mean_and_the_most() {
        let mut series = Series::default();
        series.set(Nanos(0), 2);
        series.set(Nanos(500_000), 4);
        series.ended(Nanos(700_000));
        series.set(Nanos(1_500_000), 0);
        series.set(Nanos(2_000_000), 0);
        assert_eq!((series.depth_mean(0), series.spans[0].depth_max, series.spans[0].ended), (3.0, 4, 1));
        assert_eq!((series.depth_mean(1), series.spans[1].depth_max), (2.0, 4));
    }

    #[test]
    fn long_replay_has_longer_spans_and_the_same_sum() {
        let mut series = Series::default();
        let second = 1_000_000_000;
        series.set(Nanos(0), 1);
        (1..=10).for_each(|n| series.set(Nanos(n * second), 1 + n as u32));
        assert!(series.spans.len() <= SPANS_MAX && series.spans.len() > SPANS_MAX / 2);
        let busy: u64 = series.spans.iter().map(|span| span.busy).sum();
        assert_eq!(busy, (1..=10).sum::<u64>() * second);
        assert_eq!(series.spans.last().map(|span| span.depth_max), Some(11));
    }
}
