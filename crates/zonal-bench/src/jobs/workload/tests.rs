use super::*;
use crate::job::JobFile;
use crate::jobs::plan::Plan;
use std::collections::VecDeque;
use zonal_core::{Geometry, Sectors, ZoneDescriptor};
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::volume::WriteMode;

mod host;

/// Sectors of a block of 4 KiB.
const BLOCK: u32 = 8;
/// Sectors of a zone: 16 blocks.
const ZONE: u64 = 128;

/// Eight zones of 16 blocks. The first is conventional, the others have a capacity of 12 blocks.
fn options() -> EmulatedOptions {
    EmulatedOptions::default()
        .with_size(8 * ZONE * 512)
        .with_zone_size(ZONE * 512)
        .with_zone_capacity(96 * 512)
        .with_zone_nr_conv(1)
}

/// Several workers on shared zones, without a device. Requests complete when the test says so.
struct Bench {
    zones: Zones,
    workloads: Vec<Workload>,
    running: Vec<VecDeque<Ended>>,
    log: Vec<String>,
}

impl Bench {
    fn new(options: &EmulatedOptions, ordering: Ordering, job: &str) -> Bench {
        Bench::on(options, ordering, job, |_| {})
    }

    /// With workers that follow fio's ownership rule.
    fn fio(job: &str) -> Bench {
        Bench::with(&options(), Ordering::BySubmission, HostRules::Fio, job, |_| {})
    }

    /// With zones set up by `prepare`.
    fn on(
        options: &EmulatedOptions,
        ordering: Ordering,
        job: &str,
        prepare: impl FnOnce(&mut Vec<ZoneDescriptor>),
    ) -> Bench {
        Bench::with(options, ordering, HostRules::Zonal, job, prepare)
    }

    fn with(
        options: &EmulatedOptions,
        ordering: Ordering,
        rules: HostRules,
        job: &str,
        prepare: impl FnOnce(&mut Vec<ZoneDescriptor>),
    ) -> Bench {
        let device = Emulated::new("null", options, Null).unwrap();
        let info = device.info();
        let jobs = JobFile::parse_inline(format!("--name=j --bs=4k {job}").split(' ')).unwrap();
        let mut plan = Plan::new(jobs.jobs(), info, WriteMode::PerZone).unwrap();
        plan.set_rules(rules, WriteMode::PerZone);
        let sector = info.geometry.start_of(ZoneIndex(0));
        let mut descriptors = zonal_io::volume::report(&device, sector, 1000).unwrap().to_vec();
        prepare(&mut descriptors);
        let options = ZonesOptions {
            ordering,
            open_max: plan.open_max,
            counts_written: true,
            counts_generations: true,
            write_sectors_max: BLOCK,
            keeps_holds: plan.workers.iter().any(|worker| worker.holds_zones),
        };
        let zones = Zones::new(info.geometry, &descriptors, options);
        zones.recount(std::iter::once(0..info.geometry.zones()));
        zones.add_runnable(plan.workers.len() as u32);
        let workloads: Vec<_> = plan.workers.iter().map(|plan| Workload::new(plan).unwrap()).collect();
        Bench {
            zones,
            running: workloads.iter().map(|_| VecDeque::new()).collect(),
            workloads,
            log: Vec::new(),
        }
    }

    /// Executes the next step of worker `w`.
    fn step(&mut self, w: usize) -> WorkerStep {
        let step = self.workloads[w].next(&self.zones);
        let geometry = *self.zones.geometry();
        match step {
            WorkerStep::Io(io) => {
                self.workloads[w].submitted(&io, &self.zones);
                self.running[w].push_back(Ended::Io(io));
                let zone = geometry.zone_of(io.sector);
                let block = geometry.offset_of(io.sector) / BLOCK;
                let what = match (io.dir, io.placing) {
                    (Dir::Read, _) => format!("r{zone}.{block}"),
                    (Dir::Write, Placing::At) => format!("w{zone}.{block}"),
                    (Dir::Write, Placing::Append) => format!("a{zone}"),
                };
                self.log.push(what);
            }
            WorkerStep::Reset(zone) => {
                self.running[w].push_back(Ended::Reset(zone, true));
                self.log.push(format!("reset{zone}"));
            }
            WorkerStep::Finish(zone) => {
                self.running[w].push_back(Ended::Finish(zone, true));
                self.log.push(format!("finish{zone}"));
            }
            WorkerStep::Flush => self.log.push("flush".to_owned()),
            WorkerStep::Wait => self.log.push("wait".to_owned()),
            WorkerStep::PassOver => self.log.push("over".to_owned()),
            WorkerStep::NotBefore(_)
            | WorkerStep::SpinUntil(_)
            | WorkerStep::RampOver
            | WorkerStep::Logged(_) => {
                unreachable!("nothing is paced here")
            }
        }
        step
    }

    /// Completes the oldest request of worker `w`.
    fn end(&mut self, w: usize) {
        let ended = self.running[w].pop_front().expect("something is running");
        self.workloads[w].ended(&ended, &self.zones);
    }

    fn end_all(&mut self, w: usize) {
        while !self.running[w].is_empty() {
            self.end(w);
        }
    }

    /// Runs worker `w` alone for at most `steps` steps of this pass. Requests complete at once.
    fn run(&mut self, w: usize, steps: usize) -> &mut Bench {
        for _ in 0..steps {
            let step = self.step(w);
            self.end_all(w);
            if step == WorkerStep::PassOver {
                break;
            }
        }
        self
    }

    /// Returns the log since the last call. Runs of consecutive blocks are shown as `w1.0-11`.
    fn log(&mut self) -> String {
        let log = std::mem::take(&mut self.log);
        let mut out: Vec<(String, u32, u32)> = Vec::new();
        for entry in log {
            match entry.split_once('.') {
                Some((zone, block)) => {
                    let block: u32 = block.parse().unwrap();
                    match out.last_mut() {
                        Some((z, _, last)) if z == zone && *last + 1 == block => *last = block,
                        _ => out.push((zone.to_owned(), block, block)),
                    }
                }
                None => out.push((entry, u32::MAX, u32::MAX)),
            }
        }
        let words = out.into_iter().map(|(z, a, b)| match (a, b) {
            (u32::MAX, _) => z,
            (a, b) if a == b => format!("{z}.{a}"),
            (a, b) => format!("{z}.{a}-{b}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn next_pass(&mut self, w: usize) -> bool {
        self.workloads[w].next_pass(&self.zones)
    }
}

/// Sets the write pointer of a zone to `blocks`.
fn written(zones: &mut [ZoneDescriptor], zone: usize, blocks: u64) {
    use zonal_core::ZoneCondition;
    let z = &mut zones[zone];
    if blocks * u64::from(BLOCK) == z.capacity.0 {
        (z.condition, z.write_pointer) = (ZoneCondition::Full, None);
    } else {
        z.condition = ZoneCondition::Closed;
        z.write_pointer = Some(z.start + Sectors(blocks * u64::from(BLOCK)));
    }
}

#[test]
fn same_seed_gives_the_same_offsets() {
    let job = "--rw=randrw --zonemode=zbd --offset=1z --size=7z --randseed=";
    let log =
        |seed: &str| Bench::new(&options(), Ordering::BySubmission, &format!("{job}{seed}")).run(0, 60).log();
    assert_eq!(log("5"), log("5"));
    assert_ne!(log("5"), log("6"));
}

#[test]
fn clones_draw_different_offsets() {
    let mut bench =
        Bench::new(&options(), Ordering::BySubmission, "--rw=randread --numjobs=2 --size=1z --zonemode=zbd");
    let first = bench.run(0, 10).log();
    let second = bench.run(1, 10).log();
    assert_ne!(first, second);
}

#[test]
fn repeated_pass_draws_the_same_offsets() {
    let job = "--rw=randread --size=64k --loops=2 --randseed=3";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    let first = bench.run(0, 100).log();
    assert!(bench.next_pass(0));
    assert_eq!(first, bench.run(0, 100).log());
    assert!(!bench.next_pass(0));
}

#[test]
fn repeated_pass_without_randrepeat_draws_others() {
    let job = "--rw=randread --size=64k --loops=2 --randrepeat=0 --randseed=3";
    let passes = || {
        let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
        let first = bench.run(0, 100).log();
        assert!(bench.next_pass(0));
        (first, bench.run(0, 100).log())
    };
    let (first, second) = passes();
    assert_ne!(first, second);
    assert_eq!((first, second), passes(), "a given seed still decides everything");
}

#[test]
fn random_map_hits_every_block_once() {
    let mut bench = Bench::new(&options(), Ordering::BySubmission, "--rw=randread --size=64k");
    let mut hit: Vec<String> = bench.run(0, 100).log().split(' ').map(str::to_owned).collect();
    assert_eq!(hit.pop().as_deref(), Some("over"));
    hit.sort();
    hit.dedup();
    assert_eq!(hit.len(), 16, "{hit:?}");
}

#[test]
fn sequential_write_goes_from_zone_to_zone_within_capacity() {
    let mut bench =
        Bench::new(&options(), Ordering::BySubmission, "--rw=write --zonemode=zbd --offset=1z --size=3z");
    assert_eq!(bench.run(0, 100).log(), "w1.0-11 w2.0-11 w3.0-11 over");
    assert!(!bench.next_pass(0));
}

#[test]
fn sequential_write_resumes_at_the_write_pointer_and_resets_a_full_zone() {
    let mut bench = Bench::on(
        &options(),
        Ordering::BySubmission,
        "--rw=write --zonemode=zbd --offset=1z --size=3z",
        |z| {
            written(z, 1, 5);
            written(z, 2, 12);
        },
    );
    assert_eq!(bench.run(0, 100).log(), "w1.5-11 reset2 w2.0-11 w3.0-11 over");
}

#[test]
fn sequential_write_repeated_resets_each_zone_first() {
    let mut bench = Bench::new(
        &options(),
        Ordering::BySubmission,
        "--rw=write --zonemode=zbd --offset=1z --size=2z --loops=2",
    );
    assert_eq!(bench.run(0, 100).log(), "w1.0-11 w2.0-11 over");
    assert!(bench.next_pass(0));
    assert_eq!(bench.run(0, 100).log(), "reset1 w1.0-11 reset2 w2.0-11 over");
    assert!(!bench.next_pass(0));
}

#[test]
fn reset_waits_for_writes_in_flight() {
    let mut bench = Bench::new(
        &options(),
        Ordering::BySubmission,
        "--rw=write --zonemode=zbd --offset=1z --size=1z --loops=2",
    );
    for _ in 0..12 {
        bench.step(0);
    }
    assert_eq!(bench.step(0), WorkerStep::PassOver);
    assert!(bench.next_pass(0));
    assert_eq!(bench.step(0), WorkerStep::Wait);
    (0..11).for_each(|_| bench.end(0));
    assert_eq!(bench.step(0), WorkerStep::Wait);
    bench.end(0);
    assert_eq!(bench.step(0), WorkerStep::Reset(ZoneIndex(1)));
    assert_eq!(bench.step(0), WorkerStep::Wait, "nothing goes out while the reset is on its way");
    bench.end(0);
    bench.log();
    assert_eq!(bench.run(0, 3).log(), "w1.0-2");
}

#[test]
fn random_write_lands_at_the_write_pointer_of_the_chosen_zone() {
    let job = "--rw=randwrite --zonemode=zbd --offset=1z --size=7z --norandommap --io_size=200k";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    bench.run(0, 50);
    let mut next = [0u32; 8];
    for entry in std::mem::take(&mut bench.log) {
        let Some((zone, block)) = entry.strip_prefix('w').and_then(|e| e.split_once('.')) else { continue };
        let zone: usize = zone.parse().unwrap();
        assert_eq!(block.parse::<u32>().unwrap(), next[zone], "zone {zone}");
        next[zone] += 1;
    }
    assert!(next.iter().filter(|&&n| n > 0).count() > 3, "{next:?}");
}

#[test]
fn open_limit_holds_and_a_full_zone_makes_room() {
    let job =
        "--rw=randwrite --zonemode=zbd --offset=1z --size=7z --max_open_zones=2 --norandommap --io_size=7z";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..80 {
        if let WorkerStep::Io(io) = bench.step(0) {
            seen.insert(bench.zones.geometry().zone_of(io.sector).0);
        }
        let open = (1..8).filter(|&z| bench.zones.is_open(ZoneIndex(z))).count();
        assert!(open <= 2 && open == bench.zones.open_zones());
        bench.end_all(0);
    }
    assert!(seen.len() > 4, "{seen:?}");
}

#[test]
fn limit_of_a_job_holds_for_each_clone() {
    let job = "--rw=randwrite --zonemode=zbd --offset=1z --size=7z --max_open_zones=5 --job_max_open_zones=2 \
               --numjobs=2 --norandommap --io_size=20z";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..400 {
        let worker = turn % 2;
        if let WorkerStep::Io(io) = bench.step(worker) {
            seen.insert(bench.zones.geometry().zone_of(io.sector).0);
        }
        bench.end_all(worker);
        assert!(bench.zones.open_zones() <= 4, "two of each");
    }
    assert!(seen.len() == 7 && bench.zones.open_zones() >= 3, "{seen:?}");
}

#[test]
fn limit_of_a_job_leaves_the_zones_of_others_open_to_it() {
    let job = "--rw=write --zonemode=zbd --max_open_zones=3 --job_max_open_zones=1 --offset=1z --size=2z --numjobs=2 \
               --offset_increment=1z";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    // The first worker has zone 1 and the second one zone 2. At the end of its zone, the first may
    // open another.
    assert_eq!(bench.run(0, 3).log(), "w1.0-2");
    assert_eq!(bench.run(1, 3).log(), "w2.0-2");
    assert_eq!(bench.run(0, 12).log(), "w1.3-11 w2.3-5");
    assert_eq!(bench.zones.open_zones(), 1);
}

#[test]
fn zone_filled_by_writes_in_flight_stays_open_until_they_end() {
    let job = "--rw=write --zonemode=zbd --offset=1z --size=3z --max_open_zones=1";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    for _ in 0..12 {
        bench.step(0);
    }
    assert_eq!(bench.step(0), WorkerStep::Wait, "the next zone may not be opened yet");
    bench.end_all(0);
    bench.log();
    assert_eq!(bench.run(0, 2).log(), "w2.0-1");
}

#[test]
fn limit_of_the_device_holds_without_a_limit_of_the_job() {
    let options = options().with_zone_max_open(3).with_zone_max_active(3);
    let job = "--rw=randwrite --zonemode=zbd --offset=1z --size=7z --norandommap --io_size=1m";
    let mut bench = Bench::new(&options, Ordering::BySubmission, job);
    for _ in 0..100 {
        bench.step(0);
        assert!(bench.zones.open_zones() <= 3);
        bench.end_all(0);
    }
}

#[test]
fn remainder_smaller_than_a_block_is_finished_where_zones_are_limited() {
    // A capacity of 96 sectors holds one block of 64 and leaves 32.
    let job = "--rw=write --zonemode=zbd --offset=1z --size=3z --bs=32k --max_open_zones=1";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    bench.run(0, 20);
    assert_eq!(bench.log.join(" "), "w1.0 finish1 w2.0 finish2 w3.0 over");
    let mut unlimited = Bench::new(
        &options(),
        Ordering::BySubmission,
        "--rw=write --zonemode=zbd --offset=1z --size=3z --bs=32k",
    );
    unlimited.run(0, 20);
    assert_eq!(unlimited.log.join(" "), "w1.0 w2.0 w3.0 over");
}

#[test]
fn reset_frequency_resets_every_nth_write_from_the_threshold_on() {
    let job = "--rw=write --zonemode=zbd --offset=1z --size=2z --zone_reset_threshold=0.01 --zone_reset_frequency=0.25";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    // The first write exceeds the threshold of 2.56 sectors. After that, every fourth write resets.
    assert_eq!(bench.run(0, 11).log(), "w1.0-3 reset1 w1.0-3 reset1 w1.0");
}

#[test]
fn conventional_zone_is_written_anywhere_and_not_beyond() {
    let job = "--rw=write --zonemode=zbd --size=2z --bs=12k";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    bench.run(0, 12);
    // 16 blocks hold five writes of three blocks. The sixth is moved down to end with the zone.
    assert_eq!(bench.log[..8].join(" "), "w0.0 w0.3 w0.6 w0.9 w0.12 w0.13 w1.0 w1.3");
}

#[test]
fn sequential_read_skips_empty_zones_and_stops_at_the_pointer() {
    let mut bench = Bench::on(
        &options(),
        Ordering::BySubmission,
        "--rw=read --zonemode=zbd --offset=1z --size=6z",
        |z| {
            written(z, 2, 3);
            written(z, 4, 12);
            written(z, 6, 1);
        },
    );
    assert_eq!(bench.run(0, 100).log(), "r2.0-2 r4.0-11 r6.0 over");
}

#[test]
fn random_read_picks_a_zone_with_data() {
    let job = "--rw=randread --zonemode=zbd --offset=1z --size=6z --norandommap --io_size=400k";
    let mut bench = Bench::on(&options(), Ordering::BySubmission, job, |z| {
        written(z, 3, 4);
    });
    bench.run(0, 100);
    let reads: std::collections::BTreeSet<_> = bench.log.iter().filter(|e| *e != "over").cloned().collect();
    assert_eq!(reads.into_iter().collect::<Vec<_>>(), ["r3.0", "r3.1", "r3.2", "r3.3"]);
}

#[test]
fn read_of_nothing_ends_the_job() {
    for rw in ["read", "randread"] {
        let job = format!("--rw={rw} --zonemode=zbd --offset=1z --size=6z --time_based --runtime=1h");
        let mut bench = Bench::new(&options(), Ordering::BySubmission, &job);
        assert_eq!(bench.run(0, 100).log(), "over");
        assert!(!bench.next_pass(0), "a time-based job that finds nothing ends too");
    }
}

#[test]
fn read_beyond_the_pointer_where_asked_for() {
    let job = "--rw=read --zonemode=zbd --offset=1z --size=1z --read_beyond_wp=1";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    assert_eq!(bench.run(0, 100).log(), "r1.0-15 over");
}

#[test]
fn read_does_not_reach_writes_in_flight() {
    let zones = Bench::new(&options(), Ordering::ByDevice, "--rw=write --zonemode=zbd --offset=1z --size=1z");
    let mut bench = zones;
    for _ in 0..3 {
        bench.step(0);
    }
    assert_eq!(bench.zones.readable(ZoneIndex(1)), 0);
    bench.end(0);
    assert_eq!(bench.zones.readable(ZoneIndex(1)), BLOCK);
}

#[test]
fn mixed_job_on_empty_zones_writes_first() {
    let job = "--rw=randrw --rwmixread=99 --zonemode=zbd --offset=1z --size=6z --norandommap --io_size=200k";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    let step = bench.step(0);
    assert!(matches!(step, WorkerStep::Io(Io { dir: Dir::Write, .. })), "{step:?}");
    assert_eq!(bench.step(0), WorkerStep::Wait, "a read waits for what is in flight");
    bench.end_all(0);
    assert!(matches!(bench.step(0), WorkerStep::Io(Io { dir: Dir::Read, .. })));
}

#[test]
fn mix_keeps_its_share() {
    let job = "--rw=randrw --rwmixread=70 --zonemode=none --size=512k --norandommap --io_size=40m";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    bench.run(0, 10_000);
    let reads = bench.log.iter().filter(|e| e.starts_with('r')).count();
    assert!((6_800..=7_200).contains(&reads), "{reads}");
}

#[test]
fn appends_take_room_and_leave_the_place_to_the_device() {
    let mut bench =
        Bench::new(&options(), Ordering::ByDevice, "--rw=write --zonemode=zbd --offset=1z --size=2z");
    bench.run(0, 100);
    let appends = |zone: &str| bench.log.iter().filter(|e| *e == zone).count();
    assert_eq!((appends("a1"), appends("a2")), (12, 12));
}

#[test]
fn one_write_in_flight_where_nothing_orders() {
    let mut bench =
        Bench::new(&options(), Ordering::OneInFlight, "--rw=write --zonemode=zbd --offset=1z --size=1z");
    assert!(matches!(bench.step(0), WorkerStep::Io(_)));
    assert_eq!(bench.step(0), WorkerStep::Wait);
    bench.end(0);
    assert!(matches!(bench.step(0), WorkerStep::Io(_)));
}

#[test]
fn workers_that_share_a_zone_take_places_in_turn() {
    let job = "--rw=write --zonemode=zbd --offset=1z --size=1z --numjobs=2";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    for w in [0, 1, 1, 0, 1] {
        bench.step(w);
    }
    assert_eq!(bench.log(), "w1.0-4");
}

#[test]
fn place_is_held_until_the_write_is_submitted() {
    let job = "--rw=write --zonemode=zbd --offset=1z --size=1z --numjobs=2";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    let WorkerStep::Io(io) = bench.workloads[0].next(&bench.zones) else { panic!() };
    assert_eq!(bench.workloads[1].next(&bench.zones), WorkerStep::Wait);
    bench.workloads[0].submitted(&io, &bench.zones);
    assert!(matches!(bench.workloads[1].next(&bench.zones), WorkerStep::Io(_)));
}

#[test]
fn workers_with_disjoint_ranges_are_exclusive() {
    let device = Emulated::new("null", &options(), Null).unwrap();
    let alone = |job: &str| {
        let jobs =
            JobFile::parse_inline(format!("--name=j --bs=4k --zonemode=zbd {job}").split(' ')).unwrap();
        let plan = Plan::new(jobs.jobs(), device.info(), WriteMode::PerZone).unwrap();
        plan.workers.iter().map(|w| w.is_exclusive).collect::<Vec<_>>()
    };
    assert_eq!(alone("--rw=write --numjobs=3 --size=2z --offset_increment=2z"), [true; 3]);
    assert_eq!(alone("--rw=write --numjobs=3 --size=3z --offset_increment=2z"), [false; 3]);
    assert_eq!(alone("--rw=read --numjobs=2"), [false; 2]);
}

#[test]
fn dead_zone_is_passed_over() {
    let mut bench = Bench::on(
        &options(),
        Ordering::BySubmission,
        "--rw=write --zonemode=zbd --offset=1z --size=3z",
        |z| {
            z[2].condition = zonal_core::ZoneCondition::ReadOnly;
            z[2].write_pointer = None;
        },
    );
    let log = bench.run(0, 30).log();
    assert!(log.starts_with("w1.0-11 w3.0-11"), "{log}");
}

#[test]
fn verified_write_moves_on_from_a_full_zone_and_erases_before_a_pass() {
    let job = "--rw=write --zonemode=zbd --offset=1z --size=2z --loops=2 --verify=crc32c";
    let mut bench = Bench::on(&options(), Ordering::BySubmission, job, |z| written(z, 1, 12));
    assert_eq!(bench.run(0, 100).log(), "w2.0-11 over", "no reset within a pass");
    assert!(bench.next_pass(0));
    assert_eq!(bench.run(0, 100).log(), "reset1 reset2 w1.0-11 w2.0-11 over");
    assert_eq!(bench.zones.generation(ZoneIndex(1)), 1);
}

#[test]
fn full_zone_to_be_verified_does_not_enter_the_open_set() {
    let job = "--rw=randwrite --zonemode=zbd --offset=1z --size=4z --max_open_zones=2 --verify=crc32c";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    bench.run(0, 1000);
    assert_eq!(bench.log.iter().filter(|entry| entry.starts_with('w')).count(), 4 * 12);
    assert_eq!(bench.zones.open_zones(), 0);
}

#[test]
fn worker_without_a_zone_waits_for_others_and_ends_when_nobody_moves() {
    // The first worker takes the one open zone, which is outside the range of the second.
    let job = "--rw=write --zonemode=zbd --offset=1z --size=2z --offset_increment=2z --numjobs=2 --max_open_zones=1";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    assert!(matches!(bench.step(0), WorkerStep::Io(_)));
    assert_eq!(bench.step(1), WorkerStep::Wait);
    bench.end_all(0);
    bench.workloads[0].end(&bench.zones);
    assert_eq!(bench.step(1), WorkerStep::PassOver);
}

#[test]
fn fsync_follows_every_nth_write() {
    let mut bench = Bench::new(
        &options(),
        Ordering::BySubmission,
        "--rw=write --zonemode=zbd --offset=1z --size=1z --fsync=4",
    );
    assert_eq!(bench.run(0, 100).log(), "w1.0-3 flush w1.4-7 flush w1.8-11 flush over");
}

#[test]
fn io_size_beyond_size_repeats_the_range() {
    let job = "--rw=read --size=16k --io_size=40k --offset=4k";
    let mut bench = Bench::new(&options(), Ordering::BySubmission, job);
    assert_eq!(bench.run(0, 100).log(), "r0.1-4 over");
    assert!(bench.next_pass(0));
    assert_eq!(bench.run(0, 100).log(), "r0.1-4 over");
    assert!(bench.next_pass(0));
    assert_eq!(bench.run(0, 100).log(), "r0.1-2 over");
    assert!(!bench.next_pass(0));
}

#[test]
fn loops_multiply_the_amount() {
    let mut bench = Bench::new(&options(), Ordering::BySubmission, "--rw=read --size=16k --loops=3");
    for last in [false, false, true] {
        assert_eq!(bench.run(0, 100).log(), "r0.0-3 over");
        assert_eq!(bench.next_pass(0), !last);
    }
}

#[test]
fn geometry_of_the_tests_is_as_they_say() {
    let geometry = options().geometry().unwrap();
    let expected = Geometry::new(Sectors(8 * ZONE), Sectors(ZONE), Sectors(96), 1).unwrap();
    assert_eq!(geometry, expected);
}
