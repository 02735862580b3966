//! Interface between zoned devices and the write path.
//!
//! A device accepts commands on numbered queues and completes each exactly once: inline in
//! [`Device::submit`], or later in [`Device::poll`] of the same queue. This includes zone reports
//! and zone management; no method blocks or sleeps, and the time is a parameter. A device that
//! needs blocking system calls has threads of its own.
//!
//! # Driving contract
//! - `submit` never calls back. `Done` contains the result. `Accepted` means that the device has
//!   taken the context and will return it from `poll`. `Busy` means that nothing happened: the
//!   caller keeps the context and retries after a completion or at the next poll.
//! - A device may hold accepted commands back until the next `poll` or [`Device::commit`] of their
//!   queue, so that they share a system call. Who submits and does not poll the queue soon, calls
//!   `commit`.
//! - Any thread may use any queue. A device protects its queues itself, and `poll` returns at once
//!   if another thread is polling the queue.
//! - Commands of one zone are ordered by the caller. A device preserves order only if
//!   [`DeviceInfo::keeps_order`] is set.
//!
//! # Timeouts
//! [`DeviceError::TimedOut`] means that the host side gave up on a command, not the medium: the
//! command may still take effect after its completion. From its completion on the device does not
//! access the command's buffers (a device that may still need the data keeps a copy). Before
//! writing or concluding anything about the zone, the host calls [`Device::settle`] until it
//! returns [`Settled::Yes`], and only then requests a report: a write pointer reported earlier may
//! still move. Otherwise the late write may land among newer ones, or a late reset may erase them.

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub mod conformance;

pub use crate::badblocks::BadRange;
pub use crate::changes::{Changes, ZoneSetting};
pub use crate::data::Data;
pub use crate::identity::Identity;
use crate::image::CacheId;
pub use crate::news::Wakeups;
use crate::pending::{Merged, PendingRequest, ReadBack};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use zonal_core::{
    DeviceError, Geometry, Nanos, Op, Personality, SECTOR_BYTES, Sector, ZoneDescriptor, ZoneIndex,
};

/// Purpose for which a device or file is opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum OpenMode {
    /// Read-only; other readers may have it open too.
    Reading,
    /// For writing, exclusively.
    #[default]
    Writing,
}

/// Properties of a device. Constant while it is open.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Device name for messages, in the syntax of [`crate::registry`].
    pub name: String,
    /// Unique and permanent identity, if the device has one. Passed on by a wrapper with the same
    /// sectors; a range or concatenation has none.
    pub identity: Option<Identity>,
    /// Model and serial number of a real drive, for messages: what a person can compare with its
    /// label. `None` if the device is not a drive of its own. Passed on by wrappers.
    pub label: Option<String>,
    /// File on this machine that contains the device, if there is one and it is known; a copy has
    /// the same identity but is a different file. Passed on like the identity.
    pub cache: Option<CacheId>,
    /// Division of the sectors into zones.
    pub geometry: Geometry,
    /// Logical block size in sectors, the unit of reads and writes.
    pub block_sectors: u32,
    /// Maximum of open zones; 0: no limit.
    pub open_max: u32,
    /// Maximum of active zones; 0: no limit.
    pub active_max: u32,
    /// Largest read or write, in sectors.
    pub command_sectors_max: u32,
    /// Alignment of memory that is transferred without a copy, in bytes, a power of two; 1: any. It
    /// concerns the address and the length of each segment. Memory at other addresses is copied by
    /// the device, and counted: [`Insight::copies`].
    pub memory_align: u32,
    /// Largest native zone append, in sectors; 0: the device has none.
    pub append_sectors_max: u32,
    /// Largest write-zeroes command, in sectors; 0: the device has none.
    pub write_zeroes_sectors_max: u32,
    /// Largest verify command, in sectors; 0: the device has none.
    pub verify_sectors_max: u32,
    /// Largest discard of conventional sectors, in sectors; 0: the device has none.
    pub discard_sectors_max: u32,
    /// True if acknowledged writes may be lost on power failure before a flush.
    pub volatile_cache: bool,
    /// True if a single write can be made durable (force unit access).
    pub fua: bool,
    /// True for a rotational drive, where seeks are expensive.
    pub rotational: bool,
    /// First zone of each spindle except the first, in ascending order. Empty for a single drive; a
    /// concatenation has at least one spindle per device. Mode `qd1` has one write per spindle.
    pub spindles: Vec<ZoneIndex>,
    /// True if opened for reading: commands that would change the device fail with
    /// [`DeviceError::OpenedForReading`], and a flush does nothing.
    pub read_only: bool,
    /// True if commands submitted to one queue take effect in order of submission.
    pub keeps_order: bool,
    /// Standard that applies where ZNS and ZBC differ.
    pub personality: Personality,
    /// Number of queues, at least 1.
    pub queues: usize,
}

impl DeviceInfo {
    /// Properties of a drive without limits, cache, identity and optional commands, by the rules of
    /// ZNS, with blocks of 512 bytes, commands of up to 1 MiB and one queue. A basis for those of a
    /// device of one's own.
    pub fn new(name: impl Into<String>, geometry: Geometry) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            identity: None,
            label: None,
            cache: None,
            geometry,
            block_sectors: 1,
            open_max: 0,
            active_max: 0,
            command_sectors_max: 2048,
            memory_align: 1,
            append_sectors_max: 0,
            write_zeroes_sectors_max: 0,
            verify_sectors_max: 0,
            discard_sectors_max: 0,
            volatile_cache: false,
            fua: false,
            rotational: false,
            spindles: Vec::new(),
            read_only: false,
            keeps_order: false,
            personality: Personality::Zns,
            queues: 1,
        }
    }
}

impl DeviceInfo {
    /// Answer to a command of a device that is opened for reading, if the command does not go to the
    /// device: a flush has nothing to make durable, and all that would change the device fail.
    #[inline]
    pub fn answer_to_reader(&self, op: Op) -> Option<CommandResult> {
        match op {
            _ if !self.read_only => None,
            Op::Read | Op::Verify | Op::Report => None,
            Op::Flush => Some(Ok(Output::Done)),
            _ => Some(Err(DeviceError::OpenedForReading)),
        }
    }
}

/// Processor time of a host per command. 0 by default, since in real time the host's own time
/// applies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostTime {
    /// To submit a command and process its completion, in nanoseconds.
    pub command: u64,
    /// Additional time with a scheduler, also that of mode `zone-lock`, in nanoseconds.
    pub scheduler: u64,
}

/// Place at which the bytes of a write end up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Landing {
    /// At the address reported.
    #[default]
    InPlace,
    /// Nowhere: the write pointer moves and the command succeeds, but the blocks keep their old
    /// data.
    Lost,
    /// Over the same number of other written blocks, chosen by this number and the write's own
    /// address, which is left as by [`Landing::Lost`]. Without such blocks the write is lost.
    Misdirected(u8),
}

/// Command for a device. Plain data: a device that completes it later keeps a copy.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Operation.
    pub op: Op,
    /// Make this write durable before completion.
    pub fua: bool,
    /// Length in sectors; for a report, the maximum number of zones.
    pub sectors: u32,
    /// First sector; for an append and zone management, the zone's start.
    pub sector: Sector,
    /// Payload of `sectors` sectors, if the operation has any; [`Data::NONE`] is allowed on a
    /// device that keeps no data.
    pub data: Data,
    /// Values other than `InPlace` inject a drive fault, which requires a device with
    /// [`Insight::misplaces`]. Passed on by wrappers.
    pub landing: Landing,
}

impl Command {
    /// Creates a command without payload, not durable on completion.
    #[inline(always)]
    pub const fn new(op: Op, sector: Sector, sectors: u32) -> Command {
        Command { op, fua: false, sectors, sector, data: Data::NONE, landing: Landing::InPlace }
    }

    /// Runs the first `sectors` of the command while it is in flight.
    #[cold]
    pub(crate) fn run_first<R>(&self, sectors: u32, run: impl FnOnce(&Command) -> R) -> R {
        let pieces = self.data.first(sectors as usize * SECTOR_BYTES as usize);
        // SAFETY: the segments are part of the command's, which stay valid until it completes, and
        // the list lives until `run` returns.
        let data = unsafe { Data::many(&raw const *pieces) };
        run(&Command { sectors, data, ..*self })
    }

    /// Copies the payload of a write.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.sectors as usize * SECTOR_BYTES as usize];
        if self.op != Op::WriteZeroes {
            self.data.for_each(|at, piece| bytes[at..at + piece.len()].copy_from_slice(piece));
        }
        bytes
    }
}

/// Output of a successful command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// None.
    Done,
    /// First sector of the appended data.
    Appended(Sector),
    /// Zones in ascending order.
    Zones(Box<[ZoneDescriptor]>),
}

/// Result of one command.
pub type CommandResult = Result<Output, DeviceError>;

/// Copies a result field by field where that is all of it. A plain copy reads in one load what was
/// just written in several stores, which stalls until these have left the processor's store buffer.
#[inline(always)]
#[expect(clippy::needless_match, reason = "the same value, by other instructions")]
pub(crate) fn rebuild_result(result: CommandResult) -> CommandResult {
    match result {
        Ok(Output::Done) => Ok(Output::Done),
        Ok(Output::Appended(sector)) => Ok(Output::Appended(sector)),
        other => other,
    }
}

/// Answer of [`Device::submit`].
#[derive(Debug)]
pub enum Submitted {
    /// Completed inline; the caller still has the context.
    Done(CommandResult),
    /// The device has the context; `poll` of the same queue returns it.
    Accepted,
    /// The queue is full and nothing happened; the caller still has the context.
    Busy,
}

/// Completion of a command, from [`Device::poll`].
#[derive(Debug)]
pub struct Completed {
    /// Context passed on submission.
    pub context: Context,
    /// Result of the command.
    pub result: CommandResult,
}

/// Answer of [`Device::settle`]: progress in settling the timed-out commands of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// None of them can take effect any more: each has, or never will.
    Yes,
    /// Not settled. Ask again after the next `poll`, at the latest at this time, if any.
    NotYet(Option<Nanos>),
    /// The device cannot settle them, now or later: do not use the zone until the device is
    /// reopened.
    Never(DeviceError),
}

/// Contention between threads inside a device since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contention {
    /// Contended locks: of a queue, of the open and active zones, of the whole device.
    pub waits: u64,
    /// Changes of a zone that lost a race and were decided again.
    pub retries: u64,
}

impl std::ops::Add for Contention {
    type Output = Contention;

    fn add(self, other: Contention) -> Contention {
        Contention { waits: self.waits + other.waits, retries: self.retries + other.retries }
    }
}

/// Movements of a disk's head since the device was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct HeadMoves {
    /// Reads and writes of the medium that did not begin where the previous one ended.
    pub seeks: u64,
    /// Reads and writes in another zone than the previous one, including those that continue a
    /// stream in the next zone without a seek.
    pub zone_changes: u64,
    /// Reads and writes that began where the previous one ended, but after the sector had passed
    /// the head, which waits for it to come round again.
    pub missed_rotations: u64,
    /// Time spent on seeks and rotational latency, in nanoseconds.
    pub positioning_ns: u64,
}

impl HeadMoves {
    /// Movements since `before`, an earlier value of the same device.
    #[must_use]
    pub fn since(self, before: HeadMoves) -> HeadMoves {
        HeadMoves {
            seeks: self.seeks - before.seeks,
            zone_changes: self.zone_changes - before.zone_changes,
            missed_rotations: self.missed_rotations - before.missed_rotations,
            positioning_ns: self.positioning_ns - before.positioning_ns,
        }
    }
}

impl std::ops::Add for HeadMoves {
    type Output = HeadMoves;

    fn add(self, other: HeadMoves) -> HeadMoves {
        HeadMoves {
            seeks: self.seeks + other.seeks,
            zone_changes: self.zone_changes + other.zone_changes,
            missed_rotations: self.missed_rotations + other.missed_rotations,
            positioning_ns: self.positioning_ns + other.positioning_ns,
        }
    }
}

/// Internal information of a device, most of which only an emulated or simulated one has:
/// [`Device::insight`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Insight {
    /// True if the device is simulated and runs in virtual time: its driver uses a clock that jumps
    /// to the next deadline, and no thread has to sleep. Constant while it is open.
    pub virtual_time: bool,
    /// True if the device is empty whenever it is opened, like memory: it holds no data of an
    /// earlier run. Constant.
    pub begins_empty: bool,
    /// True if the device can lose and misdirect writes: [`Command::landing`]. Constant.
    pub misplaces: bool,
    /// Processor time of the host with which the device was measured, to be simulated in virtual
    /// time. Constant.
    pub host_time: HostTime,
    /// True if [`Device::submit_awaited`] blocks while the drive works. Constant.
    pub blocks_awaiting: bool,
    /// Position of the head at the time of the last call: behind the sector that it reads or
    /// writes. `None` if there is no head or it is unknown.
    pub head: Option<Sector>,
    /// Movements of the head, or of all heads of several disks. `None` if there is no head.
    pub head_moves: Option<HeadMoves>,
    /// Contention between threads inside the device, as far as counted.
    pub contention: Contention,
    /// Commands whose data was copied because of the alignment of their memory.
    pub copies: u64,
}

/// Zoned device. See the module documentation for the contract.
pub trait Device: Send + Sync {
    /// Properties of the device.
    fn info(&self) -> &DeviceInfo;

    /// Starts `command` on `queue`. `context` is `Some` on entry; the device takes it if and only
    /// if it returns `Accepted`.
    fn submit(&self, now: Nanos, queue: usize, command: &Command, context: &mut Option<Context>)
    -> Submitted;

    /// Like [`Device::submit`], for a thread that waits for this command and has nothing else to do
    /// meanwhile: the device may execute it here, and block.
    ///
    /// Optional. Not passed on by wrappers that hold a lock while they submit.
    fn submit_awaited(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        self.submit(now, queue, command, context)
    }

    /// Passes up to `budget` completions of `queue` to `done`, and returns the latest time of the
    /// next poll: `None` if only a completion can cause progress. `done` must not call the device.
    fn poll(&self, now: Nanos, queue: usize, budget: usize, done: &mut dyn FnMut(Completed))
    -> Option<Nanos>;

    /// Passes the accepted commands of `queue` on to the drive now, without waiting for a poll. Never
    /// blocks or calls back.
    ///
    /// Optional for devices that hold no commands back. Passed on by wrappers.
    fn commit(&self, _queue: usize) {}

    /// True if all commands of `queue` have been returned. Takes no lock; may miss commands
    /// submitted or polled concurrently by another thread.
    ///
    /// Optional for devices with one queue, since only threads of other queues call it.
    fn is_idle(&self, _queue: usize) -> bool {
        false
    }

    /// Fences every timed-out command of `zone`, including those for all zones, and reports
    /// progress. Concerns commands that completed with [`DeviceError::TimedOut`] before this call;
    /// unfinished commands are not affected. Idempotent, never blocks, and may be called by any
    /// thread that may call `submit`.
    ///
    /// Optional for devices that never return `TimedOut`. Passed on by wrappers.
    fn settle(&self, _now: Nanos, _zone: ZoneIndex) -> Settled {
        Settled::Yes
    }

    /// Reason why the device is [gone](DeviceError::Gone), if it is gone and the reason is known.
    /// Passed on by wrappers.
    fn gone_because(&self) -> Option<String> {
        None
    }

    /// Current internal information. Optional for hardware drives; passed on by wrappers, which add
    /// up the contention and the head movements of several devices.
    fn insight(&self) -> Insight {
        Insight::default()
    }

    /// Sets a zone to a condition that no command can set, as a failing head does, or restores it.
    /// Takes effect at once: commands in flight find the zone in its old or new condition. The host
    /// is notified through [`Device::take_changes`]; setting a zone to its current condition is no
    /// change. On an image the change is durable after a flush.
    ///
    /// For tests and emulated devices. Passed on by wrappers.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the device is not emulated, [`DeviceError::OutOfRange`] if
    /// the zone does not exist, [`DeviceError::OpenedForReading`], or an error of the zone: it is
    /// conventional, an offline zone cannot become read-only, or a restored zone would exceed the
    /// active limit.
    fn set_zone(&self, _zone: ZoneIndex, _to: ZoneSetting) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }

    /// Makes sectors bad or good if `change` is given, and returns the first and last sector of each
    /// bad range, ascending. Reads, writes and verifies of a bad sector fail with
    /// [`DeviceError::Medium`]. On an image a change is durable at once.
    ///
    /// For tests and emulated devices. Passed on by wrappers, translated to their sectors.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the device is not emulated, [`DeviceError::OutOfRange`] if it
    /// does not have the sectors, [`DeviceError::OpenedForReading`], or ENOSPC if there would be more
    /// than [`RANGES_MAX`](crate::badblocks::RANGES_MAX) ranges.
    fn badblocks(&self, _change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError> {
        Err(DeviceError::Unsupported)
    }

    /// True if [`Device::take_changes`] would return changes. Takes no lock. The device rings all
    /// its queues when changes appear.
    fn has_changes(&self) -> bool {
        false
    }

    /// Moves the changes that were not caused by a command of the host to `into`, each once. Never
    /// blocks or calls back; may be called by any thread. Changes by the host's own commands are
    /// excluded.
    ///
    /// Optional for devices without such changes. Passed on by wrappers, translated to their zones.
    fn take_changes(&self, _into: &mut Changes) {}

    /// Wakeups that ring when a poll would find something new; a wrapper returns those of its
    /// device.
    fn wakeups(&self) -> &Wakeups;

    /// True if `queue` has news that no poll has seen. Takes the lock under which they are
    /// published.
    fn has_news(&self, queue: usize) -> bool;

    /// Sleeps until `queue` may have completions, or for `timeout`. For drivers that would
    /// otherwise spin; the only method that may block.
    fn wait(&self, queue: usize, timeout: Duration) {
        self.wakeups().sleep(queue, || (!self.has_news(queue)).then_some(timeout));
    }
}

/// Error of [`set_zones`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("zone {zone} cannot be set to {to}: {error}{}", if *set == 0 { String::new() } else { format!("; zones set before it: {set}") })]
pub struct SetZoneError {
    /// The zone that could not be set.
    pub zone: ZoneIndex,
    /// Intended setting.
    pub to: ZoneSetting,
    /// Error of the device.
    pub error: DeviceError,
    /// Number of zones before it that were set.
    pub set: u32,
}

/// Sets zones of `device`, in ascending order.
///
/// # Errors
/// [`SetZoneError`] with the first zone that cannot be set; later ones are unchanged. If a zone is
/// beyond the end of the device, none is changed.
pub fn set_zones(
    device: &dyn Device,
    zones: RangeInclusive<u32>,
    to: ZoneSetting,
) -> Result<(), SetZoneError> {
    let first = *zones.start();
    let count = device.info().geometry.zones();
    if *zones.end() >= count {
        let zone = ZoneIndex(first.max(count));
        return Err(SetZoneError { zone, to, error: DeviceError::OutOfRange, set: 0 });
    }
    for zone in zones {
        let stopped = |error| SetZoneError { zone: ZoneIndex(zone), to, error, set: zone - first };
        device.set_zone(ZoneIndex(zone), to).map_err(stopped)?;
    }
    Ok(())
}

/// Defines [`Wrapper`], and its implementation of [`Device`], from one list of methods.
macro_rules! wrapper {
    ($(#[$about:meta])* trait; $(fn $name:ident($($what:ident: $type:ty),*) $(-> $returns:ty)?;)*) => {
        $(#[$about])*
        pub trait Wrapper: Send + Sync {
            /// The wrapped device.
            fn inner(&self) -> &dyn Device;

            $(
                #[doc = concat!("See [`Device::", stringify!($name), "`].")]
                #[inline]
                fn $name(&self $(, $what: $type)*) $(-> $returns)? {
                    self.inner().$name($($what),*)
                }
            )*
        }

        impl<W: Wrapper> Device for W {
            $(
                #[inline]
                fn $name(&self $(, $what: $type)*) $(-> $returns)? {
                    Wrapper::$name(self $(, $what)*)
                }
            )*
        }
    };
}

// All methods except `wait`, which uses the wrapper's own wakeups.
wrapper! {
    /// Device on top of another device: it implements the methods that it changes and passes the
    /// rest on. Every implementation is a [`Device`].
    ///
    /// Obligations of a wrapper, in addition to the contract of the module:
    /// - It consumes the completions of its own commands: their context, a token, is returned by
    ///   the inner device and never reaches the host. The host's contexts may be tokens too. A
    ///   wrapper that uses its own tokens therefore keeps the host's tokens and replaces them by
    ///   numbers of its own; other contexts ([`Context::is_token`]) may be passed through.
    /// - A wrapper that holds back commands or completions accounts for them in
    ///   [`is_idle`](Wrapper::is_idle), [`has_news`](Wrapper::has_news) and
    ///   [`settle`](Wrapper::settle).
    /// - A wrapper with other zones than the inner device translates them in `settle`,
    ///   [`set_zone`](Wrapper::set_zone) and [`take_changes`](Wrapper::take_changes) too, and the
    ///   head of [`insight`](Wrapper::insight), or reports no head.
    ///
    /// Call its own methods as `Wrapper::has_news(self, queue)`, since the device has methods of
    /// the same names.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use zonal_core::{DeviceError, Nanos, Op, Sector};
    /// use zonal_io::device::{Command, Context, Device, Submitted, Wrapper};
    /// use zonal_io::{registry::Registry, volume};
    ///
    /// /// A drive that refuses reports.
    /// struct Mute(Arc<dyn Device>);
    ///
    /// impl Wrapper for Mute {
    ///     fn inner(&self) -> &dyn Device {
    ///         &*self.0
    ///     }
    ///
    ///     fn submit(&self, now: Nanos, queue: usize, command: &Command, context: &mut Option<Context>) -> Submitted {
    ///         match command.op {
    ///             Op::Report => Submitted::Done(Err(DeviceError::Unsupported)),
    ///             _ => self.0.submit(now, queue, command, context),
    ///         }
    ///     }
    /// }
    ///
    /// let mute = Mute(Registry::default().open("null:size=1M,zone_size=64k")?);
    /// assert_eq!(volume::report(&mute, Sector(0), 1), Err(DeviceError::Unsupported));
    /// # Ok::<(), zonal_io::registry::NameError>(())
    /// ```
    trait;

    fn info() -> &DeviceInfo;
    fn submit(now: Nanos, queue: usize, command: &Command, context: &mut Option<Context>) -> Submitted;
    fn poll(now: Nanos, queue: usize, budget: usize, done: &mut dyn FnMut(Completed)) -> Option<Nanos>;
    fn commit(queue: usize);
    fn is_idle(queue: usize) -> bool;
    fn settle(now: Nanos, zone: ZoneIndex) -> Settled;
    fn gone_because() -> Option<String>;
    fn insight() -> Insight;
    fn set_zone(zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError>;
    fn badblocks(change: Option<BadRange>) -> Result<Vec<(u64, u64)>, DeviceError>;
    fn has_changes() -> bool;
    fn take_changes(into: &mut Changes);
    fn wakeups() -> &Wakeups;
    fn has_news(queue: usize) -> bool;
}

/// Context of a command, returned to its submitter with the completion.
pub struct Context(pub(crate) ContextKind);

pub(crate) enum ContextKind {
    /// Number of a direct user.
    Token(u64),
    /// Request of a volume, or a part of one.
    One(Box<PendingRequest>),
    /// Merged writes, or a write of zeroes with a payload.
    Merged(Box<Merged>),
    /// Report of a zone for a volume after a failed write; number of retries.
    Resync(ZoneIndex, u8),
    /// Read-back for a volume after a failed write.
    ReadBack(Box<ReadBack>),
}

impl Context {
    #[inline(always)]
    pub(crate) const fn one(pending: Box<PendingRequest>) -> Context {
        Context(ContextKind::One(pending))
    }

    /// Creates a context from a number, for direct users of a device.
    pub const fn token(token: u64) -> Context {
        Context(ContextKind::Token(token))
    }

    /// True if the context is a number. Used by wrappers that replace the tokens of their hosts by
    /// their own, but pass other contexts through.
    pub const fn is_token(&self) -> bool {
        matches!(self.0, ContextKind::Token(_))
    }

    /// Returns the number passed to [`Context::token`].
    ///
    /// # Panics
    /// If the context belongs to a [`Volume`](crate::volume::Volume).
    pub fn into_token(self) -> u64 {
        match self.0 {
            ContextKind::Token(t) => t,
            _ => panic!("a volume's context reached a direct user of its device"),
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ContextKind::Token(t) => write!(f, "Context::token({t})"),
            ContextKind::One(_) => f.write_str("Context(request)"),
            ContextKind::Merged(_) => f.write_str("Context(merged)"),
            ContextKind::ReadBack(_) => f.write_str("Context(read back)"),
            ContextKind::Resync(z, _) => write!(f, "Context(resync of zone {z})"),
        }
    }
}
