//! WRITE SAME with a block that is not all zeroes: copies of it, written piece after piece.

use super::{Next, SCRATCH};
use crate::status::Failure;
use std::mem;
use zonal_core::{Sector, Sectors};
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::volume::{Completion, Request};

/// See the module.
pub(crate) struct FillWork {
    next: Sector,
    /// Sectors from `next` on.
    left: u32,
    /// Sectors of the request that is under way.
    asked: u32,
    /// Copies of the block, at most [`SCRATCH`]; a request has it meanwhile.
    copies: IoBufs,
    piece_sectors: u32,
    block_len: u32,
    /// A piece is there.
    has_begun: bool,
}

impl FillWork {
    /// `sectors` are whole blocks.
    pub(crate) fn new(next: Sector, sectors: u32, block: &[u8]) -> FillWork {
        let piece_sectors = sectors.min(SCRATCH / 512);
        let mut copies = IoBuf::zeroed(piece_sectors * 512);
        copies.chunks_exact_mut(block.len()).for_each(|copy| copy.copy_from_slice(block));
        let block_len = block.len() as u32;
        FillWork {
            next,
            left: sectors,
            asked: 0,
            copies: copies.into(),
            piece_sectors,
            block_len,
            has_begun: false,
        }
    }

    pub(super) fn step(&mut self, end: Option<Completion>) -> Next {
        if let Some(Completion { result, buf, .. }) = end {
            self.copies = buf;
            if let Err(error) = result {
                let failure = Failure::of_request(&error, false);
                return Next::End(Err(if self.has_begun { failure.in_part() } else { failure }));
            }
            self.has_begun = true;
            self.next += Sectors(self.asked.into());
            self.left -= self.asked;
        }
        if self.left == 0 {
            return Next::End(Ok(self.block_len));
        }
        self.asked = self.left.min(self.piece_sectors);
        Next::Ask(Request::write(self.next, self.asked, mem::take(&mut self.copies)))
    }
}
