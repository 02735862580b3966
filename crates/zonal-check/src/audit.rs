//! What the workspace depends on, against a committed list of licences and of advisories: without a network, on any machine.
//!
//! The list is `crates/zonal-check/audit.toml`. Its advisories are those of <https://github.com/rustsec/advisory-db> for packages of
//! `Cargo.lock`; the program `advisories` writes them again.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// The committed list.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// SPDX identifiers of licences that a dependency may have.
    pub licences: Vec<String>,
    /// Advisories of packages that the workspace depends on.
    #[serde(default, rename = "advisory")]
    pub advisories: Vec<Advisory>,
}

/// What is wrong with some versions of a package.
#[derive(Deserialize, Serialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Advisory {
    /// Its identifier, such as `RUSTSEC-2025-0047`.
    pub id: String,
    /// The package.
    pub package: String,
    /// What is wrong.
    pub title: String,
    /// Requirements of which each is met by versions that are mended.
    pub patched: Vec<String>,
    /// Requirements of which each is met by versions that never had the fault.
    #[serde(default)]
    pub unaffected: Vec<String>,
}

impl Advisory {
    /// Whether a version has the fault.
    ///
    /// # Errors
    /// The version or the requirement that cannot be read.
    pub fn affects(&self, version: &str) -> Result<bool, String> {
        let version = Version::read(version)?;
        for requirement in self.patched.iter().chain(&self.unaffected) {
            if version.meets(requirement)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Three numbers. What follows a dash or a plus is left out: a version that is being prepared counts as the version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version([u64; 3]);

impl Version {
    fn read(text: &str) -> Result<Version, String> {
        let numbers = text.split(['-', '+']).next().unwrap_or_default();
        let mut version = [0; 3];
        for (n, number) in numbers.split('.').enumerate() {
            let place = version.get_mut(n).ok_or_else(|| format!("no version: {text}"))?;
            *place = number.parse().map_err(|_| format!("no version: {text}"))?;
        }
        Ok(Version(version))
    }

    /// Whether it meets each part of a requirement, such as `>= 1.2.0, < 2.0.0` or `^0.4.11`.
    fn meets(self, requirement: &str) -> Result<bool, String> {
        for part in requirement.split(',').map(str::trim) {
            let at = part.find(|c: char| c.is_ascii_digit()).unwrap_or(part.len());
            let (sign, bound) = (part[..at].trim(), Version::read(&part[at..])?);
            let order = self.cmp(&bound);
            let is_met = match sign {
                ">=" => order != Ordering::Less,
                ">" => order == Ordering::Greater,
                "<=" => order != Ordering::Greater,
                "<" => order == Ordering::Less,
                "=" => order == Ordering::Equal,
                "^" | "" => order != Ordering::Less && self < bound.next_breaking(),
                _ => return Err(format!("no requirement: {part}")),
            };
            if !is_met {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first version that need not be compatible with it.
    fn next_breaking(self) -> Version {
        match self.0 {
            [0, 0, patch] => Version([0, 0, patch + 1]),
            [0, minor, _] => Version([0, minor + 1, 0]),
            [major, ..] => Version([major + 1, 0, 0]),
        }
    }
}

/// Whether a package with this expression may be used under `allowed` licences alone: one side of an `OR` or of a slash, both of an
/// `AND`. A licence `WITH` an exception counts as the licence, which asks for more.
///
/// # Errors
/// An expression that is not one.
pub fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    match either(&mut rest, allowed) {
        Some(is_allowed) if rest.is_empty() => Ok(is_allowed),
        _ => Err(format!("no licence: {expression}")),
    }
}

fn either(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut is_allowed = both(words, allowed)?;
    while take(words, "OR") {
        is_allowed |= both(words, allowed)?;
    }
    Some(is_allowed)
}

fn both(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut is_allowed = one(words, allowed)?;
    while take(words, "AND") {
        is_allowed &= one(words, allowed)?;
    }
    Some(is_allowed)
}

fn one(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    if take(words, "(") {
        let inner = either(words, allowed)?;
        return take(words, ")").then_some(inner);
    }
    let (name, rest) = words.split_first()?;
    *words = rest;
    if take(words, "WITH") {
        *words = words.split_first()?.1;
    }
    Some(allowed.iter().any(|licence| licence == name))
}

/// Takes the next word if it is this one.
fn take(words: &mut &[&str], word: &str) -> bool {
    let is_next = words.first() == Some(&word);
    if is_next {
        *words = &words[1..];
    }
    is_next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_affected_unless_a_requirement_is_met() {
        let advisory = |patched: &[&str], unaffected: &[&str]| Advisory {
            id: "A".into(),
            package: "p".into(),
            title: "t".into(),
            patched: patched.iter().map(|&r| r.into()).collect(),
            unaffected: unaffected.iter().map(|&r| r.into()).collect(),
        };
        let slab = advisory(&[">= 0.4.11"], &["< 0.4.10"]);
        for (version, affected) in [("0.4.9", false), ("0.4.10", true), ("0.4.11", false), ("0.4.10+x", true)]
        {
            assert_eq!(slab.affects(version), Ok(affected), "{version}");
        }
        let backported = advisory(&["^0.7.9", ">= 0.8.2, < 0.9"], &[]);
        for (version, affected) in
            [("0.7.8", true), ("0.7.10", false), ("0.8.1", true), ("0.8.3", false), ("0.9.0", true)]
        {
            assert_eq!(backported.affects(version), Ok(affected), "{version}");
        }
        assert_eq!(advisory(&[], &[]).affects("1.0.0"), Ok(true));
        assert!(advisory(&["~> 1"], &[]).affects("1.0.0").is_err());
        assert!(slab.affects("1.x").is_err());
    }

    #[test]
    fn licence_is_allowed_where_one_choice_of_it_is() {
        let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned()];
        for (expression, is) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("Apache-2.0/MIT", true),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT AND GPL-2.0-only", false),
            ("GPL-2.0-only AND MIT OR MIT", true),
        ] {
            assert_eq!(is_allowed(expression, &allowed), Ok(is), "{expression}");
        }
        for expression in ["", "MIT OR", "(MIT", "MIT Apache-2.0"] {
            assert!(is_allowed(expression, &allowed).is_err(), "{expression}");
        }
    }
}
