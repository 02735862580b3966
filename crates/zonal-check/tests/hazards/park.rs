//! Writes submitted before their predecessors.

use super::*;
use zonal_core::Nanos;
use zonal_io::volume::ParkOptions;

const MODES: [WriteMode; 4] = [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Pipelined, WriteMode::Append];

fn park() -> ParkOptions {
    ParkOptions::default().with_sectors_max(24).with_time(Nanos(1000))
}

fn parking(mode: WriteMode) -> Rig {
    let options = VolumeOptions::default().with_mode(mode).with_park(park()).with_force(true);
    let info = DeviceInfo { keeps_order: mode == WriteMode::Pipelined, ..script::info() };
    Rig::on(Arc::new(Script::new(info)), options)
}

/// Completes commands by the rules until there are none left, with the clock at `now`.
fn obey(rig: &Rig, now: u64) {
    loop {
        for _ in 0..100 {
            rig.volume.poll(Nanos(now));
        }
        let Some(first) = rig.script.pending().into_iter().next() else { return };
        rig.script.finish(first.id, Answer::Obey);
    }
}

fn missing(zone: u32, write_pointer: u32, offset: u32) -> End {
    Err(RequestError::PredecessorMissing { zone: ZoneIndex(zone), write_pointer, offset })
}

#[test]
fn u37_early_writes_wait_for_their_predecessors_and_share_commands() {
    for mode in MODES {
        let rig = parking(mode);
        let early = [16, 8, 24].map(|at| rig.write(1, at, 8));
        obey(&rig, 0);
        assert_eq!(rig.asked(), [], "{mode}: nothing can go");
        assert_eq!(rig.plug(1).unwrap().pending, 3);
        assert_eq!(rig.volume.statistics().parked, 3);
        let first = rig.write(1, 0, 8);
        obey(&rig, 0);
        assert_eq!(rig.ends([first, early[0], early[1], early[2]]), [DONE; 4], "{mode}");
        assert_eq!(rig.asked().iter().map(|a| (a.2, a.3)).collect::<Vec<_>>(), [(0, 16), (16, 16)], "{mode}");
        rig.assert_written(1, 16, 8, early[0]);
        assert_eq!(rig.plug(1).unwrap().pending, 0);
        rig.volume.poll(Nanos(1000));
        assert_eq!(rig.volume.poll(Nanos(1000)), None);
    }
}

#[test]
fn u37_parked_write_waits_for_a_second_in_which_its_zone_does_not_move() {
    const SECOND: u64 = 1_000_000_000;
    for mode in MODES {
        let options = VolumeOptions::default().with_mode(mode).with_force(true);
        let info = DeviceInfo { keeps_order: mode == WriteMode::Pipelined, ..script::info() };
        let rig = Rig::on(Arc::new(Script::new(info)), options);
        let poll = |now| (0..100).for_each(|_| _ = rig.volume.poll(Nanos(now)));
        // The write two places ahead of it is at the device for ten seconds.
        let first = rig.write(1, 0, 8);
        let early = rig.write(1, 16, 8);
        for now in (0..100).map(|tenth| tenth * SECOND / 10) {
            poll(now);
        }
        rig.script.finish(rig.script.pending()[0].id, Answer::Obey);
        poll(10 * SECOND);
        assert_eq!((rig.end(first), rig.end(early)), (Some(DONE), None), "{mode}");
        poll(11 * SECOND - 1);
        assert_eq!(rig.end(early), None, "{mode}");
        poll(11 * SECOND);
        assert_eq!(rig.end(early), Some(missing(1, 8, 16)), "{mode}");
    }
}

#[test]
fn u37_early_write_behind_one_in_flight_is_parked_and_issued_in_order() {
    for mode in MODES {
        let rig = parking(mode);
        let tokens = [(1, 0), (1, 16), (1, 8), (1, 24)].map(|(zone, at)| rig.write(zone, at, 8));
        obey(&rig, 0);
        assert_eq!(rig.ends(tokens), [DONE; 4], "{mode}");
    }
}

#[test]
fn u37_appends_wait_as_long_as_writes_are_parked() {
    for mode in MODES {
        let rig = parking(mode);
        let early = rig.write(1, 8, 8);
        let append = rig.append(1, 4);
        obey(&rig, 0);
        assert_eq!((rig.end(early), rig.end(append)), (None, None), "{mode}");
        let first = rig.write(1, 0, 8);
        obey(&rig, 0);
        assert_eq!(rig.ends([first, early]), [DONE; 2], "{mode}");
        assert_eq!(rig.end(append), Some(appended(&rig, 1, 16)), "{mode}");
    }
}

#[test]
fn u38_parked_writes_are_bounded_in_sectors() {
    let rig = parking(WriteMode::PerZone);
    let fits = [8, 16].map(|at| rig.write(1, at, 8));
    let last = rig.write(1, 24, 8);
    let over = rig.write(1, 32, 1);
    assert_eq!(rig.end(over), Some(misplaced(1, 0, 32)));
    let nowait = rig.submit_as_is(rig.write_request(2, 8, 8).nowait());
    assert_eq!(rig.end(nowait), Some(misplaced(2, 0, 8)));
    let beyond = rig.write(2, CAPACITY - 4, 8);
    assert!(rig.end(beyond).unwrap().is_err(), "it could never go");
    let first = rig.write(1, 0, 8);
    obey(&rig, 0);
    assert_eq!(rig.ends([first, fits[0], fits[1], last]), [DONE; 4]);
}

#[test]
fn u38_parked_writes_are_given_up_when_their_zone_has_stood_still_too_long() {
    for mode in MODES {
        let rig = parking(mode);
        let early = rig.write(1, 8, 8);
        let append = rig.append(1, 4);
        assert_eq!(rig.volume.poll(Nanos(400)), Some(Nanos(1000)), "{mode}");
        assert_eq!(rig.end(early), None);
        rig.volume.poll(Nanos(1000));
        assert_eq!(rig.end(early), Some(missing(1, 0, 8)), "{mode}");
        obey(&rig, 1000);
        assert_eq!(rig.end(append), Some(appended(&rig, 1, 0)), "{mode}: it has nothing to wait for");
        assert_eq!(rig.volume.poll(Nanos(1000)), None);
    }
}

#[test]
fn u38_parking_time_does_not_run_while_the_zone_progresses() {
    let rig = parking(WriteMode::PerZone);
    let early = rig.write(1, 16, 8);
    let slow = rig.write(1, 0, 8);
    for now in [1000, 2000, 3000] {
        rig.volume.poll(Nanos(now));
        assert_eq!(rig.end(early), None, "its predecessor may be behind the one in flight");
    }
    rig.script.finish(rig.script.pending()[0].id, Answer::Obey);
    rig.volume.poll(Nanos(3500));
    assert_eq!((rig.end(slow), rig.end(early)), (Some(DONE), None));
    rig.volume.poll(Nanos(6000));
    assert_eq!(rig.end(early), Some(missing(1, 8, 16)));
}

#[test]
fn u39_reset_finish_and_reset_all_abort_parked_requests() {
    for mode in MODES {
        let reset = |rig: &Rig| rig.reset(1);
        let finish = |rig: &Rig| rig.manage(Op::ZoneFinish, 1);
        let all = |rig: &Rig| rig.submit(Request::reset_all());
        for manage in [&reset as &dyn Fn(&Rig) -> u64, &finish, &all] {
            let rig = parking(mode);
            let early = rig.write(1, 8, 8);
            let append = rig.append(1, 4);
            let managed = manage(&rig);
            obey(&rig, 0);
            assert_eq!(rig.end(managed), Some(DONE), "{mode}");
            assert_eq!(rig.ends([early, append]), [aborted(1), aborted(1)], "{mode}");
            assert_eq!(rig.poll().filter(|due| due.0 == 0), None, "{mode}");
        }
    }
}

#[test]
fn u39_loss_leaves_parked_writes_and_takes_a_new_one_in_its_place() {
    for mode in MODES {
        let rig = parking(mode);
        let early = rig.write(1, 8, 8);
        let bad = rig.write(1, 0, 8);
        // The write that fails permanently and its successor are merged into one command.
        rig.volume.poll(Nanos(0));
        let early_too = rig.write(1, 24, 8);
        let behind = rig.write(1, 16, 8);
        rig.script.finish(rig.script.pending()[0].id, MEDIUM);
        obey(&rig, 0);
        assert!(rig.end(bad).unwrap().is_err() && rig.end(early).unwrap().is_err(), "{mode}");
        assert!(rig.end(behind).unwrap().is_err(), "{mode}: it was behind the lost ones");
        let again = [(0, 8), (8, 8), (16, 8)].map(|(at, n)| rig.write(1, at, n));
        obey(&rig, 0);
        assert_eq!(rig.ends(again), [DONE; 3], "{mode}");
        let end = rig.end(early_too);
        assert!(end == Some(DONE) || end == Some(lost(1, 0, 24)), "{mode}: {end:?}");
    }
}

#[test]
fn u39_parked_write_stays_parked_when_one_before_it_is_lost() {
    let rig = parking(WriteMode::PerZone);
    let early = rig.write(1, 16, 8);
    let bad = rig.write(1, 0, 8);
    rig.script.finish(rig.script.pending()[0].id, MEDIUM);
    obey(&rig, 0);
    assert_eq!(rig.end(bad), Some(failed(DeviceError::Medium)));
    assert_eq!(rig.end(early), None);
    let shuffled = [8, 0].map(|at| rig.write(1, at, 8));
    obey(&rig, 0);
    assert_eq!(rig.ends([early, shuffled[0], shuffled[1]]), [DONE; 3]);
}

#[test]
fn u39_parked_writes_outlive_a_switch_of_the_mode() {
    for to in [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Append] {
        let rig = parking(WriteMode::PerZone);
        let early = rig.write(1, 8, 8);
        rig.volume.switch_mode(Nanos(0), to).unwrap();
        obey(&rig, 0);
        assert_eq!((rig.volume.mode().0, rig.end(early)), (to, None));
        let first = rig.write(1, 0, 8);
        obey(&rig, 0);
        assert_eq!(rig.ends([first, early]), [DONE; 2], "{to}");
        let later = rig.write(1, 24, 8);
        assert_eq!(rig.end(later), None, "{to}: it waits, too");
    }
}
