//! The scheduler that preceded plugs: its strengths, and the problems that plugs solve.

use super::*;

fn zone_lock(nr_requests: u32, merge: bool) -> Rig {
    let options = VolumeOptions::default()
        .with_mode(WriteMode::ZoneLock)
        .with_merge(merge)
        .with_nr_requests(nr_requests);
    Rig::on(Arc::new(Script::new(script::info())), options)
}

fn pending_ops(rig: &Rig) -> Vec<(Op, u32)> {
    rig.script.pending().iter().map(|s| (s.op, s.zone.0)).collect()
}

#[test]
fn u22_writes_that_wait_for_one_zone_take_every_tag_and_hold_up_reads() {
    for (mode, reads_wait) in
        [(WriteMode::ZoneLock, true), (WriteMode::PerZone, false), (WriteMode::Qd1, false)]
    {
        let options = VolumeOptions::default().with_mode(mode).with_merge(false).with_nr_requests(8);
        let rig = Rig::on(Arc::new(Script::new(script::info())), options);
        for n in 0..8 {
            rig.write(1, n * 2, 2);
        }
        let read = rig.submit(Request::read(rig.sector(3, 0), 2, payload(0, 2)));
        assert_eq!(pending_ops(&rig).contains(&(Op::Read, 3)), !reads_wait, "{mode}");
        rig.settle();
        assert!(rig.end(read).unwrap().is_ok(), "{mode}");
    }
}

#[test]
fn u22_tags_are_given_back_whatever_becomes_of_a_request() {
    let rig = zone_lock(4, true);
    for round in 0..3 {
        let at = round * 4;
        rig.write(1, at, 2);
        rig.write(1, 60, 2);
        rig.submit(Request::read(rig.sector(2, 0), 2, payload(0, 2)));
        rig.append(3, 2);
        rig.write(1, at + 2, 2);
        rig.settle();
    }
    let bad = rig.write(4, 0, 2);
    let behind = rig.write(4, 2, 2);
    rig.script.finish(rig.script.pending()[0].id, MEDIUM);
    rig.settle();
    assert!(rig.end(bad).unwrap().is_err() && rig.end(behind).unwrap().is_err());
    rig.write(5, 0, 2);
    rig.write(5, 2, 2);
    rig.reset(5);
    rig.submit(Request::reset_all());
    rig.settle();
    assert_eq!(rig.volume.tags(), (0, 4));
    let again = rig.write(4, 0, 2);
    rig.settle();
    assert_eq!(rig.end(again), Some(DONE));
}

#[test]
fn u23_one_write_per_zone_is_issued_and_the_rest_in_address_order() {
    let rig = zone_lock(16, false);
    let first = rig.write(1, 0, 4);
    // Submitted out of order: the scheduler sorts waiting writes.
    let waiting = [8, 4, 12].map(|at| rig.write(1, at, 4));
    assert_eq!(pending_ops(&rig), [(Op::Write, 1)]);
    let other = rig.write(2, 0, 4);
    assert_eq!(pending_ops(&rig).len(), 2, "another zone's goes out at once");
    rig.settle();
    assert_eq!(rig.ends([first, other]), [DONE; 2]);
    assert_eq!(rig.ends(waiting), [DONE; 3]);
}

#[test]
fn u23_writes_that_wait_share_a_command() {
    let rig = zone_lock(16, true);
    let tokens = [0, 4, 8, 12].map(|at| rig.write(1, at, 4));
    rig.step(Answer::Obey);
    let waiting = rig.script.pending();
    assert_eq!((waiting.len(), waiting[0].offset, waiting[0].sectors), (1, 4, 12));
    rig.settle();
    assert_eq!(rig.ends(tokens), [DONE; 4]);
    assert_eq!(rig.volume.tags().0, 0);
}

#[test]
fn u23_reset_aborts_waiting_writes_in_and_outside_the_scheduler() {
    let rig = zone_lock(2, false);
    let [first, inside, outside] = [0, 4, 8].map(|at| rig.write(1, at, 4));
    let other = rig.write(2, 0, 4);
    let reset = rig.reset(1);
    assert_eq!(rig.ends([inside, outside]), [aborted(1), aborted(1)]);
    rig.settle();
    assert_eq!(rig.ends([first, reset, other]), [DONE; 3]);
    assert_eq!(rig.volume.tags(), (0, 2));
}

/// The blocking request, a reset, has no tag to trigger the scheduler when it ends.
#[test]
fn u24_scheduler_releases_writes_blocked_by_a_reset() {
    let rig = zone_lock(4, false);
    let reset = rig.reset(1);
    let writes = [rig.write(1, 0, 2), rig.write(1, 2, 2)];
    assert_eq!(pending_ops(&rig), [(Op::ZoneReset, 1)]);
    rig.settle();
    assert_eq!(rig.volume.tags(), (0, 4));
    assert_eq!(rig.ends([reset, writes[0], writes[1]]), [DONE; 3]);
}

/// Appends of a thread to a zone are executed in order of submission. A no-wait append fails if
/// others of its zone are waiting.
#[test]
fn u54_nowait_append_overtakes_none_of_its_zone_that_waits_for_a_tag() {
    let rig = zone_lock(1, false);
    let nowait = |zone| rig.submit(Request::append(rig.sector(zone, 0), 2, payload(0, 2)).nowait());
    // It has the only tag.
    let other = rig.write(2, 0, 2);
    let waiting = rig.append(1, 2);
    let overtaking = nowait(1);
    assert_eq!((rig.end(overtaking), rig.end(waiting)), (Some(Err(RequestError::WouldWait)), None));
    let free = nowait(3);
    rig.settle();
    assert_eq!(rig.ends([other]), [DONE]);
    let after = nowait(1);
    rig.settle();
    for (token, zone, at) in [(waiting, 1, 0), (after, 1, 2), (free, 3, 0)] {
        assert_eq!(rig.end(token), Some(Ok(Output::Appended(rig.sector(zone, at)))), "zone {zone}");
    }
}

/// Each write in a merged command has a position of its own, which recovery relies on.
#[test]
fn u25_command_of_several_writes_refused_is_sent_again_with_each_in_its_place() {
    let rig = zone_lock(16, true);
    let tokens = [0, 4, 8, 12].map(|at| rig.write(1, at, 4));
    rig.step(Answer::Obey);
    rig.step(Answer::Refuse(DeviceError::Busy));
    rig.settle();
    assert_eq!(rig.ends(tokens), [DONE; 4]);
    for (n, token) in (0..).zip(tokens) {
        rig.assert_written(1, 4 * n, 4, token);
    }
}

/// Three tags: the first write is at the device, two wait behind it in the scheduler, and two
/// outside of it.
fn some_in_the_scheduler_and_some_outside(merge: bool) -> (Rig, [u64; 5]) {
    let rig = zone_lock(3, merge);
    let writes = [0, 4, 8, 12, 16].map(|at| rig.write(1, at, 4));
    assert_eq!((pending_ops(&rig), rig.volume.tags()), (vec![(Op::Write, 1)], (3, 3)));
    (rig, writes)
}

#[test]
fn u29_writes_behind_a_loss_learn_of_it_wherever_they_wait() {
    for merge in [false, true] {
        let (rig, writes) = some_in_the_scheduler_and_some_outside(merge);
        rig.step(MEDIUM);
        rig.settle();
        let behind = [4, 8, 12, 16].map(|at| lost(1, 0, at));
        assert_eq!(rig.end(writes[0]), Some(failed(DeviceError::Medium)));
        assert_eq!(writes[1..].iter().map(|&w| rig.end(w).unwrap()).collect::<Vec<_>>(), behind);
        assert_eq!(rig.volume.tags(), (0, 3));
        // From here on, a failure is the write's own fault.
        let (misplaced_one, next) = (rig.write(1, 4, 4), rig.write(1, 0, 4));
        rig.settle();
        assert_eq!(rig.ends([misplaced_one, next]), [misplaced(1, 0, 4), DONE]);
    }
}

#[test]
fn u29_writes_behind_one_that_is_sent_again_go_in_order_wherever_they_wait() {
    for merge in [false, true] {
        let (rig, writes) = some_in_the_scheduler_and_some_outside(merge);
        rig.step(Answer::Refuse(DeviceError::Busy));
        rig.settle();
        assert_eq!(rig.ends(writes), [DONE; 5]);
        for (n, token) in (0..).zip(writes) {
            rig.assert_written(1, 4 * n, 4, token);
        }
        assert_eq!(rig.volume.tags(), (0, 3));
    }
}

/// The loss is certain only once the write has been read back or given up: writes submitted in
/// between depend on it, too.
#[test]
fn u29_writes_submitted_while_a_loss_is_decided_fail_with_it() {
    let rig = zone_lock(16, false);
    let first = rig.write(1, 0, 4);
    rig.script.set_zone(1, ZoneCondition::ImpOpen, 2);
    rig.step(Answer::Refuse(DeviceError::Aborted));
    assert_eq!(rig.step(Answer::Obey).op, Op::Report);
    let late = rig.write(1, 4, 4);
    assert_eq!(rig.step(Answer::Obey).op, Op::Read);
    rig.settle();
    assert!(matches!(rig.end(first), Some(Err(RequestError::FateUnknown { .. }))));
    assert_eq!(rig.end(late), Some(lost(1, 2, 4)));
    let starving = rig.write(2, 0, 4);
    for _ in 0..4 {
        rig.step(Answer::Refuse(DeviceError::Zone(ZoneError::TooManyOpen)));
        let behind = rig.write(2, 4, 4);
        assert_eq!(rig.step(Answer::Obey).op, Op::Report);
        if rig.end(starving).is_some() {
            assert_eq!(rig.end(behind), Some(lost(2, 0, 4)));
        }
    }
    assert!(matches!(rig.end(starving), Some(Err(RequestError::GaveUp { .. }))));
}
