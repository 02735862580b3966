//! The state machine compared with tables and graphs written by hand from the specification. They
//! are an independent statement of the rules: if one differs from the code, find out which is
//! wrong. No tool generates them.

use super::*;
use crate::drawn_states;
use std::fmt::Write;

const CAPACITY: u32 = 16;

const ZNS_TABLE: &str = include_str!("../../../tests/data/device-zone-zns.txt");
const ZBC_TABLE: &str = include_str!("../../../tests/data/device-zone-zbc.txt");

/// Every event in every variant with a row in the table. `p` is the pointer, `left` the remaining
/// capacity.
fn events(p: u32, left: u32) -> Vec<(&'static str, ZoneEvent)> {
    use ZoneEvent::*;
    vec![
        ("write p 4", Write { offset: p, sectors: 4 }),
        ("write p fill", Write { offset: p, sectors: left }),
        ("write p fill+1", Write { offset: p, sectors: left + 1 }),
        ("write 4 4", Write { offset: 4, sectors: 4 }),
        ("write 4 13", Write { offset: 4, sectors: 13 }),
        ("append 4", Append { sectors: 4 }),
        ("append fill", Append { sectors: left }),
        ("append fill+1", Append { sectors: left + 1 }),
        ("begin p 4", BeginWrite { offset: p, sectors: 4 }),
        ("begin p fill", BeginWrite { offset: p, sectors: left }),
        ("begin p fill+1", BeginWrite { offset: p, sectors: left + 1 }),
        ("begin 4 4", BeginWrite { offset: 4, sectors: 4 }),
        ("end", EndWrite),
        ("fail 0 4", FailWrite { offset: 0, sectors: 4 }),
        ("fail 4 4", FailWrite { offset: 4, sectors: 4 }),
        ("fail 0 8", FailWrite { offset: 0, sectors: 8 }),
        ("fail 8 8", FailWrite { offset: 8, sectors: 8 }),
        ("open", Open),
        ("close", Close),
        ("finish", Finish),
        ("reset", Reset),
        ("read-only", SetReadOnly),
        ("offline", SetOffline),
        ("offline command", Offline),
        ("restore", Restore),
        ("implicit close", ImplicitClose),
        ("restart", Restart),
    ]
}

/// Label of an event in the graph. Exhaustive on purpose: a new event also needs a row in the
/// tables.
fn label(event: ZoneEvent) -> &'static str {
    match event {
        ZoneEvent::Write { .. } | ZoneEvent::Append { .. } => "write",
        ZoneEvent::BeginWrite { .. } | ZoneEvent::EndWrite => "write",
        ZoneEvent::FailWrite { .. } => "failed write",
        ZoneEvent::Open => "open",
        ZoneEvent::Close => "close",
        ZoneEvent::Finish => "finish",
        ZoneEvent::Reset => "reset",
        ZoneEvent::SetReadOnly => "read-only",
        ZoneEvent::SetOffline => "offline",
        ZoneEvent::Offline => "offline command",
        ZoneEvent::Restore => "restore",
        ZoneEvent::ImplicitClose => "implicit close",
        ZoneEvent::Restart => "restart",
    }
}

fn letter(condition: ZoneCondition) -> char {
    match condition {
        ZoneCondition::NotWp => 'N',
        ZoneCondition::Empty => 'E',
        ZoneCondition::ImpOpen => 'I',
        ZoneCondition::ExpOpen => 'X',
        ZoneCondition::Closed => 'C',
        ZoneCondition::ReadOnly => 'R',
        ZoneCondition::Full => 'F',
        ZoneCondition::Offline => 'O',
    }
}

fn cell(before: ZoneState, outcome: Result<Transition, ZoneError>) -> String {
    let step = match outcome {
        Ok(step) => step,
        Err(ZoneError::InvalidWrite) => return "!inv".into(),
        Err(ZoneError::Boundary) => return "!bnd".into(),
        Err(ZoneError::Full) => return "!full".into(),
        Err(ZoneError::ReadOnly) => return "!ro".into(),
        Err(ZoneError::Offline) => return "!off".into(),
        Err(ZoneError::InvalidTransition) => return "!zit".into(),
        Err(ZoneError::Conventional) => return "!cnv".into(),
        Err(ZoneError::TooManyActive | ZoneError::TooManyOpen) => panic!("resources are not known here"),
        Err(ZoneError::Sequential) => panic!("no event is for conventional zones only"),
    };
    if (step.state, step.placed, step.needs) == (before, None, Needs::Nothing) {
        return "=".into();
    }
    let mut cell = format!("{}{}", letter(step.state.condition), step.state.written);
    if let Some(at) = step.placed {
        write!(cell, "@{at}").unwrap();
    }
    cell + match step.needs {
        Needs::Nothing => "",
        Needs::Open => "+o",
        Needs::Active => "+c",
        Needs::ActiveAndOpen => "+a",
    }
}

fn parse_state(column: &str) -> ZoneState {
    let (name, written) = column.split_at(1);
    let condition = ZoneCondition::ALL.into_iter().find(|&c| letter(c).to_string() == name).unwrap();
    state(condition, written.parse().unwrap())
}

fn compare_with_table(personality: Personality, table: &str) {
    let mut rows = table
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split('|').map(str::trim).collect::<Vec<_>>());
    let columns: Vec<ZoneState> = rows.next().unwrap()[1..].iter().map(|c| parse_state(c)).collect();
    for condition in ZoneCondition::ALL {
        assert!(columns.iter().any(|s| s.condition == condition), "no column for {condition}");
    }
    let rows: Vec<_> = rows.collect();
    let names: Vec<_> = rows.iter().map(|r| r[0]).collect();
    let expected: Vec<_> = events(0, 0).iter().map(|e| e.0).collect();
    assert_eq!(names, expected, "rows of the table");
    let mut differences = String::new();
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), columns.len() + 1, "cells of row {:?}", row[0]);
        for (&before, &golden) in columns.iter().zip(&row[1..]) {
            let left = (CAPACITY - before.written).max(1);
            let (name, event) = events(before.written, left)[i];
            let ours = cell(before, step(personality, CAPACITY, before, event));
            if ours != golden {
                writeln!(differences, "{name} in {before:?}: table {golden}, code {ours}").unwrap();
            }
        }
    }
    assert!(differences.is_empty(), "{personality:?}\n{differences}");
}

#[test]
fn every_event_in_every_condition_follows_zns() {
    compare_with_table(Personality::Zns, ZNS_TABLE);
}

#[test]
fn every_event_in_every_condition_follows_zbc() {
    compare_with_table(Personality::Zbc, ZBC_TABLE);
}

/// Transitions between conditions, from all consistent states of a small zone, in the notation of
/// docs/STATES.md.
fn graph(personality: Personality) -> String {
    const CAPACITY: u32 = 4;
    let mut arrows = String::new();
    for from in ZoneCondition::ALL {
        for to in ZoneCondition::ALL.into_iter().filter(|&to| to != from) {
            let mut labels: Vec<&str> = Vec::new();
            for event in all_events(CAPACITY) {
                let leads_there = |written| {
                    let before = state(from, written);
                    before.is_consistent(CAPACITY)
                        && step(personality, CAPACITY, before, event).is_ok_and(|s| s.state.condition == to)
                };
                if (0..=CAPACITY).any(leads_there) && !labels.contains(&label(event)) {
                    labels.push(label(event));
                }
            }
            if !labels.is_empty() {
                writeln!(arrows, "  {from} --> {to}: {}", labels.join(", ")).unwrap();
            }
        }
    }
    arrows
}

fn all_events(capacity: u32) -> Vec<ZoneEvent> {
    let mut all: Vec<ZoneEvent> = Vec::new();
    for p in 0..=capacity {
        for left in 1..=capacity {
            let writes = events(p, left).into_iter().map(|e| e.1);
            all.extend(writes.take_while(|e| label(*e) == "write"));
            all.push(ZoneEvent::FailWrite { offset: p, sectors: left });
        }
    }
    all.sort_by_key(|e| label(*e) == "failed write");
    all.extend(events(0, 1).into_iter().map(|e| e.1).filter(|e| !label(*e).ends_with("write")));
    all
}

#[test]
fn graph_of_conditions_is_the_drawn_one() {
    assert_eq!(graph(Personality::Zns), drawn_states("Of a ZNS drive:"));
    assert_eq!(graph(Personality::Zbc), drawn_states("Of a ZBC or ZAC disk:"));
}
