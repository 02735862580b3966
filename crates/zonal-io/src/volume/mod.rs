//! Write path: accepts requests from any thread and issues them to a zoned device in order.
//!
//! A [`Volume`] has no thread of its own and reads no clock. The threads that submit, poll or wait
//! do the work, in bounded turns.
//!
//! # The path of a write
//! 1. [`Volume::submit`] checks the request and splits it at zone boundaries (`submit`).
//! 2. The zone's plug decides: issue, wait or refuse. Without contention this takes one
//!    compare-exchange on the zone's word; otherwise the zone's shard of queues is locked (`turn`).
//! 3. Commands are issued without any lock held. A command refused by a full device queue is kept
//!    and retried by the next poll.
//! 4. When a command completes, the plug is updated first, then the zone's next write is issued,
//!    and only then is the caller notified (`channel`). After a failed write the zone is recovered
//!    instead (`recovery`).
//!
//! # Modules
//! Each module owns its own state and is passed references to the state of others:
//! - `terms`: properties of the drive, and rules; `check` has the checks of a request, `command`
//!   the commands.
//! - `plugs`: the plugs.
//! - `step`: the gates that a waiting write passes.
//! - `budget`: the slots.
//! - `token`: the token of mode `qd1`.
//! - `quiesce`: operations on all zones.
//! - `recovering`: zones in recovery.
//! - `front`: the scheduler of mode `zone-lock`, in front of everything.
//!
//! The next step after a command is decided without I/O: in `completion` if the command succeeded
//! or may be retried, in `verdict` if the zone's write pointer has to show whether it was executed.
//!
//! # Locks
//! No lock is held while the device or a completion function runs.

#![allow(clippy::vec_box, reason = "requests and queues move between owners by pointer, not by copy")]

mod alarm;
mod alone;
mod backoff;
mod budget;
mod call;
mod cancel;
mod chain;
pub(crate) mod channel;
mod check;
mod command;
mod completion;
mod counters;
mod driver;
mod event;
mod events;
mod flight;
mod front;
mod handover;
mod inbox;
mod issue;
mod listing;
mod manage;
mod mode;
mod options;
mod park;
mod part;
mod pending;
mod pipelined;
mod plugs;
mod quiesce;
mod reaper;
mod recovering;
mod recovery;
mod reissued;
mod request;
mod retry;
mod settings;
mod shard;
mod stalled;
mod step;
mod submit;
mod terms;
mod token;
mod turn;
mod verdict;
mod watch;

pub use alone::{keeps_data, read_alone, report, round_trip, run_alone};
pub use backoff::Backoff;
pub use budget::{BudgetOptions, BudgetStatus, CLASSES, SlotStatus};
pub use channel::{Channel, TURN_MAX, Withdrawal};
pub use counters::Statistics;
pub use driver::{Driver, drive};
pub use events::{DeviceEvent, Events};
pub use inbox::Inbox;
pub use listing::{Condition, PlugStatus};
pub use mode::{QD1_ROUND_TRIP_MAX, SWITCHED, SwitchError, UnknownMode, WriteMode};
pub use options::{
    OptionChanges, OptionError, OptionKey, SchedulerKind, SetBy, Setters, VolumeOptions, parse_time,
    size_text, time_text,
};
pub use part::{Part, PartKind, PartStatistics};
use pending::PendingRequest;
pub use reissued::{ReissuedWrite, Remaining, copied_from};
pub use request::{Completion, Request};
pub use settings::SetError;
pub use token::Qd1Quantum;
pub use zonal_core::budget::{Holders, Policy, WriterClass};
pub use zonal_core::plug::ParkOptions;

use crate::changes::Changes;
use crate::device::{
    CommandResult, Contention, Context, Device, DeviceInfo, Insight, Submitted, rebuild_result,
};
use crate::news::{LEFT, News, Wakeups};
use crate::sync::{Arc, SegQueue};
use alarm::Alarm;
use arrayvec::ArrayVec;
use budget::Slots;
use channel::{Channels, begin_call, end_call};
use counters::Counters;
use events::Watch;
pub use flight::FLIGHT_RECORDS_MAX;
use flight::Recorder;
use front::Front;
use handover::Registration;
use park::Parking;
use plugs::Plugs;
use quiesce::Quiesce;
use reaper::Reapers;
use recovering::RecoveringZones;
use retry::Retries;
use settings::Settings;
use shard::Shard;
use stalled::Stalled;
use std::time::Duration;
use terms::Terms;
use token::{Token, Tokens};
use turn::Work;
use zonal_core::plug::{Word, ZoneClass};
use zonal_core::{DeviceError, Nanos, Sectors, ZoneCondition, ZoneDescriptor, ZoneIndex};

/// Zones requested in one report.
const REPORT_ZONES: u32 = 1 << 16;

/// Error of [`Volume::open`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This `Arc` of a device already has a volume.
    #[error("{device}: already has a volume; a second one would not see its writes")]
    InUse {
        /// Device name.
        device: String,
    },
    /// The device failed to report its zones.
    #[error("{device}: cannot read the zones: {error}")]
    Report {
        /// Device name.
        device: String,
        /// Error of the report.
        error: DeviceError,
    },
    /// The reported zone contradicts the device's geometry.
    #[error("{device}: invalid report of zone {zone}: {what}")]
    Zone {
        /// Device name.
        device: String,
        /// The zone.
        zone: ZoneIndex,
        /// The contradiction.
        what: &'static str,
    },
    /// The budget's guaranteed minimums exceed or contradict the device's limits.
    #[error("{device}: {error}")]
    Budget {
        /// Device name.
        device: String,
        /// The contradiction.
        error: zonal_core::budget::BudgetError,
    },
    /// Mode `append` on a device without zone append.
    #[error("{device}: write mode append needs native zone append, which the device does not have")]
    NoAppend {
        /// Device name.
        device: String,
    },
    /// Mode `pipelined` on a device whose queues do not preserve order, without
    /// [`VolumeOptions::force`].
    #[error("{device}: {}", SwitchError::NoOrder)]
    NoOrder {
        /// Device name.
        device: String,
    },
}

/// Zoned device with write plugs. The module documentation describes its operation.
///
/// Dropping a volume completes no requests: unfinished ones are dropped, and commands at the device
/// may or may not take effect.
pub struct Volume {
    /// Dropped before the device, as it holds the device's address.
    registration: Registration,
    device: Arc<dyn Device>,
    terms: Terms,
    plugs: Plugs,
    /// Zones that can continue, deferred because their thread had used up its turn.
    ready: SegQueue<ZoneIndex>,
    reapers: Reapers,
    stalled: Stalled,
    channels: Channels,
    counters: Counters,
    quiesce: Quiesce,
    tokens: Tokens,
    slots: Slots,
    parking: Parking,
    /// Scheduler of mode `zone-lock`, if the volume was opened in that mode.
    front: Option<Arc<Front>>,
    recovering: RecoveringZones,
    /// Commands waiting for their next retry.
    delayed: Retries,
    recorder: Recorder,
    alarm: Arc<Alarm>,
    watch: Watch,
}

impl Volume {
    /// Opens `device`: reads its zones and builds their plugs. Blocks until the device has
    /// answered.
    ///
    /// A device has at most one volume at a time, shared by all threads, until that volume is
    /// dropped. Devices are compared by address: a wrapper around a device that already has a
    /// volume is not detected.
    ///
    /// # Errors
    /// [`OpenError`] if the device already has a volume, fails to report its zones, or reports
    /// zones that contradict its geometry; if the budget's minimums exceed or contradict its
    /// limits; or if it does not support the mode of `options`: it has no native zone append, or
    /// does not preserve order and [`VolumeOptions::force`] is not set.
    pub fn open(device: Arc<dyn Device>, options: VolumeOptions) -> Result<Volume, OpenError> {
        let info = device.info().clone();
        let (mode, mode_reason) = match options.mode {
            Some(mode) => (mode, reason_of(&options)),
            None => WriteMode::for_device(&*device),
        };
        match mode.fits(&info) {
            Ok(()) => {}
            Err(SwitchError::NoOrder) if options.force => {}
            Err(SwitchError::NoOrder) => return Err(OpenError::NoOrder { device: info.name }),
            Err(_) => return Err(OpenError::NoAppend { device: info.name }),
        }
        let Some(registration) = Registration::of(&*device) else {
            return Err(OpenError::InUse { device: info.name });
        };
        let plugs = Plugs::new(info.geometry);
        let alarm = Alarm::new(Wakeups::joining(info.queues, [device.wakeups().clone()]), info.queues);
        let counters = Counters::new();
        let slots = match options.budget.filter(|_| mode != WriteMode::Direct) {
            Some(options) => Slots::new(&info, options, &counters)
                .map_err(|error| OpenError::Budget { device: info.name.clone(), error })?,
            None => Slots::default(),
        };
        let watch = Watch::default();
        // Older changes are covered by the reports below.
        device.take_changes(&mut Changes::default());
        for_each_zone(&*device, |zone| {
            watch.opened_with(zone);
            let word = slots.adopt(zone, word_of(&info, zone)?);
            plugs.store(zone.zone, word);
            Ok(())
        })?;
        let has_budget = slots.are_counted();
        Ok(Volume {
            registration,
            plugs,
            ready: SegQueue::new(),
            reapers: Reapers::new(info.queues, device.insight().virtual_time),
            stalled: Stalled::new(info.queues),
            channels: Channels::new(alarm.clone()),
            counters,
            quiesce: Quiesce::default(),
            tokens: Tokens::new(&info),
            slots,
            parking: Parking::default(),
            front: (mode == WriteMode::ZoneLock).then(|| Front::new(&info, alarm.clone())),
            recovering: RecoveringZones::default(),
            delayed: Retries::default(),
            recorder: Recorder::default(),
            alarm,
            watch,
            terms: Terms {
                policy: mode::Policy::new(mode, mode_reason),
                settings: Settings::new(&info, &options),
                has_budget,
                virtual_time: device.insight().virtual_time,
                info,
            },
            device,
        })
    }

    /// Properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.terms.info
    }

    /// The device. Commands that bypass the volume leave its write pointers stale.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Write mode, and the reason why it was chosen.
    pub fn mode(&self) -> (WriteMode, &'static str) {
        (self.terms.policy.mode(), self.terms.policy.reason())
    }

    /// Largest zone append that this volume accepts, in sectors; 0 if it accepts none.
    ///
    /// The value is the same in all modes that can be switched to, so that an append that was
    /// admitted before a switch can still be issued after it.
    pub fn append_sectors_max(&self) -> u32 {
        self.terms.append_sectors_max_if(self.terms.policy.is(WriteMode::Direct))
    }

    /// Snapshot of the counters.
    pub fn statistics(&self) -> Statistics {
        let Insight { contention, copies: device_copies, .. } = self.device.insight();
        let Contention { waits: device_waits, retries: device_retries } = contention;
        let plug_waits =
            self.plugs.waits() + self.tokens.iter().map(|token| u64::from(token.waits())).sum::<u64>();
        Statistics {
            plug_waits,
            plug_retries: self.plugs.retries(),
            device_waits,
            device_retries,
            device_copies,
            ..self.counters.sum()
        }
    }

    /// Memory of the plugs in bytes, used and unused zones alike.
    pub fn plug_bytes(&self) -> usize {
        self.plugs.bytes()
    }

    /// Opens a channel with a completion function that may run before `submit` returns.
    pub fn channel(&self, complete: impl Fn(Completion) + Send + Sync + 'static) -> Channel {
        self.channels.open(Box::new(complete), None)
    }

    /// Opens a channel with a completion function that runs only inside [`Volume::poll`].
    pub fn deferred_channel(&self, complete: impl Fn(Completion) + Send + Sync + 'static) -> Channel {
        self.channels.open_deferred(Box::new(complete), None)
    }

    /// Performs one turn of pending work: reaps the device's queues, advances zones, delivers
    /// completions.
    ///
    /// Any thread may call it. A thread that waits for a completion has to, unless it waits in
    /// [`Volume::call`]. Returns the time by which it has to be called again: `now` if there is
    /// more to do, or if commands were issued since the device was last polled; `None` if only the
    /// device or another request can cause more work.
    ///
    /// # Panics
    /// If a completion function panics.
    pub fn poll(&self, now: Nanos) -> Option<Nanos> {
        begin_call();
        let rings = self.alarm.rings();
        // Completions left over by earlier calls are the oldest.
        self.channels.backlog().deliver();
        self.next_quiesce(now);
        let mut deadline = None;
        // Before reaping: callers notified by the last poll have had their chance to submit more.
        let mut progress = self.keep_budget(now, &mut deadline);
        if self.expire_parked(now, &mut deadline) == Progress::Some {
            progress = Progress::Some;
        }
        if self.take_foreign_completions(now) == Progress::Some {
            progress = Progress::Some;
        }
        if self.collect_changes(now) == Progress::Some {
            progress = Progress::Some;
        }
        self.reap_queues(now, &mut progress, &mut deadline);
        let progress =
            [progress, self.retry_stalled(now), self.serve_ready(now), self.retry_due(now, &mut deadline)];
        let looked = self.poll_recovering(now, &mut deadline);
        self.recorder.write();
        self.channels.clear_cancel_mark();
        let moved = progress.contains(&Progress::Some) || looked == Progress::Some;
        let front = self.front.as_ref().filter(|front| front.needs_dispatch());
        let sent = front.is_some_and(|front| front.dispatch(self, now));
        self.channels.backlog().deliver();
        let own = self.reapers.own();
        if self.needs_early_poll(own) {
            deadline = earliest(deadline, Some(Nanos(now.0.saturating_add(LEFT.as_nanos() as u64))));
        }
        // Commands issued here may be due before the device's last deadline, so it is polled again.
        let more = moved || sent || self.has_work();
        self.alarm.record_rings(rings);
        self.alarm.record_deadline(own, deadline);
        end_call();
        if more { Some(now) } else { deadline }
    }

    /// True if work may become possible without a completion or wakeup: a device queue was busy
    /// although it is empty, the scheduler skipped a request because of another thread's action, or
    /// this thread looks after other queues.
    fn needs_early_poll(&self, queue: usize) -> bool {
        let is_untold = || self.has_passed_over() || self.is_stalled_on_idle_queue();
        self.alarm.wakeups().has_lookers(queue) || !self.terms.virtual_time && is_untold()
    }

    fn has_passed_over(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.has_passed_over())
    }

    /// True if commands are stalled on a queue with none in flight, so no completion will make
    /// room.
    fn is_stalled_on_idle_queue(&self) -> bool {
        let waits_idly = |queue| self.stalled.len_of(queue) > 0 && self.device.is_idle(queue);
        !self.stalled.is_empty() && (0..self.terms.info.queues).any(waits_idly)
    }

    /// Sleeps until a poll by the calling thread may make progress, at most for `timeout`. To be
    /// called after a poll that returned `None` or a later time. A completion that another thread
    /// delivers after the caller last checked, but before the sleep begins, does not prevent the
    /// sleep: if other threads may complete its requests, the caller uses [`Volume::wait_unless`],
    /// which checks once more, or sleeps only briefly.
    pub fn wait(&self, timeout: Duration) {
        self.wait_unless(timeout, || false);
    }

    /// Like [`Volume::wait`], but returns at once if `has_come` is true. `has_come` is evaluated
    /// after wakeups by other threads are armed, so no completion is missed in between.
    pub fn wait_unless(&self, timeout: Duration, has_come: impl FnOnce() -> bool) {
        let queue = self.reapers.own();
        self.alarm.wakeups().sleep(queue, || {
            if self.alarm.has_rung(queue) || self.has_work() || self.device.has_news(queue) || has_come() {
                return None;
            }
            // Poll queues that may have lost their threads from time to time. Likewise a scheduler
            // that waits for something that no completion signals.
            let mut others = (0..self.terms.info.queues).filter(|other| *other != queue);
            let is_watched = others.any(|other| !self.device.is_idle(other)) || self.has_passed_over();
            Some(if is_watched { timeout.min(LEFT) } else { timeout })
        });
    }

    /// Handle for the calling thread, with a descriptor that becomes readable when a poll by this
    /// thread would make progress. See [`crate::news`] for how a thread or an event loop sleeps on
    /// it.
    ///
    /// # Errors
    /// The operating system's error, if it cannot create a descriptor.
    pub fn news(&self) -> std::io::Result<News> {
        self.alarm.wakeups().news(self.reapers.own())
    }

    /// True if a poll has work to do regardless of the device.
    fn has_work(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.has_work())
            || self.has_foreign_completions()
            || self.device.has_changes()
            || self.watch.has_work()
            || self.recovering.are_fresh()
            || self.quiesce.is_due()
            || self.tokens.iter().any(Token::is_parked)
            || !self.ready.is_empty()
            || !self.channels.backlog().is_empty()
    }

    /// Reaps one queue of the device, up to one turn. Commands issued as a consequence may complete
    /// at once, so it polls again until no more are issued.
    #[inline]
    fn reap(&self, now: Nanos, queue: usize, progress: &mut Progress) -> Option<Nanos> {
        let mut finished: ArrayVec<(Option<Context>, CommandResult), TURN_MAX> = ArrayVec::new();
        let mut left = TURN_MAX;
        loop {
            let due = self
                .device
                .poll(now, queue, left, &mut |c| finished.push((Some(c.context), rebuild_result(c.result))));
            left -= finished.len();
            if !finished.is_empty() {
                *progress = Progress::Some;
            }
            let mut again = false;
            for (slot, result) in &mut finished {
                again |= self.completed(now, slot, result);
            }
            finished.clear();
            if left == 0 {
                return Some(now);
            }
            if !again {
                return due;
            }
        }
    }

    fn serve_ready(&self, now: Nanos) -> Progress {
        let mut progress = Progress::None;
        for zone in self.tokens.iter().filter_map(Token::unpark) {
            self.run(now, Work::Turn(zone));
            progress = Progress::Some;
        }
        for _ in 0..TURN_MAX {
            // `is_empty` is cheaper than a `pop` that finds nothing.
            if self.ready.is_empty() {
                break;
            }
            let Some(zone) = self.ready.pop() else { break };
            self.kick(now, zone);
            progress = Progress::Some;
        }
        progress
    }

    /// Resubmits commands refused by a full queue, in the order of the scheduler if there is one,
    /// until the device refuses one again.
    fn retry_stalled(&self, now: Nanos) -> Progress {
        let mut progress = Progress::None;
        if self.stalled.is_empty() {
            return progress;
        }
        // Commands that another thread was stalling, or another poll held, while their channel was
        // cancelled.
        if self.channels.is_cancelling() && self.cancel_stalled(now) {
            progress = Progress::Some;
        }
        for queue in 0..self.terms.info.queues {
            for _ in 0..self.stalled.len_of(queue) {
                let Some(context) = self.stalled.pop(&self.terms, now, queue) else { break };
                let mut slot = Some(context);
                let on_its_way = self.issuing_zone(&slot);
                let submitted = self.offer(now, queue, &mut slot);
                if let (Some(zone), false) = (on_its_way, matches!(submitted, Submitted::Busy)) {
                    self.window_write_arrived(now, zone);
                }
                match submitted {
                    Submitted::Accepted => {}
                    Submitted::Done(mut result) => {
                        self.completed(now, &mut slot, &mut result);
                    }
                    Submitted::Busy => {
                        self.stalled
                            .push_front(queue, slot.take().expect("a busy device leaves the context"));
                        break;
                    }
                }
                progress = Progress::Some;
            }
        }
        progress
    }
}

/// Reason shown for the mode requested by `options`.
fn reason_of(options: &VolumeOptions) -> &'static str {
    match options.setters.of(OptionKey::Mode) {
        SetBy::Default => SetBy::Caller.name(),
        by => by.name(),
    }
}

/// Result of a part of a poll. After progress, deadlines returned by the device are out of date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    None,
    Some,
}

fn earliest(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Plug word for a zone as reported by the device.
fn word_of(info: &DeviceInfo, zone: &ZoneDescriptor) -> Result<Word, OpenError> {
    let bad = |what| OpenError::Zone { device: info.name.clone(), zone: zone.zone, what };
    let geometry = &info.geometry;
    if zone.start != geometry.start_of(zone.zone) || zone.size.0 != u64::from(geometry.size_of(zone.zone)) {
        return Err(bad("start or size differs from the geometry"));
    }
    if zone.capacity.0 != u64::from(geometry.capacity_of(zone.zone)) {
        return Err(bad("capacity differs from the geometry"));
    }
    if geometry.is_conventional(zone.zone) != (zone.condition == ZoneCondition::NotWp) {
        return Err(bad("condition does not match its type"));
    }
    plug_state(info, zone)
        .map(|(class, pointer)| Word::new(class, pointer))
        .ok_or_else(|| bad("write pointer outside the zone"))
}

/// Class and write pointer of a reported zone, or `None` if its write pointer is outside the zone.
fn plug_state(info: &DeviceInfo, zone: &ZoneDescriptor) -> Option<(ZoneClass, u32)> {
    let capacity = info.geometry.capacity_of(zone.zone);
    Some(match zone.condition {
        ZoneCondition::NotWp => (ZoneClass::Conventional, 0),
        ZoneCondition::ReadOnly => (ZoneClass::ReadOnly, capacity),
        ZoneCondition::Offline => (ZoneClass::Offline, capacity),
        ZoneCondition::Full => (ZoneClass::Sequential, capacity),
        ZoneCondition::Empty => (ZoneClass::Sequential, 0),
        _ => {
            let offset = zone.write_pointer?.0.checked_sub(zone.start.0)?;
            (ZoneClass::Sequential, u32::try_from(offset).ok().filter(|&o| o <= capacity)?)
        }
    })
}

/// Calls `take` with every zone of `device`, in order.
fn for_each_zone(
    device: &dyn Device,
    mut take: impl FnMut(&ZoneDescriptor) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let info = device.info();
    let name = || info.name.clone();
    let mut next = 0;
    while next < info.geometry.zones() {
        let sector = info.geometry.start_of(ZoneIndex(next));
        let zones = report(device, sector, REPORT_ZONES)
            .map_err(|error| OpenError::Report { device: name(), error })?;
        for zone in &zones {
            if zone.zone != ZoneIndex(next) {
                return Err(OpenError::Zone {
                    device: name(),
                    zone: ZoneIndex(next),
                    what: "another zone in its place",
                });
            }
            take(zone)?;
            next += 1;
        }
        if zones.is_empty() {
            return Err(OpenError::Zone { device: name(), zone: ZoneIndex(next), what: "no description" });
        }
    }
    Ok(())
}

const _: () = assert!(size_of::<Sectors>() == 8, "lengths are 64 bits");
