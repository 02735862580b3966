//! Batches on their way to the drive.

use super::super::disk::{REQUEST_BLOCKS_MAX, Write, gather};
use super::super::error::{BackendError, Place};
use super::super::paged::{PAGE, PageBytes, Snapshot};
use super::format::{Checkpoint, Head, HeadKind, Listed, PART_PAGES_MAX, Part, zones_crc};
use super::table::{Entry, Spot};
use super::{Current, FAILURES_MAX, Log, Slot, State, sector_of};
use crate::BLOCK_SECTORS;
use crate::drive;
use crate::format::crc32c;
use std::sync::Arc;
use zonal_core::{DeviceError, Op, RequestError, ZoneIndex};

/// Pages that a batch of nothing but moved pages has at most: they are in memory meanwhile.
const MOVED_MAX: usize = 4096;

/// Pages that come along with a batch that has fewer of its own.
const ALONG_MIN: usize = 64;

/// A batch before it has a number and places.
struct Draft {
    len: u64,
    cut: u64,
    /// In the order of their numbers.
    pages: Vec<Page>,
    /// How many of them were asked for; the others are moved.
    asked: usize,
}

/// A page with its number and checksum.
struct Page {
    page: u64,
    bytes: Arc<PageBytes>,
    crc: u32,
}

impl Page {
    fn new(page: u64, bytes: Arc<PageBytes>) -> Page {
        let crc = crc32c(&bytes[..]);
        Page { page, bytes, crc }
    }
}

/// Where a batch went.
#[derive(Default)]
struct Written {
    /// Of its pages, in their order.
    spots: Vec<Spot>,
    /// Zones with parts of it.
    slots: Vec<usize>,
    /// A zone was begun in its midst.
    has_begun: bool,
    /// Its last part so far.
    prior: Option<Place>,
    parts: u32,
}

/// Why a batch did not get through.
enum Obstacle {
    /// The zone is left; it may get through elsewhere.
    Zone(BackendError),
    /// It would fail again.
    Final(BackendError),
}

impl From<BackendError> for Obstacle {
    fn from(error: BackendError) -> Obstacle {
        Obstacle::Final(error)
    }
}

/// The log as a sequence of batches.
impl Log {
    /// Makes the first checkpoint.
    pub(super) fn begin(&self) -> Result<(), BackendError> {
        for slot in 0..self.zones.len() {
            let zone = self.state.lock().slots[slot];
            if !zone.is_bad && zone.written > 0 {
                self.reset(slot)?;
            }
        }
        self.disk.flush()?;
        self.begin_zone()?;
        self.disk.flush()
    }

    pub(super) fn store_batch(&self, snapshot: &Snapshot) -> Result<(), BackendError> {
        self.make_room(snapshot.pages.len() as u64)?;
        let mut pages: Vec<Page> =
            snapshot.pages.iter().map(|(&page, bytes)| Page::new(page, bytes.clone())).collect();
        let asked = pages.len();
        pages.extend(self.come_along(snapshot)?);
        pages.sort_unstable_by_key(|page| page.page);
        self.commit(&Draft { len: snapshot.len, cut: snapshot.cut, pages, asked })
    }

    /// Sees to it that a batch of `pages` has room, and that a zone is free after it if one can be.
    fn make_room(&self, pages: u64) -> Result<(), BackendError> {
        // Each round empties a zone.
        for _ in 0..8 * self.zones.len() {
            let victim = {
                let state = self.state.lock();
                let free = state.free();
                if free > 0 && state.fits(pages, free - 1, self.zone_blocks) {
                    return Ok(());
                }
                let can_move =
                    |&slot: &usize| state.fits(state.table.live(slot).into(), free, self.zone_blocks);
                match state.victim().filter(can_move) {
                    Some(slot) => slot,
                    None if state.fits(pages, free, self.zone_blocks) => return Ok(()),
                    None => break,
                }
            };
            self.empty(victim)?;
        }
        let room = self.state.lock().room(self.zone_blocks);
        Err(BackendError::Full { needed: room.pages + pages, usable: room.usable })
    }

    /// Moves all live pages of a zone, in batches of their own.
    fn empty(&self, slot: usize) -> Result<(), BackendError> {
        loop {
            let (found, len) = {
                let state = self.state.lock();
                (state.table.pages_in(slot, 0, MOVED_MAX), state.len)
            };
            if found.is_empty() {
                return Ok(());
            }
            let pages = self.fetch(slot, &found)?;
            if pages.is_empty() {
                return Ok(());
            }
            self.commit(&Draft { len, cut: u64::MAX, pages, asked: 0 })?;
        }
    }

    /// Pages that a batch takes along from the zone that is to be emptied, if there is little room.
    fn come_along(&self, snapshot: &Snapshot) -> Result<Vec<Page>, BackendError> {
        let asked = snapshot.pages.len();
        let (slot, found) = {
            let state = self.state.lock();
            let max = asked.max(ALONG_MIN).min(state.left_beside(asked as u64, self.zone_blocks) as usize);
            let Some(slot) = state.comes_along(self.zone_blocks) else { return Ok(Vec::new()) };
            (slot, state.table.pages_in(slot, 0, max))
        };
        let stays = |page: u64| page < snapshot.cut && !snapshot.pages.contains_key(&page);
        let found: Vec<(u64, Entry)> = found.into_iter().filter(|(page, _)| stays(*page)).collect();
        self.fetch(slot, &found)
    }

    /// Reads pages of a zone that is to be emptied. If one cannot be read, the zone stays as it is.
    fn fetch(&self, slot: usize, found: &[(u64, Entry)]) -> Result<Vec<Page>, BackendError> {
        let mut order: Vec<&(u64, Entry)> = found.iter().collect();
        order.sort_unstable_by_key(|(_, entry)| entry.spot);
        let entries: Vec<Option<Entry>> = order.iter().map(|(_, entry)| Some(*entry)).collect();
        let mut bytes = vec![0; order.len() * PAGE];
        if self.read(&entries, &mut bytes).is_err() {
            self.state.lock().slots[slot].is_stuck = true;
            return Ok(Vec::new());
        }
        let pages = order.iter().zip(bytes.chunks_exact(PAGE)).map(|((page, entry), bytes)| {
            let mut copy = [0; PAGE];
            copy.copy_from_slice(bytes);
            Page { page: *page, bytes: Arc::new(copy), crc: entry.crc }
        });
        let mut pages: Vec<Page> = pages.collect();
        pages.sort_unstable_by_key(|page| page.page);
        Ok(pages)
    }

    /// Writes a batch, elsewhere if need be, makes it durable, and acts on it.
    fn commit(&self, draft: &Draft) -> Result<(), BackendError> {
        let (batch, written) = self.write_somewhere(draft)?;
        self.disk.flush()?;
        self.state.lock().committed(draft, batch, &written);
        self.reset_what_is_free();
        Ok(())
    }

    fn write_somewhere(&self, draft: &Draft) -> Result<(u64, Written), BackendError> {
        let mut failed = None;
        loop {
            let batch = self.number();
            match self.write(draft, batch) {
                Ok(written) => return Ok((batch, written)),
                // Each zone fails a few times at most.
                Err(Obstacle::Zone(error)) => failed = Some(error),
                // That there is no zone left says less than why.
                Err(Obstacle::Final(error)) => return Err(failed.unwrap_or(error)),
            }
        }
    }

    fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.batch_next += 1;
        state.batch_next - 1
    }

    /// Writes all parts of a batch.
    fn write(&self, draft: &Draft, batch: u64) -> Result<Written, Obstacle> {
        let mut written = Written::default();
        while written.spots.len() < draft.pages.len() || written.parts == 0 {
            let current = self.current(&mut written)?;
            let (heads, end) = self.plan(draft, batch, &written, current);
            let writes = heads.iter().flat_map(|head| self.writes_of(head, draft, &written, &heads));
            if let Err(error) = self.disk.write(writes) {
                return Err(self.obstacle(current.slot, error));
            }
            self.advance(current, end);
            written.note(current.slot, &heads);
        }
        Ok(written)
    }

    /// The zone to write to: the current one as long as it has room for a head and a page, then one that is begun.
    fn current(&self, written: &mut Written) -> Result<Current, Obstacle> {
        let current = self.state.lock().current;
        match current {
            Some(current) if self.zone_blocks - current.block >= 2 => Ok(current),
            _ => {
                written.has_begun = true;
                Ok(self.begin_zone()?)
            }
        }
    }

    /// The heads of the parts that go to `current`, and the block behind them.
    fn plan(&self, draft: &Draft, batch: u64, written: &Written, current: Current) -> (Vec<Head>, u32) {
        let (zone, before) = (self.zones[current.slot], self.state.lock().batch);
        let (mut heads, mut block): (Vec<Head>, u32) = (Vec::new(), current.block);
        let mut pages = &draft.pages[written.spots.len()..];
        let mut prior = written.prior;
        while self.zone_blocks - block >= 2 && !(pages.is_empty() && prior.is_some()) {
            let n = pages.len().min(PART_PAGES_MAX).min((self.zone_blocks - block - 1) as usize);
            let (these, rest) = pages.split_at(n);
            let place = Place { zone, block };
            let part = Part {
                batch,
                before,
                len: draft.len,
                cut: draft.cut,
                number: written.parts + heads.len() as u32,
                is_last: rest.is_empty(),
                prior: prior.unwrap_or(Place { zone: ZoneIndex(0), block: 0 }),
                pages: these.iter().map(|p| Listed { page: p.page as u32, crc: p.crc }).collect(),
            };
            heads.push(Head { place, opening: current.opening, kind: HeadKind::Part(part) });
            (pages, prior) = (rest, Some(place));
            block += 1 + n as u32;
        }
        (heads, block)
    }

    /// The requests that write the part of `head` and its pages.
    fn writes_of(&self, head: &Head, draft: &Draft, written: &Written, heads: &[Head]) -> Vec<Write> {
        let count = |head: &Head| head.pages();
        let skip: usize = heads.iter().take_while(|other| other.place != head.place).map(count).sum();
        let first = written.spots.len() + skip;
        let emitted = head.emit(&self.uuid);
        let pages = draft.pages[first..first + head.pages()].iter().map(|page| &page.bytes[..]);
        let blocks: Vec<&[u8]> = std::iter::once(&emitted[..]).chain(pages).collect();
        let chunks = blocks.chunks(REQUEST_BLOCKS_MAX).enumerate();
        chunks
            .map(|(n, chunk)| {
                let block = head.place.block + (n * REQUEST_BLOCKS_MAX) as u32;
                let at = sector_of(&self.disk, head.place.zone, block);
                Write { at, bytes: gather(chunk.iter().copied(), chunk.len() * PAGE) }
            })
            .collect()
    }

    fn advance(&self, current: Current, block: u32) {
        let is_full = block == self.zone_blocks && self.zones_end_with_a_block();
        let mut state = self.state.lock();
        state.current = Some(Current { block, ..current });
        let slot = &mut state.slots[current.slot];
        slot.written = block;
        slot.is_active = !is_full;
    }

    /// Whether a zone is full when its last block is written.
    fn zones_end_with_a_block(&self) -> bool {
        let capacity = self.disk.drive().volume().info().geometry.capacity_of(self.zones[0]);
        capacity.is_multiple_of(BLOCK_SECTORS)
    }

    /// A write to the zone `slot` failed with `error`: nothing more is written to it before it is reset.
    fn obstacle(&self, slot: usize, error: BackendError) -> Obstacle {
        // A drive that cannot flush is of no use elsewhere either.
        if is_final(&error) || self.disk.flush().is_err() {
            return Obstacle::Final(error);
        }
        let mut state = self.state.lock();
        state.slots[slot].failed(&error);
        state.statistics.writes_failed += 1;
        state.current = state.current.filter(|current| current.slot != slot);
        Obstacle::Zone(error)
    }
}

/// Whether the next zone would fail as well.
fn is_final(error: &BackendError) -> bool {
    match error {
        BackendError::Request { error, .. } => {
            matches!(error, RequestError::Device(DeviceError::Gone) | RequestError::NoSlot { .. })
        }
        _ => true,
    }
}

impl Head {
    /// Pages of a part.
    fn pages(&self) -> usize {
        match &self.kind {
            HeadKind::Part(part) => part.pages.len(),
            HeadKind::Checkpoint(_) => 0,
        }
    }
}

impl Written {
    /// The parts of `heads` are in the zone `slot`.
    fn note(&mut self, slot: usize, heads: &[Head]) {
        for head in heads {
            let blocks = head.place.block + 1..=head.place.block + head.pages() as u32;
            self.spots.extend(blocks.map(|block| Spot { slot, block }));
            self.prior = Some(head.place);
            self.parts += 1;
        }
        self.slots.push(slot);
    }
}

impl Slot {
    /// A write to it or a reset of it failed. What came of a write nobody knows.
    fn failed(&mut self, error: &BackendError) {
        self.failures += 1;
        let is_fallen =
            matches!(error, BackendError::Request { error, .. } if drive::fallen(error).is_some());
        self.is_bad |= is_fallen || self.failures >= FAILURES_MAX;
        (self.written, self.is_active) = (self.written.max(1), true);
    }
}

impl State {
    /// `draft` is durable as `batch`.
    fn committed(&mut self, draft: &Draft, batch: u64, written: &Written) {
        self.table.cut(draft.cut);
        for (page, spot) in draft.pages.iter().zip(&written.spots) {
            self.table.set(page.page, Entry { spot: *spot, crc: page.crc });
        }
        (self.len, self.batch) = (draft.len, batch);
        if written.has_begun {
            self.slots.iter_mut().for_each(|slot| slot.is_needed = false);
        }
        for &slot in &written.slots {
            (self.slots[slot].is_needed, self.slots[slot].failures) = (true, 0);
        }
        self.statistics.batches += 1;
        self.statistics.pages_written += draft.asked as u64;
        self.statistics.pages_moved += (draft.pages.len() - draft.asked) as u64;
    }
}

/// Zones.
impl Log {
    /// Begins a zone with a checkpoint of what is durable, another one where that fails.
    pub(super) fn begin_zone(&self) -> Result<Current, BackendError> {
        loop {
            let slot = self.next_slot()?;
            self.leave_others(slot);
            if self.state.lock().slots[slot].written > 0 && self.reset(slot).is_err() {
                continue;
            }
            let (head, table) = self.checkpoint(slot);
            let end = 1 + (table.len() / PAGE) as u32;
            let blocks = head.emit(&self.uuid);
            let bytes: Vec<&[u8]> = std::iter::once(&blocks[..]).chain(table.chunks(PAGE)).collect();
            let writes = bytes.chunks(REQUEST_BLOCKS_MAX).enumerate().map(|(n, chunk)| {
                let block = (n * REQUEST_BLOCKS_MAX) as u32;
                let at = sector_of(&self.disk, self.zones[slot], block);
                Write { at, bytes: gather(chunk.iter().copied(), chunk.len() * PAGE) }
            });
            match self.disk.write(writes) {
                Ok(()) => return Ok(self.begun(Current { slot, block: end, opening: head.opening })),
                Err(error) => match self.obstacle(slot, error) {
                    Obstacle::Final(error) => return Err(error),
                    Obstacle::Zone(_) => {}
                },
            }
        }
    }

    fn begun(&self, current: Current) -> Current {
        self.advance(current, current.block);
        let mut state = self.state.lock();
        state.opening = current.opening;
        state.statistics.zones_opened += 1;
        let slot = &mut state.slots[current.slot];
        // Until a batch is durable whose beginning this checkpoint or a later one is.
        (slot.is_needed, slot.is_stuck) = (true, false);
        current
    }

    /// The free zone to begin: an empty one if there is one, and the lowest.
    fn next_slot(&self) -> Result<usize, BackendError> {
        let state = self.state.lock();
        let free = (0..self.zones.len()).filter(|&slot| state.is_free(slot));
        let room = || state.room(self.zone_blocks);
        free.min_by_key(|&slot| (state.slots[slot].written > 0, self.zones[slot]))
            .ok_or_else(|| BackendError::Full { needed: room().pages, usable: room().usable })
    }

    /// Finishes what is partly written: one zone is active at a time.
    fn leave_others(&self, slot: usize) {
        for other in (0..self.zones.len()).filter(|&other| other != slot) {
            let zone = self.state.lock().slots[other];
            if zone.is_active
                && zone.written > 0
                && self.disk.manage(Op::ZoneFinish, self.zones[other]).is_ok()
            {
                self.state.lock().slots[other].is_active = false;
            }
        }
    }

    /// The checkpoint for the zone `slot`: its head and its table.
    fn checkpoint(&self, slot: usize) -> (Head, Vec<u8>) {
        let mut state = self.state.lock();
        let opening = state.opening_next;
        state.opening_next += 1;
        let table = state.table.emit();
        let checkpoint = Checkpoint {
            batch: state.batch,
            before: state.opening,
            len: state.len,
            bad: state.bad(),
            table_blocks: state.table.blocks(),
            table_crc: crc32c(&table),
            zones_crc: zones_crc(&self.zones),
        };
        let place = Place { zone: self.zones[slot], block: 0 };
        (Head { place, opening, kind: HeadKind::Checkpoint(checkpoint) }, table)
    }

    /// Empties a zone.
    fn reset(&self, slot: usize) -> Result<(), BackendError> {
        let result = self.disk.manage(Op::ZoneReset, self.zones[slot]);
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                state.slots[slot].written = 0;
                state.slots[slot].is_active = false;
                state.statistics.zones_reset += 1;
            }
            Err(ref error) => state.slots[slot].failed(error),
        }
        result
    }

    fn reset_what_is_free(&self) {
        for slot in 0..self.zones.len() {
            let is_due = {
                let state = self.state.lock();
                state.is_free(slot) && state.slots[slot].written > 0
            };
            if is_due {
                // The batch is durable all the same.
                let _ = self.reset(slot);
            }
        }
    }
}
