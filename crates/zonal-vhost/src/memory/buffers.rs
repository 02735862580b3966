//! Memory of one request, with its payload as buffers of the volume.

use super::{Memory, Span, Spans, copy_in, copy_out, push};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use zonal_io::buffer::{IoBuf, IoBufs};

/// Location of the bytes of one request: device-readable bytes, then device-writable ones.
///
/// Keeps the memory mapped. The payload can be lent once ([`GuestBuffers::lend`]). Until it is
/// returned, the device uses the memory, so a request dropped before that leaves its memory mapped
/// forever.
pub struct GuestBuffers {
    memory: ManuallyDrop<Rc<Memory>>,
    readable: Spans,
    writable: Spans,
    readable_len: u32,
    writable_len: u32,
    lent: Option<[Mark; 2]>,
}

/// Identity of lent buffers, for their return.
type Mark = (*mut u8, usize);

fn mark(bufs: &IoBufs) -> Mark {
    (bufs.pieces().first().map_or(std::ptr::null_mut(), IoBuf::as_ptr), bufs.len())
}

impl GuestBuffers {
    /// Creates an empty request.
    pub fn new(memory: Rc<Memory>) -> GuestBuffers {
        let (readable, writable) = (Spans::new(), Spans::new());
        let memory = ManuallyDrop::new(memory);
        GuestBuffers { memory, readable, writable, readable_len: 0, writable_len: 0, lent: None }
    }

    /// Appends device-readable bytes. Returns false if they are not in memory or the total reaches
    /// 4 GiB.
    pub fn push_readable(&mut self, guest: u64, len: u32) -> bool {
        let Some(sum) = self.readable_len.checked_add(len) else { return false };
        self.readable_len = sum;
        self.lent.is_none() && self.memory.spans(guest, len, &mut self.readable)
    }

    /// Appends device-writable bytes, with the limits of
    /// [`push_readable`](GuestBuffers::push_readable).
    pub fn push_writable(&mut self, guest: u64, len: u32) -> bool {
        let Some(sum) = self.writable_len.checked_add(len) else { return false };
        self.writable_len = sum;
        self.lent.is_none() && self.memory.spans(guest, len, &mut self.writable)
    }

    /// Number of device-readable bytes.
    pub fn readable_len(&self) -> u32 {
        self.readable_len
    }

    /// Number of device-writable bytes.
    pub fn writable_len(&self) -> u32 {
        self.writable_len
    }

    /// Copies the first device-readable bytes. Returns false if there are too few.
    pub fn read(&self, bytes: &mut [u8]) -> bool {
        let mut left = bytes;
        for span in &self.readable {
            let (here, rest) = left.split_at_mut(left.len().min(span.len as usize));
            // SAFETY: the span is mapped for its length, as `self` keeps the memory.
            unsafe { copy_out(span.ptr, here) };
            left = rest;
        }
        left.is_empty()
    }

    /// Copies to the first device-writable bytes. Returns false if there are too few.
    pub fn write(&self, bytes: &[u8]) -> bool {
        let mut left = bytes;
        for span in &self.writable {
            let (here, rest) = left.split_at(left.len().min(span.len as usize));
            // SAFETY: the span is mapped for its length, as `self` keeps the memory.
            unsafe { copy_in(span.ptr, here) };
            left = rest;
        }
        left.is_empty()
    }

    /// Lends the device-readable bytes from `readable_from` on and the device-writable bytes from
    /// `writable_from` on as buffers of the volume. [`GuestBuffers::take_back`] returns them.
    pub fn lend(&mut self, readable_from: u32, writable_from: u32) -> (IoBufs, IoBufs) {
        assert!(self.lent.is_none(), "a request's payload is lent once");
        let lent = (pieces(&self.readable, readable_from), pieces(&self.writable, writable_from));
        self.lent = Some([mark(&lent.0), mark(&lent.1)]);
        lent
    }

    /// Takes back the lent buffers. Other buffers are ignored.
    pub fn take_back(&mut self, readable: IoBufs, writable: IoBufs) {
        if self.lent == Some([mark(&readable), mark(&writable)]) {
            self.lent = None;
        }
    }
}

impl Drop for GuestBuffers {
    fn drop(&mut self) {
        // Otherwise the device still uses the memory: leave it mapped.
        if self.lent.is_none() {
            // SAFETY: dropped once, and not used after that.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Remainder of `spans` after the first `from` bytes.
fn pieces(spans: &[Span], from: u32) -> IoBufs {
    let mut skip = from;
    let mut left = Spans::new();
    for span in spans {
        let here = skip.min(span.len);
        skip -= here;
        if here < span.len {
            // SAFETY: before the end of the span.
            let ptr: NonNull<u8> = unsafe { span.ptr.add(here as usize) };
            push(&mut left, Span { ptr, len: span.len - here });
        }
    }
    // SAFETY: mapped until the buffers are returned, which `lent` ensures. The guest and its other
    // requests may access these bytes as well; volumes and devices only copy them or pass them to
    // the kernel, and make no decisions based on them.
    let lend = |span: Span| unsafe { IoBuf::from_raw(span.ptr, span.len) };
    match left[..] {
        [] => IoBufs::empty(),
        [span] => lend(span).into(),
        _ => left.into_iter().map(lend).collect::<Vec<_>>().into(),
    }
}
