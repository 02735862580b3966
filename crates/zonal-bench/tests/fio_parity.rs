//! The same jobs run by fio on zones it emulates in a file, and here: reads, writes and resets have to be as many.
//!
//! fio's engine is an asynchronous one: its synchronous engines do not end a pass at the job's size.

mod support;

use std::process::Command;
use support::{Fault, job, memory, run_on};
use zonal_bench::workload::Dir;
use zonal_io::emulated::EmulatedOptions;
use zonal_io::volume::WriteMode;

/// Zones of the drive, of 1 MiB each.
const ZONES: u64 = 32;

/// Reads, writes and resets of each job.
type Counts = Vec<(u64, u64, u64)>;

/// `arguments` run by fio; `None` if it is not installed.
fn by_fio(capacity: u64, arguments: &str) -> Option<Counts> {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("drive")).unwrap();
    file.set_len(ZONES << 20).unwrap();
    let output = Command::new("fio")
        .args(["--filename=drive", "--ioengine=posixaio", "--thread", "--output-format=normal"])
        .args(["--zonemode=zbd", "--zonesize=1M", &format!("--zonecapacity={capacity}")])
        .args(arguments.split_whitespace())
        .current_dir(directory.path())
        .output();
    let Ok(output) = output else {
        println!("skipped: fio is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let mut counts = Vec::new();
    let mut resets = 0;
    for line in text.lines() {
        if let Some((before, _)) = line.split_once(" zone resets") {
            resets = before.rsplit(' ').next().unwrap().parse().unwrap();
        }
        if let Some(issued) = line.trim().strip_prefix("issued rwts: total=") {
            let mut numbers = issued.split([',', ' ']).map(|n| n.parse::<u64>().unwrap());
            counts.push((numbers.next().unwrap(), numbers.next().unwrap(), std::mem::take(&mut resets)));
        }
    }
    Some(counts)
}

fn by_us(capacity: u64, arguments: &str, mode: WriteMode) -> Counts {
    let options = EmulatedOptions {
        size: ZONES << 20,
        zone_size: 1 << 20,
        zone_capacity: capacity,
        ..EmulatedOptions::default()
    };
    let device = memory(&options, Fault::None);
    let report = run_on(&device, mode, &format!("--zonemode=zbd --zonesize=1M {arguments}"));
    (0..report.modes[0].jobs.len())
        .map(|n| job(&report, n))
        .map(|job| (job.dir(Dir::Read).ios, job.dir(Dir::Write).ios, job.resets))
        .collect()
}

fn agree(capacity: u64, arguments: &str) {
    let Some(theirs) = by_fio(capacity, arguments) else { return };
    assert!(theirs.iter().any(|counts| counts.0 + counts.1 > 0), "fio did nothing: {arguments}");
    for mode in [WriteMode::Direct, WriteMode::PerZone, WriteMode::Append] {
        assert_eq!(by_us(capacity, arguments, mode), theirs, "{mode}: {arguments}");
    }
}

const WHOLE: u64 = 1 << 20;

#[test]
fn sequential_writes_fill_reset_and_fill_again() {
    for capacity in [WHOLE, 768 << 10] {
        agree(capacity, "--name=a --rw=write --bs=64k --size=8z");
        agree(capacity, "--name=a --rw=write --bs=64k --size=8z --loops=3");
        agree(
            capacity,
            "--name=a --rw=write --bs=64k --size=8z --name=b --stonewall --rw=write --bs=32k --size=12z",
        );
        agree(capacity, "--name=a --rw=write --bs=64k --size=4z --io_size=2z");
        agree(capacity, "--name=a --rw=write --bs=64k --offset=3z --size=4z --max_open_zones=1");
    }
}

#[test]
fn amounts_beyond_the_range_go_round() {
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --io_size=10z");
    agree(
        WHOLE,
        "--name=w --rw=write --bs=64k --size=4z --name=a --stonewall --rw=read --bs=64k --size=4z --io_size=6z",
    );
}

#[test]
fn random_writes_with_a_map_hit_as_many_blocks() {
    agree(WHOLE, "--name=a --rw=randwrite --bs=64k --size=8z");
    agree(WHOLE, "--name=a --rw=randwrite --bs=64k --size=8z --max_open_zones=3");
    agree(WHOLE, "--name=a --rw=randwrite --bs=128k --size=8z --numjobs=1 --loops=2");
}

#[test]
fn reads_find_what_was_written_and_no_more() {
    for capacity in [WHOLE, 512 << 10] {
        let fill = "--name=w --rw=write --bs=64k --offset=2z --size=3z --io_size=1600k";
        agree(capacity, &format!("{fill} --name=r --stonewall --rw=read --bs=64k --size=10z"));
        agree(capacity, &format!("{fill} --name=r --stonewall --rw=randread --bs=64k --offset=0 --size=10z"));
    }
}

#[test]
fn reads_beyond_the_pointer_cover_the_range() {
    agree(
        WHOLE,
        "--name=w --rw=write --bs=64k --size=1z --name=r --stonewall --rw=read --bs=64k --size=4z --read_beyond_wp=1",
    );
}

#[test]
fn resets_by_frequency_are_as_many() {
    agree(
        WHOLE,
        "--name=a --rw=write --bs=64k --size=8z --io_size=16z --zone_reset_threshold=.25 --zone_reset_frequency=.1",
    );
}

#[test]
fn verified_writes_are_read_back_as_often() {
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --verify=crc32c");
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --verify=crc32c --loops=2");
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=4z --verify=crc32c --do_verify=0");
}

#[test]
fn flushes_come_between_writes() {
    agree(WHOLE, "--name=a --rw=write --bs=64k --size=2z --fsync=4");
}
