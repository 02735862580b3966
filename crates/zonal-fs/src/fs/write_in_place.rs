//! Writes straight from the caller's buffer to the drive.
//!
//! A write normally copies its bytes into the buffer of a unit, because the caller may reuse its
//! memory as soon as the call returns, while the drive is still working. A caller with a buffer
//! that has space for a header can instead give it away in exchange for another. The bytes are
//! checksummed in place. This pays for long writes; short ones are collected with others, which
//! involves a copy.

use super::core::Shared;
use super::credit::CallRoom;
use super::error::FsError;
use super::room::Touched;
use super::setattr::SetIds;
use super::write::Payload;
use crate::BLOCK_BYTES;
use crate::format::HEADER_BYTES;
use crate::waiter::Wait;
use zonal_io::buffer::{BufferPool, IoBuf};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Minimum number of blocks sent as a unit of their own: with fewer, the header and the command
/// would cost too much.
pub const IN_PLACE_BLOCKS_MIN: u32 = 128;

impl Shared {
    /// Writes `length` bytes of `buf`, which follow space for a header. If the file system keeps
    /// the buffer, replaces it by another one of `pool`.
    pub(super) fn write_in_place(
        &self,
        waiter: &dyn Wait,
        (ino, offset): (u64, u64),
        (buf, length): (&mut IoBuf, usize),
        pool: &BufferPool,
        set_ids: SetIds,
    ) -> Result<u64, FsError> {
        let bytes = length as u64;
        let payload = |buf| payload(self, buf, length);
        let Some((_held, is_open)) = self.begin_write(waiter, ino, offset, payload(buf), set_ids)? else {
            return Ok(bytes);
        };
        let has_tail = || self.lock().nodes.here(ino).is_some_and(|node| !node.write_buffer.is_nothing());
        if !self.is_unit(offset, bytes) || has_tail() {
            return self.write_held(waiter, ino, offset, payload(buf), is_open);
        }
        self.admit(waiter, Touched::Added)?;
        let (first, end) = (offset / BLOCK, offset + bytes);
        let mut room = CallRoom::new(self);
        let (append, _) = self.place_unit(waiter, ino, first..end / BLOCK, end, &mut room)?;
        // A zone may end within it.
        let taken = u64::from(append.blocks()) * BLOCK;
        let rest = (taken < bytes).then(|| buf[HEADER_BYTES..][taken as usize..length].to_vec());
        let own = std::mem::replace(buf, pool.take());
        self.send(waiter, append, own);
        let Some(rest) = rest else { return Ok(bytes) };
        match self.put(waiter, ino, offset + taken, Payload::Bytes(&rest), Touched::Added, &mut room) {
            Err(error) if error.is_no_space() => Ok(taken),
            other => other.map(|put| taken + put),
        }
    }

    /// True if a write may be a unit of its own.
    fn is_unit(&self, offset: u64, bytes: u64) -> bool {
        let (blocks, most) = (bytes / BLOCK, u64::from(self.unit_blocks() - 1));
        // On a rotational drive files take turns, whole units at a time.
        let is_long_enough = blocks >= IN_PLACE_BLOCKS_MIN.into() && !self.drive.volume().info().rotational;
        self.has_data()
            && offset.is_multiple_of(BLOCK)
            && bytes.is_multiple_of(BLOCK)
            && blocks <= most
            && (blocks == most || is_long_enough)
    }
}

/// Returns the bytes of a write in `buf`.
fn payload<'a>(shared: &Shared, buf: &'a IoBuf, length: usize) -> Payload<'a> {
    match shared.has_data() {
        true => Payload::Bytes(&buf[HEADER_BYTES..][..length]),
        false => Payload::Length(length as u64),
    }
}
