//! One of the two counters of space: what users may take, and a pool that is the collector's.
//!
//! Space that comes back fills the pool first, then is the users'. Space that is lost is taken from users, then from the
//! pool; what neither has is owed, and paid by what comes back next.

/// The owner of a part of a counter.
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
    /// What the pool is filled up to.
    pub pool_max: u64,
    /// Reserved and not spent.
    pub out: u64,
    /// Lost while it was reserved.
    pub owed: u64,
}

impl Counter {
    /// `total` blocks, of which the pool gets up to `pool_max`.
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

    /// Whether `part` has `blocks`.
    pub fn has(&self, part: Part, blocks: u64) -> bool {
        match part {
            Part::User => self.user >= blocks,
            Part::Pool => self.pool >= blocks,
        }
    }

    /// Reserves `blocks`, which `part` has.
    pub fn reserve(&mut self, part: Part, blocks: u64) {
        assert!(self.has(part, blocks), "reserved without looking");
        *self.free(part) -= blocks;
        self.out += blocks;
    }

    /// `blocks` that were reserved are spent.
    pub fn spend(&mut self, blocks: u64) {
        self.out = self.out.checked_sub(blocks).expect("spent without a reservation");
    }

    /// `blocks` that were reserved come back to `part`.
    pub fn give_back(&mut self, part: Part, blocks: u64) {
        self.spend(blocks);
        match part {
            Part::User => self.user += self.pay(blocks),
            Part::Pool => self.add(blocks),
        }
    }

    /// `blocks` more.
    pub fn add(&mut self, blocks: u64) {
        let blocks = self.pay(blocks);
        let refill = blocks.min(self.pool_max - self.pool);
        self.pool += refill;
        self.user += blocks - refill;
    }

    /// What the pool lacks comes from users, as far as they have it.
    pub fn refill(&mut self) {
        let blocks = self.user.min(self.pool_max - self.pool);
        self.user -= blocks;
        self.pool += blocks;
    }

    /// `blocks` fewer.
    pub fn lose(&mut self, blocks: u64) {
        let mut left = blocks;
        for part in [Part::User, Part::Pool] {
            let taken = left.min(*self.free(part));
            *self.free(part) -= taken;
            left -= taken;
        }
        self.owed += left;
    }

    /// What is left of `blocks` after the debt.
    fn pay(&mut self, blocks: u64) -> u64 {
        let paid = blocks.min(self.owed);
        self.owed -= paid;
        blocks - paid
    }

    /// All that there is, reserved or not.
    pub fn total(&self) -> u64 {
        (self.user + self.pool + self.out).saturating_sub(self.owed)
    }
}
