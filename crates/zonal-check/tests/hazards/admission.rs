//! Requests that fail instead of waiting.

use super::*;

const WOULD_WAIT: End = Err(RequestError::WouldWait);

#[test]
fn h17_write_that_would_rather_fail_takes_nothing_with_it() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.script.style(|_| Style::Busy);
        let nowait = rig.submit_as_is(rig.write_request(1, 0, 8).nowait());
        let append = rig.submit(Request::append(rig.sector(1, 0), 8, payload(0, 8)).nowait());
        assert_eq!(rig.ends([nowait, append]), [WOULD_WAIT; 2], "the queue is full");
        assert_eq!(rig.pointer(1), Some(0), "the pointer is where it was");
        rig.script.style(|_| Style::Later);
        let out = rig.write(1, 0, 8);
        let nowait = rig.submit_as_is(rig.write_request(1, 8, 8).nowait());
        assert_eq!(rig.end(nowait), Some(WOULD_WAIT), "another write is out");
        let next = rig.write(1, 8, 8);
        rig.settle();
        let nowait = rig.submit_as_is(rig.write_request(1, 16, 8).nowait());
        rig.settle();
        assert_eq!(rig.ends([out, next, nowait]), [DONE; 3]);
    }
}

#[test]
fn h17_admitted_write_waits_for_a_full_queue_whatever_it_asked_for() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let nowait = rig.submit_as_is(rig.write_request(1, 0, 40).nowait());
        rig.script.style(|_| Style::Busy);
        rig.step(Answer::Obey);
        assert_eq!(rig.end(nowait), None, "its first piece is written");
        rig.script.style(|_| Style::Later);
        rig.settle();
        assert_eq!(rig.end(nowait), Some(DONE));
        rig.assert_written(1, 0, 40, nowait);
    }
}

#[test]
fn h18_management_waits_whatever_it_asked_for() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.write(1, 0, 8);
        rig.settle();
        rig.script.style(|_| Style::Busy);
        let zone = |op, zone| Request::zone(op, rig.sector(zone, 0)).nowait();
        let managed = [rig.submit(zone(Op::ZoneReset, 1)), rig.submit(zone(Op::ZoneFinish, 2))];
        rig.rest();
        assert_eq!(managed.map(|t| rig.end(t)), [None, None]);
        rig.script.style(|_| Style::Later);
        rig.settle();
        assert_eq!(rig.ends(managed), [DONE; 2]);
        rig.script.style(|_| Style::Busy);
        let all = rig.submit(Request::reset_all().nowait());
        rig.rest();
        assert_eq!(rig.end(all), None);
        rig.script.style(|_| Style::Later);
        rig.settle();
        let write = rig.write(2, 0, 8);
        rig.settle();
        assert_eq!(rig.ends([all, write]), [DONE; 2]);
    }
}

/// Only such requests are submitted to a zone with an unknown write pointer. They trigger another
/// report.
#[test]
fn u14_zone_of_unknown_pointer_asks_again_for_those_that_do_not_wait() {
    let rig = Rig::per_zone();
    rig.write(1, 0, 8);
    rig.step(MEDIUM);
    rig.step(MEDIUM);
    assert_eq!(rig.script.pending(), []);
    let nowait = rig.submit_as_is(rig.write_request(1, 0, 8).nowait());
    assert_eq!(rig.end(nowait), Some(WOULD_WAIT));
    rig.settle();
    let nowait = rig.submit_as_is(rig.write_request(1, 0, 8).nowait());
    rig.settle();
    assert_eq!((rig.end(nowait), rig.resyncs()), (Some(DONE), 2));
}
