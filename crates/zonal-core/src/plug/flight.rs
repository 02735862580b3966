//! Flight recorder of a plug: a replayable text record of the calls of its queue since a failure,
//! with their outcomes.
//!
//! A record begins with the state of the queue when the zone's write pointer became unknown, and
//! ends with the recovery. Zones without failures have none. Each line is one call of the queue:
//! the word before it, the call and its outcome. The queue is a pure function of these, so
//! [`replay`] repeats the calls and compares. The last line has the 64-bit FNV-1a checksum of the
//! preceding text.
//!
//! ```text
//! zonal flight 2
//! rules zone=1 capacity=48 merge=16 appends=0 writes=1
//! begin asking=0 outdated=0 changed=0 gave-up=0 held=0 keeps=0 ahead=0 lost-at=- items=
//! 10400000008 fail positional:0+8 medium 0 =
//! 34000000008 next = 34000000008 Resync
//! end fnv=SUM
//! ```

use super::item::{Item, RequestKind};
use super::queue::{Hold, Inquiry, Queue, Resync};
use super::recovery::{Addressed, Decision, ErrorClass, Failed};
use super::word::{IN_FLIGHT_MAX, Rules, Word, WriteKind, ZoneClass};
use crate::command::Op;
use crate::error::DeviceError;
use crate::units::ZoneIndex;
use std::fmt::Write;

const MAGIC: &str = "zonal flight 2";

const TRUNCATED: &str = "truncated record: missing `end` line";

/// Lines after which a record is restarted. Recovery takes a few, plus one for each arrival
/// meanwhile.
const LINES_MAX: usize = 256;

/// Record of one queue.
pub(super) struct FlightRecord {
    begin: String,
    lines: Vec<String>,
}

/// Always the same text, since queues that differ only in their history are equal.
impl std::fmt::Debug for FlightRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flight")
    }
}

impl<T> Queue<T> {
    /// Starts a record, unless there is one. Must be called before the first call that makes the
    /// pointer unknown: [`Queue::fail`], [`Queue::invalidate_pointer`], [`Queue::unsettle`].
    pub fn begin_flight(&mut self) {
        if self.flight.is_none() {
            let begin = self.describe();
            self.flight = Some(Box::new(FlightRecord { begin, lines: Vec::new() }));
        }
    }

    /// Performs a step and records it if there is a record. `call` describes it.
    pub(super) fn noted<R>(
        &mut self,
        before: Word,
        call: impl FnOnce() -> String,
        step: impl FnOnce(&mut Queue<T>) -> R,
        outcome: impl FnOnce(&R) -> String,
    ) -> R {
        // Nested steps are not recorded, only the outermost one.
        let Some(flight) = self.flight.take() else { return step(self) };
        let call = call();
        let result = step(self);
        self.flight = Some(flight);
        self.note(before, &call, &outcome(&result));
        result
    }

    /// Records a completed step.
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

    /// Text of the record so far, if there is one.
    pub fn flight(&self, rules: &Rules) -> Option<String> {
        let flight = self.flight.as_ref()?;
        let mut text = format!("{MAGIC}\n{}\n", show_rules(rules));
        for line in std::iter::once(&flight.begin).chain(&flight.lines) {
            writeln!(text, "{line}").expect("a string takes everything");
        }
        text += &end_of(&text);
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

/// Last line of a record, with the checksum of the lines before it. Needed by tests that edit a
/// record.
pub fn end_of(text: &str) -> String {
    let sum = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    format!("end fnv={sum:016x}\n")
}

fn show_rules(rules: &Rules) -> String {
    let Rules { zone, capacity, merge_sectors_max: merge, appends_in_flight_max: appends, .. } = rules;
    let writes = rules.writes_in_flight_max;
    format!("rules zone={zone} capacity={capacity} merge={merge} appends={appends} writes={writes}")
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

/// Fate of a write, as decided by a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// First sector, from the zone's start.
    pub at: u32,
    /// Length, in sectors.
    pub sectors: u32,
    /// Error of the device, if the record has it.
    pub error: Option<DeviceError>,
    /// Decision of recovery.
    pub decision: Decision,
    /// Sectors of the write below the device's write pointer.
    pub covered: u32,
}

impl Fate {
    /// True if the write is neither resubmitted nor read back.
    pub fn is_lost(&self) -> bool {
        !matches!(self.decision, Decision::Redrive | Decision::Verify)
    }

    /// Fate of a failed write that ends without a decision.
    fn undecided(f: &Failed<u32>) -> Fate {
        let is_unknown = matches!(ErrorClass::of(f.error), ErrorClass::Maybe | ErrorClass::Unknown);
        let decision = if is_unknown { Decision::Unknown } else { Decision::Fail };
        Fate { at: f.at, sectors: f.sectors, error: Some(f.error), decision, covered: 0 }
    }
}

/// A replayed call of a record.
#[derive(PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// Line of the record, from 1.
    pub line: usize,
    /// Word of the zone at the call; zero if the call takes none.
    pub word: Word,
    /// Name and arguments.
    pub call: &'a str,
    /// Recorded outcome.
    pub outcome: &'a str,
    /// Writes decided by the call.
    pub fates: Vec<Fate>,
}

/// A replayed record.
#[derive(PartialEq, Eq, Debug)]
pub struct Replay<'a> {
    /// Rules of the zone.
    pub rules: Rules,
    /// Requests waiting at the start, in the notation of calls, separated by commas.
    pub waiting: &'a str,
    /// Calls up to the first one with a different outcome.
    pub calls: Vec<Call<'a>>,
    /// First difference: line, call, and both outcomes.
    pub difference: Option<String>,
}

/// Repeats the calls of a record and compares the outcomes.
///
/// # Errors
/// The text is not a complete record of this version, or one of its lines is invalid.
pub fn replay(text: &str) -> Result<Replay<'_>, String> {
    let mut lines = checked(text)?.lines().zip(1..).skip(1);
    let mut next = || lines.next().ok_or_else(|| TRUNCATED.to_owned());
    let (rules_line, number) = next()?;
    let rules = rules(rules_line).ok_or_else(|| format!("line {number}: invalid rules: {rules_line:?}"))?;
    let (begin_line, number) = next()?;
    let queue = begin(begin_line).ok_or_else(|| format!("line {number}: invalid state: {begin_line:?}"))?;
    let mut player = Player::new(queue, rules);
    let waiting = begin_line.rsplit_once("items=").map_or("", |(_, items)| items);
    let mut replay = Replay { rules, waiting, calls: Vec::new(), difference: None };
    for (line, number) in lines {
        let invalid = || format!("line {number}: invalid call for this state: {line:?}");
        let (call, outcome) = line.split_once(" = ").ok_or_else(invalid)?;
        if replay.difference.is_some() {
            continue;
        }
        let (word, ours) = player.make(call).ok_or_else(invalid)?;
        let call = call.split_once(' ').map_or("", |(_, call)| call);
        if ours != outcome {
            replay.difference = Some(format!("line {number}: {call}: recorded {outcome:?}, now {ours:?}"));
        }
        replay.calls.push(Call {
            line: number,
            word,
            call,
            outcome,
            fates: std::mem::take(&mut player.fates),
        });
        if replay.calls.len() > LINES_MAX {
            return Err(invalid());
        }
    }
    Ok(replay)
}

/// Verifies the last line of a record and returns the lines before it.
fn checked(text: &str) -> Result<&str, String> {
    let magic = text.lines().next().unwrap_or_default();
    if magic != MAGIC {
        let version = magic.strip_prefix("zonal flight ").and_then(|version| version.parse::<u32>().ok());
        return Err(match version {
            Some(_) => "written by another version of Zonal; explain it with that version".to_owned(),
            None => "not a flight record".to_owned(),
        });
    }
    let (body, end) = text.rfind("\nend ").map_or((text, ""), |at| text.split_at(at + 1));
    match end_of(body) {
        expected if expected.trim_end() == end.trim_end() => Ok(body),
        expected if expected.len() > end.len() => Err(TRUNCATED.to_owned()),
        _ => Err("damaged record: wrong checksum".to_owned()),
    }
}

fn field<T: std::str::FromStr>(line: &str, name: &str) -> Option<T> {
    line.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

fn rules(line: &str) -> Option<Rules> {
    let in_flight = |name| field(line, name).filter(|most| *most <= IN_FLIGHT_MAX);
    let rules = Rules {
        zone: ZoneIndex(field(line, "zone")?),
        capacity: field(line, "capacity")?,
        merge_sectors_max: field(line, "merge")?,
        appends_in_flight_max: in_flight("appends")?,
        writes_in_flight_max: in_flight("writes")?,
    };
    (show_rules(&rules) == line).then_some(rules)
}

fn begin(line: &str) -> Option<Queue<u32>> {
    let flag = |name| field::<u8>(line, name).map(|n| n == 1);
    let mut queue = Queue::default();
    let items: String = field(line, "items")?;
    for name in items.split(',').filter(|i| !i.is_empty()) {
        queue.items.push_back(item(name)?);
    }
    queue.inquiry = match (flag("asking")?, flag("gave-up")?) {
        (true, _) => Inquiry::Report { is_outdated: flag("outdated")? },
        (false, true) => Inquiry::GaveUp,
        (false, false) => Inquiry::None,
    };
    queue.changed = flag("changed")?;
    queue.hold = match (flag("held")?, flag("keeps")?) {
        (false, _) => Hold::None,
        (true, true) => Hold::Switch,
        (true, false) => Hold::Reset { ahead: field(line, "ahead").filter(|n| *n <= queue.items.len())? },
    };
    queue.lost_at = field::<String>(line, "lost-at")?.parse().ok();
    // Rejects unknown fields and other spellings, which the replay would ignore.
    (queue.describe() == line).then_some(queue)
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
    let (at, sectors, rounds) = (at.parse::<u32>().ok()?, sectors.parse().ok()?, rounds.parse::<u8>().ok()?);
    at.checked_add(sectors)?;
    rounds.checked_add(1)?;
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

/// Queue that calls are replayed on.
struct Player {
    queue: Queue<u32>,
    rules: Rules,
    /// Total sectors of failed writes, bounded by what recovery can add up.
    failed_sectors: u32,
    /// Error that denied the zone a slot, after its wait has ended.
    denied: Option<DeviceError>,
    /// Write being read back.
    covered: Option<Failed<u32>>,
    fates: Vec<Fate>,
}

impl Player {
    fn new(queue: Queue<u32>, rules: Rules) -> Player {
        Player { queue, rules, failed_sectors: 0, denied: None, covered: None, fates: Vec::new() }
    }

    /// Replays one call. Returns the word at the call and the outcome, or `None` if the call is
    /// invalid or impossible in this state, where the queue would panic.
    fn make(&mut self, line: &str) -> Option<(Word, String)> {
        let words: Vec<&str> = line.split(' ').collect();
        let (word, call) = words.split_first()?;
        let word = Word(u64::from_str_radix(word, 16).ok()?);
        let Player { queue, rules, fates, .. } = self;
        let is_asked = queue.inquiry.is_report() && word.recovers() && !word.is_busy();
        let mut out = Vec::new();
        let nothing = String::new;
        let outcome = match *call {
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
            ["pop"] if !queue.is_empty() => {
                queue.pop();
                nothing()
            }
            ["fail", ref f @ ..] if word.recovers() => {
                let failed = failed(f)?;
                self.failed_sectors = self.failed_sectors.checked_add(failed.sectors)?;
                queue.fail(word, failed);
                nothing()
            }
            ["unsettle"] => show_word(&queue.unsettle(word)),
            ["settled"] => {
                queue.settled();
                nothing()
            }
            ["cannot-settle"] => {
                let (word, failed) = queue.cannot_settle(word, &mut out);
                fates.extend(failed.iter().map(Fate::undecided));
                show_word(&word)
            }
            ["abandon"] => {
                let failed = queue.abandon();
                fates.extend(failed.iter().map(Fate::undecided));
                failed.len().to_string()
            }
            ["resynced", name, pointer] if is_asked => {
                let resync = Resync { class: class(name)?, pointer: pointer.parse().ok()? };
                let decided = queue.resynced(word, resync, rules);
                fates.extend(decided.1.iter().map(|(f, v)| Fate {
                    at: v.at,
                    sectors: f.sectors,
                    error: Some(f.error),
                    decision: v.decision,
                    covered: v.covered,
                }));
                show_decided(&decided)
            }
            ["resync-failed"] if queue.inquiry.is_report() => {
                queue.resync_failed(&mut out);
                out.len().to_string()
            }
            ["read-back", ref f @ ..] => {
                queue.read_back(failed(f)?);
                nothing()
            }
            ["take-covered"] if queue.has_covered() => {
                let covered = queue.take_covered();
                self.covered = Some(covered);
                show_failed(&covered)
            }
            ["was-read-back", found @ ("lost" | "found")]
                if matches!(queue.inquiry, Inquiry::ReadBack { .. }) =>
            {
                queue.was_read_back(word, found == "lost");
                // Recovery has already decided about writes that failed with a medium error.
                let covered = self.covered.take().filter(|f| ErrorClass::of(f.error) != ErrorClass::Medium);
                let lost = covered.filter(|_| found == "lost");
                fates.extend(lost.map(|f| Fate { decision: Decision::Unknown, ..Fate::undecided(&f) }));
                nothing()
            }
            ["starve", error] => {
                queue.wait_for_slot(device_error(error)?);
                nothing()
            }
            ["feed"] => {
                self.denied = queue.try_again();
                nothing()
            }
            ["give-up"] => {
                let RequestKind::Write(kind, sectors) = queue.items.front()?.0.kind() else { return None };
                let at = match kind {
                    WriteKind::At(at) | WriteKind::Alone(at) => at,
                    WriteKind::Append => word.pointer(),
                };
                queue.give_up(word);
                fates.push(Fate { at, sectors, error: self.denied, decision: Decision::GiveUp, covered: 0 });
                nothing()
            }
            ["doubt"] => show_word(&queue.invalidate_report(word)),
            ["distrust"] => show_word(&queue.invalidate_pointer(word)),
            ["managed", pointer] if word.frozen() => show_word(&queue.managed(word, pointer.parse().ok())),
            ["hold"] => show_word(&queue.hold(word, &mut out)),
            ["pause"] => show_word(&queue.pause(word)),
            ["release", pointer] if word.frozen() => show_word(&queue.release(word, pointer.parse().ok())),
            _ => return None,
        };
        Some((word, outcome))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Placeholders: `N` is a number, `I` a request, `F` a failed write, `E` an error.
    const CALLS: &str = "push I;push I;front I;manage reset;manage open;abort;cancel N N;next;next;next;pop;fail F E 0;\
        fail F E 0;fail F E 0;fail F E 0;fail F E 0;fail F E N;unsettle;settled;cannot-settle;abandon;resynced Sequential N;\
        resynced Offline N;resync-failed;read-back F E N;take-covered;was-read-back lost;was-read-back found;starve E;feed;\
        give-up;doubt;distrust;managed N;managed -;hold;pause;release N";

    /// The last ones are not valid everywhere.
    const NUMBERS: [&str; 9] =
        ["0", "1", "8", "255", "4294967294", "4294967295", "4294967296", "18446744073709551615", "-"];

    fn filled() -> impl Strategy<Value = String> {
        let number = || select(&NUMBERS[..]);
        let place = select(&["", "alone:", "append+"][..]);
        let addressed = select(&["positional", "emulated", "native"][..]);
        let error = select(&["medium", "busy", "invalid-write", "timed-out", "os:5"][..]);
        let merged = select(&["", "m"][..]);
        let numbers = [number(), number(), number()];
        let calls: Vec<&str> = CALLS.split(';').collect();
        (select(calls), place, addressed, numbers, error, merged, any::<bool>()).prop_map(
            |(call, place, addressed, [a, b, c], error, merged, is_long)| {
                let fill = |part: &str| match part {
                    "N" => c.to_owned(),
                    "I" if place == "append+" => format!("append+{a}"),
                    "I" => format!("{place}{a}+{b}{merged}"),
                    "F" if is_long => format!("{addressed}:0+4294967294"),
                    "F" => format!("{addressed}:{a}+{b}"),
                    "E" => error.to_owned(),
                    part => part.to_owned(),
                };
                call.split(' ').map(fill).collect::<Vec<_>>().join(" ")
            },
        )
    }

    /// Any word, and words of a zone in recovery with nothing in flight.
    fn word() -> impl Strategy<Value = u64> {
        let recovering = Word::new(ZoneClass::Sequential, 8).recovering().0;
        prop_oneof![any::<u64>(), Just(recovering), Just(recovering | u64::from(u32::MAX))]
    }

    const RULES: &str = "rules zone=1 capacity=48 merge=16 appends=0 writes=1";
    const BEGIN: &str =
        "begin asking=0 outdated=0 changed=0 gave-up=0 held=0 keeps=0 ahead=0 lost-at=- items=8+8,reset";

    fn record(rules: &str, begin: &str) -> String {
        let text = format!("{MAGIC}\n{rules}\n{begin}\n10400000008 next = 0 Nothing\n");
        format!("{text}{}", end_of(&text))
    }

    #[test]
    fn record_that_was_changed_is_an_error() {
        let text = record(RULES, BEGIN);
        assert!(replay(&text).is_ok());
        for place in text.match_indices(|c: char| c.is_ascii_digit()).map(|(place, _)| place) {
            let mut changed = text.clone().into_bytes();
            changed[place] ^= 1;
            assert!(replay(std::str::from_utf8(&changed).unwrap()).is_err(), "changed at {place}");
        }
        for end in 0..text.len() - 1 {
            assert!(replay(&text[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn field_that_is_unknown_or_not_as_written_is_an_error() {
        for (from, to) in [
            ("zone=1", "zone=+1"),
            ("zone=1", "zone=1 zone=2"),
            ("outdated=0", "outdated=1"),
            ("changed=0", "changed=2"),
            ("held=0", "held=00"),
            ("ahead=0", "ahead=1"),
            ("lost-at=-", "lost-at=x"),
            ("lost-at=-", "lost-at=+8"),
            ("ahead=0", "ahead=0 behind=0"),
            ("items=8+8", "items=+8+8"),
        ] {
            assert!(RULES.contains(from) || BEGIN.contains(from), "{from}");
            let error = replay(&record(&RULES.replace(from, to), &BEGIN.replace(from, to))).unwrap_err();
            assert!(error.contains(": invalid "), "{to}: {error}");
        }
        assert!(replay(&record(RULES, &BEGIN.replace("lost-at=-", "lost-at=8"))).is_ok());
    }

    #[test]
    fn replay_distinguishes_invalid_records_from_other_versions() {
        let error = |text: &str| replay(text).unwrap_err();
        assert_eq!(error(""), "not a flight record");
        assert_eq!(error("zonal flight plan\n"), "not a flight record");
        let other = "written by another version of Zonal; explain it with that version";
        assert_eq!(error("zonal flight 1\nrules zone=1\n"), other);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn calls_of_any_order_and_any_numbers_do_not_panic(
            flags: [bool; 6],
            limits in [select(&NUMBERS[..6]), select(&NUMBERS[..6]), select(&NUMBERS[..4]), select(&NUMBERS[..4])],
            lines in prop::collection::vec((word(), filled()), 1..60),
        ) {
            let [asking, outdated, changed, gave_up, held, keeps] = flags;
            let states = [asking, asking && outdated, changed, !asking && gave_up, held, held && keeps];
            let [asking, outdated, changed, gave_up, held, keeps] = states.map(u8::from);
            let ahead = held - keeps;
            let [capacity, merge, appends, writes] = limits;
            let head = format!("rules zone=1 capacity={capacity} merge={merge} appends={appends} writes={writes}");
            let state = format!(
                "begin asking={asking} outdated={outdated} changed={changed} gave-up={gave_up} held={held} keeps={keeps} ahead={ahead} lost-at=- items=8+8,append+8"
            );
            let queue = begin(&state).expect("it is a state of a queue");
            let Some(rules) = rules(&head) else { return Ok(()) };
            let mut player = Player::new(queue, rules);
            let mut text = format!("{MAGIC}\n{head}\n{state}\n");
            let mut calls = 0;
            for (word, call) in lines {
                let line = format!("{word:x} {call}");
                if let Some((_, outcome)) = player.make(&line) {
                    text += &format!("{line} = {outcome}\n");
                    calls += 1;
                }
            }
            text += &end_of(&text);
            // Calls that were possible replay with the same outcome.
            let replay = replay(&text).unwrap();
            prop_assert_eq!((replay.calls.len(), replay.difference), (calls, None));
        }
    }
}
