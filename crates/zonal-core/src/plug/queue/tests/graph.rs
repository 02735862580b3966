//! States of a plug and the transitions between them, found by exploring all paths in a tiny zone.

use super::shell::{Sent, Shell, Write};
use super::*;
use crate::drawn_states;
use crate::plug::flight;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;

const TINY: Rules = Rules {
    zone: ZONE,
    capacity: 3,
    merge_sectors_max: 0,
    appends_in_flight_max: 2,
    writes_in_flight_max: 1,
};

/// Rules with a window, where a write takes a while to reach the device.
const WINDOW: Rules = Rules { appends_in_flight_max: 0, writes_in_flight_max: 2, ..TINY };

/// Limit of waiting requests: more of them add no new states.
const WAITING_MAX: usize = 2;

/// State according to the queue, checked against the commands at the device.
fn state(plug: &Shell) -> PlugState {
    let state = plug.queue.state(plug.word);
    let has = |f: fn(&Sent) -> bool| plug.sent.iter().any(f);
    assert_eq!(state == PlugState::Held, has(|s| *s == Sent::ResetAll), "{state:?}");
    assert_eq!(state == PlugState::Frozen, has(|s| matches!(s, Sent::Manage { .. })), "{state:?}");
    assert_eq!(state == PlugState::Asking, has(|s| *s == Sent::Report), "{state:?}");
    state
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum GraphStep {
    Write(u32),
    Append,
    Reset,
    End(usize),
    Fail(usize),
    Withdraw(usize),
    Retry(usize),
    Answer(u32),
    NoAnswer,
    Hold,
    Distrust,
    Issued,
}

/// All possible next steps.
fn steps(plug: &Shell) -> Vec<GraphStep> {
    let mut steps = vec![GraphStep::Distrust];
    if plug.queue.len() < WAITING_MAX {
        steps.extend((0..TINY.capacity).map(GraphStep::Write));
        steps.extend([GraphStep::Append, GraphStep::Reset]);
    }
    for (n, sent) in plug.sent.iter().enumerate() {
        match sent {
            Sent::Report => {
                steps.push(GraphStep::NoAnswer);
                steps.extend((0..=TINY.capacity).map(GraphStep::Answer));
                continue;
            }
            Sent::Write { native, at, sectors, .. } => {
                // In a window, a write that has reached the device cannot be withdrawn, and a write
                // that can be retried is issued alone.
                let is_window = plug.rules.writes_in_flight_max > 1;
                let is_on_its_way = plug.word.issuing() && at + sectors == plug.word.pointer();
                steps.extend((!is_window || is_on_its_way).then_some(GraphStep::Withdraw(n)));
                steps.extend((!native && !is_window).then_some(GraphStep::Retry(n)));
            }
            Sent::Manage { .. } | Sent::ResetAll => {}
        }
        steps.extend([GraphStep::End(n), GraphStep::Fail(n)]);
    }
    steps.extend(plug.word.issuing().then_some(GraphStep::Issued));
    if !plug.queue.hold.is_wanted() {
        steps.push(GraphStep::Hold);
    }
    steps
}

fn go(plug: &mut Shell, step: GraphStep) {
    let write = |kind| Write { kind, sectors: 1, mergeable: false };
    match step {
        GraphStep::Write(at) => plug.submit(0, write(WriteKind::At(at))),
        GraphStep::Append => plug.submit(0, write(WriteKind::Append)),
        GraphStep::Reset => plug.manage(0, Op::ZoneReset),
        GraphStep::End(n) => plug.end(n, true),
        GraphStep::Fail(n) => plug.end(n, false),
        GraphStep::Withdraw(n) => plug.withdraw(n),
        GraphStep::Retry(n) => plug.retry(n),
        GraphStep::Answer(pointer) => plug.answer(Some(Resync { class: ZoneClass::Sequential, pointer })),
        GraphStep::NoAnswer => plug.answer(None),
        GraphStep::Hold => plug.hold(),
        GraphStep::Distrust => plug.invalidate_pointer(),
        GraphStep::Issued => plug.issued(),
    }
}

/// Label of a step in the graph, with its sort position.
fn label(plug: &Shell, step: GraphStep) -> (usize, &'static str) {
    let sent = |n: usize| &plug.sent[n];
    match step {
        GraphStep::Write(_) => (0, "write"),
        GraphStep::Append => (1, "append"),
        GraphStep::Reset => (2, "reset"),
        GraphStep::End(n) => match sent(n) {
            Sent::Manage { .. } => (9, "managed"),
            Sent::ResetAll => (12, "released"),
            _ => (3, "end"),
        },
        GraphStep::Fail(n) => match sent(n) {
            Sent::Manage { .. } => (10, "management failed"),
            Sent::ResetAll => (13, "release failed"),
            _ => (4, "failure"),
        },
        GraphStep::Withdraw(_) => (5, "withdrawn"),
        GraphStep::Retry(_) => (6, "unsupported"),
        GraphStep::Answer(_) => (7, "answer"),
        GraphStep::NoAnswer => (8, "no answer"),
        GraphStep::Hold => (11, "hold"),
        GraphStep::Distrust => (14, "distrust"),
        GraphStep::Issued => (15, "issued"),
    }
}

fn replay(rules: Rules, path: &[GraphStep]) -> Shell {
    let mut plug = Shell::new(rules);
    plug.lags = true;
    path.iter().for_each(|&step| go(&mut plug, step));
    plug
}

#[test]
fn graph_of_states_is_the_drawn_one() {
    assert_graph(TINY, drawn_states("With one write at a time:"));
}

#[test]
fn graph_of_states_with_a_window_is_the_drawn_one() {
    assert_graph(WINDOW, drawn_states("With a window of writes in flight (mode `pipelined`):"));
}

/// Replays the record of a path that ends with an unknown pointer: each step must lead to the
/// recorded outcome.
fn assert_record_replays(rules: Rules, path: &[GraphStep]) {
    let mut plug = Shell::new(rules);
    plug.lags = true;
    for &step in path {
        // The record ends with the recovery.
        plug.queue.begin_flight();
        go(&mut plug, step);
    }
    plug.queue.begin_flight();
    plug.word = plug.queue.invalidate_report(plug.word);
    let record = plug.queue.flight(&rules).expect("a record has begun");
    let replayed = flight::replay(&record).unwrap_or_else(|e| panic!("{path:?}: {e}\n{record}"));
    assert_eq!(replayed.difference, None, "{path:?}\n{record}");
}

/// Explores all paths, checks the plug after each step, and compares the transitions with the
/// graph.
fn assert_graph(rules: Rules, drawn: &str) {
    let mut edges: BTreeMap<(PlugState, PlugState), BTreeSet<(usize, &str)>> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut paths = VecDeque::from([Vec::new()]);
    while let Some(path) = paths.pop_front() {
        let before = replay(rules, &path);
        for step in steps(&before) {
            let mut after = replay(rules, &path);
            go(&mut after, step);
            after.queue.check(after.word, &rules).unwrap_or_else(|e| panic!("{path:?} {step:?}: {e}"));
            let (from, to) = (state(&before), state(&after));
            if from != to {
                edges.entry((from, to)).or_default().insert(label(&before, step));
            }
            if seen.insert((after.word.0, format!("{:?} {:?}", after.queue, after.sent))) {
                let path = [path.as_slice(), &[step]].concat();
                assert_record_replays(rules, &path);
                paths.push_back(path);
            }
        }
    }
    let mut arrows = String::new();
    for ((from, to), labels) in edges {
        let labels: Vec<_> = labels.into_iter().map(|l| l.1).collect();
        writeln!(arrows, "  {} --> {}: {}", from.name(), to.name(), labels.join(", ")).unwrap();
    }
    assert_eq!(
        arrows.lines().collect::<Vec<_>>(),
        drawn.lines().collect::<Vec<_>>(),
        "{} states",
        seen.len()
    );
}
