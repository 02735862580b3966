//! Pace of writers while the collector works and space is low.
//!
//! Without pacing, writers would use up all space at the speed of the drive, and then wait for
//! seconds until a whole zone has been collected. With pacing, each waits a little: the gain of a
//! victim is handed out in small portions, ahead of each step of the work on it. The less space is
//! left, the less is handed out for the same work, and vice versa, so the level of free space
//! stabilises.
//!
//! # Why the pace is even
//! Free space falls while the gain of a victim is handed out, and rises by all of it with the
//! reset. If the pace followed that, writers would be fast after a reset and slow before the next
//! one, and with many writers some would wait for seconds. So the pace is computed from the middle
//! of this rise and fall. Only a small share is withheld for the commit and the reset, which take
//! little time, because it reaches all writers at once.
//!
//! # Data in flight
//! Unpaced writers fill the allowed number of blocks in flight. The collector's batches would queue
//! behind all of these, and writers behind the batches. So the allowance shrinks before pacing
//! starts.
//!
//! All counts are blocks.

/// Inverse of the share of a victim's gain that is handed out only after its copies are done, for
/// the commit and the reset.
const END_PART: u64 = 16;

/// Gain of a victim, and the share of it that has been handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    gain: u64,
    /// Blocks to read and to write, plus a few for the commit and the reset.
    work: u64,
    done: u64,
    earned: u64,
}

/// Blocks that work on a victim earns for writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Earned {
    /// Blocks of the victim's gain.
    pub blocks: u64,
    /// Blocks of the gain handed out before this, minus half the gain.
    pub ahead: i64,
}

impl Progress {
    /// Progress for a victim of `capacity` with `used` live blocks.
    pub fn new(capacity: u32, used: u32) -> Progress {
        let copies = 2 * u64::from(used);
        let work = copies + copies / (END_PART - 1);
        Progress { gain: u64::from(capacity - used), work, done: 0, earned: 0 }
    }

    /// Called ahead of reading or writing `blocks` more. Returns the blocks earned.
    pub fn continues(&mut self, blocks: u32) -> Earned {
        self.done = (self.done + u64::from(blocks)).min(self.work);
        self.pay((self.gain * self.done).checked_div(self.work).unwrap_or(self.gain))
    }

    /// Called when all blocks are done. Returns the rest of the gain, including that of blocks
    /// freed meanwhile.
    pub fn ends(&mut self) -> Earned {
        self.pay(self.gain)
    }

    fn pay(&mut self, due: u64) -> Earned {
        let ahead = self.earned as i64 - (self.gain / 2) as i64;
        let blocks = due - self.earned;
        self.earned = due;
        Earned { blocks, ahead }
    }
}

/// Allowance of writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Pace {
    /// Writers are paced only if less than this is left.
    pub mark: u64,
    /// Earned and not yet used; negative after a writer took more than was left.
    tokens: i64,
}

impl Pace {
    /// True if a writer may take `blocks` of `left`.
    pub fn allows(&self, blocks: u64, left: u64) -> bool {
        left.saturating_sub(blocks) >= self.mark || self.tokens > 0
    }

    /// Records that a writer takes `blocks` of `left`.
    pub fn spent(&mut self, blocks: u64, left: u64) {
        if left.saturating_sub(blocks) < self.mark {
            self.tokens -= blocks as i64;
        }
    }

    /// Maximum number of blocks in flight: `most` if twice the mark is left, falling to a quarter
    /// at the mark and below.
    pub fn share_in_flight(&self, most: u64, left: u64) -> u64 {
        let mark = self.mark.max(1);
        let above = left.saturating_sub(mark).min(mark);
        let quarter = most / 4;
        quarter + ((most - quarter) as u128 * u128::from(above) / u128::from(mark)) as u64
    }

    /// Credits blocks earned by the collector. `left` is corrected as if half of the victim's gain
    /// were handed out. If nothing is left, writers get half of the blocks; at about 0.4 of the
    /// mark they get as many as were earned, and at the mark four times as many. Unused tokens are
    /// capped at a sixteenth of the mark.
    pub fn earned(&mut self, earned: Earned, left: u64) {
        let (blocks, mark) = (u128::from(earned.blocks), u128::from(self.mark.max(1)));
        let left = u128::from(left.saturating_add_signed(earned.ahead)).min(mark);
        let handed = blocks / 2 + blocks * 7 * left * left / (2 * mark * mark);
        let most = i64::try_from(self.mark / 16).unwrap_or(i64::MAX).max(1);
        self.tokens = self.tokens.saturating_add(i64::try_from(handed).unwrap_or(i64::MAX)).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn victim_brings_all_that_it_gains_bit_by_bit() {
        let mut progress = Progress::new(1000, 200);
        let earned: Vec<Earned> = (0..4).map(|_| progress.continues(100)).collect();
        assert_eq!(earned.iter().map(|earned| earned.blocks).collect::<Vec<_>>(), [187, 188, 188, 188]);
        assert_eq!(earned.iter().map(|earned| earned.ahead).collect::<Vec<_>>(), [-400, -213, -25, 163]);
        assert_eq!((progress.ends().blocks, progress.ends().blocks), (49, 0));
        let mut shrunk = Progress::new(1000, 200);
        assert_eq!((shrunk.continues(100).blocks, shrunk.ends().blocks), (187, 613));
        assert_eq!(Progress::new(10, 0).continues(0).blocks, 10);
    }

    /// Earnings from a victim with half of its gain handed out.
    fn brings(blocks: u64) -> Earned {
        Earned { blocks, ahead: 0 }
    }

    #[test]
    fn writers_are_held_up_below_the_mark_alone() {
        let mut pace = Pace { mark: 100, tokens: 0 };
        assert!(pace.allows(10, 110) && !pace.allows(10, 109));
        pace.spent(10, 110);
        pace.earned(brings(4), 0);
        assert!(pace.allows(50, 60), "more than there are tokens is taken at once");
        pace.spent(50, 60);
        assert!(!pace.allows(1, 10));
        pace.earned(brings(95), 0);
        assert!(!pace.allows(1, 10), "it is paid back first");
        pace.earned(brings(4), 0);
        assert!(pace.allows(1, 10));
    }

    #[test]
    fn less_is_in_flight_before_writers_are_held_up() {
        let pace = Pace { mark: 1000, tokens: 0 };
        let shares = [3000, 2000, 1500, 1000, 10].map(|left| pace.share_in_flight(64, left));
        assert_eq!(shares, [64, 64, 40, 16, 16]);
        assert_eq!(Pace::default().share_in_flight(64, 0), 16);
    }

    /// With greedy writers and four zones above the pools, the space left stays between zero and
    /// the mark.
    #[test]
    fn level_finds_itself_and_never_ends() {
        for (used, zone) in [(100, 1000), (500, 1000), (700, 1000), (900, 1000u32)] {
            let mut pace = Pace { mark: 2000, tokens: 0 };
            let (mut left, mut least, mut most) = (2000u64, u64::MAX, 0);
            for victim in 0..200 {
                let mut progress = Progress::new(zone, used);
                for _ in 0..2 * used / 10 {
                    pace.earned(progress.continues(10), left);
                    while left >= 8 && pace.allows(8, left) {
                        pace.spent(8, left);
                        left -= 8;
                    }
                    if victim > 20 {
                        (least, most) = (least.min(left), most.max(left));
                    }
                }
                pace.earned(progress.ends(), left);
                left += u64::from(zone - used);
            }
            assert!(least > 100 && most < 2000, "{used}: {least} to {most}");
        }
    }

    /// Greedy writers get as much in the last quarter of a victim's copies as in the first.
    #[test]
    fn pace_is_even_between_two_resets() {
        for used in [10_000, 50_000, 70_000] {
            let mut pace = Pace { mark: 300_000, tokens: 0 };
            let (mut left, mut taken) = (300_000u64, Vec::new());
            for _ in 0..100 {
                let mut progress = Progress::new(100_000, used);
                taken.clear();
                for _ in 0..2 * used / 1000 {
                    pace.earned(progress.continues(1000), left);
                    let before = left;
                    while left >= 8 && pace.allows(8, left) {
                        pace.spent(8, left);
                        left -= 8;
                    }
                    taken.push(before - left);
                }
                pace.earned(progress.ends(), left);
                left += u64::from(100_000 - used);
            }
            let quarter = taken.len() / 4;
            // The first step includes the earnings at the end of the previous victim.
            let first: u64 = taken[1..=quarter].iter().sum();
            let last: u64 = taken[taken.len() - quarter..].iter().sum();
            assert!(first * 10 < last * 11 && last * 10 < first * 11, "{used}: {first} and {last}");
        }
    }
}
