//! Events: changes of the device that were not caused by a caller's command.
//!
//! They are reported by the device ([`Device::take_changes`](crate::device::Device::take_changes)),
//! found in a zone report, or inferred from an error that the device is gone. Each change is
//! reported once to each [`Events`].
//!
//! # Zones
//! The new condition of a zone is only taken from a report that is made, as in recovery, while
//! nothing of the zone is in flight. The zone's plug adopts the same report: waiting writes end
//! with an error that names the condition, and a restored zone continues at its write pointer.
//! Reports of one zone follow each other, so the events of a zone are in order. A notice from the
//! device, or a caller's report that differs from the last known state, only triggers such a
//! report.
//!
//! # State
//! The zones last reported as read-only or offline; all others are neither. A zone that changed
//! several times before the volume looked may be back in its old condition. It is reported
//! nevertheless, since an offline zone has lost its data.
//!
//! # Write pointers
//! A zone at rest that was written, reset or finished past the volume is noticed in a caller's
//! report. It is then reported once more like a zone that changed, and its plug adopts the pointer.
//! This is no event.
//!
//! An [`Events`] that is not read keeps at most one event per zone, the last.

use super::channel::TURN_MAX;
use super::{Progress, Volume, WriteMode};
use crate::changes::{Changed, Changes};
use crate::device::{CommandResult, Output};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Weak;
use zonal_core::plug::{Word, ZoneClass};
use zonal_core::{DeviceError, Nanos, ZoneCondition, ZoneDescriptor, ZoneIndex};

/// Change of the device without a command of the volume's callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// A zone has become read-only or offline, or was restored.
    Zone {
        /// The zone.
        zone: ZoneIndex,
        /// New condition; for a restored zone, neither [`ZoneCondition::ReadOnly`] nor
        /// [`ZoneCondition::Offline`].
        condition: ZoneCondition,
    },
    /// The limits of open and active zones differ from the device's description.
    Limits,
    /// The size of the device differs from its description.
    Size,
    /// The device is gone: every command fails with [`DeviceError::Gone`].
    Gone,
}

/// Events of a volume since the reader was created. Every reader receives all of them.
///
/// A thread that waits for events arms its [`News`](crate::news::News), polls the volume, calls
/// [`Events::next`], and sleeps if there was none. Alternatively it sleeps in
/// [`Volume::wait_unless`] with [`Events::is_there`].
pub struct Events(Arc<Reader>);

struct Reader {
    zones: Range<u32>,
    /// Volume's index of the reader's zone 0.
    first: u32,
    /// True if events may be unread; checked without the lock.
    is_there: AtomicBool,
    unread: Mutex<Unread>,
}

#[derive(Default)]
struct Unread {
    zones: BTreeMap<ZoneIndex, ZoneCondition>,
    limits: bool,
    size: bool,
    gone: bool,
}

impl Unread {
    fn add(&mut self, event: DeviceEvent) {
        match event {
            DeviceEvent::Zone { zone, condition } => drop(self.zones.insert(zone, condition)),
            DeviceEvent::Limits => self.limits = true,
            DeviceEvent::Size => self.size = true,
            DeviceEvent::Gone => self.gone = true,
        }
    }

    fn take(&mut self) -> Option<DeviceEvent> {
        let mut flags = [
            (&mut self.gone, DeviceEvent::Gone),
            (&mut self.size, DeviceEvent::Size),
            (&mut self.limits, DeviceEvent::Limits),
        ];
        let flag = flags.iter_mut().find(|(flag, _)| **flag);
        if let Some((flag, event)) = flag {
            **flag = false;
            return Some(*event);
        }
        self.zones.pop_first().map(|(zone, condition)| DeviceEvent::Zone { zone, condition })
    }
}

impl Events {
    /// Returns the next event, if any: first those of the whole device, then zones in order.
    pub fn next(&self) -> Option<DeviceEvent> {
        if !self.is_there() {
            return None;
        }
        let mut unread = self.0.unread.lock();
        let event = unread.take();
        if event.is_none() {
            self.0.is_there.store(false, Ordering::Release);
        }
        event
    }

    /// True if [`Events::next`] may return an event. Takes no lock.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.0.is_there.load(Ordering::Acquire)
    }
}

/// State of the changes of a volume's device. See the module documentation.
#[derive(Default)]
pub(super) struct Watch {
    /// True if reports are to be requested; polls read nothing else while it is false.
    has_to_ask: AtomicBool,
    state: Mutex<EventsState>,
}

#[derive(Default)]
struct EventsState {
    /// Zones last reported, or found when the volume was opened, as read-only or offline.
    told: HashMap<ZoneIndex, ZoneCondition>,
    /// Zones that changed several times since their last event: the next report is an event in any
    /// case.
    owed: HashSet<ZoneIndex>,
    /// Zones to request a report of.
    to_ask: BTreeSet<ZoneIndex>,
    /// The device has answered that it is gone, and has made no report since.
    is_gone: bool,
    /// That event preceded the device's own notice, which may still follow.
    is_ahead_of_notice: bool,
    readers: Vec<Weak<Reader>>,
}

impl EventsState {
    /// Sends an event to the readers; returns true if it concerns any of them.
    fn publish(&mut self, event: DeviceEvent) -> bool {
        let mut is_heard = false;
        self.readers.retain(|reader| {
            let Some(reader) = reader.upgrade() else { return false };
            let event = match event {
                DeviceEvent::Zone { zone, .. } if !reader.zones.contains(&zone.0) => return true,
                DeviceEvent::Zone { zone, condition } => {
                    DeviceEvent::Zone { zone: ZoneIndex(zone.0 - reader.first), condition }
                }
                event => event,
            };
            reader.unread.lock().add(event);
            reader.is_there.store(true, Ordering::Release);
            is_heard = true;
            true
        });
        is_heard
    }

    /// Applies a report of `zone` made while nothing was in flight.
    fn apply_report(&mut self, zone: ZoneIndex, condition: ZoneCondition) -> bool {
        (self.is_gone, self.is_ahead_of_notice) = (false, false);
        let before = self.told.get(&zone).copied();
        let is_news = match worn(condition) {
            Some(condition) if before == Some(condition) => false,
            Some(condition) => {
                self.told.insert(zone, condition);
                true
            }
            None => self.owed.remove(&zone) | self.told.remove(&zone).is_some(),
        };
        is_news && self.publish(DeviceEvent::Zone { zone, condition })
    }

    fn mark_gone(&mut self) -> bool {
        if std::mem::replace(&mut self.is_gone, true) {
            return false;
        }
        self.is_ahead_of_notice = true;
        self.publish(DeviceEvent::Gone)
    }

    fn changed(&mut self, changes: Changes) -> bool {
        let Changes { zones, limits, size, gone } = changes;
        for (zone, changed) in zones {
            self.to_ask.insert(zone);
            if changed == Changed::Often {
                self.owed.insert(zone);
            }
        }
        let mut is_heard = false;
        if gone {
            self.is_gone = true;
            is_heard |= !std::mem::take(&mut self.is_ahead_of_notice) && self.publish(DeviceEvent::Gone);
        }
        if limits {
            is_heard |= self.publish(DeviceEvent::Limits);
        }
        if size {
            is_heard |= self.publish(DeviceEvent::Size);
        }
        is_heard
    }
}

/// Returns the condition if it is one to which a failing medium falls.
fn worn(condition: ZoneCondition) -> Option<ZoneCondition> {
    matches!(condition, ZoneCondition::ReadOnly | ZoneCondition::Offline).then_some(condition)
}

impl Watch {
    /// Records a zone as found when the volume was opened.
    pub(super) fn opened_with(&self, zone: &ZoneDescriptor) {
        if let Some(condition) = worn(zone.condition) {
            self.state.lock().told.insert(zone.zone, condition);
        }
    }

    /// True if a poll has zones to request reports of.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.has_to_ask.load(Ordering::Acquire)
    }

    /// Records that a caller's command took `zone` offline, which is not an event.
    pub(super) fn taken_offline(&self, zone: ZoneIndex) {
        self.state.lock().told.insert(zone, ZoneCondition::Offline);
    }
}

impl Volume {
    /// Subscribes to the device's events from now on. Each reader receives all of them.
    pub fn events(&self) -> Events {
        self.events_of(0..self.terms.info.geometry.zones(), 0)
    }

    /// Like [`Volume::events`], for the zones in `zones`, numbered from `first`.
    pub(super) fn events_of(&self, zones: Range<u32>, first: u32) -> Events {
        let reader =
            Arc::new(Reader { zones, first, is_there: AtomicBool::new(false), unread: Mutex::default() });
        self.watch.state.lock().readers.push(Arc::downgrade(&reader));
        Events(reader)
    }

    /// Collects the device's changes and requests reports of the zones among them.
    #[inline]
    pub(super) fn collect_changes(&self, now: Nanos) -> Progress {
        if !self.device.has_changes() && !self.watch.has_work() {
            return Progress::None;
        }
        self.take_changes(now)
    }

    #[cold]
    fn take_changes(&self, now: Nanos) -> Progress {
        let mut changes = Changes::default();
        self.device.take_changes(&mut changes);
        let mut state = self.watch.state.lock();
        let is_heard = state.changed(changes);
        let mut zones = Vec::new();
        while zones.len() < TURN_MAX
            && let Some(zone) = state.to_ask.pop_first()
        {
            zones.push(zone);
        }
        self.watch.has_to_ask.store(!state.to_ask.is_empty(), Ordering::Release);
        drop(state);
        if is_heard {
            self.alarm.ring();
        }
        zones.into_iter().for_each(|zone| self.request_report(now, zone));
        Progress::Some
    }

    /// Applies the result of a report requested by recovery or a notice. Called before the zone
    /// resumes, so that reports stay in order.
    pub(super) fn zone_described(&self, zone: ZoneIndex, answer: &CommandResult) {
        let mut state = self.watch.state.lock();
        let is_heard = match answer {
            Ok(Output::Zones(zones)) => match zones.first().filter(|described| described.zone == zone) {
                Some(described) => state.apply_report(zone, described.condition),
                None => false,
            },
            Err(DeviceError::Gone) => state.mark_gone(),
            _ => false,
        };
        drop(state);
        if is_heard {
            self.alarm.ring();
        }
    }

    /// Requests reports of zones that differ, in a caller's report, from what is known of them: worn
    /// zones, and zones at rest that something else has written, reset or finished. Writes of the
    /// latter wait from now on: the caller that gets the report may write where it says.
    pub(super) fn compare_report(&self, zones: &[ZoneDescriptor]) {
        let elsewhere: Vec<ZoneIndex> =
            zones.iter().filter(|z| self.holds_if_elsewhere(z)).map(|z| z.zone).collect();
        let mut state = self.watch.state.lock();
        let differs = |z: &&ZoneDescriptor| worn(z.condition) != state.told.get(&z.zone).copied();
        let mut differing: Vec<ZoneIndex> = zones.iter().filter(differs).map(|z| z.zone).collect();
        differing.extend(elsewhere);
        if differing.is_empty() {
            return;
        }
        state.to_ask.extend(differing);
        self.watch.has_to_ask.store(true, Ordering::Release);
        drop(state);
        self.alarm.ring();
    }

    /// Makes the writes of a zone wait for a report if its pointer is not the one described. Returns true
    /// if it does.
    fn holds_if_elsewhere(&self, described: &ZoneDescriptor) -> bool {
        if !self.is_elsewhere(described) {
            return false;
        }
        let mut shard = self.plugs.shard(described.zone).lock();
        let is_elsewhere = self.is_elsewhere(described);
        if is_elsewhere {
            let word = self.plugs.update(described.zone, Word::recovering);
            shard.queue(described.zone).invalidate_report(word);
        }
        is_elsewhere
    }

    /// True if no writes of the zone are in flight or waiting, and its pointer is not the one described. A
    /// write may have been completed since the description, which then costs a report.
    fn is_elsewhere(&self, described: &ZoneDescriptor) -> bool {
        let geometry = &self.terms.info.geometry;
        if described.zone.0 >= geometry.zones() || self.terms.policy.is(WriteMode::Direct) {
            return false;
        }
        let written = match (described.condition, described.write_pointer) {
            (ZoneCondition::Full, _) => Some(geometry.capacity_of(described.zone).into()),
            (_, Some(pointer)) => pointer.0.checked_sub(described.start.0),
            (_, None) => None,
        };
        let word = self.plugs.load(described.zone);
        let is_tracked = word.class() == ZoneClass::Sequential;
        is_tracked && word.is_idle() && written.is_some_and(|written| u64::from(word.pointer()) != written)
    }

    /// Handles an error that the device is gone.
    #[cold]
    pub(super) fn device_gone(&self) {
        let is_heard = self.watch.state.lock().mark_gone();
        if is_heard {
            self.alarm.ring();
        }
    }
}
