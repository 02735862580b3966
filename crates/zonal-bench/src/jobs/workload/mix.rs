//! Choice between reads and writes in a mixed job.

use super::Dir;
use super::random::{Purpose, Stream};
use crate::job::Direction;
use crate::jobs::plan::WorkerPlan;

/// Draws directions such that their shares stay close to those of the job.
///
/// After a change of direction, the previous one has to fall below its share before the next draw.
pub(super) struct Mix {
    read_percent: u8,
    current: Dir,
    /// The next draw is due once this many of the current direction have been issued.
    until: u64,
    stream: Stream,
}

impl Mix {
    pub(super) fn new(plan: &WorkerPlan) -> Mix {
        let read_percent = match plan.spec.pattern.direction {
            Direction::Read => 100,
            Direction::Write => 0,
            Direction::Mixed { read_percent } => read_percent,
        };
        Mix { read_percent, current: Dir::Read, until: 0, stream: stream(plan, 0) }
    }

    pub(super) fn restart(&mut self, plan: &WorkerPlan, pass: u64) {
        self.until = 0;
        self.stream = stream(plan, pass);
    }

    /// Share of a direction in percent.
    pub(super) fn percent(&self, dir: Dir) -> u8 {
        match dir {
            Dir::Read => self.read_percent,
            Dir::Write => 100 - self.read_percent,
        }
    }

    /// Overrides the drawn direction.
    pub(super) fn turn(&mut self, dir: Dir) {
        self.current = dir;
    }

    /// Restarts the count of issued I/Os at zero.
    pub(super) fn restart_count(&mut self) {
        self.until = 0;
    }

    /// Returns the next direction after `issued` reads and writes.
    #[inline]
    pub(super) fn next(&mut self, issued: &[u64; 2]) -> Dir {
        if issued[self.current as usize] >= self.until {
            let drawn = match self.stream.below(100) < u64::from(self.read_percent) {
                true => Dir::Read,
                false => Dir::Write,
            };
            if drawn != self.current {
                let other_percent = match self.current {
                    Dir::Read => 100 - self.read_percent,
                    Dir::Write => self.read_percent,
                };
                self.until = issued[self.current as usize] * u64::from(other_percent) / 100;
                self.current = drawn;
            }
        }
        self.current
    }
}

fn stream(plan: &WorkerPlan, pass: u64) -> Stream {
    Stream::new(plan.seed, plan.number as u64, pass, Purpose::Directions)
}
