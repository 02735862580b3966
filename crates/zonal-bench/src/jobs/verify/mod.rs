//! Verification: blocks that say what they are, a record of what was acknowledged, and a check of the bare device.
//!
//! Three parties that know nothing of each other:
//! - [`pattern`] makes blocks and reads them: a header with address, generation, seed and a unique number, all of it
//!   under a CRC-32C;
//! - [`record`] keeps which block was acknowledged where. The address of an append is known only then: its header has
//!   the number, and the record binds number and address;
//! - [`check`] reads everything back from the bare device, once the write path is closed, and compares.
//!
//! A worker also reads its own blocks back through the write path after each pass, as fio does.
//!
//! # What each fault shows as
//! | fault | shows as |
//! |---|---|
//! | a byte changed | the payload's sum, or the header's |
//! | two blocks swapped | another address, or with appends another number |
//! | a write dropped | no block, or an older number |
//! | data from before a reset | an older generation and number |

pub mod check;
pub mod pattern;
pub mod record;

pub use crate::report::{Expected, Found, MISMATCHES_MAX, Mismatch, VerifyReport};
pub use pattern::{Blocks, HEADER_BYTES, check_block};
pub use record::{RECORDS_MAX, Record, Recorder};

/// What a write takes with it from submission to completion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticket {
    /// Number of the block, unique in the run.
    pub id: u64,
    /// Generation of its zone when it was submitted.
    pub generation: u32,
    /// Its submission in the order of events, where the zone may be overwritten.
    pub begun: u64,
    /// Of a read that checks: what it has to find.
    pub expected: Option<Expected>,
}
