//! Changes of a device that no command of its host made: a zone that a failing head has turned read-only or offline, other
//! limits, another size, a device that is gone.
//!
//! A device notes them in its [`Notices`] and rings its wake-ups; its host takes them with
//! [`Device::take_changes`](crate::device::Device::take_changes), each once. What is not taken yet is kept as a set, so its
//! size has a bound: zones by number, and a flag for each of the rest. A host that looks late hears only once of a zone
//! that changed twice, and asks the device what the zone is now.

use crate::sync::{AtomicBool, Mutex, Ordering};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use zonal_core::ZoneIndex;
use zonal_core::device::ZoneEvent;

/// What [`Device::set_zone`](crate::device::Device::set_zone) makes of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneSetting {
    /// Readable only.
    ReadOnly,
    /// Neither readable nor writable; its data is gone.
    Offline,
    /// As if its medium had never failed. A read-only zone has its data and its pointer again, and is empty, closed or full
    /// by it. An offline zone is empty.
    Restored,
}

impl ZoneSetting {
    /// Every setting.
    pub const ALL: [ZoneSetting; 3] = [ZoneSetting::ReadOnly, ZoneSetting::Offline, ZoneSetting::Restored];

    /// The name in commands and messages.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneSetting::ReadOnly => "read-only",
            ZoneSetting::Offline => "offline",
            ZoneSetting::Restored => "restored",
        }
    }

    /// What it does to a zone.
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

/// A word that is no [`ZoneSetting`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?}: a zone is set to read-only, offline or restored")]
pub struct UnknownSetting(pub String);

impl FromStr for ZoneSetting {
    type Err = UnknownSetting;

    fn from_str(text: &str) -> Result<ZoneSetting, UnknownSetting> {
        let found = ZoneSetting::ALL.into_iter().find(|setting| setting.name() == text);
        found.ok_or_else(|| UnknownSetting(text.to_owned()))
    }
}

/// How often a zone has changed since its host last looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// Once.
    Once,
    /// Several times: it may be what it was, and its data may be gone all the same.
    Often,
}

/// What a host has not heard of yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changes {
    /// Zones that became read-only, offline, or writable again.
    pub zones: BTreeMap<ZoneIndex, Changed>,
    /// The limits on open and active zones are others.
    pub limits: bool,
    /// The size is another.
    pub size: bool,
    /// The device is gone: every command fails with [`DeviceError::Gone`](zonal_core::DeviceError::Gone).
    pub gone: bool,
}

impl Changes {
    /// Notes a change of `zone`.
    pub fn add_zone(&mut self, zone: ZoneIndex) {
        self.add(zone, Changed::Once);
    }

    fn add(&mut self, zone: ZoneIndex, changed: Changed) {
        self.zones.entry(zone).and_modify(|often| *often = Changed::Often).or_insert(changed);
    }

    /// Adds `other`, whose zones are called as `name` says; one without a name is none of this device's.
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

/// The changes that a device keeps for its host.
#[derive(Default)]
pub struct Notices {
    /// The one thing that a poll reads while there are none.
    are_there: AtomicBool,
    changes: Mutex<Changes>,
}

impl Notices {
    /// Notes changes. The device rings its wake-ups after that, for all queues.
    pub fn note(&self, change: impl FnOnce(&mut Changes)) {
        change(&mut self.changes.lock());
        self.are_there.store(true, Ordering::Release);
    }

    /// Whether there are changes to take.
    #[inline]
    pub fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Acquire)
    }

    /// Moves the changes to `into`.
    pub fn take(&self, into: &mut Changes) {
        // Before they are taken: what is noted meanwhile is taken here, or is seen by the next look.
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
    fn zone_that_changes_twice_before_a_look_is_told_once() {
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
