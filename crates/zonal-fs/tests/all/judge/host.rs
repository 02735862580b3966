//! A file system of the host, accessed by system calls.

use super::call::{Call, Change, DIRECTORY, NAMES, When};
use super::{FileState, MARK, Side};
use crate::common::bytes;
use rustix::fs::{
    FallocateFlags, Gid, Mode, SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Kind of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostKind {
    Ext4,
    Tmpfs,
}

pub const KINDS: [HostKind; 2] = [HostKind::Ext4, HostKind::Tmpfs];

impl HostKind {
    pub fn name(self) -> &'static str {
        match self {
            HostKind::Ext4 => "ext4",
            HostKind::Tmpfs => "tmpfs",
        }
    }

    /// Magic number in `statfs`.
    fn magic(self) -> u64 {
        match self {
            HostKind::Ext4 => 0xEF53,
            HostKind::Tmpfs => 0x0102_1994,
        }
    }
}

/// A directory of the host, with two files and a directory.
pub struct Host {
    kind: HostKind,
    directory: TempDir,
    files: Vec<File>,
    owners: (Vec<u32>, Vec<u32>),
    has_attributes: bool,
    can_keep_set_ids: bool,
}

fn capabilities() -> CapabilitySets {
    rustix::thread::capabilities(None).expect("a thread has capabilities")
}

/// Runs without the privilege to keep set-id bits.
fn without_privilege<R>(run: impl FnOnce() -> R) -> R {
    let usual = capabilities();
    let CapabilitySets { effective, permitted, inheritable } = usual;
    let less = CapabilitySets { effective: effective - CapabilitySet::FSETID, permitted, inheritable };
    rustix::thread::set_capabilities(None, less).expect("a thread may give up a right");
    let result = run();
    let usual = CapabilitySets { effective, permitted, inheritable };
    rustix::thread::set_capabilities(None, usual).expect("a thread takes a right again that it has");
    result
}

fn number<T>(result: Result<T, Errno>) -> Result<T, i32> {
    result.map_err(Errno::raw_os_error)
}

fn timespec(nanos: i64) -> Timespec {
    Timespec { tv_sec: nanos.div_euclid(1_000_000_000), tv_nsec: nanos.rem_euclid(1_000_000_000) as _ }
}

impl Host {
    /// A host file system of this kind, if one is mounted where tests may write.
    pub fn find(kind: HostKind) -> Option<Host> {
        let temporary = std::env::temp_dir();
        let places = [
            Path::new(env!("CARGO_TARGET_TMPDIR")),
            &temporary,
            Path::new("/dev/shm"),
            Path::new("/var/tmp"),
        ];
        let is_kind = |place: &&&Path| {
            rustix::fs::statfs(**place).is_ok_and(|found| found.f_type as u64 == kind.magic())
        };
        let directory = places.iter().filter(is_kind).find_map(|place| TempDir::new_in(place).ok())?;
        let mut host = Host {
            kind,
            directory,
            files: Vec::new(),
            owners: Default::default(),
            has_attributes: false,
            can_keep_set_ids: capabilities().effective.contains(CapabilitySet::FSETID),
        };
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let other = 1234;
        // S_ISGID is cleared if the caller is not in the file's group, so the caller is put into
        // both.
        let groups = [gid, other].map(Gid::from_raw);
        let is_privileged = uid == 0
            && capabilities()
                .effective
                .contains(CapabilitySet::CHOWN | CapabilitySet::FOWNER | CapabilitySet::FSETID)
            && rustix::thread::set_thread_groups(&groups).is_ok();
        let ids = |own| if is_privileged { vec![own, other] } else { vec![own] };
        host.owners = (ids(uid), ids(gid));
        host.begin();
        let probe = rustix::fs::fsetxattr(&host.files[0], "user.probe", b"", XattrFlags::empty());
        host.has_attributes = probe.is_ok();
        if probe.is_err() {
            eprintln!("{} takes no attributes here", kind.name());
        }
        Some(host)
    }

    pub fn kind(&self) -> HostKind {
        self.kind
    }

    /// Owners and groups that can be given to a file.
    pub fn owners(&self) -> (Vec<u32>, Vec<u32>) {
        self.owners.clone()
    }

    pub fn has_attributes(&self) -> bool {
        self.has_attributes
    }

    /// NO_ZERO_RANGE: tmpfs has none.
    pub fn has_zero_range(&self) -> bool {
        self.kind == HostKind::Ext4
    }

    pub fn can_keep_set_ids(&self) -> bool {
        self.can_keep_set_ids
    }

    fn path(&self, file: usize) -> PathBuf {
        self.directory.path().join(format!("{file}"))
    }

    /// Replaces the files by new ones.
    pub fn begin(&mut self) {
        self.files.clear();
        for file in 0..=DIRECTORY {
            let path = self.path(file);
            let opened = if file == DIRECTORY {
                if !path.exists() {
                    std::fs::create_dir(&path).unwrap();
                }
                let directory = File::open(&path).unwrap();
                for name in self.names(&directory) {
                    rustix::fs::fremovexattr(&directory, &name[..]).unwrap();
                }
                directory
            } else {
                let _ = std::fs::remove_file(&path);
                OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap()
            };
            let (uids, gids) = &self.owners;
            let (uid, gid) = (Uid::from_raw(uids[0]), Gid::from_raw(gids[0]));
            rustix::fs::fchown(&opened, Some(uid), Some(gid)).unwrap();
            rustix::fs::fchmod(&opened, Mode::from_raw_mode(if file == DIRECTORY { 0o755 } else { 0o644 }))
                .unwrap();
            self.files.push(opened);
        }
    }

    fn names(&self, file: &File) -> Vec<Vec<u8>> {
        let mut list = vec![0; 65_536];
        let length = rustix::fs::flistxattr(file, &mut list[..]).unwrap_or(0);
        let names = list[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
        names.map(<[u8]>::to_vec).collect()
    }

    /// Waits until the file clock has advanced past the file's last change.
    fn wait_for_clock(&self, file: usize) {
        let changed = self.files[file].metadata().unwrap();
        let changed = (changed.ctime(), changed.ctime_nsec());
        loop {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
            if (now.tv_sec, now.tv_nsec as i64) > changed {
                return;
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    fn copy(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> Result<u64, Errno> {
        // A single call ends at the end that the source had when it began. A second one would see
        // data added to the same file by the first.
        let end = from.metadata().map_or(0, |found| found.size());
        let most = length.min(end.saturating_sub(from_offset)) as usize;
        let (mut from_offset, mut to_offset, mut done) = (from_offset, to_offset, 0);
        loop {
            // The kernel checks the rest of the source for overlaps even if there is nothing to
            // copy.
            let left = if done == 0 { length as usize } else { most - done };
            match rustix::fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), left) {
                Ok(copied) => done += copied,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if done >= most {
                break;
            }
        }
        let done = done as u64;
        Ok(done)
    }
}

impl Side for Host {
    fn call(&mut self, call: &Call, seed: u64) -> Result<u64, i32> {
        let file = &self.files[call.file];
        let privileged = |is_privileged, run: &dyn Fn() -> Result<u64, Errno>| match is_privileged {
            true => run(),
            false => without_privilege(run),
        };
        number(match call.change {
            Change::Write { offset, length, is_privileged } => {
                let data = bytes(seed, length as usize);
                privileged(is_privileged, &|| {
                    let written = file.write_at(&data, offset);
                    written
                        .map(|n| n as u64)
                        .map_err(|e| Errno::from_io_error(&e).expect("an error of the host"))
                })
            }
            Change::Truncate { size, is_privileged } => {
                privileged(is_privileged, &|| rustix::fs::ftruncate(file, size).map(|()| 0))
            }
            Change::Punch { offset, length } => privileged(false, &|| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, flags, offset, length).map(|()| 0)
            }),
            Change::Zero { offset, length, keeps_size } => privileged(false, &|| {
                let keep = if keeps_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE | keep, offset, length).map(|()| 0)
            }),
            Change::Copy { from, from_offset, to_offset, length } => {
                privileged(false, &|| self.copy(&self.files[from], from_offset, file, to_offset, length))
            }
            Change::Mode(mode) => rustix::fs::fchmod(file, Mode::from_raw_mode(mode)).map(|()| 0),
            Change::Owner { uid, gid } => {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::fchown(file, uid, gid).map(|()| 0)
            }
            Change::Times { atime, mtime } => {
                let time = |set: Option<Option<i64>>| match set {
                    None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                    Some(None) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
                    Some(Some(nanos)) => timespec(nanos),
                };
                let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
                rustix::fs::futimens(file, &times).map(|()| 0)
            }
            Change::SetXattr { name, length, when } => {
                let flags = match when {
                    When::Always => XattrFlags::empty(),
                    When::Create => XattrFlags::CREATE,
                    When::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::fsetxattr(file, NAMES[name], &bytes(seed, length), flags).map(|()| 0)
            }
            Change::RemoveXattr { name } => rustix::fs::fremovexattr(file, NAMES[name]).map(|()| 0),
            Change::GetXattr { name } => {
                let mut value = vec![0; 65_536];
                rustix::fs::fgetxattr(file, NAMES[name], &mut value[..]).map(|length| length as u64)
            }
            Change::Toggle | Change::Sync => Ok(0),
        })
    }

    fn state(&mut self, file: usize) -> FileState {
        let opened = &self.files[file];
        let found = opened.metadata().unwrap();
        let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let mut bytes = Vec::new();
        if file != DIRECTORY {
            bytes.resize(found.size() as usize, 0);
            opened.read_exact_at(&mut bytes, 0).unwrap();
        }
        let mut attributes = BTreeMap::new();
        for name in self.names(opened) {
            let mut value = vec![0; 65_536];
            let length = rustix::fs::fgetxattr(opened, &name[..], &mut value[..]).unwrap();
            value.truncate(length);
            attributes.insert(name, value);
        }
        FileState {
            size: if file == DIRECTORY { 0 } else { found.size() },
            bytes,
            mode: found.mode() & 0o7777,
            owner: (found.uid(), found.gid()),
            atime: nanos(found.atime(), found.atime_nsec()),
            mtime: nanos(found.mtime(), found.mtime_nsec()),
            ctime: nanos(found.ctime(), found.ctime_nsec()),
            attributes,
        }
    }

    fn size(&mut self, file: usize) -> u64 {
        self.files[file].metadata().unwrap().size()
    }

    fn seek(&mut self, file: usize, offset: u64, is_data: bool) -> Result<u64, i32> {
        let from = if is_data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
        number(rustix::fs::seek(&self.files[file], from))
    }

    fn mark(&mut self, file: usize) {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: omit, last_modification: timespec(MARK) };
        rustix::fs::futimens(&self.files[file], &times).unwrap();
        self.wait_for_clock(file);
    }
}
