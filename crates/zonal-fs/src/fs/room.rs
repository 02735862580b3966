//! Room for metadata, asked for before rows are added.
//!
//! A database that finds no room takes nothing any more, and with it the file system. So a caller that adds rows is refused
//! earlier. There is still room then for taking rows away, for copies of the collector, and for what is in flight.
//!
//! # When there seems to be none
//! Where rows were taken away, pages in use are counted, which takes a commit; such pages come free two commits later. If that
//! is not enough, the store takes another segment, while files can do without it. Otherwise zones are collected: the rows keep
//! what was written to a zone until it is reset. If that fails too, there is no room. The next caller is told so at once,
//! unless something has changed since.

use super::core::{Core, Shared};
use super::create::GRANTED_CHANGES_MAX;
use super::error::FsError;
use super::waiting::WaitsFor;
use crate::store::Fill;
use crate::waiter::Wait;

/// What an operation does to the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touched {
    /// It adds some.
    Added,
    /// It takes some away, or changes them.
    Changed,
}

/// Changes that a piece of a unit makes when it completes: its extent, the rest of an extent that it splits, its run, and
/// its file.
const CHANGES_OF_PIECE: usize = 4;

/// Commits after which pages that rows have left are free.
const COMMITS: u32 = 3;

/// Zones that are collected for a caller before it is refused.
const VICTIMS: u32 = 4;

/// What is in the way.
enum Obstacle {
    /// Pieces of units in flight.
    Units,
    /// Changes that wait for a commit.
    Changes,
    /// There seems to be no room.
    Full,
}

impl Shared {
    /// Returns once there is room for the change of rows that the caller is about to make.
    pub(super) fn admit(&self, waiter: &dyn Wait, touched: Touched) -> Result<(), FsError> {
        loop {
            let obstacle = {
                let core = self.lock();
                core.check_alive()?;
                core.obstacle(touched)
            };
            match obstacle {
                None => return Ok(()),
                Some(Obstacle::Units) => drop(self.lock_when(waiter, WaitsFor::Units, |core| {
                    core.check_alive()?;
                    Ok(!matches!(core.obstacle(touched), Some(Obstacle::Units)))
                })?),
                Some(Obstacle::Changes) => self.commit(waiter)?,
                Some(Obstacle::Full) => return self.find_room_for_rows(waiter),
            }
        }
    }

    /// Tries to find room where there seems to be none.
    fn find_room_for_rows(&self, waiter: &dyn Wait) -> Result<(), FsError> {
        let (is_stale, has_freed) = {
            let core = self.lock();
            let gauge = core.rows.gauge();
            (gauge.is_stale(), gauge.has_freed())
        };
        if has_freed && is_stale && self.count(waiter)? {
            return Ok(());
        }
        // By a quarter: a store that is always nearly full lets few changes wait, and commits often.
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
            if self.count(waiter)? {
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

    /// Counts what is in use, until what was taken away counts no more; whether there is room.
    fn count(&self, waiter: &dyn Wait) -> Result<bool, FsError> {
        for _ in 0..COMMITS {
            let number = {
                let mut core = self.lock();
                core.rows.count_pages();
                core.rows.number()
            };
            self.commit_up_to(waiter, number)?;
            if self.lock().rows.gauge().has_room() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Core {
    /// What is in the way. Threads may make files without asking while nothing would be in the way of all that they can be granted: each
    /// thread that asks sees to that, because what it is about to change may take the room.
    fn obstacle(&self, touched: Touched) -> Option<Obstacle> {
        let gauge = self.rows.gauge();
        let max = gauge.changes_max(self.space.lock().blocks_to_lend());
        let in_flight = self.units.lock().pieces() * CHANGES_OF_PIECE;
        let waiting = self.rows.changes().max(in_flight);
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
        if self.rows.changes() > max {
            return Some(Obstacle::Changes);
        }
        (touched == Touched::Added && !gauge.has_room()).then_some(Obstacle::Full)
    }

    fn check_room(&self) -> Result<(), FsError> {
        match self.rows.gauge().fill() {
            Some(Fill { pages, usable }) if pages > usable => Err(FsError::MetadataFull { pages, usable }),
            _ => Ok(()),
        }
    }
}
