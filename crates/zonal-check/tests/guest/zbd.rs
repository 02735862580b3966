//! fio's tests of zoned drives against a served drive, over NVMe/TCP and as a block device, and
//! against null_blk for comparison.
//!
//! A served drive passes every test that null_blk passes, and skips no others. Four tests of the
//! suite need failing writes, which they can configure only on null_blk. For these tests the served
//! drive has a plan of faults with equal bad blocks, and null_blk's configuration gets an unpowered
//! device with the name of the served disk, to which the suite can write its settings.
//!
//! Linux reports a bad block of null_blk as EIO, and one of an NVMe drive as ENODATA. Tests 73 and
//! 75 continue only after EIO, so there the drive fails the writes with a status that Linux maps to
//! EIO.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use zonal_check::guest::{self, Guest};
use zonal_check::program::served::{Fronts, Served};

/// Number of tests in the suite of fio 3.41. A newer fio may have more.
const TESTS_MIN: usize = 75;

/// Sizes of a drive, in MiB, and its limits; 0 means none.
struct Shape {
    zones: u32,
    conventional: u32,
    zone_size: u32,
    zone_capacity: u32,
    max_open: u32,
    max_active: u32,
}

impl Shape {
    fn device(&self) -> String {
        let Shape { zones, conventional, zone_size, zone_capacity, max_open, max_active } = self;
        format!(
            "ram:size={}M,zone_size={zone_size}M,zone_capacity={zone_capacity}M,zone_nr_conv={conventional},blocksize=4096,\
             zone_max_open={max_open},zone_max_active={max_active}",
            zones * zone_size
        )
    }

    fn guest(&self) -> Guest {
        // Room for a complete null_blk.
        let size = self.zones * self.zone_size;
        let guest = Guest::script("zbd.sh", 6000).memory(size + 2048);
        let guest = guest.set("SIZE", size).set("ZONE_SIZE", self.zone_size);
        let guest = guest.set("ZONE_CAPACITY", self.zone_capacity).set("CONVENTIONAL", self.conventional);
        guest.set("MAX_OPEN", self.max_open).set("MAX_ACTIVE", self.max_active)
    }
}

/// Output of the script.
struct Said {
    /// Result of each test.
    outcomes: BTreeMap<usize, String>,
    /// Other lines.
    facts: BTreeMap<String, String>,
    /// Ends of the logs of failed tests.
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

    /// Numbers of the tests with a result that begins with `outcome`.
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

/// Bad sectors that the suite configures in this test.
fn bad_sectors(test: usize, shape: &Shape) -> [u32; 3] {
    let zone = shape.zone_size << 11;
    let gap = match test {
        // One zone apart.
        72 | 73 => zone,
        // Half a write apart; a write is a sixty-fourth of a zone.
        74 | 75 => zone / 64 / 2,
        _ => unreachable!("test {test} needs no bad sectors"),
    };
    // From the first sequential zone on.
    [2, gap + 11, 2 * gap + 8].map(|sector| shape.conventional * zone + sector)
}

/// A plan equivalent to the suite's settings in this test: each sector fails one write.
fn plan(test: usize, shape: &Shape) -> String {
    let sectors = bad_sectors(test, shape);
    if matches!(test, 72 | 74) {
        let blocks = sectors.map(|sector| format!("\"+{sector}-{sector}\"")).join(", ");
        return format!("bad_blocks = [{blocks}]\nbad_blocks_once = true\nbad_blocks_partial_io = true\n");
    }
    sectors.map(|sector| format!("[[rule]]\non = \"writes\"\nsectors = {sector}\nnth = 1\nfault = \"refuse\"\nerror = \"boundary\"\n")).concat()
}

/// Tests that need failing writes.
const WITH_FAULTS: [usize; 4] = [72, 73, 74, 75];

/// Serves a drive with the failing writes of this test. Returns it with the word that describes it
/// to the script.
fn with_bad_sectors(directory: &Path, test: usize, shape: &Shape) -> (Served, String) {
    fs::write(directory.join(format!("plan{test}.toml")), plan(test, shape)).unwrap();
    let served = Served::start(directory, &format!("fault:plan=plan{test}.toml+{}", shape.device()));
    let about = format!("{test},{},{}", served.address.port(), served.nqn);
    (served, about)
}

/// Results of null_blk.
fn baseline(shape: &Shape) -> Said {
    let share = guest::share();
    let said = Said::of(shape.guest().share(share.path()).lines());
    said.print("null_blk");
    said
}

/// Results of a drive served over NVMe/TCP.
fn over_nvme(shape: &Shape) -> Said {
    let (dir, share) = (tempfile::tempdir().unwrap(), guest::share());
    let served = Served::start(dir.path(), &shape.device());
    let faulty: Vec<(Served, String)> =
        WITH_FAULTS.map(|test| with_bad_sectors(dir.path(), test, shape)).into();
    let with_faults: Vec<&str> = faulty.iter().map(|(_, about)| about.as_str()).collect();
    let guest = shape.guest().share(share.path()).set("PORT", served.address.port()).set("NQN", &served.nqn);
    Said::of(guest.set("WITH_FAULTS", with_faults.join(" ")).lines())
}

/// Results of a drive that is a block device of the guest.
fn over_ublk(shape: &Shape) -> Said {
    let share = guest::share_with_program();
    for test in WITH_FAULTS {
        fs::write(share.path().join(format!("plan{test}.toml")), plan(test, shape)).unwrap();
    }
    let guest = shape.guest().share(share.path()).set("UBLK", shape.device());
    Said::of(guest.set("WITH_FAULTS", WITH_FAULTS.map(|test| test.to_string()).join(" ")).lines())
}

/// Results of a drive that is a SCSI disk of the guest.
fn over_scsi(shape: &Shape) -> Said {
    let (dir, share) = (tempfile::tempdir().unwrap(), guest::share());
    let serials: Vec<String> =
        (0..=WITH_FAULTS.len()).map(|n| format!("67e5504410b1426f9247bb680e5fe0{n:02x}")).collect();
    let sockets: Vec<PathBuf> = serials.iter().map(|serial| dir.path().join(serial)).collect();
    let served: Vec<Fronts> = (0..serials.len())
        .map(|n| {
            let faults = n.checked_sub(1).map(|n| WITH_FAULTS[n]);
            let faults = faults.map(|test| {
                fs::write(dir.path().join(format!("plan{test}.toml")), plan(test, shape)).unwrap();
                format!("fault:plan=plan{test}.toml+")
            });
            let device = format!("{}{} --uuid {}", faults.unwrap_or_default(), shape.device(), serials[n]);
            guest::scsi_disk(dir.path(), &device, &sockets[n])
        })
        .collect();
    let with_faults: Vec<String> =
        WITH_FAULTS.iter().zip(&serials[1..]).map(|(test, serial)| format!("{test},{serial}")).collect();
    let paths: Vec<&Path> = sockets.iter().map(PathBuf::as_path).collect();
    let guest = shape.guest().share(share.path()).scsi_disks(2048, &paths).set("SCSI", &serials[0]);
    let said = Said::of(guest.set("WITH_FAULTS", with_faults.join(" ")).lines());
    drop(served);
    said
}

/// Asserts that the drive passes every test that null_blk passes, and skips no others.
fn is_as_good_as(whose: &str, ours: &Said, baseline: &Said) {
    ours.print(whose);
    for log in ours.logs.iter().chain(&baseline.logs) {
        eprintln!("{log}");
    }
    for fact in
        ["zoned", "chunk_sectors", "nr_zones", "max_open_zones", "max_active_zones", "logical_block_size"]
    {
        let (ours, theirs) = (&ours.facts[fact], &baseline.facts[fact]);
        assert!(ours == theirs, "{fact}, {whose}: {ours}, null_blk: {theirs}");
    }
    assert!(ours.outcomes.len() >= TESTS_MIN, "all tests of the suite have run, {whose}");
    assert!(ours.outcomes.keys().eq(baseline.outcomes.keys()), "the same tests have run, {whose}");
    for (whose, said) in [(whose, ours), ("null_blk", baseline)] {
        assert_eq!(said.that("fail"), [0; 0], "tests that fail, {whose}");
        assert_eq!(said.that("pass").len() + said.that("skip").len(), said.outcomes.len(), "{whose}");
    }
    let mut only_ours = ours.that("skip");
    only_ours.retain(|number| !baseline.outcomes[number].starts_with("skip"));
    assert_eq!(only_ours, [0; 0], "tests that null_blk does not skip, {whose}");
}

/// A front, and the function that returns the results of a drive attached over it.
type Front = (&'static str, fn(&Shape) -> Said);

fn suite_passes(shape: &Shape, fronts: &[Front]) {
    let baseline = baseline(shape);
    for (whose, said) in fronts {
        is_as_good_as(whose, &said(shape), &baseline);
    }
}

#[test]
#[ignore = "fio's suite three times: 30 minutes or more"]
fn fio_suite_without_limits_passes() {
    let shape =
        Shape { zones: 256, conventional: 0, zone_size: 4, zone_capacity: 4, max_open: 0, max_active: 0 };
    suite_passes(&shape, &[("NVMe/TCP", over_nvme), ("ublk", over_ublk)]);
}

#[test]
#[ignore = "fio's suite three times: 30 minutes or more"]
fn fio_suite_with_limits_passes() {
    let shape =
        Shape { zones: 256, conventional: 0, zone_size: 4, zone_capacity: 3, max_open: 8, max_active: 8 };
    suite_passes(&shape, &[("NVMe/TCP", over_nvme), ("ublk", over_ublk)]);
}

/// A namespace has zones of one kind, so this is for disks. ZBC has no limit on active zones. If
/// the capacity is below the zone size, a SCSI disk has gaps, which the suite reads.
#[test]
#[ignore = "fio's suite three times: 30 minutes or more"]
fn fio_suite_with_limits_and_conventional_zones_passes() {
    let shape =
        Shape { zones: 256, conventional: 64, zone_size: 4, zone_capacity: 4, max_open: 8, max_active: 0 };
    suite_passes(&shape, &[("ublk", over_ublk), ("SCSI", over_scsi)]);
}
