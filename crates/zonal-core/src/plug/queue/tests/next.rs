//! The next step for every kind of waiting request in every state of a plug.

use super::*;

const TABLE: &str = include_str!("../../../../tests/data/plug-next.txt");

const COLUMNS: [&str; 20] = [
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
    "writing 8x3",
    "issuing 8x1",
    "issuing 8x0",
    "alone 8x1",
];

/// The plug described by a column, without waiting requests.
fn column(name: &str) -> (Word, Queue<usize>) {
    let mut queue = Queue::default();
    let (state, place) = name.rsplit_once(' ').unwrap_or((name, "16"));
    let (pointer, in_flight) = place.split_once('x').unwrap_or((place, "0"));
    let (pointer, in_flight) = (pointer.parse().unwrap(), in_flight.parse().unwrap());
    let plain = word(pointer, in_flight, state == "native").waiting();
    let word = match state {
        "recovers" | "asking" | "gave up" => plain.recovering(),
        "frozen" => plain.freezing(),
        "issuing" => issuing(pointer, in_flight).waiting(),
        "alone" => alone(pointer).waiting(),
        "ro" => plain.at(ZoneClass::ReadOnly, pointer),
        "off" => plain.at(ZoneClass::Offline, pointer),
        _ => plain,
    };
    queue.inquiry = match state {
        "asking" => Inquiry::Report { is_outdated: false },
        "gave up" => Inquiry::GaveUp,
        _ => Inquiry::None,
    };
    queue.hold = if state == "held" { Hold::Reset { ahead: 0 } } else { Hold::None };
    queue.lost_at = (state == "lost").then_some(pointer);
    (word, queue)
}

const ROWS: [&str; 32] = [
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
    "alone at p 4",
    "window at p 4",
    "window at 12 4",
    "window at p 9",
    "window append 4",
    "window at p 4, at +4 4",
    "window alone at p 4",
    "window at p 4, alone at +4 4",
    "window reset",
];

fn item(name: &str, pointer: u32, token: usize) -> Item<usize> {
    let kind = match name {
        "reset" => RequestKind::Manage(Op::ZoneReset),
        "finish" => RequestKind::Manage(Op::ZoneFinish),
        _ => {
            let (place, sectors) = name.trim_end_matches('!').rsplit_once(' ').unwrap();
            let (place, at): (_, fn(u32) -> WriteKind) = match place.strip_prefix("alone ") {
                Some(place) => (place, WriteKind::Alone),
                None => (place, WriteKind::At),
            };
            let kind = match place.trim_start_matches("native ") {
                "append" => WriteKind::Append,
                "at p" => at(pointer),
                place => match place.strip_prefix("at ").unwrap() {
                    n if n.starts_with('+') => at(pointer + n[1..].parse::<u32>().unwrap()),
                    n => at(n.parse().unwrap()),
                },
            };
            RequestKind::Write(kind, sectors.parse().unwrap())
        }
    };
    let mergeable = matches!(kind, RequestKind::Write(WriteKind::At(_), _)) && !name.ends_with('!');
    Item { kind, mergeable, token }
}

/// Notation of the step in the table, and its effect on the word.
fn step(before: Word, step: Next, head: Option<RequestKind>, rules: &Rules) -> (String, Word) {
    match step {
        Next::Nothing => ("-".into(), before),
        Next::Issue { at, sectors, parts } => {
            let parts = if parts == 1 { String::new() } else { format!("x{parts}") };
            let Some(RequestKind::Write(kind, _)) = head else { panic!("no write") };
            (format!("{at}+{sectors}{parts}"), before.issued_as(kind, sectors, rules))
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
    let was_asking = queue.inquiry.is_report();
    let (rules, list) = rules_of(waits);
    for (token, name) in list.split(", ").filter(|&name| name != "nobody").enumerate() {
        queue.items.push_back(item(name, before.pointer(), token));
    }
    let waiting = queue.len();
    assert_eq!(queue.check(before, &ALL), Ok(()), "{waits} in {state}");
    let head = queue.items.front().map(|(shape, _)| shape.kind());
    let (after, next) = queue.next(before, &rules);
    assert_eq!(queue.len(), waiting, "a step takes no request out: {waits} in {state}");
    assert_eq!(queue.inquiry.is_report(), was_asking || next == Next::Resync, "{waits} in {state}");
    if next == Next::Nothing && after == before.not_waiting() {
        return "free".into();
    }
    let (mut shown, expected) = step(before, next, head, &rules);
    assert_eq!(after, expected, "{waits} in {state}");
    if matches!(next, Next::Issue { .. }) {
        let flags = show(after);
        shown.extend(flags.chars().filter(|c| "nia".contains(*c)));
    }
    shown
}

#[test]
fn next_step_for_every_head_in_every_state_matches_the_table() {
    Table::parse(TABLE).compare(&ROWS, &COLUMNS, ours);
}

#[test]
fn order_of_issue_is_the_order_of_arrival() {
    let mut queue = Queue::default();
    let mut word = word(0, 1, false);
    for n in 0..4 {
        let kind = RequestKind::Write(WriteKind::At(4 + 3 * n), 3);
        word = queue.push(word, Item { kind, mergeable: true, token: n });
    }
    word = word.completed();
    let rules = Rules { merge_sectors_max: 6, ..rules(0) };
    let mut order = Vec::new();
    // The write in flight had no length. The first of the four writes is moved to the pointer.
    word = word.at(ZoneClass::Sequential, 4);
    while let (after, Next::Issue { at, parts, .. }) = queue.next(word, &rules) {
        order.push((at, (0..parts).map(|_| queue.pop()).collect::<Vec<_>>()));
        word = after.completed();
    }
    assert_eq!(order, [(4, vec![0, 1]), (10, vec![2, 3])]);
}
