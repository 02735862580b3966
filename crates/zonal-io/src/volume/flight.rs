//! Flight records of lost writes: what the plug of such a write's zone went through, in a file that can be replayed.
//!
//! Off unless asked for. Then a zone whose pointer comes into doubt is recorded by its queue, and when a write of it is
//! lost for good, the record is kept here, and written by the next poll: never under a lock that others wait for. What is
//! written blocks that poll for the time that a small file takes.

use super::Volume;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use std::path::PathBuf;
use zonal_core::ZoneIndex;
use zonal_core::plug::{Queue, Rules};

/// Where records go.
struct RecordDirectory {
    directory: PathBuf,
    files_max: u32,
}

#[derive(Default)]
pub(super) struct Recorder {
    place: Option<RecordDirectory>,
    /// Kept, and not yet written.
    losses: Mutex<Vec<(ZoneIndex, String)>>,
    has_losses: AtomicBool,
    /// Files begun.
    files: AtomicU32,
    /// Those that could not be written.
    failed: AtomicU32,
}

impl Recorder {
    pub(super) fn is_on(&self) -> bool {
        self.place.is_some()
    }

    /// A write of the zone is lost for good: keeps what its queue has recorded.
    pub(super) fn keep<T>(&self, queue: &Queue<T>, rules: &Rules) {
        if let Some(record) = self.place.as_ref().and_then(|_| queue.flight(rules)) {
            self.losses.lock().push((rules.zone, record));
            self.has_losses.store(true, Ordering::Release);
        }
    }

    /// Writes what is kept.
    #[inline]
    pub(super) fn write(&self) {
        if self.has_losses.load(Ordering::Acquire) {
            self.write_losses();
        }
    }

    #[cold]
    fn write_losses(&self) {
        self.has_losses.store(false, Ordering::Release);
        let losses = std::mem::take(&mut *self.losses.lock());
        let Some(place) = &self.place else { return };
        for (zone, record) in losses {
            let n = self.files.fetch_add(1, Ordering::Relaxed);
            if n >= place.files_max {
                self.files.store(place.files_max, Ordering::Relaxed);
                return;
            }
            let path = place.directory.join(format!("{n:04}-zone-{zone}.flight"));
            if std::fs::write(path, record).is_err() {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Volume {
    /// Writes a flight record into `directory` for every zone that loses a write for good, up to `files_max` files. To be
    /// asked for before the volume is shared; [`zonal_core::plug::flight::replay`] plays one.
    pub fn recording(mut self, directory: PathBuf, files_max: u32) -> Volume {
        self.recorder.place = Some(RecordDirectory { directory, files_max });
        self
    }

    /// How many flight records were written, and how many could not be.
    pub fn flight_records(&self) -> (u32, u32) {
        let failed = self.recorder.failed.load(Ordering::Relaxed);
        (self.recorder.files.load(Ordering::Relaxed) - failed, failed)
    }
}
