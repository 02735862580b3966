//! Observations of a file system by a reader, and their comparison with synced states.

use crate::common::impatient;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use zonal_fs::format::Position;
use zonal_fs::{FileSystem, FsError, ROOT, Target};

/// File written by the later command. States do not include it.
pub const LATER: &[u8] = b"later";

const BLOCK: u64 = 4096;

/// Answers by question. A question is a facet and a path; an answer is bytes, or the error that was
/// returned.
pub type Answers = BTreeMap<String, Result<Vec<u8>, String>>;

/// The absence of a name, file or attribute is an answer, too.
fn answer(result: Result<Vec<u8>, FsError>) -> Result<Vec<u8>, String> {
    match result {
        Err(FsError::NotFound | FsError::NoAttribute) => Ok(b"none".to_vec()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Asks `fs` all possible questions about `paths`, and about all names listed in its directories.
pub fn answers(fs: &FileSystem, paths: &BTreeSet<String>) -> Answers {
    let mut answers = Answers::new();
    let mut listed: Vec<(u64, String)> = vec![(ROOT, String::new())];
    for path in paths {
        let ino = fs.resolve(path.as_bytes());
        answers.insert(
            format!("ino:{path}"),
            answer(ino.as_ref().map(|ino| ino.to_le_bytes().to_vec()).map_err(copy)),
        );
        if let Ok(ino) = ino {
            file(fs, ino, path, &mut answers);
        }
    }
    while let Some((directory, path)) = listed.pop() {
        let mut names = Vec::new();
        let mut inos = Vec::new();
        let result = fs.list(directory, None, |name, entry| {
            if name != LATER {
                names.extend_from_slice(format!("{:?} {entry:?}\n", name).as_bytes());
                inos.push((entry.ino, format!("{path}/{}", String::from_utf8_lossy(name))));
            }
            ControlFlow::Continue(())
        });
        let is_directory = !matches!(result, Err(FsError::NotDirectory));
        if is_directory {
            answers.insert(format!("names:{path}"), answer(result.map(|_| names)));
            let mut names = Vec::new();
            let result = fs.list_from(directory, Position::START, |position, name, entry| {
                if name != LATER {
                    names.extend_from_slice(format!("{position:?} {name:?} {entry:?}\n").as_bytes());
                }
                ControlFlow::Continue(())
            });
            answers.insert(format!("positions:{path}"), answer(result.map(|_| names)));
        }
        for (ino, path) in inos {
            file(fs, ino, &path, &mut answers);
            listed.push((ino, path));
        }
    }
    answers
}

/// Copies the error, which cannot be cloned.
fn copy(error: &FsError) -> FsError {
    match error {
        FsError::NotFound => FsError::NotFound,
        other => FsError::Account(other.to_string()),
    }
}

fn file(fs: &FileSystem, ino: u64, path: &str, answers: &mut Answers) {
    let attributes = fs.attributes(ino);
    let size = attributes.as_ref().map_or(0, |attributes| attributes.size);
    answers.insert(format!("attributes:{path}"), answer(attributes.map(|a| format!("{a:?}").into_bytes())));
    for block in 0..size.div_ceil(BLOCK) {
        let mut bytes = vec![0xEE; BLOCK as usize];
        let read = fs.read(&impatient(), ino, block * BLOCK, Target::Bytes(&mut bytes));
        let read = read.map(|length| {
            bytes.truncate(length as usize);
            bytes
        });
        if !matches!(read, Err(FsError::IsDirectory | FsError::Invalid(_))) {
            answers.insert(format!("data:{path}#{block}"), answer(read));
        }
    }
    match fs.target(ino) {
        Err(FsError::Invalid(_)) => {}
        target => drop(answers.insert(format!("target:{path}"), answer(target))),
    }
    let names = fs.xattrs(ino);
    for name in names.as_ref().into_iter().flatten() {
        let value = answer(fs.xattr(ino, name));
        answers.insert(format!("xattr:{path}:{}", String::from_utf8_lossy(name)), value);
    }
    answers.insert(format!("xattrs:{path}"), answer(names.map(|names| names.concat())));
}

/// Returns an answer in `seen` that contradicts `synced`. Errors are not answers. A question that
/// was never asked follows from an error at a name above it.
pub fn difference(seen: &Answers, synced: &Answers) -> Option<String> {
    seen.iter().find_map(|(question, answer)| {
        let answer = answer.as_ref().ok()?;
        match synced.get(question) {
            Some(Ok(value)) if value == answer => None,
            Some(Ok(value)) => Some(format!("{question} is {}, not {}", brief(answer), brief(value))),
            _ => Some(format!("{question} is {}, and was never there", brief(answer))),
        }
    })
}

/// Errors returned to the reader.
pub fn errors(seen: &Answers) -> impl Iterator<Item = (&String, &String)> {
    seen.iter().filter_map(|(question, answer)| Some((question, answer.as_ref().err()?)))
}

fn brief(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(300).collect();
    let is_text = text.chars().all(|c| !c.is_control() || c == '\n');
    if is_text { text } else { format!("{} bytes, {:02x?}", bytes.len(), &bytes[..bytes.len().min(8)]) }
}

/// The synced states that are consistent with all observations of a case.
pub struct Judge<'a> {
    states: &'a [Answers],
    first: usize,
    left: BTreeSet<usize>,
}

/// Defect of an observation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Not a state that was synced.
    Silent(String),
    /// A synced state, but not the one of an earlier observation.
    Permanent(String),
}

impl<'a> Judge<'a> {
    /// Accepts all of `states` from `first` on.
    pub fn new(states: &'a [Answers], first: usize) -> Judge<'a> {
        Judge { states, first, left: (first..states.len()).collect() }
    }

    /// Adds an observation.
    pub fn observe(&mut self, seen: &Answers, when: &str) -> Result<(), Fault> {
        let agrees = |state: &usize| difference(seen, &self.states[*state]).is_none();
        let now: BTreeSet<usize> = self.left.iter().copied().filter(agrees).collect();
        if now.is_empty() {
            let last = self.states.len() - 1;
            let nearest = self.left.last().copied().unwrap_or(last);
            let why = difference(seen, &self.states[nearest]).unwrap_or_default();
            let matching: Vec<usize> = (0..=last).filter(agrees).collect();
            let why = format!("{when}: {why}; states left {:?}, it is {matching:?} of {last}", self.left);
            let was_possible = matching.last().is_some_and(|state| *state >= self.first);
            return Err(if was_possible { Fault::Permanent(why) } else { Fault::Silent(why) });
        }
        self.left = now;
        Ok(())
    }

    /// The states that are consistent with all observations.
    pub fn left(&self) -> impl Iterator<Item = &Answers> {
        self.left.iter().map(|state| &self.states[*state])
    }

    /// True if the observations are consistent with the newest state.
    pub fn is_newest(&self) -> bool {
        self.left.contains(&(self.states.len() - 1))
    }
}

/// Losses of a file as reported by a repair.
#[derive(Clone, Copy, Default, Debug)]
pub struct LostOf {
    pub attributes: bool,
    /// For a symbolic link, the target.
    pub extents: bool,
    /// Possibly some.
    pub xattrs: bool,
}

/// Fields of attributes that are derived from other rows and recounted.
const COUNTED: [&str; 5] = ["links", "blocks", "parent", "position", "next_position"];

fn own_fields(attributes: &[u8]) -> String {
    let text = String::from_utf8_lossy(attributes).into_owned();
    let is_counted = |field: &&str| COUNTED.iter().any(|name| field.trim().starts_with(&format!("{name}:")));
    text.split(", ").filter(|field| !is_counted(field)).collect::<Vec<_>>().join(", ")
}

/// Returns an answer in `seen` that is wrong after a repair of lost pages: neither equal to that in
/// `synced`, nor an error, nor reported as lost.
pub fn salvage_difference(
    seen: &Answers,
    synced: &Answers,
    are_names_lost: bool,
    lost_of: impl Fn(&str) -> LostOf,
) -> Option<String> {
    seen.iter().find_map(|(question, answer)| {
        let (facet, path) = question.split_once(':')?;
        let path = path.trim_start_matches('/');
        if path.starts_with("lost+found") {
            return None;
        }
        let lost = lost_of(path.split(['#', ':']).next().unwrap_or(path));
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) if matches!(facet, "data" | "target") && (lost.attributes || lost.extents) => return None,
            Err(error) => return Some(format!("{question} is {error}")),
        };
        let Some(Ok(value)) = synced.get(question) else {
            return (!lost.attributes).then(|| format!("{question} was never there: {}", brief(answer)));
        };
        let is_right = match facet {
            _ if answer == value => true,
            "attributes" => lost.attributes || own_fields(answer) == own_fields(value),
            // Lists of names. Some may be missing, and `lost+found` may have been added.
            "names" | "positions" => {
                let lines = String::from_utf8_lossy(value);
                let lines: BTreeSet<&str> = lines.lines().collect();
                let seen = String::from_utf8_lossy(answer);
                seen.lines().all(|line| {
                    lines.contains(line) || line.contains(r#""lost+found""#) || {
                        format!("{line:?}").contains("108, 111, 115, 116, 43")
                    }
                }) && (are_names_lost || seen.lines().count() >= lines.len())
            }
            "data" => {
                lost.attributes && answer.starts_with(value) && answer[value.len()..].iter().all(|b| *b == 0)
            }
            // A file without its name cannot be found, and no other questions about it are asked.
            "ino" => answer == b"none" && are_names_lost,
            "xattr" => answer == b"none" && lost.xattrs,
            "xattrs" => lost.xattrs,
            _ => false,
        };
        (!is_right).then(|| format!("{question} is {}, not {}", brief(answer), brief(value)))
    })
}
