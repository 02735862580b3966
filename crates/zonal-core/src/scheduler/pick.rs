//! Choice of the next write by address and by age, with some zones locked.

use super::lane::{Entry, Key, Lane, touches};
use super::options::Limits;
use crate::units::ZoneIndex;

/// Returns the first write at or behind the last position with its zone not locked.
///
/// Skips a locked zone in one step. On a rotational drive it skips the run of adjacent writes
/// instead, even across zones: a run begun in the middle would cost another seek.
pub(super) fn next_write<T>(
    lane: &Lane<T>,
    limits: &Limits,
    is_locked: &impl Fn(ZoneIndex) -> bool,
) -> Option<Key> {
    let mut key = lane.from(lane.latest)?;
    while let Some(zone) = locked_zone(lane.get(key), is_locked) {
        key = if limits.rotational { behind_run(lane, key) } else { lane.from(limits.zone_end(zone)) }?;
    }
    Some(key)
}

/// Returns the oldest issuable write, or the lowest one of its zone.
pub(super) fn oldest_write<T>(
    lane: &Lane<T>,
    limits: &Limits,
    is_locked: &impl Fn(ZoneIndex) -> bool,
) -> Option<Key> {
    let may_go = |key: &Key| {
        let entry = lane.get(*key);
        locked_zone(entry, is_locked).is_none() && !(limits.rotational && continues(lane, *key))
    };
    lane.by_age().map(|key| lowest_of_zone(lane, limits, key)).find(may_go)
}

fn locked_zone<T>(entry: &Entry<T>, is_locked: &impl Fn(ZoneIndex) -> bool) -> Option<ZoneIndex> {
    entry.zone.filter(|&zone| is_locked(zone))
}

fn lowest_of_zone<T>(lane: &Lane<T>, limits: &Limits, key: Key) -> Key {
    let zone = lane.get(key).zone;
    zone.and_then(|zone| lane.from(limits.zone_start(zone))).unwrap_or(key)
}

/// True if the preceding write ends at the start of this one.
fn continues<T>(lane: &Lane<T>, key: Key) -> bool {
    lane.before(key).is_some_and(|(before, entry)| touches(before, entry, key.0))
}

/// First write behind the run of adjacent ones that starts with `key`.
fn behind_run<T>(lane: &Lane<T>, key: Key) -> Option<Key> {
    let mut end = key.0;
    let behind = lane.entries_from(key).find(|(next, entry)| {
        let is_next = next.0 == end;
        end += entry.sectors.0;
        !is_next
    });
    behind.map(|(key, _)| key)
}
