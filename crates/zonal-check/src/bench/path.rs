//! One thread through the write path.

use super::Effort;
use super::measure::{Case, interleave, time};
use super::report::{Bound, Report};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_core::{Nanos, Op, Sector, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Command, Context, Device, Submitted};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::sync::CachePadded;
use zonal_io::volume::{Channel, Request, SchedulerKind, Volume, VolumeOptions, WriteMode};

/// 4 KiB.
pub(super) const SECTORS: u32 = 8;

/// Time for devices that ignore the clock.
pub(super) const NOW: Nanos = Nanos(0);

pub(super) fn null(options: EmulatedOptions) -> Arc<dyn Device> {
    Arc::new(Emulated::new("null", &options, Null).expect("the options are valid"))
}

pub(super) fn terabyte() -> EmulatedOptions {
    EmulatedOptions::default().with_size(1 << 40)
}

/// A volume, a channel that counts completions, and memory to write. Aligned so that two side by
/// side share no cache line.
#[repr(align(128))]
pub(super) struct Writer {
    pub(super) volume: Arc<Volume>,
    pub(super) channel: Channel,
    pub(super) done: Arc<CachePadded<AtomicU64>>,
    memory: IoBuf,
    pub(super) issued: u64,
}

impl Writer {
    pub(super) fn new(device: Arc<dyn Device>, mode: WriteMode, merge: bool) -> Writer {
        let options = VolumeOptions::default().with_mode(mode).with_merge(merge);
        Writer::on(Arc::new(Volume::open(device, options).expect("an emulated device opens")))
    }

    pub(super) fn on(volume: Arc<Volume>) -> Writer {
        let done = Arc::new(CachePadded::new(AtomicU64::new(0)));
        let counted = done.clone();
        let channel = volume.channel(move |c| {
            assert!(c.result.is_ok(), "{:?}", c.result);
            // Either one thread completes at a time, or the count is not used.
            counted.store(counted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        });
        Writer { volume, channel, done, memory: IoBuf::zeroed(128 << 10), issued: 0 }
    }

    /// A view of the writer's memory.
    pub(super) fn payload(&self, len: u32) -> IoBuf {
        let ptr = NonNull::new(self.memory.as_ptr()).expect("allocated");
        // SAFETY: the memory lives as long as the writer, all of whose requests end before it is
        // dropped; they only read it.
        unsafe { IoBuf::from_raw(ptr, len) }
    }

    #[inline]
    pub(super) fn submit(&mut self, request: Request) {
        self.volume.submit(NOW, &self.channel, request);
        self.issued += 1;
    }

    #[inline]
    pub(super) fn wait_below(&self, depth: u64) {
        while self.issued - self.done.load(Ordering::Relaxed) >= depth {
            self.volume.poll(NOW);
        }
    }

    /// Writes 4 KiB `count` times from block `first` on, at queue depth `depth`.
    pub(super) fn write(&mut self, first: u64, count: u64, depth: u64) {
        for i in 0..count {
            self.wait_below(depth);
            let buf = self.payload(4096);
            self.submit(Request::write(Sector((first + i) * u64::from(SECTORS)), SECTORS, buf));
        }
        self.wait_below(1);
    }

    /// Reads 4 KiB `count` times within the first 4 MiB, from a device that completes inline.
    pub(super) fn read(&mut self, count: u64) {
        for i in 0..count {
            let buf = self.payload(4096);
            self.submit(Request::read(Sector(i % 1024 * u64::from(SECTORS)), SECTORS, buf));
        }
        self.wait_below(1);
    }

    pub(super) fn reset_all(&mut self) {
        self.submit(Request::reset_all());
        self.wait_below(1);
    }
}

fn bare(device: &dyn Device, count: u64) {
    for i in 0..count {
        let sector = Sector(i * u64::from(SECTORS));
        let command = Command::new(Op::Write, sector, SECTORS);
        let mut context = Some(Context::token(i));
        match device.submit(NOW, 0, &command, &mut context) {
            Submitted::Done(result) => assert!(result.is_ok(), "{result:?}"),
            other => panic!("an in-line device answered {other:?}"),
        }
    }
}

fn rate(samples: &super::Samples) -> super::Samples {
    super::Samples { rounds: samples.rounds.iter().map(|ns| 1e3 / ns).collect() }
}

/// Queue depth 1, completing inline.
pub(super) fn in_line(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let device = null(terabyte());
    let mut direct = Writer::new(null(terabyte()), WriteMode::Direct, false);
    let mut plugged = Writer::new(null(terabyte()), WriteMode::PerZone, false);
    let mut cases = [
        Case::new("bare device", || {
            let ns = time(count, || bare(&*device, count));
            reset_bare(&*device);
            ns
        }),
        Case::new("direct", || {
            let ns = time(count, || direct.write(0, count, 1));
            direct.reset_all();
            ns
        }),
        Case::new("per-zone", || {
            let ns = time(count, || plugged.write(0, count, 1));
            plugged.reset_all();
            ns
        }),
    ];
    let [bare, direct, plugged] = &interleave(effort.rounds, &mut cases)[..] else {
        unreachable!("three cases")
    };
    report.add("4 KiB write, null: in line, no volume", "", bare, "ns", Bound::None);
    report.add("4 KiB write, direct, in line, depth 1", "", direct, "ns", Bound::None);
    report.add("4 KiB write, per-zone, in line, depth 1", "", plugged, "ns", Bound::None);
    report.add(
        "  the plug's cost",
        "direct",
        &plugged.against(direct, |p, d| (p - d).max(0.01)),
        "ns",
        Bound::AtMost(20.0),
    );
    report.add("  its rate", "", &rate(plugged), "M/s", Bound::AtLeast(20.0));
}

fn reset_bare(device: &dyn Device) {
    let command = Command::new(Op::ResetAll, Sector(0), 0);
    device.submit(NOW, 0, &command, &mut Some(Context::token(0)));
}

/// Queue depth 16 into one zone, completing when polled.
pub(super) fn queued(effort: Effort, report: &mut Report) {
    const DEPTH: u64 = 16;
    // A zone holds a whole round, so that every write meets its predecessor.
    let count = effort.operations;
    let polled = EmulatedOptions::default()
        .with_size(1 << 42)
        .with_zone_size(1 << 36)
        .with_complete(CompleteMode::Poll);
    // Without a plug, queue depth requires a device that preserves order.
    let ordered = polled.clone().with_preserves_write_order(true);
    let mut writers = [
        Writer::new(null(ordered), WriteMode::Direct, false),
        Writer::new(null(polled.clone()), WriteMode::PerZone, false),
        Writer::new(null(polled), WriteMode::PerZone, true),
    ];
    let volumes = [1, 2].map(|i: usize| writers[i].volume.clone());
    let [direct, unmerged, merged] = &mut writers;
    let mut cases = [
        Case::new("direct", || round_of(direct, count, DEPTH)),
        Case::new("unmerged", || round_of(unmerged, count, DEPTH)),
        Case::new("merged", || round_of(merged, count, DEPTH)),
    ];
    let samples = interleave(effort.rounds, &mut cases);
    drop(cases);
    let [direct, unmerged, merged] = &samples[..] else { unreachable!("three cases") };
    let commands =
        volumes.map(|v| v.statistics().commands as f64 / ((effort.rounds as u64 + 1) * count) as f64);
    report.add("4 KiB write, direct, polled, depth 16", "", direct, "ns", Bound::None);
    report.add("4 KiB write, per-zone, polled, depth 16, unmerged", "", unmerged, "ns", Bound::None);
    report.add(
        "  the plug's cost",
        "direct",
        &unmerged.against(direct, |p, d| (p - d).max(0.01)),
        "ns",
        Bound::AtMost(40.0),
    );
    let share = unmerged.against(direct, |p, d| (p - d).max(0.01) / d);
    report.add("  its share of a direct write", "direct", &share, "x", Bound::AtMost(0.5));
    report.add_one("  device commands a write", "", commands[0], "", Bound::None);
    report.add("4 KiB write, per-zone, polled, depth 16, merged", "", merged, "ns", Bound::None);
    report.add("  the plug's cost", "direct", &merged.against(direct, |p, d| p / d), "x", Bound::None);
    report.add_one("  device commands a write", "", commands[1], "", Bound::None);
}

/// Writes in mode `pipelined`, at queue depths that fit into the device's queue and at one that
/// does not.
pub(super) fn pipelined(effort: Effort, report: &mut Report) {
    let count = effort.operations;
    let options = EmulatedOptions::default()
        .with_size(1 << 42)
        .with_zone_size(1 << 36)
        .with_complete(CompleteMode::Poll)
        .with_preserves_write_order(true);
    let deep = options.clone().with_hw_queue_depth(256);
    let mut writers =
        [&options, &deep, &options].map(|o| Writer::new(null(o.clone()), WriteMode::Pipelined, false));
    let [few, many, more_than_fit] = &mut writers;
    let mut cases = [
        Case::new("depth 16", || round_of(few, count, 16)),
        Case::new("depth 128", || round_of(many, count, 128)),
        Case::new("depth 128, queue of 64", || round_of(more_than_fit, count, 128)),
    ];
    let samples = interleave(effort.rounds, &mut cases);
    report.add("4 KiB write, pipelined, polled, depth 16, unmerged", "", &samples[0], "ns", Bound::None);
    let against = |i: usize| samples[i].against(&samples[0], |many, few| few / many);
    let name = "4 KiB write, pipelined, polled, depth 128, device queue of 256";
    report.add(name, "depth 16", &against(1), "x", Bound::AtLeast(0.95));
    let name = "4 KiB write, pipelined, polled, depth 128, device queue of 64";
    report.add(name, "depth 16", &against(2), "x", Bound::None);
}

/// Writes to 64 zones in turn at queue depth 64, on a device queue of 16, so that three quarters of
/// them wait for room: in order of arrival, and sorted.
pub(super) fn scheduled(effort: Effort, report: &mut Report) {
    const ZONES: u64 = 64;
    const ZONE_SHIFT: u32 = 32;
    let options = EmulatedOptions::default()
        .with_size(ZONES << ZONE_SHIFT)
        .with_zone_size(1 << ZONE_SHIFT)
        .with_complete(CompleteMode::Poll)
        .with_hw_queue_depth(16);
    let mut writers = SchedulerKind::ALL.map(|scheduler| {
        let volume = VolumeOptions::default().with_mode(WriteMode::PerZone).with_scheduler(scheduler);
        let volume = Volume::open(null(options.clone()), volume.with_merge(false));
        Writer::on(Arc::new(volume.expect("an emulated device opens")))
    });
    let round = |writer: &mut Writer| {
        let ns = time(effort.operations, || {
            for i in 0..effort.operations {
                writer.wait_below(ZONES);
                let (zone, block) = (i % ZONES, i / ZONES);
                let sector = (zone << (ZONE_SHIFT - 9)) + block * u64::from(SECTORS);
                let buf = writer.payload(4096);
                writer.submit(Request::write(Sector(sector), SECTORS, buf));
            }
            writer.wait_below(1);
        });
        writer.reset_all();
        ns
    };
    let [arrival, sorted] = &mut writers;
    let mut cases = [Case::new("none", || round(arrival)), Case::new("mq-deadline", || round(sorted))];
    let samples = interleave(effort.rounds, &mut cases);
    let [arrival, sorted] = &samples[..] else { unreachable!("two cases") };
    let name = "4 KiB writes to 64 zones in turn, per-zone, polled, device queue of 16";
    report.add(name, "", arrival, "ns", Bound::None);
    let beyond = sorted.against(arrival, |sorted, arrival| (sorted - arrival).max(0.01));
    report.add("  beyond it with mq-deadline", "no scheduler", &beyond, "ns", Bound::AtMost(150.0));
}

fn round_of(writer: &mut Writer, count: u64, depth: u64) -> f64 {
    let ns = time(count, || writer.write(0, count, depth));
    writer.reset_all();
    ns
}

/// Zones written in turn, 16 open at a time, on devices with more and more zones; then one random
/// zone for each write.
pub(super) fn zones(effort: Effort, report: &mut Report) {
    const ZONE_WRITES: u64 = 256;
    let count = effort.operations;
    let sizes: Vec<u32> =
        [64, 1000, 112_000, 1_000_000].into_iter().filter(|&n| n <= effort.zones_max).collect();
    let mut walkers: Vec<Walker> = sizes.iter().map(|&n| Walker::new(n, ZONE_WRITES)).collect();
    let mut cases: Vec<Case<'_>> = walkers.iter_mut().map(|w| Case::new("walk", || w.round(count))).collect();
    let samples = interleave(effort.rounds, &mut cases);
    drop(cases);
    for (&zones, s) in sizes.iter().zip(&samples) {
        let bound = if zones == 64 { Bound::None } else { Bound::AtMost(1.1) };
        let name = format!("16 zones open, moving through {zones}");
        report.add(&name, "64 zones", &s.against(&samples[0], |a, b| a / b), "x", bound);
    }
    let mut cases: Vec<Case<'_>> =
        walkers.iter_mut().map(|w| Case::new("random", || w.random(count / 4))).collect();
    let random = interleave(effort.rounds.min(5), &mut cases);
    drop(cases);
    for (&zones, s) in sizes.iter().zip(&random) {
        report.add(&format!("a random zone a write, of {zones}"), "", s, "ns", Bound::None);
    }
}

/// Writes through the zones of a device.
struct Walker {
    writer: Writer,
    zones: u32,
    zone_writes: u64,
    /// The 16 current zones, and the progress in each.
    open: Vec<(u32, u64)>,
    next: u32,
    /// Write pointers for random zones, counted in writes.
    pointers: Vec<u16>,
    random: u64,
}

impl Walker {
    fn new(zones: u32, zone_writes: u64) -> Walker {
        let zone_size = zone_writes * 4096;
        let options =
            EmulatedOptions::default().with_size(zone_size * u64::from(zones)).with_zone_size(zone_size);
        let writer = Writer::new(null(options), WriteMode::PerZone, true);
        let open = (0..16).map(|z| (z, 0)).collect();
        Walker { writer, zones, zone_writes, open, next: 16, pointers: vec![0; zones as usize], random: 1 }
    }

    fn reset(&mut self, zone: u32) {
        let start = self.writer.volume.info().geometry.start_of(ZoneIndex(zone));
        self.writer.submit(Request::zone(Op::ZoneReset, start));
        self.writer.wait_below(1);
    }

    fn write(&mut self, zone: u32, at: u64) {
        let start = self.writer.volume.info().geometry.start_of(ZoneIndex(zone));
        let buf = self.writer.payload(4096);
        self.writer.submit(Request::write(Sector(start.0 + at * u64::from(SECTORS)), SECTORS, buf));
    }

    fn round(&mut self, count: u64) -> f64 {
        time(count, || {
            for i in 0..count {
                let slot = (i % 16) as usize;
                let (zone, at) = self.open[slot];
                self.write(zone, at);
                self.open[slot].1 += 1;
                if at + 1 == self.zone_writes {
                    // Reset before use, so that all devices do equal work, however rarely they
                    // return to a zone.
                    let next = self.next;
                    self.next = (next + 1) % self.zones;
                    self.reset(next);
                    self.open[slot] = (next, 0);
                }
            }
        })
    }

    /// Writes zones in an order that jumps all over the device, skipping full zones.
    fn random(&mut self, count: u64) -> f64 {
        if self.random == 1 {
            self.writer.reset_all();
        }
        time(count, || {
            for _ in 0..count {
                self.random = self
                    .random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let zone = ((self.random >> 33) % u64::from(self.zones)) as u32;
                let at = self.pointers[zone as usize];
                if u64::from(at) == self.zone_writes {
                    self.reset(zone);
                    self.pointers[zone as usize] = 0;
                } else {
                    self.write(zone, u64::from(at));
                    self.pointers[zone as usize] += 1;
                }
            }
        })
    }
}
