//! Rows that are valid but wrong: whatever they contain, opening returns, all calls on the result
//! return, and nothing panics.

use crate::common;
use crate::common::{
    bytes, contents, device, ends, impatient, make_with, reopen, superblock, volume, waiter,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::ControlFlow;
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::format::{Attributes, Entry, FileKind, Position, Superblock, key};
use zonal_fs::fsck::{Finding, Options, check, repair};
use zonal_fs::store::Rows;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT, Rename, Target};
use zonal_io::volume::Volume;

const BLOCK: usize = 4096;

struct Made {
    volume: Arc<Volume>,
    superblock: Superblock,
    memory: Memory,
}

impl Made {
    fn new() -> Made {
        let volume = volume(device("ram:size=4M,zone_size=256K,blocksize=4096,complete=poll"));
        let superblock = superblock(&volume, 1, 8);
        let memory = Memory::new();
        let fs = make_with(volume.clone(), superblock.clone(), memory.clone(), MountOptions::default());
        let waiter = waiter();
        let directory = fs.create(&waiter, ROOT, b"d", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
        let below = fs.create(&waiter, directory, b"e", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
        let link = NewFile { target: b"d/f".to_vec(), ..NewFile::new(FileKind::Symlink, 0o777) };
        fs.create(&waiter, directory, b"l", &link).unwrap();
        for (n, parent) in [ROOT, directory, below].into_iter().enumerate() {
            let ino = fs.create(&waiter, parent, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
            fs.write(&waiter, ino, 0, Payload::Bytes(&bytes(n as u64, 60 * BLOCK + 5))).unwrap();
            fs.fsync(&waiter, ino).unwrap();
            fs.write(&waiter, ino, 20 * BLOCK as u64, Payload::Bytes(&bytes(9, 9 * BLOCK))).unwrap();
            fs.set_xattr(&waiter, ino, b"user.x", b"y").unwrap();
        }
        fs.sync(&waiter).unwrap();
        Made { volume, superblock, memory }
    }

    fn rows(&self) -> Rows {
        Rows::open(self.memory.clone(), 1 << 22).unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Rows)) {
        let mut rows = self.rows();
        change(&mut rows);
        let committed = rows.seal().unwrap().commit().unwrap();
        rows.settled(committed);
    }

    fn open(&self) -> Result<FileSystem, zonal_fs::OpenError> {
        reopen(self.volume.clone(), self.superblock.clone(), self.memory.clone(), MountOptions::default())
    }
}

fn all(rows: &Rows) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    rows.scan(&[0], &[255], |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Makes all kinds of calls and ignores the results.
fn work(fs: &FileSystem, random: &mut Pcg64Mcg) {
    let w = impatient();
    let mut found = vec![ROOT, 2, 3, 4, 5, 6, 7, 8];
    let mut names: Vec<(u64, Vec<u8>)> = vec![(ROOT, b"new".to_vec())];
    for at in 0..8 {
        let directory = found[at];
        let _ = fs.list(directory, None, |name, entry| {
            found.push(entry.ino);
            names.push((directory, name.to_vec()));
            ControlFlow::Continue(())
        });
        let after = Position(number(random));
        let _ = fs.list_from(directory, after, |position, _, entry| {
            assert!(position > after && position == entry.position);
            ControlFlow::Continue(())
        });
    }
    for n in 0..30u64 {
        let ino = found[random.random_range(0..found.len())];
        let (parent, name) = names[random.random_range(0..names.len())].clone();
        let (to, new) = names[random.random_range(0..names.len())].clone();
        let offset = [0, 5, 20_000, 100_000, 1 << 40][random.random_range(0..5)];
        let mut buffer = vec![0; 100_000];
        match random.random_range(0..15) {
            0 => drop(fs.write(&w, ino, offset, Payload::Bytes(&bytes(n, 90_000)))),
            1 => drop(fs.read(&w, ino, offset, Target::Bytes(&mut buffer))),
            2 => drop(fs.truncate(&w, ino, offset)),
            3 => drop(fs.punch(&w, ino, offset..offset + 70_000)),
            4 => drop(fs.unlink(&w, parent, &name)),
            5 => drop(fs.rmdir(&w, parent, &name)),
            6 => drop(fs.rename(&w, (parent, &name), (to, &new), Rename::Replace)),
            7 => drop(fs.rename(&w, (parent, &name), (to, &new), Rename::Exchange)),
            8 => drop(fs.link(&w, ino, parent, format!("n{n}").as_bytes())),
            9 => {
                drop(fs.create(&w, parent, format!("n{n}").as_bytes(), &NewFile::new(FileKind::Directory, 0)))
            }
            10 => drop(
                fs.create(&w, parent, format!("n{n}").as_bytes(), &NewFile::new(FileKind::File, 0))
                    .map(|ino| fs.write(&w, ino, offset, Payload::Bytes(&bytes(n, 150_000)))),
            ),
            11 => drop(fs.collect(&w)),
            12 => drop(fs.fsync(&w, ino)),
            13 => drop((
                fs.attributes(ino),
                fs.xattrs(ino),
                fs.target(ino),
                fs.resolve(b"d/e/../f"),
                fs.status(),
                fs.usage(),
            )),
            _ => drop(fs.background_step(&w)),
        }
    }
    let _ = fs.sync(&w);
    // Until no more data is accepted.
    if let Ok(ino) = fs.create(&w, ROOT, b"filler", &NewFile::new(FileKind::File, 0o644)) {
        for n in 0..200 {
            if fs.write(&w, ino, n * 100_000, Payload::Bytes(&bytes(n, 100_000))).is_err() {
                break;
            }
        }
    }
    let _ = fs.sync(&w);
}

fn number(random: &mut Pcg64Mcg) -> u64 {
    let edge = [
        0,
        1,
        2,
        255,
        1 << 16,
        (1 << 24) - 1,
        1 << 30,
        1 << 32,
        1 << 47,
        (1 << 48) - 1,
        1 << 48,
        1 << 56,
        1 << 63,
    ];
    let near: u64 = edge[random.random_range(0..edge.len())];
    match random.random_range(0..4) {
        0 => u64::MAX - random.random_range(0..3),
        1 => random.random_range(0..20),
        2 => near.wrapping_sub(random.random_range(0..3)),
        _ => near,
    }
}

/// Changes a few rows to others that are mostly valid.
fn lie(rows: &mut Rows, random: &mut Pcg64Mcg) {
    let all = all(rows);
    for _ in 0..random.random_range(1..4) {
        let (key, value) = all[random.random_range(0..all.len())].clone();
        let (mut new_key, mut new_value) = (key.clone(), value.clone());
        match random.random_range(0..8) {
            0 => {
                rows.delete(key);
                continue;
            }
            7 => new_value = lie_in_a_field(&key, &value, random),
            1..=3 if !value.is_empty() => {
                let width = [1, 2, 4, 8][random.random_range(0..4)];
                let at = random.random_range(0..value.len());
                let number = number(random).to_le_bytes();
                for (to, from) in new_value[at..].iter_mut().zip(&number[..width]) {
                    *to = *from;
                }
            }
            4 => {
                let at = random.random_range(1..new_key.len());
                let number = number(random).to_be_bytes();
                for (to, from) in new_key[at..].iter_mut().zip(&number[..]) {
                    *to = *from;
                }
            }
            5 => {
                // The value of another row of its kind.
                let others: Vec<_> = all.iter().filter(|(k, _)| k[0] == key[0]).collect();
                new_value = others[random.random_range(0..others.len())].1.clone();
            }
            _ => {
                let at = random.random_range(0..=new_key.len().min(20));
                if at > 0 {
                    new_key.truncate(at);
                } else {
                    new_key.push(0);
                }
            }
        }
        if random.random_bool(0.5) {
            rows.delete(key);
        }
        rows.put(new_key, new_value);
    }
}

/// The row of a file or name with another number in one of its fields. Rows of other kinds are
/// unchanged.
fn lie_in_a_field(key: &[u8], value: &[u8], random: &mut Pcg64Mcg) -> Vec<u8> {
    let n = number(random);
    match key[0] {
        b'I' => {
            let mut file = Attributes::decode(key, value).unwrap();
            match random.random_range(0..6) {
                0 => file.blocks = n,
                1 => file.generation = n as u32,
                2 => file.next_position = Position(n),
                3 => file.position = Position(n),
                4 => file.btime = n as i64,
                _ => file.parent = n,
            }
            file.encode()
        }
        b'D' => Entry { position: Position(n), ..Entry::decode(key, value).unwrap() }.encode(),
        _ => value.to_vec(),
    }
}

fn file_row(rows: &Rows, ino: u64) -> Attributes {
    let key = key::inode(ino);
    Attributes::decode(&key, &rows.get(&key).unwrap().unwrap()).unwrap()
}

/// A file system without runs, so that zones have no record of their contents.
fn without_runs() -> Made {
    let made = Made::new();
    made.change(|rows| {
        let runs = all(rows).into_iter().map(|(key, _)| key).filter(|key| key[0] == b'R');
        runs.for_each(|key| rows.delete(key));
    });
    made
}

#[test]
fn zone_without_rows_of_its_contents_is_collected_once() {
    let fs = without_runs().open().unwrap();
    let zones = fs.volume().info().geometry.zones() as usize;
    let ino = fs.create(&waiter(), ROOT, b"filler", &NewFile::new(FileKind::File, 0o644)).unwrap();
    for n in 0..10 {
        fs.write(&impatient(), ino, n * 20 * BLOCK as u64, Payload::Bytes(&bytes(1, 20 * BLOCK))).unwrap();
        let collected = (0..=zones).take_while(|_| fs.collect(&impatient()).unwrap()).count();
        assert!(collected <= zones, "the collector finds a zone again and again");
    }
    assert!(fs.statistics().damaged_blocks > 0, "no zone was found that does not know");
}

#[test]
fn zone_without_rows_of_its_contents_does_not_block_writers() {
    let fs = without_runs().open().unwrap();
    let before = contents(&fs).unwrap();
    let ino = fs.create(&waiter(), ROOT, b"filler", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let mut at = 0;
    while let Ok(written) = fs.write(&impatient(), ino, at, Payload::Bytes(&bytes(1, 20 * BLOCK))) {
        at += written;
    }
    assert!(at > 0 && fs.statistics().damaged_blocks > 0, "{at} bytes");
    fs.unlink(&waiter(), ROOT, b"filler").unwrap();
    fs.sync(&impatient()).unwrap();
    assert!(contents(&fs).unwrap() == before);
    // Once the contents are deleted, its zones are as good as any.
    for (parent, name) in [(ROOT, &b"f"[..]), (2, b"f"), (3, b"f")] {
        fs.unlink(&waiter(), parent, name).unwrap();
    }
    fs.sync(&impatient()).unwrap();
    while fs.background_step(&impatient()).unwrap() {}
    assert_eq!((fs.usage().used, fs.status().zones.full), (0, 0));
    fs.check();
}

#[test]
fn directory_cycles_are_detected() {
    ends(|| {
        let made = Made::new();
        made.change(|rows| {
            let (a, b) = (file_row(rows, 2), file_row(rows, 3));
            rows.put(key::inode(2), Attributes { parent: 3, ..a }.encode());
            rows.put(key::inode(3), Attributes { parent: 2, ..b }.encode());
        });
        let fs = made.open().unwrap();
        let other = fs.create(&waiter(), ROOT, b"other", &NewFile::new(FileKind::Directory, 0o755)).unwrap();
        assert!(other > 3);
        let moved = fs.rename(&waiter(), (ROOT, b"other"), (3, b"other"), Rename::Replace);
        assert!(moved.unwrap_err().to_string().contains("is inside itself"));
    });
}

#[test]
fn inode_number_is_never_reused_even_with_a_wrong_counter() {
    for counter in [Some(0), Some(1), Some(3), None] {
        let made = Made::new();
        made.change(|rows| match counter {
            Some(next) => rows.put(key::counter("ino"), u64::to_le_bytes(next).to_vec()),
            None => rows.delete(key::counter("ino")),
        });
        let fs = made.open().unwrap();
        let before = contents(&fs).unwrap();
        let ino = fs.create(&waiter(), ROOT, b"new", &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.write(&waiter(), ino, 0, Payload::Bytes(b"new")).unwrap();
        fs.unlink(&waiter(), ROOT, b"new").unwrap();
        assert!(contents(&fs).unwrap() == before, "{counter:?}");
    }
    for (name, counter) in [("ino", u64::MAX), ("ino", (1 << 47) + 1), ("sequence", u64::MAX)] {
        let made = Made::new();
        made.change(|rows| rows.put(key::counter(name), counter.to_le_bytes().to_vec()));
        assert!(made.open().err().unwrap().to_string().contains("number out of range"), "{name}");
    }
    let made = Made::new();
    made.change(|rows| rows.put(key::counter("ino"), ((1u64 << 47) - 1).to_le_bytes().to_vec()));
    let fs = made.open().unwrap();
    let create = |name| fs.create(&waiter(), ROOT, name, &NewFile::new(FileKind::File, 0o644));
    let last = create(b"last").unwrap();
    fs.write(&waiter(), last, 0, Payload::Bytes(b"last")).unwrap();
    fs.sync(&waiter()).unwrap();
    assert!(matches!(create(b"one more"), Err(FsError::Exhausted(_))));
}

/// Rows that define a file's data.
fn of_data(rows: &Rows, ino: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let own = |(key, _): &(Vec<u8>, Vec<u8>)| matches!(key[0], b'I' | b'E') && key::parts(key).0 == ino;
    all(rows).into_iter().filter(own).collect()
}

#[test]
fn repair_leaves_files_as_they_are_of_which_nothing_is_wrong() {
    let mut repaired = 0;
    for seed in seeds() {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let made = Made::new();
        let fs = made.open().unwrap();
        let files: Vec<u64> =
            [&b"f"[..], b"d/f", b"d/e/f"].iter().map(|path| fs.resolve(path).unwrap()).collect();
        let data: Vec<Vec<u8>> = files.iter().map(|ino| common::read_all(&fs, *ino).unwrap()).collect();
        drop(fs);
        let before: Vec<_> = files.iter().map(|ino| of_data(&made.rows(), *ino)).collect();
        made.change(|rows| lie(rows, &mut random));
        let drive = Drive::new(made.volume.clone());
        let look = |rows: &Rows| {
            check(rows, &made.superblock, &drive, &waiter(), Options::default().with_data(true)).unwrap()
        };
        let mut rows = made.rows();
        let after: Vec<_> = files.iter().map(|ino| of_data(&rows, *ino)).collect();
        let mut found = look(&rows);
        let mut shared = Vec::new();
        for _ in 0..6 {
            shared.extend(found.iter().filter_map(|finding| match finding {
                Finding::Shared { ino, other, .. } => Some([*ino, *other]),
                _ => None,
            }));
            if found.is_empty() {
                break;
            }
            repair(&mut rows, &found).unwrap();
            found = look(&rows);
        }
        drop(rows);
        let Ok(fs) = made.open() else { continue };
        for (n, ino) in files.iter().enumerate() {
            if before[n] != after[n] || shared.iter().flatten().any(|other| other == ino) {
                continue;
            }
            repaired += 1;
            // If a name was removed with its directory's rows, there were other findings.
            let left = common::read_all(&fs, *ino).unwrap_or_else(|e| panic!("seed {seed}, file {ino}: {e}"));
            assert!(left == data[n], "seed {seed}, file {ino}");
        }
    }
    assert!(repaired > cases(), "{repaired}");
}

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("ZONAL_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    first..first + cases()
}

fn cases() -> u64 {
    std::env::var("ZONAL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

#[test]
fn wrong_rows_are_opened_or_refused_and_each_call_ends() {
    let (mut opened, mut refused) = (0, 0);
    let mut failed = Vec::new();
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let made = Made::new();
            made.change(|rows| lie(rows, &mut random));
            if random.random_bool(0.5) {
                let drive = Drive::new(made.volume.clone());
                let mut rows = made.rows();
                for _ in 0..5 {
                    let Ok(found) =
                        check(&rows, &made.superblock, &drive, &waiter(), Options::default().with_data(true))
                    else {
                        break;
                    };
                    if found.is_empty() || repair(&mut rows, &found).is_err() {
                        break;
                    }
                }
            }
            match made.open() {
                Ok(fs) => {
                    work(&fs, &mut random);
                    true
                }
                Err(_) => false,
            }
        });
        match result {
            Ok(true) => opened += 1,
            Ok(false) => refused += 1,
            Err(_) => failed.push(seed),
        }
    }
    assert!(failed.is_empty(), "{failed:?}, of {opened} that were opened and {refused} that were not");
    assert!(cases() < 100 || opened > cases() / 3 && refused > 0, "{opened} and {refused}");
}

/// The deletion of a file with a wrong row is an error for its last user, and for no other.
#[test]
fn deleted_file_with_a_wrong_row_disturbs_no_other() {
    let made = Made::new();
    let bad = made.open().unwrap().resolve(b"f").unwrap();
    made.change(|rows| rows.put(key::extent(bad, 0), vec![0xFF; 40]));
    let fs = made.open().unwrap();
    let [good, other] = [&b"d/f"[..], b"d/e/f"].map(|path| fs.resolve(path).unwrap());
    let handles = [bad, good, other].map(|ino| fs.open_file(ino).unwrap());
    for (parent, name) in [(&b""[..], b"f"), (b"d", b"f"), (b"d/e", b"f")] {
        fs.unlink(&waiter(), fs.resolve(parent).unwrap(), name).unwrap();
    }
    let [of_bad, of_good, of_other] = handles;
    assert!(matches!(of_bad.close(&waiter()), Err(FsError::Row(_))));
    of_good.close(&waiter()).unwrap();
    let new = fs.create(&waiter(), ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let of_new = fs.open_file(new).unwrap();
    fs.unlink(&waiter(), ROOT, b"g").unwrap();
    of_new.close(&waiter()).unwrap();
    of_other.close(&waiter()).unwrap();
    fs.sync(&waiter()).unwrap();
    let is_gone = |ino| matches!(fs.attributes(ino), Err(FsError::NotFound));
    assert!(!is_gone(bad) && [good, other, new].into_iter().all(is_gone));
}
