//! Calls on attributes and ranges, compared one by one with host file systems: ext4 and tmpfs.
//!
//! Each seed gives a sequence of calls. After each call both sides have the same result, error
//! numbers included, and the same files: bytes, holes, modes, owners, times, extended attributes.
//! `ZONAL_CASES` and `ZONAL_SEED` extend the test. Intended differences are listed in
//! [`DIFFERENCES`] with their reasons.

mod call;
mod host;
mod ours;

use call::{Call, Change};
use host::Host;
use ours::Ours;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use zonal_fs::ATTRIBUTE_MAX;

const BLOCK: u64 = 4096;

/// Intended differences, and their reasons. The tests refer to them by name.
const DIFFERENCES: [(&str, &str); 7] = [
    (COPIED_HOLES, "the host copies zeroes where the source has a hole; here the target has the hole, too"),
    (
        ZEROED_DATA,
        "ext4 may write zeroes to a range of zeroes when data comes next to it; here it stays a hole",
    ),
    (LAST_BLOCK, "the host keeps a block in which the file ends when zeroes reach the end; here it is freed"),
    (NO_ZERO_RANGE, "tmpfs has no range of zeroes; here it is a hole that may make the file longer"),
    (
        ATTRIBUTE_ROOM,
        "ext4 has a block for all attributes of a file, tmpfs takes 65,536 bytes each; here each has a page of metadata, of which 3,800 bytes are for its value",
    ),
    (
        SAME_VALUE,
        "ext4 keeps the time of the change when an attribute gets the value that it has; here it is set, as in tmpfs",
    ),
    (GRANULARITY, "the host's times have its clock's granularity; here they have the caller's"),
];

const COPIED_HOLES: &str = "holes of a copy";
const ZEROED_DATA: &str = "data in ranges of zeroes";
const LAST_BLOCK: &str = "last block of a hole";
const NO_ZERO_RANGE: &str = "ranges of zeroes";
const ATTRIBUTE_ROOM: &str = "room for attributes";
const SAME_VALUE: &str = "attribute set to what it is";
const GRANULARITY: &str = "granularity of times";

/// One of the two compared file systems.
trait Side {
    /// Result of the call, or its error number.
    fn call(&mut self, call: &Call, seed: u64) -> Result<u64, i32>;

    /// State of a file.
    fn state(&mut self, file: usize) -> FileState;

    /// Size of a file in bytes, without flushing data in memory.
    fn size(&mut self, file: usize) -> u64;

    /// First byte of that kind, or an error number.
    fn seek(&mut self, file: usize, offset: u64, is_data: bool) -> Result<u64, i32>;

    /// Sets the modification time, so that a later change is visible.
    fn mark(&mut self, file: usize);
}

/// A file as seen by a program.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FileState {
    bytes: Vec<u8>,
    size: u64,
    mode: u32,
    owner: (u32, u32),
    /// Nanoseconds since 1970.
    atime: i128,
    mtime: i128,
    ctime: i128,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Time set by [`Side::mark`], in nanoseconds since 1970.
const MARK: i64 = 1_000_000_000_000_000_000;

/// Data blocks of a file, found by seeking for data and holes from the start.
fn data(side: &mut dyn Side, file: usize, size: u64) -> BTreeSet<u64> {
    let mut data = BTreeSet::new();
    let mut at = 0;
    while let Ok(from) = side.seek(file, at, true) {
        let to = side.seek(file, from, false).expect("a hole follows data, at the end at least");
        assert!(from >= at && to > from && to <= size, "data from {from} to {to}, {size} bytes");
        data.extend(from / BLOCK..to.div_ceil(BLOCK));
        at = to;
    }
    data
}

/// Expected result of seeking in a file with this data.
fn expected_seek(data: &BTreeSet<u64>, size: u64, offset: u64, is_data: bool) -> Result<u64, i32> {
    let none = Err(rustix::io::Errno::NXIO.raw_os_error());
    if offset >= size {
        return none;
    }
    let mut blocks = offset / BLOCK..size.div_ceil(BLOCK);
    match blocks.find(|block| data.contains(block) == is_data) {
        Some(block) => Ok((block * BLOCK).max(offset)),
        None if is_data => none,
        None => Ok(size),
    }
}

/// Both sides, and the accepted differences.
struct Judge<'a> {
    host: &'a mut Host,
    ours: Ours,
    /// Blocks of each file that may be data on the host, with the difference that explains it.
    excused: [BTreeMap<u64, &'static str>; 3],
}

impl Judge<'_> {
    fn apply(&mut self, call: &Call, seed: u64) {
        let file = call.file();
        self.host.mark(file);
        self.ours.mark(file);
        let before = [self.host.state(file), self.ours.state(file)];
        let results = [self.host.call(call, seed), self.ours.call(call, seed)];
        assert_eq!(results[0], results[1], "the host's result and this file system's");
        // Before any read, because data waiting in a write buffer counts as data.
        let found = self.data(file);
        let after = [self.host.state(file), self.ours.state(file)];
        let found_then = self.data(file);
        // On the host, a range of zeroes may become data by reading it: ZEROED_DATA.
        assert_eq!(found[1], found_then[1], "data before and after it was read");
        self.excuse(call, &before[0], &after[0]);
        self.check_seeks(file, &found_then, seed);
        self.check_data(file, &after[0], &found);
        // SAME_VALUE
        let is_same_value =
            matches!(call.change, Change::SetXattr { .. }) && before[0].attributes == after[0].attributes;
        let changed = |i: usize| {
            let (was, is): (&FileState, &FileState) = (&before[i], &after[i]);
            // GRANULARITY: compare whether a time was set, not its value.
            (was.mtime != is.mtime, was.ctime != is.ctime || is_same_value)
        };
        assert_eq!(changed(0), changed(1), "whether data and attributes have changed");
        let timeless = |state: &FileState| FileState { atime: 0, mtime: 0, ctime: 0, ..state.clone() };
        let [host, ours] = after.each_ref().map(timeless);
        assert!(host.bytes == ours.bytes, "bytes, {} and {}", host.bytes.len(), ours.bytes.len());
        assert_eq!(FileState { bytes: Vec::new(), ..host }, FileState { bytes: Vec::new(), ..ours });
        if let Change::Times { atime, mtime } = &call.change {
            let fixed = |set: &Option<Option<i64>>, of: fn(&FileState) -> i128| match set {
                Some(Some(at)) => after.iter().for_each(|state| assert_eq!(of(state), i128::from(*at))),
                Some(None) => after.iter().for_each(|state| assert!(of(state) > i128::from(MARK))),
                None => {}
            };
            fixed(atime, |state| state.atime);
            fixed(mtime, |state| state.mtime);
        }
    }

    /// Records the blocks of a call that may differ.
    fn excuse(&mut self, call: &Call, before: &FileState, after: &FileState) {
        let excused = &mut self.excused[call.file()];
        if after.size < before.size {
            excused.retain(|block, _| *block < after.size.div_ceil(BLOCK));
        }
        let blocks = |from: u64, length: u64| from / BLOCK..(from + length).div_ceil(BLOCK);
        match call.change {
            Change::Copy { to_offset, length, .. } => {
                excused.extend(blocks(to_offset, length).map(|block| (block, COPIED_HOLES)));
            }
            Change::Zero { offset, length, .. } if self.host.has_zero_range() => {
                excused.extend(blocks(offset, length).map(|block| (block, ZEROED_DATA)));
            }
            Change::Punch { offset, length } if offset + length >= before.size && before.size > 0 => {
                excused.insert((before.size - 1) / BLOCK, LAST_BLOCK);
            }
            _ => {}
        }
    }

    /// Data blocks of a file on both sides.
    fn data(&mut self, file: usize) -> [BTreeSet<u64>; 2] {
        if file == call::DIRECTORY {
            return [BTreeSet::new(), BTreeSet::new()];
        }
        let sides: [&mut dyn Side; 2] = [self.host, &mut self.ours];
        sides.map(|side| {
            let size = side.size(file);
            data(side, file, size)
        })
    }

    fn check_seeks(&mut self, file: usize, found: &[BTreeSet<u64>; 2], seed: u64) {
        if file == call::DIRECTORY {
            return;
        }
        let sides: [&mut dyn Side; 2] = [self.host, &mut self.ours];
        for (side, found) in sides.into_iter().zip(found) {
            let size = side.size(file);
            for offset in [0, size, size + 1, size.saturating_sub(1), seed % (size + 10)] {
                for is_data in [true, false] {
                    let expected = expected_seek(found, size, offset, is_data);
                    let at = side.seek(file, offset, is_data);
                    assert_eq!(at, expected, "offset {offset} of {size}, data {is_data}");
                }
            }
        }
    }

    fn check_data(&mut self, file: usize, state: &FileState, [host, ours]: &[BTreeSet<u64>; 2]) {
        for block in host.symmetric_difference(ours) {
            let bytes = state.bytes.chunks(BLOCK as usize).nth(*block as usize).unwrap_or_default();
            let is_excused = host.contains(block)
                && bytes.iter().all(|byte| *byte == 0)
                && self.excused[file].contains_key(block);
            let on_host = host.contains(block);
            assert!(is_excused, "block {block} is data on the host: {on_host}; here: {}", !on_host);
        }
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Runs `compare` with each host file system available. Without any there is nothing to compare
/// with.
fn with_hosts(mut compare: impl FnMut(&mut Host)) {
    let mut count = 0;
    for kind in host::KINDS {
        match Host::find(kind) {
            Some(mut host) => {
                compare(&mut host);
                count += 1;
            }
            None => eprintln!("no {} is mounted where a test may write", kind.name()),
        }
    }
    let is_required = std::env::var_os("CI").is_some();
    assert!(count > 0 || !is_required, "no file system to compare with");
}

#[test]
fn random_calls_behave_as_on_host_file_systems() {
    let (cases, first) = (number("ZONAL_CASES", 8), number("ZONAL_SEED", 1));
    with_hosts(|host| {
        for seed in first..first + cases {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            host.begin();
            let mut judge = Judge { ours: Ours::new(host), host, excused: Default::default() };
            let mut done = Vec::new();
            for n in 0..60 {
                let call = Call::random(&mut random, judge.host);
                done.push(format!("{call:?}"));
                let apply = std::panic::AssertUnwindSafe(|| judge.apply(&call, seed << 16 | n));
                if let Err(panic) = std::panic::catch_unwind(apply) {
                    eprintln!("{}, ZONAL_SEED={seed}:\n{}", judge.host.kind().name(), done.join("\n"));
                    std::panic::resume_unwind(panic);
                }
            }
        }
    });
}

#[test]
fn differences_that_are_meant_have_reasons() {
    let names: BTreeSet<&str> = DIFFERENCES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), DIFFERENCES.len());
    assert!(DIFFERENCES.iter().all(|(_, reason)| reason.contains("here") || reason.contains("kernel")));
}

#[test]
fn attributes_too_long_have_the_numbers_of_the_host() {
    with_hosts(|host| {
        if !host.has_attributes() {
            return;
        }
        host.begin();
        let mut ours = Ours::new(host);
        let set = |name: usize, length, when| Change::SetXattr { name, length, when };
        let long = call::NAMES.len() - 1;
        let calls = [
            set(0, 65_537, call::When::Always),
            set(long, 1, call::When::Always),
            Change::GetXattr { name: long },
            Change::RemoveXattr { name: long },
            set(0, 1, call::When::Replace),
            set(0, 1, call::When::Create),
            set(0, 2, call::When::Create),
            Change::GetXattr { name: 0 },
            Change::RemoveXattr { name: 0 },
            Change::RemoveXattr { name: 0 },
            Change::GetXattr { name: 0 },
        ];
        for change in calls {
            let call = Call { file: 0, change };
            let results = [host.call(&call, 1), ours.call(&call, 1)];
            assert_eq!(results[0], results[1], "{call:?}");
        }
        // ATTRIBUTE_ROOM
        const E2BIG: i32 = 7;
        for (length, result) in [(ATTRIBUTE_MAX, Ok(0)), (ATTRIBUTE_MAX + 1, Err(E2BIG))] {
            let call = Call { file: 0, change: set(0, length, call::When::Always) };
            assert_eq!(ours.call(&call, 1), result);
        }
    });
}
