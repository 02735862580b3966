//! Rows: an ordered map from keys to values that survives any cut.
//!
//! Rows lie in sorted tables (`tables.rs`), in pages of a [place](backend). A commit adds a table, and merges some that are there
//! (`levels.rs`). Changes since the last commit lie in a layer above them, in memory. [`Rows`] is read
//! through all layers. Its changes are a draft until they are published to the topmost layer, so that they cost no I/O and wait
//! for no commit. A commit takes three steps. [`Rows::seal`] puts a new layer on top. [`Sealed::commit`] writes the sealed layer
//! to a table, or, if it is small, to the log below, without a lock of the caller's. A commit to the log moves its rows to a layer
//! above the tables, until a table includes them. [`Rows::settled`] notes that.
//!
//! Any thread reads what is published with a reader. No lock is held while the drive works for it (`layers.rs`).
//!
//! The place may be bounded. [`Gauge`] says whether there is room for more rows, before a commit finds none.
//!
//! # Invariants
//! - At most one layer is sealed at a time.
//! - A reader sees each published draft whole or not at all.
//! - What is in a sealed layer becomes durable as a whole or not at all.

pub mod backend;
mod draft;
mod extents;
mod gauge;
mod layers;
mod levels;
pub(crate) mod locked;
mod merge;
mod pages;
mod rows;
mod salvage;
mod table;
mod tables;

pub(crate) use draft::{Draft, Totals};
pub use gauge::{Committed, Fill, Gauge};
pub(crate) use layers::{Reader, View};
pub use rows::{Row, Rows, Sealed, StoreError};
pub use salvage::{Gap, Gaps, salvage};
