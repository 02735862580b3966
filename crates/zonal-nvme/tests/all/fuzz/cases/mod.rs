//! Cases of fuzzing: what bytes stand for, and what has to hold. The fuzzer's targets in `fuzz/` play them, and so does the test
//! program beside this module.

pub mod choices;
pub mod commands;
pub mod drive;
pub mod peer;
pub mod session;
