//! The error log (Base 5.1.12.1.2): the commands that have failed last.

use super::logs::TCP;
use crate::status::Status;
use crate::wire::{Page, Sqe};
use std::collections::VecDeque;

/// Entries of the log.
pub(super) const ERROR_ENTRIES: usize = 64;

/// A command that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FailedCommand {
    /// How many have failed up to this one.
    count: u64,
    queue: u16,
    sqe: Sqe,
    status: Status,
}

#[derive(Default)]
pub(super) struct ErrorLog {
    count: u64,
    /// The newest first.
    last: VecDeque<FailedCommand>,
}

impl ErrorLog {
    pub(super) fn add(&mut self, queue: u16, sqe: &Sqe, status: Status) {
        self.count += 1;
        self.last.truncate(ERROR_ENTRIES - 1);
        self.last.push_front(FailedCommand { count: self.count, queue, sqe: *sqe, status });
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn page(&self) -> Vec<u8> {
        let mut page = Page::<{ 64 * ERROR_ENTRIES }>::default();
        for (n, failed) in self.last.iter().enumerate() {
            failed.emit(&mut page, 64 * n);
        }
        page.into_vec()
    }
}

impl FailedCommand {
    fn emit(&self, page: &mut Page<{ 64 * ERROR_ENTRIES }>, at: usize) {
        /// No single field is to blame.
        const NO_FIELD: u16 = 0xFFFF;
        /// The entry has opcode and command set.
        const VERSION: u8 = 1;
        page.u64(at, self.count);
        page.u16(at + 8, self.queue).u16(at + 10, self.sqe.cid.get()).u16(at + 12, self.status.field());
        page.u16(at + 14, NO_FIELD);
        // Of the admin queue these dwords are no block.
        page.u64(at + 16, if self.queue > 0 { self.sqe.lba() } else { 0 });
        page.u32(at + 24, self.sqe.nsid.get());
        page.u8(at + 29, TCP).u8(at + 31, self.sqe.opcode).u8(at + 63, VERSION);
    }
}
