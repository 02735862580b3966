//! Memory of a connection: its assignment to commands, and its share of the target's memory.

use super::{Command, CommandStage, Connection, MEMORY_MAX};
use crate::subsystem::QUEUE_MEMORY_MIN;
use std::time::Duration;
use zonal_core::Nanos;

/// Bytes that a host has to move for each byte of memory beyond the initial amount. The kernel
/// buffers a few MiB of responses for a host that reads none; with this factor they hardly count.
const MEMORY_GROWTH: u64 = 16;

/// Longest time without progress for a host that holds memory others are waiting for.
pub const STALLED_MAX: Duration = Duration::from_secs(10);

/// Unsent response bytes up to which a single command may exceed the limit.
const UNSENT_SMALL: usize = 64 << 10;

impl Connection {
    /// Bytes of data exchanged with the host.
    fn moved(&self) -> u64 {
        self.received + self.output.sent_in_all()
    }

    /// True if `needs` more bytes fit in the limit. Unsent output counts as well: a host that does
    /// not read cannot request more.
    pub(super) fn has_memory_for(&self, needs: usize) -> bool {
        let unsent = self.output.len();
        let grown = usize::try_from(self.moved() / MEMORY_GROWTH).unwrap_or(MEMORY_MAX);
        let limit = grown.clamp(QUEUE_MEMORY_MIN, MEMORY_MAX);
        // A command that exceeds the limit by itself runs alone. Small responses are ignored here,
        // because there may always be some.
        let is_within = self.memory == 0 && unsent <= UNSENT_SMALL || self.memory + unsent + needs <= limit;
        is_within && self.share.as_ref().is_none_or(|share| share.has(self.used() + needs))
    }

    /// Bytes of the target's memory in use.
    fn used(&self) -> usize {
        self.memory + self.output.len() + self.in_capsules
    }

    /// Reserves target memory for the current use and `needs` more bytes. Returns false if too
    /// little is left.
    pub(super) fn hold(&mut self, needs: usize) -> bool {
        let used = self.used();
        self.share.as_mut().is_none_or(|share| share.hold(used + needs))
    }

    /// Returns unused memory to the target, and ends a stalled connection that withholds memory
    /// from others.
    pub(super) fn rebalance_memory(&mut self, now: Nanos) {
        let (used, moved) = (self.used(), self.moved());
        let Some(share) = &mut self.share else { return };
        share.shrink(used);
        if !share.is_over_share() || moved != self.moved.0 {
            self.moved = (moved, now);
            return;
        }
        let is_stalled = now.0.saturating_sub(self.moved.1.0) >= STALLED_MAX.as_nanos() as u64;
        let is_receiving = |command: &Command| matches!(command.stage, CommandStage::Receiving(_));
        // Otherwise the drive is slow, not the host.
        let is_host = || !self.output.is_empty() || self.commands.iter().flatten().any(|c| is_receiving(c));
        self.is_over |= is_stalled && is_host();
    }

    /// First command waiting for memory, with its need, if that is available now.
    pub(super) fn next_with_memory(&self) -> Option<(u16, usize)> {
        let slot = *self.waiting_for_memory.front()?;
        let needs = self.needs(slot);
        self.has_memory_for(needs).then_some((slot, needs))
    }

    pub(super) fn continue_waiting(&mut self, now: Nanos) {
        // A resumed command may complete at once and free memory for the next. The outer loop
        // handles that one as well; nested calls would need a stack as deep as the queue.
        if std::mem::replace(&mut self.is_continuing, true) {
            return;
        }
        while let Some((slot, needs)) = self.next_with_memory() {
            if !self.hold(needs) {
                // A connection on another thread took the memory first.
                break;
            }
            self.waiting_for_memory.pop_front();
            self.give_memory(now, slot, needs);
        }
        self.is_continuing = false;
    }
}
