//! Rows: an ordered map from keys to values that survives any cut, over an embedded database.
//!
//! The database commits whole batches. Changes since the last batch lie in a layer above it, in memory. [`Rows`] is read
//! through all layers. Its changes are a draft until they are published to the topmost layer, so that they cost no I/O and wait
//! for no commit. A commit takes three steps. [`Rows::seal`] puts a new layer on top. [`Sealed::commit`] writes the sealed layer
//! to the database, or, if it is small, to the log below the database, without a lock of the caller's. A commit to the log moves
//! its rows to a layer above the database, until a commit of the database includes them. [`Rows::settled`] notes that.
//!
//! Any thread reads what is published with a reader. No lock is held while the drive works for it (`layers.rs`).
//!
//! The database's place may be bounded. [`Gauge`] says whether there is room for more rows, before the database finds none.
//!
//! # Invariants
//! - At most one layer is sealed at a time.
//! - A reader sees each published draft whole or not at all.
//! - What is in a sealed layer becomes durable as a whole or not at all.

pub mod backend;
mod draft;
mod extents;
mod gauge;
mod guard;
mod layers;
pub(crate) mod locked;
mod rows;
mod salvage;
mod site;
mod tables;

pub(crate) use draft::{Draft, Totals};
pub use gauge::{Committed, Fill, Gauge};
pub(crate) use layers::{Reader, View};
pub use rows::{Row, Rows, Sealed, StoreError};
pub use salvage::{Gap, salvage};
pub(crate) use site::Compacted;
