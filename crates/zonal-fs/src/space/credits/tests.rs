use super::*;

fn need(extents: u64, available: u64) -> Need {
    Need { extents, available }
}

/// Credits with this much of both for users, and 10 for the collector.
fn credits(extents: u64, available: u64) -> Credits {
    Credits::new(need(extents + 10, available + 10), Reserve { extents: 10, available: 10 })
}

fn granted(result: Result<Reservation, Refusal>) -> Reservation {
    result.expect("there is space")
}

fn queued(credits: &mut Credits, want: Need) -> Ticket {
    match credits.reserve(want, Urgency::Wait) {
        Err(Refusal::Queued(ticket)) => ticket,
        other => panic!("{other:?}"),
    }
}

fn waiting(credits: &mut Credits, ticket: Ticket) -> Ticket {
    match credits.state(ticket) {
        Answer::Waiting(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn answered(credits: &mut Credits, ticket: Ticket) -> Reservation {
    match credits.state(ticket) {
        Answer::Granted(reservation) => reservation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reservation_draws_extents_and_blocks_and_returns_the_rest() {
    let mut credits = credits(100, 50);
    let mut reservation = granted(credits.reserve(need(20, 22), Urgency::Wait));
    assert_eq!(credits.user(), need(80, 28));
    credits.spend(&mut reservation, need(9, 10)).unwrap();
    let over = Overspent { left: need(11, 12), need: need(11, 13) };
    assert_eq!(credits.spend(&mut reservation, need(11, 13)), Err(over));
    assert_eq!(reservation.left(), need(11, 12));
    credits.give_back(reservation);
    assert_eq!((credits.user(), credits.total()), (need(91, 40), need(101, 50)));
    credits.check();
}

#[test]
fn part_of_a_reservation_is_one_of_its_own() {
    let mut credits = credits(100, 50);
    let mut whole = granted(credits.reserve(need(20, 22), Urgency::NoWait));
    let part = whole.split(need(5, 6)).unwrap();
    assert_eq!((part.left(), whole.left()), (need(5, 6), need(15, 16)));
    assert_eq!(whole.split(need(16, 0)), None);
    credits.give_back(part);
    assert_eq!(credits.user(), need(85, 34));
    credits.give_back(whole);
    assert_eq!(credits.user(), need(100, 50));
}

#[test]
fn reservation_short_of_extents_fails_at_once() {
    let mut credits = credits(10, 100);
    assert_eq!(credits.reserve(need(11, 12), Urgency::Wait), Err(Refusal::NoSpace));
    assert_eq!(credits.reserve(need(11, 12), Urgency::NoWait), Err(Refusal::NoSpace));
    assert_eq!(credits.waiting(), 0);
    credits.freed(1);
    let _all = granted(credits.reserve(need(11, 12), Urgency::Wait));
}

#[test]
fn nowait_reservation_fails_behind_waiters_or_short_of_blocks() {
    let mut credits = credits(100, 10);
    assert_eq!(credits.reserve(need(1, 11), Urgency::NoWait), Err(Refusal::WouldWait));
    let first = queued(&mut credits, need(1, 11));
    assert_eq!(credits.reserve(need(1, 1), Urgency::NoWait), Err(Refusal::WouldWait));
    credits.abandon(first);
    let reservation = granted(credits.reserve(need(1, 1), Urgency::NoWait));
    credits.give_back(reservation);
    credits.check();
}

#[test]
fn freed_extents_return_at_once_and_blocks_with_the_reset() {
    let mut credits = credits(10, 10);
    let mut all = granted(credits.reserve(need(10, 10), Urgency::Wait));
    credits.spend(&mut all, need(10, 10)).unwrap();
    credits.freed(4);
    assert_eq!(credits.user(), need(4, 0));
    let ticket = queued(&mut credits, need(4, 5));
    credits.made_available(5);
    let reservation = answered(&mut credits, ticket);
    assert_eq!((reservation.left(), credits.user()), (need(4, 5), need(0, 0)));
    credits.give_back(all);
    credits.give_back(reservation);
}

#[test]
fn greedy_reservation_takes_the_remainder_if_any() {
    let cost = Cost { unit_blocks: 11, slack: 2 };
    let mut credits = credits(25, 100);
    let reservation = granted(credits.reserve_greedily(30, cost, Urgency::Wait));
    assert_eq!(reservation.left(), need(25, 30));
    assert_eq!(credits.reserve_greedily(1, cost, Urgency::Wait), Err(Refusal::NoSpace));
    credits.give_back(reservation);
    let reservation = granted(credits.reserve_greedily(7, cost, Urgency::Wait));
    assert_eq!(reservation.left(), need(7, 10));
}

#[test]
fn cost_has_a_header_for_each_unit_begun() {
    let cost = Cost { unit_blocks: 128, slack: 1 };
    let of = [0, 1, 127, 128, 254].map(|data| cost.of(data).available);
    assert_eq!(of, [1, 3, 129, 131, 257]);
}

#[test]
fn abandoned_ticket_returns_its_credits_and_admits_the_next() {
    let mut credits = credits(100, 10);
    let (big, small) = (queued(&mut credits, need(11, 11)), queued(&mut credits, need(5, 5)));
    assert_eq!(credits.user(), need(84, 10));
    credits.abandon(big);
    assert_eq!((credits.user(), credits.waiting()), (need(95, 5), 0));
    credits.abandon(small);
    assert_eq!(credits.user(), need(100, 10));
    credits.check();
}

#[test]
fn lost_blocks_are_the_users_first_then_the_pools_then_owed() {
    let mut credits = credits(10, 10);
    let reservation = granted(credits.reserve(need(0, 8), Urgency::Wait));
    credits.lost(need(0, 5));
    assert_eq!((credits.user(), credits.pool()), (need(10, 0), need(10, 7)));
    credits.lost(need(0, 10));
    assert_eq!((credits.pool(), credits.total()), (need(10, 0), need(20, 5)));
    credits.check();
    credits.give_back(reservation);
    assert_eq!((credits.user(), credits.total()), (need(10, 5), need(20, 5)));
    credits.made_available(12);
    assert_eq!((credits.user(), credits.pool()), (need(10, 7), need(10, 10)));
}

#[test]
fn freed_space_refills_the_pools_first() {
    let mut credits = credits(10, 10);
    let mut copy = granted(credits.reserve(need(8, 9), Urgency::Gc));
    credits.spend(&mut copy, need(8, 9)).unwrap();
    credits.give_back(copy);
    assert_eq!((credits.user(), credits.pool()), (need(10, 10), need(2, 1)));
    credits.freed(8);
    credits.made_available(20);
    assert_eq!((credits.user(), credits.pool()), (need(10, 21), need(10, 10)));
}

#[test]
fn reserve_of_a_small_drive_leaves_users_a_zone() {
    let of = |zones, option| Reserve::of(Drive { zones, zone_blocks: 100, zone_data: 90, option });
    assert_eq!(of(1000, 0), Reserve { extents: 360, available: 300 });
    assert_eq!(of(1000, 900), Reserve { extents: 1260, available: 300 });
    assert_eq!(of(5, 0), Reserve { extents: 360, available: 300 });
    assert_eq!(of(5, u64::MAX), Reserve { extents: 360, available: 300 });
    assert_eq!(of(4, 0), Reserve { extents: 270, available: 200 });
}

#[test]
fn h70_collector_takes_from_its_pools_and_from_nothing_else() {
    let mut credits = credits(100, 100);
    let copy = granted(credits.reserve(need(10, 10), Urgency::Gc));
    assert_eq!((credits.user(), credits.pool()), (need(100, 100), need(0, 0)));
    assert_eq!(credits.reserve(need(1, 1), Urgency::Gc), Err(Refusal::WouldWait));
    credits.give_back(copy);
    assert_eq!((credits.user(), credits.pool()), (need(100, 100), need(10, 10)));
}

#[test]
fn h70_users_leave_the_collector_its_pools_and_it_does_not_stand_in_line() {
    let mut credits = credits(100, 100);
    let all = granted(credits.reserve(need(90, 100), Urgency::Wait));
    let ticket = queued(&mut credits, need(10, 1));
    let copy = granted(credits.reserve(need(10, 10), Urgency::Gc));
    let ticket = waiting(&mut credits, ticket);
    credits.give_back(copy);
    credits.abandon(ticket);
    credits.give_back(all);
}

/// Additions refill the collector's pool first.
#[test]
fn reservation_gets_in_advance_what_users_will_have() {
    let mut credits = credits(0, 1);
    credits.lost(need(4, 1));
    let mut reservation = Reservation::nothing();
    for gain in [need(5, 2), need(6, 1), need(0, 0)] {
        assert!(!credits.advance(&mut reservation, need(2, 2), gain));
    }
    assert_eq!((reservation.left(), credits.pool()), (need(0, 0), need(6, 10)));
    assert!(credits.advance(&mut reservation, need(2, 2), need(6, 2)));
    assert_eq!((reservation.left(), credits.total()), (need(2, 2), need(6, 10)));
    credits.freed(6);
    credits.made_available(2);
    assert_eq!((credits.user(), credits.pool(), credits.total()), (need(0, 0), need(10, 10), need(12, 12)));
    credits.give_back(reservation);
    assert_eq!(credits.user(), need(2, 2));
    credits.check();
}

#[test]
fn h71_no_ticket_waits_for_a_collector_that_finds_nothing() {
    let mut credits = credits(100, 10);
    let (big, small) = (queued(&mut credits, need(50, 11)), queued(&mut credits, need(5, 6)));
    credits.gc_is_idle(true);
    let (big, small) = (waiting(&mut credits, big), waiting(&mut credits, small));
    credits.gc_is_idle(false);
    assert_eq!(credits.state(big), Answer::NoSpace);
    let reservation = answered(&mut credits, small);
    assert_eq!(reservation.left(), need(5, 6), "there is space for this one, now that it is the first");
    assert_eq!((credits.user(), credits.waiting()), (need(95, 4), 0));
    assert_eq!(credits.reserve(need(5, 6), Urgency::Wait), Err(Refusal::NoSpace), "nor does a newcomer");
    credits.give_back(reservation);
    credits.check();
}

#[test]
fn h71_newcomer_waits_again_once_something_was_freed_or_the_collector_works() {
    let stirs: [fn(&mut Credits); 3] = [|c| c.freed(1), |c| c.made_available(1), |c| c.gc_runs(0)];
    for stir in stirs {
        let mut credits = credits(100, 10);
        credits.gc_is_idle(false);
        assert_eq!(credits.reserve(need(50, 20), Urgency::Wait), Err(Refusal::NoSpace));
        stir(&mut credits);
        let ticket = queued(&mut credits, need(50, 20));
        credits.abandon(ticket);
    }
}

#[test]
fn writers_go_at_the_pace_of_the_collector_below_its_mark_and_freely_once_it_is_idle() {
    let mut credits = credits(100, 30);
    credits.gc_runs(25);
    let first = credits.reserve(need(5, 5), Urgency::Wait).expect("above the mark no ticket waits");
    let second = queued(&mut credits, need(5, 5));
    credits.earned(Earned { blocks: 1, ahead: 0 });
    let second = answered(&mut credits, second);
    let third = queued(&mut credits, need(5, 5));
    credits.gc_is_idle(true);
    let third = answered(&mut credits, third);
    for reservation in [first, second, third] {
        credits.give_back(reservation);
    }
    credits.check();
}

#[test]
fn h80_no_ticket_overtakes_the_first_however_little_it_wants() {
    let mut credits = credits(100, 10);
    let (big, small) = (queued(&mut credits, need(30, 30)), queued(&mut credits, need(1, 1)));
    credits.made_available(19);
    let (big, small) = (waiting(&mut credits, big), waiting(&mut credits, small));
    assert_eq!(credits.user().available, 29);
    credits.made_available(1);
    let first = answered(&mut credits, big);
    let small = waiting(&mut credits, small);
    credits.made_available(1);
    let second = answered(&mut credits, small);
    credits.give_back(first);
    credits.give_back(second);
    credits.check();
}
