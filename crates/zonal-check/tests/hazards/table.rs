//! Compares the table of hazards with the existing tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Number of our own entries in the table.
const OWN: usize = 54;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two levels below the repository").into()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// A function in the crates.
struct Function {
    name: String,
    /// True if it has the attribute of a test.
    is_test: bool,
}

/// All functions in the crates.
fn functions() -> Vec<Function> {
    let mut files = Vec::new();
    sources(&repository().join("crates"), &mut files);
    let mut functions = Vec::new();
    for file in files {
        let mut is_test = false;
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let line = line.trim_start().trim_start_matches("pub ");
            if let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once(['(', '<'])) {
                functions.push(Function { name: name.to_owned(), is_test: std::mem::take(&mut is_test) });
            }
            is_test |= line == "#[test]";
        }
    }
    functions
}

/// A letter and two digits, such as H01.
fn number(name: &str) -> Option<String> {
    let (number, rest) = name.split_at_checked(3)?;
    let (letter, digits) = number.split_at(1);
    let is_number = ["h", "u", "H", "U"].contains(&letter) && digits.bytes().all(|b| b.is_ascii_digit());
    let ends = rest.is_empty() || rest.starts_with('_');
    (is_number && ends).then(|| number.to_uppercase())
}

/// Numbers of a row: one, or a range such as "H42 .. H46".
fn numbers(cell: &str) -> Vec<String> {
    let digits = |n: &str| n.get(1..).and_then(|d| d.parse::<u32>().ok());
    let (first, last) = cell.split_once(" .. ").unwrap_or((cell, cell));
    match (number(first), digits(first), digits(last)) {
        (Some(_), Some(from), Some(to)) => (from..=to).map(|n| format!("{}{n:02}", &first[..1])).collect(),
        _ => Vec::new(),
    }
}

/// Last cell for each number: tests in backticks, or a reason.
fn rows() -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for line in text("docs/HAZARDS.md").lines().filter(|l| l.starts_with('|')) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        for number in numbers(cells[0]) {
            let before = rows.insert(number.clone(), cells[2].to_owned());
            assert!(before.is_none(), "{number} has two rows");
        }
    }
    rows
}

/// Words in backticks that could be names of tests.
fn tests(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|name| name.contains('_'))
}

#[test]
fn every_hazard_has_a_row() {
    let rows = rows();
    let all = (1..=84).map(|n| format!("H{n:02}")).chain((1..=OWN).map(|n| format!("U{n:02}")));
    for number in all {
        let cell = rows.get(&number).unwrap_or_else(|| panic!("{number} has no row"));
        assert!(!cell.is_empty(), "{number}: a test or a reason");
    }
    assert_eq!(rows.len(), 84 + OWN);
}

#[test]
fn every_test_of_the_table_exists() {
    let functions = functions();
    for (number, cell) in rows() {
        for test in tests(&cell) {
            assert!(functions.iter().any(|f| f.name == test), "{number}: there is no {test}");
        }
    }
}

#[test]
fn every_numbered_test_is_in_the_table() {
    let rows = rows();
    // Other functions may have such names: u16_at.
    for Function { name: function, .. } in functions().into_iter().filter(|function| function.is_test) {
        let Some(number) = number(&function).filter(|n| n.starts_with('H') || rows.contains_key(n)) else {
            continue;
        };
        let cell = rows.get(&number).unwrap_or_else(|| panic!("{function} has no row"));
        assert!(tests(cell).any(|t| t == function), "{function} is not in the row of {number}");
    }
}

#[test]
fn every_test_that_the_reference_features_name_exists() {
    let functions = functions();
    let text = text("docs/FEATURES.md");
    let is_test = |w: &&str| {
        w.len() > 25 && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let named: Vec<_> = text.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(named.len() >= 15, "docs/FEATURES.md names {} tests", named.len());
    let missing: Vec<_> = named.iter().filter(|n| !functions.iter().any(|f| f.name == **n)).collect();
    assert!(missing.is_empty(), "docs/FEATURES.md names tests that are not there: {missing:?}");
}
