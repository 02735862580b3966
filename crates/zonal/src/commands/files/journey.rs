//! What copies of whole trees have in common: files that fail are told and the others are copied, and a terminal sees how far it is.

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

/// A copy of a tree under way.
pub(super) struct Journey {
    interrupt: Interrupt,
    /// What a signal leaves.
    left: String,
    pub(super) progress: Progress,
    failed: u64,
    /// Files with zeroes for what is lost.
    salvaged: u64,
    /// Data was not what was written.
    is_damaged: bool,
}

impl Journey {
    /// A journey that does `what`; a signal leaves what is `left`.
    pub(super) fn begin(what: &'static str, left: impl Into<String>) -> Result<Journey, Failure> {
        let interrupt = Interrupt::listen()?;
        // A directory is open while what is below it is copied: trees are deeper than the common limit of descriptors.
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

    /// A journey that copies many files.
    pub(super) fn of_many(what: &'static str) -> Result<Journey, Failure> {
        Journey::begin(what, "what was copied until then is there")
    }

    /// Tells the progress line how much the files below a directory have.
    pub(super) fn expect_tree(&self, fs: &FileSystem, ino: u64) {
        if self.progress.is_wanted() {
            self.progress.expect(tree_bytes(fs, ino));
        }
    }

    /// An error once a signal has come.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.interrupt.check(|| self.left.clone())
    }

    /// A file that could not be copied: it is told, and the others are copied. An error that would be each file's ends it.
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

    /// Something that could not be copied, in words that say what it is.
    pub(super) fn failed_with(&mut self, words: &str) {
        self.failed += 1;
        self.tell(words);
    }

    /// Tells of blocks of a file that were found lost.
    pub(super) fn lost(&mut self, path: &[u8], lost: &Lost) {
        lost.tell(path, || self.progress.clear());
    }

    /// A file that was copied but for this number of blocks, if it is not 0.
    pub(super) fn salvaged(&mut self, path: &[u8], blocks: u64) {
        if blocks > 0 {
            (self.salvaged, self.is_damaged) = (self.salvaged + 1, true);
            self.tell(&format!("{}: {}", shown(path), salvage::lost(blocks)));
        }
    }

    /// A file that is not copied because of what it is.
    pub(super) fn skipped(&mut self, path: &[u8], what: &str) {
        self.noted(path, &format!("{what}, skipped"));
    }

    /// Something to be known of a file that is copied or skipped.
    pub(super) fn noted(&mut self, path: &[u8], what: &str) {
        self.tell(&format!("{}: {what}", shown(path)));
    }

    fn tell(&mut self, line: &str) {
        self.progress.clear();
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "zonal: {line}");
    }

    /// The failure of a copy that `error` ends in the midst of a file.
    pub(super) fn ended_by(path: &[u8], error: anyhow::Error) -> Failure {
        let is_damage = error.downcast_ref::<FsError>().is_some_and(FsError::is_damage);
        let exit = if is_damage { Exit::Verify } else { Exit::Failed };
        Failure { exit, error: error.context(shown(path)) }
    }

    /// An error if anything could not be copied.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        self.progress.clear();
        let exit = if self.is_damaged { Exit::Verify } else { Exit::Failed };
        let error = match (self.failed, self.salvaged) {
            (0, 0) => return Ok(()),
            (0, salvaged) => anyhow!("{salvaged} have zeroes for what is lost; the rest is there"),
            (failed, 0) => anyhow!("{failed} could not be copied; the rest is there"),
            (failed, salvaged) => anyhow!(
                "{failed} could not be copied, {salvaged} have zeroes for what is lost; the rest is there"
            ),
        };
        Err(Failure { exit, error })
    }
}

/// Bytes of the regular files below a directory. What cannot be read counts nothing.
fn tree_bytes(fs: &FileSystem, directory: u64) -> u64 {
    let mut todo = vec![directory];
    let mut seen = HashSet::new();
    let mut sum = 0;
    while let Some(directory) = todo.pop() {
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
    sum
}
