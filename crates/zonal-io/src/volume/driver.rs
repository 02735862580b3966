//! An optional thread that polls a volume for callers that do not.

use super::Volume;
use crate::clock::Clock;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::threads;
use std::thread::JoinHandle;
use std::time::Duration;
use zonal_core::Nanos;

/// Longest sleep between two polls: bounds how late a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// A thread that polls a volume until it is dropped.
pub struct Driver {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts a thread that polls `volume` in the time of `clock`. The callers of [`Volume::submit`] have the same clock: the
    /// driver decides by it when the time of a parked write is over.
    ///
    /// # Errors
    /// The operating system's, if it gives no thread.
    pub fn start(volume: Arc<Volume>, clock: Clock) -> std::io::Result<Driver> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = threads::spawn("zonal-driver", move || drive(&volume, &stopped, || clock.now()))?;
        Ok(Driver { stop, thread: Some(thread) })
    }
}

/// What a driver's thread does: polls `volume` until it is `stopped`. For callers with a thread and a clock of their own.
pub fn drive(volume: &Volume, stopped: &AtomicBool, mut clock: impl FnMut() -> Nanos) {
    while !stopped.load(Ordering::Acquire) {
        let now = clock();
        let sleep = match volume.poll(now) {
            Some(due) => Duration::from_nanos(due.0.saturating_sub(now.0)).min(SLEEP_MAX),
            None => SLEEP_MAX,
        };
        if !sleep.is_zero() {
            volume.wait(sleep);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic in a completion function belongs to the caller that wrote it; it has been printed.
            let _ = thread.join();
        }
    }
}
