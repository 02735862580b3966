//! More zones than the drive allows to be open or active: which zones wait, which make room, and
//! which requests fail.

use super::*;
use zonal_core::Nanos;
use zonal_core::budget::{Policy, WriterClass};
use zonal_io::volume::{BudgetOptions, CLASSES, Condition};

const ALL: [WriteMode; 5] =
    [WriteMode::ZoneLock, WriteMode::PerZone, WriteMode::Qd1, WriteMode::Pipelined, WriteMode::Append];

fn at_once(policy: Policy) -> BudgetOptions {
    BudgetOptions::default().with_policy(policy).with_grace(Nanos(0)).with_minimums([0; CLASSES])
}

fn limited(open_max: u32, active_max: u32, mode: WriteMode, budget: BudgetOptions) -> Rig {
    let keeps_order = mode == WriteMode::Pipelined;
    let info = DeviceInfo { open_max, active_max, keeps_order, ..script::info() };
    let options = VolumeOptions::default().with_mode(mode).with_budget(budget).with_force(true);
    Rig::on(Arc::new(Script::new(info)), options)
}

/// A rig with two open zones at most.
fn two_open(mode: WriteMode, policy: Policy) -> Rig {
    limited(2, 0, mode, at_once(policy))
}

/// Writes the start of each zone, and waits for completion.
fn begin(rig: &Rig, zones: &[u32]) {
    for &zone in zones {
        let token = rig.write(zone, 0, 8);
        rig.settle();
        assert_eq!(rig.end(token), Some(DONE), "zone {zone}");
    }
}

/// Writes a zone from `offset` to its end.
fn fill(rig: &Rig, zone: u32, offset: u32) {
    let tokens: Vec<_> = (offset..CAPACITY).step_by(8).map(|at| rig.write(zone, at, 8)).collect();
    rig.settle();
    assert!(tokens.iter().all(|&t| rig.end(t) == Some(DONE)), "zone {zone}");
}

/// Asserts that the budget agrees with the zone states of the drive.
fn assert_books(rig: &Rig) {
    rig.settle();
    let zones = rig.volume.info().geometry.zones();
    let described: Vec<_> = (0..zones).map(|zone| rig.script.describe(zone)).collect();
    assert_eq!(rig.volume.check_budget(&described), Ok(()));
}

/// Zones named by the error of a refused request.
fn holders(rig: &Rig, token: u64) -> Vec<u32> {
    match rig.end(token) {
        Some(Err(RequestError::NoSlot { holders, .. })) => holders.named().iter().map(|z| z.0).collect(),
        other => panic!("{other:?}"),
    }
}

fn is_waiting(rig: &Rig, zone: u32) -> bool {
    rig.plug(zone).is_some_and(|p| p.condition == Condition::Waiting)
}

#[test]
fn u30_zone_without_a_slot_waits_until_another_is_full() {
    for mode in [WriteMode::PerZone, WriteMode::Append] {
        let rig = two_open(mode, Policy::Wait);
        let under_way = [1, 2].map(|zone| rig.write(zone, 0, 8));
        let waits = rig.write(3, 0, 8);
        rig.rest();
        assert_eq!(rig.script.pending().len(), 2, "the third stays here");
        assert!(is_waiting(&rig, 3) && !is_waiting(&rig, 1));
        assert_eq!(rig.volume.statistics().slot_waits, 1);
        let rest: Vec<_> = (8..CAPACITY).step_by(8).map(|at| rig.write(2, at, 8)).collect();
        rig.settle();
        assert_eq!(rig.ends(under_way), [DONE; 2]);
        assert!(rest.iter().all(|&t| rig.end(t) == Some(DONE)));
        assert_eq!(rig.end(waits), Some(DONE), "{mode}: zone 2 is full");
        assert_books(&rig);
    }
}

#[test]
fn u30_reset_finish_or_close_of_a_zone_ends_the_wait_for_its_slot() {
    for op in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneClose] {
        let rig = two_open(WriteMode::PerZone, Policy::Wait);
        begin(&rig, &[1]);
        let under_way = rig.write(2, 0, 8);
        let waits = rig.write(3, 0, 8);
        rig.rest();
        let managed = rig.manage(op, 1);
        rig.settle();
        assert_eq!(rig.ends([under_way, waits, managed]), [DONE; 3], "{}", op.name());
        assert_books(&rig);
    }
}

#[test]
fn u31_wait_that_nothing_under_way_can_end_fails_and_names_who_would_have_to_go() {
    for mode in ALL {
        let rig = two_open(mode, Policy::Wait);
        begin(&rig, &[1, 2]);
        let denied = rig.write(3, 0, 8);
        rig.settle();
        assert_eq!(holders(&rig, denied), [1, 2], "{mode}");
        rig.reset(1);
        rig.settle();
        begin(&rig, &[3]);
        assert_books(&rig);
    }
}

#[test]
fn u31_wait_fails_a_grace_after_nothing_is_under_way_any_more() {
    let grace = Nanos(1000);
    let rig = limited(1, 0, WriteMode::PerZone, at_once(Policy::Wait).with_grace(grace));
    begin(&rig, &[1]);
    let denied = [rig.write(3, 0, 8), rig.write(3, 8, 8)];
    assert_eq!(rig.volume.poll(Nanos(500)), Some(Nanos(1500)));
    assert_eq!(rig.volume.poll(Nanos(1499)), Some(Nanos(1500)));
    assert_eq!(rig.ended(), 1);
    rig.volume.poll(Nanos(1500));
    assert_eq!(denied.map(|t| holders(&rig, t)), [vec![1], vec![1]], "those behind it with it");
    assert_eq!(rig.volume.poll(Nanos(1500)), None);
}

#[test]
fn u31_writer_between_two_writes_does_not_count_as_gone() {
    let grace = Nanos(1000);
    let rig = limited(1, 0, WriteMode::PerZone, at_once(Policy::Wait).with_grace(grace));
    begin(&rig, &[1]);
    let waits = rig.write(2, 0, 8);
    rig.script.style(|_| Style::Now(Answer::Obey));
    for (n, offset) in (1..).zip((8..CAPACITY).step_by(8)) {
        // Polled only while nothing is in flight, but written each time.
        rig.write(1, offset, 8);
        rig.volume.poll(Nanos(n * 900));
        rig.volume.poll(Nanos(n * 900));
    }
    assert_eq!(rig.end(waits), Some(DONE));
}

#[test]
fn u32_zone_not_used_for_longest_is_closed_and_opens_again_when_it_is_written() {
    for mode in ALL {
        let rig = two_open(mode, Policy::Close);
        begin(&rig, &[1, 2, 3]);
        let closes = || rig.asked().iter().filter(|a| a.0 == Op::ZoneClose).map(|a| a.1).collect::<Vec<_>>();
        assert_eq!(closes(), [1], "{mode}");
        fill(&rig, 1, 8);
        assert_eq!(closes(), [1, 2], "{mode}");
        assert_eq!(rig.volume.statistics().evicted, 2);
        assert_books(&rig);
    }
}

#[test]
fn u32_write_that_meets_the_close_of_its_zone_waits_behind_it() {
    let rig = two_open(WriteMode::PerZone, Policy::Close);
    begin(&rig, &[1, 2]);
    let other = rig.write(3, 0, 8);
    rig.rest();
    assert_eq!(rig.script.pending()[0].op, Op::ZoneClose);
    let late = rig.write(1, 8, 8);
    rig.rest();
    assert_eq!(rig.script.pending().len(), 1, "nothing goes out beside the close");
    rig.settle();
    assert_eq!(rig.ends([other, late]), [DONE; 2]);
    assert_books(&rig);
}

#[test]
fn u32_zone_that_cannot_be_closed_is_not_tried_for_ever() {
    let rig = limited(1, 0, WriteMode::PerZone, at_once(Policy::Close));
    begin(&rig, &[1]);
    let denied = rig.write(2, 0, 8);
    rig.rest();
    let seen = rig.step(Answer::Refuse(DeviceError::Unsupported));
    assert_eq!(seen.op, Op::ZoneClose);
    rig.settle();
    assert_eq!(holders(&rig, denied), [1]);
    assert_books(&rig);
}

#[test]
fn u33_only_a_zone_nearly_full_is_finished_and_only_for_an_active_slot() {
    let rig = limited(2, 2, WriteMode::PerZone, at_once(Policy::Finish));
    begin(&rig, &[1, 2]);
    let denied = rig.write(3, 0, 8);
    rig.settle();
    assert_eq!(holders(&rig, denied), [1, 2], "half empty zones stay");
    for offset in (8..40).step_by(8) {
        rig.write(1, offset, 8);
    }
    rig.write(1, 40, 7);
    rig.settle();
    let served = rig.write(3, 0, 8);
    rig.settle();
    assert_eq!(rig.end(served), Some(DONE));
    assert_eq!(rig.script.zone(1), (ZoneCondition::Full, CAPACITY));
    assert_books(&rig);
}

#[test]
fn u33_zone_nearly_full_is_not_finished_under_its_writer() {
    let grace = Nanos(1000);
    let rig = limited(1, 1, WriteMode::PerZone, at_once(Policy::Finish).with_grace(grace));
    for (offset, sectors) in [(0, 16), (16, 16), (32, 14)] {
        rig.write(1, offset, sectors);
    }
    rig.settle();
    let waits = rig.write(2, 0, 8);
    for now in [10, 20, 900] {
        rig.volume.poll(Nanos(now));
        assert_eq!(rig.script.pending(), [], "it may be between two writes");
    }
    rig.write(1, 46, 1);
    rig.script.finish(rig.script.pending()[0].id, Answer::Obey);
    rig.volume.poll(Nanos(950));
    rig.volume.poll(Nanos(1500));
    assert_eq!(rig.script.pending(), [], "it has moved");
    rig.volume.poll(Nanos(2500));
    assert_eq!(rig.script.pending()[0].op, Op::ZoneFinish);
    rig.settle();
    assert_eq!(rig.end(waits), Some(DONE));
    assert_books(&rig);
}

#[test]
fn u34_zone_that_waits_for_a_slot_does_not_hold_the_token() {
    ends(|| {
        let rig = two_open(WriteMode::Qd1, Policy::Wait);
        begin(&rig, &[1, 2]);
        let busy = rig.write(1, 8, 8);
        let waits = rig.write(3, 0, 8);
        let others = [rig.write(2, 8, 8), rig.write(1, 16, 8)];
        rig.step(Answer::Obey);
        rig.step(Answer::Obey);
        assert_eq!(rig.ends([busy, others[1]]), [DONE; 2], "the token goes round behind its back");
        assert_eq!(rig.end(waits), None);
        rig.reset(1);
        rig.settle();
        assert_eq!(rig.ends([waits, others[0]]), [DONE; 2]);
        assert_books(&rig);
    });
}

#[test]
fn u34_write_that_would_rather_fail_takes_nobodys_place_in_the_line() {
    for mode in ALL {
        let rig = two_open(mode, Policy::Wait);
        begin(&rig, &[1, 2]);
        let busy = rig.write(1, 8, 8);
        let waits = rig.write(3, 0, 8);
        let [again, other] = [3, 4].map(|zone| rig.submit_as_is(rig.write_request(zone, 0, 8).nowait()));
        assert_eq!(rig.end(other), Some(Err(RequestError::WouldWait)), "{mode}");
        rig.reset(2);
        rig.settle();
        assert_eq!(rig.ends([busy, waits]), [DONE; 2], "{mode}");
        assert!(rig.end(again).is_some_and(|end| end.is_err()), "{mode}: zone 3 was waiting");
        let free = rig.submit_as_is(rig.write_request(3, 8, 8).nowait());
        rig.settle();
        assert_eq!(rig.end(free), Some(DONE), "{mode}");
    }
}

#[test]
fn u34_write_that_would_rather_fail_leaves_who_waits_without_a_token_in_line() {
    let budget = at_once(Policy::Wait).with_grace(Nanos(1000));
    let rig = limited(1, 0, WriteMode::Qd1, budget);
    begin(&rig, &[1]);
    let waits = rig.write(3, 0, 8);
    let nowait = rig.submit_as_is(rig.write_request(3, 0, 8).nowait());
    assert_eq!(rig.end(nowait), Some(Err(RequestError::WouldWait)));
    rig.script.style(|_| Style::Now(Answer::Obey));
    rig.reset(1);
    rig.rest();
    assert_eq!(rig.end(waits), Some(DONE));
}

#[test]
fn u34_write_that_would_rather_fail_takes_a_free_slot() {
    for mode in ALL {
        let rig = two_open(mode, Policy::Wait);
        let first = rig.submit_as_is(rig.write_request(1, 0, 8).nowait());
        rig.settle();
        assert_eq!(rig.end(first), Some(DONE), "{mode}");
    }
}

#[test]
fn u35_greedy_writer_leaves_the_slots_of_another_class_alone() {
    let mut minimums = [0; CLASSES];
    minimums[1] = 1;
    let rig = limited(2, 0, WriteMode::PerZone, at_once(Policy::Wait).with_minimums(minimums));
    let greedy: Vec<_> = (1..6).map(|zone| rig.write(zone, 0, 8)).collect();
    rig.rest();
    assert_eq!(rig.script.pending().len(), 1, "one slot is kept");
    let modest = rig.also(|_| {}).of_class(WriterClass(1));
    let request = rig.write_request(7, 0, 8);
    let token = request.token;
    rig.volume.submit(Nanos(0), &modest, request);
    assert_eq!(rig.script.pending().len(), 2, "its slot was waiting for it");
    rig.settle();
    assert_eq!(rig.end(token), Some(DONE));
    assert_eq!(rig.end(greedy[0]), Some(DONE));
    // No write fills a zone, so the greedy one fails.
    assert_eq!(holders(&rig, greedy[1]), [1, 7]);
    assert_books(&rig);
}

#[test]
fn u36_switch_reset_of_all_and_resynchronisation_keep_the_books() {
    let rig = two_open(WriteMode::PerZone, Policy::Wait);
    begin(&rig, &[1]);
    let busy = rig.write(2, 0, 8);
    let waits = rig.write(3, 0, 8);
    rig.volume.switch_mode(Nanos(0), WriteMode::Qd1).unwrap();
    rig.volume.resync(Nanos(0), ZoneIndex(3));
    rig.rest();
    assert_eq!(rig.end(waits), None);
    rig.reset(1);
    rig.settle();
    assert_eq!(rig.ends([busy, waits]), [DONE; 2]);
    assert_books(&rig);
    let reset = rig.submit(Request::reset_all());
    rig.settle();
    assert_eq!(rig.end(reset), Some(DONE));
    assert_books(&rig);
    begin(&rig, &[4, 5]);
    assert_books(&rig);
}

#[test]
fn u36_reset_of_all_zones_aborts_who_waits_and_leaves_nobody_in_line() {
    let rig = two_open(WriteMode::PerZone, Policy::Wait);
    let busy = [1, 2].map(|zone| rig.write(zone, 0, 8));
    let waits = rig.write(3, 0, 8);
    rig.submit(Request::reset_all());
    rig.settle();
    assert_eq!(rig.ends(busy), [DONE; 2]);
    assert_eq!(rig.end(waits), Some(aborted(3)));
    assert_eq!(rig.volume.budget_status().unwrap().waiting, []);
    begin(&rig, &[4, 5]);
    assert_books(&rig);
}

#[test]
fn u36_cancelled_wait_of_a_held_zone_leaves_the_line() {
    let rig = two_open(WriteMode::PerZone, Policy::Wait);
    for offset in (0..CAPACITY - 8).step_by(8) {
        rig.write(1, offset, 8);
    }
    rig.settle();
    let (last, busy) = (rig.write(1, CAPACITY - 8, 8), rig.write(2, 0, 8));
    let waits = rig.write(3, 0, 8);
    // Until the two writes end, every zone is held for the switch.
    rig.volume.switch_mode(Nanos(0), WriteMode::Qd1).unwrap();
    let withdrawal = rig.volume.cancel_request(rig.now(), &rig.channel, waits);
    rig.step(Answer::Obey);
    rig.settle();
    drop(withdrawal);
    assert_eq!((rig.ends([last, busy]), rig.end(waits)), ([DONE; 2], Some(Err(RequestError::Cancelled))));
    // The slot that zone 1 released when it became full is free.
    begin(&rig, &[4]);
    assert_books(&rig);
}

#[test]
fn u36_first_write_that_fails_gives_its_slot_back() {
    let rig = limited(1, 0, WriteMode::PerZone, at_once(Policy::Wait));
    let bad = rig.write(1, 0, 8);
    rig.step(MEDIUM);
    rig.settle();
    assert_eq!(rig.end(bad), Some(failed(DeviceError::Medium)));
    begin(&rig, &[2]);
    assert_books(&rig);
}

#[test]
fn u36_first_write_that_meets_a_full_queue_and_may_not_wait_gives_its_slot_back() {
    let rig = limited(1, 0, WriteMode::PerZone, at_once(Policy::Wait));
    rig.script.depth(0);
    let withdrawn = rig.submit_as_is(rig.write_request(1, 0, 8).nowait());
    assert_eq!(rig.end(withdrawn), Some(Err(RequestError::WouldWait)));
    rig.script.depth(8);
    rig.settle();
    begin(&rig, &[2]);
    assert_books(&rig);
}

#[test]
fn h54_explicit_open_waits_for_a_slot_and_keeps_it() {
    let rig = two_open(WriteMode::PerZone, Policy::Close);
    let busy = [1, 2].map(|zone| rig.write(zone, 0, 8));
    let open = rig.manage(Op::ZoneOpen, 3);
    rig.rest();
    assert_eq!((rig.end(open), rig.script.pending().len()), (None, 2));
    rig.settle();
    assert_eq!(rig.ends(busy), [DONE; 2]);
    assert_eq!(rig.end(open), Some(DONE));
    begin(&rig, &[4, 5]);
    assert_eq!(rig.script.zone(3).0, ZoneCondition::ExpOpen, "who opened it wants it open");
    let close = rig.manage(Op::ZoneClose, 3);
    begin(&rig, &[6]);
    assert_eq!(rig.end(close), Some(DONE));
    assert_books(&rig);
}

#[test]
fn h53_closed_zone_that_is_written_while_it_is_closed_keeps_the_count() {
    for mode in ALL {
        let rig = two_open(mode, Policy::Close);
        begin(&rig, &[1, 2]);
        let writes = [(1, 8), (3, 0), (2, 8), (4, 0), (1, 16)].map(|(zone, at)| rig.write(zone, at, 8));
        let close = rig.manage(Op::ZoneClose, 1);
        rig.settle();
        assert_eq!(rig.ends(writes), [DONE; 5], "{mode}");
        assert_eq!(rig.end(close), Some(DONE), "{mode}");
        assert_books(&rig);
    }
}

#[test]
fn drive_without_limits_that_its_zones_could_reach_has_no_budget() {
    let of = |open_max| limited(open_max, 0, WriteMode::PerZone, at_once(Policy::Fail)).volume.budget();
    assert_eq!(of(0), None);
    assert_eq!(of(7), None, "a limit that no number of zones reaches is none");
    assert!(of(6).is_some());
    assert_eq!(limited(2, 0, WriteMode::Direct, at_once(Policy::Fail)).volume.budget(), None);
}
