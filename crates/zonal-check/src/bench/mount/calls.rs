//! Single calls in a row: direct writes and reads; creating, looking up and removing files.

use super::super::Effort;
use super::super::files::{BLOCK, PIECE, random, rate};
use super::super::report::{Bound, Report};
use super::{Costs, Mounted, PIECES, UNIT_MAX, against, aligned, drive, in_turn, write_in_a_row};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use zonal_fuse::least::Work;
use zonal_io::buffer::IoBuf;

/// Sequential direct writes and reads of one mebibyte.
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
        let [mut write, mut write_least] = [&a, &b].map(|file| |_| write_in_a_row(file, count, &memory));
        let costs = in_turn(rounds, count, [&mut write, &mut write_least], || ours.settle());
        let name = format!("mount: 1 MiB direct writes in a row, {device}:");
        against(report, &name, baseline, &costs, Bound::AtLeast(0.85));
        report.add("  their rate", "", &rate(&costs[0].wall, PIECE), "GB/s", Bound::None);
        if device == "null" {
            continue;
        }
        let [mut read, mut read_least] = [&a, &b].map(|file| {
            let mut into = IoBuf::zeroed(PIECE as u32);
            move |_| (0..count).for_each(|i| file.read_exact_at(&mut into, i * PIECE).expect("it is there"))
        });
        let costs = in_turn(rounds, count, [&mut read, &mut read_least], || {});
        let name = "mount: 1 MiB direct reads in a row, verified";
        against(report, name, baseline, &costs, Bound::None);
        report.add("  their rate", "", &rate(&costs[0].wall, PIECE), "GB/s", Bound::None);
    }
}

/// Direct writes of one mebibyte to drives that cannot and can take the header in the same command.
pub fn shorter_units(effort: Effort, report: &mut Report) {
    let count = if effort.operations < 100_000 { 4 } else { PIECES };
    let memory = aligned(32 << 20);
    let mounts = [1 << 20, UNIT_MAX].map(|max| Mounted::files(&drive("null", max)));
    let files = [0, 1].map(|n| mounts[n].direct("file"));
    let [mut shorter, mut longer] =
        [&files[0], &files[1]].map(|file| |_| write_in_a_row(file, count, &memory));
    let settle = || mounts.iter().for_each(Mounted::settle);
    let costs = in_turn(effort.rounds.min(9), count, [&mut shorter, &mut longer], settle);
    let name = "mount: 1 MiB direct writes, commands of 1 MiB";
    against(report, name, "of 1028 KiB", &costs, Bound::AtLeast(0.9));
}

/// Random direct writes and reads of 4 KiB.
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
        let [mut calls, mut calls_of_least] = [&files[0], &files[1]].map(|file| {
            let mut block = IoBuf::zeroed(BLOCK as u32);
            move |round| {
                let mut seed = round as u64;
                for _ in 0..operations {
                    let at = random(&mut seed, blocks) * BLOCK;
                    match writes {
                        true => file.write_all_at(&block, at).expect("there is room"),
                        false => file.read_exact_at(&mut block, at).expect("it is there"),
                    }
                }
            }
        });
        let costs = in_turn(rounds, operations, [&mut calls, &mut calls_of_least], || ours.settle());
        against(report, name, "a server that sums and copies", &costs, Bound::AtLeast(0.7));
        report.add("  their time", "", &costs[0].wall, "ns", Bound::None);
    }
}

/// Creates, looks up and removes files.
pub fn names(effort: Effort, report: &mut Report) {
    let (count, rounds) = (effort.operations / 200, effort.rounds.min(7));
    let (ours, least) = (Mounted::files(&drive("ram", UNIT_MAX)), Mounted::least(Work::Discard));
    let mut all: [[Costs; 2]; 3] = std::array::from_fn(|_| [Costs::none(), Costs::none()]);
    for round in 0..=rounds {
        for (side, mounted) in [&ours, &least].into_iter().enumerate() {
            let at = |n: u64| mounted.at(&format!("{round}-{n}"));
            let make = || (0..count).for_each(|n| drop(File::create(at(n)).expect("there is room")));
            let see = || (0..count).for_each(|n| assert!(fs::metadata(at(n)).is_ok()));
            let remove = || (0..count).for_each(|n| fs::remove_file(at(n)).expect("it is there"));
            for (costs, work) in all.iter_mut().zip([&make as &dyn Fn(), &see, &remove]) {
                match round {
                    0 => work(),
                    _ => costs[side].add(count, work),
                }
            }
        }
        ours.settle();
    }
    for (name, costs) in ["creates", "stats", "removals"].into_iter().zip(&all) {
        let baseline = "a server that does nothing";
        against(report, &format!("mount: {name}"), baseline, costs, Bound::AtLeast(0.5));
        report.add("  their time", "", &costs[0].wall, "ns", Bound::None);
    }
}

/// Compares two threads on one mount with two mounts of one thread each, all with direct writes of
/// one mebibyte.
pub fn two_threads(effort: Effort, report: &mut Report) {
    let count = if effort.operations < 100_000 { 4 } else { PIECES / 2 };
    let memory = aligned(32 << 20);
    let mounts = [Mounted::files(&drive("ram", UNIT_MAX)), Mounted::files(&drive("ram", UNIT_MAX))];
    let together = Mounted::files(&drive("ram", UNIT_MAX));
    let apart = [0, 1].map(|n| mounts[n].direct("file"));
    let files = ["a", "b"].map(|name| together.direct(name));
    let both = |files: &[File; 2]| {
        std::thread::scope(|scope| {
            for file in files {
                scope.spawn(|| write_in_a_row(file, count, &memory));
            }
        });
    };
    for (mounted, file) in
        [(&mounts[0], &apart[0]), (&mounts[1], &apart[1]), (&together, &files[0]), (&together, &files[1])]
    {
        mounted.touch(file, count, &memory);
    }
    let settle = || mounts.iter().chain([&together]).for_each(Mounted::settle);
    let cases: [&mut dyn FnMut(usize); 2] = [&mut |_| both(&files), &mut |_| both(&apart)];
    let costs = in_turn(effort.rounds.min(9), 2 * count, cases, settle);
    let name = "mount: two threads' 1 MiB direct writes";
    against(report, name, "two mounts", &costs, Bound::AtLeast(0.85));
}
