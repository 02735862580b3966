//! Listing of the active plugs, in the line format of the Linux debugfs file `zone_wplugs`.

use super::Volume;
use std::fmt;
use std::ops::Range;
use zonal_core::plug::{Word, ZoneClass};
use zonal_core::{Sector, ZoneIndex};

/// Flag: writes are at the device or waiting.
const PLUGGED: u32 = 1;
/// Flag: the write pointer is unknown because a write failed.
const NEED_WP_UPDATE: u32 = 2;

/// State of an active plug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct PlugStatus {
    /// Zone index.
    pub zone: u32,
    /// Bit 0: writes are at the device or waiting; bit 1: the write pointer is being
    /// resynchronised.
    pub flags: u32,
    /// 1 for the plug, plus 1 for each write at the device or in the queue.
    pub references: u32,
    /// Condition as known to the write path.
    pub condition: Condition,
    /// Issue-time pointer, in sectors from the zone's start.
    pub write_pointer: u32,
    /// Requests in the zone's queue. Excludes the writes of a chain, at most 16, although
    /// `write_pointer` includes them.
    pub pending: u32,
}

/// Condition of a zone according to its plug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Condition {
    /// Nothing has been issued.
    Empty,
    /// Partly written.
    Active,
    /// Its writes wait for a slot.
    Waiting,
    /// No capacity left.
    Full,
    /// Read-only.
    ReadOnly,
    /// Offline.
    Offline,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Empty => "EMPTY",
            Condition::Active => "ACTIVE",
            Condition::Waiting => "WAITING",
            Condition::Full => "FULL",
            Condition::ReadOnly => "READONLY",
            Condition::Offline => "OFFLINE",
        })
    }
}

impl fmt::Display for PlugStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlugStatus { zone, flags, references, condition, write_pointer, pending } = self;
        write!(
            f,
            "Zone no: {zone}, flags: 0x{flags:x}, ref: {references}, cond: {condition}, wp ofst: {write_pointer}, \
             pending BIO: {pending}"
        )
    }
}

impl Volume {
    /// Plugs with writes at the device or waiting, or of partly written zones, in zone order.
    pub fn plugs(&self) -> Vec<PlugStatus> {
        let zones = self.terms.info.geometry.conventional_zones()..self.terms.info.geometry.zones();
        self.plugs_of(zones).collect()
    }

    /// Like [`Volume::plugs`], for a range of zones; conventional zones are skipped.
    pub(super) fn plugs_of(&self, zones: Range<u32>) -> impl Iterator<Item = PlugStatus> + '_ {
        let first = zones.start.max(self.terms.info.geometry.conventional_zones());
        (first..zones.end).filter_map(|zone| self.plug(ZoneIndex(zone)))
    }

    fn plug(&self, zone: ZoneIndex) -> Option<PlugStatus> {
        let mut word = self.plugs.load(zone);
        let mut pending = 0;
        if word.waits() {
            let mut shard = self.plugs.shard(zone).lock();
            word = self.plugs.load(zone);
            if word.waits() {
                let queue = shard.queue(zone);
                pending = (queue.len() + queue.in_repair()) as u32;
                pending += shard.parked(zone) as u32;
            }
        }
        // A zone without a slot waits for one, unless a management command or a report is pending.
        let needs_slot = !word.has_slot() && pending > 0 && !word.frozen() && !word.recovers();
        let condition = match condition(word, self.terms.info.geometry.capacity_of(zone)) {
            Condition::Empty | Condition::Active if needs_slot => Condition::Waiting,
            condition => condition,
        };
        if word.is_idle() && condition != Condition::Active {
            return None;
        }
        let plugged = if word.in_flight() > 0 || pending > 0 { PLUGGED } else { 0 };
        let recovers = if word.recovers() { NEED_WP_UPDATE } else { 0 };
        Some(PlugStatus {
            zone: zone.0,
            flags: plugged | recovers,
            references: 1 + word.in_flight() + pending,
            condition,
            write_pointer: word.pointer(),
            pending,
        })
    }

    /// Address at which the next write to `zone` will be issued, or `None` if the zone is
    /// conventional, read-only or offline.
    ///
    /// Ahead of the device's write pointer while writes are in flight.
    pub fn write_pointer(&self, zone: ZoneIndex) -> Option<Sector> {
        let word = self.plugs.load(zone);
        (word.class() == ZoneClass::Sequential)
            .then(|| self.terms.info.geometry.start_of(zone) + zonal_core::Sectors(word.pointer().into()))
    }
}

fn condition(word: Word, capacity: u32) -> Condition {
    match word.class() {
        ZoneClass::ReadOnly => Condition::ReadOnly,
        ZoneClass::Offline => Condition::Offline,
        _ if word.pointer() == 0 => Condition::Empty,
        _ if word.pointer() >= capacity => Condition::Full,
        _ => Condition::Active,
    }
}
