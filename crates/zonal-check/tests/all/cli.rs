//! Tests of the program: output and exit code of each command, and agreement with the documentation.

use assert_cmd::Command;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;
use zonal_check::program;

pub(crate) const OK: i32 = 0;
pub(crate) const FAILED: i32 = 1;
pub(crate) const USAGE: i32 = 2;
const VERIFY: i32 = 3;
pub(crate) const DEVICE: i32 = 4;
const CLOSED_PIPE: i32 = 141;

/// Directory with a drive `d` of 16 zones of 64 MiB, two of them conventional, with 60 MiB of
/// capacity and at most four open zones.
pub(crate) fn drive() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let line = "create d --size 1G --zone-size 64M --zone-capacity 60M --zone-nr-conv 2 --zone-max-open 4";
    assert_eq!(zonal(dir.path(), line), "d: 1 GiB, 16 zones of 64 MiB, 2 conventional\n");
    dir
}

pub(crate) fn command(dir: &Path, line: &str) -> Command {
    Command::from_std(program::command(dir, line))
}

/// Runs a command line that has to succeed with nothing on standard error; returns its output.
pub(crate) fn zonal(dir: &Path, line: &str) -> String {
    String::from_utf8(program::run(dir, line).done()).unwrap()
}

/// Runs a command line that has to fail with `exit` and print only one line, to standard error;
/// returns that line.
pub(crate) fn refused(dir: &Path, line: &str, exit: i32) -> String {
    program::run(dir, line).refused(exit)
}

/// Conditions of all zones, abbreviated as by `report`.
pub(crate) fn conditions(dir: &Path) -> Vec<String> {
    let between = |line: &str| Some(line.split_once('(')?.1.split_once(')')?.0.to_owned());
    zonal(dir, "report d").lines().filter_map(between).collect()
}

#[test]
fn create_needs_a_size_and_replaces_nothing() {
    let dir = drive();
    let before = fs::metadata(dir.path().join("d")).unwrap().len();
    let error = refused(dir.path(), "create d --size 2G", DEVICE);
    assert_eq!(error, "zonal: d: already exists; an image never replaces a file");
    assert_eq!(fs::metadata(dir.path().join("d")).unwrap().len(), before);
    refused(dir.path(), "create e", USAGE);
    refused(dir.path(), "create e --size 1Q", USAGE);
    refused(dir.path(), "create e --size 99999999999G", USAGE);
    // In bytes, whatever the unit of the option.
    let error = refused(dir.path(), "create e --size 1G --zone-size 3M", DEVICE);
    assert!(error.contains("zone size of 3145728 bytes"), "{error}");
    refused(dir.path(), "create e --size 1G --zone-size 64M --zone-capacity 65M", DEVICE);
    let error = refused(dir.path(), "create e --profile floppy", USAGE);
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
    assert_eq!(
        (&device["zone_capacity"], &device["append_max"]),
        (&(1077u64 << 20).into(), &(128 << 10).into())
    );
}

#[test]
fn image_has_an_identity_that_its_names_and_wrappers_keep() {
    let dir = drive();
    let uuid_of = |name: &str| {
        let info: serde_json::Value =
            serde_json::from_str(&zonal(dir.path(), &format!("info {name} --json"))).unwrap();
        info["device"]["uuid"].as_str().map(str::to_owned)
    };
    let drawn = uuid_of("d").unwrap();
    assert_eq!((drawn.len(), drawn.as_bytes()[14]), (36, b'4'), "{drawn}");
    assert!(zonal(dir.path(), "info d").contains(&format!("uuid                   {drawn}\n")));
    let given = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    zonal(dir.path(), &format!("create e --size 1G --zone-size 64M --uuid {}", given.to_uppercase()));
    assert_eq!(uuid_of("e").as_deref(), Some(given));
    fs::rename(dir.path().join("e"), dir.path().join("f")).unwrap();
    for name in ["f", "image:f", "fault:seed=1+f", "trace:file=t+f", "timing:zns-1t+f"] {
        assert_eq!(uuid_of(name).as_deref(), Some(given), "{name}");
    }
    for name in
        ["linear:+f", "linear:zone=1,zones=2+f", "concat:[f]", "concat:[d][d2]", "null:size=1G", "sim:zns-1t"]
    {
        if name.contains("d2") {
            zonal(dir.path(), "create d2 --size 1G --zone-size 64M --zone-capacity 60M --zone-max-open 4");
        }
        assert_eq!(uuid_of(name), None, "{name}");
    }
    assert!(zonal(dir.path(), "info null:size=1G").contains("uuid                   none\n"));
    let error = refused(dir.path(), "create g --size 1G --uuid 67e55044", USAGE);
    assert!(error.contains("67e55044") && error.contains("32 hexadecimal digits"), "{error}");
}

#[test]
fn image_options_in_the_device_name_apply() {
    let dir = drive();
    let text = zonal(dir.path(), "info image:d,submit_queues=2,max_sectors=256");
    assert!(
        text.contains("queues                 2\n") && text.contains("largest command        128 KiB\n"),
        "{text}"
    );
    let job = "--name=j --rw=write --bs=4k --zonemode=zbd --offset=2z --size=1z --io_size=64k";
    for name in ["image:d,threads=0", "image:[d],threads=3", "d"] {
        zonal(dir.path(), &format!("bench --device {name} {job}"));
    }
    assert_eq!(conditions(dir.path())[2], "cl");
    let error = refused(dir.path(), "reset --all image:d,readonly=1", FAILED);
    assert!(error.contains("is open for reading only"), "{error}");
    assert_eq!(conditions(dir.path())[2], "cl");
    fs::rename(dir.path().join("d"), dir.path().join("d,e")).unwrap();
    let error = refused(dir.path(), "info image:d,e", DEVICE);
    assert!(
        error.ends_with("at \"e\": no such option; a path with a comma needs brackets: `image:[PATH]`"),
        "{error}"
    );
    for name in ["d,e", "./d,e", "image:[d,e]", "image:[d,e],readonly=1"] {
        assert!(
            zonal(dir.path(), &format!("info {name}")).starts_with("device                 image:["),
            "{name}"
        );
    }
}

#[test]
fn info_shows_the_device_and_the_reason_for_its_write_mode() {
    let dir = drive();
    let text = zonal(dir.path(), "info d");
    assert!(text.contains("zones                  16, of which 2 conventional\n"), "{text}");
    assert!(text.contains("zone capacity          60 MiB\n"), "{text}");
    assert!(text.contains("active zones           no limit\n"), "{text}");
    assert!(text.contains("largest verify         1 MiB\nlargest discard        64 MiB\n"), "{text}");
    assert!(zonal(dir.path(), "info null:").contains("largest discard        none\n"));
    assert!(text.ends_with("write mode             append: the device has native zone append\n"), "{text}");
    let info: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "info d --json")).unwrap();
    assert_eq!(info["mode"], "append");
    for (device, mode) in [
        ("null:rotational=1", "qd1: the device is rotational\n"),
        ("null:zone_append_max_sectors=0", "per-zone: the device has no native zone append\n"),
        ("sim:smr-hdd-30t,size=16G", "qd1: the device is rotational\n"),
        ("sim:smr-hdd-30t,size=16G,rtt_us=1000", "qd1: the device is rotational\n"),
        (
            "sim:smr-hdd-30t,size=16G,rtt_us=20000",
            "per-zone: the device is rotational, but its round trip exceeds 5 ms\n",
        ),
        ("timing:smr-hdd-30t,rtt_us=20000+null:", "append: the device has native zone append\n"),
    ] {
        let text = zonal(dir.path(), &format!("info {device}"));
        assert!(text.ends_with(&format!(" {mode}")), "{text}");
    }
    let far = "--device=sim:smr-hdd-30t,rtt_us=20000 --name=a --rw=write --zonemode=zbd --bs=1M --io_size=4M";
    let text = zonal(dir.path(), &format!("bench {far}"));
    let mode = "write mode per-zone (the device is rotational, but its round trip exceeds 5 ms)\n";
    assert!(text.lines().next().unwrap().ends_with(mode.trim_end()), "{text}");
    assert_eq!(info["device"]["size"], 1 << 30);
    for (device, size) in [
        ("ram:size=100M", "256 MiB, of which the only one has 100 MiB"),
        ("ram:size=300M", "256 MiB, the last one 44 MiB"),
        ("ram:size=512M", "256 MiB"),
    ] {
        let text = zonal(dir.path(), &format!("info {device}"));
        assert!(text.contains(&format!("zone size              {size}\n")), "{text}");
    }
}

#[test]
fn run_outside_of_the_calibration_says_so_in_its_first_lines() {
    let dir = tempfile::tempdir().unwrap();
    let guess = |device: &str, options: &str| {
        let text = zonal(dir.path(), &format!("bench --device={device} --name=x {options} --io_size=1M"));
        text.lines().nth(2).unwrap().to_owned()
    };
    let name = "profile smr-hdd-30t: not calibrated for";
    let disk = "sim:smr-hdd-30t";
    let small = guess(disk, "--rw=randwrite --zonemode=zbd --bs=4k");
    assert_eq!(small, format!("{name} bs=4K, iodepth=1: the figures are guesses"));
    let files = guess(disk, "--rw=write --bs=1M --filesize=1M --target=fs");
    assert_eq!(files, format!("{name} jobs on files: the figures are guesses"));
    let far = guess("sim:smr-hdd-30t,rtt_us=100", "--rw=write --zonemode=zbd --bs=1M");
    assert_eq!(far, format!("{name} rtt_us=100: the figures are guesses"));
    let inside = guess(disk, "--rw=write --zonemode=zbd --bs=1M");
    assert!(!inside.contains("guess"), "{inside}");
    // A drive that keeps its data has the same timing.
    let kept = guess("sim:smr-hdd-30t,keep=data", "--rw=write --zonemode=zbd --bs=4k");
    assert_eq!(kept, format!("{name} bs=4K: the figures are guesses"));
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
    let expected = "\x20 start: 0x000020000, len 0x020000, cap 0x020000, wptr N/A reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]
  start: 0x000040000, len 0x020000, cap 0x01e000, wptr N/A reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]
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
    // With --all, only zones in a suitable state are changed. No zone is open, so none is.
    for line in ["finish d --all", "open d --all", "close d --all"] {
        zonal(dir.path(), line);
    }
    assert_eq!(conditions(dir.path())[2..5], ["fu", "em", "fu"]);
    zonal(dir.path(), "reset d --all");
    assert_eq!(conditions(dir.path())[2..5], ["em", "em", "em"]);
    zonal(dir.path(), "open d -o 128M -c 4");
}

#[test]
fn zone_management_refuses_invalid_ranges_and_states() {
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

/// Runs a command line as a user without write access to root's files.
fn as_nobody(dir: &Path, line: &str) -> std::process::Output {
    let id = std::process::Command::new("id").arg("-u").output().unwrap();
    let copy = dir.join("zonal-program");
    let mut command = if id.stdout == b"0\n" {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        command
    } else {
        std::process::Command::new(&copy)
    };
    command.env(program::NO_CONFIG.0, program::NO_CONFIG.1);
    command.args(line.split(' ')).current_dir(dir).output().unwrap()
}

#[test]
fn image_that_may_only_be_read_is_listed_and_nothing_more() {
    use std::os::unix::fs::PermissionsExt;
    let dir = drive();
    zonal(dir.path(), "finish d --offset 128M");
    let expected = zonal(dir.path(), "report d");
    // The other user needs access to the directory and the program.
    fs::copy(program::zonal(), dir.path().join("zonal-program")).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(dir.path().join("d"), fs::Permissions::from_mode(0o444)).unwrap();
    let written = || fs::metadata(dir.path().join("d")).unwrap().modified().unwrap();
    let before = written();
    let report = as_nobody(dir.path(), "report d");
    assert_eq!((String::from_utf8_lossy(&report.stderr).as_ref(), report.status.code()), ("", Some(OK)));
    assert_eq!(String::from_utf8_lossy(&report.stdout), expected);
    assert_eq!(as_nobody(dir.path(), "info d").status.code(), Some(OK));
    let reset = as_nobody(dir.path(), "reset d --all");
    let said = String::from_utf8_lossy(&reset.stderr).into_owned();
    assert_eq!(reset.status.code(), Some(FAILED), "{said}");
    assert!(said.contains("open for reading only"), "{said}");
    assert_eq!((written(), zonal(dir.path(), "report d")), (before, expected));
}

const NULL: &str = "--device null:size=1G,zone_size=16M";

#[test]
fn bench_takes_jobs_from_the_command_line_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    for line in [
        format!("bench {NULL} --name=a --rw=write --zonemode=zbd --bs=64k --size=2z"),
        format!("bench --name=a -rw write --bs 64k {NULL} --zonemode zbd --size=2z --output-format=normal"),
    ] {
        let text = zonal(dir.path(), &line);
        assert!(text.contains("issued rwts: total=0,512,0,0"), "{text}");
    }
    let text = zonal(
        dir.path(),
        "bench --name=a --rw=write --zonemode=zbd --size=1z --filename=null:size=1G,zone_size=1M",
    );
    assert!(text.contains("issued rwts: total=0,256,0,0"), "{text}");
}

#[test]
fn bench_runs_a_job_file_and_reports_overridden_options() {
    let dir = drive();
    let job = "[global]\nrw=write\nzonemode=zbd\ndirect=1\n[one]\nfilename=/dev/sdx\noffset=4z\nsize=1z\nbs=1M\n[two]\nrw=read\n";
    fs::write(dir.path().join("x.fio"), job).unwrap();
    let output = command(dir.path(), "bench x.fio --device d --set size=2z --section one --json r.json")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(OK));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "x.fio [one] size=1z -> 2z\nx.fio [one] filename=/dev/sdx -> d\n");
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(json["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(json["jobs"][0]["write"]["io_bytes"], 120 << 20);
    assert_eq!(conditions(dir.path())[3..7], ["em", "fu", "fu", "em"]);

    assert_eq!(zonal(dir.path(), "bench x.fio --list-ignored").lines().count(), 1);
    assert!(zonal(dir.path(), "bench x.fio --list-ignored").starts_with("x.fio:4: direct: "));
    assert!(zonal(dir.path(), "bench --list-ignored").lines().any(|line| line.starts_with("direct  ")));
}

#[test]
fn ignored_log_options_are_reported_once_per_run() {
    let dir = tempfile::tempdir().unwrap();
    let job = "bench --device null:size=1G,zone_size=16M --write-mode per-zone,qd1 --name=a --rw=write --zonemode=zbd --bs=1M \
               --size=1z --write_bw_log=x --write_lat_log=x --direct=1 --thread --name=b --rw=write --zonemode=zbd --bs=1M \
               --size=1z --write_bw_log=y --stonewall";
    let said = |more: &str| {
        let output = command(dir.path(), &format!("{job}{more}")).output().unwrap();
        assert_eq!(output.status.code(), Some(OK));
        String::from_utf8(output.stderr).unwrap()
    };
    let logs = "without effect: write_bw_log, write_lat_log (no log files are written)";
    assert_eq!(said(""), format!("{logs}; --list-ignored says more\n"));
    let both = said(" --buffered=1");
    assert!(
        both.starts_with(logs) && both.contains("; buffered (the device decides how it is opened);"),
        "{both}"
    );
}

#[test]
fn bench_compares_write_modes_and_writes_results_where_asked() {
    let dir = tempfile::tempdir().unwrap();
    let job = "--name=a --rw=write --zonemode=zbd --size=2z --iodepth=4";
    let modes = "--write-mode direct,per-zone,append";
    let out = zonal(
        dir.path(),
        &format!("bench {NULL} {modes} --output results --output-format=json,normal {job}"),
    );
    assert_eq!(out, "");
    let results = fs::read_to_string(dir.path().join("results")).unwrap();
    let (json, text) = results.split_once("\n}\n").unwrap();
    let json: serde_json::Value = serde_json::from_str(&format!("{json}}}")).unwrap();
    assert_eq!(json["zonal"]["modes"].as_array().unwrap().len(), 3);
    for mode in ["direct", "per-zone", "append"] {
        assert!(
            text.lines().any(|line| line.starts_with("a ") && line.contains(&format!(" {mode} "))),
            "{text}"
        );
    }
    // Reported before the run, which would take a minute.
    for option in ["--output", "--json"] {
        let line = format!("bench {NULL} {job} --time_based --runtime=60 {option} missing/results");
        let error = command(dir.path(), &line).timeout(std::time::Duration::from_secs(30)).output().unwrap();
        assert_eq!(error.status.code(), Some(FAILED));
        let error = String::from_utf8(error.stderr).unwrap();
        assert!(error.starts_with("zonal: missing/results: cannot write the results: "), "{error}");
    }
}

#[test]
fn bench_writes_a_report_over_a_regular_file_and_nothing_else() {
    let dir = drive();
    let job = "--name=a --rw=write --zonemode=zbd --bs=64k --offset=4z --size=1z";
    fs::write(dir.path().join("page.html"), "old").unwrap();
    for page in ["page.html", "./new.html"] {
        zonal(dir.path(), &format!("bench --device d --report {page} {job}"));
        let text = fs::read_to_string(dir.path().join(page)).unwrap();
        assert!(text.starts_with("<!doctype html>") && text.ends_with("</html>"), "{text:.100}");
        let command = format!("<span>--report</span> <span>{page}</span>");
        assert!(text.contains(&command), "{command}");
    }
    let before = zonal(dir.path(), "report d");
    for (page, why) in [
        (".", "not a regular file"),
        ("/dev/null", "not a regular file"),
        ("missing/page.html", "No such file"),
        ("page.html/page.html", "Not a directory"),
    ] {
        let error =
            refused(dir.path(), &format!("bench --device d --report {page} {job} --offset=6z"), USAGE);
        assert!(error.starts_with(&format!("zonal: {page}: cannot write the report: {why}")), "{error}");
    }
    let error = refused(dir.path(), &format!("bench --device d --report d {job} --offset=6z"), USAGE);
    assert_eq!(error, "zonal: d: cannot write the results: an image");
    assert_eq!(zonal(dir.path(), "report d"), before, "a run that was in vain");
}

#[test]
fn bench_verifies_written_data_on_the_reopened_drive() {
    let dir = drive();
    let job = "--name=v --rw=randwrite --zonemode=zbd --offset=4z --size=4z --bs=16k --iodepth=32 --numjobs=2 \
               --max_open_zones=4 --io_size=8M --verify=crc32c";
    for device in ["d", "ram:size=1G,zone_size=64M"] {
        let text = zonal(dir.path(), &format!("bench --device {device} {job}"));
        assert!(text.contains("1024 blocks (16.0MiB) read back, 0 bad"), "{text}");
    }
    let error = refused(dir.path(), &format!("bench {NULL} {job}"), USAGE);
    assert!(error.contains("verify needs a device that keeps data"), "{error}");
}

/// Corrupt data has an exit code of its own, for scripts.
#[test]
fn bench_fails_verification_of_changed_data() {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create e --size 32M --zone-size 4M");
    let write =
        "bench --device e --name=v --rw=write --zonemode=zbd --offset=4z --size=1z --bs=64k --verify=crc32c";
    zonal(dir.path(), write);
    let image = dir.path().join("e");
    let bytes = fs::read(&image).unwrap();
    // Flips a bit of the last non-zero byte, which is in a written block whatever the layout.
    let block = bytes.iter().rposition(|&b| b != 0).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &[bytes[block] ^ 1], block as u64).unwrap();
    let output = command(dir.path(), &write.replace("rw=write", "rw=read")).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(VERIFY), "{error}");
    assert!(error.starts_with("zonal: job v: ") && error.lines().count() == 1, "{error}");
}

#[test]
fn bench_refuses_invalid_jobs_and_options() {
    let dir = drive();
    fs::write(dir.path().join("bad.fio"), "[a]\nrw=sideways\n").unwrap();
    fs::write(dir.path().join("binary.fio"), [0xff, 0xfe, 0]).unwrap();
    fs::write(dir.path().join("two.fio"), "[a]\nfilename=a\n[b]\nfilename=b\n").unwrap();
    for (line, part) in [
        ("bench", "no job given"),
        ("bench --device null:", "no job given"),
        ("bench --name=a --rw=write", "no device given"),
        ("bench missing.fio", "missing.fio: cannot read the job file"),
        ("bench bad.fio", "bad.fio:2: rw=sideways"),
        ("bench binary.fio", "not UTF-8"),
        ("bench two.fio", "several devices, a and b"),
        ("bench bad.fio --section b", "no section [b]"),
        ("bench --device null: --name=a --rw=trim", "there is no trim"),
        ("bench --device null: --name=a --rww=write", "unknown option `rww`, did you mean `rw`?"),
        ("bench --device null: --name=a --wr=write", "`wr` is ambiguous"),
        ("bench --device null: --name=a --set rw", "not OPTION=VALUE"),
        ("bench --device null: --name=a --set rw=up", "rw=up"),
        ("bench --device null: --name=a --write-mode fast", "unknown write mode"),
        ("bench --device null: --name=a --mode=qd1", "unknown option `mode`, did you mean `--write-mode`?"),
        ("bench --device null: --name=a --ouput=x", "unknown option `ouput`, did you mean `--output`?"),
        ("bench --device null: --name=a --output-format=xml", "xml"),
        ("bench --device null:zone_size=1M,size=4M --name=a --zonemode=zbd --size=1M --offset=8M", "job a: "),
    ] {
        let error = refused(dir.path(), line, USAGE);
        assert!(error.contains(part), "{line}: {error}");
    }
    let error = refused(dir.path(), "bench --device missing --name=a --rw=read", DEVICE);
    assert_eq!(error.matches("missing").count(), 1, "{error}");
    refused(dir.path(), "bench --device null:sise=1 --name=a --rw=read", DEVICE);
    refused(dir.path(), "bench --device null:zone_append_max_sectors=0 --write-mode append --name=a", DEVICE);
    let error = refused(dir.path(), "bench --device null: --write-mode pipelined --name=a --rw=write", USAGE);
    assert!(error.contains("order") && error.contains("--force"), "{error}");
}

/// Commands on a bare device, and on a volume.
#[test]
fn device_that_is_always_busy_ends_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let device = "fault:busy=1+ram:size=64M,zone_size=4M,zone_nr_conv=4";
    for (line, exit) in [
        (format!("report {device}"), FAILED),
        (format!("reset {device} --offset 32M"), FAILED),
        (format!("open {device} --offset 32M"), FAILED),
        (format!("bench --device {device} --name=a --rw=read --size=4M"), DEVICE),
        (format!("mkfs {device}"), DEVICE),
        (format!("ls {device}"), DEVICE),
        (format!("serve {device} --listen 127.0.0.1:0 --uuid 8c249e41-c8cf-4e50-acdd-79e9e7d0f98f"), DEVICE),
    ] {
        // A command that never ends blocks this test, too.
        let error = refused(dir.path(), &line, exit);
        assert!(error.contains("busy"), "{line}: {error}");
    }
}

#[test]
fn missing_plan_exits_alike_whoever_names_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("t"), "0,h,0,Write,0,4096\n").unwrap();
    for line in [
        "bench --device null: --name=a --fault no-such.toml",
        "bench --device fault:plan=no-such.toml+null: --name=a",
        "replay t --device null: --fault no-such.toml",
        "replay t --device fault:plan=no-such.toml+null:",
        "info fault:plan=no-such.toml+null:",
    ] {
        let error = refused(dir.path(), line, DEVICE);
        assert!(error.contains("fault plan no-such.toml: "), "{line}: {error}");
    }
}

#[test]
fn plan_that_a_device_cannot_follow_exits_alike_whoever_names_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("t"), "0,h,0,Write,0,4096\n").unwrap();
    fs::write(dir.path().join("plan"), "[[rule]]\nfault = \"lost\"\n").unwrap();
    for line in [
        "bench --device null: --name=a --rw=write --zonemode=zbd --size=1z --fault plan",
        "bench --device fault:plan=plan+null: --name=a",
        "replay t --device null: --fault plan",
        "info fault:lost=0.5+null:",
    ] {
        let error = refused(dir.path(), line, DEVICE);
        assert!(error.contains("null:: cannot have the fault `lost` of rule 1: "), "{line}: {error}");
    }
}

#[test]
fn mode_without_budget_or_parking_is_noted_when_requested() {
    let dir = tempfile::tempdir().unwrap();
    let line = |mode| {
        format!(
            "bench {NULL} --write-mode {mode} --budget wait --park --name=a --rw=write --zonemode=zbd --size=1z"
        )
    };
    let text = zonal(dir.path(), &line("direct"));
    assert!(
        text.contains("mode direct has no budget") && text.contains("mode direct does not park"),
        "{text}"
    );
    let text = zonal(dir.path(), &line("zone-lock"));
    assert!(!text.contains("has no budget") && text.contains("mode zone-lock does not park"), "{text}");
    let text = zonal(dir.path(), &line("per-zone"));
    assert!(!text.contains("has no budget") && !text.contains("does not park"), "{text}");
}

#[test]
fn simulated_figures_state_their_calibration() {
    let dir = tempfile::tempdir().unwrap();
    for (device, expected) in [
        ("sim:smr-hdd-30t", "profile smr-hdd-30t: calibrated for writes of 1 MiB, "),
        ("sim:smr-hdd-30t,size=1T", "another size: each figure is one of a range\n"),
        ("sim:ufs-zoned", "profile ufs-zoned: not calibrated: each figure is one of a range\n"),
    ] {
        let job = "--name=a --rw=write --zonemode=zbd --size=1z --io_size=64k --json j --report r";
        let text = zonal(dir.path(), &format!("bench --device {device} {job}"));
        assert!(text.contains(expected), "{device}: {text}");
        for file in ["j", "r"] {
            assert!(
                fs::read_to_string(dir.path().join(file)).unwrap().contains(expected.trim_end()),
                "{device}"
            );
        }
    }
}

#[test]
fn bench_under_faults_that_are_not_executed_loses_nothing_in_any_mode() {
    let dir = drive();
    // No command closes zones here, so the second rule never matches, which is reported.
    let plan = "[[rule]]\non = \"writes\"\nevery = 7\nfault = \"attention\"\n\
                [[rule]]\non = \"close\"\nfault = \"refuse\"\n";
    fs::write(dir.path().join("plan.toml"), plan).unwrap();
    for mode in ["zone-lock", "per-zone", "qd1", "append", "pipelined --force"] {
        let line = format!(
            "bench --device d --fault plan.toml --write-mode {mode} --output-format=json --name=a --rw=write \
             --zonemode=zbd --bs=16k --iodepth=16 --offset=4z --size=8z --io_size=8M --verify=crc32c"
        );
        let report: serde_json::Value = serde_json::from_str(&zonal(dir.path(), &line)).unwrap();
        let path = &report["zonal"]["modes"][0]["statistics"];
        assert!(path["redriven"].as_u64() > Some(0), "{mode}: {report}");
        assert_eq!(path["failed"], 0, "{mode}: {report}");
        let note = report["zonal"]["modes"][0]["notes"][0].as_str().unwrap();
        let fired = note.strip_prefix("faults, by rule of the plan: ").unwrap().split_once(", ").unwrap();
        assert!(fired.0.parse::<u32>().unwrap() > 0 && fired.1 == "0", "{mode}: {note}");
    }
}

#[test]
fn bench_with_a_budget_writes_more_zones_than_the_drive_may_have_open() {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create d --size 64M --zone-size 4M --zone-max-open 2 --zone-max-active 2");
    // Each of the four jobs fills its own zones, so four are written at a time.
    let job = "--name=a --rw=write --zonemode=zbd --bs=64k --iodepth=4 --numjobs=4 --thread --size=2z \
               --offset_increment=2z --ignore_zone_limits=1 --verify=crc32c --output-format=json";
    for mode in ["zone-lock", "per-zone", "qd1", "append"] {
        for policy in ["wait", "close", "finish,grace=2s"] {
            zonal(dir.path(), "reset d --all");
            let line = format!("bench --device d --write-mode {mode} --budget {policy} {job}");
            let report: serde_json::Value = serde_json::from_str(&zonal(dir.path(), &line)).unwrap();
            let path = &report["zonal"]["modes"][0]["statistics"];
            assert_eq!(path["failed"], 0, "{mode} {policy}: {report}");
            assert!(path["slot_waits"].as_u64() > Some(0), "{mode} {policy}: {report}");
        }
    }
}

#[test]
fn bench_with_a_budget_names_the_zones_that_hold_all_slots() {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create d --size 64M --zone-size 4M --zone-max-active 2");
    zonal(dir.path(), "bench --device d --name=a --rw=write --zonemode=zbd --bs=64k --size=1z --io_size=1M");
    zonal(
        dir.path(),
        "bench --device d --name=a --rw=write --zonemode=zbd --bs=64k --offset=1z --size=1z --io_size=1M",
    );
    let line = "bench --device d --budget wait,grace=10ms --name=b --rw=write --zonemode=zbd --ignore_zone_limits=1 \
                --bs=64k --offset=5z --size=1z";
    let output = command(dir.path(), line).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "{error}");
    let told =
        "zone 5: no open or active slot is free, and nothing in flight will free one (held by zones 0 and 1)";
    assert!(error.contains(told), "{error}");
    refused(dir.path(), "bench --device d --budget maybe --name=a --rw=read", USAGE);
}

#[test]
fn bench_parks_writes_where_it_is_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "create d --size 16M --zone-size 4M");
    // Without zonemode=zbd the writes of a zone are in random order, but complete.
    let job =
        "--write-mode per-zone --name=a --rw=randwrite --bs=64k --iodepth=64 --size=4M --output-format=json";
    let output = command(dir.path(), &format!("bench --device d {job}")).output().unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "a write comes before its predecessor");
    zonal(dir.path(), "reset d --all");
    // Arguments after a bare --park belong to the job.
    zonal(dir.path(), &format!("bench --device d --park {}", job.replace("per-zone", "append")));
    zonal(dir.path(), "reset d --all");
    let report = zonal(dir.path(), &format!("bench --device d --park=4M,10s {job}"));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["zonal"]["modes"][0]["statistics"]["parked"].as_u64() > Some(10), "{report}");
    refused(dir.path(), "bench --device d --park=64k --name=a --rw=read", USAGE);
}

#[test]
fn bench_reports_a_failing_job() {
    let dir = drive();
    // Without zonemode=zbd the second pass writes to full zones.
    let line = "bench --device d --name=a --rw=write --bs=1M --offset=128M --size=60M --loops=2";
    let output = command(dir.path(), line).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILED), "{error}");
    assert!(error.starts_with("zonal: job a: append of 2048 sectors at sector 262144 failed: "), "{error}");
    assert!(error.trim_end().ends_with("; the job ignores zones, try zonemode=zbd"), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("a: (groupid=0, jobs=1): err= 5"), "{text}");
    assert!(
        text.contains("\na: in mode append without zonemode=zbd, writes go to the write pointers"),
        "{text}"
    );
}

#[test]
fn plugs_and_stat_look_into_a_running_bench() {
    let dir = drive();
    let mut bench = program::plain()
        .args("bench --device d --name=a --rw=write --zonemode=zbd --offset=4z --size=4z --bs=4k".split(' '))
        .args(["--time_based", "--runtime=60s"])
        .current_dir(dir.path())
        .env("ZONAL_RUNTIME_DIR", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let plugs = loop {
        assert!(std::time::Instant::now() < deadline, "no plug was seen");
        let output = command(dir.path(), "plugs d").output().unwrap();
        if output.status.code() == Some(OK) && !output.stdout.is_empty() {
            break String::from_utf8(output.stdout).unwrap();
        }
    };
    let line = plugs.lines().next().unwrap();
    assert!(line.starts_with("Zone no: ") && line.contains(", wp ofst: "), "{line}");
    let socket = fs::read_dir(dir.path().join("zonal")).unwrap().next().unwrap().unwrap().path();
    let pid = format!("{}-image_d.sock", bench.id());
    assert_eq!(socket.file_name().unwrap().to_str(), Some(pid.as_str()));
    let stat = zonal(dir.path(), &format!("stat --json --socket {}", socket.display()));
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!((&stat["volume"]["pid"], &stat["volume"]["mode"]), (&bench.id().into(), &"append".into()));
    assert!(stat["counters"]["requests"].as_u64() > Some(0));
    assert!(zonal(dir.path(), "stat").contains("device         image:d\n"));
    serde_json::from_str::<serde_json::Value>(&zonal(dir.path(), "plugs --json")).unwrap();
    let mode = |line: &str| zonal(dir.path(), line).lines().next().unwrap().to_owned();
    assert_eq!(mode("mode d --set qd1"), "qd1: set while running");
    let told: serde_json::Value = serde_json::from_str(&zonal(dir.path(), "mode --json")).unwrap();
    assert_eq!((&told["mode"], &told["reason"]), (&"qd1".into(), &"set while running".into()));
    assert!(refused(dir.path(), "mode d --set pipelined", FAILED).contains("order"));
    assert_eq!(mode("mode d --set pipelined --force"), "pipelined: set while running");
    assert!(refused(dir.path(), "mode d --set direct", FAILED).contains("on an open volume"));
    refused(dir.path(), "mode d --set no-such", USAGE);
    // A path is the file that it leads to.
    let absolute = dir.path().join("d");
    for name in ["./d", "image:./d", absolute.to_str().unwrap()] {
        assert_eq!(mode(&format!("mode {name}")), "pipelined: set while running", "{name}");
    }
    let error = refused(dir.path(), "mode ./e", FAILED);
    assert_eq!(error, "zonal: ./e: no running process has it open by this name; open: image:d");
    // Only one process at a time can open the drive.
    let error = refused(dir.path(), "reset d --zone 9", DEVICE);
    assert_eq!(error, format!("zonal: d: in use by process {} (`zonal bench`)", bench.id()));
    // That process lists the zones for others.
    let report = zonal(dir.path(), "report d --zone 3-8");
    assert_eq!(report.lines().count(), 6, "{report}");
    assert!(report.starts_with("  start: 0x000060000, len 0x020000, cap 0x01e000, "), "{report}");
    let open: serde_json::Value =
        serde_json::from_str(&zonal(dir.path(), "report d --state open,full --json")).unwrap();
    let zones = open["zones"].as_array().unwrap();
    assert!(
        !zones.is_empty() && zones.iter().all(|zone| (4..8).contains(&zone["zone"].as_u64().unwrap())),
        "{open}"
    );

    // --watch ends with the watched process. A killed process leaves its socket, which the next
    // command removes.
    let mut watch = program::plain()
        .args(["plugs", "d", "--watch=0.05"])
        .current_dir(dir.path())
        .env("ZONAL_RUNTIME_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().filter(String::is_empty).nth(2).is_some(), "it shows the plugs again and again");
    bench.kill().unwrap();
    bench.wait().unwrap();
    lines.for_each(drop);
    assert_eq!(watch.wait().unwrap().code(), Some(OK));
    assert!(socket.exists());
    refused(dir.path(), "plugs", FAILED);
    assert!(!socket.exists());
    zonal(dir.path(), "report d");
}

#[test]
fn plugs_and_stat_without_a_process_say_so() {
    let dir = tempfile::tempdir().unwrap();
    for line in ["plugs", "stat", "plugs --json"] {
        let error = refused(dir.path(), line, FAILED);
        assert_eq!(
            error,
            "zonal: no running process has a device open; open one with `zonal bench`, `zonal mount` or `zonal serve`"
        );
    }
    let error = refused(dir.path(), "plugs null:size=1G", FAILED);
    assert_eq!(
        error,
        "zonal: null:size=1G: no running process has it open; open it with `zonal bench`, `zonal mount` or `zonal serve`"
    );
    let error = refused(dir.path(), "plugs --socket nowhere", FAILED);
    assert!(error.starts_with("zonal: nowhere: cannot connect: "), "{error}");
    refused(dir.path(), "plugs --watch=0", USAGE);
    refused(dir.path(), "plugs null: --socket nowhere", USAGE);
}

#[test]
fn unknown_commands_and_options_are_usage_errors() {
    let dir = tempfile::tempdir().unwrap();
    let error = refused(dir.path(), "finsh d", USAGE);
    assert_eq!(error, "zonal: finsh: no such command; did you mean `finish`?");
    assert_eq!(refused(dir.path(), "", USAGE), "zonal: no command given; see `zonal help`");
    refused(dir.path(), "info", USAGE);
    refused(dir.path(), "info a b", USAGE);
    refused(dir.path(), "info --sjon d", USAGE);
    assert!(refused(dir.path(), "help nonsense", USAGE).ends_with("; see `zonal help`"));
    assert!(refused(dir.path(), "help devces", USAGE).ends_with("; did you mean `devices`?"));
    assert!(refused(dir.path(), "help bnech", USAGE).ends_with("; did you mean `bench`?"));
    refused(dir.path(), "completions cobol", USAGE);
    let mut odd = Command::from_std(program::plain());
    odd.arg(std::ffi::OsStr::from_encoded(b"\xff\xfe"));
    odd.assert().code(USAGE);
}

#[test]
fn errors_for_mistaken_names_suggest_a_fix() {
    let dir = drive();
    // Large drives are not read as job files.
    zonal(dir.path(), "create big --size 4T");
    let error = refused(dir.path(), "bench --name=a --rw=write big", USAGE);
    assert_eq!(error, "zonal: big: an image, not a job file; name a device with --device");
    let error = refused(dir.path(), "bench --device null: /dev/zero", USAGE);
    assert!(error.contains("more than 1048576 bytes in a job file"), "{error}");
    let error = refused(dir.path(), "info image:", DEVICE);
    assert!(error.ends_with("image needs a path: `image:PATH`"), "{error}");
    fs::write(dir.path().join("t"), "mine").unwrap();
    let error = refused(dir.path(), "info trace:file=t+null:", DEVICE);
    assert!(error.ends_with("t: already exists; overwrite=1 replaces it"), "{error}");
    assert_eq!(fs::read(dir.path().join("t")).unwrap(), b"mine");
    let error = refused(dir.path(), "report d --offset 2G", USAGE);
    assert!(error.ends_with("sector 4194304 is beyond its end, sector 2097152"), "{error}");
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
    // 60,000 lines, more than fit into a pipe.
    zonal(dir.path(), "create d --size 60000M --zone-size 1M");
    let mut child = program::plain()
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
        let output = program::plain().args(line.split(' ')).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(FAILED), "{line}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error, "zonal: standard output: No space left on device (os error 28)\n", "{line}");
    }
}

#[test]
fn manual_pages_are_written_and_tell_the_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    zonal(dir.path(), "man --dir pages/man1");
    let pages: Vec<_> =
        fs::read_dir(dir.path().join("pages/man1")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(pages.len(), 39);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for part in [".TH zonal", ".SH NAME", ".SH SYNOPSIS", ".SH \"EXIT STATUS\"", "Verification failed"] {
            assert!(text.contains(part), "{}: no {part}", page.display());
        }
        // If groff is installed, it must not print warnings.
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
fn topics_are_the_documentation() {
    let path = program::repository().join("docs/CLI.md");
    let now = zonal::docs::topics();
    if std::env::var_os("ZONAL_BLESS").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let hint = "docs/CLI.md is not what `zonal help TOPIC` prints; run with ZONAL_BLESS=1 to write it anew";
    assert!(written == now, "{hint}");
    let dir = tempfile::tempdir().unwrap();
    for topic in ["devices", "modes", "write-path", "overwriting", "job-options", "sizes", "exit-codes"] {
        let printed = zonal(dir.path(), &format!("help {topic}"));
        assert!(now.contains(printed.trim_end()), "the topic {topic} is not in docs/CLI.md:\n{printed}");
    }
}

/// Runs the recipe of `make docs` with the tested program.
#[test]
fn make_docs_writes_manual_pages_and_the_help_of_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut make = std::process::Command::new("make");
    make.args(["--silent", "--old-file=build", "docs"]).current_dir(program::repository());
    make.arg(format!("ZONAL={}", program::zonal().display()));
    make.arg(format!("DOCS={}", dir.path().join("docs").display()));
    Command::from_std(make).assert().success().stderr("");
    let docs = dir.path().join("docs");
    let reference = fs::read_to_string(docs.join("reference.md")).unwrap();
    let has = |line: &str| {
        let printed = zonal(dir.path(), line);
        let printed = printed.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert!(reference.contains(printed.trim_end()), "zonal {line} is not in reference.md:\n{printed}");
        printed
    };
    let commands = has("--help");
    let names = commands.lines().take_while(|line| !line.starts_with("Topics"));
    // Continuation lines of descriptions are indented further.
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(fs::read_dir(docs.join("man/man1")).unwrap().count(), 1 + names.len());
    for name in names {
        assert!(has(&format!("{name} --help")).contains(&format!("Usage: zonal {name}")));
        assert!(docs.join(format!("man/man1/zonal-{name}.1")).is_file(), "{name}");
    }
    has("help exit-codes");
    assert_eq!(zonal(dir.path(), "help"), zonal(dir.path(), "-h"));
    refused(dir.path(), "help --all bench", USAGE);
}
