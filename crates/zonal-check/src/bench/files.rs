//! The file system compared with the bare write path, on `ram:`.
//!
//! Both sides write the same bytes, and both copy them to a buffer that they pass to the volume.
//! The remaining difference is the file system's own work, mainly checksums. Reads through the
//! volume are not verified.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::path::NOW;
use super::report::{Bound, Report};
use parking_lot::Mutex;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::{Sector, ZoneIndex};
use zonal_fs::format::{FileKind, Metadata, Superblock};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::{Polling, Wait};
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT, Target};
use zonal_io::buffer::{BufferPool, IoBuf};
use zonal_io::clock::Clock;
use zonal_io::device::{Device, Output};
use zonal_io::emulated::{Emulated, EmulatedOptions, Ram};
use zonal_io::volume::{Channel, Request, Volume, VolumeOptions};

pub(super) const ZONE: u64 = 16 << 20;

/// Zones of a drive for [`SET`].
const ZONES: u64 = 16;

/// Bytes of one call in a sequential write or read.
pub(super) const PIECE: u64 = 1 << 20;

/// Bytes of a unit: a piece and its header. On a drive with a maximum command size of one mebibyte,
/// as is common, a piece takes two units, and each costs some microseconds of its own.
const UNIT: u64 = PIECE + BLOCK;

pub(super) const BLOCK: u64 = zonal_fs::BLOCK_BYTES as u64;

/// Bytes written in a round: larger than the caches. Together with the remains of the previous
/// round in a partly filled zone, it is no more than the device keeps for reuse, so every page is
/// already touched.
const SET: u64 = 40 << 20;

/// Opens a volume on a drive in memory of `zones` zones.
fn volume(zones: u64) -> Arc<Volume> {
    let (size, max_sectors) = (zones * ZONE, (UNIT / 512) as u32);
    let options =
        EmulatedOptions::default().with_size(size).with_zone_size(ZONE).with_max_sectors(max_sectors);
    let geometry = options.geometry().expect("the options are valid");
    let device: Arc<dyn Device> =
        Arc::new(Emulated::new("ram", &options, Ram::new(&geometry)).expect("the options are valid"));
    let options = VolumeOptions::default().without_budget();
    Arc::new(Volume::open(device, options).expect("an emulated device opens"))
}

/// Returns `length` bytes that are not all equal.
pub(super) fn bytes(length: u64) -> Vec<u8> {
    (0..length).map(|i| ((i * i) >> 7) as u8).collect()
}

/// Returns the pieces of `bytes` in order, starting over at the end.
pub(super) fn pieces_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks_exact(PIECE as usize).cycle()
}

/// A file system on a drive of its own.
pub(super) struct Files {
    pub(super) fs: FileSystem,
    pub(super) waiter: Polling,
}

impl Files {
    /// Creates one on a drive of `zones` zones.
    pub(super) fn new(zones: u64) -> Files {
        let (volume, waiter) = (volume(zones), Polling::new(Clock::start()));
        let unit_blocks = (UNIT / BLOCK) as u32;
        let geometry = &volume.info().geometry;
        let superblock = Superblock::new(*b"zonal-check-unit", geometry, unit_blocks, Metadata::Beside, 0);
        let mut rows = Rows::open(Memory::new(), 1 << 24).expect("memory opens");
        FileSystem::make(&mut rows, &superblock, &waiter).expect("memory takes rows");
        let opened = FileSystem::open(volume, rows, superblock, MountOptions::default(), true, &waiter);
        Files { fs: opened.expect("what was made can be opened"), waiter }
    }

    pub(super) fn create(&self) -> u64 {
        let new = NewFile::new(FileKind::File, 0o644);
        self.fs.create(&self.waiter, ROOT, b"file", &new).expect("the name is free")
    }

    /// Writes `count` pieces sequentially, and waits until they are on the drive.
    pub(super) fn write(&self, ino: u64, count: u64, bytes: &[u8]) {
        for (i, piece) in (0..count).zip(pieces_of(bytes)) {
            let payload = Payload::Bytes(black_box(piece));
            let written = self.fs.write(&self.waiter, ino, i * PIECE, payload);
            assert_eq!(written.expect("there is room"), PIECE);
        }
        while !self.fs.is_quiet() {
            self.waiter.wait(self.fs.volume());
        }
    }

    pub(super) fn read(&self, ino: u64, offset: u64, into: &mut [u8]) {
        let length = into.len() as u64;
        let read = self.fs.read(&self.waiter, ino, offset, Target::Bytes(into));
        assert_eq!(read.expect("it is there"), length);
    }

    /// Removes the file, and resets its zones.
    pub(super) fn remove(&self) {
        let removed = self.fs.unlink(&self.waiter, ROOT, b"file").and_then(|()| self.fs.sync(&self.waiter));
        removed.expect("memory takes rows");
        while self.fs.background_step(&self.waiter).expect("nothing fails") {}
    }
}

/// Volume of a drive without a file system.
pub(super) struct Raw {
    volume: Arc<Volume>,
    channel: Channel,
    pool: BufferPool,
    issued: u64,
    done: Arc<AtomicU64>,
    /// Buffer of the last read.
    read: Arc<Mutex<IoBuf>>,
}

impl Raw {
    /// Creates one of `zones` zones.
    pub(super) fn new(zones: u64) -> Raw {
        let (volume, done, read) = (volume(zones), Arc::new(AtomicU64::new(0)), Arc::default());
        let (counted, last): (_, Arc<Mutex<IoBuf>>) = (done.clone(), Arc::clone(&read));
        let channel = volume.channel(move |completion| {
            match completion.result {
                Ok(Output::Appended(_)) => {}
                Ok(_) => *last.lock() = completion.buf.into_buf(),
                Err(error) => panic!("{error}"),
            }
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let pool = BufferPool::new(PIECE as u32, 16);
        Raw { volume, channel, pool, issued: 0, done, read }
    }

    fn submit(&mut self, request: Request) {
        self.volume.submit(NOW, &self.channel, request);
        self.issued += 1;
    }

    fn wait(&self) {
        while self.done.load(Ordering::Relaxed) < self.issued {
            self.volume.poll(NOW);
        }
    }

    /// Appends `count` pieces, filling one zone after the other.
    pub(super) fn append(&mut self, count: u64, bytes: &[u8]) {
        self.append_by(count, bytes, |into, piece| into.copy_from_slice(piece));
    }

    /// Like `append`, with buffers into which `fill` writes the piece.
    pub(super) fn append_by(&mut self, count: u64, bytes: &[u8], mut fill: impl FnMut(&mut [u8], &[u8])) {
        for (i, piece) in (0..count).zip(pieces_of(bytes)) {
            let mut buf = self.pool.take();
            fill(&mut buf, black_box(piece));
            let zone = ZoneIndex((i / (ZONE / PIECE)) as u32);
            let start = self.volume.info().geometry.start_of(zone);
            self.submit(Request::append(start, (PIECE / 512) as u32, buf));
        }
        self.wait();
    }

    /// Reads `length` bytes from `offset`.
    pub(super) fn read(&mut self, offset: u64, length: u64) {
        let idle = std::mem::take(&mut *self.read.lock());
        let buf = if idle.is_empty() { self.pool.take() } else { idle };
        self.submit(Request::read(Sector(offset / 512), (length / 512) as u32, buf));
        self.wait();
    }

    /// Reads `length` bytes from `offset`, and passes them to `show`.
    pub(super) fn read_to(&mut self, offset: u64, length: u64, show: impl FnOnce(&[u8])) {
        self.read(offset, length);
        show(&self.read.lock()[..length as usize]);
    }

    pub(super) fn reset(&mut self) {
        self.submit(Request::reset_all());
        self.wait();
    }
}

/// Number of pieces that a round writes.
fn pieces(effort: Effort) -> u64 {
    if effort.operations < 100_000 { 4 } else { SET / PIECE }
}

/// Compares files written in pieces of one mebibyte with appends of that size: with the bytes of a
/// whole file, which come from memory, and with one mebibyte repeated, which stays in a cache. In
/// the cache, a copy costs about as much as a checksum; from memory, the checksum overlaps with
/// waiting for memory.
pub(super) fn writes(effort: Effort, report: &mut Report) {
    let count = pieces(effort);
    let (files, mut raw) = (Files::new(ZONES), Raw::new(ZONES));
    for (from, length, bound) in
        [("from memory", count, Bound::AtLeast(0.85)), ("from a cache", 1, Bound::None)]
    {
        let bytes = bytes(length * PIECE);
        let mut cases = [
            Case::new("raw appends", || {
                let ns = time(count, || raw.append(count, &bytes));
                raw.reset();
                ns
            }),
            Case::new("file", || {
                let ino = files.create();
                let ns = time(count, || files.write(ino, count, &bytes));
                files.remove();
                ns
            }),
        ];
        let [raw, file] = &interleave(effort.rounds, &mut cases)[..] else { unreachable!("two cases") };
        let ratio = file.against(raw, |file, raw| raw / file);
        report.add(&format!("file: 1 MiB writes {from}, with checksums"), "raw appends", &ratio, "x", bound);
        report.add("  their rate", "", &rate(file, PIECE), "GB/s", Bound::None);
    }
}

pub(super) fn rate(samples: &super::Samples, bytes: u64) -> super::Samples {
    super::Samples { rounds: samples.rounds.iter().map(|ns| bytes as f64 / ns).collect() }
}

/// Compares verified reads of a large file, sequential and random, with the same reads of the
/// drive.
pub(super) fn reads(effort: Effort, report: &mut Report) {
    let (count, piece) = (pieces(effort), bytes(PIECE));
    let (files, mut raw) = (Files::new(ZONES), Raw::new(ZONES));
    let ino = files.create();
    files.write(ino, count, &piece);
    let _open = files.fs.open_file(ino).expect("it is there");
    raw.append(count, &piece);
    let mut into = vec![0; PIECE as usize];
    let mut cases = [
        Case::new("raw", || time(count, || (0..count).for_each(|i| raw.read(i * PIECE, PIECE)))),
        Case::new("file", || time(count, || (0..count).for_each(|i| files.read(ino, i * PIECE, &mut into)))),
    ];
    let samples = interleave(effort.rounds, &mut cases);
    drop(cases);
    let name = "file: 1 MiB reads in a row, verified";
    report.add(name, "raw reads", &samples[1].against(&samples[0], |f, r| r / f), "x", Bound::None);
    report.add("  their rate", "", &rate(&samples[1], PIECE), "GB/s", Bound::None);

    let operations = effort.operations / 20;
    let mut block = vec![0; BLOCK as usize];
    let mut seeds = [1u64, 1];
    let [raw_seed, file_seed] = &mut seeds;
    let blocks = count * PIECE / BLOCK;
    let mut cases = [
        Case::new("raw", || {
            time(operations, || {
                (0..operations).for_each(|_| raw.read(random(raw_seed, blocks) * BLOCK, BLOCK))
            })
        }),
        Case::new("file", || {
            let mut read = || files.read(ino, random(file_seed, blocks) * BLOCK, &mut block);
            time(operations, || (0..operations).for_each(|_| read()))
        }),
    ];
    let samples = interleave(effort.rounds, &mut cases);
    let name = "file: 4 KiB random reads, verified";
    report.add(name, "", &samples[1], "ns", Bound::None);
    report.add("  against", "raw reads", &samples[1].against(&samples[0], |f, r| r / f), "x", Bound::None);
}

pub(super) fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}
