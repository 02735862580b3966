//! The place of pages, and how full it is.

use super::log::{BatchRows, Log};
use crate::format::UnitPlace;
use std::fmt::Debug;
use std::io;
use std::ops::Range;

/// Bytes of pages, with bounds. A sync makes durable all that was written before it, or nothing of it.
pub trait Backend: Debug + Send + Sync + 'static {
    /// Length in bytes.
    ///
    /// # Errors
    /// The place's; so for all.
    fn len(&self) -> io::Result<u64>;

    /// True if there are no bytes.
    ///
    /// # Errors
    /// The place's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `out` with the bytes from `offset` on, which have to be there.
    ///
    /// # Errors
    /// The place's, and damage.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes bytes within the length.
    ///
    /// # Errors
    /// The place's, and that it is full.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts the bytes off at `len`, or adds zeroes.
    ///
    /// # Errors
    /// The place's.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// The place's. What was written is not durable then.
    fn sync_data(&self) -> io::Result<()>;

    /// Forgets pages that are not in use any more, so that they take no room. They may still be there after an opening.
    fn discard(&self, _pages: Range<u64>) {}

    /// Checks that all pages which were not discarded since the opening may still be there, as far as that is known without reads.
    ///
    /// # Errors
    /// That a page is missing.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the fill, or `None` if nothing bounds it.
    fn room(&self) -> Option<Room> {
        None
    }

    /// Discards all writes since the last successful sync, as a crash does. No sync may be running.
    fn forget_unsynced(&self) {}

    /// Maximum number of bytes for [`Backend::append_rows`] now.
    fn row_room(&self) -> usize {
        0
    }

    /// Makes rows durable that are in no table yet, together with the data in `units`, which were written to the same drive. Pages
    /// still wait for the next sync.
    ///
    /// # Errors
    /// As for a sync.
    fn append_rows(&self, _units: &[UnitPlace], _rows: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Batches of rows that were [appended](Backend::append_rows) and not forgotten, in order.
    fn rows(&self) -> Vec<BatchRows> {
        Vec::new()
    }

    /// Number of the last batch of rows; 0 if there is none.
    fn last_rows(&self) -> u64 {
        0
    }

    /// Forgets the batches of rows up to number `batch`, which are in tables.
    fn forget_rows(&self, _batch: u64) {}

    /// The log that holds the pages, if there is one.
    fn log(&self) -> Option<&Log> {
        None
    }
}

/// Pages of a bounded place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Room {
    /// In use.
    pub pages: u64,
    /// That can be in use, before the place gets more room.
    pub limit: u64,
    /// Blocks that it can get at once, without the help of a file system.
    pub growth: u64,
    /// It grows by zones, which a file system gives.
    pub takes_zones: bool,
}
