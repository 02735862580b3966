//! The emulated device: checks, places, transfers and completes commands.

use super::bandwidth::Bandwidth;
use super::check::{self, Payload};
use super::completion::{Executed, Queues};
use super::elsewhere::elsewhere;
use super::options::{CompleteMode, EmulatedOptions, Locking, OptionsError};
use super::storage::{Extent, Storage};
use super::zones::{EventOutcome, Placed, WriteKind, Zones};
use crate::badblocks::{BadRange, Medium};
use crate::changes::{Changes, Notices, ZoneSetting};
use crate::device::{
    Command, CommandResult, Completed, Contention, Context, Device, DeviceInfo, Insight, Landing, Output,
    Submitted,
};
use crate::news::Wakeups;
use crate::sync::Watched;
use zonal_core::device::{Limits, ZoneEvent, ZoneState};
use zonal_core::{DeviceError, Nanos, Op, SECTOR_BYTES, Sector, Sectors, ZoneIndex};

/// Emulated zoned device on storage `S`.
///
/// All operations in all completion modes use one executor, so no path skips the zone rules. A
/// positional write is in flight until it completes (with [`CompleteMode::Poll`]: until `poll`
/// returns it). Meanwhile another positional write to the zone is refused, unless the device
/// preserves the order of its queues.
///
/// ```
/// use zonal_io::device::Device;
/// use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
/// let options = EmulatedOptions::default().with_size(1 << 40).with_zone_nr_conv(4);
/// let null = Emulated::new("null:size=1T", &options, Null)?;
/// assert_eq!(null.info().geometry.zones(), 4096);
/// # Ok::<(), zonal_io::emulated::OptionsError>(())
/// ```
pub struct Emulated<S> {
    info: DeviceInfo,
    zones: Zones,
    storage: S,
    medium: Medium,
    queues: Option<Queues>,
    /// Limit on the data that reads and writes transfer. Only with `queues`.
    bandwidth: Option<Bandwidth>,
    /// Used without queues. They never ring, because there is nothing to poll for.
    wakeups: Wakeups,
    device_lock: Option<Watched<()>>,
    notices: Notices,
}

impl<S: Storage> Emulated<S> {
    /// Creates a device with name `name`.
    ///
    /// # Errors
    /// [`OptionsError`] with the invalid option.
    pub fn new(name: &str, options: &EmulatedOptions, storage: S) -> Result<Emulated<S>, OptionsError> {
        let info = options.info(name)?;
        let (geometry, personality) = (info.geometry, info.personality);
        let limits = Limits { open_max: info.open_max, active_max: info.active_max };
        let zones = Zones::new(geometry, personality, limits, |zone| match options.zone_full {
            true => ZoneState::full(geometry.capacity_of(zone)),
            false => ZoneState::EMPTY,
        });
        for (zones_of, event) in
            [(&options.zone_readonly, ZoneEvent::SetReadOnly), (&options.zone_offline, ZoneEvent::SetOffline)]
        {
            for zone in zones_of.iter().cloned().flatten().map(ZoneIndex) {
                zones.apply(zone, event).expect("`info` has checked the zones");
            }
        }
        let medium = Medium::new(geometry.sectors().0, info.block_sectors, options.bad_blocks());
        let bandwidth = Bandwidth::of(options.mbps);
        let delay = Nanos(options.completion_nsec);
        let queues = match options.complete_mode() {
            CompleteMode::Inline => None,
            CompleteMode::Poll => Some(Queues::new(info.queues, options.hw_queue_depth, delay)),
        };
        let device_lock = (options.lock == Locking::Device).then(|| Watched::new(()));
        let wakeups = Wakeups::new(info.queues);
        let notices = Notices::default();
        Ok(Emulated { info, zones, storage, medium, queues, bandwidth, wakeups, device_lock, notices })
    }

    /// Returns the zones, for inspection.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// Executes and completes `command`.
    ///
    /// Reads and writes return values that fit a register, and their result is constructed in
    /// place. Moving it would cost as much as the rest of a write without payload.
    #[inline(always)]
    fn submit_inline(&self, command: &Command) -> Submitted {
        let done = match command.op {
            Op::Write | Op::WriteZeroes => self.write(command),
            Op::Read => self.read(command),
            _ => return Submitted::Done(self.execute_other(command)),
        };
        match done {
            Ok(()) => Submitted::Done(Ok(Output::Done)),
            Err(error) => Submitted::Done(Err(error)),
        }
    }

    /// Separate from `submit_inline`, so that the guard costs nothing where no lock is used.
    #[cold]
    fn submit_locked(&self, lock: &Watched<()>, command: &Command) -> Submitted {
        let _one_at_a_time = lock.lock();
        self.submit_inline(command)
    }

    /// Executes `command`. An exclusive write holds its place until its completion is returned.
    fn execute_and_hold(&self, command: &Command) -> Executed {
        let _one_at_a_time = self.device_lock.as_ref().map(Watched::lock);
        match command.op {
            Op::Write | Op::WriteZeroes => {
                self.write_and_hold(command).unwrap_or_else(|e| Executed { result: Err(e), held: None })
            }
            _ => Executed { result: self.execute_other(command), held: None },
        }
    }

    #[inline(never)]
    fn submit_polled(
        &self,
        queues: &Queues,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        if !queues.reserve(queue) {
            return Submitted::Busy;
        }
        let executed = self.execute_and_hold(command);
        let context = context.take().expect("a submitted command comes with its context");
        let arrives = match &self.bandwidth {
            Some(bandwidth) if executed.result.is_ok() => bandwidth.transfer(now, command),
            _ => now,
        };
        queues.add(arrives, queue, context, executed);
        Submitted::Accepted
    }

    #[inline(never)]
    fn execute_other(&self, command: &Command) -> CommandResult {
        match command.op {
            Op::Read => self.read(command).map(|()| Output::Done),
            Op::Write | Op::WriteZeroes => unreachable!("writes are executed by `submit_inline`"),
            Op::Append => self.append(command),
            Op::Flush => Ok(Output::Done),
            Op::ZoneReset | Op::ZoneFinish | Op::ZoneOpen | Op::ZoneClose | Op::ZoneOffline => {
                self.manage(command)
            }
            Op::Verify => self.verify(command).map(|()| Output::Done),
            Op::Discard => self.punch(command).map(|()| Output::Done),
            Op::ResetAll => {
                self.zones.reset_all(|zone, generation| self.storage.discard(zone, generation));
                Ok(Output::Done)
            }
            Op::Report => self.zones.report(command.sector, command.sectors).map(Output::Zones),
        }
    }

    const PAYLOAD: Payload = if S::KEEPS_DATA { Payload::Needed } else { Payload::Ignored };

    #[inline(always)]
    fn write(&self, command: &Command) -> Result<(), DeviceError> {
        let (zone, offset) = check::locate_write(&self.info, command, Self::PAYLOAD)?;
        if self.info.geometry.is_conventional(zone) {
            self.write_conventional(zone, offset, command)
        } else if S::KEEPS_DATA || !self.medium.is_sound() {
            let (placed, transferred) = self.write_sequential(zone, offset, command)?;
            self.zones.release(placed);
            transferred
        } else {
            Ok(self.zones.write_at_once(zone, offset, command.sectors)?)
        }
    }

    fn write_and_hold(&self, command: &Command) -> Result<Executed, DeviceError> {
        let (zone, offset) = check::locate_write(&self.info, command, Self::PAYLOAD)?;
        let (held, transferred) = if self.info.geometry.is_conventional(zone) {
            (None, self.write_conventional(zone, offset, command))
        } else {
            let (placed, transferred) = self.write_sequential(zone, offset, command)?;
            (Some(placed), transferred)
        };
        Ok(Executed { result: transferred.map(|()| Output::Done), held })
    }

    fn write_conventional(&self, zone: ZoneIndex, offset: u32, command: &Command) -> Result<(), DeviceError> {
        check::fits_zone(&self.info.geometry, zone, offset, command.sectors)?;
        let to = Extent { zone, offset, sectors: command.sectors, generation: 0 };
        match self.medium.is_sound() {
            true => self.transfer(to, command),
            false => self.transfer_good(to, command.sector, command).1,
        }
    }

    /// Transfers the payload of a write to `to`, which begins at `sector`, up to the first bad block.
    /// Returns the number of sectors that have arrived.
    #[cold]
    fn transfer_good(&self, to: Extent, sector: Sector, command: &Command) -> (u32, Result<(), DeviceError>) {
        let good = self.medium.good_part(sector.0, to.sectors);
        let first = Extent { sectors: good, ..to };
        let transferred = match good {
            0 => Ok(()),
            _ if good == to.sectors => self.transfer(to, command),
            _ => command.run_first(good, |command| self.transfer(first, command)),
        };
        match transferred {
            Err(error) => (0, Err(error)),
            Ok(()) if good < to.sectors => (good, Err(DeviceError::Medium)),
            Ok(()) => (good, Ok(())),
        }
    }

    #[inline]
    fn write_sequential(
        &self,
        zone: ZoneIndex,
        offset: u32,
        command: &Command,
    ) -> Result<(Placed, Result<(), DeviceError>), DeviceError> {
        self.write_in_place(check::write_kind(&self.info), zone, offset, command)
    }

    /// Assigns a write its place and transfers its payload. Returns the place with the outcome of
    /// the transfer.
    #[inline]
    fn write_in_place(
        &self,
        kind: WriteKind,
        zone: ZoneIndex,
        offset: u32,
        command: &Command,
    ) -> Result<(Placed, Result<(), DeviceError>), DeviceError> {
        if !self.medium.is_sound() {
            return self.write_around_bad(kind, zone, offset, command);
        }
        let placed = self.zones.begin(kind, zone, offset, command.sectors)?;
        let transferred = self.transfer((&placed).into(), command);
        self.zones.end(&placed, if transferred.is_ok() { placed.sectors } else { 0 });
        Ok((placed, transferred))
    }

    /// [`Emulated::write_in_place`] on a medium with bad blocks.
    #[cold]
    fn write_around_bad(
        &self,
        kind: WriteKind,
        zone: ZoneIndex,
        offset: u32,
        command: &Command,
    ) -> Result<(Placed, Result<(), DeviceError>), DeviceError> {
        let _alone = self.medium.place_alone();
        // The zone must not be full before the outcome is known.
        let placed = self.zones.begin_transfer(kind, zone, offset, command.sectors)?;
        let (arrived, result) = self.transfer_good((&placed).into(), self.sector_of(&placed), command);
        self.zones.end(&placed, arrived);
        self.zones.apply(zone, ZoneEvent::EndWrite).expect("the end of a write is never refused");
        Ok((placed, result))
    }

    fn sector_of(&self, placed: &Placed) -> Sector {
        self.info.geometry.start_of(placed.zone) + Sectors(u64::from(placed.offset))
    }

    #[inline]
    fn transfer(&self, to: Extent, command: &Command) -> Result<(), DeviceError> {
        match (command.landing, command.op) {
            (Landing::InPlace, Op::WriteZeroes) => self.storage.write_zeroes(to),
            (Landing::InPlace, _) => self.storage.write(to, &command.data),
            (Landing::Lost, _) => Ok(()),
            (Landing::Misdirected(draw), _) => {
                self.misdirect(to, draw, command);
                Ok(())
            }
        }
    }

    /// Writes the payload of the write `own` over other data.
    #[cold]
    fn misdirect(&self, own: Extent, draw: u8, command: &Command) {
        let end_of = |zone| {
            let capacity = self.info.geometry.capacity_of(zone);
            self.zones.state(zone).readable(0, capacity).unwrap_or(0)
        };
        let Some((zone, offset)) = elsewhere(&self.info, own, draw, end_of) else { return };
        // If the zone was reset meanwhile it has no data there. If it is reset later, its
        // generation differs.
        if let Ok(found) = self.zones.readable(zone, offset, own.sectors)
            && found.data_sectors == own.sectors
        {
            let to = Extent { zone, offset, sectors: own.sectors, generation: found.generation };
            self.storage.overwrite(to, &command.bytes());
        }
    }

    fn append(&self, command: &Command) -> Result<Output, DeviceError> {
        let zone = check::locate_append(&self.info, command, Self::PAYLOAD)?;
        let (placed, result) = self.write_in_place(WriteKind::Append, zone, 0, command)?;
        let sector = self.sector_of(&placed);
        self.zones.release(placed);
        result?;
        Ok(Output::Appended(sector))
    }

    #[inline]
    fn read(&self, command: &Command) -> Result<(), DeviceError> {
        let (zone, offset) = check::locate_read(&self.info, command, Self::PAYLOAD)?;
        let found = self.zones.readable(zone, offset, command.sectors)?;
        check::fits_zone(&self.info.geometry, zone, offset, command.sectors)?;
        let good = self.medium.good_part(command.sector.0, command.sectors);
        if S::KEEPS_DATA {
            let sectors = found.data_sectors.min(good);
            self.storage
                .read(Extent { zone, offset, sectors, generation: found.generation }, &command.data)?;
            command.data.fill_from(sectors as usize * SECTOR_BYTES as usize, 0);
        }
        if good < command.sectors { Err(DeviceError::Medium) } else { Ok(()) }
    }

    /// Memory needs no verification apart from its bad blocks.
    fn verify(&self, command: &Command) -> Result<(), DeviceError> {
        let (zone, offset) = check::locate_verify(&self.info, command)?;
        self.zones.readable(zone, offset, command.sectors)?;
        check::fits_zone(&self.info.geometry, zone, offset, command.sectors)?;
        match self.medium.good_part(command.sector.0, command.sectors) < command.sectors {
            true => Err(DeviceError::Medium),
            false => Ok(()),
        }
    }

    fn punch(&self, command: &Command) -> Result<(), DeviceError> {
        let (zone, offset) = check::locate_discard(&self.info, command)?;
        self.storage.punch(Extent { zone, offset, sectors: command.sectors, generation: 0 });
        Ok(())
    }

    fn manage(&self, command: &Command) -> Result<Output, DeviceError> {
        let (zone, action) = check::locate_action(&self.info, command)?;
        if let Some(generation) = self.zones.manage(zone, action)? {
            self.storage.discard(zone, generation);
        }
        Ok(Output::Done)
    }
}

impl<S: Storage> Device for Emulated<S> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        match (&self.queues, &self.device_lock) {
            (None, None) => self.submit_inline(command),
            (None, Some(lock)) => self.submit_locked(lock, command),
            (Some(queues), _) => self.submit_polled(queues, now, queue, command, context),
        }
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let queues = self.queues.as_ref()?;
        queues.poll(now, queue, budget, |placed: Placed| self.zones.release(placed), done)
    }

    fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        if zone.0 >= self.info.geometry.zones() {
            return Err(DeviceError::OutOfRange);
        }
        let EventOutcome { has_changed, generation } = self.zones.apply_event(zone, to.event())?;
        if let Some(generation) = generation {
            self.storage.discard(zone, generation);
        }
        if has_changed {
            self.notices.note(|changes| changes.add_zone(zone));
            self.wakeups().ring_all();
        }
        Ok(())
    }

    fn badblocks(&self, change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
        self.medium.change(change)
    }

    fn has_changes(&self) -> bool {
        self.notices.are_there()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.notices.take(into);
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.is_idle(queue))
    }

    fn insight(&self) -> Insight {
        let device = self.device_lock.as_ref().map_or(0, Watched::waits);
        let waits = device + self.queues.as_ref().map_or(0, Queues::waits);
        let contention = self.zones.contention() + Contention { waits, retries: 0 };
        Insight { begins_empty: true, misplaces: S::OVERWRITES, contention, ..Insight::default() }
    }

    fn wakeups(&self) -> &Wakeups {
        self.queues.as_ref().map_or(&self.wakeups, Queues::wakeups)
    }

    fn has_news(&self, queue: usize) -> bool {
        self.queues.as_ref().is_some_and(|queues| queues.has_news(queue))
    }
}
