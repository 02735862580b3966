//! Formats of reports, and fio's own tools reading them.

use crate::support::{Fault, memory, null, options, output_of, polled, run_on, try_run};
use serde_json::{Map, Value};
use std::process::Command;
use zonal_bench::{Detail, Report};
use zonal_io::volume::WriteMode;

const MIX: &str = "--name=mix --rw=randrw --zonemode=zbd --bs=4k --offset=4z --size=16z --io_size=2M --iodepth=4 --fsync=64 \
                   --slat_percentiles=1 --lat_percentiles=1 --description=both --name=fill --stonewall --rw=write \
                   --zonemode=zbd --bs=64k --offset=4z --size=4z";

fn mix() -> Report {
    run_on(&null(&polled()), WriteMode::PerZone, MIX)
}

fn parse(report: &Report, detail: Detail) -> Value {
    serde_json::from_str(&report.to_json(detail)).unwrap()
}

/// Lists every key with the type of its value, one per line, in the order of the text.
fn shape(value: &Value, indent: usize, out: &mut String) {
    let Value::Object(object) = value else { return };
    for (key, value) in object {
        let kind = match value {
            Value::Object(_) => "object",
            Value::Array(_) => "array",
            Value::String(_) => "text",
            Value::Number(n) if n.is_f64() => "fraction",
            Value::Number(_) => "integer",
            Value::Bool(_) => "bool",
            Value::Null => "null",
        };
        *out += &format!("{:indent$}{key}: {kind}\n", "");
        match value {
            Value::Array(entries) => {
                entries.first().into_iter().for_each(|first| shape(first, indent + 2, out))
            }
            value => shape(value, indent + 2, out),
        }
    }
}

#[test]
fn json_has_the_golden_shape() {
    let mut found = String::new();
    shape(&parse(&mix(), Detail::Plain), 0, &mut found);
    let golden = include_str!("../data/report-shape.txt");
    if found != golden {
        let path = std::env::temp_dir().join("report-shape.txt");
        std::fs::write(&path, &found).unwrap();
        panic!("the shape of the JSON report has changed, see {}", path.display());
    }
}

/// JSON output of fio 3.33 for a mixed job.
fn of_fio() -> Option<Value> {
    let directory = tempfile::tempdir().unwrap();
    let output = output_of(
        Command::new("fio")
            .args([
                "--name=a",
                "--rw=randrw",
                "--size=1m",
                "--ioengine=psync",
                "--bs=4k",
                "--output-format=json",
            ])
            .args(["--filename=x", "--description=both", "--lat_percentiles=1", "--slat_percentiles=1"])
            .current_dir(directory.path()),
    )?;
    let text = String::from_utf8(output.stdout).unwrap();
    Some(serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap())
}

/// Lists keys missing in `ours` or in `theirs`, by path, and differing types of values.
fn compare(path: &str, theirs: &Value, ours: &Value, differences: &mut Vec<String>) {
    let (Value::Object(theirs), Value::Object(ours)) = (theirs, ours) else {
        if theirs.is_number() != ours.is_number() || theirs.is_string() != ours.is_string() {
            differences.push(format!("{path}: {theirs} there, {ours} here"));
        }
        return;
    };
    let missing =
        |a: &Map<_, _>, b: &Map<_, _>| a.keys().filter(|k| !b.contains_key(*k)).cloned().collect::<Vec<_>>();
    differences.extend(missing(theirs, ours).iter().map(|key| format!("{path}/{key} is missing")));
    differences.extend(missing(ours, theirs).iter().map(|key| format!("{path}/{key} is not fio's")));
    for (key, value) in theirs {
        if let Some(own) = ours.get(key) {
            compare(&format!("{path}/{key}"), value, own, differences);
        }
    }
}

#[test]
fn json_has_fios_keys_and_only_zonal_besides() {
    let Some(theirs) = of_fio() else { return };
    let ours = parse(&mix(), Detail::Plain);
    let mut differences = Vec::new();
    compare("", &theirs["jobs"][0], &ours["jobs"][0], &mut differences);
    // Job options differ by design. Percentiles that fio's synchronous engine does not measure are
    // missing in its output.
    differences.retain(|d| !d.starts_with("/job options/") && !d.contains("/percentile is not"));
    assert_eq!(differences, ["/zonal is not fio's"]);
    let top = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let besides: Vec<_> = top(&ours).into_iter().filter(|key| !top(&theirs).contains(key)).collect();
    assert_eq!(besides, ["global options", "zonal"]);
}

#[test]
fn numbers_in_json_agree_with_each_other() {
    let json = parse(&mix(), Detail::Bins);
    for job in json["jobs"].as_array().unwrap() {
        for dir in ["read", "write"] {
            let dir = &job[dir];
            let ios = dir["total_ios"].as_u64().unwrap();
            if ios == 0 {
                continue;
            }
            assert_eq!(dir["io_kbytes"].as_u64().unwrap(), dir["io_bytes"].as_u64().unwrap() / 1024);
            for kind in ["clat_ns", "lat_ns"] {
                let times = &dir[kind];
                assert_eq!(times["N"].as_u64().unwrap(), ios, "{kind}");
                let (min, max) = (times["min"].as_f64().unwrap(), times["max"].as_f64().unwrap());
                let mean = times["mean"].as_f64().unwrap();
                assert!(min <= mean && mean <= max, "{min} {mean} {max}");
                if let Some(bins) = times["bins"].as_object() {
                    assert_eq!(bins.values().map(|n| n.as_u64().unwrap()).sum::<u64>(), ios);
                    assert!(bins.keys().all(|nanos| nanos.parse::<u64>().is_ok()));
                }
            }
        }
        let distribution: f64 = ["latency_ns", "latency_us", "latency_ms"]
            .iter()
            .flat_map(|key| job[key].as_object().unwrap().values().map(|share| share.as_f64().unwrap()))
            .sum();
        assert!((distribution - 100.0).abs() < 1e-6, "{distribution}");
    }
}

#[test]
fn percentiles_are_those_of_the_list() {
    let arguments = "--name=p --rw=randread --bs=4k --size=1M --percentile_list=50:99:99.99";
    let json = parse(&run_on(&null(&options()), WriteMode::PerZone, arguments), Detail::Plain);
    let percentile = json["jobs"][0]["read"]["clat_ns"]["percentile"].as_object().unwrap();
    assert_eq!(percentile.keys().collect::<Vec<_>>(), ["50.000000", "99.000000", "99.990000"]);
}

#[test]
fn fio_jsonplus_clat2csv_reads_the_bins_and_validates_them() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("report.json"), mix().to_json(Detail::Bins)).unwrap();
    for more in [&[][..], &["--validate"]] {
        let output = output_of(
            Command::new("fio_jsonplus_clat2csv")
                .args(["report.json", "report.csv"])
                .args(more)
                .current_dir(directory.path()),
        );
        let Some(output) = output else { return };
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        if !more.is_empty() {
            assert!(
                text.contains("report_job0.csv validated") && text.contains("report_job1.csv validated"),
                "{text}"
            );
        }
    }
    let csv = std::fs::read_to_string(directory.path().join("report_job0.csv")).unwrap();
    assert!(csv.lines().count() > 10, "{csv}");
}

#[test]
fn text_has_fios_lines() {
    let text = mix().to_text();
    for needle in [
        "mix: (groupid=0, jobs=1): err= 0\n",
        "  Description  : [both]\n",
        "  read: IOPS=",
        "  write: IOPS=",
        "; 0 zone resets",
        "    slat (",
        "    clat (",
        "     lat (",
        "clat percentiles (",
        "     |  1.00th=[",
        "  fsync/fdatasync:\n",
        "  IO depths    : 1=",
        "fill: (groupid=1, jobs=1): err= 0\n",
        "Run status group 0 (all jobs):\n   READ: bw=",
        "Run status group 1 (all jobs):\n  WRITE: bw=",
        "Write path (per-zone):\n",
    ] {
        assert!(text.contains(needle), "{needle:?} is missing in\n{text}");
    }
}

#[test]
fn long_run_has_samples() {
    let arguments = "--name=s --rw=randread --bs=4k --size=1M --time_based --runtime=1200ms --norandommap";
    let device = null(&options().with_completion_nsec(1_000_000));
    let json = parse(&run_on(&device, WriteMode::PerZone, arguments), Detail::Plain);
    let read = &json["jobs"][0]["read"];
    assert_eq!((read["bw_samples"].as_u64(), read["iops_samples"].as_u64()), (Some(2), Some(2)));
    assert!(read["iops_mean"].as_f64().unwrap() > 100.0);
}

#[test]
fn comparison_is_one_table_with_ratios() {
    let arguments = "--name=a --rw=write --zonemode=zbd --bs=4k --offset=4z --size=4z --iodepth=8 \
                     --name=b --stonewall --rw=read --zonemode=zbd --bs=4k --offset=4z --size=4z";
    let modes = [WriteMode::PerZone, WriteMode::Append];
    let report = try_run(&null(&polled()), &modes, arguments).unwrap();
    let table = report.comparison_table();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..4], ["job", "rw", "mode", "IOPS"]);
    let columns: Vec<_> = lines[1..].iter().map(|line| (line[0], line[1], line[2])).collect();
    assert_eq!(
        columns,
        [
            ("a", "write", "per-zone"),
            ("a", "write", "append"),
            ("b", "read", "per-zone"),
            ("b", "read", "append")
        ]
    );
    assert_eq!(lines[1].last(), Some(&"1.00x"));
    assert!(report.to_text().ends_with(&table));
    let json = parse(&report, Detail::Plain);
    assert_eq!(json["zonal"]["modes"].as_array().unwrap().len(), 2);
    assert_eq!(json["jobs"].as_array().unwrap().len(), 4);
}

#[test]
fn failure_is_in_text_and_json() {
    let device = memory(&options(), Fault::Fail { zone: 4, offset: 0 });
    let report = run_on(
        &device,
        WriteMode::PerZone,
        "--name=f --rw=write --zonemode=zbd --bs=4k --offset=4z --size=1z",
    );
    let text = report.to_text();
    assert!(text.contains("err= 5") && text.contains("write of 8 sectors at sector 8192 failed"), "{text}");
    let json = parse(&report, Detail::Plain);
    assert_eq!(json["jobs"][0]["error"], 5);
    assert_eq!(json["jobs"][0]["zonal"]["errors"], 1);
}
