//! The token of mode `qd1`: who may have a write at the device.
//!
//! A rotational drive that gets the writes of several zones at a time, or of one zone from its end and of the next from
//! its start, moves its head for each. In this mode one write of the whole device is in flight, and a zone's waiting
//! writes go before those of the next zone.
//!
//! The token belongs to a step and not to a zone: whoever ends a write has it, and either issues the zone's next write
//! with it or passes it to the first zone in line. A zone stands in line only while its head can be issued; one that lost
//! its waiters meanwhile passes the token on.
//!
//! # Invariants
//! - Taken, there is exactly one of: a write at the device, a step that holds it, a zone parked with it.
//! - Free, nobody stands in line.

use crate::sync::{AtomicBool, Brief, Ordering, waits_for};
use std::collections::{HashSet, VecDeque};
use zonal_core::ZoneIndex;

#[derive(Default)]
pub(super) struct Token {
    state: Brief<State>,
    /// There is something in `parked`: what a poll reads.
    is_parked: AtomicBool,
}

#[derive(Default)]
struct State {
    taken: bool,
    line: VecDeque<ZoneIndex>,
    in_line: HashSet<ZoneIndex>,
    /// Has the token, and goes on with the next poll: the turn of the thread that had it was over.
    parked: Option<ZoneIndex>,
    /// Writes issued in the present zone's turn.
    used: u32,
}

impl State {
    fn enlist(&mut self, zone: ZoneIndex) {
        if self.in_line.insert(zone) {
            self.line.push_back(zone);
        }
    }

    fn next(&mut self) -> Option<ZoneIndex> {
        let zone = self.line.pop_front();
        self.taken = zone.is_some();
        self.used = 0;
        if let Some(zone) = zone {
            self.in_line.remove(&zone);
        }
        zone
    }
}

impl Token {
    /// How often its lock was found taken.
    pub(super) fn waits(&self) -> u32 {
        waits_for(&self.state)
    }

    /// Takes the token if it is free.
    pub(super) fn take(&self) -> bool {
        let mut state = self.state.lock();
        let free = !state.taken;
        if free {
            (state.taken, state.used) = (true, 0);
        }
        free
    }

    /// Takes the token if it is free; otherwise `zone` stands in line for it.
    pub(super) fn take_or_enlist(&self, zone: ZoneIndex) -> bool {
        let mut state = self.state.lock();
        if state.taken {
            state.enlist(zone);
            return false;
        }
        (state.taken, state.used) = (true, 0);
        true
    }

    /// The holder's zone is about to issue another write: whether it may, with the token. After `quantum` writes it stands
    /// in line again, if others do; 0: never.
    pub(super) fn may_go_on(&self, zone: ZoneIndex, quantum: u32) -> bool {
        if quantum == 0 {
            return true;
        }
        let mut state = self.state.lock();
        state.used += 1;
        if state.used < quantum || state.line.is_empty() {
            return true;
        }
        state.enlist(zone);
        false
    }

    /// Gives the token up: to the zone returned, or to whoever comes.
    pub(super) fn pass(&self) -> Option<ZoneIndex> {
        self.state.lock().next()
    }

    /// Sends everybody in line away, to come again by themselves: the mode has been switched.
    pub(super) fn dismiss(&self) {
        let mut state = self.state.lock();
        state.line.clear();
        state.in_line.clear();
    }

    /// `zone` keeps the token until the next poll.
    pub(super) fn park(&self, zone: ZoneIndex) {
        let mut state = self.state.lock();
        debug_assert!(state.taken && state.parked.is_none(), "one step has the token");
        state.parked = Some(zone);
        self.is_parked.store(true, Ordering::Release);
    }

    /// The zone that kept the token; the caller has it now.
    pub(super) fn unpark(&self) -> Option<ZoneIndex> {
        if !self.is_parked() {
            return None;
        }
        let mut state = self.state.lock();
        self.is_parked.store(false, Ordering::Release);
        state.parked.take()
    }

    pub(super) fn is_parked(&self) -> bool {
        self.is_parked.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ZoneIndex = ZoneIndex(1);
    const B: ZoneIndex = ZoneIndex(2);

    #[test]
    fn token_taken_zones_get_it_in_the_order_of_the_line() {
        let token = Token::default();
        assert!(token.take());
        assert!(!token.take());
        for zone in [B, A, B] {
            assert!(!token.take_or_enlist(zone), "{zone}");
        }
        assert_eq!([token.pass(), token.pass(), token.pass()], [Some(B), Some(A), None]);
        assert!(token.take_or_enlist(A), "free again");
    }

    #[test]
    fn quantum_used_up_lets_the_next_zone_go_first() {
        let token = Token::default();
        assert!(token.take_or_enlist(A));
        assert!(token.may_go_on(A, 2) && token.may_go_on(A, 2), "nobody else stands in line");
        token.take_or_enlist(B);
        assert!(!token.may_go_on(A, 2));
        assert_eq!([token.pass(), token.pass()], [Some(B), Some(A)]);
        assert!(!token.take_or_enlist(A), "A has it");
        assert!(token.may_go_on(A, 0), "no quantum, no end");
    }

    #[test]
    fn parked_token_is_found_by_one_poll() {
        let token = Token::default();
        assert!(token.take());
        token.park(A);
        assert!(token.is_parked() && !token.take());
        assert_eq!([token.unpark(), token.unpark()], [Some(A), None]);
    }
}
