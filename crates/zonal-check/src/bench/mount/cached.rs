//! Writes through the kernel's page cache.

use super::super::Effort;
use super::super::files::{BLOCK, PIECE, rate};
use super::super::measure::Samples;
use super::super::report::{Bound, Report};
use super::{Mounted, PIECES, UNIT_MAX, against, aligned, drive, in_turn, write_in_a_row};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zonal_fs::FileSystem;
use zonal_fuse::least::Work;
use zonal_io::buffer::IoBuf;
use zonal_sim::Profile;

/// Sequential writes of 4 KiB with a sync at the end, on a mount with or without write-back, and
/// the resulting bytes on the drive.
pub fn small_writes(effort: Effort, report: &mut Report, (option, writeback): (&str, bool), bound: Bound) {
    let pieces = if effort.operations < 100_000 { 4 } else { PIECES };
    let ours = Mounted::files_with(&drive("ram", UNIT_MAX), writeback);
    let least = Mounted::least_with(Work::SumAndCopy(PIECES as usize), writeback);
    let memory = aligned(BLOCK);
    let files = [&ours, &least].map(|mounted| File::create(mounted.at("file")).expect("there is room"));
    ours.touch(&ours.direct("touched"), pieces, &aligned(32 << 20));
    fs::remove_file(ours.at("touched")).expect("it is there");
    ours.settle();
    let count = pieces * PIECE / BLOCK;
    let write = |file: &File| {
        (0..count).for_each(|i| file.write_all_at(&memory, i * BLOCK).expect("there is room"));
        file.sync_data().expect("the drive takes it");
    };
    let fs = ours.fs.as_ref().expect("it is ours");
    let before = moved(fs);
    let rounds = effort.rounds.min(9);
    let cases: [&mut dyn FnMut(usize); 2] = [&mut |_| write(&files[0]), &mut |_| write(&files[1])];
    let costs = in_turn(rounds, count, cases, || ours.settle());
    let name = format!("mount: 4 KiB buffered writes in a row and fdatasync, {option}");
    against(report, &name, "a server that sums and copies", &costs, bound);
    report.add("  their time", "", &costs[0].wall, "ns", Bound::None);
    // The warm-up round is not in `rounds`.
    let bytes = (rounds as u64 + 1) * count * BLOCK;
    let on_drive = (moved(fs) - before) as f64 / bytes as f64;
    report.add_one("  bytes on the drive for each", "", on_drive, "", Bound::AtMost(1.1));
}

/// Reads of pages that the kernel has cached: no request reaches the server, provided that the
/// kernel may keep the pages.
pub fn reads(effort: Effort, report: &mut Report) {
    let pieces = if effort.operations < 100_000 { 4 } else { PIECES };
    let (ours, least) =
        (Mounted::files(&drive("ram", UNIT_MAX)), Mounted::least(Work::SumAndCopy(PIECES as usize)));
    let memory = aligned(32 << 20);
    let files = [&ours, &least].map(|mounted| {
        write_in_a_row(&mounted.direct("file"), pieces, &memory);
        move || File::open(mounted.at("file")).expect("it is there")
    });
    let [mut read, mut read_least] = [&files[0], &files[1]].map(|open| {
        let mut into = IoBuf::zeroed(PIECE as u32);
        move |_| {
            // Opened again: the pages read before must still be valid.
            let file = open();
            (0..pieces).for_each(|i| file.read_exact_at(&mut into, i * PIECE).expect("it is there"));
        }
    });
    let costs = in_turn(effort.rounds.min(9), pieces, [&mut read, &mut read_least], || {});
    let name = "mount: 1 MiB reads out of the page cache";
    against(report, name, "a server that does nothing", &costs, Bound::AtLeast(0.9));
    report.add("  their rate", "", &rate(&costs[0].wall, PIECE), "GB/s", Bound::None);
}

/// Bytes written to or read from the drive.
fn moved(fs: &FileSystem) -> u64 {
    fs.volume().statistics().sectors * 512
}

/// Programs that stream to a simulated disk in real time. The rate is measured from the time at
/// which the disk is busy until the end.
pub fn streams(effort: Effort, report: &mut Report) {
    const DISK: &str = "smr-hdd-30t";
    let is_short = effort.operations < 100_000;
    let (begin, length) = if is_short { (0.1, 0.5) } else { (5.0, 15.0) };
    let (begin, length) = (Duration::from_secs_f64(begin), Duration::from_secs_f64(length));
    let values = Profile::quantities(DISK, &[]).expect("it is there");
    let rate = values.iter().find(|v| v.key == "outer_rate_mb_s").expect("disks have one").value * 1e6;
    for writers in [1, 8] {
        let mounted = Mounted::files(&format!(
            "timing:{DISK}+null:size=28T,zone_size=256M,rotational=1,zone_append_max_sectors=0"
        ));
        let fs = mounted.fs.as_ref().expect("it is ours");
        let (memory, is_over) = (aligned(PIECE), AtomicBool::new(false));
        let samples = std::thread::scope(|scope| {
            for n in 0..writers {
                let file = File::create(mounted.at(&n.to_string())).expect("there is room");
                let (memory, is_over) = (&memory, &is_over);
                scope.spawn(move || {
                    let mut at = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        file.write_all_at(memory, at).expect("there is room");
                        at += PIECE;
                        // The kernel does not write back by itself in so short a time.
                        if is_short && at.is_multiple_of(16 * PIECE) {
                            file.sync_data().expect("the drive takes it");
                        }
                    }
                    // Drops what is cached, so that it is not written.
                    file.set_len(0).expect("nothing fails");
                });
            }
            std::thread::sleep(begin);
            let (from, started) = (moved(fs), Instant::now());
            std::thread::sleep(length);
            let rate = (moved(fs) - from) as f64 / started.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            rate
        });
        let samples = Samples { rounds: vec![samples / rate] };
        let name = format!("mount: {writers} streams to a disk of SMR");
        report.add(&name, "its media's rate", &samples, "x", Bound::AtLeast(0.95));
    }
}
