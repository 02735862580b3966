//! Zone types, conditions and descriptors, with the codes shared by Linux, ZBC and ZNS.

use crate::units::{Sector, Sectors, ZoneIndex};
use std::fmt;

/// Kind of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ZoneType {
    /// Writable anywhere.
    Conventional = 1,
    /// Writable only at the write pointer.
    SequentialWriteRequired = 2,
}

/// Condition of a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneCondition {
    /// Conventional: no write pointer.
    NotWp = 0,
    /// Write pointer at the start, no resources held.
    Empty = 1,
    /// Opened by a write.
    ImpOpen = 2,
    /// Opened by an open command. The device may not close it on its own.
    ExpOpen = 3,
    /// Partly written. Holds an active resource but no open one.
    Closed = 4,
    /// Readable, but not writable.
    ReadOnly = 0xD,
    /// Written up to its capacity, or finished.
    Full = 0xE,
    /// Neither readable nor writable.
    Offline = 0xF,
}

impl ZoneCondition {
    /// All conditions, in the order of their codes.
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

    /// Returns the condition with this code, or `None` if the code is reserved.
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

    /// True if the zone counts towards the open limit.
    pub const fn is_open(self) -> bool {
        matches!(self, ZoneCondition::ImpOpen | ZoneCondition::ExpOpen)
    }

    /// True if the zone counts towards the active limit.
    pub const fn is_active(self) -> bool {
        matches!(self, ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed)
    }

    /// Name used by the Linux block layer.
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

/// Standard that a device follows where ZNS and ZBC differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Personality {
    /// NVMe Zoned Namespaces: closing an opened, unwritten zone leaves it closed; a finish needs no
    /// open resource.
    #[default]
    Zns,
    /// SCSI ZBC and ATA ZAC: closing an unwritten zone empties it; finishing an empty or closed
    /// zone needs resources.
    Zbc,
}

/// Zone descriptor, as reported by a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneDescriptor {
    /// Index on the device.
    pub zone: ZoneIndex,
    /// First sector.
    pub start: Sector,
    /// Distance from this zone's start to the next one's.
    pub size: Sectors,
    /// Writable sectors, at most `size`.
    pub capacity: Sectors,
    /// Kind.
    pub zone_type: ZoneType,
    /// Condition.
    pub condition: ZoneCondition,
    /// Write pointer, or `None` where it has no meaning: conventional, full, read-only, offline.
    pub write_pointer: Option<Sector>,
}
