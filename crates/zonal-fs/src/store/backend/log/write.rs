//! Batches: from a snapshot of pages to blocks in segments.

use super::super::disk::{REQUEST_BLOCKS_MAX, concat};
use super::super::error::{BackendError, SegmentId, SegmentPlace};
use super::super::paged::{PAGE, PageBytes, Snapshot};
use super::super::segment::SegmentWrite;
use super::format::{
    Checkpoint, Head, HeadKind, Listed, ListedSegment, PART_PAGES_MAX, Part, PartRows, ROWS_IN_HEAD,
    emit_list, page_sum,
};
use super::rows::emit_batch;
use super::space::fits_table;
use super::table::{Entry, Spot};
use super::{Current, FAILURES_MAX, Log, LogState, SegmentSlot};
use crate::drive;
use crate::format::{UnitPlace, crc32c};
use std::sync::Arc;
use zonal_core::{DeviceError, RequestError};

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
    /// [Rows](super::rows), instead of pages.
    rows: Option<RowsDraft>,
}

/// Rows of a batch.
struct RowsDraft {
    /// Without the units.
    rows: Arc<[u8]>,
    part: PartRows,
    /// Blocks after the head.
    blocks: Vec<u8>,
}

impl RowsDraft {
    fn new(units: &[UnitPlace], rows: &[u8]) -> RowsDraft {
        let mut in_head = emit_batch(units, rows);
        let bytes = in_head.len() as u32;
        let mut blocks = in_head.split_off(in_head.len().min(ROWS_IN_HEAD));
        blocks.resize(blocks.len().next_multiple_of(PAGE), 0);
        let part = PartRows { in_head, bytes, crc: crc32c(&blocks) };
        RowsDraft { rows: rows.into(), part, blocks }
    }
}

impl Draft {
    /// Minimum number of free blocks in a segment for a part of it.
    fn blocks_min(&self) -> u32 {
        self.rows.as_ref().map_or(2, |rows| 2.max(1 + rows.part.blocks()))
    }
}

/// A page with its number and the checksum of its bytes.
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
    entries: Vec<Entry>,
    /// Segments with parts of it.
    slots: Vec<usize>,
    /// Its last part so far.
    prior: Option<SegmentPlace>,
    parts: u32,
    /// How far its last part says that the store has come.
    store_number: u64,
}

/// Why a batch did not get through.
enum Obstacle {
    /// The segment is left; it may get through elsewhere.
    Segment(BackendError),
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
        let slots = self.state.lock().slots.len();
        for slot in 0..slots {
            let segment = self.state.lock().slots[slot];
            if segment.is_usable() && segment.written > 0 {
                self.empty_segment(slot)?;
            }
        }
        self.flush()?;
        self.begin_segment()?;
        self.flush()
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.segments.flush()
    }

    pub(super) fn store_batch(&self, snapshot: &Snapshot) -> Result<(), BackendError> {
        self.make_room(snapshot.pages.len() as u64)?;
        let mut pages: Vec<Page> =
            snapshot.pages.iter().map(|(&page, bytes)| Page::new(page, bytes.clone())).collect();
        let asked = pages.len();
        pages.extend(self.come_along(snapshot)?);
        pages.sort_unstable_by_key(|page| page.page);
        self.commit(&Draft { len: snapshot.len, cut: snapshot.cut, pages, asked, rows: None })
    }

    /// Makes rows durable as a batch, together with the data in `units`.
    pub(super) fn store_rows(&self, units: &[UnitPlace], rows: &[u8]) -> Result<(), BackendError> {
        let rows = RowsDraft::new(units, rows);
        self.make_room(1 + u64::from(rows.part.blocks()))?;
        let len = self.state.lock().len;
        self.commit(&Draft { len, cut: u64::MAX, pages: Vec::new(), asked: 0, rows: Some(rows) })
    }

    /// Sees to it that a batch of `pages` has room, and that a segment is free after it if one can be.
    fn make_room(&self, pages: u64) -> Result<(), BackendError> {
        enum Move {
            Nothing,
            Empty(usize),
            /// Of two segments the current one, this one if there is any, is full: the other one is begun, and gets all pages.
            TurnOver(Option<usize>),
            Grow,
        }
        // Each round empties a segment, or takes one.
        let rounds = 8 * self.state.lock().slots.len() + 8;
        for _ in 0..rounds {
            let next = {
                let state = self.state.lock();
                let free = state.free();
                let can_move = |slot: usize| state.fits(state.table.live(slot).into(), 0);
                let fits = state.fits(pages, 0);
                match state.victim(can_move) {
                    _ if free > 0 && state.fits(pages, 1) => Move::Nothing,
                    Some(slot) => Move::Empty(slot),
                    None if state.is_pair() && free > 0 && fits => {
                        Move::TurnOver(state.current.map(|current| current.slot))
                    }
                    None if fits => Move::Nothing,
                    None => Move::Grow,
                }
            };
            match next {
                Move::Nothing => return Ok(()),
                Move::Empty(slot) => self.empty(slot)?,
                Move::TurnOver(full) => {
                    self.begin_segment()?;
                    full.map_or(Ok(()), |slot| self.empty(slot))?;
                }
                Move::Grow => {
                    if !self.take_segment_once()? {
                        break;
                    }
                }
            }
        }
        Err(self.full(pages))
    }

    fn full(&self, pages: u64) -> BackendError {
        let room = self.state.lock().room();
        match room.segments == room.segments_bad {
            true => BackendError::NoSegments,
            false => BackendError::Full { needed: room.pages + pages, usable: room.usable },
        }
    }

    /// Moves all live pages of a segment, in batches of their own.
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
            self.commit(&Draft { len, cut: u64::MAX, pages, asked: 0, rows: None })?;
        }
    }

    /// Moves the pages of zones that the log can do without, so that they can be given back. No other thread may write.
    pub(in crate::insides::store) fn vacate(&self) -> Result<(), BackendError> {
        let (slots, len, is_needed) = {
            let state = self.state.lock();
            let is_needed = |slot: usize| state.slots[slot].is_needed && state.can_do_without(slot);
            let others = (0..state.slots.len())
                .filter(|slot| state.current.is_none_or(|current| current.slot != *slot));
            (state.slots.len(), state.len, state.free() > 0 && others.into_iter().any(is_needed))
        };
        if is_needed {
            // A checkpoint with a table, and a batch after it, need nothing that was before.
            self.state.lock().since_table = u64::from(u32::MAX);
            self.begin_segment()?;
            self.commit(&Draft { len, cut: u64::MAX, pages: Vec::new(), asked: 0, rows: None })?;
        }
        for _ in 0..slots {
            let slot = {
                let state = self.state.lock();
                let victim = state.victim(|slot| state.can_do_without(slot));
                victim.filter(|slot| state.fits(state.table.live(*slot).into(), 0))
            };
            match slot {
                Some(slot) => self.empty(slot)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Pages that a batch takes along from the segment that is to be emptied, if there is little room.
    fn come_along(&self, snapshot: &Snapshot) -> Result<Vec<Page>, BackendError> {
        let asked = snapshot.pages.len();
        let (slot, found) = {
            let state = self.state.lock();
            let max = asked.max(ALONG_MIN).min(state.left_beside(asked as u64) as usize);
            let Some(slot) = state.comes_along() else { return Ok(Vec::new()) };
            (slot, state.table.pages_in(slot, 0, max))
        };
        let stays = |page: u64| page < snapshot.cut && !snapshot.pages.contains_key(&page);
        let found: Vec<(u64, Entry)> = found.into_iter().filter(|(page, _)| stays(*page)).collect();
        self.fetch(slot, &found)
    }

    /// Reads pages of a segment that is to be emptied. If one cannot be read, the segment stays as it is.
    fn fetch(&self, slot: usize, found: &[(u64, Entry)]) -> Result<Vec<Page>, BackendError> {
        let mut order: Vec<&(u64, Entry)> = found.iter().collect();
        order.sort_unstable_by_key(|(_, entry)| entry.spot);
        let entries: Vec<Option<Entry>> = order.iter().map(|(_, entry)| Some(*entry)).collect();
        let mut bytes = vec![0; order.len() * PAGE];
        if self.read(&entries, &mut bytes).is_err() {
            self.state.lock().slots[slot].is_stuck = true;
            return Ok(Vec::new());
        }
        let pages = order.iter().zip(bytes.chunks_exact(PAGE)).map(|((page, _), bytes)| {
            let mut copy = [0; PAGE];
            copy.copy_from_slice(bytes);
            Page::new(*page, Arc::new(copy))
        });
        let mut pages: Vec<Page> = pages.collect();
        pages.sort_unstable_by_key(|page| page.page);
        Ok(pages)
    }

    /// Writes a batch, elsewhere if need be, makes it durable, and acts on it.
    fn commit(&self, draft: &Draft) -> Result<(), BackendError> {
        self.number_opening();
        let (batch, written) = self.write_somewhere(draft)?;
        self.flush()?;
        self.record_number(written.store_number)?;
        self.state.lock().committed(draft, batch, &written);
        self.empty_what_is_free();
        Ok(())
    }

    /// The first batch of an opening gets a number of its own: a store that is put back to the time before is older.
    fn number_opening(&self) {
        let mut state = self.state.lock();
        if !state.is_numbered {
            state.is_numbered = true;
            state.number += 1;
        }
    }

    fn write_somewhere(&self, draft: &Draft) -> Result<(u64, Written), BackendError> {
        let mut failed = None;
        for _ in 0..self.tries() {
            let batch = self.number();
            match self.write(draft, batch) {
                Ok(written) => return Ok((batch, written)),
                Err(Obstacle::Segment(error)) => {
                    failed = Some(error);
                    self.state.lock().begin_again();
                }
                // That there is no segment left says less than why.
                Err(Obstacle::Final(error)) => return Err(failed.unwrap_or(error)),
            }
        }
        Err(failed.unwrap_or(BackendError::NoSegments))
    }

    /// Times that a batch, or the beginning of a segment, is tried: several in each segment.
    fn tries(&self) -> usize {
        8 * (self.state.lock().slots.len() + 2)
    }

    fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.batch_next += 1;
        state.batch_next - 1
    }

    /// Writes all parts of a batch.
    fn write(&self, draft: &Draft, batch: u64) -> Result<Written, Obstacle> {
        let mut written = Written::default();
        while written.entries.len() < draft.pages.len() || written.parts == 0 {
            let current = self.current(draft.blocks_min())?;
            let (heads, end) = self.plan(draft, batch, &written, current);
            let writes = heads.iter().flat_map(|head| self.writes_of(head, draft, &written, &heads));
            if let Err(error) = self.segments.write(writes) {
                return Err(self.obstacle(current.slot, error));
            }
            self.advance(current, end);
            written.note(current.slot, &heads);
        }
        Ok(written)
    }

    /// The segment to write to: the current one while it has room for `blocks`, then the next, which is begun.
    fn current(&self, blocks: u32) -> Result<Current, Obstacle> {
        let current = {
            let state = self.state.lock();
            state.current.filter(|current| state.slots[current.slot].blocks - current.block >= blocks)
        };
        match current {
            Some(current) => Ok(current),
            None => Ok(self.begin_segment()?),
        }
    }

    /// The heads of the parts that go to `current`, and the block after them.
    fn plan(&self, draft: &Draft, batch: u64, written: &Written, current: Current) -> (Vec<Head>, u32) {
        let (SegmentSlot { segment, blocks, .. }, before, store_number) = {
            let state = self.state.lock();
            (state.slots[current.slot], state.batch, state.number)
        };
        let (mut heads, mut block): (Vec<Head>, u32) = (Vec::new(), current.block);
        let mut pages = &draft.pages[written.entries.len()..];
        let mut prior = written.prior;
        while blocks - block >= 2 && !(pages.is_empty() && prior.is_some()) {
            let n = pages.len().min(PART_PAGES_MAX).min((blocks - block - 1) as usize);
            let (these, rest) = pages.split_at(n);
            let place = SegmentPlace { segment, block };
            let listed = |(page, block): (&Page, u32)| {
                let place = SegmentPlace { segment, block };
                Listed {
                    page: page.page as u32,
                    sum: page_sum(page.crc, &self.uuid, place, current.beginning),
                }
            };
            let part = Part {
                batch,
                before,
                len: draft.len,
                cut: draft.cut,
                number: written.parts + heads.len() as u32,
                is_last: rest.is_empty(),
                prior: prior.unwrap_or(SegmentPlace { segment: SegmentId(0), block: 0 }),
                store_number,
                pages: these.iter().zip(block + 1..).map(listed).collect(),
                rows: draft.rows.as_ref().map(|rows| rows.part.clone()),
            };
            block += 1 + part.blocks();
            heads.push(Head { place, beginning: current.beginning, kind: HeadKind::Part(part) });
            (pages, prior) = (rest, Some(place));
        }
        (heads, block)
    }

    /// The requests that write the part of `head` and its pages.
    fn writes_of(&self, head: &Head, draft: &Draft, written: &Written, heads: &[Head]) -> Vec<SegmentWrite> {
        let count = |head: &Head| head.pages();
        let skip: usize = heads.iter().take_while(|other| other.place != head.place).map(count).sum();
        let first = written.entries.len() + skip;
        let emitted = head.emit(&self.uuid);
        let pages = draft.pages[first..first + head.pages()].iter().map(|page| &page.bytes[..]);
        let rows = draft.rows.iter().flat_map(|rows| rows.blocks.chunks(PAGE));
        writes(head.place, std::iter::once(&emitted[..]).chain(pages).chain(rows))
    }

    fn advance(&self, current: Current, block: u32) {
        let ends_with_a_block = self.segments.zones_end_with_a_block();
        let mut state = self.state.lock();
        state.current = Some(Current { block, ..current });
        let slot = &mut state.slots[current.slot];
        slot.written = block;
        let is_full = block == slot.blocks && ends_with_a_block;
        slot.is_active = slot.segment.as_zone().is_some() && !is_full;
    }

    /// A write to the segment `slot` failed with `error`: nothing more is written to it before it is emptied.
    fn obstacle(&self, slot: usize, error: BackendError) -> Obstacle {
        // A drive that cannot flush is of no use elsewhere either.
        if is_final(&error) || self.flush().is_err() {
            return Obstacle::Final(error);
        }
        let mut state = self.state.lock();
        state.slots[slot].failed(&error);
        state.statistics.writes_failed += 1;
        state.current = state.current.filter(|current| current.slot != slot);
        Obstacle::Segment(error)
    }
}

/// The requests that write `blocks` from `at` on.
fn writes<'a>(at: SegmentPlace, blocks: impl Iterator<Item = &'a [u8]>) -> Vec<SegmentWrite> {
    let blocks: Vec<&[u8]> = blocks.collect();
    let write = |(n, chunk): (usize, &[&[u8]])| {
        let at = SegmentPlace { block: at.block + (n * REQUEST_BLOCKS_MAX) as u32, ..at };
        SegmentWrite { at, bytes: concat(chunk.iter().copied(), chunk.len() * PAGE) }
    };
    blocks.chunks(REQUEST_BLOCKS_MAX).enumerate().map(write).collect()
}

/// True if the next segment would fail as well.
fn is_final(error: &BackendError) -> bool {
    match error {
        BackendError::Request { error, .. } => {
            matches!(error, RequestError::Device(DeviceError::Gone))
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
    /// The parts of `heads` are in the segment `slot`.
    fn note(&mut self, slot: usize, heads: &[Head]) {
        for head in heads {
            if let HeadKind::Part(part) = &head.kind {
                let blocks = head.place.block + 1..;
                let entry =
                    |(listed, block): (&Listed, u32)| Entry { spot: Spot { slot, block }, sum: listed.sum };
                self.entries.extend(part.pages.iter().zip(blocks).map(entry));
                self.store_number = part.store_number;
            }
            self.prior = Some(head.place);
            self.parts += 1;
        }
        self.slots.push(slot);
    }
}

impl SegmentSlot {
    /// A write to it or a reset of it failed. What came of a write is not known.
    fn failed(&mut self, error: &BackendError) {
        let answer = if let BackendError::Request { error, .. } = error { Some(error) } else { None };
        if !answer.is_some_and(drive::is_zone_limit_exceeded) {
            self.failures = self.failures.saturating_add(1);
        }
        self.is_bad |= answer.and_then(drive::lasting_condition).is_some();
        // A write that timed out may be executed late. A zone refuses it then; a piece would take it, over what is there by then.
        let may_come_late = matches!(answer, Some(RequestError::Device(DeviceError::TimedOut)));
        self.is_bad |= may_come_late && self.segment.as_zone().is_none();
        self.written = self.written.max(1);
        self.is_active = self.segment.as_zone().is_some();
    }
}

impl LogState {
    /// `draft` is durable as `batch`.
    fn committed(&mut self, draft: &Draft, batch: u64, written: &Written) {
        self.table.cut(draft.cut);
        for (page, entry) in draft.pages.iter().zip(&written.entries) {
            self.table.set(page.page, *entry);
        }
        (self.len, self.batch, self.durable_number) = (draft.len, batch, written.store_number);
        if let Some(draft) = &draft.rows {
            self.rows.push((batch, Ok(draft.rows.clone())));
        }
        // What came before the newest table is needed no more, but for what this batch has there.
        if self.begun.table != self.committed.table {
            let table = self.begun.table;
            self.slots.iter_mut().for_each(|slot| slot.is_needed = slot.beginning >= table);
        }
        self.committed = self.begun;
        for &slot in &written.slots {
            (self.slots[slot].is_needed, self.slots[slot].failures) = (true, 0);
        }
        self.statistics.batches += 1;
        self.statistics.pages_written += draft.asked as u64;
        self.statistics.pages_moved += (draft.pages.len() - draft.asked) as u64;
    }

    /// A batch is written again from its start: segments that were begun for it are as if they had not been.
    fn begin_again(&mut self) {
        let committed = self.committed;
        let is_new = |slot: &&mut SegmentSlot| slot.beginning > committed.newest;
        self.slots.iter_mut().filter(is_new).for_each(|slot| slot.is_needed = false);
        self.current = self.current.filter(|current| current.beginning <= committed.newest);
        self.begun = committed;
    }

    /// True if the next checkpoint has the table. It costs room in every segment: so a table that is large against a segment
    /// is written again only after eight times as much. Until then opening needs the segments since the last one.
    fn is_table_due(&self, blocks: u32) -> bool {
        let table = u64::from(self.table.blocks()) + 1;
        let needed = self.slots.iter().filter(|slot| slot.is_needed).count();
        let is_due =
            table * 8 <= u64::from(blocks) || self.since_table >= table * 8 || needed * 4 >= self.slots.len();
        self.since_table == 0 || (fits_table(table + self.rows.blocks(), blocks) && is_due)
    }
}

/// Segments.
impl Log {
    /// Begins a segment with a checkpoint of what is durable, another one where that fails.
    pub(super) fn begin_segment(&self) -> Result<Current, BackendError> {
        let mut failed = None;
        for _ in 0..self.tries() {
            let slot = match self.next_slot() {
                Ok(slot) => slot,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            self.leave_others(slot);
            if self.state.lock().slots[slot].written > 0
                && let Err(error) = self.empty_segment(slot)
            {
                failed = Some(error);
                continue;
            }
            let (head, body) = self.checkpoint(slot);
            let end = 1 + (body.len() / PAGE) as u32;
            let emitted = head.emit(&self.uuid);
            let writes = writes(head.place, std::iter::once(&emitted[..]).chain(body.chunks(PAGE)));
            let has_table =
                matches!(&head.kind, HeadKind::Checkpoint(checkpoint) if checkpoint.table_blocks.is_some());
            match self.segments.write(writes).and_then(|()| self.flush_checkpoint_of(head.place.segment)) {
                Ok(()) => {
                    return Ok(self.begun(Current { slot, block: end, beginning: head.beginning }, has_table));
                }
                Err(error) => match self.obstacle(slot, error) {
                    Obstacle::Final(error) => return Err(error),
                    Obstacle::Segment(error) => failed = Some(error),
                },
            }
        }
        Err(failed.unwrap_or(BackendError::NoSegments))
    }

    /// Opening sees a segment's number in its checkpoint. A cut that left parts of a piece without the checkpoint would leave
    /// heads of a number that is given again, and a later use of the piece would take them for its own. A zone is reset first.
    fn flush_checkpoint_of(&self, segment: SegmentId) -> Result<(), BackendError> {
        if segment.as_zone().is_some() { Ok(()) } else { self.flush() }
    }

    fn begun(&self, current: Current, has_table: bool) -> Current {
        self.advance(current, current.block);
        let mut state = self.state.lock();
        state.begun.newest = current.beginning;
        // The first batch in the segment says more than its checkpoint: without that batch the log has not come as far.
        state.number += 1;
        if has_table {
            state.begun.table = current.beginning;
        }
        let blocks = u64::from(state.slots[current.slot].blocks);
        state.since_table = if has_table { blocks } else { state.since_table + blocks };
        state.statistics.segments_begun += 1;
        let slot = &mut state.slots[current.slot];
        // Until a batch is durable that a later table includes.
        (slot.beginning, slot.is_needed, slot.is_stuck) = (current.beginning, true, false);
        current
    }

    /// The free segment to begin: not a suspect one, an empty one if there is one, and of these the lowest. Where there is
    /// none, the log takes another segment. It begins a suspect one only if it cannot.
    fn next_slot(&self) -> Result<usize, BackendError> {
        loop {
            let found = {
                let state = self.state.lock();
                let free = (0..state.slots.len()).filter(|&slot| state.is_free(slot));
                let slot = free.min_by_key(|&slot| {
                    let SegmentSlot { segment, written, failures, .. } = state.slots[slot];
                    (failures, written > 0, segment)
                });
                slot.map(|slot| (slot, state.slots[slot].is_suspect()))
            };
            match found {
                Some((slot, false)) => return Ok(slot),
                _ if self.take_segment_once()? => {}
                Some((slot, true)) => return Ok(slot),
                None => return Err(self.full(0)),
            }
        }
    }

    /// Finishes what is partly written: one zone is active at a time.
    fn leave_others(&self, slot: usize) {
        let count = self.state.lock().slots.len();
        for other in (0..count).filter(|&other| other != slot) {
            let SegmentSlot { segment, is_active, written, .. } = self.state.lock().slots[other];
            if is_active && written > 0 && self.segments.finish(segment).is_ok() {
                self.state.lock().slots[other].is_active = false;
            }
        }
    }

    /// The checkpoint for the segment `slot`: its head, and list, table and rows.
    fn checkpoint(&self, slot: usize) -> (Head, Vec<u8>) {
        let mut state = self.state.lock();
        state.number += 1;
        let beginning = state.number;
        let listed = state.slots.iter().map(|slot| ListedSegment {
            segment: slot.segment,
            is_bad: slot.is_bad || slot.is_suspect(),
            beginning: slot.beginning,
        });
        let mut body = emit_list(listed);
        let has_table = state.is_table_due(state.slots[slot].blocks);
        let mut rows_bytes = 0;
        if has_table {
            body.extend(state.table.emit());
            let rows = state.rows.emit();
            rows_bytes = rows.len() as u32;
            body.extend(rows);
            body.resize(body.len().next_multiple_of(PAGE), 0);
        }
        let checkpoint = Checkpoint {
            batch: state.batch,
            before: state.begun.newest,
            len: state.len,
            listed: state.slots.len() as u32,
            blocks: state.slots[slot].blocks,
            table_blocks: has_table.then(|| state.table.blocks()),
            rows_bytes,
            body_crc: crc32c(&body),
        };
        let place = SegmentPlace { segment: state.slots[slot].segment, block: 0 };
        (Head { place, beginning, kind: HeadKind::Checkpoint(checkpoint) }, body)
    }

    /// Empties a segment.
    pub(super) fn empty_segment(&self, slot: usize) -> Result<(), BackendError> {
        let segment = self.state.lock().slots[slot].segment;
        let result = self.segments.empty(segment);
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                let of = &mut state.slots[slot];
                (of.written, of.is_active) = (0, false);
                // One more chance.
                of.failures = of.failures.min(FAILURES_MAX - 1);
                state.statistics.segments_emptied += 1;
            }
            Err(ref error) => state.slots[slot].failed(error),
        }
        result
    }

    fn empty_what_is_free(&self) {
        let count = self.state.lock().slots.len();
        for slot in 0..count {
            let is_due = {
                let state = self.state.lock();
                state.is_free(slot) && state.slots[slot].written > 0
            };
            if is_due {
                // The batch is durable all the same.
                let _ = self.empty_segment(slot);
            }
        }
    }
}
