//! Job options on the command line: `--name=a --rw=write --bs 4k`.

use super::environment::Environment;
use super::error::{JobError, Limit, Origin, excerpt};
use super::lexer::{GLOBAL, Section, Setting, split_setting};
use super::limits::LINE_BYTES_MAX;
use super::options::Form;
use super::tables::{beginning_with, nearest, table_of};

/// A parsed command line.
pub(super) struct CommandLine {
    /// Sections. Options before the first `--name` form a section `global`.
    pub sections: Vec<Section>,
    /// Arguments that are not options.
    pub files: Vec<String>,
}

/// Options of the fio program itself. A command line may have them, but this parser rejects them.
pub(super) const PROGRAM_OPTIONS: &[&str] = &[
    "alloc-size",
    "append-terse",
    "aux-path",
    "bandwidth-log",
    "client",
    "cmdhelp",
    "cpuclock-test",
    "crctest",
    "daemonize",
    "debug",
    "enghelp",
    "eta",
    "eta-interval",
    "eta-newline",
    "help",
    "idle-prof",
    "inflate-log",
    "max-jobs",
    "merge-blktrace-only",
    "minimal",
    "output",
    "output-format",
    "parse-only",
    "readonly",
    "remote-config",
    "section",
    "server",
    "showcmd",
    "status-interval",
    "terse-version",
    "trigger",
    "trigger-file",
    "trigger-remote",
    "trigger-timeout",
    "version",
    "warnings-fatal",
];

/// Splits arguments into sections and files.
pub(super) fn read<I, S>(arguments: I) -> Result<CommandLine, JobError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<str>,
{
    let mut line = CommandLine { sections: Vec::new(), files: Vec::new() };
    let mut arguments = arguments.into_iter();
    let mut options_ended = false;
    while let Some(argument) = arguments.next() {
        let argument = argument.as_ref();
        match option_text(argument) {
            _ if options_ended => line.files.push(argument.to_owned()),
            None => line.files.push(argument.to_owned()),
            Some("") => options_ended = true,
            Some(text) => {
                let mut setting = split_setting(text, Origin::CommandLine);
                setting.name = whole_name(setting.name)?;
                if setting.value.is_none() && wants_next(&setting.name) {
                    setting.value = arguments.next().map(|value| value.as_ref().trim().to_owned());
                }
                check(&setting)?;
                line.add(setting)?;
            }
        }
    }
    Ok(line)
}

/// Strips the one or two dashes that fio accepts before an option. `None` if the argument is not an
/// option.
fn option_text(argument: &str) -> Option<&str> {
    match argument.strip_prefix("--") {
        Some(text) => Some(text),
        None => argument.strip_prefix('-').filter(|text| !text.is_empty()),
    }
}

/// Completes an abbreviated option name. fio parses its command line with `getopt_long_only`, which
/// accepts any unique prefix. Job files have no abbreviations.
///
/// # Errors
/// [`JobError::SeveralOptions`].
fn whole_name(name: String) -> Result<String, JobError> {
    if name.is_empty() || table_of(&name).is_some() || PROGRAM_OPTIONS.contains(&name.as_str()) {
        return Ok(name);
    }
    let of_program = PROGRAM_OPTIONS.iter().copied().filter(|option| option.starts_with(&name));
    let options: Vec<&str> = beginning_with(&name).chain(of_program).collect();
    match options[..] {
        // An unknown name is reported when the options are applied.
        [] => Ok(name),
        [option] => Ok(option.to_owned()),
        _ => {
            let nearest = nearest(&name);
            Err(JobError::SeveralOptions { origin: Origin::CommandLine, name, options, nearest })
        }
    }
}

/// True if an option without `=` takes the next argument. Flags do not, nor do options that end in
/// an error.
fn wants_next(name: &str) -> bool {
    table_of(name).is_some_and(|table| table.form() == Form::Value)
}

impl CommandLine {
    fn add(&mut self, setting: Setting) -> Result<(), JobError> {
        if setting.name == "name" {
            let name = setting.value.unwrap_or_default();
            if name.is_empty() {
                return Err(JobError::MissingValue { origin: Origin::CommandLine, name: setting.name });
            }
            if name == GLOBAL && setting.blank_before_value {
                return Err(JobError::SectionHeader { origin: Origin::CommandLine, text: name });
            }
            self.sections.push(Section::new(&name, Origin::CommandLine));
            return Ok(());
        }
        if self.sections.is_empty() {
            self.sections.push(Section::new(GLOBAL, Origin::CommandLine));
        }
        let section = self.sections.last_mut().expect("one was just pushed");
        section.settings.push(setting);
        Ok(())
    }
}

/// Rejects values that a job file cannot express, because the run could not be written down as one.
fn check(setting: &Setting) -> Result<(), JobError> {
    let origin = Origin::CommandLine;
    let value = setting.value.as_deref().unwrap_or_default();
    if setting.name.len() + value.len() > LINE_BYTES_MAX - "[]=".len() {
        return Err(JobError::TooMany { origin, limit: Limit::LineBytes, max: LINE_BYTES_MAX });
    }
    match unprintable(value, &Environment::fixed()) {
        Some(what) => Err(JobError::Unprintable { origin, name: excerpt(&setting.name), what }),
        None => Ok(()),
    }
}

/// Finds a part of a value that a job file would interpret, such as a comment character.
pub(super) fn unprintable(value: &str, environment: &Environment) -> Option<&'static str> {
    if value.contains([';', '#']) {
        return Some("a comment character");
    }
    if value.contains("${") {
        return Some("a `${`");
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Some("a control character");
    }
    environment
        .keywords()
        .into_iter()
        .find(|(keyword, _)| value.contains(keyword))
        .map(|_| "a keyword such as $ncpus")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Extent, JobFile, JobParser};

    #[test]
    fn option_is_written_with_one_or_two_dashes_and_with_or_without_equals_sign() {
        for arguments in [
            &["--name=x", "--rw=write", "--size=4k"][..],
            &["-name=x", "-rw=write", "-size=4k"],
            &["--name", "x", "--rw", "write", "-size", "4k"],
        ] {
            let file = JobFile::parse_inline(arguments).unwrap();
            assert_eq!(file.jobs()[0].spec.name, "x");
            assert_eq!(file.jobs()[0].spec.size, Extent::Bytes(4096));
        }
    }

    #[test]
    fn name_starts_a_job_and_name_global_sets_defaults() {
        let arguments = [
            "--iodepth=2",
            "--name=a",
            "--bs=8k",
            "--name=global",
            "--bs=16k",
            "--name=b",
            "--time_based=0",
            "--thread",
        ];
        let file = JobFile::parse_inline(arguments).unwrap();
        let jobs: Vec<_> =
            file.specs().map(|job| (job.name.as_str(), job.iodepth, job.block_size.read)).collect();
        assert_eq!(jobs, [("a", 2, 8192), ("b", 2, 16384)]);
    }

    #[test]
    fn flag_does_not_take_the_next_argument() {
        let file =
            JobFile::parse_inline(["--name=a", "--group_reporting", "--thread", "--rw=write"]).unwrap();
        assert!(file.jobs()[0].spec.group_reporting);
        let error = JobFile::parse_inline(["--name=a", "--direct"]).unwrap_err();
        assert_eq!(error.to_string(), "command line: `direct` needs a value");
        let error = JobFile::parse_inline(["--name=a", "--exitall", "--rw=write"]).unwrap_err();
        assert!(matches!(error, JobError::Refused { name, .. } if name == "exitall"));
    }

    #[test]
    fn file_names_are_handed_back() {
        let mut parser = JobParser::new(Environment::fixed());
        let files = parser.command_line(["--name=a", "x.fio", "--rw=read", "--", "--odd.fio"]).unwrap();
        assert_eq!(files, ["x.fio", "--odd.fio"]);
        let error = JobFile::parse_inline(["--name=a", "x.fio"]).unwrap_err();
        assert_eq!(error.to_string(), "`x.fio` is not a job option");
    }

    #[test]
    fn fio_program_options_are_distinguished_from_unknown_ones() {
        let error = JobFile::parse_inline(["--name=a", "--output-format=json"]).unwrap_err();
        let message = "command line: `--output-format` is an option of the fio program, not of a job";
        assert_eq!(error.to_string(), message);
        let error = JobFile::parse_inline(["--name=a", "--max-open-zones=3"]).unwrap_err();
        let message = "command line: unknown option `max-open-zones`, did you mean `max_open_zones`?";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn beginning_of_one_option_is_that_option() {
        let jobs = |arguments: &[&str]| JobFile::parse_inline(arguments).map_err(|error| error.to_string());
        let file =
            jobs(&["--name=a", "--loop=2", "-rwmixr", "30", "--blocksize_r=4k-8k", "--group"]).unwrap();
        let whole = ["--name=a", "--loops=2", "-rwmixread", "30", "--bsrange=4k-8k", "--group_reporting"];
        assert!(file.specs().eq(jobs(&whole).unwrap().specs()));
        assert_eq!(
            jobs(&["--name=a", "--bssp=4k", "--blocksize_=4k"]).unwrap_err(),
            "command line: `blocksize_` is ambiguous, it matches blocksize_range and blocksize_unaligned, did \
             you mean `blocksize`?"
        );
        // A complete name is not an abbreviation, even if it is a prefix of another.
        assert_eq!(jobs(&["--name=a", "--bs=8k"]).unwrap().jobs()[0].spec.block_size.read, 8192);
        assert!(
            jobs(&["--name=a", "--output-f=json"]).unwrap_err().contains("`--output-format` is an option of")
        );
        assert!(JobFile::parse("[a]\nloop=2\n", "t").is_err(), "fio reads no such name in a file");
    }

    #[test]
    fn value_that_no_job_file_can_hold_is_refused() {
        for value in ["a;b", "a#b", "${X}", "$ncpus", "a\nb"] {
            let error = JobFile::parse_inline(["--name=a", &format!("--description={value}")]).unwrap_err();
            assert!(matches!(error, JobError::Unprintable { .. }), "{value}: {error}");
        }
        let long = format!("--filename={}", "x".repeat(LINE_BYTES_MAX));
        assert!(matches!(JobFile::parse_inline(["--name=a", &long]), Err(JobError::TooMany { .. })));
    }
}
