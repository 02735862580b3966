use crate::job::JobFile;
use crate::jobs::plan::Plan;
use crate::jobs::workload::{Dir, Ended, Io, Ordering, Placing, WorkerStep, Workload, Zones};
use std::collections::BTreeMap;
use zonal_core::Sector;
use zonal_io::device::Device;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::volume::{WriteMode, report};

/// Sectors per KiB.
const K: u64 = 2;

/// Sixteen zones of 1 MiB. Two are conventional, the others have a capacity of 1000 KiB.
fn run(ordering: Ordering, options: &str) -> Vec<Io> {
    let drive = EmulatedOptions::default()
        .with_size(16 << 20)
        .with_zone_size(1 << 20)
        .with_zone_capacity(1000 << 10)
        .with_zone_nr_conv(2);
    let device = Emulated::new("null", &drive, Null).unwrap();
    let jobs = JobFile::parse_inline(format!("--name=j {options}").split_whitespace()).unwrap();
    let plan = Plan::new(jobs.jobs(), device.info(), WriteMode::PerZone).unwrap();
    let mut options = plan.zones_options(WriteMode::PerZone);
    options.ordering = ordering;
    let zones = Zones::new(device.info().geometry, &report(&device, Sector(0), 100).unwrap(), options);
    zones.add_runnable(1);
    let mut workload = Workload::new(&plan.workers[0]).unwrap();
    let mut ios = Vec::new();
    loop {
        match workload.next(&zones) {
            WorkerStep::Io(io) => {
                workload.submitted(&io, &zones);
                workload.io_ended(&io, &zones);
                ios.push(io);
            }
            WorkerStep::Reset(zone) => workload.ended(&Ended::Reset(zone, true), &zones),
            WorkerStep::Finish(zone) => workload.ended(&Ended::Finish(zone, true), &zones),
            WorkerStep::PassOver if workload.next_pass(&zones) => {}
            WorkerStep::PassOver => return ios,
            step => panic!("{step:?} with nothing in flight"),
        }
    }
}

fn plain(options: &str) -> Vec<Io> {
    run(Ordering::BySubmission, options)
}

/// Frequency of each size in KiB, in percent.
fn shares(ios: &[Io]) -> BTreeMap<u64, f64> {
    let mut counts = BTreeMap::new();
    ios.iter().for_each(|io| *counts.entry(u64::from(io.sectors) / K).or_insert(0.0) += 1.0);
    counts.into_iter().map(|(size, n)| (size, n * 100.0 / ios.len() as f64)).collect()
}

fn assert_shares(ios: &[Io], expected: &[(u64, f64)]) {
    let found = shares(ios);
    let near = |(size, share): &(u64, f64)| found.get(size).is_some_and(|found| (found - share).abs() < 2.5);
    assert!(found.len() == expected.len() && expected.iter().all(near), "{found:?} {expected:?}");
}

const MANY: &str = "--rw=randread --norandommap --size=8m --io_size=400m";

#[test]
fn range_is_drawn_evenly_in_multiples_of_its_smallest() {
    assert_shares(
        &plain(&format!("{MANY} --bsrange=4k-16k")),
        &[(4, 25.0), (8, 25.0), (12, 25.0), (16, 25.0)],
    );
    // fio draws from [min, min + max) and rounds down. Draws above the maximum become the maximum.
    assert_shares(&plain(&format!("{MANY} --bsrange=4k-10k")), &[(4, 40.0), (8, 40.0), (10, 20.0)]);
}

#[test]
fn split_is_drawn_by_its_shares() {
    assert_shares(
        &plain(&format!("{MANY} --bssplit=4k/10:64k/50:32k/40")),
        &[(4, 10.0), (32, 40.0), (64, 50.0)],
    );
    assert_shares(&plain(&format!("{MANY} --bssplit=4k/20:8k/30")), &[(4, 20.0), (8, 80.0)]);
    assert_shares(&plain(&format!("{MANY} --bssplit=6k/50:18k/50")), &[(6, 50.0), (18, 50.0)]);
}

#[test]
fn directions_draw_their_own() {
    let ios = plain("--rw=randrw --norandommap --size=8m --io_size=100m --bsrange=4k-8k,16k-32k");
    let (reads, writes): (Vec<_>, Vec<_>) = ios.iter().partition(|io| io.dir == Dir::Read);
    assert_shares(&reads.into_iter().copied().collect::<Vec<_>>(), &[(4, 50.0), (8, 50.0)]);
    assert_shares(&writes.into_iter().copied().collect::<Vec<_>>(), &[(16, 50.0), (32, 50.0)]);
}

/// Sectors hit, and the number of repeated hits.
fn coverage(ios: &[Io], sectors: u64) -> (u64, u64) {
    let mut hits = vec![0u32; sectors as usize];
    for io in ios {
        (0..u64::from(io.sectors)).for_each(|n| hits[(io.sector.0 + n) as usize] += 1);
    }
    let hit = hits.iter().filter(|&&n| n > 0).count() as u64;
    (hit, hits.iter().map(|&n| u64::from(n)).sum::<u64>() - hit)
}

#[test]
fn every_byte_of_the_range_is_hit_once() {
    for mix in ["--bsrange=4k-64k", "--bssplit=4k/10:64k/50:32k/40", "--bsrange=4k-52k"] {
        for rw in ["read", "write", "randread", "randwrite"] {
            let ios = plain(&format!("--rw={rw} --size=2m {mix}"));
            assert_eq!(coverage(&ios, 2048 * K), (2048 * K, 0), "{rw} {mix}");
        }
    }
}

#[test]
fn sequence_has_no_gaps_and_ends_where_the_smallest_does_not_fit() {
    let ios = plain("--rw=read --size=1001k --bsrange=4k-16k");
    let mut next = 0;
    for io in &ios {
        assert_eq!(io.sector.0, next);
        next += u64::from(io.sectors);
    }
    assert_eq!(next, 1000 * K);
    // If no size with a share fits, the block is cut.
    let ios = plain("--rw=read --size=1001k --bssplit=4k:64k/100");
    assert_eq!(ios.len(), 16);
    assert!(ios[..15].iter().all(|io| u64::from(io.sectors) == 64 * K) && ios[15].sectors == 40 * K as u32);
}

#[test]
fn zone_is_filled_to_its_capacity_and_no_further() {
    for rw in ["write", "randwrite"] {
        for mix in ["--bsrange=4k-64k", "--bssplit=8k/50:256k/50"] {
            let ios = plain(&format!("--rw={rw} --zonemode=zbd --offset=2z --size=6z --io_size=20m {mix}"));
            let mut filled: BTreeMap<u64, u64> = BTreeMap::new();
            let mut full = 0;
            for io in &ios {
                let (zone, offset) = (io.sector.0 / (1024 * K), io.sector.0 % (1024 * K));
                let next = filled.entry(zone).or_default();
                if offset == 0 {
                    *next = 0;
                }
                assert_eq!(offset, *next, "{rw} {mix}: a write beside the pointer");
                *next += u64::from(io.sectors);
                assert!(*next <= 1000 * K, "{rw} {mix}: a write beyond the capacity");
                full += u32::from(*next == 1000 * K);
            }
            assert!(filled.len() == 6 && full > 5, "{rw} {mix}: {full} {filled:?}");
        }
    }
}

#[test]
fn appends_of_different_sizes_name_their_zones() {
    let ios = run(Ordering::ByDevice, "--rw=write --zonemode=zbd --offset=2z --size=3z --bsrange=4k-64k");
    assert!(ios.iter().all(|io| io.placing == Placing::Append && io.sector.0 % (1024 * K) == 0));
    assert_eq!(ios.iter().map(|io| u64::from(io.sectors)).sum::<u64>(), 3 * 1000 * K);
}

#[test]
fn write_before_the_sequential_zones_is_cut() {
    let ios = plain("--rw=randwrite --zonemode=zbd --size=4m --norandommap --io_size=40m --bsrange=4k-256k");
    let border = 2 * 1024 * K;
    let of_conventional = ios.iter().filter(|io| io.sector.0 < border);
    let ends: Vec<u64> = of_conventional.map(|io| io.sector.0 + u64::from(io.sectors)).collect();
    assert!(ends.iter().all(|&end| end <= border) && ends.contains(&border));
}

#[test]
fn reads_stay_before_the_pointers() {
    let ios =
        plain("--rw=randrw --zonemode=zbd --offset=2z --size=2z --norandommap --io_size=9m --bsrange=4k-64k");
    let mut pointers = BTreeMap::new();
    for io in &ios {
        let zone = io.sector.0 / (1024 * K);
        let end = io.sector.0 + u64::from(io.sectors);
        match io.dir {
            Dir::Write => drop(pointers.insert(zone, end)),
            Dir::Read => assert!(end <= pointers[&zone]),
        }
    }
    assert!(ios.iter().any(|io| io.dir == Dir::Read));
}
