//! Opening: from what is in the zones to the page table.
//!
//! 1. The head of each zone is read, and the table of the newest checkpoint; where that is torn, of the one before.
//! 2. The parts behind it are found from head to head. Where that ends before the write pointer, and in zones that were begun
//!    later, every block is looked at: a cut or a failed write may have left anything there.
//! 3. Batches are followed from the checkpoint on, each by the one that names it as durable before. The last is read through.
//!
//! If a part says that a batch was durable which is not there, the log has lost something, and is not opened.

use super::super::disk::Disk;
use super::super::error::{BackendError, Damage, Place};
use super::super::paged::PAGE;
use super::format::{Checkpoint, Head, HeadKind, Part, zones_crc};
use super::table::{Entry, Spot, Table};
use super::{Current, Seen, Slot, State, Statistics, sector_of};
use crate::format::Uuid;
use crate::format::crc32c;
use std::collections::BTreeMap;
use zonal_core::ZoneIndex;

/// Blocks that are read at once in search of heads.
const WINDOW: u32 = 32;

/// What opening looks at.
pub(super) struct Opening<'a> {
    disk: &'a Disk,
    uuid: &'a Uuid,
    zones: &'a [ZoneIndex],
    zone_blocks: u32,
    seen: Vec<Seen>,
    /// Parts by batch and number.
    parts: BTreeMap<(u64, u32), Found>,
    /// The highest opening that was met.
    opening_max: u64,
    window: Window,
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
    part: Part,
}

/// A zone's beginning.
#[derive(Clone, Copy)]
struct Begun {
    slot: usize,
    opening: u64,
    checkpoint: Checkpoint,
}

/// The checkpoint that is built upon.
struct Base {
    begun: Begun,
    table: Table,
    /// Zones begun later, whose tables are no good.
    later: Vec<Begun>,
    /// Zones whose heads are no good.
    headless: Vec<usize>,
}

const LOG: &str = "the log of the metadata";

impl<'a> Opening<'a> {
    pub(super) fn new(
        disk: &'a Disk,
        uuid: &'a Uuid,
        zones: &'a [ZoneIndex],
        zone_blocks: u32,
        seen: Vec<Seen>,
    ) -> Opening<'a> {
        let (parts, window) = (BTreeMap::new(), Window::default());
        Opening { disk, uuid, zones, zone_blocks, seen, parts, opening_max: 0, window }
    }

    pub(super) fn run(mut self) -> Result<State, BackendError> {
        let base = self.base()?;
        let end = self.walk(base.begun)?;
        let written = self.seen[base.begun.slot].slot.written;
        self.sweep(base.begun.slot, end, base.begun.opening)?;
        for begun in &base.later {
            self.sweep(begun.slot, 1, begun.opening)?;
        }
        for &slot in &base.headless {
            self.sweep(slot, 1, base.begun.opening)?;
        }
        let chain = self.follow(base.begun.checkpoint.batch)?;
        self.nothing_is_lost(&base, &chain, end)?;
        let is_clean = end == written && base.later.is_empty() && self.seen[base.begun.slot].is_appendable;
        let current =
            is_clean.then_some(Current { slot: base.begun.slot, block: end, opening: base.begun.opening });
        self.state(base, &chain, current)
    }

    fn place(&self, spot: Spot) -> Place {
        Place { zone: self.zones[spot.slot], block: spot.block }
    }

    fn damaged(&self, spot: Spot, what: &'static str, damage: Damage) -> BackendError {
        BackendError::Damaged { place: self.place(spot), what, damage }
    }

    /// The block `spot`, read along with those behind it.
    fn block(&mut self, spot: Spot) -> Result<&[u8], BackendError> {
        let Window { slot, first, bytes } = &self.window;
        let end = first + (bytes.len() / PAGE) as u32;
        if *slot != spot.slot || !(*first..end).contains(&spot.block) {
            let count = (self.zone_blocks - spot.block).min(WINDOW);
            let mut bytes = vec![0; count as usize * PAGE];
            self.disk.read(sector_of(self.disk, self.zones[spot.slot], spot.block), &mut bytes)?;
            self.window = Window { slot: spot.slot, first: spot.block, bytes };
        }
        let at = (spot.block - self.window.first) as usize * PAGE;
        Ok(&self.window.bytes[at..at + PAGE])
    }

    fn head(&mut self, spot: Spot) -> Result<Result<Head, Damage>, BackendError> {
        let (uuid, place) = (self.uuid, self.place(spot));
        let head = Head::parse(self.block(spot)?, uuid, place);
        if let Ok(head) = &head {
            self.opening_max = self.opening_max.max(head.opening);
        }
        Ok(head)
    }

    /// The newest checkpoint that is whole.
    fn base(&mut self) -> Result<Base, BackendError> {
        let (mut begun, headless, damage) = self.heads()?;
        begun.sort_unstable_by_key(|begun| begun.opening);
        let mut later: Vec<Begun> = Vec::new();
        let mut damage = damage.unwrap_or((Spot { slot: 0, block: 0 }, Damage::Missing("a checkpoint")));
        while let Some(begun) = begun.pop() {
            match self.table(&begun)? {
                Ok(table) => {
                    self.nothing_between(&begun, &later)?;
                    return Ok(Base { begun, table, later, headless });
                }
                Err(found) => {
                    damage = (Spot { slot: begun.slot, block: 0 }, found);
                    later.insert(0, begun);
                }
            }
        }
        Err(self.damaged(damage.0, LOG, damage.1))
    }

    /// The beginnings of all zones that have one, the zones that have none but something, and what is wrong with the first.
    #[expect(clippy::type_complexity, reason = "three results of one look, taken apart at once")]
    fn heads(&mut self) -> Result<(Vec<Begun>, Vec<usize>, Option<(Spot, Damage)>), BackendError> {
        let (mut begun, mut headless, mut damage) = (Vec::new(), Vec::new(), None);
        for slot in 0..self.zones.len() {
            if self.seen[slot].slot.written == 0 {
                continue;
            }
            let spot = Spot { slot, block: 0 };
            match self.head(spot)? {
                Ok(Head { opening, kind: HeadKind::Checkpoint(checkpoint), .. }) => {
                    begun.push(Begun { slot, opening, checkpoint });
                }
                Err(found @ Damage::Version(_)) => return Err(self.damaged(spot, LOG, found)),
                other => {
                    headless.push(slot);
                    damage.get_or_insert((spot, other.err().unwrap_or(Damage::Field("kind"))));
                }
            }
        }
        Ok((begun, headless, damage))
    }

    /// The table of a checkpoint, or what is wrong with it.
    fn table(&self, begun: &Begun) -> Result<Result<Table, Damage>, BackendError> {
        let Checkpoint { len, table_blocks, table_crc, zones_crc: crc, .. } = begun.checkpoint;
        if crc != zones_crc(self.zones) {
            let spot = Spot { slot: begun.slot, block: 0 };
            return Err(self.damaged(spot, LOG, Damage::Field("zones")));
        }
        if table_blocks >= self.zone_blocks {
            return Ok(Err(Damage::Field("table_blocks")));
        }
        if len > self.len_max() {
            return Ok(Err(Damage::Field("len")));
        }
        let mut bytes = vec![0; table_blocks as usize * PAGE];
        if !bytes.is_empty() {
            self.disk.read(sector_of(self.disk, self.zones[begun.slot], 1), &mut bytes)?;
        }
        if crc32c(&bytes) != table_crc {
            return Ok(Err(Damage::Checksum));
        }
        Ok(Table::parse(&bytes, self.zones.len(), self.zone_blocks))
    }

    fn len_max(&self) -> u64 {
        self.zones.len() as u64 * u64::from(self.zone_blocks) * PAGE as u64
    }

    /// Between the zone that is built upon and those begun later no zone was begun that is gone: it may have had batches.
    fn nothing_between(&self, base: &Begun, later: &[Begun]) -> Result<(), BackendError> {
        let known = |opening| base.opening == opening || later.iter().any(|begun| begun.opening == opening);
        match later.iter().find(|begun| !known(begun.checkpoint.before)) {
            None => Ok(()),
            Some(begun) => {
                Err(self.damaged(Spot { slot: begun.slot, block: 1 }, "a checkpoint", Damage::Checksum))
            }
        }
    }

    /// Notes the parts of a zone from its checkpoint on, from head to head; the block where that ends.
    fn walk(&mut self, begun: Begun) -> Result<u32, BackendError> {
        let slot = begun.slot;
        let mut block = 1 + begun.checkpoint.table_blocks;
        while block < self.seen[slot].slot.written {
            match self.head(Spot { slot, block })? {
                Ok(head) if head.opening == begun.opening => match self.note(Spot { slot, block }, head) {
                    Some(end) => block = end,
                    None => break,
                },
                _ => break,
            }
        }
        Ok(block)
    }

    /// Notes what parts there are in a zone from `block` on, block by block, if they are of opening `opening` or later.
    fn sweep(&mut self, slot: usize, block: u32, opening: u64) -> Result<(), BackendError> {
        for block in block..self.seen[slot].slot.written {
            let spot = Spot { slot, block };
            if let Ok(head) = self.head(spot)?
                && head.opening >= opening
            {
                self.note(spot, head);
            }
        }
        Ok(())
    }

    /// Notes a part; the block behind its pages, or nothing if it is no part that could be there.
    fn note(&mut self, spot: Spot, head: Head) -> Option<u32> {
        let HeadKind::Part(part) = head.kind else { return None };
        let end = spot.block + 1 + part.pages.len() as u32;
        if end > self.zone_blocks {
            return None;
        }
        self.parts.insert((part.batch, part.number), Found { spot, part });
        Some(end)
    }

    /// The batches that count, after `batch`, in order.
    fn follow(&mut self, batch: u64) -> Result<Vec<u64>, BackendError> {
        let (mut chain, mut last) = (Vec::new(), batch);
        while let Some(next) = self.successor(last)? {
            chain.push(next);
            last = next;
        }
        Ok(chain)
    }

    /// The batch after `last`. Of several tries the latest that is whole.
    fn successor(&mut self, last: u64) -> Result<Option<u64>, BackendError> {
        let mut tries: Vec<u64> =
            self.parts.values().filter(|f| f.part.before == last).map(|f| f.part.batch).collect();
        tries.dedup();
        for batch in tries.into_iter().rev() {
            let vouched = self.parts.values().any(|found| found.part.before >= batch);
            if self.is_complete(batch)? && (vouched || self.is_whole(batch)?) {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Whether all parts of `batch` are known; those that lie in zones before are looked up.
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
    fn look_up(&mut self, place: Place, batch: u64, number: u32) -> Result<bool, BackendError> {
        let Some(slot) = self.zones.iter().position(|&zone| zone == place.zone) else { return Ok(false) };
        if place.block >= self.zone_blocks || !self.seen[slot].is_readable {
            return Ok(false);
        }
        let spot = Spot { slot, block: place.block };
        let Ok(head) = self.head(spot)? else { return Ok(false) };
        let is_it =
            matches!(&head.kind, HeadKind::Part(part) if (part.batch, part.number) == (batch, number));
        Ok(is_it && self.note(spot, head).is_some())
    }

    /// Whether all pages of `batch` are what was written.
    fn is_whole(&self, batch: u64) -> Result<bool, BackendError> {
        for (_, Found { spot, part }) in self.of_batch(batch) {
            let mut bytes = vec![0; part.pages.len() * PAGE];
            if !bytes.is_empty() {
                self.disk.read(sector_of(self.disk, self.zones[spot.slot], spot.block + 1), &mut bytes)?;
            }
            if part.pages.iter().zip(bytes.chunks(PAGE)).any(|(page, bytes)| page.crc != crc32c(bytes)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// No part names a batch as durable that is not there.
    fn nothing_is_lost(&self, base: &Base, chain: &[u64], end: u32) -> Result<(), BackendError> {
        let last = chain.last().copied().unwrap_or(base.begun.checkpoint.batch);
        if self.parts.values().all(|found| found.part.before <= last) {
            return Ok(());
        }
        let spot = match self.parts.values().find(|found| found.part.batch > last) {
            Some(found) if found.spot.slot != base.begun.slot || found.spot.block < end => found.spot,
            _ => Spot { slot: base.begun.slot, block: end },
        };
        Err(self.damaged(spot, "a batch of metadata", Damage::Missing("what was durable")))
    }

    /// The log as it is after the batches of `chain`.
    fn state(self, base: Base, chain: &[u64], current: Option<Current>) -> Result<State, BackendError> {
        let mut table = base.table;
        let mut len = base.begun.checkpoint.len;
        let mut slots: Vec<Slot> = self.seen.iter().map(|seen| seen.slot).collect();
        slots
            .iter_mut()
            .enumerate()
            .for_each(|(n, slot)| slot.is_bad |= base.begun.checkpoint.bad >> n & 1 == 1);
        slots[base.begun.slot].is_needed = true;
        base.later.iter().for_each(|begun| slots[begun.slot].is_needed = true);
        for &batch in chain {
            for (_, found) in self.of_batch(batch) {
                self.apply(&mut table, found)?;
                slots[found.spot.slot].is_needed = true;
                len = found.part.len;
            }
        }
        self.pages_are_there(&table)?;
        if current.is_none() {
            self.nothing_newer_is_gone(&base.begun, &table, &slots)?;
        }
        let batch = chain.last().copied().unwrap_or(base.begun.checkpoint.batch);
        let batch_max = self.parts.keys().next_back().map_or(batch, |(last, _)| batch.max(*last));
        let opening = base.later.last().map_or(base.begun.opening, |begun| begun.opening);
        Ok(State {
            table,
            len,
            slots,
            current,
            batch,
            batch_next: batch_max + 1,
            opening,
            opening_next: self.opening_max + 1,
            statistics: Statistics::default(),
        })
    }

    /// No page lies in a zone that was reset since.
    fn pages_are_there(&self, table: &Table) -> Result<(), BackendError> {
        let is_gone = |spot: &Spot| {
            let Seen { slot, is_readable, .. } = &self.seen[spot.slot];
            *is_readable && spot.block >= slot.written
        };
        match table.spots().find(is_gone) {
            None => Ok(()),
            Some(spot) => Err(self.damaged(spot, "a page of metadata", Damage::Missing("what was durable"))),
        }
    }

    /// The zone that is built upon was left. The next one is not among those that cannot be read: it would have been free, and
    /// not bad.
    fn nothing_newer_is_gone(&self, base: &Begun, table: &Table, slots: &[Slot]) -> Result<(), BackendError> {
        let may_be_newer = |&slot: &usize| {
            let was_bad = base.checkpoint.bad >> slot & 1 == 1;
            !self.seen[slot].is_readable && !was_bad && !slots[slot].is_needed && table.live(slot) == 0
        };
        match (0..slots.len()).find(may_be_newer) {
            None => Ok(()),
            Some(slot) => Err(self.damaged(
                Spot { slot, block: 0 },
                LOG,
                Damage::Missing("a zone that may be the newest"),
            )),
        }
    }

    fn apply(&self, table: &mut Table, found: &Found) -> Result<(), BackendError> {
        let Found { spot, part } = found;
        let wrong = |field| self.damaged(*spot, "a batch of metadata", Damage::Field(field));
        let pages = part.len.div_ceil(PAGE as u64);
        if part.len > self.len_max() {
            return Err(wrong("len"));
        }
        if part.number == 0 {
            table.cut(part.cut);
        }
        for (page, block) in part.pages.iter().zip(spot.block + 1..) {
            if u64::from(page.page) >= pages {
                return Err(wrong("pages"));
            }
            let spot = Spot { slot: spot.slot, block };
            table.set(page.page.into(), Entry { spot, crc: page.crc });
        }
        Ok(())
    }
}
