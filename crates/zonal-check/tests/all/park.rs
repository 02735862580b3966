//! Threads that share a zone and write it in arbitrary order.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zonal_check::rig::{payload, tags};
use zonal_core::{Nanos, Sector};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use zonal_io::volume::{ParkOptions, Request, Volume, VolumeOptions, WriteMode, read_alone};

const WRITES: u64 = 1024;
const SECTORS: u32 = 8;
const WINDOW: usize = 64;
const THREADS: usize = 4;

/// Numbers of writes, shuffled within windows.
fn order(seed: u64) -> Vec<u64> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut order: Vec<u64> = (0..WRITES).collect();
    order.chunks_mut(WINDOW).for_each(|window| window.shuffle(&mut rng));
    order
}

fn options(complete: CompleteMode) -> EmulatedOptions {
    let zone = WRITES * u64::from(SECTORS) * 512;
    EmulatedOptions::default()
        .with_size(4 * zone)
        .with_zone_size(zone)
        .with_complete(complete)
        .with_hw_queue_depth(64)
}

fn write_shuffled(mode: WriteMode, complete: CompleteMode) {
    let device_options = options(complete);
    let ram = Ram::new(&device_options.geometry().unwrap());
    let device = Arc::new(Emulated::new("ram", &device_options, ram).unwrap());
    // A thread may be preempted for long between taking a number and submitting.
    let park = Some(
        ParkOptions::default().with_sectors_max(WRITES as u32 * SECTORS).with_time(Nanos(60_000_000_000)),
    );
    let options = VolumeOptions::default().with_mode(mode).with_park(park).with_force(true);
    let volume = Volume::open(device.clone(), options).unwrap();
    let (order, next, ended) = (order(7), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let begin = Instant::now();
    let now = || Nanos(begin.elapsed().as_nanos() as u64);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                let ended = ended.clone();
                let channel = volume.channel(move |c| {
                    assert!(c.result.is_ok(), "write {}: {:?}", c.token, c.result);
                    ended.fetch_add(1, Ordering::Release);
                });
                while let Some(&n) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let sector = Sector(n * u64::from(SECTORS));
                    let request = Request::write(sector, SECTORS, payload(n, SECTORS));
                    volume.submit(now(), &channel, request.token(n));
                    volume.poll(now());
                }
            });
        }
    });
    while ended.load(Ordering::Acquire) < WRITES as usize {
        assert!(begin.elapsed() < Duration::from_secs(60), "{mode}: {:?}", volume.plugs());
        volume.poll(now());
    }
    assert!(volume.statistics().parked > 0, "{mode}: no write came early");
    drop(volume);
    for n in 0..WRITES {
        let (bytes, read) = read_alone(&*device, Sector(n * u64::from(SECTORS)), payload(0, SECTORS));
        read.unwrap();
        let expected: Vec<_> = (0..u64::from(SECTORS)).map(|sector| (n, sector)).collect();
        assert_eq!(tags(&bytes), expected, "{mode}");
    }
}

#[test]
fn shuffled_writes_of_threads_that_share_a_zone_all_succeed() {
    for complete in [CompleteMode::Inline, CompleteMode::Poll] {
        for mode in [WriteMode::PerZone, WriteMode::Qd1, WriteMode::Pipelined, WriteMode::Append] {
            write_shuffled(mode, complete);
        }
    }
}
