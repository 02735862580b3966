//! Commits: one flush of the drive and one commit of the rows, shared by all waiting threads.
//!
//! # Order
//! Sealed rows refer only to completely written data. The drive flushes this data, then the
//! rows are committed. A crash in between leaves unreferenced data, never a reference to missing
//! data.
//!
//! A small commit goes to the log of the store, and lists the units written since the commit before.
//! One flush is then enough: an opening after a crash ignores the commit if one of them is missing.

use super::core::Shared;
use super::error::FsError;
use super::logged_tails::OngoingSync;
use super::node::NodeGuard;
use super::space::Space;
use super::waiting::WaitsFor;
use super::write::CoreAndFile;
use crate::format::UnitPlace;
use crate::store::Sealed;
use crate::store::backend::log::{UNITS_BLOCKS_MAX, UNITS_MAX};
use crate::waiter::Wait;
use zonal_core::ZoneIndex;

/// Units written since the last commit, which may not be durable yet.
#[derive(Default)]
pub(super) struct UnflushedUnits {
    /// Empty if there are too many to list.
    units: Vec<UnitPlace>,
    blocks: u32,
    are_many: bool,
}

impl UnflushedUnits {
    pub(super) fn add(&mut self, unit: UnitPlace) {
        self.blocks += unit.blocks;
        self.are_many |= self.units.len() == UNITS_MAX || self.blocks > UNITS_BLOCKS_MAX;
        if self.are_many {
            (self.units, self.blocks) = (Vec::new(), 0);
        } else {
            self.units.push(unit);
        }
    }

    /// Drops the units in zones without live data. No row refers to them, and such a zone is reset
    /// after the commit, so an opening would not find them.
    pub(super) fn retain_live(&mut self, space: &Space) {
        let is_live =
            |unit: &UnitPlace| space.book.zone(ZoneIndex(unit.zone)).is_ok_and(|zone| zone.used > 0);
        self.units.retain(is_live);
    }
}

impl Shared {
    /// Makes all changes durable that were complete before the call. A thread that arrives during a
    /// commit waits for the next one, which serves all threads that arrived meanwhile.
    pub(super) fn commit(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let target = {
            let core = self.lock();
            core.check_writable()?;
            // Changes in the log may be too many because the store has less room now.
            let is_clean = core.rows.changes() == 0
                && core.space.lock().is_clean()
                && core.rows.changes_for_tables() <= core.changes_max();
            core.rows.number() - u64::from(is_clean)
        };
        self.commit_up_to(waiter, target)
    }

    pub(super) fn commit_up_to(&self, waiter: &dyn Wait, target: u64) -> Result<(), FsError> {
        loop {
            let mut sealed = None;
            let core = self.lock_when(waiter, WaitsFor::Commit(target), |core| {
                core.check_writable()?;
                if core.committed >= target {
                    return Ok(true);
                }
                if !core.is_committing {
                    sealed = core.seal()?;
                    core.is_committing = sealed.is_some();
                }
                Ok(sealed.is_some())
            });
            // This thread may be the only one that was woken to commit.
            drop(core.inspect_err(|_| self.lock().room.wake_all(WaitsFor::is_commit))?);
            let Some((sealed, unflushed)) = sealed else { return Ok(()) };
            self.make_durable(waiter, &sealed, &unflushed)?;
        }
    }

    fn make_durable(
        &self,
        waiter: &dyn Wait,
        sealed: &Sealed,
        unflushed: &UnflushedUnits,
    ) -> Result<(), FsError> {
        if sealed.writes_tables() && !self.lock().rows.gauge().has_room() {
            // Tables that other threads read take room that merges need.
            self.reclaim_rows(waiter);
        }
        // Without checksums an opening cannot verify the data.
        let are_listed =
            sealed.takes_units() && self.has_data() && self.superblock.is_summed && !unflushed.are_many;
        let result = match are_listed {
            true => Ok(&unflushed.units[..]),
            false => self.drive.flush(waiter).map(|()| &[][..]).map_err(FsError::from),
        };
        let result = result.and_then(|units| Ok(sealed.commit_with(units)?));
        let result = result.map(|committed| self.lock().rows.settled(committed));
        // No other thread commits concurrently.
        let result = result.and_then(|()| self.shrink_store().map(drop));
        let mut core = self.lock();
        core.is_committing = false;
        core.step_may_help();
        match result {
            Ok(()) => {
                core.committed = sealed.number;
                core.room.committed(sealed.number);
                self.names.settle();
                core.statistics.commits += 1;
                Ok(())
            }
            Err(error) => {
                core.make_read_only(&error);
                core.room.wake_all(WaitsFor::is_commit);
                Err(error)
            }
        }
    }

    /// Makes a file and its name durable, and reports data lost since the last call.
    pub(super) fn fsync(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        let sync = OngoingSync::begin(&self.syncs);
        self.log_or_send_tail(waiter, ino, &sync)?;
        drop(self.lock_with_file(ino));
        let failure = {
            let mut locked = self.lock_when_completed(waiter, ino)?;
            let core = &mut locked.core;
            core.attributes(ino)?;
            let failure = core.nodes.here(ino).and_then(|mut node| {
                node.announced = None;
                node.failure.take()
            });
            core.drop_if_unused(ino);
            failure
        };
        self.commit(waiter)?;
        failure.map_or(Ok(()), |why| Err(FsError::Write { ino, why }))
    }

    /// Waits until the data of an unnamed file has been written, and returns an error if any was
    /// lost, even if a sync has reported that.
    pub(super) fn complete_unnamed(&self, waiter: &dyn Wait, ino: u64) -> Result<(), FsError> {
        let is_done = |node: NodeGuard<'_>| {
            let is_at_rest = node.in_flight.is_empty() && node.write_buffer.is_nothing();
            node.attributes.links > 0 || is_at_rest && node.losses.is_none()
        };
        // Most files of a group have been written by the time the first one has.
        if self.nodes.here(ino).is_some_and(is_done) {
            return Ok(());
        }
        self.sync_tail(waiter, ino)?;
        let locked = self.lock_when_completed(waiter, ino)?;
        let losses = locked.core.nodes.here(ino).and_then(|node| node.losses);
        losses.map_or(Ok(()), |(_, why)| Err(FsError::Write { ino, why }))
    }

    /// Makes everything durable, and reports the first data loss since the last call.
    pub(super) fn sync(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        self.send_all_tails(waiter)?;
        self.send_combined(waiter, |_| true)?;
        let busy = self.lock().nodes.busy();
        for ino in busy {
            self.send_tail(waiter, ino)?;
            drop(self.lock_when_completed(waiter, ino)?);
        }
        self.commit(waiter)?;
        let lost = self.lock().lost.take();
        lost.map_or(Ok(()), |(ino, why)| Err(FsError::Write { ino, why }))
    }

    /// Locks the core once all units of a file sent before the call have completed, unlike later
    /// ones. If a later one covers any of them, holds the file: more might follow forever, each over
    /// the one before.
    fn lock_when_completed<'a>(&'a self, waiter: &'a dyn Wait, ino: u64) -> Result<CoreAndFile<'a>, FsError> {
        let mark = self.core.lock().next_sequence;
        let mut held = None;
        loop {
            let mut is_overtaken = false;
            let core = self.lock_file_when(waiter, ino, |core| {
                core.check_writable()?;
                let Some(node) = core.nodes.here(ino) else { return Ok(true) };
                is_overtaken = held.is_none() && node.in_flight.has_over(mark);
                Ok(is_overtaken || !node.in_flight.has_before(mark))
            })?;
            if !is_overtaken {
                return Ok(CoreAndFile::new(core, held));
            }
            drop(core);
            held = match self.hold(waiter, ino) {
                // It was deleted meanwhile.
                Err(FsError::NotFound) => None,
                held => Some(held?),
            };
        }
    }
}
