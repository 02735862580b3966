//! Zones that the wrapper has let fall to read-only or offline: what they answer, and how a report shows them.
//!
//! The wrapped device knows nothing of it but that it was told to finish the zone, which returns its resources; so the
//! zone's data is there until it is offline, and a reset of all zones must not reach it.

use crate::device::Command;
use hashbrown::HashMap;
use zonal_core::{DeviceError, Geometry, Op, ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex};

/// How far a zone falls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Degraded {
    /// Readable only.
    ReadOnly,
    /// Neither readable nor writable; its data is gone.
    Offline,
}

/// See the module.
#[derive(Default)]
pub(super) struct DegradedZones {
    zones: HashMap<ZoneIndex, Degraded>,
}

impl DegradedZones {
    /// Lets `zone` fall; whether it has not been this low before.
    ///
    /// # Errors
    /// [`ZoneError`] if the zone is conventional, or offline and to be read-only.
    pub(super) fn fall(
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

    /// Whether `zone` is degraded.
    pub(super) fn holds(&self, zone: ZoneIndex) -> bool {
        self.zones.contains_key(&zone)
    }

    /// `zone` is what it is at the wrapped device again.
    pub(super) fn restore(&mut self, zone: ZoneIndex) {
        self.zones.remove(&zone);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    pub(super) fn zones(&self) -> impl Iterator<Item = ZoneIndex> {
        self.zones.keys().copied()
    }

    /// What the zone of `command` answers in the device's place, if it is degraded.
    pub(super) fn refuses(&self, geometry: &Geometry, command: &Command) -> Option<DeviceError> {
        let has_zone = !matches!(command.op, Op::Flush | Op::ResetAll | Op::Report);
        if self.is_empty() || !has_zone || command.sector.0 >= geometry.sectors().0 {
            return None;
        }
        let to = self.zones.get(&geometry.zone_of(command.sector))?;
        let error = match (command.op, to) {
            // What only conventional zones take the wrapped device refuses.
            (Op::Discard, _) | (Op::Read | Op::Verify, Degraded::ReadOnly) => return None,
            (Op::Read | Op::Verify | Op::Write | Op::WriteZeroes | Op::Append, Degraded::Offline) => {
                ZoneError::Offline
            }
            (Op::Write | Op::WriteZeroes | Op::Append, Degraded::ReadOnly) => ZoneError::ReadOnly,
            _ => ZoneError::InvalidTransition,
        };
        Some(error.into())
    }

    /// Shows degraded zones as what they are.
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
