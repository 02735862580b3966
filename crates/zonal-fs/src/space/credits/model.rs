//! Random writers, a collector and a device, with the invariants checked after each call.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Call {
    Reserve {
        need: Need,
        urgency: Urgency,
    },
    /// Spends a part of a reservation, by index.
    Spend {
        place: usize,
        need: Need,
    },
    /// Gives back a reservation, by index.
    GiveBack(usize),
    /// Splits a reservation, by index.
    Split {
        place: usize,
        need: Need,
    },
    /// Adds to a reservation, by index, in advance of this gain.
    Advance {
        place: usize,
        need: Need,
        gain: Need,
    },
    Look(usize),
    Abandon(usize),
    Freed(u64),
    MadeAvailable(u64),
    Lost(Need),
    Runs(u64),
    Earned(u64),
    Idle(bool),
}

fn need(most: u64) -> impl Strategy<Value = Need> {
    (0..most, 0..most).prop_map(|(extents, available)| Need { extents, available })
}

fn call() -> impl Strategy<Value = Call> {
    let urgency = prop_oneof![3 => Just(Urgency::Wait), 1 => Just(Urgency::NoWait), 1 => Just(Urgency::Gc)];
    prop_oneof![
        6 => (need(12), urgency).prop_map(|(need, urgency)| Call::Reserve { need, urgency }),
        4 => (0..6usize, need(8)).prop_map(|(place, need)| Call::Spend { place, need }),
        3 => (0..6usize).prop_map(Call::GiveBack),
        1 => (0..6usize, need(8)).prop_map(|(place, need)| Call::Split { place, need }),
        1 => (0..6usize, need(4), need(12))
            .prop_map(|(place, need, gain)| Call::Advance { place, need, gain }),
        3 => (0..6usize).prop_map(Call::Look),
        1 => (0..6usize).prop_map(Call::Abandon),
        3 => (0..12u64).prop_map(Call::Freed),
        3 => (0..12u64).prop_map(Call::MadeAvailable),
        1 => need(6).prop_map(Call::Lost),
        1 => (0..40u64).prop_map(Call::Runs),
        3 => (0..12u64).prop_map(Call::Earned),
        1 => any::<bool>().prop_map(Call::Idle),
    ]
}

/// A writer in line.
struct QueuedWriter {
    ticket: Ticket,
    need: Need,
}

/// The counters and all their users.
struct CreditsModel {
    credits: Credits,
    reserved: Vec<Reservation>,
    /// In order of arrival.
    waiters: Vec<QueuedWriter>,
    /// Expected total.
    total: Need,
}

fn plus(a: Need, b: Need) -> Need {
    Need { extents: a.extents + b.extents, available: a.available + b.available }
}

impl CreditsModel {
    fn new(total: Need, reserve: Reserve) -> CreditsModel {
        CreditsModel {
            credits: Credits::new(total, reserve),
            reserved: Vec::new(),
            waiters: Vec::new(),
            total,
        }
    }

    fn step(&mut self, call: Call) {
        match call {
            Call::Reserve { need, urgency } => self.reserve(need, urgency),
            Call::Spend { place, need } => self.spend(place, need),
            Call::GiveBack(place) if place < self.reserved.len() => {
                let reservation = self.reserved.swap_remove(place);
                self.credits.give_back(reservation);
            }
            Call::Split { place, need } => {
                let part = self.reserved.get_mut(place).and_then(|r| r.split(need));
                self.reserved.extend(part);
            }
            Call::Advance { place, need, gain } => self.advance(place, need, gain),
            Call::Look(place) if place < self.waiters.len() => self.look(place),
            Call::Abandon(place) if place < self.waiters.len() => {
                let waiter = self.waiters.remove(place);
                self.credits.abandon(waiter.ticket);
            }
            Call::Freed(extents) => {
                self.credits.freed(extents);
                self.total.extents += extents;
            }
            Call::MadeAvailable(blocks) => {
                self.credits.made_available(blocks);
                self.total.available += blocks;
            }
            Call::Lost(need) => self.lose(need),
            Call::Runs(mark) => self.credits.gc_runs(mark),
            Call::Earned(blocks) => self.credits.earned(Earned { blocks, ahead: 0 }),
            Call::Idle(reclaimable) => {
                self.credits.gc_is_idle(reclaimable);
                assert!(reclaimable || self.credits.waiting() == 0, "they wait for nothing");
            }
            Call::GiveBack(_) | Call::Look(_) | Call::Abandon(_) => {}
        }
    }

    fn reserve(&mut self, need: Need, urgency: Urgency) {
        let (user, pool, waiting) = (self.credits.user(), self.credits.pool(), self.credits.waiting());
        let fits = |of: Need| of.checked_sub(need).is_some();
        let in_time = self.credits.pace.is_none_or(|pace| pace.allows(need.available, user.available));
        match self.credits.reserve(need, urgency) {
            Ok(reservation) if urgency == Urgency::Gc => {
                assert!(fits(pool) && self.credits.user() == user, "the collector took from users");
                self.reserved.push(reservation);
            }
            Ok(reservation) => {
                assert!(fits(user) && in_time && waiting == 0, "overtook {waiting}");
                assert_eq!(self.credits.pool(), pool, "a user took from the pools");
                self.reserved.push(reservation);
            }
            Err(Refusal::Queued(ticket)) => {
                assert!(urgency == Urgency::Wait && need.extents <= user.extents);
                self.waiters.push(QueuedWriter { ticket, need });
            }
            Err(Refusal::WouldWait) if urgency == Urgency::Gc => assert!(!fits(pool)),
            Err(_) => assert!(urgency != Urgency::Gc && (!fits(user) || !in_time || waiting > 0)),
        }
    }

    fn spend(&mut self, place: usize, need: Need) {
        let Some(reservation) = self.reserved.get_mut(place) else { return };
        let before = reservation.left();
        // Blocks lost while they were reserved cannot be allocated.
        if self.total.checked_sub(need).is_none() {
            return;
        }
        let is_spent = self.credits.spend(reservation, need).is_ok();
        assert_eq!(is_spent, before.checked_sub(need).is_some());
        if is_spent {
            self.total = self.total - need;
        }
    }

    fn advance(&mut self, place: usize, need: Need, gain: Need) {
        let of_users = self.reserved.get_mut(place).filter(|reservation| reservation.part == Part::User);
        let Some(reservation) = of_users else { return };
        if self.credits.advance(reservation, need, gain) {
            self.credits.freed(gain.extents);
            self.credits.made_available(gain.available);
            self.total = plus(self.total, gain);
        }
    }

    fn look(&mut self, place: usize) {
        let QueuedWriter { ticket, need } = self.waiters.remove(place);
        match self.credits.state(ticket) {
            Answer::Granted(reservation) => {
                assert_eq!(reservation.left(), need);
                self.reserved.push(reservation);
            }
            Answer::Waiting(ticket) => self.waiters.insert(place, QueuedWriter { ticket, need }),
            Answer::NoSpace => {}
        }
    }

    /// Loses blocks that exist and are not spent, reserved or not.
    fn lose(&mut self, need: Need) {
        if let Some(left) = self.total.checked_sub(need) {
            self.credits.lost(need);
            self.total = left;
        }
    }

    fn check(&self) {
        self.credits.check();
        assert_eq!(self.credits.total(), self.total, "space made or lost");
        let in_line: Vec<u64> = self.credits.line.iter().map(|w| w.0).collect();
        let unanswered = |w: &&QueuedWriter| !self.credits.answers.contains_key(&w.ticket.0);
        let waiting: Vec<u64> = self.waiters.iter().filter(unanswered).map(|w| w.ticket.0).collect();
        assert_eq!(in_line, waiting, "the line is those who wait, in order of arrival");
        let first = self.waiters.iter().position(|w| unanswered(&w)).unwrap_or(self.waiters.len());
        let granted = |w: &QueuedWriter| matches!(self.credits.answers.get(&w.ticket.0), Some(Some(_)));
        assert!(!self.waiters[first..].iter().any(granted), "a ticket overtook the first in line");
        let held = self.reserved.iter().map(|r| r.left()).fold(Need::default(), plus);
        let answered = self.credits.answers.values().flatten().copied().fold(Need::default(), plus);
        let queued = self.credits.line.iter().map(|w| w.1.extents).sum::<u64>();
        let out = Need { extents: self.credits.extents.out, available: self.credits.available.out };
        assert_eq!(
            plus(out, Need::default()),
            plus(plus(held, answered), Need { extents: queued, available: 0 })
        );
    }

    /// All users give everything back. Free space then has to equal the total.
    fn close(mut self) {
        for reservation in std::mem::take(&mut self.reserved) {
            self.credits.give_back(reservation);
        }
        for waiter in std::mem::take(&mut self.waiters) {
            self.credits.abandon(waiter.ticket);
        }
        assert_eq!(plus(self.credits.user(), self.credits.pool()), self.total);
        assert!(self.credits.answers.is_empty());
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn space_is_conserved_and_no_ticket_overtakes(
        total in need(60),
        pool in need(8),
        calls in prop::collection::vec(call(), 0..150),
    ) {
        let mut world = CreditsModel::new(total, Reserve { extents: pool.extents, available: pool.available });
        for call in calls {
            world.step(call);
            world.check();
        }
        world.close();
    }
}
