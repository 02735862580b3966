//! Memory of a connection: which commands have it, and what is held of the target's.

use super::{Command, CommandStage, Connection, MEMORY_MAX};
use crate::subsystem::QUEUE_MEMORY_MIN;
use std::time::Duration;
use zonal_core::Nanos;

/// Bytes that a host moves for each byte of memory that its connection gets beyond its first. The kernel takes some MiB of answers for a
/// host that takes none: this is enough that they do not count for much.
const MEMORY_GROWTH: u64 = 16;

/// How long a host may move nothing while its connection holds memory that others wait for.
pub const STALLED_MAX: Duration = Duration::from_secs(10);

/// Bytes of answers beside which one command may have any memory.
const UNSENT_SMALL: usize = 64 << 10;

impl Connection {
    /// Bytes that its host has sent as data or taken.
    fn moved(&self) -> u64 {
        self.received + self.output.sent_in_all()
    }

    /// What is not sent counts as well: what hosts may ask for is bounded by their taking it.
    pub(super) fn has_memory_for(&self, needs: usize) -> bool {
        let unsent = self.output.len();
        let grown = usize::try_from(self.moved() / MEMORY_GROWTH).unwrap_or(MEMORY_MAX);
        let limit = grown.clamp(QUEUE_MEMORY_MIN, MEMORY_MAX);
        // A command that needs more than all has it for itself, but for answers that hardly count: there may always be some.
        let is_within = self.memory == 0 && unsent <= UNSENT_SMALL || self.memory + unsent + needs <= limit;
        is_within && self.share.as_ref().is_none_or(|share| share.has(self.used() + needs))
    }

    /// Bytes of the target's memory that are in use.
    fn used(&self) -> usize {
        self.memory + self.output.len() + self.in_capsules
    }

    /// Holds memory of the target's for what is in use and `needs` bytes more. Returns false if there is none.
    pub(super) fn hold(&mut self, needs: usize) -> bool {
        let used = self.used();
        self.share.as_mut().is_none_or(|share| share.hold(used + needs))
    }

    /// Gives memory back to the target that is no longer in use, and closes a connection that keeps others from theirs.
    pub(super) fn look_at_share(&mut self, now: Nanos) {
        let (used, moved) = (self.used(), self.moved());
        let Some(share) = &mut self.share else { return };
        share.shrink(used);
        if !share.is_in_the_way() || moved != self.moved.0 {
            self.moved = (moved, now);
            return;
        }
        let is_stalled = now.0.saturating_sub(self.moved.1.0) >= STALLED_MAX.as_nanos() as u64;
        let is_receiving = |command: &Command| matches!(command.stage, CommandStage::Receiving(_));
        // Otherwise the drive is late, and not the host.
        let is_host = || !self.output.is_empty() || self.commands.iter().flatten().any(|c| is_receiving(c));
        self.is_over |= is_stalled && is_host();
    }

    /// The first command that waits for memory, and what it needs, if that is there.
    pub(super) fn next_with_memory(&self) -> Option<(u16, usize)> {
        let slot = *self.waiting_for_memory.front()?;
        let needs = self.needs(slot);
        self.has_memory_for(needs).then_some((slot, needs))
    }

    pub(super) fn continue_waiting(&mut self, now: Nanos) {
        // A command that is continued may end at once, and leave its memory to the next. This loop finds that as well: one call
        // inside the other would need a stack as deep as the queue.
        if std::mem::replace(&mut self.is_continuing, true) {
            return;
        }
        while let Some((slot, needs)) = self.next_with_memory() {
            if !self.hold(needs) {
                // Another thread's connection was faster.
                break;
            }
            self.waiting_for_memory.pop_front();
            self.give_memory(now, slot, needs);
        }
        self.is_continuing = false;
    }
}
