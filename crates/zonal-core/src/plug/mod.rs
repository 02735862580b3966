//! Write plug of one zone: keeps the writes to a sequential zone in order.
//!
//! A plug is one 64-bit [`Word`] and, only while writes wait, one [`Queue`]. The word alone decides
//! the uncontended case, and the queue everything else. Both are values: the shell that shares them
//! between threads loads a word, asks for a decision, and stores the result.
//!
//! Owns the issue-time write pointer and the order of waiting writes. Owns no payload, no clock and
//! no other zone.
//!
//! # Invariants
//! - At most one positional or emulated-append write of a zone is at the device, or a window of
//!   them on a device that keeps order. Native appends are at the device only with other native
//!   appends.
//! - The writes of a window reach the device in the order of their issue: while one is being
//!   submitted, no other follows.
//! - "Busy" is the number in flight, never a flag that another thread may clear.
//! - The pointer advances at issue. It equals the device's when nothing is in flight and nothing
//!   failed.
//! - While [`Word::waits`] is set, only the holder of the zone's queue changes the word. `recovers`
//!   and `frozen` imply it.
//! - A queued item leaves the queue exactly once: issued, failed, or aborted.
//!
//! # Why a failed write resynchronises the zone instead of poisoning it
//! After an error the pointer is unknown. Nothing is issued until all commands in flight have
//! completed and the device has reported its write pointer. Then writes that were not executed are
//! resubmitted in order, and the zone continues: appends and a write at the pointer succeed, and a
//! positional write behind a lost one fails with the position of the loss. [`decide`] has the table
//! for each failed write.

pub mod flight;
mod item;
mod park;
mod queue;
mod recovery;
mod word;

pub use item::{Item, RequestKind};
pub use park::{ParkOptions, ParkedWrites};
pub use queue::{Next, PlugState, Queue, Resync};
pub use recovery::{
    Addressed, Decision, ErrorClass, Failed, Position, ROUNDS_MAX, Verdict, ZoneFacts, decide, plan,
};
pub use word::{Admission, IN_FLIGHT_MAX, Rules, Word, WriteKind, ZoneClass};
