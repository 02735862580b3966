//! Scenes with several zones.

use super::*;
use ZoneCondition::{Closed, Empty, ExpOpen, Full, ImpOpen};

#[test]
fn waiting_zones_are_served_in_order_as_slots_become_free() {
    let mut b = budget(2, 0, Policy::Wait);
    b.write(0);
    b.write(1);
    for zone in [9, 3, 5] {
        assert_eq!(b.ask(zone), Acquired::Wait);
    }
    b.end(1, 100);
    assert_eq!(b.steps(), [wake(9)]);
    b.write(9);
    b.end(0, 40);
    b.is_now(0, Empty);
    assert_eq!(b.steps(), [wake(3)]);
    b.write(3);
    b.end(9, 40);
    b.is_now(9, Closed);
    assert_eq!(b.steps(), [wake(5)]);
    assert_eq!((b.open(), b.active()), (2, 3));
    assert_eq!(zones(b.holders().map(|h| h.zone)), [3, 5, 9]);
}

#[test]
fn closed_zone_at_the_active_limit_needs_an_open_slot_only() {
    let mut b = budget(2, 2, Policy::Wait);
    b.is_now(0, Closed);
    b.write(1);
    assert_eq!(b.ask(2), Acquired::Wait);
    assert_eq!(b.ask(0), Acquired::Granted);
}

#[test]
fn closed_zones_pass_each_empty_one_once() {
    let mut b = budget(3, 4, Policy::Wait);
    for zone in [1, 2, 3] {
        b.is_now(zone, Closed);
    }
    b.write(0);
    assert_eq!(b.ask(7), Acquired::Wait, "no active slot");
    assert_eq!(b.ask(1), Acquired::Granted, "passes 7");
    assert_eq!(b.ask(2), Acquired::Wait, "7 was passed already");
    assert_eq!(b.ask(8), Acquired::Wait);
    b.end(0, 100);
    assert_eq!(b.steps(), [wake(7), wake(2)], "8 lacks an active slot and is passed");
    b.write(1);
    b.end(1, 100);
    assert_eq!(b.steps(), [wake(8)]);
}

#[test]
fn wait_that_nothing_under_way_can_end_fails_with_the_holders() {
    let mut b = budget(2, 0, Policy::Wait);
    b.write(4);
    b.write(2);
    b.end(4, 50);
    assert_eq!(b.ask(9), Acquired::Wait, "2 is being written");
    assert_eq!(b.ask(8), Acquired::Wait);
    assert_eq!(b.failed(0), []);
    b.end(2, 50);
    assert_eq!(b.failed(0), [(9, vec![2, 4]), (8, vec![2, 4])]);
    assert_eq!(b.waiting().count(), 0);
    assert_eq!(b.ask(9), refused(9, &[2, 4]), "at once");
    b.is_now(4, Full);
    assert_eq!(b.ask(9), Acquired::Granted);
}

#[test]
fn refusal_for_want_of_an_active_slot_names_closed_zones_too() {
    let mut b = budget(1, 2, Policy::Wait);
    b.is_now(5, Closed);
    b.is_now(6, ImpOpen);
    assert_eq!(b.ask(9), refused(9, &[5, 6]));
    assert_eq!(b.ask(5), refused(5, &[6]), "lacks an open one");
}

#[test]
fn slot_unusable_for_a_failed_waiter_goes_to_the_next() {
    let mut b = budget(3, 3, Policy::Wait);
    b.is_now(1, Closed);
    b.is_now(2, Closed);
    b.write(3);
    assert_eq!(b.ask(9), Acquired::Wait);
    assert_eq!(b.ask(1), Acquired::Granted, "passes 9");
    b.write_started(ZoneIndex(1));
    assert_eq!(b.ask(2), Acquired::Wait);
    b.end(3, 50);
    b.end(1, 50);
    assert_eq!(b.failed(0), [(9, vec![1, 2, 3])]);
    assert_eq!(b.steps(), [wake(2)]);
}

#[test]
fn grace_gives_writers_the_moment_between_two_writes() {
    let options = Options { grace: Nanos(10), ..Options::default() };
    let mut b = Budget::new(Limits { open_max: 1, active_max: 0 }, options).unwrap();
    b.write(0);
    b.end(0, 10);
    assert_eq!(b.ask(1), Acquired::Wait);
    assert_eq!((b.failed(100), b.next_deadline()), (vec![], Some(Nanos(110))));
    b.write(0);
    assert_eq!((b.failed(105), b.next_deadline()), (vec![], None));
    b.end(0, 20);
    assert_eq!((b.failed(106), b.next_deadline()), (vec![], Some(Nanos(116))));
    assert_eq!(b.failed(115), []);
    assert_eq!(b.failed(116), [(1, vec![0])]);
    assert_eq!(b.next_deadline(), None);
}

#[test]
fn policy_close_closes_the_zone_that_was_not_used_for_longest() {
    let mut b = budget(3, 0, Policy::Close);
    for zone in [0, 1, 2] {
        b.write(zone);
        b.end(zone, 10);
    }
    b.write(0);
    b.end(0, 20);
    b.write(2);
    for zone in [7, 8, 9] {
        assert_eq!(b.ask(zone), Acquired::Wait);
    }
    assert_eq!(b.steps(), [close(1), close(0)], "2 is being written");
    b.is_now(0, Closed);
    assert_eq!(b.steps(), [wake(7)]);
    b.is_now(1, Closed);
    assert_eq!(b.steps(), [wake(8)]);
    b.end(2, 10);
    assert_eq!(b.steps(), [close(2)], "it is idle now");
    assert_eq!(b.failed(0), []);
    assert_eq!((b.open(), b.active()), (3, 5));
}

#[test]
fn policy_close_closes_no_zone_that_was_opened_by_a_command() {
    let mut b = budget(1, 0, Policy::Close);
    b.is_now(3, ExpOpen);
    assert_eq!(b.ask(4), refused(4, &[3]));
}

#[test]
fn policy_close_is_no_help_without_an_active_slot() {
    let mut b = budget(2, 2, Policy::Close);
    b.is_now(0, ImpOpen);
    b.is_now(1, Closed);
    assert_eq!(b.ask(4), refused(4, &[0, 1]));
    assert_eq!(b.steps(), []);
}

#[test]
fn zone_that_is_written_while_it_is_closed_waits_for_its_turn() {
    let mut b = budget(1, 0, Policy::Close);
    b.is_now(0, ImpOpen);
    assert_eq!(b.ask(1), Acquired::Wait);
    assert_eq!(b.steps(), [close(0)]);
    assert_eq!(b.ask(0), Acquired::Wait);
    b.is_now(0, Closed);
    assert_eq!(b.steps(), [wake(1)]);
    b.write(1);
    b.end(1, 10);
    assert_eq!(b.steps(), [close(1)]);
    b.is_now(1, Closed);
    assert_eq!(b.steps(), [wake(0)]);
}

#[test]
fn policy_finish_finishes_only_zones_that_are_nearly_full() {
    let mut b = budget(2, 2, Policy::Finish);
    b.write(0);
    b.end(0, 95);
    b.write(1);
    b.end(1, 95);
    assert_eq!(b.ask(4), refused(4, &[0, 1]), "95 percent are not more than 95");
    b.write(1);
    b.end(1, 96);
    assert_eq!(b.ask(4), Acquired::Wait);
    assert_eq!(b.steps(), [finish(1)]);
    b.is_now(1, Full);
    assert_eq!(b.steps(), [wake(4)]);
}

#[test]
fn policy_finish_closes_where_that_is_enough() {
    let mut b = budget(1, 2, Policy::Finish);
    b.write(0);
    b.end(0, 99);
    assert_eq!(b.ask(4), Acquired::Wait);
    assert_eq!(b.steps(), [close(0)]);
    b.is_now(0, Closed);
    assert_eq!(b.steps(), [wake(4)]);
}

#[test]
fn policy_finish_spares_a_zone_that_waits() {
    let mut b = budget(1, 2, Policy::Finish);
    b.set_condition(ZoneIndex(0), Closed, fill(99));
    b.write(1);
    assert_eq!(b.ask(0), Acquired::Wait);
    assert_eq!(b.ask(4), Acquired::Wait);
    assert_eq!(b.steps(), []);
    b.end(1, 99);
    assert_eq!(b.steps(), [close(1)], "for 0");
    b.is_now(1, Closed);
    assert_eq!(b.steps(), [wake(0)]);
}

#[test]
fn policy_fail_fails_at_once_whatever_is_under_way() {
    let mut b = budget(1, 0, Policy::Fail);
    b.write(0);
    assert_eq!(b.ask(1), refused(1, &[0]));
    assert_eq!((b.waiting().count(), b.steps()), (0, vec![]));
}

#[test]
fn class_is_guaranteed_its_minimum_under_contention() {
    let options = Options { minimums: vec![0, 2], ..Options::default() };
    let mut b = Budget::new(Limits { open_max: 3, active_max: 0 }, options).unwrap();
    b.write(0);
    assert_eq!(b.ask(1), Acquired::Wait, "two are kept");
    for zone in [10, 11] {
        assert_eq!(b.acquire(ZoneIndex(zone), WriterClass(1), Nanos(0)), Acquired::Granted);
        b.write_started(ZoneIndex(zone));
    }
    assert_eq!(b.acquire(ZoneIndex(12), WriterClass(1), Nanos(0)), Acquired::Wait);
    b.end(10, 100);
    assert_eq!(b.steps(), [wake(12)], "1 came before it but the slot is not for 1");
    b.write_started(ZoneIndex(12));
    b.end(0, 100);
    assert_eq!(b.steps(), [wake(1)]);
    let holders: Vec<_> = b.holders().map(|h| (h.zone.0, h.class.0, h.open, h.writes)).collect();
    assert_eq!(holders, [(1, 0, true, 0), (11, 1, true, 1), (12, 1, true, 1)]);
}

#[test]
fn wait_for_a_slot_of_another_class_fails_while_that_class_writes() {
    let options = Options { minimums: vec![0, 1], ..Options::default() };
    let mut b = Budget::new(Limits { open_max: 2, active_max: 0 }, options).unwrap();
    b.write(0);
    assert_eq!(b.acquire(ZoneIndex(10), WriterClass(1), Nanos(0)), Acquired::Granted);
    b.write_started(ZoneIndex(10));
    b.end(0, 10);
    assert_eq!(b.ask(1), refused(1, &[0, 10]));
}

#[test]
fn victim_is_not_taken_from_another_classs_minimum() {
    let options = Options { policy: Policy::Close, minimums: vec![0, 1], ..Options::default() };
    let mut b = Budget::new(Limits { open_max: 2, active_max: 0 }, options).unwrap();
    assert_eq!(b.acquire(ZoneIndex(10), WriterClass(1), Nanos(0)), Acquired::Granted);
    b.write_started(ZoneIndex(10));
    b.end(10, 10);
    b.write(0);
    b.end(0, 10);
    assert_eq!(b.ask(1), Acquired::Wait);
    assert_eq!(b.steps(), [close(0)], "10 is older but its class would get the slot back");
}

#[test]
fn one_who_gives_up_makes_way() {
    let mut b = budget(1, 0, Policy::Wait);
    b.write(0);
    for zone in [1, 2, 3] {
        assert_eq!(b.ask(zone), Acquired::Wait);
    }
    b.cancel(ZoneIndex(2));
    b.end(0, 100);
    assert_eq!(b.steps(), [wake(1)]);
    b.cancel(ZoneIndex(1));
    assert_eq!(b.steps(), [wake(3)]);
    b.cancel(ZoneIndex(8));
    assert_eq!(b.steps(), []);
}

#[test]
fn zones_found_open_at_the_start_count_even_beyond_the_limit() {
    let mut b = budget(1, 2, Policy::Wait);
    b.is_now(0, ImpOpen);
    b.is_now(1, ImpOpen);
    b.is_now(2, Closed);
    assert_eq!((b.open(), b.active()), (2, 3));
    b.is_now(0, Full);
    b.is_now(1, Full);
    assert_eq!(b.ask(5), Acquired::Granted);
}

#[test]
fn all_writers_are_granted_without_limits() {
    let mut b = budget(0, 0, Policy::Fail);
    for zone in 0..1000 {
        b.write(zone);
    }
    assert_eq!((b.open(), b.steps()), (1000, vec![]));
}

#[test]
fn budget_remembers_no_zone_that_holds_nothing() {
    let mut b = budget(1, 1, Policy::Wait);
    for zone in 0..100 {
        b.write(zone);
        b.end(zone, 100);
    }
    assert_eq!((b.holders().count(), b.waiting().count(), b.active()), (0, 0, 0));
}

#[test]
fn minimums_beyond_the_smaller_limit_and_no_classes_are_refused() {
    let new = |minimums: &[u32]| {
        let options = Options { minimums: minimums.to_vec(), ..Options::default() };
        Budget::new(Limits { open_max: 3, active_max: 5 }, options).map(|_| ())
    };
    assert_eq!(new(&[1, 2]), Ok(()));
    assert_eq!(new(&[2, 2]), Err(BudgetError::Minimums { minimums: 4, limit: 3 }));
    assert_eq!(new(&[]), Err(BudgetError::Classes { classes: 0 }));
    assert_eq!(new(&[0; 257]), Err(BudgetError::Classes { classes: 257 }));
}

#[test]
fn every_policy_has_the_name_it_is_found_by() {
    let names = Policy::ALL.map(Policy::name);
    assert_eq!(names, ["wait", "close", "finish", "fail"]);
    assert_eq!(names.map(Policy::from_name), Policy::ALL.map(Some));
    assert_eq!(Policy::from_name("Wait"), None);
}
