//! File that appears under its name only once it is complete. If a command fails, the previous file
//! stays.
//!
//! # Leftovers of an interrupted command
//! None on file systems with unnamed files (`O_TMPFILE`), such as ext4, XFS, btrfs and tmpfs: an
//! unnamed file disappears with its process, however that ends. Elsewhere, for instance on NFS, the
//! file is written under a temporary name in the same directory and removed when the command fails.
//! In a command that handles signals, the first signal is such a failure. The temporary file stays
//! only after a second signal or SIGKILL.
//!
//! An unnamed file can be linked only under a free name, so replacing an existing file takes a
//! temporary name between `link` and `rename`. SIGKILL or two signals in a row at that moment leave
//! the temporary name.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// File being written. Dropping it discards it.
pub(crate) struct AtomicFile {
    file: File,
    /// Temporary name, if it has one.
    beside: Option<PathBuf>,
    output: PathBuf,
}

/// Returns the directory of a file with this name.
pub(crate) fn directory(output: &Path) -> &Path {
    output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl AtomicFile {
    /// Creates a file with these permissions that will replace `output`, or the target of the link
    /// `output`.
    pub(crate) fn create(output: &Path, mode: u32) -> io::Result<AtomicFile> {
        let output = fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
        match unnamed(directory(&output), mode) {
            Some(file) => Ok(AtomicFile { file, beside: None, output }),
            None => AtomicFile::create_named(output, mode),
        }
    }

    fn create_named(output: PathBuf, mode: u32) -> io::Result<AtomicFile> {
        let make = |beside: &Path| File::options().write(true).create_new(true).mode(mode).open(beside);
        let (file, beside) = spare(directory(&output), make)?;
        Ok(AtomicFile { file, beside: Some(beside), output })
    }

    /// Returns the file for writing.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Makes the complete file durable, and gives it its name.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.place()?;
        // The name becomes durable when its directory is synced. Where that is impossible, the file
        // is complete nevertheless.
        let _ = File::open(directory(&self.output)).and_then(|directory| directory.sync_all());
        Ok(())
    }

    fn place(&mut self) -> io::Result<()> {
        if self.beside.is_none() {
            match link(&self.file, &self.output) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                linked => return linked,
            }
            let ((), beside) = spare(directory(&self.output), |beside| link(&self.file, beside))?;
            self.beside = Some(beside);
        }
        let beside = self.beside.as_ref().expect("it has a name by now");
        fs::rename(beside, &self.output)?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // The first error is the one reported.
            let _ = fs::remove_file(beside);
        }
    }
}

/// Opens an unnamed file, if the file system supports them and it can be linked later.
fn unnamed(directory: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(directory, flags, Mode::from_raw_mode(mode)).ok()?);
    path_of(&file).exists().then_some(file)
}

/// Path to an open unnamed file.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Links an unnamed file under a free name.
fn link(file: &File, name: &Path) -> io::Result<()> {
    match rustix::fs::linkat(CWD, path_of(file), CWD, name, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::INTR) => link(file, name),
        other => Ok(other?),
    }
}

/// Creates something in `directory` under a free temporary name of this process.
pub(crate) fn spare<T>(directory: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    let mut number = 0u32;
    loop {
        let beside = directory.join(format!(".zonal.{}.{number}", std::process::id()));
        match make(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|made| (made, beside)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Creates a file, with or without a temporary name.
    type Create = fn(&Path) -> io::Result<AtomicFile>;
    const WAYS: [Create; 2] = [
        |output| AtomicFile::create(output, 0o600),
        |output| AtomicFile::create_named(output.to_owned(), 0o600),
    ];

    #[test]
    fn file_appears_only_when_complete_and_without_leftovers() {
        for create in WAYS {
            let dir = tempfile::tempdir().unwrap();
            // The longest possible name leaves no room for a suffix.
            let output = dir.path().join("n".repeat(255));
            for content in ["first", "second"] {
                let before = fs::read(&output).ok();
                let mut whole = create(&output).unwrap();
                whole.file().write_all(content.as_bytes()).unwrap();
                assert_eq!(fs::read(&output).ok(), before);
                whole.commit().unwrap();
                assert_eq!(fs::read(&output).unwrap(), content.as_bytes());
                assert_eq!(names(dir.path()).len(), 1);
            }
        }
    }

    #[test]
    fn uncommitted_file_keeps_the_old_one_and_leaves_no_remains() {
        for create in WAYS {
            let dir = tempfile::tempdir().unwrap();
            let output = dir.path().join("out");
            fs::write(&output, "old").unwrap();
            let mut whole = create(&output).unwrap();
            whole.file().write_all(b"half").unwrap();
            drop(whole);
            assert_eq!(
                (names(dir.path()), fs::read(&output).unwrap()),
                (vec!["out".to_owned()], b"old".to_vec())
            );
            // An obstacle under the final name shows only at the end.
            fs::remove_file(&output).unwrap();
            let whole = create(&output).unwrap();
            fs::create_dir_all(output.join("in the way")).unwrap();
            assert!(whole.commit().is_err());
            assert_eq!(names(dir.path()), ["out"]);
        }
    }

    #[test]
    fn unnamed_file_is_used_if_supported() {
        let dir = tempfile::tempdir().unwrap();
        let whole = AtomicFile::create(&dir.path().join("out"), 0o600).unwrap();
        match whole.beside {
            None => assert!(names(dir.path()).is_empty()),
            Some(_) => println!("skipped: no unnamed files here"),
        }
    }
}
