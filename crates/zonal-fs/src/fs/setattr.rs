//! Atomic changes of attributes, and mode bits that other changes clear.
//!
//! Callers see a change completely or not at all: the size changes together with the rest, after
//! the bytes beyond a smaller size have been cleared. The change time is always set, to the time of
//! the change or as the caller says.
//!
//! # Set-id bits
//! A program with `S_ISUID` runs as its owner. So Linux clears the bit when the data or owner
//! changes, unless a privileged caller keeps it. With [`SetIds::Clear`], these calls do the same:
//!
//! | call | of | clears |
//! |---|---|---|
//! | a write of a byte or more, a copy into it, a range of zeroes or a hole, a size | regular files | `S_ISUID`; `S_ISGID` if the group may execute it |
//! | an owner or a group, even if unchanged | all but directories | likewise |
//!
//! `S_ISGID` without group execution means something else, and stays. A mode given in the call is
//! set as it is. A front end passes [`SetIds::Clear`] for `FATTR_KILL_SUIDGID` or
//! `FUSE_WRITE_KILL_SUIDGID`, and [`SetIds::Keep`] otherwise. Removing the extended attribute
//! `security.capability` is left to the front end.

use super::core::{Core, Shared};
use super::error::FsError;
use super::room::Touched;
use crate::format::{Attributes, FileKind};
use crate::space::Lifetime;
use crate::waiter::Wait;

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

/// Permission bits of a mode.
pub(super) const PERMISSIONS: u16 = 0o7777;

/// New value of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// Time of the change.
    Now,
    /// Nanoseconds since 1970, negative for earlier times.
    At(i64),
}

/// Treatment of set-id bits by a change of data or owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SetIds {
    /// Clear them, as Linux does for a caller without `CAP_FSETID`.
    #[default]
    Clear,
    /// Keep them.
    Keep,
}

/// Changes of attributes. Those that are `None` stay.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Bytes of a regular file. A different size also sets the time of the last data change.
    pub size: Option<u64>,
    /// Permission bits; other bits are ignored.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last read.
    pub atime: Option<SetTime>,
    /// Time of the last data change.
    pub mtime: Option<SetTime>,
    /// Time of the last attribute change; `None` for that of this change. Set by kernels that
    /// maintain the times of cached files.
    pub ctime: Option<SetTime>,
    /// Expected lifetime of the data: an index of [`Lifetime`](crate::space::Lifetime).
    pub lifetime: Option<u8>,
    /// Treatment of set-id bits by a new size, owner or group.
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
    /// Returns the mode after a change of data or owner.
    fn after(self, mode: u16) -> u16 {
        let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
        match self {
            SetIds::Clear => mode & !(S_ISUID | group),
            SetIds::Keep => mode,
        }
    }
}

/// Updates the attributes for a change of a regular file's data.
pub(super) fn note_change_of_data(file: &mut Attributes, set_ids: SetIds, now: i64) {
    file.mode = set_ids.after(file.mode);
    (file.mtime, file.ctime) = (now, now);
}

impl Changes {
    /// Makes all changes except that of the size.
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
    /// Changes attributes atomically and returns the new ones.
    pub(super) fn set_attributes(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        changes: &Changes,
    ) -> Result<Attributes, FsError> {
        if changes.lifetime.is_some_and(|lifetime| usize::from(lifetime) >= Lifetime::ALL.len()) {
            return Err(FsError::Invalid("unknown lifetime"));
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
        self.prefetch_file(ino);
        self.admit(waiter, Touched::Changed)?;
        let _names = self.names.changing();
        let mut core = self.lock();
        core.check_writable()?;
        core.change(ino, changes, waiter.wall())
    }

    /// Sets the size of a file; also updates its times if the size stays the same.
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
