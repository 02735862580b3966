//! Comma-separated lines as published by Microsoft Research Cambridge:
//!
//! ```text
//! 128166372003061629,usr,0,Read,7014609920,24576,41286
//! ```
//!
//! Time and response time in units of 100 ns, host, disk number, type, offset and size in bytes.
//! The response time, that of the traced drive, is optional. A first line with column names is
//! skipped.

use super::{OneDevice, Parsed, Raw, TraceOp, number, sectors_of, short};

const COLUMNS: [usize; 2] = [6, 7];

pub(super) struct Msr {
    pub(super) one: OneDevice,
    is_begun: bool,
}

/// True if a trace that begins with this line has this format.
pub(super) fn begins_with(line: &[u8]) -> bool {
    let columns: Vec<&[u8]> = line.split(|&b| b == b',').map(<[u8]>::trim_ascii).collect();
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    COLUMNS.contains(&columns.len()) && (is_number(columns[0]) || is_heading(columns[0]))
}

fn is_heading(column: &[u8]) -> bool {
    column.eq_ignore_ascii_case(b"timestamp")
}

impl Msr {
    pub(super) fn new(one: OneDevice) -> Msr {
        Msr { one, is_begun: false }
    }

    pub(super) fn line(&mut self, line: &str) -> Result<Parsed, String> {
        if line.is_empty() {
            return Ok(Parsed::Blank);
        }
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if is_first && is_heading(columns[0].as_bytes()) {
            return Ok(Parsed::Blank);
        }
        if !COLUMNS.contains(&columns.len()) {
            return Err(format!("{} columns instead of 6, or 7 with the response time", columns.len()));
        }
        let at = u128::from(number("time in units of 100 ns", columns[0])?) * 100;
        number("number of a disk", columns[2])?;
        let op = op_of(columns[3]).ok_or_else(|| {
            format!("{:?} is not a type of request, which is Read or Write", short(columns[3]))
        })?;
        let sector = sectors_of("an offset", number("offset in bytes", columns[4])?)?;
        let sectors = sectors_of("a size", number("size in bytes", columns[5])?)?;
        if !self.one.takes(&format!("{}.{}", columns[1], columns[2]))? {
            return Ok(Parsed::Skipped);
        }
        Ok(Parsed::Record(Raw { at, op, fua: false, sector, sectors }))
    }
}

fn op_of(word: &str) -> Option<TraceOp> {
    let is = |names: [&str; 2]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
    match () {
        () if is(["read", "r"]) => Some(TraceOp::Read),
        () if is(["write", "w"]) => Some(TraceOp::Write),
        () => None,
    }
}
