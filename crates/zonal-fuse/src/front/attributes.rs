//! Attributes, extended attributes and access control lists.

use super::labels::LABEL;
use super::{Answer, Front, Outcome, Refusal, body};
use crate::acl::{self, Acl};
use crate::waiter::MountWaiter;
use crate::wire::layout::{EntryOut, GetattrIn, GetxattrOut, InHeader, SetattrIn, StatfsOut};
use crate::wire::numbers::{getattr, init, setattr, setxattr};
use crate::wire::reply;
use rustix::io::Errno;
use std::time::Duration;
use zonal_fs::format::{Attributes, FileKind};
use zonal_fs::space::Lifetime;
use zonal_fs::{BLOCK_BYTES, Changes, FoundFile, FsError, NAME_MAX, SetIds, SetTime, SetXattr};

/// File capabilities. A write removes them.
const CAPABILITIES: &[u8] = b"security.capability";

/// Expected lifetime of a file's data. Not stored as an attribute but as a property of the file,
/// for the allocator.
const LIFETIME: &[u8] = b"user.zonal.lifetime";

/// Prefix of our own attributes.
const OWN: &[u8] = b"user.zonal.";

const LIFETIMES: [(&str, Lifetime); 6] = [
    ("not-set", Lifetime::NotSet),
    ("none", Lifetime::None),
    ("short", Lifetime::Short),
    ("medium", Lifetime::Medium),
    ("long", Lifetime::Long),
    ("extreme", Lifetime::Extreme),
];

/// Prefix of names visible to root only.
const TRUSTED: &[u8] = b"trusted.";

/// Time for which the kernel may cache attributes of a closed file whose data is not yet on the drive.
const WAITING: Duration = Duration::from_secs(1);

impl Front {
    /// Attributes as shown by the mount, and the time for which the kernel may cache them.
    ///
    /// Data in memory and in flight counts as blocks: a file with fewer blocks than bytes would
    /// look sparse. Attributes are not cached while the count may change: until the data is written,
    /// or in a file without holes until it is closed, since more data may follow from the page cache.
    /// In the latter case they are cached for a short time: if the data is lost, the file is shortened.
    /// Neither are they cached if the next write must report a loss.
    fn shown(&self, ino: u64, file: &Attributes) -> (Attributes, Duration) {
        let options = &self.options;
        let waiting = if file.kind == FileKind::File { self.fs.waiting_blocks(ino) } else { 0 };
        // In a file without holes, every block counts once, wherever it is.
        let whole = file.size.div_ceil(BLOCK_BYTES.into());
        let is_dense = waiting > 0 && (waiting == whole || file.blocks == whole);
        let blocks = if is_dense { whole } else { file.blocks.saturating_add(waiting) };
        let shown = Attributes {
            uid: options.uid.unwrap_or(file.uid),
            gid: options.gid.unwrap_or(file.gid),
            mode: file.mode & !options.umask.unwrap_or(0),
            blocks,
            ..*file
        };
        let valid = match waiting {
            _ if self.handles.has_loss(ino) => Duration::ZERO,
            0 => reply::FOR_EVER,
            _ if is_dense && !self.handles.has_writers(ino) => WAITING,
            _ => Duration::ZERO,
        };
        (shown, valid)
    }

    /// Reply about a file that was looked up or created.
    pub(super) fn entry(&self, found: &FoundFile) -> EntryOut {
        let (file, valid) = self.shown(found.ino, &found.attributes);
        reply::entry(file.generation, reply::attr(found.ino, &file), valid)
    }

    fn reply_attributes(&self, ino: u64, file: &Attributes, reply: &mut Vec<u8>) -> Outcome {
        let (file, valid) = self.shown(ino, file);
        body(&reply::attr_out(reply::attr(ino, &file), valid), reply)
    }

    pub(super) fn getattr(&self, ino: u64, asked: &GetattrIn, reply: &mut Vec<u8>) -> Outcome {
        // For an open file, the kernel asks for the mode before it accepts a write into the page
        // cache.
        if asked.getattr_flags & getattr::FH != 0
            && let Some(errno) = self.handles.take_loss(ino)
        {
            return Err(Errno::from_raw_os_error(errno).into());
        }
        self.reply_attributes(ino, &self.fs.attributes(ino)?, reply)
    }

    pub(super) fn statx(&self, ino: u64, reply: &mut Vec<u8>) -> Outcome {
        let (file, valid) = self.shown(ino, &self.fs.attributes(ino)?);
        body(&reply::statx_out(ino, &file, valid), reply)
    }

    pub(super) fn setattr(
        &self,
        ino: u64,
        asked: &SetattrIn,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        let has = |flag| asked.valid & flag != 0;
        let time = |is_set, is_now, seconds, nanos| match (has(is_set), has(is_now)) {
            (true, true) => Some(SetTime::Now),
            (true, false) => Some(SetTime::At(reply::join(seconds, nanos))),
            (false, _) => None,
        };
        // Root keeps set-id bits when it changes the size; nobody does when the owner changes.
        let has_owner = has(setattr::UID) || has(setattr::GID);
        let clears = has_owner || has(setattr::KILL_SUIDGID);
        let changes = Changes {
            size: has(setattr::SIZE).then_some(asked.size),
            mode: has(setattr::MODE).then_some(asked.mode as u16),
            uid: has(setattr::UID).then_some(asked.uid),
            gid: has(setattr::GID).then_some(asked.gid),
            atime: time(setattr::ATIME, setattr::ATIME_NOW, asked.atime, asked.atimensec),
            mtime: time(setattr::MTIME, setattr::MTIME_NOW, asked.mtime, asked.mtimensec),
            ctime: time(setattr::CTIME, 0, asked.ctime, asked.ctimensec),
            lifetime: None,
            set_ids: if clears { SetIds::Clear } else { SetIds::Keep },
        };
        let attributes = self.fs.set_attributes(waiter, ino, &changes)?;
        if has_owner || changes.size.is_some() {
            self.remove_capabilities(ino, waiter)?;
        }
        if let Some(mode) = changes.mode {
            self.change_list(ino, mode, waiter)?;
        }
        self.reply_attributes(ino, &attributes, reply)
    }

    /// Updates the file's access control list for its new mode.
    fn change_list(&self, ino: u64, mode: u16, waiter: &MountWaiter<'_>) -> Result<(), Refusal> {
        if !self.agreed.has(init::POSIX_ACL) {
            return Ok(());
        }
        if let Some(mut list) = self.list(ino, acl::ACCESS)? {
            list.set_mode(mode);
            self.fs.set_xattr(waiter, ino, acl::ACCESS, &list.encode())?;
        }
        Ok(())
    }

    /// Access control list of a file, if it has one.
    pub(super) fn list(&self, ino: u64, name: &[u8]) -> Result<Option<Acl>, Refusal> {
        match self.fs.xattr(ino, name) {
            Ok(value) => Ok(Acl::parse(&value)),
            Err(FsError::NoAttribute) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn has_capabilities(&self, ino: u64) -> bool {
        self.fs.xattr(ino, CAPABILITIES).is_ok()
    }

    fn remove_capabilities(&self, ino: u64, waiter: &MountWaiter<'_>) -> Result<(), Refusal> {
        if self.has_capabilities(ino) {
            match self.fs.remove_xattr(waiter, ino, CAPABILITIES) {
                Ok(()) | Err(FsError::NoAttribute) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes the capabilities of a file before its data changes.
    pub(super) fn lose_capabilities(&self, ino: u64, waiter: &MountWaiter<'_>) -> Result<(), Refusal> {
        if self.handles.take_capabilities(ino) { self.remove_capabilities(ino, waiter) } else { Ok(()) }
    }

    /// Fails unless this mount supports attributes of this name.
    fn check_name(&self, name: &[u8]) -> Result<(), Errno> {
        let is_list = name == acl::ACCESS || name == acl::DEFAULT;
        let is_known = [&b"user."[..], b"security.", TRUSTED].iter().any(|space| name.starts_with(space));
        let is_there = is_known || is_list && self.agreed.has(init::POSIX_ACL);
        if is_there { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    pub(super) fn setxattr(
        &self,
        ino: u64,
        (name, value): (&[u8], &[u8]),
        (flags, extended): (u32, u32),
        waiter: &MountWaiter<'_>,
    ) -> Outcome {
        self.check_name(name)?;
        let when = match flags {
            0 => SetXattr::Always,
            setxattr::CREATE => SetXattr::Create,
            setxattr::REPLACE => SetXattr::Replace,
            _ => return Err(Errno::INVAL.into()),
        };
        if name == LABEL {
            self.labels.note();
        }
        match name {
            LIFETIME => self.set_lifetime(ino, value, waiter)?,
            acl::ACCESS => self.set_access(ino, value, extended & setxattr::ACL_KILL_SGID != 0, waiter)?,
            acl::DEFAULT => {
                Acl::parse(value).ok_or(Errno::INVAL)?;
                self.fs.set_xattr(waiter, ino, name, value)?;
            }
            // Other names of ours are reserved: storing one would suggest that it has an effect.
            _ if name.starts_with(OWN) => return Err(Errno::OPNOTSUPP.into()),
            _ => self.fs.set_xattr_if(waiter, ino, (name, value), when)?,
        }
        if name == CAPABILITIES && self.handles.has_writers(ino) {
            self.handles.note_capabilities(ino);
        }
        Ok(Answer::Body)
    }

    fn set_lifetime(&self, ino: u64, value: &[u8], waiter: &MountWaiter<'_>) -> Result<(), Refusal> {
        let (_, lifetime) =
            LIFETIMES.iter().find(|(word, _)| word.as_bytes() == value).ok_or(Errno::INVAL)?;
        let lifetime = Some(*lifetime as u8);
        let changes = Changes { lifetime, set_ids: SetIds::Keep, ..Changes::default() };
        self.fs.set_attributes(waiter, ino, &changes)?;
        Ok(())
    }

    /// Sets the access list and the equivalent mode bits.
    fn set_access(
        &self,
        ino: u64,
        value: &[u8],
        kills_sgid: bool,
        waiter: &MountWaiter<'_>,
    ) -> Result<(), Refusal> {
        const S_ISGID: u16 = 0o2000;
        let list = Acl::parse(value).ok_or(Errno::INVAL)?;
        let before = self.fs.attributes(ino)?.mode;
        let kept = if kills_sgid { 0o7000 & !S_ISGID } else { 0o7000 };
        if list.is_mode() {
            match self.fs.remove_xattr(waiter, ino, acl::ACCESS) {
                Ok(()) | Err(FsError::NoAttribute) => {}
                Err(error) => return Err(error.into()),
            }
        } else {
            self.fs.set_xattr(waiter, ino, acl::ACCESS, value)?;
        }
        let mode = Some(before & kept | list.mode());
        self.fs.set_attributes(
            waiter,
            ino,
            &Changes { mode, set_ids: SetIds::Keep, ..Changes::default() },
        )?;
        Ok(())
    }

    pub(super) fn getxattr(&self, ino: u64, name: &[u8], size: u32, reply: &mut Vec<u8>) -> Outcome {
        self.check_name(name)?;
        if name == LIFETIME {
            return match self.lifetime(ino)? {
                Some(word) => value(word.as_bytes(), size, reply),
                None => Err(Errno::NODATA.into()),
            };
        }
        match self.fs.xattr(ino, name) {
            Err(FsError::NoAttribute) if name == LABEL && !self.labels.may_exist(&self.fs) => {
                Err(Errno::OPNOTSUPP.into())
            }
            found => value(&found?, size, reply),
        }
    }

    /// Lifetime of a file, if it was set.
    fn lifetime(&self, ino: u64) -> Result<Option<&'static str>, FsError> {
        let set = self.fs.attributes(ino)?.lifetime;
        let is = |lifetime: Lifetime| lifetime as u8 == set && lifetime != Lifetime::NotSet;
        Ok(LIFETIMES.iter().find(|(_, lifetime)| is(*lifetime)).map(|(word, _)| *word))
    }

    pub(super) fn listxattr(&self, header: &InHeader, size: u32, reply: &mut Vec<u8>) -> Outcome {
        let ino = header.nodeid;
        let mut names = Vec::new();
        for name in self.fs.xattrs(ino)? {
            if header.uid == 0 || !name.starts_with(TRUSTED) {
                names.extend_from_slice(&name);
                names.push(0);
            }
        }
        if self.lifetime(ino)?.is_some() {
            names.extend_from_slice(LIFETIME);
            names.push(0);
        }
        value(&names, size, reply)
    }

    pub(super) fn removexattr(&self, ino: u64, name: &[u8], waiter: &MountWaiter<'_>) -> Outcome {
        self.check_name(name)?;
        if name == LIFETIME {
            self.lifetime(ino)?.ok_or(Errno::NODATA)?;
            self.set_lifetime(ino, b"not-set", waiter)?;
        } else {
            self.fs.remove_xattr(waiter, ino, name)?;
        }
        Ok(Answer::Body)
    }

    pub(super) fn statfs(&self, reply: &mut Vec<u8>) -> Outcome {
        let (usage, files) = (self.fs.usage(), self.fs.files()?);
        let out = StatfsOut {
            blocks: usage.blocks,
            bfree: usage.free,
            bavail: usage.free,
            files: files.used.saturating_add(files.free),
            ffree: files.free,
            bsize: BLOCK_BYTES,
            namelen: NAME_MAX as u32,
            frsize: BLOCK_BYTES,
            ..StatfsOut::default()
        };
        body(&out, reply)
    }
}

/// Returns a value, or its length if the caller asks for that.
fn value(value: &[u8], room: u32, reply: &mut Vec<u8>) -> Outcome {
    match room as usize {
        0 => body(&GetxattrOut { size: value.len() as u32, padding: 0 }, reply),
        room if room < value.len() => Err(Errno::RANGE.into()),
        _ => {
            reply.extend_from_slice(value);
            Ok(Answer::Body)
        }
    }
}
