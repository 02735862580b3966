//! Changes of file data: writes, truncation, holes.

use super::core::{Core, CoreGuard, Shared};
use super::credit::CallRoom;
use super::error::FsError;
use super::flight::{AppendUnit, Carried, Source};
use super::map::{self, Mapped};
use super::ranges::check_kind;
use super::room::Touched;
use super::seat::Seat;
use super::setattr::{SetIds, note_change_of_data};
use super::space::Placed;
use super::waiting::WaitsFor;
use crate::BLOCK_BYTES;
use crate::format::{Attributes, HEADER_BYTES, SIZE_MAX, crc32c};
use crate::space::open::PlacementRequest;
use crate::waiter::Wait;
use std::ops::Range;
use zonal_io::buffer::IoBuf;
use zonal_io::sums;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Data of a write.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// This many bytes, on a device that keeps none.
    Length(u64),
}

impl Payload<'_> {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::Length(length) => *length,
        }
    }

    /// Returns a part of the payload.
    pub(super) fn part(&self, range: Range<u64>) -> Self {
        match self {
            Payload::Bytes(bytes) => Payload::Bytes(&bytes[range.start as usize..range.end as usize]),
            Payload::Length(_) => Payload::Length(range.end - range.start),
        }
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Old contents of a block that a write changes only in part.
pub(super) type Edge = (u64, Box<[u8]>);

/// Choice of whether data has checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    Wanted,
    None,
}

/// Whole blocks: the bytes of a write, and the old contents of its first and last block.
pub(super) struct Blocks<'a> {
    pub(super) offset: u64,
    pub(super) bytes: &'a [u8],
    pub(super) edges: Vec<Edge>,
}

impl Blocks<'_> {
    /// Fills `into` with the blocks from `first` on, and returns their checksums if `sums` says so.
    ///
    /// The copied bytes are summed in the same pass.
    pub(super) fn fill(&self, first: u64, into: &mut [u8], sums: Sums) -> Vec<u32> {
        let last = first + into.len() as u64 / BLOCK;
        let mut found = Vec::with_capacity(if sums == Sums::Wanted { (last - first) as usize } else { 0 });
        let Range { start, end } = self.whole(first..last);
        let (before, rest) = into.split_at_mut(((start - first) * BLOCK) as usize);
        let (whole, after) = rest.split_at_mut(((end - start) * BLOCK) as usize);
        self.fill_in_parts(first, before, sums, &mut found);
        if !whole.is_empty() {
            let bytes = &self.bytes[(start * BLOCK - self.offset) as usize..][..whole.len()];
            match sums {
                Sums::Wanted => {
                    let before = found.len();
                    found.resize(before + (end - start) as usize, 0);
                    sums::copy_blocks(bytes, whole, &mut found[before..]);
                }
                Sums::None => whole.copy_from_slice(bytes),
            }
        }
        self.fill_in_parts(end, after, sums, &mut found);
        found
    }

    /// Returns the part of `blocks` that is written completely.
    fn whole(&self, blocks: Range<u64>) -> Range<u64> {
        let end = self.offset + self.bytes.len() as u64;
        let start = self.offset.div_ceil(BLOCK).clamp(blocks.start, blocks.end);
        start..(end / BLOCK).clamp(start, blocks.end)
    }

    /// Fills partly written blocks, from `first` on.
    fn fill_in_parts(&self, first: u64, into: &mut [u8], sums: Sums, found: &mut Vec<u32>) {
        for (number, block) in (first..).zip(into.chunks_exact_mut(BLOCK as usize)) {
            self.fill_in_part(number, block);
            if sums == Sums::Wanted {
                found.push(crc32c(block));
            }
        }
    }

    /// Fills a partly written block.
    fn fill_in_part(&self, number: u64, into: &mut [u8]) {
        // Buffers are reused, so unfilled bytes could belong to another file.
        into.fill(0);
        if let Some((_, old)) = self.edges.iter().find(|(block, _)| *block == number) {
            into.copy_from_slice(old);
        }
        let from = number * BLOCK;
        let (start, end) = (self.offset.max(from), (self.offset + self.bytes.len() as u64).min(from + BLOCK));
        into[(start - from) as usize..(end - from) as usize]
            .copy_from_slice(&self.bytes[(start - self.offset) as usize..(end - self.offset) as usize]);
    }
}

/// Right to change a file's data. Other threads wait until it is dropped.
pub(super) struct FileGuard<'a> {
    shared: &'a Shared,
    waiter: &'a dyn Wait,
    ino: u64,
}

/// The core, and the right to change a file's data if it was needed.
pub(super) struct CoreAndFile<'a> {
    pub(super) core: CoreGuard<'a>,
    // Dropped last, because its drop locks the core.
    _held: Option<FileGuard<'a>>,
}

impl<'a> CoreAndFile<'a> {
    pub(super) fn new(core: CoreGuard<'a>, held: Option<FileGuard<'a>>) -> CoreAndFile<'a> {
        CoreAndFile { core, _held: held }
    }
}

impl Drop for FileGuard<'_> {
    fn drop(&mut self) {
        let mut core = self.shared.core.lock();
        if let Some(mut node) = core.nodes.here(self.ino) {
            node.is_held = false;
            node.cut = None;
        }
        core.room.wake_one(|what| what == WaitsFor::Hold(self.ino));
        let gone = core.end_use(self.ino);
        drop(core);
        if let Err(error) = self.shared.end_deletion(self.ino, gone, Some(self.waiter)) {
            self.shared.core.lock().make_read_only(&error);
        }
    }
}

impl Core {
    /// Ends a use of a file. If no operation uses it now, an unnamed file is queued for
    /// [`Shared::end_deletion`], and a named one is dropped from memory. Returns the mark of the queue
    /// if it was queued.
    pub(super) fn end_use(&mut self, ino: u64) -> Option<u64> {
        let is_nameless = self.nodes.here(ino).is_some_and(|node| node.attributes.links == 0);
        if is_nameless && !self.is_used(ino) {
            self.deleted.add_whole(ino);
            return self.deleted.mark();
        }
        self.drop_if_unused(ino);
        None
    }
}

impl Shared {
    /// Waits until no other thread changes the file's data.
    pub(super) fn hold<'a>(&'a self, waiter: &'a dyn Wait, ino: u64) -> Result<FileGuard<'a>, FsError> {
        drop(self.lock_with_file(ino));
        drop(self.lock_when(waiter, WaitsFor::Hold(ino), |core| {
            core.check_writable()?;
            // Checked first, so that a refused file is not loaded into memory.
            check_kind(&core.attributes(ino)?)?;
            let mut node = core.nodes.get(&core.rows, ino)?;
            Ok(!std::mem::replace(&mut node.is_held, true))
        })?);
        Ok(FileGuard { shared: self, waiter, ino })
    }

    /// Writes at `offset` and returns the number of bytes written, which is less than requested
    /// only if space is short.
    pub(super) fn write(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        set_ids: SetIds,
    ) -> Result<u64, FsError> {
        match self.begin_write(waiter, ino, offset, payload, set_ids)? {
            None => Ok(payload.len()),
            Some((_held, is_open)) => self.write_held(waiter, ino, offset, payload, is_open),
        }
    }

    /// Begins a write, and holds the file for the rest of it. Also returns whether the file is
    /// open. `None` if the write is complete.
    pub(super) fn begin_write<'a>(
        &'a self,
        waiter: &'a dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        set_ids: SetIds,
    ) -> Result<Option<(FileGuard<'a>, bool)>, FsError> {
        let length = payload.len();
        if offset.checked_add(length).is_none_or(|end| end > SIZE_MAX) {
            return Err(FsError::TooLarge);
        }
        let change = |file: &mut Attributes| note_change_of_data(file, set_ids, waiter.wall());
        if length > 0 && self.write_without_core(waiter, ino, offset, payload, change)? {
            return Ok(None);
        }
        let held = self.hold(waiter, ino)?;
        if length == 0 {
            return Ok(None);
        }
        let is_open = self.lock().note_write(ino, change)?;
        Ok(Some((held, is_open)))
    }

    /// Writes at `offset` of a held file, after its attributes have been updated for the write.
    pub(super) fn write_held(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        is_open: bool,
    ) -> Result<u64, FsError> {
        let mut room = CallRoom::new(self);
        match is_open {
            true => self.put_open(waiter, ino, offset, payload, &mut room),
            false => {
                self.send_tail(waiter, ino)?;
                self.put(waiter, ino, offset, payload, Touched::Added, &mut room)
            }
        }
    }

    /// Writes at `offset` of a held file with an empty write buffer.
    pub(super) fn put(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        touched: Touched,
        room: &mut CallRoom<'_>,
    ) -> Result<u64, FsError> {
        let end = offset + payload.len();
        let blocks = match (payload, self.has_data()) {
            (Payload::Bytes(bytes), true) => {
                let edges = self.edges(waiter, ino, offset..end)?;
                Some(Blocks { offset, bytes, edges })
            }
            (Payload::Length(_), true) => {
                return Err(FsError::Invalid("the device keeps data, so bytes are required"));
            }
            (_, false) => None,
        };
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let mut block = first;
        while block < last {
            let unit = self.admit(waiter, touched);
            let unit =
                unit.and_then(|()| self.put_unit(waiter, ino, block..last, end, blocks.as_ref(), room));
            match unit {
                Ok(written) => block += u64::from(written),
                Err(error) if error.is_no_space() && block > first => return Ok(block * BLOCK - offset),
                Err(error) => return Err(error),
            }
        }
        Ok(payload.len())
    }

    /// Sends one unit with as many of the blocks `range` as possible, and returns their number.
    fn put_unit(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        range: Range<u64>,
        end: u64,
        blocks: Option<&Blocks<'_>>,
        room: &mut CallRoom<'_>,
    ) -> Result<u32, FsError> {
        let (append, first) = self.place_unit(waiter, ino, range, end, room)?;
        let taken = append.blocks();
        let wanted = if self.superblock.is_summed { Sums::Wanted } else { Sums::None };
        let mut sums = Vec::new();
        let buf = self.buffer(|data| {
            let blocks = blocks.expect("a device that keeps data is given some");
            sums = blocks.fill(first, &mut data[..(u64::from(taken) * BLOCK) as usize], wanted);
        });
        self.send_with_sums(waiter, append, buf, sums);
        Ok(taken)
    }

    /// Places a unit with as many of the blocks `range` as possible. Returns the unit, to be sent
    /// by the caller, and its first block.
    pub(super) fn place_unit(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        range: Range<u64>,
        end: u64,
        room: &mut CallRoom<'_>,
    ) -> Result<(AppendUnit, u64), FsError> {
        let rest = range.end - range.start;
        let mut grant = room.take(waiter, rest.min(u64::from(self.unit_blocks() - 1)), rest)?;
        // Less may have been granted if space is short.
        let wanted = grant.left().extents as u32;
        let placed = self.place(waiter, ino, wanted);
        let (mut core, placed) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                self.core.lock().space.lock().credit.give_back(grant);
                return Err(error);
            }
        };
        let Placed { opened, blocks: taken } = placed;
        core.space.lock().spend_on_unit(&mut grant, taken)?;
        room.put_back(grant);
        let part = range.start..range.start + u64::from(taken);
        let number = core.begin_write(ino, &part, end)?;
        core.cache_zone(ino, opened)?;
        let carried = Carried { ino, block: part.start, blocks: taken, number, source: Source::Write };
        Ok((AppendUnit::new(opened.zone, vec![carried]), part.start))
    }

    /// Places a unit of a file, once few enough bytes are dirty and no other file has the turn.
    pub(super) fn place(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        blocks: u32,
    ) -> Result<(CoreGuard<'_>, Placed), FsError> {
        self.place_by(waiter, ino, |core| core.placement_request(self, ino), blocks)
    }

    /// Like [`Shared::place`], for data with the given `request`.
    pub(super) fn place_by(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        request: impl Fn(&mut Core) -> Result<PlacementRequest, FsError>,
        blocks: u32,
    ) -> Result<(CoreGuard<'_>, Placed), FsError> {
        let placed = self.place_in_turn(waiter, ino, request, blocks);
        if placed.is_err() {
            self.core.lock().turns.leave(ino);
        }
        placed
    }

    fn place_in_turn(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        request: impl Fn(&mut Core) -> Result<PlacementRequest, FsError>,
        blocks: u32,
    ) -> Result<(CoreGuard<'_>, Placed), FsError> {
        let needs_turn = blocks + 1 >= self.unit_blocks();
        let mut seat = Seat::new(self, waiter, WaitsFor::Room(needs_turn.then_some(ino)));
        loop {
            let mut core = self.lock();
            core.check_writable()?;
            let has_room = core.has_room(self);
            let is_clear = if needs_turn { core.turns.may_send(ino, has_room) } else { has_room };
            if is_clear {
                let request = request(&mut core)?;
                if let Some(placed) = core.place(request, blocks)? {
                    core.turns.sends(ino, placed.blocks.into());
                    // This thread was notified of room for one unit; there may be more.
                    core.notify_room(self);
                    seat.leave(&mut core);
                    return Ok((core, placed));
                }
                // Zones covered by the reservation were lost.
                if core.is_stuck() {
                    return Err(FsError::NoSpace);
                }
            }
            if !is_clear || !seat.should_step(&core) {
                seat.wait(core);
                continue;
            }
            seat.step_out(core);
            self.resend(waiter);
            if !self.find_room(waiter)? {
                seat.found_no_step();
            }
        }
    }

    /// Takes a buffer for a unit and fills it with data, unless the device keeps none.
    pub(super) fn buffer(&self, fill: impl FnOnce(&mut [u8])) -> IoBuf {
        let mut buf = self.pool.take();
        if self.has_data() {
            fill(&mut buf[HEADER_BYTES..]);
        }
        buf
    }

    /// Reads the first and last block of a write if it changes only a part of them.
    pub(super) fn edges(&self, waiter: &dyn Wait, ino: u64, range: Range<u64>) -> Result<Vec<Edge>, FsError> {
        let size = self.lock().attributes(ino)?.size;
        let mut edges: Vec<Edge> = Vec::new();
        let (first, last) = (range.start / BLOCK, (range.end - 1) / BLOCK);
        let is_partial = |block: u64| {
            let whole = block * BLOCK..(block + 1) * BLOCK;
            whole.start < size && (range.start > whole.start || range.end < whole.end.min(size))
        };
        for block in [first, last] {
            if is_partial(block) && edges.last().is_none_or(|(b, _)| *b != block) {
                edges.push((block, self.read_block(waiter, ino, block)?));
            }
        }
        Ok(edges)
    }

    /// Sets the file size. `change` makes further changes atomically; its argument is true if the
    /// size differs. Returns the new attributes.
    pub(super) fn resize(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        size: u64,
        change: impl FnOnce(&mut Attributes, bool),
    ) -> Result<Attributes, FsError> {
        if size > SIZE_MAX {
            return Err(FsError::TooLarge);
        }
        self.admit(waiter, Touched::Changed)?;
        let _held = self.hold(waiter, ino)?;
        self.send_tail(waiter, ino)?;
        // The block at the new end is zeroed before the size changes, and the header of that write
        // must contain the new size.
        if let Some(mut node) = self.lock().nodes.here(ino) {
            node.cut = Some(size);
        }
        let cut = self.clear_ends(waiter, ino, size..u64::MAX)?;
        let mut changed = {
            let mut core = self.lock_file_when(waiter, ino, |core| core.is_at_rest(ino))?;
            if let Some(mut node) = core.nodes.here(ino) {
                node.size = size;
            }
            core.update(ino, |file| {
                let is_other = file.size != size;
                if cut.is_empty() {
                    file.size = size;
                }
                change(file, is_other);
                Attributes { size, ..*file }
            })?
        };
        // The row gets the new size once the blocks are free.
        self.free_blocks(waiter, ino, &cut, Some(size))?;
        if !cut.is_empty() {
            changed.blocks = self.lock().attributes(ino)?.blocks;
        }
        Ok(changed)
    }

    /// Zeroes a range of a file. `change` updates the attributes, given the cleared range.
    pub(super) fn clear_range(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        range: Range<u64>,
        change: impl FnOnce(&mut Attributes, &Range<u64>),
    ) -> Result<(), FsError> {
        // A hole splits an extent in two.
        self.admit(waiter, Touched::Added)?;
        let _held = self.hold(waiter, ino)?;
        self.send_tail(waiter, ino)?;
        self.clear(waiter, ino, range.clone())?;
        let mut core = self.lock_file_when(waiter, ino, |core| core.is_at_rest(ino))?;
        let size = core.update(ino, |file| {
            change(file, &range);
            file.size
        })?;
        if let Some(mut node) = core.nodes.here(ino) {
            node.size = size;
        }
        Ok(())
    }

    /// Zeroes the blocks at the edges of `range`, and frees the blocks between.
    fn clear(&self, waiter: &dyn Wait, ino: u64, range: Range<u64>) -> Result<(), FsError> {
        let whole = self.clear_ends(waiter, ino, range)?;
        self.free_blocks(waiter, ino, &whole, None)
    }

    /// Zeroes the blocks at the edges of `range`, and returns the blocks between, which are to be
    /// freed. The zeroes are on the drive on return, so a later extension never exposes old data.
    /// Without space for them, nothing is changed.
    fn clear_ends(&self, waiter: &dyn Wait, ino: u64, range: Range<u64>) -> Result<Range<u64>, FsError> {
        let size = self.lock_file_when(waiter, ino, |core| core.is_at_rest(ino))?.attributes(ino)?.size;
        let range = range.start..range.end.min(size);
        if range.start >= range.end {
            return Ok(0..0);
        }
        let whole = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        // The last block of the file counts as whole: the rest of it is zero already.
        let whole = whole.start..if range.end == size { range.end.div_ceil(BLOCK) } else { whole.end };
        let edges = if self.has_data() { self.edges_to_clear(ino, &range, &whole)? } else { Vec::new() };
        if !edges.is_empty() {
            let mut room = CallRoom::new(self);
            room.take_for_edges(waiter, (ino, &whole), edges.len() as u64)?;
            self.clear_edges_for_good(waiter, ino, edges, &mut room)?;
        }
        Ok(whole)
    }

    /// Returns the parts of `range` in blocks that are not `whole`, unless they are holes.
    fn edges_to_clear(
        &self,
        ino: u64,
        range: &Range<u64>,
        whole: &Range<u64>,
    ) -> Result<Vec<Range<u64>>, FsError> {
        let (front, back) = match whole.start <= whole.end {
            true => (range.start..whole.start * BLOCK, (whole.end * BLOCK).min(range.end)..range.end),
            // The whole range is in one block.
            false => (range.clone(), range.end..range.end),
        };
        let mut edges = Vec::new();
        for edge in [front.start..front.end.min(range.end), back] {
            let block = edge.start / BLOCK;
            // Lost blocks are left alone, since they cannot be read either way.
            let is_mapped = |found: Vec<Mapped>| found.iter().any(|mapped| !mapped.extent.is_lost());
            if !edge.is_empty() && is_mapped(map::extents(&self.reader, ino, &(block..block + 1))?) {
                edges.push(edge);
            }
        }
        Ok(edges)
    }

    /// Clears the edges. If the zeroes are lost, returns an error and leaves the old data visible.
    fn clear_edges_for_good(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        edges: Vec<Range<u64>>,
        room: &mut CallRoom<'_>,
    ) -> Result<(), FsError> {
        // A sync may report the loss at the same time. The file is held, and only the zeroes are in
        // flight.
        let losses = || self.lock().nodes.here(ino).and_then(|node| node.losses);
        let before = losses();
        self.clear_edges(waiter, ino, edges, room)?;
        let after = losses();
        match after {
            Some((_, why)) if after != before => Err(FsError::Write { ino, why }),
            _ => Ok(()),
        }
    }

    fn clear_edges(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        edges: Vec<Range<u64>>,
        room: &mut CallRoom<'_>,
    ) -> Result<(), FsError> {
        for edge in edges {
            let zeroes = vec![0; (edge.end - edge.start) as usize];
            let size = self.lock().attributes(ino)?.size;
            debug_assert!(edge.end <= size);
            // A truncation is never refused for lack of space for rows.
            self.put(waiter, ino, edge.start, Payload::Bytes(&zeroes), Touched::Changed, room)?;
        }
        drop(self.lock_file_when(waiter, ino, |core| core.is_at_rest(ino))?);
        Ok(())
    }
}

impl Core {
    /// Notes that blocks of a file are about to be sent, and returns the number of the write.
    pub(super) fn begin_write(&mut self, ino: u64, part: &Range<u64>, end: u64) -> Result<u64, FsError> {
        let number = self.next_number();
        let mut node = self.nodes.get(&self.rows, ino)?;
        let over = node.dirty.take(part, number);
        node.in_flight.begin(number, over);
        node.size = node.size.max(end.min(part.end * BLOCK));
        Ok(number)
    }

    /// True if nothing of a file is in flight or about to be.
    pub(super) fn is_at_rest(&mut self, ino: u64) -> Result<bool, FsError> {
        let is_at_rest = self
            .nodes
            .here(ino)
            .is_none_or(|node| node.in_flight.is_empty() && !node.write_buffer.is_taken());
        // On a file system that refuses changes, this may never become true.
        if is_at_rest { Ok(true) } else { self.check_writable().map(|()| false) }
    }
}
