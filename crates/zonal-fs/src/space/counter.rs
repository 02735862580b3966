//! One of the two counters of space, divided into the users' part and the collector's pool.
//!
//! Returned space refills the pool first; the rest goes to users. Lost space is taken from users
//! first, then from the pool. If both are exhausted, the rest is owed, and deducted from space that
//! is returned later.

/// Part of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    User,
    Pool,
}

/// A counter, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counter {
    /// Free for users.
    pub user: u64,
    /// Free for the collector.
    pub pool: u64,
    /// Limit of the pool.
    pub pool_max: u64,
    /// Reserved but not yet spent.
    pub out: u64,
    /// Lost while everything was reserved; to be deducted later.
    pub owed: u64,
}

impl Counter {
    /// A counter of `total` blocks, up to `pool_max` of which go to the pool.
    pub fn new(total: u64, pool_max: u64) -> Counter {
        let mut counter = Counter { user: 0, pool: 0, pool_max, out: 0, owed: 0 };
        counter.add(total);
        counter
    }

    fn free(&mut self, part: Part) -> &mut u64 {
        match part {
            Part::User => &mut self.user,
            Part::Pool => &mut self.pool,
        }
    }

    /// True if `part` has `blocks`.
    pub fn has(&self, part: Part, blocks: u64) -> bool {
        match part {
            Part::User => self.user >= blocks,
            Part::Pool => self.pool >= blocks,
        }
    }

    /// Reserves `blocks` of `part`, which has to have them.
    pub fn reserve(&mut self, part: Part, blocks: u64) {
        assert!(self.has(part, blocks), "reserved without looking");
        *self.free(part) -= blocks;
        self.out += blocks;
    }

    /// True if users have `blocks` once `gain` blocks are added.
    pub fn gives(&self, gain: u64, blocks: u64) -> bool {
        let mut then = *self;
        then.add(gain);
        then.has(Part::User, blocks)
    }

    /// Reserves `blocks` for users ahead of the addition that gives them.
    pub fn advance(&mut self, blocks: u64) {
        self.lose(blocks);
        self.out += blocks;
    }

    /// Spends reserved `blocks`.
    pub fn spend(&mut self, blocks: u64) {
        self.out = self.out.checked_sub(blocks).expect("spent without a reservation");
    }

    /// Returns reserved `blocks` to `part`.
    pub fn give_back(&mut self, part: Part, blocks: u64) {
        self.spend(blocks);
        match part {
            Part::User => self.user += self.pay(blocks),
            Part::Pool => self.add(blocks),
        }
    }

    /// Adds `blocks`.
    pub fn add(&mut self, blocks: u64) {
        let blocks = self.pay(blocks);
        let refill = blocks.min(self.pool_max - self.pool);
        self.pool += refill;
        self.user += blocks - refill;
    }

    /// Refills the pool from the users' part, as far as possible.
    pub fn refill(&mut self) {
        let blocks = self.user.min(self.pool_max - self.pool);
        self.user -= blocks;
        self.pool += blocks;
    }

    /// Removes `blocks`.
    pub fn lose(&mut self, blocks: u64) {
        let mut left = blocks;
        for part in [Part::User, Part::Pool] {
            let taken = left.min(*self.free(part));
            *self.free(part) -= taken;
            left -= taken;
        }
        self.owed += left;
    }

    /// Deducts the debt from `blocks` and returns the rest.
    fn pay(&mut self, blocks: u64) -> u64 {
        let paid = blocks.min(self.owed);
        self.owed -= paid;
        blocks - paid
    }

    /// Total space, reserved or not.
    pub fn total(&self) -> u64 {
        (self.user + self.pool + self.out).saturating_sub(self.owed)
    }
}
