//! The experiments of `experiments/` at minimal length: they run and their tables are complete.
//! Their figures are not tested, except on simulated drives, which have tests of their own.

use std::collections::BTreeSet;
use zonal_check::experiment::{Experiment, Scale, run};
use zonal_check::program::{repository, zonal};

fn experiments() -> Vec<Experiment> {
    Experiment::all(&repository().join("experiments")).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_experiment_run_briefly_fills_every_row_of_its_table() {
    for experiment in experiments().into_iter().filter(|e| !e.is_simulated() && e.linux.is_none()) {
        let (name, lines) = (experiment.name.clone(), experiment.rows().len() * experiment.variants.len());
        let measured = run(experiment, zonal(), Scale::Tiny).unwrap_or_else(|e| panic!("{e}"));
        let json = measured.to_json();
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), lines, "{name}: {json:#}");
        let text = measured.to_text();
        for row in rows {
            assert!(
                row["measured"].as_f64() > Some(0.0) && row["ratio"].as_f64() > Some(0.0),
                "{name}: {row}"
            );
            let (what, how) = (row["what"].as_str().unwrap(), row["how"].as_str().unwrap());
            let is_line = |line: &str| {
                let rest = line.strip_prefix(what).map(str::trim_start);
                rest.and_then(|rest| rest.strip_prefix(how)).is_some_and(|rest| rest.starts_with(' '))
            };
            assert!(text.lines().any(is_line), "{name}: no line of {what}, {how} in\n{text}");
        }
    }
}

#[test]
fn every_experiment_cites_its_reference_figures() {
    let experiments = experiments();
    for experiment in experiments.iter().filter(|e| e.linux.is_none()) {
        let rows = experiment.rows();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len(), "{}: two rows have one name", experiment.name);
        let is_ours = experiment.source.starts_with("no publication");
        assert!(
            is_ours
                || rows.iter().any(|row| {
                    row.published.len() >= experiment.variants.len().min(2) || row.gains.len() >= 2
                }),
            "{}: nothing to compare with",
            experiment.name
        );
        assert!(experiment.source.contains("20"), "{}: the source has no date", experiment.name);
        assert!(experiment.about.len() > 200, "{}: it does not say what it can show", experiment.name);
    }
    for linux in experiments.iter().filter_map(|e| e.linux.as_ref()) {
        for name in &linux.experiments {
            assert!(
                experiments.iter().any(|e| e.name == *name && e.is_simulated()),
                "{name} is not simulated"
            );
        }
    }
    let names: Vec<&str> = experiments.iter().map(|e| e.name.as_str()).collect();
    assert!(["s1-plugging", "s2-locks"].iter().all(|name| names.contains(name)), "{names:?}");
}

/// The five workloads of the null_blk series, in the order of its table.
#[test]
fn s1_experiment_has_the_published_workloads() {
    let experiments = experiments();
    let plugging = experiments.iter().find(|e| e.name == "s1-plugging").unwrap();
    let rows = plugging.rows();
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["seqw4K1", "seqw4K16", "seqw1M16", "rndw4K16", "rndw128K16"]);
    let gains: Vec<u64> = rows
        .iter()
        .map(|row| (row.published["per-zone"] / row.published["zone-lock, unmerged"] * 100.0 - 100.0) as u64)
        .collect();
    assert_eq!(gains, [218, 131, 39, 179, 114], "the table's percentages, cut to whole ones");
}

/// Reads and writes with 1, 2, 4 and 8 threads, with and without limits.
#[test]
fn s2_experiment_has_a_row_a_number_of_threads() {
    let experiments = experiments();
    let locks = experiments.iter().find(|e| e.name == "s2-locks").unwrap();
    let rows = locks.rows();
    for dir in ["read", "write"] {
        for limits in ["no limits", "32 zones open"] {
            for jobs in [1, 2, 4, 8] {
                let name = format!("{dir}, {limits}, numjobs={jobs}");
                assert!(rows.iter().any(|row| row.name == name), "{name}");
            }
        }
    }
    assert_eq!(rows.len(), 16);
}
