//! Drives as SCSI disks of the guest: this machine's program is the back end of QEMU's
//! vhost-user-scsi, using shared memory.

use crate::{differences, image_bytes};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::fs;
use zonal_check::experiment::{Experiment, Scale, linux};
use zonal_check::guest::{self, Guest};
use zonal_check::program::{self, repository, zonal};

/// Zones of both kinds and a capacity below the zone size.
const IMAGE: &str = "create d --size 128M --zone-size 8M --zone-capacity 6M --zone-nr-conv 4 --zone-max-open 4 \
                     --uuid 67e55044-10b1-426f-9247-bb680e5fe0c8";

/// Expected lines of `scsi.sh`.
const FOUND: &[(&str, &str)] = &[
    ("zoned", "host-managed"),
    ("chunk_sectors", "16384"),
    ("nr_zones", "16"),
    ("max_open_zones", "4"),
    ("max_active_zones", "0"),
    ("logical_block_size", "4096"),
    ("rotational", "0"),
    ("write_cache", "write back"),
    ("fua", "1"),
    ("zoned_qd1_writes", "0"),
    ("sectors", "262144"),
    ("types", "4 12"),
    (
        "zone.first",
        "start: 0x000010000, len 0x004000, cap 0x003000, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]",
    ),
    ("inquiry", "host managed zoned block ZONAL ZONED DISK"),
    ("zbc", "urswrz 1 open 0x4 method 0x8 granularity 0x800"),
    ("naa", "0x35a2eb2c1eeea2a7"),
    ("zones.number", "1856"),
    ("zones.gaps", "12"),
    ("zones.empty", "12"),
    ("opcodes", "34"),
    ("luns", "0000000000000000"),
    ("verify", "ok"),
    ("turs", "ok"),
    ("logs", "ok"),
    ("write.conventional", "ok"),
    ("write.at_pointer", "ok"),
    ("zone.written", "2(oi) 0x000010"),
    ("read", "same"),
    ("raw.at_pointer", "Good"),
    ("raw.beyond_pointer", "Illegal Request Unaligned write command"),
    ("raw.below_pointer", "Illegal Request Unaligned write command"),
    ("raw.gap", "Illegal Request Attempt to access gap zone"),
    ("raw.beyond_end", "Illegal Request Logical block address out of range"),
    ("raw.unknown", "Illegal Request Invalid command operation code"),
    ("raw.not_zone_start", "Illegal Request Invalid field in cdb"),
    ("sg_zone.finish", "ok 14(fu) N/A"),
    ("raw.full", "Illegal Request Invalid field in cdb"),
    ("sg_reset_wp", "ok 1(em) 0x000000"),
    ("sg_zone.open", "ok ok ok ok"),
    ("raw.too_many", "Data Protect Insufficient zone resources"),
    ("sg_zone.close", "ok 1(em) 0x000000"),
    ("sg_reset_wp.all", "ok"),
    ("zones.reset", "12"),
    ("zeroes", "ok 2(oi) 0x000800"),
    ("zonefs", "ok ok"),
    ("zonefs.write", "ok"),
    ("zonefs.size", "16384 same"),
    ("zonefs.unmount", "ok"),
    ("left.durable", "ok ok"),
    ("differs.zbdc", "0"),
    ("differs.bl", "12"),
    ("differs.bdc", "2"),
    ("differs.lbpv", "10"),
    ("differs.zones", "0"),
    ("turns", "1 1 write through"),
];

#[test]
#[ignore = "a minute"]
fn linux_finds_a_scsi_disk_with_zones_of_both_kinds() {
    let (dir, share) = (tempfile::tempdir().unwrap(), guest::share());
    program::run(dir.path(), IMAGE).done();
    let mut pattern = vec![0; 16 << 10];
    Pcg64Mcg::seed_from_u64(0).fill_bytes(&mut pattern);
    fs::write(share.path().join("pattern"), &pattern).unwrap();
    let sockets = [dir.path().join("image"), dir.path().join("turns")];
    let image = guest::scsi_disk(dir.path(), "d", &sockets[0]);
    let turns = "ram:size=64M,zone_size=4M,blocksize=4096,rotational=1,zone_nr_conv=2";
    let uuid = "67e55044-10b1-426f-9247-bb680e5fe0d8";
    let turns = guest::scsi_disk(dir.path(), &format!("{turns} --uuid {uuid}"), &sockets[1]);
    let guest =
        Guest::script("scsi.sh", 300).share(share.path()).scsi_disks(1024, &[&sockets[0], &sockets[1]]);
    let guest = guest.set("SCSI", "67e5504410b1426f9247bb680e5fe0c8");
    let found = differences(&guest.set("TURNS", uuid.replace('-', "")).lines(), FOUND);
    assert!(found.is_empty(), "Linux finds:\n{}", found.join("\n"));

    assert_eq!((image.terminate(), turns.terminate()), (Some(0), Some(0)));
    let report = program::run(dir.path(), "report d --json").done();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let zone = &report["zones"][12];
    let written = zone["write_pointer"].as_u64().unwrap() - zone["start"].as_u64().unwrap();
    assert_eq!((zone["condition"].as_str(), written), (Some("CLOSED"), 12 << 10));
    assert!(image_bytes(&dir.path().join("d"), 12 * (8 << 20), 12 << 10) == pattern[..12 << 10]);
}

/// Runs the published experiment on the published kernel at minimal length: its table must be
/// complete.
#[test]
#[ignore = "minutes"]
fn linux_makes_published_experiments_on_a_disk_in_real_time() {
    let all = Experiment::all(&repository().join("experiments")).unwrap_or_else(|e| panic!("{e}"));
    let kernel = all.iter().find(|e| e.name == "s0-kernel").expect("it is there");
    let how = kernel.linux.as_ref().expect("Linux makes it");
    let measured = linux::run(kernel, how, &all, zonal(), Scale::Tiny).unwrap_or_else(|e| panic!("{e}"));
    let rows = measured.to_json()["rows"].as_array().unwrap().clone();
    // Six queue depths, one open zone, and five other numbers of zones, in two modes.
    assert_eq!(rows.len(), 24, "{rows:#?}");
    for row in rows {
        let made = row["linux"].as_array().unwrap();
        let is_made =
            |linux: &Value| linux["measured"].as_f64() > Some(0.0) && linux["idle"].as_f64() > Some(0.0);
        assert!(made.len() == 2 && made.iter().all(is_made), "{row:#}");
    }
}
