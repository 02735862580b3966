//! Traces: requests of a drive recorded by other programs, read one record at a time.
//!
//! Each format has a module that parses one line or one binary record. The common part is here:
//! format detection, positions, the time origin, and the restriction to one device. A trace is
//! never held in memory, so its length is unlimited.
//!
//! # Records
//! A record is a request as it arrived at the drive. Traces also contain other events of the same
//! request, commands that transfer no data, and requests without length. These are counted as
//! skipped. Anything that cannot be parsed is an error with the line or byte offset, and ends the
//! trace, since the meaning of the rest is uncertain.
//!
//! # Time
//! The first record has time zero. A record with an earlier time than its predecessor is given the
//! predecessor's time, since it follows it in the trace. Such records are counted.

mod blkparse;
mod input;
mod iolog;
mod msr;
mod vscsi;

use input::Input;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use zonal_core::{Nanos, SECTOR_BYTES, Sector, Sectors};

/// Bytes at the beginning of a trace used to detect its format.
const HEAD_BYTES: usize = 4096;

/// Trace formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Binary records of virtual disks, versions 1 and 2, as published by CloudPhysics.
    Vscsi,
    /// Default output of `blkparse`.
    Blkparse,
    /// Comma-separated: time, host, disk, type, offset, size, response time; as published by
    /// Microsoft Research Cambridge.
    Msr,
    /// fio's logs, versions 2 and 3.
    Iolog,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] = [Format::Vscsi, Format::Blkparse, Format::Msr, Format::Iolog];

    /// Name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Vscsi => "vscsi",
            Format::Blkparse => "blkparse",
            Format::Msr => "msr",
            Format::Iolog => "iolog",
        }
    }

    /// Detects the format from the beginning of a trace.
    pub fn of_head(head: &[u8]) -> Option<Format> {
        let text = first_line(head);
        let is_text = text.is_some_and(|line| line.iter().all(|&b| b == b'\t' || b >= b' ' && b != 0x7F));
        match text.filter(|_| is_text) {
            Some(line) if iolog::begins_with(line) => Some(Format::Iolog),
            Some(line) if blkparse::begins_with(line) => Some(Format::Blkparse),
            Some(line) if msr::begins_with(line) => Some(Format::Msr),
            _ => vscsi::Version::of_head(head).map(|_| Format::Vscsi),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the first non-blank line, without its end.
fn first_line(head: &[u8]) -> Option<&[u8]> {
    let line = head.split(|&b| b == b'\n').map(|line| line.trim_ascii_end());
    line.into_iter().find(|line| !line.is_empty())
}

/// Magic numbers of compressed files: gzip, zstd, xz, bzip2.
const COMPRESSED: [&[u8]; 4] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"];

/// Describes a trace of unknown format.
fn no_format(head: &[u8]) -> &'static str {
    match head {
        [] => "the trace is empty",
        _ if COMPRESSED.iter().any(|magic| head.starts_with(magic)) => {
            "the trace is compressed; decompress it, for example to standard input with - as the trace"
        }
        _ => "not a trace of a known format; --format names one of vscsi, blkparse, msr and iolog",
    }
}

/// Operation of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceOp {
    /// Read.
    Read,
    /// Write at this position.
    Write,
    /// Append to the zone that starts here.
    Append,
    /// Flush the device.
    Flush,
    /// Discard the data.
    Discard,
    /// Reset the zone.
    Reset,
    /// Reset all zones.
    ResetAll,
    /// Finish the zone.
    Finish,
    /// Open the zone.
    Open,
    /// Close the zone.
    Close,
}

impl TraceOp {
    /// True if it has an address and a length.
    pub const fn has_range(self) -> bool {
        matches!(self, TraceOp::Read | TraceOp::Write | TraceOp::Append | TraceOp::Discard)
    }
}

/// Position in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TracePlace {
    /// Line number, from 1.
    Line(u64),
    /// Offset in bytes.
    Byte(u64),
}

impl fmt::Display for TracePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TracePlace::Line(n) => write!(f, "line {n}"),
            TracePlace::Byte(n) => write!(f, "byte {n}"),
        }
    }
}

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Arrival time since the first record.
    pub at: Nanos,
    /// Operation.
    pub op: TraceOp,
    /// True for a write with FUA.
    pub fua: bool,
    /// First sector.
    pub sector: Sector,
    /// Length; 0 if the operation has none. The end fits into 64 bits, even in bytes.
    pub sectors: Sectors,
    /// Position in the trace.
    pub place: TracePlace,
}

/// Reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Reading fails.
    #[error("{trace}: cannot read the trace: {error}")]
    Io {
        /// Name of the trace.
        trace: String,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The beginning matches no format.
    #[error("{trace}: {what}")]
    Unknown {
        /// Name of the trace.
        trace: String,
        /// Description of the content.
        what: &'static str,
    },
    /// A malformed record.
    #[error("{trace}: {place}: {what}")]
    Malformed {
        /// Name of the trace.
        trace: String,
        /// Position.
        place: TracePlace,
        /// Description of the problem.
        what: String,
    },
}

/// Options for reading a trace.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// Format; `None` to detect it.
    pub format: Option<Format>,
    /// Device to select records by, as named in the trace; `None` if there must be only one.
    pub only: Option<String>,
    /// Event of `blkparse` used as the record of a request; `Q`, its arrival, by default.
    pub event: Option<char>,
}

/// Content of one line or binary record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Raw {
    /// Nanoseconds from an origin of the format's own.
    at: u128,
    op: TraceOp,
    fua: bool,
    sector: u64,
    sectors: u64,
}

/// Result of parsing a line or binary record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parsed {
    Record(Raw),
    /// A flush followed by this record.
    FlushAnd(Raw),
    /// A request or event that is not replayed.
    Skipped,
    /// A line without information on requests.
    Blank,
}

/// Reason why a line or record was not read.
enum Fault {
    Io(io::Error),
    Malformed(TracePlace, String),
}

enum Parser {
    Vscsi(vscsi::Vscsi),
    Blkparse(blkparse::Blkparse),
    Msr(msr::Msr),
    Iolog(iolog::Iolog),
}

impl Parser {
    fn next(&mut self, input: &mut Input) -> Result<Option<(TracePlace, Parsed)>, Fault> {
        match self {
            Parser::Vscsi(vscsi) => vscsi.next(input),
            Parser::Blkparse(blkparse) => input.line(|line| blkparse.line(line)),
            Parser::Msr(msr) => input.line(|line| msr.line(line)),
            Parser::Iolog(iolog) => input.line(|line| iolog.line(line)),
        }
    }

    /// Returns the events or devices found in a trace without records to replay.
    fn instead(&self) -> Option<String> {
        match self {
            Parser::Vscsi(_) => None,
            Parser::Blkparse(blkparse) => blkparse.instead(),
            Parser::Msr(msr) => msr.one.instead(),
            Parser::Iolog(iolog) => iolog.one.instead(),
        }
    }
}

/// Open trace: an iterator over its records, which ends after an error.
pub struct Trace {
    name: String,
    format: Format,
    input: Input,
    parser: Parser,
    /// Second record of the last position.
    held: Option<(TracePlace, Raw)>,
    origin: Option<u128>,
    last: Nanos,
    skipped: u64,
    backward: u64,
    is_over: bool,
}

impl Trace {
    /// Opens the trace in a file.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be read or its format is unknown.
    pub fn open(path: &Path, options: &TraceOptions) -> Result<Trace, TraceError> {
        let trace = path.display().to_string();
        match File::open(path) {
            Ok(file) => Trace::new(Box::new(BufReader::with_capacity(1 << 16, file)), &trace, options),
            Err(error) => Err(TraceError::Io { trace, error }),
        }
    }

    /// Reads a trace from any source. `name` is for messages.
    ///
    /// # Errors
    /// As for [`Trace::open`].
    pub fn new(
        mut reader: Box<dyn BufRead>,
        name: &str,
        options: &TraceOptions,
    ) -> Result<Trace, TraceError> {
        let mut head = Vec::new();
        let trace = name.to_owned();
        if let Err(error) = reader.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head) {
            return Err(TraceError::Io { trace, error });
        }
        let Some(format) = options.format.or_else(|| Format::of_head(&head)) else {
            return Err(TraceError::Unknown { trace, what: no_format(&head) });
        };
        let one = OneDevice::new(options.only.clone());
        let parser = match format {
            Format::Vscsi => Parser::Vscsi(vscsi::Vscsi::of_head(&head)),
            Format::Blkparse => Parser::Blkparse(blkparse::Blkparse::new(options.event, one)),
            Format::Msr => Parser::Msr(msr::Msr::new(one)),
            Format::Iolog => Parser::Iolog(iolog::Iolog::new(one)),
        };
        Ok(Trace {
            name: trace,
            format,
            input: Input::new(Box::new(Cursor::new(head).chain(reader))),
            parser,
            held: None,
            origin: None,
            last: Nanos(0),
            skipped: 0,
            backward: 0,
            is_over: false,
        })
    }

    /// Name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Format of the trace.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Number of requests and events skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of records so far with an earlier time than the one before.
    pub fn backward(&self) -> u64 {
        self.backward
    }

    /// Explains why a trace that was read to its end had no record.
    pub(super) fn why_no_record(&self) -> String {
        self.parser.instead().unwrap_or_else(|| match self.skipped {
            0 => "no requests".to_owned(),
            skipped => format!("requests and events that are skipped: {skipped}"),
        })
    }

    fn step(&mut self) -> Result<Option<Record>, Fault> {
        loop {
            if let Some((place, raw)) = self.held.take() {
                return self.record(place, raw).map(Some);
            }
            let Some((place, parsed)) = self.parser.next(&mut self.input)? else { return Ok(None) };
            match parsed {
                Parsed::Blank => {}
                Parsed::Skipped => self.skipped += 1,
                // Such commands transfer nothing.
                Parsed::Record(raw) if raw.op.has_range() && raw.sectors == 0 => self.skipped += 1,
                Parsed::Record(raw) => return self.record(place, raw).map(Some),
                Parsed::FlushAnd(raw) => {
                    let flush = Raw { op: TraceOp::Flush, fua: false, sector: 0, sectors: 0, ..raw };
                    self.held = Some((place, raw)).filter(|_| raw.sectors > 0);
                    return self.record(place, flush).map(Some);
                }
            }
        }
    }

    fn record(&mut self, place: TracePlace, raw: Raw) -> Result<Record, Fault> {
        let Raw { at, op, fua, sector, sectors } = raw;
        let bad = |what: &str| Fault::Malformed(place, what.to_owned());
        let end = sector.checked_add(sectors).filter(|end| *end <= u64::MAX / SECTOR_BYTES);
        end.ok_or_else(|| bad("the request ends beyond 2^64 bytes"))?;
        let since = at.saturating_sub(*self.origin.get_or_insert(at));
        let since =
            u64::try_from(since).map_err(|_| bad("the time is over 580 years after the first record"))?;
        self.backward += u64::from(Nanos(since) < self.last);
        self.last = self.last.max(Nanos(since));
        Ok(Record { at: self.last, op, fua, sector: Sector(sector), sectors: Sectors(sectors), place })
    }
}

impl Iterator for Trace {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Result<Record, TraceError>> {
        if self.is_over {
            return None;
        }
        let step = self.step();
        self.is_over = !matches!(step, Ok(Some(_)));
        let trace = || self.name.clone();
        match step {
            Ok(record) => record.map(Ok),
            Err(Fault::Io(error)) => Some(Err(TraceError::Io { trace: trace(), error })),
            Err(Fault::Malformed(place, what)) => {
                Some(Err(TraceError::Malformed { trace: trace(), place, what }))
            }
        }
    }
}

/// Ensures that all records of a trace belong to one device.
#[derive(Clone, Debug)]
struct OneDevice {
    only: Option<String>,
    seen: Option<String>,
    /// Devices that were skipped.
    others: Names,
}

impl OneDevice {
    fn new(only: Option<String>) -> OneDevice {
        OneDevice { only, seen: None, others: Names::default() }
    }

    /// Lists the devices of a trace in which the requested one does not occur.
    fn instead(&self) -> Option<String> {
        let OneDevice { only, others, .. } = self;
        let only = only.as_ref().filter(|_| !others.is_empty())?;
        Some(format!("no request of {only}, only of {others}; select one with --only"))
    }

    /// True if records of this device are to be replayed.
    fn takes(&mut self, name: &str) -> Result<bool, String> {
        if let Some(only) = &self.only {
            if only != name {
                self.others.note(name);
            }
            return Ok(only == name);
        }
        match &self.seen {
            Some(seen) if seen == name => Ok(true),
            Some(seen) => Err(format!(
                "a record of {name} after those of {seen}: a replay has one device; select it with --only"
            )),
            None => {
                self.seen = Some(name.to_owned());
                Ok(true)
            }
        }
    }
}

/// Distinct names in order of appearance, as many as fit into a message.
#[derive(Clone, Debug, Default)]
struct Names(Vec<String>);

/// Maximum number of names in a message.
const NAMES_SHOWN: usize = 8;

impl Names {
    fn note(&mut self, name: &str) {
        // One above the limit, so that the message can end with an ellipsis.
        if self.0.len() > NAMES_SHOWN || self.0.iter().any(|known| known == name) {
            return;
        }
        let name = short(name);
        if !self.0.contains(&name) {
            self.0.push(name);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(NAMES_SHOWN)];
        f.write_str(&shown.join(", "))?;
        if self.0.len() > NAMES_SHOWN { f.write_str(" and others") } else { Ok(()) }
    }
}

/// Converts bytes to whole sectors.
fn sectors_of(what: &str, bytes: u64) -> Result<u64, String> {
    match Sectors::from_bytes(bytes) {
        Some(sectors) => Ok(sectors.0),
        None => Err(format!("{what} of {bytes} bytes is not a multiple of 512 bytes")),
    }
}

/// Parses a number, or returns an error with its meaning.
fn number(what: &str, word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{:?} is not a valid {what}", short(word)))
}

/// Shortens a word for a message.
fn short(word: &str) -> String {
    const CHARS_MAX: usize = 40;
    match word.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &word[..end]),
        None => word.to_owned(),
    }
}

/// Parses arbitrary bytes as a trace, in the detected format and in all others. For the fuzzer and
/// the tests.
///
/// # Panics
/// If a guarantee of [`Trace`] is violated.
pub fn fuzz_trace(bytes: &[u8]) {
    for format in Format::ALL.into_iter().map(Some).chain([None]) {
        let options = TraceOptions { format, ..TraceOptions::default() };
        let Ok(mut trace) = Trace::new(Box::new(Cursor::new(bytes.to_vec())), "fuzz", &options) else {
            continue;
        };
        let mut last = Nanos(0);
        while let Some(step) = trace.next() {
            match step {
                Ok(record) => {
                    assert!(record.at >= last, "time goes back");
                    assert!(!record.op.has_range() || record.sectors.0 > 0, "a record without length");
                    assert!((record.sector + record.sectors).bytes() < u64::MAX);
                    last = record.at;
                }
                Err(error) => {
                    assert!(error.to_string().starts_with("fuzz: "), "{error}");
                    assert!(trace.next().is_none(), "a trace goes on after an error");
                }
            }
        }
    }
}
