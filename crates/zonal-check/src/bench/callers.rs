//! File system with several callers, and with small data.
//!
//! # Floors
//! A synced write has to make its rows durable, so its floor is an embedded database, redb, that
//! commits the same rows in memory. The floor for two threads is two file systems with one thread each.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::report::{Bound, Report};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use zonal_fs::format::{
    Account, Attributes, Extent, FileKind, Metadata, Position, Run, RunPiece, Superblock, key,
};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::{Backend, Memory};
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, MountOptions, NewFile, OpenFile, Payload, ROOT, Target};
use zonal_io::clock::Clock;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Ram};
use zonal_io::volume::{Volume, VolumeOptions};

const BLOCK: u64 = zonal_fs::BLOCK_BYTES as u64;
const ZONE: u64 = 16 << 20;
const ZONES: u64 = 24;

/// Time of one slow metadata read, about a disk seek.
const SEEK: Duration = Duration::from_millis(8);

fn waiter() -> Polling {
    Polling::new(Clock::start())
}

/// Opens a file system on `ram:` with its metadata in `place`.
fn file_system(place: impl Backend, cache_bytes: usize) -> FileSystem {
    let (size, max_sectors) = (ZONES * ZONE, ((1u64 << 20) / 512) as u32);
    let options =
        EmulatedOptions::default().with_size(size).with_zone_size(ZONE).with_max_sectors(max_sectors);
    let geometry = options.geometry().expect("the options are valid");
    let device: Arc<dyn Device> =
        Arc::new(Emulated::new("ram", &options, Ram::new(&geometry)).expect("the options are valid"));
    let options = VolumeOptions::default().without_budget();
    let volume = Arc::new(Volume::open(device, options).expect("an emulated device opens"));
    let geometry = &volume.info().geometry;
    let superblock = Superblock::new(*b"zonal-check-many", geometry, 256, Metadata::Beside, 0);
    let waiter = waiter();
    let mut rows = Rows::open(place, cache_bytes).expect("memory opens");
    FileSystem::make(&mut rows, &superblock, &waiter).expect("memory takes rows");
    let opened = FileSystem::open(volume, rows, superblock, MountOptions::default(), true, &waiter);
    opened.expect("what was made can be opened")
}

fn in_memory() -> FileSystem {
    file_system(Memory::new(), 1 << 26)
}

fn create(fs: &FileSystem, parent: u64, name: &str, kind: FileKind) -> u64 {
    fs.create(&waiter(), parent, name.as_bytes(), &NewFile::new(kind, 0o755)).expect("the name is free")
}

fn open(fs: &FileSystem, name: &str) -> OpenFile {
    fs.open_file(create(fs, ROOT, name, FileKind::File)).expect("it is there")
}

fn write(fs: &FileSystem, waiter: &Polling, ino: u64, offset: u64, bytes: &[u8]) {
    let written = fs.write(waiter, ino, offset, Payload::Bytes(black_box(bytes)));
    assert_eq!(written.expect("there is room"), bytes.len() as u64);
}

/// Waits until nothing is in flight, and frees zones.
fn settle(fs: &FileSystem) {
    let waiter = waiter();
    fs.sync(&waiter).expect("memory takes rows");
    while fs.background_step(&waiter).expect("nothing fails") {}
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Memory with the read latency of a disk once the flag is set.
#[derive(Clone, Debug)]
struct Slow(Arc<AtomicBool>, Memory);

impl Backend for Slow {
    fn len(&self) -> io::Result<u64> {
        self.1.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            thread::sleep(SEEK);
        }
        self.1.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.1.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.1.write(offset, data)
    }
}

/// Reads the attributes of an open file while another thread reads attributes that are not cached.
pub(super) fn beside_cold_metadata(effort: Effort, report: &mut Report) {
    let is_slow = Arc::new(AtomicBool::new(false));
    let fs = file_system(Slow(is_slow.clone(), Memory::new()), 1 << 16);
    let files: Vec<u64> = (0..20_000).map(|n| create(&fs, ROOT, &format!("{n}"), FileKind::File)).collect();
    settle(&fs);
    let own = fs.open_file(files[0]).expect("it is there");
    let ends = AtomicBool::new(false);
    let looks = (effort.operations / 10).clamp(200, 20_000) as usize;
    let mut micros = Vec::with_capacity(looks);
    is_slow.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 7;
            while !ends.load(Ordering::Relaxed) {
                let ino = files[random(&mut seed, files.len() as u64) as usize];
                black_box(fs.attributes(ino).expect("it is there"));
            }
        });
        for _ in 0..looks {
            let begin = Instant::now();
            black_box(fs.attributes(own.ino()).expect("it is open"));
            micros.push(begin.elapsed().as_secs_f64() * 1e6);
            thread::sleep(Duration::from_micros(50));
        }
        ends.store(true, Ordering::Relaxed);
    });
    is_slow.store(false, Ordering::Relaxed);
    micros.sort_by(f64::total_cmp);
    let (name, baseline) = ("file: attributes beside cold metadata", "99 of 100, reads of 8 ms");
    report.add_one(name, baseline, micros[looks * 99 / 100], "us", Bound::AtMost(100.0));
    report.add_one("  the longest", "", micros[looks - 1], "us", Bound::None);
}

/// A row of a commit.
type Row = (Vec<u8>, Vec<u8>);

/// Returns the rows of a block write: its extent, its run, its file, its zone's account and the
/// counter of numbers.
fn rows_of_write(at: u32) -> Vec<Row> {
    let extent = Extent { zone: 1, unit: at * 2, unit_blocks: 1, skip: 0, blocks: 1 };
    let run = Run {
        unit_blocks: 1,
        headers: vec![at],
        pieces: vec![RunPiece { ino: 7, block: u64::from(at), blocks: 1 }],
    };
    let file = Attributes::new(FileKind::File, 0o644, ROOT, Position(9), at.into());
    vec![
        (key::extent(7, u64::from(at)), extent.encode()),
        (key::run(1, at * 2), run.encode()),
        (key::inode(7), file.encode()),
        (key::zone(1), Account { used: 1, resets: 0, begun: 1 }.encode()),
        (key::counter("sequence"), vec![0; 8]),
    ]
}

/// Returns the rows of a new file: its name, position and attributes, those of its directory, and two
/// counters.
fn rows_of_create(at: u32) -> Vec<Row> {
    let (ino, position) = (100 + u64::from(at), Position(100 + u64::from(at)));
    let name = format!("made{at}");
    let file = Attributes::new(FileKind::File, 0o644, ROOT, position, at.into());
    let root = Attributes::new(FileKind::Directory, 0o755, ROOT, Position(9), at.into());
    vec![
        (key::entry(ROOT, name.as_bytes()), vec![0; 9]),
        (key::position(ROOT, position), name.into_bytes()),
        (key::inode(ino), file.encode()),
        (key::inode(ROOT), root.encode()),
        (key::counter("ino"), vec![0; 8]),
        (key::counter("sequence"), vec![0; 8]),
    ]
}

const TABLE: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("rows");

fn commit(database: &redb::Database, rows: &[Row]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    let mut table = transaction.open_table(TABLE)?;
    for (key, value) in rows {
        table.insert(&key[..], &value[..])?;
    }
    drop(table);
    Ok(transaction.commit()?)
}

/// Compares a block write with sync, and a file creation with sync, with a commit of the same rows.
pub(super) fn syncs(effort: Effort, report: &mut Report) {
    let count = (effort.operations / 500).max(4);
    let floor = |rows_of: fn(u32) -> Vec<Row>| {
        let backend = redb::backends::InMemoryBackend::new();
        let database = redb::Database::builder().create_with_backend(backend).expect("memory opens");
        let mut at = 0;
        move || {
            time(count, || {
                for _ in 0..count {
                    commit(&database, &rows_of(at % 4096)).expect("memory takes rows");
                    at += 1;
                }
            })
        }
    };
    let (fs, waiter) = (in_memory(), waiter());
    let (file, block) = (open(&fs, "synced"), vec![7; BLOCK as usize]);
    let mut at = 0;
    let mut cases = [
        Case::new("floor", floor(rows_of_write)),
        Case::new("file", || {
            let ns = time(count, || {
                for _ in 0..count {
                    write(&fs, &waiter, file.ino(), at % 4096 * BLOCK, &block);
                    fs.fsync(&waiter, file.ino()).expect("nothing fails");
                    at += 1;
                }
            });
            settle(&fs);
            ns
        }),
    ];
    let [least, file] = &interleave(effort.rounds, &mut cases)[..] else { unreachable!("two cases") };
    let name = "file: 4 KiB write and fsync";
    report.add(
        name,
        "redb's commit of its rows",
        &file.against(least, |f, l| f / l),
        "x",
        Bound::AtMost(2.0),
    );
    report.add("  its time", "", file, "ns", Bound::None);

    let (fs, waiter) = (in_memory(), Polling::new(Clock::start()));
    let mut made = 0;
    let mut cases = [
        Case::new("floor", floor(rows_of_create)),
        Case::new("file", || {
            time(count, || {
                for _ in 0..count {
                    create(&fs, ROOT, &format!("made{made}"), FileKind::File);
                    fs.sync(&waiter).expect("nothing fails");
                    made += 1;
                }
            })
        }),
    ];
    let [least, file] = &interleave(effort.rounds, &mut cases)[..] else { unreachable!("two cases") };
    let name = "file: create and sync";
    report.add(
        name,
        "redb's commit of its rows",
        &file.against(least, |f, l| f / l),
        "x",
        Bound::AtMost(2.0),
    );
    report.add("  its time", "", file, "ns", Bound::None);
}

/// Reports bytes on the drive for each small file, and for each overwritten block.
pub(super) fn small_data(effort: Effort, report: &mut Report) {
    let count = (effort.operations / 100).clamp(200, 8000);
    let (fs, waiter) = (in_memory(), waiter());
    let small = vec![5; 4000];
    let mut round = 0;
    let mut cost = 0.0;
    let mut cases = [Case::new("closed", || {
        round += 1;
        let directory = create(&fs, ROOT, &format!("d{round}"), FileKind::Directory);
        let before = fs.volume().statistics().sectors;
        let ns = time(count, || {
            for n in 0..count {
                let new = NewFile::new(FileKind::File, 0o644);
                let ino =
                    fs.create(&waiter, directory, format!("f{n}").as_bytes(), &new).expect("it is free");
                let file = fs.open_file(ino).expect("it is there");
                write(&fs, &waiter, ino, 0, &small);
                file.close(&waiter).expect("nothing fails");
            }
        });
        fs.sync(&waiter).expect("nothing fails");
        let blocks = (fs.volume().statistics().sectors - before) / 8;
        cost = blocks as f64 / count as f64;
        for n in 0..count {
            fs.unlink(&waiter, directory, format!("f{n}").as_bytes()).expect("it is there");
        }
        settle(&fs);
        ns
    })];
    let samples = interleave(effort.rounds, &mut cases);
    drop(cases);
    report.add_one("file: 4,000 bytes, closed", "blocks on the drive", cost, "x", Bound::AtMost(1.1));
    report.add("  create, write and close", "", &samples[0], "ns", Bound::None);

    let (file, block) = (open(&fs, "overwritten"), vec![9; BLOCK as usize]);
    let blocks = count * 2;
    for n in 0..blocks {
        write(&fs, &waiter, file.ino(), n * BLOCK, &block);
    }
    settle(&fs);
    let mut seed = 3;
    let mut cases = [Case::new("overwritten", || {
        let before = fs.volume().statistics().sectors;
        let ns = time(count, || {
            for _ in 0..count {
                write(&fs, &waiter, file.ino(), random(&mut seed, blocks) * BLOCK, &block);
            }
        });
        fs.fsync(&waiter, file.ino()).expect("nothing fails");
        cost = ((fs.volume().statistics().sectors - before) / 8) as f64 / count as f64;
        settle(&fs);
        ns
    })];
    let samples = interleave(effort.rounds, &mut cases);
    drop(cases);
    report.add_one("file: 4 KiB overwrites", "blocks on the drive", cost, "x", Bound::AtMost(1.1));
    report.add("  each", "", &samples[0], "ns", Bound::None);
}

/// Operation that a thread repeats; the last argument is the number of the repetition.
type Work<'a> = &'a (dyn Fn(&FileSystem, usize, u64) + Sync);

/// Compares two threads in one file system with two file systems of one thread each.
pub(super) fn two_threads(effort: Effort, report: &mut Report) {
    let block = vec![3; BLOCK as usize];
    let count = (effort.operations / 50).max(10);
    // Cheap calls are repeated more often, because a round must take much longer than starting its
    // threads.
    let works: [(&str, u64, Work<'_>); 5] = [
        ("attributes", 100, &|fs, thread, n| {
            black_box(fs.attributes(file_of(thread, n)).expect("it is there"));
        }),
        ("lookups", 20, &|fs, thread, n| {
            let name = format!("f{}", n % FILES);
            assert_eq!(
                fs.lookup(directory_of(thread), name.as_bytes()).expect("it is there"),
                file_of(thread, n)
            );
        }),
        ("reads", 4, &|fs, thread, n| {
            let mut into = [0; BLOCK as usize];
            let read = fs.read(&waiter(), file_of(thread, n), 0, Target::Bytes(&mut into));
            assert_eq!(read.expect("it is there"), BLOCK);
        }),
        ("creates", 1, &|fs, thread, n| {
            let name = format!("made{n}");
            let new = NewFile::new(FileKind::File, 0o644);
            fs.create(&waiter(), directory_of(thread), name.as_bytes(), &new).expect("it is free");
        }),
        ("writes to their own files", 4, &|fs, thread, n| {
            write(fs, &waiter(), file_of(thread, 0), n % 8192 * BLOCK, &block);
        }),
    ];
    for (name, times, work) in works {
        let (count, mut done) = (count * times, 0);
        let fs = prepared();
        let both = [prepared(), prepared()];
        let run = |of: [&FileSystem; 2], from: u64| {
            let ns = time(count, || {
                thread::scope(|scope| {
                    for (thread, fs) in of.into_iter().enumerate() {
                        scope.spawn(move || (from..from + count).for_each(|n| work(fs, thread, n)));
                    }
                });
            });
            of.into_iter().for_each(settle);
            ns
        };
        let mut again = 0;
        let mut cases = [
            Case::new("two file systems", || {
                again += count;
                run([&both[0], &both[1]], again)
            }),
            Case::new("one", || {
                done += count;
                run([&fs, &fs], done)
            }),
        ];
        let [two, one] = &interleave(effort.rounds, &mut cases)[..] else { unreachable!("two cases") };
        let ratio = one.against(two, |one, two| two / one);
        let row = format!("file: two threads' {name}");
        report.add(&row, "two file systems", &ratio, "x", Bound::AtLeast(0.85));
        report.add("  each", "", one, "ns", Bound::None);
    }
}

/// Files of each thread.
const FILES: u64 = 64;

fn directory_of(thread: usize) -> u64 {
    2 + thread as u64
}

fn file_of(thread: usize, n: u64) -> u64 {
    4 + thread as u64 * FILES + n % FILES
}

/// Prepares a file system with a directory for each thread, and open files of one block in it.
fn prepared() -> FileSystem {
    let (fs, waiter) = (in_memory(), waiter());
    for thread in 0..2 {
        assert_eq!(create(&fs, ROOT, &format!("d{thread}"), FileKind::Directory), directory_of(thread));
    }
    for thread in 0..2 {
        for n in 0..FILES {
            let ino = create(&fs, directory_of(thread), &format!("f{n}"), FileKind::File);
            assert_eq!(ino, file_of(thread, n));
            // The files stay open until the program ends.
            std::mem::forget(fs.open_file(ino).expect("it is there"));
            write(&fs, &waiter, ino, 0, &[1; BLOCK as usize]);
        }
    }
    settle(&fs);
    fs
}
