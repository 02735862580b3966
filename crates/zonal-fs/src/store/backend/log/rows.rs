//! Rows in the log: changes that are durable but in no table yet.
//!
//! A table takes several pages, and merges of tables more. A small commit is therefore a batch of changed rows. The next commit of tables
//! includes these rows, and records the number of the last batch that it includes. After an opening, later batches are applied on top of
//! the tables.
//!
//! # Units
//! A batch of rows lists the units of data that may not be durable yet. One flush makes the units and the batch durable. An opening
//! verifies the units of the last batch, and ignores the batch if one is missing. An earlier batch needs no check, because its successor
//! was written after the flush had returned.
//!
//! # Memory
//! The log keeps these rows in memory until tables include them, and writes them to each checkpoint that has a table. So an opening
//! needs no segment older than the newest table.

use super::super::error::{BackendError, Damage, SegmentPlace};
use super::format::rows_blocks;
use super::grow::SMALLEST_BATCH;
use super::{Log, LogState};
use crate::BLOCK_BYTES;
use crate::format::{UnitPlace, varint};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of a batch, and its rows, or its place if they are damaged.
pub type BatchRows = (u64, Result<Arc<[u8]>, SegmentPlace>);

/// Share of a segment for logged rows: one byte in this number.
const ROWS_PART: usize = 32;

/// Maximum number of bytes of logged rows.
const ROWS_MAX: usize = 4 << 20;

/// Maximum number of bytes of a batch of rows. Larger commits cost no more as pages.
const BATCH_MAX: usize = 128 << 10;

/// Maximum number of units in a batch of rows.
pub(crate) const UNITS_MAX: usize = 32;

/// Maximum number of data blocks in these units, because an opening after a power cut reads them.
pub(crate) const UNITS_BLOCKS_MAX: u32 = 256;

/// Bytes before the rows of a batch in a checkpoint: number of the batch (8), length (4).
const BATCH_HEAD: usize = 12;

/// Batches of logged rows, in order.
#[derive(Default)]
pub(super) struct LoggedRows {
    batches: VecDeque<BatchRows>,
    /// Number of bytes of the undamaged ones in a checkpoint.
    bytes: usize,
}

impl LoggedRows {
    pub(super) fn push(&mut self, batch: BatchRows) {
        self.bytes += checkpoint_bytes(&batch);
        self.batches.push_back(batch);
    }

    /// Drops the batches up to number `batch`.
    fn forget(&mut self, batch: u64) {
        self.batches.retain(|(number, _)| *number > batch);
        self.bytes = self.batches.iter().map(checkpoint_bytes).sum();
    }

    /// Number of blocks in a checkpoint.
    pub(super) fn blocks(&self) -> u64 {
        (self.bytes as u64).div_ceil(BLOCK_BYTES.into())
    }

    /// Encodes the rows for a checkpoint. Damaged batches are in tables as well, because the store could not be opened otherwise.
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for (batch, rows) in &self.batches {
            let Ok(rows) = rows else { continue };
            bytes.extend(batch.to_le_bytes());
            bytes.extend((rows.len() as u32).to_le_bytes());
            bytes.extend(&rows[..]);
        }
        bytes
    }
}

fn checkpoint_bytes((_, rows): &BatchRows) -> usize {
    rows.as_ref().map_or(0, |rows| BATCH_HEAD + rows.len())
}

impl LogState {
    /// Maximum number of bytes of the next batch of rows; 0 if there would be no room for them in tables later.
    pub(super) fn row_room(&self) -> usize {
        if self.admit(SMALLEST_BATCH, 0).is_err() {
            return 0;
        }
        let slots = self.slots.iter().filter(|slot| slot.is_usable());
        let blocks = slots.map(|slot| slot.blocks).min().unwrap_or(0);
        let all = (blocks as usize * BLOCK_BYTES as usize / ROWS_PART).min(ROWS_MAX);
        let beside = self.rows.bytes + BATCH_HEAD + UNITS_MAX * UnitPlace::BYTES_MAX;
        let left = all.saturating_sub(beside).min(BATCH_MAX);
        if self.fits(1 + u64::from(rows_blocks(left)), 1) { left } else { 0 }
    }
}

/// Encodes a batch: number of units, units, rows.
pub(super) fn emit_batch(units: &[UnitPlace], rows: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + units.len() * UnitPlace::BYTES_MAX + rows.len());
    bytes.push(units.len() as u8);
    units.iter().for_each(|unit| unit.encode(&mut bytes));
    bytes.extend_from_slice(rows);
    bytes
}

/// Decodes the units of a batch, and returns them with its rows; `None` if they are damaged.
pub(super) fn parse_batch(bytes: &[u8]) -> Option<(Vec<UnitPlace>, &[u8])> {
    let (&count, rest) = bytes.split_first()?;
    let mut reader = varint::Reader(rest);
    let units = (0..count).map(|_| UnitPlace::decode(&mut reader)).collect::<Option<_>>()?;
    Some((units, reader.0))
}

/// Decodes the batches in a checkpoint; `None` if they are damaged.
pub(super) fn parse_rows(mut bytes: &[u8]) -> Option<Vec<BatchRows>> {
    let mut batches = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<BATCH_HEAD>() {
        let (batch, count) = head.split_first_chunk::<8>()?;
        let count = u32::from_le_bytes(count.try_into().ok()?) as usize;
        let (rows, rest) = rest.split_at_checked(count)?;
        batches.push((u64::from_le_bytes(*batch), Ok(rows.into())));
        bytes = rest;
    }
    bytes.is_empty().then_some(batches)
}

/// Returns the rows of the batches after number `covered`.
///
/// # Errors
/// If one of them is damaged.
pub(in crate::insides::store) fn after(
    rows: Vec<BatchRows>,
    covered: u64,
) -> Result<Vec<Arc<[u8]>>, BackendError> {
    let lost = |place| BackendError::Damaged { place, what: "rows of metadata", damage: Damage::Checksum };
    let rows = rows.into_iter().filter(|(batch, _)| *batch > covered);
    rows.map(|(_, rows)| rows.map_err(lost)).collect()
}

impl Log {
    /// True if the log is on the drive of the data, so that a batch of rows makes units durable.
    pub(in crate::insides::store) fn takes_units(&self) -> bool {
        !self.segments.is_file()
    }

    /// Batches of logged rows, in order.
    pub(in crate::insides::store) fn logged_rows(&self) -> Vec<BatchRows> {
        self.state.lock().rows.batches.iter().cloned().collect()
    }

    /// Number of the last batch of logged rows; 0 if there is none.
    pub(in crate::insides::store) fn last_rows(&self) -> u64 {
        self.state.lock().rows.batches.back().map_or(0, |(batch, _)| *batch)
    }

    /// Drops the rows of all batches up to `batch`, which are durable in tables.
    pub(in crate::insides::store) fn forget_rows(&self, batch: u64) {
        self.state.lock().rows.forget(batch);
    }
}
