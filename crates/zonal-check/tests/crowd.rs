//! Many writers on a mount that constantly needs garbage collection.
//!
//! `ZONAL_MOUNT_SECONDS` sets the duration, `ZONAL_MOUNT_WRITERS` the number of writers; the soak
//! has a hundred. This is a program of its own, because call times mean nothing while other tests
//! use the processors.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zonal_check::program::mounted::{MountPlace, bytes};

/// Files of all writers together. At their lengths, half of the drive holds live data.
const FILES: u64 = 800;

const LENGTH_MAX: u64 = 600_000;

/// Bytes of one call.
const PIECE: usize = 128 << 10;

/// Longest time of a call.
const CALL_MAX: Duration = Duration::from_secs(1);

/// Bytes to be written at least: twice the drive, so that space must have been reclaimed.
const WRITTEN_MIN: u64 = 1 << 30;

/// Additional time for that.
const LATE_MAX: Duration = Duration::from_secs(60);

#[test]
fn writers_wait_for_no_call_and_take_no_more_memory() {
    let seconds = std::env::var("ZONAL_MOUNT_SECONDS").map_or(8, |seconds| seconds.parse().unwrap());
    let writers = std::env::var("ZONAL_MOUNT_WRITERS").map_or(50, |writers| writers.parse().unwrap());
    let files = FILES / writers;
    let place = MountPlace::new("512M");
    let mounted = place.mount("writethrough");
    let (longest, written) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (middle, last) = std::thread::scope(|scope| {
        for writer in 0..writers {
            let (mounted, longest, written, is_over) = (&mounted, &longest, &written, &is_over);
            scope.spawn(move || {
                let mut random = Pcg64Mcg::seed_from_u64(writer);
                let timed = |call: &mut dyn FnMut()| {
                    let begin = Instant::now();
                    call();
                    longest.fetch_max(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
                };
                let data = bytes(writer, LENGTH_MAX as usize);
                while !is_over.load(Ordering::Relaxed) {
                    let path = mounted.at(&format!("w{writer}f{}", random.random_range(0..files)));
                    if random.random_range(0..4) == 0 {
                        timed(&mut || drop(fs::remove_file(&path)));
                        continue;
                    }
                    let mut file = None;
                    timed(&mut || file = Some(File::create(&path).unwrap()));
                    for piece in data[..random.random_range(0..LENGTH_MAX) as usize].chunks(PIECE) {
                        timed(&mut || file.as_mut().unwrap().write_all(piece).unwrap());
                        written.fetch_add(piece.len() as u64, Ordering::Relaxed);
                    }
                    timed(&mut || drop(file.take()));
                }
            });
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()) / 2);
        let middle = mounted.resident();
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        // On a busy machine it takes longer until there is much to reclaim.
        while written.load(Ordering::Relaxed) < WRITTEN_MIN && Instant::now() < end + LATE_MAX {
            std::thread::sleep(Duration::from_millis(100));
        }
        let last = mounted.resident();
        is_over.store(true, Ordering::Relaxed);
        (middle, last)
    });
    let (longest, written) = (Duration::from_micros(longest.into_inner()), written.into_inner());
    println!(
        "{} MiB written, longest call {longest:?}, memory {middle} and then {last} bytes",
        written >> 20
    );
    assert!(written >= WRITTEN_MIN, "{written} bytes");
    assert!(longest < CALL_MAX, "{longest:?}");
    assert!(last < middle + middle / 4, "{middle} and then {last} bytes");
    for writer in 0..writers {
        for file in 0..files {
            let Ok(found) = fs::read(mounted.at(&format!("w{writer}f{file}"))) else { continue };
            assert!(bytes(writer, LENGTH_MAX as usize).starts_with(&found), "w{writer}f{file}");
        }
    }
    mounted.end();
}
