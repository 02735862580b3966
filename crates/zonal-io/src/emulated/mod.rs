//! Emulated devices: one executor for every operation and every way of completing, over exchangeable storage.
//!
//! [`Emulated`] checks commands, asks [`Zones`] where a write lands, lets its [`Storage`] move the bytes and answers,
//! inline or from `poll`. [`Zones`] keeps one word a zone; [`Null`] keeps no bytes, [`Ram`] keeps them
//! in memory.
//! A device whose storage needs to answer later on its own can use [`Zones`] alone.
//!
//! # Who waits for whom
//! - Reads take no lock, and those of a zone that is being written seldom look at the word that its writes change.
//! - Writes to different zones share nothing while no limit on open or active zones is set; with one, a lock is
//!   taken when a zone changes its condition, not when its pointer moves.
//! - With [`Locking::Device`] every command takes one lock for its whole time: the design to compare with.

pub(crate) mod check;
mod completion;
mod device;
mod elsewhere;
mod floors;
mod null;
mod options;
mod ram;
mod storage;
mod zones;

pub(crate) use completion::{Executed, Queues};
pub use device::Emulated;
pub(crate) use elsewhere::elsewhere;
pub use null::Null;
pub use options::{CompleteMode, EmulatedOptions, Locking, OptionsError};
pub(crate) use options::{QUEUE_DEPTH_MAX, QUEUES_MAX};
pub use ram::Ram;
pub use storage::{Extent, Storage};
pub use zones::{Happened, Placed, Readable, WriteKind, Zones};

#[cfg(test)]
mod tests;
