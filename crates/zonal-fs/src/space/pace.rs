//! The pace of writers while the collector works and little is left.
//!
//! Without a pace they would take all there is at the rate of the drive. Then they would wait for seconds, until a whole
//! zone has been collected. With it each waits a little: what a zone will gain is handed out bit by bit, before each step
//! of the work on it. The less is left, the less is handed out for the same work, and the other way round. So what is left
//! finds its level.
//!
//! All counts are blocks.

/// What one victim gains, and how much of that has been handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    gain: u64,
    /// Blocks to be read and to be written, and as many for the commit and the reset.
    work: u64,
    done: u64,
    earned: u64,
}

impl Progress {
    /// Of a victim of `capacity` with `used` live blocks.
    pub fn new(capacity: u32, used: u32) -> Progress {
        Progress { gain: u64::from(capacity - used), work: 3 * u64::from(used), done: 0, earned: 0 }
    }

    /// This many more blocks are about to be read or written. Returns what that brings.
    pub fn continues(&mut self, blocks: u32) -> u64 {
        self.done = (self.done + u64::from(blocks)).min(self.work);
        self.pay((self.gain * self.done).checked_div(self.work).unwrap_or(self.gain))
    }

    /// All blocks are done: returns the rest of the gain, also for blocks that were freed meanwhile.
    pub fn ends(&mut self) -> u64 {
        self.pay(self.gain)
    }

    fn pay(&mut self, due: u64) -> u64 {
        let more = due - self.earned;
        self.earned = due;
        more
    }
}

/// How much writers may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Pace {
    /// With more than this left no writer is held up.
    pub mark: u64,
    /// What was earned and not taken; below zero after a writer took more than was left of it.
    tokens: i64,
}

impl Pace {
    /// Whether a writer may take `blocks` of `left`.
    pub fn allows(&self, blocks: u64, left: u64) -> bool {
        left.saturating_sub(blocks) >= self.mark || self.tokens > 0
    }

    /// A writer takes `blocks` of `left`.
    pub fn spent(&mut self, blocks: u64, left: u64) {
        if left.saturating_sub(blocks) < self.mark {
            self.tokens -= blocks as i64;
        }
    }

    /// The collector brings `blocks`, with `left` there. If nothing is left, writers get half of `blocks`. At some four
    /// tenths of the mark they get as much as it brings, and at the mark four times as much. What no writer takes adds up
    /// to a sixteenth of the mark.
    pub fn earned(&mut self, blocks: u64, left: u64) {
        let (blocks, mark) = (u128::from(blocks), u128::from(self.mark.max(1)));
        let left = u128::from(left).min(mark);
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
        let earned: Vec<u64> = (0..4).map(|_| progress.continues(100)).collect();
        assert_eq!(earned, [133, 133, 134, 133]);
        assert_eq!((progress.ends(), progress.ends()), (267, 0));
        let mut shrunk = Progress::new(1000, 200);
        assert_eq!((shrunk.continues(100), shrunk.ends()), (133, 667));
        assert_eq!(Progress::new(10, 0).continues(0), 10);
    }

    #[test]
    fn writers_are_held_up_below_the_mark_alone() {
        let mut pace = Pace { mark: 100, tokens: 0 };
        assert!(pace.allows(10, 110) && !pace.allows(10, 109));
        pace.spent(10, 110);
        pace.earned(4, 0);
        assert!(pace.allows(50, 60), "more than there are tokens is taken at once");
        pace.spent(50, 60);
        assert!(!pace.allows(1, 10));
        pace.earned(95, 0);
        assert!(!pace.allows(1, 10), "it is paid back first");
        pace.earned(4, 0);
        assert!(pace.allows(1, 10));
    }

    /// Writers that always want more, a drive of four zones above the pools: what is left stays between nothing and the
    /// mark.
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
}
