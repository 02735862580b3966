//! The memory of one request, and its payload as buffers of the volume.

use super::{Memory, Span, Spans, copy_in, copy_out, push};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use zonal_io::buffer::{IoBuf, IoBufs};

/// Where the bytes of one request lie: those that the device reads, then those that it writes.
///
/// It keeps the memory mapped. Its payload is lent once at most ([`GuestBuffers::lend`]). Until that has come back, the memory is
/// used by the device, so a request that is dropped before leaves its memory mapped for good.
pub struct GuestBuffers {
    memory: ManuallyDrop<Rc<Memory>>,
    readable: Spans,
    writable: Spans,
    readable_len: u32,
    writable_len: u32,
    lent: Option<[Mark; 2]>,
}

/// By what lent buffers are known when they come back.
type Mark = (*mut u8, usize);

fn mark(bufs: &IoBufs) -> Mark {
    (bufs.pieces().first().map_or(std::ptr::null_mut(), IoBuf::as_ptr), bufs.len())
}

impl GuestBuffers {
    /// No bytes yet.
    pub fn new(memory: Rc<Memory>) -> GuestBuffers {
        let (readable, writable) = (Spans::new(), Spans::new());
        let memory = ManuallyDrop::new(memory);
        GuestBuffers { memory, readable, writable, readable_len: 0, writable_len: 0, lent: None }
    }

    /// Adds bytes that the device reads. Returns whether they are memory, and all together less than 4 GiB.
    pub fn push_readable(&mut self, guest: u64, len: u32) -> bool {
        let Some(sum) = self.readable_len.checked_add(len) else { return false };
        self.readable_len = sum;
        self.lent.is_none() && self.memory.spans(guest, len, &mut self.readable)
    }

    /// Adds bytes that the device writes, likewise.
    pub fn push_writable(&mut self, guest: u64, len: u32) -> bool {
        let Some(sum) = self.writable_len.checked_add(len) else { return false };
        self.writable_len = sum;
        self.lent.is_none() && self.memory.spans(guest, len, &mut self.writable)
    }

    /// Bytes that the device reads.
    pub fn readable_len(&self) -> u32 {
        self.readable_len
    }

    /// Bytes that the device writes.
    pub fn writable_len(&self) -> u32 {
        self.writable_len
    }

    /// Copies the first bytes that the device reads. Returns whether there are that many.
    pub fn read(&self, bytes: &mut [u8]) -> bool {
        let mut left = bytes;
        for span in &self.readable {
            let (here, rest) = left.split_at_mut(left.len().min(span.len as usize));
            // SAFETY: the span is mapped for its length, as this holds the memory.
            unsafe { copy_out(span.ptr, here) };
            left = rest;
        }
        left.is_empty()
    }

    /// Copies into the first bytes that the device writes. Returns whether there are that many.
    pub fn write(&self, bytes: &[u8]) -> bool {
        let mut left = bytes;
        for span in &self.writable {
            let (here, rest) = left.split_at(left.len().min(span.len as usize));
            // SAFETY: the span is mapped for its length, as this holds the memory.
            unsafe { copy_in(span.ptr, here) };
            left = rest;
        }
        left.is_empty()
    }

    /// The bytes after the first `readable_from` that the device reads, and those after the first `writable_from` that it writes, as
    /// buffers of the volume. They come back by [`GuestBuffers::take_back`].
    pub fn lend(&mut self, readable_from: u32, writable_from: u32) -> (IoBufs, IoBufs) {
        assert!(self.lent.is_none(), "a request's payload is lent once");
        let lent = (pieces(&self.readable, readable_from), pieces(&self.writable, writable_from));
        self.lent = Some([mark(&lent.0), mark(&lent.1)]);
        lent
    }

    /// Takes back what was lent. Other buffers do not count.
    pub fn take_back(&mut self, readable: IoBufs, writable: IoBufs) {
        if self.lent == Some([mark(&readable), mark(&writable)]) {
            self.lent = None;
        }
    }
}

impl Drop for GuestBuffers {
    fn drop(&mut self) {
        // Otherwise a device still uses the memory: it stays mapped.
        if self.lent.is_none() {
            // SAFETY: dropped once, and not used after that.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// What is left of `spans` after the first `from` bytes.
fn pieces(spans: &[Span], from: u32) -> IoBufs {
    let mut skip = from;
    let mut left = Spans::new();
    for span in spans {
        let here = skip.min(span.len);
        skip -= here;
        if here < span.len {
            // SAFETY: it is before the end of the span.
            let ptr: NonNull<u8> = unsafe { span.ptr.add(here as usize) };
            push(&mut left, Span { ptr, len: span.len - here });
        }
    }
    // SAFETY: mapped until the buffers are back: `lent` sees to that. The guest and its other requests may touch these bytes as well;
    // volumes and devices copy them or hand them to the kernel, and decide nothing by what they read.
    let lend = |span: Span| unsafe { IoBuf::from_raw(span.ptr, span.len) };
    match left[..] {
        [] => IoBufs::empty(),
        [span] => lend(span).into(),
        _ => left.into_iter().map(lend).collect::<Vec<_>>().into(),
    }
}
