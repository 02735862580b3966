//! An optional thread that polls a volume for those who do not.

use super::Volume;
use crate::sync::{Arc, AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zonal_core::Nanos;

/// Longest sleep between two polls: bounds how late a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// A thread that polls a volume until it is dropped.
pub struct Driver {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    /// Starts a thread that polls `volume`, with time counted from its start.
    ///
    /// # Errors
    /// The operating system's, if it gives no thread.
    pub fn start(volume: Arc<Volume>) -> std::io::Result<Driver> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("zonal-driver".into()).spawn(move || {
            let begin = Instant::now();
            drive(&volume, &stopped, || Nanos(begin.elapsed().as_nanos() as u64));
        })?;
        Ok(Driver { stop, thread: Some(thread) })
    }
}

/// What a driver's thread does: polls `volume` until it is `stopped`. For those who bring a thread and a clock of their own.
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
            // A panic in a completion function belongs to whoever wrote it; it has been printed.
            let _ = thread.join();
        }
    }
}
