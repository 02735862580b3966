//! Replay of traces: what was recorded of one drive, sent to another through the write path.
//!
//! [`trace`] reads what others recorded.

mod clock;
mod log;
pub mod trace;
