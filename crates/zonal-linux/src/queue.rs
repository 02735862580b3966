//! One queue of a block device: transfers on their way to the kernel, at the kernel, and back.

use crate::aio::{Aio, Iocb, Transfer};
use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use zonal_core::{Op, SECTOR_BYTES};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Command, Completed, Context};

/// Largest number of pieces of memory of one transfer: `UIO_MAXIOV` of the kernel.
const PIECES_MAX: usize = 1024;

/// Transfer that the queue holds.
pub(crate) struct Slot {
    pub command: Command,
    pub context: Context,
    /// Memory of the transfer, if the command's is at an address that the drive cannot take, or in too
    /// many pieces.
    bounce: Option<IoBuf>,
    /// Memory as the kernel is told of it.
    memory: SmallVec<[libc::iovec; 1]>,
}

// SAFETY: the list holds addresses of the command's memory, which the command may take to other
// threads as well.
unsafe impl Send for Slot {}

/// Transfer that has ended.
pub(crate) struct Returned {
    pub slot: Slot,
    /// False if the kernel refused the transfer when it was submitted, so that it has not begun.
    pub was_sent: bool,
    pub result: Result<u64, Errno>,
}

impl Slot {
    pub fn bytes(&self) -> u64 {
        u64::from(self.command.sectors) * SECTOR_BYTES
    }

    /// Copies what was read to the command's memory.
    pub fn deliver(&self) {
        if let Some(bounce) = self.bounce.as_ref().filter(|_| self.command.op == Op::Read) {
            self.command.data.for_each_mut(|at, piece| piece.copy_from_slice(&bounce[at..][..piece.len()]));
        }
    }
}

/// Queue; see the module.
pub(crate) struct Queue {
    file: OwnedFd,
    aio: Aio,
    /// For reads. Without io_uring, they take the way of writes.
    ring: Option<IoUring>,
    /// Counts completions, for threads that sleep.
    event: OwnedFd,
    /// Completions were counted since the event was read.
    is_counted: bool,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Transfers that the next commit passes to the kernel.
    waiting: Vec<Iocb>,
    /// Number of entries in the ring that the next commit passes to the kernel.
    waiting_reads: usize,
    /// Completed, but not handed out.
    pub ready: VecDeque<Completed>,
    /// Alignment of addresses and lengths of memory, in bytes.
    align: usize,
    /// Number of commands whose memory was copied.
    pub copies: u64,
}

/// Reason why a queue cannot be created.
pub(crate) enum QueueError {
    /// `io_setup` failed.
    Aio(io::Error),
    /// Another call failed.
    Other(io::Error),
}

impl Queue {
    /// Creates a queue of `depth` transfers for a file that is open for direct I/O.
    pub fn new(file: OwnedFd, depth: u32, align: u32) -> Result<Queue, QueueError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|e| QueueError::Other(e.into()))?;
        // Refused in many containers, and by `kernel.io_uring_disabled`.
        let ring = IoUring::new(depth).ok().filter(|ring| {
            let submitter = ring.submitter();
            submitter.register_files(&[file.as_raw_fd()]).is_ok()
                && submitter.register_eventfd(event.as_raw_fd()).is_ok()
        });
        Ok(Queue {
            aio: Aio::new(depth).map_err(QueueError::Aio)?,
            ring,
            event,
            is_counted: false,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            waiting: Vec::with_capacity(depth as usize),
            waiting_reads: 0,
            ready: VecDeque::new(),
            align: align as usize,
            copies: 0,
            file,
        })
    }

    /// Descriptor that is readable while there may be completions.
    pub fn event(&self) -> io::Result<OwnedFd> {
        self.event.try_clone()
    }

    /// True if there is no room for another transfer.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Number of transfers that have not ended.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a transfer, a read or a write, which the next [`Queue::commit`] submits. There has to be
    /// room.
    pub fn add(&mut self, command: &Command, context: Context) {
        let number = self.free.pop().expect("a queue with room has a free number");
        let bytes = command.sectors as usize * SECTOR_BYTES as usize;
        let is_aligned = |segment: &zonal_io::data::Segment| {
            (segment.as_ptr() as usize | segment.len()) & (self.align - 1) == 0
        };
        let mut bounce = None;
        let mut memory: SmallVec<[libc::iovec; 1]> = SmallVec::new();
        let segments = command.data.segments();
        if segments.len() <= PIECES_MAX && segments.iter().all(is_aligned) {
            memory.extend(
                segments.iter().map(|s| libc::iovec { iov_base: s.as_ptr().cast(), iov_len: s.len() }),
            );
        } else {
            self.copies += 1;
            let mut copy = IoBuf::untouched(bytes as u32);
            if command.op == Op::Write {
                command.data.for_each(|at, piece| copy[at..][..piece.len()].copy_from_slice(piece));
            }
            memory.push(libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: bytes });
            bounce = Some(copy);
        }
        let offset = command.sector.0 * SECTOR_BYTES;
        // The kernel is told the address of the list, so the slot has to be at its place before.
        let slot = self.slots[number as usize].insert(Slot { command: *command, context, bounce, memory });
        match &mut self.ring {
            Some(ring) if command.op == Op::Read => {
                let entry = match slot.memory.as_slice() {
                    [one] => opcode::Read::new(types::Fixed(0), one.iov_base.cast(), one.iov_len as u32)
                        .offset(offset)
                        .build(),
                    many => opcode::Readv::new(types::Fixed(0), many.as_ptr(), many.len() as u32)
                        .offset(offset)
                        .build(),
                };
                // SAFETY: the slot keeps the list, and the command its memory, until the completion.
                let pushed = unsafe { ring.submission().push(&entry.user_data(number.into())) };
                pushed.expect("the ring has an entry for each slot");
                self.waiting_reads += 1;
            }
            _ => {
                let transfer = match command.op {
                    Op::Read => Transfer::Read,
                    _ => Transfer::Write { durable: command.fua },
                };
                let (file, event) = (self.file.as_fd(), self.event.as_fd());
                self.waiting.push(Iocb::new(number.into(), transfer, file, &slot.memory, offset, event));
            }
        }
    }

    /// Submits what was added. Transfers that the kernel refuses at once are passed to `refused`.
    /// Returns false if the kernel had no room for all.
    pub fn commit(&mut self, mut refused: impl FnMut(Returned)) -> bool {
        let mut has_room = true;
        let mut taken = 0;
        while taken < self.waiting.len() {
            // SAFETY: the slots keep the lists, and the commands their memory, until the completions.
            match unsafe { self.aio.submit(&mut self.waiting[taken..]) } {
                Ok(some) if some > 0 => taken += some,
                Ok(_) => {
                    has_room = false;
                    break;
                }
                Err(error) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {
                    has_room = false;
                    break;
                }
                Err(error) => {
                    let number = self.waiting[taken].number();
                    taken += 1;
                    let result = Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                    if let Some(slot) = self.take(number) {
                        refused(Returned { slot, was_sent: false, result });
                    }
                }
            }
        }
        self.waiting.drain(..taken);
        if let Some(ring) = self.ring.as_mut().filter(|_| self.waiting_reads > 0) {
            match ring.submit() {
                Ok(some) => self.waiting_reads -= some.min(self.waiting_reads),
                // Too many completions, or no memory: tried again.
                Err(_) => has_room = false,
            }
            has_room &= self.waiting_reads == 0;
        }
        has_room
    }

    /// Passes the transfers that have ended to `returned`. `is_watched` is true if threads sleep on
    /// the descriptor.
    pub fn reap(&mut self, is_watched: bool, mut returned: impl FnMut(Returned)) {
        if self.in_flight() == 0 && !(is_watched && self.is_counted) {
            return;
        }
        // Before the rings are looked at, so that a completion after that look is counted again. The
        // kernel stores a completion before it counts it, so there may be nothing to read yet.
        if is_watched && self.is_counted && rustix::io::read(&self.event, &mut [0; 8]).is_ok() {
            self.is_counted = false;
        }
        let Queue { aio, ring, slots, free, is_counted, .. } = self;
        let mut end = |number: u64, result| {
            *is_counted = true;
            if let Some(slot) = slots.get_mut(number as usize).and_then(Option::take) {
                free.push(number as u32);
                returned(Returned { slot, was_sent: true, result });
            }
        };
        aio.reap(|ended| end(ended.number, ended.result));
        for entry in ring.iter_mut().flat_map(|ring| ring.completion()) {
            let result = match entry.result() {
                failed if failed < 0 => Err(Errno::from_raw_os_error(-failed)),
                bytes => Ok(bytes as u64),
            };
            end(entry.user_data(), result);
        }
    }

    /// True if a write to a sector that `is_it` accepts is on its way.
    pub fn writes(&self, is_it: impl Fn(zonal_core::Sector) -> bool) -> bool {
        let mut held = self.slots.iter().flatten();
        held.any(|slot| slot.command.op == Op::Write && is_it(slot.command.sector))
    }

    fn take(&mut self, number: u64) -> Option<Slot> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number as u32);
        Some(slot)
    }

    /// Waits until the kernel has ended all transfers, and drops their contexts. Until then it may
    /// access their memory, so this waits as long as the drive takes.
    pub fn drain(&mut self) {
        let not_submitted: Vec<u64> = self.waiting.drain(..).map(|iocb| iocb.number()).collect();
        not_submitted.into_iter().for_each(|number| drop(self.take(number)));
        while self.in_flight() > 0 {
            // Reads in the ring can only be taken back by submitting them.
            self.commit(drop);
            let before = self.in_flight();
            self.reap(true, drop);
            if self.in_flight() == before {
                let event: BorrowedFd<'_> = self.event.as_fd();
                let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
                let _ = poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&pause));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use zonal_core::Sector;
    use zonal_io::data::{Data, Segment};

    fn all(queue: &mut Queue, count: usize) -> Vec<Returned> {
        let mut returned = Vec::new();
        assert!(queue.commit(|one| returned.push(one)));
        while returned.len() < count {
            queue.reap(false, |one| returned.push(one));
        }
        returned
    }

    /// Data of memory that the test keeps.
    fn data(memory: &mut [u8]) -> Data {
        // SAFETY: the tests wait for the completion while the memory lives.
        unsafe { Data::one(Segment::new(memory.as_mut_ptr(), memory.len())) }
    }

    #[test]
    fn memory_at_odd_addresses_is_copied_and_counted() {
        let file = tempfile::tempfile().unwrap();
        let mut queue = Queue::new(file.try_clone().unwrap().into(), 4, 512).map_err(|_| ()).unwrap();
        let mut odd = IoBuf::zeroed(8192);
        odd[3..1027].fill(7);
        let write = Command { data: data(&mut odd[3..1027]), ..Command::new(Op::Write, Sector(8), 2) };
        queue.add(&write, Context::token(1));
        let [written] = all(&mut queue, 1).try_into().ok().unwrap();
        assert_eq!((written.result, queue.copies), (Ok(1024), 1));
        let mut there = [0; 1024];
        file.read_exact_at(&mut there, 4096).unwrap();
        assert_eq!(there, [7; 1024]);
        let mut aligned = IoBuf::zeroed(1024);
        let mut back = vec![0; 1025];
        for (memory, copies) in [(&mut aligned[..], 1), (&mut back[1..], 2)] {
            let read = Command { data: data(memory), ..Command::new(Op::Read, Sector(8), 2) };
            queue.add(&read, Context::token(2));
            let [done] = all(&mut queue, 1).try_into().ok().unwrap();
            done.slot.deliver();
            assert_eq!((done.result, queue.copies), (Ok(1024), copies));
        }
        assert_eq!((&aligned[..], &back[1..]), (&there[..], &there[..]));
    }

    #[test]
    fn memory_in_more_pieces_than_the_kernel_takes_is_copied() {
        let file = tempfile::tempfile().unwrap();
        let mut queue = Queue::new(file.try_clone().unwrap().into(), 1, 512).map_err(|_| ()).unwrap();
        let mut memory = IoBuf::zeroed(1500 * 512);
        memory.chunks_mut(512).enumerate().for_each(|(n, piece)| piece.fill(n as u8));
        let base = memory.as_mut_ptr();
        let pieces: Vec<Segment> = (0..1500).map(|n| Segment::new(base.wrapping_add(n * 512), 512)).collect();
        // SAFETY: list and memory outlive the completion.
        let data = unsafe { Data::many(&raw const *pieces) };
        let write = Command { data, ..Command::new(Op::Write, Sector(0), 1500) };
        queue.add(&write, Context::token(1));
        let [written] = all(&mut queue, 1).try_into().ok().unwrap();
        assert_eq!((written.result, queue.copies), (Ok(1500 * 512), 1));
        let mut there = vec![0; 1500 * 512];
        file.read_exact_at(&mut there, 0).unwrap();
        assert!(there[..] == memory[..]);
    }

    #[test]
    fn transfers_leave_with_the_commit_and_free_their_places() {
        let file = tempfile::tempfile().unwrap();
        let mut queue = Queue::new(file.try_clone().unwrap().into(), 4, 1).map_err(|_| ()).unwrap();
        let mut memory = IoBuf::zeroed(4096);
        for round in 0..3 {
            for n in 0..4 {
                let op = if n % 2 == 0 { Op::Write } else { Op::Read };
                let command = Command {
                    data: data(&mut memory[n * 512..][..512]),
                    ..Command::new(op, Sector(n as u64), 1)
                };
                queue.add(&command, Context::token(n as u64));
            }
            assert!(queue.is_full());
            if round == 0 {
                assert_eq!(file.metadata().unwrap().len(), 0, "nothing left before the commit");
            }
            assert_eq!(all(&mut queue, 4).len(), 4);
            assert_eq!(queue.in_flight(), 0);
        }
    }
}
