//! Zones of an emulated device, updated concurrently.
//!
//! Owns one atomic word per zone, and the accounting of open and active zones. Owns no data, no
//! queue and no completion. [`zonal_core::device`] decides which transitions are valid; this module
//! applies each exactly once.
//!
//! # The word
//! Bits 0 to 35 are the zone's state as packed by [`ZoneState::to_bits`]. Bit 36, *turn*, is
//! toggled by every exclusive positional write. Such a write is in flight while the bit differs
//! from the zone's *answered* word, which the write sets to the same value when it completes. Only
//! that write changes it, so no atomic read-modify-write is needed. It is a word rather than a byte
//! so that writes of neighbouring zones do not share a cache line. The remaining bits are a
//! *generation*, which changes whenever the zone loses its data: a write that began before a reset
//! must not move the write pointer after it.
//!
//! # Two ways of updating it
//! A change that keeps the condition is a compare-exchange. If limits are set, a change of
//! condition is made while holding `resources`, still by compare-exchange, because write pointers
//! move without that lock. Conditions then cannot change under the lock, so a zone closed to make
//! room for another is accounted under its actual previous condition.
//!
//! Removing data also lowers the zone's floor, for reads that check nothing else
//! ([`super::floors`]).
//!
//! # Invariants
//! - Turn and answered are changed only by the one write in flight, also across a reset.
//! - With limits set and `resources` unlocked, its counters equal the number of zones in each
//!   condition.

use super::floors::{Floor, Floors};
use crate::device::Contention;
use crate::sync::{CachePadded, Ordering, Tally, Watched, WordTable};
use zonal_core::device::{self, Limits, Resources, Transition, ZoneAction, ZoneEvent, ZoneState};
use zonal_core::{
    DeviceError, Geometry, Personality, Sector, ZoneCondition, ZoneDescriptor, ZoneError, ZoneIndex,
};

const TURN: u64 = 1 << ZoneState::BITS;
const GENERATION_ONE: u64 = TURN << 1;
const GENERATION_SHIFT: u32 = GENERATION_ONE.trailing_zeros();

/// Bits of a zone's generation. It wraps, but no write is in flight long enough for half of all
/// values to pass.
pub(super) const GENERATION_BITS: u32 = u64::BITS - GENERATION_SHIFT;

/// Zone word in the layout of this module.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    #[inline]
    fn state(self) -> ZoneState {
        ZoneState::from_word(self.0)
    }

    #[inline]
    fn turn(self) -> bool {
        self.0 & TURN != 0
    }

    #[inline]
    fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    /// Replaces the state, keeping turn and generation.
    #[inline]
    fn with(self, state: ZoneState) -> Word {
        Word(self.0 & !(TURN - 1) | state.to_bits())
    }

    #[inline]
    fn next_turn(self) -> Word {
        Word(self.0 ^ TURN)
    }

    #[inline]
    fn next_generation(self) -> Word {
        Word(self.0.wrapping_add(GENERATION_ONE))
    }
}

/// New word and the transition that leads to it.
#[derive(Clone, Copy)]
struct Decision {
    word: Word,
    step: Transition,
}

/// Requested change of a zone. A value rather than a closure, so that the hot path that decides
/// about it is inlined once.
#[derive(Clone, Copy)]
enum ChangeRequest {
    /// [`Zones::write_at_once`].
    AtOnce { offset: u32, sectors: u32 },
    /// [`Zones::begin`], or [`Zones::begin_transfer`] if the transfer takes time.
    Place { kind: WriteKind, offset: u32, sectors: u32, takes_time: bool },
    /// End of a write of this generation.
    End { event: ZoneEvent, generation: u32 },
    /// Any other event.
    Event(ZoneEvent),
}

/// Applied change of a word.
struct Change {
    before: Word,
    after: Word,
    step: Transition,
}

/// Kind of a write, which determines its place in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// At the write pointer or refused; another positional write is refused while it is in flight.
    Exclusive,
    /// At the write pointer or refused; several may be in flight, on a device that preserves the
    /// order of its queues.
    Pipelined,
    /// At the present write pointer, wherever it is; many may be in flight.
    Append,
}

/// Place of a write that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a write that has begun has to end"]
pub struct Placed {
    /// Zone.
    pub zone: ZoneIndex,
    /// Start, in sectors from the zone's start.
    pub offset: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// Generation of the zone's data.
    pub generation: u32,
    /// Kind of the write.
    pub kind: WriteKind,
}

/// Extent of the data found by a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readable {
    /// Number of sectors with data; the rest reads as zeroes.
    pub data_sectors: u32,
    /// Generation of the zone's data.
    pub generation: u32,
}

/// Outcome of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventOutcome {
    /// The zone's condition or write pointer has changed.
    pub has_changed: bool,
    /// New generation, if the zone has lost its data.
    pub generation: Option<u32>,
}

/// All zones of a device.
pub struct Zones {
    geometry: Geometry,
    personality: Personality,
    words: WordTable,
    floors: Floors,
    /// For each zone, the turn of the last exclusive write that has completed.
    answered: WordTable,
    /// Only if there are limits. On a cache line of its own, because every command reads the other
    /// fields.
    resources: Option<CachePadded<Watched<Resources>>>,
    /// Failed compare-exchanges.
    retries: Tally,
}

impl Zones {
    /// Creates zones in the states returned by `init`, except for conventional ones.
    pub fn new(
        geometry: Geometry,
        personality: Personality,
        limits: Limits,
        mut init: impl FnMut(ZoneIndex) -> ZoneState,
    ) -> Zones {
        let mut resources = Resources::new(limits);
        let words = WordTable::new(geometry.zones());
        for zone in (0..geometry.zones()).map(ZoneIndex) {
            let state = if geometry.is_conventional(zone) { ZoneState::CONVENTIONAL } else { init(zone) };
            resources.moved(zone, ZoneCondition::Empty, state.condition);
            words.word(zone.0).store(state.to_bits(), Ordering::Relaxed);
        }
        let resources = (!limits.is_none()).then(|| CachePadded::new(Watched::new(resources)));
        let answered = WordTable::new(geometry.zones());
        let floors = Floors::new(geometry.zones());
        Zones { geometry, personality, words, floors, answered, resources, retries: Tally::default() }
    }

    /// Returns the geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn load(&self, zone: ZoneIndex) -> Word {
        Word(self.words.word(zone.0).load(Ordering::Acquire))
    }

    /// Current state of `zone`. Sectors of writes in flight count as written.
    #[inline]
    pub fn state(&self, zone: ZoneIndex) -> ZoneState {
        self.load(zone).state()
    }

    /// Extent of the data in `sectors` sectors from `offset` on.
    ///
    /// # Errors
    /// [`ZoneError::Offline`].
    #[inline]
    pub fn readable(&self, zone: ZoneIndex, offset: u32, sectors: u32) -> Result<Readable, ZoneError> {
        let floor = self.floors.load(zone);
        match floor.readable(offset, sectors) {
            Some(readable) => Ok(readable),
            None => self.readable_above(floor, zone, offset, sectors),
        }
    }

    /// [`Zones::readable`] for sectors that are not all below `floor`.
    #[inline]
    fn readable_above(
        &self,
        floor: Floor,
        zone: ZoneIndex,
        offset: u32,
        sectors: u32,
    ) -> Result<Readable, ZoneError> {
        let word = self.load(zone);
        let (state, generation) = (word.state(), word.generation());
        let data_sectors = state.readable(offset, sectors)?;
        self.floors.raise(zone, floor, generation, state.written);
        Ok(Readable { data_sectors, generation })
    }

    /// True if an exclusive positional write is in flight, for a word loaded before.
    #[inline]
    fn is_busy(&self, zone: ZoneIndex, word: Word) -> bool {
        self.answered.word(zone.0).load(Ordering::Acquire) != u64::from(word.turn())
    }

    /// Performs a write that completes immediately, because it moves no data and nothing waits for
    /// it.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    #[inline]
    pub fn write_at_once(&self, zone: ZoneIndex, offset: u32, sectors: u32) -> Result<(), ZoneError> {
        self.change(zone, ChangeRequest::AtOnce { offset, sectors }).map(|_| ())
    }

    /// Assigns a write its place in a sequential zone. `offset` is ignored for appends.
    ///
    /// From then on its sectors count as written. Has to be followed by [`Zones::end`] and
    /// [`Zones::release`].
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    #[inline]
    pub fn begin(
        &self,
        kind: WriteKind,
        zone: ZoneIndex,
        offset: u32,
        sectors: u32,
    ) -> Result<Placed, ZoneError> {
        self.place(kind, zone, offset, sectors, false)
    }

    /// Like [`Zones::begin`], for writes with a lengthy transfer. Even the last one does not make
    /// the zone full; [`ZoneEvent::EndWrite`] does, once the data of all has arrived.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    pub fn begin_transfer(
        &self,
        kind: WriteKind,
        zone: ZoneIndex,
        offset: u32,
        sectors: u32,
    ) -> Result<Placed, ZoneError> {
        self.place(kind, zone, offset, sectors, true)
    }

    #[inline(always)]
    fn place(
        &self,
        kind: WriteKind,
        zone: ZoneIndex,
        offset: u32,
        sectors: u32,
        takes_time: bool,
    ) -> Result<Placed, ZoneError> {
        let change = self.change(zone, ChangeRequest::Place { kind, offset, sectors, takes_time })?;
        let offset = change.step.placed.expect("a write that takes effect has a place");
        Ok(Placed { zone, offset, sectors, generation: change.after.generation(), kind })
    }

    /// Ends the transfer of `placed`, of which the first `arrived` sectors have arrived. If these are
    /// not all, the write pointer returns to their end, unless another write was placed behind it.
    #[inline]
    pub fn end(&self, placed: &Placed, arrived: u32) {
        let left = placed.sectors - arrived;
        let event = match (left == 0, placed.kind) {
            // Only the last write of a zone changes its state when it ends.
            (true, WriteKind::Exclusive)
                if placed.offset + placed.sectors < self.geometry.capacity_of(placed.zone) =>
            {
                return;
            }
            (true, WriteKind::Exclusive) => ZoneEvent::EndWrite,
            (true, WriteKind::Pipelined | WriteKind::Append) => return,
            (false, _) => ZoneEvent::FailWrite { offset: placed.offset + arrived, sectors: left },
        };
        let changed = self.change(placed.zone, ChangeRequest::End { event, generation: placed.generation });
        debug_assert!(changed.is_ok(), "the end of a write is never refused");
    }

    /// Ends the flight of `placed`: the device has returned its completion.
    #[inline]
    pub fn release(&self, placed: Placed) {
        if placed.kind == WriteKind::Exclusive {
            let answered = self.answered.word(placed.zone.0);
            debug_assert!(
                self.is_busy(placed.zone, self.load(placed.zone)),
                "zone {} was not busy",
                placed.zone
            );
            answered.store(answered.load(Ordering::Relaxed) ^ 1, Ordering::Release);
        }
    }

    /// Executes a zone command on a sequential zone. If the zone lost its data, returns the new
    /// generation.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    pub fn manage(&self, zone: ZoneIndex, action: ZoneAction) -> Result<Option<u32>, ZoneError> {
        self.apply(zone, action.event())
    }

    /// Applies `event` to a zone. If the zone lost its data, returns the new generation.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    pub fn apply(&self, zone: ZoneIndex, event: ZoneEvent) -> Result<Option<u32>, ZoneError> {
        Ok(self.apply_event(zone, event)?.generation)
    }

    /// Applies `event` to a zone and returns the outcome.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    pub fn apply_event(&self, zone: ZoneIndex, event: ZoneEvent) -> Result<EventOutcome, ZoneError> {
        let Change { before, after, .. } = self.change(zone, ChangeRequest::Event(event))?;
        let generation = (after.generation() != before.generation()).then(|| after.generation());
        Ok(EventOutcome { has_changed: after != before, generation })
    }

    /// Resets all zones that the command for all zones selects, and calls `lost` with each and its
    /// new generation. Zone by zone, not atomically.
    pub fn reset_all(&self, mut lost: impl FnMut(ZoneIndex, u32)) {
        for zone in (self.geometry.conventional_zones()..self.geometry.zones()).map(ZoneIndex) {
            if !ZoneAction::Reset.selects(self.state(zone).condition) {
                continue;
            }
            // The only possible refusal is that the zone became read-only or offline; it is then
            // skipped like any such zone.
            if let Ok(Some(generation)) = self.apply(zone, ZoneEvent::Reset) {
                lost(zone, generation);
            }
        }
    }

    /// Descriptors of at most `zones_max` zones, starting with the one that contains `sector`. Each
    /// is a consistent snapshot, but they are not taken at the same moment.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`].
    pub fn report(&self, sector: Sector, zones_max: u32) -> Result<Box<[ZoneDescriptor]>, DeviceError> {
        if sector.0 >= self.geometry.sectors().0 {
            return Err(DeviceError::OutOfRange);
        }
        let first = self.geometry.zone_of(sector).0;
        let last = first.saturating_add(zones_max).min(self.geometry.zones());
        Ok((first..last).map(|z| self.state(ZoneIndex(z)).describe(&self.geometry, ZoneIndex(z))).collect())
    }

    /// Decides the new value of a zone's word.
    #[inline(always)]
    fn decide(&self, zone: ZoneIndex, ask: ChangeRequest, word: Word) -> Result<Decision, ZoneError> {
        let (capacity, state) = (self.geometry.capacity_of(zone), word.state());
        match ask {
            ChangeRequest::AtOnce { offset, sectors } => {
                let step = device::write(capacity, state, offset, sectors)?;
                if self.is_busy(zone, word) {
                    return Err(ZoneError::InvalidWrite);
                }
                Ok(Decision { word: word.with(step.state), step })
            }
            ChangeRequest::Place { kind, offset, sectors, takes_time } => {
                let is_append = kind == WriteKind::Append;
                let step = if takes_time || kind == WriteKind::Exclusive {
                    let offset = if is_append { state.written } else { offset };
                    device::begin_write(capacity, state, offset, sectors)?
                } else if is_append {
                    device::append(capacity, state, sectors)?
                } else {
                    device::write(capacity, state, offset, sectors)?
                };
                if !is_append && self.is_busy(zone, word) {
                    return Err(ZoneError::InvalidWrite);
                }
                let next = if kind == WriteKind::Exclusive { word.next_turn() } else { word };
                Ok(Decision { word: next.with(step.state), step })
            }
            ChangeRequest::End { event, generation } => {
                let step = if word.generation() == generation {
                    device::step(self.personality, capacity, state, event)?
                } else {
                    // Reset meanwhile: the written data is gone, and so is the failed part.
                    Transition { state, placed: None, needs: device::Needs::Nothing }
                };
                Ok(Decision { word: word.with(step.state), step })
            }
            ChangeRequest::Event(event) => {
                let step = device::step(self.personality, capacity, state, event)?;
                let loses_data =
                    matches!(event, ZoneEvent::Reset | ZoneEvent::SetOffline | ZoneEvent::Offline);
                let next = if loses_data && step.state != state { word.next_generation() } else { word };
                Ok(Decision { word: next.with(step.state), step })
            }
        }
    }

    /// Applies `ask` to a zone's word, or returns the error.
    #[inline(always)]
    fn change(&self, zone: ZoneIndex, ask: ChangeRequest) -> Result<Change, ZoneError> {
        let mut before = self.load(zone);
        loop {
            let Decision { word: after, step } = self.decide(zone, ask, before)?;
            if after == before {
                return Ok(Change { before, after, step });
            }
            if let Some(resources) = &self.resources
                && step.state.condition != before.state().condition
            {
                return self.change_condition(zone, resources, ask);
            }
            match self.exchange(zone, before, after) {
                Ok(()) => {
                    // Writes remove no data.
                    if !matches!(ask, ChangeRequest::AtOnce { .. } | ChangeRequest::Place { .. }) {
                        self.keep_floor(zone, before, after);
                    }
                    return Ok(Change { before, after, step });
                }
                Err(now) => before = now,
            }
        }
    }

    /// Ensures that removed data is not read from now on.
    // Out of line, so that the write path stays short enough to be inlined.
    #[inline(never)]
    fn keep_floor(&self, zone: ZoneIndex, before: Word, after: Word) {
        if after.generation() != before.generation() {
            self.floors.lower(zone, after.generation());
        } else if after.state().written < before.state().written {
            self.floors.freeze(zone, after.generation());
        }
    }

    #[inline]
    fn exchange(&self, zone: ZoneIndex, seen: Word, next: Word) -> Result<(), Word> {
        let word = self.words.word(zone.0);
        match word.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(now) => {
                self.retries.add_one();
                Err(Word(now))
            }
        }
    }

    /// [`Zones::change`] for changes that take or return resources.
    #[cold]
    fn change_condition(
        &self,
        zone: ZoneIndex,
        resources: &Watched<Resources>,
        ask: ChangeRequest,
    ) -> Result<Change, ZoneError> {
        let mut resources = resources.lock();
        let mut before = self.load(zone);
        loop {
            let Decision { word: after, step } = self.decide(zone, ask, before)?;
            if let Some(victim) = resources.admit(step.needs)? {
                let condition = self.evict(victim);
                resources.evicted(victim, condition);
            }
            match self.exchange(zone, before, after) {
                Ok(()) => {
                    self.keep_floor(zone, before, after);
                    resources.moved(zone, before.state().condition, step.state.condition);
                    return Ok(Change { before, after, step });
                }
                // Its write pointer moved meanwhile. A victim stays closed, which a drive may do at
                // any time.
                Err(now) => before = now,
            }
        }
    }

    /// Closes an implicitly open zone and returns its new condition. The caller holds `resources`,
    /// so only the write pointer can change concurrently.
    fn evict(&self, victim: ZoneIndex) -> ZoneCondition {
        let capacity = self.geometry.capacity_of(victim);
        let mut seen = self.load(victim);
        loop {
            let step = device::step(self.personality, capacity, seen.state(), ZoneEvent::ImplicitClose)
                .expect("a victim is implicitly open while resources are locked");
            match self.exchange(victim, seen, seen.with(step.state)) {
                Ok(()) => return step.state.condition,
                Err(now) => seen = now,
            }
        }
    }

    /// Lock waits and failed exchanges.
    pub fn contention(&self) -> Contention {
        let waits = self.resources.as_ref().map_or(0, |r| r.waits());
        Contention { waits, retries: self.retries.sum() }
    }

    /// Compares the counters with the zones while nothing else runs. For tests.
    ///
    /// # Errors
    /// Description of the mismatch.
    pub fn check(&self) -> Result<(), String> {
        for zone in (0..self.geometry.zones()).map(ZoneIndex) {
            let (word, capacity) = (self.load(zone), self.geometry.capacity_of(zone));
            if !self.is_busy(zone, word) && !word.state().is_consistent(capacity) {
                return Err(format!("zone {zone}: {:?}, capacity {capacity}", word.state()));
            }
        }
        let Some(resources) = &self.resources else { return Ok(()) };
        let resources = resources.lock();
        resources.check((0..self.geometry.zones()).map(|z| self.state(ZoneIndex(z)).condition))
    }
}
