//! Rows: an ordered map from keys to values that survives any cut, over an embedded database.
//!
//! The database commits whole batches. Changes since the last batch lie in a layer above it, in memory. [`Rows`] is read
//! through all layers and changed in the topmost only, so that changes cost no I/O and wait for no commit. A commit takes
//! three steps. [`Rows::seal`] puts a new layer on top. [`Sealed::commit`] writes the sealed layer to the database, which
//! may take long and needs no lock of the caller's. [`Rows::settled`] drops the layer.
//!
//! The database's place may be bounded. [`Gauge`] says whether there is room for more rows, before the database finds none.
//!
//! # Invariants
//! - At most one layer is sealed at a time.
//! - What is in a sealed layer becomes durable as a whole or not at all.

pub mod backend;
mod gauge;
mod guard;
mod rows;
mod salvage;
mod site;
mod tables;

pub use gauge::{Committed, Fill, Gauge};
pub use rows::{Row, Rows, Sealed, StoreError};
pub use salvage::{Gap, salvage};
