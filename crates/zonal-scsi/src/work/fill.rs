//! WRITE SAME: copies of a block, written piece after piece. If a killed process has left the command, what the zone holds is compared first.

use super::{Next, SCRATCH};
use crate::status::Failure;
use std::mem;
use zonal_core::{Sector, Sectors};
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::volume::{Completion, Request};

/// See the module.
pub(crate) struct FillWork {
    first: Sector,
    sectors: u32,
    /// Sectors that are there.
    done: u32,
    /// Sectors from the first on that the zone holds, and that are to be compared.
    held: u32,
    /// Sectors of the request that is under way.
    asked: u32,
    /// Copies of the block, at most [`SCRATCH`]; a write has it meanwhile.
    copies: IoBufs,
    piece_sectors: u32,
    /// Bytes that the initiator has sent.
    data: u32,
}

impl FillWork {
    /// `sectors` are whole blocks. `block` is what the initiator has sent, or zeroes for a block of which it has sent nothing.
    pub(crate) fn new(first: Sector, sectors: u32, block: &[u8], data: u32) -> FillWork {
        let piece_sectors = sectors.min(SCRATCH / 512);
        let mut copies = IoBuf::zeroed(piece_sectors * 512);
        copies.chunks_exact_mut(block.len()).for_each(|copy| copy.copy_from_slice(block));
        let copies = copies.into();
        FillWork { first, sectors, done: 0, held: 0, asked: 0, copies, piece_sectors, data }
    }

    /// The zone holds that many of its sectors, which may be this command's.
    pub(crate) fn held(self, held: u32) -> FillWork {
        FillWork { held, ..self }
    }

    pub(super) fn step(&mut self, end: Option<Completion>) -> Next {
        match end {
            None => {}
            Some(end) if self.done < self.held => self.compared(end),
            Some(Completion { result, buf, .. }) => {
                self.copies = buf;
                if let Err(error) = result {
                    let failure = Failure::of_request(&error, false);
                    return Next::End(Err(if self.done > 0 { failure.in_part() } else { failure }));
                }
                self.done += self.asked;
            }
        }
        let next = self.first + Sectors(self.done.into());
        let up_to = if self.done < self.held { self.held } else { self.sectors };
        self.asked = (up_to - self.done).min(self.piece_sectors);
        match self.asked {
            0 => Next::End(Ok(self.data)),
            asked if self.done < self.held => {
                Next::Ask(Request::read(next, asked, IoBuf::zeroed(asked * 512)))
            }
            asked => Next::Ask(Request::write(next, asked, mem::take(&mut self.copies))),
        }
    }

    /// Where it is not the same, the whole command is the drive's to refuse.
    fn compared(&mut self, Completion { result, buf, .. }: Completion) {
        let len = self.asked as usize * 512;
        let copies = &self.copies.pieces()[0][..len];
        match result.is_ok() && buf.pieces()[0][..len] == *copies {
            true => self.done += self.asked,
            false => (self.done, self.held) = (0, 0),
        }
    }
}
