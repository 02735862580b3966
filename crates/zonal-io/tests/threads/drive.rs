//! Drive that checks the obligations of the write path and stops a model that violates them.

use std::collections::VecDeque;
use zonal_core::{Geometry, Nanos, Op, Sector, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex, ZoneType};
use zonal_io::device::{Command, CommandResult, Completed, Context, Device, DeviceInfo, Output, Submitted};
use zonal_io::news::Wakeups;
use zonal_io::sync::Mutex;
use zonal_io::sync::model::{Canary, is_broken};
use zonal_io::volume::WriteMode;

/// Sectors of a zone.
pub const ZONE: u64 = 64;

/// Time of a drive's completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// Inline in `submit`.
    AtOnce,
    /// In `poll`.
    Later,
}

struct Zone {
    pointer: u64,
    writes: u32,
}

struct DriveState {
    zones: Vec<Zone>,
    /// By queue.
    finished: Vec<VecDeque<(Op, ZoneIndex, Context, CommandResult)>>,
    /// Maximum of concurrent writes to all zones, and to one.
    writes_max: (u32, u32),
}

/// Checking drive, see the module documentation.
pub struct Drive {
    info: DeviceInfo,
    answers: Answers,
    wakeups: Wakeups,
    state: Mutex<DriveState>,
}

impl Drive {
    /// Creates a drive with this many empty zones, for a volume in this mode; with
    /// [`WriteMode::Pipelined`], for any mode.
    pub fn new(mode: WriteMode, zones: u32, answers: Answers) -> Drive {
        let sectors = Sectors(u64::from(zones) * ZONE);
        let info = DeviceInfo {
            command_sectors_max: 8,
            label: None,
            memory_align: 1,
            append_sectors_max: 8,
            keeps_order: true,
            ..DeviceInfo::new("model", Geometry::new(sectors, Sectors(ZONE), Sectors(0), 0).unwrap())
        };
        let zones = (0..zones).map(|_| Zone { pointer: 0, writes: 0 }).collect();
        let writes_max = match mode {
            WriteMode::Pipelined => (u32::MAX, u32::MAX),
            WriteMode::Qd1 => (1, 1),
            _ => (u32::MAX, 1),
        };
        let state = DriveState { zones, finished: vec![VecDeque::new()], writes_max };
        Drive { info, answers, wakeups: Wakeups::new(1), state: Mutex::new(state) }
    }

    /// Sets the number of queues.
    pub fn with_queues(mut self, queues: usize) -> Drive {
        self.info.queues = queues;
        self.wakeups = Wakeups::new(queues);
        self.state.get_mut().finished = (0..queues).map(|_| VecDeque::new()).collect();
        self
    }
}

impl DriveState {
    fn execute(&mut self, info: &DeviceInfo, command: &Command) -> CommandResult {
        let zone = info.geometry.zone_of(command.sector);
        match command.op {
            Op::Write => self.write(info, zone, command),
            Op::Append => return Ok(Output::Appended(self.append(info, zone, command))),
            Op::ZoneReset => self.reset(zone.0 as usize),
            Op::ZoneFinish => self.finish(zone.0 as usize),
            Op::ResetAll => (0..self.zones.len()).for_each(|z| self.reset(z)),
            Op::Report => return Ok(Output::Zones(self.report(info, zone, command.sectors))),
            Op::Read | Op::Flush => {}
            op => panic!("no model sends {op:?}"),
        }
        Ok(Output::Done)
    }

    fn write(&mut self, info: &DeviceInfo, zone: ZoneIndex, command: &Command) {
        let writes: u32 = self.zones.iter().map(|z| z.writes).sum();
        assert!(writes < self.writes_max.0, "a second write at the device");
        let state = &mut self.zones[zone.0 as usize];
        assert_eq!(
            u64::from(info.geometry.offset_of(command.sector)),
            state.pointer,
            "a write of {zone} out of order"
        );
        assert!(state.writes < self.writes_max.1, "a second write of {zone}");
        state.pointer += u64::from(command.sectors);
    }

    fn append(&mut self, info: &DeviceInfo, zone: ZoneIndex, command: &Command) -> Sector {
        let state = &mut self.zones[zone.0 as usize];
        let at = info.geometry.start_of(zone) + Sectors(state.pointer);
        state.pointer += u64::from(command.sectors);
        at
    }

    fn reset(&mut self, zone: usize) {
        assert_eq!(self.zones[zone].writes, 0, "a reset of zone {zone} with writes at the device");
        self.zones[zone].pointer = 0;
    }

    fn finish(&mut self, zone: usize) {
        assert_eq!(self.zones[zone].writes, 0, "a finish of zone {zone} with writes at the device");
        self.zones[zone].pointer = ZONE;
    }

    fn report(&self, info: &DeviceInfo, first: ZoneIndex, zones: u32) -> Box<[ZoneDescriptor]> {
        let from = first.0 as usize;
        let some = self.zones.iter().enumerate().skip(from).take(zones as usize);
        some.map(|(n, zone)| describe(info, ZoneIndex(n as u32), zone.pointer)).collect()
    }
}

fn describe(info: &DeviceInfo, zone: ZoneIndex, pointer: u64) -> ZoneDescriptor {
    let start = info.geometry.start_of(zone);
    let condition = match pointer {
        0 => ZoneCondition::Empty,
        ZONE => ZoneCondition::Full,
        _ => ZoneCondition::Closed,
    };
    ZoneDescriptor {
        zone,
        start,
        size: Sectors(ZONE),
        capacity: Sectors(ZONE),
        zone_type: ZoneType::SequentialWriteRequired,
        condition,
        write_pointer: (pointer < ZONE).then(|| start + Sectors(pointer)),
    }
}

impl Device for Drive {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, _: Nanos, queue: usize, command: &Command, context: &mut Option<Context>) -> Submitted {
        let mut state = self.state.lock();
        let result = state.execute(&self.info, command);
        if self.answers == Answers::AtOnce || command.op == Op::Report {
            return Submitted::Done(result);
        }
        let zone = self.info.geometry.zone_of(command.sector);
        if matches!(command.op, Op::Write | Op::Append) {
            state.zones[zone.0 as usize].writes += 1;
        }
        let context = context.take().expect("a command has its context");
        state.finished[queue].push_back((command.op, zone, context, result));
        drop(state);
        self.wakeups.ring(queue);
        Submitted::Accepted
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let mut state = self.state.lock();
        for _ in 0..budget {
            let Some((op, zone, context, result)) = state.finished[queue].pop_front() else { break };
            if matches!(op, Op::Write | Op::Append) {
                state.zones[zone.0 as usize].writes -= 1;
            }
            done(Completed { context, result });
        }
        (!state.finished[queue].is_empty()).then_some(now)
    }

    fn is_idle(&self, queue: usize) -> bool {
        is_broken(Canary::Idle) || self.state.lock().finished[queue].is_empty()
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    fn has_news(&self, queue: usize) -> bool {
        !self.state.lock().finished[queue].is_empty()
    }
}
