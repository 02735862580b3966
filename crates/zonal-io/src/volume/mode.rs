//! Write modes.

use super::alone::round_trip;
use crate::device::{Device, DeviceInfo};
use crate::sync::{AtomicU32, Mutex, Ordering};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use zonal_core::plug::IN_FLIGHT_MAX;

/// Reason reported for a mode after a switch.
pub const SWITCHED: &str = "set while running";

/// Longest round trip to a rotational drive for which mode `qd1` is the default. Between two
/// writes the drive is idle for a round trip, unless its cache has enough data for that time.
/// docs/SIM.md has the simulated runs from which it was chosen.
pub const QD1_ROUND_TRIP_MAX: Duration = Duration::from_millis(5);

/// Method by which writes to sequential zones reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WriteMode {
    /// Issued as submitted, without plugs; ordering is up to the caller. For comparison.
    Direct,
    /// Through a deadline scheduler that locks the zone of each write, the design before plugs.
    /// Requests are sorted by address and hold a tag while they wait. Appends are emulated, and
    /// sorted by the address of their zone: an append overtakes a positional write that waits. For
    /// comparison.
    ZoneLock,
    /// Plugged: one write per zone at the device. Appends are emulated.
    PerZone,
    /// Plugged, with one write at the device over all sequential zones, or one for each
    /// [spindle](crate::device::DeviceInfo::spindles). Waiting writes of a zone precede those of
    /// the next zone, which is fastest on rotational drives. Appends are emulated. Reads, zone
    /// management and conventional zones are not restricted.
    Qd1,
    /// Plugged, with a window of writes per zone at the device, all through one queue, which has to
    /// preserve order. Writes reordered below are resubmitted. Appends are emulated.
    Pipelined,
    /// Plugged, with native zone appends, several in flight per zone. A positional write first
    /// waits for them to drain.
    Append,
}

impl WriteMode {
    /// All modes, in the order of the documentation.
    pub const ALL: [WriteMode; 6] = [
        WriteMode::Direct,
        WriteMode::ZoneLock,
        WriteMode::PerZone,
        WriteMode::Qd1,
        WriteMode::Pipelined,
        WriteMode::Append,
    ];

    /// Name on command lines and in listings.
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

    /// True if an open volume can switch to and from this mode. The others are fixed when the
    /// volume is opened: mode `direct` does not count commands in flight, and the scheduler of
    /// `zone-lock` sits in front of the volume.
    pub const fn is_switchable(self) -> bool {
        !matches!(self, WriteMode::Direct | WriteMode::ZoneLock)
    }

    /// True if a scheduler may sort the commands that wait for the device. Mode `direct` submits
    /// them in the order of its callers, and `zone-lock` has a scheduler of its own.
    pub const fn takes_scheduler(self) -> bool {
        !matches!(self, WriteMode::Direct | WriteMode::ZoneLock)
    }

    /// Checks that a device supports this mode.
    ///
    /// # Errors
    /// [`SwitchError::NoAppend`], [`SwitchError::NoOrder`]. The latter may be overridden: the mode
    /// then works, but slowly.
    pub fn fits(self, info: &DeviceInfo) -> Result<(), SwitchError> {
        match self {
            WriteMode::Append if info.append_sectors_max == 0 => Err(SwitchError::NoAppend),
            WriteMode::Pipelined if !info.keeps_order => Err(SwitchError::NoOrder),
            _ => Ok(()),
        }
    }

    /// Default mode for a device, and the reason. Measures the round trip to a rotational device,
    /// which takes a few reports of one zone, and waits for them.
    ///
    /// Never [`WriteMode::Pipelined`]: each write reordered below costs a round of recovery, so the
    /// choice requires knowledge of the whole path to the device.
    pub fn for_device(device: &dyn Device) -> (WriteMode, &'static str) {
        let info = device.info();
        let round_trip = if info.rotational { round_trip(device) } else { Duration::ZERO };
        WriteMode::for_round_trip(info, round_trip)
    }

    /// Default mode for a device at this distance, and the reason.
    fn for_round_trip(info: &DeviceInfo, round_trip: Duration) -> (WriteMode, &'static str) {
        let is_near = round_trip <= QD1_ROUND_TRIP_MAX;
        if info.rotational && is_near {
            (WriteMode::Qd1, "the device is rotational")
        } else if info.append_sectors_max > 0 {
            (WriteMode::Append, "the device has native zone append")
        } else if info.rotational {
            (WriteMode::PerZone, "the device is rotational, but its round trip exceeds 5 ms")
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

/// Unknown name of a write mode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown write mode {0:?}; there are direct, zone-lock, per-zone, qd1, pipelined and append")]
pub struct UnknownMode(pub String);

/// Reason why a volume cannot switch to a mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// From or to mode `direct`.
    #[error("mode direct cannot be entered or left on an open volume: it does not count commands in flight")]
    Direct,
    /// From or to mode `zone-lock`.
    #[error("mode zone-lock cannot be entered or left on an open volume: its scheduler sits in front of it")]
    ZoneLock,
    /// Mode `append` on a device without zone append.
    #[error("write mode append needs native zone append, which the device does not have")]
    NoAppend,
    /// Mode `pipelined` on a device whose queues do not preserve order, without an override.
    #[error(
        "write mode pipelined needs queues that preserve the order of commands, which the device does not promise"
    )]
    NoOrder,
}

/// Write mode in force, read by every write.
pub(super) struct Policy {
    /// Index in [`WriteMode::ALL`] in bits 0 to 7, epoch above.
    now: AtomicU32,
    reason: Mutex<&'static str>,
}

impl Policy {
    pub(super) fn new(mode: WriteMode, reason: &'static str) -> Policy {
        Policy { now: AtomicU32::new(mode as u32), reason: Mutex::new(reason) }
    }

    /// Current mode. A write that is issued by its zone's word reads it after the word; the word's
    /// epoch then reveals a switch in between.
    #[inline]
    pub(super) fn mode(&self) -> WriteMode {
        WriteMode::ALL[(self.now.load(Ordering::Relaxed) & 0xFF) as usize]
    }

    /// Like [`Policy::mode`], for the hot path.
    #[inline]
    pub(super) fn is(&self, mode: WriteMode) -> bool {
        self.now.load(Ordering::Relaxed) as u8 == mode as u8
    }

    /// True for the modes with their own way of issuing a write, `qd1` and `pipelined`.
    #[inline]
    pub(super) fn has_own_issue_path(&self) -> bool {
        let mode = self.now.load(Ordering::Relaxed) as u8;
        mode.wrapping_sub(WriteMode::Qd1 as u8) <= WriteMode::Pipelined as u8 - WriteMode::Qd1 as u8
    }

    pub(super) fn reason(&self) -> &'static str {
        *self.reason.lock()
    }

    /// Epoch, incremented by each switch.
    pub(super) fn epoch(&self) -> u8 {
        (self.now.load(Ordering::Relaxed) >> 8) as u8
    }

    /// Switches to `mode`. Requires that every zone is frozen.
    pub(super) fn switch(&self, mode: WriteMode) {
        let epoch = self.epoch().wrapping_add(1);
        self.now.store(mode as u32 | u32::from(epoch) << 8, Ordering::Release);
        *self.reason.lock() = SWITCHED;
    }

    /// Maximum of native appends in flight per zone; 0: appends are emulated.
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
            assert_eq!(
                policy.has_own_issue_path(),
                matches!(mode, WriteMode::Qd1 | WriteMode::Pipelined),
                "{mode}"
            );
        }
    }

    #[test]
    fn default_mode_fits_the_device_and_is_never_pipelined() {
        let mut info = crate::emulated::EmulatedOptions::default().info("drive").unwrap();
        let (near, far) = (QD1_ROUND_TRIP_MAX, QD1_ROUND_TRIP_MAX + Duration::from_nanos(1));
        for keeps_order in [false, true] {
            for (rotational, append_sectors_max, round_trip, mode) in [
                (true, 0, near, WriteMode::Qd1),
                (true, 8, near, WriteMode::Qd1),
                (true, 0, far, WriteMode::PerZone),
                (true, 8, far, WriteMode::Append),
                (false, 8, far, WriteMode::Append),
                (false, 0, far, WriteMode::PerZone),
            ] {
                (info.rotational, info.append_sectors_max) = (rotational, append_sectors_max);
                info.keeps_order = keeps_order;
                assert_eq!(WriteMode::for_round_trip(&info, round_trip).0, mode, "{info:?} {round_trip:?}");
            }
        }
    }
}
