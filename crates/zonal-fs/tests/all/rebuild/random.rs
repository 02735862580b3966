//! Random histories: synced data survives the loss of the metadata, each file under some name.

use crate::common::interleaved::Interleaved;
use crate::common::{FsStep, Model, apply, contents, name, read_all, waiter};
use crate::rebuild::lose_and_rebuild;
use crate::rebuild::rig::{EVERYWHERE, Rig, Where};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zonal_fs::drive::Drive;
use zonal_fs::format::FileKind;
use zonal_fs::make::{MakeOptions, make, open};
use zonal_fs::rebuild::{RebuildError, RebuildOptions, rebuild};
use zonal_fs::{MountOptions, NewFile, Payload, ROOT};

const BLOCK: usize = 4096;

fn step(random: &mut impl Rng) -> FsStep {
    let file = random.random_range(0..8u8);
    let place = random.random_range(0..300_000);
    match random.random_range(0..100) {
        0..15 => FsStep::Create(file),
        15..75 => FsStep::Write(file, place, random.random_range(1..40_000)),
        75..80 => FsStep::Unlink(file),
        80..84 => FsStep::Rename(file, random.random_range(0..8)),
        84..87 => FsStep::Link(file, random.random_range(0..8)),
        87..90 => FsStep::Sync,
        90..94 => FsStep::Maintain,
        _ => FsStep::Collect,
    }
}

fn case(seed: u64) -> u64 {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut rig = Rig::new(EVERYWHERE[random.random_range(0..3)], seed);
    let mut model = Model::default();
    let mut victims = 0;
    for _ in 0..3 {
        let fs = rig.open();
        for _ in 0..120 {
            let step = step(&mut random);
            apply(&fs, &mut model, &step, random.next_u64()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        fs.sync(&waiter()).unwrap();
        victims += fs.statistics().gc_victims;
        // Changes from here on are lost, and must not be visible again.
        let mut lost = model.clone();
        for _ in 0..10 {
            let step = FsStep::Write(random.random_range(0..8), random.random_range(0..300_000), 20_000);
            apply(&fs, &mut lost, &step, random.next_u64()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        model.open.borrow_mut().clear();
        drop(fs);
        rig.cut(seed);
        let fs = rig.open();
        let mut expected = BTreeMap::new();
        let mut touched = BTreeSet::new();
        for (n, file) in &model.names {
            let ino = fs.lookup(ROOT, &name(*n)).unwrap();
            let found = read_all(&fs, ino).unwrap();
            // All of it may have been in a commit requested by another call.
            if found != model.files[file] {
                model.files.insert(*file, found.clone());
            }
            expected.insert(ino, found);
            touched.insert(*file);
        }
        // A unit of this opening shows that earlier units were in no commit.
        let mark = fs.create(&waiter(), ROOT, b"mark", &NewFile::new(FileKind::File, 0o644)).unwrap();
        fs.write(&waiter(), mark, 0, Payload::Bytes(b"mark")).unwrap();
        fs.sync(&waiter()).unwrap();
        fs.unlink(&waiter(), ROOT, b"mark").unwrap();
        fs.sync(&waiter()).unwrap();
        drop(fs);
        lose_and_rebuild(&rig);
        let fs = rig.open();
        let found: BTreeSet<Vec<u8>> = contents(&fs).unwrap().into_values().flatten().collect();
        for (ino, data) in expected.iter().filter(|(_, data)| !data.is_empty()) {
            assert!(found.contains(data), "seed {seed}: file {ino} of {} bytes is not there", data.len());
        }
        drop(fs);
        // Names may differ and deleted files may be back, so the next round starts from scratch.
        rig = Rig::new(rig.place, seed + 1);
        model = Model::default();
    }
    victims
}

#[test]
fn rebuild_after_random_steps_recovers_the_data_of_all_files() {
    let cases = std::env::var("ZONAL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12);
    let first = std::env::var("ZONAL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let victims: u64 = (first..first + cases).map(case).sum();
    assert!(victims > cases, "{victims} victims");
}

/// Copies that are sent after a write of the same blocks, which they do not contain.
#[test]
fn rebuild_prefers_newer_writes_over_later_gc_copies() {
    let dir = tempfile::tempdir().unwrap();
    for turn in 0..24 {
        let device =
            crate::common::device("ram:size=6M,zone_size=256K,zone_nr_conv=0,blocksize=4096,complete=poll");
        let drive = Arc::new(Drive::new(crate::common::volume(device)));
        let rows = dir.path().join(format!("rows-{turn}"));
        let made = MakeOptions::default().with_unit_bytes(8 * BLOCK as u32).with_beside(rows.clone());
        make(&drive, &crate::rebuild::rig::waiters(), [7; 16], &made).unwrap();
        let reach = || {
            open(&drive, &crate::rebuild::rig::waiters(), Some(rows.clone()), MountOptions::default())
                .unwrap()
        };
        let fs = reach();
        let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
        let put = |from: usize, data: &[u8]| {
            let written = fs.write(&waiter(), ino, (from * BLOCK) as u64, Payload::Bytes(data));
            assert_eq!(written.unwrap(), data.len() as u64);
        };
        let bytes = crate::common::bytes;
        put(0, &bytes(1, 100 * BLOCK));
        fs.sync(&waiter()).unwrap();
        (0..56).step_by(2).for_each(|block| put(block, &bytes(1000 + block as u64, BLOCK)));
        fs.sync(&waiter()).unwrap();
        let write = || put(10, &bytes(7, 20 * BLOCK));
        let interleaved = Interleaved::new(turn, &write);
        assert!(fs.collect(&interleaved).unwrap());
        fs.sync(&waiter()).unwrap();
        let expected = read_all(&fs, ino).unwrap();
        drop(fs);
        std::fs::remove_file(&rows).unwrap();
        let options = RebuildOptions::default().with_beside(rows.clone());
        rebuild(&drive, &crate::rebuild::rig::waiters(), &options).unwrap();
        assert!(read_all(&reach(), ino).unwrap() == expected, "turn {turn}");
    }
}

/// Metadata damaged anywhere: they open, are reported as damaged, or are rebuilt.
#[test]
fn metadata_damaged_anywhere_are_mended_or_made_anew() {
    let mut rebuilt = 0;
    for seed in 0..40u64 {
        let rig = Rig::new(Where::Conventional, seed);
        let fs = rig.open();
        for n in 0..10 {
            crate::rebuild::file(&fs, &format!("d/{n}"), &crate::common::bytes(n, 20_000));
        }
        fs.sync(&waiter()).unwrap();
        drop(fs);
        let expected = rig.contents();
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        for _ in 0..=seed % 4 {
            rig.scribble(random.random_range(4..60), random.random_range(1..60));
        }
        match rig.rebuild() {
            Ok(_) => rebuilt += 1,
            Err(error) => assert!(matches!(error, RebuildError::Sound), "seed {seed}: {error}"),
        }
        crate::rebuild::has_all(&rig.contents(), &expected);
    }
    assert!((10..=40).contains(&rebuilt), "{rebuilt}");
}
