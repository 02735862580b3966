//! Requests of one hardware queue: translates kernel requests into requests of a volume, and
//! completions into results.
//!
//! Makes no system calls and has no clock: data is transferred through a [`Payload`], and results
//! are returned as [`Commit`]s. A tag has one request at a time, which completes once.
//!
//! # Requests left over by a killed server
//! The kernel resubmits unanswered requests to the next server. Such a write may have been
//! executed; it then starts below the write pointer, and the drive would refuse it. The kernel has
//! at most one write per zone in flight, so only the first write to a zone can be affected
//! ([`Reissued`]). It is compared with the contents of the zone ([`ReissuedWrite`]). An append is
//! executed again, and the kernel gets the second location.

use crate::wire::{Commit, Descriptor, KernelCommand, KernelOp, ReportedZone};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::IntoBytes;
use zonal_core::{Nanos, Op, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex};
use zonal_io::buffer::{BufferPools, IoBuf, IoBufs};
use zonal_io::device::Output;
use zonal_io::errno;
use zonal_io::volume::{Completion, Inbox, Part, ReissuedWrite, Remaining, Request, copied_from};

/// `EIO`: the data of a request could not be transferred.
const EIO: i32 = 5;

/// `EINVAL`: invalid length of a request.
const EINVAL: i32 = 22;

/// `EOPNOTSUPP`: unknown operation.
const EOPNOTSUPP: i32 = 95;

/// Access to the data of requests in the kernel.
pub trait Payload {
    /// Reads the data of the write with this tag into `into`.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn read(&self, tag: u16, into: &mut [u8]) -> io::Result<()>;

    /// Passes `from` to the read or report with this tag.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn write(&self, tag: u16, from: &[u8]) -> io::Result<()>;
}

/// Zones whose first write may be left over by a killed server.
pub struct Reissued(Box<[AtomicBool]>);

impl Reissued {
    /// Marks all of `zones` zones.
    pub fn new(zones: u32) -> Reissued {
        Reissued((0..zones).map(|_| AtomicBool::new(true)).collect())
    }

    /// True for the first write to the zone; clears the mark.
    fn is_first(&self, zone: ZoneIndex) -> bool {
        // Relaxed suffices: only the queue with the zone's write asks at any time.
        self.0.get(zone.0 as usize).is_some_and(|first| first.swap(false, Ordering::Relaxed))
    }
}

/// Drive shared by all queues.
pub struct Drive {
    part: Part,
    bytes_max: u32,
    reissued: Option<Reissued>,
}

impl Drive {
    /// Creates a drive from `part`, with requests of at most `bytes_max` bytes. `reissued` is set
    /// if the device was taken over from another server.
    pub fn new(part: Part, bytes_max: u32, reissued: Option<Reissued>) -> Drive {
        Drive { part, bytes_max, reissued }
    }

    /// Zones of the drive.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Comparison for a write that may be left over by a killed server.
    fn reissued(&self, command: &KernelCommand) -> Option<ReissuedWrite> {
        let reissued = self.reissued.as_ref()?;
        let KernelCommand { sector, count, fua, .. } = *command;
        let geometry = &self.part.info().geometry;
        let is_first = geometry.contains(Sector(sector), Sectors(count.into()))
            && reissued.is_first(geometry.zone_of(Sector(sector)));
        is_first.then(|| ReissuedWrite::of(&self.part, Sector(sector), count, fua))?
    }

    /// True if a discard is within conventional zones. Others are ignored, as it is advisory:
    /// sequential zones are reset instead.
    fn discards(&self, command: &KernelCommand) -> bool {
        let geometry = &self.part.info().geometry;
        let last = command.sector.saturating_add(u64::from(command.count).saturating_sub(1));
        last < geometry.sectors().0 && geometry.is_conventional(geometry.zone_of(Sector(last)))
    }
}

/// State of a tag.
enum TagStep {
    /// No request.
    Idle,
    /// Waiting for the volume request to complete.
    Answer(KernelCommand),
    /// Waiting for a read of the zone's contents, to compare with the data of a write.
    Comparison { command: KernelCommand, write: ReissuedWrite, data: IoBufs },
}

/// Requests of one hardware queue, on the thread that created it.
pub struct Queue {
    drive: Arc<Drive>,
    number: u16,
    inbox: Inbox,
    pools: BufferPools,
    steps: Vec<TagStep>,
    in_flight: usize,
    /// Results that were available at once.
    ended: Vec<Commit>,
}

impl Queue {
    /// Creates queue `number` with `depth` tags.
    pub fn new(drive: Arc<Drive>, number: u16, depth: u16) -> Queue {
        let inbox = drive.part.inbox();
        let steps = (0..depth).map(|_| TagStep::Idle).collect();
        Queue { drive, number, inbox, pools: BufferPools::new(), steps, in_flight: 0, ended: Vec::new() }
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Starts the request in `descriptor`.
    pub fn begin(&mut self, now: Nanos, tag: u16, descriptor: &Descriptor, payload: &impl Payload) {
        let Some(TagStep::Idle) = self.steps.get(usize::from(tag)) else {
            return;
        };
        self.in_flight += 1;
        let begun = KernelCommand::parse(descriptor).ok_or(EOPNOTSUPP);
        let begun = begun.and_then(|command| self.start(now, tag, command, payload));
        if let Err(number) = begun {
            self.end(tag, -number, 0);
        }
    }

    /// Submits the request to the volume. `Err` completes it at once, with an errno, or 0 if there
    /// is nothing to do.
    fn start(
        &mut self,
        now: Nanos,
        tag: u16,
        command: KernelCommand,
        payload: &impl Payload,
    ) -> Result<(), i32> {
        let KernelCommand { op, sector, count, .. } = command;
        let sector = Sector(sector);
        let zone = |op| Request::zone(op, sector);
        let request = match op {
            KernelOp::Read => Request::read(sector, count, self.memory(self.len(count)?)),
            KernelOp::Write | KernelOp::ZoneAppend => {
                let data = self.data(tag, count, payload)?;
                match op {
                    KernelOp::Write => {
                        self.start_write(now, tag, command, data);
                        return Ok(());
                    }
                    _ => Request::append(sector, count, data),
                }
            }
            KernelOp::WriteZeroes => match self.drive.reissued(&command) {
                Some(write) => {
                    let data = IoBuf::zeroed(self.len(count)?).into();
                    self.start_comparison(now, tag, command, write, data);
                    return Ok(());
                }
                None => Request::write_zeroes(sector, count),
            },
            KernelOp::Flush => Request::flush(),
            KernelOp::Discard if !self.drive.discards(&command) => return Err(0),
            KernelOp::Discard => Request::discard(sector, count),
            KernelOp::ZoneOpen => zone(Op::ZoneOpen),
            KernelOp::ZoneClose => zone(Op::ZoneClose),
            KernelOp::ZoneFinish => zone(Op::ZoneFinish),
            KernelOp::ZoneReset => zone(Op::ZoneReset),
            KernelOp::ZoneResetAll => Request::reset_all(),
            KernelOp::ReportZones => Request::report(sector, count.min(self.drive.bytes_max / 64)),
        };
        self.submit(now, tag, TagStep::Answer(command), request, command.fua);
        Ok(())
    }

    fn start_write(&mut self, now: Nanos, tag: u16, command: KernelCommand, data: IoBuf) {
        if let Some(write) = self.drive.reissued(&command) {
            return self.start_comparison(now, tag, command, write, data.into());
        }
        let request = Request::write(Sector(command.sector), command.count, data);
        self.submit(now, tag, TagStep::Answer(command), request, command.fua);
    }

    fn start_comparison(
        &mut self,
        now: Nanos,
        tag: u16,
        command: KernelCommand,
        write: ReissuedWrite,
        data: IoBufs,
    ) {
        let request = write.read(self.memory(write.held_len()));
        self.submit(now, tag, TagStep::Comparison { command, write, data }, request, false);
    }

    fn submit(&mut self, now: Nanos, tag: u16, step: TagStep, request: Request, fua: bool) {
        self.steps[usize::from(tag)] = step;
        let request = request.token(tag.into());
        let request = if fua { request.fua() } else { request };
        self.drive.part.submit(now, self.inbox.channel(), request);
    }

    /// Data length of a request in bytes.
    fn len(&self, sectors: u32) -> Result<u32, i32> {
        sectors.checked_mul(512).filter(|&len| len <= self.drive.bytes_max).ok_or(EINVAL)
    }

    fn memory(&self, len: u32) -> IoBuf {
        self.pools.take(len)
    }

    /// Data of a write.
    fn data(&self, tag: u16, sectors: u32, payload: &impl Payload) -> Result<IoBuf, i32> {
        let len = self.len(sectors)?;
        let mut buf = self.memory(len);
        payload.read(tag, &mut buf[..len as usize]).map_err(|_| EIO)?;
        Ok(buf)
    }

    fn end(&mut self, tag: u16, result: i32, sector: u64) {
        self.steps[usize::from(tag)] = TagStep::Idle;
        self.in_flight -= 1;
        self.ended.push(Commit { queue: self.number, tag, result, sector });
    }

    /// Takes a result for the kernel. Processes completions of the volume and continues requests
    /// with several steps.
    pub fn take(&mut self, now: Nanos, payload: &impl Payload) -> Option<Commit> {
        loop {
            if let Some(commit) = self.ended.pop() {
                return Some(commit);
            }
            let Completion { token, result, buf } = self.inbox.take()?;
            let tag = token as u16;
            let buf = buf.into_buf();
            let step = std::mem::replace(&mut self.steps[usize::from(tag)], TagStep::Idle);
            match (step, result) {
                (TagStep::Idle, _) => unreachable!("tag {tag} has no request"),
                (TagStep::Comparison { command, write, data }, result) => {
                    let remaining = write.remaining(result.ok().map(|_| &buf[..]), &data);
                    self.continue_write(now, tag, command, write, remaining, data);
                }
                (TagStep::Answer(command), Ok(output)) => self.done(tag, command, output, &buf, payload),
                (TagStep::Answer(_), Err(error)) => self.end(tag, -errno::of(&error), 0),
            }
            self.pools.give(buf);
        }
    }

    /// Completes the remainder of a write that may be left over by a killed server.
    fn continue_write(
        &mut self,
        now: Nanos,
        tag: u16,
        command: KernelCommand,
        write: ReissuedWrite,
        remaining: Remaining,
        data: IoBufs,
    ) {
        let request = match remaining {
            Remaining::Nothing => None,
            Remaining::Flush => Some(Request::flush()),
            Remaining::Everything => Some(write.whole(data)),
            Remaining::Rest { done } => write.rest(copied_from(&data, done)),
        };
        match request {
            // The request already has the required durability.
            Some(request) => self.submit(now, tag, TagStep::Answer(command), request, false),
            None => self.end(tag, write.bytes() as i32, 0),
        }
    }

    fn done(&mut self, tag: u16, command: KernelCommand, output: Output, buf: &[u8], payload: &impl Payload) {
        let len = command.count.saturating_mul(512);
        match (command.op, output) {
            (KernelOp::Read, _) => match payload.write(tag, &buf[..len as usize]) {
                Ok(()) => self.end(tag, len as i32, 0),
                Err(_) => self.end(tag, -EIO, 0),
            },
            (KernelOp::ReportZones, Output::Zones(zones)) => {
                let zones: Vec<ReportedZone> = zones.iter().map(reported).collect();
                match payload.write(tag, zones.as_bytes()) {
                    // The kernel may have room for more zones than it requested, and takes the rest
                    // as zeroes. It resubmits a request if the result is shorter than its length,
                    // and truncates longer results.
                    Ok(()) => self.end(tag, self.drive.bytes_max as i32, 0),
                    Err(_) => self.end(tag, -EIO, 0),
                }
            }
            (KernelOp::ZoneAppend, Output::Appended(sector)) => self.end(tag, len as i32, sector.0),
            (KernelOp::Write | KernelOp::WriteZeroes, _) => self.end(tag, len as i32, 0),
            _ => self.end(tag, 0, 0),
        }
    }
}

/// Zone descriptor for the kernel. An undefined write pointer has the value used by the kernel's
/// own drivers: the end of the zone if full or conventional, and all ones if read-only or offline.
fn reported(zone: &ZoneDescriptor) -> ReportedZone {
    let end = zone.start.0 + zone.size.0;
    let pointer = match (zone.write_pointer, zone.condition) {
        (Some(pointer), _) => pointer.0,
        (None, ZoneCondition::ReadOnly | ZoneCondition::Offline) => u64::MAX,
        (None, _) => end,
    };
    ReportedZone {
        start: zone.start.0,
        len: zone.size.0,
        pointer,
        kind: if zone.condition == ZoneCondition::NotWp { 1 } else { 2 },
        condition: zone.condition as u8,
        capacity: zone.capacity.0,
        ..ReportedZone::default()
    }
}

#[cfg(test)]
mod tests;
