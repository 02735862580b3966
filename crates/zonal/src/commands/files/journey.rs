//! Copies of whole trees: a file that fails is reported while the others are copied, and a terminal
//! shows the progress.

use super::ls::entries;
use super::salvage::{self, Lost};
use crate::exit::{Exit, Failure};
use crate::interrupt::{Interrupt, Interrupted};
use crate::progress::Progress;
use crate::text::shown;
use anyhow::anyhow;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashSet;
use std::io::{self, Write};
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, FsError};

/// Copy of a tree in progress.
pub(super) struct Journey {
    interrupt: Interrupt,
    /// Description of the state after a signal.
    left: String,
    pub(super) progress: Progress,
    failed: u64,
    /// Files copied with zeroes for lost data.
    salvaged: u64,
    /// True if damaged data was found.
    is_damaged: bool,
}

impl Journey {
    /// Begins a copy. `what` is the name of the command, and `left` describes the state after a
    /// signal.
    pub(super) fn begin(what: &'static str, left: impl Into<String>) -> Result<Journey, Failure> {
        let interrupt = Interrupt::listen()?;
        // Every directory above the current file is open, and trees can be deeper than the usual
        // limit of descriptors.
        let most = getrlimit(Resource::Nofile).maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
        Ok(Journey {
            interrupt,
            left: left.into(),
            progress: Progress::new(what),
            failed: 0,
            salvaged: 0,
            is_damaged: false,
        })
    }

    /// Begins a copy of many files.
    pub(super) fn of_many(what: &'static str) -> Result<Journey, Failure> {
        Journey::begin(what, "files copied until then are complete")
    }

    /// Bytes of the regular files below a directory. Files that cannot be read count as 0.
    fn tree_bytes(&self, fs: &FileSystem, directory: u64) -> Result<u64, Failure> {
        let mut todo = vec![directory];
        let mut seen = HashSet::new();
        let mut sum = 0;
        while let Some(directory) = todo.pop() {
            self.check()?;
            if !seen.insert(directory) {
                continue;
            }
            for (_, ino) in entries(fs, directory).unwrap_or_default() {
                match fs.attributes(ino) {
                    Ok(there) if there.kind == FileKind::Directory => todo.push(ino),
                    Ok(there) if there.kind == FileKind::File => sum += there.size,
                    _ => {}
                }
            }
        }
        Ok(sum)
    }

    /// Sets the total of the progress line to the size of the files below a directory.
    ///
    /// # Errors
    /// If a signal ends the walk.
    pub(super) fn expect_tree(&self, fs: &FileSystem, ino: u64) -> Result<(), Failure> {
        if self.progress.is_wanted() {
            self.progress.expect(self.tree_bytes(fs, ino)?);
        }
        Ok(())
    }

    /// Fails once a signal has arrived.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.interrupt.check(|| self.left.clone())
    }

    /// Reports a file that could not be copied, and the others are copied. An error that would
    /// affect each file ends the copy.
    pub(super) fn failed(&mut self, path: &[u8], error: anyhow::Error) -> Result<(), Failure> {
        if error.is::<Interrupted>() {
            return Err(error.into());
        }
        let of_files = error.downcast_ref::<FsError>();
        let is_general =
            of_files.is_some_and(|error| error.is_no_space() || matches!(error, FsError::ReadOnly(_)));
        if is_general {
            return Err(error.context(shown(path)).into());
        }
        self.is_damaged |= of_files.is_some_and(FsError::is_damage);
        self.failed_with(&format!("{}: {error:#}", shown(path)));
        Ok(())
    }

    /// Reports something that could not be copied, in the words of the caller.
    pub(super) fn failed_with(&mut self, words: &str) {
        self.failed += 1;
        self.tell(words);
    }

    /// Reports lost blocks of a file.
    pub(super) fn lost(&mut self, path: &[u8], lost: &Lost) {
        lost.tell(path, || self.progress.clear());
    }

    /// Reports a file that was copied without this number of blocks, if it is not 0.
    pub(super) fn salvaged(&mut self, path: &[u8], blocks: u64) {
        if blocks > 0 {
            (self.salvaged, self.is_damaged) = (self.salvaged + 1, true);
            self.tell(&format!("{}: {}", shown(path), salvage::lost(blocks)));
        }
    }

    /// Reports a file that is not copied because of its kind.
    pub(super) fn skipped(&mut self, path: &[u8], what: &str) {
        self.noted(path, &format!("{what}, skipped"));
    }

    /// Prints a note about a file that is copied or skipped.
    pub(super) fn noted(&mut self, path: &[u8], what: &str) {
        self.tell(&format!("{}: {what}", shown(path)));
    }

    fn tell(&mut self, line: &str) {
        self.progress.clear();
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "zonal: {line}");
    }

    /// Failure of a copy that `error` ends in the middle of a file.
    pub(super) fn ended_by(path: &[u8], error: anyhow::Error) -> Failure {
        let is_damage = error.downcast_ref::<FsError>().is_some_and(FsError::is_damage);
        let exit = if is_damage { Exit::Verify } else { Exit::Failed };
        Failure { exit, error: error.context(shown(path)) }
    }

    /// Fails if anything could not be copied.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.progress.clear();
        let exit = if self.is_damaged { Exit::Verify } else { Exit::Failed };
        let error = match (self.failed, self.salvaged) {
            (0, 0) => return Ok(()),
            (0, salvaged) => anyhow!("copied with zeroes for lost data: {salvaged}; the rest is complete"),
            (failed, 0) => anyhow!("not copied: {failed}; the rest is complete"),
            (failed, salvaged) => anyhow!(
                "not copied: {failed}, copied with zeroes for lost data: {salvaged}; the rest is complete"
            ),
        };
        Err(Failure { exit, error })
    }
}
