//! What a device can be asked to do.

/// Operation of a request or of a device command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// Read `sectors` from `sector`.
    Read,
    /// Write `sectors` at `sector`; in a sequential zone it must begin at the write pointer.
    Write,
    /// Write zeroes without payload; placed like [`Op::Write`].
    WriteZeroes,
    /// Write at the zone's pointer, wherever that is: `sector` is the zone start, the completion carries the address.
    Append,
    /// Make everything acknowledged so far durable.
    Flush,
    /// Zone to empty, pointer to its start.
    ZoneReset,
    /// Zone to full.
    ZoneFinish,
    /// Zone to explicitly open.
    ZoneOpen,
    /// Zone to closed.
    ZoneClose,
    /// Reset every sequential zone that is not empty, read-only or offline.
    ResetAll,
    /// Describe zones: `sector` lies in the first, `sectors` is the largest number of zones wanted.
    Report,
    /// Read `sectors` from `sector` on the medium and answer without the data.
    Verify,
    /// Zone from read-only to offline, for good; ZNS only.
    ZoneOffline,
    /// Forget `sectors` from `sector`, in conventional zones: they read as zeroes on a device that keeps data.
    Discard,
}

impl Op {
    /// Whether the operation moves a sequential zone's pointer by carrying data.
    pub const fn is_write(self) -> bool {
        matches!(self, Op::Write | Op::WriteZeroes | Op::Append)
    }

    /// Whether the operation names one zone and moves no data.
    pub const fn is_zone_management(self) -> bool {
        matches!(self, Op::ZoneReset | Op::ZoneFinish | Op::ZoneOpen | Op::ZoneClose | Op::ZoneOffline)
    }

    /// Whether the operation looks at sectors and changes nothing.
    pub const fn is_read(self) -> bool {
        matches!(self, Op::Read | Op::Verify)
    }

    /// Whether `sector` and `sectors` are a range on the medium. An append's place is known only afterwards.
    pub const fn has_range(self) -> bool {
        matches!(self, Op::Read | Op::Write | Op::WriteZeroes | Op::Verify | Op::Discard)
    }

    /// The name used in listings, traces and messages.
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
