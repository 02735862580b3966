//! Space reservations of writers: reserved ahead of the write, so that no write runs out of space
//! once it has begun.
//!
//! Owns two counters. `extents` is the space that files can fill in total: data blocks that are
//! free or can be freed by garbage collection. `available` is the space that can be written now:
//! blocks of free zones and tails of open ones, headers included. Freed blocks return to `extents`
//! at once, and to `available` when their zone is reset. A writer reserves in both. If `extents` is
//! too small it gets an error; if `available` is too small it waits in line for the collector.
//!
//! # Invariants
//! - The line is strictly first come, first served. A newcomer joins the end of an existing line,
//!   however little it wants.
//! - The collector uses only its pools, and does not wait in line.
//! - While the collector works and space is low, users get `available` at the collector's pace
//!   ([`super::pace`]).
//! - A ticket is answered once: granted, or no space. No writer waits while the collector is idle
//!   and nothing can be collected. So a caller that hands out a ticket has to trigger the
//!   collector.
//! - `user + pool + reserved` changes only when space is spent, freed, made available or lost.
//!
//! # Why the pools are exclusive
//! The collector needs space before it gains any. If users could take the pools, they could fill
//! the last zone, and nothing would ever be freed. If the collector could take users' blocks, it
//! would break reservations.

use super::cost::{Cost, Need};
use super::counter::{Counter, Part};
use super::pace::{Earned, Pace};
use std::collections::{BTreeMap, VecDeque};

/// Zones held back from `extents`: those of the collector and one more.
pub const RESERVED_ZONES: u64 = GC_ZONES + 1;

/// Zones held back from `available`.
pub const GC_ZONES: u64 = 3;

/// Space held back from users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserve {
    /// Data blocks of `extents`.
    pub extents: u64,
    /// Blocks of `available`.
    pub available: u64,
}

/// Inputs for the size of a reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Number of data zones.
    pub zones: u64,
    /// Zone capacity in blocks.
    pub zone_blocks: u32,
    /// Data blocks that fit a zone in full units.
    pub zone_data: u32,
    /// Additional data blocks to hold back.
    pub option: u64,
}

impl Reserve {
    /// Four zones and the option for `extents`, three zones for `available`.
    ///
    /// Users always keep one zone of `extents` and two of `available`. So a drive of five zones has
    /// the full reserve but ignores the option, and a smaller drive has a smaller reserve.
    pub fn of(drive: Drive) -> Reserve {
        let zone_data = u64::from(drive.zone_data);
        let data = drive.zones.saturating_sub(1) * zone_data;
        let zones = GC_ZONES.min(drive.zones.saturating_sub(2));
        Reserve {
            extents: (RESERVED_ZONES * zone_data).saturating_add(drive.option).min(data),
            available: zones * u64::from(drive.zone_blocks),
        }
    }
}

/// Urgency of a request for space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Waits in line.
    Wait,
    /// The request fails rather than wait.
    NoWait,
    /// The collector, which uses the pools.
    Gc,
}

/// Blocks reserved by a caller. Unspent blocks have to be given back.
#[must_use = "unspent blocks have to be given back"]
#[derive(PartialEq, Eq, Debug)]
pub struct Reservation {
    left: Need,
    part: Part,
}

impl Reservation {
    /// Nothing, for users.
    pub(crate) fn nothing() -> Reservation {
        Reservation { left: Need::default(), part: Part::User }
    }

    /// Unspent blocks.
    pub fn left(&self) -> Need {
        self.left
    }

    /// Merges another reservation of the same part.
    pub(crate) fn join(&mut self, other: Reservation) {
        debug_assert_eq!(self.part, other.part);
        self.left.extents += other.left.extents;
        self.left.available += other.left.available;
    }

    /// Splits off a part, if enough is left.
    pub fn split(&mut self, need: Need) -> Option<Reservation> {
        self.left = self.left.checked_sub(need)?;
        Some(Reservation { left: need, part: self.part })
    }
}

/// A place in line.
#[must_use = "a ticket has to be checked until it is answered, or abandoned"]
#[derive(PartialEq, Eq, Debug)]
pub struct Ticket(u64);

impl Ticket {
    /// Unique number of the ticket.
    pub fn number(&self) -> u64 {
        self.0
    }
}

/// Reason why nothing was reserved.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No space, and garbage collection cannot gain any.
    NoSpace,
    /// No space at the moment.
    WouldWait,
    /// The caller is in line.
    Queued(Ticket),
}

/// State of a ticket.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub enum Answer {
    /// The space is there.
    Granted(Reservation),
    /// Still in line.
    Waiting(Ticket),
    /// No space, and garbage collection cannot gain any.
    NoSpace,
}

/// Last known state of the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Collector {
    /// Working, or has not checked since blocks were freed.
    MayHelp,
    /// Checked and found nothing to collect.
    Exhausted,
}

/// The counters and the line.
#[derive(Debug)]
pub struct Credits {
    extents: Counter,
    available: Counter,
    line: VecDeque<(u64, Need)>,
    /// Answers not yet seen by their ticket holders; `None` means no space.
    answers: BTreeMap<u64, Option<Need>>,
    tickets: u64,
    collector: Collector,
    pace: Option<Pace>,
}

impl Credits {
    /// Counters for a drive with `total` blocks, reserve included.
    pub fn new(total: Need, reserve: Reserve) -> Credits {
        Credits {
            extents: Counter::new(total.extents, reserve.extents),
            available: Counter::new(total.available, reserve.available),
            line: VecDeque::new(),
            answers: BTreeMap::new(),
            tickets: 0,
            collector: Collector::MayHelp,
            pace: None,
        }
    }

    /// Space that users can reserve.
    pub fn user(&self) -> Need {
        Need { extents: self.extents.user, available: self.available.user }
    }

    /// Space that the collector can reserve.
    pub fn pool(&self) -> Need {
        Need { extents: self.extents.pool, available: self.available.pool }
    }

    /// Total space: free for users and the collector, or reserved and not spent, minus debts.
    pub fn total(&self) -> Need {
        Need { extents: self.extents.total(), available: self.available.total() }
    }

    /// Data blocks of users, free or reserved and not spent.
    pub fn of_users(&self) -> u64 {
        self.extents.total().saturating_sub(self.extents.pool_max)
    }

    /// Number of waiting writers.
    pub fn waiting(&self) -> u32 {
        self.line.len() as u32
    }

    /// `available` blocks wanted by the first writer in line, 0 if the line is empty.
    pub fn wanted(&self) -> u64 {
        self.line.front().map_or(0, |(_, need)| need.available)
    }

    /// Reserves `need`.
    ///
    /// # Errors
    /// [`Refusal`]. A ticket has to be checked until it is answered, or abandoned.
    pub fn reserve(&mut self, need: Need, urgency: Urgency) -> Result<Reservation, Refusal> {
        match urgency {
            Urgency::Gc => self.reserve_for_gc(need),
            Urgency::Wait | Urgency::NoWait => self.reserve_for_user(need, urgency),
        }
    }

    /// Reserves space for `data` blocks, or for as many as possible if that is at least one.
    ///
    /// # Errors
    /// As for [`Credits::reserve`].
    pub fn reserve_greedily(
        &mut self,
        data: u64,
        cost: Cost,
        urgency: Urgency,
    ) -> Result<Reservation, Refusal> {
        let left = match urgency {
            Urgency::Gc => self.extents.pool,
            Urgency::Wait | Urgency::NoWait => self.extents.user,
        };
        match data.min(left) {
            0 if data > 0 => Err(Refusal::NoSpace),
            data => self.reserve(cost.of(data), urgency),
        }
    }

    fn reserve_for_gc(&mut self, need: Need) -> Result<Reservation, Refusal> {
        if !self.extents.has(Part::Pool, need.extents) || !self.available.has(Part::Pool, need.available) {
            return Err(Refusal::WouldWait);
        }
        self.extents.reserve(Part::Pool, need.extents);
        self.available.reserve(Part::Pool, need.available);
        Ok(Reservation { left: need, part: Part::Pool })
    }

    fn reserve_for_user(&mut self, need: Need, urgency: Urgency) -> Result<Reservation, Refusal> {
        if !self.extents.has(Part::User, need.extents) {
            return Err(Refusal::NoSpace);
        }
        if self.line.is_empty() && self.fits(need.available) {
            self.extents.reserve(Part::User, need.extents);
            self.take(need.available);
            return Ok(Reservation { left: need, part: Part::User });
        }
        match (urgency, self.collector) {
            (Urgency::NoWait, _) => Err(Refusal::WouldWait),
            (_, Collector::Exhausted) => Err(Refusal::NoSpace),
            (_, Collector::MayHelp) => Err(Refusal::Queued(self.queue(need))),
        }
    }

    /// Joins the end of the line, with `extents` already reserved.
    fn queue(&mut self, need: Need) -> Ticket {
        self.extents.reserve(Part::User, need.extents);
        let ticket = self.tickets;
        self.tickets += 1;
        self.line.push_back((ticket, need));
        Ticket(ticket)
    }

    /// State of a ticket. If it still waits, the ticket is returned.
    pub fn state(&mut self, ticket: Ticket) -> Answer {
        match self.answers.remove(&ticket.0) {
            Some(Some(left)) => Answer::Granted(Reservation { left, part: Part::User }),
            Some(None) => Answer::NoSpace,
            None => Answer::Waiting(ticket),
        }
    }

    /// True if there are answers that no ticket holder has seen.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// True if the ticket with this number has an answer that its holder has not seen.
    pub fn is_answered(&self, ticket: u64) -> bool {
        self.answers.contains_key(&ticket)
    }

    /// Abandons a ticket: leaves the line, or gives back a granted reservation.
    pub fn abandon(&mut self, ticket: Ticket) {
        match self.state(ticket) {
            Answer::Granted(reservation) => self.give_back(reservation),
            Answer::NoSpace => {}
            Answer::Waiting(Ticket(ticket)) => {
                let place = self.line.iter().position(|(t, _)| *t == ticket).expect("it is in line");
                let (_, need) = self.line.remove(place).expect("it is in line");
                self.extents.give_back(Part::User, need.extents);
                self.grant();
            }
        }
    }

    /// Spends a part of a reservation: blocks allocated in a zone, or data that files refer to from
    /// now on.
    ///
    /// # Errors
    /// If less is left; nothing was spent.
    pub fn spend(&mut self, reservation: &mut Reservation, need: Need) -> Result<(), Overspent> {
        let left = reservation.left;
        reservation.left = left.checked_sub(need).ok_or(Overspent { left, need })?;
        self.extents.spend(need.extents);
        self.available.spend(need.available);
        Ok(())
    }

    /// Adds `need` to a reservation of users, out of the `gain` that the caller's next changes
    /// bring. Returns false, without effect, if users would get less than they need.
    pub fn advance(&mut self, reservation: &mut Reservation, need: Need, gain: Need) -> bool {
        debug_assert_eq!(reservation.part, Part::User);
        let has_room = self.extents.gives(gain.extents, need.extents)
            && self.available.gives(gain.available, need.available);
        if has_room {
            self.extents.advance(need.extents);
            self.available.advance(need.available);
            reservation.left.extents += need.extents;
            reservation.left.available += need.available;
        }
        has_room
    }

    /// Gives back the rest of a reservation.
    pub fn give_back(&mut self, reservation: Reservation) {
        let Reservation { left, part } = reservation;
        self.extents.give_back(part, left.extents);
        self.available.give_back(part, left.available);
        self.grant();
    }

    /// Returns `extents` data blocks that files no longer refer to. There may be something to
    /// collect now.
    pub fn freed(&mut self, extents: u64) {
        self.extents.add(extents);
        self.collector = Collector::MayHelp;
    }

    /// Adds `blocks` that became available by a reset.
    pub fn made_available(&mut self, blocks: u64) {
        self.available.add(blocks);
        self.collector = Collector::MayHelp;
        self.grant();
    }

    /// Removes blocks that were lost without being reserved: the tail of a zone closed early, or a
    /// zone that became read-only or offline.
    pub fn lost(&mut self, need: Need) {
        self.extents.lose(need.extents);
        self.available.lose(need.available);
    }

    /// Refills the collector's pool from users' blocks, after the collector spent blocks without a
    /// gain.
    pub fn refill(&mut self) {
        self.available.refill();
    }

    /// The collector starts: writers may wait for it, and are paced once fewer than `mark` blocks
    /// are left.
    pub fn gc_runs(&mut self, mark: u64) {
        self.collector = Collector::MayHelp;
        self.pace.get_or_insert_default().mark = mark;
        self.grant();
    }

    /// The collector is about to do work that gains blocks.
    pub fn earned(&mut self, earned: Earned) {
        if let Some(pace) = &mut self.pace {
            pace.earned(earned, self.available.user);
            self.grant();
        }
    }

    /// Maximum number of users' blocks in flight; `most` while the collector is idle.
    pub fn share_in_flight(&self, most: u64) -> u64 {
        self.pace.map_or(most, |pace| pace.share_in_flight(most, self.available.user))
    }

    /// The collector is idle, and pacing ends. If nothing is `reclaimable` either, nobody keeps
    /// waiting: writers in line get space in order as long as there is enough, and the others an
    /// error.
    pub fn gc_is_idle(&mut self, reclaimable: bool) {
        self.pace = None;
        self.grant();
        if reclaimable {
            return;
        }
        self.collector = Collector::Exhausted;
        while let Some((ticket, need)) = self.line.pop_front() {
            self.answers.insert(ticket, None);
            self.extents.give_back(Part::User, need.extents);
            self.grant();
        }
    }

    /// Grants space to writers in line, in order, while there is enough.
    fn grant(&mut self) {
        while let Some((ticket, need)) = self.line.front().copied() {
            if !self.fits(need.available) {
                return;
            }
            self.take(need.available);
            self.answers.insert(ticket, Some(need));
            self.line.pop_front();
        }
    }

    /// True if users can have `blocks` now.
    fn fits(&self, blocks: u64) -> bool {
        let pace = || self.pace.is_none_or(|pace| pace.allows(blocks, self.available.user));
        self.available.has(Part::User, blocks) && pace()
    }

    /// Reserves `blocks` for users. They have to fit.
    fn take(&mut self, blocks: u64) {
        if let Some(pace) = &mut self.pace {
            pace.spent(blocks, self.available.user);
        }
        self.available.reserve(Part::User, blocks);
    }

    /// Checks the invariants.
    ///
    /// # Panics
    /// If one is violated: a bug.
    pub fn check(&self) {
        for counter in [&self.extents, &self.available] {
            assert!(counter.pool <= counter.pool_max, "{counter:?}");
            assert!(counter.owed == 0 || counter.user + counter.pool == 0, "{counter:?}");
        }
        assert!(self.line.iter().map(|w| w.0).is_sorted(), "the line is out of order");
        assert!(self.line.is_empty() || !self.fits(self.wanted()), "the first waits for nothing");
        assert!(self.line.is_empty() || self.collector == Collector::MayHelp, "they wait for nothing");
    }
}

/// More was spent than reserved: an accounting bug of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{need:?} spent of {left:?} reserved")]
pub struct Overspent {
    /// Blocks left.
    pub left: Need,
    /// Blocks to be spent.
    pub need: Need,
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
