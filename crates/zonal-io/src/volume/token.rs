//! The token of mode `qd1`: who may have a write at the device.
//!
//! A rotational drive that gets the writes of several zones at a time, or of one zone from its end and of the next from
//! its start, moves its head for each. In this mode one write of a whole spindle is in flight, and a zone's waiting
//! writes go before those of the next zone. A device made of several drives has a token for each
//! ([`DeviceInfo::spindles`]), and its zones stand in the line of their own.
//!
//! The token belongs to a step and not to a zone: the step that ends a write has it, and either issues the zone's next
//! write with it or passes it to the first zone in line. A zone stands in line only while its head can be issued; a zone
//! that lost its waiters meanwhile passes the token on.
//!
//! A zone that is never drained would keep the token: beside a writer with many requests in flight another zone's writer
//! waits until the first zone is full. So a zone keeps the token for a bounded share ([`Qd1Quantum`]) while others stand in
//! line, and then stands in line itself. The share is counted from the moment at which a zone is first in line, or from the
//! moment at which the holder got the token, if that is later.
//!
//! # Invariants, of each token
//! - Taken, there is exactly one of: a write at the device, a step that holds it, a zone parked with it.
//! - Free, no zone stands in line.

use crate::device::DeviceInfo;
use crate::sync::{AtomicBool, Ordering, ShortLock, waits_for};
use std::collections::{HashSet, VecDeque};
use zonal_core::{Nanos, SECTOR_BYTES, ZoneIndex};

/// What a zone may write in mode `qd1` while writes of other zones wait: until one of the bounds is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qd1Quantum {
    /// Bytes; 0: no bound.
    pub bytes: u64,
    /// Time; 0: no bound.
    pub time: Nanos,
}

impl Qd1Quantum {
    /// A zone is drained first.
    pub const NONE: Qd1Quantum = Qd1Quantum { bytes: 0, time: Nanos(0) };
}

impl Default for Qd1Quantum {
    /// 256 MiB, a zone of most disks, and 350 ms. Beside a flood of writes to one zone after the other, a writer of single
    /// requests waits for less than half a second, and the flood keeps 97% of its rate
    /// (`small_writer_beside_a_flood_waits_for_less_than_half_a_second`).
    fn default() -> Qd1Quantum {
        Qd1Quantum { bytes: 256 << 20, time: Nanos(350_000_000) }
    }
}

/// The token of each spindle.
pub(super) struct Tokens {
    spindles: Vec<ZoneIndex>,
    tokens: Box<[Token]>,
}

impl Tokens {
    pub(super) fn new(info: &DeviceInfo) -> Tokens {
        let tokens = (0..=info.spindles.len()).map(|_| Token::default()).collect();
        Tokens { spindles: info.spindles.clone(), tokens }
    }

    /// The token that `zone` needs.
    #[inline]
    pub(super) fn of(&self, zone: ZoneIndex) -> &Token {
        &self.tokens[self.spindles.partition_point(|first| *first <= zone)]
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Token> {
        self.tokens.iter()
    }
}

#[derive(Default)]
pub(super) struct Token {
    state: ShortLock<TokenState>,
    /// Zones stand in line: what the holder reads before it takes the lock.
    has_line: AtomicBool,
    /// There is something in `parked`: what a poll reads.
    is_parked: AtomicBool,
}

#[derive(Default)]
struct TokenState {
    taken: bool,
    line: VecDeque<ZoneIndex>,
    in_line: HashSet<ZoneIndex>,
    /// Has the token, and continues with the next poll: the turn of the thread that had it was over.
    parked: Option<ZoneIndex>,
    /// Since when the holder has the token and others stand in line.
    since: Nanos,
    /// Bytes that the holder has written since then.
    bytes: u64,
}

impl TokenState {
    fn enlist(&mut self, now: Nanos, zone: ZoneIndex) {
        if self.line.is_empty() {
            (self.since, self.bytes) = (now, 0);
        }
        if self.in_line.insert(zone) {
            self.line.push_back(zone);
        }
    }

    fn next(&mut self, now: Nanos) -> Option<ZoneIndex> {
        let zone = self.line.pop_front();
        self.taken = zone.is_some();
        (self.since, self.bytes) = (now, 0);
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
        state.taken = true;
        free
    }

    /// Takes the token if it is free; otherwise `zone` stands in line for it.
    pub(super) fn take_or_enlist(&self, now: Nanos, zone: ZoneIndex) -> bool {
        let mut state = self.state.lock();
        if state.taken {
            state.enlist(now, zone);
            self.has_line.store(true, Ordering::Relaxed);
            return false;
        }
        state.taken = true;
        true
    }

    /// Whether zones stand in line.
    #[inline]
    pub(super) fn has_line(&self) -> bool {
        self.has_line.load(Ordering::Relaxed)
    }

    /// The holder's zone is about to issue another write: whether it may, with the token. If its share is used up, and others
    /// stand in line, it stands in line again.
    pub(super) fn may_continue(&self, now: Nanos, zone: ZoneIndex, quantum: Qd1Quantum) -> bool {
        if !self.has_line() {
            return true;
        }
        let mut state = self.state.lock();
        let is_out_of_time = quantum.time.0 > 0 && now.0.saturating_sub(state.since.0) >= quantum.time.0;
        let is_out_of_bytes = quantum.bytes > 0 && state.bytes >= quantum.bytes;
        if state.line.is_empty() || !is_out_of_time && !is_out_of_bytes {
            return true;
        }
        state.enlist(now, zone);
        false
    }

    /// The holder's zone issues a write of `sectors`.
    #[inline]
    pub(super) fn wrote(&self, sectors: u32) {
        if self.has_line() {
            self.state.lock().bytes += u64::from(sectors) * SECTOR_BYTES;
        }
    }

    /// Gives the token up: to the zone returned, or to the first that comes.
    pub(super) fn pass(&self, now: Nanos) -> Option<ZoneIndex> {
        let mut state = self.state.lock();
        let zone = state.next(now);
        self.has_line.store(!state.line.is_empty(), Ordering::Relaxed);
        zone
    }

    /// Sends all zones in line away, to come again on their own: the mode has been switched.
    pub(super) fn dismiss(&self) {
        let mut state = self.state.lock();
        state.line.clear();
        state.in_line.clear();
        self.has_line.store(false, Ordering::Relaxed);
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
    const NOW: Nanos = Nanos(1000);

    #[test]
    fn token_taken_zones_get_it_in_the_order_of_the_line() {
        let token = Token::default();
        assert!(token.take());
        assert!(!token.take());
        for zone in [B, A, B] {
            assert!(!token.take_or_enlist(NOW, zone), "{zone}");
        }
        assert_eq!([token.pass(NOW), token.pass(NOW), token.pass(NOW)], [Some(B), Some(A), None]);
        assert!(token.take_or_enlist(NOW, A), "free again");
    }

    #[test]
    fn share_that_is_used_up_lets_the_next_zone_go_first() {
        let quantum = Qd1Quantum { bytes: 8 * SECTOR_BYTES, time: Nanos(100) };
        for is_time in [true, false] {
            let token = Token::default();
            assert!(token.take_or_enlist(NOW, A));
            token.wrote(1000);
            assert!(token.may_continue(Nanos(1 << 40), A, quantum), "no other zone stands in line");
            let since = Nanos(2 << 40);
            token.take_or_enlist(since, B);
            let later = if is_time { Nanos(since.0 + 99) } else { since };
            token.wrote(if is_time { 1 } else { 7 });
            assert!(token.may_continue(later, A, quantum));
            let later = if is_time { Nanos(since.0 + 100) } else { since };
            token.wrote(if is_time { 0 } else { 1 });
            assert!(token.may_continue(later, A, Qd1Quantum::NONE), "no bound, no end");
            assert!(!token.may_continue(later, A, quantum));
            assert_eq!(token.pass(later), Some(B));
            assert!(token.may_continue(later, B, quantum), "its share begins now");
            assert_eq!(token.pass(later), Some(A));
            assert!(!token.has_line() && !token.take_or_enlist(later, A), "A has it");
        }
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
