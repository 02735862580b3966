//! Tests of profiles.

use super::*;
use zonal_io::volume::WriteMode;

fn error(name: &str, changes: &[(&str, &str)]) -> String {
    Profile::open(name, changes).unwrap_err().to_string()
}

#[test]
fn bundled_profiles_open_under_their_names() {
    for name in Profile::names() {
        let profile = Profile::open(name, &[]).unwrap();
        assert_eq!(profile.name, name);
        assert!(profile.emulated_options().geometry().is_ok());
    }
}

#[test]
fn given_values_replace_those_of_the_file_and_say_so() {
    let profile =
        Profile::open("smr-hdd-30t", &[("policy", "fifo"), ("size", "1T"), ("alpha", "0.25")]).unwrap();
    assert_eq!((profile.drive.size.value, profile.drive.size.source), (1 << 40, Source::Given));
    let TimingValues::SmrDisk(values) = &profile.timing else { panic!("it is a disk") };
    assert_eq!(values.options().order.alpha, 250);
    assert_eq!(values.policy.value, crate::smr::Policy::Fifo);
}

#[test]
fn profile_errors_name_the_problem() {
    let cases = [
        (error("smr-hdd-31t", &[]), "no such profile; choose from smr-hdd-26t, smr-hdd-30t"),
        (error("smr-hdd-30t", &[("plicy", "fifo")]), "unknown key \"plicy\"; did you mean \"policy\"?"),
        (error("smr-hdd-30t", &[("policy", "best")]), "unknown variant `best`"),
        (error("smr-hdd-30t", &[("size", "much")]), "size=much: not a valid value for size"),
        (error("smr-hdd-30t", &[("turn_us", "-1")]), "turn_us has to be from 0 to 100,000,000 microseconds"),
        (error("smr-hdd-30t", &[("turn_us", "nan")]), "turn_us=nan: not a valid value"),
        (error("smr-hdd-30t", &[("zone_size", "3M")]), "zone"),
        (
            error("smr-hdd-30t", &[("zone_size", "268435455")]),
            "zone_size of 268435455 bytes is not a multiple of the block of 4096",
        ),
        (error("smr-hdd-30t", &[("visit_bytes", "1M")]), "visit_bytes was replaced by dwell"),
        (error("smr-hdd-30t", &[("dwell", "-1")]), "dwell has to be from 0 to 1000"),
        (error("/nowhere/x.toml", &[]), "profile \"/nowhere/x.toml\": cannot be read"),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }
    let error = Profile::parse("x", "name = 1\n[drive", &[]).unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
}

/// The profile `name` with one line replaced.
fn with_line(name: &str, key: &str, line: &str) -> String {
    let text = Profile::text(name).unwrap();
    let begins = format!("{key} = ");
    assert!(text.lines().any(|l| l.starts_with(&begins)), "{key}");
    text.lines().map(|l| if l.starts_with(&begins) { line } else { l }).collect::<Vec<_>>().join("\n")
}

#[test]
fn value_that_is_wrong_in_a_file_is_named_with_its_key() {
    for (key, line, expected) in [
        ("turn_us", "turn_us = { value = \"8ms\", source = \"assumed\" }", "in `turn_us.value`"),
        ("turn_us", "turn_us = { value = 8.0 }", "missing field `source`\nin `turn_us`"),
        ("turn_us", "turn_us = { source = \"assumed\" }", "missing field `value`\nin `turn_us`"),
        ("turn_us", "turn_us = { value = 8.0, source = \"hearsay\" }", "in `turn_us.source`"),
        ("turn_us", "turn_us = 8.0", "in `turn_us`"),
        (
            "turn_us",
            "turn_us = 8.0",
            "expected a value with its source, as in { value = 1, source = \"assumed\" }",
        ),
        ("turn_us", "turn_us = { value = \"8ms\", source = \"assumed\" }", "expected a number\n"),
        (
            "cache_bytes",
            "cache_bytes = { value = 1.5, source = \"assumed\" }",
            "expected a whole number, 0 or more\n",
        ),
        ("name", "name = 7", "expected text"),
        ("turn_us", "", "missing field `turn_us`"),
        (
            "dwell",
            "visit_bytes = { value = 1_048_576, source = \"assumed\" }",
            "visit_bytes was replaced by dwell",
        ),
        ("dwell", "dwell = { value = 1.5, source = \"assumed\", range = [1.0] }", "in `dwell.range`"),
        (
            "dwell",
            "dwell = { value = 1.5, source = \"fitted\", range = [1.75, 1.0] }",
            "the value of dwell is outside of its range",
        ),
        (
            "dwell",
            "dwell = { value = 1.5, source = \"fitted\", range = [0.5, 1.0] }",
            "the value of dwell is outside of its range",
        ),
        ("turn_us", "turn_ms = 8", "unknown field `turn_ms`"),
        ("turn_us", "turn_us = { value = nan, source = \"assumed\" }", "turn_us has to be"),
        ("turn_us", "turn_us = { value = inf, source = \"assumed\" }", "turn_us has to be"),
        ("policy", "policy = { value = \"best\", source = \"assumed\" }", "in `policy.value`"),
        ("model", "model = \"tape\"", "model = \"tape\": use \"smr-disk\" or \"flash\""),
        ("model", "", "missing field `model`"),
        (
            "personality",
            "personality = { value = \"scsi\", source = \"assumed\" }",
            "personality has to be zns",
        ),
        (
            "command_max",
            "command_max = { value = 0, source = \"assumed\" }",
            "command_max has to be at least a block",
        ),
        ("command_max", "command_max = { value = -4, source = \"assumed\" }", "drive.command_max.value"),
        ("zone_max_active", "zone_max_active = { value = 4, source = \"assumed\" }", "max open 128"),
    ] {
        let error =
            Profile::parse("x.toml", &with_line("smr-hdd-30t", key, line), &[]).unwrap_err().to_string();
        assert!(error.starts_with("profile \"x.toml\": ") && error.contains(expected), "{line}: {error}");
        for word in ["struct", "f64", "u64", "u32", "enum", "Sourced", "a string", "a boolean"] {
            assert!(!error.contains(word), "{line}: {error}");
        }
    }
}

#[test]
fn every_key_of_a_profile_is_in_the_documentation() {
    let text = include_str!("../../../../docs/SIM.md");
    let mut keys = [
        "name",
        "title",
        "about",
        "calibrated",
        "calibrated_for",
        "calibrated_runs",
        "worst_residual_percent",
    ]
    .join(" ");
    for name in Profile::names() {
        let profile: Table = Profile::text(name).unwrap().parse().unwrap();
        let sections =
            ["drive", "timing", "host"].map(|section| profile[section].as_table().unwrap().clone());
        let formats = profile.get("format").and_then(Value::as_table).into_iter().flat_map(Table::values);
        let formats = formats.filter_map(Value::as_table);
        sections.iter().chain(formats).flat_map(Table::keys).for_each(|key| keys += &format!(" {key}"));
    }
    for key in keys.split_whitespace() {
        assert!(text.contains(&format!("\n| `{key}` | ")), "{key} is not in docs/SIM.md");
    }
    let entry = |line: &str| {
        line.strip_prefix("| `").and_then(|rest| rest.split_once("` | ")).map(|(key, _)| key.to_owned())
    };
    let (_, written) = text.split_once("## Writing a profile").unwrap();
    let (written, _) = written.split_once("\n## ").unwrap();
    for key in written.lines().filter_map(entry) {
        assert!(keys.split_whitespace().any(|known| known == key), "no profile has {key}");
    }
}

#[test]
fn rate_that_a_clock_cannot_count_is_refused() {
    for rate in ["1e-300", "0.0009", "-1", "1e300"] {
        let error = error("zns-1t", &[("drive_mb_s", rate)]);
        assert!(error.contains("drive_mb_s has to be 0 (infinite), or from 0.001"), "{error}");
    }
    assert!(Profile::open("zns-1t", &[("drive_mb_s", "0"), ("zone_mb_s", "0.001")]).is_ok());
}

#[test]
fn format_replaces_values_and_is_not_calibrated() {
    let open = |changes: &[(&str, &str)]| Profile::open("zns-1t", changes).unwrap();
    let short = |profile: &Profile| match &profile.timing {
        TimingValues::Flash(values) => values.options().short.unit,
        TimingValues::SmrDisk(_) => panic!("it is flash"),
    };
    for key in ["format", "blocksize"] {
        let profile = open(&[("short_us", "20"), (key, "512")]);
        assert_eq!((profile.drive.blocksize.value, short(&profile)), (512, 16), "{key}");
        assert_eq!(profile.standing(), Standing::Uncalibrated, "{key}");
    }
    let own = open(&[("format", "4k")]);
    assert_eq!((own.drive.blocksize.value, short(&own)), (4096, 0));
    assert!(matches!(own.standing(), Standing::Calibrated { .. }));
    assert_eq!(open(&[("blocksize", "1024")]).standing(), Standing::Moved(vec!["blocksize".into()]));
    let unknown = error("zns-1t", &[("format", "1k")]);
    assert!(unknown.ends_with("format=1k: no such format; choose from 4096, 512"), "{unknown}");
    assert!(error("ufs-zoned", &[("format", "512")]).ends_with("choose from 4096"));
}

#[test]
fn format_that_is_wrong_is_an_error() {
    let text = |format: &str| {
        let text = Profile::text("zns-1t").unwrap();
        text[..text.find("[format.512]").unwrap()].to_owned() + format
    };
    let error =
        |format: &str, name| Profile::parse("x", &text(format), &[("format", name)]).unwrap_err().to_string();
    let value = "{ value = 1.0, source = \"assumed\" }";
    for (format, name, expected) in [
        ("[format]\n512 = 7", "512", "format: expected tables such as [format.512]"),
        ("[format.small]\n", "small", "format: expected tables such as [format.512]"),
        (&format!("[format.512]\nshort_ns = {value}"), "512", "unknown field `short_ns`"),
        (&format!("[format.512]\ndies = {value}"), "512", "in `dies.value`"),
        ("[format.513]\n", "513", "is not a multiple of the block of 513"),
    ] {
        let error = error(format, name);
        assert!(error.contains(expected), "{format}: {error}");
    }
}

#[test]
fn zone_capacity_of_a_profile_goes_with_its_zone_size() {
    let capacity = |changes: &[(&str, &str)]| {
        let geometry = Profile::open("zns-1t", changes).unwrap().emulated_options().geometry().unwrap();
        geometry.zone_capacity().bytes()
    };
    assert_eq!(capacity(&[]), 1077 << 20);
    assert_eq!(capacity(&[("size", "64G")]), 1077 << 20);
    assert_eq!(capacity(&[("zone_size", "4M")]), 4 << 20);
    assert_eq!(capacity(&[("zone_capacity", "3M"), ("zone_size", "4M")]), 3 << 20);
    let moved = Profile::open("smr-hdd-30t", &[("zone_size", "64M")]).unwrap().standing();
    assert_eq!(moved, Standing::Moved(vec!["zone_size".into()]), "a disk has no capacity to lose");
}

#[test]
fn profile_states_its_calibration_standing() {
    let standing = |name: &str, changes: &[(&str, &str)]| Profile::open(name, changes).unwrap().standing();
    let Standing::Calibrated { to: Some(to), worst: None } = standing("smr-hdd-30t", &[("io_us", "2")])
    else {
        panic!("the host is no part of the drive")
    };
    // Block sizes, depths and modes.
    assert!(["1 MiB", "depth 32", "per-zone and qd1"].iter().all(|word| to.contains(word)), "{to}");
    for name in Profile::names() {
        let profile = Profile::open(name, &[]).unwrap();
        assert_eq!(
            profile.calibrated_for.is_some(),
            profile.calibrated,
            "{name} says for what it is calibrated"
        );
        assert_eq!(!profile.calibrated_runs.is_empty(), profile.calibrated, "{name} lists its runs");
    }
    assert_eq!(standing("ufs-zoned", &[]), Standing::Uncalibrated);
    let moved = standing("smr-hdd-30t", &[("size", "1T"), ("policy", "fifo")]);
    assert_eq!(moved, Standing::Moved(vec!["policy".into(), "size".into()]));
    assert_eq!(
        moved.to_string(),
        "calibrated on another drive, with another policy, size: each figure is one of a range"
    );
}

#[test]
fn profile_states_its_residual_and_is_uncalibrated_if_unexplained() {
    let with = |line: &str| {
        let text = Profile::text("zns-1t").unwrap().replace("calibrated = true", line);
        let text =
            text.lines().filter(|line| !line.starts_with("calibrated_for")).collect::<Vec<_>>().join("\n");
        Profile::parse("x", &text, &[]).unwrap()
    };
    let close = with("calibrated = true\nworst_residual_percent = 3.2");
    assert_eq!(close.standing().to_string(), "calibrated, worst residual 3.2%");
    let far = with("worst_residual_percent = 17.25");
    assert_eq!(far.standing(), Standing::Unexplained(17.25));
    assert!(far.standing().to_string().contains("which is not explained: each figure is one of a range"));
    let written = far.to_toml([]);
    assert_eq!(Profile::parse("x", &written, &[]).unwrap().to_toml([]), written);
}

#[test]
fn workload_is_compared_with_the_calibrated_runs_that_are_nearest() {
    let runs = "calibrated_runs = [
        { rw = [\"write\"], modes = [\"per-zone\"], block_bytes = [4096, 65536], depth = [1, 16] },
        { rw = [\"randread\"], block_bytes = [4096, 4096], depth = [1, 32] },
    ]\n";
    let text = Profile::text("ufs-zoned").unwrap();
    let profile = Profile::parse("x", &format!("{runs}{text}"), &[]).unwrap();
    let outside = |rw, mode, block_bytes, depth| profile.outside(&Workload { rw, mode, block_bytes, depth });
    assert_eq!(outside("write", WriteMode::PerZone, [8192, 65536], 16), []);
    assert_eq!(outside("randread", WriteMode::Append, [4096; 2], 32), [], "reads have no mode");
    assert_eq!(outside("write", WriteMode::Qd1, [512, 4096], 16), [Aspect::Mode, Aspect::BlockSize]);
    assert_eq!(outside("randread", WriteMode::Qd1, [4096; 2], 33), [Aspect::Depth]);
    assert_eq!(outside("read", WriteMode::PerZone, [4096; 2], 1), [Aspect::Rw]);
    // What is written is read back.
    let written = profile.to_toml([]);
    assert_eq!(Profile::parse("x", &written, &[]).unwrap().calibrated_runs, profile.calibrated_runs);
    // A profile without such a list leaves the question open.
    let silent = Profile::open("ufs-zoned", &[]).unwrap();
    assert_eq!(
        silent.outside(&Workload { rw: "rw", mode: WriteMode::Direct, block_bytes: [1; 2], depth: 0 }),
        []
    );
    let error = |from: &str, to: &str| {
        Profile::parse("x", &format!("{runs}{text}").replacen(from, to, 1), &[]).unwrap_err().to_string()
    };
    assert!(error("per-zone", "perzone").contains("modes has to be a list of write modes"));
    assert!(error("\"write\"", "\"trim\"").contains("rw has to be a list of read, write,"));
}

#[test]
fn every_value_has_its_source() {
    let text = PROFILES[0].1.replace(", source = \"published\"", "");
    let error = Profile::parse("x", &text, &[]).unwrap_err().to_string();
    assert!(error.contains("missing field `source`"), "{error}");
}

#[test]
fn quantities_are_numbers_that_can_be_more_or_less() {
    let quantities = Profile::quantities("smr-hdd-30t", &[("turn_us", "5000")]).unwrap();
    let of = |key: &str| quantities.iter().find(|q| q.key == key);
    let turn = of("turn_us").unwrap();
    assert_eq!((turn.value, turn.is_whole, turn.source), (5000.0, false, Source::Given));
    assert!(of("queue_depth").is_some_and(|q| q.value == 32.0 && q.is_whole));
    assert!(of("io_us").is_some(), "the host's");
    assert_eq!((of("dwell").unwrap().range, turn.range), (Some([1.0, 1.75]), None));
    let given = Profile::quantities("smr-hdd-30t", &[("dwell", "1.6")]).unwrap();
    assert!(given.iter().any(|q| q.key == "dwell" && q.range.is_none()), "a given value was not fitted");
    for key in ["layout_seed", "policy", "write_cache", "model", "size"] {
        assert!(of(key).is_none(), "{key}");
    }
}
