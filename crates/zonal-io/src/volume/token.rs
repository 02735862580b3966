//! Token of mode `qd1`: the right to have a write at the device.
//!
//! A rotational drive that receives writes to several zones at once, or to the end of one zone and
//! the start of the next, moves its head for each. In this mode one write per spindle is in flight,
//! and a zone's waiting writes precede those of the next zone. A device made of several drives has
//! a token for each ([`DeviceInfo::spindles`]), with a line of its own.
//!
//! The token belongs to a step, not to a zone: the step that ends a write has it, and either issues
//! the zone's next write with it or passes it to the first zone in line. A zone is in line only
//! while its head can be issued; a zone that has lost its waiters meanwhile passes the token on.
//!
//! A zone that is never drained would keep the token: next to a writer with many requests in
//! flight, the writer of another zone would wait until the first zone is full. A zone therefore
//! keeps the token for a bounded quantum ([`Qd1Quantum`]) while others wait, and then joins the
//! line itself. The quantum starts when the line ceases to be empty, or when the holder gets the
//! token, whichever is later.
//!
//! # Invariants, of each token
//! - While taken, exactly one of these exists: a write at the device, a step that holds the token,
//!   a zone parked with it.
//! - While free, no zone is in line.

use crate::device::DeviceInfo;
use crate::sync::{AtomicBool, Ordering, ShortLock, waits_for};
use std::collections::{HashSet, VecDeque};
use zonal_core::{Nanos, SECTOR_BYTES, ZoneIndex};

/// Amount that a zone may write in mode `qd1` while writes of other zones wait; the first bound
/// reached ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qd1Quantum {
    /// Bytes; 0: no bound.
    pub bytes: u64,
    /// Time; 0: no bound.
    pub time: Nanos,
}

impl Qd1Quantum {
    /// No bounds: a zone keeps the token until it is drained.
    pub const NONE: Qd1Quantum = Qd1Quantum { bytes: 0, time: Nanos(0) };
}

impl Default for Qd1Quantum {
    /// 256 MiB, a zone of most disks, and 350 ms. Next to a flood of writes to one zone after the
    /// other, a writer of single requests waits for less than half a second, and the flood keeps
    /// 97% of its rate (`small_writer_beside_a_flood_waits_for_less_than_half_a_second`).
    fn default() -> Qd1Quantum {
        Qd1Quantum { bytes: 256 << 20, time: Nanos(350_000_000) }
    }
}

/// Tokens of all spindles.
pub(super) struct Tokens {
    spindles: Vec<ZoneIndex>,
    tokens: Box<[Token]>,
}

impl Tokens {
    pub(super) fn new(info: &DeviceInfo) -> Tokens {
        let tokens = (0..=info.spindles.len()).map(|_| Token::default()).collect();
        Tokens { spindles: info.spindles.clone(), tokens }
    }

    /// Token for `zone`.
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
    /// True if zones are in line; the holder reads it without the lock.
    has_line: AtomicBool,
    /// True if `parked` is set; polls read it without the lock.
    is_parked: AtomicBool,
}

#[derive(Default)]
struct TokenState {
    taken: bool,
    line: VecDeque<ZoneIndex>,
    in_line: HashSet<ZoneIndex>,
    /// Zone that keeps the token until the next poll, because the thread's turn was used up.
    parked: Option<ZoneIndex>,
    /// Time since when both the holder has the token and others are in line.
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
    /// Number of contended locks.
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

    /// Takes the token if it is free; otherwise `zone` joins the line.
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

    /// True if zones are in line.
    #[inline]
    pub(super) fn has_line(&self) -> bool {
        self.has_line.load(Ordering::Relaxed)
    }

    /// True if the holder's zone may issue another write with the token. If its quantum is used up
    /// and others are in line, it joins the line instead.
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

    /// Charges a write of `sectors` to the holder's zone.
    #[inline]
    pub(super) fn wrote(&self, sectors: u32) {
        if self.has_line() {
            self.state.lock().bytes += u64::from(sectors) * SECTOR_BYTES;
        }
    }

    /// Passes the token to the returned zone, or frees it if none is in line.
    pub(super) fn pass(&self, now: Nanos) -> Option<ZoneIndex> {
        let mut state = self.state.lock();
        let zone = state.next(now);
        self.has_line.store(!state.line.is_empty(), Ordering::Relaxed);
        zone
    }

    /// Clears the line after a switch of the mode; the zones retry on their own.
    pub(super) fn dismiss(&self) {
        let mut state = self.state.lock();
        state.line.clear();
        state.in_line.clear();
        self.has_line.store(false, Ordering::Relaxed);
    }

    /// Keeps the token for `zone` until the next poll.
    pub(super) fn park(&self, zone: ZoneIndex) {
        let mut state = self.state.lock();
        debug_assert!(state.taken && state.parked.is_none(), "one step has the token");
        state.parked = Some(zone);
        self.is_parked.store(true, Ordering::Release);
    }

    /// Takes over the token from the zone that kept it, if any.
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
