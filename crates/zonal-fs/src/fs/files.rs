//! How many files there are.
//!
//! The count is that of the rows of attributes: files of any kind, the root and files without a name included. It changes in memory with
//! each file that is made or destroyed, and each commit writes it to a row.
//!
//! # When the row counts
//! A file system may have been changed by a program that keeps no count. So a second row has the counter of numbers as of the commit
//! that wrote the count. Each opening passes over numbers, and each commit writes the counter: if another opening has committed
//! since, the two differ. Then the files are counted once, by the first caller that asks, and later commits write the count.

use super::core::{Core, Shared};
use super::error::FsError;
use crate::format::{FILES_END, key};
use crate::store::{Rows, View};
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
    /// `None`: they have not been counted yet.
    count: Option<u64>,
    /// How often it has changed, so that a thread that counts knows whether it has counted what is there.
    changes: u64,
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
        Ok(FileCounter { count, changes: 0 })
    }

    pub(super) fn made(&mut self) {
        self.changes += 1;
        self.count = self.count.map(|count| count.saturating_add(1));
    }

    pub(super) fn destroyed(&mut self) {
        self.changes += 1;
        self.count = self.count.map(|count| count.saturating_sub(1));
    }
}

impl Core {
    /// Writes the count for the commit that writes `sequence`.
    pub(super) fn note_files(&mut self, sequence: u64) {
        if let Some(count) = self.files.count {
            put(&mut self.rows, count, sequence);
        }
    }
}

/// Writes the count, and the counter of numbers that is written with it.
pub(crate) fn put(rows: &mut Rows, count: u64, sequence: u64) {
    rows.put(key::counter(FILES), count.to_le_bytes().to_vec());
    rows.put(key::counter(FILES_AS_OF), sequence.to_le_bytes().to_vec());
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
            let changes = {
                let core = self.lock();
                if let Some(used) = core.files.count {
                    return Ok(FileCounts { used, free: FILES_END.saturating_sub(core.next_ino) });
                }
                core.files.changes
            };
            let found = count(&self.reader)?;
            let mut core = self.lock();
            // Otherwise files were made or destroyed while they were counted.
            if core.files.changes == changes {
                core.files.count = Some(found);
            }
        }
        let mut core = self.lock();
        let used = match core.files.count {
            Some(count) => count,
            None => count(&core.rows)?,
        };
        core.files.count = Some(used);
        Ok(FileCounts { used, free: FILES_END.saturating_sub(core.next_ino) })
    }
}
