//! Replays the corpus of job files: nothing panics, what parses prints to an equal job, what is wrong says so.

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
fn refused_files_say_what_their_first_line_expects() {
    for (path, bytes) in corpus("refuse") {
        let text = std::str::from_utf8(&bytes).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("; error: ")).unwrap();
        let error = JobFile::parse(text, "t").expect_err(&path.display().to_string()).to_string();
        assert!(error.contains(expected), "{}: {error}", path.display());
    }
}

/// A line of a job file: an option with a value that may or may not suit it, a header, or anything.
fn line() -> impl Strategy<Value = String> {
    let names: Vec<&str> = supported()
        .iter()
        .flat_map(|option| option.aliases.iter().copied().chain([option.name]))
        .chain(["direct", "ioengine", "thread", "rate", "zoneskip", "include", "nonsense"])
        .collect();
    let values = [
        "0",
        "1",
        "4k",
        "1z",
        "50%",
        "4k,8k",
        ",8k",
        "write",
        "randrw",
        "zbd",
        "crc32c",
        "random",
        "2s",
        "0.5",
        "1:99",
        "null:size=1T",
        "a\\:b",
        "$ncpus",
        "${X}",
        "a b",
        " 8k",
        "global",
    ];
    prop_oneof![
        8 => (select(names), select(values.to_vec())).prop_map(|(name, value)| format!("{name}={value}")),
        2 => select(vec!["time_based", "stonewall", "[global]", "[a]", "; c", "rw=write", "zonemode=zbd", "runtime=1"])
            .prop_map(str::to_owned),
        1 => "\\[?\\PC{0,12}\\]?",
        1 => "--?[a-z_]{2,8}(=[0-9a-z:\\\\]{0,6})?",
    ]
}

proptest! {
    #[test]
    fn generated_files_survive_the_fuzz_target(lines in prop::collection::vec(line(), 0..8)) {
        fuzz_job(lines.join("\n").as_bytes());
        fuzz_job(format!("[job]\n{}", lines.join("\n")).as_bytes());
        let arguments: Vec<String> = lines.iter().map(|line| format!("--{line}")).collect();
        fuzz_job(format!("--name=job\n{}", arguments.join("\n")).as_bytes());
    }
}
