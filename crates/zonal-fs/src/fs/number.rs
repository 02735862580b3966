//! Numbers of writes, copies and units, from one counter. A rebuild uses them as versions.
//!
//! # Uniqueness
//! Units in flight at a power cut keep their numbers, although no commit covers them. So each mount
//! skips more numbers than could have been used since the last commit, and makes the counter
//! durable before it sends its first unit. Otherwise, of two mounts without a commit, the second
//! would reuse the numbers of the first.
//!
//! # Generations
//! The generation of a file is the mount that created it, which is the counter without its low 32
//! bits. The counter is made durable before a mount creates its first file, as before its first
//! unit. So if two mounts assign one number to two files, because the first was cut off before its
//! commit, the generations differ.
//!
//! # Copies
//! A copy is as old as its source, and newer than everything that the source replaced. It gets its
//! number while the file refers to the source, so each later write has a higher one. If a write in
//! flight replaces the source, the copy gets the number before the write's, and the write wins
//! wherever its unit ends up.

use super::core::{Core, Shared};
use super::map::{Live, Mapped};
use crate::format::{GENERATIONS_END, NUMBERS_END, NUMBERS_SKIPPED};
use crate::waiter::Wait;

/// Returns the mount at this state of the counter: each mount skips 2^32 numbers.
pub(crate) fn generation(number: u64) -> u32 {
    u32::try_from(number >> 32).map_or(GENERATIONS_END - 1, |opening| opening.min(GENERATIONS_END - 1))
}

/// Returns the counter of numbers after a rebuild that found `last`. Mounts that left no unit are
/// unknown to it, although their files had generations. So it skips as many mounts as the two bytes
/// in units can distinguish.
pub(crate) fn rebuilt(last: u64) -> u64 {
    (last + 1).max((last + 1 + SKIPPED_BY_REBUILD).min(NUMBERS_END - NUMBERS_SKIPPED - 1))
}

/// Numbers skipped by a rebuild, for 2^16 mounts.
const SKIPPED_BY_REBUILD: u64 = NUMBERS_SKIPPED << 16;

impl Shared {
    /// Makes the counter durable, so that no other mount reuses the numbers of this one. On failure
    /// the file system refuses further changes, and units sent afterwards are in no commit.
    pub(super) fn settle_numbers(&self, waiter: &dyn Wait) {
        if self.names.are_settled() {
            return;
        }
        let commit = {
            let core = self.core.lock();
            // If the device keeps no data, numbers are stored nowhere.
            if !self.has_data() || core.read_only.is_some() {
                self.names.settle();
                return;
            }
            core.rows.number()
        };
        let _ = self.commit_up_to(waiter, commit);
    }
}

impl Core {
    /// Returns the next unused number.
    pub(super) fn next_number(&mut self) -> u64 {
        let number = self.next_sequence;
        self.next_sequence += 1;
        number
    }

    /// Number of this mount, truncated to two bytes.
    pub(super) fn opening(&self) -> u16 {
        generation(self.next_sequence) as u16
    }

    /// Assigns numbers to pieces that files currently have and that will be copied.
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
