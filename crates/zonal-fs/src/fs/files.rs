//! How many files there are.
//!
//! The count is that of the rows of attributes: files of any kind, the root and files without a name included. It changes in memory with
//! each file that is made or destroyed, and each commit writes it to a row.
//!
//! # When the row counts
//! A file system may have been changed by a program that keeps no count. So a second row has the counter of numbers as of the commit
//! that wrote the count. Each opening passes over numbers, and each commit writes the counter: if another opening has committed
//! since, the two differ. Then the files are counted once, by the first caller that asks, and later commits write the count.

use super::core::Shared;
use super::error::FsError;
use crate::format::{FILES_END, key};
use crate::store::{Row, Rows, Totals, View};
use std::ops::ControlFlow;

/// The row of the count.
pub(crate) const FILES: &str = "files";

/// The row with the counter of numbers as of the commit that wrote the count.
pub(crate) const FILES_AS_OF: &str = "files-as-of";

/// Times that the files are counted without the lock before that is done with it.
const TRIES: u32 = 4;

/// How many files there are, and may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileCounts {
    /// Files of any kind, the root and files without a name included.
    pub used: u64,
    /// Files that can be made before numbers run out. The place of the metadata may be full earlier:
    /// [`Usage::metadata`](super::Usage::metadata).
    pub free: u64,
}

/// The count of files.
#[derive(Default, Debug)]
pub(super) struct FileCounter {
    /// Files when the file system was opened; `None`: they have not been counted yet. Rows have [counted](Totals) what came since.
    at_open: Option<u64>,
}

impl FileCounter {
    /// What the rows say. Rows that cannot be read are no count.
    pub(super) fn load(rows: &Rows) -> Result<FileCounter, FsError> {
        let number = |name| {
            let row = rows.get(&key::counter(name))?;
            Ok::<_, FsError>(row.and_then(|row| row.try_into().ok()).map(u64::from_le_bytes))
        };
        let sequence = number("sequence")?.unwrap_or(0);
        let count = if number(FILES_AS_OF)? == Some(sequence) { number(FILES)? } else { None };
        Ok(FileCounter { at_open: count })
    }

    /// How many there are now, if they have been counted.
    fn count(&self, totals: Totals) -> Option<u64> {
        self.at_open.map(|count| count.saturating_add_signed(totals.files))
    }

    /// They were counted when the rows had these totals.
    fn found(&mut self, count: u64, totals: Totals) {
        self.at_open = Some(count.saturating_add_signed(-totals.files));
    }

    /// The rows of the count for the commit that writes `sequence`.
    pub(super) fn rows(&self, totals: Totals, sequence: u64) -> Vec<Row> {
        self.count(totals).map_or_else(Vec::new, |count| rows_of(count, sequence).into())
    }
}

fn rows_of(count: u64, sequence: u64) -> [Row; 2] {
    [(FILES, count), (FILES_AS_OF, sequence)].map(|(name, n)| (key::counter(name), n.to_le_bytes().to_vec()))
}

/// Writes the count, and the counter of numbers that is written with it.
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
    /// How many files there are. The first call may have to count them.
    pub(super) fn files(&self) -> Result<FileCounts, FsError> {
        for _ in 0..TRIES {
            let before = self.reader.totals();
            let known = self.lock().files.count(before);
            if let Some(used) = known {
                return Ok(self.counts(used));
            }
            let found = count(&self.reader)?;
            // Otherwise files were made or destroyed while they were counted.
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
