//! Two results side by side: which jobs belong together, what has no ratio, and that no text breaks it.

use proptest::prelude::*;
use serde_json::{Value, json};
use zonal_bench::compare::{Results, ResultsComparison, ResultsError};

/// One direction with so many requests of `bytes` in a second.
fn work(ios: u64, bytes: u64) -> Value {
    json!({
        "total_ios": ios, "io_bytes": ios * bytes, "bw_bytes": ios * bytes, "iops": ios as f64,
        "clat_ns": { "mean": 1e9 / ios.max(1) as f64, "N": ios, "percentile": { "99.000000": 4_000_000 } },
    })
}

fn job(name: &str, mode: Option<&str>, write: Value) -> Value {
    let mut job = json!({
        "jobname": name, "error": 0, "job options": { "rw": "write", "bs": "4k" },
        "read": work(0, 4096), "write": write,
    });
    if let Some(mode) = mode {
        job["zonal"] = json!({ "write_mode": mode });
    }
    job
}

fn results(jobs: Vec<Value>) -> Results {
    let document = json!({ "fio version": "fio-3.33", "time": "Sat Nov 21 12:16:43 2026", "jobs": jobs });
    Results::parse("f", &document.to_string()).unwrap()
}

/// Job, mode and ratios of each row.
fn rows(comparison: &ResultsComparison) -> Vec<(String, String, Vec<Option<f64>>)> {
    let ratios = |job: &zonal_bench::compare::JobComparison| job.figures.iter().map(|f| f.ratio).collect();
    comparison.jobs.iter().map(|job| (job.job.clone(), job.mode(), ratios(job))).collect()
}

#[test]
fn figures_of_b_are_divided_by_those_of_a() {
    let (a, b) =
        (results(vec![job("j", None, work(100, 4096))]), results(vec![job("j", None, work(250, 4096))]));
    let comparison = ResultsComparison::new(&a, &b);
    let ratios = vec![Some(2.5), Some(2.5), Some(0.4), Some(1.0)];
    assert_eq!(rows(&comparison), [("j".to_owned(), String::new(), ratios)]);
    assert_eq!((comparison.not_compared.len(), comparison.differences.len()), (0, 0));
}

#[test]
fn jobs_are_matched_by_name_number_and_mode() {
    let a = ["per-zone", "qd1"].map(|mode| job("j", Some(mode), work(100, 4096)));
    let b = ["qd1", "append"].map(|mode| job("j", Some(mode), work(200, 4096)));
    let comparison = ResultsComparison::new(&results(a.to_vec()), &results(b.to_vec()));
    assert_eq!(rows(&comparison).len(), 1);
    assert_eq!(comparison.jobs[0].mode(), "qd1");
    let only = ["write mode per-zone is only in A", "write mode append is only in B"];
    assert_eq!(comparison.not_compared, only);

    let two = results(vec![job("j", None, work(100, 4096)), job("j", None, work(300, 4096))]);
    let three = results([100, 600, 7].map(|ios| job("j", None, work(ios, 4096))).to_vec());
    let comparison = ResultsComparison::new(&two, &three);
    let iops: Vec<_> = comparison.jobs.iter().map(|job| (job.job.as_str(), job.figures[1].ratio)).collect();
    assert_eq!(iops, [("j #1", Some(1.0)), ("j #2", Some(2.0))]);
    assert_eq!(comparison.not_compared, ["job j #3 is only in B"]);
}

#[test]
fn result_without_modes_is_compared_with_each_mode() {
    let fio = results(vec![job("j", None, work(100, 4096))]);
    let modes = ["per-zone", "qd1"].map(|mode| job("j", Some(mode), work(100, 4096)));
    let comparison = ResultsComparison::new(&fio, &results(modes.to_vec()));
    let modes: Vec<_> = comparison.jobs.iter().map(|job| job.mode()).collect();
    assert_eq!(modes, ["fio / per-zone", "fio / qd1"]);
}

#[test]
fn single_modes_that_differ_are_compared_with_a_note() {
    let of = |mode| results(vec![job("j", Some(mode), work(100, 4096))]);
    let comparison = ResultsComparison::new(&of("per-zone"), &of("qd1"));
    assert_eq!(comparison.jobs[0].mode(), "per-zone / qd1");
    assert_eq!(comparison.differences, ["the write modes differ: per-zone in A, qd1 in B"]);
}

#[test]
fn requests_of_another_size_have_no_ratio_but_that_of_bandwidth() {
    let mut other = job("j", None, work(100, 65536));
    other["job options"]["bs"] = json!("64K");
    let comparison =
        ResultsComparison::new(&results(vec![job("j", None, work(100, 4096))]), &results(vec![other]));
    assert_eq!(rows(&comparison)[0].2, [Some(16.0), None, None, None]);
    assert!(comparison.not_compared[0].contains("requests of 4 KiB in A and 64 KiB in B"), "{comparison}");
    assert_eq!(comparison.differences, ["options of j: bs is not set in A and 64k in B"]);
}

#[test]
fn job_that_failed_has_no_ratio() {
    let mut failed = job("j", Some("qd1"), work(100, 4096));
    failed["zonal"]["failure"] = json!("write of 8 sectors at 16: medium error");
    let mut lacked = job("k", Some("qd1"), work(100, 4096));
    lacked["zonal"]["lacked_zone"] = json!(true);
    let whole = ["j", "k"].map(|name| job(name, Some("qd1"), work(100, 4096)));
    let comparison = ResultsComparison::new(&results(whole.to_vec()), &results(vec![failed, lacked]));
    assert!(rows(&comparison).iter().all(|(_, _, ratios)| ratios == &[None; 4]));
    assert!(
        comparison.not_compared[0].contains("in B the job failed (write of 8 sectors at 16: medium error)")
    );
    assert!(comparison.not_compared[1].contains("in B the job found no zone to write"), "{comparison}");
}

#[test]
fn options_are_compared_as_the_job_language_means_them() {
    let with = |options: Value| {
        let mut job = job("j", None, work(100, 4096));
        job["job options"] = options;
        job
    };
    let a = with(json!({ "rw": "write", "bs": "1048576", "iodepth": "1", "name": "j", "time_based": "" }));
    let same =
        with(json!({ "readwrite": "write", "blocksize": "1M", "description": "x", "time_based": "1" }));
    let differences =
        |b: Value| ResultsComparison::new(&results(vec![a.clone()]), &results(vec![b])).differences;
    assert_eq!(differences(same), [""; 0]);
    let other =
        with(json!({ "rw": "write", "bs": "1m", "iodepth": "32", "time_based": 1, "ioengine": "libaio" }));
    let told = [
        "options of j: ioengine is not set in A and libaio in B",
        "options of j: iodepth is not set in A and 32 in B",
    ];
    let mut found = differences(other);
    found.sort();
    let mut told = told.map(str::to_owned);
    told.sort();
    assert_eq!(found, told);
}

#[test]
fn options_from_outside_read_no_file_and_no_environment() {
    let mut outside = job("j", None, work(100, 4096));
    outside["job options"] = json!({ "include": "/etc/passwd", "bs": "${HOME}", "rw": "write\nbs=64k\n[x]" });
    let comparison =
        ResultsComparison::new(&results(vec![job("j", None, work(100, 4096))]), &results(vec![outside]));
    let all = comparison.differences.join("\n");
    assert!(all.contains("include is not set in A and /etc/passwd in B") && all.contains("${HOME}"), "{all}");
    assert!(all.contains(r"write\nbs=64k\n[x]"), "{all}");
}

#[test]
fn invalid_results_are_refused_with_the_matching_error() {
    assert!(matches!(Results::parse("f", ""), Err(ResultsError::NotJson(_))));
    assert!(matches!(Results::parse("f", "fio: warning\n{}"), Err(ResultsError::NotJson(_))));
    assert!(Results::parse("f", &"[".repeat(100_000)).is_err());
    for other in ["{}", "[]", "7", "null", r#"{"jobs":[{}]}"#, r#"{"jobs":[{"jobname":7}]}"#] {
        assert!(matches!(Results::parse("f", other), Err(ResultsError::NotResults(_))), "{other}");
    }
    assert!(matches!(Results::parse("f", r#"{"jobs":[]}"#), Err(ResultsError::NoJobs)));
}

#[test]
fn page_keeps_names_from_outside_as_text() {
    let name = "</style><script>x</script>\u{1b}[2J";
    let jobs = || results(vec![job(name, Some("<b>"), work(100, 4096))]);
    let page = ResultsComparison::new(&jobs(), &jobs()).to_html();
    assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains('\u{1b}'));
    assert!(page.contains("default-src 'none'") && page.contains("1.00×"));
    let text = ResultsComparison::new(&jobs(), &jobs()).to_string();
    assert!(!text.contains('\u{1b}') && text.contains(r"\u{1b}[2J"), "{text}");
}

/// Any JSON, with the keys of results among its own.
fn any_json() -> impl Strategy<Value = Value> {
    let keys = [
        "jobs",
        "jobname",
        "read",
        "write",
        "zonal",
        "clat_ns",
        "percentile",
        "99.0",
        "iops",
        "N",
        "mean",
        "x",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(proptest::sample::select(keys.to_vec()), inner, 0..6)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_in_place_of_another_is_compared_or_refused(value in any_json(), place in 0..14usize) {
        let mut document = json!({ "jobs": [job("j", Some("qd1"), work(100, 4096))], "zonal": { "modes": [] } });
        let places = [
            "/jobs", "/zonal", "/zonal/modes", "/jobs/0", "/jobs/0/jobname", "/jobs/0/error", "/jobs/0/job options",
            "/jobs/0/write", "/jobs/0/write/total_ios", "/jobs/0/write/io_bytes", "/jobs/0/write/bw_bytes",
            "/jobs/0/write/iops", "/jobs/0/write/clat_ns", "/jobs/0/write/clat_ns/percentile",
        ];
        *document.pointer_mut(places[place]).unwrap() = value;
        if let Ok(changed) = Results::parse("f", &document.to_string()) {
            let whole = results(vec![job("j", Some("qd1"), work(100, 4096))]);
            for comparison in [ResultsComparison::new(&changed, &whole), ResultsComparison::new(&whole, &changed)] {
                let _ = (comparison.to_string(), comparison.to_html());
            }
        }
    }

    #[test]
    fn text_cut_anywhere_is_an_error(cut in 0..1000usize) {
        let text = json!({ "jobs": [job("j", Some("qd1"), work(100, 4096))] }).to_string();
        let cut = cut % text.len();
        prop_assert!(Results::parse("f", &text[..cut]).is_err());
    }
}
