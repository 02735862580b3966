//! Map from file blocks to places on the drive and back, as rows.
//!
//! # Invariants
//! - Extents of a file do not overlap. Adjacent extents that were written one after the other are
//!   merged if possible.
//! - A run describes the data written at its place; the extents of the file decide whether that
//!   data is still live.

use super::error::FsError;
use crate::format::{Extent, Run, RunPiece, key};
use crate::store::{Reader, Rows, View};
use smallvec::SmallVec;
use std::collections::{BTreeSet, HashMap};
use std::ops::{ControlFlow, Range};

/// Maximum length of an extent; longer ones are split.
pub(crate) const EXTENT_BLOCKS_MAX: u32 = 1 << 23;

/// Blocks of a zone that no file refers to any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Freed {
    pub(crate) zone: u32,
    pub(crate) blocks: u32,
}

/// Blocks of a file and their place, or the fact that they are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    /// First block of the file.
    pub(crate) block: u64,
    pub(crate) extent: Extent,
}

impl Mapped {
    pub(crate) fn end(&self) -> u64 {
        self.block + u64::from(self.extent.blocks)
    }

    /// Returns the part that lies in `range`.
    pub(crate) fn within(&self, range: &Range<u64>) -> Option<Mapped> {
        let (from, to) = (self.block.max(range.start), self.end().min(range.end));
        let part = || self.extent.part((from - self.block) as u32..(to - self.block) as u32);
        (from < to).then(|| Mapped { block: from, extent: part() })
    }
}

impl From<(u64, Extent)> for Mapped {
    fn from((block, extent): (u64, Extent)) -> Mapped {
        Mapped { block, extent }
    }
}

/// Returns the whole extents of a file that touch `range`, in order.
pub(crate) fn extents(rows: &impl View, ino: u64, range: &Range<u64>) -> Result<Vec<Mapped>, FsError> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    if let Some((kept, _)) = rows.kept_extents(ino, range) {
        return Ok(kept.into_iter().map(Mapped::from).collect());
    }
    let mut found = Vec::new();
    if let Some((key, value)) = rows.last(&key::extent(ino, 0), &key::extent(ino, range.start))? {
        let first = mapped(&key, &value)?;
        if first.end() > range.start {
            found.push(first);
        }
        // Extents do not overlap, so no other one starts before its end. Most reads end here.
        if first.end() >= range.end {
            return Ok(found);
        }
    }
    let mut damaged = None;
    rows.scan(
        &key::extent(ino, range.start.saturating_add(1)),
        &key::extent(ino, range.end),
        |key, value| {
            match mapped(key, value) {
                Ok(next) => found.push(next),
                Err(e) => damaged = Some(e),
            }
            if damaged.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    )?;
    damaged.map_or(Ok(found), Err)
}

/// Extents in memory; most lookups find one.
pub(crate) type CachedExtents = SmallVec<[Mapped; 2]>;

/// Like [`extents`], but only if all of `range` is in memory. Also returns the version of the map.
pub(crate) fn kept_extents(reader: &Reader, ino: u64, range: &Range<u64>) -> Option<(CachedExtents, u64)> {
    let (kept, version) = reader.kept_extents(ino, range)?;
    Some((kept.into_iter().map(Mapped::from).collect(), version))
}

/// Like [`extents`], and keeps the result in memory. Also returns the map's version before the
/// lookup.
pub(crate) fn extents_to_keep(
    reader: &Reader,
    ino: u64,
    range: &Range<u64>,
) -> Result<(Vec<Mapped>, u64), FsError> {
    let version = reader.map_version(ino);
    let found = extents(reader, ino, range)?;
    reader.keep_extents(ino, found.iter().map(|mapped| (mapped.block, mapped.extent)), version);
    Ok((found, version))
}

fn mapped(key: &[u8], value: &[u8]) -> Result<Mapped, FsError> {
    let (_, block) = key::extent_parts(key);
    Ok(Mapped { block, extent: Extent::decode(key, value)? })
}

/// Blocks removed from a file's map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Unmapped {
    /// Number of blocks, including lost ones.
    pub(crate) blocks: u64,
    /// Former places of the blocks.
    pub(crate) freed: Vec<Freed>,
}

/// Removes the blocks `range` of a file from the map.
pub(crate) fn unmap(rows: &mut Rows, ino: u64, range: &Range<u64>) -> Result<Unmapped, FsError> {
    let touched = extents(rows, ino, range)?;
    Ok(unmap_found(rows, ino, range, touched))
}

/// Like [`unmap`], with `extents` read by the caller.
pub(crate) fn unmap_found(rows: &mut Rows, ino: u64, range: &Range<u64>, extents: Vec<Mapped>) -> Unmapped {
    let mut blocks = 0;
    let mut freed = Vec::with_capacity(extents.len());
    for old in extents {
        let Some(gone) = old.within(range) else { continue };
        blocks += u64::from(gone.extent.blocks);
        if !gone.extent.is_lost() {
            freed.push(Freed { zone: gone.extent.zone, blocks: gone.extent.blocks });
        }
        if old.block >= range.start {
            rows.delete(key::extent(ino, old.block));
        }
        for rest in [old.block..range.start, range.end..old.end()] {
            if let Some(rest) = old.within(&rest) {
                rows.put(key::extent(ino, rest.block), rest.extent.encode());
            }
        }
    }
    Unmapped { blocks, freed }
}

/// Adds blocks of a file to the map that are in no extent yet, merged with the extent that they
/// continue, if any. Within a unit that can only be the piece last mapped from this unit: `before`
/// has its file and last block, and is updated.
pub(crate) fn map(
    rows: &mut Rows,
    ino: u64,
    block: u64,
    extent: Extent,
    before: &mut Option<(u64, u64)>,
) -> Result<(), FsError> {
    let continues = extent.skip == 0 || before.is_some_and(|(file, last)| file == ino && last + 1 == block);
    *before = Some((ino, block + u64::from(extent.blocks) - 1));
    let before = match block {
        _ if !continues => None,
        0 => None,
        _ => rows.last(&key::extent(ino, 0), &key::extent(ino, block - 1))?,
    };
    if let Some((key, value)) = before {
        let before = mapped(&key, &value)?;
        let blocks = before.extent.blocks + extent.blocks;
        if before.end() == block && blocks <= EXTENT_BLOCKS_MAX && before.extent.continues_with(&extent) {
            rows.put(key, Extent { blocks, ..before.extent }.encode());
            return Ok(());
        }
    }
    rows.put(key::extent(ino, block), extent.encode());
    Ok(())
}

/// Last run of each zone that is being written; the next unit may extend it.
#[derive(Default)]
pub(crate) struct Tails(HashMap<u32, (u32, Run)>);

impl Tails {
    /// Records the pieces of a unit at `unit` of `zone`, and the checksum of its header.
    pub(crate) fn note(&mut self, rows: &mut Rows, zone: u32, unit: u32, header: u32, pieces: Vec<RunPiece>) {
        if let (Some((start, run)), [piece]) = (self.0.get_mut(&zone), &pieces[..])
            && run.continues_with(*start, unit, piece)
        {
            run.pieces[0].blocks += piece.blocks;
            run.headers.push(header);
            rows.put(key::run(zone, *start), run.encode());
            return;
        }
        let blocks: u32 = pieces.iter().map(|piece| piece.blocks).sum();
        let run = Run { unit_blocks: blocks as u16, headers: vec![header], pieces };
        rows.put(key::run(zone, unit), run.encode());
        self.0.insert(zone, (unit, run));
    }

    /// Forgets a zone that is no longer being written.
    pub(crate) fn forget(&mut self, zone: u32) {
        self.0.remove(&zone);
    }
}

/// Returns the keys of a zone's runs.
pub(crate) fn runs(rows: &impl View, zone: u32) -> Result<Vec<Vec<u8>>, FsError> {
    let (from, end) = key::runs(zone);
    let mut keys = Vec::new();
    rows.scan(&from, &end, |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(keys)
}

/// Live piece of a file in a zone, with its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Live {
    pub(crate) ino: u64,
    pub(crate) at: Mapped,
    /// Version of the data, once it has been set: see [`number`](super::number).
    pub(crate) number: u64,
}

/// Checksums of headers by zone and unit, from runs. A unit may have several, because a power cut
/// between the reset of a zone and the next commit leaves old runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderSums(BTreeSet<(u32, u32, u32)>);

impl HeaderSums {
    /// Adds the checksums of a run at block `start` of a zone.
    pub(crate) fn add(&mut self, zone: u32, start: u32, run: &Run) {
        let known = run.headers_from(start).filter(|(_, header)| *header != 0);
        self.0.extend(known.map(|(unit, header)| (zone, unit, header)));
    }

    /// True if this is the checksum of a unit's header.
    pub(crate) fn has(&self, zone: u32, unit: u32, header: u32) -> bool {
        self.0.contains(&(zone, unit, header))
    }

    /// True if this may be the checksum of a unit's header, because it is known or because none is
    /// known.
    pub(crate) fn admit(&self, zone: u32, unit: u32, header: u32) -> bool {
        let mut known = self.0.range((zone, unit, 0)..=(zone, unit, u32::MAX));
        self.has(zone, unit, header) || known.next().is_none()
    }
}

/// Returns the live pieces of a zone in order, and the checksums of its headers.
pub(crate) fn live(rows: &impl View, zone: u32) -> Result<(Vec<Live>, HeaderSums), FsError> {
    live_in(rows, zone, &(0..u32::MAX))
}

/// Returns the live pieces of all runs that overlap `blocks` of a zone.
pub(crate) fn live_in(
    rows: &impl View,
    zone: u32,
    blocks: &Range<u32>,
) -> Result<(Vec<Live>, HeaderSums), FsError> {
    let (mut from, end) = (key::run(zone, blocks.start), key::run(zone, blocks.end));
    if let Some((before, _)) = rows.last(&key::run(zone, 0), &from)? {
        from = before;
    }
    let mut runs = Vec::new();
    let mut damaged = None;
    rows.scan(&from, &end, |key, value| match Run::decode(key, value) {
        Ok(run) => {
            runs.push((key::run_parts(key).1, run));
            ControlFlow::Continue(())
        }
        Err(e) => {
            damaged = Some(e);
            ControlFlow::Break(())
        }
    })?;
    if let Some(damaged) = damaged {
        return Err(damaged.into());
    }
    let (mut live, mut headers) = (Vec::new(), HeaderSums::default());
    for (start, run) in runs {
        headers.add(zone, start, &run);
        let mut skip = 0;
        for piece in &run.pieces {
            let end = skip + piece.blocks;
            let unit_blocks = run.unit_blocks;
            let whole = Extent { zone, unit: start, unit_blocks, skip: 0, blocks: end };
            let written = Mapped { block: piece.block, extent: whole.part(skip..end) };
            let ino = piece.ino;
            live.extend(held(rows, ino, &written)?.into_iter().map(|at| Live { ino, at, number: 0 }));
            skip = end;
        }
    }
    Ok((live, headers))
}

/// Returns the parts of `place` to which the file refers.
pub(crate) fn held(rows: &impl View, ino: u64, place: &Mapped) -> Result<Vec<Mapped>, FsError> {
    let range = place.block..place.end();
    let mut held = Vec::new();
    for found in extents(rows, ino, &range)? {
        let Some(found) = found.within(&range) else { continue };
        let there = place.within(&(found.block..found.end())).expect("it lies within");
        if there.extent.place(0) == found.extent.place(0) {
            held.push(found);
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::Memory;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn rows() -> Rows {
        Rows::open(Memory::new(), 1 << 20).unwrap()
    }

    fn unit(zone: u32, unit: u32, blocks: u32) -> Extent {
        Extent { zone, unit, unit_blocks: blocks as u16, skip: 0, blocks }
    }

    #[test]
    fn units_in_a_row_are_one_extent_and_one_run() {
        let mut rows = rows();
        let mut tails = Tails::default();
        for i in 0..5u32 {
            let blocks = if i == 4 { 3 } else { 7 };
            map(&mut rows, 1, u64::from(i) * 7, unit(2, i * 8, blocks), &mut None).unwrap();
            let piece = RunPiece { ino: 1, block: u64::from(i) * 7, blocks };
            tails.note(&mut rows, 2, i * 8, i, vec![piece]);
        }
        let all = extents(&rows, 1, &(0..100)).unwrap();
        assert_eq!(all, [Mapped { block: 0, extent: Extent { blocks: 31, ..unit(2, 0, 7) } }]);
        let (found, headers) = live(&rows, 2).unwrap();
        assert_eq!(found, [Live { ino: 1, at: all[0], number: 0 }]);
        assert!(headers.admit(2, 16, 2) && !headers.admit(2, 16, 3) && headers.admit(2, 17, 3));
        let gone = Unmapped { blocks: 2, freed: vec![Freed { zone: 2, blocks: 2 }] };
        assert_eq!(unmap(&mut rows, 1, &(10..12)).unwrap(), gone);
        let left: Vec<_> =
            live(&rows, 2).unwrap().0.iter().map(|l| (l.at.block, l.at.extent.blocks)).collect();
        assert_eq!(left, [(0, 10), (12, 19)]);
    }

    /// Blocks contiguous in both a file and a unit are one extent, whatever the number of pieces.
    #[test]
    fn pieces_of_a_unit_that_continue_each_other_are_one_extent() {
        let (mut rows, mut before) = (rows(), None);
        let whole = unit(2, 0, 8);
        for (ino, block, skip) in [(1, 4, 0..2), (1, 6, 2..3), (1, 7, 3..5), (2, 8, 5..6), (1, 9, 6..8)] {
            map(&mut rows, ino, block, whole.part(skip), &mut before).unwrap();
        }
        let found: Vec<_> = extents(&rows, 1, &(0..100)).unwrap();
        let [first, last] =
            [(4, 0..5), (9, 6..8)].map(|(block, skip)| Mapped { block, extent: whole.part(skip) });
        assert_eq!(found, [first, last]);
    }

    #[test]
    fn piece_that_was_written_again_in_the_same_zone_lives_once() {
        let mut rows = rows();
        let mut tails = Tails::default();
        for at in [0, 8] {
            unmap(&mut rows, 1, &(0..7)).unwrap();
            map(&mut rows, 1, 0, unit(2, at, 7), &mut None).unwrap();
            tails.note(&mut rows, 2, at, at, vec![RunPiece { ino: 1, block: 0, blocks: 7 }]);
        }
        assert_eq!(
            live(&rows, 2).unwrap().0,
            [Live { ino: 1, at: Mapped { block: 0, extent: unit(2, 8, 7) }, number: 0 }]
        );
    }

    proptest! {
        /// Overwrites files of many small units. Every block is where it was written last, and the
        /// live data in zones is exactly the data of the files.
        #[test]
        fn blocks_are_where_they_were_written_last(
            writes in prop::collection::vec((1..3u64, 0..30u64, 1..8u32, 1..3u32, any::<bool>()), 1..60)
        ) {
            let mut rows = rows();
            let mut tails = Tails::default();
            let mut model: BTreeMap<(u64, u64), (u32, u32)> = BTreeMap::new();
            let mut pointers = BTreeMap::new();
            for (ino, block, blocks, zone, unmaps) in writes {
                let range = block..block + u64::from(blocks);
                let unmapped = unmap(&mut rows, ino, &range).unwrap();
                let freed: u32 = unmapped.freed.iter().map(|f| f.blocks).sum();
                let gone = range.clone().filter(|b| model.remove(&(ino, *b)).is_some()).count();
                prop_assert_eq!((freed as usize, unmapped.blocks as usize), (gone, gone));
                if unmaps {
                    continue;
                }
                let pointer = pointers.entry(zone).or_insert(0u32);
                map(&mut rows, ino, block, unit(zone, *pointer, blocks), &mut None).unwrap();
                tails.note(&mut rows, zone, *pointer, *pointer, vec![RunPiece { ino, block, blocks }]);
                for i in 0..blocks {
                    model.insert((ino, block + u64::from(i)), (zone, *pointer + 1 + i));
                }
                *pointer += blocks + 1;
            }
            let found = |all: Vec<(u64, Mapped)>| -> BTreeMap<(u64, u64), (u32, u32)> {
                let each = |(ino, m): (u64, Mapped)| (0..m.extent.blocks).map(move |i| {
                    ((ino, m.block + u64::from(i)), (m.extent.zone, m.extent.place(i).block()))
                });
                all.into_iter().flat_map(each).collect()
            };
            let mut all = Vec::new();
            let mut lives = Vec::new();
            for n in 1..3 {
                all.extend(extents(&rows, n, &(0..100)).unwrap().into_iter().map(|m| (n, m)));
                lives.extend(live(&rows, n as u32).unwrap().0.into_iter().map(|l| (l.ino, l.at)));
            }
            prop_assert_eq!(found(all), model.clone());
            prop_assert_eq!(found(lives), model);
        }
    }
}
