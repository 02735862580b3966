//! Listing of the active plugs, in the line format of the Linux debugfs file `zone_wplugs`.

use super::Volume;
use std::fmt;
use std::ops::Range;
use zonal_core::plug::{Word, ZoneClass};
use zonal_core::{Sector, ZoneIndex};

/// A write is at the device or waits.
const PLUGGED: u32 = 1;
/// The pointer is not known since a write failed.
const NEED_WP_UPDATE: u32 = 2;

/// One active plug.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct PlugStatus {
    /// Zone index.
    pub zone: u32,
    /// Bit 0: writes are at the device or wait; bit 1: the pointer is being resynchronised.
    pub flags: u32,
    /// One for the plug itself and one for each write at the device or waiting in the queue.
    pub references: u32,
    /// Condition as far as the write path knows it.
    pub condition: Condition,
    /// Issue-time pointer, in sectors from the zone's start.
    pub write_pointer: u32,
    /// Requests in the zone's queue. Writes that follow the one at the device without coming back to the queue, at most
    /// 16, are not among them, though `write_pointer` lies after them.
    pub pending: u32,
}

/// Condition of a zone as its plug knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Condition {
    /// Nothing issued.
    Empty,
    /// Partly written.
    Active,
    /// Its writes wait for an open or active slot.
    Waiting,
    /// No room left.
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
    /// The plugs that have writes at the device or waiting, or whose zone is partly written, by zone.
    pub fn plugs(&self) -> Vec<PlugStatus> {
        let zones = self.terms.info.geometry.conventional_zones()..self.terms.info.geometry.zones();
        self.plugs_of(zones).collect()
    }

    /// The same of some zones, of which conventional ones have none.
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
        // Without a slot, only a management command or a report keeps it from waiting for one.
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

    /// Where the next write to `zone` would be issued, or `None` if it is conventional, read-only or offline.
    ///
    /// While writes are in flight this is ahead of the device's pointer.
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
