//! `zonal why`: explains a flight record, and replays it.

use super::results::read_regular;
use crate::exit::Failure;
use crate::text::{harmless, shown_word};
use anyhow::{Context, anyhow};
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use zonal_core::DeviceError;
use zonal_core::plug::Decision;
use zonal_core::plug::flight::{Call, Fate, Replay, replay};

/// Maximum length of a record: a quarter of a million waiting writes. Longer files are not records.
const BYTES_MAX: u64 = 4 << 20;

/// Explain a lost write from a flight record
///
/// A record contains the calls of the write plug of a zone from the failure on. Each call is
/// printed with the state of the plug before it: the write pointer, in sectors from the start of
/// the zone, the number of commands in flight, and the flags.
///
/// Then the calls are replayed. The exit code is 0 if this version of Zonal makes the recorded
/// decisions; otherwise it is 1, and the first difference is reported.
#[derive(Args, Debug)]
#[command(after_help = FLAGS)]
pub(crate) struct Why {
    /// Flight record, written by `zonal bench`, `zonal mount` or `zonal serve` with --record
    file: PathBuf,
}

const FLAGS: &str = "\
Flags:
  waits     requests wait in the zone's queue
  recovers  a write failed; the write pointer is unknown until the zone is reported
  frozen    a reset or finish is at the device; nothing is issued
  appends   the commands in flight are native appends
  recalled  a reset, finish or mode switch waits for the commands in flight
  issuing   a write is on its way to the device; the next one must not overtake it
  alone     the write in flight is the only one of its zone
  no-slot   the zone needs an open slot of the budget before it is written
  parked    writes wait for their predecessors
";

pub(crate) fn run(arguments: &Why, out: &mut dyn Write) -> Result<(), Failure> {
    let name = || shown_word(arguments.file.as_os_str());
    let text = read_regular(&arguments.file, BYTES_MAX, "too long for a flight record")
        .with_context(|| format!("{}: cannot read the record", name()))?;
    let text = String::from_utf8(text).map_err(|_| anyhow!("{}: not a flight record", name()))?;
    let replay = replay(&text).map_err(|error| anyhow!("{}: {error}", name()))?;
    explain(&replay, out)?;
    match &replay.difference {
        None => Ok(writeln!(out, "replay: {} calls, all as recorded", replay.calls.len())?),
        Some(at) => Err(anyhow!("{}: the replay differs from the record: {at}", name()).into()),
    }
}

fn explain(replay: &Replay<'_>, out: &mut dyn Write) -> io::Result<()> {
    let rules = &replay.rules;
    let waiting = replay.waiting.split(',').filter(|item| !item.is_empty()).map(request);
    let waiting: Vec<String> = waiting.collect();
    writeln!(
        out,
        "zone {}, {} sectors writable; offsets are sectors from its start",
        rules.zone, rules.capacity
    )?;
    writeln!(
        out,
        "waiting at the start: {}",
        if waiting.is_empty() { "none".into() } else { harmless(&waiting.join(", ")) }
    )?;
    writeln!(out, "\nline   pointer  in flight  flags                call")?;
    for call in &replay.calls {
        let word = call.word;
        let flags = word.flags().collect::<Vec<_>>().join(" ");
        // Some calls have no plug word.
        match word.0 {
            0 => write!(out, "{:>4}  {:42}", call.line, "")?,
            _ => write!(
                out,
                "{:>4}  {:>8}  {:>9}  {flags:<19}  ",
                call.line,
                word.pointer(),
                word.in_flight()
            )?,
        }
        writeln!(out, "{}", harmless(&said(call)))?;
        for fate in &call.fates {
            writeln!(out, "{:50}{}", "", decided(fate))?;
        }
    }
    writeln!(out)?;
    let lost = || replay.calls.iter().flat_map(|call| &call.fates).filter(|fate| fate.is_lost());
    for fate in lost() {
        writeln!(out, "lost in zone {}: {}", rules.zone, decided(fate))?;
    }
    if lost().count() == 0 {
        writeln!(out, "no write is lost in this record")?;
    }
    Ok(())
}

/// Describes a call, with its outcome if that is more than the next state.
fn said(call: &Call<'_>) -> String {
    let words: Vec<&str> = call.call.split(' ').collect();
    // The resulting word of the plug is printed with the next call.
    let outcome = call.outcome.split_once(' ').map_or("", |(_, outcome)| outcome);
    match *words {
        ["push", item] => format!("{} arrives and waits", request(item)),
        ["front", item] => format!("{} returns to the head of the queue", request(item)),
        ["manage", op] => format!("{op} arrives; {ABORTED}"),
        ["abort"] => format!("{}: {ABORTED}", call.outcome),
        ["cancel", ..] => format!("{} waiting requests are cancelled", call.outcome),
        ["next"] => step(outcome),
        ["pop"] => "the head of the queue is removed".to_owned(),
        ["fail", write, error, _] => format!("{} failed: {}", failed(write), error_of(error)),
        ["unsettle"] => "a command timed out, and may still be executed".to_owned(),
        ["settled"] => "no timed-out command can be executed any more".to_owned(),
        ["cannot-settle"] => "the device cannot settle timed-out commands".to_owned(),
        ["abandon"] => "failed writes end undecided".to_owned(),
        ["resynced", class, pointer] => {
            format!("the device reports the zone: {}, write pointer at {pointer}", class.to_lowercase())
        }
        ["resync-failed"] => "the device could not report the zone".to_owned(),
        ["read-back", write, ..] => format!("{} will be read back", failed(write)),
        ["take-covered"] => "read back".to_owned(),
        ["was-read-back", "found"] => "found".to_owned(),
        ["was-read-back", _] => "not found".to_owned(),
        ["starve", error] => format!("the first write waits for a free zone: {}", error_of(error)),
        ["feed"] => "a zone may be free: the first write is tried again".to_owned(),
        ["give-up"] => "gives up on the first write".to_owned(),
        ["doubt"] => "the zone may have changed: the device must report it".to_owned(),
        ["distrust"] => "the write pointer is in doubt: the device must report it".to_owned(),
        ["managed", "-"] => "the reset or finish failed".to_owned(),
        ["managed", pointer] => format!("the reset or finish succeeded, write pointer at {pointer}"),
        ["hold"] => format!("all zones will be reset; {ABORTED}"),
        ["pause"] => "the write mode will be switched".to_owned(),
        ["release", _] => "the zone is released".to_owned(),
        _ => call.call.to_owned(),
    }
}

/// Describes the next step of a zone.
fn step(next: &str) -> String {
    match next {
        "Nothing" => "nothing to issue",
        "Resync" => "zone report requested",
        "Settle" => "the device is asked to settle timed-out commands",
        "ReadBack" => "the range of a failed write is read back",
        "Held" => "the zone is quiet",
        // A command or an error, with its numbers.
        next => return format!("next: {next}"),
    }
    .to_owned()
}

const ABORTED: &str = "waiting writes are aborted";

/// Describes a request of the record: `8+16`, with `m` if the write may be merged, `alone:8+16`,
/// `append+16`, or an operation.
fn request(item: &str) -> String {
    match item.trim_end_matches('m').rsplit_once('+') {
        Some(("append", sectors)) => format!("append of {sectors} sectors"),
        Some((at, sectors)) => {
            format!("write of {sectors} sectors at {}", at.trim_start_matches("alone:"))
        }
        None => item.to_owned(),
    }
}

/// Describes a failed write of the record: `positional:8+16`.
fn failed(write: &str) -> String {
    let (addressed, range) = write.split_once(':').unwrap_or(("", write));
    let kind = match addressed {
        "emulated" => "emulated append",
        "native" => "native append",
        _ => "write",
    };
    let (at, sectors) = range.split_once('+').unwrap_or((range, "?"));
    format!("{kind} of {sectors} sectors at {at}")
}

fn error_of(word: &str) -> String {
    DeviceError::from_word(word).map_or_else(|| word.to_owned(), |error| error.to_string())
}

fn decided(fate: &Fate) -> String {
    let Fate { at, sectors, covered, .. } = fate;
    let error = fate.error.map_or_else(|| "no free zone".to_owned(), |error| error.to_string());
    let what = match fate.decision {
        Decision::Redrive => "not executed, resubmitted".to_owned(),
        Decision::Verify => format!("read back: {covered} of them are below the write pointer"),
        Decision::Fail if *covered > 0 => format!("{error}; {covered} of them are below the write pointer"),
        Decision::Fail => error,
        Decision::Torn => format!("{error}; {covered} sectors of the append are garbage in the zone"),
        Decision::Lost => "an earlier write was lost".to_owned(),
        Decision::Refuse => "the zone no longer accepts writes".to_owned(),
        Decision::Unknown => format!("fate unknown: {error}"),
        Decision::GiveUp => format!("gave up after several attempts: {error}"),
    };
    format!("{sectors} sectors at {at}: {what}")
}
