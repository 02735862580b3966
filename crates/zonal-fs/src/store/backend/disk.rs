//! Blocks of a drive, in calls that wait.

use super::error::BackendError;
use crate::drive::{Claim, Drive};
use crate::waiter::{Wait, Waiters};
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use std::fmt;
use std::sync::Arc;
use zonal_core::{Op, RequestError, Sector, Sectors, ZoneDescriptor, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::Request;

/// Bytes of a request at most: large enough for full speed on a disk.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Most requests in flight together, so that a large batch takes no more memory than these.
const REQUESTS_MAX: usize = 16;

/// A drive, and a way to wait for it.
#[derive(Clone)]
pub(super) struct Disk {
    drive: Arc<Drive>,
    waiters: Waiters,
    _claim: Arc<Claim>,
}

/// Bytes for a place.
pub(super) struct Write {
    pub(super) at: Sector,
    pub(super) bytes: IoBuf,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({})", self.drive.volume().info().name)
    }
}

fn failed(doing: &'static str, sector: Sector) -> impl Fn(RequestError) -> BackendError {
    move |error| BackendError::Request { doing, sector, error }
}

/// The sector `bytes` after `at`.
fn after(at: Sector, bytes: usize) -> Sector {
    at + Sectors(bytes as u64 / 512)
}

impl Disk {
    /// Claims the metadata on `drive`, whose blocks have to divide ours.
    pub(super) fn new(drive: Arc<Drive>, waiters: Waiters) -> Result<Disk, BackendError> {
        if !BLOCK_SECTORS.is_multiple_of(drive.volume().info().block_sectors) {
            return Err(BackendError::Unfit("the drive's blocks are larger than 4 KiB"));
        }
        let claim = Arc::new(drive.claim().ok_or(BackendError::Claimed)?);
        Ok(Disk { drive, waiters, _claim: claim })
    }

    pub(super) fn drive(&self) -> &Arc<Drive> {
        &self.drive
    }

    /// A waiter for this thread.
    pub(super) fn waiter(&self) -> Box<dyn Wait> {
        (self.waiters)()
    }

    /// Lets other threads continue.
    pub(super) fn wait(&self) {
        (self.waiters)().wait(self.drive.volume());
    }

    /// Fills `out` from `at`.
    pub(super) fn read(&self, at: Sector, out: &mut [u8]) -> Result<(), BackendError> {
        let waiter = (self.waiters)();
        let mut at = at;
        for group in out.chunks_mut(REQUEST_BYTES_MAX * REQUESTS_MAX) {
            let pieces: Vec<&mut [u8]> = group.chunks_mut(REQUEST_BYTES_MAX).collect();
            let places: Vec<Sector> = (0..pieces.len()).map(|n| after(at, n * REQUEST_BYTES_MAX)).collect();
            let requests = places.iter().zip(&pieces).map(|(&at, piece)| {
                Request::read(at, (piece.len() / 512) as u32, IoBuf::zeroed(piece.len() as u32))
            });
            let answers = self.drive.calls(&*waiter, requests);
            for ((piece, place), (result, buf)) in pieces.into_iter().zip(places).zip(answers) {
                result.map_err(failed("reading metadata", place))?;
                piece.copy_from_slice(&buf);
                at = after(place, piece.len());
            }
        }
        Ok(())
    }

    /// Writes all of `writes`, in this order where they follow each other in a zone. After an error any of them may have
    /// been carried out.
    pub(super) fn write(&self, writes: impl IntoIterator<Item = Write>) -> Result<(), BackendError> {
        let waiter = (self.waiters)();
        let mut writes = writes.into_iter().peekable();
        while writes.peek().is_some() {
            let mut places = Vec::with_capacity(REQUESTS_MAX);
            let requests = writes.by_ref().take(REQUESTS_MAX).map(|Write { at, bytes }| {
                places.push(at);
                Request::write(at, (bytes.len() / 512) as u32, bytes)
            });
            let answers = self.drive.calls(&*waiter, requests);
            for (place, (result, _)) in places.into_iter().zip(answers) {
                result.map_err(failed("writing metadata", place))?;
            }
        }
        Ok(())
    }

    /// Makes durable what was acknowledged.
    pub(super) fn flush(&self) -> Result<(), BackendError> {
        self.drive.flush(&*(self.waiters)()).map_err(failed("flushing metadata", Sector(0)))
    }

    /// Resets or finishes `zone`.
    pub(super) fn manage(&self, op: Op, zone: ZoneIndex) -> Result<(), BackendError> {
        let start = self.drive.volume().info().geometry.start_of(zone);
        self.drive.zone(&*(self.waiters)(), op, zone).map_err(failed("managing a zone of metadata", start))
    }

    /// Describes all zones.
    pub(super) fn report(&self) -> Result<Vec<ZoneDescriptor>, BackendError> {
        self.drive.report(&*(self.waiters)()).map_err(failed("asking for the zones", Sector(0)))
    }
}

/// A buffer of `parts`, one after the other.
pub(super) fn concat<'a>(parts: impl IntoIterator<Item = &'a [u8]>, bytes: usize) -> IoBuf {
    let mut buf = IoBuf::zeroed(bytes as u32);
    let mut at = 0;
    for part in parts {
        buf[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    buf
}

/// Blocks of a request at most.
pub(super) const REQUEST_BLOCKS_MAX: usize = REQUEST_BYTES_MAX / BLOCK_BYTES as usize;
