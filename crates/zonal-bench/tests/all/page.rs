//! Content of the HTML page, tested as text without a browser. Tests of its rendering are in
//! zonal-check.

use crate::support;
use crate::support::{jobs, null, options, polled, run_on};
use serde_json::Value;
use std::sync::Arc;
use zonal_bench::series::PositionSeries;
use zonal_bench::{About, BenchOptions, Reopen, Report, run};
use zonal_core::{Nanos, SECTOR_BYTES, Sector};
use zonal_io::device::Device;
use zonal_io::volume::WriteMode;

const FILL: &str = "--name=fill --rw=write --zonemode=zbd --bs=64k --offset=8z --size=4z";

fn recorded(arguments: &str) -> Report {
    let device: Arc<dyn Device> = null(&polled());
    let mut options = BenchOptions::new(jobs(arguments));
    options.modes = vec![WriteMode::PerZone];
    options.reopen = Reopen::Same;
    options.series = true;
    run(&|| Ok(device.clone()), &options).unwrap()
}

fn piece(page: &str, id: &str) -> Value {
    let (_, rest) = page.split_once(&format!("<script type=\"application/json\" id=\"{id}\">")).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn page_is_self_contained() {
    let page = recorded(FILL).to_html(&About::default());
    for reference in [" src=", " href=", "@import", "url(", "<link", "<iframe"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(page.contains("Copyright (c) 2022 Leon Sorokin"), "the licence of what is brought along");
}

#[test]
fn page_shows_the_command_and_the_profile_as_text() {
    let about = About {
        command: "zonal bench '--name=</code><b>x'".to_owned(),
        profile: Some("[disk]\nrpm = 7200 # </pre>".to_owned()),
    };
    let page = recorded(FILL).to_html(&about);
    assert!(page.contains("rpm = 7200 # &#60;/pre&#62;"), "the profile");
    assert!(page.contains("&#60;/code&#62;&#60;b&#62;x&#39;"), "the command");
    let without = recorded(FILL).to_html(&About::default());
    assert!(!without.contains("Profile of the simulated device"));
}

#[test]
fn page_without_series_has_tables_and_a_notice() {
    let page = run_on(&null(&options()), WriteMode::PerZone, FILL).to_html(&About::default());
    assert!(page.contains("recorded no series"));
    let mode = &piece(&page, "series")["modes"][0];
    assert_eq!(mode["entries"][0]["dirs"][0]["flow"], Value::Null);
    assert!(mode["entries"][0]["dirs"][0]["curve"]["points"].as_array().unwrap().len() > 10);
    assert_eq!((&mode["positions"], &mode["zones"]), (&Value::Array(vec![]), &Value::Array(vec![])));
}

#[test]
fn zones_that_are_not_empty_are_listed_without_scripts() {
    let page = recorded(FILL).to_html(&About::default());
    let (_, used) = page.split_once("id=\"used\"").unwrap();
    assert!(used.split_once("</dl>").unwrap().0.contains("<dd>8–11 full</dd>"), "{used}");
    let without = run_on(&null(&options()), WriteMode::PerZone, FILL).to_html(&About::default());
    assert!(!without.contains("id=\"used\""));
}

#[test]
fn head_position_is_in_the_page_beside_the_jobs() {
    let mut report = recorded(FILL);
    let zone = support::ZONE / SECTOR_BYTES;
    let mut head = PositionSeries::new(Sector(0)..Sector(64 * zone));
    head.record(Nanos(1000), Sector(3 * zone + zone / 2));
    report.modes[0].series.as_mut().unwrap().head = Some(head);
    let page = report.to_html(&About::default());
    let positions = &piece(&page, "series")["modes"][0]["positions"];
    let names: Vec<_> = positions.as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["write", "head"]);
    assert_eq!(positions[1]["last"], serde_json::json!([3.5]));
}

#[test]
fn summary_has_groups_of_one_job_beside_those_of_several() {
    let both = format!(
        "--name=pair --rw=write --zonemode=zbd --bs=64k --offset=8z --size=4z --numjobs=2 {} --stonewall",
        FILL.replace("fill", "lone")
    );
    let page = recorded(&both).to_html(&About::default());
    let (summary, _) = page.split_once("<summary>Each job").unwrap();
    for label in ["group 0: all 2 jobs", "group 1: lone"] {
        assert!(summary.contains(&format!(">{label}</th>")), "{label}");
    }
    // Where every group has one job, the jobs are the summary.
    let lone = format!("{FILL} {} --stonewall", FILL.replace("fill", "again"));
    let page = recorded(&lone).to_html(&About::default());
    assert!(
        page.contains(">again</th>") && !page.contains("group 1: ") && !page.contains("<summary>Each job")
    );
}

#[test]
fn many_jobs_have_their_sum_and_only_some_of_them_series() {
    let arguments =
        "--name=j --rw=randwrite --zonemode=zbd --bs=4k --offset=4z --size=60z --io_size=32k --numjobs=80";
    let page = recorded(arguments).to_html(&About::default());
    let mode = &piece(&page, "series")["modes"][0];
    assert_eq!((mode["entries"].as_array().unwrap().len(), &mode["left_out"]), (65, &Value::from(16)));
    let of_all = mode["entries"][0]["dirs"][0]["flow"]["ios"].as_array().unwrap();
    assert_eq!(of_all.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 80 * 8);
    assert_eq!(mode["entries"][80 - 16]["label"], "j #64");
}
