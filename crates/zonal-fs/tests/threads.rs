//! Many threads at once, each working on its own files and on those of others. In the end nothing
//! is held, lost or leaked.

mod common;

use common::steps::step_of_ranges;
use common::{
    FsStep, Impatient, Model, apply, bytes, contents, device, impatient, make, make_with, read_all, reopen,
    settle, superblock, volume, waiter,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::Nanos;
use zonal_fs::format::FileKind;
use zonal_fs::store::backend::Memory;
use zonal_fs::waiter::Wait;
use zonal_fs::{
    Changes, FileSystem, FsError, IfThere, MountOptions, NewFile, OpenFile, Payload, ROOT, Rename, Seek,
    SetIds, Target, ZeroEnd,
};
use zonal_io::volume::Volume;

const BLOCK: usize = 4096;

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("ZONAL_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    first..first + cases()
}

fn cases() -> u64 {
    std::env::var("ZONAL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4)
}

/// Bytes that identify the file they belong to.
fn marked(ino: u64, length: usize) -> Vec<u8> {
    ino.to_le_bytes().into_iter().cycle().take(length).collect()
}

fn one(fs: &FileSystem, seed: u64, steps: u32) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut open: Vec<OpenFile> = Vec::new();
    let mut known: Vec<u64> = Vec::new();
    for n in 0..steps {
        let w = impatient();
        let name = |n: u8| format!("f{n}").into_bytes();
        let (a, b) = (name(random.random_range(0..6)), name(random.random_range(0..6)));
        let ino = fs.lookup(ROOT, &a);
        let offset = random.random_range(0..60u64) * 8 * 500;
        let length = random.random_range(0..60_000usize) / 8 * 8;
        let told = |what: &str, result: Result<(), FsError>| match result {
            Ok(()) | Err(FsError::NotFound | FsError::Exists) => {}
            Err(error) if error.is_no_space() => {}
            Err(error) => panic!("{n}, {what}: {error}"),
        };
        match random.random_range(0..22) {
            0 | 1 => told("create", fs.create(&w, ROOT, &a, &NewFile::new(FileKind::File, 0o644)).map(drop)),
            2..=6 => {
                if let Ok(ino) = ino {
                    told("write", fs.write(&w, ino, offset, Payload::Bytes(&marked(ino, length))).map(drop));
                }
            }
            7 => {
                if let Ok(ino) = ino {
                    let mut found = vec![1; length];
                    match fs.read(&w, ino, offset, Target::Bytes(&mut found)) {
                        Ok(read) => {
                            let own = ino.to_le_bytes();
                            let is_right =
                                |eight: &[u8]| own.starts_with(eight) || eight.iter().all(|b| *b == 0);
                            assert!(found[..read as usize].chunks(8).all(is_right), "another file's data");
                        }
                        Err(FsError::NotFound) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            8 => told("truncate", ino.and_then(|ino| fs.truncate(&w, ino, offset))),
            9 => told(
                "punch",
                ino.and_then(|ino| fs.punch(&w, ino, offset..offset + 8 + length as u64 * 3 / 8 * 8)),
            ),
            10 => told("unlink", fs.unlink(&w, ROOT, &a)),
            11 => told("rename", fs.rename(&w, (ROOT, &a), (ROOT, &b), Rename::Replace)),
            12 => told("link", ino.and_then(|ino| fs.link(&w, ino, ROOT, &b))),
            13 => told("fsync", ino.and_then(|ino| fs.fsync(&w, ino))),
            14 => {
                if let Ok(ino) = ino
                    && let Ok(file) = fs.open_file(ino)
                {
                    open.push(file);
                }
                if open.len() > 3 {
                    let file = open.swap_remove(random.random_range(0..3));
                    match random.random_bool(0.5) {
                        true => told("close", file.close(&w)),
                        false => drop(file),
                    }
                }
            }
            15 => {
                let to = random.random_range(0..60u64) * 8 * 500;
                let copied = ino.and_then(|ino| {
                    fs.copy_range(&w, (ino, offset), (ino, to), length as u64, SetIds::Clear)
                });
                match copied {
                    Err(FsError::Invalid(_)) => {}
                    copied => told("copy", copied.map(drop)),
                }
            }
            16 => {
                let range = offset..offset + 8 + length as u64;
                let zero = |ino| fs.zero_range(&w, ino, range, ZeroEnd::Extend, SetIds::Clear);
                told("zero", ino.and_then(zero));
            }
            17 => match fs.lookup_known(ROOT, &a) {
                Ok(found) => {
                    known.push(found.ino);
                    if known.len() > 3 {
                        let ino = known.swap_remove(random.random_range(0..3));
                        // The file exists as long as it is known, with or without a name.
                        fs.attributes(ino).unwrap();
                        told("forget", fs.forget(&w, ino, 1));
                    }
                }
                Err(error) => told("look up", Err(error)),
            },
            18 => {
                let new = NewFile::new(FileKind::File, 0o644);
                match fs.open_or_create(&w, (ROOT, &a), &new, IfThere::Open) {
                    Ok(opened) => told("close", opened.file.close(&w)),
                    Err(error) => told("open or create", Err(error)),
                }
            }
            19 => {
                if let Ok(ino) = ino {
                    match fs.seek(ino, offset, Seek::Data) {
                        Ok(at) => assert!(at >= offset),
                        Err(FsError::NothingThere) => {}
                        Err(error) => told("seek", Err(error)),
                    }
                }
            }
            20 => {
                let changes = Changes { size: Some(offset), mode: Some(0o600), ..Changes::default() };
                told("attributes", ino.and_then(|ino| fs.set_attributes(&w, ino, &changes).map(drop)));
            }
            _ => match random.random_range(0..3) {
                0 => told("sync", fs.sync(&w)),
                1 => told("collect", fs.collect(&w).map(drop)),
                _ => told("tend", fs.background_step(&w).map(drop)),
            },
        }
    }
    for file in open {
        file.close(&impatient()).unwrap();
    }
    for ino in known {
        fs.forget(&impatient(), ino, 1).unwrap();
    }
}

#[test]
fn threads_that_do_everything_to_the_same_files_leave_a_sound_file_system() {
    let names = [
        "ram:size=6M,zone_size=256K,blocksize=4096,complete=poll",
        "ram:size=4M,zone_size=256K,blocksize=4096",
        "ram:size=4M,zone_size=256K,blocksize=512,zone_max_open=3,zone_max_active=3,complete=poll",
    ];
    for case in seeds() {
        let name = names[(case % 3) as usize];
        let turn_bytes = if case % 2 == 0 { None } else { Some(100_000) };
        let options = MountOptions::default().with_dirty_bytes(150_000).with_turn_bytes(turn_bytes);
        let fs = make(volume(device(name)), 8, options);
        let blocks = fs.usage().free;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let fs = fs.clone();
                scope.spawn(move || one(&fs, case * 10 + thread, 400));
            }
        });
        fs.sync(&impatient()).unwrap();
        settle(&fs);
        fs.check();
        for n in 0..6u8 {
            if let Ok(ino) = fs.lookup(ROOT, format!("f{n}").as_bytes()) {
                read_all(&fs, ino).unwrap();
                fs.unlink(&impatient(), ROOT, format!("f{n}").as_bytes()).unwrap();
            }
        }
        fs.sync(&impatient()).unwrap();
        while fs.background_step(&impatient()).unwrap() {}
        settle(&fs);
        fs.check();
        assert_eq!((fs.usage().used, fs.usage().free), (0, blocks), "case {case}: {:?}", fs.status());
        assert_eq!(fs.files().unwrap().used, 1, "case {case}");
        // All of the space can be reused.
        let ino = fs.create(&waiter(), ROOT, b"filler", &NewFile::new(FileKind::File, 0o644)).unwrap();
        let chunk = bytes(1, 7 * BLOCK);
        let mut at = 0;
        let error = loop {
            match fs.write(&impatient(), ino, at, Payload::Bytes(&chunk)) {
                Ok(written) => at += written,
                Err(error) => break error,
            }
        };
        assert!(
            at >= blocks * 95 / 100 * BLOCK as u64,
            "case {case}: {error}, {at} bytes of {blocks} blocks: {:?}",
            fs.status()
        );
    }
}

/// Steps determined by a seed.
fn steps(seed: u64, count: usize) -> Vec<FsStep> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let all = proptest::collection::vec(step_of_ranges(), count);
    all.new_tree(&mut runner).unwrap().current()
}

/// Each thread has a directory, and a naive file system for it. They share the drive, its space,
/// its units and the collector.
#[test]
fn random_calls_of_threads_match_a_naive_file_system() {
    let names = [
        "ram:size=12M,zone_size=256K,blocksize=4096",
        "ram:size=16M,zone_size=512K,blocksize=512,zone_max_open=4,zone_max_active=5,complete=poll",
        "ram:size=12M,zone_size=512K,zone_capacity=384K,blocksize=4096,complete=poll",
    ];
    for case in seeds() {
        let volume = volume(device(names[(case % 3) as usize]));
        let (superblock, memory) = (superblock(&volume, 0, 8), Memory::new());
        let options = MountOptions::default().with_dirty_bytes(200_000);
        let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), options);
        let expected: Vec<BTreeMap<String, Option<Vec<u8>>>> = std::thread::scope(|scope| {
            let own = |thread: u64| {
                let fs = fs.clone();
                move || {
                    let name = format!("t{thread}");
                    let new = NewFile::new(FileKind::Directory, 0o755);
                    let directory = fs.create(&impatient(), ROOT, name.as_bytes(), &new).unwrap();
                    let mut model = Model { directory, ..Model::default() };
                    for (n, step) in (0..).zip(steps(case * 4 + thread, 300)) {
                        apply(&fs, &mut model, &step, n).unwrap();
                        for file in model.names.keys().filter(|file| u64::from(**file) == n % 6) {
                            let ino = fs.lookup(directory, &common::name(*file)).unwrap();
                            let expected = &model.files[&model.names[file]];
                            assert!(
                                read_all(&fs, ino).unwrap() == *expected,
                                "case {case}, {name}, step {n}"
                            );
                        }
                    }
                    let files =
                        model.contents().into_iter().map(|(path, file)| (format!("/{name}{path}"), file));
                    files.chain([(format!("/{name}"), None)]).collect()
                }
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(own(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let expected: BTreeMap<_, _> = expected.into_iter().flatten().collect();
        settle(&fs);
        fs.check();
        assert!(contents(&fs).unwrap() == expected, "case {case}");
        fs.sync(&impatient()).unwrap();
        drop(fs);
        let fs = reopen(volume, superblock, memory, options).unwrap();
        assert!(contents(&fs).unwrap() == expected, "case {case}, after a restart");
        fs.check();
    }
}

#[test]
fn threads_on_a_failing_drive_lose_nothing_and_end() {
    let rules = [
        "on = \"append\"\nrate = \"1/12\"\nfault = \"refuse\"\nerror = \"medium\"",
        "on = \"writes\"\nrate = \"1/6\"\nfault = \"busy\"",
        "on = \"reset\"\nrate = \"1/6\"\nfault = \"refuse\"\nerror = \"medium\"",
        "on = \"finish\"\nrate = \"1/2\"\nfault = \"refuse\"\nerror = \"medium\"",
        "on = \"append\"\nrate = \"1/20\"\nfault = \"torn\"\nblocks = 3\nerror = \"medium\"",
    ];
    for case in seeds() {
        let rule = rules[(case % 5) as usize];
        let plan = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(plan.path(), format!("seed = {case}\n[[rule]]\n{rule}\n")).unwrap();
        let drive = "ram:size=12M,zone_size=256K,blocksize=4096,complete=poll";
        let device = device(&format!("fault:plan={}+{drive}", plan.path().display()));
        let options = MountOptions::default().with_dirty_bytes(150_000);
        let fs = make(volume(device), 8, options);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let fs = fs.clone();
                scope.spawn(move || one(&fs, case * 10 + thread, 250));
            }
        });
        fs.sync(&impatient()).unwrap_or_else(|e| panic!("case {case}: {e}"));
        // Units of deleted files have no owner, so background steps handle their failures.
        let patience = impatient();
        while !fs.is_quiet() {
            fs.background_step(&patience).unwrap();
            patience.wait(fs.volume());
        }
        fs.check();
        for n in 0..6u8 {
            if let Ok(ino) = fs.lookup(ROOT, format!("f{n}").as_bytes()) {
                read_all(&fs, ino).unwrap_or_else(|e| panic!("case {case}: {e}"));
            }
        }
    }
}

/// The waiter of a collector. When it first waits with copies in flight, a user writes a unit.
struct Interrupted<'a> {
    fs: &'a FileSystem,
    ino: u64,
    written: Cell<u64>,
    usual: Impatient,
}

/// The waiter of a write that must not have to wait.
struct Unwilling(Impatient);

impl Wait for Interrupted<'_> {
    fn now(&self) -> Nanos {
        self.usual.now()
    }

    fn wall(&self) -> i64 {
        self.usual.wall()
    }

    fn wait(&self, volume: &Volume) {
        if self.written.get() == 0 && self.fs.statistics().gc_blocks > 0 && !self.fs.is_quiet() {
            let unit = bytes(3, 7 * BLOCK);
            let written = self.fs.write(&Unwilling(impatient()), self.ino, 0, Payload::Bytes(&unit)).unwrap();
            self.written.set(written);
        }
        self.usual.wait(volume);
    }
}

impl Wait for Unwilling {
    fn now(&self) -> Nanos {
        self.0.now()
    }

    fn wall(&self) -> i64 {
        self.0.wall()
    }

    fn wait(&self, _: &Volume) {
        panic!("the write waits for copies");
    }
}

#[test]
fn gc_copies_do_not_count_against_the_users_in_flight_limit() {
    // One unit in flight uses up the users' limit.
    let options = MountOptions::default().with_dirty_bytes(8 * BLOCK as u64);
    let fs = make(volume(device("ram:size=4M,zone_size=256K,blocksize=4096,complete=poll")), 8, options);
    let create = |name| fs.create(&waiter(), ROOT, name, &NewFile::new(FileKind::File, 0o644)).unwrap();
    let (old, ino) = (create(b"old"), create(b"new"));
    fs.write(&impatient(), old, 0, Payload::Bytes(&bytes(1, 200 * BLOCK))).unwrap();
    fs.write(&impatient(), old, 0, Payload::Bytes(&bytes(2, 20 * BLOCK))).unwrap();
    fs.sync(&impatient()).unwrap();
    let collector = Interrupted { fs: &fs, ino, written: Cell::new(0), usual: impatient() };
    assert!(fs.collect(&collector).unwrap());
    assert_eq!(collector.written.get(), 7 * BLOCK as u64);
    settle(&fs);
    assert_eq!(read_all(&fs, ino).unwrap(), bytes(3, 7 * BLOCK));
    fs.check();
}

/// One thread overwrites the blocks of a file on a small drive, while zones are collected and reset
/// all the time. Each block contains the number of times it was written.
#[test]
fn reader_concurrent_with_a_writer_sees_completed_writes() {
    const BLOCKS: usize = 24;
    let fs = make(
        volume(device("ram:size=3M,zone_size=128K,blocksize=4096")),
        8,
        MountOptions::default().with_dirty_bytes(1 << 20),
    );
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter(), ino, 0, Payload::Bytes(&vec![0; BLOCKS * BLOCK])).unwrap();
    fs.sync(&waiter()).unwrap();
    let written: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let ends = AtomicBool::new(false);
    let resets = || fs.statistics().resets;
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (fs, written, ends) = (&fs, &written, &ends);
            scope.spawn(move || {
                let mut random = Pcg64Mcg::seed_from_u64(reader);
                let mut found = vec![0; BLOCK];
                while !ends.load(Ordering::Relaxed) {
                    let block = random.random_range(0..BLOCKS);
                    let before = written[block].load(Ordering::Acquire);
                    let read = fs.read(&waiter(), ino, (block * BLOCK) as u64, Target::Bytes(&mut found));
                    assert_eq!(read.unwrap(), BLOCK as u64);
                    let number = u64::from_le_bytes(found[..8].try_into().unwrap());
                    assert!(number >= before, "block {block}: {number} after {before}");
                    let is_whole = |eight: &[u8]| eight == &found[..8];
                    assert!(found.chunks(8).all(is_whole), "block {block} is of one write");
                }
            });
        }
        let mut random = Pcg64Mcg::seed_from_u64(9);
        let mut number = 0u64;
        while number < 60_000 && (number < 20_000 || resets() < 200) {
            number += 1;
            let block = random.random_range(0..BLOCKS);
            let data: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(BLOCK).collect();
            fs.write(&waiter(), ino, (block * BLOCK) as u64, Payload::Bytes(&data)).unwrap();
            written[block].store(number, Ordering::Release);
            if number.is_multiple_of(64) {
                fs.collect(&waiter()).unwrap();
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(resets() >= 200, "{} resets", resets());
    fs.sync(&waiter()).unwrap();
    fs.check();
}

/// One thread appends to a file. Another opens and closes it, so that its tail comes and goes, and
/// a third syncs it. A reader must find correct data up to the end that the writer has reached.
#[test]
fn reader_beside_appends_sees_all_that_was_written_before() {
    const LENGTH: u64 = 24 << 20;
    let fs = make(
        volume(device("ram:size=64M,zone_size=2M,blocksize=4096")),
        32,
        MountOptions::default().with_dirty_bytes(4 << 20),
    );
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let all = bytes(5, LENGTH as usize);
    let written = AtomicU64::new(0);
    let ends = AtomicBool::new(false);
    let until_the_end = |work: &mut dyn FnMut()| {
        while !ends.load(Ordering::Relaxed) {
            work();
        }
    };
    std::thread::scope(|scope| {
        let (fs, all, written) = (&fs, &all[..], &written);
        scope.spawn(|| until_the_end(&mut || fs.fsync(&impatient(), ino).unwrap()));
        scope.spawn(|| {
            let mut open: Vec<OpenFile> = Vec::new();
            until_the_end(&mut || match open.pop() {
                Some(open) => open.close(&impatient()).unwrap(),
                None => open.push(fs.open_file(ino).unwrap()),
            });
        });
        scope.spawn(|| {
            let mut random = Pcg64Mcg::seed_from_u64(3);
            let mut found = vec![0; 40_000];
            until_the_end(&mut || {
                let end = written.load(Ordering::Acquire);
                let at = end.saturating_sub(random.random_range(1..60_000));
                let length = (end - at).min(found.len() as u64) as usize;
                let read = fs.read(&impatient(), ino, at, Target::Bytes(&mut found[..length])).unwrap();
                assert_eq!(read, length as u64, "{at} of {end}");
                assert!(found[..length] == all[at as usize..][..length], "{length} bytes at {at} of {end}");
            });
        });
        let mut random = Pcg64Mcg::seed_from_u64(4);
        let mut at = 0;
        while at < LENGTH {
            let length = random.random_range(1..6000).min(LENGTH - at);
            let payload = Payload::Bytes(&all[at as usize..][..length as usize]);
            assert_eq!(fs.write(&impatient(), ino, at, payload).unwrap(), length);
            at += length;
            written.store(at, Ordering::Release);
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(read_all(&fs, ino).unwrap() == all);
    settle(&fs);
    fs.check();
}

/// Several threads create the same names at once, in a common directory and in their own. Others
/// move and remove names meanwhile, count the files, and commit.
#[test]
fn threads_that_make_the_same_names_make_each_once() {
    const NAMES: u64 = 3000;
    const THREADS: u64 = 3;
    let device = device("ram:size=64M,zone_size=2M,blocksize=4096");
    let fs = make(volume(device), 32, MountOptions::default());
    let directory =
        |name: &[u8]| fs.create(&waiter(), ROOT, name, &NewFile::new(FileKind::Directory, 0o755)).unwrap();
    let (common, moved) = (directory(b"common"), directory(b"moved"));
    let own: Vec<u64> = (0..THREADS).map(|n| directory(format!("own{n}").as_bytes())).collect();
    let made = AtomicU64::new(0);
    let ends = AtomicBool::new(false);
    let name = |n: u64| format!("f{n}").into_bytes();
    std::thread::scope(|scope| {
        let makers: Vec<_> = own
            .iter()
            .map(|own| {
                let (fs, made) = (&fs, &made);
                scope.spawn(move || {
                    let new = NewFile::new(FileKind::File, 0o644);
                    for n in 0..NAMES {
                        match fs.create(&waiter(), common, &name(n), &new) {
                            Ok(_) => _ = made.fetch_add(1, Ordering::Relaxed),
                            Err(FsError::Exists) => {}
                            Err(error) => panic!("{error}"),
                        }
                        fs.create(&waiter(), *own, &name(n), &new).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut n = 0;
            while !ends.load(Ordering::Relaxed) {
                fs.sync(&waiter()).unwrap();
                // Other names in the same directories.
                let made =
                    fs.create(&waiter(), common, b"other", &NewFile::new(FileKind::File, 0o644)).unwrap();
                fs.rename(&waiter(), (common, b"other"), (moved, &name(n)), Rename::KeepOther).unwrap();
                assert_eq!(fs.lookup(moved, &name(n)).unwrap(), made);
                assert!(fs.files().unwrap().used > n);
                n += 1;
            }
        });
        scope.spawn(|| {
            let owner = |uid| Changes { uid: Some(uid), ..Changes::default() };
            for n in 0.. {
                fs.set_attributes(&waiter(), common, &owner(n)).unwrap();
                if ends.load(Ordering::Relaxed) {
                    break;
                }
            }
            fs.set_attributes(&waiter(), common, &owner(77)).unwrap();
        });
        makers.into_iter().for_each(|maker| maker.join().unwrap());
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(made.load(Ordering::Relaxed), NAMES);
    let names = |directory| {
        let (mut inos, mut count) = (std::collections::BTreeSet::new(), 0);
        fs.list(directory, None, |_, entry| {
            inos.insert(entry.ino);
            count += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(inos.len(), count, "no two names are one file's");
        count as u64
    };
    let positions = |directory| {
        let mut count = 0;
        fs.list_from(directory, zonal_fs::format::Position::START, |_, _, _| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        count
    };
    let all: u64 = own
        .iter()
        .chain([&common, &moved, &ROOT])
        .map(|directory| {
            assert_eq!(positions(*directory), names(*directory));
            names(*directory)
        })
        .sum();
    assert_eq!((names(common), fs.files().unwrap().used), (NAMES, all + 1));
    assert_eq!(fs.attributes(common).unwrap().uid, 77);
    fs.sync(&waiter()).unwrap();
    fs.check();
}
