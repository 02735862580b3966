//! Changes of a device that no command of its host caused: a zone that a failing head made
//! read-only or offline, other limits, another size, a device that is gone.
//!
//! A device records them in its [`Notices`] and notifies its wake-ups; the host takes each once
//! with [`Device::take_changes`](crate::device::Device::take_changes). Pending changes are kept as
//! a set of bounded size: zone numbers, and one flag for each other kind. If a zone changes twice
//! before the host looks, it is reported once, and the host asks the device for its current
//! condition.

use crate::sync::{AtomicBool, Mutex, Ordering};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use zonal_core::ZoneIndex;
use zonal_core::device::ZoneEvent;

/// Condition that [`Device::set_zone`](crate::device::Device::set_zone) puts a zone into.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneSetting {
    /// Readable only.
    ReadOnly,
    /// Neither readable nor writable; its data is gone.
    Offline,
    /// Back to normal, as if the medium had never failed. A read-only zone regains its data and its
    /// write pointer, and becomes empty, closed or full accordingly. An offline zone becomes empty.
    Restored,
}

impl ZoneSetting {
    /// All settings.
    pub const ALL: [ZoneSetting; 3] = [ZoneSetting::ReadOnly, ZoneSetting::Offline, ZoneSetting::Restored];

    /// Name in commands and messages.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneSetting::ReadOnly => "read-only",
            ZoneSetting::Offline => "offline",
            ZoneSetting::Restored => "restored",
        }
    }

    /// Event that puts a zone into this condition.
    pub const fn event(self) -> ZoneEvent {
        match self {
            ZoneSetting::ReadOnly => ZoneEvent::SetReadOnly,
            ZoneSetting::Offline => ZoneEvent::SetOffline,
            ZoneSetting::Restored => ZoneEvent::Restore,
        }
    }
}

impl fmt::Display for ZoneSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is not a [`ZoneSetting`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?}: not a zone condition; use read-only, offline or restored")]
pub struct UnknownSetting(pub String);

impl FromStr for ZoneSetting {
    type Err = UnknownSetting;

    fn from_str(text: &str) -> Result<ZoneSetting, UnknownSetting> {
        let found = ZoneSetting::ALL.into_iter().find(|setting| setting.name() == text);
        found.ok_or_else(|| UnknownSetting(text.to_owned()))
    }
}

/// Number of changes of a zone since its host last looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// Once.
    Once,
    /// Several times. Its condition may be the same as before, although its data may be lost.
    Often,
}

/// Changes not yet reported to a host.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changes {
    /// Zones that became read-only, offline, or writable again.
    pub zones: BTreeMap<ZoneIndex, Changed>,
    /// The limits on open and active zones have changed.
    pub limits: bool,
    /// The size has changed.
    pub size: bool,
    /// The device is gone: every command fails with [`DeviceError::Gone`](zonal_core::DeviceError::Gone).
    pub gone: bool,
}

impl Changes {
    /// Records a change of `zone`.
    pub fn add_zone(&mut self, zone: ZoneIndex) {
        self.add(zone, Changed::Once);
    }

    fn add(&mut self, zone: ZoneIndex, changed: Changed) {
        self.zones.entry(zone).and_modify(|often| *often = Changed::Often).or_insert(changed);
    }

    /// Adds `other`, with its zones renumbered by `name`. Zones for which it returns `None` are not
    /// part of this device and are skipped.
    pub fn merge(&mut self, other: &Changes, name: impl Fn(ZoneIndex) -> Option<ZoneIndex>) {
        for (&zone, &changed) in &other.zones {
            if let Some(zone) = name(zone) {
                self.add(zone, changed);
            }
        }
        self.limits |= other.limits;
        self.size |= other.size;
        self.gone |= other.gone;
    }
}

/// Pending changes of a device.
#[derive(Default)]
pub struct Notices {
    /// Only this flag is read by polls while there are no changes.
    are_there: AtomicBool,
    changes: Mutex<Changes>,
}

impl Notices {
    /// Records changes. The device then notifies the wake-ups of all queues.
    pub fn note(&self, change: impl FnOnce(&mut Changes)) {
        change(&mut self.changes.lock());
        self.are_there.store(true, Ordering::Release);
    }

    /// True if there are changes to take.
    #[inline]
    pub fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Acquire)
    }

    /// Moves the changes to `into`.
    pub fn take(&self, into: &mut Changes) {
        // Cleared before taking: a change recorded meanwhile is either taken here or found by the
        // next check.
        self.are_there.store(false, Ordering::Relaxed);
        let taken = std::mem::take(&mut *self.changes.lock());
        into.merge(&taken, Some);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_their_names() {
        for setting in ZoneSetting::ALL {
            assert_eq!(setting.name().parse(), Ok(setting));
        }
        assert_eq!("full".parse::<ZoneSetting>(), Err(UnknownSetting("full".into())));
    }

    #[test]
    fn zone_changed_twice_between_reads_is_listed_once() {
        let notices = Notices::default();
        assert!(!notices.are_there());
        notices.note(|changes| changes.add_zone(ZoneIndex(4)));
        notices.note(|changes| changes.add_zone(ZoneIndex(2)));
        notices.note(|changes| changes.add_zone(ZoneIndex(4)));
        let mut changes = Changes::default();
        notices.take(&mut changes);
        let told: Vec<_> = changes.zones.iter().map(|(zone, changed)| (zone.0, *changed)).collect();
        assert_eq!(told, [(2, Changed::Once), (4, Changed::Often)]);
        assert!(!notices.are_there());
        let mut again = Changes::default();
        notices.take(&mut again);
        assert_eq!(again, Changes::default());
    }

    #[test]
    fn merged_changes_have_the_names_of_the_device_outside() {
        let mut inside = Changes { size: true, ..Changes::default() };
        inside.add_zone(ZoneIndex(3));
        inside.add_zone(ZoneIndex(9));
        let mut outside = Changes { gone: true, ..Changes::default() };
        outside.merge(&inside, |zone| (zone.0 < 8).then(|| ZoneIndex(zone.0 + 100)));
        assert_eq!(outside.zones.into_keys().collect::<Vec<_>>(), [ZoneIndex(103)]);
        assert!(outside.size && outside.gone && !outside.limits);
    }
}
