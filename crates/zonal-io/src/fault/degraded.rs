//! Zones that the wrapper has made read-only or offline: their answers, and their entries in
//! reports.
//!
//! The wrapped device is only asked to finish the zone, which releases its resources. So it still
//! has the zone's data after the zone is offline, and a reset of all zones must not reach the zone.

use crate::device::Command;
use hashbrown::HashMap;
use zonal_core::{DeviceError, Geometry, Op, ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex};

/// Condition of a degraded zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Degraded {
    /// Read-only.
    ReadOnly,
    /// Neither readable nor writable; its data is lost.
    Offline,
}

/// Degraded zones; see the module.
#[derive(Default)]
pub(super) struct DegradedZones {
    zones: HashMap<ZoneIndex, Degraded>,
}

impl DegradedZones {
    /// Degrades `zone`. Returns true if this changes its condition.
    ///
    /// # Errors
    /// [`ZoneError`] if the zone is conventional, or if it is offline and should become read-only.
    pub(super) fn degrade(
        &mut self,
        geometry: &Geometry,
        zone: ZoneIndex,
        to: Degraded,
    ) -> Result<bool, ZoneError> {
        if geometry.is_conventional(zone) {
            return Err(ZoneError::Conventional);
        }
        if (self.zones.get(&zone), to) == (Some(&Degraded::Offline), Degraded::ReadOnly) {
            return Err(ZoneError::InvalidTransition);
        }
        Ok(self.zones.insert(zone, to) != Some(to))
    }

    /// True if `zone` is degraded.
    pub(super) fn holds(&self, zone: ZoneIndex) -> bool {
        self.zones.contains_key(&zone)
    }

    /// Makes `zone` follow the wrapped device again.
    pub(super) fn restore(&mut self, zone: ZoneIndex) {
        self.zones.remove(&zone);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    pub(super) fn zones(&self) -> impl Iterator<Item = ZoneIndex> {
        self.zones.keys().copied()
    }

    /// Error for `command` if its zone is degraded and refuses it.
    pub(super) fn refuses(&self, geometry: &Geometry, command: &Command) -> Option<DeviceError> {
        let has_zone = !matches!(command.op, Op::Flush | Op::ResetAll | Op::Report);
        if self.is_empty() || !has_zone || command.sector.0 >= geometry.sectors().0 {
            return None;
        }
        let to = self.zones.get(&geometry.zone_of(command.sector))?;
        let error = match (command.op, to) {
            // The wrapped device refuses operations that only conventional zones support.
            (Op::Discard, _) | (Op::Read | Op::Verify, Degraded::ReadOnly) => return None,
            (Op::Read | Op::Verify | Op::Write | Op::WriteZeroes | Op::Append, Degraded::Offline) => {
                ZoneError::Offline
            }
            (Op::Write | Op::WriteZeroes | Op::Append, Degraded::ReadOnly) => ZoneError::ReadOnly,
            _ => ZoneError::InvalidTransition,
        };
        Some(error.into())
    }

    /// Sets the conditions of degraded zones in a report.
    pub(super) fn describe(&self, zones: &mut [ZoneDescriptor]) {
        for zone in zones.iter_mut().filter(|_| !self.is_empty()) {
            let Some(to) = self.zones.get(&zone.zone) else { continue };
            zone.condition = match to {
                Degraded::ReadOnly => ZoneCondition::ReadOnly,
                Degraded::Offline => ZoneCondition::Offline,
            };
            zone.write_pointer = None;
        }
    }
}
