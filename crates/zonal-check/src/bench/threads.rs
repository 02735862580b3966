//! Two threads through one volume.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::path::{NOW, Writer, null};
use super::report::{Bound, Report};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use zonal_core::{Nanos, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::sync::CachePadded;
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

/// Zones so large that a thread stays in its own for a whole round.
fn wide() -> EmulatedOptions {
    EmulatedOptions { size: 64 << 36, zone_size: 1 << 36, ..EmulatedOptions::default() }
}

/// Both writers at once, each from the start of its zone, in line at depth 1.
fn both(writers: &mut [Writer; 2], zones: [u32; 2], count: u64) -> f64 {
    let begin = Barrier::new(3);
    let [a, b] = writers;
    let ns = std::thread::scope(|s| {
        let threads = [(a, zones[0]), (b, zones[1])].map(|(w, zone)| {
            let begin = &begin;
            s.spawn(move || {
                let first = w.volume.info().geometry.start_of(ZoneIndex(zone)).0 / 8;
                begin.wait();
                w.write(first, count, 1);
            })
        });
        begin.wait();
        time(2 * count, || threads.into_iter().for_each(|t| t.join().expect("a writer panicked")))
    });
    writers[0].reset_all();
    writers[1].reset_all();
    ns
}

/// Two threads on their own zones, against two volumes that have nothing to do with each other.
pub(super) fn own_zones(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let fresh = || Writer::new(null(wide()), WriteMode::PerZone, true);
    let shared = || {
        let volume = Arc::new(open(wide(), WriteMode::PerZone));
        [Writer::on(volume.clone()), Writer::on(volume)]
    };
    let (mut apart, mut adjacent, mut half) = ([fresh(), fresh()], shared(), shared());
    let mut single = fresh();
    let mut cases = [
        Case::new("one thread", || {
            let ns = time(count, || single.write(0, count, 1));
            single.reset_all();
            ns
        }),
        Case::new("two volumes", || both(&mut apart, [0, 0], count)),
        Case::new("zones 0 and 1", || both(&mut adjacent, [0, 1], count)),
        Case::new("zones 0 and 32 of 64", || both(&mut half, [0, 32], count)),
    ];
    let samples = interleave(effort.rounds, &mut cases);
    let names = cases.map(|c| c.name);
    let scale = samples[1].against(&samples[0], |two, one| one / two);
    report.add("two threads, two volumes", "one thread", &scale, "x", Bound::None);
    for i in [2, 3] {
        let ratio = samples[i].against(&samples[1], |shared, apart| apart / shared);
        let name = format!("two threads, one volume, {}", names[i]);
        report.add(&name, "two volumes", &ratio, "x", Bound::AtLeast(0.9));
    }
}

fn open(options: EmulatedOptions, mode: WriteMode) -> Volume {
    let options_of = VolumeOptions { mode: Some(mode), merge: true, ..VolumeOptions::default() };
    Volume::open(null(options), options_of).expect("an emulated device opens")
}

thread_local! {
    /// Completions of others that this thread has delivered since it last returned from the volume.
    static FOR_OTHERS: Cell<u64> = const { Cell::new(0) };
    static ME: Cell<usize> = const { Cell::new(0) };
}

/// Two threads that append to one zone, 16 deep each.
pub(super) fn one_zone(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let native = EmulatedOptions { complete: CompleteMode::Poll, ..wide() };
    let held = AtomicU64::new(0);
    for (name, options, mode) in [
        ("emulated, in line", wide(), WriteMode::PerZone),
        ("emulated, polled", native.clone(), WriteMode::PerZone),
        ("native, polled", native, WriteMode::Append),
    ] {
        let mut cases = [Case::new(name, || appends(options.clone(), mode, count, &held))];
        let samples = interleave(effort.rounds.min(5), &mut cases);
        let rate = super::Samples { rounds: samples[0].rounds.iter().map(|ns| 1e3 / ns).collect() };
        let bound = Bound::AtLeast(4.0);
        report.add(&format!("two threads append to one zone, {name}"), "sum", &rate, "M/s", bound);
    }
    let most = held.load(Ordering::Relaxed) as f64;
    report.add_one(
        "  others' completions a caller waits for",
        "most seen",
        most.max(1.0),
        "",
        Bound::AtMost(64.0),
    );
}

fn appends(options: EmulatedOptions, mode: WriteMode, count: u64, held: &AtomicU64) -> f64 {
    let volume = Arc::new(open(options, mode));
    let begin = Barrier::new(3);
    std::thread::scope(|s| {
        let threads = [1, 2].map(|me| {
            let (volume, begin) = (&volume, &begin);
            s.spawn(move || append_from(volume, me, count, begin, held))
        });
        begin.wait();
        time(2 * count, || threads.into_iter().for_each(|t| t.join().expect("an appender panicked")))
    })
}

fn append_from(volume: &Volume, me: usize, count: u64, begin: &Barrier, held: &AtomicU64) {
    ME.set(me);
    let done = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let counted = done.clone();
    let channel = volume.channel(move |c| {
        assert!(c.result.is_ok(), "{:?}", c.result);
        if ME.get() != me {
            FOR_OTHERS.set(FOR_OTHERS.get() + 1);
        }
        counted.fetch_add(1, Ordering::Release);
    });
    let memory = IoBuf::zeroed(4096);
    let payload = std::ptr::NonNull::new(memory.as_ptr()).expect("allocated");
    begin.wait();
    let mut most = 0;
    let mut after_call = || most = FOR_OTHERS.replace(0).max(most);
    for issued in 0..count {
        while issued - done.load(Ordering::Acquire) >= 16 {
            volume.poll(NOW);
            after_call();
        }
        // SAFETY: the memory outlives the requests, which this function waits for; they only read it.
        let buf = unsafe { IoBuf::from_raw(payload, 4096) };
        volume.submit(Nanos(0), &channel, Request::append(Sector(0), 8, buf));
        after_call();
    }
    while done.load(Ordering::Acquire) < count {
        volume.poll(NOW);
        after_call();
    }
    held.fetch_max(most, Ordering::Relaxed);
}
