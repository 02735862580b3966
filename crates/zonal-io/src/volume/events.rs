//! Events: what a volume's callers hear of changes that no command of theirs made.
//!
//! A device tells its volume of them ([`Device::take_changes`](crate::device::Device::take_changes)), or the volume learns of them
//! from a report, or from an answer that the device is gone. Either way each change is told to each [`Events`] once.
//!
//! # Zones
//! What a zone has become is taken from a report alone. The report waits until nothing of the zone is in flight, as that of
//! recovery does, and with it the zone's plug learns the same: writes that wait end with what the zone is, and a restored
//! zone continues at its pointer. Reports of one zone follow each other, so events of a zone come in their order. A notice of
//! the device, or a caller's own report that shows something else than was told, only asks for one.
//!
//! # What is kept
//! The zones that were told to be read-only or offline; the others are neither. A zone that changed several times before the
//! volume looked may be what it was, and is told all the same: an offline zone has lost its data.
//!
//! An [`Events`] that is not read keeps one event a zone at most, the last.

use super::channel::TURN_MAX;
use super::{Progress, Volume};
use crate::changes::{Changed, Changes};
use crate::device::{CommandResult, Output};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Weak;
use zonal_core::{DeviceError, Nanos, ZoneCondition, ZoneDescriptor, ZoneIndex};

/// Something that has happened to the device without a command of the volume's callers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// A zone has become read-only or offline, or was restored.
    Zone {
        /// The zone.
        zone: ZoneIndex,
        /// What it is now: of a restored zone neither [`ZoneCondition::ReadOnly`] nor [`ZoneCondition::Offline`].
        condition: ZoneCondition,
    },
    /// The limits on open and active zones are others than the device's description says.
    Limits,
    /// The device's size is another than its description says.
    Size,
    /// The device is gone: every command fails with [`DeviceError::Gone`].
    Gone,
}

/// The events of a volume from its making on, for one reader. Others have their own, and all hear the same.
///
/// A thread that waits for events arms its [`News`](crate::news::News), polls the volume, asks [`Events::next`], and sleeps if
/// there was none; or it sleeps in [`Volume::wait_unless`] with [`Events::is_there`].
pub struct Events(Arc<Reader>);

struct Reader {
    zones: Range<u32>,
    /// The volume's number of the zone that the reader knows as 0.
    first: u32,
    /// What a reader without news reads.
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
    /// The next event, if there is one: what concerns the whole device first, then zones in their order.
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

    /// Whether [`Events::next`] may have one, from one look without a lock.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.0.is_there.load(Ordering::Acquire)
    }
}

/// What a volume knows of its device's changes. See the module.
#[derive(Default)]
pub(super) struct Watch {
    /// Zones wait to be asked for: the one thing that polls read while none do.
    has_to_ask: AtomicBool,
    state: Mutex<EventsState>,
}

#[derive(Default)]
struct EventsState {
    /// Zones that were told, or found at the opening, to be read-only or offline.
    told: HashMap<ZoneIndex, ZoneCondition>,
    /// Zones that have changed several times since they were told of: their next report is told whatever it says.
    owed: HashSet<ZoneIndex>,
    /// Zones of which a report is wanted.
    to_ask: BTreeSet<ZoneIndex>,
    /// The device has answered that it is gone, and no report has come from it since.
    is_gone: bool,
    /// That was told before the device's own notice, which may still come.
    is_ahead_of_notice: bool,
    readers: Vec<Weak<Reader>>,
}

impl EventsState {
    /// Tells every reader; whether it concerns any of them.
    fn tell(&mut self, event: DeviceEvent) -> bool {
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

    /// A report of `zone`, of which nothing was in flight.
    fn described(&mut self, zone: ZoneIndex, condition: ZoneCondition) -> bool {
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
        is_news && self.tell(DeviceEvent::Zone { zone, condition })
    }

    fn gone_by_answer(&mut self) -> bool {
        if std::mem::replace(&mut self.is_gone, true) {
            return false;
        }
        self.is_ahead_of_notice = true;
        self.tell(DeviceEvent::Gone)
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
            is_heard |= !std::mem::take(&mut self.is_ahead_of_notice) && self.tell(DeviceEvent::Gone);
        }
        if limits {
            is_heard |= self.tell(DeviceEvent::Limits);
        }
        if size {
            is_heard |= self.tell(DeviceEvent::Size);
        }
        is_heard
    }
}

/// The condition, if a medium falls to it.
fn worn(condition: ZoneCondition) -> Option<ZoneCondition> {
    matches!(condition, ZoneCondition::ReadOnly | ZoneCondition::Offline).then_some(condition)
}

impl Watch {
    /// What the volume's opening has found.
    pub(super) fn opened_with(&self, zone: &ZoneDescriptor) {
        if let Some(condition) = worn(zone.condition) {
            self.state.lock().told.insert(zone.zone, condition);
        }
    }

    /// Whether a poll has zones to ask for.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        self.has_to_ask.load(Ordering::Acquire)
    }

    /// A command of a caller has taken `zone` offline: that is no event.
    pub(super) fn taken_offline(&self, zone: ZoneIndex) {
        self.state.lock().told.insert(zone, ZoneCondition::Offline);
    }
}

impl Volume {
    /// The device's events from now on. Each reader hears each of them.
    pub fn events(&self) -> Events {
        self.events_of(0..self.terms.info.geometry.zones(), 0)
    }

    /// As [`Volume::events`]; of the zones, those in `zones`, counted from `first`.
    pub(super) fn events_of(&self, zones: Range<u32>, first: u32) -> Events {
        let reader =
            Arc::new(Reader { zones, first, is_there: AtomicBool::new(false), unread: Mutex::default() });
        self.watch.state.lock().readers.push(Arc::downgrade(&reader));
        Events(reader)
    }

    /// Takes the device's changes, and asks for the zones among them.
    #[inline]
    pub(super) fn look_at_changes(&self, now: Nanos) -> Progress {
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
        zones.into_iter().for_each(|zone| self.ask_device(now, zone));
        Progress::Some
    }

    /// Recovery, or a notice, has asked for `zone`, and this is the answer. Before the zone continues by it, so that the next
    /// answer comes later.
    pub(super) fn zone_described(&self, zone: ZoneIndex, answer: &CommandResult) {
        let mut state = self.watch.state.lock();
        let is_heard = match answer {
            Ok(Output::Zones(zones)) => match zones.first().filter(|described| described.zone == zone) {
                Some(described) => state.described(zone, described.condition),
                None => false,
            },
            Err(DeviceError::Gone) => state.gone_by_answer(),
            _ => false,
        };
        drop(state);
        if is_heard {
            self.alarm.ring();
        }
    }

    /// A caller's report: zones that it shows other than they were told are asked for.
    pub(super) fn compare_report(&self, zones: &[ZoneDescriptor]) {
        let mut state = self.watch.state.lock();
        let differs = |z: &&ZoneDescriptor| worn(z.condition) != state.told.get(&z.zone).copied();
        let differing: Vec<ZoneIndex> = zones.iter().filter(differs).map(|z| z.zone).collect();
        if differing.is_empty() {
            return;
        }
        state.to_ask.extend(differing);
        self.watch.has_to_ask.store(true, Ordering::Release);
        drop(state);
        self.alarm.ring();
    }

    /// The device has answered a command that it is gone.
    #[cold]
    pub(super) fn found_gone(&self) {
        let is_heard = self.watch.state.lock().gone_by_answer();
        if is_heard {
            self.alarm.ring();
        }
    }
}
