//! Per-thread pools of payload memory for servers.

use super::IoBuf;
use std::cell::RefCell;
use std::ops::RangeInclusive;

/// Payload memory of one thread. The most recently returned buffer is reused first, while it is in
/// the processor's cache.
pub struct BufferPools(Vec<RefCell<Vec<IoBuf>>>);

impl Default for BufferPools {
    fn default() -> BufferPools {
        BufferPools::new()
    }
}

impl BufferPools {
    /// Maximum idle memory of each length, in bytes: the data of 512 commands of 4 KiB.
    const IDLE: usize = 2 << 20;

    /// Lengths as powers of two, from a page to the largest transfer.
    const SHIFTS: RangeInclusive<u32> = 12..=20;

    /// Empty pools.
    pub fn new() -> BufferPools {
        BufferPools(Self::SHIFTS.map(|_| RefCell::default()).collect())
    }

    fn shift_of(len: usize) -> u32 {
        len.next_power_of_two().ilog2().max(*Self::SHIFTS.start())
    }

    fn of(&self, shift: u32) -> Option<&RefCell<Vec<IoBuf>>> {
        self.0.get((shift - Self::SHIFTS.start()) as usize)
    }

    /// Takes a buffer of at least `len` bytes, which may hold the data of its last user.
    pub fn take(&self, len: u32) -> IoBuf {
        let shift = Self::shift_of(len as usize);
        match self.of(shift) {
            _ if len == 0 => IoBuf::empty(),
            Some(idle) => idle.borrow_mut().pop().unwrap_or_else(|| IoBuf::zeroed(1 << shift)),
            None => IoBuf::zeroed(len),
        }
    }

    /// Returns a buffer to its pool. Buffers that are merely dropped are freed.
    pub fn give(&self, buf: IoBuf) {
        let shift = Self::shift_of(buf.len());
        if let Some(idle) = self.of(shift).filter(|_| buf.len() == 1 << shift) {
            let mut idle = idle.borrow_mut();
            if idle.len() < (Self::IDLE >> shift).max(4) {
                idle.push(buf);
            }
        }
    }
}
