//! Aligned buffers: owned while idle, lent to a command while it runs.
//!
//! A buffer moves into a request and comes back with its completion, so the submitter cannot touch it in between. The
//! pool keeps freed memory for the next taker: no allocation a request once it is warm.

mod pieces;
mod pools;

pub use pieces::IoBufs;
pub use pools::BufferPools;

use crate::sync::{ArrayQueue, CountedArc as Arc, alloc_zeroed, dealloc};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};

/// Alignment of every buffer: a page, which satisfies O_DIRECT on any block size.
pub const BUFFER_ALIGN: usize = 4096;

/// An aligned piece of memory that its holder owns.
///
/// Three full words, without padding: a buffer is moved several times with every request, and what is put together from
/// narrow stores stalls the processor when it is read in one piece. Neighbours differ in type, so that they are not
/// moved as a pair either.
#[repr(C)]
pub struct IoBuf {
    ptr: NonNull<u8>,
    /// The length, and [`OWNED`].
    tag: u64,
    /// The pool that the memory goes back to, as `Arc::into_raw` gives it, or null. A plain pointer, so that a buffer that
    /// is only passed on stays in registers: a field with a destructor would pin it to memory.
    pool: *const PoolInner,
}

/// In a buffer's tag: dropping it frees the memory. Not so of an empty buffer and of memory lent by [`IoBuf::from_raw`].
const OWNED: u64 = 1 << 32;

/// In the tag of an owned buffer: its memory is a mapping of its own, and of no pool.
const MAPPED: u64 = 1 << 33;

/// In the tag of an owned buffer, inside of [`IoBufs`] only: the pointer is that of a list of buffers.
const SEVERAL: u64 = 1 << 34;

const _: () = assert!(size_of::<IoBuf>() == 24, "buffers are moved with every request");

// SAFETY: the holder of an `IoBuf` is the only one to reach its memory.
unsafe impl Send for IoBuf {}
// SAFETY: `&IoBuf` only reads.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// The buffer without bytes, for requests without payload and devices that keep no data.
    pub const fn empty() -> IoBuf {
        IoBuf { ptr: NonNull::dangling(), tag: 0, pool: ptr::null() }
    }

    /// A zeroed buffer of `len` bytes, at most 4 GiB - 1.
    pub fn zeroed(len: u32) -> IoBuf {
        if len == 0 {
            return IoBuf::empty();
        }
        IoBuf { ptr: allocate(len), tag: len as u64 | OWNED, pool: ptr::null() }
    }

    /// The same, of memory that is none before it is touched: for payload that no thread looks at. A page of it that a
    /// thread does touch takes longer than one of a zeroed buffer.
    pub fn untouched(len: u32) -> IoBuf {
        if len == 0 {
            return IoBuf::empty();
        }
        IoBuf { ptr: map(len), tag: len as u64 | OWNED | MAPPED, pool: ptr::null() }
    }

    /// A buffer with a copy of `bytes`, at most 4 GiB - 1.
    ///
    /// # Panics
    /// If there are more.
    pub fn copied(bytes: &[u8]) -> IoBuf {
        let mut buf = IoBuf::zeroed(bytes.len().try_into().expect("a buffer has less than 4 GiB"));
        buf.copy_from_slice(bytes);
        buf
    }

    /// A buffer over memory that it does not own: a foreign caller's, such as a C program's.
    ///
    /// # Safety
    /// The memory is valid for reads and writes of `len` bytes until the buffer is dropped. Until then no other code
    /// touches it.
    pub const unsafe fn from_raw(ptr: NonNull<u8>, len: u32) -> IoBuf {
        IoBuf { ptr, tag: len as u64, pool: ptr::null() }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.tag as u32 as usize
    }

    /// Whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.tag as u32 == 0
    }

    /// The first byte's address.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl std::ops::Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is `len` bytes, initialised when allocated, and ours.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len()) }
    }
}

impl std::ops::DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len()) }
    }
}

impl Default for IoBuf {
    fn default() -> IoBuf {
        IoBuf::empty()
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len())
    }
}

impl Drop for IoBuf {
    #[inline]
    fn drop(&mut self) {
        if self.tag & OWNED != 0 {
            // By value: see `pool`.
            give_back(self.ptr, self.tag, self.pool);
        }
    }
}

#[inline(never)]
fn give_back(ptr: NonNull<u8>, tag: u64, pool: *const PoolInner) {
    let len = tag as u32;
    if tag & SEVERAL != 0 {
        // SAFETY: the buffer that is dropped held the list.
        return unsafe { pieces::free_list(ptr) };
    }
    if tag & MAPPED != 0 {
        // SAFETY: mapped by `map` with the same length.
        return unsafe { unmap(ptr, len) };
    }
    if !pool.is_null() {
        // SAFETY: it comes from `Arc::into_raw`, and this is the one end of the buffer that holds it.
        let pool = unsafe { Arc::from_raw(pool) };
        if pool.idle.push(Idle(ptr)).is_ok() {
            return;
        }
    }
    // SAFETY: allocated by `allocate` with the same length, also for a pool.
    unsafe { free(ptr, len) }
}

/// A pool of buffers of one length, shared by cloning.
#[derive(Clone)]
pub struct BufferPool(Arc<PoolInner>);

struct PoolInner {
    len: u32,
    idle: ArrayQueue<Idle>,
}

struct Idle(NonNull<u8>);

// SAFETY: idle memory belongs to the pool alone.
unsafe impl Send for Idle {}

impl Drop for PoolInner {
    fn drop(&mut self) {
        while let Some(idle) = self.idle.pop() {
            // SAFETY: every idle piece was allocated by `allocate` with the pool's length.
            unsafe { free(idle.0, self.len) }
        }
    }
}

impl BufferPool {
    /// A pool of buffers of `len` bytes (at least 1) that keeps at most `idle_max` freed ones.
    pub fn new(len: u32, idle_max: usize) -> BufferPool {
        assert!(len > 0, "a pool of empty buffers");
        BufferPool(Arc::new(PoolInner { len, idle: ArrayQueue::new(idle_max.max(1)) }))
    }

    /// A buffer with whatever bytes its last user left, or zeroes.
    pub fn take(&self) -> IoBuf {
        let ptr = self.0.idle.pop().map_or_else(|| allocate(self.0.len), |idle| idle.0);
        IoBuf { ptr, tag: u64::from(self.0.len) | OWNED, pool: Arc::into_raw(self.0.clone()) }
    }
}

fn layout(len: u32) -> Layout {
    Layout::from_size_align(len as usize, BUFFER_ALIGN).expect("4 GiB and a page fit a layout")
}

fn allocate(len: u32) -> NonNull<u8> {
    debug_assert!(len > 0);
    // SAFETY: the layout's size is not zero.
    let ptr = unsafe { alloc_zeroed(layout(len)) };
    NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout(len)))
}

/// # Safety
/// `ptr` comes from [`allocate`] with the same `len` and is not used again.
unsafe fn free(ptr: NonNull<u8>, len: u32) {
    // SAFETY: the caller's promise.
    unsafe { dealloc(ptr.as_ptr(), layout(len)) }
}

fn map(len: u32) -> NonNull<u8> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, where the kernel likes.
    let mapped = unsafe {
        mmap_anonymous(ptr::null_mut(), len as usize, access, MapFlags::PRIVATE | MapFlags::NORESERVE)
    };
    let ptr = mapped.ok().and_then(|ptr| NonNull::new(ptr.cast()));
    ptr.unwrap_or_else(|| handle_alloc_error(layout(len)))
}

/// # Safety
/// `ptr` comes from [`map`] with the same `len` and is not used again.
unsafe fn unmap(ptr: NonNull<u8>, len: u32) {
    // SAFETY: the caller's promise.
    let unmapped = unsafe { munmap(ptr.as_ptr().cast(), len as usize) };
    debug_assert!(unmapped.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_take_after_drop_reuses_the_memory() {
        let pool = BufferPool::new(8192, 4);
        let first = pool.take();
        let address = first.as_ptr();
        assert_eq!(address as usize % BUFFER_ALIGN, 0);
        drop(first);
        assert_eq!(pool.take().as_ptr(), address);
    }

    #[test]
    fn pool_overfull_frees() {
        let pool = BufferPool::new(4096, 1);
        let (a, b) = (pool.take(), pool.take());
        drop((a, b));
        assert_eq!(pool.0.idle.len(), 1);
    }

    #[test]
    fn zeroed_and_untouched_are_aligned_writable_and_zero() {
        for mut b in [IoBuf::zeroed(4096), IoBuf::untouched(4096), IoBuf::untouched(10_000)] {
            assert_eq!(b.as_ptr() as usize % BUFFER_ALIGN, 0);
            assert!(b.iter().all(|&x| x == 0));
            b[7] = 1;
            assert_eq!(b.iter().map(|&x| x as u32).sum::<u32>(), 1);
        }
        assert!(IoBuf::untouched(0).is_empty());
    }

    #[test]
    fn untouched_takes_no_memory() {
        let resident = || -> u64 {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let before = resident();
        let all: Vec<IoBuf> = (0..16).map(|_| IoBuf::untouched(1 << 30)).collect();
        let grown = resident().saturating_sub(before);
        assert!(grown < 1 << 30, "{} buffers of a gigabyte take {grown} bytes", all.len());
    }
}
