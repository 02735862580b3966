//! Data path of files, compared with a floor: the minimum of work that any implementation does.
//!
//! The floor of a write fills a buffer block by block, computes a checksum of each, and appends it.
//! The floor of a read reads into memory kept by the caller and computes the checksums. Neither has
//! headers, a map, or a check of the result. Both run with data that fits into a cache, and with
//! data that does not, where memory bandwidth dominates.

use super::files::{BLOCK, Files, PIECE, Raw, ZONE, bytes, random, rate};
use super::measure::{Case, interleave, time};
use super::report::{Bound, Report};
use super::{Effort, Samples};
use std::hint::black_box;
use zonal_io::sums::{self, crc32c};

/// Data that a round writes or reads.
#[derive(Clone, Copy)]
struct Set {
    name: &'static str,
    /// Number of zones, all of them full.
    zones: u64,
    /// Length of the source, which is written repeatedly.
    source: u64,
}

/// The larger set takes less than one gibibyte, which a memory device keeps for reuse, so rounds
/// touch no new page.
const SETS: [Set; 2] = [
    Set { name: "of a cache", zones: 1, source: PIECE },
    Set { name: "of memory", zones: 46, source: 46 * ZONE },
];

impl Set {
    fn of(self, effort: Effort) -> Set {
        match effort.operations < 100_000 {
            true => Set { zones: 1, source: PIECE, ..self },
            false => self,
        }
    }

    fn pieces(self) -> u64 {
        self.zones * ZONE / PIECE
    }

    /// Zones of the drive: the file system reserves some for itself.
    fn drive(self) -> u64 {
        self.zones + 16
    }

    /// Pieces to write in advance, more than the zones that any round uses. Removing a file leaves
    /// partly filled zones, more in some rounds than in others; on a drive that has been written
    /// this far, no later round touches a new page.
    fn warming(self) -> u64 {
        (self.zones + 10) * ZONE / PIECE
    }

    /// Number of passes over the set in a round.
    fn times(self) -> u64 {
        (60 / self.zones).max(1)
    }
}

/// Combines several rounds into one. Each of them excludes what is not to be timed.
fn several(times: u64, mut round: impl FnMut() -> f64) -> impl FnMut() -> f64 {
    move || (0..times).map(|_| round()).sum::<f64>() / times as f64
}

/// Computes the checksums of blocks, one call for each block.
fn sum(bytes: &[u8]) {
    for block in bytes.chunks_exact(BLOCK as usize) {
        black_box(crc32c(block));
    }
}

fn copy_and_sum(into: &mut [u8], from: &[u8]) {
    for (to, block) in into.chunks_exact_mut(BLOCK as usize).zip(from.chunks_exact(BLOCK as usize)) {
        black_box(crc32c(block));
        to.copy_from_slice(block);
    }
}

/// Adds the rows that compare the cases: first the raw one, then the floor, then files.
fn rows(report: &mut Report, name: &str, samples: &[Samples], bytes: u64, least: f64) {
    let [raw, floor, file] = samples else { unreachable!("three cases") };
    report.add(name, "floor", &file.against(floor, |file, floor| floor / file), "x", Bound::AtLeast(least));
    report.add("  their rate", "", &rate(file, bytes), "GB/s", Bound::None);
    report.add("  the floor's rate", "", &rate(floor, bytes), "GB/s", Bound::None);
    report.add("  the raw rate, without checksums", "", &rate(raw, bytes), "GB/s", Bound::None);
}

/// Writes an open file in pieces of one mebibyte.
pub(super) fn writes(effort: Effort, report: &mut Report) {
    for set in SETS.map(|set| set.of(effort)) {
        let (count, times) = (set.pieces(), set.times());
        let source = bytes(set.source);
        let (files, mut floor, mut raw) =
            (Files::new(set.drive()), Raw::new(set.drive()), Raw::new(set.drive()));
        files.write(files.create(), set.warming(), &source);
        files.remove();
        for drive in [&mut floor, &mut raw] {
            drive.append(set.warming(), &source);
            drive.reset();
        }
        let mut cases = [
            Case::new(
                "raw",
                several(times, || {
                    let ns = time(count, || raw.append(count, &source));
                    raw.reset();
                    ns
                }),
            ),
            Case::new(
                "floor",
                several(times, || {
                    let ns = time(count, || floor.append_by(count, &source, copy_and_sum));
                    floor.reset();
                    ns
                }),
            ),
            Case::new(
                "file",
                several(times, || {
                    let ino = files.create();
                    let open = files.fs.open_file(ino).expect("it is there");
                    let ns = time(count, || files.write(ino, count, &source));
                    open.close(&files.waiter).expect("all of it is on the drive");
                    files.remove();
                    ns
                }),
            ),
        ];
        let samples = interleave(effort.rounds, &mut cases);
        rows(report, &format!("file: 1 MiB writes {}", set.name), &samples, PIECE, 0.9);
    }
}

/// Reads an open file with verification, sequentially and at random.
pub(super) fn reads(effort: Effort, report: &mut Report) {
    for set in SETS.map(|set| set.of(effort)) {
        let (count, times) = (set.pieces(), set.times());
        let source = bytes(set.source);
        let (files, mut raw, mut floor) =
            (Files::new(set.drive()), Raw::new(set.drive()), Raw::new(set.drive()));
        let ino = files.create();
        files.write(ino, count, &source);
        let _open = files.fs.open_file(ino).expect("it is there");
        raw.append(count, &source);
        floor.append(count, &source);
        drop(source);
        let mut into = vec![0; PIECE as usize];
        let pieces = move || (0..count * times).map(move |i| i % count * PIECE);
        let mut cases = [
            Case::new("raw", || time(count * times, || pieces().for_each(|at| raw.read(at, PIECE)))),
            Case::new("floor", || {
                time(count * times, || pieces().for_each(|at| floor.read_to(at, PIECE, sum)))
            }),
            Case::new("file", || {
                time(count * times, || pieces().for_each(|at| files.read(ino, at, &mut into)))
            }),
        ];
        let samples = interleave(effort.rounds, &mut cases);
        drop(cases);
        rows(report, &format!("file: 1 MiB reads {}, verified", set.name), &samples, PIECE, 0.85);

        let operations = effort.operations / 10;
        let blocks = count * PIECE / BLOCK;
        let mut block = vec![0; BLOCK as usize];
        let at = |seed: &mut u64| random(seed, blocks) * BLOCK;
        let mut seeds = [1; 3];
        let [a, b, c] = &mut seeds;
        let mut cases = [
            Case::new("raw", || time(operations, || (0..operations).for_each(|_| raw.read(at(a), BLOCK)))),
            Case::new("floor", || {
                time(operations, || (0..operations).for_each(|_| floor.read_to(at(b), BLOCK, sum)))
            }),
            Case::new("file", || {
                time(operations, || (0..operations).for_each(|_| files.read(ino, at(c), &mut block)))
            }),
        ];
        let samples = interleave(effort.rounds, &mut cases);
        drop(cases);
        let [raw, floor, file] = &samples[..] else { unreachable!("three cases") };
        let name = format!("file: 4 KiB random reads {}, verified", set.name);
        report.add(
            &name,
            "floor",
            &file.against(floor, |file, floor| floor / file),
            "x",
            Bound::AtLeast(0.6),
        );
        report.add("  each", "", file, "ns", Bound::None);
        report.add("  the floor's", "", floor, "ns", Bound::None);
        report.add("  raw, without checksums", "", raw, "ns", Bound::None);
    }
}

/// Compares checksums of 4 KiB blocks, one call of the library each, with one call for all.
pub(super) fn sums(effort: Effort, report: &mut Report) {
    for (name, length) in [("in a cache", PIECE / 4), ("in memory", 256 * PIECE)] {
        let length = if effort.operations < 100_000 { PIECE } else { length };
        let bytes = bytes(length);
        let times = (256 * PIECE / length).min(effort.operations / 1000);
        let mut found = vec![0; (length / BLOCK) as usize];
        let mut cases = [
            Case::new("one", || time(times, || (0..times).for_each(|_| sum(&bytes)))),
            Case::new("all", || {
                time(times, || {
                    for _ in 0..times {
                        sums::of_blocks(black_box(&bytes), &mut found);
                    }
                })
            }),
        ];
        let samples = interleave(effort.rounds, &mut cases);
        let [one, all] = &samples[..] else { unreachable!("two cases") };
        let name = format!("checksums of blocks {name}");
        report.add(&name, "a call a block", &all.against(one, |all, one| one / all), "x", Bound::None);
        report.add("  their rate", "", &rate(all, length), "GB/s", Bound::None);
    }
}
