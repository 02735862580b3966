//! `write_iolog`: log of a worker's requests in version 3 of fio's format, readable with fio's
//! `read_iolog`.
//!
//! A line has a time in microseconds, the file, the action, and for reads, writes and flushes the
//! offset and length. As in fio, it is written when the request is issued, and has no resets and
//! finishes of zones: a replay of the writes with `zonemode=zbd` resets zones where writing starts
//! over. An append is logged at the place reserved for it, whatever address the device chose, so
//! that the log can be replayed in order.

use super::Worker;
use super::time::Time;
use crate::jobs::workload::{Dir, Io};
use crate::report::Failure;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use zonal_core::{Nanos, SECTOR_BYTES, Sector};
use zonal_io::image::is_image;

/// First line of the file.
const VERSION: &str = "fio version 3 iolog";

/// Maximum length of a name in fio, in characters.
const NAME_CHARS_MAX: usize = 255;

/// Log of one worker.
pub(in crate::jobs::run) struct IoLog {
    out: BufWriter<Box<dyn Write + Send>>,
    /// File name in each line.
    name: String,
    /// Start of the times in the log.
    begun: Option<Nanos>,
    is_open: bool,
    /// The first error. Nothing is written after it.
    problem: Option<io::Error>,
}

impl IoLog {
    /// Creates or replaces a log of the requests to `device` at `path`.
    ///
    /// # Errors
    /// As for creating a file. An image is not replaced.
    pub(in crate::jobs::run) fn create(path: &Path, device: &str) -> io::Result<IoLog> {
        if is_image(path) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is an image"));
        }
        Ok(IoLog::new(Box::new(File::create(path)?), device))
    }

    fn new(out: Box<dyn Write + Send>, device: &str) -> IoLog {
        // Words of a line are separated by blanks.
        let name: String = device
            .chars()
            .take(NAME_CHARS_MAX)
            .map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c })
            .collect();
        let name = if name.is_empty() { "device".to_owned() } else { name };
        let mut log = IoLog { out: BufWriter::new(out), name, begun: None, is_open: false, problem: None };
        log.keep(|log| writeln!(log.out, "{VERSION}"));
        log.action(Nanos(0), "add");
        log
    }

    fn keep(&mut self, write: impl FnOnce(&mut IoLog) -> io::Result<()>) {
        if self.problem.is_none() {
            self.problem = write(self).err();
        }
    }

    fn micros(&mut self, now: Nanos) -> u64 {
        now.0.saturating_sub(self.begun.get_or_insert(now).0) / 1000
    }

    /// Logs that the file is added, opened or closed.
    pub(super) fn action(&mut self, now: Nanos, action: &str) {
        let at = if action == "add" { 0 } else { self.micros(now) };
        self.is_open = action == "open";
        self.keep(|log| writeln!(log.out, "{at} {} {action}", log.name));
    }

    /// Logs a request that is being issued.
    fn request(&mut self, now: Nanos, what: &str, sector: Sector, sectors: u32) {
        let at = self.micros(now);
        let (offset, bytes) = (sector.0 * SECTOR_BYTES, u64::from(sectors) * SECTOR_BYTES);
        self.keep(|log| writeln!(log.out, "{at} {} {what} {offset} {bytes}", log.name));
    }

    fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.problem.map_or(Ok(()), Err)
    }
}

impl<T: Time> Worker<'_, T> {
    /// Logs that the file is opened or closed, as fio does around each pass.
    pub(super) fn log_action(&mut self, action: &str) {
        if self.log.is_some() {
            self.read_clock();
            let now = self.now;
            self.log.as_mut().expect("it was just there").action(now, action);
        }
    }

    /// Logs a read or write that is about to be issued.
    #[cold]
    pub(super) fn log_io(&mut self, io: &Io, place: Sector) {
        if self.log.is_some() {
            self.read_clock();
        }
        let now = self.now;
        let Some(log) = &mut self.log else { return };
        let what = match io.dir {
            Dir::Read => "read",
            Dir::Write => "write",
        };
        log.request(now, what, place, io.sectors);
    }

    /// Logs a flush that is about to be issued.
    #[cold]
    pub(super) fn log_flush(&mut self) {
        let now = self.now;
        let what = if self.plan.spec.fsync == 0 { "datasync" } else { "sync" };
        if let Some(log) = &mut self.log {
            log.request(now, what, Sector(0), 0);
        }
    }

    /// Closes the log. A job with an incomplete log has failed.
    pub(super) fn finish_log(&mut self) {
        self.read_clock();
        let Some(mut log) = self.log.take() else { return };
        if log.is_open {
            log.action(self.now, "close");
        }
        if let Err(error) = log.finish() {
            let path = self.plan.iolog.clone().unwrap_or_default();
            self.fail(Failure::Iolog { path, error: error.to_string() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_fios() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = IoLog::create(&path, "a drive").unwrap();
        log.action(Nanos(5_000_000), "open");
        log.request(Nanos(5_007_900), "write", Sector(8), 16);
        log.request(Nanos(5_010_000), "sync", Sector(0), 0);
        log.action(Nanos(5_020_000), "close");
        log.finish().unwrap();
        let lines = "fio version 3 iolog\n0 a_drive add\n0 a_drive open\n7 a_drive write 4096 8192\n10 a_drive sync 0 0\n\
                     20 a_drive close\n";
        assert_eq!(std::fs::read_to_string(path).unwrap(), lines);
    }

    #[test]
    fn log_write_error_is_reported_on_finish() {
        let mut log = IoLog::new(Box::new(Full), "d");
        (0..10_000).for_each(|n| log.request(Nanos(n), "read", Sector(n), 8));
        assert_eq!(log.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
