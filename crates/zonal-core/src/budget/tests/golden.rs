//! Every state of one zone and every event, compared with a table written by hand. No tool
//! generates it.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

const TABLE: &str = include_str!("../../../tests/data/budget.txt");
const ZONE: u32 = 7;
const OTHER: u32 = 1;

/// A budget with the zone in this state.
fn state(name: &str) -> Budget {
    let policy = if name.starts_with("Oc") { Policy::Close } else { Policy::Wait };
    let mut b = budget(1, 2, policy);
    match name {
        "-" => {}
        "-w" | "Cw" => {
            b.write(OTHER);
            if name == "Cw" {
                b.is_now(ZONE, ZoneCondition::Closed);
            }
            assert_eq!(b.ask(ZONE), Acquired::Wait);
        }
        "Or" | "Or(C)" => {
            if name == "Or(C)" {
                b.is_now(ZONE, ZoneCondition::Closed);
            }
            assert_eq!(b.ask(ZONE), Acquired::Granted);
        }
        "O" => b.is_now(ZONE, ZoneCondition::ImpOpen),
        "X" => b.is_now(ZONE, ZoneCondition::ExpOpen),
        "O1" => b.write(ZONE),
        "C" => b.is_now(ZONE, ZoneCondition::Closed),
        "Oc" | "Ocw" => {
            b.is_now(ZONE, ZoneCondition::ImpOpen);
            assert_eq!(b.ask(OTHER), Acquired::Wait);
            assert_eq!(b.steps(), [close(ZONE)]);
            if name == "Ocw" {
                assert_eq!(b.ask(ZONE), Acquired::Wait);
            }
        }
        _ => panic!("{name}"),
    }
    b
}

fn play(b: &mut Budget, event: &str) -> &'static str {
    match event {
        "acquire" => match b.ask(ZONE) {
            Acquired::Granted => return "+",
            Acquired::Wait => return "?",
            Acquired::Fail(_) => return "!",
        },
        "started" => b.write_started(ZoneIndex(ZONE)),
        "ended" => b.write_ended(ZoneIndex(ZONE), fill(10)),
        "empty" => b.is_now(ZONE, ZoneCondition::Empty),
        "opened" => b.is_now(ZONE, ZoneCondition::ImpOpen),
        "explicit" => b.is_now(ZONE, ZoneCondition::ExpOpen),
        "closed" => b.is_now(ZONE, ZoneCondition::Closed),
        "full" => b.is_now(ZONE, ZoneCondition::Full),
        "offline" => b.is_now(ZONE, ZoneCondition::Offline),
        "cancel" => b.cancel(ZoneIndex(ZONE)),
        _ => panic!("{event}"),
    }
    ""
}

fn cell(column: &str, event: &str) -> String {
    let mut b = state(column);
    let Ok((answer, woken)) = catch_unwind(AssertUnwindSafe(|| {
        let answer = play(&mut b, event);
        (answer, if b.steps().contains(&wake(ZONE)) { ">" } else { "" })
    })) else {
        return "panic".into();
    };
    format!("{answer}{}{woken}", b.show(ZoneIndex(ZONE)))
}

#[test]
fn every_event_in_every_zone_state_matches_the_table() {
    let mut rows = TABLE.lines().filter(|l| !l.starts_with('#')).map(|l| l.split('|').map(str::trim));
    let columns: Vec<&str> = rows.next().unwrap().skip(1).collect();
    assert_eq!(columns, ["-", "-w", "Or", "Or(C)", "O", "X", "O1", "C", "Cw", "Oc", "Ocw"]);
    let mut events = 0;
    let mut differences = Vec::new();
    for mut row in rows {
        let event = row.next().unwrap();
        let cells: Vec<&str> = row.collect();
        assert_eq!(cells.len(), columns.len(), "cells of row {event}");
        for (column, golden) in columns.iter().zip(cells) {
            let ours = cell(column, event);
            if ours != golden {
                differences.push(format!("{event} in {column}: table {golden}, code {ours}"));
            }
        }
        events += 1;
    }
    assert_eq!(events, 10);
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}
