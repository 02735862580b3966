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

use super::super::error::{BackendError, Damage, SegmentPlace};
use super::format::rows_blocks;
use super::{Log, LogState};
use crate::BLOCK_BYTES;
use crate::format::{UnitPlace, varint};
use std::sync::Arc;

/// Rows of a batch and its number, or where they cannot be read.
pub(in crate::insides::store) type BatchRows = (u64, Result<Arc<[u8]>, SegmentPlace>);

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

    /// Rows that the database lacks are all readable: a store where they are not is not opened.
    fn readable_rows(&self) -> impl Iterator<Item = (u64, &Arc<[u8]>)> {
        self.rows.iter().filter_map(|(batch, rows)| Some((*batch, rows.as_ref().ok()?)))
    }

    /// Bytes that the rows take in a checkpoint.
    pub(super) fn rows_bytes(&self) -> usize {
        self.readable_rows().map(|(_, rows)| BATCH_HEAD + rows.len()).sum()
    }

    /// The rows as a checkpoint has them.
    pub(super) fn emit_rows(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.rows_bytes());
        for (batch, rows) in self.readable_rows() {
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

/// The rows of the batches after number `covered`.
///
/// # Errors
/// If some of them cannot be read.
pub(in crate::insides::store) fn after(
    rows: Vec<BatchRows>,
    covered: u64,
) -> Result<Vec<Arc<[u8]>>, BackendError> {
    let lost = |place| BackendError::Damaged { place, what: "rows of metadata", damage: Damage::Checksum };
    let rows = rows.into_iter().filter(|(batch, _)| *batch > covered);
    rows.map(|(_, rows)| rows.map_err(lost)).collect()
}

impl Log {
    /// True if a batch of rows makes units of data durable: the log lies on the same drive.
    pub(in crate::insides::store) fn takes_units(&self) -> bool {
        !self.segments.is_file()
    }

    /// Batches of rows that the database may not have, in order.
    pub(in crate::insides::store) fn rows(&self) -> Vec<BatchRows> {
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
