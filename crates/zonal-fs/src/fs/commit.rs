//! What makes changes durable: one flush of the drive and one commit of the rows, for all who wait.
//!
//! # Order
//! Rows that are sealed refer only to data that has landed. So first the drive makes durable what has landed, then the
//! database commits. A cut in between leaves data that nobody refers to, never a reference to what is not there.

use super::core::{Core, Shared};
use super::error::FsError;
use crate::store::Sealed;
use crate::waiter::Waiter;
use parking_lot::MutexGuard;

impl Shared {
    /// Makes everything durable that was changed and has landed before the call. Whoever comes while a commit is under way
    /// waits for the next, and shares it with all who came meanwhile.
    pub(super) fn commit(&self, waiter: &dyn Waiter) -> Result<(), FsError> {
        let target = {
            let core = self.lock();
            core.check_alive()?;
            let is_clean = core.rows.changes() == 0 && core.changed.is_empty();
            core.rows.number() - u64::from(is_clean)
        };
        self.commit_up_to(waiter, target)
    }

    pub(super) fn commit_up_to(&self, waiter: &dyn Waiter, target: u64) -> Result<(), FsError> {
        loop {
            let mut sealed = None;
            let core = self.lock_when(waiter, |core| {
                core.check_alive()?;
                if core.committed >= target {
                    return Ok(true);
                }
                if !core.is_committing {
                    core.note_accounts()?;
                    sealed = core.rows.seal();
                    core.is_committing = sealed.is_some();
                }
                Ok(sealed.is_some())
            })?;
            drop(core);
            let Some(sealed) = sealed else { return Ok(()) };
            self.make_durable(waiter, &sealed)?;
        }
    }

    fn make_durable(&self, waiter: &dyn Waiter, sealed: &Sealed) -> Result<(), FsError> {
        let result = self.drive.flush(waiter).map_err(FsError::from);
        let result = result.and_then(|()| Ok(sealed.commit()?));
        let mut core = self.lock();
        let result = result.and_then(|committed| Ok(core.rows.settled(committed)?));
        drop(core);
        // No other thread commits meanwhile.
        let result = result.and_then(|()| self.shrink_store());
        let mut core = self.lock();
        core.is_committing = false;
        match result {
            Ok(()) => {
                core.committed = sealed.number;
                core.are_numbers_durable = true;
                core.statistics.commits += 1;
                Ok(())
            }
            Err(error) => {
                core.die(&error);
                Err(error)
            }
        }
    }

    /// Makes a file durable, with its name, and tells what of it was lost since anybody asked.
    pub(super) fn fsync(&self, waiter: &dyn Waiter, ino: u64) -> Result<(), FsError> {
        self.send_tail(waiter, ino)?;
        let failure = {
            let mut core = self.lock_when_completed(waiter, ino)?;
            core.attributes(ino)?;
            let failure = core.nodes.here(ino).and_then(|node| {
                node.announced = None;
                node.failure.take()
            });
            core.let_go(ino);
            failure
        };
        self.commit(waiter)?;
        failure.map_or(Ok(()), |why| Err(FsError::Write { ino, why }))
    }

    /// Makes everything durable, and tells of the first data that was lost since anybody did.
    pub(super) fn sync(&self, waiter: &dyn Waiter) -> Result<(), FsError> {
        self.send_all_tails(waiter)?;
        let busy = self.lock().nodes.busy();
        for ino in busy {
            self.send_tail(waiter, ino)?;
            drop(self.lock_when_completed(waiter, ino)?);
        }
        self.commit(waiter)?;
        let lost = self.lock().lost.take();
        lost.map_or(Ok(()), |(ino, why)| Err(FsError::Write { ino, why }))
    }

    /// The core, once all has landed that was sent of a file before the call: not what others go on sending.
    fn lock_when_completed(&self, waiter: &dyn Waiter, ino: u64) -> Result<MutexGuard<'_, Core>, FsError> {
        let mark = self.core.lock().next_sequence;
        self.lock_when(waiter, |core| {
            core.check_alive()?;
            Ok(core.nodes.here(ino).is_none_or(|node| !node.in_flight.has_before(mark)))
        })
    }
}
