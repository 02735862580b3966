//! Data requests: reads, writes, ranges and syncs.

use super::handles::CacheMode;
use super::{Answer, Front, Outcome, Payload, Refusal, body};
use crate::serve::send_pieces;
use crate::waiter::MountWaiter;
use crate::wire::layout::{
    CopyFileRangeIn, CopyFileRangeOut, FallocateIn, InHeader, LseekIn, LseekOut, NotifyInvalInode, OutHeader,
    ReadIn, WriteIn, WriteOut,
};
use crate::wire::numbers::{fallocate, lseek, notify, write};
use crate::wire::reply;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use zerocopy::IntoBytes;
use zonal_fs::waiter::Wait;
use zonal_fs::{Changes, FsError, ROOT, Seek, SetIds, SetTime, ZeroEnd};

/// Flag of a synchronous write. `O_SYNC` includes this bit.
pub(super) const SYNCED: OFlags = OFlags::DSYNC;

/// Maximum number of bytes copied by one request. The caller asks again for the rest, and may be
/// killed in between.
const COPY_BYTES_MAX: u64 = 64 << 20;

impl Front {
    /// Reads and sends the reply directly from the buffers with the data.
    pub(super) fn read(
        &self,
        header: &InHeader,
        asked: &ReadIn,
        waiter: &MountWaiter<'_>,
        device: &OwnedFd,
    ) -> Outcome {
        let (ino, length) = (header.nodeid, asked.size.into());
        let given = self.fs.read_in_place(waiter, ino, asked.offset, length, |pieces| {
            let length = pieces.iter().map(|piece| piece.len()).sum();
            // Before the reply, because the reader may check at once.
            if self.options.relatime && length > 0 {
                self.note_read(ino, waiter);
            }
            waiter.come_back();
            send_pieces(device, reply::header(header.unique, length), pieces)
        })?;
        Ok(Answer::Given(given))
    }

    /// Updates the access time if it is old. A failure does not affect the read.
    fn note_read(&self, ino: u64, waiter: &MountWaiter<'_>) {
        const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;
        let Ok(file) = self.fs.attributes(ino) else { return };
        let now = waiter.wall();
        if file.atime > file.mtime.max(file.ctime) && now.saturating_sub(file.atime) < DAY {
            return;
        }
        let (atime, ctime) = (Some(SetTime::At(now)), Some(SetTime::At(file.ctime)));
        let changes = Changes { atime, ctime, set_ids: SetIds::Keep, ..Changes::default() };
        if self.fs.set_attributes(waiter, ino, &changes).is_ok() {
            self.changed.note();
        }
    }

    pub(super) fn write(
        &self,
        ino: u64,
        asked: &WriteIn,
        payload: Payload<'_>,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
        device: &OwnedFd,
    ) -> Outcome {
        self.lose_capabilities(ino, waiter)?;
        let flags = asked.write_flags;
        let set_ids = if flags & write::KILL_SUIDGID != 0 { SetIds::Clear } else { SetIds::Keep };
        let Payload { length, memory, pool } = payload;
        let written = self.fs.write_in_place(waiter, (ino, asked.offset), (memory, length), pool, set_ids);
        if flags & write::CACHE == 0 {
            if self.handles.mode(asked.fh) == Some(CacheMode::Direct) {
                // The kernel dropped these bytes from its cache before the write, but another
                // handle may have read them since.
                let bytes = NotifyInvalInode { ino, off: asked.offset as i64, len: length as i64 };
                waiter.away(|| invalidate(device, &bytes))?;
            }
            let written = written?;
            // For direct writes, Linux leaves the sync to the server. The flags are those of the
            // file and of the call.
            if OFlags::from_bits_retain(asked.flags).intersects(SYNCED) {
                self.fs.fsync(waiter, ino)?;
            }
            // The kernel turns a short direct write into an I/O error.
            let is_direct = OFlags::from_bits_retain(asked.flags).contains(OFlags::DIRECT);
            if written < length as u64 && is_direct {
                return Err(FsError::NoSpace.into());
            }
            return body(&WriteOut { size: written as u32, padding: 0 }, reply);
        }
        // Write-back from the page cache: the caller was already told that it succeeded, so a short
        // write is an error. The kernel reports it to the next `fsync` or `close`.
        let written = written.and_then(|written| match written < length as u64 {
            true => Err(FsError::NoSpace),
            false => Ok(written),
        });
        match written {
            Ok(written) => body(&WriteOut { size: written as u32, padding: 0 }, reply),
            Err(error) => {
                let range = asked.offset..asked.offset + length as u64;
                (self.log)(&format!(
                    "{}: bytes {} to {} of written data are lost: {error}",
                    self.named(ino),
                    range.start,
                    range.end
                ));
                // A program that writes but never syncs gets the error, too: without cached
                // attributes the kernel asks for them before the next write.
                self.handles.note_loss(ino, error.errno());
                invalidate(device, &NotifyInvalInode { ino, off: -1, len: 0 })?;
                Err(Errno::from_raw_os_error(error.errno()).into())
            }
        }
    }

    pub(super) fn fsync(&self, ino: u64, waiter: &MountWaiter<'_>) -> Outcome {
        if !self.options.read_only {
            self.fs.fsync(waiter, ino)?;
        }
        Ok(Answer::Body)
    }

    /// Syncs a directory. For the root, syncs everything.
    pub(super) fn fsyncdir(&self, ino: u64, waiter: &MountWaiter<'_>) -> Outcome {
        if ino == ROOT { self.sync(waiter) } else { self.fsync(ino, waiter) }
    }

    pub(super) fn sync(&self, waiter: &MountWaiter<'_>) -> Outcome {
        if !self.options.read_only {
            self.fs.sync(waiter)?;
        }
        Ok(Answer::Body)
    }

    /// Changes the data of a file for a request without information about set-id bits: they are
    /// cleared, except for root.
    fn taking_set_ids<T>(
        &self,
        uid: u32,
        ino: u64,
        device: &OwnedFd,
        change: impl FnOnce(SetIds) -> Result<T, FsError>,
    ) -> Result<T, Refusal> {
        const SET_IDS: u16 = 0o6000;
        if uid == 0 || self.fs.attributes(ino)?.mode & SET_IDS == 0 {
            return Ok(change(SetIds::Keep)?);
        }
        let changed = change(SetIds::Clear)?;
        // The kernel runs programs according to its cached mode.
        invalidate(device, &NotifyInvalInode { ino, off: -1, len: 0 })?;
        Ok(changed)
    }

    pub(super) fn fallocate(
        &self,
        header: &InHeader,
        asked: &FallocateIn,
        waiter: &MountWaiter<'_>,
        device: &OwnedFd,
    ) -> Outcome {
        let ino = header.nodeid;
        const PUNCH: u32 = fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE;
        const ZERO_WITHIN: u32 = fallocate::ZERO_RANGE | fallocate::KEEP_SIZE;
        let end = match asked.mode {
            PUNCH | ZERO_WITHIN => ZeroEnd::Keep,
            fallocate::ZERO_RANGE => ZeroEnd::Extend,
            // Blocks are written to new places each time, so space cannot be preallocated.
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        self.lose_capabilities(ino, waiter)?;
        let last = asked.offset.checked_add(asked.length).ok_or(Errno::FBIG)?;
        self.taking_set_ids(header.uid, ino, device, |set_ids| {
            self.fs.zero_range(waiter, ino, asked.offset..last, end, set_ids)
        })?;
        Ok(Answer::Body)
    }

    pub(super) fn lseek(
        &self,
        ino: u64,
        asked: &LseekIn,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
        device: &OwnedFd,
    ) -> Outcome {
        let what = match asked.whence {
            lseek::DATA => Seek::Data,
            lseek::HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL.into()),
        };
        // The kernel does not write back its cache before this request, and unwritten data would
        // appear as a hole.
        if self.options.writeback && self.handles.has_writers(ino) {
            let all = NotifyInvalInode { ino, off: 0, len: 0 };
            waiter.away(|| invalidate(device, &all))?;
        }
        body(&LseekOut { offset: self.fs.seek(ino, asked.offset, what)? }, reply)
    }

    pub(super) fn copy_range(
        &self,
        header: &InHeader,
        asked: &CopyFileRangeIn,
        wide: bool,
        reply: &mut Vec<u8>,
        waiter: &MountWaiter<'_>,
        device: &OwnedFd,
    ) -> Outcome {
        if asked.flags != 0 {
            return Err(Errno::INVAL.into());
        }
        let (from, to) = ((header.nodeid, asked.off_in), (asked.nodeid_out, asked.off_out));
        self.lose_capabilities(to.0, waiter)?;
        let length = asked.len.min(COPY_BYTES_MAX);
        let bytes_copied = self.taking_set_ids(header.uid, to.0, device, |set_ids| {
            self.fs.copy_range(waiter, from, to, length, set_ids)
        })?;
        match wide {
            true => body(&CopyFileRangeOut { bytes_copied }, reply),
            false => body(&WriteOut { size: bytes_copied as u32, padding: 0 }, reply),
        }
    }
}

/// Has the kernel write back cached data of a file, wait for that, and drop it from the cache.
fn invalidate(device: &OwnedFd, bytes: &NotifyInvalInode) -> Result<(), Refusal> {
    let length = size_of::<OutHeader>() + size_of::<NotifyInvalInode>();
    let head = OutHeader { len: length as u32, error: notify::INVAL_INODE, unique: 0 };
    match rustix::io::writev(device, &[IoSlice::new(head.as_bytes()), IoSlice::new(bytes.as_bytes())]) {
        // The kernel has forgotten the file.
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
