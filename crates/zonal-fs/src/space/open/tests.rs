use super::*;

const PLENTY: u32 = 100;

fn user(hint: Lifetime) -> PlacementRequest {
    PlacementRequest::User { cached: None, hint, packing: Packing::Spread }
}

fn tight(hint: Lifetime) -> PlacementRequest {
    PlacementRequest::User { cached: None, hint, packing: Packing::Tight }
}

/// A list with the limit `max`, and open zones of users with these lifetimes, by index.
fn opened(max: u32, hints: &[Lifetime]) -> OpenZones {
    let mut open = OpenZones::new(max);
    for (zone, &hint) in hints.iter().enumerate() {
        open.open(ZoneIndex(zone as u32), hint, Owner::User);
    }
    open
}

fn zone(choice: Choice) -> u32 {
    match choice {
        Choice::Zone(opened) => opened.zone.0,
        other => panic!("{other:?}"),
    }
}

fn order(open: &OpenZones) -> Vec<u32> {
    open.iter().map(|z| z.opened.zone.0).collect()
}

use Lifetime::{Extreme, Long, Medium, NotSet, Short};

#[test]
fn cached_zone_is_chosen_regardless_of_lifetime() {
    let mut open = opened(4, &[Short, Long]);
    let own = open.get(ZoneIndex(1)).unwrap().opened;
    let request = PlacementRequest::User { cached: Some(own), hint: Short, packing: Packing::Tight };
    assert_eq!(open.choose(request, PLENTY), Choice::Zone(own));
    assert_eq!((order(&open), open.get(ZoneIndex(1)).unwrap().hint), (vec![0, 1], Long));
}

#[test]
fn zone_that_was_filled_and_opened_again_is_not_the_files_any_more() {
    let mut open = opened(4, &[NotSet]);
    let own = open.get(ZoneIndex(0)).unwrap().opened;
    let request = PlacementRequest::User { cached: Some(own), hint: NotSet, packing: Packing::Spread };
    open.filled(ZoneIndex(0));
    assert_eq!(open.choose(request, PLENTY), Choice::OpenNew);
    assert!(open.remove(ZoneIndex(0)));
    let again = open.open(ZoneIndex(0), NotSet, Owner::User);
    assert_ne!(own, again);
    assert_eq!(open.choose(request, PLENTY), Choice::OpenNew);
}

#[test]
fn zone_of_the_same_lifetime_is_better_than_a_new_one_for_short_and_medium_only() {
    for hint in Lifetime::ALL {
        let mut open = opened(8, &[hint]);
        let is_good = matches!(hint, Short | Medium);
        assert_eq!(open.choose(user(hint), PLENTY) == Choice::OpenNew, !is_good, "{hint:?}");
    }
}

#[test]
fn scores_are_those_of_the_table() {
    let table = [
        [Score::Ok, Score::Any, Score::Any, Score::Any, Score::Any, Score::Any],
        [Score::Any, Score::Ok, Score::Any, Score::Any, Score::Any, Score::Any],
        [Score::Any, Score::Any, Score::Good, Score::Any, Score::Any, Score::Any],
        [Score::Any, Score::Any, Score::Any, Score::Good, Score::Any, Score::Any],
        [Score::Any, Score::Any, Score::Any, Score::Any, Score::Ok, Score::Ok],
        [Score::Any, Score::Any, Score::Any, Score::Any, Score::Ok, Score::Ok],
    ];
    for (zone, row) in Lifetime::ALL.into_iter().zip(table) {
        assert_eq!(Lifetime::ALL.map(|file| score(zone, file)), row, "{zone:?}");
    }
}

#[test]
fn tight_placement_reuses_the_last_zone_of_a_fitting_lifetime() {
    let mut open = opened(8, &[NotSet, NotSet, Extreme]);
    assert_eq!(zone(open.choose(tight(NotSet), PLENTY)), 1);
    assert_eq!(zone(open.choose(tight(NotSet), PLENTY)), 1);
    assert_eq!(zone(open.choose(tight(Long), PLENTY)), 2);
    assert_eq!(open.choose(tight(Short), PLENTY), Choice::OpenNew);
}

#[test]
fn new_zone_is_opened_below_the_limit_and_leaves_one_free() {
    let mut open = opened(3, &[NotSet]);
    assert_eq!(open.choose(user(NotSet), 2), Choice::OpenNew);
    assert_eq!(zone(open.choose(user(NotSet), 1)), 0, "the last free zone is the collector's");
    open.open(ZoneIndex(1), NotSet, Owner::User);
    assert_eq!(zone(open.choose(user(NotSet), PLENTY)), 0, "one open zone is the collector's");
    assert_eq!(zone(open.choose(user(NotSet), PLENTY)), 1, "they take turns");
}

#[test]
fn at_the_limit_a_zone_that_fits_is_better_than_one_used_longer_ago() {
    let mut open = opened(4, &[Short, NotSet, Long]);
    assert_eq!(zone(open.choose(user(Extreme), PLENTY)), 2);
    assert_eq!(zone(open.choose(user(Medium), PLENTY)), 0, "any, by age");
    assert_eq!(order(&open), [1, 2, 0]);
}

#[test]
fn zone_without_lifetime_takes_on_the_first_and_keeps_it() {
    let mut open = opened(2, &[NotSet]);
    for (hint, zones) in [(NotSet, NotSet), (Medium, Medium), (Long, Medium), (NotSet, Medium)] {
        assert_eq!(zone(open.choose(user(hint), PLENTY)), 0);
        assert_eq!(open.get(ZoneIndex(0)).unwrap().hint, zones);
    }
}

#[test]
fn writer_waits_when_no_open_zone_has_room_and_none_may_be_opened() {
    let mut open = opened(2, &[NotSet]);
    open.filled(ZoneIndex(0));
    assert_eq!(open.choose(user(NotSet), PLENTY), Choice::Wait);
    assert!(open.remove(ZoneIndex(0)));
    assert!(!open.remove(ZoneIndex(0)));
    assert_eq!(open.choose(user(NotSet), PLENTY), Choice::OpenNew);
}

#[test]
fn collector_has_its_own_zone_at_every_limit() {
    let mut open = opened(2, &[NotSet]);
    assert_eq!(open.choose(PlacementRequest::Gc, 0), Choice::Wait);
    assert_eq!(open.choose(PlacementRequest::Gc, 1), Choice::OpenNew);
    open.open(ZoneIndex(9), NotSet, Owner::Gc);
    assert_eq!(zone(open.choose(PlacementRequest::Gc, 0)), 9);
    assert_eq!(zone(open.choose(user(NotSet), PLENTY)), 0, "its zone is not shared");
    open.filled(ZoneIndex(0));
    assert_eq!(open.choose(user(NotSet), PLENTY), Choice::Wait);
    open.check();
}

#[test]
fn collector_opens_the_next_zone_when_the_writes_to_the_last_have_ended() {
    let mut open = opened(4, &[]);
    open.open(ZoneIndex(0), NotSet, Owner::Gc);
    open.filled(ZoneIndex(0));
    assert_eq!(open.choose(PlacementRequest::Gc, PLENTY), Choice::Wait);
    open.remove(ZoneIndex(0));
    assert_eq!(open.choose(PlacementRequest::Gc, PLENTY), Choice::OpenNew);
}

#[test]
fn collectors_zone_is_not_a_files_even_if_it_remembers_it() {
    let mut open = opened(4, &[]);
    let own = open.open(ZoneIndex(0), NotSet, Owner::Gc);
    let request = PlacementRequest::User { cached: Some(own), hint: NotSet, packing: Packing::Spread };
    assert_eq!(open.choose(request, PLENTY), Choice::OpenNew);
}

#[test]
fn returning_files_are_counted_per_zone_opening() {
    let mut open = opened(4, &[NotSet]);
    let own = open.get(ZoneIndex(0)).unwrap().opened;
    open.join(own);
    open.join(own);
    open.leave(own);
    assert_eq!(open.get(ZoneIndex(0)).unwrap().users, 1);
    open.remove(ZoneIndex(0));
    open.open(ZoneIndex(0), NotSet, Owner::User);
    open.leave(own);
    assert_eq!(open.get(ZoneIndex(0)).unwrap().users, 0);
}

#[test]
fn open_limit_is_the_option_capped_by_device_and_zone_count() {
    let limit = |option, device, zones| open_limit(OpenLimits { option, device, zones });
    assert_eq!(limit(None, None, 112_000), Ok(128));
    assert_eq!(limit(None, Some(14), 904), Ok(14));
    assert_eq!(limit(Some(40), Some(14), 904), Ok(14));
    assert_eq!(limit(Some(3), Some(14), 904), Ok(3));
    assert_eq!(limit(Some(1), Some(14), 904), Err(LimitError::Open { limit: 1 }));
    assert_eq!(limit(None, Some(1), 904), Err(LimitError::Open { limit: 1 }));
    assert_eq!(limit(None, None, 4), Err(LimitError::Zones { zones: 4 }));
    let small = [(5, 2), (11, 2), (12, 3), (16, 4), (100, 25), (512, 128), (513, 128)];
    for (zones, expected) in small {
        assert_eq!(limit(None, None, zones), Ok(expected), "{zones} zones");
    }
}

fn plan(blocks: &[u32], max: u32, free: u32) -> (Vec<u32>, Option<u32>) {
    let partial = blocks.iter().enumerate().map(|(zone, &blocks)| (ZoneIndex(zone as u32), blocks));
    let plan = plan_mount(partial, max, free);
    (plan.finish.into_iter().map(|z| z.0).collect(), plan.steal.map(|z| z.0))
}

#[test]
fn h78_mount_gives_the_collector_the_emptiest_open_zone_if_it_can_open_none() {
    assert_eq!(plan(&[5, 3, 4], 8, 1), (vec![], None));
    assert_eq!(plan(&[5, 3, 4], 8, 0), (vec![], Some(1)));
    assert_eq!(plan(&[5, 3, 3, 4], 4, 9), (vec![], Some(1)), "all that may be open are");
    assert_eq!(plan(&[], 4, 0), (vec![], None));
    let mut open = OpenZones::new(4);
    open.remount([5, 3, 3, 4].iter().enumerate().map(|z| ZoneIndex(z.0 as u32)), Some(ZoneIndex(1)));
    assert_eq!(zone(open.choose(PlacementRequest::Gc, 0)), 1);
    open.check();
}

#[test]
fn h79_mount_finishes_the_fullest_zones_beyond_the_limit() {
    assert_eq!(plan(&[5, 9, 7, 3, 9], 3, 9), (vec![1, 4], Some(3)));
    assert_eq!(plan(&[5, 9, 7], 3, 9), (vec![], Some(0)));
    assert_eq!(plan(&[5, 9], 3, 9), (vec![], None));
}
