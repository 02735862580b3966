//! Tests of command-line conveniences: sizes, zone ranges, names of other programs, completions.

use crate::cli::{FAILED, USAGE, command, conditions, drive, refused, zonal};
use assert_cmd::Command;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use zonal_check::program;

#[test]
fn every_error_of_a_job_file_is_printed() {
    let dir = drive();
    fs::write(dir.path().join("x.fio"), "[a]\nrw=write\nbsx=1\nflow=1\n[b]\nsize=10z\n").unwrap();
    let output = command(dir.path(), "bench x.fio --device d").output().unwrap();
    assert_eq!(output.status.code(), Some(USAGE));
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    for (line, begin) in
        lines.iter().zip(["x.fio:3: ", "x.fio:4: ", "x.fio:5: ", "bench: 3 errors in the jobs"])
    {
        assert!(line.starts_with(&format!("zonal: {begin}")), "{said}");
    }
}

#[test]
fn zones_are_selected_by_number_place_length_and_state() {
    let dir = drive();
    zonal(dir.path(), "finish d --zone 3-5");
    assert_eq!(zonal(dir.path(), "reset d --verbose -o 4z"), "image:d: zone 4: reset\n");
    assert_eq!(conditions(dir.path())[2..7], ["em", "fu", "em", "fu", "em"]);
    let starts = |line: &str| -> Vec<u64> {
        let report: serde_json::Value =
            serde_json::from_str(&zonal(dir.path(), &format!("report d --json {line}"))).unwrap();
        report["zones"].as_array().unwrap().iter().map(|zone| zone["zone"].as_u64().unwrap()).collect()
    };
    for (line, expected) in [
        ("--zone 5", &[5][..]),
        ("--zone 14-15", &[14, 15]),
        ("-o 14z", &[14, 15]),
        ("--offset 50% -c 1", &[8]),
        // Like blkzone: sectors from the offset on, here into the third zone.
        ("-o 0x20000 -l 0x40001", &[1, 2, 3]),
        ("-o 100096KB --length 64MiB", &[1, 2]),
        ("-o 1z -l 1z", &[1]),
        ("--state full", &[3, 5]),
        ("--state fu,conventional", &[0, 1, 3, 5]),
        ("--state NOT_WP", &[0, 1]),
        ("--state full --zone 4-9", &[5]),
        ("--state offline", &[]),
    ] {
        assert_eq!(starts(line), expected, "{line}");
    }
    assert!(zonal(dir.path(), "report d -v --state full").starts_with("Found 2 zones from 0x0\n  start: "));
    assert_eq!(zonal(dir.path(), "reset d -o 3z -l 3z"), "");
    assert_eq!(conditions(dir.path())[3..6], ["em", "em", "em"]);
    for line in [
        "report d --zone 16",
        "report d --zone 5-3",
        "report d --zone 5 -o 0",
        "report d -o 16z",
        "report d -o 101%",
        "report d --state shut",
        "report d -c 1 -l 1z",
        "reset d --zone 2-16",
        "reset d -o 2z -l 1000",
        "reset d -o 2z -l 0",
        "reset d --zone 2 --all",
    ] {
        refused(dir.path(), line, USAGE);
    }
}

#[test]
fn sizes_are_binary_or_decimal_as_gnu_programs_take_them() {
    let dir = tempfile::tempdir().unwrap();
    let size = |name: &str, size: &str| -> u64 {
        zonal(dir.path(), &format!("create {name} --size {size} --zone-size 1MiB"));
        let info: serde_json::Value =
            serde_json::from_str(&zonal(dir.path(), &format!("info {name} --json"))).unwrap();
        info["device"]["size"].as_u64().unwrap()
    };
    assert_eq!((size("a", "64M"), size("b", "65536KiB")), (64 << 20, 64 << 20));
    assert_eq!(size("c", "512KB") + size("d", "128mb"), 512_000 + 128_000_000);
    for wrong in ["64BM", "64iB", "64_M", "M", "-1M", "1e6", "64MBB"] {
        refused(dir.path(), &format!("create x --size={wrong}"), USAGE);
    }
}

#[test]
fn commands_of_other_programs_work_or_name_the_one_that_does() {
    let dir = drive();
    zonal(dir.path(), "mkfs d");
    for (line, instead) in [
        ("cp f d", "`zonal put`"),
        ("format d", "`zonal mkfs`"),
        ("rmdir d x", "`zonal rm -r`"),
        ("chmod d x", "`zonal mount DEVICE DIR`"),
        ("fio x", "`zonal bench`"),
    ] {
        let error = refused(dir.path(), line, USAGE);
        assert!(error.contains("no such command; ") && error.contains(instead), "{error}");
    }
    fs::create_dir_all(dir.path().join("t/u")).unwrap();
    fs::write(dir.path().join("t/u/f"), vec![7; 5000]).unwrap();
    zonal(dir.path(), "put -r d t /t");
    zonal(dir.path(), "put d t/u/f g");
    let listed = zonal(dir.path(), "ls -lha d /t/u");
    assert!(listed.starts_with("-rw-r--r--   1 ") && listed.contains(" 4.9K "), "{listed}");
    assert!(zonal(dir.path(), "df -h d").contains(" used (1%), "), "{}", zonal(dir.path(), "df -h d"));
    for help in ["ls --help", "df --help"] {
        assert!(zonal(dir.path(), help).contains("-h, --human-readable"));
    }
    let error = refused(dir.path(), "rm d t", FAILED);
    assert!(error.ends_with("t: directory not empty; use -r to remove it with its contents"), "{error}");
    refused(dir.path(), "rm d missing g", FAILED);
    zonal(dir.path(), "rm -rf d t missing g");
    assert_eq!(zonal(dir.path(), "ls d"), "");
    let error = refused(dir.path(), "umount m", FAILED);
    assert!(error.contains("m: "), "{error}");
}

#[test]
fn completions_are_made_for_every_shell() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = zonal(dir.path(), &format!("completions {shell}"));
        for command in ["create", "report", "bench", "zone-max-open"] {
            assert!(script.contains(command), "{shell}: no {command}");
        }
    }
    let script = dir.path().join("script");
    fs::write(&script, zonal(dir.path(), "completions bash")).unwrap();
    Command::new("bash").arg("-n").arg(&script).assert().success().stderr("");
    for (line, expected) in [
        ("zonal bench --write-mode p", "per-zone pipelined"),
        ("zonal create --profile zns", "zns-1t"),
        ("zonal info sim:smr-hdd-3", "sim:smr-hdd-30t"),
        ("zonal info nv", "nvme-tcp://"),
        ("zonal report --state off", "offline"),
        ("zonal help write-", "write-path"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let ask = format!(
            "source {}; COMP_WORDS=({line}); COMP_CWORD={}; _zonal zonal {} {}; echo ${{COMPREPLY[*]}}",
            script.display(),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let output = Command::new("bash").args(["-c", &ask]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{line}");
    }
}

#[test]
fn relative_name_is_the_file_in_the_own_directory() {
    let (dir, other) = (drive(), drive());
    let start = |dir: &TempDir, line: &str| {
        let mut command = program::command(dir.path(), line);
        command.env("ZONAL_RUNTIME_DIR", other.path());
        command
    };
    let line = "bench --device d --name=a --rw=write --zonemode=zbd --offset=4z --size=4z --bs=4k --time_based --runtime=60s";
    let mut bench = start(&dir, line).stdout(Stdio::null()).spawn().unwrap();
    let ask = |line: &str| start(&other, line).output().unwrap();
    let here = format!("plugs {}", dir.path().join("d").display());
    let begun = Instant::now();
    while ask(&here).status.code() != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the bench does not start");
    }
    // Both drives are called `d`.
    assert_eq!(ask("plugs d").status.code(), Some(FAILED));
    assert_eq!(ask("zone d --zone 5 --set offline").status.code(), Some(0));
    assert_eq!(conditions(other.path())[5], "of");
    let report = ask(&format!("report {} --zone 5", dir.path().join("d").display()));
    assert!(!String::from_utf8_lossy(&report.stdout).contains("(of)"), "{report:?}");
    bench.kill().unwrap();
    bench.wait().unwrap();
}

#[test]
fn options_with_a_topic_are_hidden_and_no_others() {
    let dir = drive();
    for command in ["bench", "mount", "serve"] {
        let help = zonal(dir.path(), &format!("{command} --help"));
        assert!(help.contains("--record <DIR>") && help.contains("`zonal help write-path`"), "{help}");
        assert!(!help.contains("--qd1-quantum"), "{help}");
    }
    assert!(zonal(dir.path(), "help write-path").contains("--qd1-quantum <BYTES,TIME>"));
}

#[test]
fn ranges_beyond_the_end_change_nothing() {
    let dir = drive();
    zonal(dir.path(), "finish d --zone 3");
    for (line, code) in [
        ("zone d --zone 3-16 --set offline", FAILED),
        ("reset d -o 0 -l 100G", USAGE),
        ("reset d -o 2z -l 15z", USAGE),
        ("reset d --zone 3-16", USAGE),
    ] {
        refused(dir.path(), line, code);
        assert_eq!(conditions(dir.path())[3], "fu", "{line}");
    }
}

#[test]
fn rm_refuses_the_directory_itself_and_removes_nothing() {
    let dir = drive();
    zonal(dir.path(), "mkfs d");
    fs::create_dir_all(dir.path().join("t/u")).unwrap();
    zonal(dir.path(), "put -r d t /t");
    for path in ["/t/.", "/t/./", "."] {
        refused(dir.path(), &format!("rm -rf d {path}"), USAGE);
    }
    assert!(zonal(dir.path(), "ls d").contains(" t\n"));
    // A blank belongs to the name.
    let output = program::command(dir.path(), "rm d").arg("/t/. ").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such file"), "{output:?}");
}
