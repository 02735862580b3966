//! The write path: takes requests at any depth from any thread and gets them to a zoned device in order.
//!
//! A [`Volume`] has no thread of its own and reads no clock. Threads that submit, poll or wait do the work, one
//! bounded turn at a time.
//!
//! # The path of one write
//! 1. [`Volume::submit`] checks it and splits it at zone boundaries (`submit`).
//! 2. The zone's plug decides: issue, wait or refuse. Uncontended, that is one compare-exchange on the zone's word;
//!    otherwise the zone's shard of queues is locked (`turn`).
//! 3. Commands go to the device outside any lock. What a full queue refuses is kept and retried by the next poll.
//! 4. On completion the plug is updated first, the zone's next write is issued, and only then is the caller told
//!    (`channel`).
//!
//! # Parts
//! Each owns its state, and is handed what it needs of the others: the terms (`terms`, with what is refused at once in `check` and the
//! commands in `command`), the plugs (`plugs`), the gates of a waiting write (`step`), the slots (`budget`), the token of mode `qd1`
//! (`token`), what concerns all zones (`quiesce`), zones whose recovery waits (`recovering`), and in front of all the scheduler of mode
//! `zone-lock` (`front`). What follows from a command's end is decided without a drive: in `completion` if it succeeded or may be sent
//! again, in `verdict` if its zone has to say what became of it.
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

pub use alone::{keeps_data, read_alone, report, run_alone};
pub use backoff::Backoff;
pub use budget::{BudgetOptions, BudgetStatus, CLASSES, SlotStatus};
pub use channel::{Channel, TURN_MAX, Withdrawal};
pub use counters::Statistics;
pub use driver::{Driver, drive};
pub use events::{DeviceEvent, Events};
pub use inbox::Inbox;
pub use listing::{Condition, PlugStatus};
pub use mode::{SWITCHED, SwitchError, UnknownMode, WriteMode};
pub use options::{
    OptionChanges, OptionError, OptionKey, SetBy, Setters, VolumeOptions, parse_time, size_text, time_text,
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
use crate::device::{CommandResult, Contention, Context, Device, DeviceInfo, Submitted, made_anew};
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
use handover::Home;
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

/// Zones asked for in one report.
const REPORT_ZONES: u32 = 1 << 16;

/// Why a volume cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This `Arc` of a device has a volume.
    #[error("{device}: it has a volume already, and two would not know of each other's writes")]
    InUse {
        /// Device name.
        device: String,
    },
    /// The device did not describe its zones.
    #[error("{device}: cannot read the zones: {error}")]
    Report {
        /// Device name.
        device: String,
        /// Its answer.
        error: DeviceError,
    },
    /// The device's description of a zone contradicts its geometry.
    #[error("{device}: zone {zone} is reported with {what}")]
    Zone {
        /// Device name.
        device: String,
        /// The zone.
        zone: ZoneIndex,
        /// The contradiction.
        what: &'static str,
    },
    /// The budget's minimums and the device's limits contradict each other.
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
    /// Mode `pipelined` on a device whose queues promise no order, without [`VolumeOptions::force`].
    #[error("{device}: {}", SwitchError::NoOrder)]
    NoOrder {
        /// Device name.
        device: String,
    },
}

/// A zoned device with write plugs. See the module for how it works.
///
/// Dropping it tells no caller: requests that have not ended are gone, those at the device with whatever becomes of them there.
pub struct Volume {
    /// Given up before the device, whose address it has.
    home: Home,
    device: Arc<dyn Device>,
    terms: Terms,
    plugs: Plugs,
    /// Zones that can continue but whose thread's turn was over.
    ready: SegQueue<ZoneIndex>,
    reapers: Reapers,
    stalled: Stalled,
    channels: Channels,
    counters: Counters,
    quiesce: Quiesce,
    tokens: Tokens,
    slots: Slots,
    parking: Parking,
    /// The scheduler of mode `zone-lock`, for a volume that was opened in that mode.
    front: Option<Arc<Front>>,
    recovering: RecoveringZones,
    /// Commands that wait for their next retry.
    delayed: Retries,
    recorder: Recorder,
    alarm: Arc<Alarm>,
    watch: Watch,
}

impl Volume {
    /// Opens `device`: reads its zones and makes their plugs. Blocks until the device has answered. A device has one volume at a time,
    /// which threads share, until the last handle of it is gone. That is told by the `Arc` of the device: wrappers are not seen through.
    ///
    /// # Errors
    /// [`OpenError`] if the device has a volume already, cannot describe its zones, or does so in contradiction to its geometry.
    pub fn open(device: Arc<dyn Device>, options: VolumeOptions) -> Result<Volume, OpenError> {
        let info = device.info().clone();
        let (mode, mode_reason) = match options.mode {
            Some(mode) => (mode, reason_of(&options)),
            None => WriteMode::for_device(&info),
        };
        match mode.fits(&info) {
            Ok(()) => {}
            Err(SwitchError::NoOrder) if options.force => {}
            Err(SwitchError::NoOrder) => return Err(OpenError::NoOrder { device: info.name }),
            Err(_) => return Err(OpenError::NoAppend { device: info.name }),
        }
        let Some(home) = Home::of(&*device) else { return Err(OpenError::InUse { device: info.name }) };
        let plugs = Plugs::new(info.geometry);
        let alarm = Alarm::new(Wakeups::joining(info.queues, [device.wakeups().clone()]), info.queues);
        let counters = Counters::new();
        let slots = match options.budget.filter(|_| mode != WriteMode::Direct) {
            Some(options) => Slots::new(&info, options, &counters)
                .map_err(|error| OpenError::Budget { device: info.name.clone(), error })?,
            None => Slots::default(),
        };
        let watch = Watch::default();
        // The reports below are later.
        device.take_changes(&mut Changes::default());
        for_each_zone(&*device, |zone| {
            watch.opened_with(zone);
            let word = slots.adopt(zone, word_of(&info, zone)?);
            plugs.store(zone.zone, word);
            Ok(())
        })?;
        let has_budget = slots.are_counted();
        Ok(Volume {
            home,
            plugs,
            ready: SegQueue::new(),
            reapers: Reapers::new(info.queues),
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

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.terms.info
    }

    /// The device itself. Commands that bypass the volume leave its pointers stale.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The write mode and why it was chosen.
    pub fn mode(&self) -> (WriteMode, &'static str) {
        (self.terms.policy.mode(), self.terms.policy.reason())
    }

    /// Largest zone append that this volume takes, in sectors; 0 where it takes none.
    ///
    /// The same in every mode that can be switched to: what waits when the mode is switched has been admitted.
    pub fn append_sectors_max(&self) -> u32 {
        self.terms.append_sectors_max_if(self.terms.policy.is(WriteMode::Direct))
    }

    /// Live counters.
    pub fn statistics(&self) -> Statistics {
        let Contention { waits: device_waits, retries: device_retries } = self.device.insight().contention;
        let plug_waits =
            self.plugs.waits() + self.tokens.iter().map(|token| u64::from(token.waits())).sum::<u64>();
        Statistics {
            plug_waits,
            plug_retries: self.plugs.retries(),
            device_waits,
            device_retries,
            ..self.counters.sum()
        }
    }

    /// Bytes of plug that the volume keeps for its zones, whether they are in use or not.
    pub fn plug_bytes(&self) -> usize {
        self.plugs.bytes()
    }

    /// A channel whose completion function may run before `submit` returns.
    pub fn channel(&self, complete: impl Fn(Completion) + Send + Sync + 'static) -> Channel {
        self.channels.open(Box::new(complete), None)
    }

    /// A channel whose completion function runs inside [`Volume::poll`] only.
    pub fn deferred_channel(&self, complete: impl Fn(Completion) + Send + Sync + 'static) -> Channel {
        self.channels.open_deferred(Box::new(complete), None)
    }

    /// Does what there is to do, at most one turn of it: reaps the device's queues, moves zones on, delivers completions.
    ///
    /// Any thread may call it; a thread that waits for a completion does. Returns when to call again at the latest: `now`
    /// if there is more to do or the device has not been asked since it got new commands, `None` if only the device or
    /// another request can bring news.
    ///
    /// # Panics
    /// If a completion function did.
    pub fn poll(&self, now: Nanos) -> Option<Nanos> {
        begin_call();
        let rings = self.alarm.rings();
        // First what earlier calls have left over: it came first.
        self.channels.backlog().deliver();
        self.next_quiesce(now);
        let mut deadline = None;
        // Before news comes in: callers that were told the last time have had the opportunity to continue.
        let mut progress = self.keep_budget(now, &mut deadline);
        if self.look_after_parked(now, &mut deadline) == Progress::Some {
            progress = Progress::Some;
        }
        if self.take_strays(now) == Progress::Some {
            progress = Progress::Some;
        }
        if self.look_at_changes(now) == Progress::Some {
            progress = Progress::Some;
        }
        self.reap_queues(now, &mut progress, &mut deadline);
        let progress =
            [progress, self.retry_stalled(now), self.serve_ready(now), self.retry_due(now, &mut deadline)];
        let looked = self.look_after_recovering(now, &mut deadline);
        self.recorder.write();
        self.channels.look_after_cancelled();
        let moved = progress.contains(&Progress::Some) || looked == Progress::Some;
        let front = self.front.as_ref().filter(|front| front.is_to_be_seen());
        let sent = front.is_some_and(|front| front.dispatch(self, now));
        self.channels.backlog().deliver();
        let own = self.reapers.own();
        if self.has_to_look_soon(own) {
            deadline = earliest(deadline, Some(Nanos(now.0.saturating_add(LEFT.as_nanos() as u64))));
        }
        // Commands issued here may be due before anything that the device spoke of, so it has to be asked again.
        let more = moved || sent || self.has_work();
        self.alarm.have_heard(rings);
        self.alarm.have_told(own, deadline);
        end_call();
        if more { Some(now) } else { deadline }
    }

    /// Whether there is something that no end and no ring tells of. A queue has turned a command away although nothing is in it; the
    /// scheduler has passed over a request for what another thread does; or the thread is a looker for other queues.
    fn has_to_look_soon(&self, queue: usize) -> bool {
        let is_untold = || self.has_passed_over() || self.has_stalled_for_nothing();
        self.alarm.wakeups().has_lookers(queue) || !self.terms.virtual_time && is_untold()
    }

    fn has_passed_over(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.has_passed_over())
    }

    /// Whether commands wait for room in a queue that holds none, so that none ends and makes room.
    fn has_stalled_for_nothing(&self) -> bool {
        let waits_idly = |queue| self.stalled.len_of(queue) > 0 && self.device.is_idle(queue);
        !self.stalled.is_empty() && (0..self.terms.info.queues).any(waits_idly)
    }

    /// Sleeps until a poll of the calling thread may bring something, or for `timeout`. For a thread that has polled, and was
    /// told a later time. What other threads have completed for it since it last looked, it has to look for itself: a thread
    /// whose requests others may complete uses [`Volume::wait_unless`], or sleeps for moments.
    pub fn wait(&self, timeout: Duration) {
        self.wait_unless(timeout, || false);
    }

    /// As [`Volume::wait`], unless what the thread waits for `has_come`. That is asked once a completion by another thread
    /// would wake this one, so that none is missed in between.
    pub fn wait_unless(&self, timeout: Duration, has_come: impl FnOnce() -> bool) {
        let queue = self.reapers.own();
        self.alarm.wakeups().sleep(queue, || {
            if self.alarm.has_rung(queue) || self.has_work() || self.device.has_news(queue) || has_come() {
                return None;
            }
            // Commands of a queue that its threads may have left are looked at from time to time. So is a scheduler that no end
            // tells of what it waits for.
            let mut others = (0..self.terms.info.queues).filter(|other| *other != queue);
            let is_watched = others.any(|other| !self.device.is_idle(other)) || self.has_passed_over();
            Some(if is_watched { timeout.min(LEFT) } else { timeout })
        });
    }

    /// A handle for the calling thread, with a descriptor that is readable when a poll of this thread would bring something:
    /// see [`crate::news`] for how a thread, or its event loop, sleeps on it.
    ///
    /// # Errors
    /// The operating system's, if it gives no descriptor.
    pub fn news(&self) -> std::io::Result<News> {
        self.alarm.wakeups().news(self.reapers.own())
    }

    /// Whether a poll has something to do whatever the device says.
    fn has_work(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.has_work())
            || self.has_strays()
            || self.device.has_changes()
            || self.watch.has_work()
            || self.recovering.are_fresh()
            || self.quiesce.is_due()
            || self.tokens.iter().any(Token::is_parked)
            || !self.ready.is_empty()
            || !self.channels.backlog().is_empty()
    }

    /// Reaps one queue of the device, up to a turn. What follows from a completion may be finished at once: it looks again
    /// until no more commands go out.
    #[inline]
    fn reap(&self, now: Nanos, queue: usize, progress: &mut Progress) -> Option<Nanos> {
        let mut finished: ArrayVec<(Option<Context>, CommandResult), TURN_MAX> = ArrayVec::new();
        let mut left = TURN_MAX;
        loop {
            let due = self
                .device
                .poll(now, queue, left, &mut |c| finished.push((Some(c.context), made_anew(c.result))));
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
            // The queue's own test for emptiness is cheaper than a pop that finds nothing.
            if self.ready.is_empty() {
                break;
            }
            let Some(zone) = self.ready.pop() else { break };
            self.kick(now, zone);
            progress = Progress::Some;
        }
        progress
    }

    /// Offers the commands that met a full queue to the device again, up to the first that does so again.
    fn retry_stalled(&self, now: Nanos) -> Progress {
        let mut progress = Progress::None;
        if self.stalled.is_empty() {
            return progress;
        }
        // What a thread was about to put here, or another poll had in hand, while its channel was cancelled.
        if self.channels.is_cancelling() && self.cancel_stalled(now) {
            progress = Progress::Some;
        }
        for queue in 0..self.terms.info.queues {
            for _ in 0..self.stalled.len_of(queue) {
                let Some(context) = self.stalled.pop(queue) else { break };
                let mut slot = Some(context);
                let on_its_way = self.on_its_way(&slot);
                let submitted = self.offer(now, queue, &mut slot);
                if let (Some(zone), false) = (on_its_way, matches!(submitted, Submitted::Busy)) {
                    self.let_others_follow(now, zone);
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

/// Why a volume has the mode that `options` ask for.
fn reason_of(options: &VolumeOptions) -> &'static str {
    match options.setters.of(OptionKey::Mode) {
        SetBy::Default => SetBy::Caller.name(),
        by => by.name(),
    }
}

/// Whether a part of a poll has moved something on, so that what the device said before is out of date.
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

/// The plug word of a zone as the device describes it.
fn word_of(info: &DeviceInfo, zone: &ZoneDescriptor) -> Result<Word, OpenError> {
    let bad = |what| OpenError::Zone { device: info.name.clone(), zone: zone.zone, what };
    let geometry = &info.geometry;
    if zone.start != geometry.start_of(zone.zone) || zone.size.0 != u64::from(geometry.size_of(zone.zone)) {
        return Err(bad("a start or size that is not the geometry's"));
    }
    if zone.capacity.0 != u64::from(geometry.capacity_of(zone.zone)) {
        return Err(bad("a capacity that is not the geometry's"));
    }
    if geometry.is_conventional(zone.zone) != (zone.condition == ZoneCondition::NotWp) {
        return Err(bad("a condition that does not go with its type"));
    }
    plug_state(info, zone)
        .map(|(class, pointer)| Word::new(class, pointer))
        .ok_or_else(|| bad("a pointer outside it"))
}

/// What a described zone is to its plug, or `None` if its pointer lies outside.
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
                    what: "another's place",
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
