//! Asynchronous I/O of the kernel: `io_setup`, `io_submit` and the ring of completions.
//!
//! Writes use this interface instead of io_uring. io_uring marks its writes as not to wait, and the
//! kernel's zone write plugging hands each such write to a worker thread, which triples the cost of
//! a single write.
//!
//! Completions are read from the ring that the kernel shares with the process, without a system
//! call. The layout of that ring is `struct aio_ring` of `fs/aio.c`, which libaio and fio read too.

use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    address: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

/// Header of the ring of completions.
#[repr(C)]
struct Header {
    id: u32,
    /// Number of entries.
    count: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    /// Length of this header.
    len: u32,
}

const MAGIC: u32 = 0xA10A_10A1;
const OPCODE_READ_VECTORED: u16 = 7;
const OPCODE_WRITE_VECTORED: u16 = 8;
/// The completion is counted in an event descriptor.
const FLAG_EVENT_FILE: u32 = 1;
/// `RWF_DSYNC`: durable on completion.
const DURABLE: i32 = 2;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// From the drive.
    Read,
    /// To the drive.
    Write {
        /// True to make it durable before its completion.
        durable: bool,
    },
}

impl Iocb {
    /// Describes a transfer between memory and a file. `number` is returned with its completion,
    /// which is counted in `event`.
    ///
    /// The list and its memory must stay valid: the list until the submission, the memory until the
    /// completion.
    pub fn new(
        number: u64,
        transfer: Transfer,
        file: BorrowedFd<'_>,
        memory: &[libc::iovec],
        offset: u64,
        event: BorrowedFd<'_>,
    ) -> Iocb {
        let (opcode, rw_flags) = match transfer {
            Transfer::Read => (OPCODE_READ_VECTORED, 0),
            Transfer::Write { durable } => (OPCODE_WRITE_VECTORED, if durable { DURABLE } else { 0 }),
        };
        Iocb {
            data: number,
            rw_flags,
            opcode,
            file: file.as_raw_fd() as u32,
            address: memory.as_ptr() as u64,
            len: memory.len() as u64,
            offset: offset as i64,
            flags: FLAG_EVENT_FILE,
            event_file: event.as_raw_fd() as u32,
            ..Iocb::default()
        }
    }

    /// Number passed to [`Iocb::new`].
    pub fn number(&self) -> u64 {
        self.data
    }
}

/// Completion of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Number passed to [`Iocb::new`].
    pub number: u64,
    /// Number of bytes, or an error.
    pub result: Result<u64, Errno>,
}

/// Context of asynchronous I/O.
pub struct Aio {
    ring: NonNull<Header>,
    /// Addresses of the transfers of a submission; empty between calls.
    pointers: Vec<*mut Iocb>,
}

// SAFETY: the kernel accepts calls for a context from any thread of the process, and methods that
// access the ring need the value exclusively.
unsafe impl Send for Aio {}

/// Converts the result of a raw system call.
fn checked(result: libc::c_long) -> io::Result<u64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as u64) }
}

impl Aio {
    /// Creates a context for `depth` transfers in flight.
    ///
    /// # Errors
    /// EAGAIN if the processes of this machine have used up `fs.aio-max-nr`.
    pub fn new(depth: u32) -> io::Result<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word to `context`, which is 0 as required.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, libc::c_long::from(depth), &raw mut context) })?;
        let ring = NonNull::new(context as *mut Header).ok_or(io::ErrorKind::Unsupported)?;
        let aio = Aio { ring, pointers: Vec::with_capacity(depth as usize) };
        // SAFETY: the context is the address of the ring's header, mapped until the context ends.
        let header = unsafe { aio.ring.as_ref() };
        match header.magic == MAGIC && header.incompatible == 0 && header.count > 0 {
            true => Ok(aio),
            false => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel's completion ring has an unknown layout",
            )),
        }
    }

    fn context(&self) -> libc::c_ulong {
        self.ring.as_ptr() as libc::c_ulong
    }

    /// Submits transfers in order, by one system call. Returns how many the kernel has taken.
    ///
    /// # Safety
    /// The lists of memory are valid, and the memory stays valid until the completions.
    ///
    /// # Errors
    /// The error of the first transfer, if the kernel has taken none; EAGAIN if it has no room.
    pub unsafe fn submit(&mut self, transfers: &mut [Iocb]) -> io::Result<usize> {
        self.pointers.clear();
        self.pointers.extend(transfers.iter_mut().map(std::ptr::from_mut));
        // SAFETY: the pointers are valid during the call, and the kernel copies what they point to;
        // the caller answers for the memory.
        let taken = checked(unsafe {
            libc::syscall(
                libc::SYS_io_submit,
                self.context(),
                self.pointers.len() as libc::c_long,
                self.pointers.as_mut_ptr(),
            )
        })?;
        Ok(taken as usize)
    }

    /// Passes all completions to `take`.
    pub fn reap(&mut self, mut take: impl FnMut(Ended)) {
        // SAFETY: the ring is mapped as long as the context exists.
        let header = unsafe { self.ring.as_ref() };
        let (count, len) = (header.count, header.len as usize);
        let mut head = header.head.load(Ordering::Relaxed);
        // The kernel stores a completion before the tail that covers it.
        while head != header.tail.load(Ordering::Acquire) {
            // SAFETY: the entries follow the header; this one was written before the tail.
            let event = unsafe { self.ring.cast::<u8>().add(len).cast::<Event>().add(head as usize).read() };
            head = (head + 1) % count;
            // The kernel reuses the entry after this store.
            header.head.store(head, Ordering::Release);
            let result = match event.result {
                failed if failed < 0 => Err(Errno::from_raw_os_error((-failed) as i32)),
                bytes => Ok(bytes as u64),
            };
            take(Ended { number: event.data, result });
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is valid until here. The call waits until the transfers in flight have
        // ended.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.context()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn transfers_of_a_file_complete_in_the_ring_and_are_counted() {
        let file = tempfile::tempfile().unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let mut aio = Aio::new(4).unwrap();
        // More than the ring has entries, so that it wraps.
        for round in 0..50u64 {
            let mut bytes = [round as u8; 512];
            let memory = [libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }];
            let write = Transfer::Write { durable: round % 2 == 0 };
            let mut both = [
                Iocb::new(round, write, file.as_fd(), &memory, round * 512, event.as_fd()),
                Iocb::new(round + 1000, Transfer::Read, file.as_fd(), &memory, 1 << 40, event.as_fd()),
            ];
            // SAFETY: list and memory outlive the completions.
            assert_eq!(unsafe { aio.submit(&mut both) }.unwrap(), 2);
            let mut ended = Vec::new();
            while ended.len() < 2 {
                aio.reap(|one| ended.push(one));
            }
            ended.sort_by_key(|one| one.number);
            assert_eq!(ended[0], Ended { number: round, result: Ok(512) });
            assert_eq!(ended[1], Ended { number: round + 1000, result: Ok(0) }, "behind the end");
        }
        let mut count = [0; 8];
        rustix::io::read(&event, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 100);
        let mut last = [0; 512];
        file.read_exact_at(&mut last, 49 * 512).unwrap();
        assert_eq!(last, [49; 512]);
    }

    #[test]
    fn transfer_that_the_kernel_refuses_has_its_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reading = std::fs::File::open(file.path()).unwrap();
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut aio = Aio::new(1).unwrap();
        let mut bytes = [0u8; 512];
        let memory = [libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }];
        let write = Transfer::Write { durable: false };
        let mut one = [Iocb::new(7, write, reading.as_fd(), &memory, 0, event.as_fd())];
        // SAFETY: list and memory outlive the call, which fails.
        let error = unsafe { aio.submit(&mut one) }.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
    }
}
