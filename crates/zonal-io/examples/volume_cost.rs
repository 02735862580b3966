//! Cost of one write through a volume, in nanoseconds, one thread: modes, completions and depths.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zonal_core::{Nanos, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::device::Device;
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

const COUNT: u64 = 10_000_000;

thread_local! {
    static BUFFERS: Cell<Vec<IoBuf>> = const { Cell::new(Vec::new()) };
}

fn run(device: Arc<dyn Device>, mode: WriteMode, merge: bool, depth: u64) -> (f64, f64) {
    let volume = Volume::open(device, VolumeOptions { mode: Some(mode), merge }).unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    let channel = volume.channel(move |c| {
        assert!(c.result.is_ok(), "{:?}", c.result);
        let mut b = BUFFERS.take();
        b.push(c.buf);
        BUFFERS.set(b);
        counted.store(counted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    let mut fresh: Vec<IoBuf> = (0..depth).map(|_| IoBuf::zeroed(4096)).collect();
    let started = Instant::now();
    let mut issued = 0;
    while issued < COUNT {
        while issued - done.load(Ordering::Relaxed) >= depth {
            volume.poll(Nanos(0));
        }
        let mut free = BUFFERS.take();
        let buf = free.pop().or_else(|| fresh.pop()).unwrap();
        BUFFERS.set(free);
        volume.submit(Nanos(0), &channel, Request::write(Sector(issued * 8), 8, buf));
        issued += 1;
    }
    while done.load(Ordering::Relaxed) < COUNT {
        volume.poll(Nanos(0));
    }
    let ns = started.elapsed().as_secs_f64() * 1e9 / COUNT as f64;
    BUFFERS.take();
    (ns, volume.statistics().commands as f64 / COUNT as f64)
}

fn main() {
    let options = EmulatedOptions { size: 1 << 40, ..Default::default() };
    let poll = EmulatedOptions { complete: CompleteMode::Poll, ..options.clone() };
    for (name, options, depth) in [("inline", &options, 1), ("poll", &poll, 1), ("poll", &poll, 16)] {
        for (mode, merge) in
            [(WriteMode::Direct, false), (WriteMode::PerZone, false), (WriteMode::PerZone, true)]
        {
            if name == "poll" && depth == 16 && mode == WriteMode::Direct {
                continue;
            }
            let device: Arc<dyn Device> = Arc::new(Emulated::new(name, options, Null).unwrap());
            let (ns, commands) = run(black_box(device), mode, merge, depth);
            println!("{name} depth {depth} {mode} merge={merge}: {ns:.1} ns, {commands:.3} commands a write");
        }
    }
}
