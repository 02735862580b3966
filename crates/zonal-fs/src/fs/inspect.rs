//! Inspection of data without a mount.

use super::beginnings::Beginnings;
use super::error::FsError;
use super::fetch::{Source, Span};
pub(crate) use super::map::HeaderSums;
use super::map::Mapped;
use super::read;
use super::read::spans as spans_of;
use crate::drive::Drive;
use crate::format::{Account, Extent, Superblock};
use crate::waiter::Wait;
use std::sync::Arc;
use zonal_io::volume::Volume;

/// Returns the units of an extent: first block in the zone, block count, and offset in the extent.
pub fn spans(ino: u64, block: u64, extent: &Extent) -> impl Iterator<Item = (u32, u32, u64)> {
    let spans = spans_of(ino, &Mapped { block, extent: *extent });
    spans.map(move |span| (span.place.block(), span.blocks, span.block - block))
}

/// Reader of extents, without a file system.
pub struct Reader {
    drive: Drive,
    superblock: Superblock,
    begun: Beginnings,
    headers: HeaderSums,
}

impl Reader {
    /// Creates a reader of the file system of `superblock`, given zone accounts and header
    /// checksums.
    pub fn new(
        volume: Arc<Volume>,
        superblock: Superblock,
        accounts: &[Account],
        headers: HeaderSums,
    ) -> Reader {
        Reader { drive: Drive::new(volume), superblock, begun: Beginnings::new(accounts), headers }
    }

    /// Reads and verifies an extent of a file. Returns the first wrong block of each unit with its
    /// error.
    ///
    /// # Errors
    /// Errors other than those of data.
    pub fn verify(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        block: u64,
        extent: &Extent,
    ) -> Result<Vec<(u64, FsError)>, FsError> {
        let mut wrong = Vec::new();
        for span in spans_of(ino, &Mapped { block, extent: *extent }) {
            match self.read(waiter, &span) {
                Ok(()) => {}
                Err(
                    error @ (FsError::Read { block, .. }
                    | FsError::Checksum { block, .. }
                    | FsError::Unit { block, .. }),
                ) => wrong.push((block, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(wrong)
    }

    fn read(&self, waiter: &dyn Wait, span: &Span) -> Result<(), FsError> {
        let Reader { drive, superblock, begun, headers } = self;
        let (depth, along_max) = (read::DEPTH, read::ALONG_MAX);
        let (has_data, headers) = (true, Some(headers));
        let source = Source {
            drive,
            superblock,
            has_data,
            buffers: None,
            known: None,
            begun,
            headers,
            depth,
            along_max,
        };
        source.fetch(waiter, std::slice::from_ref(span)).verify(span)
    }
}
