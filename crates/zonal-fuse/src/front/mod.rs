//! Answers FUSE requests with calls of the file system.
//!
//! Each request becomes one or a few calls. The kernel may cache everything indefinitely, because
//! it is the only one to change the file system. The front keeps the state that the protocol has
//! but the file system does not: handles of open files, consistency of access control lists with
//! modes, and owners and modes shown by the mount instead of a file's own.

mod attributes;
mod data;
mod directory;
mod handles;
mod labels;
pub(crate) mod names;

use crate::maintenance::Changed;
use crate::serve::{Buffer, REQUEST_AT, Serve, send};
use crate::waiter::MountWaiter;
use crate::wire::init::Agreed;
use crate::wire::layout::{ForgetOne, InHeader};
use crate::wire::numbers::init;
use crate::wire::reply as encode;
use crate::wire::request::{Operation, parse};
use handles::Handles;
use labels::Labels;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};
use zonal_fs::{FileSystem, FsError};
use zonal_io::buffer::{BufferPool, IoBuf};

/// View of a file system through a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The kernel may report a write as done once the data is in its page cache.
    pub writeback: bool,
    /// Every change is durable before the reply. Has no effect on writes with `writeback`, since
    /// the kernel completes them.
    pub sync: bool,
    /// Nothing is changed, so nothing has to be synced.
    pub read_only: bool,
    /// Owner shown for all files.
    pub uid: Option<u32>,
    /// Group shown for all files.
    pub gid: Option<u32>,
    /// Permission bits hidden for all files.
    pub umask: Option<u16>,
    /// Files opened for writing while less than this is free, in bytes, are written through, so
    /// that a write reports a lack of space. Requires Linux 6.6.
    pub write_through_below: u64,
    /// A read updates the access time if that is not after the last change, or is a day old. Reads
    /// served by the kernel's page cache do not count.
    pub relatime: bool,
}

/// Log of a mount. Each call is one line.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Request handler of a mount.
pub(crate) struct Front {
    fs: FileSystem,
    options: Options,
    agreed: Agreed,
    handles: Handles,
    labels: Labels,
    changed: Arc<Changed>,
    log: Log,
}

/// Result of a handler.
enum Answer {
    /// No reply is expected.
    None,
    /// The body is in the reply of the [`Buffer`].
    Body,
    /// The reply was sent already, or the device did not accept it.
    Given(io::Result<()>),
}

/// Reason for the failure of a request.
enum Refusal {
    Errno(Errno),
    Fs(FsError),
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Refusal {
        Refusal::Fs(error)
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Errno(errno)
    }
}

/// Data of a write, in a thread's memory.
struct Payload<'a> {
    length: usize,
    memory: &'a mut IoBuf,
    /// Source of new memory if the file system keeps this one.
    pool: &'a BufferPool,
}

type Outcome = Result<Answer, Refusal>;

impl Front {
    pub(crate) fn new(
        fs: FileSystem,
        options: Options,
        agreed: Agreed,
        changed: Arc<Changed>,
        log: Log,
    ) -> Front {
        let (handles, labels) = (Handles::default(), Labels::default());
        Front { fs, options, agreed, handles, labels, changed, log }
    }

    fn named(&self, ino: u64) -> String {
        named(&self.fs, ino)
    }

    /// Error number of a refusal. Errors that are not the caller's fault are logged.
    fn errno(&self, header: &InHeader, refusal: Refusal) -> i32 {
        match refusal {
            Refusal::Errno(errno) => errno.raw_os_error(),
            Refusal::Fs(error) => {
                let errno = error.errno();
                if [Errno::IO, Errno::UCLEAN].map(Errno::raw_os_error).contains(&errno) {
                    (self.log)(&format!("{}: {error}", self.named(header.nodeid)));
                }
                errno
            }
        }
    }
}

impl Serve for Front {
    fn serve(
        &self,
        device: &OwnedFd,
        buffer: &mut Buffer,
        length: usize,
        waiter: &MountWaiter<'_>,
    ) -> io::Result<()> {
        let Buffer { memory, reply, pool } = buffer;
        reply.clear();
        let has_ext = self.agreed.has(init::SETXATTR_EXT);
        let request = match parse(&memory[REQUEST_AT..][..length], has_ext) {
            Ok(request) => request,
            Err(malformed) => {
                (self.log)(&format!("malformed request from the kernel: {malformed}"));
                let Some(header) = malformed.header else { return Ok(()) };
                return send(device, encode::error(header.unique, Errno::IO.raw_os_error()), &[]);
            }
        };
        let header = request.header;
        let may_change = may_change(&request.operation);
        let outcome = match request.operation {
            Operation::Read(asked) => self.read(&header, &asked, waiter, device),
            // The memory may be passed on to the drive.
            Operation::Write { asked, bytes } => {
                let payload = Payload { length: bytes.len(), memory, pool };
                self.write(header.nodeid, &asked, payload, reply, waiter, device)
            }
            operation => self.answer(&header, operation, reply, waiter, device),
        };
        let outcome = match outcome {
            Ok(answer) if may_change && self.options.sync => {
                self.fs.sync(waiter).map(|()| answer).map_err(Refusal::from)
            }
            outcome => outcome,
        };
        waiter.come_back();
        if may_change {
            // Noted after the change: a sync that began before its end may not include it.
            self.changed.note();
        }
        match outcome {
            Ok(Answer::None) => Ok(()),
            Ok(Answer::Body) => send(device, encode::header(header.unique, reply.len()), reply),
            Ok(Answer::Given(result)) => result,
            Err(refusal) => send(device, encode::error(header.unique, self.errno(&header, refusal)), &[]),
        }
    }
}

impl Front {
    fn answer(
        &self,
        header: &InHeader,
        operation: Operation<'_>,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
        device: &OwnedFd,
    ) -> Outcome {
        let ino = header.nodeid;
        match operation {
            Operation::Lookup { name } => self.lookup(ino, name, reply),
            Operation::Forget { times } => {
                self.fs.forget(waiter, ino, times)?;
                Ok(Answer::None)
            }
            Operation::BatchForget(forgets) => {
                let forget = |one: ForgetOne| self.fs.forget(waiter, one.nodeid, one.nlookup);
                // An error of one file does not keep the others.
                let first = forgets.iter().map(forget).fold(Ok(()), Result::and);
                first?;
                Ok(Answer::None)
            }
            Operation::Getattr(asked) => self.getattr(ino, &asked, reply),
            Operation::Statx(_) => self.statx(ino, reply),
            Operation::Setattr(asked) => self.setattr(ino, &asked, reply, waiter),
            Operation::Readlink => {
                reply.extend_from_slice(&self.fs.target(ino)?);
                Ok(Answer::Body)
            }
            Operation::Symlink { name, target } => self.symlink(header, name, target, reply, waiter),
            Operation::Mknod { mode, rdev, umask, name } => {
                self.make(header, name, (mode, umask, rdev), reply, waiter)
            }
            Operation::Mkdir { mode, umask, name } => {
                self.make(header, name, (mode | S_IFDIR, umask, 0), reply, waiter)
            }
            Operation::Unlink { name } => self.unlink(ino, name, waiter),
            Operation::Rmdir { name } => self.rmdir(ino, name, waiter),
            Operation::Rename { name, to, new_name, flags } => {
                self.rename((ino, name), (to, new_name), flags, waiter)
            }
            Operation::Link { file, name } => self.link(file, (ino, name), reply, waiter),
            Operation::Open(asked) => self.open(ino, asked.flags, reply),
            Operation::Create { asked, name } => self.create(header, name, &asked, reply, waiter),
            Operation::Tmpfile { asked } => self.tmpfile(header, &asked, reply, waiter),
            Operation::Read(_) | Operation::Write { .. } => unreachable!("it was answered before"),
            Operation::Statfs => self.statfs(reply),
            Operation::Release(asked) => self.release(ino, asked.fh, waiter),
            Operation::Fsync(_) => self.fsync(ino, waiter),
            Operation::Fsyncdir(_) => self.fsyncdir(ino, waiter),
            Operation::Syncfs => self.sync(waiter),
            Operation::Setxattr { flags, extended, name, value } => {
                self.setxattr(ino, (name, value), (flags, extended), waiter)
            }
            Operation::Getxattr { size, name } => self.getxattr(ino, name, size, reply),
            Operation::Listxattr { size } => self.listxattr(header, size, reply),
            Operation::Removexattr { name } => self.removexattr(ino, name, waiter),
            Operation::Opendir(asked) => self.opendir(ino, &asked, reply),
            Operation::Readdir { asked, with_entries } => self.readdir(ino, &asked, with_entries, reply),
            Operation::Releasedir(asked) => self.releasedir(ino, &asked),
            Operation::Fallocate(asked) => self.fallocate(header, &asked, waiter, device),
            Operation::Lseek(asked) => self.lseek(ino, &asked, reply, waiter, device),
            Operation::CopyFileRange { asked, wide } => {
                self.copy_range(header, &asked, wide, reply, waiter, device)
            }
            Operation::Destroy => Ok(Answer::Body),
            // Requests wait only for space or for the drive, and not for long, so interrupts are
            // not supported. After this reply the kernel sends no more of them, and no `FLUSH`
            // either: it writes its cache and reports errors before that anyway.
            Operation::Interrupt(_) | Operation::Flush(_) | Operation::Unknown => Err(Errno::NOSYS.into()),
            Operation::Init(_) => Err(Errno::IO.into()),
        }
    }
}

/// True if a request may change data to be synced. The end of an unnamed file is left to the next
/// change.
fn may_change(operation: &Operation<'_>) -> bool {
    use Operation::*;
    match operation {
        Setattr(_)
        | Symlink { .. }
        | Mknod { .. }
        | Mkdir { .. }
        | Unlink { .. }
        | Rmdir { .. }
        | Rename { .. }
        | Link { .. }
        | Create { .. }
        | Tmpfile { .. }
        | Write { .. }
        | Setxattr { .. }
        | Removexattr { .. }
        | Fallocate(_)
        | CopyFileRange { .. } => true,
        Init(_)
        | Destroy
        | Interrupt(_)
        | Lookup { .. }
        | Forget { .. }
        | BatchForget(_)
        | Getattr(_)
        | Statx(_)
        | Readlink
        | Open(_)
        | Read(_)
        | Statfs
        | Release(_)
        | Fsync(_)
        | Flush(_)
        | Getxattr { .. }
        | Listxattr { .. }
        | Opendir(_)
        | Readdir { .. }
        | Releasedir(_)
        | Fsyncdir(_)
        | Lseek(_)
        | Syncfs
        | Unknown => false,
    }
}

/// Name of a file in the log: its path and its number.
pub(crate) fn named(fs: &FileSystem, ino: u64) -> String {
    match fs.path(ino) {
        Some(path) => format!("/{} (file {ino})", path.escape_ascii()),
        None => format!("file {ino}"),
    }
}

/// Directory type in a mode.
const S_IFDIR: u32 = 0o040_000;

/// Reply with a single structure.
fn body<T: IntoBytes + Immutable>(value: &T, reply: &mut Vec<u8>) -> Outcome {
    reply.extend_from_slice(value.as_bytes());
    Ok(Answer::Body)
}
