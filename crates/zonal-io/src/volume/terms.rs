//! The terms on which a volume takes requests: what the drive is, the write mode, and the options in force.
//!
//! Pure: what a request is to its zone's plug, by which rules the plug admits it, where it is put. `check` has what is refused at
//! once, `command` what goes to the drive.

use super::mode::{Policy, WriteMode};
use super::pending::{PendingRequest, RequestStage};
use super::settings::Settings;
use crate::device::{Context, ContextKind, DeviceInfo};
use zonal_core::plug::{Item, ParkOptions, RequestKind, Rules, WriteKind};
use zonal_core::scheduler::{Direction, Request};
use zonal_core::{Op, RequestError, Sectors, ZoneIndex};

/// See the module.
pub(super) struct Terms {
    /// What the drive is; it never changes.
    pub(super) info: DeviceInfo,
    pub(super) policy: Policy,
    pub(super) settings: Settings,
    /// Whether the volume keeps account of the drive's open and active zones.
    pub(super) has_budget: bool,
    /// Whether the drive lives in the time that it is told, and no thread waits for it.
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

    /// The rules of the modes without a window.
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

    /// Whether one more successful command completes the request, and nothing but its caller has to hear of it.
    #[inline(always)]
    pub(super) fn ends_with_this_command(&self, p: &PendingRequest) -> bool {
        !matches!(p.op, Op::ResetAll | Op::ZoneClose | Op::ZoneOffline)
            && self.transfer_ends_with_this_command(p)
    }

    /// The same for reads and writes.
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

    /// Whether a waiting write may share a command with its neighbours.
    #[inline]
    pub(super) fn is_mergeable(&self, pending: &PendingRequest) -> bool {
        pending.op == Op::Write && !pending.fua && pending.sectors <= self.settings.merge_sectors_max()
    }

    /// Notes where the plug has put a write.
    #[inline]
    pub(super) fn place(&self, zone: ZoneIndex, at: u32, pending: &mut PendingRequest) {
        pending.plugged = true;
        pending.at = at;
        if pending.op == Op::Append && self.policy.appends_in_flight_max() == 0 {
            pending.sector = self.info.geometry.start_of(zone) + Sectors(at.into());
        }
    }

    /// The zone of a command that a plug counts as a write in flight.
    pub(super) fn zone_of_write(&self, context: &Context) -> Option<ZoneIndex> {
        let first = match &context.0 {
            ContextKind::One(p) => p,
            ContextKind::Merged(m) => &m.parts[0],
            _ => return None,
        };
        (first.plugged && first.op.is_write()).then(|| self.info.geometry.zone_of(first.sector))
    }

    /// True if the next command of `pending` changes a conventional zone, where no write pointer rejects a late write.
    pub(super) fn changes_conventional_zone(&self, pending: &PendingRequest) -> bool {
        let changes = pending.op.is_write() || pending.op == Op::Discard;
        let is_flush = pending.stage == RequestStage::FlushBehind;
        changes && !is_flush && self.info.geometry.is_conventional(self.info.geometry.zone_of(pending.sector))
    }

    /// The queue of a zone's writes. The same for every thread: the writes of a thread that moves, or that continues
    /// where another stopped, stay after what is pending.
    pub(super) fn queue_of(&self, zone: ZoneIndex) -> usize {
        zone.0 as usize % self.info.queues
    }

    /// What a write that is queued, or goes into a window, is to the plug.
    #[inline]
    pub(super) fn with_company(&self, kind: WriteKind, pending: &PendingRequest) -> WriteKind {
        let left = pending.sectors - pending.done;
        let alone = pending.op == Op::WriteZeroes || left > self.info.command_sectors_max;
        match kind {
            WriteKind::At(offset) if alone => WriteKind::Alone(offset),
            kind => kind,
        }
    }

    /// The options under which a write that `error` refuses may be parked.
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

    /// A write as it waits.
    pub(super) fn item(&self, request: Box<PendingRequest>) -> Item<Box<PendingRequest>> {
        let kind = self.with_company(self.write_kind(&request), &request);
        let kind = RequestKind::Write(kind, request.sectors);
        Item { kind, mergeable: self.is_mergeable(&request), token: request }
    }

    /// A request as it waits in the scheduler.
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

#[cfg(test)]
impl Terms {
    /// The terms of a drive whose largest command has 64 sectors, after `change`.
    pub(super) fn of_drive(change: impl FnOnce(&mut DeviceInfo)) -> Terms {
        let options = crate::emulated::EmulatedOptions::default().with_max_sectors(64);
        let mut info = options.info("drive").unwrap();
        change(&mut info);
        let settings = Settings::new(&info, &super::VolumeOptions::default());
        let policy = Policy::new(WriteMode::PerZone, "");
        Terms { settings, policy, has_budget: false, virtual_time: false, info }
    }
}
