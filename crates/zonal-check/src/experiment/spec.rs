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
    /// Takes minutes: it is made when it is asked for by name, and what moves its figures is not looked for.
    #[serde(default)]
    pub is_long: bool,
    /// Job files in the folder, in the order in which `zonal bench` reads them.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// Ways to do it; the others are compared with the first.
    #[serde(default, rename = "variant")]
    pub variants: Vec<Variant>,
    /// What is measured, in each of these ways.
    #[serde(default, rename = "row")]
    rows: Vec<RowSpec>,
    /// Linux makes other experiments, in place of what is above.
    pub linux: Option<Linux>,
}

/// How Linux makes experiments on the drives that they simulate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linux {
    /// The experiments.
    pub experiments: Vec<String>,
    /// Name of the drive, which answers in real time.
    pub device: String,
    /// Commands that Linux sends it at a time.
    pub queue_depth: u32,
    /// Largest command that Linux sends it, in KiB.
    pub max_sectors_kb: u32,
    /// Schedulers of Linux.
    pub schedulers: Vec<String>,
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
    /// The variant that its ratios are to; the first, if nothing is said.
    #[serde(default)]
    against: Option<String>,
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
    /// Values of `randseed`; the figure is the mean over them.
    #[serde(default)]
    randseeds: Vec<u64>,
    #[serde(default)]
    published: ByVariant<f64>,
    #[serde(default)]
    gains: ByVariant<f64>,
    #[serde(default)]
    status: ByVariant<Status>,
    #[serde(default)]
    tolerance: ByVariant<f64>,
    #[serde(default)]
    reason: ByVariant<String>,
}

type ByVariant<T> = BTreeMap<String, PerValue<T>>;

/// One for all values of the varied option, or a list of one for each.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum PerValue<T> {
    One(T),
    Each(Vec<T>),
}

impl<T: Clone> PerValue<T> {
    fn of(&self, value: usize) -> Option<T> {
        match self {
            PerValue::One(one) => Some(one.clone()),
            PerValue::Each(each) => each.get(value).cloned(),
        }
    }

    /// Whether there is one for each of `values` values.
    fn fits(&self, values: usize) -> bool {
        match self {
            PerValue::One(_) => true,
            PerValue::Each(each) => each.len() == values,
        }
    }
}

/// What a simulated drive has to do with a published figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The drive's profile was fitted to it, or the model's rules were chosen by it, or the place where the job begins.
    Calibrated,
    /// Neither a fit nor a choice of rules has seen it.
    Predicted,
    /// It is known that the simulation misses it.
    Unexplained,
}

impl Status {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Calibrated => "calibrated",
            Status::Predicted => "predicted",
            Status::Unexplained => "unexplained",
        }
    }
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
    /// Seeds over which the figure is a mean; none: it is that of the job files' own.
    pub randseeds: Vec<u64>,
    /// Published figures by variant.
    pub published: BTreeMap<String, f64>,
    /// Published ratios to the first variant, where no figures were published.
    pub gains: BTreeMap<String, f64>,
    /// Of simulated drives: what each published figure or ratio is to the profile.
    pub status: BTreeMap<String, Status>,
    /// How far the simulated may be from the published, in per cent.
    pub tolerance: BTreeMap<String, f64>,
    /// Why it is so far away.
    pub reason: BTreeMap<String, String>,
}

impl Row {
    /// The published ratio of one variant to another.
    pub fn published_ratio(&self, own: &str, other: &str) -> Option<f64> {
        let of = |by: &BTreeMap<String, f64>| Some(by.get(own)? / by.get(other)?);
        of(&self.published).or_else(|| of(&self.gains))
    }
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
    /// It has no jobs, variants or rows, or has them beside `[linux]`.
    #[error("{path}: an experiment has jobs, variants and rows, or [linux] in their place")]
    Neither {
        /// The description.
        path: PathBuf,
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
    /// A list beside a varied option has not one entry for each value.
    #[error("{path}: row {row}: the list for {variant} has not one entry for each value")]
    Length {
        /// The description.
        path: PathBuf,
        /// The row.
        row: String,
        /// The variant.
        variant: String,
    },
    /// A published figure stands beside a simulated drive without what has to be said about it.
    #[error("{path}: row {row}, {variant}: a simulated drive's published figure needs {what}")]
    Unsaid {
        /// The description.
        path: PathBuf,
        /// The row.
        row: String,
        /// The variant.
        variant: String,
        /// What is missing.
        what: &'static str,
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
        let parts = [experiment.jobs.is_empty(), experiment.variants.is_empty(), experiment.rows.is_empty()];
        if parts != [experiment.linux.is_some(); 3] {
            return Err(SpecError::Neither { path: path.to_owned() });
        }
        experiment.check_names(path)?;
        experiment.rows().iter().try_for_each(|row| experiment.check_said(row, path))?;
        Ok(experiment)
    }

    fn check_names(&self, path: &Path) -> Result<(), SpecError> {
        let is_variant = |name: &String| self.variants.iter().any(|v| v.name == *name);
        for row in &self.rows {
            let at = |variant: &String| (path.to_owned(), row.name.clone(), variant.clone());
            let against = self.variants.iter().filter_map(|v| v.against.as_ref());
            if let Some(name) =
                against.chain(row.named().map(|(name, _)| name)).find(|name| !is_variant(name))
            {
                let (path, row, variant) = at(name);
                return Err(SpecError::NoVariant { path, row, variant });
            }
            if let Some((name, _)) = row.named().find(|(_, fits)| !fits) {
                let (path, row, variant) = at(name);
                return Err(SpecError::Length { path, row, variant });
            }
        }
        Ok(())
    }

    /// What is published of a simulated drive has a status and a tolerance, and what is unexplained a reason.
    fn check_said(&self, row: &Row, path: &Path) -> Result<(), SpecError> {
        let simulated = self.variants.iter().enumerate().filter(|(_, v)| v.profile().is_some());
        for (index, variant) in simulated.map(|(index, v)| (index, &v.name)) {
            // The ratio of one to itself is no result.
            let gain = row.gains.get(variant).filter(|_| self.against(index) != index);
            if row.published.get(variant).or(gain).is_none() {
                continue;
            }
            let unexplained = row.status.get(variant) == Some(&Status::Unexplained);
            let what = match () {
                () if !row.status.contains_key(variant) => "a status",
                () if !row.tolerance.contains_key(variant) => "a tolerance",
                () if unexplained && !row.reason.contains_key(variant) => "a reason for being unexplained",
                () => continue,
            };
            let (path, row, variant) = (path.to_owned(), row.name.clone(), variant.clone());
            return Err(SpecError::Unsaid { path, row, variant, what });
        }
        Ok(())
    }

    /// Place of the variant that the ratios of the one at `index` are to.
    pub fn against(&self, index: usize) -> usize {
        let name = self.variants[index].against.as_ref();
        name.and_then(|name| self.variants.iter().position(|v| v.name == *name)).unwrap_or(0)
    }

    /// Whether it is made on simulated drives.
    pub fn is_simulated(&self) -> bool {
        self.variants.iter().any(|v| v.profile().is_some())
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

    /// What of it was published on a drive as its profile is: without other variants and rows, and figures alone.
    #[must_use]
    pub fn published(mut self) -> Experiment {
        self.variants.retain(|v| v.profile().is_some_and(|(_, changes)| changes.is_empty()));
        let is_kept = |name: &str| self.variants.iter().any(|v| v.name == name);
        self.rows.retain(|row| row.published.keys().any(|name| is_kept(name)));
        self.is_long = true;
        self
    }

    /// What is measured.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.iter().flat_map(RowSpec::rows).collect()
    }
}

impl Variant {
    /// The profile of a simulated drive, with the values that the name gives it.
    pub fn profile(&self) -> Option<(&str, Vec<(&str, &str)>)> {
        // Wrappers stand before it.
        let (_, device) = self.device.rsplit_once('+').unwrap_or(("", &self.device));
        let mut words = device.strip_prefix("sim:")?.split(',');
        let name = words.next()?;
        // Whether the drive keeps data is none of its values.
        let values = words.filter_map(|word| word.split_once('=')).filter(|(key, _)| *key != "keep");
        Some((name, values.collect()))
    }
}

impl RowSpec {
    fn values(&self) -> usize {
        self.vary.as_ref().map_or(1, |vary| vary.values.len())
    }

    /// The variants that are named, and whether what is said of each fits the varied option.
    fn named(&self) -> impl Iterator<Item = (&String, bool)> {
        let values = self.values();
        let figures = [&self.published, &self.gains, &self.tolerance];
        let figures = figures.into_iter().flatten().map(move |(name, each)| (name, each.fits(values)));
        let status = self.status.iter().map(move |(name, each)| (name, each.fits(values)));
        let reason = self.reason.iter().map(move |(name, each)| (name, each.fits(values)));
        figures.chain(status).chain(reason)
    }

    fn rows(&self) -> Vec<Row> {
        let Some(Vary { option, values }) = &self.vary else { return vec![self.row(0, None)] };
        values.iter().enumerate().map(|(at, value)| self.row(at, Some((option, *value)))).collect()
    }

    fn row(&self, at: usize, varied: Option<(&String, u64)>) -> Row {
        Row {
            name: varied.map_or(self.name.clone(), |(option, n)| format!("{}, {option}={n}", self.name)),
            section: self.section.clone(),
            unit: self.unit,
            device: self.device.clone(),
            set: varied.map(|(option, n)| format!("{option}={n}")).into_iter().collect(),
            randseeds: self.randseeds.clone(),
            published: figures(&self.published, at),
            gains: figures(&self.gains, at),
            status: of_value(&self.status, at),
            tolerance: of_value(&self.tolerance, at),
            reason: of_value(&self.reason, at),
        }
    }
}

fn of_value<T: Clone>(by: &ByVariant<T>, at: usize) -> BTreeMap<String, T> {
    by.iter().filter_map(|(name, each)| Some((name.clone(), each.of(at)?))).collect()
}

/// `nan` in a list is a value that nothing was published of.
fn figures(by: &ByVariant<f64>, at: usize) -> BTreeMap<String, f64> {
    let mut figures = of_value(by, at);
    figures.retain(|_, figure| figure.is_finite());
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "title = 't'\nsource = 's'\nabout = 'a'\njobs = ['j.fio']\n\
                        [[variant]]\nname = 'a'\ndevice = 'null:'\nmode = 'direct'\n";

    const TITLES: &str = "title = 't'\nsource = 's'\nabout = 'a'\n";

    fn parse(rows: &str) -> Result<Experiment, SpecError> {
        parse_all(&format!("{HEAD}{rows}"))
    }

    fn parse_all(text: &str) -> Result<Experiment, SpecError> {
        Experiment::parse(text, Path::new("x"))
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
    fn varied_option_may_have_a_list_of_what_was_published() {
        let rows = "[[row]]\nname = 'r'\nsection = 's'\nunit = 'KIOPS'\n\
                    vary = { option = 'iodepth', values = [1, 8, 32] }\npublished = { a = [3, nan, 5.5] }";
        let of = |published: &str| parse(&rows.replace("[3, nan, 5.5]", published));
        let figures: Vec<Option<f64>> =
            parse(rows).unwrap().rows().iter().map(|row| row.published.get("a").copied()).collect();
        assert_eq!(figures, [Some(3.0), None, Some(5.5)]);
        assert!(matches!(of("[3, 4]"), Err(SpecError::Length { variant, .. }) if variant == "a"));
    }

    #[test]
    fn published_figure_beside_a_simulated_drive_says_what_it_is() {
        let row = |said: &str| {
            let head = HEAD.replace("null:", "fault:medium=1/9+sim:ufs-zoned,link_us=5");
            let row = format!(
                "[[row]]\nname = 'r'\nsection = 's'\nunit = 'KIOPS'\npublished = {{ a = 3 }}\n{said}"
            );
            Experiment::parse(&format!("{head}{row}"), Path::new("x"))
        };
        let what = |said: &str| match row(said) {
            Err(SpecError::Unsaid { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(what(""), "a status");
        assert_eq!(what("status = { a = 'predicted' }"), "a tolerance");
        let unexplained = "status = { a = 'unexplained' }\ntolerance = { a = 3 }";
        assert_eq!(what(unexplained), "a reason for being unexplained");
        let experiment = row(&format!("{unexplained}\nreason = {{ a = 'it is so' }}")).unwrap();
        let (name, changes) = experiment.variants[0].profile().unwrap();
        assert_eq!((name, changes.as_slice()), ("ufs-zoned", [("link_us", "5")].as_slice()));
    }

    #[test]
    fn experiment_has_its_own_rows_or_those_that_linux_makes() {
        let linux = "[linux]\nexperiments = []\ndevice = 'null:'\nqueue_depth = 1\nmax_sectors_kb = 4\nschedulers = []\n";
        let row = "[[row]]\nname = 'r'\nsection = 's'\nunit = 'MB/s'\n";
        let is_refused = |text: String| matches!(parse_all(&text), Err(SpecError::Neither { .. }));
        assert!(parse(row).is_ok());
        assert!(parse_all(&format!("{TITLES}{linux}")).is_ok());
        assert!(is_refused(format!("{HEAD}{row}{linux}")), "both");
        assert!(is_refused(HEAD.to_owned()) && is_refused(TITLES.to_owned()), "neither");
    }

    #[test]
    fn figure_of_no_variant_and_unknown_key_are_refused() {
        let row = "[[row]]\nname = 'r'\nsection = 's'\nunit = 'MB/s'\n";
        let error = parse(&format!("{row}[row.published]\nb = 3")).unwrap_err();
        assert!(matches!(&error, SpecError::NoVariant { variant, .. } if variant == "b"), "{error}");
        assert!(matches!(parse(&format!("{row}jobs = 3")), Err(SpecError::Form { .. })));
    }
}
