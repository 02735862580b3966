//! VSCSI traces: binary records of fixed length, little endian, without a header.
//!
//! | version 1, 32 bytes | version 2, 40 bytes |
//! |---|---|
//! | serial number u32, length u32, segments u32, command u16, version u16, block u64, time u64 | command u16, version u16, serial number u32, length u32, segments u32, block u64, time u64, response time u64 |
//!
//! Lengths are in bytes, blocks in sectors, times in microseconds. The version is the upper byte of
//! its field. It is the only distinction between the two layouts, so it has to be correct in every
//! record. Commands are SCSI operation codes.

use super::input::Input;
use super::{Fault, Parsed, Raw, TraceOp, TracePlace, sectors_of};

/// Number of records that have to agree on the version.
const RECORDS_LOOKED_AT: usize = 2;

const RECORD_BYTES_MAX: usize = 40;

/// Layout of a trace's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    One,
    Two,
}

impl Version {
    const fn bytes(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => RECORD_BYTES_MAX,
        }
    }

    /// Offset and value of the version byte.
    const fn mark(self) -> (usize, u8) {
        match self {
            Version::One => (15, 1),
            Version::Two => (3, 2),
        }
    }

    fn is_of(self, record: &[u8]) -> bool {
        let (at, mark) = self.mark();
        record[at] == mark
    }

    /// Detects the version from the beginning of a trace. As in other readers of these traces,
    /// version 2 is tried first.
    pub(super) fn of_head(head: &[u8]) -> Option<Version> {
        [Version::Two, Version::One].into_iter().find(|version| {
            let mut records = head.chunks_exact(version.bytes()).take(RECORDS_LOOKED_AT).peekable();
            records.peek().is_some() && records.all(|record| version.is_of(record))
        })
    }
}

pub(super) struct Vscsi {
    version: Version,
}

impl Vscsi {
    /// A trace with neither version is read as version 1, so that its first record yields the
    /// error.
    pub(super) fn of_head(head: &[u8]) -> Vscsi {
        Vscsi { version: Version::of_head(head).unwrap_or(Version::One) }
    }

    pub(super) fn next(&mut self, input: &mut Input) -> Result<Option<(TracePlace, Parsed)>, Fault> {
        let mut buffer = [0; RECORD_BYTES_MAX];
        let record = &mut buffer[..self.version.bytes()];
        let (place, filled) = input.record(record)?;
        let parsed = match filled {
            0 => return Ok(None),
            _ if filled < record.len() => {
                Err(format!("the trace ends after {filled} of {} bytes of a record", record.len()))
            }
            _ => self.parse(record),
        };
        parsed.map(|parsed| Some((place, parsed))).map_err(|what| Fault::Malformed(place, what))
    }

    fn parse(&self, record: &[u8]) -> Result<Parsed, String> {
        if !self.version.is_of(record) {
            let (at, mark) = self.version.mark();
            return Err(format!("a record of version {} among those of version {mark}", record[at]));
        }
        let short = |at: usize| u16::from_le_bytes(record[at..at + 2].try_into().expect("two bytes"));
        let int = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
        let (command, bytes, sector, micros) = match self.version {
            Version::One => (short(12), int(4), long(16), long(24)),
            Version::Two => (short(0), int(8), long(16), long(24)),
        };
        let Some(op) = op_of(command) else { return Ok(Parsed::Skipped) };
        let at = u128::from(micros) * 1000;
        if op == TraceOp::Flush {
            return Ok(Parsed::Record(Raw { at, op, fua: false, sector: 0, sectors: 0 }));
        }
        let sectors = sectors_of("a length", bytes.into())?;
        Ok(Parsed::Record(Raw { at, op, fua: false, sector, sectors }))
    }
}

/// Operation of a SCSI command, if it is replayed.
fn op_of(command: u16) -> Option<TraceOp> {
    match command {
        // READ(6), READ(10), READ(12) and READ(16).
        0x08 | 0x28 | 0xA8 | 0x88 => Some(TraceOp::Read),
        // WRITE, and WRITE AND VERIFY.
        0x0A | 0x2A | 0xAA | 0x8A | 0x2E | 0xAE | 0x8E => Some(TraceOp::Write),
        // SYNCHRONIZE CACHE(10) and (16).
        0x35 | 0x91 => Some(TraceOp::Flush),
        _ => None,
    }
}
