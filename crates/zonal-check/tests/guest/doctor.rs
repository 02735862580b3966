//! `zonal list` and `zonal doctor` on drives of the guest.

use crate::differences;
use zonal_check::guest::{self, Guest};

/// Expected lines of `doctor.sh`: exit code and keys of the findings.
const FOUND: &[(&str, &str)] = &[
    ("machine", "0"),
    ("null_blk", "0"),
    ("null_blk.notes", "capacity-below-size"),
    (
        "null_blk.text",
        "/dev/nullb0: fit: a drive without a model name (no serial number), 512 MiB, 32 zones of 16 MiB; 1 note, see --notes",
    ),
    ("listed", "/dev/nullb0 - - 512 MiB host-managed 32 x 16 MiB 2 -"),
    ("scheduler", "1 scheduler"),
    ("small_commands", "1 small-commands"),
    ("zones", "1 zones-offline zones-read-only"),
    ("open", "1 zones-offline zones-read-only open-zones"),
    ("active", "1 zones-offline zones-read-only active-zones"),
    ("read_only", "1 read-only zones-offline zones-read-only"),
    ("user", "1"),
    ("file", "4"),
    ("missing", "4 no-device"),
    ("nvme", "0"),
    ("written", "0"),
    ("reset_behind", "1 stale-pointer"),
    ("reset_behind.text", "zone 3: drive at sector 0, kernel at 8"),
    ("heal", "0"),
    ("healed", "0"),
    ("reset", "0"),
    ("finished_behind", "1 stale-pointer"),
    ("mounted", "1 mounted other-data"),
    ("mounted.listed", "1"),
    ("unmounted", "1 other-data"),
    ("buffered", "1 other-data lost-writes"),
    ("scsi", "1 scheduler"),
    ("scsi.notes", ""),
    ("offline", "4 offline"),
    ("flushes", "1 flushes-off scheduler"),
    ("sg", "1 sg-only"),
];

#[test]
#[ignore = "a minute"]
fn doctor_finds_each_problem_of_the_guests_drives_and_none_before() {
    let share = guest::share_with_program();
    let drive = "512M,zoned.zone_size=8M,zoned.max_open=8";
    let guest = Guest::script("doctor.sh", 300).share(share.path()).qemu_drive(drive);
    let found = differences(&guest.lines(), FOUND);
    assert!(found.is_empty(), "the doctor finds:\n{}", found.join("\n"));
}
