//! Default output of `blkparse`, one event per line:
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
//! ```
//!
//! Device, processor, number, seconds, process, event, flags, first sector, sectors. A request
//! passes through several events. One of them is used as its record, by default `Q`, its arrival.
//! The flags have the type: R, W, D or N, or the name of a zone operation, which begins with Z
//! (kernels that do not support these print N). A leading F is a flush before the request, a
//! following F is FUA. The summary after the events ends the trace.

use super::{Names, OneDevice, Parsed, Raw, TraceOp, number, short};

/// Beginnings of lines that are not events: the summary, and messages of the program about its
/// input.
const SUMMARY: [&str; 5] = ["CPU", "Total (", "Events (", "Throughput (", "Skips: "];

pub(super) struct Blkparse {
    event: char,
    /// True if the chosen event has occurred.
    has_event: bool,
    /// Other events that were skipped.
    others: Names,
    one: OneDevice,
    is_summary: bool,
}

/// True if a trace that begins with this line has this format.
pub(super) fn begins_with(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let mut words = line.split_ascii_whitespace();
    let is_number = |word: Option<&str>| word.is_some_and(|word| word.parse::<u64>().is_ok());
    words.next().is_some_and(is_device) && is_number(words.next()) && is_number(words.next())
}

/// True if a word has the form of a device number.
fn is_device(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    word.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

impl Blkparse {
    pub(super) fn new(event: Option<char>, one: OneDevice) -> Blkparse {
        let event = event.unwrap_or('Q');
        Blkparse { event, has_event: false, others: Names::default(), one, is_summary: false }
    }

    /// Returns the events or devices found in a trace without records to replay.
    pub(super) fn instead(&self) -> Option<String> {
        if self.has_event || self.others.is_empty() {
            return self.one.instead();
        }
        let Blkparse { event, others, .. } = self;
        Some(format!("no event {event}, only {others}; select one with --event"))
    }

    pub(super) fn line(&mut self, line: &str) -> Result<Parsed, String> {
        self.is_summary |= SUMMARY.iter().any(|begin| line.starts_with(begin));
        if self.is_summary || line.is_empty() || line.starts_with("Input file ") {
            return Ok(Parsed::Blank);
        }
        let mut words = line.split_ascii_whitespace();
        let mut next = |what: &str| words.next().ok_or_else(|| format!("the line ends before the {what}"));
        let device = next("device")?;
        if !is_device(device) {
            return Err(format!("{:?} is not a device such as 8,0", short(device)));
        }
        number("processor", next("processor")?)?;
        number("number", next("number")?)?;
        let at = nanos(next("time")?)?;
        number("process", next("process")?)?;
        let event = next("event")?;
        if !event.chars().eq([self.event]) {
            self.others.note(event);
            return Ok(Parsed::Skipped);
        }
        self.has_event = true;
        let flags = next("flags")?;
        let Some(kind) = RequestFlags::of(flags)? else { return Ok(Parsed::Skipped) };
        if !self.one.takes(device)? {
            return Ok(Parsed::Skipped);
        }
        let rest: Vec<&str> = words.take(3).collect();
        kind.parsed(at, self.event, &rest)
    }
}

/// Flags of a request.
struct RequestFlags {
    flush_before: bool,
    op: TraceOp,
    fua: bool,
}

impl RequestFlags {
    fn of(flags: &str) -> Result<Option<RequestFlags>, String> {
        let (flush_before, rest) = match flags.strip_prefix('F') {
            Some(rest) => (true, rest),
            None => (false, flags),
        };
        let (op, marks) = match rest.as_bytes() {
            [b'Z', b'R', b'A', ..] => (TraceOp::ResetAll, &rest[3..]),
            [b'Z', b'R', ..] => (TraceOp::Reset, &rest[2..]),
            [b'Z', b'A', ..] => (TraceOp::Append, &rest[2..]),
            [b'Z', b'F', ..] => (TraceOp::Finish, &rest[2..]),
            [b'Z', b'O', ..] => (TraceOp::Open, &rest[2..]),
            [b'Z', b'C', ..] => (TraceOp::Close, &rest[2..]),
            [b'R', ..] => (TraceOp::Read, &rest[1..]),
            [b'W', ..] => (TraceOp::Write, &rest[1..]),
            [b'D', ..] => (TraceOp::Discard, &rest[1..]),
            [b'N', ..] => return Ok(None),
            [] if flush_before => (TraceOp::Flush, rest),
            _ => return Err(format!("{:?} is not a type of request", short(flags))),
        };
        Ok(Some(RequestFlags { flush_before, op, fua: op == TraceOp::Write && marks.contains('F') }))
    }

    /// Parses the part after the flags: `SECTOR + SECTORS`, or something else if the request has no
    /// address.
    fn parsed(self, at: u128, event: char, rest: &[&str]) -> Result<Parsed, String> {
        let RequestFlags { flush_before, op, fua } = self;
        let raw = Raw { at, op, fua, sector: 0, sectors: 0 };
        let has_place = rest.len() == 3 && rest[1] == "+";
        if !has_place {
            if op.has_range() && !is_without_place(event, rest) {
                return Err(format!("{:?} is not an address such as 123456 + 8", short(&rest.join(" "))));
            }
            return Ok(match op {
                _ if flush_before => Parsed::Record(Raw { op: TraceOp::Flush, fua: false, ..raw }),
                TraceOp::ResetAll => Parsed::Record(raw),
                _ => Parsed::Skipped,
            });
        }
        let raw = Raw {
            sector: number("first sector", rest[0])?,
            sectors: number("number of sectors", rest[2])?,
            ..raw
        };
        Ok(if flush_before { Parsed::FlushAnd(raw) } else { Parsed::Record(raw) })
    }
}

/// True if the part after the flags belongs to a request without length, which has only the process
/// or error in brackets, or to a passthrough command, which has its bytes before them and never
/// arrives as `Q`.
fn is_without_place(event: char, rest: &[&str]) -> bool {
    let is_mark = |at: usize| rest.get(at).is_some_and(|word: &&str| word.starts_with(['[', '(']));
    let begins_with_number = rest.first().is_some_and(|word| word.parse::<u64>().is_ok());
    is_mark(0) || event != 'Q' && begins_with_number && is_mark(1)
}

/// Parses seconds with up to nine decimals to nanoseconds.
fn nanos(word: &str) -> Result<u128, String> {
    let bad = || format!("{:?} is not a time in seconds", short(word));
    let (seconds, decimals) = word.split_once('.').ok_or_else(bad)?;
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if decimals.is_empty() || decimals.len() > 9 || !is_number(decimals) || !is_number(seconds) {
        return Err(bad());
    }
    let seconds: u64 = seconds.parse().map_err(|_| bad())?;
    let fraction: u64 = decimals.parse().map_err(|_| bad())?;
    let scale = 10u64.pow(9 - decimals.len() as u32);
    Ok(u128::from(seconds) * 1_000_000_000 + u128::from(fraction * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Parsed, String> {
        Blkparse::new(None, OneDevice::new(None)).line(line)
    }

    fn at_zero(flags_and_rest: &str) -> Result<Parsed, String> {
        parse(&format!("8,0 3 1 0.000000000 697 Q {flags_and_rest}"))
    }

    #[test]
    fn flags_determine_the_request_type() {
        let raw = Raw { at: 0, op: TraceOp::Write, fua: false, sector: 223_490, sectors: 8 };
        let of = |op| Ok(Parsed::Record(Raw { op, ..raw }));
        assert_eq!(at_zero("WS 223490 + 8 [kjournald]"), of(TraceOp::Write));
        assert_eq!(at_zero("RA 223490 + 8 [cat]"), of(TraceOp::Read));
        assert_eq!(at_zero("DS 223490 + 8 [fstrim]"), of(TraceOp::Discard));
        assert_eq!(at_zero("ZR 223490 + 8 [dd]"), of(TraceOp::Reset));
        assert_eq!(at_zero("ZA 223490 + 8 [dd]"), of(TraceOp::Append));
        assert_eq!(at_zero("ZF 223490 + 8 [dd]"), of(TraceOp::Finish));
        assert_eq!(at_zero("WFS 223490 + 8 [dd]"), Ok(Parsed::Record(Raw { fua: true, ..raw })));
        assert_eq!(at_zero("FWFS 223490 + 8 [jbd2]"), Ok(Parsed::FlushAnd(Raw { fua: true, ..raw })));
        let flush = Raw { op: TraceOp::Flush, sector: 0, sectors: 0, ..raw };
        assert_eq!(at_zero("FWS [jbd2]"), Ok(Parsed::Record(flush)));
        assert_eq!(at_zero("FN [jbd2]"), Ok(Parsed::Skipped));
        assert_eq!(at_zero("N 36 (12 00 00) [smartd]"), Ok(Parsed::Skipped));
    }

    #[test]
    fn request_has_a_place_unless_it_moves_nothing() {
        let wrong = ["W 123 [java]", "FW 123 [java]", "ZAS N 262144 + 8 [dd]", "R 123 - 8 [cat]", "D"];
        for line in wrong {
            assert!(at_zero(line).unwrap_err().ends_with("is not an address such as 123456 + 8"), "{line}");
        }
        assert_eq!(at_zero("W [java]"), Ok(Parsed::Skipped));
        // Commands of smartd and others, as issued and completed by the kernel.
        for line in ["D R 36 (12 00 00) [smartd]", "D R 36 [smartd]", "C R (12 00 00) [0]", "C W 123 [0]"] {
            let mut of_event = Blkparse::new(line.chars().next(), OneDevice::new(None));
            let parsed = of_event.line(&format!("8,0 3 1 0.000000000 697 {line}"));
            assert_eq!(parsed, Ok(Parsed::Skipped), "{line}");
        }
    }

    #[test]
    fn time_has_nine_decimals() {
        assert_eq!(nanos("12.000000345"), Ok(12_000_000_345));
        assert_eq!(nanos("0.5"), Ok(500_000_000));
        for wrong in ["", "1", "1.", "1.0000000000", "-1.0", "1.x", "99999999999999999999.0"] {
            assert!(nanos(wrong).is_err(), "{wrong}");
        }
    }
}
