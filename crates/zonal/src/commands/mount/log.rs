//! Where a mount says what goes wrong: a file, or standard error.

use crate::exit::Failure;
use crate::text::shown_word;
use anyhow::Context;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use zonal_fuse::front::Log;

/// Lines at once.
const BURST: f64 = 20.0;

/// Lines a second after that: a damaged zone must not fill a disk with lines, nor keep threads that write to a slow reader.
const RATE: f64 = 5.0;

/// How many lines may be written now.
struct Limit {
    allowed: f64,
    since: Instant,
    left_out: u64,
}

impl Limit {
    fn new(now: Instant) -> Limit {
        Limit { allowed: BURST, since: now, left_out: 0 }
    }

    /// Whether a line may be written; if so, how many were left out before.
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

/// The log of a mount.
pub(super) fn open(file: Option<&Path>) -> Result<Log, Failure> {
    let is_file = file.is_some();
    let mut into: Box<dyn Write + Send> = match file {
        None => Box::new(io::stderr()),
        Some(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            Box::new(file.with_context(|| shown_word(path.as_os_str()))?)
        }
    };
    // What reads standard error notes times itself, as the journal does.
    let begin = move || if is_file { format!("{} ", now()) } else { "zonal: ".to_owned() };
    let mut limit = Limit::new(Instant::now());
    let say = move |line: &str| {
        let Some(left_out) = limit.take(Instant::now()) else { return };
        let begin = begin();
        let before =
            if left_out > 0 { format!("{begin}{left_out} lines were left out\n") } else { String::new() };
        // Where the log cannot be written there is no place to say so.
        let _ = into.write_all(format!("{before}{begin}{line}\n").as_bytes());
    };
    let say = Mutex::new(say);
    Ok(Arc::new(move |line| say.lock().unwrap_or_else(PoisonError::into_inner)(line)))
}

/// The time in UTC to the second, as in RFC 3339.
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
