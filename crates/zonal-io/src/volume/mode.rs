//! Write modes.

use crate::device::DeviceInfo;
use std::fmt;
use std::str::FromStr;

/// How writes to sequential zones get to the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WriteMode {
    /// As they come, without a plug: the caller orders them. For comparison.
    Direct,
    /// Plugged: one write a zone at the device. Appends are emulated.
    PerZone,
    /// Plugged, with appends as native commands, several in flight a zone; positional writes drain them first.
    Append,
}

impl WriteMode {
    /// Every mode, in the order of the documentation.
    pub const ALL: [WriteMode; 3] = [WriteMode::Direct, WriteMode::PerZone, WriteMode::Append];

    /// The name on command lines and in listings.
    pub const fn name(self) -> &'static str {
        match self {
            WriteMode::Direct => "direct",
            WriteMode::PerZone => "per-zone",
            WriteMode::Append => "append",
        }
    }

    /// The mode that suits a device, and why.
    pub fn for_device(info: &DeviceInfo) -> (WriteMode, &'static str) {
        if info.append_sectors_max > 0 {
            (WriteMode::Append, "the device has native zone append")
        } else {
            (WriteMode::PerZone, "the device has no native zone append")
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WriteMode {
    type Err = UnknownMode;
    fn from_str(s: &str) -> Result<WriteMode, UnknownMode> {
        WriteMode::ALL.into_iter().find(|m| m.name() == s).ok_or_else(|| UnknownMode(s.to_owned()))
    }
}

/// A name that is no write mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown write mode {0:?}; there are direct, per-zone and append")]
pub struct UnknownMode(pub String);
