//! Replays interesting inputs of the past. Findings of fuzzers are added here.

use std::path::Path;
use zonal_fs::format::{fuzz_header, fuzz_row, fuzz_superblock};

/// Passes each file of a corpus. The file's name says whether it has to be accepted.
fn replay(kind: &str, accepts: impl Fn(&[u8]) -> bool) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(kind);
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 1, "{kind}");
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(accepts(&std::fs::read(&file).unwrap()), name.starts_with("accept-"), "{kind}: {name}");
    }
}

#[test]
fn superblocks_are_accepted_and_refused_as_their_names_say() {
    replay("superblock", |bytes| fuzz_superblock(bytes).is_ok());
}

#[test]
fn headers_of_units_are_accepted_and_refused_as_their_names_say() {
    replay("unit", |bytes| fuzz_header(bytes).is_ok());
}

#[test]
fn rows_are_accepted_and_refused_as_their_names_say() {
    replay("row", |bytes| fuzz_row(bytes).is_ok());
}
