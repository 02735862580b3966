//! Log of a mount: a file, or standard error.

use crate::exit::Failure;
use crate::text::shown_word;
use anyhow::Context;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use zonal_fuse::front::Log;
use zonal_io::image::is_image;

/// Maximum burst of lines.
const BURST: f64 = 20.0;

/// Lines per second after that: a damaged zone must not fill a disk with lines, nor block threads
/// that log to a slow reader.
const RATE: f64 = 5.0;

/// Rate limit of lines.
struct Limit {
    allowed: f64,
    since: Instant,
    left_out: u64,
}

impl Limit {
    fn new(now: Instant) -> Limit {
        Limit { allowed: BURST, since: now, left_out: 0 }
    }

    /// Takes permission to write a line. Returns the number of lines left out before, or `None` if
    /// the line must be left out.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.allowed = (self.allowed + seconds * RATE).min(BURST);
        self.since = now;
        if self.allowed < 1.0 {
            self.left_out += 1;
            return None;
        }
        self.allowed -= 1.0;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Opens the log of a mount.
pub(super) fn open(file: Option<&Path>) -> Result<Log, Failure> {
    let is_file = file.is_some();
    let mut into: Box<dyn Write + Send> = match file {
        None => Box::new(io::stderr()),
        Some(path) => {
            if is_image(path) {
                let name = shown_word(path.as_os_str());
                return Err(Failure::usage(format!("{name}: an image; name another file for the log")));
            }
            let file = OpenOptions::new().append(true).create(true).open(path);
            Box::new(file.with_context(|| shown_word(path.as_os_str()))?)
        }
    };
    // Readers of standard error, such as the journal, record times themselves.
    let begin = move || if is_file { format!("{} ", now()) } else { "zonal: ".to_owned() };
    let mut limit = Limit::new(Instant::now());
    let say = move |line: &str| {
        let Some(left_out) = limit.take(Instant::now()) else { return };
        let begin = begin();
        let before = if left_out > 0 { format!("{begin}{left_out} lines left out\n") } else { String::new() };
        // Errors of the log cannot be reported anywhere.
        let _ = into.write_all(format!("{before}{begin}{line}\n").as_bytes());
    };
    let say = Mutex::new(say);
    Ok(Arc::new(move |line| say.lock().unwrap_or_else(PoisonError::into_inner)(line)))
}

/// UTC time to the second, in RFC 3339 format.
fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    let (year, month, day) = (now.year(), u8::from(now.month()), now.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", now.hour(), now.minute(), now.second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_beyond_the_rate_are_counted_and_left_out() {
        let begin = Instant::now();
        let mut limit = Limit::new(begin);
        let written = (0..100).filter(|_| limit.take(begin).is_some()).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(limit.take(begin + Duration::from_secs(1)), Some(100 - BURST as u64));
        assert_eq!(limit.take(begin + Duration::from_secs(1)), Some(0));
    }
}
