//! Traces: what others have recorded of a drive's requests, read one record at a time.
//!
//! Each format is a module that turns one line, or one binary record, into what it says. What they have in common is
//! here: finding out the format, counting places, one origin of time, one device a trace. A trace is never held in
//! memory, so it may have any length.
//!
//! # What a record is
//! A request as it arrived at the drive. A trace also holds what is none: other events of the same request, commands that
//! move no data, requests without length. They are counted as skipped. What cannot be understood is an error that names
//! the line or the byte offset, and ends the trace: who knows what the rest of it would mean.
//!
//! # Time
//! The first record is at zero. A record that says an earlier time than the record before it is taken to be at the same
//! time, since it stands after it; such records are counted.

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

/// Bytes at the beginning of a trace that tell its format.
const HEAD_BYTES: usize = 4096;

/// Formats of traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Binary records of a virtual machine's disks, versions 1 and 2, as CloudPhysics published them.
    Vscsi,
    /// What `blkparse` prints by default.
    Blkparse,
    /// Comma-separated: time, host, disk, type, offset, size, response time; as Microsoft Research Cambridge published
    /// them.
    Msr,
    /// fio's logs, versions 2 and 3.
    Iolog,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 4] = [Format::Vscsi, Format::Blkparse, Format::Msr, Format::Iolog];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Vscsi => "vscsi",
            Format::Blkparse => "blkparse",
            Format::Msr => "msr",
            Format::Iolog => "iolog",
        }
    }

    /// The format that a trace which begins like this has.
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

/// The first line that is not blank, without its end.
fn first_line(head: &[u8]) -> Option<&[u8]> {
    let line = head.split(|&b| b == b'\n').map(|line| line.trim_ascii_end());
    line.into_iter().find(|line| !line.is_empty())
}

/// Beginnings of compressed files: gzip, zstd, xz, bzip2.
const COMPRESSED: [&[u8]; 4] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh"];

/// What is to be said of a trace that begins like this, which is no format's beginning.
fn no_format(head: &[u8]) -> &'static str {
    match head {
        [] => "it is empty",
        _ if COMPRESSED.iter().any(|magic| head.starts_with(magic)) => {
            "it is compressed; decompress it, to standard input for instance, and name the trace -"
        }
        _ => "not a trace of a known format; --format names one of vscsi, blkparse, msr and iolog",
    }
}

/// What a record asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceOp {
    /// Read.
    Read,
    /// Write at this place.
    Write,
    /// Append to the zone that begins here.
    Append,
    /// Make everything durable.
    Flush,
    /// The data is needed no more.
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
    /// Whether it says where and how long.
    pub const fn has_range(self) -> bool {
        matches!(self, TraceOp::Read | TraceOp::Write | TraceOp::Append | TraceOp::Discard)
    }
}

/// Where in a trace something stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TracePlace {
    /// Line, from 1.
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
    /// When it arrived, from the first record on.
    pub at: Nanos,
    /// What it asks for.
    pub op: TraceOp,
    /// Whether a write is to be durable before it is acknowledged.
    pub fua: bool,
    /// Its first sector.
    pub sector: Sector,
    /// Its length; 0 where the operation has none. The end fits 64 bits, in bytes too.
    pub sectors: Sectors,
    /// Where it stands.
    pub place: TracePlace,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system does not read it.
    #[error("{trace}: cannot read the trace: {error}")]
    Io {
        /// The trace.
        trace: String,
        /// Why not.
        error: io::Error,
    },
    /// Its beginning is that of no format.
    #[error("{trace}: {what}")]
    Unknown {
        /// The trace.
        trace: String,
        /// What it looks like instead.
        what: &'static str,
    },
    /// A record does not say what one of its format says.
    #[error("{trace}: {place}: {what}")]
    Malformed {
        /// The trace.
        trace: String,
        /// Where.
        place: TracePlace,
        /// What is wrong.
        what: String,
    },
}

/// How a trace is read.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// Its format; `None`: the format that it begins like.
    pub format: Option<Format>,
    /// The one device whose records are read, as the trace names it; `None`: there has to be one only.
    pub only: Option<String>,
    /// Of `blkparse`, which event of a request is its record; `Q`, its arrival, by default.
    pub event: Option<char>,
}

/// What one line or binary record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Raw {
    /// Nanoseconds, from wherever the format counts.
    at: u128,
    op: TraceOp,
    fua: bool,
    sector: u64,
    sectors: u64,
}

/// What becomes of a line or binary record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parsed {
    Record(Raw),
    /// A flush, and then this.
    FlushAnd(Raw),
    /// A request or event that is none to be replayed.
    Skipped,
    /// A line that says nothing of requests.
    Blank,
}

/// Why a line or record was not read.
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

    /// Returns the events or devices of a trace without a record to play.
    fn instead(&self) -> Option<String> {
        match self {
            Parser::Vscsi(_) => None,
            Parser::Blkparse(blkparse) => blkparse.instead(),
            Parser::Msr(msr) => msr.one.instead(),
            Parser::Iolog(iolog) => iolog.one.instead(),
        }
    }
}

/// An open trace: its records, one after the other. After an error there are no more.
pub struct Trace {
    name: String,
    format: Format,
    input: Input,
    parser: Parser,
    /// The second record of a place.
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
    /// [`TraceError`] if it cannot be read or its format is not known.
    pub fn open(path: &Path, options: &TraceOptions) -> Result<Trace, TraceError> {
        let trace = path.display().to_string();
        match File::open(path) {
            Ok(file) => Trace::new(Box::new(BufReader::with_capacity(1 << 16, file)), &trace, options),
            Err(error) => Err(TraceError::Io { trace, error }),
        }
    }

    /// A trace from anywhere; `name` is for messages.
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

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Requests and events so far that are none to be replayed.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Records so far that said an earlier time than the one before.
    pub fn backward(&self) -> u64 {
        self.backward
    }

    /// Says why a trace that was read to its end had no record.
    pub(super) fn why_no_record(&self) -> String {
        self.parser.instead().unwrap_or_else(|| match self.skipped {
            0 => "it has no requests".to_owned(),
            skipped => format!("requests and events that are not played: {skipped}"),
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
                // Such commands move nothing.
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
        end.ok_or_else(|| bad("it ends beyond 2^64 bytes"))?;
        let since = at.saturating_sub(*self.origin.get_or_insert(at));
        let since =
            u64::try_from(since).map_err(|_| bad("it comes more than 580 years after the first record"))?;
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

/// Sees to it that the records of a trace are of one device.
#[derive(Clone, Debug)]
struct OneDevice {
    only: Option<String>,
    seen: Option<String>,
    /// Devices that were passed over.
    others: Names,
}

impl OneDevice {
    fn new(only: Option<String>) -> OneDevice {
        OneDevice { only, seen: None, others: Names::default() }
    }

    /// Says which devices a trace has instead of the one asked for.
    fn instead(&self) -> Option<String> {
        let OneDevice { only, others, .. } = self;
        let only = only.as_ref().filter(|_| !others.is_empty())?;
        Some(format!("it has no request of {only}, but of {others}; --only names the one that is played"))
    }

    /// Whether a record of this device is one to be replayed.
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
                "a record of {name} after those of {seen}: a replay has one device, and --only names it"
            )),
            None => {
                self.seen = Some(name.to_owned());
                Ok(true)
            }
        }
    }
}

/// Different names in the order in which they came, as many as a message has room for.
#[derive(Clone, Debug, Default)]
struct Names(Vec<String>);

/// Names that a message shows.
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

/// Whole sectors in a number of bytes.
fn sectors_of(what: &str, bytes: u64) -> Result<u64, String> {
    match Sectors::from_bytes(bytes) {
        Some(sectors) => Ok(sectors.0),
        None => Err(format!("{what} of {bytes} bytes is no whole number of sectors of 512")),
    }
}

/// A word as a number, or an error that says what it should have been.
fn number(what: &str, word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{:?} is no {what}", short(word)))
}

/// As much of a word as belongs in a message.
fn short(word: &str) -> String {
    const CHARS_MAX: usize = 40;
    match word.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &word[..end]),
        None => word.to_owned(),
    }
}

/// Reads any bytes as a trace, in the format they seem to have and in all others: for the fuzzer and the tests.
///
/// # Panics
/// If a promise of [`Trace`] is broken.
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
