//! `advisories DIRECTORY`: writes the advisories of `crates/zonal-check/audit.toml` again, out of a checkout of
//! <https://github.com/rustsec/advisory-db>.

use semver::VersionReq;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use toml::{Table, Value};
use zonal_check::audit::{Advisory, Audit};
use zonal_check::program::repository;

fn main() {
    let directory = std::env::args().nth(1).expect("a checkout of rustsec/advisory-db is named");
    let lock: Table = read(&repository().join("Cargo.lock")).parse().expect("Cargo.lock is a table");
    let packages = lock["package"].as_array().expect("Cargo.lock has packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut advisories = Vec::new();
    for name in names {
        let of_package = Path::new(&directory).join("crates").join(name);
        // Most packages have none.
        for entry in fs::read_dir(of_package).into_iter().flatten() {
            let path = entry.expect("the directory can be listed").path();
            let advisory =
                advisory(&read(&path)).unwrap_or_else(|what| panic!("{}: no {what}", path.display()));
            advisories.extend(advisory);
        }
    }
    advisories.sort_by(|a, b| a.id.cmp(&b.id));
    let path = repository().join("crates/zonal-check/audit.toml");
    let kept = read(&path);
    let head = kept.split("[[advisory]]").next().unwrap_or_default();
    let mut text = head.trim_end().to_owned();
    for advisory in advisories {
        text += &format!(
            "\n\n[[advisory]]\n{}",
            toml::to_string(&advisory).expect("an advisory is a table").trim_end()
        );
    }
    text.push('\n');
    toml::from_str::<Audit>(&text).expect("what is written can be read");
    fs::write(&path, text).expect("the list can be written");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The advisory of a file: a table between fences, and a text with a title. None for an advisory that was taken back, and for a mere notice.
///
/// # Errors
/// The part that is not there.
fn advisory(text: &str) -> Result<Option<Advisory>, &'static str> {
    let (_, rest) = text.split_once("```toml").ok_or("table")?;
    let (table, text) = rest.split_once("```").ok_or("end of the table")?;
    let table: Table = table.parse().map_err(|_| "table that can be read")?;
    let about = &table["advisory"];
    if about.get("withdrawn").is_some()
        || about.get("informational").and_then(Value::as_str) == Some("notice")
    {
        return Ok(None);
    }
    let word = |name| about.get(name).and_then(Value::as_str).map(str::to_owned);
    let versions = |name| -> Result<Vec<VersionReq>, &'static str> {
        let versions =
            table.get("versions").and_then(|versions| versions.get(name)).and_then(Value::as_array);
        let words = versions.into_iter().flatten().filter_map(Value::as_str);
        words.map(|one| one.parse().map_err(|_| "requirement that can be read")).collect()
    };
    let title = text.lines().find_map(|line| line.strip_prefix("# ")).ok_or("title")?;
    Ok(Some(Advisory {
        id: word("id").ok_or("identifier")?,
        package: word("package").ok_or("package")?,
        title: title.trim().to_owned(),
        patched: versions("patched")?,
        unaffected: versions("unaffected")?,
    }))
}
