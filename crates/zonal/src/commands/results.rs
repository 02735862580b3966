//! Result files, checked before a run and written after it.
//!
//! A run may take hours and may not be repeatable. So errors are reported before it where possible,
//! and after it each result is written even if another one cannot be.

use crate::exit::{Exit, Failure, OrExit};
use anyhow::{Context, anyhow};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zonal_io::image::is_image;

/// Files for the results of a run, held until the results are written.
pub(crate) struct ResultFiles {
    files: Vec<File>,
    /// Files that did not exist before.
    made: Vec<PathBuf>,
}

impl ResultFiles {
    /// Creates missing files. Existing ones keep their contents until the results are written.
    ///
    /// # Errors
    /// [`Failure`] if a file cannot be written, is an image, or is named for two results.
    pub(crate) fn open<'a>(
        paths: impl IntoIterator<Item = &'a Option<PathBuf>>,
    ) -> Result<ResultFiles, Failure> {
        let mut all = ResultFiles { files: Vec::new(), made: Vec::new() };
        for path in paths.into_iter().flatten() {
            all.add(path)?;
        }
        Ok(all)
    }

    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let place = || format!("{}: cannot write the results", path.display());
        if is_image(path) {
            return Err(anyhow!("an image").context(place())).or_exit(Exit::Usage);
        }
        let is_new = !path.exists();
        let file = File::options().append(true).create(true).open(path).with_context(place)?;
        let found = file.metadata().with_context(place)?;
        let is_same = |other: &File| other.metadata().is_ok_and(|other| is_one_file(&found, &other));
        let is_taken = self.files.iter().any(is_same);
        self.files.push(file);
        self.made.extend(is_new.then(|| path.to_owned()));
        match is_taken {
            true => Err(anyhow!("other results go to the same file").context(place())).or_exit(Exit::Usage),
            false => Ok(()),
        }
    }
}

impl Drop for ResultFiles {
    /// Removes empty files after a run without results.
    fn drop(&mut self) {
        for path in &self.made {
            if path.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
                // An empty file that stays is harmless.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Checks before a run that a page may be written to `path`: nothing is there, or a regular file.
pub(crate) fn check_page(path: &Path) -> anyhow::Result<()> {
    let place = || format!("{}: cannot write the report", path.display());
    match path.metadata() {
        Ok(found) if !found.is_file() => Err(anyhow!("not a regular file").context(place())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            let found = directory.unwrap_or(Path::new(".")).metadata().with_context(place)?;
            if found.is_dir() { Ok(()) } else { Err(anyhow!("not in a directory").context(place())) }
        }
        Err(error) => Err(error).with_context(place),
    }
}

/// Reads a regular file of at most `max` bytes; `too_long` is the error of a longer one.
pub(crate) fn read_regular(path: &Path, max: u64, too_long: &str) -> io::Result<Vec<u8>> {
    // A pipe without a writer would block.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    read_bounded(File::open(path)?, max, too_long)
}

/// Reads at most `max` bytes; `too_long` is the error if there are more.
pub(crate) fn read_bounded(from: impl Read, max: u64, too_long: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match from.take(max.saturating_add(1)).read_to_end(&mut bytes)? as u64 > max {
        true => Err(io::Error::new(ErrorKind::InvalidData, too_long)),
        false => Ok(bytes),
    }
}

/// True if both are the same regular file. A terminal may show several results.
pub(crate) fn is_one_file(a: &Metadata, b: &Metadata) -> bool {
    a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Prints the results in all formats to `output`, or to standard output if there is none or it
/// cannot be written.
pub(crate) fn print(
    formats: impl Iterator<Item = String>,
    output: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut text = String::new();
    for format in formats {
        text += &format;
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    let written = output.map_or(Ok(()), |path| write(path, &text));
    if output.is_none() || written.is_err() {
        out.write_all(text.as_bytes())?;
    }
    written
}

/// Writes a result to its file, replacing the contents.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(std::fs::write(path, text).with_context(|| format!("{}: cannot write the results", path.display()))?)
}
