//! Numbers of writes, copies and units, all from one counter. They say how new something is, for a rebuild.
//!
//! # Never twice
//! Units that were in flight when the power failed keep their numbers, though no commit knows of them. So each opening
//! passes over more numbers than could have been given since the last commit. Before the first unit goes out, the counter
//! is made durable. Otherwise, of two openings without a commit, the second would give the numbers of the first.
//!
//! # Generations
//! A file's generation is the opening that made it, which is the counter without its low 32 bits. The counter is durable before
//! an opening makes its first file, as before its first unit. So two openings that give the same number to two files, because
//! the first was cut before its commit, give them two generations.
//!
//! # Of copies
//! A copy is as old as its source, and newer than all that the source replaced. It gets its number while the file has the
//! source: each later write has a higher one. If a write in flight replaces the source, the copy gets the number before the
//! write's. So the write counts wherever its unit ends up.

use super::core::{Core, Shared};
use super::map::{Live, Mapped};
use crate::format::{GENERATIONS_END, NUMBERS_END, NUMBERS_PASSED};
use crate::waiter::Wait;

/// The opening of the file system at this state of the counter: each passes over 2^32 numbers.
pub(crate) fn generation(number: u64) -> u32 {
    u32::try_from(number >> 32).map_or(GENERATIONS_END - 1, |opening| opening.min(GENERATIONS_END - 1))
}

/// The counter of numbers after a rebuild that found `last`. Openings that left no unit are not known to it, and their
/// files had generations. So it passes over as many openings as two bytes in units tell apart.
pub(crate) fn rebuilt(last: u64) -> u64 {
    (last + 1).max((last + 1 + PASSED_BY_REBUILD).min(NUMBERS_END - NUMBERS_PASSED - 1))
}

/// Numbers that a rebuild passes over: 2^16 openings.
const PASSED_BY_REBUILD: u64 = NUMBERS_PASSED << 16;

impl Shared {
    /// Makes the counter durable, so that no other opening gives the numbers of this one. If that fails, the file system
    /// takes no more changes, and units that go out are in no commit.
    pub(super) fn settle_numbers(&self, waiter: &dyn Wait) {
        if self.names.are_settled() {
            return;
        }
        let commit = {
            let core = self.core.lock();
            // Without data there is nothing that numbers could be found in.
            if !self.has_data() || core.dead.is_some() {
                self.names.settle();
                return;
            }
            core.rows.number()
        };
        let _ = self.commit_up_to(waiter, commit);
    }
}

impl Core {
    /// A number that nothing has yet.
    pub(super) fn next_number(&mut self) -> u64 {
        let number = self.next_sequence;
        self.next_sequence += 1;
        number
    }

    /// Which opening of the file system this is, as far as two bytes tell.
    pub(super) fn opening(&self) -> u16 {
        generation(self.next_sequence) as u16
    }

    /// Gives numbers to pieces that files have now and that are to be copied.
    pub(super) fn numbered(&mut self, pieces: Vec<Live>) -> Vec<Live> {
        let now = self.next_number();
        let mut numbered = Vec::with_capacity(pieces.len());
        for Live { ino, at, .. } in pieces {
            let Some(node) = self.nodes.here(ino) else {
                numbered.push(Live { ino, at, number: now });
                continue;
            };
            for (part, write) in node.dirty.parts(&(at.block..at.end())) {
                let extent = at.extent.part((part.start - at.block) as u32..(part.end - at.block) as u32);
                let number = write.map_or(now, |write| write - 1);
                numbered.push(Live { ino, at: Mapped { block: part.start, extent }, number });
            }
        }
        numbered
    }
}
