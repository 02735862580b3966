//! Calls in a row: direct writes and reads, files that are made, looked at and removed.

use super::super::Effort;
use super::super::files::{BLOCK, PIECE, random, rate};
use super::super::measure::{Case, Samples, interleave, time};
use super::super::report::{Bound, Report};
use super::{Mounted, PIECES, UNIT_MAX, against, aligned, drive, write_in_a_row};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use zonal_fuse::least::Work;
use zonal_io::buffer::IoBuf;

/// Direct writes and reads of a mebibyte in a row.
pub fn in_a_row(effort: Effort, report: &mut Report) {
    let count = if effort.operations < 100_000 { 4 } else { PIECES };
    let rounds = effort.rounds.min(9);
    let memory = aligned(32 << 20);
    let cases = [
        ("null", Work::Sum, "a server that sums"),
        ("ram", Work::SumAndCopy(PIECES as usize), "a server that sums and copies"),
    ];
    for (device, work, baseline) in cases {
        let (ours, least) = (Mounted::files(&drive(device, UNIT_MAX)), Mounted::least(work));
        let [a, b] = [&ours, &least].map(|mounted| mounted.direct("file"));
        ours.touch(&a, count, &memory);
        let mut cases = [
            Case::new("ours", || {
                let ns = time(count, || write_in_a_row(&a, count, &memory));
                ours.settle();
                ns
            }),
            Case::new("least", || time(count, || write_in_a_row(&b, count, &memory))),
        ];
        let samples = interleave(rounds, &mut cases);
        drop(cases);
        let name = format!("mount: 1 MiB direct writes in a row, {device}:");
        against(report, &name, baseline, &samples[0], &samples[1], Bound::AtLeast(0.85));
        report.add("  their rate", "", &rate(&samples[0], PIECE), "GB/s", Bound::None);
        if device == "null" {
            continue;
        }
        let mut into = IoBuf::zeroed(PIECE as u32);
        let mut read = |file: &File| {
            time(count, || {
                (0..count).for_each(|i| file.read_exact_at(&mut into, i * PIECE).expect("it is there"));
            })
        };
        let samples: Vec<Samples> = {
            let mut all = [Samples { rounds: Vec::new() }, Samples { rounds: Vec::new() }];
            for _ in 0..rounds {
                all[0].rounds.push(read(&a));
                all[1].rounds.push(read(&b));
            }
            all.into()
        };
        let name = "mount: 1 MiB direct reads in a row, verified";
        against(report, name, baseline, &samples[0], &samples[1], Bound::None);
        report.add("  their rate", "", &rate(&samples[0], PIECE), "GB/s", Bound::None);
    }
}

/// Direct writes of a mebibyte where a command has no room for its header, against commands that have.
pub fn shorter_units(effort: Effort, report: &mut Report) {
    let count = if effort.operations < 100_000 { 4 } else { PIECES };
    let memory = aligned(32 << 20);
    let mounts = [1 << 20, UNIT_MAX].map(|max| Mounted::files(&drive("null", max)));
    let files = [0, 1].map(|n| mounts[n].direct("file"));
    let mut cases = [("255 blocks", 0), ("256 blocks", 1)].map(|(name, n)| {
        let (mounted, file, memory) = (&mounts[n], &files[n], &memory);
        Case::new(name, move || {
            let ns = time(count, || write_in_a_row(file, count, memory));
            mounted.settle();
            ns
        })
    });
    let samples = interleave(effort.rounds.min(9), &mut cases);
    let name = "mount: 1 MiB direct writes, commands of 1 MiB";
    against(report, name, "of 1028 KiB", &samples[0], &samples[1], Bound::AtLeast(0.9));
}

/// Direct writes and reads of 4 KiB at random.
pub fn at_random(effort: Effort, report: &mut Report) {
    let (operations, rounds) = (effort.operations / 100, effort.rounds.min(9));
    let count = if effort.operations < 100_000 { 4 } else { PIECES };
    let memory = aligned(PIECE);
    let (ours, least) =
        (Mounted::files(&drive("ram", UNIT_MAX)), Mounted::least(Work::SumAndCopy(PIECES as usize)));
    let files = [&ours, &least].map(|mounted| mounted.direct("file"));
    ours.touch(&files[0], count, &memory);
    write_in_a_row(&files[1], count, &memory);
    let blocks = count * PIECE / BLOCK;
    for (name, writes) in [
        ("mount: 4 KiB direct random overwrites", true),
        ("mount: 4 KiB direct random reads, verified", false),
    ] {
        let mut all = [Samples { rounds: Vec::new() }, Samples { rounds: Vec::new() }];
        let mut block = IoBuf::zeroed(BLOCK as u32);
        for round in 0..=rounds {
            for (file, samples) in files.iter().zip(&mut all) {
                let mut seed = round as u64;
                let ns = time(operations, || {
                    for _ in 0..operations {
                        let at = random(&mut seed, blocks) * BLOCK;
                        match writes {
                            true => file.write_all_at(&block, at).expect("there is room"),
                            false => file.read_exact_at(&mut block, at).expect("it is there"),
                        }
                    }
                });
                if round > 0 {
                    samples.rounds.push(ns);
                }
            }
            ours.settle();
        }
        against(report, name, "a server that sums and copies", &all[0], &all[1], Bound::AtLeast(0.7));
        report.add("  their time", "", &all[0], "ns", Bound::None);
    }
}

/// Files that are made, looked at and removed.
pub fn names(effort: Effort, report: &mut Report) {
    let (count, rounds) = (effort.operations / 200, effort.rounds.min(7));
    let (ours, least) = (Mounted::files(&drive("ram", UNIT_MAX)), Mounted::least(Work::Discard));
    let mut all: [[Samples; 2]; 3] =
        std::array::from_fn(|_| std::array::from_fn(|_| Samples { rounds: Vec::new() }));
    for round in 0..=rounds {
        for (side, mounted) in [&ours, &least].into_iter().enumerate() {
            let at = |n: u64| mounted.at(&format!("{round}-{n}"));
            let made =
                time(count, || (0..count).for_each(|n| drop(File::create(at(n)).expect("there is room"))));
            let seen = time(count, || (0..count).for_each(|n| assert!(fs::metadata(at(n)).is_ok())));
            let gone = time(count, || (0..count).for_each(|n| fs::remove_file(at(n)).expect("it is there")));
            if round > 0 {
                for (samples, ns) in all.iter_mut().zip([made, seen, gone]) {
                    samples[side].rounds.push(ns);
                }
            }
        }
        ours.settle();
    }
    for (name, [a, b]) in ["creates", "stats", "removals"].into_iter().zip(&all) {
        let baseline = "a server that does nothing";
        against(report, &format!("mount: {name}"), baseline, a, b, Bound::AtLeast(0.5));
        report.add("  their time", "", a, "ns", Bound::None);
    }
}

/// Two threads on one mount against two mounts with a thread each, both with direct writes of a mebibyte.
pub fn two_threads(effort: Effort, report: &mut Report) {
    let count = if effort.operations < 100_000 { 4 } else { PIECES / 2 };
    let memory = aligned(32 << 20);
    let mounts = [Mounted::files(&drive("ram", UNIT_MAX)), Mounted::files(&drive("ram", UNIT_MAX))];
    let together = Mounted::files(&drive("ram", UNIT_MAX));
    let apart = [0, 1].map(|n| mounts[n].direct("file"));
    let files = ["a", "b"].map(|name| together.direct(name));
    let both = |files: &[File; 2]| {
        time(2 * count, || {
            std::thread::scope(|scope| {
                for file in files {
                    scope.spawn(|| write_in_a_row(file, count, &memory));
                }
            });
        })
    };
    for (mounted, file) in
        [(&mounts[0], &apart[0]), (&mounts[1], &apart[1]), (&together, &files[0]), (&together, &files[1])]
    {
        mounted.touch(file, count, &memory);
    }
    let mut cases = [
        Case::new("apart", || {
            let ns = both(&apart);
            mounts.iter().for_each(Mounted::settle);
            ns
        }),
        Case::new("together", || {
            let ns = both(&files);
            together.settle();
            ns
        }),
    ];
    let samples = interleave(effort.rounds.min(9), &mut cases);
    let name = "mount: two threads' 1 MiB direct writes";
    against(report, name, "two mounts", &samples[1], &samples[0], Bound::AtLeast(0.85));
}
