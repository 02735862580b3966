//! `simulate`.

use zonal_bench::job::JobError;
use zonal_bench::{BenchError, Detail, Report, SimulateError, simulate};
use zonal_io::volume::WriteMode;

const STREAM: &str = "[stream]\nrw=write\nbs=1M\niodepth=32\nsize=512M\nzonemode=zbd\n";

/// The report without the time of day.
fn results(report: &Report) -> serde_json::Value {
    let mut json: serde_json::Value = serde_json::from_str(&report.to_json(Detail::Bins)).unwrap();
    let object = json.as_object_mut().unwrap();
    for name in ["timestamp", "timestamp_ms", "time"] {
        object.remove(name);
    }
    json
}

#[test]
fn results_depend_on_the_arguments_alone() {
    let run = |job: &str, mode| results(&simulate(job, "sim:smr-hdd-30t", mode).unwrap());
    let first = run(STREAM, Some(WriteMode::Qd1));
    assert_eq!(first, run(STREAM, Some(WriteMode::Qd1)));
    assert_ne!(first, run(STREAM, Some(WriteMode::PerZone)));
    assert_ne!(first, run(&STREAM.replace("512M", "1G"), Some(WriteMode::Qd1)));
    // A job reads neither variables nor files, and its own device is ignored.
    let elsewhere = format!("{STREAM}filename=/dev/does-not-exist\n");
    assert_eq!(simulate(&elsewhere, "sim:smr-hdd-30t", None).unwrap().modes.len(), 1);
    for job in ["[global]\ninclude other.fio\n[a]\nrw=write\n", "[a]\nrw=write\nsize=${HOME}\n"] {
        let error = simulate(job, "sim:smr-hdd-30t", None).unwrap_err();
        assert!(error.is_job() && !error.is_device(), "{job}: {error}");
    }
}

#[test]
fn errors_tell_what_has_to_change() {
    let error = simulate("[a]\nrw=write\nblocksizes=4k\n", "sim:smr-hdd-30t", None).unwrap_err();
    assert!(matches!(&error, SimulateError::Job(JobError::Unknown { name, .. }) if name == "blocksizes"));
    assert!(error.is_job());

    let error = simulate(STREAM, "sim:smr-hdd-31t", None).unwrap_err();
    assert!(matches!(&error, SimulateError::Device(error) if error.name() == "sim:smr-hdd-31t"));
    assert!(error.is_device());

    let error = simulate(STREAM, "ram:size=64M,zone_size=16M", None).unwrap_err();
    assert!(matches!(&error, SimulateError::NotSimulated { device } if device.starts_with("ram:")));
    assert!(error.is_device() && error.to_string().contains("sim:"), "{error}");

    let error = simulate(&format!("{STREAM}verify=crc32c\n"), "sim:smr-hdd-30t", None).unwrap_err();
    assert!(matches!(&error, SimulateError::Run(BenchError::NothingToVerify { .. })), "{error}");
    assert!(error.is_job());
}
