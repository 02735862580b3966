//! Admission of changes by the space for metadata.
//!
//! A store that runs out of space stops accepting changes, and with it the file system. So
//! callers that add rows are refused earlier, while there is still space to remove rows, for copies
//! by garbage collection, and for units in flight.
//!
//! # When space seems to be exhausted
//! If rows were removed, all tables of rows are merged. If that is not enough, the store takes
//! another segment, as long as files can do without it. Failing that, zones are collected, because
//! rows describe the data written to a zone until it is reset. If this fails, too, there is no
//! space, and further callers are refused at once, until something changes.

use super::core::{Core, Shared};
use super::create::GRANTED_CHANGES_MAX;
use super::error::FsError;
use super::segments::READS_MAX;
use super::waiting::WaitsFor;
use crate::store::Fill;
use crate::waiter::Wait;

/// Effect of an operation on the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touched {
    /// Adds rows.
    Added,
    /// Removes or changes rows.
    Changed,
}

/// Row changes of a completed piece of a unit: its extent, the rest of an extent that it splits,
/// its run, and its file.
const CHANGES_OF_PIECE: usize = 4;

/// Number of zones collected for a caller before it is refused.
const VICTIMS: u32 = 4;

/// Obstacle to a change.
enum Obstacle {
    /// Too many pieces of units in flight.
    Units,
    /// Too many uncommitted changes.
    Changes,
    /// Space seems to be exhausted.
    Full,
}

impl Shared {
    /// Returns once there is space for the row changes that the caller is about to make.
    pub(super) fn admit(&self, waiter: &dyn Wait, touched: Touched) -> Result<(), FsError> {
        loop {
            let obstacle = {
                let core = self.lock();
                core.check_writable()?;
                core.obstacle(touched)
            };
            match obstacle {
                None => return Ok(()),
                Some(Obstacle::Units) => drop(self.lock_when(waiter, WaitsFor::Units, |core| {
                    core.check_writable()?;
                    Ok(!matches!(core.obstacle(touched), Some(Obstacle::Units)))
                })?),
                Some(Obstacle::Changes) => self.commit(waiter)?,
                Some(Obstacle::Full) => return self.find_room_for_rows(waiter),
            }
        }
    }

    /// Like [`Shared::admit`], for changes of a background step that no unit may be waiting for: a
    /// unit may wait for the zone that the step frees.
    pub(super) fn admit_step(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let are_many = {
            let core = self.lock();
            core.rows.changes_for_tables() > core.changes_max()
        };
        if are_many { self.commit(waiter) } else { Ok(()) }
    }

    /// Tries to find space for rows when it seems to be exhausted.
    fn find_room_for_rows(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        // A thread that could not wait may have left rows of deleted files.
        let gone = self.lock().deleted.mark();
        self.free_deleted(gone, Some(waiter))?;
        self.reclaim_rows(waiter);
        if self.lock().rows.gauge().has_room() {
            return Ok(());
        }
        let (is_stale, has_freed) = {
            let core = self.lock();
            let gauge = core.rows.gauge();
            (gauge.is_stale(), gauge.has_freed())
        };
        if has_freed && is_stale && self.merge_all(waiter)? {
            return Ok(());
        }
        // By a quarter: a store that stays nearly full allows few uncommitted changes and commits
        // often.
        let wanted = self.lock().rows.gauge().limit() / 4 * 5;
        while self.grow_store(waiter, wanted)? {
            let core = self.lock();
            let gauge = core.rows.gauge();
            if gauge.has_room() && gauge.limit() >= wanted {
                return Ok(());
            }
        }
        if self.lock().rows.gauge().has_room() {
            return Ok(());
        }
        if !is_stale {
            return self.lock().check_room();
        }
        for _ in 0..=VICTIMS {
            let is_stale = self.lock().rows.gauge().is_stale();
            if is_stale && self.merge_all(waiter)? {
                return Ok(());
            }
            if !self.collect_one(waiter)? {
                break;
            }
        }
        let mut core = self.lock();
        core.rows.found_full();
        core.check_room()
    }

    /// Merges all tables of rows, so that removed rows take no space. Returns true if there is space.
    pub(super) fn merge_all(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        let number = {
            let mut core = self.lock();
            core.rows.squeeze();
            core.rows.number()
        };
        self.commit_up_to(waiter, number)?;
        self.reclaim_rows(waiter);
        Ok(self.lock().rows.gauge().has_room())
    }

    /// Waits until the pages of earlier tables are free, which other threads may read.
    pub(super) fn reclaim_rows(&self, waiter: &dyn Wait) {
        let begin = waiter.now();
        while !self.lock().rows.reclaim() && waiter.now().0 - begin.0 <= READS_MAX.0 {
            waiter.wait(self.drive.volume());
        }
        waiter.done();
    }
}

impl Core {
    /// Returns the obstacle, if any. Threads may create files without asking as long as there would
    /// be no obstacle to everything that they can be granted. Each thread that asks checks this,
    /// because its own change may use up the space.
    fn obstacle(&self, touched: Touched) -> Option<Obstacle> {
        let (gauge, max) = (self.rows.gauge(), self.changes_max());
        let in_flight = self.units.lock().pieces() * CHANGES_OF_PIECE;
        let waiting = self.rows.changes_for_tables().max(in_flight);
        let has_plenty =
            waiting + GRANTED_CHANGES_MAX <= max && gauge.has_room_for(GRANTED_CHANGES_MAX as u64);
        match touched {
            _ if !has_plenty => self.names.revoke(),
            Touched::Added => self.names.grant(),
            Touched::Changed => {}
        }
        if in_flight > max {
            return Some(Obstacle::Units);
        }
        if self.rows.changes_for_tables() > max {
            return Some(Obstacle::Changes);
        }
        (touched == Touched::Added && !gauge.has_room()).then_some(Obstacle::Full)
    }

    /// True if rows may be added without waiting.
    pub(super) fn admits_rows(&self) -> bool {
        self.obstacle(Touched::Added).is_none()
    }

    /// True if rows may be removed or changed without waiting.
    pub(super) fn admits_changes(&self) -> bool {
        self.obstacle(Touched::Changed).is_none()
    }

    /// Maximum number of changes that may wait for a commit of tables.
    pub(super) fn changes_max(&self) -> usize {
        self.rows.gauge().changes_max(self.space.lock().blocks_to_lend())
    }

    fn check_room(&self) -> Result<(), FsError> {
        match self.rows.gauge().fill() {
            Some(Fill { pages, usable }) if pages > usable => Err(FsError::MetadataFull { pages, usable }),
            _ => Ok(()),
        }
    }
}
