//! Ledger of an image: the durable zone states, and how they become durable.
//!
//! Owns the pages of zone states, and the order of syncs around them. Owns no zone rules: states
//! are read through a function, so any table of zones can be used. Independent of commands.
//!
//! # A commit
//! 1. Sample the zones that changed. A zone's write pointer never includes bytes that are not in
//!    the file yet.
//! 2. Before the first commit, mark the session page as open, because slots may tear from now on,
//!    and sync. Rewrite the active slots of pages that this opener has not written yet, and sync.
//! 3. If there is more new data than [tails] can cover, sync, so that the data below the sampled
//!    pointers is durable.
//! 4. Write each changed page, with the tails of its zones, to the inactive slot, with the next
//!    sequence number. Sync.
//! 5. Keep the blocks of zones whose reset became durable, up to a limit, and free the rest.
//!
//! After a power cut each page is either new or old, because old slots are not touched before the
//! new ones are durable. If the data of a new page has not arrived, its tails reveal that.
//!
//! # Invariants
//! - Every byte below a write pointer that may reappear after a power cut is durable, and was
//!   written for that pointer: no data is written below a zone's `bound`
//!   ([`Ledger::before_write`]).
//! - Nothing relies on data of an opener that did not close before it is rewritten and synced. It
//!   may be only in the operating system's cache, permanently if a sync had failed.
//! - A failure of any step stands until the image is reopened: after a failed sync, a later success
//!   proves nothing.
//!
//! # Why a bound, and not a flag "reset since the last commit"
//! A flag set by a reset and cleared by a commit would have to be ordered against both and against
//! the first write. The bound is compared with the write itself: below it, the ledger (or a commit
//! in progress) may still promise the old bytes. A commit publishes the bound before it reads the
//! write pointer, a writer updates the zone's state before it reads the bound, and both use a
//! fence, so at least one sees the other.

mod kept;
mod tails;

use crate::badblocks::{BadBlocks, Medium};
use crate::image::backing::Backing;
use crate::image::current::Current;
use crate::image::error::Failure;
use crate::image::format::{
    Header, Layout, Page, PageError, Session, Side, Slots, Tail, ZONES_PER_PAGE, bad_blocks, initial_state,
    session_words, state_from_word,
};
use crate::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, fence};
use kept::Kept;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use zonal_core::device::ZoneState;
use zonal_core::{Geometry, SECTOR_BYTES, ZoneIndex};

/// Returns the state of a zone as after a restart, including only data that is in the file.
pub(crate) type Sample<'a> = &'a (dyn Fn(ZoneIndex) -> ZoneState + 'a);

/// Returns the offset in a zone up to which writes have their places.
pub(crate) type Reach<'a> = &'a (dyn Fn(ZoneIndex) -> u32 + 'a);

/// Ledger of an image; see the module.
pub(crate) struct Ledger {
    backing: Arc<dyn Backing>,
    current: Current,
    medium: Medium,
    geometry: Geometry,
    layout: Layout,
    creation: [u8; 16],
    /// By zone: offset in sectors below which data may be written only after consulting the ledger.
    bound: Box<[AtomicU32]>,
    /// By page of zones: a zone has changed since the last sample.
    dirty: Box<[AtomicBool]>,
    /// Data was written since the last sync.
    unsynced: AtomicBool,
    failure: OnceLock<Failure>,
    /// Number of flushes so far.
    tickets: AtomicU64,
    /// Locked last, also by a commit.
    kept: Mutex<Kept>,
    committer: Mutex<Committer>,
}

/// State of the one commit that may run at a time.
struct Committer {
    /// All flushes with a ticket up to this one have completed.
    served: u64,
    /// This opener has marked the session page as open.
    session_open: bool,
    /// The last opener did not close. Its pages may be only in the operating system's cache, and if
    /// one of its syncs failed, no later sync writes them. Nothing may rely on them before they are
    /// rewritten.
    is_unproven: bool,
    /// Slots of the session page, then of the pages of zones.
    pages: Box<[PageState]>,
    /// Durable word of each zone.
    words: Box<[u64]>,
    /// Pages with tails as read, until this opener rewrites them. If the data of a tail is missing,
    /// `words` has the zone's earlier state.
    found: BTreeMap<u32, Box<Page>>,
}

#[derive(Clone, Copy)]
struct PageState {
    /// Active slot and its sequence number.
    live: Option<(Side, u64)>,
    /// This opener has written the page. Until then its active slot may be only in the operating
    /// system's cache, and the other slot the only one on the medium.
    anchored: bool,
    /// The other slot is torn, and has to be rewritten before the image is cleanly closed.
    torn: bool,
}

/// Bound of every zone while the pages that were read may not be on the medium: above any offset.
const UNPROVEN: u32 = u32::MAX;

/// Unit of rewriting data and of reading the ledger, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Scope of a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Everything.
    All,
    /// Only resets: involves no data, which saves a sync.
    Resets,
}

/// A changed zone in a commit.
struct Edit {
    zone: ZoneIndex,
    state: ZoneState,
}

impl Ledger {
    /// Reads the ledger of the image described by `header` and the states of all zones: the current
    /// ones, if the previous opener left them in the cache. Reset zones keep at most `kept_max`
    /// bytes of the file allocated.
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
        let mut bad = BadBlocks::default();
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
                bad = bad_blocks(&geometry, &page.words).map_err(page_error)?;
                continue;
            }
            for (zone, word) in zones_of(&geometry, index).map(ZoneIndex).zip(page.words) {
                zone_states[zone.0 as usize] = state_from_word(&geometry, zone, word).map_err(page_error)?;
            }
            tails::check(&geometry, &page, &zone_states).map_err(page_error)?;
            // If cleanly closed, all of it is durable.
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
            medium: Medium::new(geometry.sectors().0, header.block_sectors, bad),
            geometry,
            layout,
            creation: header.creation,
            bound: zone_states
                .iter()
                .map(|s| AtomicU32::new(if is_unproven { UNPROVEN } else { s.written }))
                .collect(),
            dirty,
            // The last opener may have died between a write and its first flush, which leaves no
            // trace here.
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

    /// First failure, after which no more changes are possible.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.get().copied()
    }

    fn check(&self) -> Result<(), Failure> {
        self.failure.get().map_or(Ok(()), |f| Err(*f))
    }

    /// Returns the drive's bad blocks.
    #[inline]
    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Returns the zones' current states.
    pub(crate) fn current(&self) -> &Current {
        &self.current
    }

    /// Takes over the states found in the cache. Has to be called before the state or the data of
    /// any zone changes.
    #[inline]
    pub(crate) fn begin_change(&self) -> Result<(), Failure> {
        self.current
            .take()
            .map_err(|errno| self.fail("storing the zones' states", &io::Error::from_raw_os_error(errno)))
    }

    /// Overwrites data below the write pointer of `zone` using `write`, as a misdirected write
    /// does. A tail with a checksum of the old data would make it look lost after a power cut, so
    /// the zone's page is first rewritten without tails. No commit computes checksums meanwhile.
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

    /// Records a failure to store the state of a zone.
    pub(crate) fn not_noted(&self, e: &io::Error) -> Failure {
        self.fail("storing the zones' states", e)
    }

    /// Prepares for writing data at `offset` of `zone`. The zone's state already includes the
    /// write.
    ///
    /// If the ledger may still promise data from before a reset, the reset is made durable first.
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
        // A commit in progress may have lowered the bound, or it was a placeholder until `prove`.
        if bound.load(Ordering::SeqCst) <= offset {
            return Ok(());
        }
        self.dirty[page_of(zone) - 1].store(true, Ordering::SeqCst);
        self.commit(&mut c, Scope::Resets, sample)?;
        debug_assert!(bound.load(Ordering::SeqCst) <= offset, "zone {zone}: reset not committed");
        Ok(())
    }

    /// True if data from before a reset, above `offset` of `zone`, may appear again after a restart.
    pub(crate) fn promises(&self, zone: ZoneIndex, offset: u32) -> bool {
        self.bound[zone.0 as usize].load(Ordering::SeqCst) > offset
    }

    /// Records that data was written to the file. Has to be called before the write is
    /// acknowledged.
    #[inline]
    pub(crate) fn wrote_data(&self) {
        self.unsynced.store(true, Ordering::SeqCst);
    }

    /// Records that the state of `zone` has changed. Has to be called after the change and before
    /// it is acknowledged.
    #[inline]
    pub(crate) fn changed(&self, zone: ZoneIndex) {
        self.dirty[page_of(zone) - 1].store(true, Ordering::SeqCst);
    }

    /// Records that `zone` is about to be reset with `written` sectors of data in the file. Has to
    /// be called before the change.
    pub(crate) fn resetting(&self, zone: ZoneIndex, written: u32) {
        if written > 0 {
            // Including blocks kept from an earlier reset: the commit may free everything below the
            // bound.
            let end = self.kept.lock().end(zone).max(written);
            self.bound[zone.0 as usize].fetch_max(end, Ordering::SeqCst);
        }
    }

    /// Frees the blocks kept by reset zones, because the host's file system is full. Returns true
    /// if there were any.
    ///
    /// Writes may be in flight. A writer updates its zone's state before it reads the bound, and
    /// this raises the bound before it reads the state. So a write either has its place below the
    /// freed range, or waits for the lock held here.
    pub(crate) fn give_back(&self, reach: Reach<'_>) -> bool {
        let _committer = self.committer.lock();
        let kept = self.kept.lock().take();
        for &(zone, end) in &kept {
            let bound = &self.bound[zone.0 as usize];
            let promised = bound.fetch_max(end, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // If a reset is not durable yet, the bound is already at the end, and its commit
            // decides about the blocks.
            self.discard(self.bytes_of(zone, reach(zone).max(promised).min(end)..end));
            // Unless a reset has raised it meanwhile.
            let _ = bound.compare_exchange(end, promised, Ordering::SeqCst, Ordering::SeqCst);
        }
        !kept.is_empty()
    }

    /// Makes everything durable that was acknowledged before the call. Concurrent callers share a
    /// commit.
    pub(crate) fn flush(&self, sample: Sample<'_>) -> Result<(), Failure> {
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst) + 1;
        let mut c = self.committer.lock();
        self.check()?;
        if c.served >= ticket {
            return Ok(());
        }
        // Every command covered by the tickets so far was acknowledged, and therefore marked its
        // page, before the pages are sampled.
        let covers = self.tickets.load(Ordering::SeqCst);
        self.commit(&mut c, Scope::All, sample)?;
        c.served = covers;
        Ok(())
    }

    /// Flushes, and marks the image as cleanly closed. The caller ensures that nothing follows.
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

    /// Makes a change of the bad blocks durable.
    pub(super) fn keep_bad_blocks(&self) -> Result<(), Failure> {
        self.check()?;
        let mut c = self.committer.lock();
        if self.medium.take_changed() { self.open_session(&mut c) } else { Ok(()) }
    }

    fn commit(&self, c: &mut Committer, scope: Scope, sample: Sample<'_>) -> Result<(), Failure> {
        self.check()?;
        self.prove(c, sample)?;
        if scope == Scope::All && self.medium.take_changed() {
            self.open_session(c)?;
        }
        let edits = self.sample(c, scope, sample);
        let pages = self.pages_to_write(c, scope, &edits);
        let is_guarded = self.write_guards(c, &pages)?;
        let has_data = scope == Scope::All && self.unsynced.swap(false, Ordering::SeqCst);
        // Active slots are durable before others are overwritten.
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

    /// Zones with a changed durable state or with space to free, in ascending order.
    fn sample(&self, c: &Committer, scope: Scope, sample: Sample<'_>) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (page, dirty) in self.dirty.iter().enumerate() {
            let is_dirty = match scope {
                // A swap rather than a store, to see all changes made before the mark.
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
        // Publish how far the commit will promise, then check that the zone has not moved: from
        // then on, a writer below the bound waits for this commit.
        while state.written > bound.load(Ordering::SeqCst) {
            bound.store(state.written, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            state = sample(zone);
        }
        let is_changed = state.to_bits() != c.words[zone.0 as usize];
        (is_changed || is_reset(state)).then_some(Edit { zone, state })
    }

    /// Pages with a changed word, and for a full commit those with a torn slot, in ascending order.
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

    /// Makes the state left by the last opener durable, if it did not close.
    fn prove(&self, c: &mut Committer, sample: Sample<'_>) -> Result<(), Failure> {
        if !c.is_unproven {
            return Ok(());
        }
        // End of each zone's data: promised by the ledger, or acknowledged later. No write of this
        // opener has started, because all of them wait until this is done.
        let ends: Vec<u32> = (0..)
            .zip(&c.words)
            .map(|(zone, word)| ZoneState::from_word(*word).written.max(sample(ZoneIndex(zone)).written))
            .collect();
        self.write_again(c, &ends)?;
        let lost = self.pages_with_lost_tails(c);
        let written: Vec<u32> =
            (1..).zip(&c.pages[1..]).filter(|(_, page)| page.live.is_some()).map(|(i, _)| i).collect();
        self.write_guards(c, &written)?;
        self.sync("syncing data left by the last opener")?;
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

    /// Pages as found of which some data is missing.
    fn pages_with_lost_tails(&self, c: &Committer) -> Vec<u32> {
        let is_lost = |page: &Page| self.page(c, page.index, page.sequence, Vec::new()).words != page.words;
        c.found.values().filter(|page| is_lost(page)).map(|page| page.index).collect()
    }

    /// Rewrites data that a failed sync of the last opener may have left in the cache, where no
    /// other sync would write it: the tails of its pages, and if it was killed during a sync, the
    /// data above the ledger's pointers.
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
                    .map_err(|e| self.fail("rewriting data left by the last opener", &e))?;
            }
        }
        Ok(())
    }

    /// Frees everything above `ends`: blocks kept by the last opener, and its lost writes.
    fn clear_above(&self, ends: &[u32]) {
        let sequential = self.geometry.conventional_zones()..self.geometry.zones();
        self.discard_runs(
            sequential
                .map(ZoneIndex)
                .map(|zone| self.bytes_of(zone, ends[zone.0 as usize]..self.geometry.size_of(zone))),
        );
    }

    /// Writes everything that has to be durable before an inactive slot of `pages` may tear: the
    /// open session, and the active slots. Returns true if a sync is required.
    fn write_guards(&self, c: &mut Committer, pages: &[u32]) -> Result<bool, Failure> {
        if !pages.is_empty() && !c.session_open {
            self.open_session(c)?;
        }
        let mut wrote = false;
        for &index in pages {
            wrote |= self.anchor(c, index)?;
        }
        Ok(wrote)
    }

    /// Writes page `index` in its present state, unless this opener has already written it. Returns
    /// true if it was written.
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

    /// Writes the session page with the present bad blocks, open.
    fn open_session(&self, c: &mut Committer) -> Result<(), Failure> {
        self.write_session(c, Session::Open)?;
        self.sync("syncing the start of the session")?;
        c.session_open = true;
        Ok(())
    }

    fn write_session(&self, c: &mut Committer, session: Session) -> Result<(), Failure> {
        let words = session_words(session, &self.medium.bad_blocks());
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

    /// Keeps or frees the blocks of reset zones, and lets writers proceed. The new words are
    /// durable.
    fn settle(&self, edits: &[Edit]) {
        let mut freed = Vec::new();
        let mut kept = self.kept.lock();
        for edit in edits {
            if edit.state.written > 0 {
                kept.written(edit.zone, edit.state.written);
                continue;
            }
            // Only up to the bound: a write above it does not wait and may already be there.
            let bound = self.bound[edit.zone.0 as usize].load(Ordering::SeqCst);
            let end = bound.min(self.geometry.size_of(edit.zone));
            if end > 0 {
                freed.push(self.bytes_of(edit.zone, kept.reset(edit.zone, end)..end));
            }
        }
        drop(kept);
        self.discard_runs(freed.into_iter());
        // Only now: a writer that passes the bound must find neither the old promise nor a discard
        // in progress.
        for edit in edits {
            self.bound[edit.zone.0 as usize].store(edit.state.written, Ordering::SeqCst);
        }
    }

    /// Location of these sectors of `zone` in the file.
    fn bytes_of(&self, zone: ZoneIndex, sectors: Range<u32>) -> Range<u64> {
        bytes_of(&self.geometry, &self.layout, zone, sectors)
    }

    /// Frees `ranges`, which are ascending, with one call for adjacent ones.
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

/// Error of reading a ledger.
pub(crate) enum ReadError {
    Io(io::Error),
    Page { page: u32, fault: PageError },
}

/// Index of the ledger page that describes `zone`.
const fn page_of(zone: ZoneIndex) -> usize {
    1 + zone.0 as usize / ZONES_PER_PAGE
}

/// Zones described by ledger page `index`, which is not the session page.
fn zones_of(geometry: &Geometry, index: u32) -> Range<u32> {
    let first = (index - 1) * ZONES_PER_PAGE as u32;
    first..geometry.zones().min(first + ZONES_PER_PAGE as u32)
}

/// Location of these sectors of `zone` in the file.
fn bytes_of(geometry: &Geometry, layout: &Layout, zone: ZoneIndex, sectors: Range<u32>) -> Range<u64> {
    let start = layout.data(geometry.start_of(zone));
    start + u64::from(sectors.start) * SECTOR_BYTES..start + u64::from(sectors.end) * SECTOR_BYTES
}

/// The inactive slot and the next sequence number.
fn next_slot(live: Option<(Side, u64)>) -> (Side, u64) {
    live.map_or((Side::A, 1), |(side, sequence)| (side.other(), sequence + 1))
}

#[cfg(test)]
mod tests;
