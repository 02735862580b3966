//! Checks the file of recorded exceptions: each names one clause, its requirement and the actual
//! behaviour, and none names a clause that the code cites as obeyed.

use std::fs;
use std::path::Path;

/// Format such as `Base 5.1.10`.
fn is_clause(text: &str) -> bool {
    let Some((standard, number)) = text.split_once(' ') else { return false };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    ["Base", "TCP", "NVM", "ZNS"].contains(&standard) && number.split('.').all(is_number)
}

/// Sort key of a clause: standard and numbers.
fn order(clause: &str) -> (&str, Vec<u32>) {
    let (standard, number) = clause.split_once(' ').unwrap();
    (standard, number.split('.').map(|part| part.parse().unwrap()).collect())
}

/// True if `text` cites exactly this clause, not one below it.
fn cites(text: &str, clause: &str) -> bool {
    text.match_indices(clause).any(|(at, _)| {
        let mut after = text[at + clause.len()..].chars();
        match (after.next(), after.next()) {
            (Some('.'), Some(next)) => !next.is_ascii_digit(),
            (Some(next), _) => !next.is_ascii_digit(),
            (None, _) => true,
        }
    })
}

fn sources(dir: &Path, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, all),
            false => all.push((path.display().to_string(), fs::read_to_string(&path).unwrap())),
        }
    }
}

#[test]
fn exceptions_name_clauses_that_no_source_cites() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    sources(&root.join("src"), &mut all);
    assert!(all.iter().any(|(_, text)| cites(text, "Base 6.3")), "sources cite clauses");
    let text = fs::read_to_string(root.join("exceptions.txt")).unwrap();
    let mut last = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [clause, asked, instead] = parts[..] else { panic!("three parts: {line}") };
        assert!(is_clause(clause), "{line}");
        assert!(asked.len() >= 4 && instead.len() >= 20, "{line}");
        for (path, text) in &all {
            assert!(!cites(text, clause), "{path} obeys {clause}");
        }
        let order = order(clause);
        assert!(last.as_ref().is_none_or(|last| *last < order), "{clause} is out of order, or there twice");
        last = Some(order);
    }
}

#[test]
fn citation_of_a_part_cites_no_whole() {
    assert!(cites("as (Base 6.1) says", "Base 6.1"));
    assert!(cites("see Base 6.1.", "Base 6.1"));
    assert!(cites("see Base 6.1", "Base 6.1"));
    assert!(!cites("Base 6.12, and Base 6.1.3", "Base 6.1"));
    assert!(is_clause("ZNS 3.4") && !is_clause("Base 3.") && !is_clause("PCIe 3") && !is_clause("Base"));
}
