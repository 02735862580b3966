//! What opening and reading cost.

use super::super::Backend;
use super::table::Spot;
use super::*;
use crate::format::{Metadata, Superblock};
use crate::waiter::polling;
use std::ops::Range;
use std::time::Instant;
use zonal_core::ZoneIndex;
use zonal_io::clock::Clock;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions};

/// What the metadata of a million files takes, and more.
const PAGES: u64 = 600_000;

const UUID: Uuid = [1; 16];

fn drive() -> Arc<Drive> {
    drive_of("ram:size=5G,zone_size=256M")
}

fn drive_of(name: &str) -> Arc<Drive> {
    let device = Registry::default().open(name).unwrap();
    Arc::new(Drive::new(Arc::new(Volume::open(device, VolumeOptions::default()).unwrap())))
}

fn access(drive: &Arc<Drive>) -> Access {
    Access { drive: drive.clone(), waiters: polling(Clock::start()), file: None }
}

/// A log of [`PAGES`] pages that were never written, and a few hundred batches after its checkpoint.
fn large(drive: &Arc<Drive>, zones: Vec<ZoneIndex>) -> Store {
    let count = zones.len();
    let geometry = &drive.volume().info().geometry;
    let superblock = Superblock::new(UUID, geometry, 8, Metadata::Logged, 2);
    let anchor = Anchor { homes: [ZoneIndex(0), ZoneIndex(1)], zones, ..Anchor::default() };
    let writer = superblocks::Writer::unmade(superblock, drive.volume(), anchor);
    let log = Store::create(access(drive), UUID, writer).unwrap();
    // All zones but the last are begun, and left.
    for _ in 2..count {
        log.medium.begin_segment().unwrap();
    }
    {
        let mut state = log.medium.state.lock();
        state.current = None;
        state.len = PAGES * PAGE as u64;
        for page in 0..PAGES {
            let (slot, block) = (1 + page / 50_000, 2000 + page % 50_000);
            state.table.set(page, Entry { spot: Spot { slot: slot as usize, block: block as u32 }, sum: 0 });
        }
    }
    let log = Paged::new(log.medium, PAGES * PAGE as u64);
    for page in 0..300 {
        log.write(page * PAGE as u64, &[1; PAGE]).unwrap();
        log.sync_data().unwrap();
    }
    log.medium.make().unwrap();
    log
}

#[test]
fn log_of_many_pages_is_opened_by_few_reads_into_eight_bytes_a_page() {
    let (drive, zones) = (drive(), (2..18).map(ZoneIndex).collect::<Vec<_>>());
    drop(large(&drive, zones));
    let begin = Instant::now();
    let found = superblocks::find(&drive, &*polling(Clock::start())()).unwrap();
    let before = drive.volume().statistics().requests;
    let log = Store::open(access(&drive), &found).unwrap();
    let requests = drive.volume().statistics().requests - before;
    println!("{PAGES} pages: opened in {:?} with {requests} requests", begin.elapsed());
    // Heads, the table in pieces of 1 MiB, and batches of two blocks in pieces of 32.
    assert!(requests < 16 + 5 + 2 * 300 / 32 + 10, "{requests} requests");
    let state = log.medium.state.lock();
    assert_eq!((state.table.mapped(), state.batch), (PAGES, 300));
    assert!(u64::from(state.table.blocks()) * PAGE as u64 <= 9 * PAGES);
}

/// A log with two zones, and pages that one batch wrote, each full of its number.
fn written(drive: &Arc<Drive>, pages: u64) -> Store {
    let geometry = &drive.volume().info().geometry;
    let superblock = Superblock::new(UUID, geometry, 8, Metadata::Logged, 2);
    let zones = vec![ZoneIndex(2), ZoneIndex(3)];
    let anchor = Anchor { homes: [ZoneIndex(0), ZoneIndex(1)], zones, ..Anchor::default() };
    let log =
        Store::create(access(drive), UUID, superblocks::Writer::unmade(superblock, drive.volume(), anchor));
    let log = log.unwrap();
    log.set_len(pages * PAGE as u64).unwrap();
    write(&log, 0..pages, 0);
    log
}

fn write(log: &Store, pages: Range<u64>, more: u8) {
    for page in pages {
        log.write(page * PAGE as u64, &[page as u8 ^ more; PAGE]).unwrap();
    }
    log.sync_data().unwrap();
}

fn assert_read(log: &Store, page: u64, more: u8) {
    let mut bytes = [0; PAGE];
    log.read(page * PAGE as u64, &mut bytes).unwrap();
    assert!(bytes == [page as u8 ^ more; PAGE], "page {page}");
}

#[test]
fn pages_are_read_with_those_around_them() {
    for (rotational, window) in [(1, 32), (0, 8)] {
        let drive = drive_of(&format!("ram:size=64M,zone_size=4M,rotational={rotational}"));
        let log = written(&drive, 512);
        let before = drive.volume().statistics().requests;
        // Backwards, as some searches go.
        (0..512).rev().for_each(|page| assert_read(&log, page, 0));
        let requests = drive.volume().statistics().requests - before;
        assert!(requests <= 512 / window + 2, "{requests} requests, rotational={rotational}");
    }
}

/// A segment that is begun again has other pages where those lay that are kept.
#[test]
fn pages_of_a_segment_that_was_begun_again_are_those_of_now() {
    let drive = drive_of("ram:size=64M,zone_size=1M,rotational=1");
    let log = written(&drive, 64);
    for round in 1..40 {
        (0..64).for_each(|page| assert_read(&log, page, round - 1));
        write(&log, 0..64, round);
    }
}

/// A caller that wants to know what is on the drive has nothing of what is kept.
#[test]
fn nothing_is_kept_for_a_scrub() {
    let drive = drive_of("ram:size=64M,zone_size=4M,rotational=1");
    let log = written(&drive, 8);
    let requests = || {
        let before = drive.volume().statistics().requests;
        assert_read(&log, 1, 0);
        drive.volume().statistics().requests - before
    };
    assert_eq!((requests(), requests()), (1, 0));
    log.medium.forget_kept();
    assert_eq!((requests(), requests()), (1, 0));
}
