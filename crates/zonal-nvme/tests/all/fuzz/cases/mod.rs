//! Fuzzing cases: their decoding from bytes, and the properties that have to hold. Used by the fuzz
//! targets in `fuzz/` and by the tests next to this module.

pub mod choices;
pub mod commands;
pub mod drive;
pub mod peer;
pub mod session;
