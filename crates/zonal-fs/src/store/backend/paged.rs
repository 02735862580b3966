//! Pages that wait in memory for a sync.
//!
//! Owns what was written since the last sync, and the length; below it a [`Medium`] keeps what was synced. Owns no place on
//! the drive. Reads see what was written last, wherever it is.
//!
//! # A sync
//! 1. The sync takes what waits as a snapshot: pages, length, and the `cut`. Reads still find it, and writes continue.
//! 2. The medium stores the snapshot, all of it durable when it returns. No lock is held meanwhile.
//! 3. The sync drops the snapshot. After a failure its pages wait again, unless they were written since.
//!
//! # Why a cut
//! A page that was cut off and comes back with a longer file is zeroes, though the medium still has its bytes. All pages from
//! the cut on are zeroes unless they wait here; the medium makes that durable when it stores.

use super::error::BackendError;
use super::log::{BatchRows, Log};
use super::room::{Backend, Room};
use crate::BLOCK_BYTES;
use crate::format::UnitPlace;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page.
pub const PAGE: usize = BLOCK_BYTES as usize;

/// A page's bytes.
pub type PageBytes = [u8; PAGE];

/// Pages by number.
pub type Pages = BTreeMap<u64, Arc<PageBytes>>;

/// Changes that become durable together.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Length in bytes.
    pub len: u64,
    /// Pages from this one on are zeroes, unless they are among `pages`.
    pub cut: u64,
    /// Pages that were written.
    pub pages: Pages,
}

/// Durable storage of pages.
pub trait Medium: Debug + Send + Sync + 'static {
    /// Fills `out` with stored pages from `first` on.
    ///
    /// # Errors
    /// The drive's, and damage.
    fn load(&self, first: u64, out: &mut [u8]) -> Result<(), BackendError>;

    /// Stores `snapshot` durably, all of it or, after [`BackendError::Full`], nothing. After any other error nothing more can be
    /// stored.
    ///
    /// # Errors
    /// [`BackendError::Full`], and the drive's.
    fn store(&self, snapshot: &Snapshot) -> Result<(), BackendError>;

    /// Maximum number of bytes for [`Medium::append_rows`] now.
    fn row_room(&self) -> usize {
        0
    }

    /// Makes rows durable that are not in the file yet, together with the data in `units`, which were written to the same drive.
    ///
    /// # Errors
    /// As [`Medium::store`].
    fn append_rows(&self, _units: &[UnitPlace], _rows: &[u8]) -> Result<(), BackendError> {
        Err(BackendError::Unfit("rows are kept in tables only"))
    }

    /// Forgets stored pages that are not in use any more.
    fn discard(&self, pages: Range<u64>);

    /// Checks that no stored page is known to be missing.
    ///
    /// # Errors
    /// The first one that is.
    fn check(&self) -> Result<(), BackendError>;

    /// True if `page` takes room already.
    fn has(&self, page: u64) -> bool;

    /// Checks that there will be room for `waiting` pages, of which `fresh` take none yet.
    ///
    /// # Errors
    /// [`BackendError::Full`].
    fn admit(&self, waiting: u64, fresh: u64) -> Result<(), BackendError>;

    /// Checks that the file may have `pages` pages.
    ///
    /// # Errors
    /// [`BackendError::Full`].
    fn admit_len(&self, pages: u64) -> Result<(), BackendError>;

    /// Takes more room. Returns false if there is none.
    ///
    /// # Errors
    /// The drive's.
    fn grow(&self) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// Pages in use, and how many may be.
    fn room(&self) -> Room;

    /// The log, if it is one.
    fn as_log(&self) -> Option<&Log> {
        None
    }

    /// Lets other threads continue.
    fn wait(&self);
}

/// Pages over a [`Medium`].
#[derive(Debug)]
pub struct Paged<M> {
    pub(super) medium: M,
    state: Mutex<PagedState>,
}

#[derive(Debug, Default)]
struct PagedState {
    waiting: Snapshot,
    /// Pages that wait and have no room yet.
    fresh: u64,
    /// Length when it was last made durable.
    durable_len: u64,
    /// Snapshot that the medium is storing.
    storing: Option<Arc<Snapshot>>,
    /// Snapshots whose store has ended so far.
    ended: u64,
    has_failed: bool,
}

/// Place of a page's bytes.
enum Found {
    Here(Arc<PageBytes>),
    Zeroes,
    Below,
}

/// The part of a range that lies in one page.
#[derive(Clone)]
struct PagePart {
    page: u64,
    /// Bytes in the page.
    within: Range<usize>,
    /// Bytes in the range.
    of_range: Range<usize>,
}

impl PagePart {
    fn is_whole(&self) -> bool {
        self.within.len() == PAGE
    }
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = PagePart> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let begin = (at % PAGE as u64) as usize;
        let n = (PAGE - begin).min(len - done);
        let of_range = done..done + n;
        done += n;
        (n > 0).then(|| PagePart { page: at / PAGE as u64, within: begin..begin + n, of_range })
    })
}

fn pages_of(len: u64) -> u64 {
    len.div_ceil(PAGE as u64)
}

impl PagedState {
    fn find(&self, page: u64) -> Found {
        if let Some(bytes) = self.waiting.pages.get(&page) {
            return Found::Here(bytes.clone());
        }
        if page >= self.waiting.cut {
            return Found::Zeroes;
        }
        match &self.storing {
            Some(storing) => match storing.pages.get(&page) {
                Some(bytes) => Found::Here(bytes.clone()),
                None if page >= storing.cut => Found::Zeroes,
                None => Found::Below,
            },
            None => Found::Below,
        }
    }

    fn check_range(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.waiting.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn sound(&self) -> Result<(), BackendError> {
        if self.has_failed { Err(BackendError::Failed) } else { Ok(()) }
    }

    /// Everything is durable.
    fn is_clean(&self) -> bool {
        let Snapshot { len, cut, pages } = &self.waiting;
        pages.is_empty() && *cut == pages_of(*len) && *len == self.durable_len
    }

    /// Takes what waits.
    fn begin(&mut self) -> Arc<Snapshot> {
        let pages = pages_of(self.waiting.len);
        let next = Snapshot { len: self.waiting.len, cut: pages, pages: Pages::new() };
        let snapshot = Arc::new(std::mem::replace(&mut self.waiting, next));
        self.fresh = 0;
        self.storing = Some(snapshot.clone());
        snapshot
    }

    /// Begins a store without waiting pages.
    fn begin_nothing(&mut self) {
        self.storing = Some(Arc::new(Snapshot { len: self.durable_len, cut: u64::MAX, pages: Pages::new() }));
    }

    fn end(&mut self, stored: &Result<(), BackendError>, has: impl Fn(u64) -> bool) {
        self.ended += 1;
        let Some(storing) = self.storing.take() else { return };
        if stored.is_ok() {
            self.durable_len = storing.len;
        } else {
            let cut = self.waiting.cut;
            for (&page, bytes) in storing.pages.range(..cut) {
                self.waiting.pages.entry(page).or_insert_with(|| bytes.clone());
            }
            self.waiting.cut = cut.min(storing.cut);
            self.has_failed |= !matches!(stored, Err(BackendError::Full { .. }));
        }
        self.count_fresh(has);
    }

    fn count_fresh(&mut self, has: impl Fn(u64) -> bool) {
        self.fresh = self.waiting.pages.keys().filter(|&&page| !has(page)).count() as u64;
    }

    /// Discards pages that wait.
    fn discard(&mut self, pages: &Range<u64>) {
        let dropped: Vec<u64> = self.waiting.pages.range(pages.clone()).map(|(page, _)| *page).collect();
        dropped.iter().for_each(|page| drop(self.waiting.pages.remove(page)));
    }

    /// Discards the waiting pages.
    fn forget(&mut self) {
        let len = self.storing.as_ref().map_or(self.durable_len, |storing| storing.len);
        self.waiting = Snapshot { len, cut: pages_of(len), pages: Pages::new() };
        self.fresh = 0;
    }

    fn set_len(&mut self, len: u64) {
        let pages = pages_of(len);
        if len < self.waiting.len {
            self.waiting.pages.split_off(&pages);
            self.waiting.cut = self.waiting.cut.min(pages);
        }
        self.waiting.len = len;
    }
}

impl<M: Medium> Paged<M> {
    /// A file of `len` bytes, all of them in `medium`.
    pub(super) fn new(medium: M, len: u64) -> Paged<M> {
        let waiting = Snapshot { len, cut: pages_of(len), pages: Pages::new() };
        Paged { medium, state: Mutex::new(PagedState { waiting, durable_len: len, ..PagedState::default() }) }
    }

    /// Pages that wait for a sync.
    pub fn waiting(&self) -> u64 {
        self.state.lock().waiting.pages.len() as u64
    }

    fn read_range(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        for run in self.copy_what_is_here(offset, out)? {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            if first.is_whole() && last.is_whole() {
                self.medium.load(first.page, &mut out[first.of_range.start..last.of_range.end])?;
            } else {
                let mut bytes = [0; PAGE];
                self.medium.load(first.page, &mut bytes)?;
                out[first.of_range.clone()].copy_from_slice(&bytes[first.within.clone()]);
            }
        }
        Ok(())
    }

    /// Copies what waits here, and returns the rest as runs of whole pages and as single parts of pages.
    fn copy_what_is_here(&self, offset: u64, out: &mut [u8]) -> io::Result<Vec<Vec<PagePart>>> {
        let state = self.state.lock();
        state.check_range(offset, out.len())?;
        let mut runs: Vec<Vec<PagePart>> = Vec::new();
        for piece in pieces(offset, out.len()) {
            let target = &mut out[piece.of_range.clone()];
            match state.find(piece.page) {
                Found::Here(bytes) => target.copy_from_slice(&bytes[piece.within]),
                Found::Zeroes => target.fill(0),
                Found::Below => match runs.last_mut() {
                    Some(run) if continues(run, &piece) => run.push(piece),
                    _ => runs.push(vec![piece]),
                },
            }
        }
        Ok(runs)
    }

    /// Writes a part of a page, and takes more room if there is none.
    fn write_piece(&self, piece: &PagePart, data: &[u8]) -> io::Result<()> {
        loop {
            match self.try_to_write(piece, data) {
                Err(BackendError::Full { .. }) if self.medium.grow()? => {}
                result => return Ok(result?),
            }
        }
    }

    fn try_to_write(&self, piece: &PagePart, data: &[u8]) -> Result<(), BackendError> {
        let mut below: Option<(u64, PageBytes)> = None;
        loop {
            {
                let mut state = self.state.lock();
                let mut bytes = match state.find(piece.page) {
                    _ if piece.is_whole() => [0; PAGE],
                    Found::Here(bytes) => *bytes,
                    Found::Zeroes => [0; PAGE],
                    // What was read is good if no store has ended since.
                    Found::Below => match below.take() {
                        Some((ended, bytes)) if ended == state.ended => bytes,
                        _ => {
                            let ended = state.ended;
                            drop(state);
                            let mut bytes = [0; PAGE];
                            self.medium.load(piece.page, &mut bytes)?;
                            below = Some((ended, bytes));
                            continue;
                        }
                    },
                };
                bytes[piece.within.clone()].copy_from_slice(data);
                return self.put(&mut state, piece.page, bytes);
            }
        }
    }

    fn put(&self, state: &mut PagedState, page: u64, bytes: PageBytes) -> Result<(), BackendError> {
        if !state.waiting.pages.contains_key(&page) {
            let fresh = state.fresh + u64::from(!self.medium.has(page));
            self.medium.admit(state.waiting.pages.len() as u64 + 1, fresh)?;
            state.fresh = fresh;
        }
        state.waiting.pages.insert(page, Arc::new(bytes));
        Ok(())
    }

    /// Fills the last page with zeroes after the end, so that it has zeroes there when the file grows again.
    fn clear_tail(&self, len: u64) -> io::Result<()> {
        let within = (len % PAGE as u64) as usize;
        if within == 0 {
            return Ok(());
        }
        let piece = PagePart { page: len / PAGE as u64, within: within..PAGE, of_range: 0..PAGE - within };
        self.write_piece(&piece, &vec![0; PAGE - within])
    }

    /// Stores what waits, unless everything is durable.
    fn store(&self) -> Result<(), BackendError> {
        let begin = |state: &mut PagedState| (!state.is_clean()).then(|| state.begin());
        let Some(snapshot) = self.begin(begin)? else { return Ok(()) };
        self.end(self.medium.store(&snapshot))
    }

    fn store_rows(&self, units: &[UnitPlace], rows: &[u8]) -> Result<(), BackendError> {
        self.begin(PagedState::begin_nothing)?;
        self.end(self.medium.append_rows(units, rows))
    }

    fn end(&self, result: Result<(), BackendError>) -> Result<(), BackendError> {
        self.state.lock().end(&result, |page| self.medium.has(page));
        result
    }

    /// Waits for the end of the last store, and calls `begin`.
    fn begin<T>(&self, begin: impl Fn(&mut PagedState) -> T) -> Result<T, BackendError> {
        loop {
            {
                let mut state = self.state.lock();
                state.sound()?;
                if state.storing.is_none() {
                    return Ok(begin(&mut state));
                }
            }
            self.medium.wait();
        }
    }
}

/// True if `piece` can be loaded along with `run`.
fn continues(run: &[PagePart], piece: &PagePart) -> bool {
    piece.is_whole() && run.last().is_some_and(|last| last.is_whole() && last.page + 1 == piece.page)
}

impl<M: Medium> Backend for Paged<M> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().waiting.len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_range(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = {
            let state = self.state.lock();
            state.sound()?;
            state.waiting.len
        };
        if len > before {
            self.medium.admit_len(pages_of(len))?;
        } else {
            self.clear_tail(len)?;
        }
        self.state.lock().set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(self.store()?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        {
            let state = self.state.lock();
            state.sound()?;
            state.check_range(offset, data.len())?;
        }
        for piece in pieces(offset, data.len()) {
            self.write_piece(&piece, &data[piece.of_range.clone()])?;
        }
        Ok(())
    }

    fn discard(&self, pages: Range<u64>) {
        let mut state = self.state.lock();
        state.discard(&pages);
        self.medium.discard(pages);
        state.count_fresh(|page| self.medium.has(page));
    }

    fn check(&self) -> io::Result<()> {
        Ok(self.medium.check()?)
    }

    fn room(&self) -> Option<Room> {
        Some(self.medium.room())
    }

    fn forget_unsynced(&self) {
        self.state.lock().forget();
    }

    fn row_room(&self) -> usize {
        self.medium.row_room()
    }

    fn append_rows(&self, units: &[UnitPlace], rows: &[u8]) -> io::Result<()> {
        Ok(self.store_rows(units, rows)?)
    }

    fn rows(&self) -> Vec<BatchRows> {
        self.log().map(Log::logged_rows).unwrap_or_default()
    }

    fn last_rows(&self) -> u64 {
        self.log().map_or(0, Log::last_rows)
    }

    fn forget_rows(&self, batch: u64) {
        if let Some(log) = self.log() {
            log.forget_rows(batch);
        }
    }

    fn log(&self) -> Option<&Log> {
        self.medium.as_log()
    }
}

#[cfg(test)]
mod tests;
