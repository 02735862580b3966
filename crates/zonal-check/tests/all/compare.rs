//! Tests of the command `zonal compare`: results of `zonal bench` and in fio's format, exit codes,
//! and the page.

use crate::cli::{FAILED, USAGE};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use zonal_check::program::{Said, run};

const JOB: &str = "--name=seq --rw=write --zonemode=zbd --iodepth=32 --io_size=64m";

/// Directory with the results of two modes in `a.json`, and of the same modes with other options in
/// `b.json`, all in virtual time.
fn place() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), "a.json", &format!("--write-mode per-zone,qd1 {JOB} --bs=1m"));
    bench(dir.path(), "b.json", &format!("--write-mode qd1,per-zone {JOB} --bs=1m --iodepth=4"));
    dir
}

fn bench(dir: &Path, json: &str, arguments: &str) {
    run(dir, &format!("bench --device sim:smr-hdd-30t --json {json} {arguments}")).done();
}

fn compare(dir: &Path, arguments: &str) -> String {
    String::from_utf8(run(dir, &format!("compare {arguments}")).done()).unwrap()
}

fn json(dir: &Path, file: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join(file)).unwrap()).unwrap()
}

#[test]
fn modes_are_compared_with_their_own_and_ratios_are_those_of_the_files() {
    let dir = place();
    let text = compare(dir.path(), "a.json b.json");
    let (a, b) = (json(dir.path(), "a.json"), json(dir.path(), "b.json"));
    for (mode, of_a, of_b) in [("per-zone", 0, 1), ("qd1", 1, 0)] {
        let iops = |file: &Value, job: usize| file["jobs"][job]["write"]["iops"].as_f64().unwrap();
        let ratio = format!("{:.2}x", iops(&b, of_b) / iops(&a, of_a));
        let (_, rows) = text.split_once(&format!("seq  write  {mode} ")).unwrap();
        let row = rows.lines().find(|line| line.trim_start().starts_with("IOPS ")).unwrap();
        assert!(row.ends_with(&ratio), "{ratio} in {row}");
    }
    assert!(text.contains("  options of seq: iodepth is 32 in A and 4 in B\n"), "{text}");
    assert!(!text.contains("not compared"), "{text}");
    let same = compare(dir.path(), "a.json a.json");
    let ratios: Vec<_> = same.lines().filter(|line| line.ends_with('x')).collect();
    assert!(ratios.len() == 8 && ratios.iter().all(|line| line.ends_with(" 1.00x")), "{same}");
}

#[test]
fn options_of_the_write_path_are_recorded_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    bench(dir, "a.json", &format!("--write-mode per-zone {JOB}"));
    bench(dir, "b.json", &format!("--write-mode per-zone --scheduler mq-deadline --no-merge {JOB}"));
    assert_eq!(json(dir, "a.json")["zonal"]["modes"][0]["write_path"], Value::Null);
    let of_b = &json(dir, "b.json")["zonal"]["modes"][0]["write_path"];
    assert_eq!(*of_b, serde_json::json!({ "merge": "no", "scheduler": "mq-deadline" }));
    let text = compare(dir, "a.json b.json");
    for difference in ["merge of the write path: the default in A, no in B", "scheduler of the write path:"] {
        assert!(text.contains(difference), "{text}");
    }
}

#[test]
fn incomparable_results_are_reported() {
    let dir = place();
    bench(
        dir.path(),
        "c.json",
        &format!(
            "--write-mode qd1 {JOB} --bs=4m --name=more --rw=write --zonemode=zbd --bs=1m --offset=8z --io_size=4m"
        ),
    );
    let text = compare(dir.path(), "a.json c.json");
    for said in [
        "write mode per-zone is only in A\n",
        "requests of 1 MiB in A and 4 MiB in B, so IOPS and latencies have no ratio\n",
        "job more is only in B\n",
        "options of seq: bs is 1m in A and 4m in B\n",
    ] {
        assert!(text.contains(said), "{said} is not in\n{text}");
    }
    fs::write(
        dir.path().join("d.json"),
        json(dir.path(), "a.json").to_string().replace("\"seq\"", "\"other\""),
    )
    .unwrap();
    let Said { code, out, err, .. } = run(dir.path(), "compare a.json d.json");
    let out = String::from_utf8(out).unwrap();
    assert!(code == Some(FAILED) && out.contains("job other is only in B\n"), "{out}{err}");
    assert_eq!(err, "zonal: the results have no job and direction in common\n");
}

#[test]
fn files_that_are_no_results_are_one_error_with_their_name() {
    let dir = place();
    for (name, text, said) in [
        ("cut.json", fs::read_to_string(dir.path().join("a.json")).unwrap()[..700].to_owned(), "not JSON: "),
        ("text", "per-zone: 100 MB/s\n".to_owned(), "not JSON: "),
        (
            "other.json",
            "{\"modes\": []}".to_owned(),
            "not results of `zonal bench --json` or of fio 3: missing field `jobs`",
        ),
        ("none.json", "{\"jobs\": []}".to_owned(), "no job in the results"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
        for line in [format!("compare a.json {name}"), format!("compare {name} a.json")] {
            let error = run(dir.path(), &line).refused(USAGE);
            assert!(error.starts_with(&format!("zonal: {name}: {said}")), "{error}");
        }
    }
    fs::write(dir.path().join("raw"), [0xff, 0xfe, 0]).unwrap();
    for (name, said) in [("missing", "No such file"), (".", "not a regular file"), ("raw", "not text")] {
        let error = run(dir.path(), &format!("compare a.json {name}")).refused(USAGE);
        assert!(error.starts_with(&format!("zonal: {name}: cannot read the results: {said}")), "{error}");
    }
}

#[test]
fn page_has_the_figures_and_replaces_no_result_and_no_image() {
    let dir = place();
    compare(dir.path(), "a.json b.json --report page.html");
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    let iops = json(dir.path(), "b.json")["jobs"][0]["write"]["iops"].as_f64().unwrap();
    assert!(page.contains(&format!("<data value=\"{iops}\">")), "{iops}");
    assert!(page.contains("iodepth is 32 in A and 4 in B") && !page.contains("<script"));
    run(dir.path(), "create d --size 64M --zone-size 4M").done();
    fs::hard_link(dir.path().join("a.json"), dir.path().join("linked.html")).unwrap();
    let before = ["a.json", "b.json", "d"].map(|name| fs::read(dir.path().join(name)).unwrap());
    for report in ["a.json", "./b.json", "linked.html", "d", "missing/page.html", "."] {
        let said = run(dir.path(), &format!("compare a.json b.json --report {report}"));
        assert!(said.code == Some(USAGE) && said.err.lines().count() == 1, "{report}: {said:?}");
    }
    let after = ["a.json", "b.json", "d"].map(|name| fs::read(dir.path().join(name)).unwrap());
    assert_eq!(before, after);
}
