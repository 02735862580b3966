//! Device side of a zone: what a drive does with its write pointer, its condition and its open and active resources.
//!
//! Owns the rules of the ZNS and ZBC state machines, as functions from a [`ZoneState`] and a [`ZoneEvent`] to a
//! [`Transition`], and the accounting of resources over all zones. Owns no table of zones and no data: an emulated drive
//! keeps the states where it likes (one word a zone), asks [`step`] and [`Resources`], and stores what they say.
//!
//! # Order of checks
//! Zone condition, then start against the pointer, then capacity, then resources. A host tells its mistakes apart by
//! the error, so the order is part of the interface.
//!
//! # Writes that take time
//! [`ZoneEvent::Write`] is a write that happens at once. A drive whose transfer takes time begins it with
//! [`ZoneEvent::BeginWrite`], which moves the pointer but never fills the zone, and ends it with
//! [`ZoneEvent::EndWrite`] or [`ZoneEvent::FailWrite`]. A zone made full too early could not take its failed write
//! again: the resources it gave back may be gone.
//!
//! # Invariants
//! - The pointer never passes the capacity, and moves back only by a reset or by the failure of the last write placed.
//! - [`Resources`] counts each zone under its condition exactly, whatever caused the change.

mod machine;
mod resources;
mod rules;
mod select;
mod state;

pub use machine::{Needs, Transition, ZoneEvent, append, begin_write, step, write};
pub use resources::{Limits, Resources};
pub use rules::Rules;
pub use select::ZoneAction;
pub use state::{StateBitsError, ZoneState};

#[cfg(test)]
mod tests;
