//! Where the database of rows keeps its bytes.
//!
//! The database, redb, wants a file: bytes at offsets, a length, and a call that makes durable what was written before it.
//! Each module here is such a file:
//! - [`memory`]: in memory, for simulated drives and tests; nothing survives but the handle.
//! - [`mod@log`]: a log over segments, which are sequential zones, or pieces of conventional zones or of a file. docs/FS.md draws
//!   it.
//!
//! Over either of them, [`overlay`] keeps what is written in memory, so that a database can be looked at and stays as it is.
//! The log is [`paged`]: it keeps pages in memory until a sync.
//!
//! # Locks
//! No lock is held while the drive works or a waiter waits, so that a coroutine that waits here holds up no other one.

mod disk;
mod error;
pub mod file;
pub mod log;
pub mod memory;
pub mod overlay;
pub mod paged;
mod room;
mod segment;

pub use error::{BackendError, Damage, SegmentId, SegmentPlace, Stop};
pub use log::Store;
pub use memory::Memory;
pub use overlay::Overlay;
pub(in crate::insides::store) use room::Handle;
pub use room::{Backend, Room};
pub use segment::StoreFile;

pub use crate::format::Uuid;
