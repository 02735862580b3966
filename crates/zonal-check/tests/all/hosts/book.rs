//! What hosts asked for, and what they were told: the one side of what is checked.

use std::collections::BTreeMap;
use zonal_check::rig::tags;
use zonal_nvme::wire::{Sqe, io};

/// A connection, of all that a run has had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueueId(pub usize);

/// A command of an I/O queue.
#[derive(Clone, Debug)]
pub struct Entry {
    pub queue: QueueId,
    pub sqe: Sqe,
    /// When it was put on the wire.
    pub began: u64,
    /// Nothing but a loss or a fault can be in its way.
    pub is_proper: bool,
    /// Its host has asked for its end.
    pub is_aborted: bool,
    pub end: Option<End>,
}

/// What its host was told.
#[derive(Clone, Debug)]
pub struct End {
    pub step: u64,
    pub status: u16,
    pub result: u64,
    /// What a read found.
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

    /// Whether it has data for the drive.
    pub fn is_write(&self) -> bool {
        matches!(self.sqe.opcode, io::WRITE | io::ZONE_APPEND)
    }
}

/// All commands of a run, and when connections ended. Command number 1 is the first.
#[derive(Default)]
pub struct Book {
    pub entries: Vec<Entry>,
    /// When a connection was cancelled, because it was lost or over.
    pub cancelled: BTreeMap<QueueId, u64>,
    /// When a controller reset or a shutdown was put on the wire that ended a connection.
    pub commands: BTreeMap<(QueueId, u16), u64>,
}

impl Book {
    /// The number that the next command will have.
    pub fn next(&self) -> u64 {
        self.entries.len() as u64 + 1
    }

    pub fn begin(&mut self, cid: u16, entry: Entry) {
        self.entries.push(entry.clone());
        self.commands.insert((entry.queue, cid), self.entries.len() as u64);
    }

    /// Notes an end.
    pub fn end(&mut self, queue: QueueId, sqe: &Sqe, end: (u64, u16, u64), data: &[u8]) {
        // Commands of the admin queue are not in the book.
        let Some(number) = self.commands.get(&(queue, sqe.cid.get())) else { return };
        let entry = &mut self.entries[*number as usize - 1];
        let (step, status, result) = end;
        let found = if sqe.opcode == io::READ { tags(data) } else { Vec::new() };
        entry.end = Some(End { step, status, result, found, data_len: data.len() });
    }

    /// The host of this queue has asked for the end of a command.
    pub fn abort(&mut self, queue: QueueId, cid: u16) {
        if let Some(number) = self.commands.get(&(queue, cid)) {
            self.entries[*number as usize - 1].is_aborted = true;
        }
    }
}
