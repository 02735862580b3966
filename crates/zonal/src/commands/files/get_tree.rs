//! Copying a directory of a file system with its contents to the host.
//!
//! Neither a name in the file system nor an existing link leads elsewhere: each directory is
//! entered by its descriptor, and no link is followed. An existing file is replaced in one step,
//! once the new one is complete.

use super::Opened;
use super::journey::Journey;
use super::kept::{HostName, keep_of_link, keep_on_host, skipped, xattrs};
use super::ls::entries;
use super::pipe::{piece_bytes, pipe};
use super::salvage::{self, Lost};
use crate::atomic_file::spare;
use crate::exit::Failure;
use crate::text::shown;
use anyhow::{Context, anyhow, bail};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, ftruncate, linkat, mkdirat, openat, openat2,
    renameat, statat, symlinkat, unlinkat,
};
use rustix::io::{Errno, pwrite};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, FsError, Seek};
use zonal_io::clock::Clock;
use zonal_io::image::is_image;

/// Copy of a directory tree to the host.
pub(super) struct GetTree<'a> {
    opened: &'a Opened,
    journey: Journey,
    /// Copied files with several names: path of the first name, from the destination.
    linked: HashMap<u64, PathBuf>,
    buffer: Vec<u8>,
    /// Path of the directory in the file system.
    from: Vec<u8>,
    /// True to replace damaged blocks by zeroes instead of leaving the file out.
    salvage: bool,
}

/// Directory that is being copied.
struct Frame {
    to: OwnedFd,
    ino: u64,
    attributes: Attributes,
    /// Path from the destination.
    path: PathBuf,
    left: Vec<(Vec<u8>, u64)>,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl<'a> GetTree<'a> {
    /// Begins a copy of the directory with this path.
    pub(super) fn new(opened: &'a Opened, from: Vec<u8>, salvage: bool) -> Result<GetTree<'a>, Failure> {
        let journey = Journey::of_many("get")?;
        let buffer = vec![0; piece_bytes(&opened.fs)];
        Ok(GetTree { opened, journey, linked: HashMap::new(), buffer, from, salvage })
    }

    /// Copies the directory with the number `ino`, its contents and properties, to the directory
    /// `target`, which is created if missing.
    pub(super) fn get(mut self, ino: u64, target: &Path) -> Result<(), Failure> {
        let name = || shown(target.as_os_str().as_bytes());
        self.journey.expect_tree(&self.opened.fs, ino)?;
        match std::fs::create_dir(target) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(anyhow::Error::new(error).context(name()).into());
            }
            _ => {}
        }
        let root = openat(CWD, target, DIRECTORY, Mode::empty()).with_context(name)?;
        let first = self.frame(dup(&root).with_context(name)?, ino, PathBuf::new());
        let mut frames = vec![first.with_context(|| shown(&self.from))?];
        let copied = self.walk(&root, &mut frames);
        // Directories that an error or a signal leaves unfinished.
        for left in frames.iter().rev() {
            let _ = self.keep(left);
        }
        copied?;
        self.journey.end()
    }

    /// Copies the contents and the properties of the directories in `frames`; unfinished ones stay
    /// in it.
    fn walk(&mut self, root: &OwnedFd, frames: &mut Vec<Frame>) -> Result<(), Failure> {
        let mut seen: HashSet<u64> = frames.iter().map(|frame| frame.ino).collect();
        while let Some(frame) = frames.last_mut() {
            self.journey.check()?;
            let Some((name, ino)) = frame.left.pop() else {
                let done = frames.pop().expect("it is the last");
                self.keep(&done).or_else(|error| self.failed(&done.path, error))?;
                continue;
            };
            let name = OsString::from_vec(name);
            let at = frame.path.join(&name);
            match self.entry(root, frame, &name, ino) {
                Ok(Some(below)) if !seen.insert(below.ino) => {
                    self.failed(
                        &at,
                        anyhow!("the directory has a second name; check the file system with `zonal fsck`"),
                    )?;
                }
                Ok(below) => frames.extend(below),
                Err(error) => self.failed(&at, error)?,
            }
        }
        Ok(())
    }

    /// Path in the file system of the file that is copied to `path`.
    fn in_file_system(&self, path: &Path) -> Vec<u8> {
        Path::new(OsStr::from_bytes(&self.from)).join(path).into_os_string().into_vec()
    }

    fn failed(&mut self, path: &Path, error: anyhow::Error) -> Result<(), Failure> {
        let path = self.in_file_system(path);
        self.journey.failed(&path, error)
    }

    fn frame(&self, to: OwnedFd, ino: u64, path: PathBuf) -> anyhow::Result<Frame> {
        let fs = &self.opened.fs;
        let attributes = fs.attributes(ino)?;
        let mut left = entries(fs, ino)?;
        // Entries are taken from the end.
        left.reverse();
        Ok(Frame { to, ino, attributes, path, left })
    }

    /// Copies the properties of a directory, after its contents are complete.
    fn keep(&self, done: &Frame) -> anyhow::Result<()> {
        keep_on_host(&done.to, &done.attributes, &xattrs(&self.opened.fs, done.ino)?)
    }

    /// Copies an entry. A directory is returned, to be copied next.
    fn entry(
        &mut self,
        root: &OwnedFd,
        frame: &Frame,
        name: &OsStr,
        ino: u64,
    ) -> anyhow::Result<Option<Frame>> {
        let attributes = self.opened.fs.attributes(ino)?;
        let path = frame.path.join(name);
        if name.as_bytes().contains(&b'/') || matches!(name.as_bytes(), b"" | b"." | b"..") {
            bail!("invalid file name");
        }
        match attributes.kind {
            FileKind::Directory => {
                match mkdirat(&frame.to, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let to = openat(&frame.to, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
                return Ok(Some(self.frame(to, ino, path)?));
            }
            FileKind::File | FileKind::Symlink => self.file(root, frame, name, (ino, &attributes), path)?,
            kind => {
                let path = self.in_file_system(&path);
                self.journey.skipped(&path, skipped(kind));
            }
        }
        Ok(None)
    }

    /// Copies a regular file or a symbolic link.
    fn file(
        &mut self,
        root: &OwnedFd,
        frame: &Frame,
        name: &OsStr,
        (ino, attributes): (u64, &Attributes),
        path: PathBuf,
    ) -> anyhow::Result<()> {
        let first = self.linked.get(&ino).cloned();
        if let Some(first) = &first {
            let make = |spare: &OsStr| link(root, first, &frame.to, spare);
            self.replace(&frame.to, name, make, |_, (), _| Ok(()))?;
        } else if attributes.kind == FileKind::Symlink {
            let target = self.opened.fs.target(ino)?;
            let xattrs = xattrs(&self.opened.fs, ino)?;
            let make = |spare: &OsStr| symlinkat(OsStr::from_bytes(&target), &frame.to, spare);
            self.replace(&frame.to, name, make, |_, (), spare| {
                keep_of_link(HostName { directory: &frame.to, name: spare }, attributes, &xattrs)
            })?;
        } else {
            let make = |spare: &OsStr| {
                let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                openat(&frame.to, spare, OFlags::WRONLY | OFlags::CLOEXEC | new, Mode::RUSR | Mode::WUSR)
            };
            let path = self.in_file_system(&path);
            self.replace(&frame.to, name, make, |tree, file, _| {
                tree.copy(&path, ino, attributes.size, &file)?;
                keep_on_host(&file, attributes, &xattrs(&tree.opened.fs, ino)?)
            })?;
        }
        if attributes.links > 1 && first.is_none() {
            self.linked.insert(ino, path);
        }
        self.journey.progress.file();
        Ok(())
    }

    /// Creates something under a temporary name, fills it, and renames it, replacing an existing
    /// file.
    fn replace<T>(
        &mut self,
        to: &OwnedFd,
        name: &OsStr,
        make: impl Fn(&OsStr) -> Result<T, Errno>,
        fill: impl FnOnce(&mut Self, T, &OsStr) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        check_replaced(to, name)?;
        let (made, spare) = spare(Path::new(""), |spare| Ok(make(spare.as_os_str())?))?;
        let filled = fill(self, made, spare.as_os_str());
        let placed = filled.and_then(|()| Ok(renameat(to, &spare, to, name)?));
        // The temporary name still exists if the rename failed, or if both names were links to one
        // file.
        let _ = unlinkat(to, &spare, AtFlags::empty());
        placed
    }

    /// Copies data, and leaves out holes.
    fn copy(&mut self, path: &[u8], ino: u64, size: u64, file: &OwnedFd) -> anyhow::Result<()> {
        let GetTree { opened: Opened { fs, .. }, journey, buffer, salvage, .. } = self;
        let lost = Lost::default();
        copy_out(fs, (ino, size), file, buffer, salvage.then_some(&lost), |bytes| {
            journey.lost(path, &lost);
            journey.progress.bytes(bytes);
            journey.check()
        })?;
        journey.salvaged(path, lost.blocks());
        Ok(())
    }
}

/// Copies the data of a file, leaves out holes, and calls `done` after each piece. With `lost`,
/// damage is not an error.
pub(super) fn copy_out(
    fs: &FileSystem,
    (ino, size): (u64, u64),
    file: impl AsFd,
    buffer: &mut [u8],
    lost: Option<&Lost>,
    mut done: impl FnMut(u64) -> Result<(), Failure>,
) -> anyhow::Result<()> {
    let mut at = 0;
    while at < size {
        let data = match fs.seek(ino, at, Seek::Data) {
            Err(FsError::NothingThere) => break,
            data => data?,
        };
        let hole = fs.seek(ino, data, Seek::Hole)?.min(size);
        at = data;
        let (mut from, waiter) = (data, Polling::new(Clock::start()));
        let mut fill = move |into: &mut [u8]| {
            let wanted = (hole - from).min(into.len() as u64) as usize;
            let read = salvage::read(fs, &waiter, (ino, from), &mut into[..wanted], lost)?;
            from += read;
            anyhow::Ok(read as usize)
        };
        let mut empty = |mut piece: &[u8]| {
            let length = piece.len() as u64;
            while !piece.is_empty() {
                let written = pwrite(&file, piece, at)?;
                (piece, at) = (&piece[written..], at + written as u64);
            }
            done(length).map_err(|failure| failure.error)
        };
        if hole - data > buffer.len() as u64 {
            pipe(buffer.len(), fill, empty)?;
        } else {
            let read = fill(&mut buffer[..])?;
            empty(&buffer[..read])?;
        }
        at = hole;
    }
    Ok(ftruncate(file, size)?)
}

fn dup(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    openat(descriptor, ".", DIRECTORY, Mode::empty())
}

/// Gives a copied file another name.
fn link(root: &OwnedFd, first: &Path, to: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let first = openat2(root, first, flags, Mode::empty(), within)?;
    let path = format!("/proc/self/fd/{}", first.as_raw_fd());
    linkat(CWD, path, to, name, AtFlags::SYMLINK_FOLLOW)
}

/// Fails if the existing file must not be replaced.
fn check_replaced(to: &OwnedFd, name: &OsStr) -> anyhow::Result<()> {
    let stat = match statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(()),
        stat => stat?,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let path = PathBuf::from(format!("/proc/self/fd/{}", to.as_raw_fd())).join(name);
            if is_image(&path) {
                bail!("the destination is an image, which is never replaced")
            } else {
                Ok(())
            }
        }
        FileType::Symlink => Ok(()),
        FileType::Directory => bail!("the destination is a directory"),
        _ => bail!("the destination is a special file"),
    }
}
