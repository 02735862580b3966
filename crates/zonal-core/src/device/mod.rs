//! Device side of a zone: write pointer, condition, open and active resources.
//!
//! Owns the rules of the ZNS and ZBC state machines, as functions from a [`ZoneState`] and a
//! [`ZoneEvent`] to a [`Transition`], and the accounting of resources over all zones. Owns no table
//! of zones and no data: an emulated drive stores the states itself (one word per zone), calls
//! [`step`] and [`Resources`], and stores the results.
//!
//! # Order of checks
//! Zone condition, then start against the pointer, then capacity, then resources. The error tells a
//! host which mistake it made, so the order is part of the interface.
//!
//! # Writes that take time
//! [`ZoneEvent::Write`] takes effect at once. A drive with a transfer time begins a write with
//! [`ZoneEvent::BeginWrite`], which moves the pointer but never fills the zone, and ends it with
//! [`ZoneEvent::EndWrite`] or [`ZoneEvent::FailWrite`]. If a zone became full too early, a failed
//! write could not be repeated, because the resources released by the zone may be taken.
//!
//! # Invariants
//! - The pointer never passes the capacity. It moves back only on a reset or on failure of the last
//!   write placed.
//! - [`Resources`] counts every zone under its condition exactly, whatever caused the change.

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
