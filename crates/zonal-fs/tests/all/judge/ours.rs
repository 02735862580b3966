//! This file system, in memory.

use super::call::{Call, Change, DIRECTORY, NAMES, When};
use super::host::Host;
use super::{FileState, MARK, Side};
use crate::common::{bytes, device, make, volume};
use crate::made::At;
use std::collections::BTreeMap;
use zonal_fs::format::FileKind;
use zonal_fs::{
    Changes, FileSystem, FsError, MountOptions, NewFile, OpenFile, Payload, ROOT, Seek, SetIds, SetTime,
    SetXattr, Target, ZeroEnd,
};

pub struct Ours {
    fs: FileSystem,
    waiter: At,
    files: Vec<u64>,
    open: [Option<OpenFile>; DIRECTORY],
    /// Unprivileged callers on the host lose set-id bits; others keep them.
    can_keep_set_ids: bool,
}

fn number<T>(result: Result<T, FsError>) -> Result<T, i32> {
    result.map_err(|error| error.errno())
}

impl Ours {
    /// Creates the same files as on the host.
    pub fn new(host: &Host) -> Ours {
        let device = device("ram:size=32M,zone_size=1M,blocksize=4096");
        let options = MountOptions::default().with_dirty_bytes(200_000);
        let fs = make(volume(device), 8, options);
        let waiter = At::ticking(MARK + 1_000_000_000);
        let (uids, gids) = host.owners();
        let mut files = Vec::new();
        for file in 0..=DIRECTORY {
            let (kind, mode) =
                if file == DIRECTORY { (FileKind::Directory, 0o755) } else { (FileKind::File, 0o644) };
            let new = NewFile { uid: uids[0], gid: gids[0], ..NewFile::new(kind, mode) };
            files.push(fs.create(&waiter, ROOT, format!("{file}").as_bytes(), &new).unwrap());
        }
        let can_keep_set_ids = host.can_keep_set_ids();
        Ours { fs, waiter, files, open: [None, None], can_keep_set_ids }
    }

    fn set_ids(&self, is_privileged: bool) -> SetIds {
        if is_privileged && self.can_keep_set_ids { SetIds::Keep } else { SetIds::Clear }
    }

    fn set(&self, ino: u64, changes: Changes) -> Result<u64, FsError> {
        self.fs.set_attributes(&self.waiter, ino, &changes).map(|_| 0)
    }
}

impl Side for Ours {
    fn call(&mut self, call: &Call, seed: u64) -> Result<u64, i32> {
        let (fs, waiter, ino) = (&self.fs, &self.waiter, self.files[call.file]);
        number(match call.change {
            Change::Write { offset, length, is_privileged } => {
                let data = bytes(seed, length as usize);
                fs.write_with(waiter, ino, offset, Payload::Bytes(&data), self.set_ids(is_privileged))
            }
            Change::Truncate { size, is_privileged } => {
                let (set_ids, mtime) = (self.set_ids(is_privileged), Some(SetTime::Now));
                self.set(ino, Changes { size: Some(size), mtime, set_ids, ..Changes::default() })
            }
            Change::Punch { offset, length } => fs.punch(waiter, ino, offset..offset + length).map(|()| 0),
            Change::Zero { offset, length, keeps_size } => {
                let end = if keeps_size { ZeroEnd::Keep } else { ZeroEnd::Extend };
                fs.zero_range(waiter, ino, offset..offset + length, end, SetIds::Clear).map(|()| 0)
            }
            Change::Copy { from, from_offset, to_offset, length } => {
                let from = (self.files[from], from_offset);
                fs.copy_range(waiter, from, (ino, to_offset), length, SetIds::Clear)
            }
            Change::Mode(mode) => self.set(ino, Changes { mode: Some(mode as u16), ..Changes::default() }),
            Change::Owner { uid, gid } => self.set(ino, Changes { uid, gid, ..Changes::default() }),
            Change::Times { atime, mtime } => {
                let time = |set: Option<Option<i64>>| set.map(|at| at.map_or(SetTime::Now, SetTime::At));
                let (atime, mtime) = (time(atime), time(mtime));
                match (atime, mtime) {
                    // The kernel makes no call for an empty change.
                    (None, None) => Ok(0),
                    _ => self.set(ino, Changes { atime, mtime, ..Changes::default() }),
                }
            }
            Change::SetXattr { name, length, when } => {
                let when = match when {
                    When::Always => SetXattr::Always,
                    When::Create => SetXattr::Create,
                    When::Replace => SetXattr::Replace,
                };
                let attribute = (NAMES[name].as_bytes(), &bytes(seed, length)[..]);
                fs.set_xattr_if(waiter, ino, attribute, when).map(|()| 0)
            }
            Change::RemoveXattr { name } => fs.remove_xattr(waiter, ino, NAMES[name].as_bytes()).map(|()| 0),
            Change::GetXattr { name } => {
                fs.xattr(ino, NAMES[name].as_bytes()).map(|value| value.len() as u64)
            }
            Change::Toggle => match self.open[call.file].take() {
                Some(open) => open.close(waiter).map(|()| 0),
                None => fs.open_file(ino).map(|open| {
                    self.open[call.file] = Some(open);
                    0
                }),
            },
            Change::Sync => fs.sync(waiter).map(|()| 0),
        })
    }

    fn state(&mut self, file: usize) -> FileState {
        let (fs, ino) = (&self.fs, self.files[file]);
        let found = fs.attributes(ino).unwrap();
        let mut bytes = vec![0xEE; found.size as usize];
        if file != DIRECTORY {
            let read = fs.read(&self.waiter, ino, 0, Target::Bytes(&mut bytes)).unwrap();
            assert_eq!(read, found.size);
        }
        let names = fs.xattrs(ino).unwrap().into_iter();
        let attributes: BTreeMap<_, _> =
            names.map(|name| (name.clone(), fs.xattr(ino, &name).unwrap())).collect();
        FileState {
            bytes,
            size: found.size,
            mode: found.mode.into(),
            owner: (found.uid, found.gid),
            atime: found.atime.into(),
            mtime: found.mtime.into(),
            ctime: found.ctime.into(),
            attributes,
        }
    }

    fn size(&mut self, file: usize) -> u64 {
        self.fs.attributes(self.files[file]).unwrap().size
    }

    fn seek(&mut self, file: usize, offset: u64, is_data: bool) -> Result<u64, i32> {
        number(self.fs.seek(self.files[file], offset, if is_data { Seek::Data } else { Seek::Hole }))
    }

    fn mark(&mut self, file: usize) {
        let mtime = Some(SetTime::At(MARK));
        self.set(self.files[file], Changes { mtime, ..Changes::default() }).unwrap();
    }
}
