//! Rows in the log: changes that are durable before the database has them.
//!
//! A commit of the database writes a dozen pages, however little has changed. So a small commit is a batch of the rows that changed. The
//! next commit of the database has them, too, and says with them which batches of rows it has. An opening reads the others.
//!
//! # Units
//! A batch of rows that refer to data which may not be durable yet lists the units of these data. One flush makes all of it durable. An
//! opening believes such a batch only if the units are there: if it is the last one, it reads them. Any other was followed by a batch
//! that was begun after the flush had returned.
//!
//! # Memory
//! Until the database has them, the log keeps the rows in memory, and each table has them with it: an opening needs no segment before the one that has the
//! newest table.

use super::format::rows_blocks;
use super::{Log, LogState};
use crate::BLOCK_BYTES;
use crate::format::{UnitPlace, varint};
use std::sync::Arc;

/// One in this number of bytes of a segment is for rows that wait for the database.
const ROWS_PART: usize = 32;

/// Bytes of rows that wait for the database at most.
const ROWS_MAX: usize = 4 << 20;

/// Bytes of a batch of rows at most: a larger one costs no more as pages.
const BATCH_MAX: usize = 128 << 10;

/// Units of data that a batch of rows lists at most.
pub(crate) const UNITS_MAX: usize = 32;

/// Blocks of the data of these units at most: an opening after a cut reads them.
pub(crate) const UNITS_BLOCKS_MAX: u32 = 256;

/// Bytes before the rows of a batch in a checkpoint: its number, and how many they are.
const BATCH_HEAD: usize = 12;

impl LogState {
    /// Bytes that the next batch of rows may have.
    pub(super) fn row_room(&self) -> usize {
        let slots = self.slots.iter().filter(|slot| slot.is_usable());
        let blocks = slots.map(|slot| slot.blocks).min().unwrap_or(0);
        let all = (blocks as usize * BLOCK_BYTES as usize / ROWS_PART).min(ROWS_MAX);
        let beside = self.rows_bytes() + BATCH_HEAD + UNITS_MAX * UnitPlace::BYTES_MAX;
        let left = all.saturating_sub(beside).min(BATCH_MAX);
        if self.fits(1 + u64::from(rows_blocks(left)), 1) { left } else { 0 }
    }

    /// Bytes that the rows take in a checkpoint.
    pub(super) fn rows_bytes(&self) -> usize {
        self.rows.iter().map(|(_, rows)| BATCH_HEAD + rows.len()).sum()
    }

    /// The rows as a checkpoint has them.
    pub(super) fn emit_rows(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.rows_bytes());
        for (batch, rows) in &self.rows {
            bytes.extend(batch.to_le_bytes());
            bytes.extend((rows.len() as u32).to_le_bytes());
            bytes.extend(&rows[..]);
        }
        bytes
    }
}

/// What a batch of rows has: the units, and the rows.
pub(super) fn emit_batch(units: &[UnitPlace], rows: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + units.len() * UnitPlace::BYTES_MAX + rows.len());
    bytes.push(units.len() as u8);
    units.iter().for_each(|unit| unit.encode(&mut bytes));
    bytes.extend_from_slice(rows);
    bytes
}

/// The units of a batch, and its rows; `None` if `bytes` are none.
pub(super) fn parse_batch(bytes: &[u8]) -> Option<(Vec<UnitPlace>, &[u8])> {
    let (&count, rest) = bytes.split_first()?;
    let mut reader = varint::Reader(rest);
    let units = (0..count).map(|_| UnitPlace::decode(&mut reader)).collect::<Option<_>>()?;
    Some((units, reader.0))
}

/// The batches of rows of a checkpoint; `None` if `bytes` are none.
pub(super) fn parse_rows(mut bytes: &[u8]) -> Option<Vec<(u64, Arc<[u8]>)>> {
    let mut batches = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<BATCH_HEAD>() {
        let (batch, count) = head.split_first_chunk::<8>()?;
        let count = u32::from_le_bytes(count.try_into().ok()?) as usize;
        let (rows, rest) = rest.split_at_checked(count)?;
        batches.push((u64::from_le_bytes(*batch), rows.into()));
        bytes = rest;
    }
    bytes.is_empty().then_some(batches)
}

impl Log {
    /// True if a batch of rows makes units of data durable: the log lies on the same drive.
    pub(in crate::insides::store) fn takes_units(&self) -> bool {
        !self.segments.is_file()
    }

    /// Batches of rows that the database may not have, with their numbers, in order.
    pub(in crate::insides::store) fn rows(&self) -> Vec<(u64, Arc<[u8]>)> {
        self.state.lock().rows.iter().cloned().collect()
    }

    /// Number of the last batch of rows that the database may not have; 0 if it has all.
    pub(crate) fn last_rows(&self) -> u64 {
        self.state.lock().rows.back().map_or(0, |(batch, _)| *batch)
    }

    /// Notes that the database has the rows of all batches up to `batch`, durably.
    pub(in crate::insides::store) fn forget_rows(&self, batch: u64) {
        self.state.lock().rows.retain(|(number, _)| *number > batch);
    }
}
