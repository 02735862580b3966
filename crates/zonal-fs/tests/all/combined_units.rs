//! Units with short pieces of several files, or of several places in one file.

use crate::common::{bytes, device, ends, make, read_all, settle, volume, waiter};
use std::sync::Arc;
use zonal_fs::format::FileKind;
use zonal_fs::{FileSystem, MountOptions, NewFile, OpenFile, Payload, ROOT, Target};
use zonal_io::device::Device;

const BLOCK: u64 = 4096;

fn on(device: Arc<dyn Device>, unit_blocks: u32) -> FileSystem {
    make(volume(device), unit_blocks, MountOptions::default())
}

/// A file system with units of 64 blocks.
fn file_system() -> FileSystem {
    on(device("ram:size=64M,zone_size=1M,blocksize=4096"), 64)
}

fn file(fs: &FileSystem, name: &str) -> OpenFile {
    let ino = fs.create(&waiter(), ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.open_file(ino).unwrap()
}

fn write(fs: &FileSystem, ino: u64, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(&waiter(), ino, offset, Payload::Bytes(data)).unwrap(), data.len() as u64);
}

/// Number of units sent, and of blocks written for them.
fn sent(fs: &FileSystem) -> (u64, u64) {
    settle(fs);
    let statistics = fs.volume().statistics();
    (statistics.commands, statistics.sectors / 8)
}

#[test]
fn small_files_closed_one_by_one_share_headers_and_commands() {
    let fs = file_system();
    let before = sent(&fs);
    let files: Vec<(u64, Vec<u8>)> = (0..1000)
        .map(|n| {
            let (open, data) = (file(&fs, &format!("f{n}")), bytes(n, 4000));
            let ino = open.ino();
            write(&fs, ino, 0, &data);
            open.close(&waiter()).unwrap();
            (ino, data)
        })
        .collect();
    fs.sync(&waiter()).unwrap();
    let after = sent(&fs);
    let (units, blocks) = (after.0 - before.0, after.1 - before.1);
    assert!(units <= 1000 / 55, "{units} units");
    assert!(blocks * 10 <= 1000 * 11, "{blocks} blocks for 1000");
    files.iter().for_each(|(ino, data)| assert!(read_all(&fs, *ino).unwrap() == *data));
    fs.check();
}

#[test]
fn blocks_overwritten_at_random_share_headers_and_commands() {
    let fs = file_system();
    let open = file(&fs, "f");
    let ino = open.ino();
    let mut data = bytes(1, 2000 * BLOCK as usize);
    write(&fs, ino, 0, &data);
    fs.fsync(&waiter(), ino).unwrap();
    let before = sent(&fs);
    for n in 0..3000u64 {
        // Some blocks are rewritten several times before they are sent.
        let block = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % if n % 3 == 0 { 50 } else { 2000 };
        let new = bytes(n, BLOCK as usize);
        write(&fs, ino, block * BLOCK, &new);
        data[(block * BLOCK) as usize..][..BLOCK as usize].copy_from_slice(&new);
    }
    fs.fsync(&waiter(), ino).unwrap();
    let blocks = sent(&fs).1 - before.1;
    assert!(blocks * 10 <= 3000 * 11, "{blocks} blocks for 3000");
    assert!(read_all(&fs, ino).unwrap() == data, "each block is what was written last");
    assert_eq!(fs.usage().used, 2000);
    fs.check();
}

#[test]
fn sync_of_one_file_sends_its_unit_and_takes_others_along() {
    ends(|| {
        let fs = file_system();
        let open: Vec<OpenFile> = (0..10).map(|n| file(&fs, &format!("f{n}"))).collect();
        let inos: Vec<u64> = open.iter().map(OpenFile::ino).collect();
        let before = sent(&fs);
        inos.iter().for_each(|ino| write(&fs, *ino, 0, &bytes(*ino, 100)));
        open.into_iter().for_each(|file| file.close(&waiter()).unwrap());
        assert_eq!(sent(&fs), before);
        fs.fsync(&waiter(), inos[7]).unwrap();
        assert_eq!(sent(&fs).0, before.0 + 1);
        assert_eq!(fs.usage().used, 10);
        let statistics = fs.statistics();
        assert_eq!((statistics.combined_units, statistics.combined_pieces), (1, 10));
        inos.iter().for_each(|ino| fs.fsync(&waiter(), *ino).unwrap());
        assert_eq!(sent(&fs).0, before.0 + 1);
        fs.check();
    });
}

#[test]
fn piece_of_a_file_that_is_removed_is_left_out() {
    let fs = file_system();
    let free = fs.usage().free;
    for n in 0..3 {
        let open = file(&fs, &format!("f{n}"));
        write(&fs, open.ino(), 0, &bytes(n, 5000));
        open.close(&waiter()).unwrap();
    }
    fs.unlink(&waiter(), ROOT, b"f1").unwrap();
    fs.sync(&waiter()).unwrap();
    settle(&fs);
    assert_eq!((fs.usage().used, free - fs.usage().free), (4, 4));
    for n in [0, 2] {
        let ino = fs.lookup(ROOT, format!("f{n}").as_bytes()).unwrap();
        assert!(read_all(&fs, ino).unwrap() == bytes(n, 5000));
    }
    fs.check();
}

/// The newer of two pieces of a block may be sent first.
#[test]
fn later_write_wins_when_a_block_is_buffered_twice() {
    let fs = file_system();
    let open = file(&fs, "f");
    let ino = open.ino();
    write(&fs, ino, 0, &bytes(1, 3 * BLOCK as usize));
    write(&fs, ino, 100 * BLOCK, &bytes(2, BLOCK as usize));
    // A long write does not wait for others: it is sent ahead of the piece that it replaces.
    let long = bytes(3, 70 * BLOCK as usize);
    write(&fs, ino, 0, &long);
    write(&fs, ino, 200 * BLOCK, &bytes(4, BLOCK as usize));
    fs.fsync(&waiter(), ino).unwrap();
    let mut found = vec![0; long.len()];
    fs.read(&waiter(), ino, 0, Target::Bytes(&mut found)).unwrap();
    assert!(found == long, "the later write counts");
    assert_eq!(fs.usage().used, 72);
    fs.check();
}

/// Zones end in the middle of units, and of pieces.
#[test]
fn unit_that_meets_the_end_of_a_zone_is_two() {
    let fs = on(device("ram:size=16M,zone_size=256K,zone_capacity=208K,blocksize=4096"), 32);
    let mut expected = Vec::new();
    for n in 0..300u64 {
        let (open, data) = (file(&fs, &format!("f{n}")), bytes(n, 3 * BLOCK as usize - (n % 5000) as usize));
        write(&fs, open.ino(), 0, &data);
        // Replaces a part of the waiting data.
        let second = bytes(n + 1, BLOCK as usize);
        write(&fs, open.ino(), 9 * BLOCK, &second);
        write(&fs, open.ino(), BLOCK, &second);
        let mut all = vec![0; 10 * BLOCK as usize];
        all[..data.len()].copy_from_slice(&data);
        all[BLOCK as usize..2 * BLOCK as usize].copy_from_slice(&second);
        all[9 * BLOCK as usize..].copy_from_slice(&second);
        let ino = open.ino();
        open.close(&waiter()).unwrap();
        expected.push((ino, all));
        if n % 60 == 59 {
            fs.sync(&waiter()).unwrap();
            settle(&fs);
            fs.check();
            for (ino, all) in expected.drain(..) {
                assert!(read_all(&fs, ino).unwrap() == all, "file {ino}");
                fs.unlink(&waiter(), ROOT, format!("f{}", ino - expected_first()).as_bytes()).unwrap();
            }
        }
    }
}

/// Number of the first file created.
fn expected_first() -> u64 {
    2
}
