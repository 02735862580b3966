//! Replays the corpus of job files: nothing panics, valid files print as equal jobs, and invalid
//! ones give an error.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::select;
use zonal_bench::job::{JobFile, fuzz_job, supported};

fn corpus(kind: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/job").join(kind);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    assert!(files.len() > 3, "the corpus is not where it was");
    files
}

#[test]
fn every_file_survives_the_fuzz_target() {
    for kind in ["accept", "refuse", "raw"] {
        for (_, bytes) in corpus(kind) {
            fuzz_job(&bytes);
        }
    }
}

#[test]
fn file_with_very_many_sections_survives_the_fuzz_target() {
    fuzz_job("[a]\n".repeat(1500).as_bytes());
}

#[test]
fn cut_and_flipped_files_survive_the_fuzz_target() {
    for (_, bytes) in corpus("accept").into_iter().chain(corpus("refuse")) {
        for cut in 0..bytes.len() {
            fuzz_job(&bytes[..cut]);
            let mut flipped = bytes.clone();
            flipped[cut] ^= 1 << (cut % 8);
            fuzz_job(&flipped);
        }
    }
}

#[test]
fn accepted_files_print_to_equal_jobs() {
    for (path, bytes) in corpus("accept") {
        let text = std::str::from_utf8(&bytes).unwrap();
        let file = JobFile::parse(text, "t").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let printed = file.to_canonical();
        let again = JobFile::parse(&printed, "printed").unwrap();
        assert!(file.specs().eq(again.specs()), "{}:\n{printed}", path.display());
        assert_eq!(again.to_canonical(), printed, "{}", path.display());
    }
}

#[test]
fn refused_job_files_give_the_expected_error() {
    for (path, bytes) in corpus("refuse") {
        let text = std::str::from_utf8(&bytes).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("; error: ")).unwrap();
        let error = JobFile::parse(text, "t").expect_err(&path.display().to_string()).to_string();
        assert!(error.contains(expected), "{}: {error}", path.display());
    }
}

/// A setting that is usually valid. An invalid one ends the file early and would hide the others.
fn good_line() -> impl Strategy<Value = String> {
    let every_option =
        include_str!("../corpus/job/accept/every-option.fio").lines().skip(1).map(str::to_owned);
    let words = "rw=read rw=write rw=randread rw=randwrite rw=rw rw=randrw rwmixread=0 rwmixread=100 bs=,8k bs=4k, bs=3,5 \
        bs=1m bsrange=4k-8k bsrange=,8k-3 bssplit=4k/50:8k bssplit=,1k/0:2k/99:3k bssplit=512,4k size=0 size=1 size=7% offset=0 offset=1g offset=50% io_size=33% io_size=3g offset_increment=1m runtime=0 \
        runtime=1us runtime=90061s time_based=0 loops=4294967295 verify=0 verify=crc32c verify_fatal=0 do_verify=1 \
        randrepeat=1 norandommap=0 zonemode=zbd zonesize=0 zonesize=12345 max_open_zones=0 job_max_open_zones=4096 ignore_zone_limits=0 zone_reset_threshold=1 \
        zone_reset_frequency=0.333333333 stonewall=0 stonewall gtod_reduce=0 percentile_list=50 filename=ram:size=8G \
        filename=a\\:b filename=./x description=x name=global name=n direct=1 thread flow=0 rate=0 rate=1m, rate_min=,5 \
        rate_iops=5,0 rate_iops_min=1 rate_process=linear rate_cycle=0 thinktime=1ms thinktime_blocks=0 \
        thinktime_iotime=3 ramp_time=0 ramp_time=4 [global] [a] [a]b] ; #";
    let words = words.split_whitespace().map(str::to_owned);
    select(every_option.chain(words).collect::<Vec<_>>())
}

/// An option with an unsuitable or arbitrary value.
fn odd_line() -> impl Strategy<Value = String> {
    let names: Vec<&str> =
        supported().iter().map(|option| option.name).chain(["flow", "include", "nonsense"]).collect();
    let values = vec![
        "",
        "1z",
        "50%",
        "4k,8k",
        "0.5",
        "1:99",
        "4k-8k",
        "4k/1:8k/99",
        "1,,2",
        "a\\:b",
        "$ncpus",
        "${X}",
        "a b",
        " 8k",
        "-1",
        "x",
    ];
    prop_oneof![
        (select(names), select(values)).prop_map(|(name, value)| format!("{name}={value}")),
        "\\[?\\PC{0,12}\\]?",
        "--?[a-z_]{2,8}(=[0-9a-z:\\\\]{0,6})?",
    ]
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![20 => good_line(), 1 => odd_line()]
}

proptest! {
    #[test]
    fn generated_files_survive_the_fuzz_target(lines in prop::collection::vec(line(), 0..16)) {
        fuzz_job(lines.join("\n").as_bytes());
        fuzz_job(format!("[global]\nzonemode=zbd\nruntime=3\n[job]\n{}", lines.join("\n")).as_bytes());
        let arguments: Vec<String> = lines.iter().map(|line| format!("--{line}")).collect();
        fuzz_job(format!("--name=job\n{}", arguments.join("\n")).as_bytes());
    }
}
