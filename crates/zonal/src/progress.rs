//! Progress line on a terminal.
//!
//! It appears after a second, on standard error and only if that is a terminal, and is cleared before other output and at the end.

use crate::value::human;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zonal_io::volume::Volume;

/// Time before the line appears, so that short commands print nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval of updates.
const EVERY: Duration = Duration::from_millis(200);

/// Progress of a command.
pub(crate) struct Progress {
    what: &'static str,
    is_terminal: bool,
    begun: Instant,
    next: Instant,
    is_shown: bool,
    bytes: u64,
    files: u64,
    /// Bytes in all; 0 if they are not known.
    total: Arc<AtomicU64>,
}

impl Progress {
    /// Progress of the command `what`, which begins the line.
    pub(crate) fn new(what: &'static str) -> Progress {
        let begun = Instant::now();
        Progress {
            what,
            is_terminal: io::stderr().is_terminal(),
            begun,
            next: begun + PATIENCE,
            is_shown: false,
            bytes: 0,
            files: 0,
            total: Arc::default(),
        }
    }

    /// True if the line can appear, so that it is worth finding out the total.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_terminal
    }

    /// Sets the number of bytes in all.
    pub(crate) fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Adds up the files below `directory` of the host in the background; the sum is the number of bytes in all.
    pub(crate) fn expect_tree(&self, directory: &Path) {
        if !self.is_terminal {
            return;
        }
        let (total, directory) = (self.total.clone(), directory.to_owned());
        // Without a thread the total stays unknown.
        let _ = zonal_io::threads::spawn("zonal-total", move || {
            total.store(tree_bytes(&directory), Ordering::Relaxed);
        });
    }

    /// Adds bytes that are done.
    pub(crate) fn bytes(&mut self, more: u64) {
        self.bytes += more;
        self.show_if_due();
    }

    /// Adds a file that is done.
    pub(crate) fn file(&mut self) {
        self.files += 1;
        self.show_if_due();
    }

    /// Shows a line of the caller's, if an update is due. `line` gets the time since the beginning.
    pub(crate) fn show(&mut self, line: impl FnOnce(Duration) -> String) {
        let now = Instant::now();
        if self.is_terminal && now >= self.next {
            self.next = now + EVERY;
            self.is_shown = true;
            // Standard error may be closed.
            let _ = write!(io::stderr(), "\r\x1b[K{}: {}", self.what, line(now - self.begun));
        }
    }

    fn show_if_due(&mut self) {
        let (bytes, files) = (self.bytes, self.files);
        let total = self.total.load(Ordering::Relaxed);
        self.show(|elapsed| {
            let files = if files > 0 { format!("{files} files, ") } else { String::new() };
            files + &amount(bytes, total, elapsed)
        });
    }

    /// Clears the line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Bytes done and their rate; with a known total also percent and the time left.
pub(crate) fn amount(bytes: u64, total: u64, elapsed: Duration) -> String {
    let whole = |bytes: u64| if bytes < 1 << 20 { human(bytes) } else { human(bytes >> 20 << 20) };
    let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    let done = whole(bytes);
    let per_second = whole(rate as u64);
    if bytes == 0 || total == 0 || bytes > total {
        return format!("{done}, {per_second}/s");
    }
    let percent = (u128::from(bytes) * 100 / u128::from(total)) as u64;
    let left = Duration::from_secs_f64(((total - bytes) as f64 / rate).min(1e9));
    format!("{percent}%, {done} of {}, {per_second}/s, {} left", whole(total), duration(left))
}

/// Duration in hours, minutes and seconds, as far as they matter.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

/// Bytes of the regular files below a directory of the host, without following links. Directories that cannot be read count nothing.
fn tree_bytes(directory: &Path) -> u64 {
    let mut todo = vec![directory.to_owned()];
    let mut sum = 0;
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => todo.push(entry.path()),
                Ok(metadata) if metadata.is_file() => sum += metadata.len(),
                _ => {}
            }
        }
    }
    sum
}

/// Progress of one long call, from the counters of its volume.
pub(crate) struct Watch(Option<(Sender<()>, JoinHandle<()>)>);

impl Watch {
    /// Begins to watch `volume`, which is to move `total` bytes; 0 if that is not known.
    pub(crate) fn begin(what: &'static str, volume: &Arc<Volume>, total: u64) -> Watch {
        let mut progress = Progress::new(what);
        progress.expect(total);
        if !progress.is_terminal {
            return Watch(None);
        }
        let (stop, stopped) = mpsc::channel();
        let volume = volume.clone();
        let bytes = move || volume.statistics().sectors * 512;
        let mut seen = bytes();
        let work = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                let now = bytes();
                progress.bytes(now - std::mem::replace(&mut seen, now));
            }
        };
        // Without a thread there is no progress line.
        let thread = zonal_io::threads::spawn("zonal-progress", work);
        Watch(thread.ok().map(|thread| (stop, thread)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_has_percent_and_time_left_of_a_known_total() {
        let second = Duration::from_secs(1);
        assert_eq!(amount(512 << 20, 2 << 30, second), "25%, 512 MiB of 2 GiB, 512 MiB/s, 3 s left");
        assert_eq!(amount(1 << 20, 65 << 20, second), "1%, 1 MiB of 65 MiB, 1 MiB/s, 1 min 04 s left");
        assert_eq!(amount(1 << 20, 1 << 40, second), "0%, 1 MiB of 1 TiB, 1 MiB/s, 291 h 16 min left");
        assert_eq!(amount(1 << 20, 0, second), "1 MiB, 1 MiB/s");
        // A file may grow.
        assert_eq!(amount(2 << 20, 1 << 20, second), "2 MiB, 2 MiB/s");
        assert_eq!(amount(0, 1 << 20, Duration::ZERO), "0 B, 0 B/s");
    }

    #[test]
    fn tree_counts_regular_files_once_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/f"), [0; 100]).unwrap();
        std::fs::write(dir.path().join("g"), [0; 11]).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("a/up")).unwrap();
        assert_eq!(tree_bytes(dir.path()), 111);
    }
}
