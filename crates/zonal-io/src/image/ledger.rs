//! The ledger of an image: which zone states are durable, and how they become so.
//!
//! Owns the pages of zone states and the order of syncs around them. Owns no zone rule: the states themselves are asked
//! for through a function, so that any table of zones can stand above. Knows nothing of commands.
//!
//! # A commit
//! 1. Sample the zones that changed. A zone's pointer never includes bytes that are not yet in the file.
//! 2. Before the first one, note in the session page that slots may tear, and sync. Write once more what counts on pages
//!    that this opener has not written yet, and sync.
//! 3. If what is to become durable is more than [tails] can hold, sync: now the data below the sampled pointers is durable.
//! 4. Write each changed page, with the tails of its zones, to the slot that does not count, under the next sequence number. Sync.
//! 5. Keep the blocks of zones whose reset became durable, up to a bound, and give back the rest.
//!
//! A power cut in between finds each page either new or old; old slots are never touched before the new ones are durable.
//! A new page whose data did not arrive says so by its tails.
//!
//! # Invariants
//! - Every byte below a pointer that a power cut can bring back is durable and was written for that pointer: no data is
//!   written below a zone's `bound` ([`Ledger::before_write`]).
//! - Nothing builds on the bytes of an opener that did not close before they are written and synced once more: they may
//!   lie only in the operating system's cache, for good if that opener met a failed sync.
//! - A failure of any step stands until reopen: after a failed sync, a later success proves nothing.
//!
//! # Why a bound, and not a flag "reset since the last commit"
//! A flag set by reset and cleared by a commit needs the two ordered against each other and against the first write. The
//! bound is compared with the write itself: below it, the ledger (or a commit under way) may still promise the old bytes.
//! A commit publishes the bound before it reads the pointer, a writer moves the zone's state before it reads the bound,
//! both with a fence: one of the two sees the other.

mod kept;
mod tails;

use crate::image::backing::Backing;
use crate::image::current::Current;
use crate::image::error::Failure;
use crate::image::format::{
    Header, Layout, Page, PageError, Session, Side, Slots, Tail, ZONES_PER_PAGE, initial_state,
    state_from_word,
};
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, fence};
use kept::Kept;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, SECTOR_BYTES, ZoneIndex};

/// Asks for the present state of a zone as a restart would find it, counting only data that is in the file.
pub(crate) type Sample<'a> = &'a (dyn Fn(ZoneIndex) -> ZoneState + 'a);

/// Asks up to which offset of a zone writes have their places.
pub(crate) type Reach<'a> = &'a (dyn Fn(ZoneIndex) -> u32 + 'a);

/// See the module.
pub(crate) struct Ledger {
    backing: Arc<dyn Backing>,
    current: Current,
    geometry: Geometry,
    layout: Layout,
    creation: [u8; 16],
    /// A zone: offset, in sectors, below which nothing may be written before the ledger was asked.
    bound: Box<[AtomicU32]>,
    /// A page of zones: some zone of it changed since it was last sampled.
    dirty: Box<[AtomicBool]>,
    /// Data was written since the last sync.
    unsynced: AtomicBool,
    failure: OnceLock<Failure>,
    /// Flushes that arrived so far.
    tickets: AtomicU64,
    /// Taken last, also by a commit.
    kept: Mutex<Kept>,
    committer: Mutex<Committer>,
}

/// What only one commit at a time may touch.
struct Committer {
    /// Every flush with a ticket up to this one is done.
    served: u64,
    /// The session page has been written by this opener and says open.
    session_open: bool,
    /// The last opener did not close. The pages it left may be only in the operating system's cache, and if a sync failed
    /// under it no later sync will write them: nothing may build on them before they are written again.
    is_unproven: bool,
    /// Slots of the session page, then of the pages of zones.
    pages: Box<[PageState]>,
    /// Durable word of each zone.
    words: Box<[u64]>,
    /// Pages with tails, as they were read, until this opener writes them. Of a zone whose tail is missing, `words` has what it was
    /// before.
    found: BTreeMap<u32, Box<Page>>,
}

#[derive(Clone, Copy)]
struct PageState {
    /// The slot that counts and its sequence number.
    live: Option<(Side, u64)>,
    /// This opener has written the page. Until then its live slot may be only in the operating system's cache, and the
    /// other slot the only one on the medium.
    anchored: bool,
    /// The other slot is torn and has to be replaced before the image counts as closed in order.
    torn: bool,
}

/// Bound of every zone while the pages that were read may not be on the medium: above any offset.
const UNPROVEN: u32 = u32::MAX;

/// Bytes that are written again at a time, and of the ledger that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What a commit has to cover.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Everything.
    All,
    /// Only that zones are empty again: needs no data, so one sync less.
    Resets,
}

/// A changed zone in a commit.
struct Edit {
    zone: ZoneIndex,
    state: ZoneState,
}

impl Ledger {
    /// Reads the ledger of the image that `header` describes, and the state of every zone: the current one, if the opener before
    /// left it in the cache. Reset zones will keep `kept_max`
    /// bytes of the file at most.
    pub(crate) fn read(
        backing: Arc<dyn Backing>,
        header: &Header,
        kept_max: u64,
    ) -> Result<(Ledger, Vec<ZoneState>), ReadError> {
        let (geometry, layout) = (header.geometry, header.layout());
        let pages = layout.zone_pages as usize + 1;
        let page_bytes = 2 * layout.slot_bytes;
        let at_a_time = PIECE_BYTES / page_bytes;
        let mut piece = vec![0; at_a_time.min(pages) * page_bytes];

        let mut states = Vec::with_capacity(pages);
        let mut zone_states: Vec<ZoneState> =
            (0..geometry.zones()).map(|zone| initial_state(&geometry, ZoneIndex(zone))).collect();
        let mut session = Session::Closed;
        let mut found = BTreeMap::new();
        for index in 0..pages as u32 {
            let n = index as usize % at_a_time;
            if n == 0 {
                let bytes = (pages - index as usize).min(at_a_time) * page_bytes;
                let at = layout.slot(index, Side::A);
                backing.read_at(&mut piece[..bytes], at).map_err(ReadError::Io)?;
            }
            let bytes = &piece[n * page_bytes..][..page_bytes];
            let page_error = |fault| ReadError::Page { page: index, fault };
            let slots = Slots::parse(bytes, index, &header.creation).map_err(page_error)?;
            if let Some(side) = slots.damaged
                && index > 0
                && session == Session::Closed
            {
                return Err(page_error(PageError::DamagedAtRest { side }));
            }
            let live = slots.live.as_ref().map(|(side, page)| (*side, page.sequence));
            states.push(PageState { live, anchored: false, torn: slots.damaged.is_some() });
            let Some((_, page)) = slots.live else { continue };
            if index == 0 {
                session = Session::from_word(page.words[0]).map_err(page_error)?;
                continue;
            }
            for (zone, word) in zones_of(&geometry, index).map(ZoneIndex).zip(page.words) {
                zone_states[zone.0 as usize] = state_from_word(&geometry, zone, word).map_err(page_error)?;
            }
            tails::check(&geometry, &page, &zone_states).map_err(page_error)?;
            // Closed in order, all of it is durable.
            if session == Session::Open {
                tails::judge(&*backing, &geometry, &layout, &page.tails, &mut zone_states);
            }
            if !page.tails.is_empty() {
                found.insert(index, page);
            }
        }
        let words = zone_states.iter().map(|s| s.to_bits()).collect::<Box<[u64]>>();
        let current = Current::read(backing.clone(), header, &mut zone_states).map_err(ReadError::Io)?;
        let is_unproven = session == Session::Open || current.is_taken_over();
        let dirty = (0..layout.zone_pages).map(|_| AtomicBool::new(false)).collect::<Box<[_]>>();
        for (zone, _) in words.iter().zip(&zone_states).enumerate().filter(|(_, (w, s))| **w != s.to_bits()) {
            dirty[zone / ZONES_PER_PAGE].store(true, Ordering::SeqCst);
        }
        let ledger = Ledger {
            backing,
            current,
            geometry,
            layout,
            creation: header.creation,
            bound: zone_states
                .iter()
                .map(|s| AtomicU32::new(if is_unproven { UNPROVEN } else { s.written }))
                .collect(),
            dirty,
            // The last opener may have died between a write and its first flush, which leaves no trace here.
            unsynced: AtomicBool::new(true),
            failure: OnceLock::new(),
            tickets: AtomicU64::new(0),
            kept: Mutex::new(Kept::new(kept_max / SECTOR_BYTES)),
            committer: Mutex::new(Committer {
                served: 0,
                session_open: false,
                is_unproven,
                pages: states.into(),
                words,
                found,
            }),
        };
        Ok((ledger, zone_states))
    }

    /// The first failure, after which nothing can be changed any more.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.get().copied()
    }

    fn check(&self) -> Result<(), Failure> {
        self.failure.get().map_or(Ok(()), |f| Err(*f))
    }

    /// The zones' current states.
    pub(crate) fn current(&self) -> &Current {
        &self.current
    }

    /// Takes what was found in the cache for this opener's. Call before the state or the data of any zone changes.
    #[inline]
    pub(crate) fn begin_change(&self) -> Result<(), Failure> {
        self.current
            .take()
            .map_err(|errno| self.fail("noting the zones' states", &io::Error::from_raw_os_error(errno)))
    }

    /// Overwrites data below the pointer of `zone`, by `write`, as a misdirected write does. A tail that has its sum would say after a
    /// power cut that the data was lost: the zone's page is written without tails before. No commit sums up data meanwhile.
    #[cold]
    pub(crate) fn overwrite(
        &self,
        zone: ZoneIndex,
        sample: Sample<'_>,
        write: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), Failure> {
        let page = page_of(zone) as u32;
        self.begin_change()?;
        let mut c = self.committer.lock();
        self.check()?;
        self.prove(&mut c, sample)?;
        if self.write_guards(&mut c, &[page])? {
            self.sync("syncing zone states")?;
        }
        self.write_page(&mut c, page, Vec::new())?;
        self.sync("syncing zone states")?;
        self.unsynced.store(true, Ordering::SeqCst);
        write().map_err(|e| Failure::new("overwriting data", &e))
    }

    /// Notes that the state of a zone could not be noted.
    pub(crate) fn not_noted(&self, e: &io::Error) -> Failure {
        self.fail("noting the zones' states", e)
    }

    /// Clears the way for data at `offset` of `zone`, whose state has already moved to being written.
    ///
    /// If the ledger may still promise what was there before a reset, the reset is made durable first.
    #[inline]
    pub(crate) fn before_write(
        &self,
        zone: ZoneIndex,
        offset: u32,
        sample: Sample<'_>,
    ) -> Result<(), Failure> {
        self.check()?;
        // Pairs with the fence in `sample_zone`.
        fence(Ordering::SeqCst);
        let bound = &self.bound[zone.0 as usize];
        if bound.load(Ordering::SeqCst) <= offset {
            return Ok(());
        }
        let mut c = self.committer.lock();
        self.prove(&mut c, sample)?;
        // A commit that was under way may have done it, or there was nothing but doubt.
        if bound.load(Ordering::SeqCst) <= offset {
            return Ok(());
        }
        self.dirty[page_of(zone) - 1].store(true, Ordering::SeqCst);
        self.commit(&mut c, Scope::Resets, sample)?;
        debug_assert!(bound.load(Ordering::SeqCst) <= offset, "zone {zone}: reset not committed");
        Ok(())
    }

    /// Notes that data was written to the file. Call before the write is acknowledged.
    #[inline]
    pub(crate) fn wrote_data(&self) {
        self.unsynced.store(true, Ordering::SeqCst);
    }

    /// Notes that the state of `zone` has changed. Call after the change and before it is acknowledged.
    #[inline]
    pub(crate) fn changed(&self, zone: ZoneIndex) {
        self.dirty[page_of(zone) - 1].store(true, Ordering::SeqCst);
    }

    /// Notes that `zone` is about to be reset with `written` sectors of data in the file. Call before the change.
    pub(crate) fn resetting(&self, zone: ZoneIndex, written: u32) {
        if written > 0 {
            // With the blocks that it kept from an earlier reset: the commit may give back all below the bound.
            let end = self.kept.lock().end(zone).max(written);
            self.bound[zone.0 as usize].fetch_max(end, Ordering::SeqCst);
        }
    }

    /// Gives back what reset zones keep, because the host's file system is full. Whether they kept anything.
    ///
    /// Writes may be in flight. A writer moves its zone's state before it looks at the bound, and this raises the bound before it
    /// looks at the state: a write has its place below what is given back, or waits for the lock that is held here.
    pub(crate) fn give_back(&self, reach: Reach<'_>) -> bool {
        let _committer = self.committer.lock();
        let kept = self.kept.lock().take();
        for &(zone, end) in &kept {
            let bound = &self.bound[zone.0 as usize];
            let promised = bound.fetch_max(end, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // Where a reset is not durable yet, the bound is at the end already, and its commit decides about the blocks.
            self.discard(self.bytes_of(zone, reach(zone).max(promised).min(end)..end));
            // Unless a reset has raised it meanwhile.
            let _ = bound.compare_exchange(end, promised, Ordering::SeqCst, Ordering::SeqCst);
        }
        !kept.is_empty()
    }

    /// Makes everything durable that was acknowledged before the call. Concurrent callers share a commit.
    pub(crate) fn flush(&self, sample: Sample<'_>) -> Result<(), Failure> {
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst) + 1;
        let mut c = self.committer.lock();
        self.check()?;
        if c.served >= ticket {
            return Ok(());
        }
        // Each command that a ticket given out by now covers was acknowledged, and so marked its page, before the pages
        // are sampled.
        let covers = self.tickets.load(Ordering::SeqCst);
        self.commit(&mut c, Scope::All, sample)?;
        c.served = covers;
        Ok(())
    }

    /// Flushes, and notes that the image was closed in order. The caller sees to it that nothing comes after.
    pub(crate) fn close(&self, sample: Sample<'_>) -> Result<(), Failure> {
        self.flush(sample)?;
        self.give_back(&|zone| sample(zone).written);
        let mut c = self.committer.lock();
        if c.session_open {
            self.write_session(&mut c, Session::Closed)?;
            self.sync("syncing the end of the session")?;
            c.session_open = false;
        }
        self.current.close().map_err(|e| self.not_noted(&e))
    }

    fn commit(&self, c: &mut Committer, scope: Scope, sample: Sample<'_>) -> Result<(), Failure> {
        self.check()?;
        self.prove(c, sample)?;
        let edits = self.sample(c, scope, sample);
        let pages = self.pages_to_write(c, scope, &edits);
        let is_guarded = self.write_guards(c, &pages)?;
        let has_data = scope == Scope::All && self.unsynced.swap(false, Ordering::SeqCst);
        // Slots that count are durable before others are written over.
        let joins = self.layout.has_tails() && has_data && !is_guarded && !pages.is_empty();
        let tails = if joins { self.tails(c, &edits) } else { None };
        if tails.is_none() && (is_guarded || has_data) {
            self.sync("syncing data")?;
        }
        for edit in &edits {
            c.words[edit.zone.0 as usize] = edit.state.to_bits();
        }
        let doing = if tails.is_some() { "syncing data and zone states" } else { "syncing zone states" };
        let mut tails = tails.unwrap_or_default();
        for &page in &pages {
            self.write_page(c, page, tails.remove(&page).unwrap_or_default())?;
        }
        if !pages.is_empty() {
            self.sync(doing)?;
        }
        self.settle(&edits);
        Ok(())
    }

    /// The zones whose durable state has to change, or whose space can be given back, in ascending order.
    fn sample(&self, c: &Committer, scope: Scope, sample: Sample<'_>) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (page, dirty) in self.dirty.iter().enumerate() {
            let is_dirty = match scope {
                // A swap, not a store: what was changed before the mark is seen after it.
                Scope::All => dirty.load(Ordering::SeqCst) && dirty.swap(false, Ordering::SeqCst),
                Scope::Resets => dirty.load(Ordering::SeqCst),
            };
            if is_dirty {
                let zones = zones_of(&self.geometry, page as u32 + 1).map(ZoneIndex);
                edits.extend(zones.filter_map(|zone| self.sample_zone(c, scope, zone, sample)));
            }
        }
        edits
    }

    fn sample_zone(&self, c: &Committer, scope: Scope, zone: ZoneIndex, sample: Sample<'_>) -> Option<Edit> {
        let bound = &self.bound[zone.0 as usize];
        let mut state = sample(zone);
        let is_reset = |state: ZoneState| state.written == 0 && bound.load(Ordering::SeqCst) > 0;
        if scope == Scope::Resets && !is_reset(state) {
            return None;
        }
        // Publish how far the commit will promise, then make sure that the zone is still where it was seen: from then on
        // a writer that comes below it waits for this commit.
        while state.written > bound.load(Ordering::SeqCst) {
            bound.store(state.written, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            state = sample(zone);
        }
        let is_changed = state.to_bits() != c.words[zone.0 as usize];
        (is_changed || is_reset(state)).then_some(Edit { zone, state })
    }

    /// The pages that hold a changed word, and for a full commit those with a torn slot, in ascending order.
    fn pages_to_write(&self, c: &Committer, scope: Scope, edits: &[Edit]) -> Vec<u32> {
        let changed = edits.iter().filter(|e| c.words[e.zone.0 as usize] != e.state.to_bits());
        let mut pages: Vec<u32> = changed.map(|e| page_of(e.zone) as u32).collect();
        if scope == Scope::All {
            pages.extend((1..).zip(&c.pages[1..]).filter(|(_, p)| p.torn).map(|(i, _)| i));
            pages.sort_unstable();
        }
        pages.dedup();
        pages
    }

    /// Makes durable what the last opener left, if it did not close.
    fn prove(&self, c: &mut Committer, sample: Sample<'_>) -> Result<(), Failure> {
        if !c.is_unproven {
            return Ok(());
        }
        // Up to where a zone has data: the ledger's promise, and what was acknowledged after it. No write of this opener has
        // begun, because every one waits while nothing is proven.
        let ends: Vec<u32> = (0..)
            .zip(&c.words)
            .map(|(zone, word)| ZoneState::from_word(*word).written.max(sample(ZoneIndex(zone)).written))
            .collect();
        self.write_again(c, &ends)?;
        let lost = self.pages_with_lost_tails(c);
        let written: Vec<u32> =
            (1..).zip(&c.pages[1..]).filter(|(_, page)| page.live.is_some()).map(|(i, _)| i).collect();
        self.write_guards(c, &written)?;
        self.sync("syncing what the last opener left")?;
        if !lost.is_empty() {
            for page in lost {
                self.write_page(c, page, Vec::new())?;
            }
            self.sync("syncing zone states")?;
        }
        c.is_unproven = false;
        self.clear_above(&ends);
        for (bound, end) in self.bound.iter().zip(ends) {
            bound.store(end, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The pages that were found with data of theirs missing.
    fn pages_with_lost_tails(&self, c: &Committer) -> Vec<u32> {
        let is_lost = |page: &Page| self.page(c, page.index, page.sequence, Vec::new()).words != page.words;
        c.found.values().filter(|page| is_lost(page)).map(|page| page.index).collect()
    }

    /// Writes once more what a sync that failed under the last opener may have left in the cache, where no other sync would write
    /// it: the tails of its pages, and if it was killed in a sync, the data above the ledger's pointers.
    fn write_again(&self, c: &Committer, ends: &[u32]) -> Result<(), Failure> {
        let promised: Vec<u32> = c.words.iter().map(|word| ZoneState::from_word(*word).written).collect();
        let mut starts = promised.clone();
        for tail in c.found.values().flat_map(|page| &page.tails) {
            starts[tail.zone.0 as usize] = tail.from;
        }
        let ends = if self.current.is_doubtful() { ends } else { &promised };
        let mut piece = vec![0; PIECE_BYTES];
        for (zone, (start, end)) in (0..).map(ZoneIndex).zip(starts.into_iter().zip(ends)) {
            if self.geometry.is_conventional(zone) {
                continue;
            }
            let range = self.bytes_of(zone, start.min(*end)..*end);
            for at in range.clone().step_by(PIECE_BYTES) {
                let piece = &mut piece[..(range.end - at).min(PIECE_BYTES as u64) as usize];
                self.backing
                    .read_at(piece, at)
                    .and_then(|()| self.backing.write_at(piece, at))
                    .map_err(|e| self.fail("writing again what the last opener left", &e))?;
            }
        }
        Ok(())
    }

    /// Gives back all above `ends`: the last opener's kept blocks, and its writes that were lost.
    fn clear_above(&self, ends: &[u32]) {
        let sequential = self.geometry.conventional_zones()..self.geometry.zones();
        self.discard_runs(
            sequential
                .map(ZoneIndex)
                .map(|zone| self.bytes_of(zone, ends[zone.0 as usize]..self.geometry.size_of(zone))),
        );
    }

    /// Writes what has to be durable before a slot of `pages` that does not count may tear: that tears are to be
    /// expected, and the slots that count. Whether a sync is owed.
    fn write_guards(&self, c: &mut Committer, pages: &[u32]) -> Result<bool, Failure> {
        if !pages.is_empty() && !c.session_open {
            self.write_session(c, Session::Open)?;
            self.sync("syncing the begin of the session")?;
            c.session_open = true;
        }
        let mut wrote = false;
        for &index in pages {
            wrote |= self.anchor(c, index)?;
        }
        Ok(wrote)
    }

    /// Writes what page `index` says once more, or for the first time, unless this opener has. Whether it was written.
    fn anchor(&self, c: &mut Committer, index: u32) -> Result<bool, Failure> {
        let state = c.pages[index as usize];
        if state.anchored {
            return Ok(false);
        }
        let (side, sequence) = state.live.unwrap_or((Side::A, 1));
        let found = c.found.remove(&index).map(|page| *page);
        let page = found.unwrap_or_else(|| self.page(c, index, sequence, Vec::new()));
        self.write_slot(side, &page)?;
        c.pages[index as usize] = PageState { live: Some((side, sequence)), anchored: true, ..state };
        Ok(true)
    }

    fn write_session(&self, c: &mut Committer, session: Session) -> Result<(), Failure> {
        let mut words = [0; ZONES_PER_PAGE];
        words[0] = session as u64;
        let (side, sequence) = next_slot(c.pages[0].live);
        self.write_slot(side, &Page { index: 0, sequence, words, tails: Vec::new() })?;
        c.pages[0].live = Some((side, sequence));
        Ok(())
    }

    fn write_page(&self, c: &mut Committer, index: u32, tails: Vec<Tail>) -> Result<(), Failure> {
        let (side, sequence) = next_slot(c.pages[index as usize].live);
        self.write_slot(side, &self.page(c, index, sequence, tails))?;
        c.pages[index as usize] = PageState { live: Some((side, sequence)), anchored: true, torn: false };
        Ok(())
    }

    fn page(&self, c: &Committer, index: u32, sequence: u64, tails: Vec<Tail>) -> Page {
        let mut words = [0; ZONES_PER_PAGE];
        for (to, zone) in words.iter_mut().zip(zones_of(&self.geometry, index)) {
            *to = c.words[zone as usize];
        }
        Page { index, sequence, words, tails }
    }

    fn write_slot(&self, side: Side, page: &Page) -> Result<(), Failure> {
        self.backing
            .write_at(&page.emit(&self.creation), self.layout.slot(page.index, side))
            .map_err(|e| self.fail("writing zone states", &e))
    }

    fn sync(&self, doing: &'static str) -> Result<(), Failure> {
        self.current.sync().map_err(|e| self.fail(doing, &e))
    }

    fn fail(&self, doing: &'static str, e: &io::Error) -> Failure {
        *self.failure.get_or_init(|| Failure::new(doing, e))
    }

    /// Keeps or gives back what resets freed, and lets writers pass again. The new words are durable.
    fn settle(&self, edits: &[Edit]) {
        let mut freed = Vec::new();
        let mut kept = self.kept.lock();
        for edit in edits {
            if edit.state.written > 0 {
                kept.written(edit.zone, edit.state.written);
                continue;
            }
            // What lies below the bound and no more: a write above it does not wait, it may be there already.
            let bound = self.bound[edit.zone.0 as usize].load(Ordering::SeqCst);
            let end = bound.min(self.geometry.size_of(edit.zone));
            if end > 0 {
                freed.push(self.bytes_of(edit.zone, kept.reset(edit.zone, end)..end));
            }
        }
        drop(kept);
        self.discard_runs(freed.into_iter());
        // Only now: a writer that passes the bound must find neither the old promise nor a discard that has not ended.
        for edit in edits {
            self.bound[edit.zone.0 as usize].store(edit.state.written, Ordering::SeqCst);
        }
    }

    /// Where the file has these sectors of `zone`.
    fn bytes_of(&self, zone: ZoneIndex, sectors: Range<u32>) -> Range<u64> {
        bytes_of(&self.geometry, &self.layout, zone, sectors)
    }

    /// Gives back `ranges`, which ascend, in one call for those that touch.
    fn discard_runs(&self, ranges: impl Iterator<Item = Range<u64>>) {
        let mut run = 0..0;
        for range in ranges.filter(|range| !range.is_empty()) {
            if range.start == run.end {
                run.end = range.end;
            } else {
                self.discard(run);
                run = range;
            }
        }
        self.discard(run);
    }

    fn discard(&self, range: Range<u64>) {
        if !range.is_empty() {
            self.backing.discard(range.start, range.end - range.start);
        }
    }
}

/// Why a ledger cannot be read.
pub(crate) enum ReadError {
    Io(io::Error),
    Page { page: u32, fault: PageError },
}

/// The ledger page that describes `zone`.
const fn page_of(zone: ZoneIndex) -> usize {
    1 + zone.0 as usize / ZONES_PER_PAGE
}

/// The zones that ledger page `index`, not the session page, describes.
fn zones_of(geometry: &Geometry, index: u32) -> Range<u32> {
    let first = (index - 1) * ZONES_PER_PAGE as u32;
    first..geometry.zones().min(first + ZONES_PER_PAGE as u32)
}

/// Where the file has these sectors of `zone`.
fn bytes_of(geometry: &Geometry, layout: &Layout, zone: ZoneIndex, sectors: Range<u32>) -> Range<u64> {
    let start = layout.data(geometry.start_of(zone));
    start + u64::from(sectors.start) * SECTOR_BYTES..start + u64::from(sectors.end) * SECTOR_BYTES
}

/// The slot that does not count, and the next sequence number.
fn next_slot(live: Option<(Side, u64)>) -> (Side, u64) {
    live.map_or((Side::A, 1), |(side, sequence)| (side.other(), sequence + 1))
}

#[cfg(test)]
mod tests;
