//! Appends of units: placement, submission, completion, and resubmission if a zone fails.
//!
//! # Life of a unit
//! A thread places the unit under the lock, by allocating blocks of a zone, and submits it without
//! the lock. The completion function queues the answer. The next thread that locks the core
//! processes it, and only then do files have the data. A failed unit loses only its place: its zone
//! is closed, and the unit goes to another one.

use super::core::{Core, Shared, UnitAnswer};
use super::error::{FsError, Lost};
use super::lost_zones::lost_by;
use super::map::{self, Mapped};
use super::names::name_at;
use super::node::NodeGuard;
use super::space::Placed;
use super::waiting::WaitsFor;
use crate::format::{Extent, HEADER_BYTES, Header, Position, Record, RunPiece, UnitPlace};
use crate::space::cost::Need;
use crate::space::open::{Packing, PlacementRequest};
use crate::space::zone::Pin;
use crate::space::{Lifetime, Opened};
use crate::waiter::Wait;
use crate::{BLOCK_BYTES, BLOCK_SECTORS};
use zonal_core::{DeviceError, RequestError, ZoneError, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Output;
use zonal_io::sums;
use zonal_io::volume::Request;

/// Number of zones in which a unit is tried before its data is lost.
const TRIES_MAX: u32 = 8;

/// Pieces of a unit that are mapped in one step. Readers of rows wait meanwhile.
const PIECES_AT_ONCE: usize = 32;

/// Origin of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// New data.
    Write,
    /// Copied from this extent.
    Copy(Extent),
}

/// A piece of a file in a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Carried {
    pub(super) ino: u64,
    pub(super) block: u64,
    pub(super) blocks: u32,
    /// For a write, its number; for a copy, the version of its data. See [`number`](super::number).
    pub(super) number: u64,
    pub(super) source: Source,
}

impl Carried {
    pub(super) fn end(&self) -> u64 {
        self.block + u64::from(self.blocks)
    }
}

/// Unit in flight or to be resubmitted.
#[derive(Debug)]
pub(super) struct AppendUnit {
    pub(super) zone: ZoneIndex,
    pub(super) carried: Vec<Carried>,
    /// Checksum of the header, once the unit has been sent; 0 if the device keeps no data.
    pub(super) header: u32,
    /// Number of zones tried.
    tries: u32,
    /// Why the last of them failed, if one did.
    error: Option<RequestError>,
    /// The thread that sends the unit waits for it next.
    pub(super) is_awaited: bool,
}

impl AppendUnit {
    pub(super) fn new(zone: ZoneIndex, carried: Vec<Carried>) -> AppendUnit {
        AppendUnit { zone, carried, header: 0, tries: 1, error: None, is_awaited: false }
    }

    /// Number of data blocks.
    pub(super) fn blocks(&self) -> u32 {
        self.carried.iter().map(|carried| carried.blocks).sum()
    }
}

impl Core {
    /// Allocates a user unit of up to `blocks` data blocks; `None` if the caller has to wait.
    pub(super) fn place(
        &mut self,
        request: PlacementRequest,
        blocks: u32,
    ) -> Result<Option<Placed>, FsError> {
        let placed = self.space.lock().place(request, blocks)?;
        if let Some(placed) = placed {
            self.units.lock().placed(placed.blocks + 1);
        }
        Ok(placed)
    }

    /// Placement of the next data of a file.
    pub(super) fn placement_request(
        &mut self,
        shared: &Shared,
        ino: u64,
    ) -> Result<PlacementRequest, FsError> {
        drop(self.nodes.get(&self.rows, ino)?);
        let hint = self.hint_of(shared, ino);
        let node = self.nodes.get(&self.rows, ino)?;
        let zone_bytes = shared.superblock.capacity_sectors * 512;
        // An unnamed file has a handle only to stay alive.
        let is_at_work = node.handles > 0 && node.attributes.links > 0;
        let is_done = !is_at_work && node.size < zone_bytes;
        let packing = if is_done { Packing::Tight } else { Packing::Spread };
        Ok(PlacementRequest::User { cached: node.zone, hint, packing })
    }

    /// Directs the file's next data to the zone of its last.
    pub(super) fn cache_zone(&mut self, ino: u64, opened: Opened) -> Result<(), FsError> {
        let mut node = self.nodes.get(&self.rows, ino)?;
        if node.zone != Some(opened) {
            let mut space = self.space.lock();
            if let Some(left) = node.zone.replace(opened) {
                space.open.leave(left);
            }
            space.open.join(opened);
        }
        Ok(())
    }

    /// Header of a unit that is about to be sent, with these checksums, and the locations of the
    /// files' names. The paths are filled in later.
    fn header(&mut self, shared: &Shared, append: &AppendUnit, sums: Vec<u32>) -> (Header, Vec<NamedAt>) {
        let (uuid, zone, since) = (shared.superblock.uuid, append.zone.0, self.since);
        let sequence = self.next_number();
        let begun = shared.begun.begin(zone, sequence);
        let (mut records, mut named) = (Vec::new(), Vec::new());
        for carried in &append.carried {
            let Carried { ino, block, blocks, number, .. } = *carried;
            // The file was deleted while its data was buffered. A rebuild finds a record of a
            // nonexistent file.
            let Ok(file) = self.attributes(ino) else {
                records.push(Record { ino, born: self.opening(), block, blocks, size: 0, number });
                named.push(NamedAt::Nowhere);
                continue;
            };
            let node = self.nodes.here(ino);
            let cut = node.as_ref().and_then(|node| node.cut).unwrap_or(u64::MAX);
            let announced = node.and_then(|node| node.announced.clone());
            records.push(Record { ino, born: file.born, block, blocks, size: file.size.min(cut), number });
            let place = NamedAt::Place(file.parent, file.position);
            named.push(announced.map_or(place, NamedAt::Announced));
        }
        (Header { uuid, sequence, since, zone, begun, records, sums, paths: Vec::new() }, named)
    }
}

/// Location of a file's name.
#[derive(Debug)]
enum NamedAt {
    Nowhere,
    Announced(Vec<u8>),
    /// Directory and position.
    Place(u64, Position),
}

impl Shared {
    /// Returns the paths of the files of a unit, which help a rebuild. They are read without the
    /// lock; a concurrent rename counts as earlier.
    fn paths(&self, named: Vec<NamedAt>) -> Vec<Vec<u8>> {
        // Files of one unit are often in one directory, and pieces of one file are adjacent.
        let mut parent: (u64, Option<Vec<u8>>) = (u64::MAX, None);
        let mut last: Option<(u64, Position)> = None;
        let mut last_path = None;
        let mut path_of = |place: (u64, Position)| {
            if last.replace(place) != Some(place) {
                let (directory, position) = place;
                if parent.0 != directory {
                    parent = (directory, self.path(directory));
                }
                let name = || name_at(&self.reader, directory, position);
                last_path = parent.1.as_ref().and_then(|parent| Some(join(parent, &name()?)));
            }
            last_path.clone()
        };
        let path = |named| match named {
            NamedAt::Nowhere => Vec::new(),
            NamedAt::Announced(path) => path,
            NamedAt::Place(directory, position) => path_of((directory, position)).unwrap_or_default(),
        };
        named.into_iter().map(path).collect()
    }

    /// Prefetches the rows that the completion of a unit changes.
    fn prefetch_completion(&self, append: &AppendUnit) {
        let mut last = None;
        for carried in &append.carried {
            match carried.source {
                Source::Write => {
                    if last.is_none_or(|(ino, _)| ino != carried.ino) {
                        last = Some((carried.ino, self.has_map_in_memory(carried.ino)));
                    }
                    if last.is_some_and(|(_, is_in_memory)| !is_in_memory) {
                        self.prefetch_map(carried.ino, &(carried.block..carried.end()));
                    }
                }
                // Garbage collection has prefetched the map.
                Source::Copy(_) => self.prefetch_file(carried.ino),
            }
        }
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

impl Shared {
    /// Sends a unit with its data in `buf`, after space for the header. The bytes are ignored if
    /// the device keeps no data.
    pub(super) fn send(&self, waiter: &dyn Wait, append: AppendUnit, buf: IoBuf) {
        let mut sums = Vec::new();
        if self.has_data() && self.superblock.is_summed {
            let data = &buf[HEADER_BYTES..][..(append.blocks() * BLOCK_BYTES) as usize];
            sums.resize(append.blocks() as usize, 0);
            sums::of_blocks(data, &mut sums);
        }
        self.send_with_sums(waiter, append, buf, sums);
    }

    /// Sends a unit with these checksums of its data.
    pub(super) fn send_with_sums(
        &self,
        waiter: &dyn Wait,
        mut append: AppendUnit,
        mut buf: IoBuf,
        sums: Vec<u32>,
    ) {
        // A number used in a header must never be reused, not even after a crash.
        self.settle_numbers(waiter);
        let blocks = append.blocks();
        let zone = append.zone;
        let is_awaited = std::mem::take(&mut append.is_awaited);
        self.prefetch_completion(&append);
        let (token, header) = {
            let mut core = self.core.lock();
            let header = self.has_data().then(|| core.header(self, &append, sums));
            (self.units.lock().send(append), header)
        };
        if let Some((header, named)) = header {
            let checksum = Header { paths: self.paths(named), ..header }.encode(&mut buf);
            self.units.lock().note_header(token, checksum);
        }
        let mut request =
            Request::append(self.start_of(zone), (blocks + 1) * BLOCK_SECTORS, buf).token(token);
        if is_awaited {
            request = self.drive.awaited(waiter, request);
        }
        self.submit(waiter.now(), request);
    }

    /// Processes the answer of a unit.
    pub(super) fn take_answer(&self, core: &mut Core, answer: UnitAnswer) -> Result<(), FsError> {
        let UnitAnswer { token, result, buf } = answer;
        let append = self.units.lock().answered(token);
        let blocks = append.blocks() + 1;
        match result {
            Ok(Output::Appended(at)) => {
                let start = self.start_of(append.zone);
                let unit = at.0.wrapping_sub(start.0);
                let capacity = self.space.lock().book.zone(append.zone)?.capacity;
                let (unit, rest) = (unit / u64::from(BLOCK_SECTORS), unit % u64::from(BLOCK_SECTORS));
                if unit + u64::from(blocks) > u64::from(capacity) {
                    return Err(FsError::Account(format!("an append to zone {} went to {at}", append.zone)));
                }
                match rest {
                    0 => core.arrived(&append, unit as u32)?,
                    // Follows a unit torn within a block: no extent can express this location.
                    _ => core.failed(append, buf, DeviceError::Zone(ZoneError::InvalidWrite).into())?,
                }
            }
            Ok(other) => unreachable!("an append was answered with {other:?}"),
            Err(error) => core.failed(append, buf, error)?,
        }
        Ok(())
    }

    /// Resubmits failed units to other zones, and finishes zones that were closed early. A unit
    /// that finds no zone waits for one, or is lost if none will become free.
    pub(super) fn resend(&self, waiter: &dyn Wait) {
        self.finish_closed(waiter);
        loop {
            let mut core = self.core.lock();
            let Some((mut append, buf)) = self.units.lock().next_failed() else { return };
            if core.read_only.is_some() || core.has_no_use(&append) {
                core.give_up(&append, append.error.map_or(Lost::NoZone, Lost::Request));
                continue;
            }
            let request = match append.is_copy() {
                true => Ok(PlacementRequest::Gc),
                // Some of its files may have been deleted.
                false => match append.carried.iter().find(|carried| core.nodes.here(carried.ino).is_some()) {
                    Some(carried) => core.placement_request(self, carried.ino),
                    None => Ok(PlacementRequest::of_many(Lifetime::NotSet)),
                },
            };
            let blocks = append.blocks();
            let placed = request.and_then(|request| core.place_whole(request, blocks));
            match placed {
                Ok(Some(placed)) => {
                    append.zone = placed.opened.zone;
                    drop(core);
                    self.send(waiter, append, buf);
                }
                Ok(None) if core.is_stuck() => core.give_up(&append, Lost::NoZone),
                Ok(None) => {
                    self.units.lock().wait_for_zone(append, buf);
                    drop(core);
                    // Possibly no other thread frees zones. An error is recorded in the core.
                    let _ = self.find_room(waiter);
                    return;
                }
                Err(error) => core.make_read_only(&error),
            }
        }
    }
}

impl Core {
    /// Like [`Core::place`], for all `blocks` in one unit, which may consist of copies.
    fn place_whole(&mut self, request: PlacementRequest, blocks: u32) -> Result<Option<Placed>, FsError> {
        let placed = self.space.lock().place_whole(request, blocks)?;
        if placed.is_some() && request != PlacementRequest::Gc {
            self.units.lock().placed(blocks + 1);
        }
        Ok(placed)
    }

    /// Processes a unit that was written at block `unit` of its zone.
    fn arrived(&mut self, append: &AppendUnit, unit: u32) -> Result<(), FsError> {
        let zone = append.zone;
        let whole = Extent {
            zone: zone.0,
            unit,
            unit_blocks: append.blocks() as u16,
            skip: 0,
            blocks: append.blocks(),
        };
        let (mut overwritten, mut left) = (Vec::new(), Vec::new());
        let (mut live, mut skip, mut before) = (0, 0, None);
        for some in append.carried.chunks(PIECES_AT_ONCE) {
            for carried in some {
                let extent = whole.part(skip..skip + carried.blocks);
                skip += carried.blocks;
                let there = Mapped { block: carried.block, extent };
                live += match carried.source {
                    Source::Write => self.written(carried, &there, &mut before, &mut overwritten)?,
                    Source::Copy(from) => self.copied(carried, &from, &there, &mut before, &mut left)?,
                };
            }
            // The data must be in the map that readers see before it is removed from the file's
            // writes in flight.
            self.rows.publish();
            some.iter()
                .filter(|carried| carried.source == Source::Write)
                .for_each(|carried| self.ends(carried));
        }
        self.space.lock().unit_ended(zone, append.blocks() + 1, live)?;
        for freed in overwritten {
            self.give_back(freed)?;
        }
        let number = self.rows.number();
        let mut space = self.space.lock();
        for freed in left {
            // Blocks moved out of a lost zone take new space without freeing any.
            if !space.free(freed, number)? {
                space.credit.lost(Need { extents: freed.blocks.into(), available: 0 });
                space.credit.refill();
            }
        }
        let ended = space.take_ended();
        drop(space);
        ended.into_iter().for_each(|zone| self.tails.forget(zone.0));
        let pieces = append.carried.iter().map(|c| RunPiece { ino: c.ino, block: c.block, blocks: c.blocks });
        self.tails.note(&mut self.rows, zone.0, unit, append.header, pieces.collect());
        let (blocks, checksum) = (append.blocks(), append.header);
        self.unflushed.add(UnitPlace { zone: zone.0, block: unit, blocks, checksum });
        Ok(self.space.lock().update_state(zone)?)
    }

    /// Maps new data of a file. Returns the number of live blocks, those not replaced by a later
    /// write. `before` is as for [`map`](map::map).
    fn written(
        &mut self,
        carried: &Carried,
        there: &Mapped,
        before: &mut Option<(u64, u64)>,
        overwritten: &mut Vec<map::Freed>,
    ) -> Result<u32, FsError> {
        let ino = carried.ino;
        // The file was deleted.
        let Some(node) = self.nodes.here(ino) else {
            self.freed(carried.blocks.into());
            return Ok(0);
        };
        let own = node.dirty.own(&(carried.block..carried.end()), carried.number);
        self.statistics.written_blocks += u64::from(carried.blocks);
        let (mut live, mut gone) = (0, 0);
        // There is nothing to overwrite beyond the end of the file, so skip the lookup.
        let mut end = node.attributes.size.div_ceil(u64::from(BLOCK_BYTES));
        drop(node);
        let grown = own.last().map_or(0, |part| part.end);
        for part in own {
            if part.start < end {
                let unmapped = map::unmap(&mut self.rows, ino, &part)?;
                gone += unmapped.blocks;
                overwritten.extend(unmapped.freed);
            }
            end = end.max(part.end);
            let mapped = there.within(&part).expect("it is part of it");
            map::map(&mut self.rows, ino, part.start, mapped.extent, before)?;
            self.unlog(ino, &part);
            live += mapped.extent.blocks;
        }
        self.grow(ino, grown, gone, live.into())?;
        self.freed(u64::from(carried.blocks - live));
        Ok(live)
    }

    /// Ends a write that is visible in the map of readers.
    fn ends(&mut self, carried: &Carried) {
        let ino = carried.ino;
        if let Some(mut node) = self.nodes.here(ino) {
            node.dirty.end(&(carried.block..carried.end()), carried.number);
            node.in_flight.end(carried.number);
        }
        self.room.wake_all(|what| what == WaitsFor::File(ino));
        self.at_rest(ino);
        self.drop_if_unused(ino);
    }

    /// Updates the row of a file for completed writes: bytes up to the block `end`, and the blocks
    /// removed and added. Overwriting existing blocks changes neither size nor count.
    fn grow(&mut self, ino: u64, end: u64, gone: u64, came: u64) -> Result<(), FsError> {
        let Some(node) = self.nodes.here(ino) else { return Ok(()) };
        let size = node.size.min(end.saturating_mul(u64::from(BLOCK_BYTES)));
        let is_other = size > node.attributes.size || node.is_ahead_of_row;
        drop(node);
        if is_other || gone != came {
            self.update(ino, |attributes| {
                attributes.size = attributes.size.max(size);
                attributes.count_blocks(gone, came);
            })?;
        }
        Ok(())
    }

    /// Maps a copy. Returns the number of live blocks, those that the file still has at the source.
    /// `before` is as for [`map`](map::map).
    fn copied(
        &mut self,
        carried: &Carried,
        from: &Extent,
        there: &Mapped,
        before: &mut Option<(u64, u64)>,
        left: &mut Vec<map::Freed>,
    ) -> Result<u32, FsError> {
        self.space.lock().book.unpin(ZoneIndex(from.zone), Pin::Copy)?;
        let source = Mapped { block: carried.block, extent: *from };
        let mut live = 0;
        for held in map::held(&self.rows, carried.ino, &source)? {
            let part = held.block..held.end();
            // Every removed block is replaced, so the file's block count is unchanged.
            left.extend(map::unmap(&mut self.rows, carried.ino, &part)?.freed);
            let extent = there.within(&part).expect("it is part of it").extent;
            map::map(&mut self.rows, carried.ino, part.start, extent, before)?;
            live += extent.blocks;
        }
        self.statistics.gc_skipped_blocks += u64::from(carried.blocks - live);
        Ok(live)
    }

    /// Closes the zone of a failed unit and schedules the unit for another zone. If the drive is gone,
    /// its data is lost.
    fn failed(&mut self, mut append: AppendUnit, buf: IoBuf, error: RequestError) -> Result<(), FsError> {
        let zone = append.zone;
        self.space.lock().unit_ended(zone, append.blocks() + 1, 0)?;
        self.statistics.failed_units += 1;
        if let Some(how) = lost_by(&error) {
            self.lose_zone(zone, how)?;
        }
        self.space.lock().close(zone)?;
        // It would fail in each of the other zones.
        let is_gone = error.as_device() == DeviceError::Gone;
        if is_gone {
            self.make_read_only_because(error.to_string());
        }
        append.tries += 1;
        append.error = Some(error);
        if append.tries <= TRIES_MAX && !is_gone {
            self.units.lock().wait_for_zone(append, buf);
            return Ok(());
        }
        self.give_up(&append, Lost::Request(error));
        Ok(())
    }

    /// True if a unit that finds no zone now never will.
    pub(super) fn is_stuck(&self) -> bool {
        self.units.lock().is_empty()
            && !self.space.lock().has_closed()
            && !self.is_step_running
            && self.collection.is_none()
            && !self.is_reclaimable()
    }

    /// True if a unit of new data belongs to deleted files only.
    fn has_no_use(&mut self, append: &AppendUnit) -> bool {
        !append.is_copy() && append.carried.iter().all(|carried| self.nodes.here(carried.ino).is_none())
    }

    /// Gives up a unit without writing its data.
    pub(super) fn give_up(&mut self, append: &AppendUnit, why: Lost) {
        for carried in &append.carried {
            match carried.source {
                Source::Write => self.lost(carried, why),
                Source::Copy(from) => {
                    let unpinned = self.space.lock().book.unpin(ZoneIndex(from.zone), Pin::Copy);
                    if let Err(error) = unpinned {
                        self.make_read_only(&error.into());
                    }
                }
            }
        }
    }

    /// Records lost data and releases its space.
    fn lost(&mut self, carried: &Carried, why: Lost) {
        self.freed(carried.blocks.into());
        self.lose(carried, why);
    }

    /// Records lost data, to be reported by the next sync of the file.
    pub(super) fn lose(&mut self, carried: &Carried, why: Lost) {
        let range = carried.block..carried.end();
        let own = |node: NodeGuard<'_>| node.dirty.own(&range, carried.number);
        let lost = self.nodes.here(carried.ino).map(own).unwrap_or_default();
        // Before a reader without the core finds the blocks clean.
        self.keep_logged_tail(carried.ino, &lost, why);
        if let Some(mut node) = self.nodes.here(carried.ino) {
            node.dirty.end(&range, carried.number);
            node.in_flight.end(carried.number);
            node.lose(why);
            self.lost.get_or_insert((carried.ino, why));
        }
        self.room.wake_all(|what| what == WaitsFor::File(carried.ino));
        self.at_rest(carried.ino);
    }

    /// Resets the size of a file with nothing in flight to that of its row, because lost data may
    /// have been its end.
    pub(super) fn at_rest(&mut self, ino: u64) {
        let is_at_rest = |node: &NodeGuard<'_>| node.in_flight.is_empty() && node.write_buffer.is_nothing();
        if let Some(mut node) = self.nodes.here(ino).filter(is_at_rest) {
            node.size = node.attributes.size;
        }
    }

    /// Drops a file from memory if no operation uses it.
    pub(super) fn drop_if_unused(&mut self, ino: u64) {
        if self.nodes.is_idle(ino) {
            self.complete_row(ino);
            // From now on, readers read the file's row.
            self.rows.publish();
            let zone = self.nodes.remove(ino).and_then(|node| node.zone);
            zone.into_iter().for_each(|zone| self.space.lock().open.leave(zone));
        }
    }
}
