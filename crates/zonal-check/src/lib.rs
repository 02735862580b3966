//! Whole-stack checks of the other crates: hazards, promises, command line, speed.
//!
//! The checks are this crate's tests; the library holds what several of them need.

pub mod bench;
pub mod program;
