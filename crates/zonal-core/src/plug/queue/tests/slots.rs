//! Zones that need a slot before they are written.

use super::*;

fn at(offset: u32) -> Item<u32> {
    Item { kind: RequestKind::Write(WriteKind::At(offset), 4), mergeable: true, token: offset }
}

fn manage(op: Op) -> Item<u32> {
    Item { kind: RequestKind::Manage(op), mergeable: false, token: 99 }
}

/// A zone without a slot, at 8, with these requests waiting.
fn waiting(items: impl IntoIterator<Item = Item<u32>>) -> (Queue<u32>, Word) {
    let mut queue = Queue::default();
    let word = word(8, 0, false).without_slot().waiting();
    items.into_iter().for_each(|item| {
        queue.push(word, item);
    });
    (queue, word)
}

#[test]
fn zone_asks_for_a_slot_when_its_head_would_go_out() {
    let wants = |items: Vec<Item<u32>>| {
        let (queue, word) = waiting(items);
        queue.wants_slot(word, &rules(0))
    };
    assert!(wants(vec![at(8)]));
    assert!(wants(vec![manage(Op::ZoneOpen), at(8)]));
    assert!(!wants(vec![]));
    assert!(!wants(vec![at(4)]), "misplaced: it is refused without");
    assert!(!wants(vec![at(12)]));
    assert!(!wants(vec![manage(Op::ZoneReset)]));
    assert!(!wants(vec![manage(Op::ZoneClose), at(8)]));
}

#[test]
fn zone_that_is_held_or_in_doubt_asks_for_no_slot() {
    for item in [at(8), manage(Op::ZoneOpen)] {
        let (mut queue, word) = waiting([item]);
        assert!(!queue.wants_slot(word.recovering(), &rules(0)));
        assert!(!queue.wants_slot(word.freezing(), &rules(0)));
        queue.pause(word);
        assert!(!queue.wants_slot(word, &rules(0)));
    }
}

#[test]
fn close_is_issued_in_order_and_aborts_no_writes() {
    let (mut queue, word) = waiting([at(8), manage(Op::ZoneClose), at(12)]);
    let (word, next) = queue.next(word.with_slot(), &rules(0));
    assert_eq!(next, Next::Issue { at: 8, sectors: 4, parts: 1 });
    queue.pop();
    let word = word.completed();
    let (word, next) = queue.next(word, &rules(0));
    assert_eq!(next, Next::Manage(Op::ZoneClose));
    queue.pop();
    let word = queue.managed(word, None).without_slot();
    assert!(queue.wants_slot(word, &rules(0)), "the write behind it needs a slot again");
    assert_eq!(word.pointer(), 12);
}

#[test]
fn close_waits_for_a_zone_in_doubt_and_a_reset_does_not() {
    let (mut queue, word) = waiting([manage(Op::ZoneClose)]);
    assert_eq!(queue.next(word.recovering(), &rules(0)).1, Next::Resync);
    let (mut queue, word) = waiting([manage(Op::ZoneReset)]);
    assert_eq!(queue.next(word.recovering(), &rules(0)).1, Next::Manage(Op::ZoneReset));
}

#[test]
fn close_of_a_zone_that_cannot_be_asked_for_fails_and_the_next_one_asks_again() {
    let (mut queue, word) = waiting([manage(Op::ZoneClose), manage(Op::ZoneOpen)]);
    let word = word.recovering();
    assert_eq!(queue.next(word, &rules(0)).1, Next::Resync);
    let mut failed = Vec::new();
    queue.resync_failed(&mut failed);
    assert_eq!(failed.len(), 2);
    assert_eq!(queue.next(word, &rules(0)).1, Next::Nothing);
    queue.push(word, manage(Op::ZoneClose));
    assert_eq!(queue.next(word, &rules(0)).1, Next::Resync);
}

#[test]
fn reset_does_not_wait_for_an_open_that_waits_for_a_slot() {
    let (mut queue, word) = waiting([manage(Op::ZoneOpen), manage(Op::ZoneClose)]);
    let mut aborted = Vec::new();
    queue.push_management(word, Op::ZoneReset, 7, &mut aborted);
    assert_eq!((aborted.len(), queue.len()), (1, 2), "the close and the reset go on");
}
