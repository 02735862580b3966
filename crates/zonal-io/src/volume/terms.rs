//! The terms on which a volume accepts requests: properties of the drive, write mode, options in
//! force.
//!
//! Pure functions: classify a request for its zone's plug, give the rules by which the plug admits
//! it, and record its position. `check` has the immediate refusals, `command` the commands for the
//! drive.

use super::mode::{Policy, WriteMode};
use super::options::SchedulerKind;
use super::pending::{PendingRequest, RequestStage};
use super::settings::Settings;
use crate::device::{Command, Context, ContextKind, DeviceInfo};
use zonal_core::plug::{Item, ParkOptions, RequestKind, Rules, WriteKind};
use zonal_core::scheduler::{Direction, Limits, Request};
use zonal_core::{Op, RequestError, Sectors, ZoneIndex};

pub(super) struct Terms {
    /// Properties of the drive; constant.
    pub(super) info: DeviceInfo,
    pub(super) policy: Policy,
    pub(super) settings: Settings,
    /// True if the volume tracks the drive's open and active zones.
    pub(super) has_budget: bool,
    /// True if the drive runs in virtual time, so no thread sleeps for it.
    pub(super) virtual_time: bool,
}

impl Terms {
    #[inline]
    pub(super) fn append_sectors_max_if(&self, is_direct: bool) -> u32 {
        match self.info.append_sectors_max {
            0 if is_direct => 0,
            0 => self.info.command_sectors_max,
            native => native.min(self.info.command_sectors_max),
        }
    }

    #[inline]
    pub(super) fn rules(&self, zone: ZoneIndex) -> Rules {
        Rules { writes_in_flight_max: self.writes_in_flight_max(), ..self.rules_one_by_one(zone) }
    }

    #[inline]
    pub(super) fn writes_in_flight_max(&self) -> u32 {
        if self.policy.is(WriteMode::Pipelined) { self.settings.window() } else { 1 }
    }

    /// Rules of the modes without a window.
    #[inline]
    pub(super) fn rules_one_by_one(&self, zone: ZoneIndex) -> Rules {
        Rules {
            zone,
            capacity: self.info.geometry.capacity_of(zone),
            merge_sectors_max: self.settings.merge_sectors_max(),
            appends_in_flight_max: self.policy.appends_in_flight_max(),
            writes_in_flight_max: 1,
        }
    }

    #[inline]
    pub(super) fn prefer_writes_of_zeroes(&self, pending: &mut PendingRequest) {
        if pending.op == Op::WriteZeroes && self.info.write_zeroes_sectors_max == 0 {
            pending.stage = RequestStage::ZeroesAsWrites;
        }
    }

    /// True if one more successful command completes the request, with no side effects on other
    /// state.
    #[inline(always)]
    pub(super) fn ends_with_this_command(&self, p: &PendingRequest) -> bool {
        !matches!(p.op, Op::ResetAll | Op::ZoneClose | Op::ZoneOffline)
            && self.transfer_ends_with_this_command(p)
    }

    /// Like [`Terms::ends_with_this_command`], for reads and writes.
    #[inline(always)]
    pub(super) fn transfer_ends_with_this_command(&self, p: &PendingRequest) -> bool {
        p.stage == RequestStage::Main
            && p.done == 0
            && !p.fua
            && (p.op == Op::Append || p.sectors <= self.command_max(p.op))
    }

    #[inline]
    pub(super) fn write_kind(&self, pending: &PendingRequest) -> WriteKind {
        match pending.op {
            Op::Append => WriteKind::Append,
            _ => WriteKind::At(self.info.geometry.offset_of(pending.sector)),
        }
    }

    /// True if a waiting write may be merged with its neighbours.
    #[inline]
    pub(super) fn is_mergeable(&self, pending: &PendingRequest) -> bool {
        pending.op == Op::Write && !pending.fua && pending.sectors <= self.settings.merge_sectors_max()
    }

    /// Records the position that the plug has assigned to a write.
    #[inline]
    pub(super) fn place(&self, zone: ZoneIndex, at: u32, pending: &mut PendingRequest) {
        pending.plugged = true;
        pending.at = at;
        if pending.op == Op::Append && self.policy.appends_in_flight_max() == 0 {
            pending.sector = self.info.geometry.start_of(zone) + Sectors(at.into());
        }
    }

    /// Zone of a command that its plug counts as a write in flight.
    pub(super) fn zone_of_write(&self, context: &Context) -> Option<ZoneIndex> {
        let first = match &context.0 {
            ContextKind::One(p) => p,
            ContextKind::Merged(m) => &m.parts[0],
            _ => return None,
        };
        (first.plugged && first.op.is_write()).then(|| self.info.geometry.zone_of(first.sector))
    }

    /// True if the next command of `pending` changes a conventional zone, where no write pointer
    /// rejects a late write.
    pub(super) fn changes_conventional_zone(&self, pending: &PendingRequest) -> bool {
        let changes = pending.op.is_write() || pending.op == Op::Discard;
        let is_flush = pending.stage == RequestStage::FlushBehind;
        changes && !is_flush && self.info.geometry.is_conventional(self.info.geometry.zone_of(pending.sector))
    }

    /// Device queue for a zone's writes. It does not depend on the thread, so the writes of a
    /// thread that migrates, or takes over from another, stay behind those already pending.
    pub(super) fn queue_of(&self, zone: ZoneIndex) -> usize {
        zone.0 as usize % self.info.queues
    }

    /// Kind of a write that is queued or issued in a window: it must be alone if it takes several
    /// commands or writes zeroes.
    #[inline]
    pub(super) fn queued_kind(&self, kind: WriteKind, pending: &PendingRequest) -> WriteKind {
        let left = pending.sectors - pending.done;
        let alone = pending.op == Op::WriteZeroes || left > self.info.command_sectors_max;
        match kind {
            WriteKind::At(offset) if alone => WriteKind::Alone(offset),
            kind => kind,
        }
    }

    /// Parking limits for a write refused with `error`, or `None` if it cannot be parked.
    #[cold]
    pub(super) fn parks(&self, error: &RequestError, request: &PendingRequest) -> Option<ParkOptions> {
        let &RequestError::NotAtWritePointer { zone, write_pointer, offset } = error else { return None };
        let capacity = self.info.geometry.capacity_of(zone);
        let fits = u64::from(offset) + u64::from(request.sectors) <= u64::from(capacity);
        let is_new = !request.nowait && request.done == 0 && request.rounds == 0;
        let may = offset > write_pointer && fits && is_new && !self.policy.is(WriteMode::ZoneLock);
        let options = self.settings.park();
        (may && request.sectors <= options.sectors_max).then_some(options)
    }

    /// Queue entry for a write.
    pub(super) fn item(&self, request: Box<PendingRequest>) -> Item<Box<PendingRequest>> {
        let kind = self.queued_kind(self.write_kind(&request), &request);
        let kind = RequestKind::Write(kind, request.sectors);
        Item { kind, mergeable: self.is_mergeable(&request), token: request }
    }

    /// Scheduler between the plugs and the device.
    pub(super) fn scheduler(&self) -> SchedulerKind {
        match self.policy.mode().takes_scheduler() {
            true => self.settings.scheduler(),
            false => SchedulerKind::None,
        }
    }

    /// Entry of a command for the scheduler between the plugs and the device, or the command if it
    /// is not sorted.
    pub(super) fn sorted(&self, mut context: Context) -> Result<Request<Context>, Context> {
        let Command { op, sector, sectors, .. } = self.command(&mut context);
        let direction = match op {
            op if op.is_read() => Direction::Read,
            op if op.is_write() => Direction::Write,
            _ => return Err(context),
        };
        let zone = self.zone_of_write(&context);
        let sectors = Sectors(sectors.into());
        Ok(Request { direction, sector, sectors, zone, mergeable: false, token: context })
    }

    /// Scheduler entry for a request.
    pub(super) fn scheduled(&self, pending: Box<PendingRequest>) -> Request<Box<PendingRequest>> {
        let zone = super::front::plugged_zone(&self.info.geometry, &pending);
        Request {
            direction: if pending.op.is_read() { Direction::Read } else { Direction::Write },
            sector: pending.sector,
            sectors: Sectors(pending.sectors.into()),
            zone,
            mergeable: zone.is_some() && self.is_mergeable(&pending),
            token: pending,
        }
    }
}

/// Properties of a device that a scheduler uses.
pub(super) fn scheduler_limits(info: &DeviceInfo) -> Limits {
    Limits {
        zone_size: info.geometry.zone_size(),
        sectors_max: Sectors(info.command_sectors_max.into()),
        rotational: info.rotational,
    }
}

#[cfg(test)]
impl Terms {
    /// Terms of a drive with commands of up to 64 sectors, after `change`.
    pub(super) fn of_drive(change: impl FnOnce(&mut DeviceInfo)) -> Terms {
        let options = crate::emulated::EmulatedOptions::default().with_max_sectors(64);
        let mut info = options.info("drive").unwrap();
        change(&mut info);
        let settings = Settings::new(&info, &super::VolumeOptions::default());
        let policy = Policy::new(WriteMode::PerZone, "");
        Terms { settings, policy, has_budget: false, virtual_time: false, info }
    }
}
