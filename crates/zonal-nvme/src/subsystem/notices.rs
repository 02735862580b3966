//! Asynchronous events (Base 3.4.1 and 5.1.2, ZNS 4.1.5): what has changed, and whether the host knows.
//!
//! A host is told once that a log has something for it. It is told again after it has read that log without the bit that retains
//! events.

use super::Target;
use super::features::Features;
use super::logs::ChangedZones;
use crate::wire::{event, log};
use std::collections::{BTreeSet, VecDeque};
use zonal_io::volume::{DeviceEvent, Events};

/// Requests for events that a controller keeps (Base 5.1.13.2.1, AERL).
pub(super) const EVENT_REQUESTS: u8 = 4;

/// A notice, that the attributes of a namespace have changed, and the log that tells which.
const NAMESPACE_CHANGED: u64 = event::NOTICE | event::NAMESPACE_CHANGED << 8 | (log::NAMESPACES as u64) << 16;

/// A notice, that a zone's descriptor has changed, and its log (ZNS 4.1.5).
const ZONE_CHANGED: u64 = event::NOTICE | event::ZONE_CHANGED << 8 | (log::ZONES as u64) << 16;

pub(super) struct Notices {
    /// Requests for events, by their numbers.
    pub(super) waiting: VecDeque<u16>,
    events: Vec<Events>,
    /// Of each namespace.
    pub(super) zones: Vec<Unread<ChangedZones>>,
    /// Those whose size or limits have changed.
    pub(super) namespaces: Unread<BTreeSet<u32>>,
}

/// What a log has that its host has not read.
#[derive(Default)]
pub(super) struct Unread<T> {
    pub(super) log: T,
    is_told: bool,
}

impl<T: Default> Unread<T> {
    /// The host has read it.
    pub(super) fn clear(&mut self) {
        *self = Unread::default();
    }

    /// Whether the host is to be told, which it then is.
    fn tell(&mut self, has_some: bool, is_wanted: bool) -> bool {
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

    /// The request that ends, and the event that it ends with.
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
        if self.namespaces.tell(has_namespaces, features.tells_namespaces()) {
            return Some(NAMESPACE_CHANGED);
        }
        let mut all = self.zones.iter_mut().zip(target.namespaces());
        all.find_map(|(zones, namespace)| {
            let has_zones = !zones.log.is_empty();
            let event = ZONE_CHANGED | u64::from(namespace.nsid()) << 32;
            zones.tell(has_zones, features.tells_zones()).then_some(event)
        })
    }

    /// Notes what the device has told.
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
