//! Copies that continue past damaged data: an unreadable block becomes zeroes, and is reported.

use crate::text::shown;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zonal_fs::waiter::Polling;
use zonal_fs::{BLOCK_BYTES, FileSystem, FsError, Target};

/// Lost blocks of a file. One thread reads the file, another one reports.
#[derive(Default)]
pub(super) struct Lost {
    blocks: AtomicU64,
    untold: Mutex<Vec<String>>,
}

impl Lost {
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Reports the blocks found since the last call, one per line, and calls `before` before each
    /// line.
    pub(super) fn tell(&self, path: &[u8], mut before: impl FnMut()) {
        for line in std::mem::take(&mut *self.untold()) {
            before();
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "zonal: {}: {line}", shown(path));
        }
    }

    fn untold(&self) -> MutexGuard<'_, Vec<String>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, error: &FsError) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.untold().push(error.to_string());
    }
}

/// Message about a file whose copy lacks this number of blocks.
pub(super) fn lost(blocks: u64) -> String {
    format!("{blocks} blocks of 4 KiB are lost; the copy has zeroes instead")
}

/// Reads from a file. With `lost`, damage is recorded instead of being an error.
pub(super) fn read(
    fs: &FileSystem,
    waiter: &Polling,
    (ino, at): (u64, u64),
    buffer: &mut [u8],
    lost: Option<&Lost>,
) -> Result<u64, FsError> {
    match (fs.read(waiter, ino, at, Target::Bytes(buffer)), lost) {
        (Err(error), Some(lost)) if error.is_damage() => by_blocks(fs, waiter, (ino, at), buffer, lost),
        (read, _) => read,
    }
}

/// Reads one block at a time; an unreadable block becomes zeroes.
fn by_blocks(
    fs: &FileSystem,
    waiter: &Polling,
    (ino, at): (u64, u64),
    buffer: &mut [u8],
    lost: &Lost,
) -> Result<u64, FsError> {
    let length = fs.attributes(ino)?.size.saturating_sub(at).min(buffer.len() as u64);
    let blocks = buffer[..length as usize].chunks_mut(BLOCK_BYTES as usize);
    for (at, block) in (at..).step_by(BLOCK_BYTES as usize).zip(blocks) {
        match fs.read(waiter, ino, at, Target::Bytes(block)) {
            Err(error) if error.is_damage() => {
                block.fill(0);
                lost.note(&error);
            }
            read => drop(read?),
        }
    }
    Ok(length)
}
