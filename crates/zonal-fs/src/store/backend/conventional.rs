//! A database in the drive's conventional zones, written in place.
//!
//! Owns a range of sectors: two blocks of headers, of which the one with the higher sequence counts, then the database. The
//! length is in the header, which is written, to the block that does not count, only when the length has changed and after
//! what it covers is durable.

use super::Uuid;
use super::disk::{Disk, REQUEST_BLOCKS_MAX, Write, gather};
use super::error::{BackendError, Damage, Place};
use super::header::Header;
use super::paged::{Durable, Medium, PAGE, Paged, Pages, Snapshot};
use super::room::Room;
use crate::drive::Drive;
use crate::waiter::Waiters;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use zonal_core::{Sector, Sectors};
use zonal_io::buffer::IoBuf;

/// Blocks before the database.
const HEADERS: u64 = 2;

/// Pages that wait in memory at most: 4 MiB.
const WAITING_MAX: u64 = 1024;

/// A database in conventional zones.
pub type Conventional = Paged<Region>;

/// Blocks of conventional zones.
#[derive(Debug)]
pub struct Region {
    disk: Disk,
    first: Sector,
    blocks: u64,
    /// The header that counts on the drive.
    durable: Mutex<Header>,
}

impl Conventional {
    /// Pages that the database in `sectors` may have.
    pub fn pages_of(sectors: &Range<Sector>) -> u64 {
        let blocks = sectors.end.0.saturating_sub(sectors.start.0) / u64::from(BLOCK_SECTORS);
        blocks.saturating_sub(HEADERS)
    }

    /// Makes an empty database in `sectors`, over whatever is there.
    ///
    /// # Errors
    /// [`BackendError::Unfit`] where the range is not one of conventional blocks; the drive's.
    pub fn create(
        drive: Arc<Drive>,
        waiters: Waiters,
        sectors: Range<Sector>,
        uuid: Uuid,
    ) -> Result<Conventional, BackendError> {
        let (disk, blocks) = fit(drive, waiters, &sectors)?;
        let header = Header { uuid, sequence: 1, len: 0, blocks };
        let region = Region { disk, first: sectors.start, blocks, durable: Mutex::new(header) };
        // The other copy first: an older database's may not count any more.
        region.disk.zero(region.first, 1)?;
        region.disk.flush()?;
        region.write_header(header)?;
        region.disk.flush()?;
        Ok(Paged::new(region, 0))
    }

    /// Opens the database in `sectors`, which has to be the file system `uuid`'s.
    ///
    /// # Errors
    /// [`BackendError::Damaged`] where neither header counts; [`BackendError::Unfit`]; the drive's.
    pub fn open(
        drive: Arc<Drive>,
        waiters: Waiters,
        sectors: Range<Sector>,
        uuid: Uuid,
    ) -> Result<Conventional, BackendError> {
        let (disk, blocks) = fit(drive, waiters, &sectors)?;
        // What is read below may be in the drive's cache only, and is built upon.
        disk.flush()?;
        let header = newest(&disk, &sectors, blocks, &uuid)?;
        let region = Region { disk, first: sectors.start, blocks, durable: Mutex::new(header) };
        Ok(Paged::new(region, header.len))
    }
}

/// The drive to use, and the blocks in `sectors`.
fn fit(drive: Arc<Drive>, waiters: Waiters, sectors: &Range<Sector>) -> Result<(Disk, u64), BackendError> {
    let geometry = drive.volume().info().geometry;
    let conventional = geometry.start_of(zonal_core::ZoneIndex(geometry.conventional_zones())).0;
    let block = u64::from(BLOCK_SECTORS);
    let Range { start: Sector(start), end: Sector(end) } = *sectors;
    if end > conventional || !start.is_multiple_of(block) || !end.is_multiple_of(block) {
        return Err(BackendError::Unfit("the range is not one of conventional blocks"));
    }
    if end < start.saturating_add((HEADERS + 1) * block) {
        return Err(BackendError::Unfit("the range has no room for a database"));
    }
    Ok((Disk::new(drive, waiters)?, (end - start) / block))
}

/// The header that counts.
fn newest(disk: &Disk, sectors: &Range<Sector>, blocks: u64, uuid: &Uuid) -> Result<Header, BackendError> {
    let mut bytes = vec![0; HEADERS as usize * PAGE];
    disk.read(sectors.start, &mut bytes)?;
    let parsed: Vec<Result<Header, Damage>> =
        bytes.chunks(PAGE).map(|block| check(Header::parse(block, uuid)?, blocks)).collect();
    let newest = parsed.iter().flatten().max_by_key(|header| header.sequence).copied();
    // The first block is the one that says what is wrong, unless there is nothing in it.
    let damage = || match (parsed[0], parsed[1]) {
        (Err(Damage::Magic), Err(second)) => second,
        (Err(first), _) => first,
        (Ok(_), _) => Damage::Checksum,
    };
    newest.ok_or_else(|| {
        let geometry = &disk.drive().volume().info().geometry;
        let block = geometry.offset_of(sectors.start) / BLOCK_SECTORS;
        let place = Place { zone: geometry.zone_of(sectors.start), block };
        BackendError::Damaged { place, what: "the header of the metadata", damage: damage() }
    })
}

fn check(header: Header, blocks: u64) -> Result<Header, Damage> {
    if header.blocks != blocks {
        return Err(Damage::Field("blocks"));
    }
    if header.len > (blocks - HEADERS) * u64::from(BLOCK_BYTES) {
        return Err(Damage::Field("len"));
    }
    Ok(header)
}

impl Region {
    fn place(&self, page: u64) -> Sector {
        self.block(HEADERS + page)
    }

    fn block(&self, block: u64) -> Sector {
        self.first + Sectors(block * u64::from(BLOCK_SECTORS))
    }

    fn write_header(&self, header: Header) -> Result<(), BackendError> {
        let bytes = header.emit();
        let at = self.block(header.sequence % HEADERS);
        self.disk.write([Write { at, bytes: gather([&bytes[..]], bytes.len()) }])
    }

    /// Clears what is zeroes and writes what is not.
    fn write_pages(&self, snapshot: &Snapshot) -> Result<(), BackendError> {
        let end = snapshot.len.div_ceil(PAGE as u64);
        let mut next = snapshot.cut;
        for &page in snapshot.pages.range(snapshot.cut..).map(|(page, _)| page) {
            self.disk.zero(self.place(next), page.saturating_sub(next))?;
            next = page + 1;
        }
        self.disk.zero(self.place(next), end.saturating_sub(next))?;
        self.disk.write(runs(&snapshot.pages).map(|(first, bytes)| Write { at: self.place(first), bytes }))
    }
}

/// `pages` in runs of neighbours, each with the first one's number.
fn runs(pages: &Pages) -> impl Iterator<Item = (u64, IoBuf)> {
    let mut pages = pages.iter().peekable();
    std::iter::from_fn(move || {
        let (&first, bytes) = pages.next()?;
        let mut run = vec![&bytes[..]];
        while run.len() < REQUEST_BLOCKS_MAX {
            let next = first + run.len() as u64;
            let Some((_, bytes)) = pages.next_if(|(page, _)| **page == next) else { break };
            run.push(&bytes[..]);
        }
        let len = run.len() * PAGE;
        Some((first, gather(run, len)))
    })
}

impl Medium for Region {
    fn load(&self, first: u64, out: &mut [u8]) -> Result<(), BackendError> {
        self.disk.read(self.place(first), out)
    }

    fn store(&self, snapshot: &Snapshot, when: Durable) -> Result<(), BackendError> {
        self.write_pages(snapshot)?;
        if when == Durable::Later {
            return Ok(());
        }
        self.disk.flush()?;
        let before = *self.durable.lock();
        if before.len == snapshot.len {
            return Ok(());
        }
        let header = Header { sequence: before.sequence + 1, len: snapshot.len, ..before };
        self.write_header(header)?;
        self.disk.flush()?;
        *self.durable.lock() = header;
        Ok(())
    }

    fn waiting_max(&self) -> u64 {
        WAITING_MAX
    }

    fn has(&self, _page: u64) -> bool {
        true
    }

    fn admit(&self, _waiting: u64, _fresh: u64) -> Result<(), BackendError> {
        Ok(())
    }

    fn admit_len(&self, pages: u64) -> Result<(), BackendError> {
        let usable = self.blocks - HEADERS;
        if pages > usable { Err(BackendError::Full { needed: pages, usable }) } else { Ok(()) }
    }

    fn room(&self, pages: u64) -> Room {
        Room::reach(pages, self.blocks - HEADERS)
    }

    fn wait(&self) {
        self.disk.wait();
    }
}
