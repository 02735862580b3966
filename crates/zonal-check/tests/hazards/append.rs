//! Appends, native and emulated.

use super::pipelined::{Other, Overtaking};
use super::*;
use std::sync::Mutex;

#[test]
fn h19_native_appends_move_the_pointer_that_writes_are_checked_against() {
    let rig = Rig::append_mode();
    let first = rig.write(1, 0, 8);
    rig.settle();
    let appends = [rig.append(1, 8), rig.append(1, 4)];
    let (stale, right) = (rig.write(1, 8, 8), rig.write(1, 20, 8));
    rig.settle();
    assert_eq!(
        rig.ends([first, appends[0], appends[1]]),
        [DONE, appended(&rig, 1, 8), appended(&rig, 1, 16)]
    );
    assert_eq!(rig.ends([stale, right]), [misplaced(1, 20, 8), DONE]);
    let stale = rig.write(1, 20, 8);
    assert_eq!(rig.end(stale), Some(misplaced(1, 28, 20)));
}

#[test]
fn h20_report_is_the_devices_word() {
    let mut modes = PLUGGED.to_vec();
    modes.push(WriteMode::Direct);
    for mode in modes {
        let rig = Rig::new(script::info(), mode);
        rig.append(1, 8);
        rig.settle();
        rig.script.set_zone(2, ZoneCondition::Closed, 20);
        let report = rig.submit(Request::report(rig.sector(1, 0), 2));
        rig.settle();
        let expected = [rig.script.describe(1), rig.script.describe(2)];
        assert_eq!(rig.end(report), Some(Ok(Output::Zones(Box::new(expected)))), "{mode}");
    }
}

#[test]
fn h21_append_returns_its_own_address_once() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.script.style(|_| Style::Busy);
        let stalled = rig.append(1, 8);
        rig.rest();
        rig.rest();
        rig.script.style(|_| Style::Later);
        let others = [rig.append(1, 4), rig.append(1, 8)];
        rig.settle();
        let ends = rig.ends([stalled, others[0], others[1]]);
        for ((token, sectors), end) in [(stalled, 8), (others[0], 4), (others[1], 8)].into_iter().zip(&ends) {
            let Ok(Output::Appended(at)) = end else { panic!("{end:?}") };
            rig.assert_written(1, (at.0 - ZONE) as u32, sectors, token);
        }
        if mode == WriteMode::PerZone {
            assert_eq!(ends, [appended(&rig, 1, 0), appended(&rig, 1, 8), appended(&rig, 1, 12)]);
        }
    }
}

#[test]
fn h21_append_after_a_lost_one_takes_its_position() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let lost = rig.append(1, 8);
        rig.step(MEDIUM);
        let next = rig.append(1, 4);
        rig.settle();
        assert_eq!(rig.ends([lost, next]), [failed(DeviceError::Medium), appended(&rig, 1, 0)]);
        rig.assert_written(1, 0, 4, next);
    }
}

#[test]
fn h23_append_beyond_the_largest_is_refused_and_never_split() {
    let without = DeviceInfo { append_sectors_max: 0, ..script::info() };
    let beyond = DeviceInfo { append_sectors_max: 1 << 20, ..script::info() };
    let modes = WriteMode::ALL.map(|mode| (mode, script::info(), 8));
    let others = [
        (WriteMode::PerZone, without, 16),
        (WriteMode::Append, beyond.clone(), 16),
        (WriteMode::Qd1, beyond, 16),
    ];
    for (mode, info, most) in modes.into_iter().chain(others) {
        let rig = Rig::new(info, mode);
        assert_eq!(rig.volume.append_sectors_max(), most);
        let too_long = rig.append(1, most + 1);
        assert_eq!(
            rig.end(too_long),
            Some(refused(RequestError::Invalid("longer than the largest zone append")))
        );
        assert_eq!(rig.asked(), []);
        let longest = rig.append(1, most);
        rig.settle();
        assert_eq!(rig.end(longest), Some(appended(&rig, 1, 0)));
        assert_eq!(rig.asked().len(), 1, "in one command");
    }
}

/// The other mode has native appends: an append too long for them must not have been admitted.
#[test]
fn h23_longest_append_of_one_mode_is_possible_in_the_next() {
    let rig = Rig::per_zone();
    let most = rig.volume.append_sectors_max();
    let out = rig.append(1, most);
    let waiting = [rig.append(1, most), rig.append(1, most)];
    rig.volume.switch_mode(zonal_core::Nanos(0), WriteMode::Append).unwrap();
    rig.settle();
    assert_eq!(rig.end(out), Some(appended(&rig, 1, 0)));
    assert_eq!(rig.ends(waiting), [appended(&rig, 1, most), appended(&rig, 1, 2 * most)]);
    assert_eq!(rig.asked().iter().filter(|c| c.0 == Op::Append).count(), 2);
}

/// A no-wait append gives back its place after another append has been issued behind it, so the
/// other one is written before its assigned place. If its result is uncertain, it is looked for at
/// the end of the zone.
#[test]
fn u45_append_behind_one_that_was_withdrawn_is_looked_for_where_it_can_be() {
    let script = Arc::new(Script::new(script::info()));
    let device = Arc::new(Overtaking { inner: script.clone(), other: Mutex::new(None) });
    let options = VolumeOptions::default().with_mode(WriteMode::Append);
    let rig = Rig::over(script, device.clone(), options, |volume| volume);
    let token = rig.token();
    let behind = Request::append(rig.sector(1, 0), 4, payload(token, 4)).token(token);
    let (volume, channel) = (Arc::downgrade(&rig.volume), rig.also(|_| {}));
    *device.other.lock().unwrap() = Some(Other { volume, channel, request: behind });
    rig.script.style(|seen| if seen.sectors == 8 { Style::Busy } else { Style::Later });
    let first = rig.token();
    let request = Request::append(rig.sector(1, 0), 8, payload(first, 8)).token(first);
    rig.submit_as_is(Request { nowait: true, ..request });
    assert_eq!(rig.end(first), Some(refused(RequestError::WouldWait)));
    rig.step(Answer::Torn(4, DeviceError::Aborted));
    rig.settle();
    assert_eq!(rig.end(token), Some(appended(&rig, 1, 0)));
    assert_eq!(rig.script.zone(1).1, 4, "once");
}

#[test]
fn u45_appends_behind_one_that_was_not_executed_are_found_before_the_places_they_were_given() {
    let rig = Rig::append_mode();
    let [first, second, third] = [rig.append(1, 8), rig.append(1, 8), rig.append(1, 4)];
    rig.finish(0, Answer::Refuse(DeviceError::Busy));
    rig.finish(0, Answer::Torn(8, DeviceError::Aborted));
    rig.finish(0, Answer::Torn(4, DeviceError::Aborted));
    rig.settle();
    let places = [appended(&rig, 1, 12), appended(&rig, 1, 0), appended(&rig, 1, 8)];
    assert_eq!(rig.ends([first, second, third]), places);
    assert_eq!(rig.script.zone(1).1, 20, "each once");
}
