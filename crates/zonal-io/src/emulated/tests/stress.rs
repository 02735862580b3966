//! Concurrent threads: counters are conserved, and no sector is lost or assigned twice.

use super::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use zonal_core::Personality;

const THREADS: u64 = 4;

fn threads(seed: u64, work: impl Fn(u64, &mut Pcg64) + Sync) {
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let work = &work;
            s.spawn(move || work(t, &mut Pcg64::seed_from_u64(seed * THREADS + t)));
        }
    });
}

/// Writes at the reported write pointer of a zone; other threads compete for the same place.
fn write_at_pointer(device: &dyn Device, index: u64, sectors: u32) -> Result<(), DeviceError> {
    let pointer = zone(device, index).write_pointer.map_or(0, |p| p.0);
    act(device, Op::Write, pointer.max(index * 64), sectors)
}

#[test]
fn h53_counters_equal_the_conditions_after_any_interleaving() {
    for (seed, personality) in [(1, Personality::Zns), (2, Personality::Zbc)] {
        for (zone_max_open, zone_max_active) in [(2, 0), (2, 4), (3, 3)] {
            let d = null(&EmulatedOptions { zone_max_open, zone_max_active, personality, ..small() });
            threads(seed, |_, rng| {
                for _ in 0..4000 {
                    let index = rng.random_range(1..8);
                    let op = match rng.random_range(0..12) {
                        0..7 => {
                            let _ = write_at_pointer(&d, index, rng.random_range(1..=24));
                            continue;
                        }
                        7 => Op::Append,
                        8 => Op::ZoneOpen,
                        9 => Op::ZoneClose,
                        10 => Op::ZoneFinish,
                        _ => Op::ZoneReset,
                    };
                    let _ = act(&d, op, index * 64, 1);
                }
            });
            d.zones().check().unwrap();
        }
    }
}

#[test]
fn positional_writes_that_race_take_each_sector_once() {
    for zone_max_open in [0, 2] {
        let d = null(&EmulatedOptions { zone_max_open, ..small() });
        let won = std::sync::atomic::AtomicU64::new(0);
        threads(3, |_, rng| {
            for index in 1..8 {
                while zone(&d, index).condition != ZoneCondition::Full {
                    let sectors = rng.random_range(1..=4);
                    if write_at_pointer(&d, index, sectors).is_ok() {
                        won.fetch_add(u64::from(sectors), std::sync::atomic::Ordering::Relaxed);
                    }
                }
            }
        });
        assert_eq!(won.into_inner(), 7 * 48);
        d.zones().check().unwrap();
    }
}

#[test]
fn h58_appended_addresses_are_disjoint_and_complete() {
    for zone_max_open in [0, 2] {
        let d = null(&EmulatedOptions { zone_max_open, ..small() });
        let all = parking_lot::Mutex::new(Vec::new());
        threads(4, |_, rng| {
            let mut mine = Vec::new();
            for index in (1..8).cycle() {
                let sectors = rng.random_range(1..=3);
                match run(&d, &command(Op::Append, index * 64, sectors)) {
                    Ok(Output::Appended(at)) => mine.extend((0..u64::from(sectors)).map(|i| at.0 + i)),
                    Err(DeviceError::Zone(ZoneError::Boundary)) => {}
                    Err(DeviceError::Zone(ZoneError::Full)) => {
                        if (1..8).all(|z| zone(&d, z).condition == ZoneCondition::Full) {
                            break;
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
            all.lock().extend(mine);
        });
        let mut all = all.into_inner();
        all.sort_unstable();
        let complete: Vec<u64> = (1..8).flat_map(|z| z * 64..z * 64 + 48).collect();
        assert_eq!(all, complete);
        d.zones().check().unwrap();
    }
}

#[test]
fn polled_queues_hand_out_every_command_once() {
    let d = null(&polled(EmulatedOptions { submit_queues: 2, hw_queue_depth: 8, ..small() }));
    let seen = parking_lot::Mutex::new(Vec::new());
    const COUNT: u64 = 2000;
    let drain = |queue: usize| {
        let mut got = Vec::new();
        d.poll(Nanos(0), queue, 5, &mut |c| got.push(c.context.into_token()));
        seen.lock().extend(got);
    };
    threads(5, |t, _| {
        let queue = (t % 2) as usize;
        for i in 0..COUNT {
            let mut context = Some(Context::token(t * COUNT + i));
            while matches!(
                d.submit(Nanos(0), queue, &command(Op::Read, 64, 8), &mut context),
                Submitted::Busy
            ) {
                drain(queue);
                std::thread::yield_now();
            }
            assert!(context.is_none());
        }
    });
    for _ in 0..8 {
        drain(0);
        drain(1);
    }
    let mut seen = seen.into_inner();
    seen.sort_unstable();
    assert_eq!(seen, (0..THREADS * COUNT).collect::<Vec<_>>());
}
