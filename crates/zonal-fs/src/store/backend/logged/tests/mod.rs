//! What opening costs.

use super::*;
use crate::waiter::polling;
use redb::StorageBackend;
use std::time::Instant;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions};

/// What the metadata of a million files takes, and more.
const PAGES: u64 = 600_000;

const UUID: Uuid = [1; 16];

fn drive() -> Arc<Drive> {
    let device = Registry::default().open("ram:size=4G,zone_size=256M").unwrap();
    Arc::new(Drive::new(Arc::new(Volume::open(device, VolumeOptions::default()).unwrap())))
}

/// A log of [`PAGES`] pages that nobody has written, and behind its checkpoint a few hundred batches.
fn large(drive: &Arc<Drive>, zones: &[ZoneIndex]) -> Logged {
    let log = Logged::create(drive.clone(), polling(Instant::now()), zones.to_vec(), UUID).unwrap();
    // All zones but the last are begun, and left.
    for _ in 2..zones.len() {
        log.medium.begin_zone().unwrap();
    }
    {
        let mut state = log.medium.state.lock();
        state.current = None;
        state.len = PAGES * PAGE as u64;
        for page in 0..PAGES {
            let (slot, block) = (1 + page / 50_000, 2000 + page % 50_000);
            state.table.set(page, Entry { spot: Spot { slot: slot as usize, block: block as u32 }, crc: 0 });
        }
    }
    let log = Paged::new(log.medium, PAGES * PAGE as u64);
    for page in 0..300 {
        log.write(page * PAGE as u64, &[1; PAGE]).unwrap();
        log.sync_data().unwrap();
    }
    log
}

#[test]
fn log_of_many_pages_is_opened_by_few_reads_into_eight_bytes_a_page() {
    let (drive, zones) = (drive(), (0..16).map(ZoneIndex).collect::<Vec<_>>());
    let log = large(&drive, &zones);
    drop(log);
    let (begin, before) = (Instant::now(), drive.volume().statistics().requests);
    let log = Logged::open(drive.clone(), polling(begin), zones, UUID).unwrap();
    let requests = drive.volume().statistics().requests - before;
    println!("{PAGES} pages: opened in {:?} with {requests} requests", begin.elapsed());
    // Heads, the table in pieces of 1 MiB, and batches of two blocks in pieces of 32.
    assert!(requests < 16 + 5 + 2 * 300 / 32 + 10, "{requests} requests");
    let state = log.medium.state.lock();
    assert_eq!((state.table.mapped(), state.batch), (PAGES, 300));
    assert!(u64::from(state.table.blocks()) * PAGE as u64 <= 9 * PAGES);
}
