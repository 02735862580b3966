//! Interesting headers, replayed through the parser. Findings of fuzzers are added here.

use std::path::Path;
use zonal_io::image::format::fuzz_header;

fn replay(kind: &str, mut judge: impl FnMut(&str, &[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/image").join(kind);
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        judge(file.file_name().unwrap().to_str().unwrap(), &std::fs::read(&file).unwrap());
    }
}

#[test]
fn accepted_headers_are_accepted() {
    replay("accept", |name, bytes| {
        fuzz_header(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    });
}

#[test]
fn refused_headers_are_refused() {
    replay("refuse", |name, bytes| assert!(fuzz_header(bytes).is_err(), "{name} was accepted"));
}
