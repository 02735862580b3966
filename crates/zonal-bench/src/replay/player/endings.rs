//! Completion of requests and records.

use super::{Layout, Player, Purpose, Sent, Task, TaskStage};
use crate::measure::Dir;
use crate::replay::buffers::misplaced;
use crate::replay::error::ReplayError;
use crate::replay::trace::TraceOp;
use crate::report::Failure;
use zonal_core::{Nanos, Op, SECTOR_BYTES, Sector};
use zonal_io::device::Output;
use zonal_io::volume::Completion;

impl Player<'_> {
    /// Handles all completions.
    pub(super) fn take_in(&mut self) -> Result<(), ReplayError> {
        loop {
            let next = self.inbox.lock().pop_front();
            let Some(completion) = next else { return Ok(()) };
            self.end(completion)?;
        }
    }

    fn end(&mut self, completion: Completion) -> Result<(), ReplayError> {
        let Completion { token, result, buf } = completion;
        let buf = buf.into_buf();
        let Some(sent) = self.sent.remove(token) else {
            // The request had already completed.
            let (begun, ended) = (self.ledger.begun, self.ledger.ended + 1);
            return Err(ReplayError::Unbalanced { trace: self.trace.name().to_owned(), begun, ended });
        };
        if let Layout::AsIs(as_is) = &mut self.layout {
            as_is.end(sent.sector, sent.sectors.into());
        }
        if let Some(key) = sent.task {
            self.tasks.get_mut(key).expect("it has a request under way").in_flight -= 1;
        }
        match result {
            Ok(output) => self.ended_well(&sent, &output, &buf),
            Err(error) => {
                let Sent { op, sector, sectors, .. } = sent;
                self.fail(Failure::Request { op, sector, sectors, error });
            }
        }
        self.buffers.give_back(buf);
        if let Some(key) = sent.task {
            self.resume(key)?;
        }
        Ok(())
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.measured.errors += 1;
        self.measured.failure.get_or_insert(failure);
    }

    fn ended_well(&mut self, sent: &Sent, output: &Output, bytes: &[u8]) {
        match sent.op {
            Op::ZoneReset => self.measured.resets += 1,
            Op::ZoneFinish => self.measured.finishes += 1,
            _ => {}
        }
        // Only appends have an address other than the one they were sent to.
        let sector = match output {
            Output::Appended(sector) => *sector,
            _ => sent.sector,
        };
        let done = match sent.purpose {
            Purpose::AsIs { units } => units,
            Purpose::ResetBefore | Purpose::Flush => 0,
            Purpose::Piece(piece) => {
                let offset = self.offset_of(sector);
                let Layout::Log(log) = &mut self.layout else { unreachable!("a piece is of a log") };
                let number = log.end_write(&piece, offset);
                self.wake(number);
                u64::from(piece.room.blocks)
            }
            Purpose::Extent { extent, is_edge } => {
                let Layout::Log(log) = &mut self.layout else { unreachable!("an extent is of a log") };
                if let Some((zone, _)) = extent.at {
                    log.end_read(zone);
                }
                self.check(sent, extent.block, bytes);
                if is_edge { 0 } else { u64::from(extent.blocks) }
            }
            Purpose::ReadRun(run) => return self.live_read(run, bytes),
            Purpose::Move { moved, run } => {
                let offset = self.offset_of(sector);
                return self.moved(&moved, run, offset);
            }
            Purpose::ResetCleaned(zone) => return self.victim_reset(zone),
        };
        if let Some(task) = sent.task.and_then(|key| self.tasks.get_mut(key)) {
            task.done += done;
        }
    }

    /// Offset of a sector in its zone, in blocks.
    fn offset_of(&self, sector: Sector) -> u32 {
        let info = self.volume.info();
        info.geometry.offset_of(sector) / info.block_sectors
    }

    /// Checks that the blocks read from the disk are the requested ones.
    fn check(&mut self, sent: &Sent, block: u64, bytes: &[u8]) {
        if !self.rules.has_data {
            return;
        }
        let size = u64::from(self.volume.info().block_sectors);
        let length = sent.sectors as usize * SECTOR_BYTES as usize;
        self.measured.counts.checked += u64::from(sent.sectors) / size;
        if let Some((block, found)) = misplaced(&bytes[..length], (size * SECTOR_BYTES) as usize, block) {
            let disk = |block: u64| Sector(block.saturating_mul(size));
            let sector = sent.sector;
            self.fail(Failure::Misplaced { sector, expected: disk(block), found: found.map(disk) });
        }
    }

    /// Unblocks the tasks that wait for the write of this number.
    fn wake(&mut self, number: u64) {
        if let Some(tasks) = self.waiting.remove(&number) {
            self.blocked.extend(tasks);
        }
    }

    /// Continues a task after one of its requests has completed.
    fn resume(&mut self, key: u64) -> Result<(), ReplayError> {
        let is_log = matches!(self.layout, Layout::Log(_));
        let Some(task) = self.tasks.get_mut(key) else { return Ok(()) };
        let has_more = task.in_flight == 0 && task.stage == TaskStage::Main && task.next < task.total;
        // As it is, a write waiting for its resets is already in the queue. On a log, a write that
        // waited for its partly covered blocks enters the queue, unless a lack of zones has put it
        // there.
        if is_log && has_more && !self.blocked.contains(&key) {
            self.blocked.push_back(key);
        }
        self.end_if_done(key);
        Ok(())
    }

    /// Ends a task without remaining work.
    pub(super) fn end_if_done(&mut self, key: u64) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let is_waiting =
            task.stage == TaskStage::Before && matches!(task.record.op, TraceOp::Read | TraceOp::Write);
        let is_log = matches!(self.layout, Layout::Log(_));
        if task.in_flight > 0 || task.done < task.total || is_log && is_waiting {
            return;
        }
        let task = self.tasks.remove(key).expect("it was just there");
        let now = self.clock.now();
        let record = &task.record;
        // On a log the work is counted in blocks, and a discard may cover none.
        let sectors = if task.done == task.total { record.sectors.0 } else { task.done };
        self.ledger.end(task.number, record, sectors);
        self.count(&task, now);
        self.measured.counts.without_request += u64::from(task.sent.is_none());
        self.note_depth();
        self.measured.series.ended(now);
    }

    /// Counts a completed record and its latencies.
    fn count(&mut self, task: &Task, now: Nanos) {
        let sent = task.sent.unwrap_or(now);
        let times =
            [sent.0.saturating_sub(task.arrived.0), now.0 - sent.0, now.0.saturating_sub(task.arrived.0)];
        let dir = match task.record.op {
            TraceOp::Read => Some(Dir::Read),
            TraceOp::Write | TraceOp::Append => Some(Dir::Write),
            _ => None,
        };
        // Reads answered without the device take no time and would distort its latencies.
        let is_unmapped =
            matches!(self.layout, Layout::Log(_)) && dir == Some(Dir::Read) && task.sent.is_none();
        if is_unmapped {
            self.measured.counts.unmapped_reads += 1;
            self.measured.counts.unmapped_read_sectors += task.record.sectors.0;
        } else if let Some(dir) = dir {
            let dir = dir as usize;
            self.measured.ios[dir] += 1;
            self.measured.sectors[dir] += task.record.sectors.0;
            for (latency, time) in self.measured.latencies[dir].iter_mut().zip(times) {
                latency.record(time);
            }
        } else if task.record.op == TraceOp::Flush {
            self.measured.flushes += 1;
            self.measured.flush.record(times[2]);
        }
    }
}
