//! The next step for everything that can wait in every state of a plug.

use super::*;

const TABLE: &str = include_str!("../../../../tests/data/plug-next.txt");

const COLUMNS: [&str; 16] = [
    "quiet 8",
    "quiet 12",
    "quiet 16",
    "writing 8x1",
    "native 8x1",
    "native 8x3",
    "recovers 8x1",
    "recovers 8",
    "asking 8",
    "gave up 8",
    "frozen 8",
    "held 8x1",
    "held 8",
    "lost 8",
    "ro",
    "off",
];

/// The plug that a column names, with nobody waiting yet.
fn column(name: &str) -> (Word, Queue<usize>) {
    let mut queue = Queue::default();
    let (state, place) = name.rsplit_once(' ').unwrap_or((name, "16"));
    let (pointer, in_flight) = place.split_once('x').unwrap_or((place, "0"));
    let (pointer, in_flight) = (pointer.parse().unwrap(), in_flight.parse().unwrap());
    let plain = word(pointer, in_flight, state == "native").waiting();
    let word = match state {
        "recovers" | "asking" | "gave up" => plain.recovering(),
        "frozen" => plain.freezing(),
        "ro" => plain.at(Class::ReadOnly, pointer),
        "off" => plain.at(Class::Offline, pointer),
        _ => plain,
    };
    queue.asking = state == "asking";
    queue.gave_up = state == "gave up";
    queue.held = state == "held";
    queue.lost_at = (state == "lost").then_some(pointer);
    (word, queue)
}

const ROWS: [&str; 23] = [
    "nobody",
    "at p 4",
    "at p 9",
    "at 4 4",
    "at 12 4",
    "at 12 8",
    "append 4",
    "append 9",
    "native append 4",
    "native append 9",
    "native append 4, native append 4",
    "native append 4, at +4 4",
    "reset",
    "finish",
    "reset, at 0 4",
    "at p 4, at +4 4",
    "at p 4, at +4 5",
    "at p 2, at +2 2, at +4 2",
    "at p 4, at +4 4!",
    "at p 4!, at +4 4",
    "at p 4, at +8 4",
    "at p 4, append 4",
    "at p 4, reset, at +4 4",
];

fn item(name: &str, pointer: u32, token: usize) -> Item<usize> {
    let kind = match name {
        "reset" => Kind::Manage(Op::ZoneReset),
        "finish" => Kind::Manage(Op::ZoneFinish),
        _ => {
            let (place, sectors) = name.trim_end_matches('!').rsplit_once(' ').unwrap();
            let kind = match place.trim_start_matches("native ") {
                "append" => WriteKind::Append,
                "at p" => WriteKind::At(pointer),
                at => match at.strip_prefix("at ").unwrap() {
                    n if n.starts_with('+') => WriteKind::At(pointer + n[1..].parse::<u32>().unwrap()),
                    n => WriteKind::At(n.parse().unwrap()),
                },
            };
            Kind::Write(kind, sectors.parse().unwrap())
        }
    };
    let mergeable = matches!(kind, Kind::Write(WriteKind::At(_), _)) && !name.ends_with('!');
    Item { kind, mergeable, token }
}

/// The step as the table writes it, and what it has to do to the word.
fn step(before: Word, step: Next) -> (String, Word) {
    match step {
        Next::Nothing => ("-".into(), before),
        Next::Issue { at, sectors, parts } => {
            let parts = if parts == 1 { String::new() } else { format!("x{parts}") };
            (format!("{at}+{sectors}{parts}"), before.issued(sectors, false))
        }
        Next::Manage(op) => (op.name().into(), before.freezing()),
        Next::Resync => ("ask".into(), before),
        Next::Settle => ("settle".into(), before),
        Next::ReadBack => ("read back".into(), before),
        Next::Held => ("held".into(), before.freezing()),
        Next::Fail(e) => (error(e).into(), before),
    }
}

fn ours(waits: &str, state: &str) -> String {
    let (before, mut queue) = column(state);
    let was_asking = queue.asking;
    for (token, name) in waits.split(", ").filter(|&name| name != "nobody").enumerate() {
        queue.items.push_back(item(name, before.pointer(), token));
    }
    let native = waits.starts_with("native");
    let rules = rules(if native { 3 } else { 0 });
    let waiting = queue.len();
    assert_eq!(queue.check(before, &self::rules(3)), Ok(()), "{waits} in {state}");
    let (after, next) = queue.next(before, &rules);
    assert_eq!(queue.len(), waiting, "a step takes nobody out: {waits} in {state}");
    assert_eq!(queue.asking, was_asking || next == Next::Resync, "{waits} in {state}");
    if next == Next::Nothing && after == before.not_waiting() {
        return "free".into();
    }
    let (mut shown, expected) = step(before, next);
    if native && matches!(next, Next::Issue { .. }) {
        shown.push('n');
        assert!(after.appending(), "{waits} in {state}");
    } else {
        assert_eq!(after, expected, "{waits} in {state}");
    }
    shown
}

#[test]
fn next_step_for_every_head_in_every_state_is_what_the_table_says() {
    Table::parse(TABLE).compare(&ROWS, &COLUMNS, ours);
}

#[test]
fn order_of_issue_is_the_order_of_arrival() {
    let mut queue = Queue::default();
    let mut word = word(0, 1, false);
    for n in 0..4 {
        let kind = Kind::Write(WriteKind::At(4 + 3 * n), 3);
        word = queue.push(word, Item { kind, mergeable: true, token: n });
    }
    word = word.completed();
    let rules = Rules { merge_sectors_max: 6, ..rules(0) };
    let mut order = Vec::new();
    // The write in flight had no length; the first of the four has moved to the pointer.
    word = word.at(Class::Sequential, 4);
    while let (after, Next::Issue { at, parts, .. }) = queue.next(word, &rules) {
        order.push((at, (0..parts).map(|_| queue.pop()).collect::<Vec<_>>()));
        word = after.completed();
    }
    assert_eq!(order, [(4, vec![0, 1]), (10, vec![2, 3])]);
}
