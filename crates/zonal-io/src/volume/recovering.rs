//! Zones in a recovery that only polls can continue: the device has to settle timed-out commands,
//! or a slot has to become free.
//!
//! # Conventional zones
//! They have no plug. A write or discard that timed out waits here until the device has settled its
//! zone, and then ends as aborted: once it has ended, its caller may write to the same place, and a
//! late write would overwrite that. If the device cannot settle the zone, the request ends as timed
//! out, and the zone accepts no more changes.
//!
//! # Zones without a slot
//! Without a budget, or if the device counts differently, a device that has no open or active zone
//! left refuses the first write of another. The write returns to the head of its queue, and its
//! zone is listed here. It is retried when a partly written zone becomes full or empty, when a zone
//! is closed, and when nothing is in flight that could lead to that. In the last case the retry
//! counts as a round, so that a hopeless wait ends with an error.

use super::earliest;
use super::pending::PendingRequest;
use super::plugs::Plugs;
use crate::device::{Device, Settled};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};
use zonal_core::{DeviceError, Nanos, ZoneIndex};

#[derive(Default)]
pub(super) struct RecoveringZones {
    /// Number of entries in the lists; the only field that polls read while it is 0.
    len: AtomicUsize,
    /// Zones with timed-out commands that are not settled.
    unsettled: Mutex<Vec<ZoneIndex>>,
    /// Timed-out writes to conventional zones that are not settled.
    timed_out: Mutex<Vec<(ZoneIndex, Box<PendingRequest>)>>,
    /// Conventional zones that the device cannot settle, with its errors.
    unsettleable: Mutex<Vec<(ZoneIndex, DeviceError)>>,
    /// True if there are any; writes read nothing else while it is false.
    has_unsettleable: AtomicBool,
    /// Zones without a slot.
    without_slot: Mutex<Vec<ZoneWithoutSlot>>,
    /// A zone was closed, so a slot may be free.
    closed: AtomicBool,
    /// A zone was added since the last poll.
    fresh: AtomicBool,
}

struct ZoneWithoutSlot {
    zone: ZoneIndex,
    /// Zones that may hold the slots; `None` before the first check.
    holders: Option<Vec<ZoneIndex>>,
}

/// Maximum of holders checked for a zone without a slot. A device with more has no limit in
/// practice.
const HOLDERS_MAX: usize = 4096;

/// Activity of the holders of slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holders {
    /// One has released its slot.
    Freed,
    /// One has writes in flight or about to be issued.
    Busy,
    /// None will change by itself.
    Idle,
}

impl RecoveringZones {
    fn add<T>(&self, list: &Mutex<Vec<T>>, waiting: T) {
        list.lock().push(waiting);
        self.len.fetch_add(1, Ordering::Release);
    }

    fn take<T>(&self, list: &Mutex<Vec<T>>) -> Vec<T> {
        let taken = std::mem::take(&mut *list.lock());
        self.len.fetch_sub(taken.len(), Ordering::Release);
        taken
    }

    /// Adds `zone`, which waits for its timed-out commands to be settled.
    pub(super) fn settle(&self, zone: ZoneIndex) {
        self.add(&self.unsettled, zone);
        self.fresh.store(true, Ordering::Release);
    }

    /// Adds `pending`, which timed out in conventional zone `zone`. Returns it with its error if
    /// the device can answer at once.
    pub(super) fn settle_write(
        &self,
        device: &dyn Device,
        now: Nanos,
        zone: ZoneIndex,
        pending: Box<PendingRequest>,
    ) -> Option<(Box<PendingRequest>, DeviceError)> {
        match self.error_of(zone, device.settle(now, zone)) {
            Ok(error) => Some((pending, error)),
            Err(_) => {
                self.add(&self.timed_out, (zone, pending));
                self.fresh.store(true, Ordering::Release);
                None
            }
        }
    }

    /// Error of a write that timed out in conventional zone `zone`, or the time to ask again.
    fn error_of(&self, zone: ZoneIndex, answer: Settled) -> Result<DeviceError, Option<Nanos>> {
        match answer {
            Settled::Yes => Ok(DeviceError::Aborted),
            Settled::NotYet(due) => Err(due),
            Settled::Never(error) => {
                self.unsettleable.lock().push((zone, error));
                self.has_unsettleable.store(true, Ordering::Release);
                Ok(DeviceError::TimedOut)
            }
        }
    }

    /// True if any conventional zone accepts no more changes.
    #[inline]
    pub(super) fn has_unsettleable(&self) -> bool {
        self.has_unsettleable.load(Ordering::Acquire)
    }

    /// Error for changes to conventional zone `zone` if it accepts no more.
    pub(super) fn unsettleable_error(&self, zone: ZoneIndex) -> Option<DeviceError> {
        self.unsettleable.lock().iter().find(|(left, _)| *left == zone).map(|(_, error)| *error)
    }

    /// Adds `zone`, which waits for a slot.
    pub(super) fn wait_for_slot(&self, zone: ZoneIndex) {
        self.add(&self.without_slot, ZoneWithoutSlot { zone, holders: None });
        self.fresh.store(true, Ordering::Release);
    }

    /// True if a zone was added since the last poll.
    pub(super) fn are_fresh(&self) -> bool {
        self.len.load(Ordering::Acquire) > 0 && self.fresh.load(Ordering::Acquire)
    }

    /// Notes that a zone was closed.
    pub(super) fn zone_closed(&self) {
        if self.len.load(Ordering::Acquire) > 0 {
            self.closed.store(true, Ordering::Release);
        }
    }

    /// Starts a check of all zones by a poll; returns false if there are none.
    #[inline]
    pub(super) fn start_check(&self) -> bool {
        if self.len.load(Ordering::Acquire) == 0 {
            return false;
        }
        self.fresh.store(false, Ordering::Release);
        true
    }

    /// Asks the device about timed-out commands; calls `settled` for each zone with an answer.
    pub(super) fn settle_timed_out(
        &self,
        device: &dyn Device,
        now: Nanos,
        deadline: &mut Option<Nanos>,
        mut settled: impl FnMut(ZoneIndex, Result<(), DeviceError>),
    ) {
        for zone in self.take(&self.unsettled) {
            match device.settle(now, zone) {
                Settled::Yes => settled(zone, Ok(())),
                Settled::Never(error) => settled(zone, Err(error)),
                Settled::NotYet(due) => {
                    *deadline = earliest(*deadline, due);
                    self.add(&self.unsettled, zone);
                }
            }
        }
    }

    /// Asks the device about writes to conventional zones; calls `settled` for each with an answer,
    /// with its error.
    pub(super) fn ask_about_writes(
        &self,
        device: &dyn Device,
        now: Nanos,
        deadline: &mut Option<Nanos>,
        mut settled: impl FnMut(Box<PendingRequest>, DeviceError),
    ) {
        for (zone, pending) in self.take(&self.timed_out) {
            match self.error_of(zone, device.settle(now, zone)) {
                Ok(error) => settled(pending, error),
                Err(due) => {
                    *deadline = earliest(*deadline, due);
                    self.add(&self.timed_out, (zone, pending));
                }
            }
        }
    }

    /// Calls `again` for each zone without a slot that is worth a retry. The flag is true if the
    /// retry counts as a round, since nothing else can end the wait.
    pub(super) fn try_again(&self, plugs: &Plugs, mut again: impl FnMut(ZoneIndex, bool)) {
        let closed = self.closed.swap(false, Ordering::AcqRel);
        let without_slot = self.take(&self.without_slot);
        let waiting_zones: Vec<ZoneIndex> = without_slot.iter().map(|s| s.zone).collect();
        for mut waiting in without_slot {
            let holders = waiting.holders.get_or_insert_with(|| holders(plugs, waiting.zone));
            let doing = if closed { Holders::Freed } else { doing(plugs, holders, &waiting_zones) };
            match doing {
                Holders::Busy => self.add(&self.without_slot, waiting),
                _ => again(waiting.zone, doing == Holders::Idle),
            }
        }
    }
}

/// Zones that may hold the slot that `zone` lacks.
fn holders(plugs: &Plugs, zone: ZoneIndex) -> Vec<ZoneIndex> {
    let is_partial = |&z: &ZoneIndex| {
        let word = plugs.load(z);
        !word.is_idle() || word.pointer() > 0 && word.pointer() < plugs.capacity_of(z)
    };
    plugs.sequential_zones().filter(|&z| z != zone).filter(is_partial).take(HOLDERS_MAX).collect()
}

fn doing(plugs: &Plugs, holders: &[ZoneIndex], waiting_zones: &[ZoneIndex]) -> Holders {
    let mut doing = Holders::Idle;
    // Zones without a slot are waiting themselves, with nothing in flight.
    for &zone in holders.iter().filter(|z| !waiting_zones.contains(z)) {
        let word = plugs.load(zone);
        // An empty zone with writes that wait for the token of mode `qd1` or for a slot has
        // released nothing: zones that took each other for ended ones would retry forever.
        let ended = word.pointer() == 0 && !word.waits() || word.pointer() >= plugs.capacity_of(zone);
        if word.in_flight() == 0 && !word.frozen() && ended && !word.recovers() {
            return Holders::Freed;
        }
        // A zone that waits for a slot of the budget may be waiting for this zone.
        let moves = word.waits() && !word.recovers() && word.has_slot();
        if word.in_flight() > 0 || word.frozen() || moves {
            doing = Holders::Busy;
        }
    }
    doing
}
