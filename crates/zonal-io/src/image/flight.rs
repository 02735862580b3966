//! Writes in flight to the file: those of each zone, and how much of the zone's data has arrived
//! there.
//!
//! [`Zones`] advances a zone's write pointer when a write gets its place. The image may promise,
//! and a read may return, only data that has arrived. This module tracks the *arrived* pointer.
//!
//! # Invariants
//! - The writes of a zone are kept in order of their places. A write has arrived when its transfer
//!   and those of all writes before it have ended; only then does it complete. So completed writes
//!   are below the arrived pointer, and a flush need not consider writes in flight.
//! - A reset makes the writes in flight *stale*. A stale write that has not started its transfer
//!   completes without one (it was written and then reset). The first transfer of the new
//!   generation waits for stale transfers in progress, so they never overwrite newer data.
//!
//! # Waiting
//! Only [`WritesInFlight::start`] waits, and only for transfers in progress in other threads, so
//! there are no cycles.

use crate::device::Context;
use crate::emulated::{EventOutcome, Placed, WriteKind, Zones};
use crate::sync::{CachePadded, Condvar, Mutex, MutexGuard};
use hashbrown::HashMap;
use std::collections::VecDeque;
use zonal_core::device::{ZoneEvent, ZoneState};
use zonal_core::{DeviceError, Nanos, Personality, ZoneError, ZoneIndex};

/// Number of locks for all zones: more than there are threads at any time, so contention is rare.
const SHARDS: usize = 64;

/// Recipient of a command's completion.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) ticket: u64,
    pub(super) queue: usize,
    /// Earliest time of the completion.
    pub(super) due: Nanos,
    pub(super) context: Context,
    /// Complete only once the write is durable.
    pub(super) fua: bool,
}

/// A transfer of which only a part has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FailedTransfer {
    /// Number of sectors that have arrived.
    pub(super) arrived: u32,
    pub(super) error: DeviceError,
}

impl From<DeviceError> for FailedTransfer {
    fn from(error: DeviceError) -> FailedTransfer {
        FailedTransfer { arrived: 0, error }
    }
}

/// A write that has arrived or failed, and can be completed.
#[derive(Debug)]
pub(super) struct EndedWrite {
    pub(super) placed: Placed,
    pub(super) answer: Answer,
    pub(super) result: Result<(), DeviceError>,
}

/// Outcome of starting a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    Transfer,
    Stale,
}

/// Writes in flight; see the module.
pub(super) struct WritesInFlight {
    shards: Box<[CachePadded<Shard>]>,
}

#[derive(Default)]
struct Shard {
    zones: Mutex<HashMap<ZoneIndex, Zone>>,
    /// Notified when a stale transfer ends.
    stale_ended: Condvar,
}

#[derive(Default)]
struct Zone {
    /// In order of their places.
    writes: VecDeque<WriteInFlight>,
}

struct WriteInFlight {
    placed: Placed,
    is_stale: bool,
    phase: Phase,
}

enum Phase {
    Placed,
    Transferring,
    Ended(Answer, Result<(), DeviceError>),
}

impl Zone {
    fn flight(&mut self, placed: &Placed) -> &mut WriteInFlight {
        // Writes that are cut to nothing by a bad block have equal places. They also have the same
        // outcome, so any one that has not ended will do.
        let is_it = |f: &&mut WriteInFlight| f.placed == *placed && !matches!(f.phase, Phase::Ended(..));
        self.writes.iter_mut().find(is_it).expect("a write in flight is in its zone's list")
    }

    fn has_stale_transfer(&self) -> bool {
        self.writes.iter().any(|f| f.is_stale && matches!(f.phase, Phase::Transferring))
    }
}

impl WritesInFlight {
    pub(super) fn new() -> WritesInFlight {
        WritesInFlight { shards: (0..SHARDS).map(|_| CachePadded::default()).collect() }
    }

    fn shard(&self, zone: ZoneIndex) -> &Shard {
        &self.shards[zone.0 as usize % SHARDS]
    }

    fn lock(&self, zone: ZoneIndex) -> MutexGuard<'_, HashMap<ZoneIndex, Zone>> {
        self.shard(zone).zones.lock()
    }

    /// Assigns a write its place. Has to be followed by `start`, unless it is dropped, and by
    /// `end`.
    ///
    /// `good` returns the number of its sectors before the first bad block. Only these get a place,
    /// so that no later write of the zone is placed behind a failure.
    pub(super) fn begin(
        &self,
        zones: &Zones,
        kind: WriteKind,
        (zone, offset): (ZoneIndex, u32),
        sectors: u32,
        good: impl FnOnce(&Placed) -> u32,
    ) -> Result<Placed, ZoneError> {
        let mut shard = self.lock(zone);
        let mut placed = zones.begin_transfer(kind, zone, offset, sectors)?;
        let good = good(&placed);
        if good < sectors {
            zones.end(&placed, good);
            placed.sectors = good;
        }
        let flight = WriteInFlight { placed, is_stale: false, phase: Phase::Placed };
        shard.entry(zone).or_default().writes.push_back(flight);
        Ok(placed)
    }

    /// Starts the transfer of `placed`, after waiting for stale transfers of the zone.
    pub(super) fn start(&self, placed: &Placed) -> Start {
        let shard = self.shard(placed.zone);
        let mut zones = shard.zones.lock();
        loop {
            let zone = zones.get_mut(&placed.zone).expect("a zone with writes in flight is listed");
            if zone.flight(placed).is_stale {
                return Start::Stale;
            }
            if !zone.has_stale_transfer() {
                zone.flight(placed).phase = Phase::Transferring;
                return Start::Transfer;
            }
            shard.stale_ended.wait(&mut zones);
        }
    }

    /// Ends the transfer of `placed`. Returns all writes that have thereby arrived, in order of
    /// their places, after passing the zone's new state to `note`. If `note` fails, they fail too.
    pub(super) fn end(
        &self,
        zones: &Zones,
        placed: &Placed,
        answer: Answer,
        result: Result<(), FailedTransfer>,
        note: impl FnOnce(ZoneState) -> Result<(), DeviceError>,
    ) -> Vec<EndedWrite> {
        let shard = self.shard(placed.zone);
        let mut listed = shard.zones.lock();
        let zone = listed.get_mut(&placed.zone).expect("a zone with writes in flight is listed");
        if let Err(failed) = result {
            zones.end(placed, failed.arrived);
        }
        let flight = zone.flight(placed);
        flight.phase = Phase::Ended(answer, result.map_err(|failed| failed.error));
        if flight.is_stale {
            shard.stale_ended.notify_all();
        }
        let mut ended = Vec::new();
        while let Some(flight) = zone.writes.pop_front_if(|f| matches!(f.phase, Phase::Ended(..))) {
            let Phase::Ended(answer, result) = flight.phase else { unreachable!("just matched") };
            zones.release(flight.placed);
            ended.push(EndedWrite { placed: flight.placed, answer, result });
        }
        if zone.writes.iter().all(|f| f.is_stale) {
            zones.apply(placed.zone, ZoneEvent::EndWrite).expect("the end of writes is never refused");
        }
        if zone.writes.is_empty() {
            listed.remove(&placed.zone);
        }
        if !ended.is_empty()
            && let Err(e) = note(arrived_state(zones, listed.get(&placed.zone), placed.zone))
        {
            ended.iter_mut().for_each(|write| write.result = write.result.and(Err(e)));
        }
        ended
    }

    /// Applies `event` to a zone. Returns true if the zone has changed. `losing` receives the
    /// amount of data lost, before any change; `note` receives the new state after it.
    pub(super) fn happen(
        &self,
        zones: &Zones,
        zone: ZoneIndex,
        event: ZoneEvent,
        losing: impl FnOnce(u32),
        note: impl FnOnce(ZoneState) -> Result<(), DeviceError>,
    ) -> Result<bool, DeviceError> {
        let mut shard = self.lock(zone);
        if matches!(event, ZoneEvent::Reset | ZoneEvent::SetOffline | ZoneEvent::Offline) {
            losing(zones.state(zone).written);
        }
        let EventOutcome { has_changed, generation } = zones.apply_event(zone, event)?;
        if generation.is_some()
            && let Some(in_flight) = shard.get_mut(&zone)
        {
            in_flight.writes.iter_mut().for_each(|f| f.is_stale = true);
        }
        if has_changed {
            note(arrived_state(zones, shard.get(&zone), zone))?;
        }
        Ok(has_changed)
    }

    /// State of `zone`, including only data that has arrived.
    pub(super) fn state(&self, zones: &Zones, zone: ZoneIndex) -> ZoneState {
        self.with_state(zones, zone, |state| state)
    }

    /// Calls `look` with the state of `zone`. Until it returns, the zone is not reset and none of
    /// its writes ends.
    pub(super) fn with_state<R>(
        &self,
        zones: &Zones,
        zone: ZoneIndex,
        look: impl FnOnce(ZoneState) -> R,
    ) -> R {
        let shard = self.lock(zone);
        look(arrived_state(zones, shard.get(&zone), zone))
    }
}

/// State of a zone of `capacity` sectors after a restart.
pub(super) fn restarted(personality: Personality, capacity: u32, state: ZoneState) -> ZoneState {
    zonal_core::device::step(personality, capacity, state, ZoneEvent::Restart)
        .expect("a restart is never refused")
        .state
}

/// State of `zone` with the writes in flight `listed`, including only data that has arrived.
fn arrived_state(zones: &Zones, listed: Option<&Zone>, zone: ZoneIndex) -> ZoneState {
    let state = zones.state(zone);
    let first = listed.and_then(|z| z.writes.iter().find(|f| !f.is_stale));
    let written = first.map_or(state.written, |f| f.placed.offset.min(state.written));
    ZoneState { written, ..state }
}

#[cfg(test)]
mod tests;
