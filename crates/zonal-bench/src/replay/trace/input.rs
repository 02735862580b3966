//! Input of the parsers: bytes with their position.

use super::{Fault, Parsed, TracePlace};
use std::io::{BufRead, Read};

/// Maximum length of a line in bytes: more than any tracer prints, and little enough to buffer.
const LINE_BYTES_MAX: usize = 1 << 16;

/// Bytes of a trace.
pub(super) struct Input {
    reader: Box<dyn BufRead>,
    /// Number of lines or bytes read.
    at: u64,
    line: Vec<u8>,
}

impl Input {
    pub(super) fn new(reader: Box<dyn BufRead>) -> Input {
        Input { reader, at: 0, line: Vec::new() }
    }

    /// Passes the next line, without its end, to `parse`. `None` at the end of the trace.
    pub(super) fn line(
        &mut self,
        parse: impl FnOnce(&str) -> Result<Parsed, String>,
    ) -> Result<Option<(TracePlace, Parsed)>, Fault> {
        self.line.clear();
        let mut bounded = self.reader.by_ref().take(LINE_BYTES_MAX as u64);
        if bounded.read_until(b'\n', &mut self.line).map_err(Fault::Io)? == 0 {
            return Ok(None);
        }
        self.at += 1;
        let place = TracePlace::Line(self.at);
        if self.line.len() == LINE_BYTES_MAX && !self.line.ends_with(b"\n") {
            return Err(Fault::Malformed(place, format!("a line of more than {LINE_BYTES_MAX} bytes")));
        }
        // Process names may contain arbitrary bytes, and are not examined.
        let text = String::from_utf8_lossy(&self.line);
        let parsed = parse(text.trim()).map_err(|what| Fault::Malformed(place, what))?;
        Ok(Some((place, parsed)))
    }

    /// Fills `record` from the trace. Returns its position and the number of bytes read.
    pub(super) fn record(&mut self, record: &mut [u8]) -> Result<(TracePlace, usize), Fault> {
        let place = TracePlace::Byte(self.at);
        let mut filled = 0;
        while filled < record.len() {
            match self.reader.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Io(error)),
            }
        }
        self.at += filled as u64;
        Ok((place, filled))
    }
}
