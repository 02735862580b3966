//! The page table of a log: where each page of the file is, and its checksum. Eight bytes a page.
//!
//! Owns the count of live pages of each segment as well, which change with it.

use super::super::error::Damage;
use crate::BLOCK_BYTES;
use std::ops::Range;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entries that are allocated together, and that a block of a checkpoint holds.
const CHUNK: usize = BLOCK_BYTES as usize / size_of::<Raw>();

/// A block of the log: a segment by its number in the log, and the block in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Spot {
    pub(super) slot: usize,
    pub(super) block: u32,
}

/// Place of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) spot: Spot,
    pub(super) sum: u32,
}

/// As it is kept, in memory and in a checkpoint. The word is 0 where there is no page; else the block's number in the log,
/// which no page can have if it is 0: there a head lies.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    block: U32,
    sum: U32,
}

const NOWHERE: Raw = Raw { block: U32::ZERO, sum: U32::ZERO };

/// Places of all pages.
pub(super) struct Table {
    stride: u32,
    chunks: Vec<Box<[Raw; CHUNK]>>,
    live: Vec<u32>,
    mapped: u64,
}

impl Table {
    /// A table of no pages in `slots` segments, each of up to `stride` blocks.
    pub(super) fn new(slots: usize, stride: u32) -> Table {
        Table { stride, chunks: Vec::new(), live: vec![0; slots], mapped: 0 }
    }

    /// The table in the blocks of a checkpoint.
    pub(super) fn parse(bytes: &[u8], slots: usize, stride: u32) -> Result<Table, Damage> {
        let mut table = Table::new(slots, stride);
        for block in bytes.chunks_exact(BLOCK_BYTES as usize) {
            let entries = <[Raw; CHUNK]>::read_from_bytes(block).map_err(|_| Damage::Field("table"))?;
            table.chunks.push(Box::new(entries));
        }
        table.count()?;
        Ok(table)
    }

    /// Takes in another segment.
    pub(super) fn add_slot(&mut self) {
        self.live.push(0);
    }

    /// Changes the numbers of segments: segment `n` gets the number `slots[n]` among `count`.
    pub(super) fn renumber(&mut self, slots: &[usize], count: usize) -> Result<(), Damage> {
        let stride = self.stride;
        u32::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(stride))
            .ok_or(Damage::Field("table"))?;
        for raw in
            self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()).filter(|raw| raw.block.get() != 0)
        {
            let Spot { slot, block } = spot_of(raw.block.get(), stride);
            let slot = slots.get(slot).copied().ok_or(Damage::Field("table"))?;
            raw.block = (slot as u32 * stride + block).into();
        }
        (self.live, self.mapped) = (vec![0; count], 0);
        self.count()
    }

    /// Counts what is live, and refuses what lies outside of the log.
    fn count(&mut self) -> Result<(), Damage> {
        for raw in self.chunks.iter().flat_map(|chunk| chunk.iter()).filter(|raw| raw.block.get() != 0) {
            let spot = spot_of(raw.block.get(), self.stride);
            let live = self.live.get_mut(spot.slot).ok_or(Damage::Field("table"))?;
            if spot.block == 0 {
                return Err(Damage::Field("table"));
            }
            *live += 1;
            self.mapped += 1;
        }
        Ok(())
    }

    /// Blocks of a checkpoint.
    pub(super) fn blocks(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Blocks of the checkpoint of a table of `pages`.
    pub(super) fn blocks_of(pages: u64) -> u64 {
        pages.div_ceil(CHUNK as u64)
    }

    /// The blocks of a checkpoint.
    pub(super) fn emit(&self) -> Vec<u8> {
        self.chunks.iter().flat_map(|chunk| chunk.as_bytes()).copied().collect()
    }

    /// Pages that are somewhere.
    pub(super) fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Live pages in the segment `slot`.
    pub(super) fn live(&self, slot: usize) -> u32 {
        self.live[slot]
    }

    /// Place of `page`.
    pub(super) fn get(&self, page: u64) -> Option<Entry> {
        let chunk = self.chunks.get((page / CHUNK as u64) as usize)?;
        let raw = chunk[(page % CHUNK as u64) as usize];
        let spot = spot_of(raw.block.get(), self.stride);
        (raw.block.get() != 0).then_some(Entry { spot, sum: raw.sum.get() })
    }

    /// True if a checkpoint has room for a table with `page`.
    pub(super) fn may_have(&self, page: u64) -> bool {
        page / (CHUNK as u64) < u64::from(self.stride)
    }

    /// Puts `page` somewhere else.
    pub(super) fn set(&mut self, page: u64, entry: Entry) {
        let chunk = (page / CHUNK as u64) as usize;
        while self.chunks.len() <= chunk {
            self.chunks.push(Box::new([NOWHERE; CHUNK]));
        }
        let block = entry.spot.slot as u32 * self.stride + entry.spot.block;
        self.replace(page, Raw { block: block.into(), sum: entry.sum.into() });
        self.live[entry.spot.slot] += 1;
        self.mapped += 1;
    }

    /// Forgets the pages from `page` on.
    pub(super) fn cut(&mut self, page: u64) {
        let end = self.chunks.len() as u64 * CHUNK as u64;
        (page..end).for_each(|page| self.replace(page, NOWHERE));
        self.chunks.truncate(Table::blocks_of(page) as usize);
    }

    /// Forgets `pages`.
    pub(super) fn discard(&mut self, pages: Range<u64>) {
        let end = self.chunks.len() as u64 * CHUNK as u64;
        (pages.start..pages.end.min(end)).for_each(|page| self.replace(page, NOWHERE));
    }

    fn replace(&mut self, page: u64, raw: Raw) {
        let old = &mut self.chunks[(page / CHUNK as u64) as usize][(page % CHUNK as u64) as usize];
        let old = std::mem::replace(old, raw).block.get();
        if old != 0 {
            self.live[spot_of(old, self.stride).slot] -= 1;
            self.mapped -= 1;
        }
    }

    /// Up to `max` pages from page `from` on that are in the segment `slot`.
    pub(super) fn pages_in(&self, slot: usize, from: u64, max: usize) -> Vec<(u64, Entry)> {
        let blocks = slot as u32 * self.stride..(slot as u32 + 1) * self.stride;
        let skip = (from / CHUNK as u64) as usize;
        let all = self.chunks.iter().enumerate().skip(skip).flat_map(|(n, chunk)| {
            chunk.iter().enumerate().map(move |(i, raw)| ((n * CHUNK + i) as u64, raw.block.get()))
        });
        let there = all.filter(|(page, block)| *block != 0 && blocks.contains(block) && *page >= from);
        there.take(max).filter_map(|(page, _)| Some((page, self.get(page)?))).collect()
    }

    /// Places of all pages.
    pub(super) fn spots(&self) -> impl Iterator<Item = Spot> {
        let all = self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|raw| raw.block.get());
        all.filter(|block| *block != 0).map(|block| spot_of(block, self.stride))
    }

    /// Checks that the counts are those of the entries.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let again = Table::parse(&self.emit(), self.live.len(), self.stride).unwrap();
        assert_eq!((again.live, again.mapped), (self.live.clone(), self.mapped));
    }
}

fn spot_of(block: u32, stride: u32) -> Spot {
    Spot { slot: (block / stride) as usize, block: block % stride }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum TableStep {
        Set(u64, Spot),
        Cut(u64),
    }

    fn step() -> impl Strategy<Value = TableStep> {
        prop_oneof![
            9 => (0..2000u64, 0..4usize, 1..50u32)
                .prop_map(|(page, slot, block)| TableStep::Set(page, Spot { slot, block })),
            1 => (0..2000u64).prop_map(TableStep::Cut),
        ]
    }

    proptest! {
        #[test]
        fn table_does_what_a_map_does(steps in prop::collection::vec(step(), 0..200)) {
            let (mut table, mut map) = (Table::new(4, 50), BTreeMap::new());
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    TableStep::Set(page, spot) => {
                        let entry = Entry { spot, sum: n as u32 };
                        table.set(page, entry);
                        map.insert(page, entry);
                    }
                    TableStep::Cut(page) => {
                        table.cut(page);
                        map.split_off(&page);
                    }
                }
                table.check();
            }
            let again = Table::parse(&table.emit(), 4, 50).unwrap();
            for page in 0..2100 {
                prop_assert_eq!(again.get(page), map.get(&page).copied());
            }
            for slot in 0..4 {
                let there: Vec<_> = map.iter().filter(|(_, e)| e.spot.slot == slot).map(|(p, e)| (*p, *e)).collect();
                prop_assert_eq!(table.live(slot) as usize, there.len());
                prop_assert_eq!(table.pages_in(slot, 0, 9999), there);
            }
        }

        #[test]
        fn any_bytes_are_a_table_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut block = vec![0; BLOCK_BYTES as usize];
            block[..bytes.len()].copy_from_slice(&bytes);
            if let Ok(table) = Table::parse(&block, 3, 1 << 20) {
                table.check();
            }
        }
    }
}
