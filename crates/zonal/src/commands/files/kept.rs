//! Properties of a file that a copy keeps apart from its data: permissions, owner, times and
//! extended attributes, between the file system of the host and this one.
//!
//! Files of the host are accessed through the descriptor of their directory, and no link on the way
//! is followed.

use anyhow::Context;
use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr,
    futimens, lgetxattr, llistxattr, lsetxattr, utimensat,
};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::waiter::Wait;
use zonal_fs::{Changes, FileSystem, FsError, SetIds, SetTime};

pub(super) const SECOND: i64 = 1_000_000_000;

/// Name spaces of the extended attributes that are kept.
const NAME_SPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];

/// Extended attribute: name and value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// Name in a directory of the host.
#[derive(Clone, Copy)]
pub(super) struct HostName<'a> {
    pub(super) directory: &'a OwnedFd,
    pub(super) name: &'a OsStr,
}

impl HostName<'_> {
    /// Path for calls that take no descriptor.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd())).join(self.name)
    }

    /// Returns the extended attributes that are kept.
    fn xattrs(&self) -> Result<Vec<Xattr>, Errno> {
        let path = self.path();
        let mut names = vec![0; 1 << 16];
        let length = match llistxattr(&path, &mut names[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            length => length?,
        };
        let mut found = Vec::new();
        for name in names[..length].split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            if !is_kept(name.to_bytes()) {
                continue;
            }
            let mut value = vec![0; 1 << 16];
            match lgetxattr(&path, name, &mut value[..]) {
                Ok(length) => {
                    value.truncate(length);
                    found.push((name.to_bytes().to_vec(), value));
                }
                // It was removed meanwhile, or is not visible to the caller.
                Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// Nanoseconds since 1970, saturating.
fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(SECOND).saturating_add(nanos)
}

/// Times of a file of the host.
pub(super) fn times_of(stat: &Stat) -> Changes {
    Changes {
        atime: Some(SetTime::At(nanos(stat.st_atime, stat.st_atime_nsec as i64))),
        mtime: Some(SetTime::At(nanos(stat.st_mtime, stat.st_mtime_nsec as i64))),
        set_ids: SetIds::Keep,
        ..Changes::default()
    }
}

/// Copies the properties of a file of the host to one of the file system, set-id bits included.
pub(super) fn keep(
    fs: &FileSystem,
    waiter: &dyn Wait,
    (from, stat): (HostName<'_>, &Stat),
    ino: u64,
) -> anyhow::Result<()> {
    let changes = Changes {
        mode: Some((stat.st_mode & 0o7777) as u16),
        uid: Some(stat.st_uid),
        gid: Some(stat.st_gid),
        ..times_of(stat)
    };
    fs.set_attributes(waiter, ino, &changes)?;
    set_xattrs(fs, waiter, ino, &from.xattrs()?)
}

/// Sets extended attributes. An attribute that is too large is returned as an error after the
/// others are set.
pub(super) fn set_xattrs(
    fs: &FileSystem,
    waiter: &dyn Wait,
    ino: u64,
    xattrs: &[Xattr],
) -> anyhow::Result<()> {
    let mut kept = Ok(());
    for (name, value) in xattrs {
        let set = fs.set_xattr(waiter, ino, name, value);
        let set = set.with_context(|| format!("attribute {}", name.escape_ascii()));
        match set {
            Err(error) if is_of_attribute(&error) => kept = kept.and(Err(error)),
            set => set?,
        }
    }
    kept
}

/// True if everything was kept except an attribute.
pub(super) fn is_of_attribute(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(FsError::AttributeTooLarge))
}

/// Places a file, unless more than an attribute could not be kept. The error of the attribute is
/// returned afterwards.
pub(super) fn placed(
    kept: anyhow::Result<()>,
    place: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match kept {
        Err(error) if !is_of_attribute(&error) => Err(error),
        kept => place().and(kept),
    }
}

/// True if an extended attribute is kept.
pub(super) fn is_kept(name: &[u8]) -> bool {
    NAME_SPACES.iter().any(|space| name.starts_with(space))
}

/// Returns the extended attributes of a file of the file system.
pub(super) fn xattrs(fs: &FileSystem, ino: u64) -> Result<Vec<Xattr>, FsError> {
    fs.xattrs(ino)?.into_iter().map(|name| Ok((name.clone(), fs.xattr(ino, &name)?))).collect()
}

/// Copies the properties of a file of the file system to an open file or directory of the host. The
/// owner, and attributes in name spaces of the system, are set only as far as the caller may set
/// them.
pub(super) fn keep_on_host(file: impl AsFd, attributes: &Attributes, xattrs: &[Xattr]) -> anyhow::Result<()> {
    if let Some((owner, group)) = owner(attributes) {
        fchown(&file, Some(owner), Some(group)).context("its owner")?;
    }
    fchmod(&file, permissions(attributes)).context("its permissions")?;
    for (name, value) in xattrs {
        let set = fsetxattr(&file, OsStr::from_bytes(name), value, XattrFlags::empty());
        allowed(name, set)?;
    }
    futimens(&file, &times(attributes)).context("its times")
}

/// Like `keep_on_host`, for a symbolic link, which has no permissions.
pub(super) fn keep_of_link(
    to: HostName<'_>,
    attributes: &Attributes,
    xattrs: &[Xattr],
) -> anyhow::Result<()> {
    let HostName { directory, name } = to;
    if let Some((owner, group)) = owner(attributes) {
        chownat(directory, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW).context("its owner")?;
    }
    for (name, value) in xattrs {
        allowed(name, lsetxattr(to.path(), OsStr::from_bytes(name), value, XattrFlags::empty()))?;
    }
    utimensat(directory, name, &times(attributes), AtFlags::SYMLINK_NOFOLLOW).context("its times")
}

/// Owner to set, if the caller may give files away.
fn owner(attributes: &Attributes) -> Option<(Uid, Gid)> {
    let owner = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
    rustix::process::geteuid().is_root().then_some(owner)
}

/// Permissions to set. A file that does not get its owner loses the set-id bits: they would lend
/// the rights of the caller.
fn permissions(attributes: &Attributes) -> Mode {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mode = Mode::from_raw_mode(attributes.mode.into());
    match owner(attributes) {
        None if own != (attributes.uid, attributes.gid) => mode - (Mode::SUID | Mode::SGID),
        _ => mode,
    }
}

/// Fails if an attribute was not set although the caller may set it.
fn allowed(name: &[u8], set: Result<(), Errno>) -> anyhow::Result<()> {
    match set {
        Err(Errno::PERM | Errno::OPNOTSUPP) if !name.starts_with(b"user.") => Ok(()),
        set => set.with_context(|| format!("attribute {}", name.escape_ascii())),
    }
}

fn times(attributes: &Attributes) -> Timestamps {
    let time =
        |nanos: i64| Timespec { tv_sec: nanos.div_euclid(SECOND), tv_nsec: nanos.rem_euclid(SECOND) as _ };
    Timestamps { last_access: time(attributes.atime), last_modification: time(attributes.mtime) }
}

/// Kind of a file, from its mode.
pub(super) fn kind_of(stat: &Stat) -> FileKind {
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileKind::Directory,
        rustix::fs::FileType::Symlink => FileKind::Symlink,
        rustix::fs::FileType::Fifo => FileKind::Pipe,
        rustix::fs::FileType::Socket => FileKind::Socket,
        rustix::fs::FileType::CharacterDevice => FileKind::Character,
        rustix::fs::FileType::BlockDevice => FileKind::Block,
        _ => FileKind::File,
    }
}

/// Name of a kind that is not copied.
pub(super) fn skipped(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Pipe => "a pipe",
        FileKind::Socket => "a socket",
        FileKind::Character | FileKind::Block => "a device",
        FileKind::File | FileKind::Directory | FileKind::Symlink => "no special file",
    }
}
