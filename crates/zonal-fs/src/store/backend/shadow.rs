//! A database that is only looked at: whatever the database writes while it is open stays in memory.
//!
//! To open one that was not closed is to mend it, and whoever only looks changes nothing.

use parking_lot::RwLock;
use redb::StorageBackend;
use std::collections::BTreeMap;
use std::io;

/// Bytes that are kept together.
const PAGE: u64 = 4096;

/// What lies below, as it is, with changes that nobody else sees.
#[derive(Debug)]
pub struct Shadow<B> {
    below: B,
    changes: RwLock<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// As far as what lies below counts.
    below: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl<B: StorageBackend> Shadow<B> {
    /// Of what `below` holds.
    ///
    /// # Errors
    /// Its own.
    pub fn new(below: B) -> io::Result<Shadow<B>> {
        let len = below.len()?;
        Ok(Shadow { below, changes: RwLock::new(Changes { len, below: len, pages: BTreeMap::new() }) })
    }

    /// A page as it is below.
    fn page(&self, page: u64, end: u64) -> io::Result<Box<[u8]>> {
        let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
        let there = end.saturating_sub(page * PAGE).min(PAGE) as usize;
        if there > 0 {
            self.below.read(page * PAGE, &mut bytes[..there])?;
        }
        Ok(bytes)
    }
}

/// The pages of `length` bytes at `offset`, each with where it begins and ends in them, and where in the page that is.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let end = offset + length as u64;
    (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let (from, to) = ((page * PAGE).max(offset), ((page + 1) * PAGE).min(end));
        (page, (from - offset) as usize..(to - offset) as usize, (from - page * PAGE) as usize)
    })
}

impl<B: StorageBackend> StorageBackend for Shadow<B> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes.read().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes.read();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > changes.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let there = changes.below.saturating_sub(offset).min(out.len() as u64) as usize;
        self.below.read(offset, &mut out[..there])?;
        out[there..].fill(0);
        for (page, part, at) in pieces(offset, out.len()) {
            if let Some(bytes) = changes.pages.get(&page) {
                let length = part.len();
                out[part].copy_from_slice(&bytes[at..at + length]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes.write();
        changes.pages.retain(|page, _| page * PAGE < len);
        if let Some(last) = changes.pages.get_mut(&(len / PAGE)) {
            last[(len % PAGE) as usize..].fill(0);
        }
        changes.below = changes.below.min(len);
        changes.len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes.write();
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > changes.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (page, part, at) in pieces(offset, data.len()) {
            if !changes.pages.contains_key(&page) {
                let bytes = self.page(page, changes.below)?;
                changes.pages.insert(page, bytes);
            }
            let bytes = changes.pages.get_mut(&page).expect("it was put there");
            bytes[at..at + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::Memory;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, usize, u8),
        SetLen(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..30_000u64, 0..9000usize, any::<u8>()).prop_map(|(at, length, byte)| Step::Write(at, length, byte)),
            1 => (0..30_000u64).prop_map(Step::SetLen),
        ]
    }

    fn all(of: &impl StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0xEE; of.len().unwrap() as usize];
        of.read(0, &mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn changes_are_seen_and_nothing_below_is_changed(steps in prop::collection::vec(step(), 0..20)) {
            let (below, model) = (Memory::new(), Memory::new());
            for memory in [&below, &model] {
                memory.set_len(20_000).unwrap();
                memory.write(100, &[7; 15_000]).unwrap();
            }
            let before = all(&below);
            let shadow = Shadow::new(below.clone()).unwrap();
            for step in steps {
                match step {
                    Step::Write(at, length, byte) => {
                        let data = vec![byte; length];
                        prop_assert_eq!(shadow.write(at, &data).is_ok(), model.write(at, &data).is_ok());
                    }
                    Step::SetLen(len) => {
                        shadow.set_len(len).unwrap();
                        model.set_len(len).unwrap();
                    }
                }
                prop_assert!(all(&shadow) == all(&model));
            }
            prop_assert!(all(&below) == before);
        }
    }
}
