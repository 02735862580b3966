//! The requests of one hardware queue: commands of the kernel become requests of a volume, and its answers results.
//!
//! Makes no system call and has no clock: a request's data are read and written by a [`Payload`], results are taken as
//! [`Commit`]s. A tag has one request at a time, which ends once.
//!
//! # Requests that a killed server has left
//! The kernel submits a request without an answer again, to the next server. A write of such a kind may have been carried out: then
//! it begins below the pointer, and the drive would refuse it. The kernel has one write of a zone under way at a time, so only the
//! first write of a zone can be of that kind ([`Reissued`]), and is compared with what the zone holds ([`ReissuedWrite`]). An append of
//! that kind is carried out again, and the kernel learns the second place.

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

/// `EIO`: the kernel has not given or taken the data of a request.
const EIO: i32 = 5;

/// `EINVAL`: a command of a length that none has.
const EINVAL: i32 = 22;

/// `EOPNOTSUPP`: an operation without a name.
const EOPNOTSUPP: i32 = 95;

/// The data of requests, in the kernel's hands.
pub trait Payload {
    /// Fills `into` with the data of the write with this tag.
    ///
    /// # Errors
    /// The kernel's.
    fn read(&self, tag: u16, into: &mut [u8]) -> io::Result<()>;

    /// Gives `from` to the read with this tag, or to the report.
    ///
    /// # Errors
    /// The kernel's.
    fn write(&self, tag: u16, from: &[u8]) -> io::Result<()>;
}

/// Zones whose first write may be left of a killed server.
pub struct Reissued(Box<[AtomicBool]>);

impl Reissued {
    /// All of `zones` zones.
    pub fn new(zones: u32) -> Reissued {
        Reissued((0..zones).map(|_| AtomicBool::new(true)).collect())
    }

    /// Whether nothing has reached the zone before.
    fn is_first(&self, zone: ZoneIndex) -> bool {
        // Only the one queue that has the zone's write asks at this time.
        self.0.get(zone.0 as usize).is_some_and(|first| first.swap(false, Ordering::Relaxed))
    }
}

/// The drive, as all queues have it.
pub struct Drive {
    part: Part,
    bytes_max: u32,
    reissued: Option<Reissued>,
}

impl Drive {
    /// The zones of `part`, with requests of at most `bytes_max` bytes; `reissued` if another server had the device before.
    pub fn new(part: Part, bytes_max: u32, reissued: Option<Reissued>) -> Drive {
        Drive { part, bytes_max, reissued }
    }

    /// Its zones.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// The comparison that a write needs, if it may be left of a killed server.
    fn reissued(&self, command: &KernelCommand) -> Option<ReissuedWrite> {
        let reissued = self.reissued.as_ref()?;
        let KernelCommand { sector, count, fua, .. } = *command;
        let geometry = &self.part.info().geometry;
        let is_first = geometry.contains(Sector(sector), Sectors(count.into()))
            && reissued.is_first(geometry.zone_of(Sector(sector)));
        is_first.then(|| ReissuedWrite::of(&self.part, Sector(sector), count, fua))?
    }

    /// Whether a discard reaches conventional zones only. It is advice: sequential zones are reset instead.
    fn discards(&self, command: &KernelCommand) -> bool {
        let geometry = &self.part.info().geometry;
        let last = command.sector.saturating_add(u64::from(command.count).saturating_sub(1));
        last < geometry.sectors().0 && geometry.is_conventional(geometry.zone_of(Sector(last)))
    }
}

/// What a tag's request waits for.
enum TagStep {
    /// It has none.
    Idle,
    /// The end of the request that the command became.
    Answer(KernelCommand),
    /// What the zone holds in place of a write, whose data these are.
    Comparison { command: KernelCommand, write: ReissuedWrite, data: IoBufs },
}

/// The requests of one hardware queue, on the thread that made it.
pub struct Queue {
    drive: Arc<Drive>,
    number: u16,
    inbox: Inbox,
    pools: BufferPools,
    steps: Vec<TagStep>,
    in_flight: usize,
    /// Results that were known at once.
    ended: Vec<Commit>,
}

impl Queue {
    /// Queue `number` with `depth` tags.
    pub fn new(drive: Arc<Drive>, number: u16, depth: u16) -> Queue {
        let inbox = drive.part.inbox();
        let steps = (0..depth).map(|_| TagStep::Idle).collect();
        Queue { drive, number, inbox, pools: BufferPools::new(), steps, in_flight: 0, ended: Vec::new() }
    }

    /// Requests without a result.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Begins the request that the kernel has put into `descriptor`.
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

    /// Hands the request to the volume. `Err` ends it at once, with the number of an error, or with 0 where there is nothing to do.
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

    /// Bytes of a command's data.
    fn len(&self, sectors: u32) -> Result<u32, i32> {
        sectors.checked_mul(512).filter(|&len| len <= self.drive.bytes_max).ok_or(EINVAL)
    }

    fn memory(&self, len: u32) -> IoBuf {
        self.pools.take(len)
    }

    /// The data of a write.
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

    /// A result for the kernel. Takes what the volume has ended, and continues requests of several steps.
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

    /// Does what remains of a write that may be left of a killed server.
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
            // It is as durable as was asked for.
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
                    // The kernel has room for more zones than it asks for, and takes the rest as zeroes. It submits a request again
                    // for what is missing of its length, and cuts a result that is longer.
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

/// A zone as the kernel has it. Where the pointer has no meaning, it has what the kernel's own drivers say: the end of a full or
/// conventional zone, and no sector for a zone that cannot be written any more.
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
