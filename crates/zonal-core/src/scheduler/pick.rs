//! Which write is next, by address and by age, where zones may be locked.

use super::lane::{Entry, Key, Lane, touches};
use super::options::Limits;
use crate::units::ZoneIndex;

/// The first write whose zone is not locked, at or after the last place.
///
/// Skips a locked zone in one step. On a rotational drive it skips the run of adjacent writes instead, across zones
/// too: the drive would have to come back to a run that is begun in its middle.
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

/// The oldest write that may go, or the lowest of its zone.
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

/// Whether the write before this one ends where it begins.
fn continues<T>(lane: &Lane<T>, key: Key) -> bool {
    lane.before(key).is_some_and(|(before, entry)| touches(before, entry, key.0))
}

/// The first write after the run of adjacent ones that begins with `key`.
fn behind_run<T>(lane: &Lane<T>, key: Key) -> Option<Key> {
    let mut end = key.0;
    let behind = lane.entries_from(key).find(|(next, entry)| {
        let is_next = next.0 == end;
        end += entry.sectors.0;
        !is_next
    });
    behind.map(|(key, _)| key)
}
