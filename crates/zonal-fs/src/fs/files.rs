//! Number of files.
//!
//! This is the number of attribute rows, for files of any kind, including the root and unnamed
//! files. The count is kept in memory and updated with each file created or destroyed, and every
//! commit writes it to a row.
//!
//! # Validity of the row
//! The file system may have been changed by a program that keeps no count. So a second row has the
//! counter of numbers as of the commit that wrote the count. Each mount skips some numbers and each
//! commit writes the counter, so the two differ if another mount has committed since. In that case
//! the first caller that asks counts the files, and later commits write the count.

use super::core::Shared;
use super::error::FsError;
use crate::format::{FILES_END, key};
use crate::store::{Row, Rows, Totals, View};
use std::ops::ControlFlow;

/// Row of the count.
pub(crate) const FILES: &str = "files";

/// Row with the counter of numbers as of the commit that wrote the count.
pub(crate) const FILES_AS_OF: &str = "files-as-of";

/// Number of attempts to count files without the lock, before it is taken.
const TRIES: u32 = 4;

/// Current and remaining number of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileCounts {
    /// Files of any kind, including the root and unnamed files.
    pub used: u64,
    /// Number of files that can be created before file numbers run out. Space for metadata may run
    /// out earlier: [`Usage::metadata`](super::Usage::metadata).
    pub free: u64,
}

/// Counter of files.
#[derive(Default, Debug)]
pub(super) struct FileCounter {
    /// Number of files when the file system was opened; `None` if not counted yet. Later changes
    /// are in the [totals](Totals) of the rows.
    at_open: Option<u64>,
}

impl FileCounter {
    /// Reads the count from its rows. Unreadable rows count as missing.
    pub(super) fn load(rows: &Rows) -> Result<FileCounter, FsError> {
        let number = |name| {
            let row = rows.get(&key::counter(name))?;
            Ok::<_, FsError>(row.and_then(|row| row.try_into().ok()).map(u64::from_le_bytes))
        };
        let sequence = number("sequence")?.unwrap_or(0);
        let count = if number(FILES_AS_OF)? == Some(sequence) { number(FILES)? } else { None };
        Ok(FileCounter { at_open: count })
    }

    /// Returns the current count, if known.
    fn count(&self, totals: Totals) -> Option<u64> {
        self.at_open.map(|count| count.saturating_add_signed(totals.files))
    }

    /// Sets the count as of these totals.
    fn found(&mut self, count: u64, totals: Totals) {
        self.at_open = Some(count.saturating_add_signed(-totals.files));
    }

    /// Returns the rows of the count for the commit that writes `sequence`.
    pub(super) fn rows(&self, totals: Totals, sequence: u64) -> Vec<Row> {
        self.count(totals).map_or_else(Vec::new, |count| rows_of(count, sequence).into())
    }
}

fn rows_of(count: u64, sequence: u64) -> [Row; 2] {
    [(FILES, count), (FILES_AS_OF, sequence)].map(|(name, n)| (key::counter(name), n.to_le_bytes().to_vec()))
}

/// Writes the count, and the counter of numbers that goes with it.
pub(crate) fn put(rows: &mut Rows, count: u64, sequence: u64) {
    rows_of(count, sequence).into_iter().for_each(|(key, value)| rows.put(key, value));
}

/// Counts the rows of files.
pub(crate) fn count(rows: &impl View) -> Result<u64, FsError> {
    let (from, end) = key::inodes();
    let mut files = 0;
    rows.scan(&from, &end, |_, _| {
        files += 1;
        ControlFlow::Continue(())
    })?;
    Ok(files)
}

impl Shared {
    /// Returns the number of files. The first call may have to count them.
    pub(super) fn files(&self) -> Result<FileCounts, FsError> {
        for _ in 0..TRIES {
            let before = self.reader.totals();
            let known = self.lock().files.count(before);
            if let Some(used) = known {
                return Ok(self.counts(used));
            }
            let found = count(&self.reader)?;
            // Discards a count during which files were created or destroyed.
            if self.reader.totals().changes_of_files == before.changes_of_files {
                self.lock().files.found(found, before);
            }
        }
        let _none_is_made = self.names.changing();
        let mut core = self.lock();
        core.rows.publish();
        let totals = self.reader.totals();
        let used = match core.files.count(totals) {
            Some(used) => used,
            None => count(&core.rows)?,
        };
        core.files.found(used, totals);
        Ok(self.counts(used))
    }

    fn counts(&self, used: u64) -> FileCounts {
        FileCounts { used, free: FILES_END.saturating_sub(self.names.next_ino()) }
    }
}
