//! Rows of a database of which some pages are lost.
//!
//! redb gives up at the first page that cannot be read, and refuses everything after it. So each lost page is shown to it as a
//! leaf with one row that no file system has: its key is empty. In the order of the other rows that one stands for all that the
//! page had, or, where the page was a branch, for all below it. Nothing else can be told: which keys were in it follows from
//! the rows before and after.

use super::backend::log::{self, Log};
use super::backend::{Backend, BackendError};
use super::draft::{Layer, merge, parse};
use super::guard::guarded;
use super::rows::{Row, StoreError, damaged};
use super::tables::Tables;
use redb::{Database, ReadableDatabase, StorageBackend};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of the database's header, which nothing stands in for.
const HEADER_BYTES: u64 = 4096;

/// Rows that were lost: all whose keys are after one and before another, of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The kind: first byte of all their keys.
    pub kind: u8,
    /// Key of the last row before them; `None` if they were the first of their kind.
    pub after: Option<Vec<u8>>,
    /// Key of the next row; `None` if they were the last of their kind.
    pub before: Option<Vec<u8>>,
}

impl Gap {
    /// Whether a row with this key may be among them.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        key.first() == Some(&self.kind)
            && self.after.as_deref().is_none_or(|after| after < key)
            && self.before.as_deref().is_none_or(|before| key < before)
    }
}

/// Passes all readable rows to `show`: those of the database kind by kind and in order of their keys, then those of the log. Returns the
/// gaps between those of the database.
///
/// # Errors
/// The backend's, unless it says that a page is lost for good; and that nothing can be read, because what leads to the rows is
/// lost.
pub fn salvage(
    backend: impl Backend,
    mut show: impl FnMut(Row) -> Result<(), StoreError>,
) -> Result<Vec<Gap>, StoreError> {
    let rows = backend.log().map(Log::rows).unwrap_or_default();
    let read = guarded(|| {
        let phase = Arc::new(AtomicU8::new(OPENING));
        let marked = Marked { below: backend, phase: phase.clone() };
        let database = Database::builder().create_with_backend(marked)?;
        // Dropped before the database, also after a panic: what the database writes when it is closed would be made of leaves
        // that are none.
        let reading = Reading(phase);
        reading.0.store(READING, Ordering::Release);
        let tables = Tables::of(&database.begin_read()?)?;
        let mut gaps: Vec<Gap> = Vec::new();
        let mut logged = Layer::new();
        for rows in log::after(rows, tables.covered)? {
            merge(&mut logged, parse(&rows).ok_or_else(|| damaged("the rows in its log are damaged"))?);
        }
        for kind in tables.kinds() {
            let (mut last, mut is_open) = (None, false);
            for row in tables.all(kind)? {
                let (key, value) = row?;
                if key.value().is_empty() {
                    if !is_open {
                        gaps.push(Gap { kind, after: last.clone(), before: None });
                    }
                    is_open = true;
                    continue;
                }
                let key = key.value().to_vec();
                if let (true, Some(gap)) = (std::mem::take(&mut is_open), gaps.last_mut()) {
                    gap.before = Some(key.clone());
                }
                if !logged.contains_key(&key[..]) {
                    show((key.clone(), value.value().to_vec()))?;
                }
                last = Some(key);
            }
        }
        for (key, change) in logged {
            change.value.map_or(Ok(()), |value| show((key.into_vec(), value)))?;
        }
        Ok(gaps)
    });
    read.unwrap_or_else(|| Err(damaged("what leads to the rows is lost")))
}

/// The database reads what it needs to be opened: an error is an error.
const OPENING: u8 = 0;
/// Rows are read: a lost page is a leaf.
const READING: u8 = 1;
/// Everything fails.
const DONE: u8 = 2;

struct Reading(Arc<AtomicU8>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.store(DONE, Ordering::Release);
    }
}

/// A database's file whose lost pages are leaves with the row that stands for a gap.
#[derive(Debug)]
struct Marked<B> {
    below: B,
    phase: Arc<AtomicU8>,
}

impl<B> Marked<B> {
    fn phase(&self) -> io::Result<u8> {
        match self.phase.load(Ordering::Acquire) {
            DONE => Err(io::Error::other("all rows were read")),
            phase => Ok(phase),
        }
    }
}

/// A leaf with one row, whose key and value are empty: kind of page, a filler, the count of rows, and where the key and the value
/// end, counted from the leaf's first byte.
fn leaf(out: &mut [u8]) {
    const LEAF: [u8; 12] = [1, 0, 1, 0, 12, 0, 0, 0, 12, 0, 0, 0];
    out.fill(0);
    out[..LEAF.len()].copy_from_slice(&LEAF);
}

/// Whether bytes cannot be read, and will not be readable later.
fn is_lost(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<BackendError>());
    error.is_some_and(BackendError::is_lost)
}

impl<B: StorageBackend> StorageBackend for Marked<B> {
    fn len(&self) -> io::Result<u64> {
        self.phase().and_then(|_| self.below.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let phase = self.phase()?;
        match self.below.read(offset, out) {
            Err(error) if phase == READING && offset >= HEADER_BYTES && is_lost(&error) => {
                leaf(out);
                Ok(())
            }
            result => result,
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.phase().and_then(|_| self.below.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.phase().and_then(|_| self.below.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.phase().and_then(|_| self.below.write(offset, data))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::super::backend::{Damage, Memory, SegmentId, SegmentPlace};
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Bytes in memory of which some pages are lost.
    #[derive(Debug)]
    struct Holed(Memory, BTreeSet<u64>);

    impl Backend for Holed {}

    impl StorageBackend for Holed {
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
                let result = salvage(Holed(copy, lost.clone()), |(key, value)| {
                    is_twice |= shown.insert(key, value).is_some();
                    Ok(())
                });
                assert!(!is_twice, "{lost:?}: a row is shown twice");
                let Ok(gaps) = result else { continue };
                read += 1;
                told += u64::from(!gaps.is_empty());
                for (key, value) in &all {
                    match shown.get(key) {
                        Some(there) => assert_eq!(there, value, "{lost:?}"),
                        None => {
                            assert!(gaps.iter().any(|gap| gap.may_hold(key)), "{lost:?}: {key:?}, {gaps:?}")
                        }
                    }
                }
                assert!(shown.keys().all(|key| all.contains_key(key)), "{lost:?}");
                let holds = |gap: &Gap| shown.keys().any(|key| gap.may_hold(key));
                assert!(!gaps.iter().any(holds), "{lost:?}: {gaps:?}");
            }
        }
        assert!(told > 100 && read > told, "{told} of {read}");
    }

    #[test]
    fn error_that_may_pass_ends_it() {
        #[derive(Debug)]
        struct Busy(Memory);
        impl Backend for Busy {}
        impl StorageBackend for Busy {
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
        assert!(salvage(Busy(filled().0), |_| Ok(())).is_err());
    }
}
