//! Space as writers see it: reserved before anything is written, so that no write fails for want of space once it began.
//!
//! Owns two counters. `extents` is what files may ever fill: data blocks that are free, or can be freed by collecting.
//! `available` is what can be written right now: blocks of free zones and tails of open ones, headers included. Freed blocks
//! return to `extents` at once, to `available` when their zone is reset. A writer reserves in both. Short of `extents` it
//! gets an error, short of `available` it waits in line for the collector.
//!
//! # Invariants
//! - The line is strict: space goes to the first writer while it fits. No later writer gets space before. A newcomer goes
//!   to the end of a line that is there, however little it wants.
//! - The collector takes from its pools and from nothing else, and does not wait in line.
//! - While the collector works and little is left, users get what is `available` at the collector's pace ([`super::pace`]).
//! - A ticket is answered once: granted, or no space. No writer waits while the collector is idle and nothing can be
//!   collected. So the caller that hands out a ticket lets the collector look again.
//! - `user + pool + reserved` changes by what is spent, freed, made available or lost, and by nothing else.
//!
//! # Why the pools are the collector's alone
//! It needs space before it makes any. If users could take the pools, they could fill the last zone, and nothing would ever
//! be freed. If the collector could take users' blocks, a reservation would find them gone.

use super::cost::{Cost, Need};
use super::counter::{Counter, Part};
use super::pace::{Earned, Pace};
use std::collections::{BTreeMap, VecDeque};

/// Zones that are kept back of `extents`: those of the collector and one more.
pub const RESERVED_ZONES: u64 = GC_ZONES + 1;

/// Zones that are kept back of `available`.
pub const GC_ZONES: u64 = 3;

/// What is kept back from users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserve {
    /// Data blocks of `extents`.
    pub extents: u64,
    /// Blocks of `available`.
    pub available: u64,
}

/// What a reserve is reckoned from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drive {
    /// Zones for data.
    pub zones: u64,
    /// Blocks of a zone.
    pub zone_blocks: u32,
    /// Data blocks that a zone holds in full units.
    pub zone_data: u32,
    /// Data blocks to be kept back beyond what is needed.
    pub option: u64,
}

impl Reserve {
    /// Four zones and the option of `extents`, three zones of `available`.
    ///
    /// Users always keep one zone of `extents` and two of `available`. So a drive of five zones has the full reserve, and
    /// the option counts for nothing; on a smaller drive the reserve shrinks.
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

/// How urgently a caller wants space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Waits in line.
    Wait,
    /// Would rather do without than wait.
    NoWait,
    /// The collector: from the pools.
    Gc,
}

/// Blocks that a caller has reserved. What is not spent has to be given back.
#[must_use = "what is not spent has to be given back"]
#[derive(PartialEq, Eq, Debug)]
pub struct Reservation {
    left: Need,
    part: Part,
}

impl Reservation {
    /// What is left of it.
    pub fn left(&self) -> Need {
        self.left
    }

    /// Takes in another one of the same part.
    pub(crate) fn join(&mut self, other: Reservation) {
        debug_assert_eq!(self.part, other.part);
        self.left.extents += other.left.extents;
        self.left.available += other.left.available;
    }

    /// Splits off a part of it, if that much is left.
    pub fn split(&mut self, need: Need) -> Option<Reservation> {
        self.left = self.left.checked_sub(need)?;
        Some(Reservation { left: need, part: self.part })
    }
}

/// A place in line.
#[must_use = "a ticket is looked at until it is answered, or abandoned"]
#[derive(PartialEq, Eq, Debug)]
pub struct Ticket(u64);

impl Ticket {
    /// Its number, which no other ticket has.
    pub fn number(&self) -> u64 {
        self.0
    }
}

/// Why nothing was reserved.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is none and there will be none, whatever is collected.
    NoSpace,
    /// Not now.
    WouldWait,
    /// In line.
    Queued(Ticket),
}

/// What a ticket's holder is told.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub enum Answer {
    /// The space is there.
    Granted(Reservation),
    /// Still in line.
    Waiting(Ticket),
    /// There is none and there will be none.
    NoSpace,
}

/// What the collector said last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Collector {
    /// It works, or has not looked since something was freed.
    MayHelp,
    /// It looked and found nothing.
    Helpless,
}

/// The counters and the line.
#[derive(Debug)]
pub struct Credits {
    extents: Counter,
    available: Counter,
    line: VecDeque<(u64, Need)>,
    /// Answers that no holder of a ticket has looked at; `None` is no space.
    answers: BTreeMap<u64, Option<Need>>,
    tickets: u64,
    collector: Collector,
    pace: Option<Pace>,
}

impl Credits {
    /// Counters of a drive with `total` blocks, users' and reserve together.
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

    /// What users can reserve.
    pub fn user(&self) -> Need {
        Need { extents: self.extents.user, available: self.available.user }
    }

    /// What the collector can reserve.
    pub fn pool(&self) -> Need {
        Need { extents: self.extents.pool, available: self.available.pool }
    }

    /// All that there is: users', the pools', and what is reserved and not spent, less what is owed.
    pub fn total(&self) -> Need {
        Need { extents: self.extents.total(), available: self.available.total() }
    }

    /// Data blocks that users have free or have reserved and not spent.
    pub fn of_users(&self) -> u64 {
        self.extents.total().saturating_sub(self.extents.pool_max)
    }

    /// How many wait.
    pub fn waiting(&self) -> u32 {
        self.line.len() as u32
    }

    /// What the first in line wants of `available`, 0 if the line is empty.
    pub fn wanted(&self) -> u64 {
        self.line.front().map_or(0, |(_, need)| need.available)
    }

    /// Reserves `need`.
    ///
    /// # Errors
    /// [`Refusal`]; a ticket has to be looked at or abandoned.
    pub fn reserve(&mut self, need: Need, urgency: Urgency) -> Result<Reservation, Refusal> {
        match urgency {
            Urgency::Gc => self.reserve_for_gc(need),
            Urgency::Wait | Urgency::NoWait => self.reserve_for_user(need, urgency),
        }
    }

    /// Reserves for `data` blocks, or for as many as there may ever be, if that is at least one.
    ///
    /// # Errors
    /// As [`Credits::reserve`].
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
            (_, Collector::Helpless) => Err(Refusal::NoSpace),
            (_, Collector::MayHelp) => Err(Refusal::Queued(self.queue(need))),
        }
    }

    /// At the end of the line, with its `extents` reserved.
    fn queue(&mut self, need: Need) -> Ticket {
        self.extents.reserve(Part::User, need.extents);
        let ticket = self.tickets;
        self.tickets += 1;
        self.line.push_back((ticket, need));
        Ticket(ticket)
    }

    /// What became of a ticket. A ticket that still waits is given back.
    pub fn state(&mut self, ticket: Ticket) -> Answer {
        match self.answers.remove(&ticket.0) {
            Some(Some(left)) => Answer::Granted(Reservation { left, part: Part::User }),
            Some(None) => Answer::NoSpace,
            None => Answer::Waiting(ticket),
        }
    }

    /// Whether there are answers that no holder of a ticket has looked at.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether the ticket with this number is answered, and its holder has not looked.
    pub fn is_answered(&self, ticket: u64) -> bool {
        self.answers.contains_key(&ticket)
    }

    /// The holder of a ticket does not want it any more: it leaves the line, or gives back what it was granted.
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

    /// A part of a reservation is used up: blocks handed out of a zone, data that files refer to from now on.
    ///
    /// # Errors
    /// Less is left; nothing was spent.
    pub fn spend(&mut self, reservation: &mut Reservation, need: Need) -> Result<(), Overspent> {
        let left = reservation.left;
        reservation.left = left.checked_sub(need).ok_or(Overspent { left, need })?;
        self.extents.spend(need.extents);
        self.available.spend(need.available);
        Ok(())
    }

    /// What is left of a reservation is free again.
    pub fn give_back(&mut self, reservation: Reservation) {
        let Reservation { left, part } = reservation;
        self.extents.give_back(part, left.extents);
        self.available.give_back(part, left.available);
        self.grant();
    }

    /// Files refer to `extents` data blocks no more. The collector may find something now.
    pub fn freed(&mut self, extents: u64) {
        self.extents.add(extents);
        self.collector = Collector::MayHelp;
    }

    /// A reset made `blocks` available.
    pub fn made_available(&mut self, blocks: u64) {
        self.available.add(blocks);
        self.collector = Collector::MayHelp;
        self.grant();
    }

    /// Blocks are gone that were neither spent nor reserved: the tail of a zone that was closed early, a zone that the device
    /// took away.
    pub fn lost(&mut self, need: Need) {
        self.extents.lose(need.extents);
        self.available.lose(need.available);
    }

    /// The collector has spent blocks without a gain: its pool is filled up from users' blocks.
    pub fn refill(&mut self) {
        self.available.refill();
    }

    /// The collector begins to work: writers may wait for it, and get space at its pace once fewer than `mark` blocks are
    /// left.
    pub fn gc_runs(&mut self, mark: u64) {
        self.collector = Collector::MayHelp;
        self.pace.get_or_insert_default().mark = mark;
        self.grant();
    }

    /// The collector is about to do work for which blocks will come free.
    pub fn earned(&mut self, earned: Earned) {
        if let Some(pace) = &mut self.pace {
            pace.earned(earned, self.available.user);
            self.grant();
        }
    }

    /// How many blocks of users may be in flight, of `most` while the collector is idle.
    pub fn share_in_flight(&self, most: u64) -> u64 {
        self.pace.map_or(most, |pace| pace.share_in_flight(most, self.available.user))
    }

    /// The collector has nothing to do, and holds no writer up. If nothing is `reclaimable` either, no writer waits any
    /// longer. Writers get space in order while there is enough, and the others get an error.
    pub fn gc_is_idle(&mut self, reclaimable: bool) {
        self.pace = None;
        self.grant();
        if reclaimable {
            return;
        }
        self.collector = Collector::Helpless;
        while let Some((ticket, need)) = self.line.pop_front() {
            self.answers.insert(ticket, None);
            self.extents.give_back(Part::User, need.extents);
            self.grant();
        }
    }

    /// Space for the first in line, while there is enough.
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

    /// Whether users can have `blocks` right now.
    fn fits(&self, blocks: u64) -> bool {
        let pace = || self.pace.is_none_or(|pace| pace.allows(blocks, self.available.user));
        self.available.has(Part::User, blocks) && pace()
    }

    /// Users get `blocks`, which fit.
    fn take(&mut self, blocks: u64) {
        if let Some(pace) = &mut self.pace {
            pace.spent(blocks, self.available.user);
        }
        self.available.reserve(Part::User, blocks);
    }

    /// Compares the line with the rules.
    ///
    /// # Panics
    /// If it breaks them: a bug.
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

/// More was spent than had been reserved: a bug of the caller's reckoning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{need:?} spent of {left:?} reserved")]
pub struct Overspent {
    /// What was left.
    pub left: Need,
    /// What was to be spent.
    pub need: Need,
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
