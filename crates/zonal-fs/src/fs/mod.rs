//! The file system itself.

mod error;
mod map;

pub use error::FsError;
