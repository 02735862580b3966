//! State that a worker keeps for each request that did not complete inside its submit.

use crate::jobs::run::measure::Stamps;
use crate::jobs::workload::Io;

/// Type of a slot's request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotKind {
    Idle,
    /// A read or write of the workload.
    Io,
    /// A read with verification.
    Check,
    Flush,
    /// Reset of the zone that starts at the sector.
    Reset,
    /// Finish of the zone that starts at the sector.
    Finish,
}

/// A request at the write path, or an idle slot.
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
