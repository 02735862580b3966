//! Tests of the plug: golden tables, the graph of its states, and a naive model.

mod admit;
mod events;
mod graph;
mod model;
mod next;
mod shell;
mod slots;

use super::*;
use crate::plug::Admission;
use crate::units::ZoneIndex;
use std::fmt::Write;

const CAPACITY: u32 = 16;
const ZONE: ZoneIndex = ZoneIndex(3);

const fn rules(appends_in_flight_max: u32) -> Rules {
    Rules {
        zone: ZONE,
        capacity: CAPACITY,
        merge_sectors_max: 8,
        appends_in_flight_max,
        writes_in_flight_max: 1,
    }
}

/// Rules with a window of `writes_in_flight_max` writes.
const fn window(writes_in_flight_max: u32) -> Rules {
    Rules { writes_in_flight_max, ..rules(0) }
}

/// Rules that allow what any row of a table does.
const ALL: Rules = Rules { writes_in_flight_max: 3, ..rules(3) };

/// Rules of a row, and the rest of its name.
fn rules_of(row: &str) -> (Rules, &str) {
    match row.split_once(' ') {
        Some(("native", _)) => (rules(3), row),
        Some(("window", rest)) => (window(3), rest),
        _ => (rules(0), row),
    }
}

/// A table: names of the columns, and the rows with their names and cells. Lines that begin with
/// `#` are comments.
struct Table {
    columns: Vec<&'static str>,
    rows: Vec<(&'static str, Vec<&'static str>)>,
}

impl Table {
    fn parse(text: &'static str) -> Table {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        let mut rows = lines.map(|l| {
            let mut cells = l.split('|').map(str::trim);
            (cells.next().expect("a row has a name"), cells.collect::<Vec<_>>())
        });
        let (_, columns) = rows.next().expect("a table has a heading");
        let rows: Vec<_> = rows.collect();
        for (name, cells) in &rows {
            assert_eq!(cells.len(), columns.len(), "cells of row {name:?}");
        }
        Table { columns, rows }
    }

    /// Compares every cell with `ours` for (row, column). No row or column in `names` may be
    /// missing.
    fn compare(&self, rows: &[&str], columns: &[&str], ours: impl Fn(&str, &str) -> String) {
        assert_eq!(self.columns, columns, "columns of the table");
        assert_eq!(self.rows.iter().map(|r| r.0).collect::<Vec<_>>(), rows, "rows of the table");
        let mut differences = String::new();
        for (row, cells) in &self.rows {
            for (column, &golden) in self.columns.iter().zip(cells) {
                let ours = ours(row, column);
                if ours != golden {
                    writeln!(differences, "{row} in {column}: table {golden}, code {ours}").unwrap();
                }
            }
        }
        assert!(differences.is_empty(), "\n{differences}");
    }
}

/// Notation of an error in the tables.
fn error(e: RequestError) -> &'static str {
    match e {
        RequestError::NotAtWritePointer { .. } => "!place",
        RequestError::PredecessorLost { .. } => "!lost",
        RequestError::BeyondCapacity { .. } => "!cap",
        RequestError::ZoneFull { .. } => "!full",
        RequestError::ZoneReadOnly { .. } => "!ro",
        RequestError::ZoneOffline { .. } => "!off",
        RequestError::Conventional { .. } => "!cnv",
        e => panic!("a plug does not answer {e:?}"),
    }
}

/// Notation of a word in the tables: pointer, commands in flight, flags.
fn show(word: Word) -> String {
    let mut s = format!("{}/{}", word.pointer(), word.in_flight());
    let alone =
        word.completion_resumes(window(2).writes_in_flight_max) && word.in_flight() == 1 && !word.issuing();
    for (set, letter) in [
        (word.appending(), 'n'),
        (word.recovers(), 'r'),
        (word.frozen(), 'z'),
        (word.waits(), 'w'),
        (word.issuing(), 'i'),
        (alone, 'a'),
    ] {
        if set {
            s.push(letter);
        }
    }
    match word.class() {
        ZoneClass::Sequential => {}
        ZoneClass::Conventional => s.push_str("cnv"),
        ZoneClass::ReadOnly => s.push_str("ro"),
        ZoneClass::Offline => s.push_str("off"),
    }
    s
}

/// A word with `in_flight` commands in flight.
fn word(pointer: u32, in_flight: u32, native: bool) -> Word {
    let mut word = Word::new(ZoneClass::Sequential, pointer);
    for _ in 0..in_flight {
        word = word.issued(0, native);
    }
    word
}

/// A word with `in_flight` writes in flight while one is being submitted: one of these or, if 0,
/// one that has already completed.
fn issuing(pointer: u32, in_flight: u32) -> Word {
    let issuing = word(pointer, in_flight, false).issued_as(WriteKind::At(pointer), 0, &window(3));
    issuing.completed()
}

/// A word with one write in flight, issued alone.
fn alone(pointer: u32) -> Word {
    word(pointer, 0, false).issued_as(WriteKind::Alone(pointer), 0, &window(3))
}
