//! Formats: messages of a front end, and descriptors and requests of a guest.
//!
//! Each structure is a view over its bytes and accepts any contents. Values are checked where they
//! are used.

pub mod message;
pub mod ring;
pub mod scsi;
