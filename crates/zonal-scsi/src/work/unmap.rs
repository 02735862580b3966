//! UNMAP: discards of conventional blocks in sequence.

use super::Step;
use crate::status::Failure;
use std::collections::VecDeque;
use zonal_core::{Sector, Sectors};
use zonal_io::volume::{Completion, Request};

/// Maximum sectors of one discard: 1 GiB, so that the volume splits it over few zones.
const PIECE_SECTORS: u64 = 1 << 21;

/// Progress of an UNMAP.
pub(crate) struct UnmapWork {
    /// Remaining ranges.
    ranges: VecDeque<(Sector, u64)>,
    /// Length of the initiator's list in bytes.
    list_len: u32,
}

impl UnmapWork {
    /// Creates the work from non-empty ranges within conventional zones.
    pub(crate) fn new(ranges: Vec<(Sector, u64)>, list_len: u32) -> UnmapWork {
        UnmapWork { ranges: ranges.into(), list_len }
    }

    pub(super) fn step(&mut self, end: Option<Completion>) -> Step {
        if let Some(Completion { result: Err(error), .. }) = end {
            return Step::End(Err(Failure::of_request(&error, false)));
        }
        let Some((sector, left)) = self.ranges.pop_front() else { return Step::End(Ok(self.list_len)) };
        let piece = left.min(PIECE_SECTORS);
        if left > piece {
            self.ranges.push_front((sector + Sectors(piece), left - piece));
        }
        Step::Ask(Request::discard(sector, piece as u32))
    }
}
