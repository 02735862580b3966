//! Places of the pages that rows are kept in.
//!
//! A place has pages by their numbers, a length, and a call that makes durable all that was written before it, or nothing of it.
//! Each module here is such a place:
//! - [`memory`]: in memory, for simulated drives and tests; nothing survives but the handle.
//! - [`mod@log`]: a log over segments, which are sequential zones, or pieces of conventional zones or of a file. docs/FS.md draws
//!   it.
//!
//! The log is [`paged`]: it keeps pages in memory until a sync.
//!
//! # Locks
//! No lock is held while the drive works or a waiter waits, so that a coroutine that waits here holds up no other one.

mod disk;
mod error;
pub mod file;
pub mod log;
pub mod memory;
pub mod paged;
mod room;
mod segment;

pub use error::{BackendError, Damage, SegmentId, SegmentPlace, Stop};
pub use log::Store;
pub use memory::Memory;
pub use paged::PAGE;
pub use room::{Backend, Room};
pub use segment::StoreFile;

pub use crate::format::Uuid;
