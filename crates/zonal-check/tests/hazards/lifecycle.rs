//! Life of a plug, from its first write to its last.

use super::*;
use parking_lot::Mutex;
use zonal_core::Nanos;

#[test]
fn h01_full_zone_that_is_quiet_has_no_plug() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let tokens: [u64; 6] = std::array::from_fn(|n| rig.write(1, 8 * n as u32, 8));
        assert_eq!(rig.plug(1).unwrap().pending, 5);
        rig.settle();
        assert_eq!(rig.ends(tokens), [DONE; 6]);
        assert_eq!(rig.script.zone(1), (ZoneCondition::Full, CAPACITY));
        assert_eq!(rig.plug(1), None);
    }
}

#[test]
fn h02_zone_filled_by_writes_that_end_at_once_has_no_plug() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.script.style(|_| Style::Now(Answer::Obey));
        for n in 0..4 {
            let token = rig.write(1, 12 * n, 12);
            assert_eq!(rig.end(token), Some(DONE));
        }
        assert_eq!(rig.plug(1), None);
    }
}

/// A zone is on the ready list because its work budget ran out. Before its entry is processed, a
/// new write makes progress in the zone: the stale entry finds it busy and does nothing.
#[test]
fn h03_stale_place_on_the_ready_list_issues_nothing() {
    const TURN: u32 = zonal_io::volume::TURN_MAX as u32;
    let mut info = script::info();
    info.geometry = Geometry::new(Sectors(8 * 512), Sectors(512), Sectors(0), 1).unwrap();
    let rig = unmerged(info, WriteMode::PerZone);
    let late = rig.write_request(1, 2 * TURN, 1);
    let late_token = late.token;
    let (late, other, volume) = (Mutex::new(Some(late)), Mutex::new(rig.also(|_| {})), rig.volume.clone());
    // The completion function of the first write runs when the budget has run out, and writes
    // again.
    let witness = rig.also(move |_| {
        let late = late.lock().take().expect("told once");
        volume.submit(Nanos(0), &other.lock(), late);
    });
    let first = rig.write_request(1, 0, 1);
    let first_token = first.token;
    rig.volume.submit(Nanos(0), &witness, first);
    for n in 1..2 * TURN {
        rig.write(1, n, 1);
    }
    let mut at_once = 0;
    rig.script.style(move |_| {
        at_once += 1;
        if at_once <= TURN { Style::Now(Answer::Obey) } else { Style::Later }
    });
    rig.finish(0, Answer::Obey);
    assert_eq!(rig.asked().len() as u32, TURN + 2);
    assert_eq!(rig.script.pending().len(), 1, "one write of the zone is out");
    rig.settle();
    assert_eq!(rig.ends([first_token, late_token]), [DONE; 2]);
    assert_eq!(rig.pointer(1), Some(2 * TURN + 1));
    assert_eq!(rig.plug(1).map(|p| (p.references, p.pending)), Some((1, 0)));
}

/// A plug's queue is reused by other zones. The next one does not inherit the state of the last.
#[test]
fn h04_reused_queue_keeps_no_state_of_its_last_zone() {
    let rig = Rig::per_zone();
    rig.write(1, 0, 8);
    rig.step(MEDIUM);
    rig.settle();
    assert_eq!((rig.resyncs(), rig.plug(1)), (1, None));
    let first = rig.write(1, 0, 8);
    let stray = rig.write(1, 30, 8);
    rig.settle();
    assert_eq!(rig.ends([first, stray]), [DONE, misplaced(1, 8, 30)], "no write was lost this time");
}

#[test]
fn h06_write_that_meets_a_finish_fails_and_moves_nothing() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let finish = rig.manage(Op::ZoneFinish, 1);
        let (write, append) = (rig.write(1, 0, 8), rig.append(1, 8));
        assert_eq!(rig.script.pending().len(), 1, "writes wait for the finish");
        rig.settle();
        assert_eq!(rig.ends([finish, write, append]), [DONE, full(1), full(1)]);
        assert_eq!(rig.asked(), [(Op::ZoneFinish, 1, 0, 0)]);
        assert_eq!((rig.pointer(1), rig.plug(1)), (Some(CAPACITY), None));
    }
}

#[test]
fn h07_reset_zone_takes_writes_at_its_start_again() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.write(1, 0, 12);
        rig.settle();
        let reset = rig.reset(1);
        // A write that waits for the reset, and a later one.
        let waited = rig.write(1, 0, 8);
        rig.settle();
        let after = rig.write(1, 8, 8);
        rig.settle();
        assert_eq!(rig.ends([reset, waited, after]), [DONE; 3]);
        rig.assert_written(1, 0, 8, waited);
        rig.assert_written(1, 8, 8, after);
    }
}

/// On completion of the write that filled the zone, the caller may reset it and write again at
/// once: the plug is updated before any caller is notified.
#[test]
fn h08_plug_is_up_to_date_when_the_caller_hears() {
    for (style, mode) in [Style::Later, Style::Now(Answer::Obey)].iter().flat_map(|s| PLUGGED.map(|m| (s, m)))
    {
        let rig = Rig::new(whole_zones(), mode);
        let token = rig.token();
        let again = rig.write_request(1, 0, 8);
        let again_token = again.token;
        let (volume, start) = (rig.volume.clone(), rig.sector(1, 0));
        let (again, other) = (Mutex::new(Some(again)), Mutex::new(rig.also(|_| {})));
        let witness = rig.also(move |c| {
            assert_eq!(c.token, token);
            assert_eq!(volume.plugs(), [], "nothing is at the device when the caller is told");
            let other = other.lock();
            volume.submit(Nanos(0), &other, Request::zone(Op::ZoneReset, start).token(u64::MAX));
            volume.submit(Nanos(0), &other, again.lock().take().expect("told once"));
        });
        let style = style.clone();
        rig.script.style(move |_| style.clone());
        let filling = Request::append(rig.sector(1, 0), 8, payload(token, 8)).token(token);
        rig.write(1, 0, 16);
        rig.settle();
        rig.write(1, 16, 40);
        rig.settle();
        rig.volume.submit(Nanos(0), &witness, filling);
        rig.settle();
        assert_eq!(rig.ends([token, u64::MAX, again_token]), [appended(&rig, 1, 56), DONE, DONE]);
        rig.assert_written(1, 0, 8, again_token);
        assert_eq!(rig.pointer(1), Some(8));
    }
}
