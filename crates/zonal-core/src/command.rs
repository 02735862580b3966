//! Device operations.

/// Operation of a request or of a device command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// Reads `sectors` from `sector`.
    Read,
    /// Writes `sectors` at `sector`. In a sequential zone this must be the write pointer.
    Write,
    /// Writes zeroes without payload. Same placement rules as [`Op::Write`].
    WriteZeroes,
    /// Writes at the zone's write pointer. `sector` is the zone start; the completion returns the
    /// address.
    Append,
    /// Makes all acknowledged writes durable.
    Flush,
    /// Empties the zone and moves its write pointer to the start.
    ZoneReset,
    /// Makes the zone full.
    ZoneFinish,
    /// Opens the zone explicitly.
    ZoneOpen,
    /// Closes the zone.
    ZoneClose,
    /// Resets every sequential zone that is not empty, read-only or offline.
    ResetAll,
    /// Reports up to `sectors` zones, beginning with the zone that contains `sector`.
    Report,
    /// Reads `sectors` from `sector` on the medium without returning data.
    Verify,
    /// Takes a read-only zone offline permanently. ZNS only.
    ZoneOffline,
    /// Deallocates `sectors` from `sector` in conventional zones. On a device that keeps data they
    /// read as zeroes afterwards.
    Discard,
}

impl Op {
    /// True if the operation writes data and so advances a sequential zone's write pointer.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Write | Op::WriteZeroes | Op::Append)
    }

    /// True if the operation targets one zone and transfers no data.
    pub const fn is_zone_management(self) -> bool {
        matches!(self, Op::ZoneReset | Op::ZoneFinish | Op::ZoneOpen | Op::ZoneClose | Op::ZoneOffline)
    }

    /// True if the operation only reads.
    pub const fn is_read(self) -> bool {
        matches!(self, Op::Read | Op::Verify)
    }

    /// True if `sector` and `sectors` are a range on the medium. An append's address is known only
    /// once it has completed.
    pub const fn has_range(self) -> bool {
        matches!(self, Op::Read | Op::Write | Op::WriteZeroes | Op::Verify | Op::Discard)
    }

    /// Name used in listings, traces and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::WriteZeroes => "write-zeroes",
            Op::Append => "append",
            Op::Flush => "flush",
            Op::ZoneReset => "reset",
            Op::ZoneFinish => "finish",
            Op::ZoneOpen => "open",
            Op::ZoneClose => "close",
            Op::ResetAll => "reset-all",
            Op::Report => "report",
            Op::Verify => "verify",
            Op::ZoneOffline => "offline",
            Op::Discard => "discard",
        }
    }
}
