//! Whole-stack checks of the other crates: hazards, promises, command line, speed.

pub mod bench;
