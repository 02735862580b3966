//! Write modes.

use crate::device::DeviceInfo;
use crate::sync::{AtomicU32, Mutex, Ordering};
use std::fmt;
use std::str::FromStr;
use zonal_core::plug::IN_FLIGHT_MAX;

/// Reason for a mode that was switched to.
pub const SWITCHED: &str = "set while running";

/// How writes to sequential zones get to the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WriteMode {
    /// As they come, without a plug: the caller orders them. For comparison.
    Direct,
    /// Through a deadline scheduler that locks the zone of each write, as before there were plugs: requests are sorted by
    /// address, and hold a tag while they wait. Appends are emulated. For comparison.
    ZoneLock,
    /// Plugged: one write a zone at the device. Appends are emulated.
    PerZone,
    /// Plugged, and one write of all sequential zones at the device, or at each of its
    /// [spindles](crate::device::DeviceInfo::spindles), the waiting ones of a zone before those of the next: what rotational drives are
    /// fastest with. Appends are emulated. Reads, management and conventional zones go freely.
    Qd1,
    /// Plugged, with a window of writes a zone at the device, all through one of its queues, which has to keep their order.
    /// What it reorders is sent again. Appends are emulated.
    Pipelined,
    /// Plugged, with appends as native commands, several in flight a zone; positional writes drain them first.
    Append,
}

impl WriteMode {
    /// Every mode, in the order of the documentation.
    pub const ALL: [WriteMode; 6] = [
        WriteMode::Direct,
        WriteMode::ZoneLock,
        WriteMode::PerZone,
        WriteMode::Qd1,
        WriteMode::Pipelined,
        WriteMode::Append,
    ];

    /// The name on command lines and in listings.
    pub const fn name(self) -> &'static str {
        match self {
            WriteMode::Direct => "direct",
            WriteMode::ZoneLock => "zone-lock",
            WriteMode::PerZone => "per-zone",
            WriteMode::Qd1 => "qd1",
            WriteMode::Pipelined => "pipelined",
            WriteMode::Append => "append",
        }
    }

    /// Whether a running volume may switch to it, and from it to another. The others are chosen at the opening and stay: mode `direct`
    /// does not count what is in flight, and the scheduler of `zone-lock` is in front of the volume.
    pub const fn is_switchable(self) -> bool {
        !matches!(self, WriteMode::Direct | WriteMode::ZoneLock)
    }

    /// Whether a device can do it.
    ///
    /// # Errors
    /// [`SwitchError::NoAppend`], [`SwitchError::NoOrder`]. The latter may be overridden: then the mode works, slowly.
    pub fn fits(self, info: &DeviceInfo) -> Result<(), SwitchError> {
        match self {
            WriteMode::Append if info.append_sectors_max == 0 => Err(SwitchError::NoAppend),
            WriteMode::Pipelined if !info.keeps_order => Err(SwitchError::NoOrder),
            _ => Ok(()),
        }
    }

    /// The mode that suits a device, and why. Never [`WriteMode::Pipelined`]: where the promise of order is broken, each break costs a
    /// round of recovery, so its caller has to know the path to the device.
    pub fn for_device(info: &DeviceInfo) -> (WriteMode, &'static str) {
        if info.rotational {
            (WriteMode::Qd1, "the device is rotational")
        } else if info.append_sectors_max > 0 {
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
#[error("unknown write mode {0:?}; there are direct, zone-lock, per-zone, qd1, pipelined and append")]
pub struct UnknownMode(pub String);

/// Why a volume does not switch to a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// From or to mode `direct`.
    #[error("mode direct is chosen when the volume is opened and stays: it does not count what is in flight")]
    Direct,
    /// From or to mode `zone-lock`.
    #[error(
        "mode zone-lock is chosen when the volume is opened and stays: its scheduler is in front of the volume"
    )]
    ZoneLock,
    /// Mode `append` on a device without zone append.
    #[error("write mode append needs native zone append, which the device does not have")]
    NoAppend,
    /// Mode `pipelined` on a device whose queues promise no order, and the caller does not insist.
    #[error(
        "write mode pipelined needs queues that keep the order of commands, which the device does not promise"
    )]
    NoOrder,
}

/// The write mode in force, read by every write.
pub(super) struct Policy {
    /// Index in [`WriteMode::ALL`], and from bit 8 on the epoch.
    now: AtomicU32,
    reason: Mutex<&'static str>,
}

impl Policy {
    pub(super) fn new(mode: WriteMode, reason: &'static str) -> Policy {
        Policy { now: AtomicU32::new(mode as u32), reason: Mutex::new(reason) }
    }

    /// For a write that goes out by a zone's word: to be read after the word, whose epoch tells a switch in between.
    #[inline]
    pub(super) fn mode(&self) -> WriteMode {
        WriteMode::ALL[(self.now.load(Ordering::Relaxed) & 0xFF) as usize]
    }

    /// As [`Policy::mode`], for the hot path.
    #[inline]
    pub(super) fn is(&self, mode: WriteMode) -> bool {
        self.now.load(Ordering::Relaxed) as u8 == mode as u8
    }

    /// Whether the mode has a way of its own for a write to the device, as `qd1` and `pipelined` have.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        let mode = self.now.load(Ordering::Relaxed) as u8;
        mode.wrapping_sub(WriteMode::Qd1 as u8) <= WriteMode::Pipelined as u8 - WriteMode::Qd1 as u8
    }

    pub(super) fn reason(&self) -> &'static str {
        *self.reason.lock()
    }

    /// Changes with every switch.
    pub(super) fn epoch(&self) -> u8 {
        (self.now.load(Ordering::Relaxed) >> 8) as u8
    }

    /// Only while every zone is frozen.
    pub(super) fn switch(&self, mode: WriteMode) {
        let epoch = self.epoch().wrapping_add(1);
        self.now.store(mode as u32 | u32::from(epoch) << 8, Ordering::Release);
        *self.reason.lock() = SWITCHED;
    }

    /// Native appends that one zone may have in flight; 0: appends are emulated.
    #[inline]
    pub(super) fn appends_in_flight_max(&self) -> u32 {
        if self.is(WriteMode::Append) { IN_FLIGHT_MAX } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_at_their_index() {
        for (n, mode) in WriteMode::ALL.into_iter().enumerate() {
            assert_eq!(mode as usize, n, "{mode}");
            assert_eq!(mode.name().parse(), Ok(mode));
            let policy = Policy::new(WriteMode::PerZone, "");
            policy.switch(mode);
            assert_eq!((policy.mode(), policy.epoch()), (mode, 1));
            assert_eq!(policy.is_apart(), matches!(mode, WriteMode::Qd1 | WriteMode::Pipelined), "{mode}");
        }
    }

    #[test]
    fn drive_gets_the_mode_that_suits_it_and_pipelined_never() {
        let mut info = crate::emulated::EmulatedOptions::default().info("drive").unwrap();
        for keeps_order in [false, true] {
            for (rotational, append_sectors_max, mode) in [
                (true, 0, WriteMode::Qd1),
                (true, 8, WriteMode::Qd1),
                (false, 8, WriteMode::Append),
                (false, 0, WriteMode::PerZone),
            ] {
                (info.rotational, info.append_sectors_max) = (rotational, append_sectors_max);
                info.keeps_order = keeps_order;
                assert_eq!(WriteMode::for_device(&info).0, mode, "{info:?}");
            }
        }
    }
}
