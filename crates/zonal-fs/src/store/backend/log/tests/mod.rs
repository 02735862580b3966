//! What opening costs.

use super::table::Spot;
use super::*;
use crate::format::{Metadata, Superblock};
use crate::waiter::polling;
use redb::StorageBackend;
use std::time::Instant;
use zonal_core::ZoneIndex;
use zonal_io::clock::Clock;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions};

/// What the metadata of a million files takes, and more.
const PAGES: u64 = 600_000;

const UUID: Uuid = [1; 16];

fn drive() -> Arc<Drive> {
    let device = Registry::default().open("ram:size=5G,zone_size=256M").unwrap();
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
