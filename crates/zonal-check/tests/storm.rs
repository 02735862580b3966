//! All kinds of requests and events at once, from several threads: every request ends exactly once.
//!
//! `ZONAL_STORMS` sets the number of rounds, `ZONAL_STORM_SEED` the first one. A round's number
//! determines its requests, but thread schedules are not repeatable.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zonal_core::{Nanos, Op, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::changes::ZoneSetting;
use zonal_io::device::Device;
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Ram};
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

const THREADS: usize = 4;
/// Queues of the drive, by round: pairs of threads share one, all share one, or each has its own.
const QUEUES: [u32; 3] = [2, 1, 16];
const ZONES: u64 = 4;
const ZONE: u64 = 256;
const REQUESTS: usize = 20_000;
/// Longest time without any progress.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest sleep: a thread that is not woken in time makes no progress.
const SLEEP: Duration = Duration::from_secs(25);

fn storm(mode: WriteMode, complete: CompleteMode, write_zeroes: u32, seed: u64) {
    let options = EmulatedOptions::default()
        .with_size(ZONES * ZONE * 512)
        .with_zone_size(ZONE * 512)
        .with_zone_nr_conv(1)
        .with_max_sectors(16)
        .with_zone_append_max_sectors(8)
        .with_write_zeroes_max_sectors(write_zeroes)
        .with_complete(complete)
        .with_hw_queue_depth(2)
        .with_submit_queues(QUEUES[seed as usize % QUEUES.len()])
        // In the other rounds mode `pipelined` is forced.
        .with_preserves_write_order(seed.is_multiple_of(2));
    let ram = Ram::new(&options.geometry().unwrap());
    let device: Arc<dyn Device> = Arc::new(Emulated::new("storm", &options, ram).unwrap());
    let volume = Volume::open(device, VolumeOptions::default().with_mode(mode).with_force(true)).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let volume = &volume;
            scope.spawn(move || {
                let mut rng = Pcg64Mcg::seed_from_u64(seed * 100 + thread as u64);
                let ends: Arc<Vec<AtomicU8>> = Arc::new((0..REQUESTS).map(|_| AtomicU8::new(0)).collect());
                let ended = Arc::new(AtomicUsize::new(0));
                let (all, count) = (ends.clone(), ended.clone());
                let note = move |c: zonal_io::volume::Completion| {
                    let before = all[c.token as usize].fetch_add(1, Ordering::Relaxed);
                    assert_eq!(before, 0, "request {} ended twice", c.token);
                    count.fetch_add(1, Ordering::Release);
                };
                let open = || match thread {
                    0 => volume.deferred_channel(note.clone()),
                    _ => volume.channel(note.clone()),
                };
                let mut channel = open();
                let switchable: Vec<_> =
                    WriteMode::ALL.into_iter().filter(|mode| mode.is_switchable()).collect();
                let poll = |sent: usize, depth: usize| {
                    let since = Instant::now();
                    while sent - ended.load(Ordering::Acquire) > depth {
                        let now = Nanos(begin.elapsed().as_nanos() as u64);
                        if volume.poll(now).is_none() {
                            volume.wait_unless(SLEEP, || sent - ended.load(Ordering::Acquire) <= depth);
                        }
                        assert!(since.elapsed() < PATIENCE, "stuck in {mode}, now {}, {complete:?}, thread {thread}, {sent} sent, {} ended, statistics {:?}: {:?}", volume.mode().0, ended.load(Ordering::Acquire), volume.statistics(), volume.plugs());
                    }
                };
                for n in 0..REQUESTS {
                    let zone = rng.random_range(1..ZONES);
                    let start = Sector(zone * ZONE);
                    let sectors = rng.random_range(1..=24u32);
                    // Zones become read-only and offline, and are restored, so the write pointer
                    // may be unknown.
                    let pointer = volume.write_pointer(ZoneIndex(zone as u32)).unwrap_or(start);
                    let at = Sector(pointer.0.min(start.0 + ZONE - 1));
                    let at_end = sectors.min((ZONES * ZONE - at.0) as u32);
                    let buf = |sectors: u32| IoBuf::zeroed(sectors * 512);
                    let request = match rng.random_range(0..1000) {
                        0..400 => Request::append(start, sectors.min(8), buf(8)),
                        400..700 => Request::write(at, at_end, buf(at_end)),
                        700..750 => Request::write_zeroes(at, at_end),
                        750..800 => Request::read(start, sectors, buf(sectors)),
                        800..840 => Request::write(Sector(rng.random_range(0..ZONE)), sectors, buf(sectors)),
                        840..850 => Request::write(start, 1, buf(1)),
                        850..900 => Request::zone(Op::ZoneReset, start),
                        900..915 => Request::zone(Op::ZoneFinish, start),
                        915..930 => Request::zone(Op::ZoneOpen, start),
                        930..945 => Request::zone(Op::ZoneClose, start),
                        945..960 => Request::reset_all(),
                        960..970 => Request::report(start, 2),
                        970..975 => Request::verify(start, sectors),
                        975..980 => Request::zone(Op::ZoneOffline, start),
                        980..985 => Request::discard(Sector(rng.random_range(0..ZONE)), sectors),
                        _ => Request::flush(),
                    };
                    let request = if rng.random_ratio(1, 8) { request.nowait() } else { request };
                    let request = if rng.random_ratio(1, 8) { request.fua() } else { request };
                    if rng.random_ratio(1, 200) {
                        let settings = [ZoneSetting::ReadOnly, ZoneSetting::Offline, ZoneSetting::Restored];
                        // An offline zone cannot become read-only.
                        let to = settings[rng.random_range(0..6usize).min(2)];
                        let _ = volume.device().set_zone(ZoneIndex(zone as u32), to);
                    }
                    if rng.random_ratio(1, 100) {
                        volume.resync(Nanos(0), ZoneIndex(zone as u32));
                    }
                    let now = Nanos(begin.elapsed().as_nanos() as u64);
                    if mode.is_switchable() && rng.random_ratio(1, 400) {
                        let to = switchable[rng.random_range(0..switchable.len())];
                        volume.switch_mode(now, to).unwrap();
                    }
                    volume.submit(now, &channel, request.token(n as u64));
                    if rng.random_ratio(1, 1000) {
                        volume.cancel(now, &channel);
                        channel = open();
                    }
                    poll(n + 1, 32);
                }
                poll(REQUESTS, 0);
                assert!(ends.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            });
        }
    });
    while volume.poll(Nanos(u64::MAX / 2)).is_some() {}
    assert_eq!(volume.plugs().iter().map(|p| p.flags + p.pending).sum::<u32>(), 0, "{:?}", volume.plugs());
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v}")))
}

/// Slow: a storm of four threads on each kind of drive.
#[test]
fn every_request_of_a_storm_ends_once() {
    let first = number("ZONAL_STORM_SEED", 0);
    for round in first..first + number("ZONAL_STORMS", 1) {
        println!("round {round}");
        for (seed, mode) in (1..).zip(WriteMode::ALL) {
            for complete in [CompleteMode::Inline, CompleteMode::Poll] {
                for write_zeroes in [0, u32::MAX] {
                    storm(mode, complete, write_zeroes, 10 * round + seed);
                }
            }
        }
    }
}
