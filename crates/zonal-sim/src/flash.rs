//! A flash drive: a ZNS SSD or a zoned UFS device.
//!
//! A chain of servers, each of which takes one command after the other: the link, then the drive as a whole and the zone at the
//! same time, then the way back, which takes its time but delays no other command. Commands are served in the order of
//! submission, so a queue keeps its order.
//!
//! Reads bypass the zone and go to one of several dies. Their data crosses the link in the order in which the dies complete. The link is full
//! duplex, as PCIe and M-PHY are, so reads and writes do not wait for each other.
//!
//! A reset or finish occupies its zone for a time that depends on the amount of data in the zone. Other zones are not delayed.

use crate::engine::Agenda;
use crate::hibernation::Hibernation;
use crate::model::{Job, Model, Span, Tag, Totals};
use zonal_core::{Geometry, Nanos, Op, SECTOR_BYTES, ZoneIndex};

/// Service time of a command at a server: a fixed time plus the time for its bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Service {
    /// Fixed time for any command.
    pub fixed: Span,
    /// Bytes per second. Infinite: the data takes no time.
    pub rate: f64,
}

impl Service {
    fn time(&self, sectors: u32) -> Span {
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        self.fixed + (bytes as f64 * 1e9 / self.rate) as Span
    }
}

/// Additional time of a write that is shorter than the drive's unit of writing: the drive has to fill
/// up the unit. Proportional to the missing part.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ShortWrites {
    /// Unit of writing in sectors. 0: writes of any length are written as they are.
    pub unit: u32,
    /// Time to fill up a whole unit.
    pub time: Span,
}

impl ShortWrites {
    fn time(&self, sectors: u32) -> Span {
        match sectors < self.unit {
            true => u64::from(self.unit - sectors) * self.time / u64::from(self.unit),
            false => 0,
        }
    }
}

/// Time that depends linearly on the amount of data in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByFill {
    /// Time for a zone that is almost empty.
    pub empty: Span,
    /// Time for a zone that is full.
    pub full: Span,
}

impl ByFill {
    fn time(&self, written: u32, capacity: u32) -> Span {
        let share = f64::from(written) / f64::from(capacity);
        (self.empty as f64 + (self.full as f64 - self.empty as f64) * share) as Span
    }
}

/// Parameters of a flash drive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashOptions {
    /// Maximum number of commands at the drive.
    pub queue_depth: u32,
    /// Transfer to the drive. The data of a read returns at the same rate.
    pub link: Service,
    /// The drive as a whole.
    pub drive: Service,
    /// Additional time of the drive for short writes.
    pub short: ShortWrites,
    /// Zone of a write or append.
    pub zone: Service,
    /// Die of a read.
    pub read: Service,
    /// Number of dies.
    pub dies: u32,
    /// Latency of a completion.
    pub answer: Span,
    /// Time for a command without data, unless it resets or finishes a zone with data.
    pub manage: Span,
    /// Reset of a zone with data.
    pub reset: ByFill,
    /// Finish of a zone with data that is not full.
    pub finish: ByFill,
    /// Power saving of the link.
    pub hibernation: Option<Hibernation>,
}

/// Next event of a command at the drive.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A die has read this many sectors, which have yet to cross the link.
    ///
    /// This is an event, not a time reserved in advance: a later read may finish earlier on an idle
    /// die.
    Sensed(u32),
    /// Completion, with the number of sectors written.
    Answered(u32),
}

/// State of a zone.
#[derive(Clone, Copy, Default, Debug)]
struct Zone {
    /// Time at which it becomes free.
    free: Nanos,
    /// End of the data in it, in sectors.
    written: u32,
}

/// Model of a flash drive. See the module.
#[derive(Debug)]
pub struct FlashDrive {
    geometry: Geometry,
    options: FlashOptions,
    /// Time at which each server becomes free.
    link: Nanos,
    link_back: Nanos,
    drive: Nanos,
    zones: Vec<Zone>,
    dies: Vec<Nanos>,
    /// Completion of the last write.
    written: Nanos,
    events: Agenda<(Tag, Event)>,
    totals: Totals,
}

/// Occupies a server from `now` on, or from `free` if that is later. Returns the time at which it
/// is done.
fn serve(free: &mut Nanos, now: Nanos, time: Span) -> Nanos {
    *free = Nanos(now.max(*free).0 + time);
    *free
}

impl FlashDrive {
    /// Creates a drive with `geometry`.
    pub fn new(geometry: Geometry, options: FlashOptions) -> FlashDrive {
        FlashDrive {
            geometry,
            link: Nanos(0),
            link_back: Nanos(0),
            drive: Nanos(0),
            zones: vec![Zone::default(); geometry.zones() as usize],
            dies: vec![Nanos(0); options.dies.max(1) as usize],
            written: Nanos(0),
            events: Agenda::default(),
            totals: Totals::default(),
            options,
        }
    }

    fn write(&mut self, now: Nanos, job: &Job) -> Nanos {
        let FlashOptions { drive, short, zone, .. } = self.options;
        let (payload, short) = match job.op {
            Op::WriteZeroes => (0, 0),
            _ => (job.sectors, short.time(job.sectors)),
        };
        let own = &mut self.zones[self.geometry.zone_of(job.sector).0 as usize];
        own.written = self.geometry.offset_of(job.sector) + job.sectors;
        let through = serve(&mut self.drive, now, drive.time(payload) + short);
        let in_zone = serve(&mut own.free, now, zone.time(payload));
        // A queue completes commands in order of submission.
        self.written = self.written.max(through).max(in_zone);
        through.max(in_zone)
    }

    /// Resets or finishes a zone.
    fn manage(&mut self, now: Nanos, op: Op, zone: ZoneIndex) -> Nanos {
        let FlashOptions { manage, reset, finish, .. } = self.options;
        let capacity = self.geometry.capacity_of(zone);
        let own = &mut self.zones[zone.0 as usize];
        let (time, left) = match (op, own.written) {
            (Op::ZoneFinish, 1..) if own.written < capacity => (finish.time(own.written, capacity), capacity),
            (Op::ZoneFinish, _) => (manage, capacity),
            (_, 0) => (manage, 0),
            _ => (reset.time(own.written, capacity), 0),
        };
        own.written = left;
        serve(&mut own.free, now, time)
    }

    /// Resets all zones at once.
    fn reset_all(&mut self, now: Nanos) -> Nanos {
        let zones =
            (0..self.geometry.zones()).map(ZoneIndex).skip(self.geometry.conventional_zones() as usize);
        zones.map(|zone| self.manage(now, Op::ZoneReset, zone)).max().unwrap_or(now)
    }

    /// A die reads its cells.
    fn sense(&mut self, now: Nanos, job: &Job) -> Nanos {
        // Adjacent blocks of 64 KiB are on different dies.
        let die = (job.sector.0 / 128) as usize % self.dies.len();
        serve(&mut self.dies[die], now, self.options.read.time(job.sectors))
    }

    /// Transfers the data of a read to the host.
    fn transfer_read(&mut self, now: Nanos, sectors: u32) -> Nanos {
        serve(&mut self.link_back, now, Service { fixed: 0, ..self.options.link }.time(sectors))
    }

    /// Time at which the command is served, without the data transfer of a read.
    fn served(&mut self, now: Nanos, job: &Job) -> Nanos {
        let is_write = job.op.is_write() && !job.refused;
        let carried = if is_write && job.op != Op::WriteZeroes { job.sectors } else { 0 };
        let here = serve(&mut self.link, now, self.options.link.time(carried));
        match job.op {
            _ if job.refused => here,
            Op::Write | Op::Append | Op::WriteZeroes => self.write(here, job),
            Op::Read | Op::Verify => self.sense(here, job),
            Op::Flush => self.written.max(here),
            Op::ZoneReset | Op::ZoneFinish => self.manage(here, job.op, self.geometry.zone_of(job.sector)),
            Op::ResetAll => self.reset_all(here),
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneOffline | Op::Report | Op::Discard => {
                Nanos(here.0 + self.options.manage)
            }
        }
    }

    /// Completes a command that is served at `done`, with `written` sectors on the medium.
    fn answer(&mut self, done: Nanos, tag: Tag, written: u32) {
        self.events.push(Nanos(done.0 + self.options.answer), (tag, Event::Answered(written)));
    }
}

impl Model for FlashDrive {
    fn queue_depth(&self) -> u32 {
        self.options.queue_depth
    }

    fn submit(&mut self, now: Nanos, tag: Tag, job: &Job) {
        let done = self.served(now, job);
        if job.op == Op::Read && !job.refused {
            self.events.push(done, (tag, Event::Sensed(job.sectors)));
            return;
        }
        let written = if job.op.is_write() && !job.refused { job.sectors } else { 0 };
        self.totals.submitted += u64::from(written);
        self.totals.held += u64::from(written);
        self.answer(done, tag, written);
    }

    fn run(&mut self, now: Nanos, answered: &mut dyn FnMut(Nanos, Tag)) {
        while let Some((at, (tag, event))) = self.events.pop(now) {
            match event {
                Event::Sensed(sectors) => {
                    let here = self.transfer_read(at, sectors);
                    self.answer(here, tag, 0);
                }
                Event::Answered(sectors) => {
                    self.totals.held -= u64::from(sectors);
                    self.totals.written += u64::from(sectors);
                    answered(at, tag);
                }
            }
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.events.next()
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn depends_on_data(&self) -> bool {
        let FlashOptions { manage, reset, finish, .. } = self.options;
        [reset, finish].into_iter().any(|by| by != ByFill { empty: manage, full: manage })
    }

    fn zone_has(&mut self, zone: ZoneIndex, written: u32) {
        self.zones[zone.0 as usize].written = written;
    }

    fn hibernation(&self) -> Option<Hibernation> {
        self.options.hibernation
    }
}
