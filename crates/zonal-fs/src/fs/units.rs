//! Units in flight, and failed units that wait for another zone.
//!
//! A unit counts from its placement on, because threads check the amount in flight before they
//! place units. It is listed once it is sent.

use super::flight::{AppendUnit, Source};
use crate::store::locked::{InOrder, Rank};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use zonal_io::buffer::IoBuf;

/// Units and their lock.
#[derive(Default)]
pub(super) struct UnitsLock(Mutex<Units>);

impl UnitsLock {
    pub(super) fn lock(&self) -> InOrder<MutexGuard<'_, Units>> {
        InOrder::lock(Rank::Units, || self.0.lock())
    }
}

/// State guarded by the lock.
#[derive(Default)]
pub(super) struct Units {
    sent: HashMap<u64, AppendUnit>,
    /// Failed units, to be sent to another zone.
    failed: Vec<(AppendUnit, IoBuf)>,
    next_token: u64,
    /// Blocks of users placed and not completed, headers included. Copies do not count, because a
    /// collection would stall all writers.
    blocks: u64,
    /// Number of pieces of sent units. Each changes rows when it completes.
    pieces: usize,
    /// New data blocks of sent units, without headers.
    new: u64,
}

impl Units {
    /// Counts a placed user unit of `blocks` blocks.
    pub(super) fn placed(&mut self, blocks: u32) {
        self.blocks += u64::from(blocks);
    }

    /// Lists a unit that is about to be sent, and returns its token.
    pub(super) fn send(&mut self, append: AppendUnit) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.pieces += append.carried.len();
        if !append.is_copy() {
            self.new += u64::from(append.blocks());
        }
        self.sent.insert(token, append);
        token
    }

    /// Records the checksum of the header of a listed unit.
    pub(super) fn note_header(&mut self, token: u64, header: u32) {
        self.sent.get_mut(&token).expect("a unit that is listed").header = header;
    }

    /// Removes and returns the unit with a completion for this token.
    ///
    /// # Panics
    /// If no unit was sent with this token.
    pub(super) fn answered(&mut self, token: u64) -> AppendUnit {
        let append = self.sent.remove(&token).expect("a unit that was sent");
        if !append.is_copy() {
            self.blocks -= u64::from(append.blocks() + 1);
            self.new -= u64::from(append.blocks());
        }
        self.pieces -= append.carried.len();
        append
    }

    /// Number of units ever answered.
    pub(super) fn answered_count(&self) -> u64 {
        self.next_token - self.sent.len() as u64
    }

    /// Queues a failed unit for another zone.
    pub(super) fn wait_for_zone(&mut self, append: AppendUnit, buf: IoBuf) {
        self.failed.push((append, buf));
    }

    /// Takes a unit that waits for a zone.
    pub(super) fn next_failed(&mut self) -> Option<(AppendUnit, IoBuf)> {
        self.failed.pop()
    }

    /// Takes all copies that wait for a zone.
    pub(super) fn take_failed_copies(&mut self) -> Vec<AppendUnit> {
        self.failed.extract_if(.., |(append, _)| append.is_copy()).map(|(append, _)| append).collect()
    }

    /// True if no sent unit is incomplete.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// True if any unit waits for a zone.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// True if any unit of users was placed and has not completed, or waits for a zone.
    pub(super) fn has_users(&self) -> bool {
        self.blocks > 0 || self.new_blocks() > 0
    }

    /// Blocks of users placed and not completed, headers included.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of pieces of sent units.
    pub(super) fn pieces(&self) -> usize {
        self.pieces
    }

    /// New data blocks that were sent, or that wait for a zone.
    pub(super) fn new_blocks(&self) -> u64 {
        let failed = self.failed.iter().filter(|(append, _)| !append.is_copy());
        self.new + failed.map(|(append, _)| u64::from(append.blocks())).sum::<u64>()
    }

    /// Number of units of copies that were sent, or that wait for a zone.
    pub(super) fn copies(&self) -> u32 {
        let failed = self.failed.iter().map(|(append, _)| append);
        self.sent.values().chain(failed).filter(|append| append.is_copy()).count() as u32
    }
}

impl AppendUnit {
    pub(super) fn is_copy(&self) -> bool {
        self.carried.iter().any(|carried| matches!(carried.source, Source::Copy(_)))
    }
}
