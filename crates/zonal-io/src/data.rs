//! Memory of one device command: its addresses, without ownership.
//!
//! A command borrows its bytes from the submitter until it completes. This is not a lexical scope,
//! because the command may be queued and complete on another thread. So the borrow is a contract:
//! creating a [`Data`] is unsafe, using one is not.

use std::io::IoSlice;
use std::marker::PhantomData;

/// Contiguous memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: a segment is an address and a length; access to the bytes is governed by the contract of
// `Data::one`.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`; a shared segment gives no more access than a copy.
unsafe impl Sync for Segment {}

impl Segment {
    /// Segment of `len` bytes at `ptr`.
    pub const fn new(ptr: *mut u8, len: usize) -> Segment {
        Segment { ptr, len }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }
}

/// Bytes of one command: none, one segment, or several in order (a merged write).
#[derive(Clone, Copy, Debug)]
pub struct Data {
    kind: DataKind,
    not_auto: PhantomData<*mut u8>,
}

#[derive(Clone, Copy, Debug)]
enum DataKind {
    None,
    One(Segment),
    Many(*const Segment, usize),
}

// SAFETY: see `Data::one`: until the command completes, only the holder of the command uses the
// bytes.
unsafe impl Send for Data {}
// SAFETY: shared access reads addresses only; the bytes are accessed by the one thread that
// executes the command.
unsafe impl Sync for Data {}

impl Data {
    /// No bytes: flush, zone management, write zeroes, or a device that keeps no data.
    pub const NONE: Data = Data { kind: DataKind::None, not_auto: PhantomData };

    /// One segment.
    ///
    /// # Safety
    /// Until the command completes, the memory stays valid and no other code writes it. For a read,
    /// the memory is writable and no other code reads it.
    pub const unsafe fn one(segment: Segment) -> Data {
        Data { kind: DataKind::One(segment), not_auto: PhantomData }
    }

    /// Several segments, in order.
    ///
    /// # Safety
    /// As for [`Data::one`], for each segment; the list itself stays in place and unchanged for as
    /// long.
    pub const unsafe fn many(segments: *const [Segment]) -> Data {
        Data { kind: DataKind::Many(segments.cast(), segments.len()), not_auto: PhantomData }
    }

    /// Returns the segments in order.
    pub fn segments(&self) -> &[Segment] {
        match &self.kind {
            DataKind::None => &[],
            DataKind::One(s) => std::slice::from_ref(s),
            // SAFETY: `Data::many` promised that the list stays in place until the command completes.
            DataKind::Many(ptr, n) => unsafe { std::slice::from_raw_parts(*ptr, *n) },
        }
    }

    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.segments().iter().map(Segment::len).sum()
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with each segment of a write's payload, in order, and its offset in the
    /// payload.
    pub fn for_each(&self, mut take: impl FnMut(usize, &[u8])) {
        let mut at = 0;
        for s in self.segments() {
            // SAFETY: by the contract of `Data::one` the bytes are valid and unchanged until the command completes.
            take(at, unsafe { std::slice::from_raw_parts(s.ptr, s.len) });
            at += s.len;
        }
    }

    /// Calls `take` once with all segments of a write's payload, in order, for a vectored write.
    pub fn with_slices<R>(&self, take: impl FnOnce(&mut [IoSlice<'_>]) -> R) -> R {
        // SAFETY: by the contract of `Data::one` the bytes are valid and unchanged until the command completes.
        let slice = |s: &Segment| IoSlice::new(unsafe { std::slice::from_raw_parts(s.ptr, s.len) });
        match self.segments() {
            [one] => take(&mut [slice(one)]),
            many => take(&mut many.iter().map(slice).collect::<Vec<_>>()),
        }
    }

    /// Calls `fill` with each segment of a read's destination, in order, and its offset in the
    /// payload.
    pub fn for_each_mut(&self, mut fill: impl FnMut(usize, &mut [u8])) {
        let mut at = 0;
        for s in self.segments() {
            // SAFETY: by the contract of `Data::one` a read's bytes are writable and no other code
            // accesses them.
            fill(at, unsafe { std::slice::from_raw_parts_mut(s.ptr, s.len) });
            at += s.len;
        }
    }

    /// Returns the segments of the first `bytes` in order, or all if the payload is shorter.
    pub fn first(&self, bytes: usize) -> Box<[Segment]> {
        let mut left = bytes;
        let mut take = |s: &Segment| {
            let len = s.len.min(left);
            left -= len;
            (len > 0).then_some(Segment { ptr: s.ptr, len })
        };
        self.segments().iter().map_while(&mut take).collect()
    }

    /// Sets the bytes of the destination to `value`, starting at byte `from` of the payload.
    pub fn fill_from(&self, from: usize, value: u8) {
        self.for_each_mut(|at, piece| {
            let skip = from.saturating_sub(at).min(piece.len());
            piece[skip..].fill(value);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_of_several_pieces_end_inside_one() {
        let (mut a, mut b) = ([1u8; 4], [2u8; 4]);
        let pieces = [Segment::new(a.as_mut_ptr(), 4), Segment::new(b.as_mut_ptr(), 4)];
        // SAFETY: both arrays and the list outlive the data.
        let data = unsafe { Data::many(&raw const pieces) };
        let lengths = |bytes| data.first(bytes).iter().map(Segment::len).collect::<Vec<_>>();
        assert_eq!(lengths(0), [0; 0]);
        assert_eq!(lengths(4), [4]);
        assert_eq!(lengths(6), [4, 2]);
        assert_eq!(lengths(99), [4, 4]);
        assert!(Data::NONE.first(8).is_empty());
    }
}
