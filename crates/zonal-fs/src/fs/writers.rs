//! Writes without the core's lock: into the reserved space of an open file's buffered tail.
//!
//! The thread takes the tail with the file's own lock, copies without any lock, and puts the tail
//! back. The core's order of tails and their ages are unaffected. Other threads find the tail
//! taken, and wait as for a thread that sends it.
//!
//! # Why no thread waits forever
//! A thread that waits for a file marks the file as awaited, and looks again unless it was marked
//! already. The writer clears the mark when it puts the tail back, and notifies the waiting threads
//! under the core's lock. So a thread that finds the mark set after its look, while it holds the
//! core's lock, can be sure that no tail has been returned in between, and that the next one will
//! wake it.
//!
//! # Missing changes in the row of a file
//! The times of a write and the set-id bits are updated in memory only. They are written to the row
//! with the data, or when the file is dropped from memory.

use super::core::{Core, Shared};
use super::error::FsError;
use super::node::Nodes;
use super::waiting::WaitsFor;
use super::write::{Blocks, Payload};
use super::write_buffer::{BufferedTail, WriteBuffer};
use crate::BLOCK_BYTES;
use crate::format::{Attributes, key};
use crate::waiter::Wait;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Nodes {
    /// Takes the tail of an open file if `bytes` fit into it and need no other data of the file.
    fn take_for(&self, ino: u64, bytes: &Range<u64>) -> Option<Box<BufferedTail>> {
        if !self.take_changes() {
            return None;
        }
        let mut node = self.here(ino).filter(|node| node.handles > 0)?;
        let WriteBuffer::Here(tail) = &node.write_buffer else { return None };
        // A block that is new to the tail and only partly written has to be read first, unless it
        // is the file's last.
        let is_whole =
            bytes.end <= tail.next_block() || bytes.end.is_multiple_of(BLOCK) || bytes.end >= node.size;
        if !is_whole || !tail.takes(bytes.start) || bytes.end > tail.room_end() {
            return None;
        }
        node.write_buffer.take()
    }

    /// Puts back a tail taken like that. Returns true if a thread waits for it, or the tail if it
    /// should be sent.
    fn put_back(
        &self,
        ino: u64,
        tail: Box<BufferedTail>,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<bool, Box<BufferedTail>> {
        let Some(mut node) = self.here(ino) else { return Err(tail) };
        node.size = node.size.max(tail.end);
        change(&mut node.attributes);
        node.is_ahead_of_row = true;
        if tail.is_full() || node.handles == 0 {
            return Err(tail);
        }
        node.write_buffer = WriteBuffer::Here(tail);
        Ok(std::mem::take(&mut node.is_awaited))
    }
}

impl Shared {
    /// Writes at `offset` of a file without the core. Returns false, without effect, if the write
    /// needs the core. `change` updates the attributes for the write.
    pub(super) fn write_without_core(
        &self,
        waiter: &dyn Wait,
        ino: u64,
        offset: u64,
        payload: Payload<'_>,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<bool, FsError> {
        let end = offset + payload.len();
        let bytes = match (payload, self.has_data()) {
            (Payload::Bytes(bytes), true) => bytes,
            (Payload::Length(_), true) => return Ok(false),
            (_, false) => &[],
        };
        let Some(mut tail) = self.nodes.take_for(ino, &(offset..end)) else { return Ok(false) };
        let from = tail.next_block().max(offset);
        let new = (from < end && self.has_data()).then(|| Blocks {
            offset: from,
            bytes: &bytes[(from - offset) as usize..],
            edges: Vec::new(),
        });
        tail.add(offset, payload, new.as_ref());
        match self.nodes.put_back(ino, tail, change) {
            Ok(false) => {}
            Ok(true) => self.core.lock().room.wake_all(|what| what == WaitsFor::File(ino)),
            Err(tail) => {
                self.core.lock().write_buffers.taken_for_good(&tail);
                self.leave_tail(waiter, ino, tail)?;
            }
        }
        Ok(true)
    }
}

impl Core {
    /// Completes a file's row with the changes made in memory.
    pub(super) fn complete_row(&mut self, ino: u64) {
        let Some(mut node) = self.nodes.here(ino).filter(|node| node.is_ahead_of_row) else { return };
        node.is_ahead_of_row = false;
        self.rows.put(key::inode(ino), node.attributes.encode());
    }

    /// Updates the attributes of a held file in memory for a write. Returns true if the file is
    /// open.
    pub(super) fn note_write(
        &mut self,
        ino: u64,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<bool, FsError> {
        let mut node = self.nodes.get(&self.rows, ino)?;
        change(&mut node.attributes);
        node.is_ahead_of_row = true;
        Ok(node.handles > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FileKind, Metadata, Superblock};
    use crate::fs::names::ROOT;
    use crate::fs::{FileSystem, MountOptions, NewFile, Target};
    use crate::store::Rows;
    use crate::store::backend::Memory;
    use crate::waiter::Polling;
    use std::sync::Arc;
    use zonal_io::clock::Clock;
    use zonal_io::volume::{Volume, VolumeOptions};

    fn file_system() -> FileSystem {
        let device =
            zonal_io::registry::Registry::default().open("ram:size=64M,zone_size=4M,blocksize=4096").unwrap();
        let volume = Arc::new(Volume::open(device, VolumeOptions::default()).unwrap());
        let superblock =
            Superblock::new(*b"zonal-writes-too", &volume.info().geometry, 64, Metadata::Beside, 0);
        let mut rows = Rows::open(Memory::new(), 1 << 20).unwrap();
        FileSystem::make(&mut rows, &superblock, &waiter()).unwrap();
        FileSystem::open(volume, rows, superblock, MountOptions::default(), true, &waiter()).unwrap()
    }

    fn waiter() -> Polling {
        Polling::new(Clock::start())
    }

    /// Writes while another thread holds the core, and returns true if the core was not needed. The
    /// first of `bytes` becomes the file's time.
    fn needs_no_core(fs: &FileSystem, ino: u64, at: u64, bytes: &[u8]) -> bool {
        let now = bytes[0].into();
        let core = fs.0.core.lock();
        std::thread::scope(|scope| {
            let change = |file: &mut Attributes| file.mtime = now;
            let write =
                move || fs.0.write_without_core(&waiter(), ino, at, Payload::Bytes(bytes), change).unwrap();
            let done = scope.spawn(write).join().unwrap();
            drop(core);
            done
        })
    }

    #[test]
    fn write_into_a_tail_with_room_needs_no_core() {
        let (fs, block) = (file_system(), [9; BLOCK as usize]);
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o6777)).unwrap();
        assert!(!needs_no_core(&fs, ino, 0, &block), "it is not open");
        let open = fs.open_file(ino).unwrap();
        assert!(!needs_no_core(&fs, ino, 0, &block), "it has no tail");
        fs.write(&waiter(), ino, 0, Payload::Bytes(&block)).unwrap();
        assert!(needs_no_core(&fs, ino, BLOCK, &block));
        assert!(needs_no_core(&fs, ino, BLOCK - 5, &[8; 10]), "within the tail");
        assert!(!needs_no_core(&fs, ino, 5 * BLOCK, &block), "elsewhere");
        assert!(!needs_no_core(&fs, ino, 2 * BLOCK, &[1; 20 * BLOCK as usize]), "no room");
        let attributes = fs.attributes(ino).unwrap();
        assert_eq!((attributes.size, attributes.mtime, attributes.mode), (2 * BLOCK, 8, 0o777));
        let mut found = [0; 2 * BLOCK as usize];
        fs.read(&waiter(), ino, 0, Target::Bytes(&mut found)).unwrap();
        let at = BLOCK as usize - 5;
        assert!(
            found[at..][..10] == [8; 10]
                && found[..at].iter().chain(&found[at + 10..]).all(|byte| *byte == 9)
        );
        fs.write(&waiter(), ino, 2 * BLOCK, Payload::Bytes(&block)).unwrap();
        fs.forbid_changes("it is to be so");
        assert!(!needs_no_core(&fs, ino, 3 * BLOCK, &block), "no changes are taken");
        drop(open);
    }

    #[test]
    fn write_into_a_part_of_a_block_keeps_the_rest() {
        let fs = file_system();
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
        let open = fs.open_file(ino).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(&[1; 8 * BLOCK as usize])).unwrap();
        fs.fsync(&waiter(), ino).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(&[2; BLOCK as usize])).unwrap();
        assert!(!needs_no_core(&fs, ino, BLOCK, &[3; 100]), "what the file has there is on the drive");
        fs.write(&waiter(), ino, BLOCK, Payload::Bytes(&[3; 100])).unwrap();
        let mut found = [0; 2 * BLOCK as usize];
        fs.read(&waiter(), ino, 0, Target::Bytes(&mut found)).unwrap();
        let (first, second) = found.split_at(BLOCK as usize);
        assert!(first.iter().all(|byte| *byte == 2) && second[..100] == [3; 100]);
        assert!(second[100..].iter().all(|byte| *byte == 1));
        open.close(&waiter()).unwrap();
    }

    #[test]
    fn attributes_of_a_write_without_the_core_are_durable_with_a_sync() {
        let fs = file_system();
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
        let open = fs.open_file(ino).unwrap();
        // The first write extends the file; the others change nothing else in its row.
        for time in 1..4 {
            fs.write(&waiter(), ino, 0, Payload::Bytes(&[time; BLOCK as usize])).unwrap();
            assert!(needs_no_core(&fs, ino, BLOCK, &[time; BLOCK as usize]));
            fs.fsync(&waiter(), ino).unwrap();
            let row = crate::fs::attributes(&fs.0.reader, ino).unwrap();
            assert_eq!((row.mtime, row.size), (time.into(), 2 * BLOCK));
        }
        open.close(&waiter()).unwrap();
    }
}
