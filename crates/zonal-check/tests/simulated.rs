//! Simulated drives compared with published figures. Each figure has its tolerance and status in
//! `experiment.toml`. All runs here are checked for behaviour that is impossible for the drive or
//! the write path.

use std::fs;
use std::sync::OnceLock;
use zonal_check::experiment::simulated::{comparison, summary};
use zonal_check::experiment::spec::{Row, Status};
use zonal_check::experiment::{Cell, Experiment, Measured, Scale, run};
use zonal_check::program::{plain, repository, zonal};

fn experiment(name: &str) -> Experiment {
    let folder = repository().join("experiments").join(name);
    Experiment::read(&folder).unwrap_or_else(|e| panic!("{e}"))
}

fn make(experiment: Experiment) -> Measured {
    run(experiment, zonal(), Scale::Tiny).unwrap_or_else(|e| panic!("{e}"))
}

/// All experiments on simulated drives, run once.
fn all() -> &'static [Measured] {
    static ALL: OnceLock<Vec<Measured>> = OnceLock::new();
    ALL.get_or_init(|| {
        let all = Experiment::all(&repository().join("experiments")).unwrap_or_else(|e| panic!("{e}"));
        let is_made = |experiment: &Experiment| experiment.is_simulated() && !experiment.is_long;
        let all: Vec<Measured> = all.into_iter().filter(is_made).map(make).collect();
        assert!(all.len() >= 9, "an experiment is gone");
        all
    })
}

/// Every cell of all experiments: its experiment, its row with all cells, and its index there.
fn cells() -> impl Iterator<Item = (&'static Experiment, &'static Row, &'static [Cell], usize)> {
    let rows = |measured: &'static Measured| {
        measured.rows.iter().map(|(row, cells)| (&measured.experiment, row, cells.as_slice()))
    };
    all()
        .iter()
        .flat_map(rows)
        .flat_map(|(e, row, cells)| (0..cells.len()).map(move |at| (e, row, cells, at)))
}

fn place(experiment: &Experiment, row: &Row, index: usize) -> String {
    format!("{}: {}, {}", experiment.name, row.name, experiment.variants[index].name)
}

#[test]
fn published_figures_are_met_within_their_tolerances() {
    let mut missed = Vec::new();
    let mut compared = 0;
    for (experiment, row, cells, index) in cells() {
        let Some(found) = comparison(experiment, row, cells, index) else { continue };
        compared += 1;
        if found.error().abs() > found.tolerance {
            let place = place(experiment, row, index);
            missed.push(format!("{place}: {:+.1}%, at most {}%: {found:?}", found.error(), found.tolerance));
        }
    }
    assert!(compared >= 64, "only {compared} published figures are left");
    assert!(missed.is_empty(), "{}\n{}", missed.join("\n"), summary(all().iter()));
}

/// Relative errors, without sign, of the 30 TB disk's figures with this status. Figures at the rate
/// of the medium are excluded, and so is the row with a fitted start on the disk.
fn errors_of_the_disk(status: Status) -> Vec<f64> {
    let mut errors = Vec::new();
    for (experiment, row, cells, index) in cells() {
        let variant = &experiment.variants[index];
        let is_of_the_disk = variant.profile().is_some_and(|(name, _)| name == "smr-hdd-30t");
        let is_counted =
            is_of_the_disk && row.section != "rndw1M-1" && row.published.contains_key(&variant.name);
        let Some(found) = comparison(experiment, row, cells, index).filter(|_| is_counted) else { continue };
        let media = cells[index].simulated.as_ref().and_then(|s| s.media).expect("a disk has a rate");
        if found.status == status && (found.published / media - 1.0).abs() > 0.1 {
            errors.push(found.error().abs() / 100.0);
        }
    }
    errors.sort_by(f64::total_cmp);
    errors
}

/// The bounds are those in docs/SIM.md.
#[test]
fn model_error_of_the_30_tb_disk_is_within_documented_bounds() {
    let fitted = errors_of_the_disk(Status::Calibrated);
    let rms = (fitted.iter().map(|error| error * error).sum::<f64>() / fitted.len() as f64).sqrt();
    assert!(
        fitted.len() >= 11 && rms < 0.05 && fitted.iter().all(|error| *error < 0.09),
        "rms {rms}, {fitted:?}"
    );
    let apart = errors_of_the_disk(Status::Assumed);
    assert!(apart.len() >= 4 && apart[(apart.len() - 1) / 2] < 0.11, "{apart:?}");
}

/// A figure with a wide tolerance must have the status unexplained.
#[test]
fn wide_tolerances_belong_to_figures_that_are_unexplained() {
    for (experiment, row, cells, index) in cells() {
        let Some(found) = comparison(experiment, row, cells, index) else { continue };
        let is_wide = found.tolerance > 15.0;
        assert!(
            !is_wide || found.status == Status::Unexplained,
            "{}: {found:?}",
            place(experiment, row, index)
        );
    }
}

/// True for a published ratio that differs from 1 by more than 3%, truncated to whole percents as
/// its authors do.
fn says_something(ratio: f64) -> bool {
    ((ratio - 1.0).abs() * 100.0).trunc() > 3.0
}

#[test]
fn published_comparisons_point_the_same_way() {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (experiment, row, cells, index) in cells() {
        let against = experiment.against(index);
        let name = |index: usize| &experiment.variants[index].name;
        let Some(published) = row.published_ratio(name(index), name(against)) else { continue };
        let unexplained =
            [index, against].iter().any(|at| row.status.get(name(*at)) == Some(&Status::Unexplained));
        if !says_something(published) || unexplained {
            continue;
        }
        compared += 1;
        let simulated = cells[index].figures.median() / cells[against].figures.median();
        if (simulated > 1.0) != (published > 1.0) {
            wrong
                .push(format!("{}: {simulated:.3}, published {published:.3}", place(experiment, row, index)));
        }
    }
    assert!(compared >= 8, "only {compared} comparisons are left");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Output of a checked run; the statistics of the write path show that it took place.
#[test]
fn runs_are_checked_against_the_guarantees_of_their_mode() {
    for (experiment, row, cells, index) in cells() {
        let expected = match experiment.variants[index].mode.as_str() {
            "qd1" => "checked=drive",
            "per-zone" | "zone-lock" => "checked=zone",
            _ => "checked=many",
        };
        let place = place(experiment, row, index);
        assert!(cells[index].command.contains(expected), "{place}: {}", cells[index].command);
        // Short pieces share commands.
        assert!(cells[index].statistics.commands > 500, "{place}: {:?}", cells[index].statistics);
    }
}

/// The metadata written by a sync takes little time relative to large files. On a disk, where it
/// costs a seek, it takes much relative to small ones; a ZNS SSD may write it beside the data.
#[test]
fn metadata_overhead_depends_on_the_data_per_sync() {
    let measured = all().iter().find(|measured| measured.experiment.name == "fs-metadata").unwrap();
    let [large, synced, small] = &measured.rows[..] else { panic!("three rows") };
    let shares = |(_, cells): &(Row, Vec<Cell>)| {
        [(0, 1), (2, 3)].map(|(memory, drive)| cells[drive].figures.median() / cells[memory].figures.median())
    };
    assert!(shares(large).iter().all(|share| (0.8..1.01).contains(share)), "{:?}", shares(large));
    for row in [synced, small] {
        let [disk, flash] = shares(row);
        assert!((0.02..0.7).contains(&disk), "{}: disk {disk}", row.0.name);
        assert!((0.5..1.01).contains(&flash), "{}: flash {flash}", row.0.name);
    }
}

/// A pipelined run on a drive that checks for one write at a time.
#[test]
fn watch_finds_a_write_path_that_does_not_keep_its_promise() {
    let job =
        ["--write-mode=pipelined", "--name=w", "--rw=write", "--zonemode=zbd", "--iodepth=4", "--io_size=1M"];
    let said = |device: &str| {
        let output = plain().args(["bench", device]).args(job).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_done, text) = said("--device=sim:ufs-zoned,checked=drive");
    assert!(!is_done && text.contains("2 writes are at the drive together"), "{text}");
    assert!(said("--device=sim:ufs-zoned,checked=many").0);
    let (is_done, text) = said("--device=sim:ufs-zoned,checked=little");
    assert!(!is_done && text.contains("use many, zone or drive"), "{text}");
}

#[test]
fn repeated_experiment_is_byte_identical() {
    for name in ["s0-zones", "s3-pipelining"] {
        let first =
            all().iter().find(|measured| measured.experiment.name == name).expect("it is one of them");
        let again = make(experiment(name));
        assert_eq!(first.to_json()["rows"], again.to_json()["rows"], "{name}");
    }
}

/// The disk without positioning times and with equal rates everywhere.
const WEIGHTLESS: &str = ",seek_single_us=0,seek_third_us=0,seek_full_us=0,turn_us=0,inner_ratio=0.999";

#[test]
fn disk_without_seeks_and_turns_loses_nothing() {
    for name in ["s0-depth", "s0-zones"] {
        let mut experiment = experiment(name);
        experiment.variants.retain(|variant| ["per-zone", "qd1"].contains(&variant.name.as_str()));
        experiment.variants.iter_mut().for_each(|variant| variant.device += WEIGHTLESS);
        let measured = make(experiment);
        for (row, cells) in &measured.rows {
            for cell in cells {
                let media = cell.simulated.as_ref().and_then(|s| s.media).expect("a disk has a rate");
                let share = cell.figures.median() / media;
                assert!((0.98..1.02).contains(&share), "{name}: {}: {share} of the medium's rate", row.name);
            }
        }
    }
}

/// Neither models nor profiles depend on the job: effects of queue depth, jobs and zones are
/// emergent.
#[test]
fn models_and_profiles_are_independent_of_the_job() {
    let mut files = Vec::new();
    for folder in
        ["crates/zonal-sim/src", "crates/zonal-sim/src/smr", "crates/zonal-sim/src/profile", "profiles"]
    {
        let entries = fs::read_dir(repository().join(folder)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
    }
    assert!(files.len() > 12, "{files:?}");
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for word in ["iodepth", "numjobs", "open_zones", "nr_jobs"] {
            assert!(!text.contains(word), "{}: {word}", path.display());
        }
    }
    // All cells of a row use one drive, whatever is varied, and variants that differ only in the
    // mode use the same drive.
    for measured in all() {
        let variants = &measured.experiment.variants;
        for variant in variants {
            let (profile, changes) = variant.profile().expect("all are simulated");
            // Host limits and size are not values of a model.
            let is_told = |key: &str| ["write_cache", "command_max", "size"].contains(&key);
            let is_told = changes.iter().all(|(key, _)| is_told(key));
            assert!(is_told, "{}: {}: {profile} with {changes:?}", measured.experiment.name, variant.name);
        }
        assert!(measured.rows.iter().all(|(row, _)| row.device.is_empty()), "{}", measured.experiment.name);
    }
}

#[test]
fn host_time_follows_the_profile_and_adds_scheduler_time() {
    let slat = |more: &[&str]| {
        let arguments =
            ["bench", "--output-format=json", "--device=sim:zns-1t,io_us=3,scheduler_us=2", "--name=w"];
        let job = ["--rw=write", "--zonemode=zbd", "--bs=4k", "--io_size=400k"];
        let arguments = arguments.iter().chain(more).chain(&job);
        let output = plain().args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let slat = &report["jobs"][0]["write"]["slat_ns"];
        (slat["min"].as_u64().unwrap(), slat["max"].as_u64().unwrap())
    };
    assert_eq!(slat(&["--write-mode=per-zone"]), (3000, 3000));
    assert_eq!(slat(&["--write-mode=zone-lock"]), (5000, 5000));
    assert_eq!(slat(&["--write-mode=zone-lock", "--host-time=700ns"]), (700, 700));
}

/// The table has a line for each cell, and lists the missed figures with reasons.
#[test]
fn table_of_a_simulated_experiment_has_every_cell_and_every_reason() {
    for measured in all() {
        let (text, json) = (measured.to_text(), measured.to_json());
        let cells: usize = measured.rows.iter().map(|(_, cells)| cells.len()).sum();
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(cells));
        for (row, _) in &measured.rows {
            for variant in &measured.experiment.variants {
                let is_line = |line: &str| line.starts_with(&row.name) && line.contains(&variant.name);
                assert!(text.lines().any(is_line), "{}, {} is not in\n{text}", row.name, variant.name);
            }
            for (variant, reason) in &row.reason {
                let is_said =
                    row.status.get(variant) != Some(&Status::Unexplained) || text.contains(reason.as_str());
                assert!(is_said, "{reason:?} is not in\n{text}");
            }
        }
    }
}

#[test]
fn full_run_of_an_unfitted_drive_gives_ranges_and_the_dominant_parameter() {
    let mut experiment = experiment("s3-pipelining");
    experiment.variants.retain(|v| ["zone-lock", "pipelined"].contains(&v.name.as_str()));
    let measured = run(experiment, zonal(), Scale::Full { rounds: 1 }).unwrap();
    let (_, cells) = &measured.rows[0];
    let pipelined = cells[1].simulated.as_ref().unwrap();
    let dominant = pipelined.dominant.as_ref().expect("the drive takes longest");
    assert_eq!(dominant.key, "drive_us");
    assert!((-1.0..-0.5).contains(&dominant.elasticity), "{dominant:?}");
    if !pipelined.is_calibrated {
        let (least, most) = pipelined.range.expect("a range, and no figure");
        assert!(least < most && measured.to_text().contains(".."), "{}", measured.to_text());
    }
}

/// Rate of a job that floods the 30 TB disk in mode `qd1`, in bytes per second. If another job
/// writes single blocks elsewhere meanwhile, also the longest and the mean latency of its writes,
/// in nanoseconds.
fn flood(options: &str, is_alone: bool) -> (f64, f64, f64) {
    const TIMED: &str = "--rw=write --zonemode=zbd --time_based --runtime=60";
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut line = format!(
        "bench --device sim:smr-hdd-30t --write-mode qd1 {options} --json {} --name=flood {TIMED} --bs=1M \
         --iodepth=64 --size=2000z",
        file.path().display()
    );
    if !is_alone {
        line += &format!(" --name=small {TIMED} --bs=4k --iodepth=1 --offset=50000z --size=100z");
    }
    let output = plain().args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
    let figure =
        |job: usize, path: &str| report["jobs"][job]["write"].pointer(path).unwrap().as_f64().unwrap();
    match is_alone {
        true => (figure(0, "/bw_bytes"), 0.0, 0.0),
        false => (figure(0, "/bw_bytes"), figure(1, "/clat_ns/max"), figure(1, "/clat_ns/mean")),
    }
}

#[test]
fn small_writer_beside_a_flood_waits_for_less_than_half_a_second() {
    let (alone, ..) = flood("", true);
    let (beside, longest, mean) = flood("", false);
    assert!(longest < 0.5e9 && mean < 0.4e9, "{longest} ns at most, {mean} in the mean");
    assert!(beside > 0.97 * alone, "{beside} of {alone} B/s");
    // Canary: without a quantum, the small writer waits until the flooded zone is full.
    let (_, _, mean) = flood("--qd1-quantum 0", false);
    assert!(mean > 1e9, "{mean} ns");
}
