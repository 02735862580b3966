//! What an experiment consists of, as `experiment.toml` says it.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of its folder.
    #[serde(skip)]
    pub name: String,
    /// The folder.
    #[serde(skip)]
    pub folder: PathBuf,
    /// One line.
    pub title: String,
    /// Where the published numbers are from: series or commit, author, date, machine.
    pub source: String,
    /// What the numbers of this machine can show of it, and what not.
    pub about: String,
    /// Job files in the folder, in the order in which `zonal bench` reads them.
    pub jobs: Vec<String>,
    /// Ways to do it; the others are compared with the first.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    /// What is measured, in each of these ways.
    #[serde(rename = "row")]
    rows: Vec<RowSpec>,
}

/// A way to do it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Name in the table.
    pub name: String,
    /// Name of the device.
    pub device: String,
    /// Write mode.
    pub mode: String,
    /// More arguments of `zonal bench`.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// What is measured, as it is written: `vary` makes one row of each of its values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowSpec {
    name: String,
    section: String,
    unit: Unit,
    #[serde(default)]
    device: String,
    vary: Option<Vary>,
    #[serde(default)]
    published: BTreeMap<String, f64>,
}

/// An option of the job that takes several values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vary {
    option: String,
    values: Vec<u64>,
}

/// What is measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Name in the table.
    pub name: String,
    /// Section of the job files.
    pub section: String,
    /// Unit of the figures.
    pub unit: Unit,
    /// Options that every variant's device gets in addition.
    pub device: String,
    /// Options that the job gets in addition, `OPTION=VALUE`.
    pub set: Vec<String>,
    /// Published figures by variant.
    pub published: BTreeMap<String, f64>,
}

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Unit {
    /// Megabytes (10^6) a second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Thousand requests a second.
    #[serde(rename = "KIOPS")]
    Kiops,
}

impl Unit {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::MegabytesPerSecond => "MB/s",
            Unit::Kiops => "KIOPS",
        }
    }
}

/// Why a folder is no experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The description has no such form.
    #[error("{path}: {error}")]
    Form {
        /// The description.
        path: PathBuf,
        /// What is wrong with it, and where.
        error: Box<toml::de::Error>,
    },
    /// A figure was published for a variant that is not there.
    #[error("{path}: row {row} has a published figure of {variant}, which is no variant")]
    NoVariant {
        /// The description.
        path: PathBuf,
        /// The row.
        row: String,
        /// What it names.
        variant: String,
    },
}

impl Experiment {
    /// Reads the experiment in `folder`.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn read(folder: &Path) -> Result<Experiment, SpecError> {
        let path = folder.join("experiment.toml");
        let text =
            fs::read_to_string(&path).map_err(|error| SpecError::Read { path: path.clone(), error })?;
        let mut experiment = Experiment::parse(&text, &path)?;
        experiment.name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        experiment.folder = folder.to_owned();
        Ok(experiment)
    }

    fn parse(text: &str, path: &Path) -> Result<Experiment, SpecError> {
        let experiment: Experiment = toml::from_str(text)
            .map_err(|error| SpecError::Form { path: path.to_owned(), error: Box::new(error) })?;
        for row in &experiment.rows {
            let is_variant = |name: &&String| experiment.variants.iter().any(|v| v.name == **name);
            if let Some(variant) = row.published.keys().find(|name| !is_variant(name)) {
                let (row, variant) = (row.name.clone(), variant.clone());
                return Err(SpecError::NoVariant { path: path.to_owned(), row, variant });
            }
        }
        Ok(experiment)
    }

    /// All experiments in `folder`, by name.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn all(folder: &Path) -> Result<Vec<Experiment>, SpecError> {
        let unreadable = |error| SpecError::Read { path: folder.to_owned(), error };
        let entries = fs::read_dir(folder).map_err(unreadable)?;
        let mut folders = entries
            .map(|entry| entry.map(|e| e.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?;
        folders.retain(|path| path.is_dir());
        folders.sort();
        folders.iter().map(|folder| Experiment::read(folder)).collect()
    }

    /// What is measured.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.iter().flat_map(RowSpec::rows).collect()
    }
}

impl RowSpec {
    fn rows(&self) -> Vec<Row> {
        let Some(Vary { option, values }) = &self.vary else { return vec![self.row(None)] };
        values.iter().map(|value| self.row(Some((option, *value)))).collect()
    }

    fn row(&self, varied: Option<(&String, u64)>) -> Row {
        Row {
            name: varied.map_or(self.name.clone(), |(option, n)| format!("{}, {option}={n}", self.name)),
            section: self.section.clone(),
            unit: self.unit,
            device: self.device.clone(),
            set: varied.map(|(option, n)| format!("{option}={n}")).into_iter().collect(),
            published: self.published.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "title = 't'\nsource = 's'\nabout = 'a'\njobs = ['j.fio']\n\
                        [[variant]]\nname = 'a'\ndevice = 'null:'\nmode = 'direct'\n";

    fn parse(rows: &str) -> Result<Experiment, SpecError> {
        Experiment::parse(&format!("{HEAD}{rows}"), Path::new("x"))
    }

    #[test]
    fn row_that_varies_an_option_is_a_row_a_value() {
        let rows = "[[row]]\nname = 'r'\nsection = 's'\nunit = 'KIOPS'\n\
                    vary = { option = 'numjobs', values = [1, 8] }\n[row.published]\na = 3";
        let rows = parse(rows).unwrap().rows();
        assert_eq!(
            rows.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
            ["r, numjobs=1", "r, numjobs=8"]
        );
        assert_eq!(rows[1].set, ["numjobs=8"]);
        assert_eq!(rows[1].published["a"], 3.0);
    }

    #[test]
    fn figure_of_no_variant_and_unknown_key_are_refused() {
        let row = "[[row]]\nname = 'r'\nsection = 's'\nunit = 'MB/s'\n";
        let error = parse(&format!("{row}[row.published]\nb = 3")).unwrap_err();
        assert!(matches!(&error, SpecError::NoVariant { variant, .. } if variant == "b"), "{error}");
        assert!(matches!(parse(&format!("{row}jobs = 3")), Err(SpecError::Form { .. })));
    }
}
