//! The engine is linked with fio, which is under GPL-2.0 only, so everything linked into it must be
//! compatible.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use zonal_check::program::repository;

/// Licences that may be combined with GPL-2.0. Apache-2.0 is not one of them.
const COMPATIBLE: [&str; 6] = ["MIT", "Zlib", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "Unlicense"];

/// True if an SPDX expression allows choosing a compatible licence.
fn is_compatible(expression: &str) -> bool {
    let flat = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // `AND` binds tighter than `OR`. With the brackets removed, the strict reading is that each
    // part of an `AND` must offer one.
    flat.split(" AND ").all(|part| part.split(" OR ").any(|name| COMPATIBLE.contains(&name.trim())))
}

#[test]
fn licences_are_read_strictly() {
    for good in
        ["MIT", "MIT OR Apache-2.0", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Zlib", "Apache-2.0 / MIT"]
    {
        assert!(is_compatible(good), "{good}");
    }
    for bad in ["Apache-2.0", "Apache-2.0 WITH LLVM-exception", "MIT AND Apache-2.0", "", "GPL-3.0-only"] {
        assert!(!is_compatible(bad), "{bad}");
    }
}

/// Platform of this build: packages of other platforms are not linked.
fn host() -> String {
    let output = Command::new(env!("CARGO")).arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|l| l.strip_prefix("host: ")).unwrap().to_owned()
}

#[test]
fn engine_links_nothing_that_is_apache_only() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &host()])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages: BTreeMap<&str, &Value> =
        metadata["packages"].as_array().unwrap().iter().map(|p| (p["id"].as_str().unwrap(), p)).collect();
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| (n["id"].as_str().unwrap(), n))
        .collect();
    let root = packages.iter().find(|(_, p)| p["name"] == "zonal-fio").map(|(id, _)| *id).unwrap();
    let (mut seen, mut next) = (BTreeSet::new(), vec![root]);
    while let Some(id) = next.pop() {
        if !seen.insert(id) {
            continue;
        }
        let is_macro = |t: &Value| t["kind"][0] == "proc-macro";
        if packages[id]["targets"].as_array().unwrap().iter().any(is_macro) {
            seen.remove(id);
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            // Tests and build-time code, including macros, are not linked.
            let is_linked = dependency["dep_kinds"].as_array().unwrap().iter().any(|k| k["kind"].is_null());
            if is_linked {
                next.push(dependency["pkg"].as_str().unwrap());
            }
        }
    }
    let broken: Vec<String> = seen
        .iter()
        .map(|id| packages[id])
        .filter(|p| !is_compatible(p["license"].as_str().unwrap_or_default()))
        .map(|p| format!("{}: {}", p["name"], p["license"]))
        .collect();
    assert!(seen.len() > 20, "the walk lost its way");
    assert!(broken.is_empty(), "{broken:?}");
}

#[test]
fn only_the_shim_is_licensed_under_the_gpl() {
    let first = |path: &str| {
        let text = std::fs::read_to_string(repository().join(path)).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert!(first("fio/engine.c").contains("GPL-2.0-only"));
    assert!(first("fio/zonal_fio.h").contains("MIT OR Apache-2.0"));
    assert!(first("fio/LICENSE").contains("GNU GENERAL PUBLIC LICENSE"));
}
