//! Reconstruction of a file from all of its data in the zones.

use super::units::UnitRecord;
use crate::BLOCK_BYTES;
use crate::fs::map::{EXTENT_BLOCKS_MAX, Mapped};
use std::collections::BTreeMap;

/// A reconstructed file.
pub(super) struct File<'a> {
    /// The newest record that names the file.
    pub(super) newest: &'a UnitRecord,
    /// Extents, in order.
    pub(super) extents: Vec<Mapped>,
    /// Units of a previous file with this number.
    pub(super) replaced: u64,
}

/// Reconstructs the file of `entries`, the records with its number.
pub(super) fn file(entries: &mut [UnitRecord]) -> File<'_> {
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

/// Disjoint extents, keyed by their first block.
#[derive(Default)]
struct Blocks(BTreeMap<u64, Mapped>);

impl Blocks {
    /// Adds `new`, replacing whatever it overlaps.
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

    /// All extents, with mergeable neighbours merged.
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
