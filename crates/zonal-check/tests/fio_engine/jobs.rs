//! Jobs that must succeed.

use crate::support::{SMALL, checked_engine, engine, fio, run_in, run_on, run_zonal, script, with_image};
use std::path::Path;
use std::process::Command;
use zonal_check::program::repository;
use zonal_check::program::served::Served;

/// Devices that keep data: completing inline, when polled, later, with one write at a time, and in
/// a file.
const KEEPERS: [&str; 5] = [
    "ram:{}",
    "ram:{},complete=poll",
    "ram:{},completion_nsec=20000",
    "ram:{},rotational=1,complete=poll",
    "disk.zonal",
];

/// Runs a job on each device that keeps data.
fn on_every_keeper(engine: &Path, arguments: &str, check: impl Fn(&crate::support::Run)) {
    for device in KEEPERS {
        let run = run_in(&with_image(), engine, &device.replace("{}", SMALL), arguments);
        check(&run.succeeded());
    }
}

#[test]
fn random_writes_of_several_jobs_at_any_depth_verify() {
    let Some(engine) = engine() else { return };
    for depth in [1, 128] {
        let arguments = format!(
            "--name=v --rw=randwrite --zonemode=zbd --bs=16k --iodepth={depth} --numjobs=4 --offset=4z \
             --offset_increment=16z --size=16z --io_size=2M --verify=crc32c --job_max_open_zones=4 --max_open_zones=16"
        );
        on_every_keeper(engine, &arguments, |run| {
            let counts = run.counts();
            assert_eq!((counts.writes, counts.reads), (4 * 128, 4 * 128), "depth {depth}");
        });
    }
}

#[test]
fn sequential_writes_with_resets_and_flushes_verify() {
    let Some(engine) = engine() else { return };
    let arguments = "--name=s --rw=write --zonemode=zbd --bs=32k --iodepth=16 --offset=8z --size=6z --loops=3 --fsync=8 \
                     --verify=crc32c --verify_backlog=32";
    on_every_keeper(engine, arguments, |run| {
        let counts = run.counts();
        assert_eq!((counts.writes, counts.reads, counts.resets), (3 * 144, 3 * 144, 12));
        assert!(run.job(0)["sync"]["total_ios"].as_u64().unwrap() > 3 * 12);
    });
}

#[test]
fn jobs_that_share_zones_end_without_errors() {
    let Some(engine) = engine() else { return };
    let arguments = "--name=m --rw=randrw --zonemode=zbd --bs=8k --iodepth=16 --numjobs=4 --offset=4z --size=12z \
                     --io_size=4M --max_open_zones=6 --zone_reset_threshold=0.3 --zone_reset_frequency=0.1 --norandommap";
    on_every_keeper(engine, arguments, |run| assert!(run.counts().writes > 0));
}

#[test]
fn conventional_zones_take_writes_anywhere() {
    let Some(engine) = engine() else { return };
    let arguments = "--name=c --rw=randwrite --bs=4k --iodepth=32 --size=2M --numjobs=2 --offset_increment=2M --verify=crc32c";
    on_every_keeper(engine, arguments, |run| assert_eq!(run.counts().reads, 2 * 512));
}

#[test]
fn trims_reset_zones() {
    let Some(engine) = engine() else { return };
    let fill = "--name=w --rw=write --zonemode=zbd --bs=64k --offset=4z --size=8z";
    let trim = "--name=t --stonewall --rw=randtrim --zonemode=zbd --bs=1M --iodepth=4 --offset=4z --size=8z";
    let directory = with_image();
    let run = run_in(&directory, engine, "disk.zonal", &format!("{fill} {trim}")).succeeded();
    assert_eq!(run.job(1)["trim"]["total_ios"], 8);
    let report = run_zonal(directory.path(), &["report", "disk.zonal"]).unwrap();
    assert_eq!(report.matches("(em)").count(), 124, "{report}");
}

/// Several jobs share one image: it is opened once, locked while fio runs, and keeps its write
/// pointers.
#[test]
fn image_of_several_jobs_is_opened_once_and_keeps_its_pointers() {
    let Some(engine) = engine() else { return };
    let directory = with_image();
    let jobs = "--name=a --rw=write --zonemode=zbd --bs=64k --iodepth=4 --offset=4z --size=1z --io_size=256k \
                --name=b --rw=write --zonemode=zbd --bs=64k --iodepth=4 --offset=6z --size=1z --io_size=512k";
    let zonal = zonal_check::program::zonal();
    let look = format!("{} reset disk.zonal --all", zonal.display());
    let run = run_in(&directory, engine, "disk.zonal", jobs).succeeded();
    assert_eq!(run.counts().written, 768 << 10);
    let zones = run_zonal(directory.path(), &["report", "disk.zonal", "--count", "7"]).unwrap();
    let pointers: Vec<&str> =
        zones.lines().filter_map(|l| l.split("wptr ").nth(1)?.split(' ').next()).collect();
    assert_eq!((pointers[4], pointers[5], pointers[6]), ("0x000200", "0x000000", "0x000400"), "{zones}");
    // While fio has it open, no other process can open it.
    let arguments = [
        "--name=c",
        &format!("--ioengine=external:{}", engine.display()),
        "--device=disk.zonal",
        "--rw=read",
        "--zonemode=zbd",
        "--bs=4k",
        "--offset=4z",
        "--size=1z",
        &format!("--exec_prerun={look}"),
    ];
    let run = fio(directory.path(), &arguments, |_| {});
    // fio redirects the program's output to either place.
    let said =
        std::fs::read_to_string(directory.path().join("c.prerun.txt")).unwrap_or_default() + &run.errors();
    assert!(said.contains("disk.zonal\": in use by process"), "{said}");
}

#[test]
fn filename_option_accepts_several_devices() {
    let Some(engine) = engine() else { return };
    let engine = format!("--ioengine=external:{}", engine.display());
    let files = r"--filename=null\:size=64M,zone_size=1M:ram\:size=64M,zone_size=1M,complete=poll";
    let job = ["--rw=write", "--zonemode=zbd", "--bs=64k", "--iodepth=8", "--size=8z"];
    let mut arguments = vec!["--name=two", engine.as_str(), files, "--file_service_type=roundrobin"];
    arguments.extend(job);
    let directory = tempfile::tempdir().unwrap();
    let run = fio(directory.path(), &arguments, |_| {}).succeeded();
    assert_eq!(run.counts().written, 8 << 20);
}

#[test]
fn served_drive_takes_jobs_that_verify() {
    let Some(engine) = engine() else { return };
    let directory = tempfile::tempdir().unwrap();
    run_zonal(directory.path(), &["create", "d", "--size=64M", "--zone-size=4M"]).unwrap();
    let served = Served::start(directory.path(), "d");
    let device = served.device() + ",submit_queues=2";
    let arguments = "--name=n --rw=randwrite --zonemode=zbd --bs=16k --iodepth=32 --numjobs=2 --offset_increment=8z --size=8z \
                     --io_size=4M --verify=crc32c";
    let counts = run_in(&directory, engine, &device, arguments).succeeded().counts();
    assert_eq!((counts.writes, counts.reads), (2 * 256, 2 * 256));
}

#[test]
fn null_device_of_many_zones_has_the_size_of_its_name() {
    let Some(engine) = engine() else { return };
    let arguments =
        "--name=l --rw=randwrite --zonemode=zbd --bs=1M --iodepth=16 --io_size=64M --max_open_zones=32";
    let run = run_on(engine, "null:size=10T,zone_size=256M", arguments).succeeded();
    assert_eq!(run.counts().written, 64 << 20);
}

#[test]
fn write_mode_is_the_one_asked_for() {
    let Some(engine) = engine() else { return };
    let job = "--name=m --rw=write --zonemode=zbd --bs=64k --iodepth=8 --offset=4z --size=4z";
    for mode in ["direct", "zone-lock", "per-zone", "qd1", "append"] {
        let run =
            run_on(engine, &format!("ram:{SMALL}"), &format!("{job} --verify=crc32c --write_mode={mode}"));
        assert_eq!(run.succeeded().counts().reads, 48, "{mode}");
    }
    let run = run_on(engine, &format!("ram:{SMALL}"), &format!("{job} --write_mode=fast"));
    assert!(run.errors().contains("unknown write mode \"fast\""), "{}", run.errors());
    let two = format!("{job} --write_mode=qd1 {}", job.replace("=m", "=n"));
    let run = run_on(engine, &format!("ram:{SMALL}"), &two);
    assert!(run.errors().contains("jobs on the same device need the same write_mode"), "{}", run.errors());
}

/// fio and the library are not instrumented: the check covers accesses of the shim itself to its
/// stack and to heap blocks.
#[test]
fn shim_has_no_memory_error_under_address_sanitizer() {
    let Some(engine) = checked_engine() else { return };
    let asan = Command::new("cc").arg("-print-file-name=libasan.so").output().unwrap().stdout;
    let asan = String::from_utf8(asan).unwrap();
    let engine = format!("--ioengine=external:{}", engine.display());
    let device = format!("--device=ram:{SMALL},complete=poll");
    let arguments: Vec<&str> =
        "--name=v --rw=randwrite --zonemode=zbd --bs=16k --iodepth=32 --numjobs=3 --offset=4z \
        --offset_increment=16z --size=16z --io_size=2M --verify=crc32c --fsync=16 --job_max_open_zones=5 \
        --name=t --stonewall --rw=trim --zonemode=zbd --bs=1M --offset=4z --size=8z"
            .split_whitespace()
            .flat_map(|a| match a.starts_with("--name") {
                true => vec![a, engine.as_str(), device.as_str()],
                false => vec![a],
            })
            .collect();
    let directory = tempfile::tempdir().unwrap();
    let run = fio(directory.path(), &arguments, |command| {
        // Memory that fio does not free at exit is not the shim's.
        command.env("LD_PRELOAD", asan.trim_end()).env("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=1");
    });
    assert_eq!(run.succeeded().counts().writes, 3 * 128);
}

/// The comparison with fio's null engine runs; its result does not matter in a test build.
#[test]
fn cost_is_measured() {
    if engine().is_none() {
        return;
    }
    let output = script("fio-cost.sh").args(["1", "20"]).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(repository().join("docs/FIO.md").exists());
}
