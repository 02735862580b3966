//! Short writes to open files wait for more data of the same or other files. They are sent as whole
//! units, or when a caller needs them.

use crate::common;
use crate::common::{bytes, device, make, read_all, settle, volume, waiter};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use zonal_fs::format::FileKind;
use zonal_fs::store::backend::Memory;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, OpenFile, Payload, ROOT, Target};

const BLOCK: u64 = 4096;

/// Data bytes of a unit.
const UNIT: u64 = 7 * BLOCK;

fn file_system(dirty_bytes: u64) -> FileSystem {
    let options = MountOptions::default().with_dirty_bytes(dirty_bytes);
    make(volume(device("ram:size=8M,zone_size=512K,blocksize=4096")), 8, options)
}

fn file(fs: &FileSystem, name: &str) -> OpenFile {
    let new = NewFile::new(FileKind::File, 0o644);
    let ino = fs.create(&waiter(), ROOT, name.as_bytes(), &new).unwrap();
    fs.open_file(ino).unwrap()
}

fn write(fs: &FileSystem, ino: u64, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(&waiter(), ino, offset, Payload::Bytes(data)).unwrap(), data.len() as u64);
}

/// Number of units sent.
fn units(fs: &FileSystem) -> u64 {
    settle(fs);
    fs.volume().statistics().commands
}

#[test]
fn small_writes_of_an_open_file_in_a_row_are_whole_units() {
    let fs = file_system(1 << 20);
    let open = file(&fs, "f");
    let (ino, data) = (open.ino(), bytes(1, 3 * UNIT as usize + 100));
    let before = units(&fs);
    for (i, piece) in data.chunks(700).enumerate() {
        write(&fs, ino, i as u64 * 700, piece);
        let whole = ((i + 1) * 700).min(data.len()) as u64 / UNIT;
        assert_eq!(units(&fs) - before, whole, "after {i} writes");
    }
    assert_eq!(fs.attributes(ino).unwrap().size, data.len() as u64, "with what is gathered");
    assert_eq!(read_all(&fs, ino).unwrap(), data);
    fs.check();
}

#[test]
fn large_write_leaves_in_whole_units_and_its_rest_is_buffered() {
    let fs = file_system(1 << 20);
    let open = file(&fs, "f");
    let (ino, data) = (open.ino(), bytes(2, 5 * UNIT as usize + 50));
    let before = units(&fs);
    write(&fs, ino, 0, &data[..1000]);
    write(&fs, ino, 1000, &data[1000..]);
    assert_eq!(units(&fs) - before, 5);
    fs.fsync(&waiter(), ino).unwrap();
    assert_eq!(fs.usage().used, 5 * 7 + 1);
    assert_eq!(read_all(&fs, ino).unwrap(), data);
}

#[test]
fn buffered_data_leaves_for_a_sync_a_close_a_read_and_a_write() {
    type Need = fn(&FileSystem, OpenFile);
    let needs: [(&str, Need); 6] = [
        ("fsync", |fs, file| fs.fsync(&waiter(), file.ino()).unwrap()),
        ("sync", |fs, file| {
            fs.sync(&waiter()).unwrap();
            drop(file);
        }),
        ("close", |_, file| file.close(&waiter()).unwrap()),
        ("read", |fs, file| {
            assert_eq!(fs.read(&waiter(), file.ino(), 50, Target::Bytes(&mut [0; 10])).unwrap(), 10);
        }),
        ("write", |fs, file| write(fs, file.ino(), 900_000, b"elsewhere")),
        ("write of a file without handles", |fs, file| {
            let ino = file.ino();
            drop(file);
            write(fs, ino, 0, &bytes(3, 1));
        }),
    ];
    for (name, need) in needs {
        let fs = file_system(1 << 20);
        let open = file(&fs, "f");
        let (ino, data) = (open.ino(), bytes(3, 2 * BLOCK as usize + 1));
        write(&fs, ino, 0, &data);
        let used = |fs: &FileSystem| {
            settle(fs);
            fs.usage().used
        };
        assert_eq!(used(&fs), 0, "{name}");
        need(&fs, open);
        assert_eq!(used(&fs), 3, "{name}");
        assert_eq!(read_all(&fs, ino).unwrap()[..data.len()], data, "{name}");
    }
}

#[test]
fn read_of_other_blocks_does_not_flush_buffered_data() {
    let fs = file_system(1 << 20);
    let open = file(&fs, "f");
    let ino = open.ino();
    let data = bytes(4, UNIT as usize + 100);
    write(&fs, ino, 0, &data);
    let mut first = [0; 100];
    fs.read(&waiter(), ino, 0, Target::Bytes(&mut first)).unwrap();
    settle(&fs);
    assert_eq!((&first[..], fs.usage().used), (&data[..100], 7));
}

#[test]
fn buffered_partial_writes_keep_the_rest_of_their_blocks() {
    let fs = file_system(1 << 20);
    let open = file(&fs, "f");
    let (ino, mut data) = (open.ino(), bytes(5, 4 * BLOCK as usize));
    write(&fs, ino, 0, &data);
    fs.fsync(&waiter(), ino).unwrap();
    for (at, length) in [(5000, 100), (5100, 100), (5150, 4000), (5000, 10)] {
        let new = bytes(at, length);
        write(&fs, ino, at, &new);
        data[at as usize..at as usize + length].copy_from_slice(&new);
    }
    open.close(&waiter()).unwrap();
    assert_eq!(read_all(&fs, ino).unwrap(), data);
}

#[test]
fn many_open_files_buffer_no_more_than_may_be_dirty() {
    let fs = file_system(8 * UNIT);
    let before = units(&fs);
    let files: Vec<OpenFile> = (0..40).map(|n| file(&fs, &format!("f{n}"))).collect();
    files.iter().for_each(|file| write(&fs, file.ino(), 0, b"a few bytes"));
    // Four files may wait. The blocks of the others are sent, seven per unit.
    assert_eq!(units(&fs) - before, 5);
    fs.sync(&waiter()).unwrap();
    assert_eq!(units(&fs) - before, 6);
    files.iter().for_each(|file| assert_eq!(read_all(&fs, file.ino()).unwrap(), b"a few bytes"));
}

#[test]
fn handle_that_is_dropped_waits_for_nothing_and_loses_nothing() {
    let volume = volume(device("ram:size=8M,zone_size=512K,blocksize=4096"));
    let (superblock, memory) = (common::superblock(&volume, 0, 8), Memory::new());
    let options = MountOptions::default();
    let fs = common::make_with(volume.clone(), superblock.clone(), memory.clone(), options);
    let (opened, data) = (file(&fs, "f"), bytes(7, 5000));
    let (ino, before) = (opened.ino(), units(&fs));
    write(&fs, ino, 0, &data);
    // An early return.
    let fails = |_opened: OpenFile| Err::<(), FsError>(FsError::NotFound);
    assert!(fails(opened).is_err());
    assert_eq!(units(&fs), before, "nothing was sent");
    assert_eq!(fs.attributes(ino).unwrap().size, 5000);
    fs.sync(&waiter()).unwrap();
    fs.forbid_changes("the power is cut");
    drop(fs);
    let fs = common::reopen(volume, superblock, memory, options).unwrap();
    assert_eq!(read_all(&fs, ino).unwrap(), data);
    fs.check();
}

#[test]
fn file_with_two_handles_buffers_until_the_second_is_closed() {
    let fs = file_system(1 << 20);
    let first = file(&fs, "f");
    let (ino, before) = (first.ino(), units(&fs));
    let second = fs.open_file(ino).unwrap();
    write(&fs, ino, 0, b"gathered");
    first.close(&waiter()).unwrap();
    assert_eq!(units(&fs), before);
    second.close(&waiter()).unwrap();
    assert_eq!(units(&fs), before, "it waits for other files");
    fs.fsync(&waiter(), ino).unwrap();
    assert_eq!(units(&fs), before + 1);
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    assert!(matches!(fs.attributes(ino), Err(FsError::NotFound)));
}

#[test]
fn deleted_file_drops_its_buffered_data_and_reservation() {
    let fs = file_system(1 << 20);
    let free = fs.usage().free;
    let open = file(&fs, "f");
    let ino = open.ino();
    write(&fs, ino, 0, b"never to be read");
    assert!(fs.usage().free < free);
    fs.unlink(&waiter(), ROOT, b"f").unwrap();
    open.close(&waiter()).unwrap();
    settle(&fs);
    assert_eq!((fs.usage().free, fs.usage().used), (free, 0));
    fs.check();
}

#[test]
fn buffered_write_to_a_full_drive_fails_without_losing_accepted_data() {
    let fs = file_system(1 << 20);
    let (mut written, data) = (Vec::new(), bytes(6, 3000));
    for n in 0.. {
        let open = file(&fs, &format!("f{n}"));
        match fs.write(&waiter(), open.ino(), 0, Payload::Bytes(&data)) {
            Ok(3000) => written.push(open),
            Ok(_) | Err(FsError::NoSpace) => break,
            Err(other) => panic!("{other}"),
        }
    }
    fs.sync(&waiter()).unwrap();
    fs.check();
    // Each takes a block and a header; four zones are reserved.
    assert!(written.len() > 600, "{} files", written.len());
    for file in written {
        fs.fsync(&waiter(), file.ino()).unwrap();
        assert!(read_all(&fs, file.ino()).unwrap() == data);
    }
}

/// A tail gets fewer blocks than a write needs, and others come free before the rest is buffered.
#[test]
fn appends_on_a_nearly_full_drive_keep_what_was_accepted() {
    let (mut random, mut refused) = (Pcg64Mcg::seed_from_u64(1), 0);
    let fs = file_system(1 << 20);
    let (other, open) = (file(&fs, "other"), file(&fs, "f"));
    let mut accepted = Vec::new();
    let blocks = fs.usage().blocks - 60;
    write(&fs, other.ino(), 0, &bytes(1, (blocks * BLOCK) as usize));
    for round in 0..3000 {
        let at = random.random_range(0..blocks - 8) * BLOCK;
        let overwrite = bytes(round, random.random_range(1..8) * BLOCK as usize);
        let _ = fs.write(&waiter(), other.ino(), at, Payload::Bytes(&overwrite));
        let more = bytes(round, random.random_range(1..9 * BLOCK as usize));
        match fs.write(&waiter(), open.ino(), accepted.len() as u64, Payload::Bytes(&more)) {
            Ok(length) => accepted.extend_from_slice(&more[..length as usize]),
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                refused += 1;
            }
        }
        if random.random_bool(0.1) {
            assert!(read_all(&fs, open.ino()).unwrap() == accepted, "round {round}");
            fs.truncate(&waiter(), open.ino(), 0).unwrap();
            accepted.clear();
        }
    }
    assert!(refused > 100, "{refused}");
    fs.check();
}
