//! Admission of every kind of write in every kind of word.

use super::*;

const TABLE: &str = include_str!("../../../../tests/data/plug-admit.txt");

const COLUMNS: [&str; 21] = [
    "idle 0",
    "idle 8",
    "idle 16",
    "writing 8",
    "writing 16",
    "native 8x1",
    "native 8x3",
    "native 16x1",
    "waits 8",
    "recovers 8",
    "frozen 8",
    "ro",
    "off",
    "cnv",
    "writing 8x3",
    "issuing 8x1",
    "issuing 8x0",
    "alone 8x1",
    "noslot 0",
    "noslot 8",
    "noslot 16",
];

fn column(name: &str) -> Word {
    match name {
        "waits 8" => word(8, 1, false).waiting(),
        "recovers 8" => word(8, 0, false).recovering(),
        "frozen 8" => word(8, 0, false).freezing(),
        "issuing 8x1" => issuing(8, 1),
        "issuing 8x0" => issuing(8, 0),
        "alone 8x1" => alone(8),
        "ro" => Word::new(ZoneClass::ReadOnly, CAPACITY),
        "off" => Word::new(ZoneClass::Offline, CAPACITY),
        "cnv" => Word::new(ZoneClass::Conventional, 0),
        _ => {
            let (kind, state) = name.split_once(' ').unwrap();
            let (pointer, in_flight) = state.split_once('x').unwrap_or((state, "1"));
            let in_flight = if kind == "idle" { 0 } else { in_flight.parse().unwrap() };
            let in_flight = if kind == "noslot" { 0 } else { in_flight };
            let word = word(pointer.parse().unwrap(), in_flight, kind == "native");
            if kind == "noslot" { word.without_slot() } else { word }
        }
    }
}

const ROWS: [&str; 21] = [
    "at p 4",
    "at p fill",
    "at p fill+1",
    "at 4 4",
    "at 12 8",
    "append 4",
    "append fill",
    "append fill+1",
    "native append 4",
    "native append fill",
    "native append fill+1",
    "alone at p 4",
    "alone at p fill+1",
    "window at p 4",
    "window at p fill",
    "window at p fill+1",
    "window at 4 4",
    "window append 4",
    "window append fill+1",
    "window alone at p 4",
    "window alone at 4 4",
];

fn row(name: &str, pointer: u32) -> (WriteKind, u32) {
    let fill = CAPACITY.saturating_sub(pointer).max(1);
    let (rest, sectors) = name.rsplit_once(' ').unwrap();
    let sectors = match sectors {
        "fill" => fill,
        "fill+1" => fill + 1,
        n => n.parse().unwrap(),
    };
    let kind = match rest {
        "at p" => WriteKind::At(pointer),
        "alone at p" => WriteKind::Alone(pointer),
        "alone at 4" => WriteKind::Alone(4),
        "append" | "native append" => WriteKind::Append,
        at => WriteKind::At(at.strip_prefix("at ").unwrap().parse().unwrap()),
    };
    (kind, sectors)
}

#[test]
fn admission_of_every_write_in_every_state_matches_the_table() {
    Table::parse(TABLE).compare(&ROWS, &COLUMNS, |name, state| {
        let before = column(state);
        let (rules, rest) = rules_of(name);
        let (kind, sectors) = row(rest, before.pointer());
        match before.admit(kind, sectors, &rules) {
            Admission::Issue(after, at) => format!("{at}>{}", show(after)),
            Admission::Wait => "wait".into(),
            Admission::Refuse(e) => error(e).into(),
        }
    });
}

#[test]
fn refusals_carry_the_facts() {
    let refused = |word: Word, kind, sectors| match word.admit(kind, sectors, &rules(0)) {
        Admission::Refuse(e) => e,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        refused(word(8, 0, false), WriteKind::At(12), 4),
        RequestError::NotAtWritePointer { zone: ZONE, write_pointer: 8, offset: 12 }
    );
    assert_eq!(
        refused(word(8, 0, false), WriteKind::Append, u32::MAX),
        RequestError::BeyondCapacity { zone: ZONE, end: u32::MAX, capacity: CAPACITY }
    );
    assert_eq!(
        refused(word(CAPACITY, 0, false), WriteKind::Append, 1),
        RequestError::ZoneFull { zone: ZONE }
    );
}

#[test]
fn word_holds_the_largest_zone_and_the_most_appends() {
    let capacity = crate::geometry::ZONE_SECTORS_MAX as u32;
    let all = crate::plug::IN_FLIGHT_MAX;
    let rules = Rules { capacity, merge_sectors_max: 0, ..rules(all) };
    let mut word = Word::new(ZoneClass::Sequential, capacity - all);
    for n in 0..all {
        match word.admit(WriteKind::Append, 1, &rules) {
            Admission::Issue(next, at) => {
                assert_eq!(at, capacity - all + n);
                word = next;
            }
            other => panic!("append {n}: {other:?}"),
        }
    }
    assert_eq!((word.pointer(), word.in_flight(), word.class()), (capacity, all, ZoneClass::Sequential));
    assert!(!word.waits() && !word.recovers() && !word.frozen() && word.appending());
    assert_eq!(word.admit(WriteKind::Append, 1, &rules), Admission::Wait);
    for _ in 0..all {
        word = word.completed();
    }
    assert_eq!(word, Word::new(ZoneClass::Sequential, capacity));
}
