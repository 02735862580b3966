//! Block devices of the guest's kernel as drives: the program and the conformance kit run in the
//! guest.

use crate::differences;
use std::path::Path;
use zonal_check::guest::{self, Guest};

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
    let share = guest::share_with_program();
    std::fs::copy(Path::new(env!("CARGO_BIN_EXE_conformance")), share.path().join("conformance")).unwrap();
    let lines = Guest::script("blk.sh", 300).share(share.path()).lines();
    let is_older = std::env::var_os("ZONAL_GUEST_LINUX").is_some();
    let is_there = |key: &str| lines.iter().any(|line| line.split(' ').next() == Some(key));
    let expected = FOUND.iter().filter(|(key, _)| !is_older || !NEWER.contains(key) || is_there(key));
    let found = differences(&lines, &expected.copied().collect::<Vec<_>>());
    assert!(found.is_empty(), "on block devices:\n{}", found.join("\n"));
}
