//! Known mistakes of zoned devices, each with a sequence that reveals it.

use super::*;
use crate::geometry::{Geometry, GeometryError};
use crate::units::{Sectors, ZoneIndex};
use ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen};

fn geometry() -> Geometry {
    Geometry::new(Sectors(16 * 128), Sectors(128), Sectors(96), 4).unwrap()
}

fn resources(open_max: u32, active_max: u32) -> Resources {
    Resources::new(Limits { open_max, active_max })
}

#[test]
fn h16_full_is_checked_before_the_pointer_moves() {
    for personality in PERSONALITIES {
        for full in [ZoneState::full(16), state(Full, 8), state(ImpOpen, 16), state(Closed, 16)] {
            for event in [
                ZoneEvent::Write { offset: full.written, sectors: 1 },
                ZoneEvent::Write { offset: 16, sectors: u32::MAX },
                ZoneEvent::Append { sectors: 1 },
                ZoneEvent::BeginWrite { offset: 16, sectors: 1 },
            ] {
                assert_eq!(step(personality, 16, full, event), Err(ZoneError::Full), "{full:?} {event:?}");
            }
        }
    }
}

#[test]
fn h36_reset_all_skips_zones_that_cannot_be_reset() {
    for condition in ZoneCondition::ALL {
        let before = state(condition, 0);
        let outcome = step(Personality::Zns, 16, before, ZoneEvent::Reset);
        if ZoneAction::Reset.selects(condition) {
            assert_eq!(outcome.map(|s| s.state), Ok(ZoneState::EMPTY));
        } else if condition != Empty {
            assert!(outcome.is_err(), "{condition} is not selected because it cannot be reset");
        }
    }
}

#[test]
fn h39_limits_at_or_above_the_sequential_zones_are_none() {
    assert_eq!(Limits::new(&geometry(), 12, 12), Ok(Limits::default()));
    assert!(Limits::new(&geometry(), 12, 12).unwrap().is_none());
    assert_eq!(Limits::new(&geometry(), 0, 6), Ok(Limits { open_max: 6, active_max: 6 }));
    let wrong = GeometryError::OpenAboveActive { open: 7, active: 6 };
    assert_eq!(Limits::new(&geometry(), 7, 6), Err(wrong));
}

#[test]
fn h53_eviction_is_counted_under_the_victims_condition() {
    let mut r = resources(1, 0);
    r.moved(ZoneIndex(3), Empty, ImpOpen);
    let victim = r.admit(Needs::ActiveAndOpen).unwrap().unwrap();
    r.evicted(victim, Closed);
    r.moved(ZoneIndex(5), Empty, ImpOpen);
    // The victim's write completes and fills its zone.
    r.moved(ZoneIndex(3), Closed, Full);
    assert_eq!(r.counts(), (1, 0, 0));
}

#[test]
fn h54_reopening_a_closed_zone_needs_an_open_resource_only() {
    let mut r = resources(2, 3);
    r.moved(ZoneIndex(0), Empty, ImpOpen);
    r.moved(ZoneIndex(1), Empty, ImpOpen);
    r.moved(ZoneIndex(2), Empty, Closed);
    assert_eq!(r.admit(Needs::ActiveAndOpen), Err(ZoneError::TooManyActive));
    assert_eq!(r.admit(Needs::Open), Ok(Some(ZoneIndex(0))));
}

#[test]
fn equal_limits_answer_too_many_active() {
    let mut r = resources(2, 2);
    r.moved(ZoneIndex(0), Empty, ExpOpen);
    r.moved(ZoneIndex(1), Empty, ExpOpen);
    assert_eq!(r.admit(Needs::ActiveAndOpen), Err(ZoneError::TooManyActive));
}

#[test]
fn h55_failed_first_write_leaves_an_open_unwritten_zone_that_closes_to_empty() {
    let begun =
        step(Personality::Zbc, 16, ZoneState::EMPTY, ZoneEvent::BeginWrite { offset: 0, sectors: 16 });
    let begun = begun.unwrap().state;
    assert_eq!(begun, state(ImpOpen, 16));
    let failed = step(Personality::Zbc, 16, begun, ZoneEvent::FailWrite { offset: 0, sectors: 16 });
    let failed = failed.unwrap().state;
    assert_eq!(failed, state(ImpOpen, 0));
    for event in [ZoneEvent::Close, ZoneEvent::ImplicitClose, ZoneEvent::Restart] {
        assert_eq!(step(Personality::Zbc, 16, failed, event).unwrap().state, ZoneState::EMPTY);
    }
    let again = step(Personality::Zbc, 16, failed, ZoneEvent::Write { offset: 0, sectors: 16 });
    assert_eq!(again.unwrap().state, ZoneState::full(16));
}

#[test]
fn h57_write_across_the_capacity_is_refused_whole() {
    for (offset, sectors) in [(8, 9), (8, u32::MAX), (8, 16)] {
        let open = state(ExpOpen, 8);
        let write = ZoneEvent::Write { offset, sectors };
        assert_eq!(step(Personality::Zns, 16, open, write), Err(ZoneError::Boundary));
        assert_eq!(step(Personality::Zns, 16, open, ZoneEvent::Append { sectors }), Err(ZoneError::Boundary));
    }
}

#[test]
fn h58_filling_append_is_placed_and_keeps_its_place() {
    let filling = step(Personality::Zns, 16, state(ImpOpen, 12), ZoneEvent::Append { sectors: 4 }).unwrap();
    assert_eq!((filling.state, filling.placed), (ZoneState::full(16), Some(12)));
    assert_eq!(step(Personality::Zns, 16, filling.state, ZoneEvent::EndWrite).unwrap().state, filling.state);
}

#[test]
fn h61_failed_write_with_another_behind_it_leaves_a_hole() {
    for personality in PERSONALITIES {
        let placed = state(ImpOpen, 12);
        let after = |failed| step(personality, 16, placed, failed).unwrap().state;
        assert_eq!(after(ZoneEvent::FailWrite { offset: 4, sectors: 4 }), placed);
        assert_eq!(after(ZoneEvent::FailWrite { offset: 8, sectors: 4 }), state(ImpOpen, 8));
    }
}

#[test]
fn victims_take_turns() {
    let mut r = resources(3, 0);
    for zone in [7, 2, 5] {
        r.moved(ZoneIndex(zone), Empty, ImpOpen);
    }
    let mut victims = Vec::new();
    for newcomer in [1, 9, 3, 8] {
        let victim = r.admit(Needs::ActiveAndOpen).unwrap().unwrap();
        r.evicted(victim, Closed);
        r.moved(ZoneIndex(newcomer), Empty, ImpOpen);
        victims.push(victim.0);
    }
    assert_eq!(victims, [2, 5, 7, 9]);
}

#[test]
#[should_panic(expected = "was not counted")]
fn resources_leaving_a_condition_never_entered_is_a_bug() {
    resources(2, 2).moved(ZoneIndex(0), ImpOpen, Full);
}

#[test]
fn h67_open_all_is_possible_only_with_room_for_every_closed_zone() {
    let mut r = resources(2, 3);
    r.moved(ZoneIndex(0), Empty, ImpOpen);
    r.moved(ZoneIndex(1), Empty, Closed);
    assert!(r.can_open_closed());
    r.moved(ZoneIndex(2), Empty, Closed);
    assert!(!r.can_open_closed());
}

#[test]
fn restored_zone_is_empty_closed_or_full_by_its_pointer() {
    for personality in PERSONALITIES {
        let restored = |condition, written| {
            let step = step(personality, 16, state(condition, written), ZoneEvent::Restore).unwrap();
            (step.state, step.needs)
        };
        assert_eq!(restored(ZoneCondition::ReadOnly, 0), (ZoneState::EMPTY, Needs::Nothing));
        assert_eq!(restored(ZoneCondition::ReadOnly, 15), (state(Closed, 15), Needs::Active));
        assert_eq!(restored(ZoneCondition::ReadOnly, 16), (ZoneState::full(16), Needs::Nothing));
        assert_eq!(restored(ZoneCondition::Offline, 0), (ZoneState::EMPTY, Needs::Nothing));
        assert_eq!(restored(ExpOpen, 4), (state(ExpOpen, 4), Needs::Nothing));
    }
}

#[test]
fn restored_zone_that_would_be_active_needs_an_active_resource_and_evicts_none() {
    let mut r = resources(1, 2);
    r.moved(ZoneIndex(3), Empty, ImpOpen);
    assert_eq!(r.admit(Needs::Active), Ok(None));
    r.moved(ZoneIndex(4), ZoneCondition::ReadOnly, Closed);
    assert_eq!(r.counts(), (1, 0, 1));
    assert_eq!(r.admit(Needs::Active), Err(ZoneError::TooManyActive));
}
