//! Scrub: reads and verifies everything in a file system while it is in use.
//!
//! A scrub reads the pages of the metadata store first, then the zones, in ascending order. In a
//! zone it reads live data and the headers of its units, and skips garbage. The runs of a zone
//! describe its contents, so no other files are looked at.
//!
//! A scrub is done in steps of a few mebibytes; the caller decides when the next one is due. Its
//! progress is kept in rows, so that it continues after a remount.
//!
//! # Why a step never reads data written after a reset
//! It pins the zone before it looks up the live data: see [`readers`](super::readers).

use super::FileSystem;
use super::core::Shared;
use super::error::FsError;
use super::fetch::{Source, Span};
use super::map::{self, HeaderSums};
use super::read;
use super::room::Touched;
use crate::BLOCK_BYTES;
use crate::format::{BlockPlace, key};
use crate::store::{StoreError, View};
use crate::waiter::Wait;
use zonal_core::{DeviceError, RequestError};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks of a zone, or pages of the metadata, per step. 8 MiB are read in a fraction of a second,
/// and amortise a disk's seek.
const STEP_BLOCKS: u32 = 2048;

/// Maximum number of commands in flight. Low, so that reads of programs queue behind few.
const DEPTH: usize = 4;

/// Maximum gap in blocks that is read along; most blocks of a zone are wanted.
const ALONG_MAX: u32 = 64;

/// Rows with the state of a scrub.
const ROWS: [&str; 4] = ["scrub", "scrub-bytes", "scrub-damaged", "scrub-ended"];

/// Bit that distinguishes a place in a zone from a page.
const IN_ZONE: u64 = 1 << 63;

/// Next position of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// Page of the metadata.
    Page(u64),
    /// Block of a zone.
    Zone { zone: u32, block: u32 },
}

/// State of a scrub between two steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Scrub {
    #[serde(skip)]
    at: At,
    /// Bytes verified.
    pub bytes: u64,
    /// Number of damaged items: pages of the metadata, and pieces of files in one unit.
    pub damaged: u64,
    /// Time of completion, in nanoseconds since 1970; `None` if incomplete.
    pub ended: Option<i64>,
}

impl Default for At {
    fn default() -> At {
        At::Page(0)
    }
}

impl FileSystem {
    /// Returns the last saved scrub, complete or interrupted, if there is one.
    ///
    /// # Errors
    /// [`FsError::Store`].
    pub fn scrub(&self) -> Result<Option<Scrub>, FsError> {
        self.0.kept_scrub()
    }

    /// Saves the state of a scrub. It is durable after the next sync.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`].
    pub fn keep_scrub(&self, waiter: &dyn Wait, scrub: &Scrub) -> Result<(), FsError> {
        let at = match scrub.at {
            At::Page(page) => page,
            At::Zone { zone, block } => IN_ZONE | u64::from(zone) << 32 | u64::from(block),
        };
        let numbers = [at, scrub.bytes, scrub.damaged, scrub.ended.unwrap_or(0) as u64];
        self.change(waiter, Touched::Changed, |core| {
            for (name, number) in ROWS.into_iter().zip(numbers) {
                core.rows.put(key::counter(name), number.to_le_bytes().to_vec());
            }
            Ok(())
        })
    }

    /// Number of bytes to verify in a scrub of the present contents.
    pub fn scrub_bytes(&self) -> u64 {
        self.0.stored_bytes() + self.usage().used * BLOCK
    }

    /// Does a step of a scrub: verifies some mebibytes and calls `show` for each error found.
    ///
    /// # Errors
    /// The drive's error, if it no longer responds at all.
    pub fn scrub_step(
        &self,
        waiter: &dyn Wait,
        scrub: &mut Scrub,
        mut show: impl FnMut(&FsError),
    ) -> Result<(), FsError> {
        let mut damaged = 0;
        let mut note = |error: &FsError| {
            damaged += 1;
            show(error);
        };
        let (bytes, next) = match scrub.at {
            At::Page(page) => self.0.scrub_pages(page, &mut note)?,
            At::Zone { zone, block } => self.0.scrub_zone(waiter, zone, block, &mut note)?,
        };
        scrub.bytes += bytes;
        scrub.damaged += damaged;
        match next {
            Some(next) => scrub.at = next,
            None => scrub.ended = Some(waiter.wall()),
        }
        Ok(())
    }
}

impl Shared {
    /// Returns the last saved scrub.
    pub(super) fn kept_scrub(&self) -> Result<Option<Scrub>, FsError> {
        let mut numbers = [0; ROWS.len()];
        for (name, number) in ROWS.into_iter().zip(&mut numbers) {
            let row = self.reader.get(&key::counter(name))?;
            let Some(found) = row.and_then(|row| row.try_into().ok()) else { return Ok(None) };
            *number = u64::from_le_bytes(found);
        }
        let [at, bytes, damaged, ended] = numbers;
        let at = match at & IN_ZONE {
            0 => At::Page(at),
            _ => At::Zone { zone: ((at & !IN_ZONE) >> 32) as u32, block: at as u32 },
        };
        Ok(Some(Scrub { at, bytes, damaged, ended: (ended != 0).then_some(ended as i64) }))
    }

    /// Bytes of metadata.
    fn stored_bytes(&self) -> u64 {
        self.reader.backend().len().unwrap_or(0)
    }

    /// Verifies some pages of metadata.
    fn scrub_pages(&self, first: u64, show: &mut dyn FnMut(&FsError)) -> Result<(u64, Option<At>), FsError> {
        let backend = self.reader.backend();
        let all = self.stored_bytes() / BLOCK;
        let pages = first..(first + u64::from(STEP_BLOCKS)).min(all);
        let mut bytes = vec![0; ((pages.end.saturating_sub(pages.start)) * BLOCK) as usize];
        if let Some(log) = backend.log() {
            // Drop cached pages, to read from the drive.
            log.forget_kept();
        }
        if backend.read(first * BLOCK, &mut bytes).is_err() {
            for page in pages.clone() {
                // The store may have shrunk meanwhile.
                let still = page < self.stored_bytes() / BLOCK;
                match backend.read(page * BLOCK, &mut bytes[..BLOCK as usize]) {
                    Err(error) if still => {
                        let error = FsError::from(StoreError::from(error));
                        if is_gone(error.answer()) {
                            return Err(error);
                        }
                        show(&error);
                    }
                    _ => {}
                }
            }
        }
        let next = if pages.end < all { At::Page(pages.end) } else { At::Zone { zone: 0, block: 0 } };
        Ok((bytes.len() as u64, Some(next)))
    }

    /// Verifies the live data in a part of a zone.
    fn scrub_zone(
        &self,
        waiter: &dyn Wait,
        zone: u32,
        block: u32,
        show: &mut dyn FnMut(&FsError),
    ) -> Result<(u64, Option<At>), FsError> {
        let blocks = block..block.saturating_add(STEP_BLOCKS);
        let pinned =
            [Span { ino: 0, block: 0, place: BlockPlace { zone, unit: block, index: 0 }, blocks: 0 }];
        if !self.readers.pin(&pinned) {
            return Ok((0, None));
        }
        let verified = match map::live_in(&self.reader, zone, &blocks) {
            Ok((live, headers)) => {
                let spans = live.iter().flat_map(|piece| read::spans(piece.ino, &piece.at));
                let spans: Vec<Span> = spans.filter(|span| blocks.contains(&span.place.block())).collect();
                self.verify(waiter, &spans, &headers, show)
            }
            Err(error) if is_gone(error.answer()) => Err(error),
            // The contents of this part are unknown; other parts can still be verified.
            Err(error) => {
                show(&error);
                Ok(0)
            }
        };
        self.readers.unpin(&pinned);
        let bytes = verified?;
        // The account may be newer than the rows read: a zone written meanwhile is verified as far
        // as it was full.
        let written =
            self.space.lock().book.zone(zonal_core::ZoneIndex(zone)).map_or(0, |account| account.written);
        let next = match blocks.end < written {
            true => At::Zone { zone, block: blocks.end },
            false => At::Zone { zone: zone + 1, block: 0 },
        };
        Ok((bytes, Some(next)))
    }

    /// Verifies spans of a pinned zone, and returns the number of bytes.
    fn verify(
        &self,
        waiter: &dyn Wait,
        spans: &[Span],
        headers: &HeaderSums,
        show: &mut dyn FnMut(&FsError),
    ) -> Result<u64, FsError> {
        if spans.is_empty() {
            return Ok(0);
        }
        // Bypass the cache, to read the headers, too.
        let source = Source {
            depth: DEPTH,
            along_max: ALONG_MAX,
            known: None,
            headers: Some(headers),
            ..self.source()
        };
        let mut fetched = source.fetch(waiter, spans);
        let mut unread = None;
        for span in spans {
            match fetched.verify(span) {
                Ok(()) => {}
                Err(FsError::Read { error, .. }) if is_gone(Some(&error)) => {
                    return Err(FsError::Drive(error));
                }
                Err(error) => {
                    show(&error);
                    if matches!(error, FsError::Read { .. }) {
                        unread = Some(error);
                    }
                }
            }
        }
        // All spans are in one zone, which may be lost.
        if let Some(error) = unread {
            self.note_lost_zone(waiter, &error)?;
        }
        Ok(spans.iter().map(|span| u64::from(span.blocks) * BLOCK).sum())
    }
}

/// True if the drive no longer responds at all.
fn is_gone(answer: Option<&RequestError>) -> bool {
    matches!(answer, Some(RequestError::Device(DeviceError::Gone)))
}
