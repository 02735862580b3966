//! Write plug of one zone: keeps the writes to a sequential zone in order.
//!
//! A plug is one 64-bit [`Word`] and, only while writes wait, one [`Queue`]. The word alone decides the uncontended case;
//! the queue decides everything else. Both are values: the shell that shares them between threads loads a word, asks, and
//! stores the answer.
//!
//! Owns the issue-time write pointer and the order of waiting writes. Owns no payload, no clock and no other zone.
//!
//! # Invariants
//! - At most one positional or emulated-append write of a zone is at the device, or a window of them where the device
//!   keeps order; native appends are at the device only with other native appends.
//! - The writes of a window reach the device in the order in which they were issued: while one is being submitted,
//!   none follows.
//! - "Busy" is the number in flight, never a flag that another thread may clear.
//! - The pointer moves at issue. It equals the device's when nothing is in flight and nothing failed.
//! - While [`Word::waits`] is set, only the holder of the zone's queue changes the word. `recovers` and `frozen` imply it.
//! - A queued item leaves the queue exactly once: issued, failed, or aborted.
//!
//! # Why a failed write resynchronises and does not poison
//! After an error the pointer is unknown, so nothing is issued until what is in flight has ended and the device has said
//! where the zone stands. Then what was not executed goes out again, in order, and the zone continues from there:
//! appends and a write at the pointer succeed, a positional write that counted on a lost one fails with the place of the
//! loss. What becomes of each failed write is [`decide`]'s table.

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
