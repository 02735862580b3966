//! Verification: self-describing blocks, a record of acknowledged writes, and a check of the bare
//! device.
//!
//! Three independent parts:
//! - [`pattern`] generates and parses blocks. The header has the address, generation, seed and a
//!   unique number, and header and payload are covered by CRC-32Cs.
//! - [`record`] keeps the address of each acknowledged block. The address of an append is not known
//!   before its completion, so its header has only the number, and the record maps the number to
//!   the address.
//! - [`check`] reads everything back from the bare device once the write path is closed, and
//!   compares.
//!
//! As in fio, a worker also reads back its own blocks through the write path after each pass.
//!
//! # Detection of faults
//! | fault | detected by |
//! |---|---|
//! | a changed byte | checksum of the payload or the header |
//! | two swapped blocks | wrong address; with appends, wrong number |
//! | a dropped write | no block, or an older number |
//! | data from before a reset | older generation and number |

pub mod check;
pub mod pattern;
pub mod record;

pub use crate::report::{Expected, Found, MISMATCHES_MAX, Mismatch, VerifyReport};
pub use pattern::{Blocks, HEADER_BYTES, check_block};
pub use record::{RECORDS_MAX, Record, Recorder};

/// State carried by a write from submission to completion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticket {
    /// Number of the block, unique in the run.
    pub id: u64,
    /// Generation of the zone at submission.
    pub generation: u32,
    /// Event number of the submission, if the zone can be overwritten.
    pub begun: u64,
    /// Expected content, for a read that verifies.
    pub expected: Option<Expected>,
}
