//! fio's tests of zoned drives against a served drive, and against null_blk for comparison.
//!
//! What null_blk passes, a served drive passes, and it skips nothing that null_blk does not skip. Four tests of the suite need
//! writes that fail. They know how to ask null_blk for them, and nothing else. For these tests the served drive has a plan of
//! faults with the same bad blocks, and null_blk's configuration gets a device of the served disk's name, without power, for
//! the suite to write its wishes into.
//!
//! A bad block of null_blk is EIO to Linux, one of an NVMe drive ENODATA. Tests 73 and 75 continue after EIO alone, so there
//! the drive refuses the writes with a status that Linux takes for EIO.

use crate::machine::{self, Guest, Served};
use std::collections::BTreeMap;
use std::fs;

/// Tests of the suite of fio 3.41. A new fio may have more.
const TESTS_MIN: usize = 75;

/// Sizes of a drive, in MiB, and its limits; 0 is none.
struct Shape {
    zones: u32,
    zone_size: u32,
    zone_capacity: u32,
    max_open: u32,
    max_active: u32,
}

impl Shape {
    fn device(&self) -> String {
        let Shape { zones, zone_size, zone_capacity, max_open, max_active } = self;
        format!(
            "ram:size={}M,zone_size={zone_size}M,zone_capacity={zone_capacity}M,blocksize=4096,\
             zone_max_open={max_open},zone_max_active={max_active}",
            zones * zone_size
        )
    }

    fn guest(&self) -> Guest {
        // The whole of a null_blk fits.
        let size = self.zones * self.zone_size;
        let guest = Guest::script("zbd.sh", 6000).memory(size + 2048);
        let guest = guest.set("SIZE", size).set("ZONE_SIZE", self.zone_size);
        let guest = guest.set("ZONE_CAPACITY", self.zone_capacity);
        guest.set("MAX_OPEN", self.max_open).set("MAX_ACTIVE", self.max_active)
    }
}

/// What the script printed.
struct Said {
    /// What each test came to.
    outcomes: BTreeMap<usize, String>,
    /// The other lines.
    facts: BTreeMap<String, String>,
    /// Ends of the logs of what failed.
    logs: Vec<String>,
}

impl Said {
    fn of(lines: Vec<String>) -> Said {
        let mut said = Said { outcomes: BTreeMap::new(), facts: BTreeMap::new(), logs: Vec::new() };
        for line in lines {
            let (key, value) = line.split_once(' ').unwrap_or((&line, ""));
            match key.parse() {
                Ok(number) => assert_eq!(
                    said.outcomes.insert(number, value.to_owned()),
                    None,
                    "test {number} ran twice"
                ),
                Err(_) if key == "log" => said.logs.push(line),
                Err(_) => drop(said.facts.insert(key.to_owned(), value.to_owned())),
            }
        }
        said
    }

    /// Numbers of the tests whose outcome begins so.
    fn that(&self, outcome: &str) -> Vec<usize> {
        self.outcomes.iter().filter(|(_, is)| is.starts_with(outcome)).map(|(number, _)| *number).collect()
    }

    fn print(&self, whose: &str) {
        let skips = self.outcomes.iter().filter(|(_, is)| is.starts_with("skip"));
        let skips: Vec<String> = skips.map(|(number, why)| format!("{number} {why}")).collect();
        eprintln!(
            "{whose}: {} tests, {} pass, {} fail, {} skip, time {}, lines of the kernel about errors: {}\n  {}",
            self.outcomes.len(),
            self.that("pass").len(),
            self.that("fail").len(),
            skips.len(),
            self.facts.get("time").map_or("?", String::as_str),
            self.facts.get("complaints").map_or("?", String::as_str),
            skips.join("\n  "),
        );
    }
}

/// The sectors that the suite wants to be bad in this test.
fn bad_sectors(test: usize, shape: &Shape) -> [u32; 3] {
    let zone = shape.zone_size << 11;
    let gap = match test {
        // A zone apart.
        72 | 73 => zone,
        // Half a write apart; a write is a sixty-fourth of a zone.
        74 | 75 => zone / 64 / 2,
        _ => unreachable!("test {test} needs no bad sectors"),
    };
    [2, gap + 11, 2 * gap + 8]
}

/// A plan with what the suite wants in this test: each sector fails one write.
fn plan(test: usize, shape: &Shape) -> String {
    let sectors = bad_sectors(test, shape);
    if matches!(test, 72 | 74) {
        let blocks = sectors.map(|sector| format!("\"+{sector}-{sector}\"")).join(", ");
        return format!("bad_blocks = [{blocks}]\nbad_blocks_once = true\nbad_blocks_partial_io = true\n");
    }
    sectors.map(|sector| format!("[[rule]]\non = \"writes\"\nsectors = {sector}\nnth = 1\nfault = \"refuse\"\nerror = \"boundary\"\n")).concat()
}

/// A drive whose writes fail as test `test` of the suite asks for, and what the script is to know of it.
fn with_bad_sectors(directory: &std::path::Path, test: usize, shape: &Shape) -> (Served, String) {
    fs::write(directory.join(format!("plan{test}.toml")), plan(test, shape)).unwrap();
    let served = Served::start(directory, &format!("fault:plan=plan{test}.toml+{}", shape.device()));
    let about = format!("{test},{},{}", served.port, served.nqn);
    (served, about)
}

fn suite_passes(shape: &Shape) {
    let dir = tempfile::tempdir().unwrap();
    let share = machine::share();
    let baseline = Said::of(shape.guest().share(share.path()).lines());
    baseline.print("null_blk");

    let served = Served::start(dir.path(), &shape.device());
    let faulty: Vec<(Served, String)> =
        [72, 73, 74, 75].map(|test| with_bad_sectors(dir.path(), test, shape)).into();
    let with_faults: Vec<&str> = faulty.iter().map(|(_, about)| about.as_str()).collect();
    let guest = shape.guest().share(share.path()).set("PORT", served.port).set("NQN", &served.nqn);
    let ours = Said::of(guest.set("WITH_FAULTS", with_faults.join(" ")).lines());
    ours.print("served");
    for log in ours.logs.iter().chain(&baseline.logs) {
        eprintln!("{log}");
    }

    for fact in
        ["zoned", "chunk_sectors", "nr_zones", "max_open_zones", "max_active_zones", "logical_block_size"]
    {
        assert!(
            ours.facts[fact] == baseline.facts[fact],
            "{fact}: {}, null_blk: {}",
            ours.facts[fact],
            baseline.facts[fact]
        );
    }
    assert!(ours.outcomes.len() >= TESTS_MIN, "all tests of the suite have run");
    assert!(ours.outcomes.keys().eq(baseline.outcomes.keys()), "the same tests have run");
    for (whose, said) in [("served", &ours), ("null_blk", &baseline)] {
        assert_eq!(said.that("fail"), [0; 0], "tests that fail, {whose}");
        assert_eq!(said.that("pass").len() + said.that("skip").len(), said.outcomes.len(), "{whose}");
    }
    let mut only_ours = ours.that("skip");
    only_ours.retain(|number| !baseline.outcomes[number].starts_with("skip"));
    assert_eq!(only_ours, [0; 0], "tests that null_blk does not skip");
}

#[test]
#[ignore = "fio's suite twice: 20 minutes or more"]
fn fio_suite_without_limits_passes() {
    suite_passes(&Shape { zones: 256, zone_size: 4, zone_capacity: 4, max_open: 0, max_active: 0 });
}

#[test]
#[ignore = "fio's suite twice: 20 minutes or more"]
fn fio_suite_with_limits_passes() {
    suite_passes(&Shape { zones: 256, zone_size: 4, zone_capacity: 3, max_open: 8, max_active: 8 });
}
