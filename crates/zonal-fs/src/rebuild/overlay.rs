//! One file, from all of its data that is still in the zones.

use super::units::Entry;
use crate::BLOCK_BYTES;
use crate::fs::map::{EXTENT_BLOCKS_MAX, Mapped};
use std::collections::BTreeMap;

/// What is known of a file.
pub(super) struct File<'a> {
    /// The newest header that names it.
    pub(super) newest: &'a Entry,
    /// Its extents, in order.
    pub(super) extents: Vec<Mapped>,
    /// Units of another file that had its number before.
    pub(super) replaced: u64,
}

/// The file of `entries`, which are all records with its number.
pub(super) fn file(entries: &mut [Entry]) -> File<'_> {
    entries.sort_unstable_by_key(|entry| (entry.number, entry.sequence));
    let entries = &*entries;
    let newest = entries.iter().max_by_key(|entry| entry.sequence).expect("a file has a record");
    let end = newest.size.div_ceil(BLOCK_BYTES.into());
    let mut blocks = Blocks::default();
    let mut replaced = 0;
    for entry in entries {
        match entry.born == newest.born {
            true => entry.mapped().within(&(0..end)).into_iter().for_each(|mapped| blocks.lay(mapped)),
            false => replaced += 1,
        }
    }
    File { newest, extents: blocks.joined(), replaced }
}

/// Extents that do not overlap, by their first block.
#[derive(Default)]
struct Blocks(BTreeMap<u64, Mapped>);

impl Blocks {
    /// Lays `new` over what is there.
    fn lay(&mut self, new: Mapped) {
        while let Some((&from, &old)) = self.0.range(..new.end()).next_back() {
            if old.end() <= new.block {
                break;
            }
            self.0.remove(&from);
            for rest in [old.block..new.block, new.end()..old.end()] {
                if let Some(rest) = old.within(&rest) {
                    self.0.insert(rest.block, rest);
                }
            }
        }
        self.0.insert(new.block, new);
    }

    /// All extents; neighbours that can be one extent are joined.
    fn joined(self) -> Vec<Mapped> {
        let mut joined: Vec<Mapped> = Vec::with_capacity(self.0.len());
        for next in self.0.into_values() {
            match joined.last_mut() {
                Some(last)
                    if last.end() == next.block
                        && last.extent.blocks + next.extent.blocks <= EXTENT_BLOCKS_MAX
                        && last.extent.continues_with(&next.extent) =>
                {
                    last.extent.blocks += next.extent.blocks;
                }
                _ => joined.push(next),
            }
        }
        joined
    }
}
