//! Client side.

use super::place::{self, SocketState};
use super::{
    ANSWER_BYTES_MAX, ANSWER_TIME_MAX, Answer, ControlError, Query, ScrubQuery, VolumeFacts, ZoneFacts,
};
use crate::badblocks::BadRange;
use crate::changes::ZoneSetting;
use crate::volume::{OptionChanges, PlugStatus, Statistics};
use std::io::{ErrorKind, Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Control socket and the process that serves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Path of the socket.
    pub path: PathBuf,
    /// Process ID, from the socket's name.
    pub pid: u32,
}

/// Lists the live control sockets of this user by process, and removes stale ones.
///
/// # Errors
/// [`ControlError`] if a directory for sockets cannot be read, or the only one is not private to
/// this user.
pub fn list() -> Result<Vec<Endpoint>, ControlError> {
    let (mut found, mut wrong, mut is_any) = (Vec::new(), None, false);
    for dir in place::directories().iter().filter(|dir| dir.symlink_metadata().is_ok()) {
        match place::private_directory(dir) {
            Ok(()) => {
                found.append(&mut list_in(dir)?);
                is_any = true;
            }
            // Another user can create this directory in /tmp, but must not hide the others.
            Err(error) => wrong = Some(error),
        }
    }
    found.sort_by(|a, b| (a.pid, &a.path).cmp(&(b.pid, &b.path)));
    match wrong {
        Some(error) if !is_any => Err(error),
        _ => Ok(found),
    }
}

pub(super) fn list_in(dir: &Path) -> Result<Vec<Endpoint>, ControlError> {
    let entries =
        std::fs::read_dir(dir).map_err(|e| ControlError::io(dir, "cannot read the directory", e))?;
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(pid) = path.file_name().and_then(|n| n.to_str()).and_then(place::pid_of) else { continue };
        match place::probe(&path) {
            SocketState::Living => found.push(Endpoint { path, pid }),
            SocketState::Stale => {
                place::remove_stale(&path);
            }
            SocketState::Nothing | SocketState::Other => {}
        }
    }
    found.sort_by(|a, b| (a.pid, &a.path).cmp(&(b.pid, &b.path)));
    Ok(found)
}

/// Returns the active plugs of the volume served at `path`.
///
/// # Errors
/// As for [`ask`].
pub fn plugs(path: &Path) -> Result<Vec<PlugStatus>, ControlError> {
    match ask(path, Query::Plugs)? {
        Answer::Plugs(plugs) => Ok(plugs),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Returns the live counters of the volume served at `path`.
///
/// # Errors
/// As for [`ask`].
pub fn stat(path: &Path) -> Result<Statistics, ControlError> {
    match ask(path, Query::Stat)? {
        Answer::Stat(statistics) => Ok(statistics),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Returns device and write mode of the volume served at `path`.
///
/// # Errors
/// As for [`ask`].
pub fn info(path: &Path) -> Result<VolumeFacts, ControlError> {
    match ask(path, Query::Info)? {
        Answer::Info(facts) => Ok(*facts),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Returns the state of the file system on the volume served at `path`, if there is one.
///
/// # Errors
/// As for [`ask`].
pub fn files(path: &Path) -> Result<Option<serde_json::Value>, ControlError> {
    match ask(path, Query::Files)? {
        Answer::Files(files) => Ok(files),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Returns the connections of hosts, rings and queues of the volume served at `path`, if it is
/// exported.
///
/// # Errors
/// As for [`ask`].
pub fn connections(path: &Path) -> Result<Option<serde_json::Value>, ControlError> {
    match ask(path, Query::Connections)? {
        Answer::Connections(connections) => Ok(connections),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Passes an order to the scrub of the mount served at `path` and returns its progress, or `None`
/// if nothing is mounted.
///
/// # Errors
/// As for [`ask`].
pub fn scrub(path: &Path, query: ScrubQuery) -> Result<Option<serde_json::Value>, ControlError> {
    match ask(path, Query::Scrub(query))? {
        Answer::Scrub(scrub) => Ok(scrub),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Changes options of the volume served at `path` and waits until they are in force. If commands in
/// flight take longer than [`SWITCH_TIME_MAX`](super::SWITCH_TIME_MAX), the change is returned as
/// [pending](VolumeFacts::pending).
///
/// # Errors
/// As for [`ask`]; also [`ControlError::Refused`] if the volume does not support the mode or cannot
/// change an option.
pub fn set_options(path: &Path, changes: &OptionChanges) -> Result<VolumeFacts, ControlError> {
    match ask(path, Query::Set { options: changes.to_string() })? {
        Answer::Info(facts) => Ok(*facts),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Sets the condition of zones of the emulated device below the volume served at `path`.
///
/// # Errors
/// As for [`ask`]; also [`ControlError::Refused`] if a zone cannot be set. The zones before it
/// remain set.
pub fn set_zones(path: &Path, zones: RangeInclusive<u32>, to: ZoneSetting) -> Result<(), ControlError> {
    let (first, last) = zones.into_inner();
    match ask(path, Query::Zone { first, last, set: to })? {
        Answer::Zone(_) => Ok(()),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Makes `change`, if any, to the bad blocks of the emulated device of the socket at `path`. Returns
/// the first and last sector of each bad range.
///
/// # Errors
/// As for [`ask`]; also [`ControlError::Refused`] if the device cannot make the change.
pub fn badblocks(path: &Path, change: Option<BadRange>) -> Result<Vec<(u64, u64)>, ControlError> {
    match ask(path, Query::Badblocks { change: change.map(|change| change.to_string()) })? {
        Answer::Badblocks(ranges) => Ok(ranges),
        other => Err(unexpected_answer(path, &other)),
    }
}

/// Describes up to `count` zones, at most [`ZONES_MAX`](super::ZONES_MAX), of the device of the socket at `path`, from zone `first` on.
///
/// # Errors
/// As [`ask`]; [`ControlError::Refused`] also if the device fails the report or lives in virtual time.
pub fn zones(path: &Path, first: u32, count: u32) -> Result<Vec<ZoneFacts>, ControlError> {
    match ask(path, Query::Zones { first, count })? {
        Answer::Zones(zones) => Ok(zones),
        other => Err(unexpected_answer(path, &other)),
    }
}

fn unexpected_answer(path: &Path, answer: &Answer) -> ControlError {
    let what = match answer {
        Answer::Error(what) => return ControlError::Refused { path: path.to_owned(), what: what.clone() },
        Answer::Plugs(_) => "unexpected answer: plugs",
        Answer::Stat(_) => "unexpected answer: counters",
        Answer::Info(_) => "unexpected answer: a device",
        Answer::Zones(_) => "unexpected answer: zones",
        Answer::Zone(_) => "unexpected answer: zones set",
        Answer::Badblocks(_) => "unexpected answer: bad blocks",
        Answer::Files(_) => "unexpected answer: a file system",
        Answer::Connections(_) => "unexpected answer: connections",
        Answer::Scrub(_) => "unexpected answer: a scrub",
    };
    ControlError::Malformed { path: path.to_owned(), what: what.to_owned() }
}

/// Sends one query to the socket at `path` and waits for the answer, at most [`ANSWER_TIME_MAX`].
///
/// # Errors
/// [`ControlError`] if there is no answer, or it cannot be parsed. [`Answer::Error`] counts as an
/// answer.
pub fn ask(path: &Path, query: Query) -> Result<Answer, ControlError> {
    let deadline = Instant::now() + ANSWER_TIME_MAX;
    let line = exchange(path, query, deadline)?;
    serde_json::from_slice(&line)
        .map_err(|e| ControlError::Malformed { path: path.to_owned(), what: e.to_string() })
}

fn exchange(path: &Path, query: Query, deadline: Instant) -> Result<Vec<u8>, ControlError> {
    let fail = |doing| {
        move |e: std::io::Error| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ControlError::TimedOut { path: path.to_owned() },
            _ => ControlError::io(path, doing, e),
        }
    };
    let fd = place::connect(path, ANSWER_TIME_MAX).map_err(fail("cannot connect"))?;
    let mut stream = UnixStream::from(fd);
    let mut question = serde_json::to_vec(&query).expect("a question without maps or floats");
    question.push(b'\n');
    stream.write_all(&question).map_err(fail("cannot ask"))?;

    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        // A timeout of zero would wait forever.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).map_err(fail("cannot set a timeout"))?;
        let n = match stream.read(&mut piece) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(fail("cannot read the answer")(e)),
        };
        answer.extend_from_slice(&piece[..n]);
        if let Some(end) = piece[..n].iter().position(|&b| b == b'\n') {
            answer.truncate(answer.len() - n + end);
            return Ok(answer);
        }
        let malformed = |what: &str| ControlError::Malformed { path: path.to_owned(), what: what.to_owned() };
        if n == 0 {
            return Err(malformed("incomplete line"));
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(malformed("line too long"));
        }
        if Instant::now() >= deadline {
            return Err(ControlError::TimedOut { path: path.to_owned() });
        }
    }
}
