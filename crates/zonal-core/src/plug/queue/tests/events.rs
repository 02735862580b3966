//! Every event in every state of a plug, including those that only a bug can cause.

use super::*;
use crate::error::DeviceError;
use crate::plug::recovery::{Addressed, Decision, Failed};
use std::panic::{AssertUnwindSafe, catch_unwind};

const TABLE: &str = include_str!("../../../../tests/data/plug-events.txt");

const COLUMNS: [&str; 15] = [
    "idle 8/0",
    "writing 8/1",
    "native 8/2n",
    "waits 8/1w+1",
    "native waits 8/2nw+1",
    "recovers 8/1rw+1",
    "asking 8/0rw:a+1",
    "gave up 8/0rw:g+1",
    "frozen 8/0zw+1",
    "unknown 8/0rzw:gl+1",
    "holding 8/1w:h+1",
    "held 8/0zw:h+1",
    "lost 8/0w:l+1",
    "issuing 8/1i",
    "late 8/0wi+1",
];

const ROWS: [&str; 21] = [
    "push",
    "push front",
    "push reset",
    "abort",
    "cancel",
    "end ok",
    "end failed",
    "withdrawn 4",
    "managed 0",
    "managed 16",
    "managed failed",
    "answer 4",
    "answer 16",
    "answer ro",
    "no answer",
    "hold",
    "pause",
    "release 0",
    "release failed",
    "distrust",
    "has issued",
];

/// The plug described by a column.
fn column(name: &str) -> (Word, Queue<usize>) {
    let (_, state) = name.rsplit_once(' ').unwrap();
    let (state, waiting) = state.split_once('+').unwrap_or((state, "0"));
    let (state, own) = state.split_once(':').unwrap_or((state, ""));
    let (pointer, rest) = state.split_once('/').unwrap();
    let (in_flight, flags) = rest.split_at(1);
    let has = |c| flags.contains(c);
    let (pointer, in_flight) = (pointer.parse().unwrap(), in_flight.parse().unwrap());
    let mut word = if has('i') { issuing(pointer, in_flight) } else { word(pointer, in_flight, has('n')) };
    word = if has('w') { word.waiting() } else { word };
    word = if has('r') { word.recovering() } else { word };
    word = if has('z') { word.freezing() } else { word };
    let mut items = Items::default();
    (0..waiting.parse().unwrap()).for_each(|n| items.push_back(write(n)));
    let lost_at = own.contains('l').then_some(8);
    let inquiry = match (own.contains('a'), own.contains('g')) {
        (true, _) => Inquiry::Report { is_outdated: false },
        (_, true) => Inquiry::GaveUp,
        _ => Inquiry::None,
    };
    let hold = if own.contains('h') { Hold::Reset { ahead: 0 } } else { Hold::None };
    (word, Queue { items, inquiry, hold, lost_at, ..Queue::default() })
}

fn write(token: usize) -> Item<usize> {
    Item { kind: RequestKind::Write(WriteKind::At(8), 4), mergeable: true, token }
}

fn happen(event: &str, word: Word, queue: &mut Queue<usize>, aborted: &mut Vec<usize>) -> Word {
    let sequential = |pointer| Resync { class: ZoneClass::Sequential, pointer };
    match event {
        "push" => queue.push(word, write(10)),
        "push front" => queue.push_front(word, write(11)),
        "push reset" => queue.push_management(word, Op::ZoneReset, 12, aborted),
        "abort" => {
            queue.abort_writes(aborted);
            word
        }
        "cancel" => {
            queue.cancel(word, |_| true, aborted);
            word
        }
        "end ok" => word.completed(),
        "end failed" => word.completed().recovering(),
        "withdrawn 4" => word.unissued(4),
        "managed 0" => queue.managed(word, Some(0)),
        "managed 16" => queue.managed(word, Some(16)),
        "managed failed" => queue.managed(word, None),
        "answer 4" => queue.resynced(word, sequential(4), &rules(3)).0,
        "answer 16" => queue.resynced(word, sequential(16), &rules(3)).0,
        "answer ro" => queue.resynced(word, Resync { class: ZoneClass::ReadOnly, pointer: 16 }, &rules(3)).0,
        "no answer" => {
            queue.resync_failed(aborted);
            word
        }
        "hold" => queue.hold(word, aborted),
        "pause" => queue.pause(word),
        "release 0" => queue.release(word, Some(0)),
        "release failed" => queue.release(word, None),
        "distrust" => queue.invalidate_pointer(word),
        "has issued" => word.has_issued(),
        _ => panic!("no such event"),
    }
}

fn show_plug(word: Word, queue: &Queue<usize>, aborted: &[usize]) -> String {
    let mut s = show(word);
    let own = [
        (queue.inquiry.is_report(), 'a'),
        (queue.inquiry == Inquiry::GaveUp, 'g'),
        (queue.hold.is_wanted(), 'h'),
        (queue.lost_at.is_some(), 'l'),
    ];
    if own.iter().any(|o| o.0) {
        s.push(':');
        s.extend(own.iter().filter(|o| o.0).map(|o| o.1));
    }
    for (n, sign) in [(queue.len(), '+'), (aborted.len(), '!')] {
        if n > 0 {
            write!(s, "{sign}{n}").unwrap();
        }
    }
    s
}

fn ours(event: &str, state: &str) -> String {
    let (before, mut queue) = column(state);
    assert_eq!(
        state.rsplit_once(' ').unwrap().1,
        show_plug(before, &queue, &[]),
        "the column is read as it is"
    );
    assert_eq!(queue.check(before, &ALL), Ok(()), "{state}");
    let mut aborted = Vec::new();
    let happened = catch_unwind(AssertUnwindSafe(|| happen(event, before, &mut queue, &mut aborted)));
    let Ok(after) = happened else { return "#".into() };
    assert_eq!(queue.check(after, &ALL), Ok(()), "{event} in {state}");
    show_plug(after, &queue, &aborted)
}

#[test]
fn every_event_in_every_state_matches_the_table() {
    Table::parse(TABLE).compare(&ROWS, &COLUMNS, ours);
}

#[test]
fn resync_remembers_the_loss_where_the_device_stands() {
    let (word, mut queue) = column("asking 8/0rw:a+1");
    queue.resynced(word, Resync { class: ZoneClass::Sequential, pointer: 4 }, &rules(3));
    assert_eq!(queue.lost_at, Some(4));
}

#[test]
fn issued_positional_write_clears_the_recorded_loss() {
    let (word, mut queue) = column("lost 8/0w:l+1");
    let (_, next) = queue.next(word, &rules(0));
    assert_eq!(next, Next::Issue { at: 8, sectors: 4, parts: 1 });
    assert_eq!(queue.lost_at, None);
}

/// Two failed writes of four sectors: the one at 8 is resubmitted, the one at 12 is lost. A third
/// one waits at 20.
fn lost_behind_one_that_is_sent_again() -> (Word, Queue<usize>) {
    let (word, mut queue) = column("recovers 8/1rw+1");
    queue.pop();
    let waits = Item { kind: RequestKind::Write(WriteKind::At(20), 4), mergeable: true, token: 20 };
    let word = queue.push(word.completed().at(ZoneClass::Sequential, 16).recovering(), waits);
    queue.fail(word, failed(8, DeviceError::Busy));
    queue.fail(word, failed(12, DeviceError::Medium));
    resync_and_send_again(word, queue, 8)
}

fn failed(at: u32, error: DeviceError) -> Failed<usize> {
    Failed { addressed: Addressed::Positional, at, sectors: 4, error, rounds: 0, token: at as usize }
}

fn resync_and_send_again(word: Word, mut queue: Queue<usize>, pointer: u32) -> (Word, Queue<usize>) {
    assert_eq!(queue.next(word, &WIDE), (word, Next::Resync));
    let (mut word, decided) = queue.resynced(word, Resync { class: ZoneClass::Sequential, pointer }, &WIDE);
    assert_eq!(decided[0].1.decision, Decision::Redrive);
    let kind = RequestKind::Write(WriteKind::At(8), 4);
    word = queue.push_front(word, Item { kind, mergeable: false, token: 8 });
    let (word, next) = queue.next(word, &WIDE);
    assert_eq!(next, Next::Issue { at: 8, sectors: 4, parts: 1 });
    queue.pop();
    (word, queue)
}

const WIDE: Rules = Rules { capacity: 64, ..rules(0) };

#[test]
fn write_sent_again_in_front_of_a_loss_leaves_its_memory() {
    let (word, mut queue) = lost_behind_one_that_is_sent_again();
    assert_eq!(queue.lost_at, Some(12));
    let (_, next) = queue.next(word.completed(), &WIDE);
    let error = RequestError::PredecessorLost { zone: WIDE.zone, lost_at: 12, offset: 20 };
    assert_eq!(next, Next::Fail(error));
}

#[test]
fn write_sent_again_in_front_of_a_loss_that_fails_anew_leaves_its_memory() {
    let (word, mut queue) = lost_behind_one_that_is_sent_again();
    let word = word.completed().recovering();
    queue.fail(word, failed(8, DeviceError::Busy));
    let (_, queue) = resync_and_send_again(word, queue, 8);
    assert_eq!(queue.lost_at, Some(12));
}

#[test]
fn loss_at_a_lower_offset_takes_precedence() {
    let (word, mut queue) = lost_behind_one_that_is_sent_again();
    let word = word.completed().recovering();
    queue.fail(word, failed(8, DeviceError::Medium));
    let (word, next) = queue.next(word, &WIDE);
    assert_eq!(next, Next::Resync);
    queue.resynced(word, Resync { class: ZoneClass::Sequential, pointer: 8 }, &WIDE);
    assert_eq!(queue.lost_at, Some(8));
}

#[test]
fn write_that_reaches_beyond_a_loss_ends_its_memory() {
    for (sectors, is_over) in [(2, false), (4, false), (5, true)] {
        let (word, mut queue) = column("lost 8/0w:l+1");
        queue.pop();
        queue.lost_at = Some(12);
        queue.push(
            word,
            Item { kind: RequestKind::Write(WriteKind::At(8), sectors), mergeable: false, token: 0 },
        );
        let (_, next) = queue.next(word, &WIDE);
        assert_eq!(next, Next::Issue { at: 8, sectors, parts: 1 });
        assert_eq!(queue.lost_at.is_none(), is_over, "{sectors}");
    }
}

#[test]
fn loss_that_leaves_no_hole_leaves_the_memory_of_one_that_does() {
    for (end, lost_at) in [(8, 12), (9, 8)] {
        let (word, mut queue) = column("lost 8/0w:l+1");
        queue.lost_at = Some(12);
        queue.read_back(Failed { sectors: end - 4, ..failed(4, DeviceError::Aborted) });
        assert_eq!(queue.next(word, &WIDE), (word, Next::ReadBack));
        queue.take_covered();
        queue.was_read_back(word, true);
        assert_eq!(queue.lost_at, Some(lost_at), "{end}");
    }
}

#[test]
fn abort_takes_writes_in_order_and_leaves_management() {
    let mut queue = Queue::default();
    let mut aborted = Vec::new();
    let mut word = queue.push(Word::default(), write(1));
    word = queue.push(word, write(2));
    word = queue.push_management(word, Op::ZoneReset, 3, &mut aborted);
    word = queue.push(word, write(4));
    queue.push_management(word, Op::ZoneFinish, 5, &mut aborted);
    assert_eq!(aborted, [1, 2, 4]);
    assert_eq!((queue.pop(), queue.pop(), queue.len()), (3, 5, 0));
}

#[test]
fn recycled_queue_remembers_nothing() {
    for state in COLUMNS {
        let (_, mut queue) = column(state);
        queue.items = Items::default();
        queue.recycle();
        assert_eq!(format!("{queue:?}"), format!("{:?}", Queue::<usize>::default()), "{state}");
    }
}

#[test]
#[should_panic(expected = "a write waits")]
fn queue_with_waiters_is_not_recycled() {
    column("waits 8/1w+1").1.recycle();
}

#[test]
fn report_that_something_happened_after_does_not_count_and_the_next_one_does() {
    let (word, mut queue) = column("asking 8/0rw:a+1");
    let word = queue.invalidate_report(word);
    let before = Resync { class: ZoneClass::Sequential, pointer: 4 };
    let (word, decided) = queue.resynced(word, before, &rules(0));
    assert!(decided.is_empty() && word.recovers() && word.pointer() == 8);
    assert_eq!(queue.check(word, &ALL), Ok(()));
    let (word, next) = queue.next(word, &rules(0));
    assert_eq!(next, Next::Resync);
    let now = Resync { class: ZoneClass::ReadOnly, pointer: rules(0).capacity };
    let (word, _) = queue.resynced(word, now, &rules(0));
    assert_eq!((word.class(), word.recovers()), (ZoneClass::ReadOnly, false));
}

#[test]
fn report_that_fails_after_something_happened_is_asked_for_again() {
    let (word, mut queue) = column("asking 8/0rw:a+1");
    let word = queue.invalidate_report(word);
    queue.resync_failed(&mut Vec::new());
    assert_eq!(queue.next(word, &rules(0)).1, Next::Resync);
    queue.resync_failed(&mut Vec::new());
    assert_eq!(queue.next(word, &rules(0)).1, Next::Nothing);
}
