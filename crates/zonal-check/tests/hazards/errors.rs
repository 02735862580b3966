//! Behaviour after a failed write.

use super::*;
use zonal_check::script::reported;
use zonal_core::ZoneDescriptor;

#[test]
fn h25_nobody_waits_for_the_report_but_the_zone_itself() {
    for mode in PLUGGED {
        ends(move || {
            let rig = Rig::new(script::info(), mode);
            let lost = rig.write(1, 0, 8);
            let waiting = rig.append(1, 8);
            rig.step(MEDIUM);
            assert_eq!(rig.end(lost), None, "what became of it is decided by the pointer");
            let report = rig.script.pending().pop().unwrap();
            assert!(report.resync);
            // Every other zone accepts writes, including those that share a lock with this one.
            for zone in 2..8 {
                let other = rig.write(zone, 0, 8);
                rig.finish(1, Answer::Obey);
                assert_eq!(rig.end(other), Some(DONE));
            }
            assert_eq!(rig.end(waiting), None);
            rig.settle();
            assert_eq!(rig.ends([lost, waiting]), [failed(DeviceError::Medium), appended(&rig, 1, 0)]);
        });
    }
}

#[test]
fn write_after_a_lost_one_fails_with_the_offset_and_the_zone_continues() {
    for mode in PLUGGED {
        let rig = unmerged(script::info(), mode);
        let first = rig.write(1, 0, 8);
        let behind = [rig.write(1, 8, 8), rig.append(1, 4), rig.write(1, 20, 8)];
        rig.step(Answer::Torn(2, DeviceError::Medium));
        rig.settle();
        assert_eq!(rig.end(first), Some(failed(DeviceError::Medium)));
        assert_eq!(rig.ends(behind), [lost(1, 2, 8), appended(&rig, 1, 2), lost(1, 2, 20)]);
        let again = rig.write(1, 6, 8);
        rig.settle();
        assert_eq!((rig.end(again), rig.resyncs()), (Some(DONE), 1));
    }
}

#[test]
fn h33_zeroes_that_the_device_does_not_know_are_written() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let first = rig.write(1, 0, 8);
        let zeroes = rig.submit(Request::write_zeroes(rig.sector(1, 8), 24));
        let behind = rig.write(1, 32, 8);
        rig.step(Answer::Obey);
        let unknown = rig.step(Answer::Refuse(DeviceError::Unsupported));
        assert_eq!(unknown.brief(), (Op::WriteZeroes, 1, 8, 16));
        rig.settle();
        assert_eq!(rig.ends([first, zeroes, behind]), [DONE; 3]);
        let asked = rig.asked();
        assert_eq!(asked[2..], [(Op::Write, 1, 8, 16), (Op::Write, 1, 24, 8), (Op::Write, 1, 32, 8)]);
        assert_eq!(rig.tags(1, 8, 24), [(0, 0); 24]);
        assert_eq!(rig.resyncs(), 1, "the pointer had moved at issue");
    }
}

#[test]
fn h33_rejected_zeroes_that_moved_the_pointer_err() {
    let rig = Rig::per_zone();
    let zeroes = rig.submit(Request::write_zeroes(rig.sector(1, 0), 8));
    rig.step(Answer::Torn(4, DeviceError::Unsupported));
    rig.settle();
    assert_eq!(rig.end(zeroes), Some(misplaced(1, 4, 0)));
    let next = rig.write(1, 4, 4);
    rig.settle();
    assert_eq!(rig.end(next), Some(DONE));
}

#[test]
fn h33_device_known_to_have_no_zeroes_is_not_asked() {
    let rig = Rig::new(DeviceInfo { write_zeroes_sectors_max: 0, ..script::info() }, WriteMode::PerZone);
    let conventional = rig.submit(Request::write_zeroes(rig.sector(0, 40), 20));
    let zeroes = rig.submit(Request::write_zeroes(rig.sector(1, 0), 20));
    rig.settle();
    assert_eq!(rig.ends([conventional, zeroes]), [DONE; 2]);
    assert!(rig.asked().iter().all(|c| c.0 == Op::Write));
}

#[test]
fn h34_zone_found_full_read_only_or_offline_fails_its_waiters_with_that() {
    use ZoneCondition::{Full, Offline, ReadOnly};
    let zone = ZoneIndex(1);
    for (condition, error) in [
        (Full, RequestError::ZoneFull { zone }),
        (ReadOnly, RequestError::ZoneReadOnly { zone }),
        (Offline, RequestError::ZoneOffline { zone }),
    ] {
        for mode in PLUGGED {
            let rig = Rig::new(script::info(), mode);
            rig.write(1, 0, 8);
            let waiting = [rig.write(1, 8, 8), rig.append(1, 8)];
            rig.script.set_zone(1, condition, if condition == Full { CAPACITY } else { 0 });
            rig.step(MEDIUM);
            rig.settle();
            assert_eq!(rig.ends(waiting), [refused(error), refused(error)]);
            let late = [rig.write(1, 0, 8), rig.append(1, 8)];
            assert_eq!(rig.ends(late), [refused(error), refused(error)], "at once");
            assert_eq!(rig.asked().len(), 1);
            let plug = rig.plug(1);
            assert!(plug.is_none(), "{plug:?}");
        }
    }
}

#[test]
fn h35_pointer_is_asked_for_when_nothing_is_in_flight() {
    let rig = Rig::append_mode();
    let appends = [rig.append(1, 8), rig.append(1, 8), rig.append(1, 4)];
    rig.finish(1, MEDIUM);
    assert_eq!(rig.resyncs(), 0, "two appends may still move it");
    rig.finish(1, Answer::Obey);
    assert_eq!(rig.resyncs(), 0);
    rig.settle();
    assert_eq!(rig.resyncs(), 1);
    assert_eq!(
        rig.ends(appends),
        [appended(&rig, 1, 4), failed(DeviceError::Medium), appended(&rig, 1, 0)],
        "in the order in which the device took them"
    );
    assert_eq!(rig.pointer(1), Some(12));
}

#[test]
fn h35_report_meanwhile_does_not_move_the_pointer_back() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let out = rig.write(1, 0, 8);
        let report = rig.submit(Request::report(rig.sector(1, 0), 1));
        rig.finish(1, Answer::Obey);
        assert!(rig.end(report).is_some());
        assert_eq!(rig.pointer(1), Some(8));
        let next = rig.write(1, 8, 8);
        rig.settle();
        assert_eq!(rig.ends([out, next]), [DONE; 2]);
    }
}

#[test]
fn h37_zone_reset_behind_the_volumes_back_is_found_when_asked_for() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.write(1, 0, 16);
        rig.settle();
        rig.script.set_zone(1, ZoneCondition::Empty, 0);
        rig.volume.resync(zonal_core::Nanos(0), ZoneIndex(1));
        let write = rig.write(1, 0, 8);
        rig.settle();
        assert_eq!(rig.end(write), Some(DONE));
        // Without a resync by a caller, one write fails and the next succeeds.
        rig.script.set_zone(1, ZoneCondition::Empty, 0);
        rig.script.allow_misplaced();
        let stale = rig.write(1, 8, 8);
        rig.settle();
        assert_eq!(rig.end(stale), Some(failed(DeviceError::Zone(ZoneError::InvalidWrite))));
        let write = rig.write(1, 0, 8);
        rig.settle();
        assert_eq!(rig.end(write), Some(DONE));
    }
}

#[test]
fn h37_zone_changed_behind_the_volumes_back_is_found_in_a_report() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.write(1, 0, 16);
        rig.settle();
        let look = || {
            let report = rig.submit(Request::report(rig.sector(0, 0), 4));
            rig.settle();
            assert!(rig.end(report).is_some());
        };
        look();
        assert_eq!(rig.resyncs(), 0, "nothing has changed");
        for (condition, written) in
            [(ZoneCondition::Closed, 24), (ZoneCondition::Full, CAPACITY), (ZoneCondition::Empty, 0)]
        {
            rig.script.set_zone(1, condition, written);
            look();
            assert_eq!(rig.pointer(1), Some(written), "{condition:?}");
        }
        let write = rig.write(1, 0, 8);
        rig.settle();
        assert_eq!((rig.end(write), rig.resyncs()), (Some(DONE), 3));
    }
}

/// Reports of a device are validated like all input.
#[test]
fn h37_report_that_cannot_be_is_no_answer() {
    let rig = Rig::per_zone();
    let right = rig.script.describe(1);
    let start = rig.sector(1, 0);
    for (wrong, what) in [
        (
            ZoneDescriptor { write_pointer: Some(Sector(start.0 + ZONE)), ..right },
            "a pointer beyond the capacity",
        ),
        (
            ZoneDescriptor {
                write_pointer: Some(Sector(start.0 - 1)),
                condition: ZoneCondition::ImpOpen,
                ..right
            },
            "one before the zone",
        ),
        (ZoneDescriptor { write_pointer: None, condition: ZoneCondition::Closed, ..right }, "none"),
        (ZoneDescriptor { zone: ZoneIndex(2), ..right }, "another zone"),
    ] {
        let wrong = ZoneDescriptor {
            condition: if wrong.condition == ZoneCondition::Empty {
                ZoneCondition::ImpOpen
            } else {
                wrong.condition
            },
            ..wrong
        };
        rig.write(1, 0, 8);
        let waiting = rig.append(1, 8);
        rig.step(MEDIUM);
        rig.step(reported(wrong));
        assert_eq!(rig.end(waiting), Some(failed(DeviceError::InvalidField)), "{what}");
        rig.volume.resync(zonal_core::Nanos(0), ZoneIndex(1));
        rig.settle();
        assert_eq!(rig.pointer(1), Some(0), "{what}");
    }
}

#[test]
fn failed_recovery_report_fails_waiters_and_is_retried_for_the_next_write() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.write(1, 0, 8);
        let waiting = [rig.write(1, 8, 8), rig.append(1, 8)];
        rig.step(MEDIUM);
        rig.step(MEDIUM);
        assert_eq!(rig.ends(waiting), [failed(DeviceError::Medium), failed(DeviceError::Medium)]);
        assert_eq!(rig.script.pending(), [], "it does not ask for ever");
        let next = rig.write(1, 0, 8);
        rig.settle();
        assert_eq!((rig.end(next), rig.resyncs()), (Some(DONE), 2));
        // A reset needs no known write pointer.
        rig.write(1, 8, 8);
        rig.step(MEDIUM);
        rig.step(MEDIUM);
        let reset = rig.reset(1);
        let after = rig.write(1, 0, 8);
        rig.settle();
        assert_eq!(rig.ends([reset, after]), [DONE; 2]);
        assert_eq!(rig.resyncs(), 3);
    }
}

#[test]
fn u12_resync_asks_also_after_a_failed_report() {
    let rig = Rig::per_zone();
    rig.write(1, 0, 8);
    rig.step(MEDIUM);
    rig.step(MEDIUM);
    rig.volume.resync(zonal_core::Nanos(0), ZoneIndex(1));
    rig.settle();
    assert_eq!((rig.resyncs(), rig.plug(1)), (2, None));
}
