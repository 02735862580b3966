//! Aligned I/O buffers, owned while idle and lent to a command while it runs.
//!
//! A buffer moves into a request and returns with its completion, so the submitter cannot touch it
//! in between. A pool keeps freed memory for reuse: once it is warm, requests need no allocation.

mod pieces;
mod pools;

pub use pieces::IoBufs;
pub use pools::BufferPools;

use crate::sync::{ArrayQueue, CountedArc as Arc, alloc_zeroed, dealloc};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};

/// Alignment of every buffer: a page, which satisfies O_DIRECT for any block size.
pub const BUFFER_ALIGN: usize = 4096;

/// Aligned memory, owned by its holder.
///
/// Three full words without padding. A buffer is moved several times per request, and reading back
/// in one piece a value that was stored in narrow pieces stalls the processor. Adjacent fields
/// differ in type so that they are not moved as a pair either.
#[repr(C)]
pub struct IoBuf {
    ptr: NonNull<u8>,
    /// Length, and [`OWNED`].
    tag: u64,
    /// Pool that the memory returns to, from `Arc::into_raw`, or null. A plain pointer keeps a
    /// buffer that is only passed on in registers; a field with a destructor would pin it to
    /// memory.
    pool: *const PoolInner,
}

/// Tag bit: dropping the buffer frees its memory. Not set for an empty buffer or for memory lent by
/// [`IoBuf::from_raw`].
const OWNED: u64 = 1 << 32;

/// Tag bit of an owned buffer: its memory is a separate mapping and belongs to no pool.
const MAPPED: u64 = 1 << 33;

/// Tag bit of an owned buffer, only inside [`IoBufs`]: the pointer refers to a list of buffers.
const SEVERAL: u64 = 1 << 34;

const _: () = assert!(size_of::<IoBuf>() == 24, "buffers are moved with every request");

// SAFETY: only the holder of an `IoBuf` accesses its memory.
unsafe impl Send for IoBuf {}
// SAFETY: `&IoBuf` only reads.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// Empty buffer, for requests without payload and devices that keep no data.
    pub const fn empty() -> IoBuf {
        IoBuf { ptr: NonNull::dangling(), tag: 0, pool: ptr::null() }
    }

    /// Zeroed buffer of `len` bytes, at most 4 GiB - 1.
    pub fn zeroed(len: u32) -> IoBuf {
        if len == 0 {
            return IoBuf::empty();
        }
        IoBuf { ptr: allocate(len), tag: len as u64 | OWNED, pool: ptr::null() }
    }

    /// Zeroed buffer that takes up no memory until it is touched, for payload that no thread
    /// accesses. Touching a page for the first time costs more than in [`IoBuf::zeroed`].
    pub fn untouched(len: u32) -> IoBuf {
        if len == 0 {
            return IoBuf::empty();
        }
        IoBuf { ptr: map(len), tag: len as u64 | OWNED | MAPPED, pool: ptr::null() }
    }

    /// Buffer with a copy of `bytes`.
    ///
    /// # Panics
    /// If `bytes` are longer than 4 GiB - 1.
    pub fn copied(bytes: &[u8]) -> IoBuf {
        let mut buf = IoBuf::zeroed(bytes.len().try_into().expect("a buffer has less than 4 GiB"));
        buf.copy_from_slice(bytes);
        buf
    }

    /// Buffer over memory of a foreign caller, such as a C program, which it does not own.
    ///
    /// # Safety
    /// The memory is valid for reads and writes of `len` bytes until the buffer is dropped. Until
    /// then no other code accesses it.
    pub const unsafe fn from_raw(ptr: NonNull<u8>, len: u32) -> IoBuf {
        IoBuf { ptr, tag: len as u64, pool: ptr::null() }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.tag as u32 as usize
    }

    /// True if the length is 0.
    pub const fn is_empty(&self) -> bool {
        self.tag as u32 == 0
    }

    /// Address of the first byte.
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
            // Fields are passed by value: see `pool`.
            give_back(self.ptr, self.tag, self.pool);
        }
    }
}

#[inline(never)]
fn give_back(ptr: NonNull<u8>, tag: u64, pool: *const PoolInner) {
    let len = tag as u32;
    if tag & SEVERAL != 0 {
        // SAFETY: the buffer being dropped held the list.
        return unsafe { pieces::free_list(ptr) };
    }
    if tag & MAPPED != 0 {
        // SAFETY: mapped by `map` with the same length.
        return unsafe { unmap(ptr, len) };
    }
    if !pool.is_null() {
        // SAFETY: from `Arc::into_raw`, and the buffer that holds it is dropped only once.
        let pool = unsafe { Arc::from_raw(pool) };
        if pool.idle.push(Idle(ptr)).is_ok() {
            return;
        }
    }
    // SAFETY: allocated by `allocate` with this length, also for a pool.
    unsafe { free(ptr, len) }
}

/// Pool of buffers of one length. Clones share it.
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
            // SAFETY: all idle memory was allocated by `allocate` with the pool's length.
            unsafe { free(idle.0, self.len) }
        }
    }
}

impl BufferPool {
    /// Pool of buffers of `len` bytes (at least 1) that keeps at most `idle_max` freed buffers.
    pub fn new(len: u32, idle_max: usize) -> BufferPool {
        assert!(len > 0, "a pool of empty buffers");
        BufferPool(Arc::new(PoolInner { len, idle: ArrayQueue::new(idle_max.max(1)) }))
    }

    /// Takes a buffer, zeroed or with the data of its last user.
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
    // SAFETY: a new mapping, at an address chosen by the kernel.
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
