//! Several threads on one volume.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::path::{NOW, SECTORS, Writer, null};
use super::report::{Bound, Report};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use zonal_core::{Nanos, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::emulated::{CompleteMode, EmulatedOptions};
use zonal_io::sync::CachePadded;
use zonal_io::volume::{Request, Volume, VolumeOptions, WriteMode};

/// Zones so large that a thread stays in its own for a whole round.
fn wide() -> EmulatedOptions {
    EmulatedOptions::default().with_size(64 << 36).with_zone_size(1 << 36)
}

/// Runs both writers concurrently, each from the start of its zone, inline at queue depth 1.
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

/// Compares two threads on their own zones with two independent volumes.
pub(super) fn own_zones(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let fresh = || Writer::new(null(wide()), WriteMode::PerZone, true);
    let shared = || {
        let volume = Arc::new(open(wide(), WriteMode::PerZone, true));
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

/// Like `own_zones` on devices that complete when polled, at queue depth 16, with a queue for each
/// thread.
pub(super) fn own_queues(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let polled = wide().with_complete(CompleteMode::Poll).with_submit_queues(2);
    let held = AtomicU64::new(0);
    for (name, mode, merge) in [
        ("writes, unmerged", WriteMode::PerZone, false),
        ("writes, merged", WriteMode::PerZone, true),
        ("native appends", WriteMode::Append, false),
    ] {
        let place = if mode == WriteMode::Append { WriteTarget::AppendToOwn } else { WriteTarget::OwnZones };
        let load = |stride| Load { options: polled.clone(), mode, merge, place, stride };
        let mut cases = [
            Case::new("one thread", || load(1).run(1, count, &held)),
            Case::new("two volumes", || load(1).run_apart(2, count, &held)),
            Case::new("zones 0 and 1", || load(1).run(2, count, &held)),
            Case::new("zones 0 and 32 of 64", || load(32).run(2, count, &held)),
        ];
        let samples = interleave(effort.rounds, &mut cases);
        let names = cases.map(|c| c.name);
        let title = format!("two threads, polled, {name}");
        report.add(&format!("{title}, one thread alone"), "", &samples[0], "ns", Bound::None);
        let scale = samples[1].against(&samples[0], |two, one| one / two);
        report.add(&format!("{title}, two volumes"), "one thread", &scale, "x", Bound::None);
        for i in [2, 3] {
            let ratio = samples[i].against(&samples[1], |shared, apart| apart / shared);
            report.add(&format!("{title}, {}", names[i]), "two volumes", &ratio, "x", Bound::AtLeast(0.95));
        }
    }
    add_held(&held, report);
}

/// A poll that finds nothing, on a device of 64 queues.
pub(super) fn empty_polls(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let volume = |submit_queues| {
        open(
            wide().with_complete(CompleteMode::Poll).with_submit_queues(submit_queues),
            WriteMode::PerZone,
            true,
        )
    };
    let (one, many) = (volume(1), volume(64));
    let polls = |volume: &Volume| {
        time(count, || {
            (0..count).for_each(|_| {
                std::hint::black_box(volume.poll(NOW));
            })
        })
    };
    let mut cases = [Case::new("1 queue", || polls(&one)), Case::new("64 queues", || polls(&many))];
    let samples = interleave(effort.rounds, &mut cases);
    report.add("a poll that finds nothing, 1 queue", "", &samples[0], "ns", Bound::None);
    let ratio = samples[1].against(&samples[0], |many, one| many / one);
    report.add("a poll that finds nothing, 64 queues", "1 queue", &ratio, "x", Bound::AtMost(1.3));
}

fn open(options: EmulatedOptions, mode: WriteMode, merge: bool) -> Volume {
    let options_of = VolumeOptions::default().with_mode(mode).with_merge(merge);
    Volume::open(null(options), options_of).expect("an emulated device opens")
}

thread_local! {
    /// Completions delivered by this thread for others since it last returned from the volume.
    static FOR_OTHERS: Cell<u64> = const { Cell::new(0) };
    static ME: Cell<usize> = const { Cell::new(0) };
}

/// Two threads that append to one zone, each at queue depth 16.
pub(super) fn one_zone(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let native = wide().with_complete(CompleteMode::Poll);
    let held = AtomicU64::new(0);
    for (name, options, mode) in [
        ("emulated, in line", wide(), WriteMode::PerZone),
        ("emulated, polled", native.clone(), WriteMode::PerZone),
        ("native, polled", native, WriteMode::Append),
    ] {
        let load = Load { options, mode, merge: true, place: WriteTarget::OneZone, stride: 1 };
        let mut cases =
            [Case::new("one", || load.run(1, count, &held)), Case::new("two", || load.run(2, count, &held))];
        let samples = interleave(effort.rounds.min(5), &mut cases);
        let rate = super::Samples { rounds: samples[1].rounds.iter().map(|ns| 1e3 / ns).collect() };
        let title = format!("two threads append to one zone, {name}");
        report.add(&title, "sum", &rate, "M/s", Bound::AtLeast(4.0));
        let ratio = samples[1].against(&samples[0], |two, one| one / two);
        report.add(&title, "one thread", &ratio, "x", Bound::AtLeast(0.8));
    }
    add_held(&held, report);
}

fn add_held(held: &AtomicU64, report: &mut Report) {
    let most = held.load(Ordering::Relaxed) as f64;
    report.add_one(
        "  others' completions a caller waits for",
        "most seen",
        most.max(1.0),
        "",
        Bound::AtMost(64.0),
    );
}

/// Compares eight threads with two, at an equal total number of requests.
///
/// With more threads than cores, the holder of a lock is preempted now and then, and every waiter
/// loses the rest of its time slice. Switching costs a tenth or two; a loss of half would mean a
/// queue of sleepers.
pub(super) fn crowd(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    // Holds the requests of all threads: a full queue is not measured here.
    let polled = wide().with_complete(CompleteMode::Poll).with_hw_queue_depth(256);
    let held = AtomicU64::new(0);
    for (name, options, mode, place) in [
        ("write to their own zones, in line", wide(), WriteMode::PerZone, WriteTarget::OwnZones),
        ("write to their own zones, polled", polled.clone(), WriteMode::PerZone, WriteTarget::OwnZones),
        ("append to one zone, emulated, in line", wide(), WriteMode::PerZone, WriteTarget::OneZone),
        ("append to one zone, emulated, polled", polled.clone(), WriteMode::PerZone, WriteTarget::OneZone),
        ("append to one zone, native, polled", polled, WriteMode::Append, WriteTarget::OneZone),
    ] {
        let load = Load { options, mode, merge: true, place, stride: 1 };
        let mut cases = [
            Case::new("two", || load.run(2, count, &held)),
            Case::new("eight", || load.run(8, count / 4, &held)),
        ];
        let samples = interleave(effort.rounds.min(5), &mut cases);
        let ratio = samples[1].against(&samples[0], |eight, two| two / eight);
        report.add(&format!("eight threads {name}"), "two threads", &ratio, "x", Bound::AtLeast(0.7));
    }
    add_held(&held, report);
}

/// Polls in a row without result before a thread yields: some microseconds.
const POLLS_MAX: u32 = 100;

/// Zones that the threads of a load write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTarget {
    /// Zone 0, by appends.
    OneZone,
    /// Each thread at the write pointer of its own zone.
    OwnZones,
    /// Each thread its own zone, by appends.
    AppendToOwn,
}

/// Load of several threads, each at queue depth 16.
struct Load {
    options: EmulatedOptions,
    mode: WriteMode,
    merge: bool,
    place: WriteTarget,
    /// Distance between the zones of two threads.
    stride: u32,
}

impl Load {
    /// Nanoseconds per request, with `threads` threads of `count` requests each. `held` is raised
    /// to the largest number of completions for others that one call delivered.
    fn run(&self, threads: u32, count: u64, held: &AtomicU64) -> f64 {
        let volume = Arc::new(open(self.options.clone(), self.mode, self.merge));
        self.run_on(&vec![volume; threads as usize], count, held)
    }

    /// Like `run`, with a volume for each thread.
    fn run_apart(&self, threads: u32, count: u64, held: &AtomicU64) -> f64 {
        let volume = || Arc::new(open(self.options.clone(), self.mode, self.merge));
        self.run_on(&(0..threads).map(|_| volume()).collect::<Vec<_>>(), count, held)
    }

    fn run_on(&self, volumes: &[Arc<Volume>], count: u64, held: &AtomicU64) -> f64 {
        let threads = volumes.len() as u32;
        let begin = Barrier::new(threads as usize + 1);
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..threads)
                .map(|me| {
                    let (volume, begin) = (&volumes[me as usize], &begin);
                    s.spawn(move || self.work(volume, me, count, begin, held))
                })
                .collect();
            begin.wait();
            let all = threads.len() as u64 * count;
            time(all, || threads.into_iter().for_each(|t| t.join().expect("a submitter panicked")))
        })
    }

    /// Zone of a thread.
    fn own(&self, volume: &Volume, me: u32) -> Sector {
        volume.info().geometry.start_of(ZoneIndex(me * self.stride))
    }

    fn request(&self, volume: &Volume, me: u32, issued: u64, buf: IoBuf) -> Request {
        match self.place {
            WriteTarget::OneZone => Request::append(Sector(0), SECTORS, buf),
            WriteTarget::AppendToOwn => Request::append(self.own(volume, me), SECTORS, buf),
            WriteTarget::OwnZones => {
                Request::write(Sector(self.own(volume, me).0 + issued * u64::from(SECTORS)), SECTORS, buf)
            }
        }
    }

    fn work(&self, volume: &Volume, me: u32, count: u64, begin: &Barrier, held: &AtomicU64) {
        ME.set(me as usize + 1);
        let done = Arc::new(CachePadded::new(AtomicU64::new(0)));
        let counted = done.clone();
        let channel = volume.channel(move |c| {
            assert!(c.result.is_ok(), "{:?}", c.result);
            if ME.get() != me as usize + 1 {
                FOR_OTHERS.set(FOR_OTHERS.get() + 1);
            }
            counted.fetch_add(1, Ordering::Release);
        });
        let memory = IoBuf::zeroed(4096);
        let payload = std::ptr::NonNull::new(memory.as_ptr()).expect("allocated");
        begin.wait();
        let mut most = 0;
        let after_call = |most: &mut u64| *most = FOR_OTHERS.replace(0).max(*most);
        // A thread that stays idle yields its processor: with more threads than cores, it is often
        // waiting for a thread that is not running.
        let wait = |most: &mut u64, is_over: &dyn Fn() -> bool| {
            let mut polls = 0;
            while !is_over() {
                volume.poll(NOW);
                after_call(most);
                polls += 1;
                if polls % POLLS_MAX == 0 {
                    std::thread::yield_now();
                }
            }
        };
        for issued in 0..count {
            wait(&mut most, &|| issued - done.load(Ordering::Acquire) < 16);
            // SAFETY: the memory outlives the requests, which this function waits for; they only
            // read it.
            let buf = unsafe { IoBuf::from_raw(payload, 4096) };
            volume.submit(Nanos(0), &channel, self.request(volume, me, issued, buf));
            after_call(&mut most);
        }
        wait(&mut most, &|| done.load(Ordering::Acquire) == count);
        held.fetch_max(most, Ordering::Relaxed);
    }
}

/// Reads of one zone by one thread while another writes that zone, or another one.
///
/// Reads take no lock, so a writer elsewhere costs them no more than any busy neighbour: up to half
/// if two virtual cores share a physical one. A writer of the same zone invalidates the cache line
/// of the zone's word with each write; reads below the zone's floor do not access that word. A read
/// of the null device does little else, so this is the worst case.
pub(super) fn reads_beside_writes(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let pair = || {
        let volume = Arc::new(open(wide(), WriteMode::PerZone, true));
        [Writer::on(volume.clone()), Writer::on(volume)]
    };
    let (mut alone, mut elsewhere, mut same) = (pair(), pair(), pair());
    let mut cases = [
        Case::new("no writer", || read_beside(&mut alone, None, count)),
        Case::new("writer of another zone", || read_beside(&mut elsewhere, Some(1), count)),
        Case::new("writer of this zone", || read_beside(&mut same, Some(0), count)),
    ];
    let samples = interleave(effort.rounds, &mut cases);
    let against = |i: usize, j: usize| samples[i].against(&samples[j], |beside, base| base / beside);
    let name = "reads of a zone while another is written";
    report.add(name, "no writer", &against(1, 0), "x", Bound::AtLeast(0.5));
    let name = "reads of a zone while it is written";
    report.add(name, "no writer", &against(2, 0), "x", Bound::None);
    report.add(name, "a writer elsewhere", &against(2, 1), "x", Bound::AtLeast(0.85));
}

/// Nanoseconds per read of zone 0 while the second writer fills `zone`.
fn read_beside(pair: &mut [Writer; 2], zone: Option<u32>, count: u64) -> f64 {
    let [reader, writer] = pair;
    let (is_over, begin) = (AtomicBool::new(false), Barrier::new(2));
    let ns = std::thread::scope(|s| {
        s.spawn(|| {
            begin.wait();
            let Some(zone) = zone else { return };
            let mut next = writer.volume.info().geometry.start_of(ZoneIndex(zone)).0 / u64::from(SECTORS);
            while !is_over.load(Ordering::Relaxed) {
                writer.write(next, 64, 1);
                next += 64;
            }
        });
        begin.wait();
        let ns = time(count, || reader.read(count));
        is_over.store(true, Ordering::Relaxed);
        ns
    });
    reader.reset_all();
    ns
}
