//! The control socket: how another process looks into an open volume.
//!
//! A [`ControlServer`] answers questions about one [`Volume`](crate::Volume) on a Unix socket that only its owner can
//! open. A client sends a line of JSON and gets a line of JSON, as often as it likes, with two seconds at most between a connect or an
//! answer and the next question:
//!
//! ```text
//! {"request":"plugs"}   {"plugs":[{"zone":12,"flags":1,...},...]}
//! {"request":"stat"}    {"stat":{"requests":4096,...}}
//! {"request":"info"}    {"info":{"pid":4711,"mode":"per-zone","reason":"...","device":{...}}}
//! {"request":"files"}   {"files":{...}}, the words of the file system on the volume, or null where there is none
//! {"request":"connections"}    {"connections":[...]}, those of hosts, machines and a kernel that the volume is exported to, or null where it is not
//! {"request":"scrub","order":"start","share":25,"from":0}    {"scrub":{...}}, how it stands, or null where no mount can be scrubbed
//! {"request":"set","options":"mode=qd1 merge=no"}    as to "info", once the options are in force
//! {"request":"zones","first":0,"count":9}    {"zones":[{"zone":0,"type":"sequential","condition":"EMPTY",...},...]}, at most 4096 of them
//! {"request":"zone","first":3,"last":5,"set":"read-only"}    {"zone":"read-only"}, once the zones of an emulated device are
//! anything else         {"error":"unknown variant ..."}
//! ```
//!
//! Owns the socket's file and one thread. Owns no state of the volume; all it can change are the volume's options, and the
//! zones of an emulated device.
//!
//! # Who may ask
//! The socket has mode 0600 from the moment it exists, and by default lies in a directory of mode 0700 ([`directory`]),
//! so only the owner and root reach it. What comes over it is bounded and checked all the same: a bad line is
//! answered by an error, and a line that is too long or too slow ends its connection. Clients are served side by side, a question of
//! each in turn, so one that is silent or takes no answer keeps no other waiting.
//!
//! # In whose time
//! A thread of the server does not know the time of a volume that a run in virtual time has to itself. Such a run does the
//! server's [`Errands`] between its polls: questions are asked, and options change, at one moment of the run's time.
//!
//! # Sockets without a process
//! A killed process does not remove its socket. [`list`] and the next [`ControlServer`] remove those that refuse a
//! connection and whose process, named in the file name, is gone. Both have to hold: a socket refuses for an instant
//! between its creation and the first `listen`.

mod client;
mod errands;
mod facts;
mod place;
mod server;

pub use client::{
    Endpoint, ask, connections, files, info, list, plugs, scrub, set_options, set_zones, stat, zones,
};
pub use errands::{Attendance, Errands};
pub use facts::{DeviceFacts, OptionFacts, VolumeFacts, ZoneFacts};
pub use place::directory;
pub use server::{ControlServer, ScrubTeller, Teller};

use crate::changes::ZoneSetting;
use crate::volume::{PlugStatus, Statistics};
use std::path::PathBuf;
use std::time::Duration;

/// Longest question, in bytes. The known ones have 20 or so.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// Longest answer that a client takes: the plugs of two million zones.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Most zones in an answer to [`Query::Zones`].
pub const ZONES_MAX: u32 = 4096;

/// How long a server keeps a connection whose client sends no question, or takes no answer.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a client waits for an answer: long enough for a few questions before it.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);

/// How long a server waits for options to take effect: for some, what is in flight has to end first.
pub const SWITCH_TIME_MAX: Duration = Duration::from_secs(1);

/// How long a server waits for a run that does its errands to look at them: a task of it may make a thousand buffers first. It is
/// shorter than a client's patience.
pub const ERRAND_TIME_MAX: Duration = Duration::from_secs(5);

/// What can be asked.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Query {
    /// The active plugs.
    Plugs,
    /// The live counters.
    Stat,
    /// The device and the write mode.
    Info,
    /// The file system on the volume.
    Files,
    /// The connections of hosts, rings of virtual machines, and queues of block devices.
    Connections,
    /// To scrub the file system on the volume, or to look how far that is.
    Scrub(ScrubQuery),
    /// To change options.
    Set {
        /// Names and values, as [`OptionChanges`](crate::volume::OptionChanges) reads them.
        options: String,
    },
    /// Descriptors of at most [`ZONES_MAX`] zones, of a device in real time.
    Zones {
        /// First zone.
        first: u32,
        /// Number of zones.
        count: u32,
    },
    /// To set zones of an emulated device.
    Zone {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
        /// What becomes of them.
        set: ZoneSetting,
    },
}

/// What is asked of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ScrubQuery {
    /// What to do.
    pub order: ScrubOrder,
    /// Percent of the drive's time that it takes, 1 to 100.
    pub share: u8,
    /// Findings that the caller has heard of before, which are left out.
    pub from: u64,
}

/// What a scrub is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubOrder {
    /// To begin, or to continue where it stopped. A scrub that runs gets the new share.
    Start,
    /// The same, from the beginning.
    Restart,
    /// To stop, and to keep where it is.
    Stop,
    /// Nothing: to say how it stands.
    Look,
}

/// What is answered.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Answer {
    /// To [`Query::Plugs`].
    Plugs(Vec<PlugStatus>),
    /// To [`Query::Stat`].
    Stat(Statistics),
    /// To [`Query::Info`] and [`Query::Set`].
    Info(Box<VolumeFacts>),
    /// To [`Query::Files`], in the file system's own words.
    Files(Option<serde_json::Value>),
    /// To [`Query::Connections`], in the export's own words.
    Connections(Option<serde_json::Value>),
    /// To [`Query::Scrub`], in the mount's own words.
    Scrub(Option<serde_json::Value>),
    /// To [`Query::Zones`].
    Zones(Vec<ZoneFacts>),
    /// To [`Query::Zone`], what the zones are set to now.
    Zone(ZoneSetting),
    /// To what is no question.
    Error(String),
}

/// Why a control socket cannot be opened or gives no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The directory for sockets is not the caller's own.
    #[error("{}: not a directory for control sockets: {what}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The path is taken by a living server or by something that is no socket.
    #[error("{}: is in use", .path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {doing}: {source}", .path.display())]
    Io {
        /// The socket or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The refusal.
        source: std::io::Error,
    },
    /// The server's thread cannot be started.
    #[error("{}: {source}", .path.display())]
    Thread {
        /// The socket.
        path: PathBuf,
        /// The refusal.
        source: std::io::Error,
    },
    /// The server did not answer in time.
    #[error("{}: no answer within {} s", .path.display(), ANSWER_TIME_MAX.as_secs())]
    TimedOut {
        /// The socket.
        path: PathBuf,
    },
    /// This version does not understand the answer.
    #[error("{}: cannot read the answer: {what}", .path.display())]
    Malformed {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The server did not understand the question.
    #[error("{}: the process answers: {what}", .path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// Its words.
        what: String,
    },
}

impl ControlError {
    fn io(path: &std::path::Path, doing: &'static str, source: impl Into<std::io::Error>) -> ControlError {
        ControlError::Io { path: path.to_owned(), doing, source: source.into() }
    }
}

#[cfg(test)]
mod tests;
