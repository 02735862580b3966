//! Error log (Base 5.1.12.1.2): the most recent failed commands.

use super::logs::TCP;
use crate::status::Status;
use crate::wire::{ErrorEntry, Sqe};
use std::collections::VecDeque;
use zerocopy::{FromZeros, IntoBytes};

/// Entries in the log.
pub(super) const ERROR_ENTRIES: usize = 64;

/// Failed command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FailedCommand {
    /// Number of failures up to and including this one.
    count: u64,
    queue: u16,
    sqe: Sqe,
    status: Status,
}

#[derive(Default)]
pub(super) struct ErrorLog {
    count: u64,
    /// Newest first.
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
        let mut entries: Vec<_> = self.last.iter().map(FailedCommand::entry).collect();
        entries.resize(ERROR_ENTRIES, ErrorEntry::new_zeroed());
        entries.as_bytes().to_vec()
    }
}

impl FailedCommand {
    fn entry(&self) -> ErrorEntry {
        /// Parameter error location: no specific field.
        const NO_FIELD: u16 = 0xFFFF;
        /// Version with opcode and command set.
        const VERSION: u8 = 1;
        ErrorEntry {
            count: self.count.into(),
            sqid: self.queue.into(),
            cid: self.sqe.cid,
            status: self.status.field().into(),
            location: NO_FIELD.into(),
            // For admin commands these dwords are not an LBA.
            lba: if self.queue > 0 { self.sqe.lba() } else { 0 }.into(),
            nsid: self.sqe.nsid,
            transport: TCP,
            opcode: self.sqe.opcode,
            version: VERSION,
            ..ErrorEntry::new_zeroed()
        }
    }
}
