//! A mount against a server that does the least on the same kind of mount, and two mounts against one with two threads.
//!
//! Server and load are in one process, and each request goes through the kernel. Where the drive is memory, it was written before: what
//! is measured is not the kernel that gives memory.

use super::Effort;
use super::files::{BLOCK, PIECE, bytes, random, rate};
use super::measure::{Case, Samples, interleave, time};
use super::report::{Bound, Report};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use zonal_fs::format::{Metadata, Superblock};
use zonal_fs::make::unit_blocks_max;
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, MountOptions};
use zonal_fuse::front;
use zonal_fuse::least::Work;
use zonal_fuse::mount::{IfBusy, MountOptions as How, mount, unmount};
use zonal_fuse::session::{Session, SessionOptions};
use zonal_io::buffer::IoBuf;
use zonal_io::clock::Clock;
use zonal_io::volume::{Volume, VolumeOptions, keeps_data};

/// Pieces of a file that is written in a row: beyond the caches.
const PIECES: u64 = 128;

/// Zones of a drive: room for two such files, each written twice.
const DRIVE: &str = "size=1G,zone_size=16M";

/// A directory that is mounted.
struct Mounted {
    dir: TempDir,
    session: Session,
    fs: Option<FileSystem>,
    waiter: Polling,
}

fn session_options() -> SessionOptions {
    SessionOptions {
        front: front::Options { writeback: true, ..front::Options::default() },
        threads: 2,
        sync_every: Duration::from_secs(5),
        log: Arc::new(|line| eprintln!("mount: {line}")),
    }
}

impl Mounted {
    fn new(serve: impl FnOnce(std::os::fd::OwnedFd, Clock) -> (Session, Option<FileSystem>)) -> Mounted {
        let dir = tempfile::tempdir().expect("a directory");
        let how = How {
            source: "zonal-check".to_owned(),
            read_only: false,
            no_suid: true,
            no_dev: true,
            no_exec: false,
            allow_other: false,
        };
        let (device, clock) = (mount(dir.path(), &how).expect("FUSE is there"), Clock::start());
        let (session, fs) = serve(device, clock);
        Mounted { dir, session, fs, waiter: Polling::new(clock) }
    }

    /// A file system on this device, with its metadata in memory. Its commands have `max` bytes at most.
    fn files(device: &str, max: u64) -> Mounted {
        Mounted::new(|kernel, clock| {
            let name = format!("{device}:{DRIVE},max_sectors={}", max >> 9);
            let device = zonal_io::registry::Registry::default().open(&name).expect("it is there");
            let has_data = keeps_data(&*device);
            let options = VolumeOptions { budget: None, ..VolumeOptions::default() };
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
            let session = Session::start(kernel, fs.clone(), clock, session_options());
            (session.expect("the kernel speaks FUSE"), Some(fs))
        })
    }

    fn least(work: Work) -> Mounted {
        Mounted::new(|kernel, clock| {
            let session = Session::start_least(kernel, clock, work, &session_options());
            (session.expect("the kernel speaks FUSE"), None)
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file that is opened for direct writes and reads.
    fn direct(&self, name: &str) -> File {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.at(name), flags, Mode::from_raw_mode(0o644));
        File::from(file.expect("it can be made"))
    }

    /// Writes a file until all zones of a drive in memory have been written: the memory of those that come next is there.
    fn touch(&self, file: &File, count: u64, memory: &[u8]) {
        for _ in 0..if count < PIECES / 2 { 1 } else { 1024 / count } {
            write_in_a_row(file, count, memory);
            self.settle();
        }
    }

    /// All that was written is on the drive, and zones are reset.
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

/// Bytes at a block of memory, as direct writes want them.
fn aligned(length: u64) -> IoBuf {
    let mut memory = IoBuf::zeroed(length as u32);
    memory.copy_from_slice(&bytes(length));
    memory
}

fn write_in_a_row(file: &File, count: u64, memory: &[u8]) {
    for i in 0..count {
        let at = (i * PIECE) as usize % memory.len();
        file.write_all_at(&memory[at..at + PIECE as usize], i * PIECE).expect("there is room");
    }
}

fn against(report: &mut Report, name: &str, baseline: &str, ours: &Samples, theirs: &Samples, bound: Bound) {
    report.add(name, baseline, &ours.against(theirs, |ours, theirs| theirs / ours), "x", bound);
}

/// Direct writes and reads of a mebibyte in a row.
pub(super) fn in_a_row(effort: Effort, report: &mut Report) {
    let count = if effort.operations < 100_000 { 4 } else { PIECES };
    let rounds = effort.rounds.min(9);
    let memory = aligned(32 << 20);
    let cases = [
        ("null", 1028 << 10, Work::Sum, "a server that sums", Bound::AtLeast(0.85)),
        (
            "ram",
            1028 << 10,
            Work::SumAndCopy(PIECES as usize),
            "a server that sums and copies",
            Bound::AtLeast(0.85),
        ),
    ];
    for (device, max, work, baseline, bound) in cases {
        let (ours, least) = (Mounted::files(device, max), Mounted::least(work));
        let [a, b] = [&ours, &least].map(|mounted| mounted.direct("file"));
        ours.touch(&a, count, &memory);
        let mut cases = [
            Case::new("ours", || {
                let ns = time(count, || write_in_a_row(&a, count, &memory));
                ours.settle();
                ns
            }),
            Case::new("least", || time(count, || write_in_a_row(&b, count, &memory))),
        ];
        let samples = interleave(rounds, &mut cases);
        drop(cases);
        let name = format!("mount: 1 MiB direct writes in a row, {device}:");
        against(report, &name, baseline, &samples[0], &samples[1], bound);
        report.add("  their rate", "", &rate(&samples[0], PIECE), "GB/s", Bound::None);
        if device == "null" {
            continue;
        }
        let mut into = IoBuf::zeroed(PIECE as u32);
        let mut read = |file: &File| {
            time(count, || {
                (0..count).for_each(|i| file.read_exact_at(&mut into, i * PIECE).expect("it is there"));
            })
        };
        let samples: Vec<Samples> = {
            let mut all = [Samples { rounds: Vec::new() }, Samples { rounds: Vec::new() }];
            for _ in 0..rounds {
                all[0].rounds.push(read(&a));
                all[1].rounds.push(read(&b));
            }
            all.into()
        };
        let name = "mount: 1 MiB direct reads in a row, verified";
        against(report, name, baseline, &samples[0], &samples[1], Bound::None);
        report.add("  their rate", "", &rate(&samples[0], PIECE), "GB/s", Bound::None);
    }
}

/// Direct writes and reads of 4 KiB at random.
pub(super) fn at_random(effort: Effort, report: &mut Report) {
    let (operations, rounds) = (effort.operations / 100, effort.rounds.min(9));
    let count = if effort.operations < 100_000 { 4 } else { PIECES };
    let memory = aligned(PIECE);
    let (ours, least) =
        (Mounted::files("ram", 1028 << 10), Mounted::least(Work::SumAndCopy(PIECES as usize)));
    let files = [&ours, &least].map(|mounted| mounted.direct("file"));
    ours.touch(&files[0], count, &memory);
    write_in_a_row(&files[1], count, &memory);
    let blocks = count * PIECE / BLOCK;
    for (name, writes) in [
        ("mount: 4 KiB direct random overwrites", true),
        ("mount: 4 KiB direct random reads, verified", false),
    ] {
        let mut all = [Samples { rounds: Vec::new() }, Samples { rounds: Vec::new() }];
        let mut block = IoBuf::zeroed(BLOCK as u32);
        for round in 0..=rounds {
            for (file, samples) in files.iter().zip(&mut all) {
                let mut seed = round as u64;
                let ns = time(operations, || {
                    for _ in 0..operations {
                        let at = random(&mut seed, blocks) * BLOCK;
                        match writes {
                            true => file.write_all_at(&block, at).expect("there is room"),
                            false => file.read_exact_at(&mut block, at).expect("it is there"),
                        }
                    }
                });
                if round > 0 {
                    samples.rounds.push(ns);
                }
            }
            ours.settle();
        }
        against(report, name, "a server that sums and copies", &all[0], &all[1], Bound::AtLeast(0.7));
        report.add("  their time", "", &all[0], "ns", Bound::None);
    }
}

/// Files that are made, looked at and removed.
pub(super) fn names(effort: Effort, report: &mut Report) {
    let (count, rounds) = (effort.operations / 200, effort.rounds.min(7));
    let (ours, least) = (Mounted::files("ram", 1028 << 10), Mounted::least(Work::Discard));
    let mut all: [[Samples; 2]; 3] =
        std::array::from_fn(|_| std::array::from_fn(|_| Samples { rounds: Vec::new() }));
    for round in 0..=rounds {
        for (side, mounted) in [&ours, &least].into_iter().enumerate() {
            let at = |n: u64| mounted.at(&format!("{round}-{n}"));
            let made =
                time(count, || (0..count).for_each(|n| drop(File::create(at(n)).expect("there is room"))));
            let seen = time(count, || (0..count).for_each(|n| assert!(fs::metadata(at(n)).is_ok())));
            let gone = time(count, || (0..count).for_each(|n| fs::remove_file(at(n)).expect("it is there")));
            if round > 0 {
                for (samples, ns) in all.iter_mut().zip([made, seen, gone]) {
                    samples[side].rounds.push(ns);
                }
            }
        }
        ours.settle();
    }
    for (name, [a, b]) in ["creates", "stats", "removals"].into_iter().zip(&all) {
        let baseline = "a server that does nothing";
        against(report, &format!("mount: {name}"), baseline, a, b, Bound::AtLeast(0.5));
        report.add("  their time", "", a, "ns", Bound::None);
    }
}

/// Two threads on one mount against two mounts with a thread each, both with direct writes of a mebibyte.
pub(super) fn two_threads(effort: Effort, report: &mut Report) {
    let count = if effort.operations < 100_000 { 4 } else { PIECES / 2 };
    let memory = aligned(32 << 20);
    let mounts = [Mounted::files("ram", 1028 << 10), Mounted::files("ram", 1028 << 10)];
    let together = Mounted::files("ram", 1028 << 10);
    let apart = [0, 1].map(|n| mounts[n].direct("file"));
    let files = ["a", "b"].map(|name| together.direct(name));
    let both = |files: &[File; 2]| {
        time(2 * count, || {
            std::thread::scope(|scope| {
                for file in files {
                    scope.spawn(|| write_in_a_row(file, count, &memory));
                }
            });
        })
    };
    for (mounted, file) in
        [(&mounts[0], &apart[0]), (&mounts[1], &apart[1]), (&together, &files[0]), (&together, &files[1])]
    {
        mounted.touch(file, count, &memory);
    }
    let mut cases = [
        Case::new("apart", || {
            let ns = both(&apart);
            mounts.iter().for_each(Mounted::settle);
            ns
        }),
        Case::new("together", || {
            let ns = both(&files);
            together.settle();
            ns
        }),
    ];
    let samples = interleave(effort.rounds.min(9), &mut cases);
    let name = "mount: two threads' 1 MiB direct writes";
    against(report, name, "two mounts", &samples[1], &samples[0], Bound::AtLeast(0.85));
}
