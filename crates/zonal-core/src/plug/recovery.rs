//! What becomes of failed writes, once the device has said where their zone stands.
//!
//! A failed write is kept until nothing of its zone is in flight and the device has answered a report. Then [`plan`] finds
//! out where each stands to the pointer, [`Position`], and [`decide`] looks up what to do by that and the [`ErrorClass`].
//! Values in, values out: the queue keeps the writes, the shell reads back and sends again.
//!
//! # What can be known
//! All of it rests on this volume being the zone's only writer. Then what lies below the pointer and was acknowledged
//! belongs to its write, what lies below it and was not is what a failed write left, and nothing of a failed write lies
//! above it. A pointer beyond everything that was issued proves another writer: then of what may have been executed
//! nothing is known.
//!
//! # Native appends
//! Where a failed one went is not known. How much of them all lies in the zone is a matter of counting: the pointer,
//! less what was issued and did not fail. If that is nothing, none was executed. If one append may have been, it is what
//! lies there, whole or torn; a whole one is looked for where it would be if the others went in the order of their issue.
//! If several may have been and not all were, it cannot be told which.

use super::word::ZoneClass;
use crate::error::{DeviceError, ZoneError};

/// Rounds of recovery in which a write may itself fail: the next round gives it up.
pub const ROUNDS_MAX: u8 = 3;

/// What a device's error says about the execution of a write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorClass {
    /// Nothing of it was executed, and another try may succeed.
    NotExecuted,
    /// Nothing of it was executed for want of an open or active zone: another try may succeed when one is free.
    Resource,
    /// The medium failed: some of it may be there, and is not to be trusted.
    Medium,
    /// It may have been executed, in whole or in part; nothing more of it will be.
    Maybe,
    /// As `Maybe`, and it may still be executed until the device has settled it.
    Unknown,
    /// Nothing of it was executed, and nothing will ever be.
    Final,
}

impl ErrorClass {
    /// The class of an error.
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
            | DeviceError::OpenedForReading => ErrorClass::Final,
        }
    }

    /// Whether a write that failed so may have left something in the zone.
    const fn may_have_been_written(self) -> bool {
        matches!(self, ErrorClass::Medium | ErrorClass::Maybe | ErrorClass::Unknown)
    }
}

/// How a failed write was addressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addressed {
    /// By its caller: it makes sense at its place only.
    Positional,
    /// By the plug: an append that went out as a write.
    Emulated,
    /// By the device: a native append.
    Native,
}

/// Where the device's pointer stands to a failed write, or what else its zone has become.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// At its start, or where it will be once those before it were sent again. Of native appends: none was carried out.
    AtStart,
    /// Inside: the first part is there.
    Inside,
    /// At its end: all of it is there.
    AtEnd,
    /// Beyond its end.
    Beyond,
    /// Below its start, and one before it was lost in this round.
    Behind,
    /// Below its start, for no reason known here.
    Below,
    /// The zone is empty, and the write did not begin there.
    Empty,
    /// The zone is full, and this volume did not fill it.
    Full,
    /// The zone is read-only.
    ReadOnly,
    /// The zone is offline.
    Offline,
    /// Beyond everything that this volume has issued.
    Foreign,
    /// Some of several native appends were carried out, and which cannot be told.
    Somewhere,
}

/// What to do with a failed write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// Send it again, before everything that waits.
    Redrive,
    /// Read back what the pointer has passed. If it is the write's, that much is done, and the rest is sent again.
    Verify,
    /// It ends with the device's error.
    Fail,
    /// An append ends with the device's error and what it has left in the zone.
    Torn,
    /// It ends as one whose predecessor was lost.
    Lost,
    /// It ends with what its zone is: full, read-only, offline.
    Refuse,
    /// It ends, and what became of it is not known.
    Unknown,
    /// It could be sent again, but was so often enough.
    GiveUp,
}

/// The table. Of class [`ErrorClass::Unknown`] only for what is settled.
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

/// A failed write that is to be decided; `T` is the shell's token for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed<T> {
    /// How it was addressed.
    pub addressed: Addressed,
    /// First sector that is not known to be written; of a native append, the pointer at its issue.
    pub at: u32,
    /// Sectors from there on.
    pub sectors: u32,
    /// What the device said.
    pub error: DeviceError,
    /// Rounds in which it has itself failed.
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

/// What is known of a zone whose failed writes are decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneFacts {
    /// What the device says that the zone is.
    pub class: ZoneClass,
    /// Where it says that the zone stands; the capacity where that has no meaning.
    pub pointer: u32,
    /// Writable sectors of the zone.
    pub capacity: u32,
    /// Where the zone would stand had nothing failed.
    pub issued: u32,
}

/// What is decided about one failed write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// What to do.
    pub decision: Decision,
    /// Where it begins, as far as that is known: of a native append, the pointer at its issue, less the appends before it
    /// that were not executed, and not so far that the pointer has not passed what was written of it.
    pub at: u32,
    /// Sectors of it that the pointer has passed.
    pub covered: u32,
    /// Rounds in which it has itself failed, this one included.
    pub rounds: u8,
}

impl Verdict {
    /// Whether the write is not to be sent again, nor looked for.
    pub fn is_lost(&self) -> bool {
        !matches!(self.decision, Decision::Redrive | Decision::Verify)
    }
}

/// Where the first write that is lost leaves a hole: where the zone, which stands at `pointer`, will stand when those before
/// it were sent again. A lost write that the pointer has passed leaves none.
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

/// Decides about the failed writes of one zone, which are in the order of [`Failed::at`].
pub fn plan<T>(failed: &[Failed<T>], facts: &ZoneFacts) -> Vec<Verdict> {
    let appends = NativeAppends::of(failed, facts);
    let mut placed = PlacedWrites { facts: *facts, next: facts.pointer, lost: false };
    let mut not_executed = 0;
    let verdict = |f: &Failed<T>| {
        let (at, position, covered) = match f.addressed {
            Addressed::Native => {
                let covered = appends.sectors.min(f.sectors);
                // One before it may have been withdrawn since.
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

/// Whether a write counts this round against itself. A write that was misplaced because another failed before it does
/// not: N writes after an unlucky one would be given up before they had a chance. A write that waits for a resource
/// counts when it is tried again and nothing in flight could have freed one.
fn is_own_failure<T>(f: &Failed<T>, pointer: u32) -> bool {
    let misplaced = f.error == DeviceError::Zone(ZoneError::InvalidWrite) && f.at > pointer;
    !misplaced && f.class() != ErrorClass::Resource
}

/// The way along the failed writes whose places are known.
struct PlacedWrites {
    facts: ZoneFacts,
    /// Where the zone will stand when those so far were sent again.
    next: u32,
    /// One of those so far was not, and left a hole.
    lost: bool,
}

impl PlacedWrites {
    fn position<T>(&self, f: &Failed<T>) -> Position {
        let pointer = self.facts.pointer;
        if let Some(position) = unusual(&self.facts) {
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

/// What a zone is where the pointer is no guide.
fn unusual(facts: &ZoneFacts) -> Option<Position> {
    match facts.class {
        ZoneClass::ReadOnly => Some(Position::ReadOnly),
        ZoneClass::Offline => Some(Position::Offline),
        _ if facts.pointer <= facts.issued => None,
        _ if facts.pointer == facts.capacity => Some(Position::Full),
        _ => Some(Position::Foreign),
    }
}

/// What the failed native appends of a zone have left there together.
struct NativeAppends {
    /// Sectors; 0 also where the pointer lies below what was acknowledged.
    sectors: u32,
    /// Sectors of those that may have been written, and how many these are.
    doubtful: u32,
    count: usize,
    /// No error says that one of them may have been written, but the pointer does: then each may have been.
    contradiction: bool,
    /// The pointer lies below what was acknowledged.
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
        if let Some(position) = unusual(facts) {
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
