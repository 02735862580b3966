//! The memory of a request: one buffer, or several in order.
//!
//! A network connection receives a payload in packets, a guest's request lies in pages of its memory, a program gathers a
//! header and its data. Each hands the pieces over as they lie, and no thread copies them together. A device command names
//! them as a list ([`Data::many`]).
//!
//! Several pieces take the place of one buffer's three words: these point to a list. So a request with one buffer pays
//! one test of a bit for those with more.

use super::{IoBuf, OWNED, SEVERAL};
use crate::data::{Data, Segment};
use std::fmt;
use std::ptr::{self, NonNull};

/// The memory of a request: none, one buffer, or several in order.
///
/// ```
/// use zonal_io::buffer::{IoBuf, IoBufs};
/// let bufs = IoBufs::from(vec![IoBuf::zeroed(512), IoBuf::zeroed(4096)]);
/// assert_eq!((bufs.len(), bufs.pieces().len()), (4608, 2));
/// assert_eq!(bufs.into_buf().len(), 4608);
/// ```
#[repr(transparent)]
pub struct IoBufs(IoBuf);

/// What [`IoBufs`] of several pieces point to.
pub(super) struct Pieces {
    bufs: Box<[IoBuf]>,
    /// What the present command uses of them. The device reads this list until the command has ended.
    cut: Vec<Segment>,
}

impl IoBufs {
    /// No memory.
    pub const fn empty() -> IoBufs {
        IoBufs(IoBuf::empty())
    }

    /// Length in bytes of all pieces together. More than 4 GiB - 1 counts as that.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pieces, in order: one, unless several were given.
    pub fn pieces(&self) -> &[IoBuf] {
        match self.several() {
            Some(pieces) => &pieces.bufs,
            None => std::slice::from_ref(&self.0),
        }
    }

    /// The same, to be changed.
    pub fn pieces_mut(&mut self) -> &mut [IoBuf] {
        match self.is_several() {
            // SAFETY: as in `several`, and `&mut self` is the only way to it.
            true => unsafe { &mut (*self.list()).bufs },
            false => std::slice::from_mut(&mut self.0),
        }
    }

    /// One buffer with these bytes: the piece itself where there is one, and otherwise a copy of all.
    pub fn into_buf(self) -> IoBuf {
        match self.is_several() {
            true => self.gathered(),
            false => self.0,
        }
    }

    /// The pieces, in order.
    pub fn into_pieces(self) -> Vec<IoBuf> {
        match self.is_several() {
            true => {
                let list = self.list();
                std::mem::forget(self);
                // SAFETY: the list came from `Box::into_raw`, and what pointed to it is gone without dropping it.
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
        // SAFETY: with this bit the pointer is that of a list that these `IoBufs` own.
        self.is_several().then(|| unsafe { &*self.list() })
    }

    /// The `len` bytes from `from` on for one command. Both lie inside.
    ///
    /// # Safety
    /// As [`Data::one`]. Until the command has ended, this is not called again, and the buffers are not dropped.
    #[inline(always)]
    pub(crate) unsafe fn data(&mut self, from: usize, len: usize) -> Data {
        debug_assert!(from + len <= self.len());
        if self.is_several() {
            // SAFETY: the caller's promise; the list is boxed and stays as it is until the next call.
            return unsafe { Data::many(self.cut(from, len)) };
        }
        // SAFETY: the caller's promise.
        unsafe { Data::one(Segment::new(self.0.as_ptr().wrapping_add(from), len)) }
    }

    /// Where the `len` bytes from `from` on lie, as a list in these buffers. Returned as an address and a number: a larger value
    /// comes through memory, and then the data of one buffer goes through the same memory, field by field, and is read back in
    /// one piece, which a processor can do only once the fields have left its store buffer.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, from: usize, len: usize) -> *const [Segment] {
        // SAFETY: as in `several`, and `&mut self` is the only way to it.
        let Pieces { bufs, cut } = unsafe { &mut *self.list() };
        cut.clear();
        push_segments(bufs, from, len, cut);
        &raw const **cut
    }

    /// Adds where the `len` bytes from `from` on lie to `segments`.
    #[inline]
    pub(crate) fn push_segments(&self, from: usize, len: usize, segments: &mut Vec<Segment>) {
        match self.several() {
            Some(pieces) => push_segments(&pieces.bufs, from, len, segments),
            None => segments.push(Segment::new(self.0.as_ptr().wrapping_add(from), len)),
        }
    }

    /// The `len` bytes from `from` on as memory of their own, lent.
    ///
    /// # Safety
    /// No one else touches these bytes, and these buffers are neither dropped nor used, until what is returned is dropped.
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

    /// Calls `look` with the bytes from `from` on, as many as `others` has, piece by piece beside those of `others`.
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
/// `ptr` is that of [`IoBufs`] of several pieces, which are gone.
pub(super) unsafe fn free_list(ptr: NonNull<u8>) {
    // SAFETY: it came from `Box::into_raw` of a list.
    drop(unsafe { Box::from_raw(ptr.as_ptr().cast::<Pieces>()) });
}

impl From<IoBuf> for IoBufs {
    #[inline(always)]
    fn from(buf: IoBuf) -> IoBufs {
        IoBufs(buf)
    }
}

impl From<Vec<IoBuf>> for IoBufs {
    /// These pieces, in order. They may have any length.
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

    /// Bytes 0 to 9 in pieces of these lengths.
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
                    // SAFETY: the buffers live and are not used meanwhile.
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
    fn pieces_come_back_as_they_were_given() {
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
