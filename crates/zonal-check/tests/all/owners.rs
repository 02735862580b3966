//! Drives with data of another owner, and the commands that would overwrite it.

use std::fs;
use std::path::Path;
use tempfile::TempDir;
use zonal_check::program;
use zonal_core::{Op, SECTOR_BYTES, Sector};
use zonal_io::buffer::IoBuf;
use zonal_io::data::{Data, Segment};
use zonal_io::device::Command;
use zonal_io::registry::Registry;
use zonal_io::volume::run_alone;

/// Commands that destroy data of a drive `d`, without confirmation.
const COMMANDS: [&str; 8] = [
    "bench --device d --name=w --rw=write --bs=4k --size=64k",
    "bench --device d --target=fs --name=w --rw=write --bs=64k --filesize=1M",
    "replay t.csv --device d --speed max",
    "calibrate d -o p.toml",
    "reset d --all",
    "finish d --offset 12M",
    "zone d --zone 3 --set offline",
    "mkfs d",
];

/// Owners as printed by the commands, each with the first bytes of its drive.
fn owners() -> Vec<(&'static str, Vec<u8>)> {
    let head = |pieces: &[(usize, &[u8])]| {
        let mut head = vec![0; 128 << 10];
        for (at, bytes) in pieces {
            head[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        head
    };
    let partition = [0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0];
    vec![
        ("a file system of XFS", head(&[(0, b"XFSB")])),
        ("a file system of btrfs", head(&[(0x1_0040, b"_BHRfS_M")])),
        ("a file system of F2FS", head(&[(1024, &[0x10, 0x20, 0xF5, 0xF2])])),
        ("a file system of zonefs", head(&[(0, b"SFOZ")])),
        ("a file system of ext4", head(&[(0x438, &[0x53, 0xEF])])),
        ("a partition table (GPT)", head(&[(512, b"EFI PART")])),
        ("a partition table (MBR)", head(&[(446, &partition), (510, &[0x55, 0xAA])])),
    ]
}

/// A directory with a drive `d` and a trace.
fn drive(conventional: u32) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let line = format!("create d --size 48M --zone-size 2M --zone-nr-conv {conventional}");
    program::run(dir.path(), &line).done();
    fs::write(dir.path().join("t.csv"), "10,host,0,Write,0,4096\n20,host,0,Read,0,4096\n").unwrap();
    dir
}

/// Writes to the beginning of the drive.
fn write(dir: &Path, bytes: &[u8]) {
    let name = dir.join("d").into_os_string().into_string().unwrap();
    let device = Registry::default().open(&name).unwrap();
    let mut buffer = IoBuf::zeroed(bytes.len() as u32);
    buffer.copy_from_slice(bytes);
    // SAFETY: the buffer lives until the command has ended.
    let data = unsafe { Data::one(Segment::new(buffer.as_ptr(), buffer.len())) };
    let sectors = (bytes.len() as u64 / SECTOR_BYTES) as u32;
    run_alone(&*device, &Command { fua: true, data, ..Command::new(Op::Write, Sector(0), sectors) }).unwrap();
}

/// Each command refuses the drive, gives the reason, and changes no byte.
fn is_refused(dir: &Path, owner: &str) {
    let before = fs::read(dir.join("d")).unwrap();
    for line in COMMANDS {
        let said = program::run(dir, line).refused(4);
        assert!(said.contains(owner) && said.contains("--yes"), "{line}: {said}");
    }
    assert!(fs::read(dir.join("d")).unwrap() == before, "{owner}: the drive has changed");
    assert!(!dir.join("p.toml").exists());
}

#[test]
fn drive_of_another_owner_is_refused_and_not_changed() {
    for (owner, head) in owners() {
        let dir = drive(2);
        write(dir.path(), &head);
        is_refused(dir.path(), owner);
    }
    for conventional in [0, 2] {
        let dir = drive(conventional);
        program::run(dir.path(), "mkfs d --label films").done();
        is_refused(dir.path(), "the file system `films` of Zonal");
    }
}

/// A superblock may be there.
#[test]
fn drive_with_an_unreadable_superblock_is_refused_and_an_unwritten_one_is_not() {
    for conventional in [4, 0] {
        let dir = drive(conventional);
        let dir = dir.path();
        program::run(dir, "zone d --badblocks=+0-7").done();
        match conventional {
            0 => drop(
                program::run(dir, "bench --device d --name=w --rw=write --bs=4k --offset=2M --size=64k")
                    .done(),
            ),
            _ => is_refused(dir, "data of unknown origin (sector 0 cannot be read: medium error)"),
        }
    }
    let dir = drive(4);
    let dir = dir.path();
    let mut head = vec![0; 4096];
    head[..4].copy_from_slice(b"XFSB");
    write(dir, &head);
    for rate in ["medium=1", "time-out=1"] {
        let output = program::run(dir, &format!("reset fault:{rate}+image:d --all")).refused(4);
        assert!(output.contains("data of unknown origin (sector 0 cannot be read"), "{rate}: {output}");
    }
}

/// The superblocks move away from zones that accept no writes.
#[test]
fn commands_refuse_to_overwrite_a_file_system_with_moved_superblocks() {
    for condition in ["offline", "restored"] {
        let dir = drive(0);
        let run = |line: &str| program::run(dir.path(), line).done();
        run("mkfs d --label films");
        run("put d t.csv a");
        run("zone d --zone 0-1 --set read-only");
        run("put d t.csv b");
        run("zone d --zone 0-1 --set offline --yes");
        run(&format!("zone d --zone 0-1 --set {condition} --yes"));
        run("get d b copy");
        is_refused(dir.path(), "the file system `films` of Zonal");
    }
}

#[test]
fn command_proceeds_if_overwriting_the_owner_is_confirmed() {
    for line in COMMANDS {
        let dir = drive(2);
        write(dir.path(), &owners()[0].1);
        if line.starts_with("calibrate") {
            // A full calibration takes seconds. A missing profile ends it after the check of the
            // owner.
            let said = program::run(dir.path(), &format!("{line} --yes --base none.toml")).refused(2);
            assert!(said.contains("none.toml"), "{said}");
        } else {
            program::run(dir.path(), &format!("{line} --yes")).done();
        }
    }
    for (line, option) in [
        ("reset d --all", "--force"),
        ("finish d --offset 12M", "--fs-overwrite"),
        ("replay t.csv --device d --speed max", "--fs-overwrite"),
        ("mkfs d", "-f"),
    ] {
        let dir = drive(2);
        write(dir.path(), &owners()[0].1);
        program::run(dir.path(), &format!("{line} {option}")).done();
    }
}

#[test]
fn benchmark_that_only_reads_changes_nothing() {
    let dir = drive(2);
    write(dir.path(), &owners()[0].1);
    let reads = "bench --device d --name=r --rw=randread --bs=4k --size=64k";
    program::run(dir.path(), reads).done();
    let before = fs::read(dir.path().join("d")).unwrap();
    program::run(dir.path(), &format!("{reads} --readonly")).done();
    assert!(fs::read(dir.path().join("d")).unwrap() == before);
    for (line, why) in [
        (reads.replace("randread", "randrw"), "job r writes"),
        (format!("{reads} --write-mode per-zone,qd1"), "reset every zone"),
        (format!("{reads} --target=fs"), "makes a file system"),
    ] {
        let said = program::run(dir.path(), &format!("{line} --readonly")).refused(2);
        assert!(said.contains("--readonly") && said.contains(why), "{said}");
    }
    assert!(fs::read(dir.path().join("d")).unwrap() == before);
}

#[test]
fn mount_over_its_own_image_is_refused() {
    let dir = drive(2);
    program::run(dir.path(), "mkfs d").done();
    let before = fs::read(dir.path().join("d")).unwrap();
    let said = program::run(dir.path(), "mount d .").refused(1);
    assert!(
        said.contains("a mount would hide an open file in it") && said.contains("/d; choose another"),
        "{said}"
    );
    assert!(fs::read(dir.path().join("d")).unwrap() == before);
    // A log below the mount point, with the image elsewhere.
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let said = program::run(dir.path(), "mount d a --log a/b/log").refused(1);
    assert!(said.contains("/a/b/log; choose another"), "{said}");
}

#[test]
fn zones_with_data_of_no_known_owner_stop_nothing() {
    let dir = drive(2);
    let bench = "bench --device d --name=w --rw=write --zonemode=zbd --bs=64k --offset=3z --size=2z";
    for line in [bench, bench, "finish d --offset 10M", "reset d --all"] {
        program::run(dir.path(), line).done();
    }
}
