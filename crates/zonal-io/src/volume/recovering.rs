//! Zones whose recovery waits for something that only polls can see: that the device settles what timed out, or that a slot is free.
//!
//! # Conventional zones
//! They have no plug, so a write or discard that timed out waits here until the device has settled its zone, and then ends as aborted. Its
//! caller may write to the same place as soon as it has ended, and a late write would overwrite that. If the device cannot settle the
//! zone, the write ends as timed out, and nothing more is changed in the zone.
//!
//! # Zones without a slot
//! A device that has no open or active zone left refuses the first write of another, where no budget is kept or the device
//! counts otherwise. Such a write goes back to the head of its queue and its zone to the list of those without a slot. It is
//! tried again when a zone that was partly written is full or empty, or one was closed, and when none of them has anything
//! under way that could lead to that: then it counts the round, so that a wait which nothing ends is an error.

use super::earliest;
use super::pending::PendingRequest;
use super::plugs::Plugs;
use crate::device::{Device, Settled};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};
use zonal_core::{DeviceError, Nanos, ZoneIndex};

/// See the module.
#[derive(Default)]
pub(super) struct RecoveringZones {
    /// How many there are: the one thing that polls read when there are none.
    len: AtomicUsize,
    /// With commands that timed out and are not settled.
    unsettled: Mutex<Vec<ZoneIndex>>,
    /// Writes to conventional zones that timed out and are not settled.
    timed_out: Mutex<Vec<(ZoneIndex, Box<PendingRequest>)>>,
    /// Conventional zones that the device cannot settle, and its errors.
    left_alone: Mutex<Vec<(ZoneIndex, DeviceError)>>,
    /// There are such zones: the one thing that writes read when there are none.
    has_left_alone: AtomicBool,
    /// Without a slot.
    without_slot: Mutex<Vec<ZoneWithoutSlot>>,
    /// A zone was closed, so a slot may be free.
    closed: AtomicBool,
    /// A zone has come that no poll has looked at.
    fresh: AtomicBool,
}

struct ZoneWithoutSlot {
    zone: ZoneIndex,
    /// Zones that may hold the slots; `None` before the first look.
    holders: Option<Vec<ZoneIndex>>,
}

/// Holders that a zone without a slot looks at. Beyond that a device has in practice no limit.
const HOLDERS_MAX: usize = 4096;

/// What the holders of slots are doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holders {
    /// One has given its slot back.
    Freed,
    /// One has something under way.
    Busy,
    /// Nothing of them will change on its own.
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

    /// `zone` waits until its timed-out commands are settled.
    pub(super) fn settle(&self, zone: ZoneIndex) {
        self.add(&self.unsettled, zone);
        self.fresh.store(true, Ordering::Release);
    }

    /// `pending` timed out in `zone`, a conventional one. Returns it with its error if the device has an answer already.
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

    /// The error of a write that timed out in `zone`, a conventional one, or when to ask again.
    fn error_of(&self, zone: ZoneIndex, answer: Settled) -> Result<DeviceError, Option<Nanos>> {
        match answer {
            Settled::Yes => Ok(DeviceError::Aborted),
            Settled::NotYet(due) => Err(due),
            Settled::Never(error) => {
                self.left_alone.lock().push((zone, error));
                self.has_left_alone.store(true, Ordering::Release);
                Ok(DeviceError::TimedOut)
            }
        }
    }

    /// True if any conventional zone is left alone.
    #[inline]
    pub(super) fn has_left_alone(&self) -> bool {
        self.has_left_alone.load(Ordering::Acquire)
    }

    /// The error of a change of `zone`, a conventional one, if it is left alone.
    pub(super) fn why_left_alone(&self, zone: ZoneIndex) -> Option<DeviceError> {
        self.left_alone.lock().iter().find(|(left, _)| *left == zone).map(|(_, error)| *error)
    }

    /// `zone` waits for a slot.
    pub(super) fn wait_for_slot(&self, zone: ZoneIndex) {
        self.add(&self.without_slot, ZoneWithoutSlot { zone, holders: None });
        self.fresh.store(true, Ordering::Release);
    }

    /// Whether a zone has come that no poll has looked at.
    pub(super) fn are_fresh(&self) -> bool {
        self.len.load(Ordering::Acquire) > 0 && self.fresh.load(Ordering::Acquire)
    }

    /// A zone was closed.
    pub(super) fn zone_closed(&self) {
        if self.len.load(Ordering::Acquire) > 0 {
            self.closed.store(true, Ordering::Release);
        }
    }

    /// Whether there are any: then a poll looks at all of them.
    #[inline]
    pub(super) fn begin_look(&self) -> bool {
        if self.len.load(Ordering::Acquire) == 0 {
            return false;
        }
        self.fresh.store(false, Ordering::Release);
        true
    }

    /// Asks the device about what timed out; `settled` gets each zone for which it has an answer.
    pub(super) fn ask_device(
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

    /// Asks the device about writes to conventional zones; `settled` gets each for which it has an answer, and its error.
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

    /// `again` gets each zone without a slot that may be of use to try again, and whether that counts as a round: nothing else can
    /// end its wait.
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

/// The zones that may hold a slot which `zone` lacks.
fn holders(plugs: &Plugs, zone: ZoneIndex) -> Vec<ZoneIndex> {
    let is_partial = |&z: &ZoneIndex| {
        let word = plugs.load(z);
        !word.is_idle() || word.pointer() > 0 && word.pointer() < plugs.capacity_of(z)
    };
    plugs.sequential_zones().filter(|&z| z != zone).filter(is_partial).take(HOLDERS_MAX).collect()
}

fn doing(plugs: &Plugs, holders: &[ZoneIndex], waiting_zones: &[ZoneIndex]) -> Holders {
    let mut doing = Holders::Idle;
    // Those without a slot wait themselves, with nothing under way.
    for &zone in holders.iter().filter(|z| !waiting_zones.contains(z)) {
        let word = plugs.load(zone);
        // A zone at its start whose writes wait, for the token of mode qd1 or for their own slot, has given none back: zones
        // that took each other for ended ones would try for ever.
        let ended = word.pointer() == 0 && !word.waits() || word.pointer() >= plugs.capacity_of(zone);
        if word.in_flight() == 0 && !word.frozen() && ended && !word.recovers() {
            return Holders::Freed;
        }
        // A zone that waits for a slot of the budget may wait for this very zone.
        let moves = word.waits() && !word.recovers() && word.has_slot();
        if word.in_flight() > 0 || word.frozen() || moves {
            doing = Holders::Busy;
        }
    }
    doing
}
