//! Cost of one write through a volume, in nanoseconds, one thread: modes, completions and depths.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zonal_core::{Nanos, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Device;
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

const COUNT: u64 = 1_000_000;
const ROUNDS: usize = 15;

fn run(device: Arc<dyn Device>, mode: WriteMode, merge: bool, depth: u64) -> (f64, f64) {
    let volume = Volume::open(device, VolumeOptions { mode: Some(mode), merge }).unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    let channel = volume.channel(move |c| {
        assert!(c.result.is_ok(), "{:?}", c.result);
        counted.store(counted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    let memory = IoBuf::zeroed(4096);
    let payload = NonNull::new(memory.as_ptr()).unwrap();
    let started = Instant::now();
    let mut issued = 0;
    while issued < COUNT {
        while issued - done.load(Ordering::Relaxed) >= depth {
            volume.poll(Nanos(0));
        }
        // SAFETY: the memory outlives the loop, and the null device does not touch it.
        let buf = unsafe { IoBuf::from_raw(payload, 4096) };
        volume.submit(Nanos(0), &channel, Request::write(Sector(issued * 8), 8, buf));
        issued += 1;
    }
    while done.load(Ordering::Relaxed) < COUNT {
        volume.poll(Nanos(0));
    }
    let ns = started.elapsed().as_secs_f64() * 1e9 / COUNT as f64;
    (ns, volume.statistics().commands as f64 / COUNT as f64)
}

fn main() {
    let options = EmulatedOptions { size: 1 << 40, ..Default::default() };
    let poll = EmulatedOptions { complete: CompleteMode::Poll, ..options.clone() };
    let ordered = EmulatedOptions { preserves_write_order: true, ..poll.clone() };
    use WriteMode::{Direct, PerZone};
    let cases = [
        ("inline", &options, 1, Direct, false),
        ("inline", &options, 1, PerZone, false),
        ("poll", &poll, 1, Direct, false),
        ("poll", &poll, 1, PerZone, false),
        ("poll", &ordered, 16, Direct, false),
        ("poll", &poll, 16, PerZone, false),
        ("poll", &poll, 16, PerZone, true),
    ];
    let mut samples = vec![Vec::new(); cases.len()];
    let mut commands = vec![0.0; cases.len()];
    let only: Option<usize> = std::env::args().nth(1).and_then(|a| a.parse().ok());
    for _ in 0..ROUNDS {
        for (i, (name, options, depth, mode, merge)) in cases.iter().enumerate() {
            if only.is_some_and(|o| o != i) {
                continue;
            }
            let device: Arc<dyn Device> = Arc::new(Emulated::new(name, options, Null).unwrap());
            let (ns, c) = run(black_box(device), *mode, *merge, *depth);
            samples[i].push(ns);
            commands[i] = c;
        }
    }
    for (i, (name, _, depth, mode, merge)) in cases.iter().enumerate() {
        if samples[i].is_empty() {
            continue;
        }
        samples[i].sort_by(f64::total_cmp);
        let (min, median) = (samples[i][0], samples[i][ROUNDS / 2]);
        println!(
            "{name} depth {depth} {mode} merge={merge}: min {min:.1} median {median:.1} ns, {:.3} commands a write",
            commands[i]
        );
    }
}
