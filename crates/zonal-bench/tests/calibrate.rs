//! Calibration of disks whose profiles are hidden: what is found has to behave as they do.

use std::fmt::Write;
use zonal_bench::calibrate::{SIMULATED_MAX, Runs, fit, measure};
use zonal_bench::job::JobFile;
use zonal_bench::{BenchOptions, run};
use zonal_bench::workload::Dir;
use zonal_io::volume::WriteMode;
use zonal_sim::Profile;

/// Numbers from a seed (splitmix64).
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[(self.bits() % words.len() as u64) as usize]
    }
}

/// A disk as nobody knows it.
fn hidden(seed: u64) -> Profile {
    let mut draw = Draw(seed.wrapping_mul(0xD1B5_4A32_D192_ED03));
    let numbers = [
        ("outer_rate_mb_s", draw.within(240.0, 270.0)),
        ("inner_ratio", draw.within(0.43, 0.55)),
        ("seek_single_us", draw.within(320.0, 1500.0)),
        ("seek_third_us", draw.within(7000.0, 9000.0)),
        ("seek_full_us", draw.within(13_000.0, 18_000.0)),
        ("alpha", draw.within(0.2, 0.8)),
    ];
    let mut changes: Vec<(&str, String)> = numbers.iter().map(|(key, n)| (*key, n.to_string())).collect();
    changes.push(("policy", draw.of(&["fifo", "visit", "sptf", "asptf"]).into()));
    changes.push(("window", draw.of(&["0", "0", "8", "32"]).into()));
    changes.push(("cache_bytes", format!("{}M", draw.within(16.0, 128.0) as u64)));
    let limits = [("2", "0"), ("3", "0"), ("4", "0"), ("8", "0"), ("0", "4M"), ("0", "8M"), ("0", "0")];
    let (commands, bytes) = limits[(draw.bits() % limits.len() as u64) as usize];
    changes.push(("cache_zone_commands", commands.into()));
    changes.push(("cache_zone_bytes", bytes.into()));
    changes.push(("layout_seed", (draw.bits() % 1_000_000).to_string()));
    let changes: Vec<(&str, &str)> = changes.iter().map(|(key, value)| (*key, value.as_str())).collect();
    Profile::open("smr-hdd-30t", &changes).unwrap()
}

/// Jobs like those of the published rows, one a line: name, mode, options.
fn rows() -> Vec<(String, WriteMode, String)> {
    let mut rows = Vec::new();
    for (mode, word) in [(WriteMode::PerZone, "per-zone"), (WriteMode::Qd1, "qd1")] {
        for depth in [1, 2, 4, 8, 32, 128] {
            if word == "qd1" && ![1, 128].contains(&depth) { continue; }
            rows.push((format!("depth {depth} {word}"), mode, format!("rw=write\niodepth={depth}\nsize=16z\n")));
        }
        for zones in [1, 2, 8, 32, 128] {
            rows.push((
                format!("zones {zones} {word}"),
                mode,
                format!("rw=randwrite\niodepth=8\nnumjobs=16\nmax_open_zones={zones}\nio_size=64M\n"),
            ));
        }
    }
    for place in [0, 55_000, 111_000] {
        rows.push((format!("at {place}"), WriteMode::Qd1, format!("rw=write\niodepth=1\noffset={place}z\nsize=2z\n")));
    }
    rows
}

fn rate(profile: &Profile, mode: WriteMode, options: &str) -> f64 {
    let device = profile.simulated("x").unwrap();
    let text = format!("[row]\nbs=1M\nzonemode=zbd\ndirect=1\nthread\ngroup_reporting\nend_fsync=1\nrandseed=7\n{options}");
    let mut bench = BenchOptions::new(JobFile::parse(&text, "row").unwrap());
    bench.modes = vec![mode];
    let report = run(&|| Ok(device.clone()), &bench).unwrap();
    let job = &report.modes[0].jobs[0];
    assert!(job.failure.is_none() && !job.lacked_zone, "{options}: {:?}", job.failure);
    job.dir(Dir::Write).bandwidth_bytes() / 1e6
}

#[test]
fn hidden_disks_are_found_again() {
    let from: u64 = std::env::var("ZONAL_CALIBRATE_SEED").map_or(0, |s| s.parse().unwrap());
    let count: u64 = std::env::var("ZONAL_CALIBRATIONS").map_or(3, |s| s.parse().unwrap());
    let budget: usize = std::env::var("B").map_or(SIMULATED_MAX, |s| s.parse().unwrap());
    let base = Profile::open("smr-hdd-30t", &[]).unwrap();
    for seed in from..from + count {
        let hidden = hidden(seed);
        let device = hidden.simulated("hidden").unwrap();
        let runs = Runs::new(device.info(), &base).unwrap();
        let t = std::time::Instant::now();
        let measured = measure(&device, &runs, 0).unwrap();
        let t1 = t.elapsed();
        let found = fit(device.info(), &base, &runs, &measured, budget, &mut |f| if std::env::var("V").is_ok() && f.simulated % 10 == 0 { eprintln!("{f:?}") }).unwrap();
        let mut text = String::new();
        let _ = writeln!(text, "seed {seed}: measure {t1:?}, {} sims {:?}", found.simulated, t.elapsed());
        for (key, profile) in [("hidden", &hidden), ("found", &found.profile)] {
            let t = profile.to_toml([]);
            let v: Vec<String> = t.lines().filter(|l| ["outer","inner_r","seek_","cache_","policy","alpha","window"].iter().any(|k| l.starts_with(k))).map(|l| { let (k, r) = l.split_once(" = ").unwrap(); format!("{k} {}", r.split(&['=', ','][..]).nth(1).unwrap().trim()) }).collect();
            let _ = writeln!(text, "{key}: {}", v.join(", "));
        }
        for r in &found.residuals {
            let _ = writeln!(text, "   {:10} {:7.1} {:7.1} {:+5.1}%   flush {:4.2} {:4.2}", r.run, r.measured.megabytes_a_second(), r.simulated.megabytes_a_second(), r.error() * 100.0, r.measured.flushing_share(), r.simulated.flushing_share());
        }
        if std::env::var("N").is_err() { for (name, mode, options) in rows() {
            let t = std::time::Instant::now();
            let (a, b) = (rate(&hidden, mode, &options), rate(&found.profile, mode, &options));
            let _ = writeln!(text, "  {name:20} {a:7.1} {b:7.1} {:+5.1}% {}  {:?}", (b / a - 1.0) * 100.0, if (b/a-1.0).abs() > 0.1 { "!!!!" } else { "" }, t.elapsed());
        } }
        println!("{text}");
    }
}
