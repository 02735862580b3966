//! Zone types, conditions and descriptors, with the numbers that Linux, ZBC and ZNS share.

use crate::units::{Sector, Sectors, ZoneIndex};
use std::fmt;

/// Kind of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ZoneType {
    /// Takes writes anywhere.
    Conventional = 1,
    /// Takes writes only at its write pointer.
    SequentialWriteRequired = 2,
}

/// Condition of a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneCondition {
    /// Conventional: no write pointer.
    NotWp = 0,
    /// Pointer at the start, no resources held.
    Empty = 1,
    /// Opened by a write.
    ImpOpen = 2,
    /// Opened by an open command; the device may not close it on its own.
    ExpOpen = 3,
    /// Partly written, holds an active resource but no open one.
    Closed = 4,
    /// Readable only.
    ReadOnly = 0xD,
    /// No room left, or finished.
    Full = 0xE,
    /// Neither readable nor writable.
    Offline = 0xF,
}

impl ZoneCondition {
    /// Every condition, in the order of its number.
    pub const ALL: [ZoneCondition; 8] = [
        ZoneCondition::NotWp,
        ZoneCondition::Empty,
        ZoneCondition::ImpOpen,
        ZoneCondition::ExpOpen,
        ZoneCondition::Closed,
        ZoneCondition::ReadOnly,
        ZoneCondition::Full,
        ZoneCondition::Offline,
    ];

    /// The condition with number `code`, or `None` for a reserved number.
    pub const fn from_code(code: u8) -> Option<ZoneCondition> {
        Some(match code {
            0 => ZoneCondition::NotWp,
            1 => ZoneCondition::Empty,
            2 => ZoneCondition::ImpOpen,
            3 => ZoneCondition::ExpOpen,
            4 => ZoneCondition::Closed,
            0xD => ZoneCondition::ReadOnly,
            0xE => ZoneCondition::Full,
            0xF => ZoneCondition::Offline,
            _ => return None,
        })
    }

    /// Whether the zone counts against the device's open limit.
    pub const fn is_open(self) -> bool {
        matches!(self, ZoneCondition::ImpOpen | ZoneCondition::ExpOpen)
    }

    /// Whether the zone counts against the device's active limit.
    pub const fn is_active(self) -> bool {
        matches!(self, ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed)
    }

    /// The name the Linux block layer prints.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneCondition::NotWp => "NOT_WP",
            ZoneCondition::Empty => "EMPTY",
            ZoneCondition::ImpOpen => "IMP_OPEN",
            ZoneCondition::ExpOpen => "EXP_OPEN",
            ZoneCondition::Closed => "CLOSED",
            ZoneCondition::ReadOnly => "READONLY",
            ZoneCondition::Full => "FULL",
            ZoneCondition::Offline => "OFFLINE",
        }
    }
}

impl fmt::Display for ZoneCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which standard decides where the two differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Personality {
    /// NVMe Zoned Namespaces: closing an opened, unwritten zone leaves it closed; finish needs no open resource.
    #[default]
    Zns,
    /// SCSI/ATA ZBC and ZAC: closing an unwritten zone empties it; finish of an empty or closed zone needs resources.
    Zbc,
}

/// One zone as a device describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneDescriptor {
    /// Index on the device.
    pub zone: ZoneIndex,
    /// First sector.
    pub start: Sector,
    /// Sectors from this zone's start to the next one's.
    pub size: Sectors,
    /// Sectors that can be written, at most `size`.
    pub capacity: Sectors,
    /// Kind.
    pub zone_type: ZoneType,
    /// Condition.
    pub condition: ZoneCondition,
    /// Next sector to be written; `None` where the pointer has no meaning: conventional, full, read-only, offline.
    pub write_pointer: Option<Sector>,
}
