//! Drives that fail according to a plan: a failed append wastes its place, and only statistics
//! report it.

use crate::common;
use crate::common::{FsStep, Model, apply, bytes, contents, make, read_all, volume, waiter};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs;
use zonal_fs::format::FileKind;
use zonal_fs::waiter::Wait;
use zonal_fs::{FileSystem, FsError, MountOptions, NewFile, Payload, ROOT};

const BLOCK: usize = 4096;

/// A file system on a drive with the faults of `plan`.
fn on(plan: &str, drive: &str) -> FileSystem {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), plan).unwrap();
    let device = common::device(&format!("fault:plan={}+{drive}", file.path().display()));
    make(volume(device), 8, MountOptions::default())
}

#[test]
fn unit_that_failed_is_not_sent_again_once_its_file_is_gone() {
    let plan = "[[rule]]\non = \"append\"\ncount = 1\nfault = \"refuse\"\nerror = \"medium\"\n";
    let fs = on(plan, "ram:size=6M,zone_size=256K,blocksize=4096,complete=poll");
    let waiter = waiter();
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter, ino, 0, Payload::Bytes(&bytes(1, 5 * BLOCK))).unwrap();
    while fs.statistics().failed_units == 0 {
        waiter.wait(fs.volume());
    }
    fs.unlink(&waiter, ROOT, b"f").unwrap();
    fs.sync(&waiter).unwrap();
    let other = fs.create(&waiter, ROOT, b"g", &NewFile::new(FileKind::File, 0o644)).unwrap();
    fs.write(&waiter, other, 0, Payload::Bytes(b"still alive")).unwrap();
    fs.sync(&waiter).unwrap();
    fs.check();
    assert_eq!((fs.usage().used, read_all(&fs, other).unwrap()), (1, b"still alive".to_vec()));
}

#[test]
fn lost_data_is_reported_once_per_sync_and_truncates_the_file() {
    let plan = "[[rule]]\non = \"append\"\nskip = 1\nfault = \"refuse\"\nerror = \"medium\"\n";
    let fs = on(plan, "ram:size=6M,zone_size=256K,blocksize=4096");
    let waiter = waiter();
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    // A caller that has the file open gets the same error as a later one.
    let open = fs.open_file(ino).unwrap();
    let data = bytes(1, 14 * BLOCK);
    fs.write(&waiter, ino, 0, Payload::Bytes(&data)).unwrap();
    let told = |result| matches!(result, Err(FsError::Write { ino: lost, .. }) if lost == ino);
    assert!(told(fs.sync(&waiter)));
    fs.sync(&waiter).unwrap();
    assert!(told(fs.fsync(&waiter, ino)));
    fs.fsync(&waiter, ino).unwrap();
    assert!(read_all(&fs, ino).unwrap() == data[..7 * BLOCK]);
    open.close(&waiter).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size, 7 * BLOCK as u64);
    fs.check();
}

#[test]
fn drive_that_is_gone_is_the_reason_and_not_a_lack_of_space() {
    for rule in ["on = \"append\"\nskip = 2", "on = \"any\"\nskip = 40"] {
        let plan = format!("[[rule]]\n{rule}\nfault = \"refuse\"\nerror = \"gone\"\n");
        let fs = on(&plan, "ram:size=6M,zone_size=256K,blocksize=4096,complete=poll");
        let waiter = waiter();
        let mut told = Vec::new();
        for n in 0..20u64 {
            let name = format!("f{n}");
            let made = fs.create(&waiter, ROOT, name.as_bytes(), &NewFile::new(FileKind::File, 0o644));
            let write = |ino| fs.write(&waiter, ino, 0, Payload::Bytes(&bytes(n, 14 * BLOCK)));
            told.extend(made.and_then(write).err());
            told.extend(fs.sync(&waiter).err());
            if !told.is_empty() {
                break;
            }
        }
        assert!(!told.is_empty());
        let next = fs.create(&waiter, ROOT, b"next", &NewFile::new(FileKind::File, 0o644));
        told.push(next.expect_err("it is read-only at once"));
        for error in told {
            assert!(error.to_string().contains("gone"), "{rule}: {error}");
        }
    }
}

#[test]
fn unit_after_one_torn_within_a_block_is_written_elsewhere() {
    let plan = "[[rule]]\non = \"append\"\nnth = 2\nfault = \"torn\"\nblocks = 3\nerror = \"medium\"\n";
    let fs = on(plan, "ram:size=6M,zone_size=256K,blocksize=512,complete=poll");
    let waiter = waiter();
    let ino = fs.create(&waiter, ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let data = bytes(1, 40 * BLOCK);
    fs.write(&waiter, ino, 0, Payload::Bytes(&data)).unwrap();
    fs.sync(&waiter).unwrap();
    assert!(fs.statistics().failed_units > 1, "those behind it failed, too");
    assert!(read_all(&fs, ino).unwrap() == data);
    fs.check();
}

#[test]
fn failed_appends_cost_their_places_and_no_data() {
    let failing = [
        "on = \"append\"\nrate = \"1/8\"\nfault = \"refuse\"\nerror = \"medium\"",
        "on = \"append\"\nevery = 5\nfault = \"refuse\"\nerror = \"medium\"",
        "on = \"writes\"\nrate = \"1/4\"\nfault = \"busy\"",
        "on = \"reset\"\nrate = \"1/6\"\nfault = \"refuse\"\nerror = \"medium\"",
        "on = \"finish\"\nrate = \"1/2\"\nfault = \"refuse\"\nerror = \"medium\"",
    ];
    let mut failed = 0;
    for (i, rule) in failing.iter().enumerate() {
        for seed in 0..6 {
            let plan = format!("seed = {seed}\n[[rule]]\n{rule}\n");
            let drive = "ram:size=12M,zone_size=256K,blocksize=4096,complete=poll";
            let fs = on(&plan, drive);
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut model = Model::default();
            for n in 0..250u64 {
                let file = random.random_range(0..5);
                let step = match random.random_range(0..10) {
                    0 => FsStep::Create(file),
                    1 => FsStep::Unlink(file),
                    2 => FsStep::Fsync(file),
                    3 => FsStep::Collect,
                    _ => FsStep::Write(file, random.random_range(0..400_000), random.random_range(1..60_000)),
                };
                let done = apply(&fs, &mut model, &step, n);
                done.unwrap_or_else(|e| panic!("rule {i}, seed {seed}, step {n} ({step:?}): {e}"));
            }
            fs.sync(&waiter()).unwrap();
            fs.check();
            assert!(contents(&fs).unwrap() == model.contents(), "rule {i}, seed {seed}");
            failed += fs.statistics().failed_units;
        }
    }
    assert!(failed > 100, "{failed} units failed");
}
