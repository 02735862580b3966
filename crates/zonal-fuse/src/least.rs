//! Minimal FUSE server, as a baseline for benchmarks: same device and threads as a mount.
//!
//! It has one directory. Written data is discarded, checksummed by block, or checksummed and copied
//! into preallocated memory. Reads are served from a fixed buffer or from that memory.

use crate::front::names::FLAGS;
use crate::serve::{Buffer, PAYLOAD_AT, REQUEST_AT, Serve, send};
use crate::waiter::MountWaiter;
use crate::wire::layout::*;
use crate::wire::numbers::init;
use crate::wire::reply;
use crate::wire::request::{Operation, parse};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{Immutable, IntoBytes};
use zonal_fs::format::{Attributes, FileKind, Position};
use zonal_fs::{BLOCK_BYTES, ROOT};
use zonal_io::sums;

/// Processing of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Discard written data.
    Discard,
    /// Checksum each block.
    Sum,
    /// Checksum each block, and copy all data into a ring of this many mebibytes.
    SumAndCopy(usize),
}

const PIECE: usize = 1 << 20;

/// The minimal server. See the module.
pub(crate) struct Least {
    work: Work,
    has_setxattr_ext: bool,
    memory: Vec<Mutex<Vec<u8>>>,
    names: Mutex<HashMap<Vec<u8>, u64>>,
    sizes: Mutex<HashMap<u64, u64>>,
    next: AtomicU64,
}

impl Least {
    pub(crate) fn new(work: Work, agreed: &crate::wire::init::Agreed) -> Least {
        let pieces = if let Work::SumAndCopy(pieces) = work { pieces } else { 0 };
        Least {
            work,
            has_setxattr_ext: agreed.has(init::SETXATTR_EXT),
            memory: (0..pieces).map(|_| Mutex::new(vec![1; PIECE])).collect(),
            names: Mutex::default(),
            sizes: Mutex::default(),
            next: AtomicU64::new(ROOT + 1),
        }
    }

    fn attributes(&self, ino: u64) -> Attributes {
        let kind = if ino == ROOT { FileKind::Directory } else { FileKind::File };
        let size = self.sizes.lock().get(&ino).copied().unwrap_or(0);
        Attributes { size, ..Attributes::new(kind, 0o755, ROOT, Position::START, 0) }
    }

    fn entry(&self, ino: u64) -> EntryOut {
        reply::entry(1, reply::attr(ino, &self.attributes(ino)), reply::FOR_EVER)
    }

    fn write(&self, ino: u64, offset: u64, bytes: &[u8]) {
        let whole = &bytes[..bytes.len() / BLOCK_BYTES as usize * BLOCK_BYTES as usize];
        let mut found = vec![0; whole.len() / BLOCK_BYTES as usize];
        match self.work {
            Work::Discard => {}
            Work::Sum => sums::of_blocks(whole, &mut found),
            Work::SumAndCopy(pieces) => {
                let mut piece = self.memory[offset as usize / PIECE % pieces].lock();
                let at = offset as usize % PIECE;
                let length = whole.len().min(PIECE - at);
                sums::copy_blocks(&whole[..length], &mut piece[at..at + length], &mut found);
            }
        }
        std::hint::black_box(found);
        let mut sizes = self.sizes.lock();
        let size = sizes.entry(ino).or_default();
        *size = (*size).max(offset + bytes.len() as u64);
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let Work::SumAndCopy(pieces) = self.work else { return };
        let piece = self.memory[offset as usize / PIECE % pieces].lock();
        let at = offset as usize % PIECE;
        let length = into.len().min(PIECE - at);
        let mut found = vec![0; length / BLOCK_BYTES as usize];
        sums::copy_blocks(&piece[at..at + length], &mut into[..length], &mut found);
        std::hint::black_box(found);
    }

    fn answer(&self, header: &InHeader, operation: Operation<'_>, reply: &mut Vec<u8>) -> Result<(), Errno> {
        let ino = header.nodeid;
        match operation {
            Operation::Lookup { name } => match self.names.lock().get(name).copied() {
                Some(found) => put(&self.entry(found), reply),
                None => put(&reply::no_entry(), reply),
            },
            Operation::Getattr(_) | Operation::Setattr(_) => {
                let attr = reply::attr(ino, &self.attributes(ino));
                put(&reply::attr_out(attr, reply::FOR_EVER), reply);
            }
            Operation::Create { name, .. } => {
                let made = self.next.fetch_add(1, Ordering::Relaxed);
                self.names.lock().insert(name.to_vec(), made);
                reply.extend_from_slice(self.entry(made).as_bytes());
                put(&OpenOut { fh: 0, open_flags: FLAGS, padding: 0 }, reply);
            }
            Operation::Open(_) => put(&OpenOut { fh: 0, open_flags: FLAGS, padding: 0 }, reply),
            Operation::Opendir(_) => put(&OpenOut::default(), reply),
            Operation::Write { asked, bytes } => {
                self.write(ino, asked.offset, bytes);
                put(&WriteOut { size: asked.size, padding: 0 }, reply);
            }
            Operation::Unlink { name } => drop(self.names.lock().remove(name)),
            Operation::Release(_) | Operation::Releasedir(_) | Operation::Fsync(_) | Operation::Destroy => {}
            Operation::Statfs => put(&StatfsOut { bsize: BLOCK_BYTES, ..StatfsOut::default() }, reply),
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }
}

fn put<T: IntoBytes + Immutable>(value: &T, reply: &mut Vec<u8>) {
    reply.extend_from_slice(value.as_bytes());
}

impl Serve for Least {
    fn serve(
        &self,
        device: &OwnedFd,
        buffer: &mut Buffer,
        length: usize,
        _waiter: &MountWaiter<'_>,
    ) -> io::Result<()> {
        let Buffer { memory, reply, .. } = buffer;
        reply.clear();
        let request =
            parse(&memory[REQUEST_AT..][..length], self.has_setxattr_ext).map_err(io::Error::other)?;
        let header = request.header;
        match request.operation {
            Operation::Forget { .. } | Operation::BatchForget(_) => Ok(()),
            Operation::Read(asked) => {
                let into = &mut memory[PAYLOAD_AT..][..asked.size as usize];
                self.read(asked.offset, into);
                send(device, reply::header(header.unique, into.len()), into)
            }
            operation => match self.answer(&header, operation, reply) {
                Ok(()) => send(device, reply::header(header.unique, reply.len()), reply),
                Err(errno) => send(device, reply::error(header.unique, errno.raw_os_error()), &[]),
            },
        }
    }
}
