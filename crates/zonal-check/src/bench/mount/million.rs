//! A file system of a million files: memory of its process, and a search through uncached metadata
//! while a program streams.
//!
//! The drive is an image in memory, so only the simulated time of the disk counts.

use super::super::Effort;
use super::super::files::PIECE;
use super::super::measure::Samples;
use super::super::report::{Bound, Report};
use super::aligned;
use crate::program::mounted::{MountPlace, Mounted};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Disk model that delays the search.
const DISK: &str = "timing:smr-hdd-30t+image:d.img";

/// Files of a directory.
const OF_DIRECTORY: u64 = 1000;

/// Bytes after which a stream restarts at the beginning of its file.
const STREAM: u64 = 2 << 30;

/// Measures all rows.
pub fn rows(effort: Effort, report: &mut Report) {
    let is_short = effort.operations < 100_000;
    let directories = if is_short { 2 } else { 1000 };
    let place = MountPlace::in_memory("14T", "256M");
    make(&place, directories, report);
    search(&place, directories, is_short, report);
}

/// Creates the files, a few bytes each. Afterwards the kernel has all of them in its caches.
fn make(place: &MountPlace, directories: u64, report: &mut Report) {
    let mounted = place.mount("");
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for first in [0, 1] {
            let mounted = &mounted;
            scope.spawn(move || {
                for directory in (first..directories).step_by(2) {
                    let directory = mounted.at(&directory.to_string());
                    fs::create_dir(&directory).expect("there is room");
                    for n in 0..OF_DIRECTORY {
                        fs::write(directory.join(format!("file-{n}")), b"a few").expect("there is room");
                    }
                }
            });
        }
    });
    place.zonal("sync m");
    let count = directories * OF_DIRECTORY;
    let ns = begin.elapsed().as_secs_f64() * 1e9 / count as f64;
    report.add_one(
        &format!("mount: {count} files made by two threads, time each"),
        "",
        ns,
        "ns",
        Bound::None,
    );
    assert_eq!(found(&mounted), count, "the kernel sees them all");
    let memory = mounted.resident() as f64 / f64::from(1 << 20);
    report.add_one(
        "  memory of the process, all of them known to the kernel",
        "",
        memory,
        "MiB",
        Bound::AtMost(400.0),
    );
    mounted.end();
}

/// Searches all files while a program streams, on a simulated disk in real time.
fn search(place: &MountPlace, directories: u64, is_short: bool, report: &mut Report) {
    let mounted = place.mount_device(DISK, "");
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let synced = if is_short { 1 } else { 64 };
    let seconds = |full, short| Duration::from_secs_f64(if is_short { short } else { full });
    let (alone, during, took) = std::thread::scope(|scope| {
        let _end = End(&is_over);
        let stream = scope.spawn(|| {
            let file = File::create(mounted.at("stream")).expect("there is room");
            let memory = aligned(PIECE);
            for n in (0..STREAM / PIECE).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                if n == 0 {
                    file.set_len(0).expect("nothing fails");
                }
                file.write_all_at(&memory, n * PIECE).expect("there is room");
                // Only bytes on the drive count.
                if n % synced == synced - 1 {
                    file.sync_data().expect("the drive takes it");
                    written.fetch_add(synced * PIECE, Ordering::Relaxed);
                }
            }
            file.set_len(0).expect("nothing fails");
        });
        // Duration of `work`, and the rate of the stream during it.
        let beside = |work: &dyn Fn()| {
            let (from, begin) = (written.load(Ordering::Relaxed), Instant::now());
            work();
            let took = begin.elapsed().as_secs_f64();
            // The stream may have written nothing in so short a time.
            while written.load(Ordering::Relaxed) == from && !stream.is_finished() {
                sleep(Duration::from_millis(1));
            }
            (took, (written.load(Ordering::Relaxed) - from) as f64 / begin.elapsed().as_secs_f64())
        };
        sleep(seconds(5.0, 0.5));
        let (_, alone) = beside(&|| sleep(seconds(20.0, 1.0)));
        let (took, during) = beside(&|| {
            assert_eq!(found(&mounted), directories * OF_DIRECTORY + 1, "the search sees all");
        });
        (alone, during, took)
    });
    let count = directories * OF_DIRECTORY;
    let ratio = Samples { rounds: vec![during / alone] };
    let name = format!("mount: a stream to a disk of SMR beside `find` over {count} files");
    let bound = if is_short { Bound::None } else { Bound::AtLeast(0.5) };
    report.add(&name, "without", &ratio, "x", bound);
    report.add_one("  the search, of metadata that no cache has", "", took * 1e9, "ns", Bound::AtMost(600e9));
    mounted.end();
}

/// Ends a stream, also when a check fails, because the scope waits for its thread.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Number of files that `find` finds.
fn found(mounted: &Mounted<'_>) -> u64 {
    let output = Command::new("find")
        .arg(mounted.at("."))
        .args(["-type", "f", "-size", "-100000000k", "-printf", "."])
        .stderr(Stdio::inherit())
        .output()
        .expect("find is there");
    assert!(output.status.success(), "find fails");
    output.stdout.len() as u64
}
