//! Formats: messages of a front end, descriptors and requests of a guest.
//!
//! Each structure is a view over its bytes, and takes any of them. What they mean is checked where it is used.

pub mod message;
pub mod ring;
pub mod scsi;
