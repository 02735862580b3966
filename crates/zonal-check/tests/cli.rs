//! The program from outside: each command, what it exits with, and that its documentation is what it prints.

use assert_cmd::Command;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;
use zonal_check::program;

const OK: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const DEVICE: i32 = 4;
const CLOSED_PIPE: i32 = 141;

/// A directory with a drive `d` of 16 zones of 64 MiB, two of them conventional, 60 MiB writable, four open at most.
fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let line = "create d --size 1G --zone-size 64M --zone-capacity 60M --zone-nr-conv 2 --zone-max-open 4";
    assert_eq!(zonal(dir.path(), line), "d: 1 GiB, 16 zones of 64 MiB, 2 conventional\n");
    dir
}

fn command(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(program::zonal());
    command.args(line.split_whitespace()).current_dir(dir).env("XDG_RUNTIME_DIR", dir).env_remove("COLUMNS");
    command
}

/// Runs a line that has to succeed without a word on standard error; returns what it prints.
fn zonal(dir: &Path, line: &str) -> String {
    let output = command(dir, line).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), err.as_str()), (Some(OK), ""), "zonal {line}");
    out
}

/// Runs a line that has to fail with `exit`, one line on standard error and nothing else; returns that line.
fn refused(dir: &Path, line: &str, exit: i32) -> String {
    let output = command(dir, line).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(exit), "zonal {line}: {err}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "zonal {line}");
    assert!(
        err.starts_with("zonal: ") && err.lines().count() == 1 && err.ends_with('\n'),
        "zonal {line}: {err}"
    );
    err.trim_end().to_owned()
}

/// Conditions of all zones, as `report` abbreviates them.
fn conditions(dir: &Path) -> Vec<String> {
    let between = |line: &str| Some(line.split_once('(')?.1.split_once(')')?.0.to_owned());
    zonal(dir, "report d").lines().filter_map(between).collect()
}

#[test]
fn create_needs_a_size_and_replaces_nothing() {
    let dir = drive();
    let before = fs::metadata(dir.path().join("d")).unwrap().len();
    let error = refused(dir.path(), "create d --size 2G", DEVICE);
    assert_eq!(error, "zonal: d: exists already; an image is never created over a file");
    assert_eq!(fs::metadata(dir.path().join("d")).unwrap().len(), before);
    refused(dir.path(), "create e", USAGE);
    refused(dir.path(), "create e --size 1Q", USAGE);
    refused(dir.path(), "create e --size 99999999999G", USAGE);
    refused(dir.path(), "create e --size 1G --zone-size 3M", DEVICE);
    refused(dir.path(), "create e --size 1G --zone-size 64M --zone-capacity 65M", DEVICE);
    let error = refused(dir.path(), "create e --profile floppy", DEVICE);
    assert!(error.contains("zns-1t"), "{error}");
    refused(dir.path(), "create missing/e --size 1G", DEVICE);
    assert!(!dir.path().join("e").exists());
}

#[test]
fn create_takes_a_profile_and_overrides() {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create e --profile zns-1t --zone-max-open 7 --rotational");
    let info: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "info e --json")).unwrap();
    let device = &info["device"];
    assert_eq!((&device["zone_max_open"], &device["zone_max_active"]), (&7.into(), &14.into()));
    assert_eq!((&device["rotational"], &device["personality"]), (&true.into(), &"zns".into()));
    assert_eq!(device["zone_capacity"], 1077 << 20);
}

#[test]
fn info_tells_the_device_and_the_write_mode_and_why() {
    let dir = drive();
    let text = zonal(dir.path(), "info d");
    assert!(text.contains("zones                  16, of which 2 conventional\n"), "{text}");
    assert!(text.contains("zone capacity          60 MiB\n"), "{text}");
    assert!(text.contains("active zones           no limit\n"), "{text}");
    assert!(text.ends_with("write mode             append: the device has native zone append\n"), "{text}");
    let info: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "info d --json")).unwrap();
    assert_eq!(info["mode"], "append");
    assert_eq!(info["device"]["size"], 1 << 30);
}

#[test]
fn device_that_cannot_be_opened_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text"), "no drive\n".repeat(10_000)).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    for name in ["missing", "text", "empty", ".", "floppy:a"] {
        for line in ["info", "report", "reset --all", "finish -o 0"] {
            refused(dir.path(), &format!("{line} {name}"), DEVICE);
        }
    }
}

#[test]
fn report_lists_zones_like_blkzone() {
    let dir = drive();
    zonal(dir.path(), "finish d --offset 128M");
    let report = zonal(dir.path(), "report d");
    assert_eq!(report.lines().count(), 16);
    let expected = "\x20 start: 0x000020000, len 0x020000, cap 0x020000, wptr 0x000000 reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]
  start: 0x000040000, len 0x020000, cap 0x01e000, wptr 0x020000 reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000060000, len 0x020000, cap 0x01e000, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]
";
    for offset in ["0x20000", "131072", "64M", "0x20001"] {
        assert_eq!(zonal(dir.path(), &format!("report d --offset {offset} --count 3")), expected);
    }
    assert_eq!(zonal(dir.path(), "report d -o 960M -c 9").lines().count(), 1);
    assert_eq!(zonal(dir.path(), "report d -c 0"), "");
    refused(dir.path(), "report d --offset 1G", USAGE);
    refused(dir.path(), "report d --offset 1000x", USAGE);

    let json: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "report d --json")).unwrap();
    let zones = json["zones"].as_array().unwrap();
    assert_eq!(zones.len(), 16);
    assert_eq!((&zones[0]["type"], &zones[0]["write_pointer"]), (&"conventional".into(), &().into()));
    assert_eq!((&zones[2]["condition"], &zones[2]["start"]), (&"FULL".into(), &(128 << 20).into()));
    assert_eq!(zones[3]["write_pointer"], 192 << 20);
}

#[test]
fn management_changes_zones_and_the_drive_remembers() {
    let dir = drive();
    zonal(dir.path(), "finish d --offset 0x40000 --count 3");
    assert_eq!(conditions(dir.path())[..6], ["nw", "nw", "fu", "fu", "fu", "em"]);
    zonal(dir.path(), "reset d -o 192M");
    assert_eq!(conditions(dir.path())[2..5], ["fu", "em", "fu"]);
    // All of those in a state for it: none is open, so these change nothing.
    for line in ["finish d --all", "open d --all", "close d --all"] {
        zonal(dir.path(), line);
    }
    assert_eq!(conditions(dir.path())[2..5], ["fu", "em", "fu"]);
    zonal(dir.path(), "reset d --all");
    assert_eq!(conditions(dir.path())[2..5], ["em", "em", "em"]);
    zonal(dir.path(), "open d -o 128M -c 4");
}

#[test]
fn management_refuses_what_cannot_be() {
    let dir = drive();
    let error = refused(dir.path(), "reset d --offset 0", FAILED);
    assert!(error.ends_with("cannot reset zone 0: zone is conventional"), "{error}");
    let error = refused(dir.path(), "open d -o 128M -c 5", FAILED);
    assert!(error.ends_with("cannot open zone 6: too many open zones"), "{error}");
    for line in [
        "reset d",
        "reset d --all --offset 0",
        "reset d --all --count 2",
        "reset d --offset 128M --count 0",
        "reset d --offset 128M --count 15",
        "reset d --offset 1G",
        "reset d --offset 0x40001",
        "finish d --offset 18446744073709551615",
    ] {
        refused(dir.path(), line, USAGE);
    }
    assert!(conditions(dir.path())[2..].iter().all(|c| c == "em"));
}

#[test]
fn plugs_and_stat_without_a_process_say_so() {
    let dir = tempfile::tempdir().unwrap();
    for line in ["plugs", "stat", "plugs --json"] {
        let error = refused(dir.path(), line, FAILED);
        assert_eq!(error, "zonal: no running process has a device open");
    }
    let error = refused(dir.path(), "plugs null:size=1G", FAILED);
    assert_eq!(error, "zonal: null:size=1G: no running process has it open");
    let error = refused(dir.path(), "plugs --socket nowhere", FAILED);
    assert!(error.starts_with("zonal: nowhere: cannot connect: "), "{error}");
    refused(dir.path(), "plugs --watch 0", USAGE);
    refused(dir.path(), "plugs null: --socket nowhere", USAGE);
}

#[test]
fn unknown_commands_and_options_are_usage_errors() {
    let dir = tempfile::tempdir().unwrap();
    let error = refused(dir.path(), "resett d", USAGE);
    assert!(error.contains("similar subcommand exists: 'reset'"), "{error}");
    assert_eq!(refused(dir.path(), "", USAGE), "zonal: no command given; see `zonal help`");
    refused(dir.path(), "info", USAGE);
    refused(dir.path(), "info a b", USAGE);
    refused(dir.path(), "info --sjon d", USAGE);
    refused(dir.path(), "help nonsense", USAGE);
    refused(dir.path(), "completions cobol", USAGE);
    let mut odd = Command::new(program::zonal());
    odd.arg(std::ffi::OsStr::from_encoded(b"\xff\xfe"));
    odd.assert().code(USAGE);
}

trait FromEncoded {
    fn from_encoded(bytes: &[u8]) -> &Self;
}

impl FromEncoded for std::ffi::OsStr {
    fn from_encoded(bytes: &[u8]) -> &std::ffi::OsStr {
        std::os::unix::ffi::OsStrExt::from_bytes(bytes)
    }
}

#[test]
fn closed_pipe_ends_the_program_quietly() {
    let dir = tempfile::tempdir().unwrap();
    // 60,000 lines: more than any pipe holds.
    zonal(dir.path(), "create d --size 60000M --zone-size 1M");
    let mut child = std::process::Command::new(program::zonal())
        .args(["report", "d"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("  start: 0x000000000"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(CLOSED_PIPE));
}

#[test]
fn full_disk_behind_standard_output_is_an_error() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for line in ["help", "man", "help exit-codes"] {
        let output = std::process::Command::new(program::zonal())
            .args(line.split(' '))
            .stdout(full())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(FAILED), "{line}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error, "zonal: standard output: No space left on device (os error 28)\n", "{line}");
    }
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
}

#[test]
fn manual_pages_are_written_and_tell_the_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "man --dir pages/man1");
    let pages: Vec<_> =
        fs::read_dir(dir.path().join("pages/man1")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(pages.len(), 14);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for part in [".TH zonal", ".SH NAME", ".SH SYNOPSIS", ".SH \"EXIT STATUS\"", "Verification failed"] {
            assert!(text.contains(part), "{}: no {part}", page.display());
        }
        // Where a formatter is installed it has to be content, too.
        let groff =
            std::process::Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page).output();
        if let Ok(output) = groff {
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", page.display());
        }
    }
    assert!(zonal(dir.path(), "man").starts_with(".ie"));
    assert!(zonal(dir.path(), "man report").contains("blkzone"));
    refused(dir.path(), "man nonsense", USAGE);
    fs::write(dir.path().join("file"), "").unwrap();
    refused(dir.path(), "man --dir file", FAILED);
}

#[test]
fn help_is_the_documentation() {
    let path = program::repository().join("docs/CLI.md");
    let now = zonal::docs::reference();
    if std::env::var_os("ZONAL_BLESS").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let hint = "docs/CLI.md is not what --help prints; run with ZONAL_BLESS=1 to write it anew";
    assert!(written == now, "{hint}");
    // And the program prints what the library says it does.
    let dir = tempfile::tempdir().unwrap();
    for line in ["--help", "create --help", "bench --help", "help report", "help exit-codes", "help devices"]
    {
        let printed = zonal(dir.path(), line);
        let printed = printed.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert!(now.contains(printed.trim_end()), "zonal {line} is not in docs/CLI.md:\n{printed}");
    }
    assert_eq!(zonal(dir.path(), "help"), zonal(dir.path(), "-h"));
}
