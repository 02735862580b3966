use super::super::credits::Reserve;
use super::super::error::{Fault, Finding};
use super::super::load::ZoneAtMount;
use super::*;
use zonal_core::ZoneCondition;

/// Zone capacity in these tests, in blocks.
const CAPACITY: u32 = 100;

/// Size of a unit in these tests: ten units and ninety data blocks per zone.
const UNIT: u32 = 10;

fn data(condition: ZoneCondition, pointer: u32, used: u32) -> ZoneAtMount {
    ZoneAtMount::Data { capacity: CAPACITY, pointer, condition, used }
}

fn empty(zones: usize) -> ZoneBook {
    let found = std::iter::repeat_n(data(ZoneCondition::Empty, 0, 0), zones);
    ZoneBook::load(UNIT, found).expect("empty zones contradict nothing")
}

fn state(book: &ZoneBook, zone: u32) -> ZoneState {
    book.zone(ZoneIndex(zone)).unwrap().state
}

/// Opens the lowest free zone and fills it, with `used` live blocks.
fn fill(book: &mut ZoneBook, used: u32) -> ZoneIndex {
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    book.allocate(zone, CAPACITY).unwrap();
    book.end(zone, CAPACITY, used).unwrap();
    book.check();
    zone
}

#[test]
fn full_zone_with_a_write_in_flight_becomes_a_victim_when_it_ends() {
    let mut book = empty(2);
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    book.allocate(zone, 60).unwrap();
    book.allocate(zone, 40).unwrap();
    book.end(zone, 40, 30).unwrap();
    assert_eq!((state(&book, 0), book.victim()), (ZoneState::Full, None));
    book.end(zone, 60, 50).unwrap();
    assert_eq!((state(&book, 0), book.victim()), (ZoneState::Full, Some(zone)));
    book.check();
}

#[test]
fn zone_with_only_failed_writes_is_dead_without_a_commit() {
    let mut book = empty(2);
    let zone = fill(&mut book, 0);
    assert_eq!(state(&book, 0), ZoneState::Dead);
    assert_eq!(book.dead_zones(0).collect::<Vec<_>>(), [zone]);
}

#[test]
fn dead_zone_that_is_reset_is_free_and_its_capacity_available() {
    let mut book = empty(2);
    let before = book.sums();
    let zone = fill(&mut book, 90);
    book.free(zone, 90, 1).unwrap();
    book.begin_reset(zone, 1).unwrap();
    assert_eq!(state(&book, 0), ZoneState::Resetting);
    assert_eq!(book.end_reset(zone), Ok(CAPACITY));
    assert_eq!((state(&book, 0), book.resets(zone), book.sums()), (ZoneState::Free, 1, before));
    book.check();
}

#[test]
fn reset_that_failed_leaves_the_zone_dead() {
    let mut book = empty(1);
    let zone = fill(&mut book, 0);
    book.begin_reset(zone, 0).unwrap();
    assert_eq!(book.dead_zones(9).count(), 0);
    book.fail_reset(zone).unwrap();
    assert_eq!(book.dead_zones(0).collect::<Vec<_>>(), [zone]);
    book.check();
}

#[test]
fn dead_zone_that_is_read_is_not_reset() {
    let mut book = empty(1);
    let zone = fill(&mut book, 1);
    book.pin(zone, Pin::Read).unwrap();
    book.free(zone, 1, 1).unwrap();
    assert_eq!(book.dead_zones(1).count(), 0);
    assert_eq!(book.begin_reset(zone, 1), Err(BookError::Pinned { zone, reads: 1, copies: 0 }));
    book.unpin(zone, Pin::Read).unwrap();
    assert_eq!(book.dead_zones(1).collect::<Vec<_>>(), [zone]);
    book.begin_reset(zone, 1).unwrap();
}

#[test]
fn victim_that_is_read_is_collected_all_the_same() {
    let mut book = empty(1);
    let zone = fill(&mut book, 1);
    book.pin(zone, Pin::Read).unwrap();
    assert_eq!(book.victim(), Some(zone));
}

#[test]
fn victim_is_the_zone_with_the_fewest_live_blocks() {
    let mut book = empty(5);
    for used in [90, 50, 12, 13, 12] {
        fill(&mut book, used);
    }
    assert_eq!(book.victim(), Some(ZoneIndex(2)));
    book.free(ZoneIndex(1), 39, 1).unwrap();
    assert_eq!(book.victim(), Some(ZoneIndex(1)));
    assert_eq!(book.histogram(), [0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn h71_zone_that_would_gain_no_space_is_not_collected() {
    let mut book = empty(1);
    let zone = fill(&mut book, 90);
    // For 88 live blocks, the copies need 88 blocks, ten headers, and two blocks where a target
    // zone ends.
    book.free(zone, 2, 1).unwrap();
    assert_eq!((book.victim(), book.has_victim(), book.is_reclaimable()), (None, false, false));
    book.free(zone, 1, 1).unwrap();
    assert_eq!((book.victim(), book.has_victim(), book.is_reclaimable()), (Some(zone), true, true));
}

#[test]
fn write_in_flight_may_yet_bring_something_to_reclaim() {
    let mut book = empty(2);
    fill(&mut book, 90);
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    assert!(!book.is_reclaimable());
    book.allocate(zone, 2).unwrap();
    assert!(book.is_reclaimable());
    book.end(zone, 2, 1).unwrap();
    assert!(!book.is_reclaimable());
}

#[test]
fn data_packed_closer_than_was_reckoned_are_no_corruption() {
    let mut book = empty(2);
    let zone = fill(&mut book, 99);
    assert_eq!(book.totals(), Need { extents: 81, available: 100 });
    assert_eq!((book.victim(), book.histogram()[10]), (None, 1));
    assert_eq!(book.lose(zone, Lost::Offline), Ok(Need { extents: 0, available: 0 }));
    book.check();
}

/// Freed blocks are credit only beyond the debt.
#[test]
fn data_packed_closer_than_was_reckoned_on_a_full_drive_are_a_debt() {
    let mut book = empty(1);
    let zone = fill(&mut book, 99);
    let mut credits = crate::space::initial_credits(&book, Reserve { extents: 0, available: 0 });
    assert_eq!((book.totals().extents, book.debt()), (0, 9));
    for blocks in [50, 49] {
        book.free(zone, blocks, 1).unwrap();
        credits.freed(blocks.into());
        assert_eq!(credits.total().extents, book.totals().extents);
    }
    assert_eq!((book.totals().extents, book.debt()), (90, 0));
}

#[test]
fn reset_count_continues_from_its_value_at_mount() {
    let mut book = empty(1);
    book.set_resets(ZoneIndex(0), 7).unwrap();
    let zone = fill(&mut book, 0);
    book.begin_reset(zone, 0).unwrap();
    book.end_reset(zone).unwrap();
    assert_eq!(book.resets(zone), 8);
}

#[test]
fn zone_closed_early_is_a_victim_for_the_blocks_it_gave_up() {
    let mut book = empty(2);
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    book.allocate(zone, 10).unwrap();
    book.end(zone, 10, 9).unwrap();
    assert_eq!(book.close(zone), Ok(Need { extents: 0, available: 90 }));
    assert_eq!((book.victim(), book.sums().available), (Some(zone), 100));
    book.check();
}

#[test]
fn lost_zone_reduces_capacity_and_its_freed_blocks_stay_unavailable() {
    let mut book = empty(2);
    let zone = fill(&mut book, 50);
    assert_eq!(book.lose(zone, Lost::ReadOnly), Ok(Need { extents: 40, available: 0 }));
    assert!(!book.free(zone, 50, 1).unwrap().is_writable());
    assert_eq!(book.totals(), Need { extents: 90, available: 100 });
    assert_eq!(book.lose(ZoneIndex(1), Lost::Offline), Ok(Need { extents: 90, available: 100 }));
    assert_eq!(book.take_free(ZoneOrder::LowestIndex), None);
    book.check();
}

#[test]
fn call_in_the_wrong_state_errs_and_changes_nothing() {
    let mut book = empty(2);
    let zone = ZoneIndex(0);
    let refused = |wanted| Err(BookError::State { zone, state: ZoneState::Free, wanted });
    assert_eq!(book.allocate(zone, 1).map(drop), refused("allocation"));
    assert_eq!(book.end(zone, 1, 1).map(drop), refused("an end"));
    assert_eq!(book.close(zone).map(drop), refused("closing"));
    assert_eq!(book.pin(zone, Pin::Copy), refused("a pin"));
    assert_eq!(book.begin_reset(zone, 9), refused("a reset"));
    assert_eq!(book.end_reset(zone).map(drop), refused("the end of a reset"));
    assert_eq!(book.fail_reset(zone), refused("the failure of a reset"));
    assert_eq!(book.unpin(zone, Pin::Read), Err(BookError::Pins { zone }));
    assert_eq!(book.allocate(ZoneIndex(2), 1), Err(BookError::NoZone { zone: ZoneIndex(2) }));
    assert_eq!(book.iter().map(|z| *z.1).collect::<Vec<_>>(), [Zone::new(CAPACITY, ZoneState::Free); 2]);
    book.check();
}

#[test]
fn overallocation_and_overuse_fail_without_changes() {
    let mut book = empty(1);
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    book.allocate(zone, 20).unwrap();
    let before = *book.zone(zone).unwrap();
    let refused = Err(BookError::Overallocated { zone, allocated: 20, blocks: 81, capacity: 100 });
    assert_eq!(book.allocate(zone, 81), refused);
    let refused = Err(BookError::Overwritten { zone, written: 0, blocks: 21, allocated: 20 });
    assert_eq!(book.end(zone, 21, 0), refused);
    assert_eq!(book.end(zone, 10, 11), Err(BookError::Overused { zone, used: 0, blocks: 11, written: 10 }));
    assert_eq!(*book.zone(zone).unwrap(), before);
    book.check();
}

#[test]
fn h72_zone_that_is_being_copied_is_not_picked_again() {
    let mut book = empty(2);
    let (least, next) = (fill(&mut book, 5), fill(&mut book, 6));
    assert_eq!(book.victim(), Some(least));
    book.pin(least, Pin::Copy).unwrap();
    book.pin(least, Pin::Copy).unwrap();
    assert_eq!(book.victim(), Some(next));
    book.unpin(least, Pin::Copy).unwrap();
    assert_eq!(book.victim(), Some(next));
    book.unpin(least, Pin::Copy).unwrap();
    assert_eq!(book.victim(), Some(least));
}

#[test]
fn h74_zone_is_reset_only_when_the_commit_that_freed_it_is_durable() {
    let mut book = empty(2);
    let zone = fill(&mut book, 50);
    book.free(zone, 20, 8).unwrap();
    book.free(zone, 30, 7).unwrap();
    assert_eq!((state(&book, 0), book.commit_wanted()), (ZoneState::Dead, Some(8)));
    assert_eq!(book.dead_zones(7).count(), 0);
    assert_eq!(book.begin_reset(zone, 7), Err(BookError::Referred { zone, committed: 7, freed_at: 8 }));
    assert_eq!(book.dead_zones(8).collect::<Vec<_>>(), [zone]);
    assert_eq!(book.begin_reset(zone, 8), Ok(()));
}

#[test]
fn h74_commit_of_blocks_freed_while_the_zone_was_open_counts() {
    let mut book = empty(2);
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    book.allocate(zone, CAPACITY).unwrap();
    book.end(zone, 50, 40).unwrap();
    book.free(zone, 40, 3).unwrap();
    book.end(zone, 50, 0).unwrap();
    assert_eq!(book.begin_reset(zone, 2), Err(BookError::Referred { zone, committed: 2, freed_at: 3 }));
    book.check();
}

#[test]
fn h75_blocks_freed_in_an_open_zone_count_when_it_turns_full() {
    let mut book = empty(2);
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    book.allocate(zone, 50).unwrap();
    book.end(zone, 50, 40).unwrap();
    book.free(zone, 35, 1).unwrap();
    assert_eq!((book.victim(), book.histogram()), (None, [0; 11]));
    book.allocate(zone, 50).unwrap();
    book.end(zone, 50, 0).unwrap();
    assert_eq!((book.victim(), book.histogram()), (Some(zone), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn h75_open_zone_with_only_freed_blocks_is_not_reset() {
    let mut book = empty(2);
    let zone = book.take_free(ZoneOrder::LowestIndex).unwrap();
    book.allocate(zone, 50).unwrap();
    book.end(zone, 50, 40).unwrap();
    book.free(zone, 40, 1).unwrap();
    assert_eq!((state(&book, 0), book.dead_zones(1).count()), (ZoneState::Open, 0));
    book.close(zone).unwrap();
    assert_eq!((state(&book, 0), book.dead_zones(1).count()), (ZoneState::Dead, 1));
}

#[test]
fn h76_more_freed_than_is_live_errs_and_changes_nothing() {
    let mut book = empty(1);
    let zone = fill(&mut book, 5);
    let before = (*book.zone(zone).unwrap(), book.sums());
    assert_eq!(book.free(zone, 6, 1), Err(BookError::Underused { zone, used: 5, blocks: 6 }));
    assert_eq!((*book.zone(zone).unwrap(), book.sums()), before);
    assert_eq!(book.free(zone, 5, 0).map(|z| z.used), Ok(0));
    assert_eq!(book.dead_zones(0).count(), 1);
    assert_eq!(book.free(zone, 1, 1), Err(BookError::Underused { zone, used: 0, blocks: 1 }));
    book.check();
}

#[test]
fn h77_full_zone_without_live_data_is_dead_at_mount() {
    let found = [data(ZoneCondition::Full, 0, 0), data(ZoneCondition::Full, 0, 1)];
    let book = ZoneBook::load(UNIT, found).unwrap();
    assert_eq!((state(&book, 0), state(&book, 1)), (ZoneState::Dead, ZoneState::Full));
    assert_eq!(book.dead_zones(0).collect::<Vec<_>>(), [ZoneIndex(0)]);
}

#[test]
fn h84_lowest_free_zone_is_opened() {
    let mut book = empty(4);
    assert_eq!(fill(&mut book, 0), ZoneIndex(0));
    assert_eq!(fill(&mut book, 9), ZoneIndex(1));
    book.begin_reset(ZoneIndex(0), 0).unwrap();
    assert_eq!(book.take_free(ZoneOrder::LowestIndex), Some(ZoneIndex(2)), "a zone that is not free yet");
    book.end_reset(ZoneIndex(0)).unwrap();
    assert_eq!(book.take_free(ZoneOrder::LowestIndex), Some(ZoneIndex(0)));
    assert_eq!(book.take_free(ZoneOrder::LowestIndex), Some(ZoneIndex(3)));
    assert_eq!(book.take_free(ZoneOrder::LowestIndex), None);
}

#[test]
fn round_robin_opens_the_next_zone_and_begins_again() {
    let mut book = empty(3);
    for expected in [0, 1, 2, 0, 1, 2] {
        let zone = book.take_free(ZoneOrder::RoundRobin).unwrap();
        assert_eq!(zone, ZoneIndex(expected));
        book.close(zone).unwrap();
        book.begin_reset(zone, 0).unwrap();
        book.end_reset(zone).unwrap();
    }
}

#[test]
fn mount_derives_zone_states_from_pointers_and_live_blocks() {
    let found = [
        ZoneAtMount::Reserved,
        data(ZoneCondition::Empty, 0, 0),
        data(ZoneCondition::ExpOpen, 0, 0),
        data(ZoneCondition::ImpOpen, 30, 20),
        data(ZoneCondition::Closed, 30, 0),
        data(ZoneCondition::Closed, 100, 7),
        data(ZoneCondition::Full, 3, 90),
        data(ZoneCondition::ReadOnly, 3, 20),
        data(ZoneCondition::Offline, 0, 20),
    ];
    let book = ZoneBook::load(UNIT, found).unwrap();
    let states: Vec<_> = book.iter().map(|(_, zone)| zone.state).collect();
    use ZoneState::{Free, Full, Offline, Open, ReadOnly, Reserved};
    assert_eq!(states, [Reserved, Free, Free, Open, Open, Full, Full, ReadOnly, Offline]);
    let sums = Sums { available: 340, used: 157, reclaimable: 143, data: 540, kept: 117, in_flight: 0 };
    assert_eq!(book.sums(), sums);
    book.check();
}

#[test]
fn mount_finds_every_contradiction_in_order() {
    let found = [
        data(ZoneCondition::Closed, 101, 0),
        data(ZoneCondition::Full, 0, 101),
        data(ZoneCondition::Closed, 30, 31),
        data(ZoneCondition::Closed, 30, 30),
        data(ZoneCondition::Empty, 0, 1),
        data(ZoneCondition::NotWp, 0, 0),
    ];
    let faults = [
        (0, Fault::PointerBeyondCapacity { pointer: 101, capacity: 100 }),
        (1, Fault::UsedBeyondCapacity { used: 101, capacity: 100 }),
        (2, Fault::UsedBeyondPointer { used: 31, pointer: 30 }),
        (4, Fault::UsedInEmpty { used: 1 }),
        (5, Fault::Conventional),
    ];
    let findings = faults.map(|(zone, fault)| Finding { zone: ZoneIndex(zone), fault });
    assert_eq!(ZoneBook::load(UNIT, found).unwrap_err(), findings);
    assert_eq!(findings[2].to_string(), "zone 2: 31 live blocks below write pointer 30");
}
