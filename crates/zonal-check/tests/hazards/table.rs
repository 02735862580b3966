//! docs/HAZARDS.md and ARCHITECTURE.md name tests; each of them exists.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of all test functions below `dir`.
fn functions(dir: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(dir).expect("a source directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

/// Words in backquotes that look like names of tests.
fn named(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).expect("a document");
    let quoted = text.split('`').skip(1).step_by(2);
    let is_test = |w: &&str| {
        w.len() > 25 && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    quoted.filter(is_test).map(str::to_owned).collect()
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut found = HashSet::new();
    functions(&root().join("crates"), &mut found);
    for (document, least) in [("docs/HAZARDS.md", 60), ("ARCHITECTURE.md", 15)] {
        let names = named(document);
        assert!(names.len() >= least, "{document} names {} tests", names.len());
        let missing: Vec<_> = names.iter().filter(|n| !found.contains(*n)).collect();
        assert!(missing.is_empty(), "{document} names tests that are not there: {missing:?}");
    }
}

#[test]
fn every_hazard_has_a_row() {
    let text = fs::read_to_string(root().join("docs/HAZARDS.md")).expect("a document");
    for n in (1..=41).chain(51..=61) {
        assert!(text.contains(&format!("| H{n:02} |")), "H{n:02} has no row");
    }
    for range in ["H42 .. H46", "H47 .. H50", "H62 .. H69", "H70 .. H84"] {
        assert!(text.contains(range), "{range} has no row");
    }
    assert!(!text.contains("no test yet"), "a hazard that applies has no test");
}
