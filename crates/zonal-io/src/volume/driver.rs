//! Optional thread that polls a volume for callers that do not poll.

use super::Volume;
use crate::clock::Clock;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::threads;
use std::thread::JoinHandle;
use std::time::Duration;
use zonal_core::Nanos;

/// Longest sleep between two polls; bounds the delay until a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// Thread that polls a volume until dropped.
pub struct Driver {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts a thread that polls `volume`. `clock` has to be the one that callers of
    /// [`Volume::submit`] use, since the timeouts of parked writes are measured by it.
    ///
    /// # Errors
    /// The operating system's error, if it cannot create a thread.
    pub fn start(volume: Arc<Volume>, clock: Clock) -> std::io::Result<Driver> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = threads::spawn("zonal-driver", move || drive(&volume, &stopped, || clock.now()))?;
        Ok(Driver { stop, thread: Some(thread) })
    }
}

/// Polls `volume` until `stopped`, as the thread of a driver does. For callers with their own
/// thread and clock.
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
            // A panic in a completion function belongs to its caller, and has been printed.
            let _ = thread.join();
        }
    }
}
