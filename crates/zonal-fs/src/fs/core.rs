//! State shared by most changes: rows for the next commit, files being written or deleted, and
//! waiting threads. Names, files in memory, space, units in flight and the layers of rows have
//! their own locks; `Rank` in [`locked`](crate::store::locked) has the order of all locks.
//!
//! The completion of a unit changes file maps, rows of files and zone accounts, and a commit
//! includes all of these changes or none. So the lock is held around them and while rows are
//! sealed.
//!
//! A thread holds the lock for microseconds, and never while it waits, copies a payload or calls a
//! device. Rows that are not in memory are read beforehand: [`look`](super::look).

use super::beginnings::Beginnings;
use super::combine::CombinedUnits;
use super::commit::UnflushedUnits;
use super::create::Names;
use super::destroy::DeletedFiles;
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
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use zonal_core::{Nanos, RequestError, Sector, ZoneIndex};
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::device::Output;
use zonal_io::volume::{Channel, Completion, Events, Request};

/// Result of a unit's append, as queued by the completion function.
pub(super) struct UnitAnswer {
    pub(super) token: u64,
    pub(super) result: Result<Output, RequestError>,
    pub(super) buf: IoBuf,
}

/// Options of a mount, as opposed to properties set by `mkfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// Maximum number of open zones, for users and garbage collection together. `None`: the drive's
    /// limit, at most 128.
    pub max_open_zones: Option<u32>,
    /// Choice of the free zone to open.
    pub zone_order: ZoneOrder,
    /// Bytes in write buffers and in flight above which writers wait.
    pub dirty_bytes: u64,
    /// Write quantum: bytes of one file that are written before those of other waiting files.
    /// `None`: a zone's worth on a rotational drive, 0 elsewhere. With 0, files alternate unit by
    /// unit.
    pub turn_bytes: Option<u64>,
    /// Start garbage collection when less than this percentage of the free space can be written at
    /// once. 0: as late as space allows.
    pub low_space_percent: u8,
    /// Group data by the expected lifetimes of files.
    pub lifetimes: bool,
    /// Bytes of metadata in memory.
    pub cache_bytes: usize,
    /// Size in bytes of the cache of data checksums. A read that finds the checksums of its unit
    /// there reads only data. 1 GiB in units of 1 MiB has 1.2 MB of checksums. 0 disables the
    /// cache.
    pub sums_bytes: usize,
    /// Number of changed rows at which a background step commits.
    pub changes_max: usize,
}

zonal_core::setters! {
    MountOptions
    /// Maximum number of open zones, for users and garbage collection together. `None`: the drive's
    /// limit, at most 128.
    with_max_open_zones max_open_zones: impl Into<Option<u32>>;
    /// Choice of the free zone to open.
    with_zone_order zone_order: ZoneOrder;
    /// Bytes in write buffers and in flight above which writers wait.
    with_dirty_bytes dirty_bytes: u64;
    /// Bytes of one file that are written before those of other waiting files.
    with_turn_bytes turn_bytes: impl Into<Option<u64>>;
    /// Percentage of the free space: collection starts when less than this can be written at once.
    with_low_space_percent low_space_percent: u8;
    /// Group data by the expected lifetimes of files.
    with_lifetimes lifetimes: bool;
    /// Bytes of metadata in memory.
    with_cache_bytes cache_bytes: usize;
    /// Size in bytes of the cache of data checksums; 0 disables it.
    with_sums_bytes sums_bytes: usize;
    /// Number of changed rows at which a background step commits.
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

/// State shared by the threads or coroutines that use a file system.
pub(super) struct Shared {
    pub(super) drive: Drive,
    /// Events of the drive's zones.
    pub(super) events: Events,
    pub(super) superblock: Superblock,
    pub(super) options: MountOptions,
    /// Idle channels that deliver to `answers`. Only one submitter uses a channel at a time.
    pub(super) channels: Mutex<Vec<Channel>>,
    pub(super) answers: Arc<Mutex<Vec<UnitAnswer>>>,
    /// Buffers of a unit each. Their bytes are meaningless if the device keeps no data.
    pub(super) pool: BufferPool,
    /// Buffers for small reads.
    pub(super) small: SmallBuffers,
    /// Cached checksums of units.
    pub(super) unit_sums: UnitSums,
    pub(super) begun: Arc<Beginnings>,
    pub(super) last_batch: Mutex<LastBatch>,
    /// Number of compactions of the store, failed ones included.
    pub(super) compactions: AtomicU64,
    /// Number of calls that are making a file durable.
    pub(super) syncs: AtomicU32,
    /// True if the device keeps data.
    pub(super) keeps_data: bool,
    /// Rows, for threads without the core's lock.
    pub(super) reader: Reader,
    /// Files in memory, for threads that only look at them.
    pub(super) nodes: Arc<Nodes>,
    pub(super) readers: Arc<Readers>,
    pub(super) names: Arc<Names>,
    pub(super) space: Arc<SpaceLock>,
    pub(super) units: Arc<UnitsLock>,
    pub(super) core: CoreLock,
    /// Makes waiters for callers without their own, if the file system was opened with it.
    pub(super) waiters: OnceLock<Waiters>,
}

/// Core and its lock.
pub(super) struct CoreLock(Mutex<Core>);

/// Guard of the core. When it is dropped, changed rows are published to readers, and notified
/// threads are woken.
pub(super) struct CoreGuard<'a> {
    core: InOrder<MutexGuard<'a, Core>>,
    lets_others_in: bool,
    // Dropped last, so that a woken thread finds the lock free.
    bells: Bells,
}

/// Bells that are rung on drop.
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

    /// Locks the core as it is. [`Shared::lock`] processes pending answers first.
    pub(super) fn lock(&self) -> CoreGuard<'_> {
        let core = InOrder::lock(Rank::Core, || self.0.lock());
        CoreGuard { core, lets_others_in: false, bells: Bells(Vec::new()) }
    }

    pub(super) fn get_mut(&mut self) -> &mut Core {
        self.0.get_mut()
    }
}

impl CoreGuard<'_> {
    /// Releases the lock before taking it again at once, but hands it to a waiting thread first.
    pub(super) fn yield_to_waiters(mut self) {
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
        self.core.notify_space();
        self.bells.0 = self.core.room.take_bells();
        if self.lets_others_in {
            MutexGuard::bump(self.core.guard_mut());
        }
    }
}

/// State guarded by the core's lock.
pub(super) struct Core {
    pub(super) rows: Rows,
    pub(super) space: Arc<SpaceLock>,
    pub(super) units: Arc<UnitsLock>,
    pub(super) tails: Tails,
    pub(super) nodes: Arc<Nodes>,
    pub(super) readers: Arc<Readers>,
    pub(super) known: KnownFiles,
    pub(super) deleted: DeletedFiles,
    /// Write buffers of open files.
    pub(super) write_buffers: WriteBuffers,
    /// Combined units being filled.
    pub(super) combined: CombinedUnits,
    pub(super) names: Arc<Names>,
    pub(super) files: FileCounter,
    pub(super) next_sequence: u64,
    /// Counter of numbers at the time of the mount.
    pub(super) since: u64,
    /// Units written since the last seal of the rows.
    pub(super) unflushed: UnflushedUnits,
    /// Number of the last durable layer.
    pub(super) committed: u64,
    pub(super) is_committing: bool,
    /// True while a thread extends the store.
    pub(super) is_growing: bool,
    /// True while a thread resets zones or collects garbage.
    pub(super) is_step_running: bool,
    /// Zone being collected, while no step works on it.
    pub(super) collection: Option<Collection>,
    /// True if garbage collection found no space for copies, and no zone has become free and no
    /// block has been freed since.
    pub(super) gc_has_no_space: bool,
    /// First data loss since the last sync of the whole file system.
    pub(super) lost: Option<(u64, super::error::Lost)>,
    /// Reason for refusing all changes.
    pub(super) read_only: Option<String>,
    /// Scheduling of files that wait to send.
    pub(super) turns: Turns,
    /// Threads that wait for any of this.
    pub(super) room: WaitingRoom,
    pub(super) statistics: Statistics,
}

impl Shared {
    /// Locks the core, after processing all pending answers.
    pub(super) fn lock(&self) -> CoreGuard<'_> {
        let mut core = self.core.lock();
        let answers = std::mem::take(&mut *self.answers.lock());
        if answers.is_empty() {
            return core;
        }
        for answer in answers {
            if let Err(error) = self.take_answer(&mut core, answer) {
                core.make_read_only(&error);
            }
        }
        self.notify_answers(&mut core);
        // The caller compares rows that it has read without the lock with the published ones.
        core.rows.publish();
        core
    }

    /// Locks the core once `ready` returns true, or returns its error. The file system continues
    /// meanwhile. A thread that makes the condition true notifies those that wait for `what`.
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

    /// Notifies the threads affected by processed answers. Those that wait for a file have been
    /// notified already.
    fn notify_answers(&self, core: &mut Core) {
        core.room.wake_all(|what| what == WaitsFor::Units);
        core.notify_room(self);
        core.step_may_help();
    }

    /// Submits the append of a unit.
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
    /// Refuses all changes from now on.
    pub(super) fn make_read_only(&mut self, error: &FsError) {
        self.make_read_only_because(error.to_string());
    }

    /// Like [`Core::make_read_only`], with a reason.
    pub(super) fn make_read_only_because(&mut self, why: String) {
        self.nodes.refuse_changes();
        self.names.revoke();
        self.read_only.get_or_insert(why);
        self.room.wake_all(|_| true);
    }

    /// Notes a change that may give garbage collection something to do.
    pub(super) fn step_may_help(&mut self) {
        self.room.step_may_help(self.is_step_running);
    }

    /// Notifies the threads with answered tickets.
    fn notify_space(&mut self) {
        if self.room.is_empty() {
            return;
        }
        let space = self.space.lock();
        if space.credit.has_answers() {
            let is_answered = |ticket| space.credit.is_answered(ticket);
            self.room.wake_all(|what| matches!(what, WaitsFor::Space(ticket) if is_answered(ticket)));
        }
    }

    /// True if one more unit of users may be in flight.
    pub(super) fn has_room(&self, shared: &Shared) -> bool {
        let waiting = self.write_buffers.count() + self.combined.count();
        let in_flight = self.units.lock().blocks();
        let waiting = waiting * u64::from(shared.unit_blocks());
        self.space.lock().has_room(in_flight, waiting, shared.options.dirty_bytes)
    }

    /// Notifies the thread that is next to get room, if there is any.
    pub(super) fn notify_room(&mut self, shared: &Shared) {
        if self.room.is_empty() || !self.has_room(shared) {
            return;
        }
        let next = self.turns.next();
        self.room.wake_one(|what| match what {
            WaitsFor::Room(Some(ino)) => next.is_none_or(|next| next == ino),
            WaitsFor::Room(None) => true,
            _ => false,
        });
    }

    /// Returns an error if changes are refused.
    pub(super) fn check_writable(&self) -> Result<(), FsError> {
        self.read_only.clone().map_or(Ok(()), |why| Err(FsError::ReadOnly(why)))
    }

    /// Removes blocks of a file from its map and frees them.
    pub(super) fn free(&mut self, ino: u64, range: &Range<u64>) -> Result<(), FsError> {
        let gone = self.unmap(ino, range)?;
        if gone > 0 { self.update(ino, |file| file.count_blocks(gone, 0)) } else { Ok(()) }
    }

    /// Like [`Core::free`], but leaves the block count in the file's row and returns the number of
    /// blocks.
    pub(super) fn unmap(&mut self, ino: u64, range: &Range<u64>) -> Result<u64, FsError> {
        let extents = map::extents(&self.rows, ino, range)?;
        self.unmap_found(ino, range, extents)
    }

    /// Like [`Core::unmap`], for extents that the caller has read.
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

    /// Returns former blocks of a file to the free space of users, unless their zone is lost.
    pub(super) fn give_back(&mut self, freed: map::Freed) -> Result<(), FsError> {
        let number = self.rows.number();
        let mut space = self.space.lock();
        if space.free(freed, number)? {
            drop(space);
            self.freed(freed.blocks.into());
            self.step_may_help();
        }
        Ok(())
    }

    /// Returns data blocks to the free space of users.
    pub(super) fn freed(&mut self, blocks: u64) {
        self.space.lock().credit.freed(blocks);
        // A zone with fewer live blocks needs less space for copies.
        self.gc_has_no_space &= blocks == 0;
    }

    /// Writes changed accounts to their rows.
    pub(super) fn note_accounts(&mut self) -> Result<(), FsError> {
        self.rows.put(key::counter("sequence"), self.next_sequence.to_le_bytes().to_vec());
        Ok(self.space.lock().note_accounts(&mut self.rows)?)
    }
}
