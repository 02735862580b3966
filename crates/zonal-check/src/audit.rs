//! What the workspace depends on, against a committed list of licences and of advisories: without a network, on any machine.
//!
//! The list is `crates/zonal-check/audit.toml`. Its advisories are those of <https://github.com/rustsec/advisory-db> for packages of
//! `Cargo.lock`; the program `advisories` writes them again.

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};
use spdx::{Expression, ParseError, ParseMode};

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
    pub patched: Vec<VersionReq>,
    /// Requirements of which each is met by versions that never had the fault.
    #[serde(default)]
    pub unaffected: Vec<VersionReq>,
}

impl Advisory {
    /// Whether a version has the fault.
    pub fn affects(&self, version: &Version) -> bool {
        !self.patched.iter().chain(&self.unaffected).any(|requirement| requirement.matches(version))
    }
}

/// Whether a package with this expression may be used under `allowed` licences alone. A licence `WITH` an exception counts as the
/// licence, which asks for more.
///
/// # Errors
/// An expression that is not one.
pub fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool, ParseError> {
    // Older packages have a slash where SPDX has `OR`.
    let expression = Expression::parse_mode(expression, ParseMode::LAX)?;
    let is_on_the_list = |licence: &str| allowed.iter().any(|allowed| allowed == licence);
    Ok(expression.evaluate(|asked| asked.license.id().is_some_and(|id| is_on_the_list(id.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_affected_unless_a_requirement_is_met() {
        let read = |requirements: &[&str]| requirements.iter().map(|r| r.parse().unwrap()).collect();
        let advisory = |patched: &[&str], unaffected: &[&str]| Advisory {
            id: "A".into(),
            package: "p".into(),
            title: "t".into(),
            patched: read(patched),
            unaffected: read(unaffected),
        };
        let affects = |advisory: &Advisory, version: &str| advisory.affects(&version.parse().unwrap());
        let slab = advisory(&[">= 0.4.11"], &["< 0.4.10"]);
        for (version, affected) in [("0.4.9", false), ("0.4.10", true), ("0.4.11", false), ("0.4.10+x", true)]
        {
            assert_eq!(affects(&slab, version), affected, "{version}");
        }
        let backported = advisory(&["^0.7.9", ">= 0.8.2, < 0.9"], &[]);
        for (version, affected) in
            [("0.7.8", true), ("0.7.10", false), ("0.8.1", true), ("0.8.3", false), ("0.9.0", true)]
        {
            assert_eq!(affects(&backported, version), affected, "{version}");
        }
        assert!(affects(&advisory(&[], &[]), "1.0.0"));
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
            assert_eq!(is_allowed(expression, &allowed).ok(), Some(is), "{expression}");
        }
        for expression in ["", "MIT OR", "(MIT", "MIT Apache-2.0"] {
            assert!(is_allowed(expression, &allowed).is_err(), "{expression}");
        }
    }
}
