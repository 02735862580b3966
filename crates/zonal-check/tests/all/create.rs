//! Tests of the command `zonal create`: copies of real drives, and images in several files.

use crate::cli::{DEVICE, USAGE, refused, zonal};
use assert_cmd::Command;
use std::fs;
use zonal_check::program;

#[test]
fn create_like_a_report_makes_the_same_zones() {
    let dir = tempfile::tempdir().unwrap();
    let line = "create d --size 1G --zone-size 64M --zone-capacity 60M --zone-nr-conv 2 --zone-max-open 4";
    zonal(dir.path(), line);
    let job = "--name=j --rw=write --bs=4k --zonemode=zbd --size=1z --io_size=64k";
    zonal(dir.path(), &format!("bench --device d --offset=2z {job}"));
    zonal(dir.path(), "finish d --offset 192M");
    zonal(dir.path(), "zone d --zone 5 --set read-only");
    zonal(dir.path(), "zone d --zone 6 --set offline --yes");
    fs::write(dir.path().join("zones"), zonal(dir.path(), "report d")).unwrap();
    let line = "create e --like zones --blocksize 4k --zone-max-open 4 --zone-max-active 6";
    let assumed = "not in the report, so assumed: not rotational (--rotational)";
    let created = format!("e: 1 GiB, 16 zones of 64 MiB, 2 conventional\n{assumed}\n");
    assert_eq!(zonal(dir.path(), line), created);
    let zones = |name: &str| {
        let report: serde_json::Value =
            serde_json::from_str(&zonal(dir.path(), &format!("report {name} --json"))).unwrap();
        report["zones"].clone()
    };
    assert_eq!(zones("e"), zones("d"));
    assert_eq!(zones("e")[2]["write_pointer"], (128 << 20) + (64 << 10));
    let info: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "info e --json")).unwrap();
    let device = &info["device"];
    assert_eq!((&device["zone_max_open"], &device["zone_max_active"]), (&4.into(), &6.into()));
    assert_eq!(device["personality"], "zbc");
    // From standard input.
    Command::from_std(program::command(dir.path(), "create f --like - --blocksize 4k --zone-max-open 4"))
        .write_stdin(fs::read(dir.path().join("zones")).unwrap())
        .assert()
        .success();
    assert_eq!(zones("f"), zones("d"));
}

#[test]
fn create_like_refuses_invalid_and_unsupported_reports() {
    let dir = tempfile::tempdir().unwrap();
    let zone = |zone: u64, size: u64, condition: &str| {
        let start = zone * size;
        format!(
            "  start: 0x{start:09x}, len 0x{size:06x}, cap 0x{size:06x}, wptr 0x000008 reset:0 non-seq:0, zcond: {condition} [type: 2(SEQ_WRITE_REQUIRED)]\n"
        )
    };
    let report = |name: &str, size: u64, condition: &str| {
        let text: String = (0..4).map(|n| zone(n, size, condition)).collect();
        fs::write(dir.path().join(name), text).unwrap();
    };
    report("zones", 0x80000, "4(cl)");
    report("96m", 0x30000, "4(cl)");
    report("x7", 0x80000, "7(x7)");
    let error = refused(dir.path(), "create d --like zones", USAGE);
    assert!(error.contains("zones: ") && error.contains("--blocksize"), "{error}");
    let error = refused(dir.path(), "create d --like x7 --blocksize 4k", USAGE);
    assert!(error.contains("x7: line 1: unknown zone condition 0x7"), "{error}");
    let error = refused(dir.path(), "create d --like 96m --blocksize 4k", DEVICE);
    assert!(error.contains("zone size of 100663296 bytes is not a power of two"), "{error}");
    let error = refused(dir.path(), "create d --like zones --blocksize 4k --zone-max-active 3", DEVICE);
    assert!(error.contains("4 zones are active"), "{error}");
    refused(dir.path(), "create d --like missing --blocksize 4k", USAGE);
    for option in
        ["--size 1G", "--zone-size 64M", "--zone-capacity 60M", "--zone-nr-conv 1", "--profile zns-1t"]
    {
        refused(dir.path(), &format!("create d --like zones --blocksize 4k {option}"), USAGE);
    }
    assert!(!dir.path().join("d").exists());
}

#[test]
fn create_beyond_the_longest_file_makes_several() {
    let dir = tempfile::tempdir().unwrap();
    let create = |files_kib: u64, line: &str| {
        let mut limited = std::process::Command::new("bash");
        limited.current_dir(dir.path()).args(["-c", &format!("ulimit -f {files_kib}; exec \"$0\" {line}")]);
        Command::from_std(limited).arg(program::zonal()).assert()
    };
    // A head of 1 MiB and seven zones of 4 MiB per file.
    let line = "create d --size 64M --zone-size 4M";
    create(29 << 10, line).success().stdout("d: 64 MiB, 16 zones of 4 MiB, 0 conventional, in 3 files\n");
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["d", "d.part1", "d.part2"]);
    let job = "--name=j --rw=write --bs=256k --zonemode=zbd --size=64M --verify=crc32c";
    zonal(dir.path(), &format!("bench --device d {job}"));
    let report = zonal(dir.path(), "report d");
    assert!(report.lines().all(|line| line.contains("(fu)")), "{report}");
    let info: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "info d --json")).unwrap();
    assert_eq!(info["files"].as_array().unwrap().len(), 3);
    assert!(
        zonal(dir.path(), "info d")
            .lines()
            .any(|line| line.starts_with("files ") && line.ends_with("/d.part2"))
    );
    fs::rename(dir.path().join("d.part1"), dir.path().join("elsewhere")).unwrap();
    let error = refused(dir.path(), "report d", DEVICE);
    assert!(error.contains("d.part1: missing"), "{error}");
    let taken = create(29 << 10, "create d.part2 --size 64M --zone-size 4M").code(DEVICE);
    assert!(String::from_utf8_lossy(&taken.get_output().stderr).contains("already exists"));
    create(3 << 10, "create e --size 64M --zone-size 4M").code(DEVICE);
    assert!(!dir.path().join("e").exists());
}
