//! Extents of a file that reads have looked up, kept in memory while the file is.
//!
//! A look-up takes the lock of all rows and reads the database. A file that is read at random would pay for it with each read.
//!
//! # Why they are the file's
//! They were looked up when the file's map had the version that is kept with them, or later. They count while it has that: it rises
//! before any change of the map is shown, and never comes back. See [`readers`](super::readers).

use super::map::Mapped;
use crate::format::Extent;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Extents that are kept of a file. It is 40 KiB; a file with more of them begins again.
const MOST: usize = 1024;

/// Extents of a read: most have one.
pub(super) type Extents = SmallVec<[Mapped; 2]>;

#[derive(Default, Debug)]
pub(crate) struct KeptExtents {
    version: u64,
    /// By their first blocks.
    extents: BTreeMap<u64, Extent>,
}

impl KeptExtents {
    /// The extents of `blocks`, whole and in order, if all of them are kept and the map has this version.
    pub(super) fn find(&self, blocks: &Range<u64>, version: u64) -> Option<Extents> {
        if self.version != version {
            return None;
        }
        let (first, _) = self.extents.range(..=blocks.start).next_back()?;
        let mut found = Extents::new();
        let mut next = blocks.start;
        for (block, extent) in self.extents.range(first..) {
            let mapped = Mapped { block: *block, extent: *extent };
            // A hole may lie between, or extents that were not looked up.
            if mapped.block > next || mapped.end() <= next {
                return None;
            }
            next = mapped.end();
            found.push(mapped);
            if next >= blocks.end {
                return Some(found);
            }
        }
        None
    }

    /// Keeps extents that were looked up after the map had this version.
    pub(super) fn keep(&mut self, extents: &[Mapped], version: u64) {
        if self.version != version || self.extents.len() + extents.len() > MOST {
            self.extents.clear();
            self.version = version;
        }
        self.extents.extend(extents.iter().take(MOST).map(|mapped| (mapped.block, mapped.extent)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(block: u64, blocks: u32) -> Mapped {
        Mapped { block, extent: Extent { zone: 1, unit: 0, unit_blocks: 8, skip: 0, blocks } }
    }

    #[test]
    fn kept_extents_are_found_where_nothing_is_missing() {
        let mut kept = KeptExtents::default();
        assert_eq!(kept.find(&(0..1), 0), None);
        kept.keep(&[extent(10, 5), extent(15, 5), extent(30, 1)], 7);
        let found =
            |kept: &KeptExtents, blocks: Range<u64>| kept.find(&blocks, 7).map(|found| found.to_vec());
        assert_eq!(found(&kept, 12..13), Some(vec![extent(10, 5)]));
        assert_eq!(found(&kept, 10..20), Some(vec![extent(10, 5), extent(15, 5)]));
        for missing in [9..11, 12..21, 20..21, 29..31, 31..32] {
            assert_eq!(found(&kept, missing), None);
        }
        assert_eq!(kept.find(&(12..13), 8), None, "of another version");
        kept.keep(&[extent(20, 10)], 7);
        assert_eq!(found(&kept, 14..31).map(|found| found.len()), Some(4));
    }

    #[test]
    fn extents_of_an_older_version_go_and_few_are_kept() {
        let mut kept = KeptExtents::default();
        kept.keep(&[extent(0, 5)], 1);
        kept.keep(&[extent(5, 5)], 2);
        assert_eq!(kept.find(&(0..1), 2), None);
        let many: Vec<Mapped> = (0..2 * MOST as u64).map(|n| extent(10 * n, 10)).collect();
        for extents in many.chunks(10) {
            kept.keep(extents, 2);
            assert!(kept.extents.len() <= MOST);
        }
        kept.keep(&many, 2);
        assert_eq!(kept.extents.len(), MOST);
        assert!(kept.find(&(0..100), 2).is_some());
    }
}
