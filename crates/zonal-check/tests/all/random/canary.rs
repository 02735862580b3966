//! A device that lies, to verify that the model notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::{Nanos, Op, SECTOR_BYTES};
use zonal_io::data::Data;
use zonal_io::device::{Command, Context, Device, Submitted, Wrapper};

/// Misbehaviour on some of the writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// The data is lost, although the write pointer moves.
    Drop,
    /// Two writes merged into a command, or two sectors of one write, swap places.
    Swap,
}

/// One in this number of writes is affected.
const EVERY: u64 = 5;

/// A device that lies. See the module.
pub struct Canary {
    inner: Arc<dyn Device>,
    lie: Lie,
    writes: AtomicU64,
}

impl Canary {
    pub fn new(inner: Arc<dyn Device>, lie: Lie) -> Canary {
        Canary { inner, lie, writes: AtomicU64::new(0) }
    }

    fn lies_about(&self, command: &Command) -> bool {
        let is_one = command.op == Op::Write && (self.lie == Lie::Drop || command.sectors > 1);
        is_one && self.writes.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }
}

/// Rotates the sectors of a payload by one. Zeroes stay in place, because they look alike and
/// belong to no request.
fn rotate(command: &Command) {
    let mut bytes = Vec::new();
    command.data.for_each(|_, piece| bytes.extend_from_slice(piece));
    if bytes.chunks(SECTOR_BYTES as usize).any(|sector| sector[..8] == [0; 8]) {
        return;
    }
    bytes.rotate_left(SECTOR_BYTES as usize);
    command.data.for_each_mut(|at, piece| piece.copy_from_slice(&bytes[at..at + piece.len()]));
}

impl Wrapper for Canary {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let mut command = *command;
        if self.lies_about(&command) {
            match self.lie {
                Lie::Drop => (command.op, command.data) = (Op::WriteZeroes, Data::NONE),
                Lie::Swap => rotate(&command),
            }
        }
        self.inner.submit(now, queue, &command, context)
    }
}
