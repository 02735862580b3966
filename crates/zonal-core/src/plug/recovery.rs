//! Decisions about failed writes, after the device has reported the zone's state.
//!
//! A failed write is kept until nothing of its zone is in flight and the device has answered a
//! report. Then [`plan`] determines the [`Position`] of each write relative to the pointer, and
//! [`decide`] looks up the action by that and the [`ErrorClass`]. These are pure functions: the
//! queue keeps the writes, and the shell reads back and resubmits.
//!
//! # Assumptions
//! This volume is the zone's only writer. Then acknowledged data below the pointer belongs to the
//! acknowledged write, other data below it is the remains of a failed write, and nothing of a
//! failed write is above it. A pointer beyond everything issued proves that there is another
//! writer; the fate of any write that may have been executed is unknown then.
//!
//! # Native appends
//! The address of a failed native append is unknown. The total amount written by failed appends
//! follows from the pointer: subtract the sectors issued by writes that did not fail. If it is
//! zero, none was executed. If only one append may have been executed, the data is its own,
//! complete or torn; a complete one is looked for at its offset if the others were executed in
//! order of issue. If several may have been executed and not all were, it is impossible to tell
//! which.

use super::word::ZoneClass;
use crate::error::{DeviceError, ZoneError};

/// Rounds of recovery in which a write may fail for its own reasons before the next one gives it
/// up.
pub const ROUNDS_MAX: u8 = 3;

/// Execution of a write, as far as the device's error reveals it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorClass {
    /// Not executed, and a retry may succeed.
    NotExecuted,
    /// Not executed for lack of an open or active resource. A retry may succeed when one is free.
    Resource,
    /// Medium error. Some of the data may have been written but cannot be trusted.
    Medium,
    /// May have been executed, in whole or in part; nothing more of it will be.
    Maybe,
    /// As `Maybe`, and may still be executed until the device has settled it.
    Unknown,
    /// Not executed, and never will be.
    Final,
}

impl ErrorClass {
    /// Returns the class of an error.
    pub const fn of(error: DeviceError) -> ErrorClass {
        match error {
            DeviceError::Zone(ZoneError::InvalidWrite) | DeviceError::Busy | DeviceError::UnitAttention => {
                ErrorClass::NotExecuted
            }
            DeviceError::Zone(ZoneError::TooManyActive | ZoneError::TooManyOpen) => ErrorClass::Resource,
            DeviceError::Medium => ErrorClass::Medium,
            DeviceError::Aborted | DeviceError::Gone | DeviceError::Os(_) => ErrorClass::Maybe,
            DeviceError::TimedOut => ErrorClass::Unknown,
            DeviceError::Zone(
                ZoneError::Boundary
                | ZoneError::Full
                | ZoneError::ReadOnly
                | ZoneError::Offline
                | ZoneError::InvalidTransition
                | ZoneError::Conventional
                | ZoneError::Sequential,
            )
            | DeviceError::OutOfRange
            | DeviceError::InvalidField
            | DeviceError::Unsupported
            | DeviceError::OpenedForReading
            | DeviceError::Stale => ErrorClass::Final,
        }
    }

    /// True if a write that failed in this way may have left data in the zone.
    const fn may_have_been_written(self) -> bool {
        matches!(self, ErrorClass::Medium | ErrorClass::Maybe | ErrorClass::Unknown)
    }
}

/// Origin of a failed write's offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addressed {
    /// The caller: the write is valid at this offset only.
    Positional,
    /// The plug: an append issued as a write.
    Emulated,
    /// The device: a native append.
    Native,
}

/// Position of the device's pointer relative to a failed write, or a state of the zone that makes
/// it irrelevant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// At its start, or where that will be after resubmission of the writes before it. Native
    /// appends: none was executed.
    AtStart,
    /// Within it: the first part was written.
    Inside,
    /// At its end: all of it was written.
    AtEnd,
    /// Beyond its end.
    Beyond,
    /// Below its start, and a write before it was lost in this round.
    Behind,
    /// Below its start, for unknown reasons.
    Below,
    /// The zone is empty, and the write did not start there.
    Empty,
    /// The zone is full, and not because of this volume's writes.
    Full,
    /// The zone is read-only.
    ReadOnly,
    /// The zone is offline.
    Offline,
    /// Beyond everything issued by this volume.
    Foreign,
    /// Some of several native appends were executed, but it is impossible to tell which.
    Somewhere,
}

/// Action for a failed write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// Resubmit it ahead of all waiting writes.
    Redrive,
    /// Read back the part below the pointer. If it matches, that part is done, and the rest is
    /// resubmitted.
    Verify,
    /// Fail it with the device's error.
    Fail,
    /// Fail the append with the device's error and the garbage left in the zone.
    Torn,
    /// Fail it because its predecessor was lost.
    Lost,
    /// Fail it because its zone is full, read-only or offline.
    Refuse,
    /// Fail it, with its fate unknown.
    Unknown,
    /// Fail it because it was resubmitted too often.
    GiveUp,
}

/// The table. [`ErrorClass::Unknown`] requires that the write is settled.
pub const fn decide(addressed: Addressed, class: ErrorClass, position: Position) -> Decision {
    use Addressed::{Native, Positional};
    use Position::{
        AtEnd, AtStart, Behind, Below, Beyond, Empty, Foreign, Full, Inside, Offline, ReadOnly, Somewhere,
    };
    match class {
        ErrorClass::Final => Decision::Fail,
        ErrorClass::Medium => match (addressed, position) {
            (Positional, _) => Decision::Fail,
            (_, Inside | AtEnd | Beyond) => Decision::Torn,
            _ => Decision::Fail,
        },
        ErrorClass::NotExecuted | ErrorClass::Resource => match (addressed, position) {
            (_, AtStart) | (Native, Inside) => Decision::Redrive,
            (_, Inside | AtEnd | Beyond) => Decision::Verify,
            (_, Full | ReadOnly | Offline) => Decision::Refuse,
            (Positional, Behind) => Decision::Lost,
            (Positional, Below | Empty | Foreign) => Decision::Fail,
            (_, Behind | Below | Empty | Foreign) => Decision::Redrive,
            (_, Somewhere) => Decision::Unknown,
        },
        ErrorClass::Maybe | ErrorClass::Unknown => match (addressed, position) {
            (_, AtStart) | (Native, Inside) => Decision::Redrive,
            (_, Inside | AtEnd | Beyond) => Decision::Verify,
            (Native, Full | Below) | (_, ReadOnly | Offline | Foreign | Somewhere) => Decision::Unknown,
            (_, Full) => Decision::Verify,
            (Positional, Behind) => Decision::Lost,
            (Positional, Below | Empty) => Decision::Fail,
            (_, Behind | Below | Empty) => Decision::Redrive,
        },
    }
}

/// A failed write to be decided. `T` is the shell's token for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed<T> {
    /// Origin of its offset.
    pub addressed: Addressed,
    /// First sector not known to be written. For a native append, the pointer at its issue.
    pub at: u32,
    /// Length, in sectors.
    pub sectors: u32,
    /// Error of the device.
    pub error: DeviceError,
    /// Number of rounds in which it failed for its own reasons.
    pub rounds: u8,
    /// The shell's token.
    pub token: T,
}

impl<T> Failed<T> {
    fn class(&self) -> ErrorClass {
        ErrorClass::of(self.error)
    }

    pub(super) fn end(&self) -> u32 {
        self.at + self.sectors
    }
}

/// State of a zone with failed writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneFacts {
    /// Class reported by the device.
    pub class: ZoneClass,
    /// Pointer reported by the device, or the capacity where a pointer has no meaning.
    pub pointer: u32,
    /// Writable sectors of the zone.
    pub capacity: u32,
    /// Pointer of the zone if nothing had failed.
    pub issued: u32,
}

/// Decision about one failed write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Action.
    pub decision: Decision,
    /// Its offset, as far as known. For a native append: the pointer at its issue, less the appends
    /// before it that were not executed, and low enough that the covered sectors are below the
    /// pointer.
    pub at: u32,
    /// Sectors of it below the pointer.
    pub covered: u32,
    /// Number of rounds in which it failed for its own reasons, including this one.
    pub rounds: u8,
}

impl Verdict {
    /// True if the write is neither resubmitted nor read back.
    pub fn is_lost(&self) -> bool {
        !matches!(self.decision, Decision::Redrive | Decision::Verify)
    }
}

/// Offset of the hole left by the first lost write: the pointer of the zone, now `pointer`, after
/// resubmission of the writes before it. A lost write below the pointer leaves no hole.
pub fn hole<T>(failed: &[Failed<T>], verdicts: &[Verdict], pointer: u32) -> Option<u32> {
    let mut next = pointer;
    for (f, verdict) in failed.iter().zip(verdicts) {
        if !verdict.is_lost() {
            next = next.max(f.end());
        } else if f.end() > pointer {
            return Some(next);
        }
    }
    None
}

/// Decides about the failed writes of a zone, which are sorted by [`Failed::at`].
pub fn plan<T>(failed: &[Failed<T>], facts: &ZoneFacts) -> Vec<Verdict> {
    let appends = NativeAppends::of(failed, facts);
    let mut placed = PlacedWrites { facts: *facts, next: facts.pointer, lost: false };
    let mut not_executed = 0;
    let verdict = |f: &Failed<T>| {
        let (at, position, covered) = match f.addressed {
            Addressed::Native => {
                let covered = appends.sectors.min(f.sectors);
                // An append before it may have been withdrawn since.
                let at = f.at.saturating_sub(not_executed).min(facts.pointer.saturating_sub(covered));
                let position = appends.position(f.class(), facts);
                if !appends.is_doubtful(f.class()) {
                    not_executed += f.sectors;
                }
                (at, position, covered)
            }
            _ => (f.at, placed.position(f), facts.pointer.min(f.end()).saturating_sub(f.at)),
        };
        let rounds = f.rounds + u8::from(is_own_failure(f, facts.pointer));
        let decision = match decide(f.addressed, f.class(), position) {
            Decision::Redrive if rounds > ROUNDS_MAX => Decision::GiveUp,
            decision => decision,
        };
        placed.decided(f, decision);
        Verdict { decision, at, covered, rounds }
    };
    failed.iter().map(verdict).collect()
}

/// True if this round counts against the write. A write misplaced only because an earlier one
/// failed is not counted: otherwise all writes behind an unlucky one would be given up without a
/// real try. A write waiting for a resource is counted when it is retried and nothing in flight
/// could have freed one.
fn is_own_failure<T>(f: &Failed<T>, pointer: u32) -> bool {
    let misplaced = f.error == DeviceError::Zone(ZoneError::InvalidWrite) && f.at > pointer;
    !misplaced && f.class() != ErrorClass::Resource
}

/// Iteration over the failed writes with known offsets.
struct PlacedWrites {
    facts: ZoneFacts,
    /// Pointer of the zone after resubmission of the writes so far.
    next: u32,
    /// One of the writes so far was lost and left a hole.
    lost: bool,
}

impl PlacedWrites {
    fn position<T>(&self, f: &Failed<T>) -> Position {
        let pointer = self.facts.pointer;
        if let Some(position) = position_by_condition(&self.facts) {
            return position;
        }
        if f.end() < pointer {
            Position::Beyond
        } else if f.end() == pointer {
            Position::AtEnd
        } else if f.at < pointer {
            Position::Inside
        } else if f.at == self.next {
            Position::AtStart
        } else if self.lost {
            Position::Behind
        } else if pointer == 0 {
            Position::Empty
        } else {
            Position::Below
        }
    }

    fn decided<T>(&mut self, f: &Failed<T>, decision: Decision) {
        if matches!(decision, Decision::Redrive | Decision::Verify) {
            self.next = self.next.max(f.end());
        } else {
            self.lost |= f.end() > self.facts.pointer;
        }
    }
}

/// State of a zone in which the pointer is meaningless.
fn position_by_condition(facts: &ZoneFacts) -> Option<Position> {
    match facts.class {
        ZoneClass::ReadOnly => Some(Position::ReadOnly),
        ZoneClass::Offline => Some(Position::Offline),
        _ if facts.pointer <= facts.issued => None,
        _ if facts.pointer == facts.capacity => Some(Position::Full),
        _ => Some(Position::Foreign),
    }
}

/// Data left in a zone by all its failed native appends together.
struct NativeAppends {
    /// Sectors. Also 0 if the pointer is below the acknowledged data.
    sectors: u32,
    /// Total sectors and number of appends that may have been executed.
    doubtful: u32,
    count: usize,
    /// By their errors, none of them was executed, but the pointer says otherwise. Then any of them
    /// may have been.
    contradiction: bool,
    /// The pointer is below the acknowledged data.
    short: bool,
}

impl NativeAppends {
    fn of<T>(failed: &[Failed<T>], facts: &ZoneFacts) -> NativeAppends {
        let native = || failed.iter().filter(|f| f.addressed == Addressed::Native);
        let all: u32 = native().map(|f| f.sectors).sum();
        let acknowledged = facts.issued.saturating_sub(all);
        let sectors = facts.pointer.saturating_sub(acknowledged);
        let contradiction = sectors > 0 && !native().any(|f| f.class().may_have_been_written());
        let doubtful = || native().filter(|f| contradiction || f.class().may_have_been_written());
        NativeAppends {
            sectors,
            doubtful: doubtful().map(|f| f.sectors).sum(),
            count: doubtful().count(),
            contradiction,
            short: facts.pointer < acknowledged,
        }
    }

    fn is_doubtful(&self, class: ErrorClass) -> bool {
        self.contradiction || class.may_have_been_written()
    }

    fn position(&self, class: ErrorClass, facts: &ZoneFacts) -> Position {
        if let Some(position) = position_by_condition(facts) {
            position
        } else if self.short {
            if facts.pointer == 0 { Position::Empty } else { Position::Below }
        } else if self.sectors == 0 || !self.is_doubtful(class) {
            Position::AtStart
        } else if self.sectors == self.doubtful {
            Position::AtEnd
        } else if self.count == 1 && self.sectors < self.doubtful {
            Position::Inside
        } else {
            Position::Somewhere
        }
    }
}

#[cfg(test)]
mod tests;
