//! Tends a file system that is mounted: what was changed is durable after some seconds, and zones become free ahead of need.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, FsError};

/// How often zones are looked after while files change.
const STEP: Duration = Duration::from_millis(100);

/// Time for which background steps continue after the last change, more than the file system waits before it names the last batch.
const REST: Duration = Duration::from_millis(1500);

/// Whether something has changed since the last sync.
#[derive(Default)]
pub(crate) struct Changed {
    is_set: AtomicBool,
    is_over: Mutex<bool>,
    news: Condvar,
}

impl Changed {
    /// Something has changed. Before the change it would be too early: a sync may come in between.
    pub(crate) fn note(&self) {
        // Most changes follow others: this one only reads.
        if !self.is_set.load(Ordering::Relaxed) {
            self.is_set.store(true, Ordering::Release);
            let _guard = self.is_over.lock();
            self.news.notify_all();
        }
    }

    pub(crate) fn end(&self) {
        *self.is_over.lock() = true;
        self.news.notify_all();
    }

    /// Waits for a change; whether there is one, and not the end.
    fn wait(&self) -> bool {
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.is_set.load(Ordering::Acquire) {
            self.news.wait(&mut is_over);
        }
        !*is_over
    }

    /// Sleeps; whether the mount is still there.
    fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.news.wait_until(&mut is_over, until).timed_out() {}
        !*is_over
    }
}

/// Tends `fs` until the mount ends: syncs `every` so long after the first change.
pub(crate) fn maintain(
    fs: &FileSystem,
    waiter: &dyn Wait,
    changed: &Changed,
    every: Duration,
    log: &dyn Fn(&str),
) {
    while changed.wait() {
        let due = Instant::now() + every;
        while Instant::now() < due {
            if !changed.sleep(STEP.min(every)) {
                return;
            }
            match free_zones(fs, waiter) {
                Ok(()) | Err(FsError::NoSpace) => {}
                Err(error) => return log(&format!("nothing is changed any more: {error}")),
            }
        }
        // What changes from here on is another change.
        changed.is_set.store(false, Ordering::Release);
        match fs.sync(waiter) {
            Ok(()) => {}
            Err(error @ FsError::ReadOnly(_)) => {
                return log(&format!("nothing is changed any more: {error}"));
            }
            Err(error) => log(&format!("a sync has failed: {error}")),
        }
        let rested = Instant::now() + REST;
        while Instant::now() < rested && !changed.is_set.load(Ordering::Acquire) {
            if !changed.sleep(STEP) || free_zones(fs, waiter).is_err() {
                break;
            }
        }
    }
}

fn free_zones(fs: &FileSystem, waiter: &dyn Wait) -> Result<(), FsError> {
    while fs.background_step(waiter)? {
        waiter.done();
    }
    Ok(())
}
