//! Repairs of findings.

use super::Finding;
use crate::BLOCK_BYTES;
use crate::format::{
    Account, Attributes, Entry, Extent, FILES_END, FileKind, NUMBERS_END, NUMBERS_SKIPPED, Position, Run,
    RunPiece, key,
};
use crate::fs::files;
use crate::fs::map::EXTENT_BLOCKS_MAX;
use crate::fs::number::generation;
use crate::fs::{FsError, ROOT};
use crate::store::Rows;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Directory for files without names.
pub(crate) const FOUND: &[u8] = b"lost+found";

/// Repairs `findings` and commits; the caller checks again for what is left. Lost data stays lost:
/// reading it is an error until the blocks are rewritten.
///
/// # Errors
/// Those of the store. Nothing was changed then.
pub fn repair(rows: &mut Rows, findings: &[Finding]) -> Result<(), FsError> {
    for finding in findings {
        repair_one(rows, finding)?;
    }
    // Removed rows no longer count.
    recount(rows)?;
    let sealed = rows.seal().expect("nothing else has the rows");
    rows.settled(sealed.commit()?);
    Ok(())
}

fn repair_one(rows: &mut Rows, finding: &Finding) -> Result<(), FsError> {
    match finding {
        Finding::DamagedRow { key } => drop_damaged_row(rows, key)?,
        Finding::Nowhere { ino, block, .. } | Finding::Shared { ino, block, .. } => {
            // The block lies in the extent that starts at or before it, unless the repair of
            // another finding has removed that extent.
            if let Some((key, extent)) = extent_at(rows, *ino, *block)? {
                rows.put(key, Extent::lost(extent.blocks).encode());
            }
        }
        Finding::Overlap { ino, block, next } => resolve_overlap(rows, *ino, *block, *next)?,
        Finding::Unknown { ino, block, blocks, .. } => note_run(rows, *ino, *block, *blocks)?,
        Finding::NoFile { ino } => {
            for key in keys(rows, key::extent(*ino, 0), key::extent(ino.saturating_add(1), 0))? {
                rows.delete(key);
            }
            // A file that exists keeps its attributes, with or without data.
            if rows.get(&key::inode(*ino))?.is_none() {
                let (from, end) = key::attributes(*ino);
                keys(rows, from, end)?.into_iter().for_each(|key| rows.delete(key));
                let (from, end) = (key::tail(*ino, 0), key::tail(ino.saturating_add(1), 0));
                keys(rows, from, end)?.into_iter().for_each(|key| rows.delete(key));
                rows.delete(key::target(*ino));
            }
        }
        Finding::NoAttributes { ino } => {
            if rows.get(&key::inode(*ino))?.is_none() {
                restore_file(rows, *ino, ROOT, Position::START, 0)?;
            }
        }
        Finding::NoSuchFile { parent, name, ino } => {
            let key = key::entry(*parent, name);
            let entry = rows.get(&key)?.and_then(|value| Entry::decode(&key, &value).ok());
            let is_there = end_of_last(rows, *ino, u64::MAX)? > 0;
            match entry.filter(|entry| is_there && entry.kind == FileKind::File) {
                Some(Entry { position, .. }) if rows.get(&key::inode(*ino))?.is_none() => {
                    restore_file(rows, *ino, *parent, position, 0)?;
                }
                // The file was already restored under another name.
                Some(_) => {}
                None => remove_entry(rows, *parent, name)?,
            }
        }
        Finding::NoDirectory { parent, name } => remove_entry(rows, *parent, name)?,
        Finding::PositionOfNothing { parent, position, .. } => {
            rows.delete(key::position(*parent, Position(*position)));
        }
        Finding::NoPosition { parent, name, .. } => {
            let key = key::entry(*parent, name);
            if let Some(value) = rows.get(&key)? {
                let Entry { ino, kind, position } = Entry::decode(&key, &value)?;
                let new = enter(rows, *parent, name, ino, kind)?;
                change(rows, ino, |file| {
                    if (file.parent, file.position) == (*parent, position) {
                        file.position = new;
                    }
                })?;
            }
        }
        Finding::NextPosition { parent, .. } => {
            // The next position goes behind those still in use. A name that claimed a larger
            // position has a new one by now.
            let next = last_position(rows, *parent)?.map_or(Position::FIRST, Position::next);
            change(rows, *parent, |directory| directory.next_position = directory.next_position.max(next))?;
        }
        Finding::Opening { largest, .. } => drop(count_opening(rows, *largest)?),
        Finding::NoName { ino } if *ino == ROOT => {
            let next_position = last_position(rows, ROOT)?.map_or(Position::FIRST, Position::next);
            let root = Attributes { next_position, ..directory(ROOT, Position::START) };
            rows.put(key::inode(ROOT), root.encode());
        }
        Finding::NoName { ino } => move_to_lost_and_found(rows, *ino)?,
        Finding::Links { ino, found, .. } => change(rows, *ino, |file| file.links = *found)?,
        Finding::WrongKind { parent, name, kind, .. } => {
            let key = key::entry(*parent, name);
            if let Some(value) = rows.get(&key)? {
                let entry = Entry { kind: *kind, ..Entry::decode(&key, &value)? };
                rows.put(key, entry.encode());
            }
        }
        Finding::NextFile { largest, .. } => {
            rows.put(key::counter("ino"), (largest + 1).to_le_bytes().to_vec());
        }
        // Accounts are recounted at the end, but that keeps `begun`.
        Finding::Beginning { zone, units, .. } => {
            let key = key::zone(*zone);
            let account = rows.get(&key)?.and_then(|value| Account::decode(&key, &value).ok());
            rows.put(key, Account { begun: *units, ..account.unwrap_or_default() }.encode());
        }
        Finding::Account { .. } | Finding::Blocks { .. } | Finding::Files { .. } => {}
        // Garbage collection moves the data once the file system is mounted.
        Finding::ReadOnlyZone { .. } => {}
        // No row is wrong: the drive refuses changes, or a copy of the superblock on it is damaged.
        Finding::NoChanges { .. } | Finding::Superblock { .. } => {}
        // The data is gone. Reads fail and must not return zeroes.
        Finding::Data { .. } | Finding::Gone { .. } | Finding::NoTarget { .. } => {}
    }
    Ok(())
}

/// Restores a file from its extents, owned by root. Its length is unknown, so one lost block
/// follows its data.
pub(super) fn restore_file(
    rows: &mut Rows,
    ino: u64,
    parent: u64,
    position: Position,
    now: i64,
) -> Result<(), FsError> {
    let end = end_of_last(rows, ino, u64::MAX)?;
    rows.put(key::extent(ino, end), Extent::lost(1).encode());
    let size = end.saturating_add(1).saturating_mul(BLOCK_BYTES.into());
    let file = Attributes { size, ..Attributes::new(FileKind::File, 0o600, parent, position, now) };
    rows.put(key::inode(ino), file.encode());
    Ok(())
}

/// End of the last extent of a file that starts before `block`; 0 without one.
pub(super) fn end_of_last(rows: &Rows, ino: u64, block: u64) -> Result<u64, FsError> {
    let last = rows.last(&key::extent(ino, 0), &key::extent(ino, block))?;
    Ok(last.map_or(0, |(key, value)| {
        let blocks = Extent::decode(&key, &value).map_or(0, |extent| extent.blocks);
        key::extent_parts(&key).1.saturating_add(blocks.into())
    }))
}

/// The extent that contains a block of a file, and the key of its row.
fn extent_at(rows: &Rows, ino: u64, block: u64) -> Result<Option<(Vec<u8>, Extent)>, FsError> {
    let Some((key, value)) = rows.last(&key::extent(ino, 0), &key::extent(ino, block))? else {
        return Ok(None);
    };
    let (_, first) = key::extent_parts(&key);
    let extent = Extent::decode(&key, &value).ok().filter(|extent| block - first < extent.blocks.into());
    Ok(extent.map(|extent| (key, extent)))
}

/// Removes a row that cannot be decoded. If it was an extent, the blocks up to the next extent or
/// the end of the file become lost.
fn drop_damaged_row(rows: &mut Rows, key: &[u8]) -> Result<(), FsError> {
    rows.delete(key.to_vec());
    let (ino, block) = key::extent_parts(key);
    if key != key::extent(ino, block) {
        return Ok(());
    }
    let inode = key::inode(ino);
    let size = rows.get(&inode)?.and_then(|row| Attributes::decode(&inode, &row).ok()).map_or(0, |a| a.size);
    let mut end = size.div_ceil(BLOCK_BYTES.into());
    rows.scan(&key::extent(ino, block.saturating_add(1)), &key::extent(ino, end), |key, _| {
        end = key::extent_parts(key).1;
        ControlFlow::Break(())
    })?;
    let blocks = end.saturating_sub(block).min(EXTENT_BLOCKS_MAX.into()) as u32;
    if blocks > 0 {
        rows.put(key.to_vec(), Extent::lost(blocks).encode());
    }
    Ok(())
}

/// Resolves an overlap of two extents: the first keeps its blocks, and the blocks that only the
/// second has become lost. The rows do not show which of the two is right.
fn resolve_overlap(rows: &mut Rows, ino: u64, block: u64, next: u64) -> Result<(), FsError> {
    let end =
        |at: u64| Ok::<_, FsError>(extent_at(rows, ino, at)?.map_or(at, |(_, e)| at + u64::from(e.blocks)));
    let (from, to) = (end(block)?, end(next)?);
    rows.delete(key::extent(ino, next));
    if from < to && rows.get(&key::extent(ino, from))?.is_none() {
        rows.put(key::extent(ino, from), Extent::lost((to - from) as u32).encode());
    }
    Ok(())
}

fn change(rows: &mut Rows, ino: u64, change: impl FnOnce(&mut Attributes)) -> Result<(), FsError> {
    let key = key::inode(ino);
    if let Some(value) = rows.get(&key)? {
        let mut attributes = Attributes::decode(&key, &value)?;
        change(&mut attributes);
        rows.put(key, attributes.encode());
    }
    Ok(())
}

fn keys(rows: &Rows, from: Vec<u8>, end: Vec<u8>) -> Result<Vec<Vec<u8>>, FsError> {
    let mut keys = Vec::new();
    rows.scan(&from, &end, |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(keys)
}

/// Attributes of `lost+found` or of the root.
pub(crate) fn directory(parent: u64, position: Position) -> Attributes {
    Attributes::new(FileKind::Directory, 0o700, parent, position, 0)
}

/// Deletes a name, and its position if the position refers to that name.
fn remove_entry(rows: &mut Rows, parent: u64, name: &[u8]) -> Result<(), FsError> {
    let key = key::entry(parent, name);
    let entry = rows.get(&key)?.and_then(|value| Entry::decode(&key, &value).ok());
    if let Some(entry) = entry {
        let position = key::position(parent, entry.position);
        if rows.get(&position)?.is_some_and(|its| its == name) {
            rows.delete(position);
        }
    }
    rows.delete(key);
    Ok(())
}

/// Enters a file in a directory at the next position, and returns the position.
fn enter(rows: &mut Rows, parent: u64, name: &[u8], ino: u64, kind: FileKind) -> Result<Position, FsError> {
    let mut position = last_position(rows, parent)?.map_or(Position::FIRST, Position::next);
    if !position.is_of_name() {
        return Err(FsError::Exhausted("no position is left for another name in the directory"));
    }
    change(rows, parent, |directory| {
        // No directory can exhaust its positions, so a row that says so is wrong.
        if directory.next_position.is_of_name() {
            position = position.max(directory.next_position);
        }
        directory.next_position = position.next();
    })?;
    rows.put(key::entry(parent, name), Entry { ino, kind, position }.encode());
    rows.put(key::position(parent, position), name.to_vec());
    Ok(position)
}

/// The last position in use in a directory.
fn last_position(rows: &Rows, directory: u64) -> Result<Option<Position>, FsError> {
    let (from, to) = (key::position(directory, Position::FIRST), key::position(directory, Position::END));
    Ok(rows.last(&from, &to)?.map(|(key, _)| key::position_parts(&key).1))
}

/// Starts a new opening after `least` and all earlier ones, and returns its generation.
fn count_opening(rows: &mut Rows, least: u32) -> Result<u32, FsError> {
    let key = key::counter("sequence");
    let counted = rows.get(&key)?.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes);
    let number = counted.max(u64::from(least) << 32).saturating_add(NUMBERS_SKIPPED);
    // A counter at its end is left alone: with a larger one the file system would not open.
    if number < NUMBERS_END {
        rows.put(key, number.to_le_bytes().to_vec());
    }
    Ok(generation(number))
}

/// Allocates a number for a file made by a repair.
fn take_number(rows: &mut Rows) -> Result<u64, FsError> {
    let next = rows.get(&key::counter("ino"))?;
    let next = next.and_then(|row| row.try_into().ok()).map(u64::from_le_bytes);
    let next = next.filter(|next| *next < FILES_END).unwrap_or(ROOT + 1);
    let taken: Vec<u64> =
        keys(rows, key::inodes().0, key::inodes().1)?.iter().map(|key| key::parts(key).0).collect();
    let number = next.max(taken.last().map_or(ROOT, |largest| largest + 1));
    if number < FILES_END {
        rows.put(key::counter("ino"), (number + 1).to_le_bytes().to_vec());
        return Ok(number);
    }
    // The last possible number is in use. The generation distinguishes the new file from earlier
    // ones of its number.
    let free = (ROOT + 1..FILES_END).find(|number| taken.binary_search(number).is_err());
    free.ok_or(FsError::Exhausted("no number is left for another file"))
}

/// Enters a file without a name in `lost+found`, under its number.
fn move_to_lost_and_found(rows: &mut Rows, ino: u64) -> Result<(), FsError> {
    let key = key::entry(ROOT, FOUND);
    let found = match rows.get(&key)? {
        Some(value) => Entry::decode(&key, &value)?.ino,
        None => {
            let made = take_number(rows)?;
            // An interrupted opening may have allocated the number, so the directory gets its own
            // generation.
            let generation = count_opening(rows, 0)?;
            let born = generation as u16;
            let position = enter(rows, ROOT, FOUND, made, FileKind::Directory)?;
            let found = Attributes { born, generation, ..directory(ROOT, position) };
            rows.put(key::inode(made), found.encode());
            change(rows, ROOT, |root| root.links += 1)?;
            made
        }
    };
    let name = format!("{ino}").into_bytes();
    let inode = key::inode(ino);
    let Some(value) = rows.get(&inode)? else { return Ok(()) };
    let attributes = Attributes::decode(&inode, &value)?;
    let kind = attributes.kind;
    let position = enter(rows, found, &name, ino, kind)?;
    change(rows, ino, |file| {
        (file.parent, file.position) = (found, position);
        file.links = if kind == FileKind::Directory { file.links.max(2) } else { 1 };
    })?;
    if kind == FileKind::Directory {
        change(rows, found, |directory| directory.links += 1)?;
    }
    Ok(())
}

/// Records blocks of a file in a run of their zone. Entries for other blocks of the unit are kept.
fn note_run(rows: &mut Rows, ino: u64, block: u64, blocks: u32) -> Result<(), FsError> {
    // The repair of another finding may have removed the extent.
    let Some((key, extent)) = extent_at(rows, ino, block)?.filter(|(_, extent)| !extent.is_lost()) else {
        return Ok(());
    };
    let (_, first) = key::extent_parts(&key);
    let place = extent.place((block - first) as u32);
    let blocks = blocks.min(u32::from(extent.unit_blocks) - place.index);
    let run_key = key::run(extent.zone, place.unit);
    let old = rows.get(&run_key)?.and_then(|old| Run::decode(&run_key, &old).ok());
    let header = old.as_ref().map_or(0, |run| run.headers[0]);
    let mut unit: Vec<Owner> =
        old.map_or_else(Vec::new, |run| first_unit(rows, extent.zone, place.unit, run));
    let (from, end) = (place.index as usize, (place.index + blocks) as usize);
    unit.resize(unit.len().max(end), NO_OWNER);
    unit[from..end].iter_mut().zip(block..).for_each(|(owner, block)| *owner = (ino, block));
    let run = Run { unit_blocks: unit.len() as u16, headers: vec![header], pieces: pieces(&unit) };
    rows.put(run_key, run.encode());
    Ok(())
}

/// Owner of a block in a unit: file number, and block number in the file.
type Owner = (u64, u64);

/// Owner of a block that belongs to no file.
const NO_OWNER: Owner = (0, 0);

/// Returns the owners of the blocks of a run's first unit, and makes a separate run of the other
/// units.
fn first_unit(rows: &mut Rows, zone: u32, start: u32, run: Run) -> Vec<Owner> {
    let per = u32::from(run.unit_blocks);
    let mut rest = Vec::new();
    let mut unit: Vec<Owner> = Vec::new();
    for RunPiece { ino, block, blocks } in run.pieces {
        let own = blocks.min(per - unit.len() as u32);
        unit.extend((block..).take(own as usize).map(|block| (ino, block)));
        if own < blocks {
            rest.push(RunPiece { ino, block: block + u64::from(own), blocks: blocks - own });
        }
    }
    let next = key::run(zone, start + 1 + per);
    if !rest.is_empty() && rows.get(&next).is_ok_and(|there| there.is_none()) {
        let headers = run.headers[1..].to_vec();
        rows.put(next, Run { unit_blocks: run.unit_blocks, headers, pieces: rest }.encode());
    }
    unit
}

/// Converts the owners of a unit's blocks to pieces.
fn pieces(unit: &[Owner]) -> Vec<RunPiece> {
    let follows = |a: &Owner, b: &Owner| a.0 == b.0 && (*b == NO_OWNER || a.1 + 1 == b.1);
    let piece = |part: &[Owner]| RunPiece { ino: part[0].0, block: part[0].1, blocks: part.len() as u32 };
    unit.chunk_by(follows).map(piece).collect()
}

/// Recounts the blocks of zones and files, and the files.
fn recount(rows: &mut Rows) -> Result<(), FsError> {
    let sequence = rows.get(&key::counter("sequence"))?;
    let sequence = sequence.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes);
    files::put(rows, files::count(rows)?, sequence);
    let (mut zones, mut blocks) = (BTreeMap::new(), BTreeMap::new());
    let (from, end) = key::all_extents();
    rows.scan(&from, &end, |key, value| {
        if let Ok(extent) = Extent::decode(key, value) {
            let used = zones.entry(extent.zone).or_insert(0u32);
            *used = used.saturating_add(extent.blocks);
            *blocks.entry(key::extent_parts(key).0).or_insert(0u64) += u64::from(extent.blocks);
        }
        ControlFlow::Continue(())
    })?;
    recount_files(rows, &blocks)?;
    for key in keys(rows, key::zones().0, key::zones().1)? {
        let zone = key::parts(&key).0 as u32;
        let old = rows.get(&key)?.and_then(|value| Account::decode(&key, &value).ok()).unwrap_or_default();
        rows.put(key, Account { used: zones.remove(&zone).unwrap_or(0), ..old }.encode());
    }
    for (zone, used) in zones {
        rows.put(key::zone(zone), Account { used, ..Account::default() }.encode());
    }
    Ok(())
}

/// Corrects the block counts of files.
fn recount_files(rows: &mut Rows, blocks: &BTreeMap<u64, u64>) -> Result<(), FsError> {
    let mut wrong = Vec::new();
    let (from, end) = key::inodes();
    rows.scan(&from, &end, |key, value| {
        let ino = key::parts(key).0;
        let counted = blocks.get(&ino).copied().unwrap_or(0);
        if let Ok(file) = Attributes::decode(key, value)
            && key == key::inode(ino)
            && file.kind == FileKind::File
            && file.blocks != counted
        {
            wrong.push((ino, counted));
        }
        ControlFlow::Continue(())
    })?;
    wrong.into_iter().try_for_each(|(ino, counted)| change(rows, ino, |file| file.blocks = counted))
}
