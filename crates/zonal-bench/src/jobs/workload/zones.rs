//! Zones as seen by the workers of a run: one shared word per zone, and the set of open zones.
//!
//! Owns the position of the next write of each zone, the number of its writes in flight, and the
//! set of open zones. Owns no payload, no clock and no device: submissions and completions are
//! reported by the caller.
//!
//! # Writers
//! Any number of workers can write to a zone. A positional write gets its place and is submitted
//! under the zone's lock, a bit of its word. Places are therefore assigned in the order of
//! submission, which the write path preserves. The lock is released after submission, since further
//! ordering is the write path's job. Without a write path that orders ([`Ordering::OneInFlight`]),
//! a second write waits until the first has completed. Appends are placed by the device, so they
//! only reserve room and need no lock.
//!
//! This is the minimum that writes need. Workers that follow fio's rule
//! ([`HostRules`](super::HostRules)) also own a zone until all of their I/O there has completed.
//!
//! A reset takes the same lock, waits for the zone's writes in flight, and holds the lock until it
//! has completed.
//!
//! # Invariants
//! - The pointer never exceeds the capacity. It decreases only by a reset, with the lock held and
//!   nothing in flight.
//! - With a limit, a zone is written only while it is in the open set, and the set never exceeds
//!   the limit.
//! - Room is counted when it is claimed, so the device's write pointer never exceeds this one.

use super::holds::Holds;
use crate::jobs::plan::{Opener, Ordering, ZonesOptions};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering as Memory};
use zonal_core::{Geometry, ZoneCondition, ZoneDescriptor, ZoneIndex};
use zonal_io::sync::{Mutex, WordTable};

const POINTER: u64 = 0xFFFF_FFFF;
const IN_FLIGHT_ONE: u64 = 1 << 32;
const IN_FLIGHT: u64 = 0x00FF_FFFF << 32;
/// In the open set.
const OPEN: u64 = 1 << 56;
/// A worker is placing a write, or resetting or finishing the zone.
const LOCKED: u64 = 1 << 57;
/// Not writable: read-only or offline.
const DEAD: u64 = 1 << 58;
/// Not readable either.
const OFFLINE: u64 = 1 << 59;

/// Number of times a locked zone is polled before giving up for now. A submission takes tens of
/// nanoseconds.
const SPINS_MAX: u32 = 64;

/// Parameters with which a worker claims room in zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claimant {
    /// Sectors per write; with random sizes, the smallest.
    pub sectors: u32,
    /// True if no other worker writes to its zones, so the words need no atomic read-modify-write
    /// operations.
    pub is_exclusive: bool,
}

/// A zone of the open set.
#[derive(Clone, Copy)]
struct Open {
    zone: u32,
    /// Worker that opened it.
    worker: u32,
}

/// Result of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Offset of the write in sectors from the start of the zone. For appends, it only says that
    /// there is room.
    At(u32),
    /// Another worker is placing a write or resets the zone, or a write in flight has to complete
    /// first.
    Busy,
    /// The zone is not open and the limit is reached.
    NotOpen,
    /// Writes in flight fill the zone, which will then leave the open set.
    Filling,
    /// No room for a block.
    Full,
    /// The zone takes no writes.
    Dead,
}

/// Result of locking a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locking {
    /// The caller has the lock.
    Locked,
    /// Another worker has the lock.
    Taken,
}

/// All zones of a device, shared by the workers of a run.
pub struct Zones {
    geometry: Geometry,
    ordering: Ordering,
    words: WordTable,
    /// Capacity of all sequential zones but the last, which may be smaller.
    capacity: u32,
    last: ZoneIndex,
    last_capacity: u32,
    open_max: u32,
    /// [`OPEN`] if there is a limit, otherwise 0.
    has_to_be_open: u64,
    open: Mutex<Vec<Open>>,
    counts_written: bool,
    written: AtomicU64,
    /// Writes left until the next reset by `zone_reset_frequency`.
    countdown: AtomicU32,
    /// Largest write of the run.
    write_sectors_max: u32,
    /// Running workers that do not wait for a zone.
    runnable: AtomicU32,
    /// Number of times each zone lost its data, for verification.
    generations: Option<Box<[AtomicU32]>>,
    /// Owners of the zones, if workers follow fio's rule.
    holds: Option<Holds>,
}

impl Zones {
    /// Creates zones in the state of `descriptors`, none of them in the open set.
    pub fn new(geometry: Geometry, descriptors: &[ZoneDescriptor], options: ZonesOptions) -> Zones {
        let words = WordTable::new(geometry.zones());
        for zone in descriptors {
            words.word(zone.zone.0).store(word_of(&geometry, zone), Memory::Relaxed);
        }
        let generations = || (0..geometry.zones()).map(|_| AtomicU32::new(0)).collect();
        let last = ZoneIndex(geometry.zones() - 1);
        Zones {
            capacity: geometry.zone_capacity().0 as u32,
            last,
            last_capacity: geometry.capacity_of(last),
            geometry,
            ordering: options.ordering,
            words,
            open_max: options.open_max,
            has_to_be_open: if options.open_max == 0 { 0 } else { OPEN },
            open: Mutex::new(Vec::with_capacity(options.open_max as usize)),
            counts_written: options.counts_written,
            written: AtomicU64::new(0),
            countdown: AtomicU32::new(0),
            write_sectors_max: options.write_sectors_max,
            runnable: AtomicU32::new(0),
            generations: options.counts_generations.then(generations),
            holds: options.keeps_holds.then(|| Holds::new(geometry.zones())),
        }
    }

    /// Geometry of the device.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Ordering of the writes of a zone.
    #[inline]
    pub fn ordering(&self) -> Ordering {
        self.ordering
    }

    /// Maximum number of open zones; 0 is no limit.
    #[inline]
    pub fn open_max(&self) -> u32 {
        self.open_max
    }

    /// Capacity of a sequential zone.
    #[inline]
    fn capacity(&self, zone: ZoneIndex) -> u32 {
        if zone == self.last { self.last_capacity } else { self.capacity }
    }

    #[inline]
    fn load(&self, zone: ZoneIndex) -> u64 {
        self.words.word(zone.0).load(Memory::Acquire)
    }

    /// Sectors of `zone` up to the end of the last placed write.
    #[inline]
    pub fn pointer(&self, zone: ZoneIndex) -> u32 {
        (self.load(zone) & POINTER) as u32
    }

    /// Readable sectors of `zone`, excluding those that writes in flight may still have to fill.
    /// Conventional zones are readable throughout, offline ones not at all.
    #[inline]
    pub fn readable(&self, zone: ZoneIndex) -> u32 {
        if self.geometry.is_conventional(zone) {
            return self.geometry.capacity_of(zone);
        }
        let word = self.load(zone);
        if word & OFFLINE != 0 {
            return 0;
        }
        let in_flight = (word & IN_FLIGHT) / IN_FLIGHT_ONE;
        (word & POINTER).saturating_sub(in_flight * u64::from(self.write_sectors_max)) as u32
    }

    /// True if `zone` is not readable.
    #[inline]
    pub fn is_offline(&self, zone: ZoneIndex) -> bool {
        self.load(zone) & OFFLINE != 0
    }

    /// Number of times `zone` lost its data; 0 if the run does not count them.
    #[inline]
    pub fn generation(&self, zone: ZoneIndex) -> u32 {
        self.generations.as_ref().map_or(0, |g| g[zone.0 as usize].load(Memory::Acquire))
    }

    /// Owners of the zones.
    pub(super) fn holds(&self) -> Option<&Holds> {
        self.holds.as_ref()
    }

    /// Owner of `zone` under fio's rule.
    pub fn owner(&self, zone: ZoneIndex) -> Option<u32> {
        self.holds.as_ref()?.owner(zone)
    }

    /// True if `worker` waits for `zone` under fio's rule and can have it now.
    pub fn is_next(&self, zone: ZoneIndex, worker: u32) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.is_next(zone, worker))
    }

    /// Writes of `zone` in flight.
    pub fn in_flight(&self, zone: ZoneIndex) -> u32 {
        ((self.load(zone) & IN_FLIGHT) / IN_FLIGHT_ONE) as u32
    }

    /// Claims room for one block of `claimant` in a sequential zone, and the zone's lock if the
    /// order of submission matters.
    ///
    /// After [`Claim::At`], the caller has to call [`Zones::submitted`] and [`Zones::ended`].
    pub fn claim(&self, zone: ZoneIndex, claimant: Claimant) -> Claim {
        self.claim_at_once(zone, claimant).map_or_else(|| self.claim_slow(zone, claimant), Claim::At)
    }

    /// Fast path of [`Zones::claim`]. `None` if the claim has to take the slow path.
    #[inline(always)]
    pub(super) fn claim_at_once(&self, zone: ZoneIndex, claimant: Claimant) -> Option<u32> {
        let shared = self.words.word(zone.0);
        let word = shared.load(Memory::Acquire);
        if !self.takes(zone, word, claimant) {
            return None;
        }
        exchange(shared, word, word + self.claimed(claimant), claimant.is_exclusive).ok()?;
        self.count_written(claimant.sectors);
        Some((word & POINTER) as u32)
    }

    #[inline(never)]
    fn claim_slow(&self, zone: ZoneIndex, claimant: Claimant) -> Claim {
        let shared = self.words.word(zone.0);
        let mut spins = 0;
        let mut word = shared.load(Memory::Acquire);
        loop {
            if let Some(claim) = self.judge(zone, word, claimant) {
                if word & LOCKED == 0 || spins == SPINS_MAX {
                    return claim;
                }
                spins += 1;
                std::hint::spin_loop();
                word = shared.load(Memory::Acquire);
                continue;
            }
            match exchange(shared, word, word + self.claimed(claimant), claimant.is_exclusive) {
                Ok(()) => {
                    self.count_written(claimant.sectors);
                    return Claim::At((word & POINTER) as u32);
                }
                Err(seen) => word = seen,
            }
        }
    }

    /// As [`Zones::claim`], for as many whole blocks up to `wanted` sectors as fit. Also returns
    /// the number of sectors.
    pub fn claim_up_to(&self, zone: ZoneIndex, claimant: Claimant, wanted: u32) -> (Claim, u32) {
        loop {
            let left = self.capacity(zone).saturating_sub(self.pointer(zone));
            let sectors = wanted.min(left / claimant.sectors * claimant.sectors).max(claimant.sectors);
            match self.claim(zone, Claimant { sectors, ..claimant }) {
                // Another worker took some of the room in between. This ends, since the pointer
                // only grows unless the zone is reset.
                Claim::Full if sectors > claimant.sectors => {}
                claim => return (claim, sectors),
            }
        }
    }

    /// True if a zone with this word takes a write now: it has room, is not locked, and is open if
    /// required.
    #[inline(always)]
    fn takes(&self, zone: ZoneIndex, word: u64, claimant: Claimant) -> bool {
        let has_room = (word & POINTER) + u64::from(claimant.sectors) <= u64::from(self.capacity(zone));
        let wanted = word & (LOCKED | DEAD | self.has_to_be_open) == self.has_to_be_open;
        has_room && wanted && (self.ordering != Ordering::OneInFlight || word & IN_FLIGHT == 0)
    }

    /// Returns the reason why a zone with this word does not take a write now; `None` if it does.
    fn judge(&self, zone: ZoneIndex, word: u64, claimant: Claimant) -> Option<Claim> {
        if self.takes(zone, word, claimant) {
            return None;
        }
        let left = u64::from(self.capacity(zone)).saturating_sub(word & POINTER);
        let has_room = left >= u64::from(claimant.sectors);
        Some(match word {
            w if w & DEAD != 0 => Claim::Dead,
            w if w & LOCKED != 0 => Claim::Busy,
            w if w & self.has_to_be_open != self.has_to_be_open => Claim::NotOpen,
            w if self.open_max != 0 && left == 0 && w & IN_FLIGHT != 0 => Claim::Filling,
            _ if !has_room => Claim::Full,
            _ => Claim::Busy,
        })
    }

    /// Returns the amount that a claim adds to a word.
    #[inline]
    fn claimed(&self, claimant: Claimant) -> u64 {
        let locks = self.ordering == Ordering::BySubmission && !claimant.is_exclusive;
        u64::from(claimant.sectors) + IN_FLIGHT_ONE + if locks { LOCKED } else { 0 }
    }

    #[inline]
    fn change(&self, zone: ZoneIndex, is_exclusive: bool, change: impl Fn(u64) -> u64) -> u64 {
        let shared = self.words.word(zone.0);
        let mut old = shared.load(Memory::Acquire);
        loop {
            match exchange(shared, old, change(old), is_exclusive) {
                Ok(()) => return old,
                Err(seen) => old = seen,
            }
        }
    }

    #[inline]
    fn count_written(&self, sectors: u32) {
        if self.counts_written {
            self.written.fetch_add(u64::from(sectors), Memory::Relaxed);
        }
    }

    /// Releases the lock after the claimed write was submitted.
    #[inline]
    pub fn submitted(&self, zone: ZoneIndex, claimant: Claimant) {
        if self.ordering == Ordering::BySubmission && !claimant.is_exclusive {
            self.words.word(zone.0).fetch_and(!LOCKED, Memory::AcqRel);
        }
    }

    /// Records the completion of the claimed write. A zone that is now full leaves the open set.
    #[inline]
    pub fn ended(&self, zone: ZoneIndex, claimant: Claimant) {
        let shared = self.words.word(zone.0);
        let next = if claimant.is_exclusive {
            let word = shared.load(Memory::Acquire) - IN_FLIGHT_ONE;
            shared.store(word, Memory::Release);
            word
        } else {
            shared.fetch_sub(IN_FLIGHT_ONE, Memory::AcqRel) - IN_FLIGHT_ONE
        };
        if next & OPEN != 0 && next & IN_FLIGHT == 0 && (next & POINTER) as u32 >= self.capacity(zone) {
            self.close_if_full(zone, claimant.is_exclusive);
        }
    }

    /// Adds `zone` to the open set, if there is a limit and it is not yet a member. True if the
    /// zone is open now.
    pub fn open(&self, zone: ZoneIndex, opener: Opener) -> bool {
        if self.open_max == 0 {
            return true;
        }
        let mut open = self.open.lock();
        if open.iter().any(|entry| entry.zone == zone.0) {
            return true;
        }
        if !self.may_add_open(&open, opener) {
            return false;
        }
        open.push(Open { zone: zone.0, worker: opener.worker });
        self.change(zone, opener.is_exclusive, |w| w | OPEN);
        true
    }

    /// True if a worker may open another zone.
    pub fn may_open(&self, opener: Opener) -> bool {
        self.open_max == 0 || self.may_add_open(&self.open.lock(), opener)
    }

    fn may_add_open(&self, open: &[Open], opener: Opener) -> bool {
        let own = || open.iter().filter(|entry| entry.worker == opener.worker).count();
        open.len() < self.open_max as usize && (opener.max == 0 || own() < opener.max as usize)
    }

    /// Removes `zone` from the open set if it is still full and has nothing in flight. It may have
    /// been reset meanwhile.
    #[cold]
    fn close_if_full(&self, zone: ZoneIndex, is_exclusive: bool) {
        let mut open = self.open.lock();
        let capacity = u64::from(self.capacity(zone));
        let is_over = |w: u64| w & OPEN != 0 && w & POINTER >= capacity && w & IN_FLIGHT == 0;
        let old = self.change(zone, is_exclusive, |w| if is_over(w) { w & !OPEN } else { w });
        if is_over(old) {
            open.retain(|entry| entry.zone != zone.0);
        }
    }

    /// Number of open zones.
    pub fn open_zones(&self) -> usize {
        self.open.lock().len()
    }

    /// Finds the first zone of the open set that lies in `zones` and satisfies `wanted`. The search
    /// starts at index `share(number of open zones)` of the set.
    pub fn find_open(
        &self,
        zones: &Range<u32>,
        share: impl Fn(usize) -> usize,
        wanted: impl Fn(ZoneIndex) -> bool,
    ) -> Option<ZoneIndex> {
        let open = self.open.lock();
        if open.is_empty() {
            return None;
        }
        let (before, after) = open.split_at(share(open.len()).min(open.len() - 1));
        let mut from_share = after.iter().chain(before).map(|entry| ZoneIndex(entry.zone));
        from_share.find(|&z| zones.contains(&z.0) && wanted(z))
    }

    /// True if writes in flight fill `zone`.
    pub fn is_filling(&self, zone: ZoneIndex) -> bool {
        let word = self.load(zone);
        (word & POINTER) as u32 >= self.capacity(zone) && word & IN_FLIGHT != 0
    }

    /// True if `zone` is partly written and has less than `sectors` left.
    pub fn has_remainder(&self, zone: ZoneIndex, sectors: u32) -> bool {
        let left = self.capacity(zone).saturating_sub(self.pointer(zone));
        left > 0 && left < sectors
    }

    /// True if `zone` is in the open set.
    pub fn is_open(&self, zone: ZoneIndex) -> bool {
        self.load(zone) & OPEN != 0
    }

    /// True if `zone` takes writes of `sectors`, now or after a reset.
    pub fn can_take(&self, zone: ZoneIndex, sectors: u32, room: Room) -> bool {
        let word = self.load(zone);
        let left = self.capacity(zone).saturating_sub((word & POINTER) as u32);
        word & DEAD == 0 && (room == Room::AfterReset || left >= sectors)
    }

    /// Locks a zone for a reset or finish.
    pub fn lock(&self, zone: ZoneIndex, is_exclusive: bool) -> Locking {
        let old = self.change(zone, is_exclusive, |w| w | LOCKED);
        if old & LOCKED == 0 { Locking::Locked } else { Locking::Taken }
    }

    /// Unlocks a zone that was not changed.
    pub fn unlock(&self, zone: ZoneIndex, is_exclusive: bool) {
        self.change(zone, is_exclusive, |w| w & !LOCKED);
    }

    /// True if a zone has no writes in flight.
    pub fn is_quiet(&self, zone: ZoneIndex) -> bool {
        self.load(zone) & IN_FLIGHT == 0
    }

    /// Announces a reset of the zone, which is locked and has nothing in flight. From now on its
    /// data may be lost, even if the reset fails.
    pub fn will_be_reset(&self, zone: ZoneIndex) {
        if let Some(generations) = &self.generations {
            generations[zone.0 as usize].fetch_add(1, Memory::AcqRel);
        }
    }

    /// Records that the zone, locked and with nothing in flight, was reset and is empty. It stays
    /// in the open set if it was a member.
    pub fn was_reset(&self, zone: ZoneIndex, is_exclusive: bool) {
        let old = self.change(zone, is_exclusive, |w| w & !(LOCKED | POINTER));
        if self.counts_written {
            self.written.fetch_sub(old & POINTER, Memory::Relaxed);
        }
    }

    /// Records that the zone, locked and with nothing in flight, was finished. It is full and no
    /// longer open.
    pub fn was_finished(&self, zone: ZoneIndex, is_exclusive: bool) {
        let capacity = u64::from(self.capacity(zone));
        let old = self.change(zone, is_exclusive, |w| (w & !(LOCKED | POINTER)) | capacity);
        self.count_written((capacity - (old & POINTER)) as u32);
        self.close_if_full(zone, is_exclusive);
    }

    /// Sectors written in sequential zones; 0 if the run does not count them.
    pub fn written(&self) -> u64 {
        self.written.load(Memory::Relaxed)
    }

    /// Sets [`Zones::written`] to the number of sectors written in the zones of `ranges`.
    pub fn recount(&self, ranges: impl Iterator<Item = Range<u32>>) {
        // Ranges overlap: many jobs use the whole drive, and drives have many zones.
        let mut ranges: Vec<Range<u32>> = ranges.collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut counted, mut written) = (self.geometry.conventional_zones(), 0);
        for range in ranges {
            let new = counted.max(range.start)..range.end;
            written += new.map(|zone| u64::from(self.pointer(ZoneIndex(zone)))).sum::<u64>();
            counted = counted.max(range.end);
        }
        self.written.store(written, Memory::Relaxed);
    }

    /// Counts a write towards the next reset, which is due every `every` writes.
    pub fn reset_is_due(&self, every: u32) -> bool {
        let every = every.max(1);
        let step = |left: u32| if left == 0 || left > every { every - 1 } else { left - 1 };
        let (set, get) = (Memory::Relaxed, Memory::Relaxed);
        let before = self.countdown.fetch_update(set, get, |left| Some(step(left)));
        before.is_ok_and(|before| step(before) == 0)
    }

    /// Restarts the count of [`Zones::reset_is_due`].
    pub fn restart_countdown(&self) {
        self.countdown.store(0, Memory::Relaxed);
    }

    /// Counts `workers` more workers as runnable: they start, or continue after waiting for a zone.
    pub fn add_runnable(&self, workers: u32) {
        self.runnable.fetch_add(workers, Memory::AcqRel);
    }

    /// Counts one worker less as runnable: it ended, or waits for a zone. True if others are still
    /// runnable.
    pub fn remove_runnable(&self) -> bool {
        self.runnable.fetch_sub(1, Memory::AcqRel) > 1
    }

    /// True if any worker runs without waiting for a zone.
    pub fn any_runnable(&self) -> bool {
        self.runnable.load(Memory::Acquire) > 0
    }

    /// Updates a zone from its descriptor. Called between rounds, when nothing is in flight.
    pub fn refresh(&self, described: &ZoneDescriptor) {
        let zone = described.zone;
        if self.geometry.is_conventional(zone) {
            return;
        }
        let word = word_of(&self.geometry, described);
        self.change(zone, false, |w| w & OPEN | word);
        self.close_if_full(zone, false);
    }
}

/// Replaces a word unless another worker was faster. A worker alone on its zones needs no atomic
/// compare-exchange.
#[inline]
fn exchange(word: &AtomicU64, old: u64, new: u64, is_exclusive: bool) -> Result<(), u64> {
    if is_exclusive {
        word.store(new, Memory::Release);
        return Ok(());
    }
    word.compare_exchange_weak(old, new, Memory::AcqRel, Memory::Acquire).map(|_| ())
}

/// Condition for a zone to have room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// In its present state.
    Now,
    /// After a reset.
    AfterReset,
}

fn word_of(geometry: &Geometry, zone: &ZoneDescriptor) -> u64 {
    let capacity = u64::from(geometry.capacity_of(zone.zone));
    match zone.condition {
        ZoneCondition::NotWp | ZoneCondition::Full => capacity,
        ZoneCondition::ReadOnly => DEAD | zone.write_pointer.map_or(0, |p| p.0 - zone.start.0),
        ZoneCondition::Offline => DEAD | OFFLINE,
        _ => zone.write_pointer.map_or(0, |p| p.0.saturating_sub(zone.start.0)).min(capacity),
    }
}
