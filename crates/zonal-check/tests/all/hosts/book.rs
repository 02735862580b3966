//! Requests of the hosts and the answers that they received: one side of the comparison.

use std::collections::BTreeMap;
use zonal_check::rig::tags;
use zonal_nvme::wire::{Sqe, io};

/// Number of a connection, counted over a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueueId(pub usize);

/// A command of an I/O queue.
#[derive(Clone, Debug)]
pub struct Entry {
    pub queue: QueueId,
    pub sqe: Sqe,
    /// Step at which it was put on the wire.
    pub began: u64,
    /// True if only a lost connection or a fault can make it fail.
    pub is_proper: bool,
    /// True if its host has asked to abort it.
    pub is_aborted: bool,
    pub end: Option<End>,
}

/// Answer received by the host.
#[derive(Clone, Debug)]
pub struct End {
    pub step: u64,
    pub status: u16,
    pub result: u64,
    /// Tags returned by a read.
    pub found: Vec<(u64, u64)>,
    pub data_len: usize,
}

impl Entry {
    pub fn has_succeeded(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.status == 0)
    }

    pub fn blocks(&self) -> u64 {
        u64::from(self.sqe.dword(12) & 0xFFFF) + 1
    }

    /// True if it transfers data to the drive.
    pub fn is_write(&self) -> bool {
        matches!(self.sqe.opcode, io::WRITE | io::ZONE_APPEND)
    }
}

/// All commands of a run, numbered from 1, and the ends of connections.
#[derive(Default)]
pub struct Book {
    pub entries: Vec<Entry>,
    /// Step at which a connection was cancelled, because it was lost or closed.
    pub cancelled: BTreeMap<QueueId, u64>,
    /// Step at which the controller reset or shutdown that ended a connection was put on the wire.
    pub commands: BTreeMap<(QueueId, u16), u64>,
}

impl Book {
    /// Number of the next command.
    pub fn next(&self) -> u64 {
        self.entries.len() as u64 + 1
    }

    pub fn begin(&mut self, cid: u16, entry: Entry) {
        self.entries.push(entry.clone());
        self.commands.insert((entry.queue, cid), self.entries.len() as u64);
    }

    /// Records the end of a command.
    pub fn end(&mut self, queue: QueueId, sqe: &Sqe, end: (u64, u16, u64), data: &[u8]) {
        // Commands of the admin queue are not recorded.
        let Some(number) = self.commands.get(&(queue, sqe.cid.get())) else { return };
        let entry = &mut self.entries[*number as usize - 1];
        let (step, status, result) = end;
        let found = if sqe.opcode == io::READ { tags(data) } else { Vec::new() };
        entry.end = Some(End { step, status, result, found, data_len: data.len() });
    }

    /// Records that the host of this queue has asked to abort a command.
    pub fn abort(&mut self, queue: QueueId, cid: u16) {
        if let Some(number) = self.commands.get(&(queue, cid)) {
            self.entries[*number as usize - 1].is_aborted = true;
        }
    }
}
