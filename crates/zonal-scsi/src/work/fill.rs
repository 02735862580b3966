//! WRITE SAME: writes copies of a block piece by piece. For a command left over by a killed
//! process, the contents of the zone are compared first.

use super::{SCRATCH, Step};
use crate::status::Failure;
use std::mem;
use zonal_core::{Sector, Sectors};
use zonal_io::buffer::{IoBuf, IoBufs};
use zonal_io::volume::{Completion, Request};

/// Progress of a WRITE SAME.
pub(crate) struct FillWork {
    first: Sector,
    sectors: u32,
    /// Sectors completed.
    done: u32,
    /// Leading sectors below the write pointer, to be compared.
    held: u32,
    /// Sectors of the current request.
    asked: u32,
    /// Copies of the block, at most [`SCRATCH`]; owned by the write in flight.
    copies: IoBufs,
    piece_sectors: u32,
    /// Bytes sent by the initiator.
    data: u32,
}

impl FillWork {
    /// Fills `sectors`, a multiple of the block size, with `block`: the initiator's data, or zeroes
    /// if it sent none.
    pub(crate) fn new(first: Sector, sectors: u32, block: &[u8], data: u32) -> FillWork {
        let piece_sectors = sectors.min(SCRATCH / 512);
        let mut copies = IoBuf::zeroed(piece_sectors * 512);
        copies.chunks_exact_mut(block.len()).for_each(|copy| copy.copy_from_slice(block));
        let copies = copies.into();
        FillWork { first, sectors, done: 0, held: 0, asked: 0, copies, piece_sectors, data }
    }

    /// Sets the number of leading sectors below the write pointer, which may be from this command.
    pub(crate) fn held(self, held: u32) -> FillWork {
        FillWork { held, ..self }
    }

    pub(super) fn step(&mut self, end: Option<Completion>) -> Step {
        match end {
            None => {}
            Some(end) if self.done < self.held => self.compared(end),
            Some(Completion { result, buf, .. }) => {
                self.copies = buf;
                if let Err(error) = result {
                    let failure = Failure::of_request(&error, false);
                    return Step::End(Err(if self.done > 0 { failure.in_part() } else { failure }));
                }
                self.done += self.asked;
            }
        }
        let next = self.first + Sectors(self.done.into());
        let up_to = if self.done < self.held { self.held } else { self.sectors };
        self.asked = (up_to - self.done).min(self.piece_sectors);
        match self.asked {
            0 => Step::End(Ok(self.data)),
            asked if self.done < self.held => {
                Step::Ask(Request::read(next, asked, IoBuf::zeroed(asked * 512)))
            }
            asked => Step::Ask(Request::write(next, asked, mem::take(&mut self.copies))),
        }
    }

    /// Handles a comparison. On a mismatch the whole command is written, for the drive to refuse.
    fn compared(&mut self, Completion { result, buf, .. }: Completion) {
        let len = self.asked as usize * 512;
        let copies = &self.copies.pieces()[0][..len];
        match result.is_ok() && buf.pieces()[0][..len] == *copies {
            true => self.done += self.asked,
            false => (self.done, self.held) = (0, 0),
        }
    }
}
