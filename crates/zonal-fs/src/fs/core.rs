//! What most changes share: the rows that a commit takes, files that are written or gone, threads that wait. Names, files in memory, the
//! space, units in flight and the layers of rows have locks of their own: `Rank` in [`locked`](crate::store::locked) has the order of all.
//!
//! A unit that completes changes the map of its files, their rows and the accounts of zones, and a commit takes all of these changes or
//! none. So the lock is held around them, and while rows are sealed.
//!
//! One lock guards the core. A thread holds it for microseconds, and never while it waits, copies a payload, or calls a device. Rows that
//! are not in memory are read before: [`look`](super::look).

use super::beginnings::Beginnings;
use super::combine::CombinedUnits;
use super::create::Names;
use super::destroy::GoneFiles;
use super::error::FsError;
use super::files::FileCounter;
use super::gc::Collection;
use super::known::KnownFiles;
use super::map::{self, Tails};
use super::node::Nodes;
use super::readers::Readers;
use super::seat::Seat;
use super::segments::LastBatch;
use super::small_buffers::SmallBuffers;
use super::space::SpaceLock;
use super::stats::Statistics;
use super::turn::Turns;
use super::unit_sums::UnitSums;
use super::units::UnitsLock;
use super::waiting::{WaitingRoom, WaitsFor};
use super::write_buffer::WriteBuffers;
use crate::drive::Drive;
use crate::format::{Superblock, key};
use crate::space::ZoneOrder;
use crate::store::locked::{InOrder, Rank};
use crate::store::{Reader, Rows};
use crate::waiter::{Bell, Wait, Waiters};
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use zonal_core::{Nanos, RequestError, Sector, ZoneIndex};
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::device::Output;
use zonal_io::volume::{Channel, Completion, Events, Request};

/// A unit's answer, as the completion function leaves it.
pub(super) struct UnitAnswer {
    pub(super) token: u64,
    pub(super) result: Result<Output, RequestError>,
    pub(super) buf: IoBuf,
}

/// How a file system is used, as opposed to how it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// Zones open at once, for users and the collector; `None`: what the drive allows, 128 at most.
    pub max_open_zones: Option<u32>,
    /// Which free zone is opened.
    pub zone_order: ZoneOrder,
    /// Bytes in write buffers or in flight before writers wait.
    pub dirty_bytes: u64,
    /// Write quantum: bytes of one file that go out before those of other files that wait. `None`: a zone's worth on a
    /// rotational drive, 0 elsewhere. With 0, files alternate unit by unit.
    pub turn_bytes: Option<u64>,
    /// Collect as soon as less than this share of what is free can be written at once; 0: as late as space allows.
    pub low_space_percent: u8,
    /// Whether files' lifetimes decide which data lie together.
    pub lifetimes: bool,
    /// Bytes of metadata that the database keeps in memory.
    pub cache_bytes: usize,
    /// Bytes of data's checksums that are kept in memory: a read that finds those of its unit there reads nothing but data. A
    /// gibibyte of data in units of a mebibyte has 1.2 MB of them. With 0 none are kept.
    pub sums_bytes: usize,
    /// Changed rows after which a background step commits them.
    pub changes_max: usize,
}

zonal_core::setters! {
    MountOptions
    /// Zones open at once, for users and the collector; `None`: what the drive allows, 128 at most.
    with_max_open_zones max_open_zones: impl Into<Option<u32>>;
    /// Which free zone is opened.
    with_zone_order zone_order: ZoneOrder;
    /// Bytes in write buffers or in flight before writers wait.
    with_dirty_bytes dirty_bytes: u64;
    /// Bytes of one file that go out before those of other files that wait.
    with_turn_bytes turn_bytes: impl Into<Option<u64>>;
    /// Share of what is free, in percent: with less of it writable at once, the collector begins.
    with_low_space_percent low_space_percent: u8;
    /// Whether files' lifetimes decide which data lie together.
    with_lifetimes lifetimes: bool;
    /// Bytes of metadata that the database keeps in memory.
    with_cache_bytes cache_bytes: usize;
    /// Bytes of data's checksums that are kept in memory; 0 keeps none.
    with_sums_bytes sums_bytes: usize;
    /// Changed rows after which a background step commits them.
    with_changes_max changes_max: usize;
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            max_open_zones: None,
            zone_order: ZoneOrder::default(),
            dirty_bytes: 64 << 20,
            turn_bytes: None,
            low_space_percent: 0,
            lifetimes: true,
            cache_bytes: 64 << 20,
            sums_bytes: 32 << 20,
            changes_max: 100_000,
        }
    }
}

/// What is shared between the threads, or coroutines, that work with a file system.
pub(super) struct Shared {
    pub(super) drive: Drive,
    /// What the drive tells of its zones.
    pub(super) events: Events,
    pub(super) superblock: Superblock,
    pub(super) options: MountOptions,
    /// Idle channels whose answers go to `answers`: one submitter uses a channel at a time.
    pub(super) channels: Mutex<Vec<Channel>>,
    pub(super) answers: Arc<Mutex<Vec<UnitAnswer>>>,
    /// Buffers of a unit; where the device keeps no data their bytes do not count.
    pub(super) pool: BufferPool,
    /// Buffers of small reads.
    pub(super) small: SmallBuffers,
    /// Checksums of units that were read.
    pub(super) unit_sums: UnitSums,
    pub(super) begun: Arc<Beginnings>,
    pub(super) last_batch: Mutex<LastBatch>,
    /// The store is being compacted, and reads of rows wait.
    pub(super) is_compacting: AtomicBool,
    /// Number of compactions of the store, failed ones included.
    pub(super) compactions: AtomicU64,
    /// Whether the device keeps what it is given.
    pub(super) keeps_data: bool,
    /// Rows, for threads without the lock.
    pub(super) reader: Reader,
    /// Files in memory, for threads that only look at them.
    pub(super) nodes: Arc<Nodes>,
    pub(super) readers: Arc<Readers>,
    pub(super) names: Arc<Names>,
    pub(super) space: Arc<SpaceLock>,
    pub(super) units: Arc<UnitsLock>,
    pub(super) core: CoreLock,
    /// Makes waiters for callers that bring none, if it was opened with it.
    pub(super) waiters: OnceLock<Waiters>,
}

/// The core and its lock.
pub(super) struct CoreLock(Mutex<Core>);

/// A thread's hold of the core. When it ends, its changes of rows are shown to readers, and threads that it has told are woken.
pub(super) struct CoreGuard<'a> {
    core: InOrder<MutexGuard<'a, Core>>,
    lets_others_in: bool,
    // Dropped last: a thread that wakes finds the lock free.
    bells: Bells,
}

/// Bells that are rung in the end.
struct Bells(Vec<Arc<Bell>>);

impl Drop for Bells {
    fn drop(&mut self) {
        self.0.iter().for_each(|bell| bell.ring());
    }
}

impl CoreLock {
    pub(super) fn new(core: Core) -> CoreLock {
        CoreLock(Mutex::new(core))
    }

    /// The core as it is; [`Shared::lock`] takes in answers first.
    pub(super) fn lock(&self) -> CoreGuard<'_> {
        let core = InOrder::lock(Rank::Core, || self.0.lock());
        CoreGuard { core, lets_others_in: false, bells: Bells(Vec::new()) }
    }

    pub(super) fn get_mut(&mut self) -> &mut Core {
        self.0.get_mut()
    }
}

impl CoreGuard<'_> {
    /// Ends the hold of a thread that takes the lock again at once: a thread that waits for it has it before.
    pub(super) fn let_others_in(mut self) {
        self.lets_others_in = true;
    }
}

impl Deref for CoreGuard<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for CoreGuard<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Drop for CoreGuard<'_> {
    fn drop(&mut self) {
        self.core.rows.publish();
        self.core.tell_of_space();
        self.bells.0 = self.core.room.take_bells();
        if self.lets_others_in {
            MutexGuard::bump(self.core.guard_mut());
        }
    }
}

/// What the lock guards.
pub(super) struct Core {
    pub(super) rows: Rows,
    pub(super) space: Arc<SpaceLock>,
    pub(super) units: Arc<UnitsLock>,
    pub(super) tails: Tails,
    pub(super) nodes: Arc<Nodes>,
    pub(super) readers: Arc<Readers>,
    pub(super) known: KnownFiles,
    pub(super) gone: GoneFiles,
    /// Write buffers of open files.
    pub(super) write_buffers: WriteBuffers,
    /// Units that wait for more short pieces.
    pub(super) combined: CombinedUnits,
    pub(super) names: Arc<Names>,
    pub(super) files: FileCounter,
    pub(super) next_sequence: u64,
    /// What the counter of numbers was when the file system was opened.
    pub(super) since: u64,
    /// Number of the last layer that is durable.
    pub(super) committed: u64,
    pub(super) is_committing: bool,
    /// A thread gets more room for the store.
    pub(super) is_growing: bool,
    /// A thread resets or collects zones.
    pub(super) is_step_running: bool,
    /// The zone that is collected, while no step works on it.
    pub(super) collection: Option<Collection>,
    /// The collector found no room for copies, and no zone has become free since.
    pub(super) gc_is_helpless: bool,
    /// The first data that was lost since the last sync of everything.
    pub(super) lost: Option<(u64, super::error::Lost)>,
    /// Why nothing is changed any more.
    pub(super) dead: Option<String>,
    /// Which file may send while others wait.
    pub(super) turns: Turns,
    /// Threads that wait for any of this.
    pub(super) room: WaitingRoom,
    pub(super) statistics: Statistics,
}

impl Shared {
    /// The core, once all answers that are there are taken in.
    pub(super) fn lock(&self) -> CoreGuard<'_> {
        let mut core = self.core.lock();
        let answers = std::mem::take(&mut *self.answers.lock());
        if answers.is_empty() {
            return core;
        }
        for answer in answers {
            if let Err(error) = self.take_answer(&mut core, answer) {
                core.die(&error);
            }
        }
        self.tell_of_answers(&mut core);
        // The caller compares what it has read without the lock with what is shown.
        core.rows.publish();
        core
    }

    /// The same, once `ready` returns true, or an error; the file system continues meanwhile. The thread that makes the condition
    /// true tells those that wait for `what`.
    pub(super) fn lock_when(
        &self,
        waiter: &dyn Wait,
        what: WaitsFor,
        mut ready: impl FnMut(&mut Core) -> Result<bool, FsError>,
    ) -> Result<CoreGuard<'_>, FsError> {
        let mut seat = Seat::new(self, waiter, what);
        loop {
            let mut core = self.lock();
            if ready(&mut core)? {
                seat.leave(&mut core);
                return Ok(core);
            }
            seat.wait(core);
        }
    }

    /// Answers were taken in: tells the threads that wait for what they change. Those that wait for a file have been told.
    fn tell_of_answers(&self, core: &mut Core) {
        core.room.tell(|what| what == WaitsFor::Units);
        core.tell_of_room(self);
        core.step_may_help();
    }

    /// Submits a unit's append.
    pub(super) fn submit(&self, now: Nanos, request: Request) {
        let idle = self.channels.lock().pop();
        let channel = idle.unwrap_or_else(|| {
            let answers = self.answers.clone();
            self.drive.volume().channel(move |Completion { token, result, buf }| {
                answers.lock().push(UnitAnswer { token, result, buf: buf.into_buf() });
            })
        });
        self.drive.volume().submit(now, &channel, request);
        self.channels.lock().push(channel);
    }

    /// First sector of a zone.
    pub(super) fn start_of(&self, zone: ZoneIndex) -> Sector {
        self.drive.volume().info().geometry.start_of(zone)
    }

    pub(super) fn has_data(&self) -> bool {
        self.keeps_data
    }

    /// Blocks of the largest unit, header included.
    pub(super) fn unit_blocks(&self) -> u32 {
        self.superblock.unit_blocks
    }
}

impl Core {
    /// Nothing is changed any more.
    pub(super) fn die(&mut self, error: &FsError) {
        self.die_of(error.to_string());
    }

    /// The same for this reason.
    pub(super) fn die_of(&mut self, why: String) {
        self.nodes.refuse_changes();
        self.names.revoke();
        self.dead.get_or_insert(why);
        self.room.tell(|_| true);
    }

    /// Something has changed that a step of the collector may make use of.
    pub(super) fn step_may_help(&mut self) {
        self.room.step_may_help(self.is_step_running);
    }

    /// Tells the threads whose tickets are answered.
    fn tell_of_space(&mut self) {
        if self.room.is_empty() {
            return;
        }
        let space = self.space.lock();
        if space.credit.has_answers() {
            let is_answered = |ticket| space.credit.is_answered(ticket);
            self.room.tell(|what| matches!(what, WaitsFor::Space(ticket) if is_answered(ticket)));
        }
    }

    /// Whether one more unit of users may be in flight.
    pub(super) fn has_room(&self, shared: &Shared) -> bool {
        let waiting = self.write_buffers.count() + self.combined.count();
        let in_flight = self.units.lock().blocks();
        let waiting = waiting * u64::from(shared.unit_blocks());
        self.space.lock().has_room(in_flight, waiting, shared.options.dirty_bytes)
    }

    /// If there is room, tells the thread that would get it.
    pub(super) fn tell_of_room(&mut self, shared: &Shared) {
        if self.room.is_empty() || !self.has_room(shared) {
            return;
        }
        let next = self.turns.next();
        self.room.tell_one(|what| match what {
            WaitsFor::Room(Some(ino)) => next.is_none_or(|next| next == ino),
            WaitsFor::Room(None) => true,
            _ => false,
        });
    }

    /// An error if nothing may be changed any more.
    pub(super) fn check_alive(&self) -> Result<(), FsError> {
        self.dead.clone().map_or(Ok(()), |why| Err(FsError::ReadOnly(why)))
    }

    /// Takes blocks of a file out of its map and frees them.
    pub(super) fn free(&mut self, ino: u64, range: &Range<u64>) -> Result<(), FsError> {
        let gone = self.unmap(ino, range)?;
        if gone > 0 { self.update(ino, |file| file.count_blocks(gone, 0)) } else { Ok(()) }
    }

    /// The same without counting them in the file's row. Returns how many they are.
    pub(super) fn unmap(&mut self, ino: u64, range: &Range<u64>) -> Result<u64, FsError> {
        let extents = map::extents(&self.rows, ino, range)?;
        self.unmap_found(ino, range, extents)
    }

    /// The same, of blocks whose extents have been read.
    pub(super) fn unmap_found(
        &mut self,
        ino: u64,
        range: &Range<u64>,
        extents: Vec<map::Mapped>,
    ) -> Result<u64, FsError> {
        let map::Unmapped { blocks, freed } = map::unmap_found(&mut self.rows, ino, range, extents);
        freed.into_iter().try_for_each(|freed| self.give_back(freed))?;
        Ok(blocks)
    }

    /// Blocks of a zone that were a file's are free for users again, unless the zone is lost.
    pub(super) fn give_back(&mut self, freed: map::Freed) -> Result<(), FsError> {
        let number = self.rows.number();
        let mut space = self.space.lock();
        if space.free(freed, number)? {
            space.credit.freed(freed.blocks.into());
            drop(space);
            self.step_may_help();
        }
        Ok(())
    }

    /// Writes the accounts that have changed into rows.
    pub(super) fn note_accounts(&mut self) -> Result<(), FsError> {
        self.rows.put(key::counter("sequence"), self.next_sequence.to_le_bytes().to_vec());
        Ok(self.space.lock().note_accounts(&mut self.rows)?)
    }
}
