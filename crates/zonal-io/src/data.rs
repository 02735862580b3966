//! The bytes of one device command: where they lie, not who owns them.
//!
//! A command borrows its bytes from its submitter until it completes. That span is not a lexical scope (the
//! command may sit in a queue and complete on another thread), so the borrow is a contract: making a [`Data`] is
//! unsafe, using one is not.

use std::io::IoSlice;
use std::marker::PhantomData;

/// A contiguous piece of memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: a segment is an address and a length; who may touch the bytes is the contract of `Data::one`.
unsafe impl Send for Segment {}
// SAFETY: as for `Send`; a shared segment gives no access that a copied one does not.
unsafe impl Sync for Segment {}

impl Segment {
    /// The piece of `len` bytes at `ptr`.
    pub const fn new(ptr: *mut u8, len: usize) -> Segment {
        Segment { ptr, len }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte's address.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }
}

/// The bytes of one command: none, one segment, or several in order (a merged write).
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

// SAFETY: see `Data::one`: until the command completes, the holder of the command is the only user of the bytes.
unsafe impl Send for Data {}
// SAFETY: shared access reads addresses only; the bytes are reached by the one thread that executes the command.
unsafe impl Sync for Data {}

impl Data {
    /// No bytes: flush, zone management, write zeroes, or a device that keeps no data.
    pub const NONE: Data = Data { kind: DataKind::None, not_auto: PhantomData };

    /// One piece.
    ///
    /// # Safety
    /// Until the command completes, the memory stays valid, no other code writes it, and for a read no other code reads
    /// it. For a read it has to be writable.
    pub const unsafe fn one(segment: Segment) -> Data {
        Data { kind: DataKind::One(segment), not_auto: PhantomData }
    }

    /// Several pieces, in order.
    ///
    /// # Safety
    /// As [`Data::one`] for each piece; the list itself stays in place and unchanged as long.
    pub const unsafe fn many(segments: *const [Segment]) -> Data {
        Data { kind: DataKind::Many(segments.cast(), segments.len()), not_auto: PhantomData }
    }

    /// The pieces, in order.
    pub fn segments(&self) -> &[Segment] {
        match &self.kind {
            DataKind::None => &[],
            DataKind::One(s) => std::slice::from_ref(s),
            // SAFETY: `Data::many` promised that the list stays in place until the command completes.
            DataKind::Many(ptr, n) => unsafe { std::slice::from_raw_parts(*ptr, *n) },
        }
    }

    /// Length in bytes of all pieces.
    pub fn len(&self) -> usize {
        self.segments().iter().map(Segment::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with every piece of a write's payload, in order, and its offset in the payload.
    pub fn for_each(&self, mut take: impl FnMut(usize, &[u8])) {
        let mut at = 0;
        for s in self.segments() {
            // SAFETY: by the contract of `Data::one` the bytes are valid and unchanged until the command completes.
            take(at, unsafe { std::slice::from_raw_parts(s.ptr, s.len) });
            at += s.len;
        }
    }

    /// Calls `take` once with all pieces of a write's payload, in order, for a vectored write.
    pub fn with_slices<R>(&self, take: impl FnOnce(&mut [IoSlice<'_>]) -> R) -> R {
        // SAFETY: by the contract of `Data::one` the bytes are valid and unchanged until the command completes.
        let slice = |s: &Segment| IoSlice::new(unsafe { std::slice::from_raw_parts(s.ptr, s.len) });
        match self.segments() {
            [one] => take(&mut [slice(one)]),
            many => take(&mut many.iter().map(slice).collect::<Vec<_>>()),
        }
    }

    /// Calls `fill` with every piece of a read's destination, in order, and its offset in the payload.
    pub fn for_each_mut(&self, mut fill: impl FnMut(usize, &mut [u8])) {
        let mut at = 0;
        for s in self.segments() {
            // SAFETY: by the contract of `Data::one` a read's bytes are writable and no other code touches them.
            fill(at, unsafe { std::slice::from_raw_parts_mut(s.ptr, s.len) });
            at += s.len;
        }
    }

    /// The pieces of the first `bytes`, in order; fewer if there are not as many.
    pub fn first(&self, bytes: usize) -> Box<[Segment]> {
        let mut left = bytes;
        let mut take = |s: &Segment| {
            let len = s.len.min(left);
            left -= len;
            (len > 0).then_some(Segment { ptr: s.ptr, len })
        };
        self.segments().iter().map_while(&mut take).collect()
    }

    /// Sets the destination's bytes from `from` on (bytes from the payload's start) to `value`.
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
