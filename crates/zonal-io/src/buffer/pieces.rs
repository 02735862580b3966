//! Memory of a request: one buffer, or several in order.
//!
//! A network connection receives payload in packets, a guest's request is spread over pages of its
//! memory, and a program combines a header with its data. Each passes its pieces as they are,
//! without a copy. A device command lists them ([`Data::many`]).
//!
//! Several pieces are stored as a list, with the three words of a single buffer pointing to it. So
//! supporting them costs a request with one buffer only a bit test.

use super::{IoBuf, OWNED, SEVERAL};
use crate::data::{Data, Segment};
use std::fmt;
use std::ptr::{self, NonNull};

/// Memory of a request: none, one buffer, or several in order.
///
/// ```
/// use zonal_io::buffer::{IoBuf, IoBufs};
/// let bufs = IoBufs::from(vec![IoBuf::zeroed(512), IoBuf::zeroed(4096)]);
/// assert_eq!((bufs.len(), bufs.pieces().len()), (4608, 2));
/// assert_eq!(bufs.into_buf().len(), 4608);
/// ```
#[repr(transparent)]
pub struct IoBufs(IoBuf);

/// List that [`IoBufs`] of several pieces point to.
pub(super) struct Pieces {
    bufs: Box<[IoBuf]>,
    /// Segments used by the current command. The device reads this list until the command
    /// completes.
    cut: Vec<Segment>,
}

impl IoBufs {
    /// Empty buffer.
    pub const fn empty() -> IoBufs {
        IoBufs(IoBuf::empty())
    }

    /// Total length in bytes, saturating at 4 GiB - 1.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the pieces in order: one, unless several were given.
    pub fn pieces(&self) -> &[IoBuf] {
        match self.several() {
            Some(pieces) => &pieces.bufs,
            None => std::slice::from_ref(&self.0),
        }
    }

    /// Mutable version of [`IoBufs::pieces`].
    pub fn pieces_mut(&mut self) -> &mut [IoBuf] {
        match self.is_several() {
            // SAFETY: as in `several`, and `&mut self` is the only way to it.
            true => unsafe { &mut (*self.list()).bufs },
            false => std::slice::from_mut(&mut self.0),
        }
    }

    /// Returns one buffer with these bytes: a single piece itself, or a copy of several.
    pub fn into_buf(self) -> IoBuf {
        match self.is_several() {
            true => self.gathered(),
            false => self.0,
        }
    }

    /// Returns the pieces in order.
    pub fn into_pieces(self) -> Vec<IoBuf> {
        match self.is_several() {
            true => {
                let list = self.list();
                std::mem::forget(self);
                // SAFETY: the list is from `Box::into_raw`, and its owner was forgotten without
                // dropping it.
                unsafe { Box::from_raw(list) }.bufs.into_vec()
            }
            false => vec![self.0],
        }
    }

    #[cold]
    fn gathered(self) -> IoBuf {
        let mut whole = IoBuf::zeroed(self.len() as u32);
        let mut left = &mut whole[..];
        for piece in self.pieces() {
            let (here, rest) = left.split_at_mut(piece.len().min(left.len()));
            here.copy_from_slice(&piece[..here.len()]);
            left = rest;
        }
        whole
    }

    #[inline(always)]
    const fn is_several(&self) -> bool {
        self.0.tag & SEVERAL != 0
    }

    const fn list(&self) -> *mut Pieces {
        self.0.ptr.as_ptr().cast()
    }

    fn several(&self) -> Option<&Pieces> {
        // SAFETY: with this bit set, the pointer refers to a list owned by these `IoBufs`.
        self.is_several().then(|| unsafe { &*self.list() })
    }

    /// Returns the `len` bytes from `from` on for one command. The range lies inside.
    ///
    /// # Safety
    /// As for [`Data::one`]. Until the command completes, this is not called again and the buffers
    /// are not dropped.
    #[inline(always)]
    pub(crate) unsafe fn data(&mut self, from: usize, len: usize) -> Data {
        debug_assert!(from + len <= self.len());
        if self.is_several() {
            // SAFETY: the caller's promise; the list is boxed and unchanged until the next call.
            return unsafe { Data::many(self.cut(from, len)) };
        }
        // SAFETY: the caller's promise.
        unsafe { Data::one(Segment::new(self.0.as_ptr().wrapping_add(from), len)) }
    }

    /// Fills the command's list with the segments of the `len` bytes from `from` on. Returned as a
    /// pointer and a length: a larger value would be returned through memory, and the data of a
    /// single buffer would then take the same route, stored field by field and read back in one
    /// piece, which stalls store forwarding.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, from: usize, len: usize) -> *const [Segment] {
        // SAFETY: as in `several`, and `&mut self` is the only way to it.
        let Pieces { bufs, cut } = unsafe { &mut *self.list() };
        cut.clear();
        push_segments(bufs, from, len, cut);
        &raw const **cut
    }

    /// Appends the segments of the `len` bytes from `from` on to `segments`.
    #[inline]
    pub(crate) fn push_segments(&self, from: usize, len: usize, segments: &mut Vec<Segment>) {
        match self.several() {
            Some(pieces) => push_segments(&pieces.bufs, from, len, segments),
            None => segments.push(Segment::new(self.0.as_ptr().wrapping_add(from), len)),
        }
    }

    /// Lends the `len` bytes from `from` on as separate buffers.
    ///
    /// # Safety
    /// Until the returned buffers are dropped, no other code accesses these bytes, and `self` is
    /// neither used nor dropped.
    #[cold]
    pub(crate) unsafe fn lend(&self, from: usize, len: usize) -> IoBufs {
        let mut segments = Vec::new();
        self.push_segments(from, len, &mut segments);
        let lent = segments.into_iter().map(|segment| {
            let bytes = NonNull::new(segment.as_ptr()).expect("a buffer's address is never null");
            // SAFETY: the caller's promise; a piece is shorter than 4 GiB.
            unsafe { IoBuf::from_raw(bytes, segment.len() as u32) }
        });
        lent.collect::<Vec<_>>().into()
    }

    /// Calls `look` with the bytes from `from` on and the corresponding part of `others`, piece by
    /// piece, to the end of `others`.
    pub(crate) fn beside<'a>(
        &self,
        from: usize,
        others: &'a mut [u8],
        mut look: impl FnMut(&[u8], &'a mut [u8]),
    ) {
        let mut skip = from;
        let mut left = others;
        for piece in self.pieces() {
            let here = &piece[skip.min(piece.len())..];
            skip -= skip.min(piece.len());
            let len = here.len().min(left.len());
            let (beside, rest) = left.split_at_mut(len);
            look(&here[..len], beside);
            left = rest;
        }
    }
}

fn push_segments(bufs: &[IoBuf], from: usize, len: usize, segments: &mut Vec<Segment>) {
    let (mut skip, mut left) = (from, len);
    for buf in bufs {
        let here = skip.min(buf.len());
        let len = (buf.len() - here).min(left);
        if len > 0 {
            segments.push(Segment::new(buf.as_ptr().wrapping_add(here), len));
        }
        skip -= here;
        left -= len;
    }
}

/// Frees a list.
///
/// # Safety
/// `ptr` is from [`IoBufs`] of several pieces that no longer exist.
pub(super) unsafe fn free_list(ptr: NonNull<u8>) {
    // SAFETY: from `Box::into_raw` of a list.
    drop(unsafe { Box::from_raw(ptr.as_ptr().cast::<Pieces>()) });
}

impl From<IoBuf> for IoBufs {
    #[inline(always)]
    fn from(buf: IoBuf) -> IoBufs {
        IoBufs(buf)
    }
}

impl From<Vec<IoBuf>> for IoBufs {
    /// Joins these pieces in order. They may have any length.
    fn from(mut bufs: Vec<IoBuf>) -> IoBufs {
        if bufs.len() <= 1 {
            return IoBufs(bufs.pop().unwrap_or_default());
        }
        let len = bufs.iter().map(IoBuf::len).sum::<usize>().min(u32::MAX as usize);
        let list = Box::new(Pieces { bufs: bufs.into(), cut: Vec::new() });
        let ptr = NonNull::from(Box::leak(list)).cast();
        IoBufs(IoBuf { ptr, tag: len as u64 | OWNED | SEVERAL, pool: ptr::null() })
    }
}

impl From<IoBufs> for IoBuf {
    fn from(bufs: IoBufs) -> IoBuf {
        bufs.into_buf()
    }
}

impl Default for IoBufs {
    fn default() -> IoBufs {
        IoBufs::empty()
    }
}

impl fmt::Debug for IoBufs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBufs({} bytes in {} pieces)", self.len(), self.pieces().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(len: u32, first: u8) -> IoBuf {
        let mut buf = IoBuf::zeroed(len);
        buf.iter_mut().enumerate().for_each(|(n, byte)| *byte = first.wrapping_add(n as u8));
        buf
    }

    /// Bytes 0 to 9 in pieces of the given lengths.
    fn bytes(lengths: &[u32]) -> IoBufs {
        let mut at = 0;
        let pieces = lengths.iter().map(|&len| {
            at += len;
            piece(len, (at - len) as u8)
        });
        pieces.collect::<Vec<_>>().into()
    }

    #[test]
    fn every_range_of_pieces_is_the_bytes_that_it_names() {
        for lengths in [&[10][..], &[3, 7], &[1, 0, 4, 5], &[0, 10, 0]] {
            for from in 0..=10 {
                for len in 0..=10 - from {
                    let mut bufs = bytes(lengths);
                    let mut seen = Vec::new();
                    // SAFETY: the buffers outlive the data and are not used meanwhile.
                    unsafe { bufs.data(from, len) }.for_each(|at, piece| {
                        assert_eq!(at, seen.len());
                        seen.extend_from_slice(piece);
                    });
                    let expected: Vec<u8> = (from as u8..(from + len) as u8).collect();
                    assert_eq!(seen, expected, "{lengths:?}");
                    // SAFETY: as above.
                    let lent = unsafe { bufs.lend(from, len) };
                    assert_eq!(&lent.into_buf()[..], expected, "{lengths:?}");
                    let mut others = vec![0; len];
                    bufs.beside(from, &mut others, |ours, others| others.copy_from_slice(ours));
                    assert_eq!(others, expected, "{lengths:?}");
                }
            }
        }
    }

    #[test]
    fn pieces_are_returned_unchanged() {
        let bufs = bytes(&[3, 7]);
        let address = bufs.pieces()[1].as_ptr();
        let pieces = bufs.into_pieces();
        assert_eq!(pieces.iter().map(IoBuf::len).collect::<Vec<_>>(), [3, 7]);
        assert_eq!(pieces[1].as_ptr(), address);
    }

    #[test]
    fn one_buffer_is_itself_and_several_are_gathered() {
        let one = piece(10, 0);
        let address = one.as_ptr();
        assert_eq!(IoBufs::from(one).into_buf().as_ptr(), address);
        assert_eq!(&bytes(&[3, 7]).into_buf()[..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(IoBufs::from(Vec::new()).is_empty());
    }

    #[test]
    fn pieces_that_are_dropped_go_back_to_their_pool() {
        let pool = super::super::BufferPool::new(4096, 4);
        let (one, other) = (pool.take(), pool.take());
        let addresses = [one.as_ptr(), other.as_ptr()];
        drop(IoBufs::from(vec![one, other]));
        assert!(addresses.contains(&pool.take().as_ptr()));
    }
}
