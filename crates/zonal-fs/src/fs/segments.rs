//! Zones that the metadata store takes from the data, and gives back.
//!
//! The store grows before rows run out of space: the operation that adds rows reserves a zone like
//! a write, and waits for garbage collection if none is free. If a zone of the store fails during a
//! commit, which cannot wait, the store takes a free zone at once, if the collector has kept one.

use super::core::Shared;
use super::error::FsError;
use super::waiting::WaitsFor;
use crate::BLOCK_SECTORS;
use crate::drive::Drive;
use crate::space::Reservation;
use crate::space::cost::Need;
use crate::store::StoreError;
use crate::store::backend::log::{Log, ZoneNeed, ZoneSource};
use crate::waiter::Wait;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use zonal_core::{Nanos, ZoneIndex};

/// Number of zones collected before the store gives up on getting one.
const TRIES_MAX: u32 = 16;

/// Source of free zones for the store.
struct FreeZones(Weak<Shared>);

impl ZoneSource for FreeZones {
    fn take(&self, _: &Drive, _: &dyn Wait, _taken: &[ZoneIndex], need: ZoneNeed) -> Option<ZoneIndex> {
        self.0.upgrade()?.space.lock().lend_at_once(need == ZoneNeed::Last)
    }
}

/// Result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compacted {
    /// All tables of rows were merged.
    Done,
    /// Another thread commits, or reads earlier tables, which keep their room.
    Busy,
    /// Few rows were removed.
    Needless,
}

/// Time without a batch after which the last one is recorded in the superblock.
const IDLE: Nanos = Nanos(1_000_000_000);

/// Maximum wait for reads and commits of other threads.
pub(super) const READS_MAX: Nanos = Nanos(2_000_000_000);

/// Last batch seen by a background step.
#[derive(Debug, Default)]
pub(super) struct LastBatch {
    batch: u64,
    since: Nanos,
    is_named: bool,
}

impl Shared {
    /// Lets the store take zones from this file system.
    pub(super) fn attach_store(self: &Arc<Shared>) {
        if let Some(log) = self.backend().log() {
            log.attach(Arc::new(FreeZones(Arc::downgrade(self))));
        }
    }

    pub(super) fn backend(&self) -> Arc<dyn crate::store::backend::Backend> {
        self.core.lock().rows.backend().clone()
    }

    /// Gives the store more space if possible, unless it has space for `wanted` pages by now.
    /// Returns true if it has.
    pub(super) fn grow_store(&self, waiter: &dyn Wait, wanted: u64) -> Result<bool, FsError> {
        let backend = self.backend();
        let Some(log) = backend.log() else { return Ok(false) };
        let mut core = self
            .lock_when(waiter, WaitsFor::Growth, |core| core.check_writable().map(|()| !core.is_growing))?;
        if core.rows.gauge().has_room() && core.rows.gauge().limit() >= wanted {
            // Another thread has grown the store meanwhile.
            return Ok(true);
        }
        core.is_growing = true;
        drop(core);
        let result = match log.wants_zones() {
            true => self.lend_zone(waiter, log),
            false => log.take_piece().map_err(|error| StoreError::from(error).into()),
        };
        let mut core = self.lock();
        core.is_growing = false;
        core.room.wake_all(|what| what == WaitsFor::Growth);
        core.rows.look_at_room();
        result
    }

    /// Reserves a zone, waits until one is free, and gives it to the store.
    fn lend_zone(&self, waiter: &dyn Wait, log: &Log) -> Result<bool, FsError> {
        if !self.space.lock().can_lend() {
            return Ok(false);
        }
        let Some(mut reservation) = self.reserve_zone(waiter)? else { return Ok(false) };
        let found = self.free_zone_for_store(waiter, &mut reservation);
        self.core.lock().space.lock().credit.give_back(reservation);
        let Some(zone) = found? else { return Ok(false) };
        log.take_zone(zone).map_err(StoreError::from)?;
        Ok(true)
    }

    /// Takes a free zone, once there is one: free blocks in open zones do not suffice.
    fn free_zone_for_store(
        &self,
        waiter: &dyn Wait,
        reservation: &mut Reservation,
    ) -> Result<Option<ZoneIndex>, FsError> {
        for _ in 0..TRIES_MAX {
            {
                let core = self.lock();
                core.check_writable()?;
                if let Some(zone) = self.space.lock().lend(reservation)? {
                    return Ok(Some(zone));
                }
            }
            if !self.background_step(waiter)? && !self.collect_one(waiter)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Like [`Shared::shrink_store`], when no other thread commits.
    pub(super) fn shrink_store_alone(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        drop(self.lock_when(waiter, WaitsFor::Commit(u64::MAX), |core| {
            core.check_writable()?;
            Ok(!std::mem::replace(&mut core.is_committing, true))
        })?);
        let result = self.shrink_store();
        let mut core = self.lock();
        core.is_committing = false;
        core.room.wake_all(WaitsFor::is_commit);
        result
    }

    /// Takes back the zones that the store does not need. Returns true if there were some. No other
    /// thread may commit meanwhile: a commit may be about to use such a zone.
    pub(super) fn shrink_store(&self) -> Result<bool, FsError> {
        let backend = self.backend();
        let Some(log) = backend.log() else { return Ok(false) };
        let mut has_shrunk = false;
        while let Some(zone) = log.give_back().map_err(StoreError::from)? {
            let capacity = (self.superblock.capacity_sectors / u64::from(BLOCK_SECTORS)) as u32;
            let mut core = self.lock();
            self.space.lock().take_back(zone, capacity)?;
            core.rows.look_at_room();
            core.gc_has_no_space = false;
            has_shrunk = true;
        }
        Ok(has_shrunk)
    }

    /// Compacts a store of at most `pages_max` pages if most of its rows were removed, and takes
    /// back unneeded zones.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`], and the store's if it can no longer be read.
    pub(super) fn compact_store(&self, pages_max: u64) -> Result<Compacted, FsError> {
        let compactor = {
            let mut core = self.lock();
            core.check_writable()?;
            let pages = core.rows.gauge().fill().map_or(0, |fill| fill.pages);
            if pages > pages_max || !core.rows.is_sparse() {
                return Ok(Compacted::Needless);
            }
            if core.is_committing {
                return Ok(Compacted::Busy);
            }
            // No other thread commits meanwhile.
            core.is_committing = true;
            core.rows.compactor()
        };
        let result = match compactor.run().map_err(FsError::from) {
            Ok(true) => self.shrink_store().map(|_| Compacted::Done),
            Ok(false) => Ok(Compacted::Busy),
            Err(error) => Err(error),
        };
        let mut core = self.lock();
        if !matches!(result, Ok(Compacted::Busy)) {
            core.rows.compacted();
            self.compactions.fetch_add(1, Ordering::Release);
        }
        core.is_committing = false;
        core.room.wake_all(WaitsFor::is_commit);
        core.step_may_help();
        result.inspect_err(|error| core.make_read_only(error))
    }

    /// Compacts a sparse store of any size as soon as no other thread reads or commits.
    ///
    /// # Errors
    /// As for [`Shared::compact_store`], and those of a commit.
    pub(super) fn compact_for_space(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let begin = waiter.now();
        // Deletions that are in no table yet count, too.
        self.merge_all(waiter)?;
        loop {
            self.commit(waiter)?;
            let is_busy = self.compact_store(u64::MAX)? == Compacted::Busy;
            if !is_busy || waiter.now().0 - begin.0 > READS_MAX.0 {
                waiter.done();
                return Ok(());
            }
            waiter.wait(self.drive.volume());
        }
    }

    /// Records the last batch in the superblock, if there was none for [`IDLE`].
    pub(super) fn name_batch_if_idle(&self, waiter: &dyn Wait) {
        let backend = self.backend();
        let Some(log) = backend.log() else { return };
        let (batch, now) = (log.batch(), waiter.now());
        let is_due = {
            let mut last = self.last_batch.lock();
            match &mut *last {
                LastBatch { batch: seen, .. } if *seen != batch => {
                    *last = LastBatch { batch, since: now, is_named: false };
                    false
                }
                LastBatch { is_named: true, .. } => false,
                LastBatch { since, is_named, .. } => {
                    *is_named = now.0.saturating_sub(since.0) >= IDLE.0;
                    *is_named
                }
            }
        };
        if is_due {
            // After a failure the last batch is not recorded. If the superblock cannot be written
            // at all, the next segment fails.
            let _ = log.name_batch();
        }
    }

    /// Space of a zone, as counted for files.
    pub(super) fn need_of_zone(&self) -> Need {
        let blocks = (self.superblock.capacity_sectors / u64::from(BLOCK_SECTORS)) as u32;
        Need { extents: self.space.lock().book.data_blocks(blocks).into(), available: blocks.into() }
    }
}

/// Compacts a store that is larger than necessary, because most of its rows were removed.
impl Drop for Shared {
    fn drop(&mut self) {
        let core = self.core.get_mut();
        let rows = &core.rows;
        if core.check_writable().is_err() || !rows.is_sparse() {
            return;
        }
        // A failure leaves the durable state unchanged, and is found by the next mount.
        if rows.compactor().run().is_ok() {
            let backend = rows.backend().clone();
            while backend.log().is_some_and(|log| log.give_back().is_ok_and(|zone| zone.is_some())) {}
        }
    }
}
