//! Emulated devices: one executor for all operations and completion modes, over interchangeable
//! storage.
//!
//! [`Emulated`] checks commands, asks [`Zones`] for the place of a write, lets its [`Storage`] move
//! the bytes, and completes inline or from `poll`. [`Zones`] keeps one word per zone. [`Null`]
//! keeps no data, [`Ram`] keeps it in memory. A device with storage that completes asynchronously
//! can use [`Zones`] alone.
//!
//! # Contention
//! - Reads take no lock, and reads of a zone that is being written rarely access the word that its
//!   writes change.
//! - Without limits on open or active zones, writes to different zones share nothing. With a limit,
//!   a lock is taken when a zone changes its condition, not when its write pointer moves.
//! - With [`Locking::Device`], every command holds a single lock while it executes: the design to
//!   compare with.

mod bandwidth;
pub mod check;
mod completion;
mod device;
mod elsewhere;
mod floors;
mod null;
mod options;
mod ram;
mod storage;
mod zones;

pub(crate) use bandwidth::{Bandwidth, MBPS_MAX};
pub(crate) use completion::{Executed, Queues};
pub use device::Emulated;
pub(crate) use elsewhere::elsewhere;
pub use null::Null;
pub use options::{CompleteMode, EmulatedOptions, Locking, OptionsError};
pub(crate) use options::{QUEUE_DEPTH_MAX, QUEUES_MAX, are_sectors, are_sequential};
pub use ram::Ram;
pub use storage::{Extent, Storage};
pub use zones::{EventOutcome, Placed, Readable, WriteKind, Zones};

#[cfg(test)]
mod tests;
