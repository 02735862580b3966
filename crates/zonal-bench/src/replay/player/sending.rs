//! Requests of a record, and their places.

use super::{Flow, Layout, Player, Purpose, Sent, Task, TaskStage};
use crate::replay::as_is::Misfit;
use crate::replay::buffers::stamp;
use crate::replay::error::ReplayError;
use crate::replay::log::{Extent, Log};
use crate::replay::trace::{Record, TraceOp};
use zonal_core::{Op, SECTOR_BYTES, Sector, Sectors};
use zonal_io::buffer::IoBuf;
use zonal_io::volume::Request;

/// Maximum size of a request in sectors: 16 MiB. Longer records are split, which bounds the
/// buffers.
const REQUEST_SECTORS_MAX: u64 = 32_768;

impl Player<'_> {
    fn log(&mut self) -> &mut Log {
        match &mut self.layout {
            Layout::Log(log) => log,
            Layout::AsIs(_) => unreachable!("only records on a log come here"),
        }
    }

    fn block_sectors(&self) -> u64 {
        self.volume.info().block_sectors.into()
    }

    /// Converts the address of a record to the device, or to the disk on the log.
    pub(super) fn fold(&self, record: &Record) -> Result<Record, ReplayError> {
        let (what, sectors) = match &self.layout {
            Layout::AsIs(as_is) => ("the device", as_is.sectors()),
            Layout::Log(log) => ("the disk that fits the device", log.disk_blocks * self.block_sectors()),
        };
        let trace = || self.trace.name().to_owned();
        let Record { op, sector, sectors: length, place, .. } = *record;
        let mut folded = *record;
        let end = sector.0 + length.0;
        let is_placed = !matches!(op, TraceOp::Flush | TraceOp::ResetAll);
        let beyond = || ReplayError::Beyond { trace: trace(), place, sector, end, what, sectors };
        if is_placed && end.max(sector.0 + 1) > sectors {
            // Keep clear of the end, so that a single request stays single.
            let last = sectors.checked_sub(length.0).filter(|_| self.rules.is_wrapped).ok_or_else(beyond)?;
            folded.sector = Sector((sector.0 % sectors).min(last));
        }
        let Layout::AsIs(as_is) = &self.layout else { return Ok(folded) };
        as_is.check(&folded).map(|()| folded).map_err(|misfit| match misfit {
            Misfit::Beyond => beyond(),
            Misfit::Unaligned => {
                let block = self.volume.info().block_sectors;
                ReplayError::Unaligned {
                    trace: trace(),
                    place,
                    sector: folded.sector,
                    sectors: length.0,
                    block,
                }
            }
        })
    }

    /// Work of a record: the first block and the number of blocks on a log, sectors otherwise.
    pub(super) fn range_of(&self, record: &Record) -> (u64, u64) {
        let size = self.block_sectors();
        let (begin, end) = (record.sector.0, record.sector.0 + record.sectors.0);
        match (&self.layout, record.op) {
            (Layout::AsIs(_), _) => (0, if record.op.has_range() { record.sectors.0 } else { 0 }),
            (Layout::Log(_), TraceOp::Read | TraceOp::Write) => {
                let first = begin / size;
                (first, end.div_ceil(size) - first)
            }
            // Partly covered blocks are kept.
            (Layout::Log(_), TraceOp::Discard | TraceOp::Reset) => {
                let first = begin.div_ceil(size);
                (first, (end / size).saturating_sub(first))
            }
            (Layout::Log(_), _) => (0, 0),
        }
    }

    /// Issues as many requests of a task as possible.
    pub(super) fn advance(&mut self, key: u64) -> Result<Flow, ReplayError> {
        let Some(task) = self.tasks.get_mut(key) else { return Ok(Flow::GoesOn) };
        let record = task.record;
        let flow = match &self.layout {
            Layout::AsIs(_) => self.advance_as_is(key, &record),
            Layout::Log(_) => self.advance_on_log(key, &record)?,
        };
        if flow == Flow::GoesOn {
            self.end_if_done(key);
        }
        Ok(flow)
    }

    fn task(&mut self, key: u64) -> &mut Task {
        self.tasks.get_mut(key).expect("a task lives until its last request has ended")
    }

    fn advance_as_is(&mut self, key: u64, record: &Record) -> Flow {
        let Record { op, sector, sectors, .. } = *record;
        let Layout::AsIs(as_is) = &self.layout else { unreachable!("the caller looked") };
        let start = as_is.start_of(sector);
        let is_quiet = match op {
            TraceOp::ResetAll => as_is.is_all_quiet(),
            _ => as_is.is_quiet(sector, sectors.0),
        };
        let management = |op| Request::zone(op, start);
        let request = match op {
            TraceOp::Read => return self.send_range(key, Op::Read, sector),
            TraceOp::Write => return self.write_as_is(key, record),
            TraceOp::Append => return self.send_range(key, Op::Append, start),
            TraceOp::Flush => Request::flush(),
            TraceOp::Discard => {
                self.measured.counts.discards_passed_over += 1;
                let task = self.task(key);
                task.done = task.total;
                return Flow::GoesOn;
            }
            TraceOp::Reset | TraceOp::ResetAll | TraceOp::Finish | TraceOp::Open | TraceOp::Close
                if !is_quiet =>
            {
                return Flow::Blocked;
            }
            TraceOp::Reset => management(Op::ZoneReset),
            TraceOp::ResetAll => Request::reset_all(),
            TraceOp::Finish => management(Op::ZoneFinish),
            TraceOp::Open => management(Op::ZoneOpen),
            TraceOp::Close => management(Op::ZoneClose),
        };
        self.send(Some(key), Purpose::AsIs { units: 0 }, request);
        Flow::GoesOn
    }

    /// Issues a write at its recorded place, after resets of the zones that it starts over.
    fn write_as_is(&mut self, key: u64, record: &Record) -> Flow {
        let Record { sector, sectors, .. } = *record;
        let Layout::AsIs(as_is) = &self.layout else { unreachable!("the caller looked") };
        if self.tasks.get_mut(key).is_some_and(|task| task.stage == TaskStage::Before) {
            let zones = as_is.to_be_reset(sector, sectors.0);
            if !zones.is_empty() && !as_is.is_quiet(sector, sectors.0) {
                return Flow::Blocked;
            }
            self.task(key).stage = TaskStage::Main;
            for zone in zones {
                let start = self.volume.info().geometry.start_of(zone);
                self.measured.counts.resets_added += 1;
                self.send(Some(key), Purpose::ResetBefore, Request::zone(Op::ZoneReset, start));
            }
        }
        if self.task(key).in_flight > 0 {
            return Flow::Blocked;
        }
        self.send_range(key, Op::Write, sector)
    }

    /// Issues requests for the whole range of a record, split if it is long.
    fn send_range(&mut self, key: u64, op: Op, sector: Sector) -> Flow {
        let append_max = u64::from(self.volume.append_sectors_max().max(1));
        let max = if op == Op::Append { append_max.min(REQUEST_SECTORS_MAX) } else { REQUEST_SECTORS_MAX };
        let fua = self.task(key).record.fua;
        loop {
            let task = self.task(key);
            let units = (task.total - task.next).min(max);
            if units == 0 {
                return Flow::GoesOn;
            }
            let begin = if op == Op::Append { sector } else { sector + Sectors(task.next) };
            task.next += units;
            let buf = self.buffers.take(units as u32);
            let request = Request {
                op,
                fua,
                nowait: false,
                awaited: false,
                sector: begin,
                sectors: units as u32,
                buf: buf.into(),
                token: 0,
            };
            self.send(Some(key), Purpose::AsIs { units }, request);
        }
    }

    fn advance_on_log(&mut self, key: u64, record: &Record) -> Result<Flow, ReplayError> {
        let task = self.task(key);
        let (block, total) = (task.block, task.total);
        match record.op {
            TraceOp::Read => self.read_blocks(key, &[(block, total)], false),
            TraceOp::Write => return Ok(self.write_on_log(key, record)),
            TraceOp::Flush => self.send(Some(key), Purpose::Flush, Request::flush()),
            TraceOp::Discard | TraceOp::Reset => {
                self.log().discard(block, total);
                self.measured.counts.discarded += total;
                self.task(key).done = total;
            }
            TraceOp::ResetAll => self.log().discard_all(),
            // The log opens and finishes zones by itself.
            TraceOp::Finish | TraceOp::Open | TraceOp::Close => {}
            TraceOp::Append => {
                return Err(ReplayError::Zoned { trace: self.trace.name().to_owned(), place: record.place });
            }
        }
        Ok(Flow::GoesOn)
    }

    /// Reads blocks of the disk from their places. If one is still being written, the task waits
    /// for that.
    fn read_blocks(&mut self, key: u64, ranges: &[(u64, u64)], is_edge: bool) {
        let mut extents = Vec::new();
        for &(block, blocks) in ranges {
            match self.log().find(block, blocks) {
                Ok(found) => extents.extend(found),
                Err(number) => {
                    self.measured.counts.waited += u64::from(!is_edge);
                    return self.waiting.entry(number).or_default().push(key);
                }
            }
        }
        self.task(key).stage = TaskStage::Main;
        for extent in extents {
            match extent.at {
                Some(_) => self.read_extent(key, extent, is_edge),
                None if is_edge => {}
                None => {
                    self.measured.counts.unmapped += u64::from(extent.blocks);
                    let task = self.task(key);
                    task.next += u64::from(extent.blocks);
                    task.done += u64::from(extent.blocks);
                }
            }
        }
    }

    fn read_extent(&mut self, key: u64, mut extent: Extent, is_edge: bool) {
        let size = self.block_sectors();
        let max = (REQUEST_SECTORS_MAX / size) as u32;
        while extent.blocks > 0 {
            let Some((zone, offset)) = extent.at else { return };
            let blocks = extent.blocks.min(max);
            let part = Extent { blocks, ..extent };
            self.log().begin_read(zone);
            let sector = self.log().sector_of(zone, offset);
            let sectors = blocks * size as u32;
            let buffer = self.buffers.take(sectors);
            if is_edge {
                self.measured.counts.edges += u64::from(blocks);
            } else {
                self.task(key).next += u64::from(blocks);
            }
            let request = Request::read(sector, sectors, buffer);
            self.send(Some(key), Purpose::Extent { extent: part, is_edge }, request);
            extent.block += u64::from(blocks);
            extent.blocks -= blocks;
            extent.at = Some((zone, offset + blocks));
        }
    }

    /// Appends a write to the log. Partly covered blocks are read first.
    fn write_on_log(&mut self, key: u64, record: &Record) -> Flow {
        if self.task(key).stage == TaskStage::Before {
            let edges = self.edges_of(key, record);
            self.read_blocks(key, &edges, true);
            let task = self.task(key);
            if task.stage == TaskStage::Before || task.in_flight > 0 {
                return Flow::GoesOn;
            }
        }
        self.write_blocks(key, record)
    }

    /// Blocks at the ends of a write that it covers only in part.
    fn edges_of(&mut self, key: u64, record: &Record) -> Vec<(u64, u64)> {
        let size = self.block_sectors();
        let task = self.task(key);
        let (first, last) = (task.block, task.block + task.total - 1);
        let covers_first = record.sector.0.is_multiple_of(size);
        let covers_last = (record.sector.0 + record.sectors.0).is_multiple_of(size);
        let mut edges = Vec::new();
        if !covers_first {
            edges.push((first, 1));
        }
        if !covers_last && (covers_first || first != last) {
            edges.push((last, 1));
        }
        edges
    }

    fn write_blocks(&mut self, key: u64, record: &Record) -> Flow {
        let size = self.block_sectors();
        let max =
            if self.rules.appends { self.volume.append_sectors_max().into() } else { REQUEST_SECTORS_MAX };
        let max = (max.min(REQUEST_SECTORS_MAX) / size).max(1);
        loop {
            let task = self.task(key);
            let (left, block, stream) = (task.total - task.next, task.block + task.next, task.number as u32);
            if left == 0 {
                return Flow::GoesOn;
            }
            let Some(piece) = self.log().begin_write(stream, block, left.min(max) as u32) else {
                return Flow::Blocked;
            };
            self.task(key).next += u64::from(piece.room.blocks);
            let sectors = piece.room.blocks * size as u32;
            let mut buf = self.buffers.take(sectors);
            if self.rules.has_data {
                let bytes = sectors as usize * SECTOR_BYTES as usize;
                stamp(&mut buf[..bytes], (size * SECTOR_BYTES) as usize, piece.block);
            }
            let request = self.log_write(piece.room, buf);
            self.send(Some(key), Purpose::Piece(piece), Request { fua: record.fua, ..request });
        }
    }

    /// Builds the write that fills a room on the log.
    pub(super) fn log_write(&mut self, room: crate::replay::log::Room, buf: IoBuf) -> Request {
        let sectors = room.blocks * self.block_sectors() as u32;
        match self.rules.appends {
            true => Request::append(self.log().sector_of(room.zone, 0), sectors, buf),
            false => Request::write(self.log().sector_of(room.zone, room.offset), sectors, buf),
        }
    }

    pub(super) fn send(&mut self, task: Option<u64>, purpose: Purpose, request: Request) {
        let now = self.clock.now();
        let Request { op, sector, sectors, .. } = request;
        if let Some(key) = task {
            let task = self.task(key);
            task.in_flight += 1;
            task.sent.get_or_insert(now);
        }
        if let Layout::AsIs(as_is) = &mut self.layout {
            as_is.begin(op, sector, sectors.into());
        }
        let token = self.sent.insert(Sent { task, purpose, op, sector, sectors });
        self.volume.submit(now, &self.channel, request.token(token));
    }
}
