//! The plug's word: the complete state of an idle or uncontended zone, in 64 bits.
//!
//! ```text
//!  bits   field
//!  0-31   issue-time pointer, in sectors from the zone's start
//! 32-39   writes in flight
//!    40   waits    requests wait: only the holder of the zone's queue may change the word
//!    41   recovers a write failed: the pointer is unknown
//!    42   frozen   a reset or finish is at the device: nothing is issued
//!    43   appends  the writes in flight are native appends
//! 44-45   class    sequential, conventional, read-only, offline
//!    46   quiet    a reset, finish or switch is waiting for the zone: the chain is recalled
//!    47   issuing  a write of a window is being submitted: the next one must not overtake it
//! 48-55   epoch    changes with the write mode, so that decisions made in another mode fail
//!    56   alone    the write in flight excludes all others
//!    57   no slot  the zone may lack an open slot: it must request one before a write
//!    58   parked   writes are or were parked; implies `waits`
//! 59-63   zero
//! ```

use crate::error::RequestError;
use crate::units::ZoneIndex;

const IN_FLIGHT_SHIFT: u32 = 32;
const IN_FLIGHT_ONE: u64 = 1 << IN_FLIGHT_SHIFT;
const WAITS: u64 = 1 << 40;
const RECOVERS: u64 = 1 << 41;
const FROZEN: u64 = 1 << 42;
const APPENDS: u64 = 1 << 43;
const CLASS_SHIFT: u32 = 44;
const WANTS_QUIET: u64 = 1 << 46;
const ISSUING: u64 = 1 << 47;
const EPOCH_SHIFT: u32 = 48;
const ALONE: u64 = 1 << 56;
const NO_SLOT: u64 = 1 << 57;
const PARKED: u64 = 1 << 58;

/// Maximum number of native appends, or of writes in a window, in flight per zone: the largest
/// value of the word's field.
pub const IN_FLIGHT_MAX: u32 = 255;

/// Class of a zone in the write path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ZoneClass {
    /// Sequential and writable, or full, depending on the pointer.
    Sequential = 0,
    /// Conventional. Never plugged.
    Conventional = 1,
    /// Read-only.
    ReadOnly = 2,
    /// Offline.
    Offline = 3,
}

/// Kind of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteKind {
    /// At this offset from the zone's start, in sectors.
    At(u32),
    /// As `At`, but the write takes, or may take, several commands, so it excludes other writes of
    /// its zone.
    Alone(u32),
    /// At the pointer.
    Append,
}

/// Rules of one zone of a device in a write mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The zone.
    pub zone: ZoneIndex,
    /// Writable sectors of the zone.
    pub capacity: u32,
    /// Maximum number of sectors of a merged command. 0: no merging.
    pub merge_sectors_max: u32,
    /// Maximum number of native appends in flight. 0: appends are emulated by writes.
    pub appends_in_flight_max: u32,
    /// Maximum number of other writes in flight, in order of issue. 1: each is alone.
    pub writes_in_flight_max: u32,
}

/// Decision about an arriving write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Issue it now, at this offset, after storing this word.
    Issue(Word, u32),
    /// Queue it.
    Wait,
    /// Refuse it: it can never succeed.
    Refuse(RequestError),
}

/// State of one zone's plug. See the module for the layout.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Word(pub u64);

impl Word {
    /// Word of an idle zone with its pointer at `pointer`.
    pub const fn new(class: ZoneClass, pointer: u32) -> Word {
        Word(pointer as u64 | (class as u64) << CLASS_SHIFT)
    }

    /// Issue-time pointer, in sectors from the zone's start.
    #[inline]
    pub const fn pointer(self) -> u32 {
        self.0 as u32
    }

    /// Number of writes at the device.
    #[inline]
    pub const fn in_flight(self) -> u32 {
        (self.0 >> IN_FLIGHT_SHIFT) as u8 as u32
    }

    /// True if only the holder of the zone's queue may change the word.
    #[inline]
    pub const fn waits(self) -> bool {
        self.0 & WAITS != 0
    }

    /// True if the pointer is unknown because a write failed.
    #[inline]
    pub const fn recovers(self) -> bool {
        self.0 & RECOVERS != 0
    }

    /// True if a reset or finish is at the device.
    #[inline]
    pub const fn frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// True if the writes in flight are native appends.
    #[inline]
    pub const fn appending(self) -> bool {
        self.0 & APPENDS != 0
    }

    /// True if a write of a window is being submitted to the device; see [`Word::has_issued`].
    #[inline]
    pub const fn issuing(self) -> bool {
        self.0 & ISSUING != 0
    }

    /// True if a command is at the device or being submitted to it.
    #[inline]
    pub const fn is_busy(self) -> bool {
        self.0 & (0xFF << IN_FLIGHT_SHIFT | ISSUING) != 0
    }

    /// True if a reset, finish or switch is waiting for the zone to become quiet. No more writes of
    /// a chain are issued.
    #[inline]
    pub const fn wants_quiet(self) -> bool {
        self.0 & WANTS_QUIET != 0
    }

    /// True if a chain may continue; see [`Queue::follow`](super::Queue::follow).
    #[inline]
    pub const fn chain_may_continue(self) -> bool {
        self.0 & (WANTS_QUIET | RECOVERS) == 0
    }

    /// True if the budget allows writes to the zone. Always true without a budget.
    ///
    /// A zone without a slot has nothing in flight.
    #[inline]
    pub const fn has_slot(self) -> bool {
        self.0 & NO_SLOT == 0
    }

    /// True if the zone's [`ParkedWrites`](super::ParkedWrites) must be checked before its queue.
    #[inline]
    pub const fn has_parked(self) -> bool {
        self.0 & PARKED != 0
    }

    /// Class of the zone.
    #[inline]
    pub const fn class(self) -> ZoneClass {
        match (self.0 >> CLASS_SHIFT) & 3 {
            0 => ZoneClass::Sequential,
            1 => ZoneClass::Conventional,
            2 => ZoneClass::ReadOnly,
            _ => ZoneClass::Offline,
        }
    }

    /// True if nothing is in flight and nothing waits.
    pub const fn is_idle(self) -> bool {
        !self.is_busy() && !self.waits()
    }

    /// True if a command could be issued now, judging by the word alone.
    #[inline]
    pub const fn is_issuable(self, rules: &Rules) -> bool {
        self.waits()
            && !self.frozen()
            && (self.appending() || !self.completion_resumes(rules.writes_in_flight_max))
    }

    /// True if a completion in flight will let the zone continue. Otherwise that is up to the next
    /// thread to use the zone.
    #[inline]
    pub const fn completion_resumes(self, writes_in_flight_max: u32) -> bool {
        self.in_flight() >= writes_in_flight_max || self.0 & (ISSUING | ALONE) != 0
    }

    /// Decides about an arriving write of `sectors` in a zone that is not conventional.
    ///
    /// A write that can never fit the zone is refused here. A misplaced write is refused only if
    /// nothing is in flight, because only then the pointer is certain. A write that joins a window
    /// leaves the word
    /// [`Word::issuing`]: no other write joins until [`Word::has_issued`].
    #[inline(always)]
    pub fn admit(self, kind: WriteKind, sectors: u32, rules: &Rules) -> Admission {
        if self.0 & (WAITS | ISSUING | ALONE | NO_SLOT | (3 << CLASS_SHIFT)) != 0 {
            return self.admit_slow(kind, sectors, rules);
        }
        if self.in_flight() != 0 && !self.has_room(kind, rules) {
            return Admission::Wait;
        }
        match self.place(kind, sectors, rules) {
            Ok(at) => Admission::Issue(self.issued_as(kind, sectors, rules), at),
            Err(_) if self.is_unsure() => Admission::Wait,
            Err(e) => Admission::Refuse(e),
        }
    }

    /// True if a write may join those in flight. With nothing in flight, any write may be issued.
    #[inline]
    pub(super) const fn has_room(self, kind: WriteKind, rules: &Rules) -> bool {
        match kind {
            WriteKind::Append if rules.appends_in_flight_max > 0 => {
                self.appending() && self.in_flight() < rules.appends_in_flight_max
            }
            WriteKind::At(_) | WriteKind::Append => {
                !self.appending() && !self.completion_resumes(rules.writes_in_flight_max)
            }
            WriteKind::Alone(_) => false,
        }
    }

    /// True if the pointer may still change because a write in flight may fail. Native appends are
    /// written at whatever the pointer is then.
    #[inline]
    pub(super) const fn is_unsure(self) -> bool {
        self.in_flight() != 0 && !self.appending()
    }

    #[cold]
    fn admit_slow(self, kind: WriteKind, sectors: u32, rules: &Rules) -> Admission {
        let zone = rules.zone;
        match self.class() {
            ZoneClass::ReadOnly => Admission::Refuse(RequestError::ZoneReadOnly { zone }),
            ZoneClass::Offline => Admission::Refuse(RequestError::ZoneOffline { zone }),
            ZoneClass::Conventional => Admission::Refuse(RequestError::Conventional { zone }),
            ZoneClass::Sequential if self.waits() || self.is_busy() => Admission::Wait,
            // A write that is invalid anyway needs no slot in order to be refused.
            ZoneClass::Sequential => {
                self.place(kind, sectors, rules).map_or_else(Admission::Refuse, |_| Admission::Wait)
            }
        }
    }

    /// Offset of a write if issued now, or the error. A full zone is detected before anything
    /// changes.
    #[inline]
    pub(super) fn place(self, kind: WriteKind, sectors: u32, rules: &Rules) -> Result<u32, RequestError> {
        let Rules { zone, capacity, .. } = *rules;
        let pointer = self.pointer();
        let at = match kind {
            WriteKind::At(offset) | WriteKind::Alone(offset) => offset,
            WriteKind::Append => pointer,
        };
        if at == pointer && pointer < capacity && sectors <= capacity - pointer {
            return Ok(at);
        }
        Err(if pointer >= capacity {
            RequestError::ZoneFull { zone }
        } else if at != pointer {
            RequestError::NotAtWritePointer { zone, write_pointer: pointer, offset: at }
        } else {
            RequestError::BeyondCapacity { zone, end: at.saturating_add(sectors), capacity }
        })
    }

    /// The word after issuing a write of this kind.
    #[inline]
    pub(super) fn issued_as(self, kind: WriteKind, sectors: u32, rules: &Rules) -> Word {
        let native = matches!(kind, WriteKind::Append) && rules.appends_in_flight_max > 0;
        let word = self.issued(sectors, native);
        match kind {
            _ if native || rules.writes_in_flight_max <= 1 => word,
            WriteKind::Alone(_) => Word(word.0 | ALONE),
            WriteKind::At(_) | WriteKind::Append => Word(word.0 | ISSUING),
        }
    }

    /// The word after the write being submitted has reached the device, so that the next may
    /// follow. Called once, only by the submitting thread, and not after [`Word::unissued`].
    #[inline]
    pub fn has_issued(self) -> Word {
        assert!(self.issuing(), "nothing was being submitted");
        Word(self.0 & !ISSUING)
    }

    /// The word after issuing one more command of `sectors`.
    #[inline]
    pub(super) fn issued(self, sectors: u32, native_append: bool) -> Word {
        debug_assert!(self.pointer().checked_add(sectors).is_some());
        debug_assert!(self.in_flight() < IN_FLIGHT_MAX);
        let appends = if native_append { APPENDS } else { 0 };
        Word((self.0 | appends) + sectors as u64 + IN_FLIGHT_ONE)
    }

    /// The word after reserving `sectors` for a write chained to the one in flight.
    #[inline]
    pub(super) fn followed(self, sectors: u32) -> Word {
        debug_assert!(self.in_flight() == 1 && self.waits());
        Word(self.0 + sectors as u64)
    }

    /// The word in another epoch. The zone must be frozen by the caller.
    #[inline]
    pub const fn in_epoch(self, epoch: u8) -> Word {
        Word(self.0 & !(0xFF << EPOCH_SHIFT) | (epoch as u64) << EPOCH_SHIFT)
    }

    /// The word of a zone with a slot.
    #[inline]
    pub const fn with_slot(self) -> Word {
        Word(self.0 & !NO_SLOT)
    }

    /// The word of a zone without a slot. It must have nothing in flight.
    #[inline]
    pub const fn without_slot(self) -> Word {
        debug_assert!(!self.is_busy());
        Word(self.0 | NO_SLOT)
    }

    /// The word of a zone with parked writes. Implies waiting.
    #[inline]
    pub const fn with_parked(self) -> Word {
        Word(self.0 | PARKED | WAITS)
    }

    /// The word of a zone without parked writes.
    #[inline]
    pub const fn without_parked(self) -> Word {
        Word(self.0 & !PARKED)
    }

    /// The word after returning `sectors` reserved for a chain.
    #[inline]
    pub(super) fn taken_back(self, sectors: u32) -> Word {
        assert!(self.pointer() >= sectors, "nothing was promised");
        Word(self.0 - sectors as u64)
    }

    /// The word when the zone is to become quiet as soon as possible. Implies waiting.
    #[inline]
    pub const fn recalling(self) -> Word {
        let wants_quiet = if self.in_flight() > 0 { WANTS_QUIET } else { 0 };
        Word(self.0 | wants_quiet | WAITS)
    }

    /// The word after an issued command turned out not to have reached the device.
    #[inline]
    pub fn unissued(self, sectors: u32) -> Word {
        assert!(self.in_flight() > 0 && self.pointer() >= sectors, "nothing was issued");
        Word((self.0 - sectors as u64) & !ISSUING).completed()
    }

    /// The word after the completion of one command.
    #[inline(always)]
    pub fn completed(self) -> Word {
        assert!(self.in_flight() > 0, "completion without a command in flight");
        let left = self.0 - IN_FLIGHT_ONE;
        // The last completion ends the appending phase and the exclusion of other writes.
        if Word(left).in_flight() == 0 { Word(left & !(APPENDS | ALONE)) } else { Word(left) }
    }

    /// The word with requests waiting. From here on only the queue's holder changes it.
    #[inline]
    pub const fn waiting(self) -> Word {
        Word(self.0 | WAITS)
    }

    /// The word after a failed write. Implies waiting.
    pub const fn recovering(self) -> Word {
        Word(self.0 | RECOVERS | WAITS)
    }

    /// The word while a reset or finish is at the device. Implies waiting.
    pub const fn freezing(self) -> Word {
        Word((self.0 | FROZEN | WAITS) & !WANTS_QUIET)
    }

    /// The word of a zone with this capacity after an offline command.
    pub const fn taken_offline(self, capacity: u32) -> Word {
        self.at(ZoneClass::Offline, capacity)
    }

    pub(super) const fn thawed(self) -> Word {
        Word(self.0 & !FROZEN)
    }

    pub(super) const fn recovered(self) -> Word {
        Word(self.0 & !RECOVERS)
    }

    pub(super) const fn not_waiting(self) -> Word {
        Word(self.0 & !WAITS)
    }

    /// Names of the set flags.
    pub fn flags(self) -> impl Iterator<Item = &'static str> {
        let flags = [
            (self.waits(), "waits"),
            (self.recovers(), "recovers"),
            (self.frozen(), "frozen"),
            (self.appending(), "appends"),
            (self.wants_quiet(), "recalled"),
            (self.issuing(), "issuing"),
            (self.0 & ALONE != 0, "alone"),
            (!self.has_slot(), "no-slot"),
            (self.has_parked(), "parked"),
        ];
        flags.into_iter().filter_map(|(is_set, name)| is_set.then_some(name))
    }

    pub(super) const fn at(self, class: ZoneClass, pointer: u32) -> Word {
        const KEEP: u64 = !(0xFFFF_FFFF | 3 << CLASS_SHIFT);
        Word(self.0 & KEEP | Word::new(class, pointer).0)
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} pointer={} in_flight={}", self.class(), self.pointer(), self.in_flight())?;
        self.flags().try_for_each(|name| write!(f, " {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_flag_outlasts_the_parked_flag() {
        let word = Word::new(ZoneClass::Sequential, 8);
        assert!(!word.has_parked() && !word.waits());
        let parked = word.with_parked();
        assert!(parked.has_parked() && parked.waits());
        let without = parked.without_parked();
        assert!(!without.has_parked() && without.waits());
    }
}
