//! VERIFY by reading: checks that blocks are readable, or that they match the initiator's data.

use super::{Memory, SCRATCH, Step, memory};
use crate::disk::Disk;
use crate::sense::SenseCode;
use crate::status::Failure;
use std::mem;
use zonal_core::{Sector, Sectors};
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::volume::{Completion, Request};

/// Progress of a VERIFY.
pub(crate) struct CompareWork {
    first: Sector,
    sectors: u32,
    /// Sectors verified so far.
    done: u32,
    /// Sectors of the current request.
    asked: u32,
    /// Read buffer; owned by the request in flight.
    scratch: IoBufs,
    piece_sectors: u32,
    /// Bytes of the initiator's data: none, one block, or all.
    data: u32,
    block_len: u32,
}

impl CompareWork {
    /// Verifies `sectors` from `first` on against `data` bytes: none, one block, or the whole
    /// range.
    pub(crate) fn new(disk: &Disk, first: Sector, sectors: u32, data: u32) -> CompareWork {
        let piece_sectors = sectors.min(SCRATCH / 512);
        CompareWork {
            first,
            sectors,
            done: 0,
            asked: 0,
            scratch: IoBuf::zeroed(piece_sectors * 512).into(),
            piece_sectors,
            data,
            block_len: disk.block_len(),
        }
    }

    pub(super) fn step(&mut self, memory: &mut Memory, end: Option<Completion>) -> Step {
        if let Some(Completion { result, buf, .. }) = end {
            self.scratch = buf;
            if let Err(error) = result {
                return Step::End(Err(Failure::of_request(&error, true)));
            }
            if !self.is_same(memory) {
                return Step::fail(SenseCode::MISCOMPARE_DURING_VERIFY);
            }
            self.done += self.asked;
        }
        if self.done == self.sectors {
            return Step::End(Ok(self.data));
        }
        self.asked = (self.sectors - self.done).min(self.piece_sectors);
        let sector = self.first + Sectors(self.done.into());
        Step::Ask(Request::read(sector, self.asked, mem::take(&mut self.scratch)))
    }

    /// True if the blocks just read match the initiator's data.
    fn is_same(&self, memory: &Memory) -> bool {
        if self.data == 0 {
            return true;
        }
        let block = self.block_len as usize;
        let is_of_each = u64::from(self.data) < u64::from(self.sectors) * 512;
        let bytes = &self.scratch.pieces()[0][..self.asked as usize * 512];
        if !is_of_each {
            return memory::has(&memory.data_out, self.done as usize * 512, bytes);
        }
        bytes.chunks_exact(block).all(|read| memory::has(&memory.data_out, 0, read))
    }
}
