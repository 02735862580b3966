//! Rows: an ordered map from keys to values that survives any cut, over an embedded database.
//!
//! The database commits whole batches. What was changed since the last one lies in a layer above it, in memory: [`Rows`]
//! is read through all layers and changed in the topmost only, so that changes cost no I/O and a commit holds up nobody.
//! A commit takes three steps: [`Rows::seal`] puts a new layer on top, [`Sealed::commit`] brings the sealed one into the
//! database, which may take long and needs no lock of the caller's, and [`Rows::settled`] takes it away.
//!
//! # Invariants
//! - At most one layer is sealed at a time.
//! - What is in a sealed layer becomes durable as a whole or not at all.

pub mod backend;
mod guard;
mod rows;
mod tables;

pub use rows::{Row, Rows, Sealed, StoreError};
