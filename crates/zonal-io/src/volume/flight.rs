//! Flight records of lost writes: the calls of a zone's plug, in a file that can be replayed.
//!
//! Off by default. When the write pointer of a zone becomes unknown, its queue starts a record. If
//! a write of the zone is lost permanently, the record is kept here and written by the next poll,
//! never under a lock that others wait for. Writing the small file blocks that poll.

use super::{Volume, WriteMode};
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::text::shown_word;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use zonal_core::ZoneIndex;
use zonal_core::plug::{Queue, Rules};

/// Maximum of files per program, so that a drive that fails everywhere does not fill a disk.
pub const FLIGHT_RECORDS_MAX: u32 = 100;

/// Destination of flight records.
struct RecordDirectory {
    directory: PathBuf,
    files_max: u32,
}

#[derive(Default)]
pub(super) struct Recorder {
    place: Option<RecordDirectory>,
    /// Records not yet written.
    losses: Mutex<Vec<(ZoneIndex, String)>>,
    has_losses: AtomicBool,
    files: Mutex<Files>,
}

/// Files written so far.
#[derive(Default)]
struct Files {
    /// Number in the next file's name.
    next: u32,
    written: u32,
    failed: u32,
    /// Error of the first failure.
    error: Option<io::Error>,
    /// Records beyond the limit.
    left_out: u32,
}

impl Files {
    /// Writes a record to a new file, without touching those of earlier runs or other volumes.
    fn write(&mut self, directory: &Path, zone: ZoneIndex, record: &str) -> io::Result<()> {
        loop {
            let path = directory.join(format!("{:04}-zone-{zone}.flight", self.next));
            self.next += 1;
            match File::create_new(&path) {
                // A partial record is useless.
                Ok(mut file) => {
                    return file.write_all(record.as_bytes()).inspect_err(|_| {
                        let _ = fs::remove_file(&path);
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Recorder {
    pub(super) fn is_on(&self) -> bool {
        self.place.is_some()
    }

    /// Keeps the record of a zone's queue after a write is lost permanently.
    pub(super) fn keep<T>(&self, queue: &Queue<T>, rules: &Rules) {
        if let Some(record) = self.place.as_ref().and_then(|_| queue.flight(rules)) {
            self.losses.lock().push((rules.zone, record));
            self.has_losses.store(true, Ordering::Release);
        }
    }

    /// Writes the kept records.
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
        let mut files = self.files.lock();
        for (zone, record) in losses {
            if files.written + files.failed >= place.files_max {
                files.left_out += 1;
                continue;
            }
            match files.write(&place.directory, zone, &record) {
                Ok(()) => files.written += 1,
                Err(error) => {
                    files.failed += 1;
                    files.error.get_or_insert(error);
                }
            }
        }
    }
}

impl Volume {
    /// Writes a flight record into `directory` for every zone that loses a write permanently, up to
    /// `files_max` files. To be called before the volume is shared.
    /// [`zonal_core::plug::flight::replay`] replays a record. Mode `direct` has no plugs and
    /// records nothing.
    pub fn recording(mut self, directory: PathBuf, files_max: u32) -> Volume {
        self.recorder.place = Some(RecordDirectory { directory, files_max });
        self
    }

    /// Number of flight records written, and of those that could not be written.
    pub fn flight_records(&self) -> (u32, u32) {
        let files = self.recorder.files.lock();
        (files.written, files.failed)
    }

    /// One line about the flight records, if they are enabled: their directory, and the number and
    /// reason of missing ones.
    pub fn flight_note(&self) -> Option<String> {
        let RecordDirectory { directory, files_max } = self.recorder.place.as_ref()?;
        if self.mode().0 == WriteMode::Direct {
            return Some("no flight records: mode direct has no write plugs".to_owned());
        }
        // The last loss of a run may not have been followed by a poll.
        self.recorder.write();
        let Files { written, failed, error, left_out, .. } = &*self.recorder.files.lock();
        let mut note = format!("flight records: {written} in {}", shown_word(directory.as_os_str()));
        if let Some(error) = error {
            note += &format!(", {failed} could not be written: {error}");
        }
        if *left_out > 0 {
            note += &format!(", {left_out} left out beyond the limit of {files_max}");
        }
        (written + failed > 0).then_some(note)
    }
}
