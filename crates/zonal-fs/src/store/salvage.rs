//! Rows of tables of which some pages are lost.
//!
//! A lost data block costs the keys from its first one up to that of the next block. Older tables may have rows of these keys, which may
//! be outdated: a lost row may have replaced or deleted them. The filter of the table says which keys it has, so only these are lost, and
//! the others count.

use super::backend::Backend;
use super::draft::{Key, Layer};
use super::layers::logged_rows;
use super::levels::Table;
use super::rows::{Row, StoreError};
use super::table::{BlockReader, Index};
use super::tables::Tables;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Rows that were lost: some of one kind, between two keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The kind: first byte of all their keys.
    pub kind: u8,
    /// Key that is not after any of them; `None` if they may be the first of their kind.
    pub from: Option<Vec<u8>>,
    /// Key that is after all of them; `None` if they may be the last of their kind.
    pub before: Option<Vec<u8>>,
    /// Filter of the keys, unless it is lost, too.
    index: Option<Arc<Index>>,
}

impl Gap {
    /// A gap of which only the range is known.
    #[cfg(test)]
    pub(crate) fn new(kind: u8, from: Option<Vec<u8>>, before: Option<Vec<u8>>) -> Gap {
        Gap { kind, from, before, index: None }
    }

    /// True if a row with this key may be among them.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        key.first() == Some(&self.kind)
            && self.from.as_deref().is_none_or(|from| from <= key)
            && self.before.as_deref().is_none_or(|before| key < before)
            && self.index.as_ref().is_none_or(|index| index.may_have(key))
    }
}

/// Lost keys of a table.
struct Lost {
    from: Key,
    /// Key after the last one, or the last one.
    to: Bound<Key>,
    index: Option<Arc<Index>>,
}

impl Lost {
    /// The gaps that it is, one for each kind of rows that it may have.
    fn gaps(&self, kinds: &[u8]) -> Vec<Gap> {
        let (Bound::Included(to) | Bound::Excluded(to)) = &self.to else { return Vec::new() };
        let gap = |&kind: &u8| {
            let mut before = (to[..1] == [kind]).then(|| to.to_vec());
            if let (Some(before), Bound::Included(_)) = (&mut before, &self.to) {
                before.push(0);
            }
            let from = (self.from[..1] == [kind]).then(|| self.from.to_vec());
            Gap { kind, from, before, index: self.index.clone() }
        };
        let is_within = |kind: &&u8| (self.from[0]..=to[0]).contains(kind);
        kinds
            .iter()
            .filter(is_within)
            .map(gap)
            .filter(|gap| gap.before.as_deref() != Some(&[gap.kind]))
            .collect()
    }
}

/// Gaps in the rows of all tables.
#[derive(Default, Debug)]
pub struct Gaps(Vec<GapGroup>);

/// Gaps of a level, or of a run of level 0, in order of their keys.
#[derive(Debug)]
struct GapGroup {
    level: u8,
    run: u64,
    gaps: Vec<Gap>,
}

impl GapGroup {
    fn may_hold(&self, key: &[u8]) -> bool {
        let Some((kind, _)) = key.split_first() else { return false };
        let begins_before = |gap: &Gap| (gap.kind, gap.from.as_deref().unwrap_or_default()) <= (*kind, key);
        let after = self.gaps.partition_point(begins_before);
        after > 0 && self.gaps[after - 1].may_hold(key)
    }
}

impl Gaps {
    /// Gaps of which each may overlap the others.
    #[cfg(test)]
    pub(crate) fn new(gaps: Vec<Gap>) -> Gaps {
        Gaps((0..).zip(gaps).map(|(run, gap)| GapGroup { level: 0, run, gaps: vec![gap] }).collect())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Gap> {
        self.0.iter().flat_map(|group| &group.gaps)
    }

    /// Returns true if a row with this key may be in a gap.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        self.0.iter().any(|group| group.may_hold(key))
    }

    /// Adds the gaps of a table that follows the last one.
    fn add(&mut self, table: &Table, gaps: impl Iterator<Item = Gap>) {
        let mut gaps = gaps.peekable();
        if gaps.peek().is_none() {
            return;
        }
        match self.0.last_mut() {
            Some(group) if (group.level, group.run) == (table.level, table.run) => group.gaps.extend(gaps),
            _ => self.0.push(GapGroup { level: table.level, run: table.run, gaps: gaps.collect() }),
        }
    }
}

/// Passes all rows that can be read and are not outdated to `show`, in order of their keys, and then those of the log. `kinds` are the
/// kinds of rows that there may be. Returns the gaps.
///
/// # Errors
/// The backend's, unless it says that a page is lost for good; and that nothing can be read, because the list of tables is lost.
pub fn salvage(
    backend: impl Backend,
    kinds: &[u8],
    mut show: impl FnMut(Row) -> Result<(), StoreError>,
) -> Result<Gaps, StoreError> {
    let tables = Tables::open(Arc::new(backend), 1 << 20)?;
    let mut kinds = kinds.to_vec();
    kinds.sort_unstable();
    let mut logged = Layer::new();
    logged_rows(&tables, |key, change| drop(logged.insert(key, change)))?;
    let (mut found, mut gaps) = (BTreeMap::<Key, Option<Vec<u8>>>::new(), Gaps::default());
    for table in tables.all() {
        let mut of_table = Vec::new();
        read(
            &tables,
            table,
            |key, value| {
                let is_known = found.contains_key(key) || gaps.may_hold(key);
                if !is_known {
                    found.insert(Key::from_slice(key), value.map(<[u8]>::to_vec));
                }
            },
            &mut of_table,
        )?;
        gaps.add(table, of_table.iter().flat_map(|lost| lost.gaps(&kinds)));
    }
    for (key, value) in found {
        if let (Some(value), false) = (value, logged.contains_key(&key)) {
            show((key.to_vec(), value))?;
        }
    }
    for (key, change) in logged {
        change.value.map_or(Ok(()), |value| show((key.to_vec(), value)))?;
    }
    Ok(gaps)
}

/// Passes the rows of a table to `show`, and adds what is lost to `lost`.
fn read(
    tables: &Tables,
    table: &Arc<Table>,
    mut show: impl FnMut(&[u8], Option<&[u8]>),
    lost: &mut Vec<Lost>,
) -> Result<(), StoreError> {
    let begin = Key::from_slice(table.begin());
    let index = match tables.place().index(table) {
        Ok(index) => index,
        Err(error) if error.is_lost() => {
            lost.push(Lost { from: begin, to: Bound::Included(table.last.clone()), index: None });
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for (n, data) in index.data.iter().enumerate() {
        let next = index.data.get(n + 1).map(|next| &next.first);
        if next.is_some_and(|next| *next <= begin) {
            continue;
        }
        let mut rows = || -> Result<(), StoreError> {
            let bytes = tables.place().block(table, &data.pages)?;
            let mut reader = BlockReader::default();
            while let Some(value) = reader.next(&bytes)? {
                if reader.key[..] >= begin[..] {
                    show(&reader.key, value);
                }
            }
            Ok(())
        };
        match rows() {
            Ok(()) => {}
            Err(error) if error.is_lost() => {
                let to =
                    next.map_or(Bound::Included(table.last.clone()), |next| Bound::Excluded(next.clone()));
                let from = data.first.clone().max(begin.clone());
                match lost.last_mut() {
                    // Blocks that follow each other are lost together.
                    Some(before) if before.to == Bound::Excluded(from.clone()) => before.to = to,
                    _ => lost.push(Lost { from, to, index: Some(index.clone()) }),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::super::backend::{BackendError, Damage, Memory, SegmentId, SegmentPlace};
    use super::*;
    use std::collections::BTreeSet;
    use std::io;

    /// Bytes in memory of which some pages are lost.
    #[derive(Debug)]
    struct Holed(Memory, BTreeSet<u64>);

    impl Backend for Holed {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let pages = offset / 4096..(offset + out.len() as u64).div_ceil(4096);
            if self.1.range(pages).next().is_some() {
                let place = SegmentPlace { segment: SegmentId(7), block: (offset / 4096) as u32 };
                return Err(BackendError::Damaged { place, what: "a page", damage: Damage::Checksum }.into());
            }
            self.0.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.0.write(offset, data)
        }
    }

    fn key(kind: u8, number: u64) -> Vec<u8> {
        [kind].into_iter().chain(number.to_be_bytes()).collect()
    }

    /// Rows of three kinds, some with values of several pages.
    fn filled() -> (Memory, BTreeMap<Vec<u8>, Vec<u8>>) {
        let (memory, mut all) = (Memory::new(), BTreeMap::new());
        let mut rows = Rows::open(memory.clone(), 1 << 20).unwrap();
        for number in 0..1500 {
            for kind in *b"DEI" {
                let bytes = if number % 500 == 3 { 9000 } else { 60 };
                all.insert(key(kind, number), vec![number as u8; bytes]);
                rows.put(key(kind, number), vec![number as u8; bytes]);
            }
        }
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed);
        drop(rows);
        (memory, all)
    }

    #[test]
    fn rows_of_lost_pages_are_in_gaps_and_all_others_are_shown_once() {
        let (memory, all) = filled();
        let pages = memory.len().unwrap() / 4096;
        let (mut told, mut read) = (0, 0);
        for page in 1..pages {
            for lost in [vec![page], vec![page, page + 2], vec![page, page + 1, page + 40]] {
                let copy = Memory::new();
                let mut bytes = vec![0; memory.len().unwrap() as usize];
                memory.read(0, &mut bytes).unwrap();
                copy.set_len(bytes.len() as u64).unwrap();
                copy.write(0, &bytes).unwrap();
                let mut shown = BTreeMap::new();
                let lost: BTreeSet<u64> = lost.into_iter().collect();
                let mut is_twice = false;
                let result = salvage(Holed(copy, lost.clone()), b"DEI", |(key, value)| {
                    is_twice |= shown.insert(key, value).is_some();
                    Ok(())
                });
                assert!(!is_twice, "{lost:?}: a row is shown twice");
                let Ok(gaps) = result else { continue };
                read += 1;
                told += u64::from(gaps.iter().next().is_some());
                for (key, value) in &all {
                    match shown.get(key) {
                        Some(there) => assert_eq!(there, value, "{lost:?}"),
                        None => {
                            assert!(gaps.may_hold(key), "{lost:?}: {key:?}, {gaps:?}")
                        }
                    }
                }
                assert!(shown.keys().all(|key| all.contains_key(key)), "{lost:?}");
            }
        }
        assert!(told > 100 && read > told, "{told} of {read}");
    }

    #[test]
    fn error_that_may_pass_ends_it() {
        #[derive(Debug)]
        struct Busy(Memory);
        impl Backend for Busy {
            fn len(&self) -> io::Result<u64> {
                self.0.len()
            }
            fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
                if offset < 4096 * 40 {
                    self.0.read(offset, out)
                } else {
                    Err(io::ErrorKind::TimedOut.into())
                }
            }
            fn set_len(&self, len: u64) -> io::Result<()> {
                self.0.set_len(len)
            }
            fn sync_data(&self) -> io::Result<()> {
                Ok(())
            }
            fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
                self.0.write(offset, data)
            }
        }
        assert!(salvage(Busy(filled().0), b"DEI", |_| Ok(())).is_err());
    }
}
