//! Changes of attributes in one step, and bits of the mode that changes of others take away.
//!
//! A caller sees all of a change or nothing: the size changes together with the rest, once the bytes after a smaller size are cleared.
//! The time of the change is always set: to that of the change, or as the caller says.
//!
//! # Set-id bits
//! A program with `S_ISUID` runs as its owner. So Linux takes the bit away when the file's data or owner change, unless a privileged
//! caller keeps it. With [`SetIds::Clear`] these calls do the same:
//!
//! | call | of | clears |
//! |---|---|---|
//! | a write of a byte or more, a copy into it, a range of zeroes or a hole, a size | regular files | `S_ISUID`; `S_ISGID` if the group may execute it |
//! | an owner or a group, also the same again | all but directories | the same |
//!
//! `S_ISGID` without execution by the group says something else, and stays. A mode that the call gives is set as it is given. A front
//! that is told `FATTR_KILL_SUIDGID` or `FUSE_WRITE_KILL_SUIDGID` passes [`SetIds::Clear`], and otherwise [`SetIds::Keep`]. The
//! extended attribute `security.capability` is the front's to remove.

use super::core::{Core, Shared};
use super::error::FsError;
use super::room::Touched;
use crate::format::{Attributes, FileKind};
use crate::space::Lifetime;
use crate::waiter::Wait;

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

/// Bits of a mode that are permissions.
pub(super) const PERMISSIONS: u16 = 0o7777;

/// A time to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// That of the change.
    Now,
    /// Nanoseconds since 1970, below zero before.
    At(i64),
}

/// Whether a change of data or owner takes set-id bits away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetIds {
    /// As Linux does for a caller without `CAP_FSETID`.
    #[default]
    Clear,
    /// The caller may keep them.
    Keep,
}

/// Attributes to be changed; those that are `None` stay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Bytes of a regular file. If it changes, the time of the last change of its data does, too.
    pub size: Option<u64>,
    /// Permission bits; other bits do not count.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of its data.
    pub mtime: Option<SetTime>,
    /// Last change of its attributes; `None` is that of this change. A kernel that keeps times of files that it caches gives it.
    pub ctime: Option<SetTime>,
    /// How long its data is expected to live: an index of [`Lifetime`](crate::space::Lifetime).
    pub lifetime: Option<u8>,
    /// Whether a size, an owner or a group takes set-id bits away.
    pub set_ids: SetIds,
}

impl SetTime {
    fn at(self, now: i64) -> i64 {
        match self {
            SetTime::Now => now,
            SetTime::At(time) => time,
        }
    }
}

impl SetIds {
    /// A mode after a change of data or owner.
    fn after(self, mode: u16) -> u16 {
        let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
        match self {
            SetIds::Clear => mode & !(S_ISUID | group),
            SetIds::Keep => mode,
        }
    }
}

/// Data of a regular file has changed.
pub(super) fn note_change_of_data(file: &mut Attributes, set_ids: SetIds, now: i64) {
    file.mode = set_ids.after(file.mode);
    (file.mtime, file.ctime) = (now, now);
}

impl Changes {
    /// Makes the changes, but that of the size.
    fn make(&self, file: &mut Attributes, now: i64) {
        let has_owner = self.uid.is_some() || self.gid.is_some();
        if self.size.is_some() || has_owner && file.kind != FileKind::Directory {
            file.mode = self.set_ids.after(file.mode);
        }
        file.mode = self.mode.map_or(file.mode, |mode| mode & PERMISSIONS);
        file.uid = self.uid.unwrap_or(file.uid);
        file.gid = self.gid.unwrap_or(file.gid);
        file.atime = self.atime.map_or(file.atime, |time| time.at(now));
        file.mtime = self.mtime.map_or(file.mtime, |time| time.at(now));
        file.lifetime = self.lifetime.unwrap_or(file.lifetime);
        file.ctime = self.ctime.map_or(now, |time| time.at(now));
    }
}

impl Core {
    fn change(&mut self, ino: u64, changes: &Changes, now: i64) -> Result<Attributes, FsError> {
        self.update(ino, |file| changes.make(file, now))?;
        self.attributes(ino)
    }
}

impl Shared {
    /// Changes attributes, all at once, and returns those that the file has then.
    pub(super) fn set_attributes(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        changes: &Changes,
    ) -> Result<Attributes, FsError> {
        if changes.lifetime.is_some_and(|lifetime| usize::from(lifetime) >= Lifetime::ALL.len()) {
            return Err(FsError::Invalid("there is no such lifetime"));
        }
        if let Some(size) = changes.size {
            return self.resize(waiter, ino, size, |file, is_other| {
                let now = waiter.wall();
                if is_other {
                    file.mtime = now;
                }
                changes.make(file, now);
            });
        }
        self.look_at_file(ino);
        self.admit(waiter, Touched::Changed)?;
        let _names = self.names.changing();
        let mut core = self.lock();
        core.check_alive()?;
        core.change(ino, changes, waiter.wall())
    }

    /// Makes a file `size` bytes long, also if it is that long already.
    pub(super) fn truncate(&self, waiter: &dyn Wait, ino: u64, size: u64) -> Result<(), FsError> {
        let change = |file: &mut Attributes, _| note_change_of_data(file, SetIds::Clear, waiter.wall());
        self.resize(waiter, ino, size, change).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_go_unless_the_caller_keeps_them() {
        for (mode, cleared) in [
            (0o6755, 0o0755),
            (0o4644, 0o0644),
            (0o2745, 0o2745),
            (0o2755, 0o0755),
            (0o2010, 0o0010),
            (0o1777, 0o1777),
        ] {
            assert_eq!(SetIds::Clear.after(mode), cleared, "{mode:o}");
            assert_eq!(SetIds::Keep.after(mode), mode);
        }
    }
}
