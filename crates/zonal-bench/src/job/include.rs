//! `include`: reads options of a section from another file.
//!
//! As in fio, the name is tried as given, then relative to the including file. Included files
//! cannot have `[...]` sections; their options replace the line, and they may include others.
//! Unlike in fio, a circular include is reported as an error. Sections that are not run include
//! nothing.

use super::environment::Files;
use super::error::{JobError, Limit, Origin, excerpt};
use super::lexer::{self, INCLUDE, Section, Setting};
use super::limits::{INCLUDE_DEPTH_MAX, INCLUDES_MAX, SETTINGS_MAX};

/// Replaces each include by the options of the included file.
pub(super) fn resolve(sections: &mut [Section], files: &Files) -> Result<(), JobError> {
    let mut includer = Includer { files, chain: Vec::new(), included: 0, settings: 0 };
    for section in sections {
        let settings = std::mem::take(&mut section.settings);
        includer.put(settings, &mut section.settings)?;
    }
    Ok(())
}

struct Includer<'a> {
    files: &'a Files,
    /// Open files, outermost first: display name and identity.
    chain: Vec<(String, String)>,
    included: usize,
    settings: usize,
}

impl Includer<'_> {
    fn put(&mut self, settings: Vec<Setting>, into: &mut Vec<Setting>) -> Result<(), JobError> {
        for setting in settings {
            match &setting.origin {
                Origin::File { name, .. } if setting.name == INCLUDE => {
                    let source = name.to_string();
                    self.include(&source, &setting, into)?;
                }
                _ => {
                    self.settings += 1;
                    if self.settings > SETTINGS_MAX {
                        let (origin, limit) = (setting.origin, Limit::Settings);
                        return Err(JobError::TooMany { origin, limit, max: SETTINGS_MAX });
                    }
                    into.push(setting);
                }
            }
        }
        Ok(())
    }

    fn include(&mut self, source: &str, line: &Setting, into: &mut Vec<Setting>) -> Result<(), JobError> {
        let origin = || line.origin.clone();
        let wanted = line.value.as_deref().filter(|name| !name.is_empty());
        let wanted =
            wanted.ok_or_else(|| JobError::MissingValue { origin: origin(), name: INCLUDE.to_owned() })?;
        let name = self.find(wanted, source);
        if self.chain.is_empty() {
            self.chain.push((source.to_owned(), self.files.identity(source)));
        }
        let identity = self.files.identity(&name);
        let is_open = self.chain.iter().any(|(_, open)| *open == identity);
        if is_open {
            let names = self.chain.iter().map(|(shown, _)| shown.as_str()).chain([name.as_str()]);
            let chain = names.map(excerpt).collect::<Vec<_>>().join(" -> ");
            return Err(JobError::IncludeLoop { origin: origin(), chain });
        }
        self.included += 1;
        if self.chain.len() > INCLUDE_DEPTH_MAX {
            let limit = Limit::IncludeDepth;
            return Err(JobError::TooMany { origin: origin(), limit, max: INCLUDE_DEPTH_MAX });
        }
        if self.included > INCLUDES_MAX {
            return Err(JobError::TooMany { origin: origin(), limit: Limit::Includes, max: INCLUDES_MAX });
        }
        let text = self.files.read(&name).map_err(|reason| JobError::IncludeUnreadable {
            origin: origin(),
            file: excerpt(&name),
            reason,
        })?;
        let settings = lexer::included(&text, &name)?;
        self.chain.push((name, identity));
        self.put(settings, into)?;
        self.chain.pop();
        if self.chain.len() == 1 {
            self.chain.clear();
        }
        Ok(())
    }

    /// Returns the name as given, or relative to `source` if there is no such file.
    fn find(&self, wanted: &str, source: &str) -> String {
        match source.rsplit_once('/') {
            Some((directory, _)) if !self.files.has(wanted) => format!("{directory}/{wanted}"),
            _ => wanted.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::job::{Environment, Files, JobError, JobFile, JobParser};
    use std::collections::BTreeMap;

    fn parse(files: &[(&str, &str)]) -> Result<JobFile, JobError> {
        let given: BTreeMap<_, _> = files.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
        let (name, text) = files[0];
        let mut parser = JobParser::new(Environment { files: Files::Given(given), ..Environment::fixed() });
        parser.file(text, name)?;
        parser.finish()
    }

    fn message(files: &[(&str, &str)]) -> String {
        parse(files).unwrap_err().to_string()
    }

    #[test]
    fn included_options_stand_in_place_of_the_line() {
        let file = parse(&[
            ("a.fio", "[global]\ninclude g.fio\n[x]\nbs=4k\ninclude=more.fio ; why\niodepth=2\n[y]\n"),
            ("g.fio", "; defaults\nrw=write\n\niodepth=8\nbs=16k"),
            ("more.fio", "bs=8k\niodepth=4\n"),
        ]);
        let file = file.unwrap();
        let found: Vec<_> =
            file.specs().map(|s| (s.name.clone(), s.block_size.read >> 10, s.iodepth)).collect();
        assert_eq!(found, [("x".to_owned(), 8, 2), ("y".to_owned(), 16, 8)]);
    }

    #[test]
    fn name_is_tried_as_it_stands_and_then_beside_the_including_file() {
        let files = [
            ("jobs/a.fio", "[x]\ninclude b.fio\ninclude sub/c.fio\n"),
            ("b.fio", "bs=8k\n"),
            ("jobs/b.fio", "bs=16k\n"),
            ("jobs/sub/c.fio", "include d.fio\n"),
            ("jobs/sub/d.fio", "iodepth=7\n"),
        ];
        let spec = parse(&files).unwrap().jobs()[0].spec.clone();
        assert_eq!((spec.block_size.read, spec.iodepth), (8 << 10, 7));
        let beside = [files[0], files[2], files[3], files[4]];
        assert_eq!(parse(&beside).unwrap().jobs()[0].spec.block_size.read, 16 << 10);
    }

    #[test]
    fn circular_include_is_reported_with_its_path() {
        let found = message(&[
            ("d/a.fio", "[x]\nrw=read\ninclude b.fio\n"),
            ("d/b.fio", "bs=4k\n\ninclude c.fio\n"),
            ("d/c.fio", "include b.fio"),
        ]);
        assert_eq!(found, "d/c.fio:1: circular include: d/a.fio -> d/b.fio -> d/c.fio -> d/b.fio");
        let found = message(&[("a.fio", "[x]\ninclude a.fio\n")]);
        assert_eq!(found, "a.fio:2: circular include: a.fio -> a.fio");
        let twice = [("a.fio", "[x]\ninclude b.fio\ninclude b.fio\n"), ("b.fio", "bs=8k\n")];
        assert!(parse(&twice).is_ok(), "twice is no circle");
    }

    #[test]
    fn error_in_an_included_file_names_that_file_and_line() {
        let with = |text: &str| message(&[("a.fio", "[x]\ninclude b.fio\n"), ("b.fio", text)]);
        assert_eq!(with("bs=4k\nbsx=1\n"), "b.fio:2: unknown option `bsx`, did you mean `bs`?");
        assert_eq!(with("\n[y]\n"), "b.fio:2: `[y]`: an included file cannot have sections");
        assert_eq!(with("iodepth=0"), "b.fio:1: iodepth=0: out of range, from 1 to 65536");
        let missing = message(&[("a.fio", "[x]\n\ninclude none.fio\n")]);
        assert_eq!(missing, "a.fio:3: cannot include `none.fio`: no such file");
        assert_eq!(message(&[("a.fio", "[x]\ninclude\n")]), "a.fio:2: `include` needs a value");
    }

    #[test]
    fn includes_are_bounded() {
        let mut files = vec![("a0".to_owned(), "[x]\ninclude a1\n".to_owned())];
        files.extend((1..40).map(|n| (format!("a{n}"), format!("include a{}\n", n + 1))));
        let refs = |files: &[(String, String)]| {
            message(&files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect::<Vec<_>>())
        };
        assert_eq!(refs(&files), "a16:1: more than 16 files that include each other");
        let mut files = vec![("a0".to_owned(), "[x]\ninclude a1\ninclude a1\n".to_owned())];
        files.extend((1..12).map(|n| (format!("a{n}"), format!("include a{0}\ninclude a{0}\n", n + 1))));
        files.push(("a12".to_owned(), String::new()));
        assert!(refs(&files).ends_with("more than 256 included files"), "{}", refs(&files));
    }

    #[test]
    fn section_that_is_not_run_includes_nothing() {
        let mut parser = JobParser::new(Environment::fixed());
        parser.only_sections(["y"]);
        parser.file("[x]\ninclude none.fio\n[y]\nbs=8k\n", "a.fio").unwrap();
        assert_eq!(parser.finish().unwrap().jobs().len(), 1);
    }

    #[test]
    fn files_on_disk_are_found_beside_each_other() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("sub/b.fio"), "bs=8k\ninclude ../sub/./b.fio\n").unwrap();
        let source = directory.path().join("a.fio").to_str().unwrap().to_owned();
        let error = JobFile::parse("[x]\ninclude sub/b.fio\n", &source).unwrap_err();
        assert!(matches!(error, JobError::IncludeLoop { .. }), "another name of the same file: {error}");
        std::fs::write(directory.path().join("sub/b.fio"), "bs=8k\n").unwrap();
        let file = JobFile::parse("[x]\ninclude sub/b.fio\n", &source).unwrap();
        assert_eq!(file.jobs()[0].spec.block_size.read, 8192);
    }
}
