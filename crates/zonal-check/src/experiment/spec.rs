//! Description of an experiment, as read from `experiment.toml`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name of its directory.
    #[serde(skip)]
    pub name: String,
    /// Path of its directory.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Title, in one line.
    pub title: String,
    /// Source of the published numbers: series or commit, author, date, machine.
    pub source: String,
    /// Conclusions that the numbers of this machine do and do not allow.
    pub about: String,
    /// True if it takes minutes. It then runs only when named, and without a sensitivity analysis.
    #[serde(default)]
    pub is_long: bool,
    /// Choices that the source does not state and that assumed figures rest on: arguments of `zonal
    /// bench`, each of which gives another figure in the range of an assumed one.
    #[serde(default)]
    pub choices: Vec<String>,
    /// Job files in the directory, in the order in which `zonal bench` reads them.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// Ways to run it; the first is the baseline of the others.
    #[serde(default, rename = "variant")]
    pub variants: Vec<Variant>,
    /// Measurements, made in each variant.
    #[serde(default, rename = "row")]
    rows: Vec<RowSpec>,
    /// Present if Linux repeats other experiments; takes the place of jobs, variants and rows.
    pub linux: Option<Linux>,
}

/// Settings for Linux repeating experiments on the drives that they simulate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linux {
    /// Names of the experiments.
    pub experiments: Vec<String>,
    /// Name of the drive, which runs in real time.
    pub device: String,
    /// Queue depth of Linux for the drive.
    pub queue_depth: u32,
    /// Largest command of Linux for the drive, in KiB.
    pub max_sectors_kb: u32,
    /// I/O schedulers of Linux.
    pub schedulers: Vec<String>,
}

/// A way to run the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Name in the table.
    pub name: String,
    /// Name of the device.
    pub device: String,
    /// Write mode.
    pub mode: String,
    /// Additional arguments of `zonal bench`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Baseline of its ratios; the first variant by default.
    #[serde(default)]
    against: Option<String>,
}

/// A measurement as written in the file: `vary` expands it to one row for each value.
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

/// One entry for all values of the varied option, or a list with one for each.
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

    /// True if there is an entry for each of `values` values.
    fn fits(&self, values: usize) -> bool {
        match self {
            PerValue::One(_) => true,
            PerValue::Each(each) => each.len() == values,
        }
    }
}

/// Relation of a published figure to the profile of a simulated drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Used to fit the drive's profile, to choose the rules of the model, or to place the start of
    /// the job.
    Calibrated,
    /// Used neither for a fit nor for a choice of rules, and independent of choices that the source
    /// does not state.
    Predicted,
    /// Used for no fit, but dependent on choices that the source does not state.
    Assumed,
    /// The simulation is known to miss it.
    Unexplained,
}

impl Status {
    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Calibrated => "calibrated",
            Status::Predicted => "predicted",
            Status::Assumed => "assumed",
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

/// One measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Name in the table.
    pub name: String,
    /// Section of the job files.
    pub section: String,
    /// Unit of the figures.
    pub unit: Unit,
    /// Additional options of every variant's device.
    pub device: String,
    /// Additional options of the job, `OPTION=VALUE`.
    pub set: Vec<String>,
    /// Seeds that the figure is averaged over; if empty, the seed of the job files is used.
    pub randseeds: Vec<u64>,
    /// Published figures by variant.
    pub published: BTreeMap<String, f64>,
    /// Published ratios to the first variant, for rows without published figures.
    pub gains: BTreeMap<String, f64>,
    /// On simulated drives, the relation of each published figure or ratio to the profile.
    pub status: BTreeMap<String, Status>,
    /// Allowed distance between the simulated and the published figure, in per cent.
    pub tolerance: BTreeMap<String, f64>,
    /// Reason for a larger distance.
    pub reason: BTreeMap<String, String>,
}

impl Row {
    /// Published ratio of one variant to another.
    pub fn published_ratio(&self, own: &str, other: &str) -> Option<f64> {
        let of = |by: &BTreeMap<String, f64>| Some(by.get(own)? / by.get(other)?);
        of(&self.published).or_else(|| of(&self.gains))
    }
}

/// Unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Unit {
    /// Megabytes (10^6 bytes) per second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Thousand requests per second.
    #[serde(rename = "KIOPS")]
    Kiops,
}

impl Unit {
    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::MegabytesPerSecond => "MB/s",
            Unit::Kiops => "KIOPS",
        }
    }
}

/// Reason why a directory is not an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// The description cannot be parsed.
    #[error("{path}: {error}")]
    Form {
        /// Path of the description.
        path: PathBuf,
        /// Error and its position.
        error: Box<toml::de::Error>,
    },
    /// Jobs, variants or rows are missing, or are given together with `[linux]`.
    #[error("{path}: an experiment needs jobs, variants and rows, or [linux] instead")]
    Neither {
        /// Path of the description.
        path: PathBuf,
    },
    /// A published figure names an unknown variant.
    #[error("{path}: row {row}: published figure for unknown variant {variant}")]
    NoVariant {
        /// Path of the description.
        path: PathBuf,
        /// Name of the row.
        row: String,
        /// Name of the unknown variant.
        variant: String,
    },
    /// A list for a varied option does not have one entry for each value.
    #[error("{path}: row {row}: the list for {variant} must have one entry for each value")]
    Length {
        /// Path of the description.
        path: PathBuf,
        /// Name of the row.
        row: String,
        /// Name of the variant.
        variant: String,
    },
    /// A published figure of a simulated drive lacks required information.
    #[error("{path}: row {row}, {variant}: a published figure of a simulated drive needs {what}")]
    Unsaid {
        /// Path of the description.
        path: PathBuf,
        /// Name of the row.
        row: String,
        /// Name of the variant.
        variant: String,
        /// Missing information.
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

    /// Checks that published figures of a simulated drive have a status and a tolerance, assumed ones
    /// choices, and unexplained ones a reason.
    fn check_said(&self, row: &Row, path: &Path) -> Result<(), SpecError> {
        let simulated = self.variants.iter().enumerate().filter(|(_, v)| v.profile().is_some());
        for (index, variant) in simulated.map(|(index, v)| (index, &v.name)) {
            // The ratio of a variant to itself is not a result.
            let gain = row.gains.get(variant).filter(|_| self.against(index) != index);
            if row.published.get(variant).or(gain).is_none() {
                continue;
            }
            let unexplained = row.status.get(variant) == Some(&Status::Unexplained);
            let assumed = row.status.get(variant) == Some(&Status::Assumed);
            let what = match () {
                () if !row.status.contains_key(variant) => "a status",
                () if !row.tolerance.contains_key(variant) => "a tolerance",
                () if assumed && self.choices.is_empty() => "choices that it rests on",
                () if unexplained && !row.reason.contains_key(variant) => "a reason for being unexplained",
                () => continue,
            };
            let (path, row, variant) = (path.to_owned(), row.name.clone(), variant.clone());
            return Err(SpecError::Unsaid { path, row, variant, what });
        }
        Ok(())
    }

    /// Index of the variant that is the baseline of the one at `index`.
    pub fn against(&self, index: usize) -> usize {
        let name = self.variants[index].against.as_ref();
        name.and_then(|name| self.variants.iter().position(|v| v.name == *name)).unwrap_or(0)
    }

    /// True if it runs on simulated drives.
    pub fn is_simulated(&self) -> bool {
        self.variants.iter().any(|v| v.profile().is_some())
    }

    /// Reads all experiments in `folder`, sorted by name.
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

    /// Reduces the experiment to published figures of drives with unchanged profiles: drops other
    /// variants and rows, and all ratios.
    #[must_use]
    pub fn published(mut self) -> Experiment {
        self.variants.retain(|v| v.profile().is_some_and(|(_, changes)| changes.is_empty()));
        let is_kept = |name: &str| self.variants.iter().any(|v| v.name == name);
        self.rows.retain(|row| row.published.keys().any(|name| is_kept(name)));
        self.is_long = true;
        self
    }

    /// Measurements, with varied options expanded.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.iter().flat_map(RowSpec::rows).collect()
    }
}

impl Variant {
    /// The variant with another choice: an argument that is added, or replaces the one of the same
    /// name.
    #[must_use]
    pub fn with_choice(&self, choice: &str) -> Variant {
        let name = |argument: &str| argument.rsplit_once('=').map_or(argument, |(name, _)| name).to_owned();
        let mut variant = self.clone();
        variant.arguments.retain(|argument| name(argument) != name(choice));
        variant.arguments.push(choice.to_owned());
        variant
    }

    /// Profile of a simulated drive, with the values set in the device's name.
    pub fn profile(&self) -> Option<(&str, Vec<(&str, &str)>)> {
        // Wrappers precede it.
        let (_, device) = self.device.rsplit_once('+').unwrap_or(("", &self.device));
        let mut words = device.strip_prefix("sim:")?.split(',');
        let name = words.next()?;
        let values = words.filter_map(|word| word.split_once('='));
        let values = values.filter(|(key, _)| !zonal_sim::NAME_OPTIONS.contains(key));
        Some((name, values.collect()))
    }
}

impl RowSpec {
    fn values(&self) -> usize {
        self.vary.as_ref().map_or(1, |vary| vary.values.len())
    }

    /// Named variants, each with true if the list given for it fits the varied option.
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

/// In a list, `nan` marks a value without a published figure.
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
    fn varied_option_may_list_published_figures() {
        let rows = "[[row]]\nname = 'r'\nsection = 's'\nunit = 'KIOPS'\n\
                    vary = { option = 'iodepth', values = [1, 8, 32] }\npublished = { a = [3, nan, 5.5] }";
        let of = |published: &str| parse(&rows.replace("[3, nan, 5.5]", published));
        let figures: Vec<Option<f64>> =
            parse(rows).unwrap().rows().iter().map(|row| row.published.get("a").copied()).collect();
        assert_eq!(figures, [Some(3.0), None, Some(5.5)]);
        assert!(matches!(of("[3, 4]"), Err(SpecError::Length { variant, .. }) if variant == "a"));
    }

    #[test]
    fn published_figure_of_a_simulated_drive_needs_status_and_tolerance() {
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
        let assumed = "status = { a = 'assumed' }\ntolerance = { a = 3 }";
        assert_eq!(what(assumed), "choices that it rests on");
        let experiment = row(&format!("{unexplained}\nreason = {{ a = 'it is so' }}")).unwrap();
        let (name, changes) = experiment.variants[0].profile().unwrap();
        assert_eq!((name, changes.as_slice()), ("ufs-zoned", [("link_us", "5")].as_slice()));
    }

    #[test]
    fn choice_is_added_or_replaces_the_argument_of_its_name() {
        let head =
            HEAD.replace("mode = 'direct'", "mode = 'direct'\narguments = ['--fs-unit=2M', '--set=bs=1M']");
        let row = "[[row]]\nname = 'r'\nsection = 's'\nunit = 'MB/s'\n";
        let variant = parse_all(&format!("{head}{row}")).unwrap().variants.remove(0);
        let with = |choice: &str| variant.with_choice(choice).arguments.join(" ");
        assert_eq!(with("--fs-unit=1M"), "--set=bs=1M --fs-unit=1M");
        assert_eq!(with("--set=bs=4M"), "--fs-unit=2M --set=bs=4M");
        assert_eq!(with("--set=nrfiles=3"), "--fs-unit=2M --set=bs=1M --set=nrfiles=3");
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
