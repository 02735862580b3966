//! Flight recorder of a plug: what its queue was told and answered since something went wrong, as text that can be replayed.
//!
//! A record begins with the state of the queue when its zone's pointer came into doubt, and ends when recovery is over. A
//! zone without trouble has none. Each line is one call of the queue: the word before, the call, and what came of it. The
//! pure queue is a function of these, so [`replay`] makes the calls again and compares.
//!
//! ```text
//! zonal flight 1
//! rules zone=1 capacity=48 merge=16 appends=0 writes=1
//! begin asking=0 outdated=0 changed=0 gave-up=0 held=0 keeps=0 ahead=0 lost-at=- items=
//! 10400000008 fail positional:0+8 medium 0 =
//! 34000000008 next = 34000000008 Resync
//! ```

use super::item::{Item, RequestKind};
use super::queue::{Hold, Inquiry, Queue, Resync};
use super::recovery::{Addressed, Failed};
use super::word::{Rules, Word, WriteKind, ZoneClass};
use crate::command::Op;
use crate::error::DeviceError;
use crate::units::ZoneIndex;
use std::fmt::Write;

const MAGIC: &str = "zonal flight 1";

/// Lines after which a record begins again: recovery takes a few, and as many as there are arrivals meanwhile.
const LINES_MAX: usize = 256;

/// The record of one queue.
pub(super) struct FlightRecord {
    begin: String,
    lines: Vec<String>,
}

/// Not part of a queue's state: queues that differ in their past only are the same.
impl std::fmt::Debug for FlightRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flight")
    }
}

impl<T> Queue<T> {
    /// Begins a record, unless there is one. To be called before the first word of trouble: [`Queue::fail`],
    /// [`Queue::distrust`], [`Queue::unsettle`].
    pub fn begin_flight(&mut self) {
        if self.flight.is_none() {
            let begin = self.describe();
            self.flight = Some(Box::new(FlightRecord { begin, lines: Vec::new() }));
        }
    }

    /// Does a step and notes it, where there is a record; `call` describes it.
    pub(super) fn noted<R>(
        &mut self,
        before: Word,
        call: impl FnOnce() -> String,
        step: impl FnOnce(&mut Queue<T>) -> R,
        outcome: impl FnOnce(&R) -> String,
    ) -> R {
        // A step that is made of others is noted once.
        let Some(flight) = self.flight.take() else { return step(self) };
        let call = call();
        let result = step(self);
        self.flight = Some(flight);
        self.note(before, &call, &outcome(&result));
        result
    }

    /// Notes a step that was done.
    #[cold]
    pub(super) fn note(&mut self, before: Word, call: &str, outcome: &str) {
        let is_full = self.flight.as_ref().is_some_and(|f| f.lines.len() == LINES_MAX);
        let begin = if is_full { Some(self.describe()) } else { None };
        let Some(flight) = &mut self.flight else { return };
        match begin {
            Some(begin) => **flight = FlightRecord { begin, lines: Vec::new() },
            None => flight.lines.push(format!("{:x} {call} = {outcome}", before.0)),
        }
    }

    /// The record so far, if there is one.
    pub fn flight(&self, rules: &Rules) -> Option<String> {
        let Rules { zone, capacity, merge_sectors_max: merge, appends_in_flight_max: appends, .. } = rules;
        let writes = rules.writes_in_flight_max;
        let flight = self.flight.as_ref()?;
        let mut text = format!(
            "{MAGIC}\nrules zone={zone} capacity={capacity} merge={merge} appends={appends} writes={writes}\n"
        );
        for line in std::iter::once(&flight.begin).chain(&flight.lines) {
            writeln!(text, "{line}").expect("a string takes everything");
        }
        Some(text)
    }

    fn describe(&self) -> String {
        let flag = u8::from;
        let lost_at = self.lost_at.map_or("-".to_owned(), |at| at.to_string());
        let items: Vec<_> = self.items.shapes().map(|s| show_item(s.kind(), s.mergeable())).collect();
        format!(
            "begin asking={} outdated={} changed={} gave-up={} held={} keeps={} ahead={} lost-at={lost_at} items={}",
            flag(self.inquiry.is_report()),
            flag(self.inquiry == (Inquiry::Report { is_outdated: true })),
            flag(self.changed),
            flag(self.inquiry == Inquiry::GaveUp),
            flag(self.hold.is_wanted()),
            flag(self.hold.keeps()),
            self.hold.ahead(),
            items.join(",")
        )
    }
}

pub(super) fn show_word(word: &Word) -> String {
    format!("{:x}", word.0)
}

pub(super) fn show_item(kind: RequestKind, mergeable: bool) -> String {
    match kind {
        RequestKind::Write(WriteKind::At(at), sectors) => {
            format!("{at}+{sectors}{}", if mergeable { "m" } else { "" })
        }
        RequestKind::Write(WriteKind::Alone(at), sectors) => format!("alone:{at}+{sectors}"),
        RequestKind::Write(WriteKind::Append, sectors) => format!("append+{sectors}"),
        RequestKind::Manage(op) => op.name().to_owned(),
    }
}

pub(super) fn show_failed<T>(f: &Failed<T>) -> String {
    let addressed = match f.addressed {
        Addressed::Positional => "positional",
        Addressed::Emulated => "emulated",
        Addressed::Native => "native",
    };
    format!("{addressed}:{}+{} {} {}", f.at, f.sectors, show_error(f.error), f.rounds)
}

pub(super) fn show_error(error: DeviceError) -> String {
    match error {
        DeviceError::Os(errno) => format!("os:{errno}"),
        error => error.word().to_owned(),
    }
}

pub(super) fn show_pointer(pointer: Option<u32>) -> String {
    pointer.map_or("-".to_owned(), |p| p.to_string())
}

/// Makes the calls of a record again and compares what comes of them. Returns how many there were.
///
/// # Errors
/// The line that cannot be read, or whose call did something else than was recorded.
pub fn replay(text: &str) -> Result<usize, String> {
    let mut lines = text.lines().zip(1..).filter(|(l, _)| !l.starts_with('#'));
    let mut next = || lines.next().ok_or_else(|| "the record ends too early".to_owned());
    if next()?.0 != MAGIC {
        return Err("not a flight record of this version".into());
    }
    let rules = rules(next()?.0).ok_or("line 2 holds no rules")?;
    let mut queue = begin(next()?.0).ok_or("line 3 does not describe a queue")?;
    let mut calls = 0;
    for (line, number) in lines {
        let (call, outcome) = line.split_once(" = ").ok_or_else(|| format!("line {number}: no outcome"))?;
        let ours = make(&mut queue, call, &rules).ok_or_else(|| format!("line {number}: cannot be read"))?;
        if ours != outcome {
            return Err(format!("line {number}: {call}: recorded {outcome}, now {ours}"));
        }
        calls += 1;
    }
    Ok(calls)
}

fn field<T: std::str::FromStr>(line: &str, name: &str) -> Option<T> {
    line.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

fn rules(line: &str) -> Option<Rules> {
    Some(Rules {
        zone: ZoneIndex(field(line, "zone")?),
        capacity: field(line, "capacity")?,
        merge_sectors_max: field(line, "merge")?,
        appends_in_flight_max: field(line, "appends")?,
        writes_in_flight_max: field(line, "writes")?,
    })
}

fn begin(line: &str) -> Option<Queue<u32>> {
    let flag = |name| field::<u8>(line, name).map(|n| n == 1);
    let mut queue = Queue::default();
    let items: String = field(line, "items")?;
    for name in items.split(',').filter(|i| !i.is_empty()) {
        queue.items.push_back(item(name)?);
    }
    queue.inquiry = match (flag("asking")?, flag("gave-up")?) {
        // Records from before there were such have none.
        (true, _) => Inquiry::Report { is_outdated: flag("outdated").unwrap_or(false) },
        (false, true) => Inquiry::GaveUp,
        (false, false) => Inquiry::None,
    };
    queue.changed = flag("changed").unwrap_or(false);
    queue.hold = match (flag("held")?, flag("keeps")?) {
        (false, _) => Hold::None,
        (true, true) => Hold::Switch,
        (true, false) => Hold::Reset { ahead: field(line, "ahead")? },
    };
    queue.lost_at = field::<String>(line, "lost-at")?.parse().ok();
    Some(queue)
}

fn item(name: &str) -> Option<Item<u32>> {
    let (name, mergeable) = name.strip_suffix('m').map_or((name, false), |n| (n, true));
    let kind = match op(name) {
        Some(op) => RequestKind::Manage(op),
        None => {
            let (place, sectors) = name.split_once('+')?;
            let kind = match place {
                "append" => WriteKind::Append,
                at => match at.strip_prefix("alone:") {
                    Some(at) => WriteKind::Alone(at.parse().ok()?),
                    None => WriteKind::At(at.parse().ok()?),
                },
            };
            RequestKind::Write(kind, sectors.parse().ok()?)
        }
    };
    Some(Item { kind, mergeable, token: 0 })
}

fn op(name: &str) -> Option<Op> {
    let managed = [Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose, Op::ZoneOffline];
    managed.into_iter().find(|o| o.name() == name)
}

fn failed(words: &[&str]) -> Option<Failed<u32>> {
    let [place, error, rounds] = words else { return None };
    let (addressed, range) = place.split_once(':')?;
    let (at, sectors) = range.split_once('+')?;
    let addressed = match addressed {
        "positional" => Addressed::Positional,
        "emulated" => Addressed::Emulated,
        "native" => Addressed::Native,
        _ => return None,
    };
    let (at, sectors, rounds) = (at.parse().ok()?, sectors.parse().ok()?, rounds.parse().ok()?);
    Some(Failed { addressed, at, sectors, error: device_error(error)?, rounds, token: 0 })
}

fn device_error(word: &str) -> Option<DeviceError> {
    match word.strip_prefix("os:") {
        Some(errno) => Some(DeviceError::Os(errno.parse().ok()?)),
        None => DeviceError::from_word(word),
    }
}

fn class(name: &str) -> Option<ZoneClass> {
    let all = [ZoneClass::Sequential, ZoneClass::Conventional, ZoneClass::ReadOnly, ZoneClass::Offline];
    all.into_iter().find(|c| format!("{c:?}") == name)
}

/// Makes one call and shows what came of it, or `None` if it cannot be read.
fn make(queue: &mut Queue<u32>, line: &str, rules: &Rules) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let (word, call) = words.split_first()?;
    let word = Word(u64::from_str_radix(word, 16).ok()?);
    let mut out = Vec::new();
    let nothing = String::new;
    Some(match *call {
        ["push", name] => show_word(&queue.push(word, item(name)?)),
        ["front", name] => show_word(&queue.push_front(word, item(name)?)),
        ["manage", name] => show_word(&queue.push_management(word, op(name)?, 0, &mut out)),
        ["abort"] => {
            queue.abort_writes(&mut out);
            out.len().to_string()
        }
        ["cancel", ref places @ ..] => {
            let places: Option<Vec<usize>> = places.iter().map(|place| place.parse().ok()).collect();
            queue.cancel_at(word, &places?, &mut out);
            out.len().to_string()
        }
        ["next"] => show_next(&queue.next(word, rules)),
        ["pop"] if queue.is_empty() => return None,
        ["pop"] => {
            queue.pop();
            nothing()
        }
        ["fail", ref f @ ..] => {
            queue.fail(word, failed(f)?);
            nothing()
        }
        ["unsettle"] => show_word(&queue.unsettle(word)),
        ["settled"] => {
            queue.settled();
            nothing()
        }
        ["cannot-settle"] => show_word(&queue.cannot_settle(word, &mut out).0),
        ["abandon"] => queue.abandon().len().to_string(),
        ["resynced", name, pointer] => {
            let resync = Resync { class: class(name)?, pointer: pointer.parse().ok()? };
            show_decided(&queue.resynced(word, resync, rules))
        }
        ["resync-failed"] => {
            queue.resync_failed(&mut out);
            out.len().to_string()
        }
        ["read-back", ref f @ ..] => {
            queue.read_back(failed(f)?);
            nothing()
        }
        ["take-covered"] => show_failed(&queue.take_covered()),
        ["was-read-back", lost] => {
            queue.was_read_back(word, lost == "lost");
            nothing()
        }
        ["starve", error] => {
            queue.wait_for_slot(device_error(error)?);
            nothing()
        }
        ["feed"] => {
            queue.try_again();
            nothing()
        }
        ["give-up"] => {
            queue.give_up(word);
            nothing()
        }
        ["doubt"] => show_word(&queue.doubt(word)),
        ["distrust"] => show_word(&queue.distrust(word)),
        ["managed", pointer] => show_word(&queue.managed(word, pointer.parse().ok())),
        ["hold"] => show_word(&queue.hold(word, &mut out)),
        ["pause"] => show_word(&queue.pause(word)),
        ["release", pointer] => show_word(&queue.release(word, pointer.parse().ok())),
        _ => return None,
    })
}

pub(super) fn show_next((word, next): &(Word, super::queue::Next)) -> String {
    format!("{:x} {next:?}", word.0)
}

pub(super) fn show_decided<T>(
    (word, decided): &(Word, Vec<(Failed<T>, super::recovery::Verdict)>),
) -> String {
    let verdicts: Vec<_> = decided.iter().map(|(_, v)| format!("{:?}:{}", v.decision, v.covered)).collect();
    format!("{:x} {}", word.0, verdicts.join(","))
}
