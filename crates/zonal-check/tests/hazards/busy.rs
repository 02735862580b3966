//! Busy means that a command is at the device: nothing else may clear it, and no second write may
//! be issued meanwhile.

use super::*;

#[test]
fn h09_reset_waits_for_the_write_at_the_device_and_aborts_those_that_wait() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let out = rig.write(1, 0, 8);
        let waiting = [rig.write(1, 8, 8), rig.append(1, 8)];
        let reset = rig.reset(1);
        assert_eq!(waiting.map(|t| rig.end(t)), [Some(aborted(1)), Some(aborted(1))]);
        let after = rig.write(1, 0, 4);
        // The scripted device enforces one at a time.
        assert_eq!(rig.script.pending().len(), 1);
        rig.settle();
        assert_eq!(rig.ends([out, reset, after]), [DONE; 3]);
        assert_eq!(rig.asked(), [(Op::Write, 1, 0, 8), (Op::ZoneReset, 1, 0, 0), (Op::Write, 1, 0, 4)]);
        assert_eq!(rig.pointer(1), Some(4));
    }
}

#[test]
fn h09_finish_waits_like_a_reset() {
    let rig = Rig::append_mode();
    let out = [rig.append(1, 8), rig.append(1, 8)];
    let finish = rig.manage(Op::ZoneFinish, 1);
    rig.finish(1, Answer::Obey);
    assert_eq!(rig.script.pending().len(), 1);
    rig.settle();
    assert_eq!(rig.ends([out[0], finish]), [appended(&rig, 1, 8), DONE]);
    assert_eq!(rig.asked().last(), Some(&(Op::ZoneFinish, 1, 0, 0)));
}

/// After two appends have been issued, a check of the queue finds no third one: the zone has no
/// waiters, and stays busy.
#[test]
fn h10_look_that_finds_nobody_leaves_the_zone_busy() {
    let rig = Rig::append_mode();
    let first = rig.write(1, 0, 8);
    let appends = [rig.append(1, 8), rig.append(1, 8)];
    rig.step(Answer::Obey);
    assert_eq!(rig.script.pending().len(), 2);
    // A positional write waits for both.
    let last = rig.write(1, 24, 8);
    assert_eq!(rig.script.pending().len(), 2);
    rig.settle();
    assert_eq!(rig.ends([first, appends[0], last]), [DONE, appended(&rig, 1, 8), DONE]);
}

#[test]
fn h12_misplaced_write_errs_alone_whether_it_waited_or_not() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        // Immediately, in an idle zone.
        let stray = rig.write(1, 20, 8);
        assert_eq!(rig.end(stray), Some(misplaced(1, 0, 20)));
        // In a zone with requests waiting before and after it.
        let before = [rig.write(1, 0, 8), rig.write(1, 8, 8)];
        let stray = rig.write(1, 40, 8);
        let behind = [rig.write(1, 16, 8), rig.append(1, 8)];
        rig.settle();
        assert_eq!(rig.ends(before), [DONE; 2]);
        assert_eq!(rig.end(stray), Some(misplaced(1, 16, 40)));
        assert_eq!(rig.ends(behind), [DONE, appended(&rig, 1, 24)]);
        assert_eq!(rig.resyncs(), 0, "the pointer was never in doubt");
        assert!(!rig.asked().iter().any(|c| c.2 == 40 || c.2 == 20), "{:?}", rig.asked());
    }
}

/// A write that met a full device queue keeps its place: later writes wait, and it is not admitted
/// again.
#[test]
fn h26_write_that_met_a_full_queue_keeps_its_place() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.script.style(|_| Style::Busy);
        let stalled = rig.write(1, 0, 8);
        let behind = [rig.write(1, 8, 8), rig.append(1, 8)];
        rig.rest();
        assert_eq!((rig.asked(), rig.end(stalled), rig.pointer(1)), (vec![], None, Some(8)));
        let reset = rig.reset(1);
        let after = rig.write(1, 0, 4);
        assert_eq!(rig.ends(behind), [aborted(1), aborted(1)]);
        rig.script.style(|_| Style::Later);
        rig.settle();
        assert_eq!(rig.ends([stalled, reset, after]), [DONE; 3]);
        assert_eq!(rig.asked(), [(Op::Write, 1, 0, 8), (Op::ZoneReset, 1, 0, 0), (Op::Write, 1, 0, 4)]);
    }
}
