//! Tables: sorted rows in consecutive pages.
//!
//! ```text
//! index | data | data | ... | index
//! ```
//!
//! A *data block* has rows in the order of their keys. A row that is longer than a page makes a data block of several pages. The *index*
//! has the first key and the length of each data block, and a filter of all keys. It is written twice, so that one lost page never costs
//! a whole table. The place that keeps the pages verifies them.

use super::backend::PAGE;
use super::draft::Key;
use crate::format::varint;
use std::ops::Range;

/// Bits of the filter per key: of the keys that a table does not have, 1 in 100 passes.
const FILTER_BITS: usize = 10;

/// Bits of the filter per key of a table that spans the keys of many others: 1 in 4,000 passes.
const PRECISE_BITS: usize = 20;

/// Bits of the filter that a key sets.
const FILTER_PROBES: u64 = 7;

/// Bytes before the rows of a data block: bytes up to the end of the rows, and number of restarts.
const DATA_HEADER: usize = 8;

/// Rows from one restart to the next. The key of a row at a restart is whole, so that a search begins there.
const RESTART_ROWS: usize = 16;

/// Bytes before the entries of an index: bytes in use, data blocks, rows, bytes of the filter.
const INDEX_HEADER: usize = 20;

/// Bytes of an index entry beside the key, at most.
const ENTRY_BYTES: usize = 16;

/// Maximum length of a key in bytes. The longest key has a name of 255 bytes and a short prefix.
const KEY_MAX: usize = 1024;

/// Data block, as the index has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DataBlock {
    /// Key of the first row.
    pub(super) first: Key,
    /// Pages, counted from the first page of the table.
    pub(super) pages: Range<u32>,
}

/// Index of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Index {
    pub(super) data: Vec<DataBlock>,
    pub(super) rows: u64,
    filter: Vec<u8>,
}

/// Table in the making. Rows are added in the order of their keys.
pub(super) struct Builder {
    bytes: Vec<u8>,
    data: Vec<DataBlock>,
    /// Data block that is not complete yet, and its restarts.
    block: Vec<u8>,
    restarts: Vec<u16>,
    /// Rows since the last restart.
    since: usize,
    first: Key,
    last: Vec<u8>,
    /// Bytes of the entries of the index so far.
    entry_bytes: usize,
    hashes: Vec<u64>,
    filter_bits: usize,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            bytes: Vec::new(),
            data: Vec::new(),
            block: Vec::new(),
            restarts: Vec::new(),
            since: 0,
            first: Key::new(),
            last: Vec::new(),
            entry_bytes: 0,
            hashes: Vec::new(),
            filter_bits: FILTER_BITS,
        }
    }
}

/// Complete table.
pub(super) struct Built {
    /// Whole pages.
    pub(super) bytes: Vec<u8>,
    /// Pages of the index.
    pub(super) index_pages: u32,
    pub(super) first: Key,
    pub(super) last: Key,
}

/// A table, or a part of one, has contents that no table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoTable;

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn put_row(out: &mut Vec<u8>, before: &[u8], key: &[u8], value: Option<&[u8]>) {
    let shared = common_prefix(before, key);
    varint::put(out, shared as u64);
    varint::put(out, (key.len() - shared) as u64);
    varint::put(out, value.map_or(0, |value| value.len() as u64 + 1));
    out.extend_from_slice(&key[shared..]);
    out.extend_from_slice(value.unwrap_or_default());
}

impl Builder {
    /// Table with a larger filter, for level 0. If a page of it is lost, keys of older tables that pass the filter cannot be read.
    pub(super) fn precise() -> Builder {
        Builder { filter_bits: PRECISE_BITS, ..Builder::default() }
    }

    /// Upper bound of the number of pages with one more row.
    pub(super) fn pages_with(&self, key: &[u8], value: Option<&[u8]>) -> u32 {
        let row = key.len() + value.map_or(0, <[u8]>::len) + 3 * 5;
        let block = self.block.len() + 2 * self.restarts.len();
        let data = self.bytes.len() / PAGE + block.div_ceil(PAGE) + (DATA_HEADER + row + 2).div_ceil(PAGE);
        let entries = self.entry_bytes + self.first.len() + key.len() + 2 * ENTRY_BYTES;
        let filter = ((self.hashes.len() + 1) * self.filter_bits).div_ceil(8);
        (data + 2 * (INDEX_HEADER + entries + filter).div_ceil(PAGE)) as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Adds a row, or that a row is gone. Its key is above all others.
    pub(super) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        debug_assert!(self.is_empty() || key > &self.last[..]);
        let start = self.block.len();
        if start > 0 {
            let is_restart = self.since >= RESTART_ROWS;
            put_row(&mut self.block, if is_restart { &[] } else { &self.last }, key, value);
            if self.block.len() + 2 * (self.restarts.len() + usize::from(is_restart)) > PAGE {
                self.block.truncate(start);
                self.end_block();
            } else if is_restart {
                self.restarts.push(start as u16);
                self.since = 0;
            }
        }
        if self.block.is_empty() {
            self.block.extend([0; DATA_HEADER]);
            self.first = Key::from_slice(key);
            put_row(&mut self.block, &[], key, value);
            (self.restarts, self.since) = (vec![DATA_HEADER as u16], 0);
        }
        self.since += 1;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.hashes.push(hash(key));
    }

    fn end_block(&mut self) {
        let len = self.block.len() as u32;
        self.block[..4].copy_from_slice(&len.to_le_bytes());
        self.block[4..6].copy_from_slice(&(self.restarts.len() as u16).to_le_bytes());
        self.block.extend(self.restarts.drain(..).flat_map(u16::to_le_bytes));
        let start = (self.bytes.len() / PAGE) as u32;
        self.block.resize(self.block.len().next_multiple_of(PAGE), 0);
        self.bytes.append(&mut self.block);
        let first = std::mem::take(&mut self.first);
        self.entry_bytes += first.len() + ENTRY_BYTES;
        self.data.push(DataBlock { first, pages: start..(self.bytes.len() / PAGE) as u32 });
    }

    /// Completes the table.
    pub(super) fn build(mut self) -> Built {
        if !self.block.is_empty() {
            self.end_block();
        }
        let mut index = vec![0; INDEX_HEADER];
        let mut before: &[u8] = &[];
        for DataBlock { first, pages } in &self.data {
            let shared = common_prefix(before, first);
            varint::put(&mut index, shared as u64);
            varint::put(&mut index, (first.len() - shared) as u64);
            varint::put(&mut index, u64::from(pages.end - pages.start));
            index.extend_from_slice(&first[shared..]);
            before = first;
        }
        let filter = filter_of(&self.hashes, self.filter_bits);
        index.extend_from_slice(&filter);
        let rows = self.hashes.len() as u64;
        let header = [
            index.len() as u32,
            self.data.len() as u32,
            rows as u32,
            (rows >> 32) as u32,
            filter.len() as u32,
        ];
        for (place, word) in index[..INDEX_HEADER].chunks_exact_mut(4).zip(header) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        index.resize(index.len().next_multiple_of(PAGE), 0);
        let first = self.data.first().map(|data| data.first.clone()).unwrap_or_default();
        let index_pages = (index.len() / PAGE) as u32;
        let bytes = [&index[..], &self.bytes, &index].concat();
        Built { bytes, index_pages, first, last: Key::from_vec(self.last) }
    }
}

fn filter_of(hashes: &[u64], bits_of_key: usize) -> Vec<u8> {
    let mut filter = vec![0u8; (hashes.len() * bits_of_key).div_ceil(8)];
    let bits = filter.len() as u64 * 8;
    for bit in hashes.iter().flat_map(|hash| probes(*hash, bits)) {
        filter[bit as usize / 8] |= 1 << (bit % 8);
    }
    filter
}

/// Bits of a filter of `bits` bits that a key sets.
fn probes(hash: u64, bits: u64) -> impl Iterator<Item = u64> {
    let (mut at, step) = (hash, (hash >> 32) | 1);
    (0..FILTER_PROBES).map(move |_| {
        at = at.wrapping_add(step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        ((u128::from(at) * u128::from(bits)) >> 64) as u64
    })
}

/// Hash of a key in filters, a part of the format: FNV-1a over eight bytes at a time, and the finalizer of MurmurHash3.
fn hash(key: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325 ^ key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3);
        hash ^= hash >> 29;
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ (hash >> 33)
}

impl Index {
    /// Decodes the pages of an index of a table with `index_pages` pages at either end and `pages` in all.
    pub(super) fn parse(bytes: &[u8], index_pages: u32, pages: u32) -> Result<Index, NoTable> {
        Index::decode(bytes, index_pages, pages).ok_or(NoTable)
    }

    fn decode(bytes: &[u8], index_pages: u32, pages: u32) -> Option<Index> {
        let header = bytes.get(..INDEX_HEADER)?;
        let word = |n: usize| u32::from_le_bytes(header[4 * n..4 * n + 4].try_into().expect("four bytes"));
        let (len, count, filter_len) = (word(0) as usize, word(1), word(4) as usize);
        let rows = u64::from(word(2)) | u64::from(word(3)) << 32;
        let body = bytes.get(INDEX_HEADER..len)?;
        let (entries, filter) = body.split_at_checked(body.len().checked_sub(filter_len)?)?;
        let mut reader = varint::Reader(entries);
        let (mut data, mut next): (Vec<DataBlock>, u32) = (Vec::new(), index_pages);
        for _ in 0..count {
            let [shared, rest]: [usize; 2] = [reader.take_number()?, reader.take_number()?];
            let of_block: u32 = reader.take_number()?;
            let before: &[u8] = data.last().map_or(&[], |data| &data.first);
            let mut first = Key::from_slice(before.get(..shared)?);
            first.extend_from_slice(reader.take_slice(rest)?);
            if first.len() > KEY_MAX || next > pages {
                return None;
            }
            if of_block == 0 || data.last().is_some_and(|before| before.first >= first) {
                return None;
            }
            let end = next.checked_add(of_block)?;
            data.push(DataBlock { first, pages: next..end });
            next = end;
        }
        let is_whole =
            reader.0.is_empty() && !data.is_empty() && next.checked_add(index_pages) == Some(pages);
        is_whole.then(|| Index { data, rows, filter: filter.to_vec() })
    }

    /// False if the table has no row of `key`.
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        let bits = self.filter.len() as u64 * 8;
        bits == 0 || probes(hash(key), bits).all(|bit| self.filter[bit as usize / 8] & 1 << (bit % 8) != 0)
    }

    /// Number of the data block that has `key`, if one has it.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.data.partition_point(|data| &data.first[..] <= key).checked_sub(1)
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.filter.len() + self.data.iter().map(|data| 64 + data.first.len()).sum::<usize>()
    }
}

/// Position in a data block. It has the key of the last row, and not the bytes of the block, which each call gets.
#[derive(Default)]
pub(super) struct BlockReader {
    pub(super) key: Vec<u8>,
    /// Offset of the next row.
    at: usize,
}

/// Rows of a data block, and its restarts.
fn parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let restarts = u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?);
    let (rows, rest) = bytes.split_at_checked(len)?;
    Some((rows, rest.get(..2 * usize::from(restarts))?))
}

/// Verifies that a data block has rows, the first of them with the key `first`, and that its restarts are rows with whole keys.
///
/// # Errors
/// If not.
pub(super) fn verify_block(bytes: &[u8], first: &[u8]) -> Result<(), NoTable> {
    let (rows, restarts) = parts(bytes).ok_or(NoTable)?;
    let (mut reader, mut starts) = (BlockReader { key: Vec::new(), at: DATA_HEADER }, Vec::new());
    loop {
        let at = reader.at;
        if reader.next(bytes)?.is_none() {
            break;
        }
        if starts.is_empty() && reader.key != first {
            return Err(NoTable);
        }
        starts.push(at);
    }
    let (restarts, _) = restarts.as_chunks::<2>();
    let is_row = |at: &[u8; 2]| {
        let at = usize::from(u16::from_le_bytes(*at));
        starts.binary_search(&at).is_ok() && rows[at] == 0
    };
    if !starts.is_empty() && restarts.iter().all(is_row) { Ok(()) } else { Err(NoTable) }
}

impl BlockReader {
    /// Position of the last restart of the block `bytes` whose key is before a place, as `is_before` says; of the first if there is none.
    ///
    /// # Errors
    /// If it is no block.
    pub(super) fn at(bytes: &[u8], is_before: impl Fn(&[u8]) -> bool) -> Result<BlockReader, NoTable> {
        let (rows, restarts) = parts(bytes).ok_or(NoTable)?;
        let (restarts, _) = restarts.as_chunks::<2>();
        let first_key = |at: &[u8; 2]| {
            let mut reader = varint::Reader(rows.get(usize::from(u16::from_le_bytes(*at))..)?);
            let [_, len, _]: [usize; 3] =
                [reader.take_number()?, reader.take_number()?, reader.take_number()?];
            reader.take_slice(len)
        };
        let after = restarts.partition_point(|at| first_key(at).is_some_and(&is_before));
        let at = after.checked_sub(1).map_or(0, |last| usize::from(u16::from_le_bytes(restarts[last])));
        Ok(BlockReader { key: Vec::with_capacity(24), at })
    }

    /// Moves on to the next row of the block `bytes`, and returns its value, or that it is gone. Its key is then in the reader.
    ///
    /// # Errors
    /// If no row is there.
    pub(super) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Option<&'a [u8]>>, NoTable> {
        let (rows, _) = parts(bytes).ok_or(NoTable)?;
        let rest = rows.get(self.at.max(DATA_HEADER)..).ok_or(NoTable)?;
        if rest.is_empty() {
            return Ok(None);
        }
        let mut reader = varint::Reader(rest);
        let value = self.take(&mut reader).ok_or(NoTable)?;
        self.at = rows.len() - reader.0.len();
        Ok(Some(value))
    }

    #[expect(clippy::option_option, reason = "no row, or a row that is gone")]
    fn take<'a>(&mut self, reader: &mut varint::Reader<'a>) -> Option<Option<&'a [u8]>> {
        let [shared, rest, value]: [usize; 3] =
            [reader.take_number()?, reader.take_number()?, reader.take_number()?];
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(reader.take_slice(rest)?);
        if self.key.len() > KEY_MAX {
            return None;
        }
        Some(match value.checked_sub(1) {
            None => None,
            Some(len) => Some(reader.take_slice(len)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn build(changes: &Changes) -> (Built, Index) {
        let mut builder = Builder::default();
        let mut most = 0;
        for (key, value) in changes {
            most = builder.pages_with(key, value.as_deref());
            builder.add(key, value.as_deref());
        }
        let built = builder.build();
        let pages = (built.bytes.len() / PAGE) as u32;
        assert!(pages <= most, "{pages} {most}");
        let copies = [0, pages - built.index_pages].map(|first| {
            let bytes = &built.bytes[first as usize * PAGE..][..built.index_pages as usize * PAGE];
            Index::parse(bytes, built.index_pages, pages).unwrap()
        });
        assert_eq!(copies[0], copies[1]);
        let [index, _] = copies;
        (built, index)
    }

    fn block<'a>(built: &'a Built, data: &DataBlock) -> &'a [u8] {
        &built.bytes[data.pages.start as usize * PAGE..data.pages.end as usize * PAGE]
    }

    #[test]
    fn one_in_a_hundred_absent_keys_passes_the_filter() {
        let rows = (0..50_000u64).map(|n| (n.to_be_bytes().to_vec(), Some(vec![7; 20]))).collect();
        let (built, index) = build(&rows);
        assert!(rows.keys().all(|key| index.may_have(key)));
        let passed = (50_000..150_000u64).filter(|n| index.may_have(&n.to_be_bytes())).count();
        assert!((500..1500).contains(&passed), "{passed} of 100,000");
        assert!(built.bytes.len() < 50_000 * 30, "{} bytes", built.bytes.len());
    }

    fn changes() -> impl Strategy<Value = Changes> {
        let key = prop::collection::vec(0..4u8, 0..9);
        let value = prop_oneof![
            20 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Some),
            3 => Just(None),
            1 => (3900..4200usize).prop_map(|len| Some(vec![5; len])),
            1 => (9000..70_000usize).prop_map(|len| Some(vec![6; len])),
        ];
        prop::collection::btree_map(key, value, 1..300)
    }

    proptest! {
        #[test]
        fn table_has_the_rows_that_were_added(changes in changes()) {
            let (built, index) = build(&changes);
            prop_assert_eq!(index.rows, changes.len() as u64);
            let mut found = Changes::new();
            for data in &index.data {
                let mut reader = BlockReader::default();
                while let Some(value) = reader.next(block(&built, data)).unwrap() {
                    found.insert(reader.key.clone(), value.map(<[u8]>::to_vec));
                }
            }
            prop_assert_eq!(&found, &changes);
            let (first, last) = (changes.keys().next().unwrap(), changes.keys().next_back().unwrap());
            prop_assert_eq!((&built.first[..], &built.last[..]), (&first[..], &last[..]));
        }

        #[test]
        fn any_bytes_are_a_table_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Index::parse(&bytes, 1, 3);
            let mut reader = BlockReader::default();
            while let Ok(Some(_)) = reader.next(&bytes) {}
        }
    }
}
