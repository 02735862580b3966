//! Linux file systems on served images: filled, half emptied, refilled, compared and checked; then
//! the image is checked on this machine.

use serde_json::Value;
use std::fs;
use std::path::Path;
use zonal_check::guest::{self, Guest};
use zonal_check::program;
use zonal_check::program::served::Served;

/// A file system and its requirements.
struct Case {
    kind: &'static str,
    /// Drive, as options of `zonal create`.
    drive: &'static str,
    /// Number of bytes to write; without it, as many as fit.
    bytes: Option<u64>,
    /// Minimum number of bytes that fit.
    fill_min: u64,
    /// Minimum number of bytes that fit again after half was removed. Without it nothing is
    /// removed.
    again_min: Option<u64>,
}

/// Last number of a line `KEY ok FILES BYTES`.
fn bytes(lines: &[String], key: &str) -> u64 {
    let line =
        lines.iter().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("no line {key}"));
    let number = line.strip_prefix(" ok ").and_then(|words| words.split(' ').next_back()?.parse().ok());
    number.unwrap_or_else(|| panic!("{key}{line}"))
}

/// Runs the case over NVMe/TCP.
fn is_served(case: &Case) {
    let dir = tempfile::tempdir().unwrap();
    program::run(dir.path(), &format!("create d {}", case.drive)).done();
    let share = guest::share();
    let served = Served::start(dir.path(), "d");
    let lines = case.lines(share.path(), |guest| {
        guest.memory(2048).set("PORT", served.address.port()).set("NQN", &served.nqn)
    });
    // No command of the drive has failed.
    let wanted = [("connected", "ok"), ("failed_commands", "0"), ("disconnected", "disconnected 1 ")];
    case.check(&lines, &wanted);
    assert_eq!(served.terminate(), Some(0));
    image_is_sound(dir.path());
}

/// Runs the case on a block device of the guest, with zones of both kinds.
fn is_shown(case: &Case) {
    let share = guest::share_with_program();
    program::run(share.path(), &format!("create d {}", case.drive)).done();
    let lines = case.lines(share.path(), |guest| guest.memory(3072).set("UBLK", "/tmp/d"));
    case.check(&lines, &[("ended", "ok")]);
    image_is_sound(share.path());
}

/// Runs the case on a SCSI disk of the guest, with zones of both kinds.
fn is_scsi_disk(case: &Case) {
    let (dir, share) = (tempfile::tempdir().unwrap(), guest::share());
    program::run(dir.path(), &format!("create d {} --uuid {UUID}", case.drive)).done();
    let socket = dir.path().join("socket");
    let served = guest::scsi_disk(dir.path(), "d", &socket);
    let serial = UUID.replace('-', "");
    let lines = case.lines(share.path(), |guest| guest.scsi_disks(2048, &[&socket]).set("SCSI", serial));
    case.check(&lines, &[]);
    assert_eq!(served.terminate(), Some(0));
    image_is_sound(dir.path());
}

const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

impl Case {
    /// Output of the script, after `drive` has configured the drive.
    fn lines(&self, share: &Path, drive: impl FnOnce(Guest) -> Guest) -> Vec<String> {
        fs::copy(guest::scripts().join("fill.py"), share.join("fill.py")).unwrap();
        let guest = Guest::script("filesystems.sh", 1800).share(share).set("KIND", self.kind);
        let guest = self.bytes.into_iter().fold(drive(guest), |guest, bytes| guest.set("BYTES", bytes));
        let lines = self.again_min.into_iter().fold(guest, |guest, _| guest.set("REMOVE", 1)).lines();
        eprintln!("{}", lines.join("\n"));
        lines
    }

    fn check(&self, lines: &[String], of_drive: &[(&str, &str)]) {
        let wanted = [
            ("mkfs", "ok"),
            ("mount", "ok"),
            ("mounted", self.kind),
            ("unmount", "ok"),
            ("check", "ok"),
            ("mount_again", "ok"),
            ("unmount_again", "ok"),
            ("complaints", "0"),
        ];
        for (key, wanted) in wanted.iter().chain(of_drive) {
            let value = lines.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            assert_eq!(value, Some(*wanted), "{key}");
        }
        let filled = bytes(lines, "fill");
        assert!(filled >= self.fill_min, "{filled} bytes fit");
        let mut all = filled;
        if let Some(again_min) = self.again_min {
            let half = bytes(lines, "remove");
            all = bytes(lines, "fill_again");
            assert!(all - half >= again_min, "{} bytes fit after {} were removed", all - half, filled - half);
        }
        assert_eq!((bytes(lines, "verify"), bytes(lines, "verify_again")), (all, all));
    }
}

/// The image opens and can be reported on this machine; after a shutdown no zone is open, and no
/// write pointer is outside of its zone.
fn image_is_sound(directory: &Path) {
    let report = program::run(directory, "report d --json").done();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let zones = report["zones"].as_array().expect("zones");
    assert!(!zones.is_empty());
    for zone in zones {
        let number = |key: &str| zone[key].as_u64();
        let condition = zone["condition"].as_str().expect("a condition");
        let (start, capacity) = (number("start").expect("a start"), number("capacity").expect("a capacity"));
        let pointer = number("write_pointer");
        let is_right = match condition {
            "EMPTY" => pointer == Some(start),
            "CLOSED" => pointer.is_some_and(|pointer| (start..start + capacity).contains(&pointer)),
            "FULL" | "NOT_WP" => pointer.is_none(),
            _ => false,
        };
        assert!(is_right, "{zone}");
    }
}

#[test]
#[ignore = "minutes"]
fn f2fs_on_both_namespaces_survives_filling_and_remounting() {
    is_served(&Case {
        kind: "f2fs",
        drive: "--size 576M --zone-size 8M --zone-nr-conv 8 --zone-max-open 14 --zone-max-active 14",
        bytes: None,
        fill_min: 200 << 20,
        again_min: Some(50 << 20),
    });
}

#[test]
#[ignore = "minutes"]
fn zonefs_survives_filling_and_remounting() {
    is_served(&Case {
        kind: "zonefs",
        drive: "--size 256M --zone-size 8M --zone-capacity 6M --zone-max-open 14 --zone-max-active 14",
        bytes: None,
        fill_min: 31 * (6 << 20),
        again_min: Some(15 * (6 << 20)),
    });
}

#[test]
#[ignore = "minutes"]
fn xfs_on_both_namespaces_survives_filling_and_remounting() {
    is_served(&Case {
        kind: "xfs",
        drive: "--size 832M --zone-size 8M --zone-nr-conv 40 --zone-max-open 14 --zone-max-active 14",
        bytes: None,
        fill_min: 200 << 20,
        again_min: Some(50 << 20),
    });
}

#[test]
#[ignore = "minutes"]
fn ext4_on_conventional_zones_survives_filling_and_remounting() {
    is_served(&Case {
        kind: "ext4",
        drive: "--size 264M --zone-size 8M --zone-nr-conv 32",
        bytes: None,
        fill_min: 150 << 20,
        again_min: Some(50 << 20),
    });
}

/// docs/GUEST.md explains why nothing is removed.
#[test]
#[ignore = "minutes"]
fn btrfs_fills() {
    is_served(&Case {
        kind: "btrfs",
        drive: "--size 768M --zone-size 8M --zone-max-open 14 --zone-max-active 14",
        bytes: None,
        fill_min: 500 << 20,
        again_min: None,
    });
}

#[test]
#[ignore = "minutes"]
fn partly_filled_btrfs_survives_remounting() {
    is_served(&Case {
        kind: "btrfs",
        drive: "--size 768M --zone-size 8M --zone-max-open 14 --zone-max-active 14",
        bytes: Some(250 << 20),
        fill_min: 250 << 20,
        again_min: Some(100 << 20),
    });
}

/// On a single disk with zones of both kinds.
const F2FS: Case = Case {
    kind: "f2fs",
    drive: "--size 576M --zone-size 8M --zone-nr-conv 8 --zone-max-open 14 --zone-max-active 14",
    bytes: None,
    fill_min: 200 << 20,
    again_min: Some(50 << 20),
};

/// See [`F2FS`].
const ZONEFS: Case = Case {
    kind: "zonefs",
    drive: "--size 256M --zone-size 8M --zone-nr-conv 1 --zone-max-open 14 --zone-max-active 14",
    bytes: None,
    fill_min: 31 * (8 << 20),
    again_min: Some(15 * (8 << 20)),
};

/// See [`F2FS`].
const XFS: Case = Case {
    kind: "xfs",
    drive: "--size 832M --zone-size 8M --zone-nr-conv 40 --zone-max-open 14 --zone-max-active 14",
    bytes: None,
    fill_min: 200 << 20,
    again_min: Some(50 << 20),
};

/// See [`F2FS`].
const BTRFS: Case = Case {
    kind: "btrfs",
    drive: "--size 768M --zone-size 8M --zone-nr-conv 4 --zone-max-open 14 --zone-max-active 14",
    bytes: Some(250 << 20),
    fill_min: 250 << 20,
    again_min: Some(100 << 20),
};

#[test]
#[ignore = "minutes"]
fn f2fs_on_a_block_device_survives_filling_and_remounting() {
    is_shown(&F2FS);
}

#[test]
#[ignore = "minutes"]
fn zonefs_on_a_block_device_survives_filling_and_remounting() {
    is_shown(&ZONEFS);
}

#[test]
#[ignore = "minutes"]
fn xfs_on_a_block_device_survives_filling_and_remounting() {
    is_shown(&XFS);
}

#[test]
#[ignore = "minutes"]
fn partly_filled_btrfs_on_a_block_device_survives_remounting() {
    is_shown(&BTRFS);
}

#[test]
#[ignore = "minutes"]
fn f2fs_on_a_scsi_disk_survives_filling_and_remounting() {
    is_scsi_disk(&F2FS);
}

#[test]
#[ignore = "minutes"]
fn zonefs_on_a_scsi_disk_survives_filling_and_remounting() {
    is_scsi_disk(&ZONEFS);
}

#[test]
#[ignore = "minutes"]
fn xfs_on_a_scsi_disk_survives_filling_and_remounting() {
    is_scsi_disk(&XFS);
}

#[test]
#[ignore = "minutes"]
fn partly_filled_btrfs_on_a_scsi_disk_survives_remounting() {
    is_scsi_disk(&BTRFS);
}
