//! Drives as block devices of the guest's kernel, over its ublk driver: the program runs in the
//! guest.

use crate::kills::Found;
use crate::{differences, image_bytes};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use std::fs;
use tempfile::TempDir;
use zonal_check::guest::{self, Guest};
use zonal_check::program;

/// Zones of both kinds and a capacity below the zone size. The image is in the share.
const IMAGE: &str = "create d --size 128M --zone-size 8M --zone-capacity 6M --zone-nr-conv 4 --zone-max-open 4 --zone-max-active 6";

/// Expected lines of `ublk.sh`.
const SHOWN: &[(&str, &str)] = &[
    (
        "no_driver",
        "zonal: ram:size=64M,zone_size=4M: the kernel's ublk driver is not loaded; load it with 'modprobe ublk_drv' (Linux 6.6, with CONFIG_BLK_DEV_UBLK)",
    ),
    (
        "no_right",
        "zonal: ram:size=64M: cannot open /dev/ublk-control (Permission denied (os error 13)): creating block devices requires root",
    ),
    (
        "smaller_last_zone",
        "zonal: ram:size=63M,zone_size=4M: the last zone is smaller than the others, but a ublk device needs zones of equal size",
    ),
    ("disk", "/dev/ublkb0"),
    ("zoned", "host-managed"),
    ("chunk_sectors", "16384"),
    ("nr_zones", "16"),
    ("max_open_zones", "4"),
    ("max_active_zones", "6"),
    ("logical_block_size", "4096"),
    ("zone_append_max_bytes", "1048576"),
    ("max_hw_sectors_kb", "1024"),
    ("rotational", "0"),
    ("write_cache", "write back"),
    ("fua", "1"),
    ("zone_write_granularity", "4096"),
    ("sectors", "262144"),
    ("types", "4 12"),
    (
        "zone.first",
        "start: 0x000010000, len 0x004000, cap 0x003000, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]",
    ),
    ("write.conventional", "ok"),
    ("write.at_pointer", "ok"),
    ("write.durable", "ok"),
    ("zone.written", "2(oi) 0x000018"),
    ("write.beyond_pointer", "Input/output error"),
    ("read", "same"),
    ("blkzone.open", "ok 3(oe) 0x000000"),
    ("blkzone.close", "ok 4(cl) 0x000018"),
    ("blkzone.finish", "ok 14(fu) N/A"),
    ("write.full", "Input/output error"),
    ("blkzone.reset", "ok 1(em) 0x000000"),
    ("open.five", "ok ok ok failed"),
    ("blkzone.reset_all", "ok"),
    ("zones.empty", "12"),
    ("discard", "ok"),
    ("zeroes", "ok 2(oi) 0x000800"),
    ("zonefs", "ok ok"),
    ("zonefs.write", "ok"),
    ("zonefs.size", "16384 same"),
    ("zonefs.unmount", "ok"),
    ("stat", "2"),
    ("left.durable", "ok ok"),
    ("ended", "ok"),
    ("files.left", "0"),
    ("rotational.attributes", "1 write through 0"),
    ("rotational.write", "ok ok"),
    ("rotational.ended", "ok"),
    ("read_only", "1 262144"),
    ("read_only.ended", "ok"),
    ("ends.TERM", "Input/output error"),
    ("ends.KILL", "Input/output error"),
    ("killed.left", "ublkc0"),
    ("killed.next", "ublkb0 ublkc0 /dev/ublkb0"),
    ("killed.ended", "ok"),
    ("kept.write", "ok"),
    ("kept.copy", "/dev/ublkb1 ok"),
    (
        "kept.changed",
        "zonal: /share/d: /dev/ublkb0 waits for a server with its earlier options; start that server and end it first",
    ),
    ("kept.disk", "/dev/ublkb0"),
    ("kept.waited", "0 2(oi) 0x000028"),
    ("kept.lacking", "its threads its character device"),
    ("kept.again", "/dev/ublkb0"),
    ("kept.ended", "ok"),
];

/// A directory for the guest, with the program and an image.
fn share_with_image(create: &str) -> TempDir {
    let share = guest::share_with_program();
    program::run(share.path(), create).done();
    share
}

#[test]
#[ignore = "two minutes"]
fn linux_shows_drives_as_block_devices_and_keeps_them_when_their_server_is_killed() {
    let share = share_with_image(IMAGE);
    let mut pattern = vec![0; 16 << 10];
    Pcg64Mcg::seed_from_u64(0).fill_bytes(&mut pattern);
    fs::write(share.path().join("pattern"), &pattern).unwrap();
    let guest = Guest::script("ublk.sh", 300).share(share.path()).set("DRIVE", "/share/d");
    let rotational = "ram:size=64M,zone_size=4M,blocksize=4096,rotational=1,zone_nr_conv=2";
    let found = differences(&guest.set("ROTATIONAL", rotational).lines(), SHOWN);
    assert!(found.is_empty(), "Linux shows:\n{}", found.join("\n"));

    let report = program::run(share.path(), "report d --json").done();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let zone = &report["zones"][12];
    let written = zone["write_pointer"].as_u64().unwrap() - zone["start"].as_u64().unwrap();
    assert_eq!((zone["condition"].as_str(), written), (Some("CLOSED"), 20 << 10));
    let start = 12 * (8 << 20);
    let image = share.path().join("d");
    assert!(image_bytes(&image, start, 12 << 10) == pattern[..12 << 10], "what was flushed");
    assert!(
        image_bytes(&image, start + (16 << 10), 4 << 10) == pattern[..4 << 10],
        "what waited for a server"
    );
}

/// Kills the server of an image in the guest, and checks the output of `kills.py`.
fn killed(rounds: u32, seed: u32) {
    let share = share_with_image("create d --size 128M --zone-size 4M --zone-capacity 3M --zone-nr-conv 2");
    fs::copy(guest::scripts().join("kills.py"), share.path().join("kills.py")).unwrap();
    let guest = Guest::script("ublk_kills.sh", 1800).share(share.path()).set("DRIVE", "/share/d");
    let lines = guest.set("ROUNDS", rounds).set("SEED", seed).lines();
    let found = Found::of(lines, rounds);
    assert_eq!((found.fact("disk"), found.fact("server")), (Some("/dev/ublkb0"), Some("ok")));
    assert_eq!(found.fact("disks"), Some(&*format!("again /dev/ublkb0 {rounds}")), "one disk");
    // The kernel holds back requests until a server has taken over.
    assert_eq!(found.number("unanswered"), 0, "requests that failed");
    program::run(share.path(), "report d --json").done();
}

#[test]
#[ignore = "minutes"]
fn killed_server_of_a_block_device_loses_nothing_and_fails_no_request() {
    killed(20, 0);
}

/// Bounds for the ratios of docs/SERVE.md, in a test build of the program.
#[test]
#[ignore = "a minute"]
fn request_takes_less_than_three_times_the_instructions_of_one_to_null_blk() {
    let share = guest::share_with_program();
    let lines = Guest::script("ublk_speed.sh", 300).share(share.path()).icount().lines();
    eprintln!("{}", lines.join("\n"));
    let number = |key: &str| -> f64 {
        let number = lines.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok());
        number.unwrap_or_else(|| panic!("no {key}"))
    };
    for job in ["randread", "randwrite"] {
        let ratio = number(&format!("ublk.{job}")) / number(&format!("null_blk.{job}"));
        assert!(ratio < 3.0, "{job}: {ratio:.2}");
    }
}
