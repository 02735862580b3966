//! What a worker remembers of each request that was not answered inside its submit.

use crate::jobs::run::measure::Stamps;
use crate::jobs::workload::Io;

/// What a slot's request is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotKind {
    Idle,
    /// A read or write of the workload.
    Io,
    /// A read whose block is checked.
    Check,
    Flush,
    /// Of the zone that starts at the sector.
    Reset,
    /// Of the zone that starts at the sector.
    Finish,
}

/// A request with the write path, or room for one.
#[derive(Clone, Copy)]
pub(super) struct RequestSlot {
    pub(super) kind: SlotKind,
    pub(super) io: Io,
    pub(super) stamps: Stamps,
}

impl RequestSlot {
    pub(super) const IDLE: RequestSlot =
        RequestSlot { kind: SlotKind::Idle, io: Io::NONE, stamps: Stamps { made: 0, submitted: 0 } };
}
