//! A mount on an image, compared with the file system of the disk below it. Temporary files have to
//! be on that disk.

use super::super::Effort;
use super::super::measure::Samples;
use super::super::report::{Bound, Report};
use crate::program::mounted::MountPlace;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Creates a file system in an image.
fn place() -> MountPlace {
    MountPlace::with_zones("4G", "64M")
}

/// Syncs the file system that contains `dir`.
fn sync(dir: &Path) {
    let status = Command::new("sync").arg("-f").arg(dir).status();
    assert!(status.is_ok_and(|status| status.success()), "sync fails");
}

/// An append of 100 bytes with a sync, compared with four writes of the disk plus 0.3 ms.
pub fn syncs(effort: Effort, report: &mut Report) {
    let (count, rounds) = if effort.operations < 100_000 { (4, 1) } else { (100, effort.rounds.min(9)) };
    let place = place();
    let mounted = place.mount("");
    let mut log =
        OpenOptions::new().append(true).create(true).open(mounted.at("log")).expect("there is room");
    let holes = File::create(place.home().join("holes")).expect("there is room");
    holes.set_len(rounds as u64 * count * 65_536 * 2).expect("it takes no room");
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds as u64 {
        let middle = |each: &mut dyn FnMut(u64)| {
            let took = |n| {
                let begin = Instant::now();
                each(n);
                begin.elapsed().as_secs_f64() * 1e9
            };
            Samples { rounds: (0..count).map(took).collect() }.median()
        };
        let ours = middle(&mut |_| {
            log.write_all(&[b'x'; 100]).expect("there is room");
            log.sync_all().expect("the disk takes it");
        });
        let theirs = middle(&mut |n| {
            // Each write fills a hole of its own, in an order that suits no disk.
            let at = (n * 37 % count + round * count) * 65_536 * 2;
            holes.write_all_at(&[b'x'; 4096], at).expect("there is room");
            holes.sync_data().expect("the disk takes it");
        });
        for (times, time) in times.iter_mut().zip([ours / (4.0 * theirs + 3e5), ours, theirs]) {
            times.push(time);
        }
    }
    drop(log);
    let [ratio, ours, theirs] = times.map(|rounds| Samples { rounds });
    let baseline = "4 of the disk's writes into a hole and 0.3 ms";
    report.add("mount: fsync of a 100-byte append, on an image", baseline, &ratio, "x", Bound::AtMost(1.0));
    report.add("  its time", "", &ours, "ns", Bound::None);
    report.add("  the disk's", "", &theirs, "ns", Bound::None);
    mounted.end();
}

/// Unpacks an archive of many small files and makes it durable, compared with the disk's own file
/// system.
pub fn archive(effort: Effort, report: &mut Report) {
    let (what, rounds) = if effort.operations < 100_000 { ("include/linux", 1) } else { ("include", 5) };
    let place = place();
    let packed = place.home().join("packed.tar");
    let tar = |line: &[&str], file: &Path| {
        let status = Command::new("tar").arg(line[0]).arg(file).args(&line[1..]).status();
        assert!(status.is_ok_and(|status| status.success()), "tar fails");
    };
    tar(&["-cf", "-C", "/usr", what], &packed);
    let mounted = place.mount("");
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let [ours, theirs] = [mounted.at("unpacked"), place.home().join("unpacked")].map(|dir| {
            let _ = fs::remove_dir_all(&dir);
            // Neither side has to wait for the other's writes.
            place.zonal("sync m");
            sync(place.home());
            let begin = Instant::now();
            fs::create_dir(&dir).expect("there is room");
            tar(&["-xf", "-C", dir.to_str().expect("it is text")], &packed);
            match dir.starts_with(place.dir()) {
                true => drop(place.zonal("sync m")),
                false => sync(&dir),
            }
            begin.elapsed().as_secs_f64()
        });
        for (times, time) in times.iter_mut().zip([ours / theirs, ours * 1e9, theirs * 1e9]) {
            times.push(time);
        }
    }
    let [ratio, ours, theirs] = times.map(|rounds| Samples { rounds });
    let name = "mount: /usr/include unpacked and synced, on an image";
    report.add(name, "the disk's own file system", &ratio, "x", Bound::AtMost(1.5));
    report.add("  its time", "", &ours, "ns", Bound::None);
    report.add("  theirs", "", &theirs, "ns", Bound::None);
    report.add_one("  its memory", "", mounted.resident() as f64 / 1048576.0, "MiB", Bound::AtMost(400.0));
    mounted.end();
}
