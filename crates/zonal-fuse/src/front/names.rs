//! Names: look-ups, and creation, renaming and removal of files.

use super::data::SYNCED;
use super::handles::CacheMode;
use super::{Answer, Front, Outcome, Refusal, body};
use crate::acl::{self, Acl};
use crate::waiter::MountWaiter;
use crate::wire::layout::{CreateIn, InHeader, OpenOut};
use crate::wire::numbers::{init, open, rename};
use crate::wire::reply;
use rustix::fs::OFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::space::Lifetime;
use zonal_fs::{BLOCK_BYTES, Changes, FoundFile, FsError, IfThere, NewFile, OpenFile, Rename, SetIds};

const O_ACCMODE: u32 = 0o3;
const O_EXCL: u32 = 0o200;
const S_ISGID: u16 = 0o2000;
const PERMISSIONS: u32 = 0o7777;

/// A file to be created, with its inherited properties.
struct NewFileSpec {
    new: NewFile,
    access: Option<Acl>,
    default: Option<Vec<u8>>,
    lifetime: u8,
}

impl Front {
    pub(super) fn lookup(&self, parent: u64, name: &[u8], reply: &mut Vec<u8>) -> Outcome {
        let found = match name {
            b"." => self.know(parent),
            b".." => self.know(self.fs.attributes(parent)?.parent),
            _ => self.fs.lookup_known(parent, name),
        };
        match found {
            Ok(found) => body(&self.entry(&found), reply),
            Err(FsError::NotFound) => body(&reply::no_entry(), reply),
            Err(error) => Err(error.into()),
        }
    }

    fn know(&self, ino: u64) -> Result<FoundFile, FsError> {
        Ok(FoundFile { ino, attributes: self.fs.know(ino)? })
    }

    /// Properties of a file to be created in directory `parent` by the caller of `header`.
    fn spec(
        &self,
        header: &InHeader,
        (kind, mode): (FileKind, u32),
        umask: u32,
        rdev: u32,
    ) -> Result<NewFileSpec, Refusal> {
        let parent = self.fs.attributes(header.nodeid)?;
        let mut mode = (mode & PERMISSIONS) as u16;
        let mut gid = header.gid;
        if parent.mode & S_ISGID != 0 {
            gid = parent.gid;
            if kind == FileKind::Directory {
                mode |= S_ISGID;
            }
        }
        let inherited = match self.agreed.has(init::POSIX_ACL) && kind != FileKind::Symlink {
            true => self.list(header.nodeid, acl::DEFAULT)?,
            false => None,
        };
        let (mut access, mut default) = (None, None);
        match inherited {
            None if kind != FileKind::Symlink => mode &= !(umask as u16 & 0o777),
            None => {}
            Some(list) => {
                let own = list.inherited(mode);
                mode = mode & !0o777 | own.mode();
                access = (!own.is_mode()).then_some(own);
                default = (kind == FileKind::Directory).then(|| list.encode());
            }
        }
        let new = NewFile { uid: header.uid, gid, rdev, ..NewFile::new(kind, mode) };
        Ok(NewFileSpec { new, access, default, lifetime: parent.lifetime })
    }

    /// Sets the inherited properties of a new file.
    fn apply_inherited(
        &self,
        ino: u64,
        spec: &NewFileSpec,
        waiter: &MountWaiter<'_>,
    ) -> Result<Option<Attributes>, Refusal> {
        if let Some(access) = &spec.access {
            self.fs.set_xattr(waiter, ino, acl::ACCESS, &access.encode())?;
        }
        if let Some(default) = &spec.default {
            self.fs.set_xattr(waiter, ino, acl::DEFAULT, default)?;
        }
        if spec.lifetime == 0 {
            return Ok(None);
        }
        let changes = Changes { lifetime: Some(spec.lifetime), set_ids: SetIds::Keep, ..Changes::default() };
        Ok(Some(self.fs.set_attributes(waiter, ino, &changes)?))
    }

    /// Removes a new name again if the file has not got its inherited properties. The kernel is told
    /// that the call failed, and takes the directory as unchanged.
    fn or_unmade<T>(
        &self,
        inherited: Result<T, Refusal>,
        (parent, name): (u64, &[u8]),
        spec: &NewFileSpec,
        waiter: &MountWaiter<'_>,
    ) -> Result<T, Refusal> {
        if inherited.is_err() {
            // The first error is the one to return.
            let _ = match spec.new.kind {
                FileKind::Directory => self.fs.rmdir(waiter, parent, name),
                _ => self.fs.unlink(waiter, parent, name),
            };
        }
        inherited
    }

    /// Creates a file of any kind except a symbolic link.
    pub(super) fn make(
        &self,
        header: &InHeader,
        name: &[u8],
        (mode, umask, rdev): (u32, u32, u32),
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        let kind = reply::kind(mode).ok_or(Errno::INVAL)?;
        let spec = self.spec(header, (kind, mode), umask, rdev)?;
        self.create_from_spec((header.nodeid, name), &spec, reply, waiter)
    }

    fn create_from_spec(
        &self,
        (parent, name): (u64, &[u8]),
        spec: &NewFileSpec,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        let mut found = self.fs.create_known(waiter, parent, name, &spec.new)?;
        let inherited = self.apply_inherited(found.ino, spec, waiter);
        if let Some(attributes) = self.or_unmade(inherited, (parent, name), spec, waiter)? {
            found.attributes = attributes;
        }
        body(&self.entry(&found), reply)
    }

    pub(super) fn symlink(
        &self,
        header: &InHeader,
        name: &[u8],
        target: &[u8],
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        let mut spec = self.spec(header, (FileKind::Symlink, 0o777), 0, 0)?;
        spec.new.target = target.to_vec();
        spec.lifetime = 0;
        self.create_from_spec((header.nodeid, name), &spec, reply, waiter)
    }

    pub(super) fn unlink(&self, parent: u64, name: &[u8], waiter: &MountWaiter<'_>) -> Outcome {
        self.fs.unlink(waiter, parent, name)?;
        Ok(Answer::Body)
    }

    pub(super) fn rmdir(&self, parent: u64, name: &[u8], waiter: &MountWaiter<'_>) -> Outcome {
        self.fs.rmdir(waiter, parent, name)?;
        Ok(Answer::Body)
    }

    pub(super) fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        let how = match flags {
            0 => Rename::Replace,
            rename::NOREPLACE => Rename::KeepOther,
            rename::EXCHANGE => Rename::Exchange,
            _ => return Err(Errno::INVAL.into()),
        };
        self.fs.rename(waiter, from, to, how)?;
        Ok(Answer::Body)
    }

    pub(super) fn link(
        &self,
        file: u64,
        (parent, name): (u64, &[u8]),
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        self.fs.link(waiter, file, parent, name)?;
        body(&self.entry(&self.know(file)?), reply)
    }

    /// Opens an existing file.
    pub(super) fn open(&self, ino: u64, flags: u32, reply: &mut Vec<u8>) -> Outcome {
        let file = self.fs.open_file(ino)?;
        body(&self.keep(file, flags), reply)
    }

    /// Creates a handle for a file opened with `flags`.
    fn keep(&self, file: OpenFile, flags: u32) -> OpenOut {
        let (ino, writes) = (file.ino(), flags & O_ACCMODE != 0);
        let mode = if writes && (self.loses_syncs(flags) || self.is_nearly_full()) {
            CacheMode::Direct
        } else {
            CacheMode::Cached
        };
        let fh = self.handles.put(file, writes, mode);
        if writes && self.has_capabilities(ino) {
            self.handles.note_capabilities(ino);
        }
        let open_flags = match mode {
            CacheMode::Cached => FLAGS,
            CacheMode::Direct => FLAGS | open::DIRECT_IO,
        };
        OpenOut { fh, open_flags, padding: 0 }
    }

    /// True for a handle with `O_SYNC` or `O_DSYNC` on a write-back mount. Linux does not forward
    /// the sync of a write that ends in the page cache.
    fn loses_syncs(&self, flags: u32) -> bool {
        self.options.writeback && OFlags::from_bits_retain(flags).intersects(SYNCED)
    }

    /// True if data written now may find no space at write-back.
    fn is_nearly_full(&self) -> bool {
        // Without this flag a file opened in this way could not be mapped as shared.
        self.options.writeback
            && self.agreed.has(init::DIRECT_IO_ALLOW_MMAP)
            && self.fs.usage().free * u64::from(BLOCK_BYTES) < self.options.write_through_below
    }

    /// Opens a file, creating it if it does not exist.
    pub(super) fn create(
        &self,
        header: &InHeader,
        name: &[u8],
        asked: &CreateIn,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        let spec = self.spec(header, (FileKind::File, asked.mode), asked.umask, 0)?;
        let if_there = if asked.flags & O_EXCL != 0 { IfThere::Fail } else { IfThere::Open };
        let opened = self.fs.open_or_create(waiter, (header.nodeid, name), &spec.new, if_there)?;
        let ino = opened.file.ino();
        if opened.is_new {
            let inherited = self.apply_inherited(ino, &spec, waiter);
            self.or_unmade(inherited, (header.nodeid, name), &spec, waiter)?;
        }
        self.reply_opened(opened.file, asked.flags, reply)
    }

    /// Creates and opens an unnamed file.
    pub(super) fn tmpfile(
        &self,
        header: &InHeader,
        asked: &CreateIn,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        let mut spec = self.spec(header, (FileKind::File, asked.mode), asked.umask, 0)?;
        // It can never be given a name.
        if asked.flags & O_EXCL != 0 && spec.lifetime == Lifetime::NotSet as u8 {
            spec.lifetime = Lifetime::Short as u8;
        }
        let file = self.fs.create_unnamed(waiter, &spec.new)?;
        self.apply_inherited(file.ino(), &spec, waiter)?;
        self.reply_opened(file, asked.flags, reply)
    }

    fn reply_opened(&self, file: OpenFile, flags: u32, reply: &mut Vec<u8>) -> Outcome {
        let found = self.know(file.ino())?;
        let out = self.keep(file, flags);
        reply.extend_from_slice(self.entry(&found).as_bytes());
        body(&out, reply)
    }

    pub(super) fn release(&self, ino: u64, handle: u64, waiter: &MountWaiter<'_>) -> Outcome {
        let file = self.handles.take(handle).ok_or(Errno::BADF)?;
        if self.options.read_only {
            return Ok(Answer::Body);
        }
        // The kernel completed the close long ago, so an error can only be logged.
        if let Err(error) = file.close(waiter) {
            (self.log)(&format!("{}: error at close: {error}", self.named(ino)));
        }
        Ok(Answer::Body)
    }
}

/// Flags of every open file: cached pages stay valid, and direct writes within the size do not wait
/// for each other.
pub(crate) const FLAGS: u32 = open::KEEP_CACHE | open::PARALLEL_DIRECT_WRITES;
