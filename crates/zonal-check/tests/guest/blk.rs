//! Block devices of the guest's kernel as drives: the program and the conformance kit run in the
//! guest.

use crate::differences;
use std::path::Path;
use tempfile::TempDir;
use zonal_check::guest::{self, Guest};
use zonal_check::program;
use zonal_check::program::served::Served;

/// Lines that older kernels do not have.
const NEWER: [&str; 6] =
    ["info.qd1.on", "bad.once", "bad.once.zone", "stale.kernel", "stale.reader", "stale.writer"];

/// Expected lines of `blk.sh` on Linux 7.2. Another kernel may lack those of [`NEWER`].
const FOUND: &[(&str, &str)] = &[
    ("info.zones", "16, of which 2 conventional"),
    ("info.zone_capacity", "6 MiB"),
    ("info.open_zones", "4"),
    ("info.active_zones", "6"),
    ("info.logical_block", "4 KiB"),
    ("info.write_mode", "per-zone: the device has no native zone append"),
    ("info.bare", "blk:/dev/nullb0"),
    ("info.drive", "a drive without a model name (no serial number)"),
    ("info.qd1", ""),
    ("info.qd1.on", "zoned_qd1_writes is on: one write at a time to the whole drive, in any write mode"),
    ("kit.null_blk", "kept 13"),
    ("kit.queues", "kept 13"),
    ("kit.readonly", "kept 3"),
    ("mode.direct", "ok"),
    ("mode.zone-lock", "ok"),
    ("mode.per-zone", "ok"),
    ("mode.qd1", "ok"),
    (
        "mode.pipelined",
        "failed: zonal: blk:/dev/nullb0: write mode pipelined needs queues that preserve the order of commands, which the device does not promise; --force runs it anyway",
    ),
    ("report.lines", "16"),
    ("report.same", "ok"),
    ("report.zbd", "ok"),
    (
        "guard",
        "blk:/dev/nullb0, a drive without a model name (no serial number): there is data of unknown origin (3 zones are not empty) on it; --yes overwrites it",
    ),
    ("readers", "24"),
    ("refused.ordinary", "is not host-managed: the kernel's zone model is none"),
    ("shared.ordinary_opener", "ok"),
    ("bad.once", "ok"),
    ("bad.once.zone", "zcond:14(fu)"),
    ("bad.always", "Input/output error"),
    ("kit.scsi_debug", "kept 13"),
    ("stale.before", "ok"),
    ("stale.drive", "wptr 0x000018"),
    ("stale.kernel", "16"),
    ("stale.reader", "0 16"),
    ("stale.writer", "1 24"),
    ("stale.cured", "ok"),
    ("busy.accepted", "0"),
    ("busy.status", "0"),
    ("busy.pointer", "wptr 0x000020"),
    ("files.format", "ok"),
    ("files.put", "ok"),
    ("files.get", "ok"),
    ("files.fsck", "ok"),
    ("files.mounted", "ok"),
    ("files.second", "1"),
    ("files.synced", "ok"),
    ("files.fsck_again", "ok"),
    ("pulled.status", "1"),
    ("pulled.gone", "some"),
];

#[test]
fn block_devices_are_drives() {
    let share = share();
    let lines = Guest::script("blk.sh", 300).share(share.path()).lines();
    let is_older = std::env::var_os("ZONAL_GUEST_LINUX").is_some();
    let is_there = |key: &str| lines.iter().any(|line| line.split(' ').next() == Some(key));
    let expected = FOUND.iter().filter(|(key, _)| !is_older || !NEWER.contains(key) || is_there(key));
    let found = differences(&lines, &expected.copied().collect::<Vec<_>>());
    assert!(found.is_empty(), "on block devices:\n{}", found.join("\n"));
}

/// Directory to share, with the program and the programs of this crate.
fn share() -> TempDir {
    let share = guest::share_with_program();
    for program in [env!("CARGO_BIN_EXE_conformance"), env!("CARGO_BIN_EXE_passthrough")] {
        let program = Path::new(program);
        std::fs::copy(program, share.path().join(program.file_name().unwrap())).unwrap();
    }
    share
}

/// Changes of zones behind the kernel's back.
const CHANGES: usize = 1000;

#[test]
#[ignore = "two minutes"]
fn zones_changed_behind_the_kernel_are_reported_and_do_not_disturb_others() {
    let share = share();
    let lines = Guest::script("blk_passthrough.sh", 600).share(share.path()).set("CHANGES", CHANGES).lines();
    let changes = CHANGES.to_string();
    let expected = [
        ("requests", "some"),
        ("failed", "0"),
        ("wrong", "0"),
        ("changes", changes.as_str()),
        ("unseen", "0"),
        ("refused", "0"),
    ];
    let found = differences(&lines, &expected);
    assert!(found.is_empty(), "after changes through sg:\n{}", found.join("\n"));
}

/// Identity of the SCSI disk, which is its serial number.
const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

const SHAPE: &str = "--size 256M --zone-size 8M --zone-capacity 6M --zone-nr-conv 4 --zone-max-open 8";

#[test]
#[ignore = "a minute"]
fn drives_of_other_drivers_conform() {
    let (dir, share) = (tempfile::tempdir().unwrap(), share());
    program::run(dir.path(), &format!("create scsi {SHAPE} --uuid {UUID}")).done();
    program::run(dir.path(), "create tcp --size 128M --zone-size 8M --zone-max-open 4").done();
    let socket = dir.path().join("socket");
    let scsi = guest::scsi_disk(dir.path(), "scsi", &socket);
    let tcp = Served::start(dir.path(), "tcp");
    let guest = Guest::script("blk_others.sh", 600).share(share.path()).scsi_disks(1024, &[&socket]);
    let guest = guest
        .qemu_drive("128M,zoned.zone_size=8M,zoned.zone_capacity=6M,zoned.max_open=4,zoned.max_active=6");
    let guest = guest.set("SCSI", UUID.replace('-', "")).set("PORT", tcp.address.port()).set("NQN", &tcp.nqn);
    let found = differences(&guest.lines(), OTHERS);
    assert!(found.is_empty(), "on block devices:\n{}", found.join("\n"));
    assert_eq!((scsi.terminate(), tcp.terminate()), (Some(0), Some(0)));
}

/// Expected lines of `blk_others.sh`.
const OTHERS: &[(&str, &str)] =
    &[("qemu", "zns kept 13"), ("scsi", "zbc kept 13"), ("tcp", "zns kept 13"), ("ublk", "zbc kept 13")];

/// Number of files that are synced before the guest is reset.
const FILES: usize = 40;

#[test]
#[ignore = "a minute"]
fn synced_files_survive_a_reset_of_the_machine() {
    let (dir, share) = (tempfile::tempdir().unwrap(), guest::share_with_program());
    program::run(dir.path(), &format!("create d {SHAPE} --uuid {UUID}")).done();
    let socket = dir.path().join("socket");
    let served = guest::scsi_disk(dir.path(), "d", &socket);
    let guest = |stage| {
        let guest = Guest::script("blk_cut.sh", 300).share(share.path()).scsi_disks(1024, &[&socket]);
        guest.set("SCSI", UUID.replace('-', "")).set("FILES", FILES).set("STAGE", stage)
    };
    guest("write").is_reset();
    let files = FILES.to_string();
    let expected = [("fsck", "ok"), ("compared", "ok"), ("files", files.as_str())];
    let found = differences(&guest("check").lines(), &expected);
    assert!(found.is_empty(), "after the reset:\n{}", found.join("\n"));
    assert_eq!(served.terminate(), Some(0));
}

/// Expected lines of `blk_after.sh`. A number of writes above 100 is `some`.
const AFTER: &[(&str, &str)] = &[
    ("fio.5", "ok cl em fu oe oi, PASS"),
    ("fio.7", "ok cl em fu oe oi, PASS"),
    ("fio.8", "ok cl em fu oe oi, PASS"),
    ("fio.15", "ok cl em fu oe oi, PASS"),
    ("fio.16", "ok cl em fu oe oi, PASS"),
    ("fio.28", "ok cl em fu oe oi, PASS"),
    ("fio.46", "ok cl em fu oe oi, PASS"),
    ("fio.59", "ok cl em fu oe oi, PASS"),
    ("fio.66", "ok cl em fu oe oi, PASS"),
    ("fio.68", "ok cl em fu oe oi, PASS"),
    ("fio.72", "ok cl em fu oe oi, PASS"),
    ("fio.73", "ok cl em fu oe oi, PASS"),
    ("btrfs.left", "ok cl em fu oe oi"),
    ("btrfs.make", "ok"),
    ("btrfs.mount", "ok"),
    ("btrfs.write", "ok"),
    ("btrfs.unmount", "ok"),
    ("btrfs.mount_again", "ok"),
    ("btrfs.compare", "ok"),
    ("btrfs.scrub", "no errors found"),
    ("btrfs.unmount_again", "ok"),
    ("btrfs.check", "ok"),
    ("xfs.conventional", "ok"),
    ("xfs.left", "ok cl em fu nw oe oi"),
    ("xfs.make", "ok"),
    ("xfs.mount", "ok"),
    ("xfs.write", "ok"),
    ("xfs.unmount", "ok"),
    ("xfs.mount_again", "ok"),
    ("xfs.compare", "ok"),
    ("xfs.unmount_again", "ok"),
    ("xfs.check", "ok"),
    ("partial.per-zone", "ok"),
    ("partial.per-zone.zone", "fu N/A"),
    ("partial.per-zone.read", "ok"),
    ("partial.zone-lock", "ok"),
    ("partial.zone-lock.zone", "fu N/A"),
    ("partial.zone-lock.read", "ok"),
    // Writes, misplaced ones, those above the limit, those that the kernel held back.
    ("trace.qd1", "ok"),
    ("trace.qd1.writes", "some 0 0 0"),
    ("trace.qd1.lost", "0"),
    ("trace.zone-lock", "ok"),
    ("trace.zone-lock.writes", "some 0 0 0"),
    ("trace.zone-lock.lost", "0"),
    ("trace.per-zone", "ok"),
    ("trace.per-zone.writes", "some 0 0 0"),
    ("trace.per-zone.lost", "0"),
    ("trace.per-zone.drive", "some 0 some 0"),
    ("trace.fio.writes", "some 0 0 some"),
    ("pulled.make", "ok"),
    ("pulled.writer", "failed"),
    ("pulled.unmount", "not everything written is durable"),
    ("pulled.status", "1"),
    ("pulled.said", "some"),
    ("pulled.full", "0"),
    ("pulled.fsck", "ok"),
    ("pulled.files", "some"),
    ("pulled.compared", "ok"),
    ("pulled.ended", "0"),
    ("boot.left", "ok cl em fu nw oe oi"),
    ("boot.make", "ok"),
    ("boot.mount", "ok"),
    ("boot.mounted", "/dev/nullb0 fuse.zonal rw,nosuid"),
    ("boot.again", "ok"),
    ("boot.mounts", "1"),
    ("boot.write", "ok"),
    ("boot.unmount", "ok"),
    ("boot.fsck", "ok"),
    ("boot.mount_again", "ok"),
    ("boot.compare", "ok"),
    ("boot.missing", "ok"),
    ("boot.beside", "1"),
    ("boot.words", "0"),
    ("still.status", "0"),
    // The read, and the write.
    ("still.told", "2 2"),
    ("still.zone", "oi 0x000008"),
    ("zones.left", "ok cl em fu nw oe oi"),
    ("zones.conditions", "cl em fu nw oe of oi ro"),
    ("zones.same", "ok"),
    ("zones.listed", "2"),
    ("zones.read", "ok"),
    (
        "zones.per-zone.read_only",
        "failed: zonal: job j: write of 8 sectors at sector 327680 failed: zone 20 is read-only",
    ),
    (
        "zones.per-zone.offline",
        "failed: zonal: job j: write of 8 sectors at sector 344064 failed: zone 21 is offline",
    ),
    (
        "zones.per-zone.beside",
        "failed: zonal: job bad: write of 128 sectors at sector 327680 failed: zone 20 is read-only (and 1 more failed)",
    ),
    ("zones.per-zone.zone", "fu N/A"),
    (
        "zones.zone-lock.read_only",
        "failed: zonal: job j: write of 8 sectors at sector 327680 failed: zone 20 is read-only",
    ),
    (
        "zones.zone-lock.offline",
        "failed: zonal: job j: write of 8 sectors at sector 344064 failed: zone 21 is offline",
    ),
    (
        "zones.zone-lock.beside",
        "failed: zonal: job bad: write of 128 sectors at sector 327680 failed: zone 20 is read-only (and 1 more failed)",
    ),
    ("zones.zone-lock.zone", "fu N/A"),
    (
        "zones.qd1.read_only",
        "failed: zonal: job j: write of 8 sectors at sector 327680 failed: zone 20 is read-only",
    ),
    (
        "zones.qd1.offline",
        "failed: zonal: job j: write of 8 sectors at sector 344064 failed: zone 21 is offline",
    ),
    (
        "zones.qd1.beside",
        "failed: zonal: job bad: write of 128 sectors at sector 327680 failed: zone 20 is read-only (and 1 more failed)",
    ),
    ("zones.qd1.zone", "fu N/A"),
    ("zones.skipped", "ok 1"),
    ("complaints", "0"),
];

/// On Linux 7.2: older kernels have no zoned XFS.
#[test]
#[ignore = "six minutes"]
fn drives_that_zonal_left_work_elsewhere() {
    let (dir, share) = (tempfile::tempdir().unwrap(), guest::share_with_program());
    program::run(dir.path(), &format!("create d {SHAPE} --uuid {UUID}")).done();
    let socket = dir.path().join("socket");
    let served = guest::scsi_disk(dir.path(), "d", &socket);
    let guest = Guest::script("blk_after.sh", 1200).share(share.path()).scsi_disks(2048, &[&socket]);
    let found = differences(&guest.set("SCSI", UUID.replace('-', "")).lines(), AFTER);
    assert!(found.is_empty(), "after Zonal:\n{}", found.join("\n"));
    assert_eq!(served.terminate(), Some(0));
}
