//! Opening: from what is in the segments to the page table.
//!
//! 1. The head of each segment is read, and the newest table that is whole.
//! 2. The parts that follow its checkpoint are found from head to head, and so are those in segments that were begun later.
//!    Where that ends, each block of the rest is looked at: up to the write pointer, or to the end of a piece.
//! 3. Batches are followed from the checkpoint on. The next batch names this one as durable. The last is read through.
//!
//! If a part says that a batch was durable which is not there, or if the log has not come as far as the superblock says, it
//! has lost something, and is not opened.

use super::super::error::{BackendError, Damage, SegmentId, SegmentPlace};
use super::super::paged::PAGE;
use super::super::segment::{Seen, Segments};
use super::format::{Checkpoint, Head, HeadKind, ListedSegment, Part, parse_list};
use super::rows::{BatchRows, LoggedRows, parse_batch, parse_rows};
use super::table::{Entry, Spot, Table};
use super::{Beginnings, Current, LogState, SegmentSlot, Statistics};
use crate::format::{Uuid, crc32c};
use crate::scan;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Blocks that are read at once where heads follow each other.
const WINDOW: u32 = 32;

/// Times that something is read that the drive says it cannot read.
const TRIES: u32 = 3;

/// Blocks that are read at once where each block is looked at.
const SWEEP_WINDOW: u32 = 256;

/// What opening looks at.
pub(super) struct Opening<'a> {
    segments: &'a Segments,
    uuid: &'a Uuid,
    slots: Vec<SegmentSlot>,
    seen: Vec<Seen>,
    stride: u32,
    /// Parts by batch and number.
    parts: BTreeMap<(u64, u32), Found>,
    /// The highest beginning that was met.
    beginning_max: u64,
    /// Number of the batch that the superblock names, which was durable.
    named: u64,
    window: Window,
    /// Blocks are read one by one, because one of several is lost.
    reads_single: bool,
    /// Segments with something else than a checkpoint in their first blocks.
    headless: Vec<usize>,
    unread: Rc<Unread>,
}

/// The first answer of the drive that something is lost.
#[derive(Default)]
struct Unread(Cell<Option<BackendError>>);

impl Unread {
    /// What is read, or nothing if the drive says several times that it is lost. Any other answer is an error: what the drive
    /// does not give now may be sound.
    fn tried<T>(&self, mut read: impl FnMut() -> Result<T, BackendError>) -> Result<Option<T>, BackendError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match read() {
                Ok(read) => return Ok(Some(read)),
                Err(error) if !error.is_lost() => return Err(error),
                Err(_) if tries < TRIES => {}
                Err(error) => {
                    let before = self.0.take();
                    self.0.set(before.or(Some(error)));
                    return Ok(None);
                }
            }
        }
    }
}

/// Blocks that were read together.
#[derive(Default)]
struct Window {
    slot: usize,
    first: u32,
    bytes: Vec<u8>,
}

/// A part and where its head is.
struct Found {
    spot: Spot,
    beginning: u64,
    part: Part,
}

/// A segment's start.
#[derive(Clone, Copy)]
struct Begun {
    slot: usize,
    beginning: u64,
    checkpoint: Checkpoint,
}

/// The checkpoint that is built upon.
struct Base {
    begun: Begun,
    listed: Vec<ListedSegment>,
    table: Table,
    rows: Vec<BatchRows>,
    /// Segments that were begun later, in order. They have no table, or a damaged one.
    later: Vec<Begun>,
}

/// Where heads end in a segment.
#[derive(Clone, Copy)]
struct End {
    block: u32,
    /// No head follows.
    is_last: bool,
}

const LOG: &str = "the log of the metadata";

/// What a checkpoint has.
enum Body {
    /// A list, a table and rows.
    Complete(Vec<ListedSegment>, Table, Vec<BatchRows>),
    /// A list only.
    NoTable,
    Damaged(Damage),
}

impl<'a> Opening<'a> {
    pub(super) fn new(
        segments: &'a Segments,
        uuid: &'a Uuid,
        slots: Vec<SegmentSlot>,
        seen: Vec<Seen>,
        stride: u32,
    ) -> Opening<'a> {
        let (parts, window) = (BTreeMap::new(), Window::default());
        let (headless, unread) = (Vec::new(), Rc::default());
        Opening {
            segments,
            uuid,
            slots,
            seen,
            stride,
            parts,
            beginning_max: 0,
            named: 0,
            window,
            reads_single: false,
            headless,
            unread,
        }
    }

    /// Opens the log, which has to have reached number `known` and batch `named`.
    ///
    /// # Errors
    /// What the drive did not answer comes before what is not there for that reason.
    pub(super) fn run(mut self, known: u64, named: u64) -> Result<LogState, BackendError> {
        self.opened(known, named).map_err(|error| match error {
            BackendError::Damaged { .. } => self.unread.0.take().unwrap_or(error),
            error => error,
        })
    }

    fn opened(&mut self, known: u64, named: u64) -> Result<LogState, BackendError> {
        self.named = named;
        let base = self.base()?;
        let mut end = self.find_parts(&base.begun)?;
        for begun in &base.later {
            end = self.find_parts(begun)?;
        }
        let chain = self.follow(base.begun.checkpoint.batch)?;
        let newest = *base.later.last().unwrap_or(&base.begun);
        self.nothing_is_lost(&base, &chain, newest, end)?;
        let batch = chain.last().copied().unwrap_or(base.begun.checkpoint.batch);
        self.nothing_is_headless(newest, batch)?;
        let number = self.number(&base, &chain);
        if number < known {
            let start = Spot { slot: newest.slot, block: 0 };
            return Err(self.damaged(start, LOG, Damage::Old { found: number, known }));
        }
        if batch < named {
            let end = Spot { slot: newest.slot, block: end.block };
            return Err(self.damaged(end, LOG, Damage::Short { found: batch, named }));
        }
        let seen = &self.seen[newest.slot];
        let is_clean = end.is_last
            && seen.is_appendable
            && seen.written.is_none_or(|written| written == end.block)
            && self.is_sound(&newest)?;
        let current =
            is_clean.then_some(Current { slot: newest.slot, block: end.block, beginning: newest.beginning });
        self.state(base, &chain, newest, current, (number, known), named)
    }

    fn place(&self, spot: Spot) -> SegmentPlace {
        SegmentPlace { segment: self.slots[spot.slot].segment, block: spot.block }
    }

    fn damaged(&self, spot: Spot, what: &'static str, damage: Damage) -> BackendError {
        BackendError::Damaged { place: self.place(spot), what, damage }
    }

    /// Blocks of a segment that may have been written.
    fn written(&self, slot: usize) -> u32 {
        self.seen[slot].written.unwrap_or(self.slots[slot].blocks)
    }

    /// The block `spot`, read along with those that follow it.
    fn block(&mut self, spot: Spot, window: u32) -> Result<&[u8], BackendError> {
        let Window { slot, first, bytes } = &self.window;
        let end = first + (bytes.len() / PAGE) as u32;
        if *slot != spot.slot || !(*first..end).contains(&spot.block) {
            let window = if self.reads_single { 1 } else { window };
            let count = (self.slots[spot.slot].blocks - spot.block).min(window);
            let mut bytes = vec![0; count as usize * PAGE];
            let mut result = self.segments.read(self.place(spot), &mut bytes);
            if count > 1 && result.as_ref().is_err_and(BackendError::is_lost) {
                // Another block may be the lost one. Each further try may take the drive seconds.
                self.reads_single = true;
                bytes.truncate(PAGE);
                result = self.segments.read(self.place(spot), &mut bytes);
            }
            result?;
            self.window = Window { slot: spot.slot, first: spot.block, bytes };
        }
        let at = (spot.block - self.window.first) as usize * PAGE;
        Ok(&self.window.bytes[at..at + PAGE])
    }

    fn head(&mut self, spot: Spot, window: u32) -> Result<Result<Head, Damage>, BackendError> {
        let (uuid, place) = (self.uuid, self.place(spot));
        let head = Head::parse(self.block(spot, window)?, uuid, place);
        if let Ok(head) = &head {
            self.beginning_max = self.beginning_max.max(head.beginning);
        }
        Ok(head)
    }

    /// The same, or nothing where the drive says that the block is lost.
    fn head_if_there(
        &mut self,
        spot: Spot,
        window: u32,
    ) -> Result<Option<Result<Head, Damage>>, BackendError> {
        let unread = self.unread.clone();
        unread.tried(|| self.head(spot, window))
    }

    /// True if bytes could be read, or are lost as the drive says.
    fn is_read(&self, place: SegmentPlace, bytes: &mut [u8]) -> Result<bool, BackendError> {
        Ok(self.unread.tried(|| self.segments.read(place, bytes))?.is_some())
    }

    /// The newest checkpoint that has a table and is whole.
    fn base(&mut self) -> Result<Base, BackendError> {
        let (mut begun, damage) = self.heads()?;
        begun.sort_unstable_by_key(|begun| begun.beginning);
        let mut later: Vec<Begun> = Vec::new();
        let missing = (Spot { slot: 0, block: 0 }, Damage::Missing("a checkpoint"));
        let mut damage = damage.unwrap_or(missing);
        while let Some(begun) = begun.pop() {
            match self.body(&begun)? {
                Body::Complete(listed, table, rows) => {
                    self.note_gone(&listed);
                    return Ok(Base { begun, listed, table, rows, later });
                }
                Body::NoTable => {}
                Body::Damaged(found) => damage = (Spot { slot: begun.slot, block: 0 }, found),
            }
            later.insert(0, begun);
        }
        Err(self.damaged(damage.0, LOG, damage.1))
    }

    /// The beginnings of all segments that have one, and what is wrong with the first that has something else.
    #[expect(clippy::type_complexity, reason = "two results of one look, taken apart at once")]
    fn heads(&mut self) -> Result<(Vec<Begun>, Option<(Spot, Damage)>), BackendError> {
        let (mut begun, mut damage) = (Vec::new(), None);
        for slot in 0..self.slots.len() {
            if self.written(slot) == 0 || !self.seen[slot].is_readable {
                continue;
            }
            let spot = Spot { slot, block: 0 };
            // A segment whose first block cannot be read is no different from one whose first block is damaged.
            let Some(head) = self.head_if_there(spot, 1)? else {
                damage.get_or_insert((spot, Damage::Missing("its first block")));
                continue;
            };
            match head {
                Ok(Head { kind: HeadKind::Checkpoint(checkpoint), .. })
                    if checkpoint.blocks != self.slots[slot].blocks =>
                {
                    return Err(self.damaged(spot, LOG, Damage::Field("blocks of the segment")));
                }
                Ok(Head { beginning, kind: HeadKind::Checkpoint(checkpoint), .. }) => {
                    begun.push(Begun { slot, beginning, checkpoint });
                }
                Err(found @ Damage::Version(_)) => return Err(self.damaged(spot, LOG, found)),
                other => {
                    // A piece that was never begun has zeroes there.
                    if self.block(spot, 1)?.iter().any(|byte| *byte != 0) {
                        self.headless.push(slot);
                    }
                    damage.get_or_insert((spot, other.err().unwrap_or(Damage::Field("kind"))));
                }
            }
        }
        Ok((begun, damage))
    }

    /// List and table of a checkpoint.
    fn body(&self, begun: &Begun) -> Result<Body, BackendError> {
        let Begun { slot, checkpoint, .. } = *begun;
        let Checkpoint { len, listed, table_blocks, body_crc, .. } = checkpoint;
        let Some(table_blocks) = table_blocks else { return Ok(Body::NoTable) };
        if checkpoint.body_blocks() >= self.slots[slot].blocks.into() {
            return Ok(Body::Damaged(Damage::Field("table_blocks")));
        }
        if len > LEN_MAX {
            return Ok(Body::Damaged(Damage::Field("len")));
        }
        let list_blocks = checkpoint.list_blocks();
        let mut bytes = vec![0; checkpoint.body_blocks() as usize * PAGE];
        let at = Spot { slot, block: 1 };
        if !bytes.is_empty() && !self.is_read(self.place(at), &mut bytes)? {
            return Ok(Body::Damaged(Damage::Missing("the table")));
        }
        if crc32c(&bytes) != body_crc {
            return Ok(Body::Damaged(Damage::Checksum));
        }
        let (list, rest) = bytes.split_at(list_blocks as usize * PAGE);
        let (table, rows) = rest.split_at(table_blocks as usize * PAGE);
        let Some(rows) = rows.get(..checkpoint.rows_bytes as usize).and_then(parse_rows) else {
            return Ok(Body::Damaged(Damage::Field("rows")));
        };
        let listed = parse_list(list, listed);
        let table = Table::parse(table, listed.len(), self.stride);
        Ok(match table.and_then(|table| self.renumbered(table, &listed)) {
            Ok(table) => Body::Complete(listed, table, rows),
            Err(damage) => Body::Damaged(damage),
        })
    }

    /// The table with the numbers that segments have now. A segment that was given back since gets a number after them: later
    /// batches have moved its pages, or they are lost.
    fn renumbered(&self, mut table: Table, listed: &[ListedSegment]) -> Result<Table, Damage> {
        let mut count = self.slots.len();
        let number = |listed: &ListedSegment| {
            self.slot_of(listed.segment).unwrap_or_else(|| {
                count += 1;
                count - 1
            })
        };
        let slots: Vec<usize> = listed.iter().map(number).collect();
        table.renumber(&slots, count)?;
        Ok(table)
    }

    /// Notes the segments of a list that were given back since.
    fn note_gone(&mut self, listed: &[ListedSegment]) {
        let gone = listed.iter().filter(|listed| self.slot_of(listed.segment).is_none()).count();
        let nothing = Seen {
            written: Some(0),
            is_bad: false,
            is_readable: true,
            is_appendable: false,
            is_active: false,
        };
        self.slots.extend(std::iter::repeat_n(SegmentSlot::found(SegmentId::NONE, 0, &nothing), gone));
        self.seen.extend(std::iter::repeat_n(nothing, gone));
    }

    fn slot_of(&self, segment: SegmentId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.segment == segment && segment != SegmentId::NONE)
    }

    /// Notes the parts of a segment: from head to head, and where that ends, block by block.
    fn find_parts(&mut self, begun: &Begun) -> Result<End, BackendError> {
        let slot = begun.slot;
        let body = 1 + begun.checkpoint.body_blocks();
        let (end, written) = (u64::from(self.slots[slot].blocks), self.written(slot));
        let mut block = if body < end { body as u32 } else { 1 };
        while block < written {
            let spot = Spot { slot, block };
            match self.head(spot, WINDOW)? {
                Ok(head) if head.beginning == begun.beginning => match self.note(spot, head) {
                    Some(end) => block = end,
                    None => break,
                },
                _ => break,
            }
        }
        let mut is_last = true;
        for rest in block..written {
            let spot = Spot { slot, block: rest };
            match self.head_if_there(spot, SWEEP_WINDOW)? {
                None if rest == block => return self.head(spot, 1).map(|_| End { block, is_last: false }),
                // Nothing continues there. A head that was lost would be missed by those that follow it.
                None => is_last = false,
                Some(Ok(head)) if head.beginning >= begun.beginning => {
                    is_last = false;
                    self.note(spot, head);
                }
                Some(_) => {}
            }
        }
        Ok(End { block, is_last })
    }

    /// Notes a part. Returns the block after its pages, or nothing if no such part can be there.
    fn note(&mut self, spot: Spot, head: Head) -> Option<u32> {
        let HeadKind::Part(part) = head.kind else { return None };
        let end = spot.block.saturating_add(1).saturating_add(part.blocks());
        if end > self.slots[spot.slot].blocks {
            return None;
        }
        let found = Found { spot, beginning: head.beginning, part };
        self.parts.insert((found.part.batch, found.part.number), found);
        Some(end)
    }

    /// The batches that count, after `batch`, in order.
    fn follow(&mut self, batch: u64) -> Result<Vec<u64>, BackendError> {
        let (mut chain, mut last) = (Vec::new(), batch);
        // Parts found later belong to batches in this map.
        let (mut after, mut durable) = (HashMap::<u64, BTreeSet<u64>>::new(), 0);
        for Found { part, .. } in self.parts.values() {
            after.entry(part.before).or_default().insert(part.batch);
            durable = durable.max(part.before);
        }
        while let Some(next) = self.successor(after.get(&last), durable)? {
            chain.push(next);
            last = next;
        }
        Ok(chain)
    }

    /// Returns the last complete batch of `tries`. Up to number `durable`, batches with all parts are complete.
    fn successor(
        &mut self,
        tries: Option<&BTreeSet<u64>>,
        durable: u64,
    ) -> Result<Option<u64>, BackendError> {
        for &batch in tries.into_iter().flatten().rev() {
            if self.is_complete(batch)? && (batch <= durable || self.is_whole(batch)?) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// True if all parts of `batch` are known; those that lie in segments before are looked up.
    fn is_complete(&mut self, batch: u64) -> Result<bool, BackendError> {
        let first = |this: &Self| this.of_batch(batch).next().map(|(key, found)| (key.1, found.part.prior));
        while let Some((number @ 1.., prior)) = first(self) {
            if !self.look_up(prior, batch, number - 1)? {
                return Ok(false);
            }
        }
        let numbers = self.of_batch(batch).map(|(&(_, number), _)| number);
        let has_gaps = numbers.zip(0..).any(|(number, n)| number != n);
        let ends = self.of_batch(batch).next_back().is_some_and(|(_, found)| found.part.is_last);
        Ok(!has_gaps && ends)
    }

    fn of_batch(&self, batch: u64) -> impl DoubleEndedIterator<Item = (&(u64, u32), &Found)> {
        self.parts.range((batch, 0)..=(batch, u32::MAX))
    }

    /// Notes part `number` of `batch` if it is at `place`.
    fn look_up(&mut self, place: SegmentPlace, batch: u64, number: u32) -> Result<bool, BackendError> {
        let Some(slot) = self.slot_of(place.segment) else { return Ok(false) };
        if place.block >= self.slots[slot].blocks || !self.seen[slot].is_readable {
            return Ok(false);
        }
        let spot = Spot { slot, block: place.block };
        let Ok(head) = self.head(spot, WINDOW)? else { return Ok(false) };
        let is_it =
            matches!(&head.kind, HeadKind::Part(part) if (part.batch, part.number) == (batch, number));
        Ok(is_it && self.note(spot, head).is_some())
    }

    /// True if all pages of `batch` have their listed sums.
    fn is_whole(&self, batch: u64) -> Result<bool, BackendError> {
        for (_, found) in self.of_batch(batch) {
            let Found { spot, beginning, part } = found;
            if part.rows.is_some() {
                match self.rows_of(found)? {
                    Some(rows) if batch <= self.named || self.has_units(&rows)? => continue,
                    _ => return Ok(false),
                }
            }
            let mut bytes = vec![0; part.pages.len() * PAGE];
            let first = Spot { slot: spot.slot, block: spot.block + 1 };
            if !bytes.is_empty() && !self.is_read(self.place(first), &mut bytes)? {
                return Ok(false);
            }
            let mut pages = part.pages.iter().zip(bytes.chunks(PAGE)).zip(first.block..);
            let is_whole = pages.all(|((page, bytes), block)| {
                let place = self.place(Spot { slot: spot.slot, block });
                page.sum == super::format::page_sum(crc32c(bytes), self.uuid, place, *beginning)
            });
            if !is_whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the rows of a part, with their units; `None` for damaged rows, or a part of pages.
    fn rows_of(&self, found: &Found) -> Result<Option<Vec<u8>>, BackendError> {
        let Some(rows) = &found.part.rows else { return Ok(None) };
        let mut bytes = vec![0; rows.blocks() as usize * PAGE];
        let first = Spot { block: found.spot.block + 1, ..found.spot };
        if !bytes.is_empty() && !self.is_read(self.place(first), &mut bytes)? {
            return Ok(None);
        }
        if rows.crc != crc32c(&bytes) {
            return Ok(None);
        }
        let mut all = [&rows.in_head[..], &bytes].concat();
        let is_whole = all.len() >= rows.bytes as usize;
        all.truncate(rows.bytes as usize);
        Ok(is_whole.then_some(all))
    }

    /// True if all units of a batch of rows were written.
    fn has_units(&self, rows: &[u8]) -> Result<bool, BackendError> {
        let Some((units, _)) = parse_batch(rows) else { return Ok(false) };
        if units.is_empty() {
            return Ok(true);
        }
        let disk = self.segments.disk();
        let (zones, waiter) = (disk.report()?, disk.waiter());
        for unit in &units {
            let was_written = scan::was_written(disk.drive(), &*waiter, self.uuid, &zones, unit);
            let doing = "reading data of the last sync";
            match was_written {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err((sector, error)) => return Err(BackendError::Request { doing, sector, error }),
            }
        }
        Ok(true)
    }

    /// No part names a batch as durable that is not there.
    fn nothing_is_lost(
        &self,
        base: &Base,
        chain: &[u64],
        newest: Begun,
        end: End,
    ) -> Result<(), BackendError> {
        let last = chain.last().copied().unwrap_or(base.begun.checkpoint.batch);
        let is_later = |begun: &&Begun| begun.checkpoint.batch > last;
        if let Some(begun) = base.later.iter().find(is_later) {
            let spot = Spot { slot: begun.slot, block: 0 };
            return Err(self.damaged(spot, "a batch of metadata", Damage::Missing("what was durable")));
        }
        if self.parts.values().all(|found| found.part.before <= last) {
            return Ok(());
        }
        let later = self.parts.values().find(|found| found.part.batch > last).map(|found| found.spot);
        let is_behind = |spot: &Spot| spot.slot == newest.slot && spot.block >= end.block;
        let spot =
            later.filter(|spot| !is_behind(spot)).unwrap_or(Spot { slot: newest.slot, block: end.block });
        Err(self.damaged(spot, "a batch of metadata", Damage::Missing("what was durable")))
    }

    /// No segment whose checkpoint is damaged was begun after `newest` and has a part that names a batch after `last` as
    /// durable. What a cut tore has none.
    fn nothing_is_headless(&mut self, newest: Begun, last: u64) -> Result<(), BackendError> {
        for slot in std::mem::take(&mut self.headless) {
            for block in 1..self.written(slot) {
                let Some(Ok(head)) = self.head_if_there(Spot { slot, block }, SWEEP_WINDOW)? else {
                    continue;
                };
                let is_later = head.beginning > newest.beginning;
                if is_later && matches!(&head.kind, HeadKind::Part(part) if part.before > last) {
                    let lost = Damage::Missing("what was durable");
                    return Err(self.damaged(Spot { slot, block: 0 }, "a checkpoint of metadata", lost));
                }
            }
        }
        Ok(())
    }

    /// How far the log has come: the highest number that a batch which counts says, or the table. Segments that were begun
    /// later have nothing that counts.
    fn number(&self, base: &Base, chain: &[u64]) -> u64 {
        let batches = chain.iter().flat_map(|batch| self.of_batch(*batch));
        batches.map(|(_, found)| found.part.store_number).max().unwrap_or(0).max(base.begun.beginning)
    }

    /// True if more can be written to the segment: its own checkpoint is no good after a cut.
    fn is_sound(&self, begun: &Begun) -> Result<bool, BackendError> {
        if begun.checkpoint.table_blocks.is_some() {
            return Ok(matches!(self.body(begun)?, Body::Complete(..)));
        }
        Ok(true)
    }

    /// The log as it is after the batches of `chain`.
    fn state(
        &mut self,
        base: Base,
        chain: &[u64],
        newest: Begun,
        current: Option<Current>,
        (number, recorded): (u64, u64),
        named: u64,
    ) -> Result<LogState, BackendError> {
        for listed in &base.listed {
            if let Some(slot) = self.slot_of(listed.segment) {
                self.slots[slot].beginning = listed.beginning;
            }
        }
        for begun in std::iter::once(&base.begun).chain(&base.later) {
            let slot = &mut self.slots[begun.slot];
            (slot.beginning, slot.is_needed) = (begun.beginning, true);
        }
        // A piece has no pointer: after its beginning it counts as written.
        for slot in &mut self.slots {
            if slot.segment.as_zone().is_none() && slot.beginning > 0 {
                slot.written = slot.blocks;
            }
        }
        let (mut table, mut len) = (base.table, base.begun.checkpoint.len);
        let mut rows = LoggedRows::default();
        base.rows.into_iter().for_each(|batch| rows.push(batch));
        for &batch in chain {
            for (_, found) in self.parts.range((batch, 0)..=(batch, u32::MAX)) {
                self.apply(&mut table, found)?;
                self.slots[found.spot.slot].is_needed = true;
                len = found.part.len;
                if found.part.rows.is_some() {
                    // Damage does not matter if they are in tables as well.
                    let read = self.rows_of(found)?;
                    let these = read.as_deref().and_then(parse_batch).map(|(_, rows)| rows.into());
                    rows.push((batch, these.ok_or(self.place(found.spot))));
                }
            }
        }
        if let Some(current) = current {
            self.slots[current.slot].written = current.block;
        }
        let batch = chain.last().copied().unwrap_or(base.begun.checkpoint.batch);
        let batch_max = self.parts.keys().next_back().map_or(batch, |(last, _)| batch.max(*last));
        let begun = Beginnings { newest: newest.beginning, table: base.begun.beginning };
        let since_table = std::iter::once(&base.begun)
            .chain(&base.later)
            .map(|begun| u64::from(self.slots[begun.slot].blocks))
            .sum();
        Ok(LogState {
            table,
            len,
            slots: std::mem::take(&mut self.slots),
            current,
            batch,
            batch_next: batch_max + 1,
            number: number.max(self.beginning_max).saturating_add(NUMBERS_PASSED),
            durable_number: number,
            begun,
            committed: begun,
            recorded,
            named: Some(named),
            is_numbered: false,
            since_table,
            rows,
            statistics: Statistics::default(),
        })
    }

    fn apply(&self, table: &mut Table, found: &Found) -> Result<(), BackendError> {
        let Found { spot, part, .. } = found;
        let wrong = |field| self.damaged(*spot, "a batch of metadata", Damage::Field(field));
        let pages = part.len.div_ceil(PAGE as u64);
        if part.len > LEN_MAX {
            return Err(wrong("len"));
        }
        if part.number == 0 {
            table.cut(part.cut);
        }
        for (page, block) in part.pages.iter().zip(spot.block + 1..) {
            if u64::from(page.page) >= pages || !table.may_have(page.page.into()) {
                return Err(wrong("pages"));
            }
            let spot = Spot { slot: spot.slot, block };
            table.set(page.page.into(), Entry { spot, sum: page.sum });
        }
        Ok(())
    }
}

/// Numbers that an opening passes over. A beginning that a cut ended may have left heads where no search sees them.
const NUMBERS_PASSED: u64 = 1 << 16;

/// Bytes of the longest file that pages have numbers for.
const LEN_MAX: u64 = u32::MAX as u64 * PAGE as u64;
