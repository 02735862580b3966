//! fio's logs as written by `write_iolog`, versions 2 and 3:
//!
//! ```text
//! fio version 2 iolog          fio version 3 iolog
//! sda add                      0 sda add
//! sda open                     0 sda open
//! sda write 4096 8192          7 sda write 4096 8192
//! sda wait 1500 0              1510 sda read 4096 4096
//! sda close                    1520 sda close
//! ```
//!
//! Offsets and lengths are in bytes. In version 3 every line begins with its time in microseconds.
//! In version 2 time passes by `wait`, which has the microseconds since the last one in the place
//! of the offset.

use super::{OneDevice, Parsed, Raw, TraceOp, number, sectors_of, short};

const VERSIONS: [(&str, Version); 2] =
    [("fio version 2 iolog", Version::Two), ("fio version 3 iolog", Version::Three)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

pub(super) struct Iolog {
    pub(super) one: OneDevice,
    version: Option<Version>,
    /// Sum of the waits in microseconds, in version 2.
    waited: u128,
}

/// True if a trace that begins with this line has this format.
pub(super) fn begins_with(line: &[u8]) -> bool {
    line.starts_with(b"fio version ")
}

impl Iolog {
    pub(super) fn new(one: OneDevice) -> Iolog {
        Iolog { one, version: None, waited: 0 }
    }

    pub(super) fn line(&mut self, line: &str) -> Result<Parsed, String> {
        let Some(version) = self.version else {
            let known = VERSIONS.iter().find(|(first, _)| *first == line);
            self.version = known.map(|(_, version)| *version);
            return match known {
                Some(_) => Ok(Parsed::Blank),
                None => Err(format!("{:?} is not the first line of a log of version 2 or 3", short(line))),
            };
        };
        let words: Vec<&str> = line.split_ascii_whitespace().take(6).collect();
        match (version, words.as_slice()) {
            (_, []) => Ok(Parsed::Blank),
            (Version::Two, words) => self.action(None, words),
            (Version::Three, [time, words @ ..]) => {
                let micros = number("time in microseconds", time)?;
                self.action(Some(micros.into()), words)
            }
        }
    }

    /// Parses a line without its time.
    fn action(&mut self, micros: Option<u128>, words: &[&str]) -> Result<Parsed, String> {
        let (file, action, range) = match words {
            [file, action @ ("add" | "open" | "close")] => (file, *action, None),
            [file, action, offset, length] => {
                let range = (number("offset in bytes", offset)?, number("length in bytes", length)?);
                (file, *action, Some(range))
            }
            _ => return Err("not a file, an action, an offset and a length".to_owned()),
        };
        let op = match action {
            // These occur for each file in the log, used or not.
            "add" | "open" | "close" => return Ok(Parsed::Blank),
            "wait" => {
                self.waited += u128::from(range.map_or(0, |(offset, _)| offset));
                return Ok(Parsed::Blank);
            }
            "read" => TraceOp::Read,
            "write" => TraceOp::Write,
            "trim" => TraceOp::Discard,
            "sync" | "datasync" | "sync_file_range" => TraceOp::Flush,
            _ => return Err(format!("{:?} is not an action of a log", short(action))),
        };
        if !self.one.takes(file)? {
            return Ok(Parsed::Skipped);
        }
        let at = micros.unwrap_or(self.waited) * 1000;
        if op == TraceOp::Flush {
            return Ok(Parsed::Record(Raw { at, op, fua: false, sector: 0, sectors: 0 }));
        }
        let (offset, length) = range.unwrap_or_default();
        let (sector, sectors) = (sectors_of("an offset", offset)?, sectors_of("a length", length)?);
        Ok(Parsed::Record(Raw { at, op, fua: false, sector, sectors }))
    }
}
