//! What the workspace depends on has a licence of the list and none of the faults of the list.

use serde_json::Value;
use std::fs;
use std::process::Command;
use zonal_check::audit::{Audit, is_allowed};
use zonal_check::program::repository;

fn list() -> Audit {
    let text = fs::read_to_string(repository().join("crates/zonal-check/audit.toml")).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("audit.toml: {error}"))
}

/// Name, version and licence of what is built on this platform, of all features: what cargo has fetched for the build.
fn dependencies() -> Vec<(String, String, String)> {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--offline",
            "--locked",
            "--all-features",
            "--format-version",
            "1",
            "--filter-platform",
            host,
        ])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_registry = metadata["packages"].as_array().unwrap().iter().filter(|p| p["source"].is_string());
    let word = |package: &Value, name: &str| package[name].as_str().unwrap_or_default().to_owned();
    of_registry.map(|p| (word(p, "name"), word(p, "version"), word(p, "license"))).collect()
}

#[test]
fn dependencies_have_licences_of_the_list() {
    let (list, dependencies) = (list(), dependencies());
    assert!(dependencies.len() > 100, "only {} packages", dependencies.len());
    let refused: Vec<String> = dependencies
        .iter()
        .filter(|(_, _, licence)| !is_allowed(licence, &list.licences).is_ok_and(|is_allowed| is_allowed))
        .map(|(name, version, licence)| format!("{name} {version}: {licence}"))
        .collect();
    assert!(refused.is_empty(), "a licence that audit.toml does not have:\n  {}", refused.join("\n  "));
}

/// Of the packages of all platforms, which Cargo.lock names. A package that no advisory is about is not in the list.
#[test]
fn dependencies_have_no_fault_of_the_list() {
    let list = list();
    assert!(list.advisories.len() > 20, "the advisories are gone");
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let lock: toml::Table = lock.parse().unwrap();
    let mut refused = Vec::new();
    for package in lock["package"].as_array().unwrap() {
        let word = |name: &str| package[name].as_str().unwrap();
        for advisory in list.advisories.iter().filter(|advisory| advisory.package == word("name")) {
            if advisory.affects(&word("version").parse().unwrap()) {
                refused.push(format!(
                    "{} {}: {}, {}",
                    word("name"),
                    word("version"),
                    advisory.id,
                    advisory.title
                ));
            }
        }
    }
    assert!(refused.is_empty(), "a version with a known fault:\n  {}", refused.join("\n  "));
}
