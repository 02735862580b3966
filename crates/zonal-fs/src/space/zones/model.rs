//! Random calls, compared with a book that looks at every zone each time.

use super::super::load::ZoneAtMount;
use super::*;
use proptest::prelude::*;
use zonal_core::ZoneCondition;

const UNIT: u32 = 4;

/// Account of a zone with its last freeing, without derived data.
#[derive(Clone, Copy, Debug)]
struct Naive {
    capacity: u32,
    allocated: u32,
    written: u32,
    used: u32,
    reads: u32,
    copies: u32,
    is_closed: bool,
    freed_at: u64,
    state: ZoneState,
}

impl Naive {
    fn new(capacity: u32) -> Naive {
        Naive {
            capacity,
            allocated: 0,
            written: 0,
            used: 0,
            reads: 0,
            copies: 0,
            is_closed: false,
            freed_at: 0,
            state: ZoneState::Free,
        }
    }

    fn is_ours(&self) -> bool {
        !matches!(self.state, ZoneState::ReadOnly | ZoneState::Offline)
    }

    /// State according to the counters.
    fn now(&self) -> ZoneState {
        let has_ended = self.is_closed && self.written == self.allocated;
        match self.state {
            ZoneState::Open | ZoneState::Full if has_ended && self.used == 0 => ZoneState::Dead,
            ZoneState::Open | ZoneState::Full if self.is_closed => ZoneState::Full,
            state => state,
        }
    }

    fn data(&self) -> u32 {
        // Counted header by header, not by a formula.
        (0..self.capacity).filter(|block| !block.is_multiple_of(UNIT)).count() as u32
    }

    /// Blocks needed to copy the live blocks: data, headers, and one more header and block where
    /// the target zone ends.
    fn copies(&self) -> u32 {
        self.used + self.used.div_ceil(UNIT - 1) + 2
    }

    fn is_victim(&self) -> bool {
        self.state == ZoneState::Full && self.written == self.allocated && self.copies() < self.capacity
    }

    /// Smallest number of live blocks with which the zone is not a victim.
    fn gains_below(&self) -> u32 {
        (0..)
            .find(|&used| Naive { used, ..*self }.copies() >= self.capacity)
            .expect("it is no longer than that")
    }
}

#[derive(Clone, Debug)]
enum Call {
    Open(ZoneOrder),
    Allocate(u32),
    End { blocks: u32, live: u32 },
    Free { blocks: u32, commit: u64 },
    Close,
    Lose(Lost),
    Pin(Pin),
    Unpin(Pin),
    Begin { committed: u64 },
    EndReset,
    FailReset,
}

fn call() -> impl Strategy<Value = Call> {
    let pin = || prop_oneof![Just(Pin::Read), Just(Pin::Copy)];
    prop_oneof![
        4 => prop_oneof![Just(ZoneOrder::LowestIndex), Just(ZoneOrder::RoundRobin)].prop_map(Call::Open),
        8 => (0..14u32).prop_map(Call::Allocate),
        8 => (0..14u32, 0..14u32).prop_map(|(blocks, live)| Call::End { blocks, live }),
        8 => (0..14u32, 0..9u64).prop_map(|(blocks, commit)| Call::Free { blocks, commit }),
        1 => Just(Call::Close),
        1 => prop_oneof![Just(Lost::ReadOnly), Just(Lost::Offline)].prop_map(Call::Lose),
        2 => pin().prop_map(Call::Pin),
        2 => pin().prop_map(Call::Unpin),
        4 => (0..9u64).prop_map(|committed| Call::Begin { committed }),
        4 => Just(Call::EndReset),
        1 => Just(Call::FailReset),
    ]
}

/// The naive book: the effect of a call on a zone, or `None` if it is refused.
fn apply(zone: Naive, call: &Call) -> Option<Naive> {
    use ZoneState::{Dead, Free, Full, Offline, Open, ReadOnly, Resetting};
    let mut z = zone;
    let allowed = match *call {
        Call::Open(_) => unreachable!("it names no zone"),
        Call::Allocate(blocks) => {
            z.allocated += blocks;
            z.is_closed |= z.allocated == z.capacity;
            zone.state == Open && z.allocated <= z.capacity
        }
        Call::End { blocks, live } => {
            (z.written, z.used) = (z.written + blocks, z.used + live);
            let has_writes = [Open, Full, ReadOnly, Offline].contains(&zone.state);
            has_writes && z.written <= z.allocated && z.used <= z.written
        }
        Call::Free { blocks, commit } => {
            if blocks > 0 {
                z.freed_at = z.freed_at.max(commit);
            }
            z.used = z.used.checked_sub(blocks)?;
            true
        }
        Call::Close => {
            z.is_closed = true;
            zone.state == Open
        }
        Call::Lose(how) => {
            z.state = if how == Lost::ReadOnly { ReadOnly } else { Offline };
            true
        }
        Call::Pin(pin) => {
            *count(&mut z, pin) += 1;
            let was_read = pin == Pin::Copy && zone.state == Offline;
            was_read || [Open, Full, Dead, ReadOnly].contains(&zone.state)
        }
        Call::Unpin(pin) => {
            let pins = count(&mut z, pin);
            *pins = pins.checked_sub(1)?;
            true
        }
        Call::Begin { committed } => {
            z.state = Resetting;
            zone.state == Dead && zone.freed_at <= committed && zone.reads + zone.copies == 0
        }
        Call::EndReset => {
            z = Naive::new(z.capacity);
            zone.state == Resetting
        }
        Call::FailReset => {
            z.state = Dead;
            zone.state == Resetting
        }
    };
    debug_assert!(zone.state != Free || !allowed || !matches!(call, Call::Close));
    z.state = z.now();
    allowed.then_some(z)
}

fn count(zone: &mut Naive, pin: Pin) -> &mut u32 {
    match pin {
        Pin::Read => &mut zone.reads,
        Pin::Copy => &mut zone.copies,
    }
}

/// Makes the same call on the real book.
fn ask(book: &mut ZoneBook, zone: ZoneIndex, call: &Call) -> Result<(), BookError> {
    match *call {
        Call::Open(_) => unreachable!("it names no zone"),
        Call::Allocate(blocks) => book.allocate(zone, blocks).map(drop),
        Call::End { blocks, live } => book.end(zone, blocks, live).map(drop),
        Call::Free { blocks, commit } => book.free(zone, blocks, commit).map(drop),
        Call::Close => book.close(zone).map(drop),
        Call::Lose(how) => book.lose(zone, how).map(drop),
        Call::Pin(pin) => book.pin(zone, pin),
        Call::Unpin(pin) => book.unpin(zone, pin),
        Call::Begin { committed } => book.begin_reset(zone, committed),
        Call::EndReset => book.end_reset(zone).map(drop),
        Call::FailReset => book.fail_reset(zone),
    }
}

fn numbered(zones: &[Naive]) -> impl Iterator<Item = (ZoneIndex, &Naive)> {
    zones.iter().enumerate().map(|(index, zone)| (ZoneIndex(index as u32), zone))
}

fn next_free(zones: &[Naive], order: ZoneOrder, cursor: u32) -> Option<ZoneIndex> {
    let mut free = numbered(zones).filter(|z| z.1.state == ZoneState::Free).map(|z| z.0);
    match order {
        ZoneOrder::LowestIndex => free.next(),
        ZoneOrder::RoundRobin => {
            let all: Vec<_> = free.collect();
            all.iter().find(|z| z.0 >= cursor).or(all.first()).copied()
        }
    }
}

/// Compares the book with the naive zones.
fn compare(book: &ZoneBook, zones: &[Naive], committed: u64) {
    book.check();
    for ((_, zone), naive) in book.iter().zip(zones) {
        let seen = (zone.allocated, zone.written, zone.used, zone.reads, u32::from(zone.copies), zone.state);
        let expected = (naive.allocated, naive.written, naive.used, naive.reads, naive.copies, naive.state);
        assert_eq!(seen, expected);
    }
    let victims = numbered(zones).filter(|z| z.1.is_victim() && z.1.copies == 0);
    // All zones have the same capacity except the last one, which may have more live blocks in a
    // lower bucket.
    let least = victims.min_by_key(|(zone, z)| (10 * z.used / z.gains_below(), z.used, *zone)).map(|v| v.0);
    assert_eq!(book.victim(), least);
    let due = |z: &Naive| z.state == ZoneState::Dead && z.freed_at <= committed && z.reads + z.copies == 0;
    let mut dead: Vec<_> = numbered(zones).filter(|z| due(z.1)).map(|(zone, z)| (z.freed_at, zone)).collect();
    dead.sort_unstable();
    assert!(book.dead_zones(committed).eq(dead.into_iter().map(|d| d.1)));
    assert_eq!(book.sums(), sums(zones));
}

fn sums(zones: &[Naive]) -> Sums {
    let mut sums = Sums::default();
    for z in zones {
        let available = match z.state {
            ZoneState::Free => z.capacity,
            ZoneState::Open => z.capacity - z.allocated,
            _ => 0,
        };
        sums.available += u64::from(available);
        sums.used += u64::from(z.used);
        sums.in_flight += u64::from(z.allocated) - u64::from(z.written);
        if z.is_ours() {
            sums.data += u64::from(z.data());
            sums.kept += u64::from(z.used);
            sums.reclaimable += u64::from(z.capacity - available - z.used);
        }
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn book_agrees_with_a_look_at_every_zone(
        capacities in prop::collection::vec(9..14u32, 1..6),
        calls in prop::collection::vec((0..6usize, call()), 0..160),
    ) {
        let condition = ZoneCondition::Empty;
        let found = capacities.iter().map(|&capacity| ZoneAtMount::Data { capacity, pointer: 0, condition, used: 0 });
        let mut book = ZoneBook::load(UNIT, found).unwrap();
        let mut zones: Vec<_> = capacities.iter().map(|&capacity| Naive::new(capacity)).collect();
        let mut cursor = 0;
        for (index, call) in calls {
            let index = index % zones.len();
            if let Call::Open(order) = call {
                let expected = next_free(&zones, order, cursor);
                prop_assert_eq!(book.take_free(order), expected);
                if let Some(zone) = expected {
                    zones[zone.0 as usize].state = ZoneState::Open;
                    cursor = zone.0 + 1;
                }
            } else {
                let expected = apply(zones[index], &call);
                let answer = ask(&mut book, ZoneIndex(index as u32), &call);
                prop_assert_eq!(answer.is_ok(), expected.is_some(), "{:?}: {:?}", call, answer);
                zones[index] = expected.unwrap_or(zones[index]);
            }
            compare(&book, &zones, index as u64);
        }
    }
}
