//! The recovery table compared with its golden file, and the positions that lead to its rows.

use super::*;
use crate::units::ZoneIndex;

const TABLE: &str = include_str!("../../../tests/data/plug-recovery.txt");

const ADDRESSED: [(&str, Addressed); 3] =
    [("write", Addressed::Positional), ("emulated", Addressed::Emulated), ("native", Addressed::Native)];

const CLASSES: [(&str, ErrorClass); 6] = [
    ("not-executed", ErrorClass::NotExecuted),
    ("resource", ErrorClass::Resource),
    ("medium", ErrorClass::Medium),
    ("maybe", ErrorClass::Maybe),
    ("unknown", ErrorClass::Unknown),
    ("final", ErrorClass::Final),
];

const POSITIONS: [(&str, Position); 12] = [
    ("at-start", Position::AtStart),
    ("inside", Position::Inside),
    ("at-end", Position::AtEnd),
    ("beyond", Position::Beyond),
    ("behind", Position::Behind),
    ("below", Position::Below),
    ("empty", Position::Empty),
    ("full", Position::Full),
    ("read-only", Position::ReadOnly),
    ("offline", Position::Offline),
    ("foreign", Position::Foreign),
    ("somewhere", Position::Somewhere),
];

fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Redrive => "redrive",
        Decision::Verify => "verify",
        Decision::Fail => "fail",
        Decision::Torn => "torn",
        Decision::Lost => "lost",
        Decision::Refuse => "refuse",
        Decision::Unknown => "unknown",
        Decision::GiveUp => "give-up",
    }
}

#[test]
fn every_failed_write_at_every_pointer_matches_the_table() {
    let mut lines = TABLE.lines().filter(|l| !l.starts_with('#'));
    let cells = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<_>>();
    assert_eq!(cells(lines.next().unwrap())[1..], POSITIONS.map(|p| p.0));
    let mut differences = Vec::new();
    for (kind, addressed) in ADDRESSED {
        for (name, class) in CLASSES {
            let row = cells(lines.next().expect("a row for every kind of failure"));
            assert_eq!(row[0], format!("{kind} {name}"));
            assert_eq!(row.len(), POSITIONS.len() + 1, "{}", row[0]);
            for (golden, (column, position)) in row[1..].iter().zip(POSITIONS) {
                let ours = word(decide(addressed, class, position));
                if ours != *golden {
                    differences.push(format!("{kind} {name} {column}: table {golden}, code {ours}"));
                }
            }
        }
    }
    assert_eq!(lines.next(), None, "no row is left over");
    assert_eq!(differences, [""; 0]);
}

#[test]
fn every_error_of_a_device_is_of_one_class() {
    let mut classes: Vec<(&str, &str)> = DeviceError::all()
        .chain([DeviceError::Os(5)])
        .map(|e| {
            let class = ErrorClass::of(e);
            (e.word(), CLASSES.iter().find(|c| c.1 == class).unwrap().0)
        })
        .collect();
    classes.sort_unstable();
    assert_eq!(
        classes,
        [
            ("aborted", "maybe"),
            ("boundary", "final"),
            ("busy", "not-executed"),
            ("conventional", "final"),
            ("full", "final"),
            ("gone", "maybe"),
            ("invalid-field", "final"),
            ("invalid-transition", "final"),
            ("invalid-write", "not-executed"),
            ("medium", "medium"),
            ("offline", "final"),
            ("opened-for-reading", "final"),
            ("os-error", "maybe"),
            ("out-of-range", "final"),
            ("read-only", "final"),
            ("sequential", "final"),
            ("stale", "final"),
            ("timed-out", "unknown"),
            ("too-many-active", "resource"),
            ("too-many-open", "resource"),
            ("unit-attention", "not-executed"),
            ("unsupported", "final"),
        ]
    );
}

/// Error classes agree with [`DeviceError::is_uncertain`].
#[test]
fn error_classes_match_the_predicates_of_device_errors() {
    for error in DeviceError::all() {
        assert_eq!(ErrorClass::of(error).may_have_been_written(), error.is_uncertain(), "{error}");
        assert_eq!(ErrorClass::of(error) == ErrorClass::Unknown, error.may_execute_late(), "{error}");
    }
}

const CAPACITY: u32 = 64;
const MISPLACED: DeviceError = DeviceError::Zone(ZoneError::InvalidWrite);

fn failed(addressed: Addressed, at: u32, sectors: u32, error: DeviceError) -> Failed<ZoneIndex> {
    Failed { addressed, at, sectors, error, rounds: 0, token: ZoneIndex(0) }
}

fn write(at: u32, sectors: u32, error: DeviceError) -> Failed<ZoneIndex> {
    failed(Addressed::Positional, at, sectors, error)
}

fn append(at: u32, sectors: u32, error: DeviceError) -> Failed<ZoneIndex> {
    failed(Addressed::Native, at, sectors, error)
}

/// Decisions and covered sectors with the zone at `pointer` and everything up to `issued` issued.
fn decided(failed: &[Failed<ZoneIndex>], pointer: u32, issued: u32) -> Vec<(&'static str, u32)> {
    let facts = ZoneFacts { class: ZoneClass::Sequential, pointer, capacity: CAPACITY, issued };
    plan(failed, &facts).iter().map(|v| (word(v.decision), v.covered)).collect()
}

#[test]
fn write_among_all_pointers_has_every_position() {
    let at = |pointer| decided(&[write(8, 8, DeviceError::Aborted)], pointer, 24)[0];
    assert_eq!(at(0), ("fail", 0), "empty");
    assert_eq!(at(4), ("fail", 0), "below");
    assert_eq!(at(8), ("redrive", 0));
    assert_eq!(at(9), ("verify", 1), "inside");
    assert_eq!(at(15), ("verify", 7));
    assert_eq!(at(16), ("verify", 8), "at its end");
    assert_eq!(at(24), ("verify", 8), "beyond");
    assert_eq!(at(25), ("unknown", 8), "beyond all that was issued");
    assert_eq!(at(CAPACITY), ("verify", 8), "full");
}

#[test]
fn zone_that_is_read_only_or_offline_decides_alone() {
    for class in [ZoneClass::ReadOnly, ZoneClass::Offline] {
        let facts = ZoneFacts { class, pointer: CAPACITY, capacity: CAPACITY, issued: 16 };
        let failures = [write(8, 8, MISPLACED), write(16, 8, DeviceError::Aborted)];
        let decisions: Vec<_> = plan(&failures, &facts).iter().map(|v| word(v.decision)).collect();
        assert_eq!(decisions, ["refuse", "unknown"]);
    }
}

#[test]
fn writes_behind_one_that_was_not_executed_are_sent_again_in_order() {
    let attention = DeviceError::UnitAttention;
    let failures = [write(8, 8, attention), write(16, 8, MISPLACED), write(24, 4, MISPLACED)];
    assert_eq!(decided(&failures, 8, 28), [("redrive", 0); 3]);
    // The remains of the first write do not affect the others.
    assert_eq!(decided(&failures, 12, 28), [("verify", 4), ("redrive", 0), ("redrive", 0)]);
}

#[test]
fn writes_behind_a_lost_one_are_lost_and_appends_among_them_go_on() {
    let append = failed(Addressed::Emulated, 24, 4, MISPLACED);
    let failures = [write(8, 8, DeviceError::Medium), write(16, 8, MISPLACED), append];
    assert_eq!(decided(&failures, 8, 28), [("fail", 0), ("lost", 0), ("redrive", 0)]);
    assert_eq!(decided(&failures, 10, 28), [("fail", 2), ("lost", 0), ("redrive", 0)]);
}

#[test]
fn covered_write_that_is_lost_leaves_no_hole() {
    let failures = [write(8, 8, DeviceError::Medium), write(16, 8, MISPLACED)];
    assert_eq!(decided(&failures, 16, 24), [("fail", 8), ("redrive", 0)]);
}

#[test]
fn failed_native_appends_are_resolved_by_counting_sectors() {
    let (maybe, medium) = (DeviceError::Aborted, DeviceError::Medium);
    // 24 sectors were issued from 0 on. Writes that did not fail were acknowledged.
    let one = [append(8, 8, maybe)];
    assert_eq!(decided(&one, 16, 24), [("redrive", 0)], "nothing of it was written");
    assert_eq!(decided(&one, 20, 24), [("redrive", 4)], "half of it did");
    assert_eq!(decided(&one, 24, 24), [("verify", 8)], "all of it did");
    assert_eq!(decided(&one, 12, 24), [("unknown", 0)], "others were lost, too");
    assert_eq!(decided(&one, 0, 24), [("redrive", 0)], "the zone was emptied");
    assert_eq!(decided(&one, 30, 24), [("unknown", 8)], "another writer wrote");
    let two = [append(0, 8, maybe), append(8, 8, maybe)];
    assert_eq!(decided(&two, 8, 24), [("redrive", 0); 2]);
    assert_eq!(decided(&two, 16, 24), [("unknown", 8); 2], "one of them was written");
    assert_eq!(decided(&two, 24, 24), [("verify", 8); 2]);
    // An append that was not executed wrote nothing, whatever the other one did.
    let mixed = [append(0, 8, DeviceError::Busy), append(8, 8, medium)];
    assert_eq!(decided(&mixed, 8, 24), [("redrive", 0), ("fail", 0)]);
    assert_eq!(decided(&mixed, 12, 24), [("redrive", 4), ("torn", 4)]);
    let facts = ZoneFacts { class: ZoneClass::Sequential, pointer: 16, capacity: CAPACITY, issued: 24 };
    let places: Vec<_> = plan(&mixed, &facts).iter().map(|v| v.at).collect();
    assert_eq!(places, [0, 0], "the first of them left its place to the other");
    // Unless one of them must have been executed.
    assert_eq!(decided(&[append(8, 8, DeviceError::Busy)], 24, 24), [("verify", 8)]);
}

#[test]
fn h49_round_is_counted_once_for_a_write_that_failed_by_itself() {
    let facts = ZoneFacts { class: ZoneClass::Sequential, pointer: 8, capacity: CAPACITY, issued: 32 };
    let mut failures = vec![
        write(8, 8, DeviceError::UnitAttention),
        write(16, 8, MISPLACED),
        write(24, 8, DeviceError::UnitAttention),
    ];
    for round in 1..=ROUNDS_MAX {
        let verdicts = plan(&failures, &facts);
        assert!(verdicts.iter().all(|v| v.decision == Decision::Redrive), "round {round}");
        assert_eq!(verdicts.iter().map(|v| v.rounds).collect::<Vec<_>>(), [round, 0, round]);
        failures.iter_mut().zip(&verdicts).for_each(|(f, v)| f.rounds = v.rounds);
    }
    let last: Vec<_> = plan(&failures, &facts).iter().map(|v| word(v.decision)).collect();
    assert_eq!(last, ["give-up", "lost", "lost"]);
}

#[test]
fn write_refused_for_want_of_a_zone_does_not_count_the_round() {
    let error = DeviceError::Zone(ZoneError::TooManyOpen);
    let facts = ZoneFacts { class: ZoneClass::Sequential, pointer: 0, capacity: CAPACITY, issued: 8 };
    let verdicts = plan(&[write(0, 8, error)], &facts);
    assert_eq!(verdicts, [Verdict { decision: Decision::Redrive, at: 0, covered: 0, rounds: 0 }]);
}
