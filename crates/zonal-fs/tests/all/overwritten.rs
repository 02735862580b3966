//! Calls on a block that another thread overwrites all the time.

use crate::common::{bytes, device, make, read_all, volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zonal_core::Nanos;
use zonal_fs::format::FileKind;
use zonal_fs::waiter::Polling;
use zonal_fs::{FileSystem, MountOptions, NewFile, Payload, ROOT, Target};
use zonal_io::clock::Clock;
use zonal_io::fault::{Effect, Fault, Ops, Plan, Rule};

const BLOCK: usize = 4096;

/// Time that each write takes: much longer than the writer's pauses, so that each write begins
/// before the previous one completes.
const DELAY: Nanos = Nanos(20_000_000);

/// Limit for a call. It has to wait for two or three writes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes a call while another thread overwrites the only block of a file.
fn call_meanwhile(is_open: bool, call: impl Fn(&FileSystem, &Polling, u64)) {
    // The delays are in the time of this clock.
    let clock = Clock::start();
    let waiter = || Polling::new(clock);
    let fault = Arc::new(Fault::new(device("ram:size=64M,zone_size=1M,blocksize=4096"), Plan::default()));
    let fs = make(volume(fault.clone()), 8, MountOptions::default());
    let ino = fs.create(&waiter(), ROOT, b"f", &NewFile::new(FileKind::File, 0o644)).unwrap();
    let open = is_open.then(|| fs.open_file(ino).unwrap());
    fault.inject(Rule::new(Effect::Delay(DELAY)).on(Ops::WRITES));
    let (writes, end) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begin = Instant::now();
            while writes.load(Ordering::Relaxed) < end.load(Ordering::Relaxed) {
                assert!(begin.elapsed() < PATIENCE, "it waits while another thread writes");
                let seed = writes.fetch_add(1, Ordering::Relaxed);
                fs.write(&waiter(), ino, 0, Payload::Bytes(&bytes(seed, BLOCK))).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        while writes.load(Ordering::Relaxed) < 3 {
            std::hint::spin_loop();
        }
        call(&fs, &waiter(), ino);
        end.store(writes.load(Ordering::Relaxed) + 2, Ordering::Relaxed);
    });
    assert!(read_all(&fs, ino).unwrap() == bytes(writes.into_inner() - 1, BLOCK));
    if let Some(open) = open {
        open.close(&waiter()).unwrap();
    }
    fs.sync(&waiter()).unwrap();
    fs.check();
}

#[test]
fn read_of_a_block_that_is_overwritten_all_the_time_ends() {
    for is_open in [false, true] {
        call_meanwhile(is_open, |fs, waiter, ino| {
            assert_eq!(fs.read(waiter, ino, 0, Target::Bytes(&mut [0; 100])).unwrap(), 100);
        });
    }
}

#[test]
fn sync_of_a_block_that_is_overwritten_all_the_time_ends() {
    for is_open in [false, true] {
        call_meanwhile(is_open, |fs, waiter, ino| fs.fsync(waiter, ino).unwrap());
        call_meanwhile(is_open, |fs, waiter, _| fs.sync(waiter).unwrap());
    }
}
