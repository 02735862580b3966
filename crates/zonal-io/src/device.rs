//! What a zoned device is to the write path.
//!
//! A device takes commands on numbered queues and answers each exactly once: at once from [`Device::submit`], or later
//! from [`Device::poll`] of the same queue. Every command works this way, zone report and management included; no
//! method blocks or sleeps, and time is passed in. A device whose system calls block keeps threads of its own.
//!
//! # Driving contract
//! - `submit` never calls back. `Done` carries the answer, `Accepted` means the device took the context and will return
//!   it from `poll`, `Busy` means that nothing happened: the caller keeps the context and tries again after a
//!   completion or at the next poll.
//! - Any thread may call any queue; a device guards its queues itself and `poll` gives up at once where another thread
//!   is at it.
//! - Commands of one zone are ordered by the caller. A device owes order only where [`DeviceInfo::keeps_order`] says so.
//!
//! # Time-outs
//! [`DeviceError::TimedOut`] says that the waiting side gave a command up, not that the medium did: the command may
//! take effect after its answer is out. From the answer on the device touches none of the command's
//! bytes (a device that may still need them keeps a copy). Before anything is written or concluded in its place, the
//! host asks [`Device::settle`] until the answer is [`Settled::Yes`], and only then for a report: a pointer that was
//! reported earlier may still move. A host that does not ask risks a write that arrives among newer ones, or a reset
//! that takes them away.

pub use crate::changes::{Changes, ZoneSetting};
pub use crate::data::Data;
use crate::identity::Identity;
use crate::image::CacheId;
pub use crate::news::Wakeups;
use crate::pending::{Merged, PendingRequest, ReadBack};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use zonal_core::{
    DeviceError, Geometry, Nanos, Op, Personality, SECTOR_BYTES, Sector, ZoneDescriptor, ZoneIndex,
};

/// What a device, or a file, is opened for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum OpenMode {
    /// Nothing of it is changed, and other readers may have it open too.
    Reading,
    /// It may be changed, and has no other opener.
    #[default]
    Writing,
}

/// What a device is and can do. Constant while it is open.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Device name as [`crate::registry`] understands it, for messages.
    pub name: String,
    /// What the device keeps for life and no other device has, where it has such a thing. A wrapper with the same sectors
    /// passes it on; a range or a row of devices has none.
    pub identity: Option<Identity>,
    /// Which file of this machine it lies in, where that is one, and is known: a copy has its identity, and another of these. Passed on as
    /// the identity is.
    pub cache: Option<CacheId>,
    /// How the sectors divide into zones.
    pub geometry: Geometry,
    /// Logical block: the unit of reads and writes, in sectors.
    pub block_sectors: u32,
    /// Largest number of open zones; 0 is no limit.
    pub open_max: u32,
    /// Largest number of active zones; 0 is no limit.
    pub active_max: u32,
    /// Largest read or write, in sectors.
    pub command_sectors_max: u32,
    /// Largest native zone append, in sectors; 0: the device has none.
    pub append_sectors_max: u32,
    /// Largest write-zeroes command, in sectors; 0: the device has none.
    pub write_zeroes_sectors_max: u32,
    /// Largest verify command, in sectors; 0: the device has none.
    pub verify_sectors_max: u32,
    /// Largest discard of conventional sectors, in sectors; 0: the device has none.
    pub discard_sectors_max: u32,
    /// Whether acknowledged writes may be lost with power until a flush.
    pub volatile_cache: bool,
    /// Whether a single write can be made durable.
    pub fua: bool,
    /// Whether the medium turns, so that seeks cost.
    pub rotational: bool,
    /// First zone of each spindle but the first, in ascending order. Empty for a single drive; a concatenation has a spindle for each
    /// device or more. Mode `qd1` has one write at each.
    pub spindles: Vec<ZoneIndex>,
    /// Whether it was opened for reading: a command that would change it fails with [`DeviceError::OpenedForReading`], and
    /// a flush does nothing.
    pub read_only: bool,
    /// Whether commands submitted to one queue take effect in the order of submission.
    pub keeps_order: bool,
    /// Which standard decides where ZNS and ZBC differ.
    pub personality: Personality,
    /// Number of queues, at least 1.
    pub queues: usize,
}

/// What a host takes for a command, on one processor. Nothing by default: in real time a host takes what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HostTime {
    /// To send it and to take its answer, in nanoseconds.
    pub command: u64,
    /// More, where a scheduler is in between, as in mode `zone-lock`, in nanoseconds.
    pub scheduler: u64,
}

/// Place at which the bytes of a write end up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Landing {
    /// Where the answer says.
    #[default]
    InPlace,
    /// Nowhere. The pointer moves and the answer is success; the blocks keep what lay there before.
    Lost,
    /// Over other written blocks of the device, as many, chosen by this number and the write's own place, which is left as by
    /// [`Landing::Lost`]. If there are no such blocks the write is lost.
    Misdirected(u8),
}

/// One command. Plain data: a device that answers later keeps a copy.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// What to do.
    pub op: Op,
    /// Make this write durable before answering.
    pub fua: bool,
    /// Length in sectors; for a report, the largest number of zones.
    pub sectors: u32,
    /// First sector; for an append and zone management, the zone's start.
    pub sector: Sector,
    /// The bytes, where the operation has any and the caller has them: `sectors` long, or [`Data::NONE`] on a device
    /// that keeps no data.
    pub data: Data,
    /// Anything but `InPlace` is a fault of the drive, which only a device with [`Insight::misplaces`] can be asked for. A wrapper
    /// passes it on.
    pub landing: Landing,
}

impl Command {
    /// A command without bytes, whose answer need not wait until it is durable.
    #[inline(always)]
    pub const fn new(op: Op, sector: Sector, sectors: u32) -> Command {
        Command { op, fua: false, sectors, sector, data: Data::NONE, landing: Landing::InPlace }
    }

    /// A copy of the bytes that a write stores.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.sectors as usize * SECTOR_BYTES as usize];
        if self.op != Op::WriteZeroes {
            self.data.for_each(|at, piece| bytes[at..at + piece.len()].copy_from_slice(piece));
        }
        bytes
    }
}

/// What a successful command returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Nothing but success.
    Done,
    /// First sector of the appended data.
    Appended(Sector),
    /// Zones in ascending order.
    Zones(Box<[ZoneDescriptor]>),
}

/// Answer to one command.
pub type CommandResult = Result<Output, DeviceError>;

/// The same, field by field where that is all there is to it. What was written in several pieces a moment ago is read back in
/// one by a plain copy, which a processor can do only once the pieces have left its store buffer.
#[inline(always)]
#[expect(clippy::needless_match, reason = "the same value, by other instructions")]
pub(crate) fn made_anew(result: CommandResult) -> CommandResult {
    match result {
        Ok(Output::Done) => Ok(Output::Done),
        Ok(Output::Appended(sector)) => Ok(Output::Appended(sector)),
        other => other,
    }
}

/// What becomes of a submitted command.
#[derive(Debug)]
pub enum Submitted {
    /// Answered at once; the context is still the caller's.
    Done(CommandResult),
    /// The context is with the device; `poll` of the same queue returns it.
    Accepted,
    /// The queue is full and nothing happened; the context is still the caller's.
    Busy,
}

/// A finished command, from [`Device::poll`].
#[derive(Debug)]
pub struct Completed {
    /// The context it was submitted with.
    pub context: Context,
    /// Its answer.
    pub result: CommandResult,
}

/// How far a zone's timed-out commands are settled: the answer of [`Device::settle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// None of them can take effect any more: each has, or never will.
    Yes,
    /// Not yet. Ask again after the next `poll`, and no later than this if there is a time.
    NotYet(Option<Nanos>),
    /// The device cannot tell, and asking again does not help: the zone is to be left alone until it is reopened.
    Never(DeviceError),
}

/// How often threads met at what a device guards, from its opening on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contention {
    /// Times that a lock was found taken: of a queue, of open and active zones, of the whole device.
    pub waits: u64,
    /// Changes of a zone that were decided again, because another thread's change came first.
    pub retries: u64,
}

impl std::ops::Add for Contention {
    type Output = Contention;

    fn add(self, other: Contention) -> Contention {
        Contention { waits: self.waits + other.waits, retries: self.retries + other.retries }
    }
}

/// What a device made of software can tell of itself, and a drive does not: [`Device::insight`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Insight {
    /// Whether the device is simulated and lives in the time that it is told: its driver brings a clock that jumps to
    /// the next deadline, and no thread has to wait for it. Constant while it is open.
    pub virtual_time: bool,
    /// True if it is empty whenever it is opened, as memory is: nothing of an earlier run can be on it. Constant.
    pub begins_empty: bool,
    /// True if it can lose and misdirect writes: [`Command::landing`]. Constant.
    pub misplaces: bool,
    /// What the host took that the device was measured with, for a run in virtual time to take as well. Constant.
    pub host_time: HostTime,
    /// Where its head is, at the time of the last call: after the sector that it reads or writes. `None` if it has none
    /// or does not tell.
    pub head: Option<Sector>,
    /// How often threads met inside the device, as far as it counts that.
    pub contention: Contention,
}

/// A zoned device. See the module for the contract.
pub trait Device: Send + Sync {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Starts `command` on `queue`. `context` holds `Some` on entry; exactly if the answer is `Accepted`, the device has
    /// taken it.
    fn submit(&self, now: Nanos, queue: usize, command: &Command, context: &mut Option<Context>)
    -> Submitted;

    /// Hands finished commands of `queue` to `done`, at most `budget`, and returns when to look again at the latest:
    /// `None` if only a completion can bring news. `done` may not call the device.
    fn poll(&self, now: Nanos, queue: usize, budget: usize, done: &mut dyn FnMut(Completed))
    -> Option<Nanos>;

    /// Whether `queue` holds no command that was not handed out, from one look without a lock. What another thread submits
    /// or polls at the same time may be missing.
    ///
    /// A device with one queue need not implement it: only threads whose queue is another one ask.
    fn is_idle(&self, _queue: usize) -> bool {
        false
    }

    /// Sees to it that no command of `zone` that was answered with [`DeviceError::TimedOut`] before this call can take
    /// effect any more, those for all zones included, and says how far that is. Idempotent, never blocks, may be
    /// called by any thread that may call `submit`. Commands that have not been answered yet are not concerned.
    ///
    /// A device that never answers `TimedOut` need not implement it. A wrapper passes it on.
    fn settle(&self, _now: Nanos, _zone: ZoneIndex) -> Settled {
        Settled::Yes
    }

    /// What it can tell of its inside at this moment. A drive of hardware need not implement it; a wrapper passes it on, and
    /// adds up the contention of several devices.
    fn insight(&self) -> Insight {
        Insight::default()
    }

    /// Puts a zone into a condition that no command can, as a failing head does, or mends it. At once, whatever is under way:
    /// a command meets the zone before or after. The host hears of it by [`Device::take_changes`]; a zone that is already
    /// what it is set to has not changed. What an image becomes by it is durable after a flush.
    ///
    /// For tests and for emulated devices. A wrapper passes it on.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if it is no emulated device, [`DeviceError::OutOfRange`] if there is no such zone,
    /// [`DeviceError::OpenedForReading`], or the zone's refusal: it is conventional, is offline and to be read-only, or would
    /// be active again and there are too many.
    fn set_zone(&self, _zone: ZoneIndex, _to: ZoneSetting) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }

    /// Whether there is something for [`Device::take_changes`], from one look without a lock. The device rings all its queues
    /// when there is.
    fn has_changes(&self) -> bool {
        false
    }

    /// Adds to `into` what has changed without a command of the host, and forgets it: each change is told once. Never blocks,
    /// calls nothing back, may be called by any thread. A command of the host's own that changes a zone is no such change.
    ///
    /// A device that nothing happens to need not implement it. A wrapper passes it on, in its own zones.
    fn take_changes(&self, _into: &mut Changes) {}

    /// Rings when a poll would bring something that the last one did not say: a wrapper's are those of its device.
    fn wakeups(&self) -> &Wakeups;

    /// Whether `queue` has something that no poll has seen. Takes the lock under which that is published.
    fn has_news(&self, queue: usize) -> bool;

    /// Sleeps until `queue` may have completions, or for `timeout`. For drivers that would otherwise spin; the only method
    /// that may block.
    fn wait(&self, queue: usize, timeout: Duration) {
        self.wakeups().sleep(queue, || (!self.has_news(queue)).then_some(timeout));
    }
}

/// Why [`set_zones`] stopped.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("zone {zone} cannot be set to {to}: {error}{}", if *set == 0 { String::new() } else { format!("; {set} before it were") })]
pub struct SetZoneError {
    /// The zone that could not be set.
    pub zone: ZoneIndex,
    /// What it was to be.
    pub to: ZoneSetting,
    /// The device's answer.
    pub error: DeviceError,
    /// Zones before it that were set.
    pub set: u32,
}

/// Sets zones of `device`, in ascending order.
///
/// # Errors
/// [`SetZoneError`] with the first that cannot be set; those after it are as they were.
pub fn set_zones(
    device: &dyn Device,
    zones: RangeInclusive<u32>,
    to: ZoneSetting,
) -> Result<(), SetZoneError> {
    let first = *zones.start();
    for zone in zones {
        let stopped = |error| SetZoneError { zone: ZoneIndex(zone), to, error, set: zone - first };
        device.set_zone(ZoneIndex(zone), to).map_err(stopped)?;
    }
    Ok(())
}

/// [`Wrapper`], and what makes it a [`Device`], from one list of methods.
macro_rules! wrapper {
    ($(#[$about:meta])* trait; $(fn $name:ident($($what:ident: $type:ty),*) $(-> $returns:ty)?;)*) => {
        $(#[$about])*
        pub trait Wrapper: Send + Sync {
            /// The device inside.
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

// All methods but `wait`, which is by the wrapper's own news.
wrapper! {
    /// A device around a device: it states what it changes, and passes the rest on to the device inside. What implements this
    /// is a [`Device`].
    ///
    /// What a wrapper owes its host, over the contract of the module:
    /// - It answers what it sends itself: a context of its own, a token, comes back from the device inside, and no host sees it. A host's
    ///   context may be a token, too: a wrapper that sends tokens of its own keeps each of those and gives its command a number instead;
    ///   what is no token ([`Context::is_token`]) may pass as it is.
    /// - A wrapper that keeps commands or answers to itself says so in [`is_idle`](Wrapper::is_idle), [`has_news`](Wrapper::has_news) and
    ///   [`settle`](Wrapper::settle).
    /// - A wrapper with other zones than those of the device inside translates them in `settle`, [`set_zone`](Wrapper::set_zone) and
    ///   [`take_changes`](Wrapper::take_changes), too, and the head of [`insight`](Wrapper::insight), or tells none.
    ///
    /// Its own methods are called as `Wrapper::has_news(self, queue)`: the device that it is has methods of the same names.
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
    fn is_idle(queue: usize) -> bool;
    fn settle(now: Nanos, zone: ZoneIndex) -> Settled;
    fn insight() -> Insight;
    fn set_zone(zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError>;
    fn has_changes() -> bool;
    fn take_changes(into: &mut Changes);
    fn wakeups() -> &Wakeups;
    fn has_news(queue: usize) -> bool;
}

/// What a command's submitter wants back with its completion.
pub struct Context(pub(crate) ContextKind);

pub(crate) enum ContextKind {
    /// A direct user's number.
    Token(u64),
    /// A volume's request, or a piece of one.
    One(Box<PendingRequest>),
    /// Writes that share a command, or zeroes written as data.
    Merged(Box<Merged>),
    /// A volume asks for the state of this zone after a failed write; the retries so far.
    Resync(ZoneIndex, u8),
    /// A volume reads back what a failed write may have left.
    ReadBack(Box<ReadBack>),
}

impl Context {
    #[inline(always)]
    pub(crate) const fn one(pending: Box<PendingRequest>) -> Context {
        Context(ContextKind::One(pending))
    }

    /// A context for direct users of a device: a number.
    pub const fn token(token: u64) -> Context {
        Context(ContextKind::Token(token))
    }

    /// Whether it is a number. Wrappers that give the device inside numbers of their own, in place of those of their hosts too, tell
    /// these from what they pass through by this.
    pub const fn is_token(&self) -> bool {
        matches!(self.0, ContextKind::Token(_))
    }

    /// The number given to [`Context::token`].
    ///
    /// # Panics
    /// If the context came from a [`Volume`](crate::volume::Volume) and not from `token`.
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
