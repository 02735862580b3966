//! Units in flight, and units that failed and wait for another zone.
//!
//! A unit is counted from its place on: threads that place units ask how much is in flight before they do. It is listed once it is sent.

use super::flight::{AppendUnit, Source};
use crate::store::locked::{InOrder, Rank};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use zonal_io::buffer::IoBuf;

/// The units and their lock.
#[derive(Default)]
pub(super) struct UnitsLock(Mutex<Units>);

impl UnitsLock {
    pub(super) fn lock(&self) -> InOrder<MutexGuard<'_, Units>> {
        InOrder::lock(Rank::Units, || self.0.lock())
    }
}

/// What the lock guards.
#[derive(Default)]
pub(super) struct Units {
    sent: HashMap<u64, AppendUnit>,
    /// Units that failed, to be sent to another zone.
    failed: Vec<(AppendUnit, IoBuf)>,
    next_token: u64,
    /// Users' blocks that have a place and no answer, headers included. Copies do not count: a collection would hold up all writers.
    blocks: u64,
    /// Pieces of units that were sent: each changes rows when it completes.
    pieces: usize,
    /// New data blocks of units that were sent, without headers.
    new: u64,
}

impl Units {
    /// Users' unit of `blocks` blocks has a place.
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

    /// The unit that is answered.
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

    /// A unit has failed, and waits for another zone.
    pub(super) fn wait_for_zone(&mut self, append: AppendUnit, buf: IoBuf) {
        self.failed.push((append, buf));
    }

    /// A unit that waits for a zone.
    pub(super) fn next_failed(&mut self) -> Option<(AppendUnit, IoBuf)> {
        self.failed.pop()
    }

    /// Copies that wait for a zone: they wait no longer.
    pub(super) fn take_failed_copies(&mut self) -> Vec<AppendUnit> {
        self.failed.extract_if(.., |(append, _)| append.is_copy()).map(|(append, _)| append).collect()
    }

    /// Whether none was sent that has no answer.
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Whether any waits for a zone.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Users' blocks that have a place and no answer, headers included.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Pieces of units that were sent.
    pub(super) fn pieces(&self) -> usize {
        self.pieces
    }

    /// New data blocks that were sent, or wait for a zone.
    pub(super) fn new_blocks(&self) -> u64 {
        let failed = self.failed.iter().filter(|(append, _)| !append.is_copy());
        self.new + failed.map(|(append, _)| u64::from(append.blocks())).sum::<u64>()
    }

    /// Units of copies that were sent, or wait for a zone.
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
