//! Maintenance of a mounted file system: syncs changes after some seconds, and frees zones ahead of
//! need.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, FsError};

/// Interval of checks for zones to free, while files change.
const STEP: Duration = Duration::from_millis(100);

/// Time for which background steps continue after the last change, more than the file system waits
/// before it names the last batch.
const REST: Duration = Duration::from_millis(1500);

/// Flag for changes since the last sync.
#[derive(Default)]
pub(crate) struct Changed {
    is_set: AtomicBool,
    is_over: Mutex<bool>,
    news: Condvar,
}

impl Changed {
    /// Sets the flag. Call this after the change: a sync could happen in between otherwise.
    pub(crate) fn note(&self) {
        // The flag is usually set already, so only read it first.
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

    /// Waits for a change. Returns false at the end of the mount.
    fn wait(&self) -> bool {
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.is_set.load(Ordering::Acquire) {
            self.news.wait(&mut is_over);
        }
        !*is_over
    }

    /// Sleeps. Returns false at the end of the mount.
    fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.news.wait_until(&mut is_over, until).timed_out() {}
        !*is_over
    }
}

/// Maintains `fs` until the mount ends. Syncs at time `every` after the first change.
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
                Err(error) => return log(&read_only(fs, &error)),
            }
        }
        // Changes from here on belong to the next sync.
        changed.is_set.store(false, Ordering::Release);
        match fs.sync(waiter) {
            Ok(()) => {}
            Err(error @ FsError::ReadOnly(_)) => {
                return log(&read_only(fs, &error));
            }
            Err(error) => log(&format!("sync failed: {error}")),
        }
        let rested = Instant::now() + REST;
        while Instant::now() < rested && !changed.is_set.load(Ordering::Acquire) {
            if !changed.sleep(STEP) || free_zones(fs, waiter).is_err() {
                break;
            }
        }
    }
}

/// Message that the file system has become read-only.
fn read_only(fs: &FileSystem, error: &FsError) -> String {
    let cause = fs.volume().device().gone_because();
    let cause = cause.map_or(String::new(), |cause| format!(" ({cause})"));
    format!("the file system is read-only from now on: {error}{cause}")
}

fn free_zones(fs: &FileSystem, waiter: &dyn Wait) -> Result<(), FsError> {
    while fs.background_step(waiter)? {
        waiter.done();
    }
    Ok(())
}
