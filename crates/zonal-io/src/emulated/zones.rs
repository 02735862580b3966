//! The zones of an emulated device, changed by many threads.
//!
//! Owns one atomic word a zone and the accounting of open and active zones. Owns no data, no queue and no completion.
//! What may happen is decided by [`zonal_core::device`]; this module makes it happen exactly once.
//!
//! # The word
//! Bits 0 to 35 are the zone's state as [`ZoneState::to_bits`] packs it. Bit 36, *turn*, changes with every positional
//! write that has to be alone: such a write is in flight while the bit differs from the zone's *answered*, a word that
//! the write sets to it when its answer is out. Only that write changes it, without a locked operation. It is a word and
//! no byte because writes of neighbouring zones must not share its cache line.
//! The rest is a *generation*, which changes whenever the zone loses its data: a write that began before a reset must
//! not move the pointer after it.
//!
//! # Two ways to change it
//! A change that keeps the condition is a compare-exchange. If limits are set, a change of condition is made while
//! holding `resources`, still by compare-exchange, because pointers move without that lock. Conditions then stand still
//! under the lock, so a zone closed to make room for another is counted under the condition that it really left.
//!
//! What takes data away also lowers the zone's floor, for the reads that look at nothing else ([`super::floors`]).
//!
//! # Invariants
//! - Turn and answered are changed by the one write in flight, never by anything else, also across a reset.
//! - With limits set and `resources` unlocked, its counters equal the number of zones in each condition.

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

/// Bits of a zone's generation. It wraps, but no write is in flight for the time that half of that takes.
pub(super) const GENERATION_BITS: u32 = u64::BITS - GENERATION_SHIFT;

/// A zone's word, as this module lays it out.
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

    /// The same word with another state.
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

/// What to make of a word.
#[derive(Clone, Copy)]
struct Decision {
    word: Word,
    step: Transition,
}

/// What is asked of a zone. A value and no closure, so that the one hot place where it is decided is compiled in place.
#[derive(Clone, Copy)]
enum Ask {
    /// [`Zones::write_at_once`].
    AtOnce { offset: u32, sectors: u32 },
    /// [`Zones::begin`], or [`Zones::begin_transfer`] if the data takes its time.
    Place { kind: WriteKind, offset: u32, sectors: u32, takes_time: bool },
    /// The end of a write of this generation.
    End { event: ZoneEvent, generation: u32 },
    /// Whatever else happens to a zone.
    Event(ZoneEvent),
}

/// A word's change that has happened.
struct Change {
    before: Word,
    after: Word,
    step: Transition,
}

/// How a write takes its place in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// At the pointer or not at all; while it is in flight another positional write is refused.
    Exclusive,
    /// At the pointer or not at all; several may be in flight, for a device that keeps the order of its queues.
    Pipelined,
    /// Wherever the pointer is; many may be in flight.
    Append,
}

/// The place of a write that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a write that has begun has to end"]
pub struct Placed {
    /// Its zone.
    pub zone: ZoneIndex,
    /// Where it lies, in sectors from the zone's start.
    pub offset: u32,
    /// Its length, in sectors.
    pub sectors: u32,
    /// Generation of the zone's data that it belongs to.
    pub generation: u32,
    /// How it took its place.
    pub kind: WriteKind,
}

/// What a read finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readable {
    /// How many of the sectors hold data; the rest reads as zeroes.
    pub data_sectors: u32,
    /// Generation of the zone's data.
    pub generation: u32,
}

/// What an event has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happened {
    /// The zone's condition or its pointer is another.
    pub has_changed: bool,
    /// The zone has lost its data, and this is the generation of what comes next.
    pub generation: Option<u32>,
}

/// All zones of a device.
pub struct Zones {
    geometry: Geometry,
    personality: Personality,
    words: WordTable,
    floors: Floors,
    /// For each zone the turn of the last positional write whose answer is out.
    answered: WordTable,
    /// Only if something is limited. On a line of its own: the rest of this is read by every command.
    resources: Option<CachePadded<Watched<Resources>>>,
    /// Exchanges that failed.
    retries: Tally,
}

impl Zones {
    /// Zones in the states that `init` gives, conventional ones apart.
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

    /// How the sectors divide.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn load(&self, zone: ZoneIndex) -> Word {
        Word(self.words.word(zone.0).load(Ordering::Acquire))
    }

    /// State of `zone` at this moment. While writes are in flight their sectors are counted as written.
    #[inline]
    pub fn state(&self, zone: ZoneIndex) -> ZoneState {
        self.load(zone).state()
    }

    /// What a read of `sectors` from `offset` finds.
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

    /// [`Zones::readable`] for what does not lie below `floor`.
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

    /// Whether a positional write that has to be alone is in flight, for a word that was loaded before.
    #[inline]
    fn is_busy(&self, zone: ZoneIndex, word: Word) -> bool {
        self.answered.word(zone.0).load(Ordering::Acquire) != u64::from(word.turn())
    }

    /// A write that is over as soon as it has its place: it moves no data and no caller waits for its completion.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    #[inline]
    pub fn write_at_once(&self, zone: ZoneIndex, offset: u32, sectors: u32) -> Result<(), ZoneError> {
        self.change(zone, Ask::AtOnce { offset, sectors }).map(|_| ())
    }

    /// Gives a write its place in a sequential zone. `offset` counts for positional writes only.
    ///
    /// From here on its sectors count as written. It has to be followed by [`Zones::end`] and [`Zones::release`].
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

    /// As [`Zones::begin`], for writes whose data takes its time: not even the last one fills the zone. Once the data of
    /// all has arrived, [`ZoneEvent::EndWrite`] does.
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
        let change = self.change(zone, Ask::Place { kind, offset, sectors, takes_time })?;
        let offset = change.step.placed.expect("a write that takes effect has a place");
        Ok(Placed { zone, offset, sectors, generation: change.after.generation(), kind })
    }

    /// The data of `placed` has arrived or has not. Where it has not, the pointer goes back to where it began, unless
    /// another write was placed after it.
    #[inline]
    pub fn end(&self, placed: &Placed, arrived: bool) {
        let event = match (arrived, placed.kind) {
            // Only the last write of a zone changes it by its end.
            (true, WriteKind::Exclusive)
                if placed.offset + placed.sectors < self.geometry.capacity_of(placed.zone) =>
            {
                return;
            }
            (true, WriteKind::Exclusive) => ZoneEvent::EndWrite,
            (true, WriteKind::Pipelined | WriteKind::Append) => return,
            (false, _) => ZoneEvent::FailWrite { offset: placed.offset, sectors: placed.sectors },
        };
        let changed = self.change(placed.zone, Ask::End { event, generation: placed.generation });
        debug_assert!(changed.is_ok(), "the end of a write is never refused");
    }

    /// `placed` is no longer in flight: its completion is out of the device's hands.
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

    /// Carries out a zone command on a sequential zone. If the zone lost its data, returns the generation of what comes
    /// next.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    pub fn manage(&self, zone: ZoneIndex, action: ZoneAction) -> Result<Option<u32>, ZoneError> {
        self.apply(zone, action.event())
    }

    /// Lets `event` happen to a zone. If the zone lost its data, returns the generation of what comes next.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    pub fn apply(&self, zone: ZoneIndex, event: ZoneEvent) -> Result<Option<u32>, ZoneError> {
        Ok(self.happen(zone, event)?.generation)
    }

    /// As [`Zones::apply`], and tells what came of it.
    ///
    /// # Errors
    /// [`ZoneError`]; nothing has changed.
    pub fn happen(&self, zone: ZoneIndex, event: ZoneEvent) -> Result<Happened, ZoneError> {
        let Change { before, after, .. } = self.change(zone, Ask::Event(event))?;
        let generation = (after.generation() != before.generation()).then(|| after.generation());
        Ok(Happened { has_changed: after != before, generation })
    }

    /// Resets every zone that the command for all zones selects, and calls `lost` with each and its new generation.
    /// Zone after zone, not at one instant.
    pub fn reset_all(&self, mut lost: impl FnMut(ZoneIndex, u32)) {
        for zone in (self.geometry.conventional_zones()..self.geometry.zones()).map(ZoneIndex) {
            if !ZoneAction::Reset.selects(self.state(zone).condition) {
                continue;
            }
            // Read-only and offline meanwhile is the only refusal, and is left alone like any such zone.
            if let Ok(Some(generation)) = self.apply(zone, ZoneEvent::Reset) {
                lost(zone, generation);
            }
        }
    }

    /// Descriptors of at most `zones_max` zones, from the zone that holds `sector` on. Each is exact at its own moment.
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

    /// What becomes of a zone's word.
    #[inline(always)]
    fn decide(&self, zone: ZoneIndex, ask: Ask, word: Word) -> Result<Decision, ZoneError> {
        let (capacity, state) = (self.geometry.capacity_of(zone), word.state());
        match ask {
            Ask::AtOnce { offset, sectors } => {
                let step = device::write(capacity, state, offset, sectors)?;
                if self.is_busy(zone, word) {
                    return Err(ZoneError::InvalidWrite);
                }
                Ok(Decision { word: word.with(step.state), step })
            }
            Ask::Place { kind, offset, sectors, takes_time } => {
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
            Ask::End { event, generation } => {
                let step = if word.generation() == generation {
                    device::step(self.personality, capacity, state, event)?
                } else {
                    // Reset meanwhile: what was written is gone, and with it what failed.
                    Transition { state, placed: None, needs: device::Needs::Nothing }
                };
                Ok(Decision { word: word.with(step.state), step })
            }
            Ask::Event(event) => {
                let step = device::step(self.personality, capacity, state, event)?;
                let loses_data =
                    matches!(event, ZoneEvent::Reset | ZoneEvent::SetOffline | ZoneEvent::Offline);
                let next = if loses_data && step.state != state { word.next_generation() } else { word };
                Ok(Decision { word: next.with(step.state), step })
            }
        }
    }

    /// Replaces a zone's word by what is decided about it, or returns the error.
    #[inline(always)]
    fn change(&self, zone: ZoneIndex, ask: Ask) -> Result<Change, ZoneError> {
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
                    // Writes take nothing away.
                    if !matches!(ask, Ask::AtOnce { .. } | Ask::Place { .. }) {
                        self.keep_floor(zone, before, after);
                    }
                    return Ok(Change { before, after, step });
                }
                Err(now) => before = now,
            }
        }
    }

    /// Data that was taken away is not read from now on.
    // Apart, so that the path of writes stays short enough to be compiled in place.
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

    /// [`Zones::change`] for what takes or returns resources.
    #[cold]
    fn change_condition(
        &self,
        zone: ZoneIndex,
        resources: &Watched<Resources>,
        ask: Ask,
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
                // Its pointer moved meanwhile. A victim stays closed, as a drive may do at any time.
                Err(now) => before = now,
            }
        }
    }

    /// Closes an implicitly open zone and returns its new condition. The caller holds `resources`, so the condition
    /// cannot change; the pointer can.
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

    /// How often threads met here.
    pub fn contention(&self) -> Contention {
        let waits = self.resources.as_ref().map_or(0, |r| r.waits());
        Contention { waits, retries: self.retries.sum() }
    }

    /// Compares the counters with the zones, with nothing going on meanwhile. For tests.
    ///
    /// # Errors
    /// What does not match.
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
