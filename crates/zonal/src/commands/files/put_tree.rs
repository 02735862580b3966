//! Copying files of the host into a file system: one file, or a directory with its contents.

use super::journey::Journey;
use super::kept::{HostName, is_of_attribute, keep, kind_of, placed, skipped, times_of};
use super::pipe::{in_turn, piece_bytes, pipe};
use super::{Opened, own};
use crate::exit::Failure;
use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, Stat, fstat, openat, readlinkat, seek, statat};
use rustix::io::{Errno, pread};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use zonal_fs::format::FileKind;
use zonal_fs::{Changes, FsError, NewFile, OpenFile, Payload, Rename, SetIds};

/// Bytes requested at once beyond the size of a file. Less than a piece, because files of /proc/sys
/// allocate a buffer of this length for each read and refuse one of 4 MiB.
const TAIL_BYTES: u64 = 256 << 10;

/// Copies files into a file system.
pub(super) struct PutTree<'a> {
    opened: &'a Opened,
    journey: Journey,
    /// Copied files with several names: their numbers here, by device and number on the host.
    linked: HashMap<(u64, u64), u64>,
    /// Copied files that are not linked yet.
    unnamed: Vec<Unnamed>,
    /// Finished directories of these files, with the times to restore after linking.
    done: Vec<(u64, Changes)>,
    buffer: Vec<u8>,
}

/// Directory that is being copied.
struct Frame {
    from: OwnedFd,
    /// Name in the parent directory, and its properties when the copy began.
    name: OsString,
    stat: Stat,
    ino: u64,
    path: Vec<u8>,
    /// Path in the file system.
    to: Vec<u8>,
    left: Vec<OsString>,
}

/// Copied file that is not linked yet.
pub(super) struct Unnamed {
    pub(super) file: OpenFile,
    pub(super) parent: u64,
    pub(super) name: Vec<u8>,
    /// Path for error messages.
    pub(super) path: Vec<u8>,
    /// Result of setting its attributes.
    pub(super) kept: anyhow::Result<()>,
}

/// Maximum number of files that are linked together: enough to share units, few enough to stay in
/// memory.
pub(super) const UNNAMED_MAX: usize = 1024;

/// Links files, and reports the error of each to `failed`.
pub(super) fn name_all(
    opened: &Opened,
    unnamed: &mut Vec<Unnamed>,
    mut failed: impl FnMut(&[u8], anyhow::Error) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Opened { fs, waiter } = opened;
    let mut result = Ok(());
    for Unnamed { file, parent, name, path, kept } in unnamed.drain(..) {
        let placed = placed(kept, || Ok(fs.link_over(waiter, file.ino(), parent, &name)?));
        // Closing removes a file that was not linked. The first error is reported.
        let closed = file.close(waiter);
        if let Err(error) = placed.and(closed.map_err(anyhow::Error::from)) {
            result = result.and(failed(&path, error));
        }
    }
    result
}

impl<'a> PutTree<'a> {
    /// Begins a copy of many files.
    pub(super) fn new(opened: &'a Opened) -> Result<PutTree<'a>, Failure> {
        Ok(PutTree::with(opened, Journey::of_many("put")?))
    }

    /// Begins a copy of one file.
    pub(super) fn of_one(opened: &'a Opened) -> Result<PutTree<'a>, Failure> {
        Ok(PutTree::with(opened, Journey::begin("put", "an existing file is unchanged")?))
    }

    fn with(opened: &'a Opened, journey: Journey) -> PutTree<'a> {
        let buffer = vec![0; piece_bytes(&opened.fs)];
        PutTree { opened, journey, linked: HashMap::new(), unnamed: Vec::new(), done: Vec::new(), buffer }
    }

    /// Sets the total of the progress line to the size of the files below a directory of the host.
    pub(super) fn expect_tree(&self, source: &Path) {
        self.journey.progress.expect_tree(source);
    }

    /// Copies a file to the path `to`. `place` creates its directory once the file is complete. If
    /// `source` is a link, its target is copied.
    pub(super) fn put_file(
        mut self,
        source: &Path,
        to: &[u8],
        place: impl Fn() -> Result<u64, FsError>,
    ) -> anyhow::Result<()> {
        // Opened as an entry of its directory, like the files of a tree.
        let source = source.canonicalize()?;
        self.journey.progress.expect(source.metadata().map_or(0, |there| there.len()));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = openat(CWD, source.parent().unwrap_or(Path::new("/")), flags, Mode::empty())?;
        let from = HostName { directory: &above, name: source.file_name().unwrap_or_default() };
        self.file(from, source.as_os_str().as_bytes(), to, &place)?;
        let mut named = Ok(());
        let _ = name_all(self.opened, &mut self.unnamed, |_, error| {
            named = Err(error);
            Ok(())
        });
        named
    }

    /// Copies the directory `source`, its contents and properties, to the directory `ino` with the
    /// path `to`.
    pub(super) fn put_directory(mut self, source: &Path, ino: u64, to: &[u8]) -> Result<(), Failure> {
        self.directory(source, ino, to)?;
        self.journey.end()
    }

    /// Copies the contents of a directory, then its properties, because new entries change its
    /// times.
    fn directory(&mut self, source: &Path, ino: u64, to: &[u8]) -> Result<(), Failure> {
        let shown = || crate::text::shown(source.as_os_str().as_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let from = openat(CWD, source, flags, Mode::empty()).with_context(shown)?;
        let above = openat(&from, "..", flags, Mode::empty()).with_context(shown)?;
        let name = source.canonicalize().with_context(shown)?;
        let name = name.file_name().unwrap_or(OsStr::new(".")).to_owned();
        let root = frame(from, name, ino, (source.as_os_str().as_bytes(), to)).with_context(shown)?;
        let mut frames = vec![root];
        let copied = self.walk(&above, &mut frames);
        let named = self.name_all();
        // Directories that an error or a signal leaves unfinished. The first error is reported.
        while let Some(left) = frames.pop() {
            let _ = self.keep(&left, frames.last().map_or(&above, |frame| &frame.from));
        }
        copied.and(named)
    }

    /// Links the copied files, and restores the times of their directories.
    fn name_all(&mut self) -> Result<(), Failure> {
        let PutTree { opened, journey, unnamed, .. } = self;
        let named = name_all(opened, unnamed, |path, error| journey.failed(path, error));
        for (ino, times) in self.done.drain(..) {
            opened.fs.set_attributes(&opened.waiter, ino, &times).map_err(anyhow::Error::from)?;
        }
        named
    }

    /// Copies the contents and the properties of the directories in `frames`; unfinished ones stay
    /// in it. The first one is in the directory `above`.
    fn walk(&mut self, above: &OwnedFd, frames: &mut Vec<Frame>) -> Result<(), Failure> {
        while let Some(frame) = frames.last_mut() {
            self.journey.check()?;
            let Some(name) = frame.left.pop() else {
                let done = frames.pop().expect("it is the last");
                let directory = frames.last().map_or(above, |frame| &frame.from);
                if let Err(error) = self.keep(&done, directory) {
                    self.journey.failed(&done.path, error)?;
                }
                continue;
            };
            let path = [&frame.path[..], b"/", name.as_bytes()].concat();
            match self.entry(frame, &name, &path) {
                Ok(below) => frames.extend(below),
                Err(error) => self.journey.failed(&path, error)?,
            }
            if self.unnamed.len() >= UNNAMED_MAX {
                self.name_all()?;
            }
        }
        Ok(())
    }

    /// Copies the properties of a directory, after its contents are copied.
    fn keep(&mut self, done: &Frame, directory: &OwnedFd) -> anyhow::Result<()> {
        let Opened { fs, waiter } = self.opened;
        if self.unnamed.iter().any(|file| file.parent == done.ino) {
            self.done.push((done.ino, times_of(&done.stat)));
        }
        let from = HostName { directory, name: &done.name };
        keep(fs, waiter, (from, &done.stat), done.ino)
    }

    /// Copies an entry. A directory is returned, to be copied next.
    fn entry(&mut self, frame: &Frame, name: &OsStr, path: &[u8]) -> anyhow::Result<Option<Frame>> {
        let from = HostName { directory: &frame.from, name };
        let slash: &[u8] = if frame.to.is_empty() { b"" } else { b"/" };
        let to = [&frame.to[..], slash, name.as_bytes()].concat();
        let stat = statat(&frame.from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match kind_of(&stat) {
            FileKind::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = openat(&frame.from, name, flags, Mode::empty())?;
                let ino = enter(self.opened, frame.ino, name.as_bytes(), 0o700)?;
                return Ok(Some(self::frame(below, name.to_owned(), ino, (path, &to))?));
            }
            FileKind::File => self.file(from, path, &to, &|| Ok(frame.ino))?,
            FileKind::Symlink => self.link(from, &stat, frame.ino)?,
            kind => self.journey.skipped(path, skipped(kind)),
        }
        Ok(None)
    }

    /// Copies a regular file. It is linked once it is complete, together with others.
    fn file(
        &mut self,
        from: HostName<'_>,
        path: &[u8],
        to: &[u8],
        place: &dyn Fn() -> Result<u64, FsError>,
    ) -> anyhow::Result<()> {
        let Opened { fs, waiter } = self.opened;
        // If the file has become a pipe meanwhile, the open must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(from.directory, from.name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if kind_of(&stat) != FileKind::File {
            bail!("no longer a regular file");
        }
        let name = to.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if self.is_linked(&stat, name, place)? {
            return Ok(());
        }
        let new = fs.create_unnamed(waiter, &NewFile::new(FileKind::File, 0o600))?;
        let ino = new.ino();
        fs.announce(ino, to)?;
        let copied = self.copy(&file, ino, stat.st_size as u64).and_then(|()| {
            new.send(waiter)?;
            let kept = keep(fs, waiter, (from, &stat), ino);
            match kept {
                Err(error) if !is_of_attribute(&error) => Err(error),
                kept => Ok((place()?, kept)),
            }
        });
        match copied {
            Ok((parent, kept)) => {
                self.unnamed.push(Unnamed {
                    file: new,
                    parent,
                    name: name.to_vec(),
                    path: path.to_vec(),
                    kept,
                });
                self.copied(&stat, ino);
                Ok(())
            }
            // Closing removes the file. The first error is reported.
            Err(error) => {
                let _ = new.close(waiter);
                Err(error)
            }
        }
    }

    /// Links a file that was copied before under another name. Returns false if it was not.
    fn is_linked(
        &mut self,
        stat: &Stat,
        name: &[u8],
        place: &dyn Fn() -> Result<u64, FsError>,
    ) -> anyhow::Result<bool> {
        let Some(&ino) = self.linked.get(&(stat.st_dev, stat.st_ino)) else { return Ok(false) };
        if self.unnamed.iter().any(|unnamed| unnamed.file.ino() == ino) {
            self.name_all().map_err(|failure| failure.error)?;
        }
        let Opened { fs, waiter } = self.opened;
        fs.link_over(waiter, ino, place()?, name)?;
        self.journey.progress.file();
        Ok(true)
    }

    fn copied(&mut self, stat: &Stat, ino: u64) {
        if stat.st_nlink > 1 {
            self.linked.insert((stat.st_dev, stat.st_ino), ino);
        }
        self.journey.progress.file();
    }

    /// Copies data, and leaves holes out.
    fn copy(&mut self, file: &OwnedFd, ino: u64, size: u64) -> anyhow::Result<()> {
        let Opened { fs, waiter } = self.opened;
        let mut at = 0;
        while at < size {
            let data = match seek(file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => break,
                // Without support for holes, all of it counts as data.
                Err(_) => at,
            };
            let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(size).clamp(data, size.max(data));
            at = data;
            self.copy_data(file, ino, at..hole, |length| at += length)?;
            if at < hole {
                // Files with the state of the system, as in /sys, end before their reported size.
                let is_cut = (fstat(file)?.st_size as u64) < size;
                return if is_cut { bail!("the file shrank while it was read") } else { Ok(()) };
            }
        }
        if at < size {
            let changes = Changes { size: Some(size), set_ids: SetIds::Keep, ..Changes::default() };
            fs.set_attributes(waiter, ino, &changes)?;
            at = size;
        }
        // The size is no guarantee: procfs reports 0 for files with data, and a log may grow.
        loop {
            let before = at;
            self.copy_data(file, ino, at..at + TAIL_BYTES, |length| at += length)?;
            if at == before {
                return Ok(());
            }
        }
    }

    /// Copies a range without holes, and calls `done` after each piece.
    fn copy_data(
        &mut self,
        file: &OwnedFd,
        ino: u64,
        range: Range<u64>,
        mut done: impl FnMut(u64),
    ) -> anyhow::Result<()> {
        let PutTree { opened: Opened { fs, waiter }, journey, buffer, .. } = self;
        let (mut from, mut at) = (range.start, range.start);
        let fill = |into: &mut [u8]| {
            let wanted = (range.end - from).min(into.len() as u64) as usize;
            let read = pread(file, &mut into[..wanted], from).context("cannot be read")?;
            from += read as u64;
            anyhow::Ok(read)
        };
        let empty = |piece: &[u8]| {
            journey.check().map_err(|failure| failure.error)?;
            let length = piece.len() as u64;
            if fs.write(waiter, ino, at, Payload::Bytes(piece))? < length {
                return Err(FsError::NoSpace.into());
            }
            at += length;
            journey.progress.bytes(length);
            done(length);
            Ok(())
        };
        if range.end - range.start > buffer.len() as u64 {
            return pipe(buffer.len(), fill, empty);
        }
        in_turn(&mut buffer[..], fill, empty)
    }

    /// Copies a symbolic link itself. An existing file of that name is replaced in one step.
    fn link(&mut self, from: HostName<'_>, stat: &Stat, parent: u64) -> anyhow::Result<()> {
        let Opened { fs, waiter } = self.opened;
        if self.is_linked(stat, from.name.as_bytes(), &|| Ok(parent))? {
            return Ok(());
        }
        let target = readlinkat(from.directory, from.name, Vec::new())?.into_bytes();
        let ino = replace_link(self.opened, parent, from.name.as_bytes(), target)?;
        self.copied(stat, ino);
        keep(fs, waiter, (from, stat), ino)
    }
}

/// Directory to copy, with the names in it.
fn frame(from: OwnedFd, name: OsString, ino: u64, (path, to): (&[u8], &[u8])) -> anyhow::Result<Frame> {
    let stat = fstat(&from)?;
    let mut left = Vec::new();
    for entry in rustix::fs::Dir::read_from(&from)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            left.push(OsString::from_vec(name.to_vec()));
        }
    }
    // Entries are taken from the end.
    left.sort_unstable_by(|a, b| b.cmp(a));
    Ok(Frame { from, name, stat, ino, path: path.to_vec(), to: to.to_vec(), left })
}

/// Creates a symbolic link. An existing file of that name is replaced in one step.
pub(super) fn replace_link(
    opened: &Opened,
    parent: u64,
    name: &[u8],
    target: Vec<u8>,
) -> Result<u64, FsError> {
    let Opened { fs, waiter } = opened;
    let new = NewFile { target, ..NewFile::new(FileKind::Symlink, 0o777) };
    match fs.create(waiter, parent, name, &new) {
        Err(FsError::Exists) => {}
        made => return made,
    }
    let made = (0..).find_map(|n| {
        let spare = format!(".zonal.{n}").into_bytes();
        match fs.create(waiter, parent, &spare, &new) {
            Err(FsError::Exists) => None,
            made => Some(made.map(|ino| (spare, ino))),
        }
    });
    let (spare, ino) = made.expect("numbers do not end")?;
    let renamed = fs.rename(waiter, (parent, &spare), (parent, name), Rename::Replace);
    if renamed.is_err() {
        fs.unlink(waiter, parent, &spare)?;
    }
    renamed.map(|()| ino)
}

/// Returns the directory of this name, which is created if missing.
pub(super) fn enter(opened: &Opened, parent: u64, name: &[u8], mode: u16) -> Result<u64, FsError> {
    let Opened { fs, waiter } = opened;
    let ino = match fs.lookup(parent, name) {
        Err(FsError::NotFound) => return fs.create(waiter, parent, name, &own(FileKind::Directory, mode)),
        found => found?,
    };
    if fs.attributes(ino)?.kind == FileKind::Directory { Ok(ino) } else { Err(FsError::NotDirectory) }
}
