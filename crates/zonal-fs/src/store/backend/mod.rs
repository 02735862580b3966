//! Where the database of rows keeps its bytes.
//!
//! The database, redb, wants a file: bytes at offsets, a length, and a call that makes durable what was written before it.
//! Each module here is such a file for a kind of drive:
//! - [`memory`]: in memory, for simulated drives and tests; nothing survives but the handle.
//! - [`mod@file`]: a file beside the drive.
//! - [`conventional`]: a range of the drive's conventional zones, written in place.
//! - [`logged`]: sequential zones of the drive, written as a log. docs/FS.md draws it.
//!
//! Over any of them, [`aside`] keeps what is written in memory, so that a database can be looked at and stays as it is.
//!
//! The last two of the list are [`paged`]: they keep pages in memory until a sync. All of them promise what redb needs and no more,
//! but for the log, whose syncs are atomic.
//!
//! # Locks
//! No lock is held while the drive works or a waiter waits, so that a coroutine that waits here holds up nobody.

pub mod aside;
pub mod conventional;
mod disk;
mod error;
pub mod file;
pub mod header;
pub mod logged;
pub mod memory;
pub mod over;
pub mod paged;
mod room;

pub use aside::Aside;
pub use conventional::Conventional;
pub use error::{BackendError, Damage, Place};
pub use file::FileBeside;
pub use logged::Logged;
pub use memory::Memory;
pub use over::Over;
pub(in crate::store) use room::Handle;
pub use room::{Backend, PAGES_OF_NEW, Room};

pub use crate::format::Uuid;
