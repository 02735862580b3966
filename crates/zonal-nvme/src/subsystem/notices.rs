//! Asynchronous events (Base 3.4.1 and 5.1.2, ZNS 4.1.5).
//!
//! Each log triggers one event until the host has read it with Retain Asynchronous Event cleared.

use super::Target;
use super::features::Features;
use super::logs::ChangedZones;
use crate::wire::{event, log};
use std::collections::{BTreeSet, VecDeque};
use zonal_io::volume::{DeviceEvent, Events};

/// Event requests outstanding per controller (Base 5.1.13.2.1, AERL).
pub(super) const EVENT_REQUESTS: u8 = 4;

/// Notice: namespace attributes changed, with the log that lists them.
const NAMESPACE_CHANGED: u64 = event::NOTICE | event::NAMESPACE_CHANGED << 8 | (log::NAMESPACES as u64) << 16;

/// Notice: zone descriptor changed, with its log (ZNS 4.1.5).
const ZONE_CHANGED: u64 = event::NOTICE | event::ZONE_CHANGED << 8 | (log::ZONES as u64) << 16;

pub(super) struct Notices {
    /// Command identifiers of the outstanding event requests.
    pub(super) waiting: VecDeque<u16>,
    events: Vec<Events>,
    /// Changed zones per namespace.
    pub(super) zones: Vec<Unread<ChangedZones>>,
    /// Namespaces with changed size or limits.
    pub(super) namespaces: Unread<BTreeSet<u32>>,
}

/// Log content that the host has not read.
#[derive(Default)]
pub(super) struct Unread<T> {
    pub(super) log: T,
    is_told: bool,
}

impl<T: Default> Unread<T> {
    /// Clears the log after the host has read it.
    pub(super) fn clear(&mut self) {
        *self = Unread::default();
    }

    /// Returns true if an event is due, and marks it as sent.
    fn take_due(&mut self, has_some: bool, is_wanted: bool) -> bool {
        let tells = has_some && is_wanted && !self.is_told;
        self.is_told |= tells;
        tells
    }
}

impl Notices {
    pub(super) fn new(events: Vec<Events>) -> Notices {
        Notices {
            waiting: VecDeque::new(),
            zones: events.iter().map(|_| Unread::default()).collect(),
            events,
            namespaces: Unread::default(),
        }
    }

    /// Next event request to complete, with its event.
    pub(super) fn next(&mut self, target: &Target, features: &Features) -> Option<(u16, u64)> {
        self.note(target);
        if self.waiting.is_empty() {
            return None;
        }
        let event = self.next_event(target, features)?;
        Some((self.waiting.pop_front()?, event))
    }

    fn next_event(&mut self, target: &Target, features: &Features) -> Option<u64> {
        let has_namespaces = !self.namespaces.log.is_empty();
        if self.namespaces.take_due(has_namespaces, features.has_namespace_events()) {
            return Some(NAMESPACE_CHANGED);
        }
        let mut all = self.zones.iter_mut().zip(target.namespaces());
        all.find_map(|(zones, namespace)| {
            let has_zones = !zones.log.is_empty();
            let event = ZONE_CHANGED | u64::from(namespace.nsid()) << 32;
            zones.take_due(has_zones, features.has_zone_events()).then_some(event)
        })
    }

    /// Records the events of the device.
    fn note(&mut self, target: &Target) {
        for (n, events) in self.events.iter_mut().enumerate() {
            let namespace = &target.namespaces()[n];
            while let Some(event) = events.next() {
                match event {
                    DeviceEvent::Zone { zone, .. } if namespace.is_zoned() => {
                        let start = namespace.part().info().geometry.start_of(zone);
                        self.zones[n].log.add(namespace.blocks(start.0));
                    }
                    DeviceEvent::Limits | DeviceEvent::Size => {
                        self.namespaces.log.insert(namespace.nsid());
                    }
                    _ => {}
                }
            }
        }
    }
}
