//! Linux as a host of `zonal serve`, over NVMe/TCP and with its own ublk driver.
//!
//! The kernel is a distribution's, in a machine emulated by QEMU. `scripts/guest.sh build` prepares
//! it; see docs/GUEST.md. Ignored tests take minutes; `make guest` runs them.

mod blk;
mod commands;
mod doctor;
mod filesystems;
mod kills;
mod scsi;
mod twins;
mod ublk;
mod zbd;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zonal_check::guest::{self, Guest};
use zonal_check::program;
use zonal_check::program::served::Served;

/// A drive with zones of both kinds and a capacity below the zone size.
const BOTH_KINDS: &str = "create d --size 128M --zone-size 8M --zone-capacity 6M --zone-nr-conv 4 --zone-max-open 4 \
                          --zone-max-active 6 --uuid 67e55044-10b1-426f-9247-bb680e5fe0c8";

/// The second write fails, and so does a read of the first blocks of zone 2. The second write to
/// zone 5 finds it read-only.
const FAULTS: &str = r#"
bad_blocks = ["+16384-16391"]

[[rule]]
on = "writes"
nth = 2
error = "medium"
fault = "refuse"

[[rule]]
on = "writes"
zones = 5
nth = 2
fault = "read-only"
"#;

/// Expected lines of `attach.sh`.
const ATTACHED: &[(&str, &str)] = &[
    ("discovered", "nqn.2014-08.org.nvmexpress:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8"),
    ("connected", "ok"),
    ("disks", "2"),
    ("zoned.zoned", "host-managed"),
    ("zoned.chunk_sectors", "16384"),
    ("zoned.nr_zones", "12"),
    ("zoned.max_open_zones", "4"),
    ("zoned.max_active_zones", "6"),
    ("zoned.zone_append_max_bytes", "1048576"),
    ("zoned.zone_write_granularity", "4096"),
    ("zoned.logical_block_size", "4096"),
    ("zoned.max_hw_sectors_kb", "1024"),
    ("zoned.write_cache", "write back"),
    ("zoned.sectors", "196608"),
    ("zoned.uuid", "67e55044-10b1-426f-9247-bb680e5fe0c8"),
    ("conventional.zoned", "none"),
    ("conventional.sectors", "65536"),
    (
        "report.kernel",
        "12 len 0x004000, cap 0x003000, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]",
    ),
    ("report.drive", "12 SEQWRITE_REQ EMPTY 1536 0"),
    ("write.at_pointer", "ok"),
    ("append.lba", "2"),
    // Invalid Field.
    ("append.not_zone_start", "0x4002"),
    ("read.written", "same"),
    ("read.appended", "same"),
    // Zone Invalid Write.
    ("write.misplaced", "0x41bc"),
    ("write.below_pointer", "0x41bc"),
    ("zones.written", "IMP_OPENED:4 EMPTY:0"),
    ("reset", "ok"),
    ("zones.reset", "EMPTY:0 EMPTY:0"),
    ("dd", "ok"),
    ("dd.pointer", "0x000020"),
    ("blkzone.finish", "ok"),
    // Zone Is Full.
    ("write.full", "0x41b9"),
    ("blkzone.reset", "ok"),
    ("zones.finished", "EMPTY:0 FULL:1536 EMPTY:0"),
    // Too Many Open Zones.
    ("open.five", "ok ok ok ok 0x41be"),
    ("write.too_many_open", "0x41be"),
    ("blkzone.reset_open", "ok"),
    // Too Many Active Zones. An open zone is closed for another.
    ("write.seven_active", "ok ok ok ok ok ok 0x41bd"),
    ("blkzone.reset_active", "ok"),
    ("mkfs", "ok"),
    ("mount", "ok"),
    ("copy", "ok"),
    ("unmount", "ok"),
    ("fsck", "ok"),
    ("mount_again", "ok"),
    ("file", "ok"),
    ("remove", "ok"),
    ("fstrim", "ok"),
    ("unmount_again", "ok"),
    // Hexadecimal.
    ("left.first", "ok 1802"),
    ("left.second", "ok"),
    ("left.finished", "ok"),
    ("left.conventional", "ok"),
    ("left.flushed", "ok ok"),
    ("complaints", "0"),
    ("faulty.connected", "ok"),
    // Write Fault, with an unchanged write pointer.
    ("faulty.writes", "ok 0x4280 ok"),
    // Unrecovered Read Error.
    ("faulty.read", "0x4281"),
    // Zone Is Read Only.
    ("faulty.worn", "ok 0x41ba"),
    ("faulty.condition", "13(ro)"),
    ("faulty.changed", "40960"),
    ("faulty.dd_read", "1"),
];

/// Differences between the printed lines, of a key and a value each, and the expected ones.
fn differences(lines: &[String], expected: &[(&str, &str)]) -> Vec<String> {
    let mut lines: Vec<(&str, &str)> =
        lines.iter().map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
    let mut found = Vec::new();
    for (key, wanted) in expected {
        let place = lines.iter().position(|(other, _)| other == key);
        let value = place.map_or("missing", |place| lines.remove(place).1);
        if value != *wanted {
            found.push(format!("{key}: {value}, expected: {wanted}"));
        }
    }
    found.extend(lines.into_iter().map(|(key, value)| format!("{key}: {value}, expected: no such line")));
    found
}

#[test]
fn canary_line_that_differs_is_found() {
    let lines = ["a 1", "b 2 3", "c"].map(str::to_owned);
    assert!(differences(&lines, &[("a", "1"), ("b", "2 3"), ("c", "")]).is_empty());
    assert_eq!(differences(&lines, &[("a", "1"), ("b", "2"), ("c", "")]).len(), 1, "another value");
    assert_eq!(differences(&lines, &[("a", "1"), ("b", "2 3")]).len(), 1, "a line too many");
    assert_eq!(
        differences(&lines[..2], &[("a", "1"), ("b", "2 3"), ("c", "")]).len(),
        1,
        "a line is missing"
    );
}

/// Bytes read directly from an image, at the offsets given in docs/IMAGE.md.
fn image_bytes(image: &Path, at: u64, len: usize) -> Vec<u8> {
    let file = File::open(image).unwrap();
    let mut offset = [0; 8];
    file.read_exact_at(&mut offset, 96).unwrap();
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, u64::from_le_bytes(offset) + at).unwrap();
    bytes
}

/// Slow: it boots a guest.
#[test]
fn linux_attaches_drives_and_finds_them_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    program::run(dir.path(), BOTH_KINDS).done();
    fs::write(dir.path().join("plan.toml"), FAULTS).unwrap();
    let share = guest::share();
    let mut pattern = vec![0; 16 << 10];
    Pcg64Mcg::seed_from_u64(0).fill_bytes(&mut pattern);
    fs::write(share.path().join("pattern"), &pattern).unwrap();

    let good = Served::start(dir.path(), "d");
    assert_eq!(good.namespaces, "nsid=1:zoned,nsid=2:conventional");
    let faulty = "fault:plan=plan.toml+ram:size=64M,zone_size=4M,blocksize=512";
    let faulty = Served::start(dir.path(), &format!("{faulty} --uuid 67e55044-10b1-426f-9247-bb680e5fe0d8"));
    assert_eq!(faulty.namespaces, "nsid=1:zoned");
    let guest = Guest::script("attach.sh", 300).share(share.path());
    let guest = guest.set("GOOD_PORT", good.address.port()).set("GOOD_NQN", &good.nqn);
    let lines = guest.set("FAULTY_PORT", faulty.address.port()).set("FAULTY_NQN", &faulty.nqn).lines();

    let disconnected =
        [&good.nqn, &faulty.nqn].map(|nqn| format!("NQN:{nqn} disconnected 1 controller(s)")).join(" ");
    let mut expected = ATTACHED.to_vec();
    expected.extend([("disconnected", disconnected.as_str()), ("disks.left", "0")]);
    let found = differences(&lines, &expected);
    assert!(found.is_empty(), "Linux finds:\n{}", found.join("\n"));

    assert_eq!((good.terminate(), faulty.terminate()), (Some(0), Some(0)));
    let report = program::run(dir.path(), "report d --json").done();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let zone = |n: usize| {
        let zone = &report["zones"][n + 4];
        let written = zone["write_pointer"].as_u64().map(|pointer| pointer - zone["start"].as_u64().unwrap());
        (zone["condition"].as_str().unwrap().to_owned(), written)
    };
    let kib = |condition: &str, kib: u64| (condition.to_owned(), Some(kib << 10));
    assert_eq!(zone(0), kib("EMPTY", 0));
    assert_eq!(zone(3), kib("CLOSED", 12));
    assert_eq!(zone(5), kib("CLOSED", 4));
    assert_eq!(zone(7), ("FULL".to_owned(), None));
    let bytes = |at: u64, len: usize| image_bytes(&dir.path().join("d"), at, len);
    const ZONE: u64 = 8 << 20;
    assert!(bytes(7 * ZONE, 8 << 10) == pattern[..8 << 10], "what was written to the fourth sequential zone");
    assert!(bytes(7 * ZONE + (8 << 10), 4 << 10) == pattern[..4 << 10], "what was appended to it");
    assert!(bytes(9 * ZONE, 4 << 10) == pattern[..4 << 10], "what was written to the sixth one");
    assert!(bytes(4 * ZONE - 4096, 4096) == pattern[..4096], "the last block of the conventional zones");
}
