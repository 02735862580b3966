//! A mount compared with a minimal server on the same kind of mount; two mounts compared with one
//! that serves two threads; and a mount compared with the disk below its image.
//!
//! Server and load share a process, but each request goes through the kernel. Drives in memory are
//! written beforehand, so that page allocation by the kernel is not measured. In the rows of
//! [`disk`] a process of the program serves the mount.

mod cached;
mod calls;
mod disk;
mod million;

pub(super) use cached::streams;
pub(super) use million::rows as million;

use super::Effort;
use super::files::{PIECE, bytes};
use super::measure::{Samples, time};
use super::report::{Bound, Report};
use crate::program::mounted::{mount_here, session_options};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use zonal_fs::format::{Metadata, Superblock};
use zonal_fs::make::unit_blocks_max;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, MountOptions};
use zonal_fuse::least::Work;
use zonal_fuse::mount::{IfBusy, allow_dirty_pages, unmount};
use zonal_fuse::probe::syncs_single_writes;
use zonal_fuse::session::{Session, SessionOptions};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions, keeps_data};

/// Pieces of a file that is written sequentially: larger than the caches.
const PIECES: u64 = 128;

/// Bytes of a command that takes a unit of one mebibyte with its header.
const UNIT_MAX: u64 = 1028 << 10;

/// Measures all rows.
pub(super) fn rows(effort: Effort, report: &mut Report) {
    calls::in_a_row(effort, report);
    calls::shorter_units(effort, report);
    calls::at_random(effort, report);
    calls::names(effort, report);
    calls::two_threads(effort, report);
    cached::small_writes(effort, report, ("writeback", true), Bound::AtLeast(0.8));
    cached::small_writes(effort, report, ("writethrough", false), Bound::AtLeast(0.7));
    cached::reads(effort, report);
}

/// Measures the rows of a mount on a disk.
pub(super) fn on_disk(effort: Effort, report: &mut Report) {
    disk::syncs(effort, report);
    disk::archive(effort, report);
}

/// Name of a drive of this kind with room for two files of [`PIECES`], each written twice.
fn drive(kind: &str, command_max: u64) -> String {
    format!("{kind}:size=1G,zone_size=16M,max_sectors={}", command_max >> 9)
}

/// A mounted directory.
struct Mounted {
    dir: TempDir,
    session: Session,
    fs: Option<FileSystem>,
    waiter: Polling,
}

/// Options of a session that logs problems to standard error.
fn loud(writeback: bool) -> SessionOptions {
    session_options(writeback, Arc::new(|line| eprintln!("mount: {line}")))
}

/// True if `zonal mount` defaults to write-back on this kernel.
fn is_writeback() -> bool {
    syncs_single_writes().expect("the kernel has FUSE")
}

impl Mounted {
    fn new(serve: impl FnOnce(std::os::fd::OwnedFd, Clock) -> (Session, Option<FileSystem>)) -> Mounted {
        let dir = tempfile::tempdir().expect("a directory");
        let (device, clock) = (mount_here(dir.path()), Clock::start());
        let (session, fs) = serve(device, clock);
        allow_dirty_pages(dir.path()).expect("this is root");
        Mounted { dir, session, fs, waiter: Polling::new(clock) }
    }

    /// Mounts a file system on this device, with its metadata in memory.
    fn files(device: &str) -> Mounted {
        Mounted::files_with(device, is_writeback())
    }

    fn files_with(device: &str, writeback: bool) -> Mounted {
        Mounted::new(|kernel, clock| {
            let mut registry = Registry::default();
            zonal_sim::register(&mut registry);
            let device = registry.open(device).expect("it is there");
            let has_data = keeps_data(&*device);
            let options = VolumeOptions::default().without_budget();
            let volume = Arc::new(Volume::open(device, options).expect("it opens"));
            let geometry = &volume.info().geometry;
            let unit = unit_blocks_max(&volume);
            let superblock = Superblock::new(*b"zonal-check-unit", geometry, unit, Metadata::Beside, 0);
            let waiter = Polling::new(clock);
            let mut rows = Rows::open(Memory::new(), 1 << 26).expect("memory opens");
            FileSystem::make(&mut rows, &superblock, &waiter).expect("memory takes rows");
            let options = MountOptions::default();
            let fs =
                FileSystem::open(volume, rows, superblock, options, has_data, &waiter).expect("it opens");
            let session = Session::start(kernel, fs.clone(), clock, loud(writeback));
            (session.expect("the kernel speaks FUSE"), Some(fs))
        })
    }

    /// Mounts a minimal server.
    fn least(work: Work) -> Mounted {
        Mounted::least_with(work, is_writeback())
    }

    fn least_with(work: Work, writeback: bool) -> Mounted {
        Mounted::new(|kernel, clock| {
            let session = Session::start_least(kernel, clock, work, &loud(writeback));
            (session.expect("the kernel speaks FUSE"), None)
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates or opens a file for direct I/O.
    fn direct(&self, name: &str) -> File {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.at(name), flags, Mode::from_raw_mode(0o644));
        File::from(file.expect("it can be made"))
    }

    /// Writes a file after having written all of the drive's memory, so that page allocation by the
    /// kernel is not measured.
    fn touch(&self, file: &File, count: u64, memory: &[u8]) {
        if count >= PIECES / 2 {
            let filler = self.direct("filler");
            let piece = &memory[..PIECE as usize];
            let full = (0..).find_map(|i| filler.write_all_at(piece, i * PIECE).err());
            let full = full.expect("the drive ends");
            assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
            drop(filler);
            std::fs::remove_file(self.at("filler")).expect("it is there");
            self.settle();
        }
        write_in_a_row(file, count, memory);
        self.settle();
    }

    /// Waits until all writes are on the drive and free zones are reset.
    fn settle(&self) {
        let Some(fs) = &self.fs else { return };
        fs.sync(&self.waiter).expect("memory takes rows");
        while fs.background_step(&self.waiter).expect("nothing fails") {}
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.dir.path(), IfBusy::Detach).expect("it is mounted");
        self.session.join();
    }
}

/// Page-aligned bytes, as direct writes require them.
fn aligned(length: u64) -> IoBuf {
    IoBuf::copied(&bytes(length))
}

fn write_in_a_row(file: &File, count: u64, memory: &[u8]) {
    for i in 0..count {
        let at = (i * PIECE) as usize % memory.len();
        file.write_all_at(&memory[at..at + PIECE as usize], i * PIECE).expect("there is room");
    }
}

/// Costs of calls, in nanoseconds each, round by round.
struct Costs {
    wall: Samples,
    /// Processor time of all threads, including the kernel's part and the calling program.
    processor: Samples,
}

impl Costs {
    fn none() -> Costs {
        let none = || Samples { rounds: Vec::new() };
        Costs { wall: none(), processor: none() }
    }

    /// Adds a round of `calls`.
    fn add(&mut self, calls: u64, work: impl FnOnce()) {
        let before = processor_time();
        self.wall.rounds.push(time(calls, work));
        self.processor.rounds.push((processor_time() - before) / calls as f64);
    }
}

/// Processor time of this process, in nanoseconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Measures two cases of `calls` calls each in turn, after one warm-up round of each. Remaining
/// work of a case is done after each round, outside of the measurement.
fn in_turn(
    rounds: usize,
    calls: u64,
    mut cases: [&mut dyn FnMut(usize); 2],
    mut settle: impl FnMut(),
) -> [Costs; 2] {
    let mut costs = [Costs::none(), Costs::none()];
    for round in 0..=rounds {
        for (case, costs) in cases.iter_mut().zip(&mut costs) {
            match round {
                0 => case(round),
                _ => costs.add(calls, || case(round)),
            }
            settle();
        }
    }
    costs
}

/// Reports the rate of ours relative to theirs, and the processor time of a call.
fn against(report: &mut Report, name: &str, baseline: &str, [ours, theirs]: &[Costs; 2], bound: Bound) {
    report.add(name, baseline, &ours.wall.against(&theirs.wall, |ours, theirs| theirs / ours), "x", bound);
    report.add("  processor time of a call", "", &ours.processor, "ns", Bound::None);
    report.add("  the other's", "", &theirs.processor, "ns", Bound::None);
}
