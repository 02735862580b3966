//! Control socket: access to an open volume from other processes.
//!
//! A [`ControlServer`] answers queries about one [`Volume`](crate::Volume) on a Unix socket that
//! only its owner can open. A client sends a line of JSON and receives a line of JSON, as often as
//! it likes. It has two seconds to send each query, after connecting or after the previous answer:
//!
//! ```text
//! {"request":"plugs"}   {"plugs":[{"zone":12,"flags":1,...},...]}
//! {"request":"stat"}    {"stat":{"requests":4096,...}}
//! {"request":"info"}    {"info":{"pid":4711,"mode":"per-zone","reason":"...","device":{...}}}
//! {"request":"files"}   {"files":{...}}: state of the file system on the volume, or null if there is none
//! {"request":"connections"}    {"connections":[...]}: hosts, virtual machines and the kernel that the volume is exported to, or null
//! {"request":"scrub","order":"start","share":25,"from":0}    {"scrub":{...}}: its progress, or null if no mount can be scrubbed
//! {"request":"set","options":"mode=qd1 merge=no"}    as for "info", once the options are in force
//! {"request":"zones","first":0,"count":9}    {"zones":[{"zone":0,"type":"sequential","condition":"EMPTY",...},...]}, at most 4096 of them
//! {"request":"zone","first":3,"last":5,"set":"read-only"}    {"zone":"read-only"}, once the zones of an emulated device are set
//! {"request":"badblocks","change":"+8-15"}    {"badblocks":[[8,15],...]}: bad blocks of an emulated device; "change":null changes none
//! anything else         {"error":"unknown variant ..."}
//! ```
//!
//! Owns the socket file and one thread. Owns no state of the volume, and can change only the
//! volume's options, and the zones and bad blocks of an emulated device.
//!
//! # Access
//! The socket has mode 0600 from the moment it exists, and by default is in a directory of mode
//! 0700 ([`directory`]), so only the owner and root can reach it. Input is bounded and checked
//! nevertheless: an invalid line is answered with an error, and a line that is too long or too slow
//! ends its connection. Clients are served in turn, one query each, so a client that is silent or
//! does not read its answer delays no other.
//!
//! # Virtual time
//! The server's thread does not have the time of a volume used by a run in virtual time. Such a run
//! executes the server's [`Errands`] between its polls, so queries are answered and options changed
//! at a defined moment of the run's time.
//!
//! # Stale sockets
//! A killed process does not remove its socket. [`list`] and the next [`ControlServer`] remove
//! sockets that refuse a connection and whose process, given in the file name, is gone. Both are
//! required, because a socket refuses connections for an instant between its creation and the first
//! `listen`.

mod client;
mod errands;
mod facts;
mod place;
mod server;

pub use client::{
    Endpoint, ask, badblocks, connections, files, info, list, plugs, scrub, set_options, set_zones, stat,
    zones,
};
pub use errands::{ErrandGuard, Errands};
pub use facts::{DeviceFacts, OptionFacts, VolumeFacts, ZoneFacts};
pub use place::directory;
pub use server::{ControlServer, ScrubHandler, StatusSource};

use crate::changes::ZoneSetting;
use crate::volume::{PlugStatus, Statistics};
use std::path::PathBuf;
use std::time::Duration;

/// Maximum length of a query in bytes. Known queries have fewer than a hundred, apart
/// from options.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// Maximum length of an answer accepted by a client: the plugs of two million zones.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Maximum number of zones in an answer to [`Query::Zones`].
pub const ZONES_MAX: u32 = 4096;

/// Time after which a server closes a connection if its client sends no query or does not read its
/// answer.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(2);

/// Time that a client waits for an answer: enough for a few queries ahead of it.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);

/// Time that a server waits for options to take effect. Some take effect only when nothing is in
/// flight.
pub const SWITCH_TIME_MAX: Duration = Duration::from_secs(1);

/// Time that a server waits for a run to execute its errands, because a task of the run may first
/// have to allocate a thousand buffers. Shorter than the time that a client waits.
pub const ERRAND_TIME_MAX: Duration = Duration::from_secs(5);

/// Query to a control socket.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Query {
    /// Active plugs.
    Plugs,
    /// Live counters.
    Stat,
    /// Device and write mode.
    Info,
    /// File system on the volume.
    Files,
    /// Connections of hosts, rings of virtual machines, and queues of block devices.
    Connections,
    /// Starts or stops a scrub of the file system on the volume, or reports its progress.
    Scrub(ScrubQuery),
    /// Changes options.
    Set {
        /// Names and values, as parsed by [`OptionChanges`](crate::volume::OptionChanges).
        options: String,
    },
    /// Descriptors of at most [`ZONES_MAX`] zones, of a device in real time.
    Zones {
        /// First zone.
        first: u32,
        /// Number of zones.
        count: u32,
    },
    /// Sets the condition of zones of an emulated device.
    Zone {
        /// First zone.
        first: u32,
        /// Last zone.
        last: u32,
        /// New condition.
        set: ZoneSetting,
    },
    /// Lists the bad blocks of an emulated device.
    Badblocks {
        /// Change to make before, as parsed by [`BadRange`](crate::badblocks::BadRange).
        change: Option<String>,
    },
}

/// Query about a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ScrubQuery {
    /// Order.
    pub order: ScrubOrder,
    /// Share of the drive's time to use, 1 to 100 percent.
    pub share: u8,
    /// Number of findings that the caller already has, which are left out.
    pub from: u64,
}

/// Order to a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubOrder {
    /// Start, or continue where it stopped. A running scrub gets the new share.
    Start,
    /// Start from the beginning.
    Restart,
    /// Stop, keeping the position.
    Stop,
    /// Only report the progress.
    Look,
}

/// Answer to a query.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Answer {
    /// Answer to [`Query::Plugs`].
    Plugs(Vec<PlugStatus>),
    /// Answer to [`Query::Stat`].
    Stat(Statistics),
    /// Answer to [`Query::Info`] and [`Query::Set`].
    Info(Box<VolumeFacts>),
    /// Answer to [`Query::Files`], in the file system's format.
    Files(Option<serde_json::Value>),
    /// Answer to [`Query::Connections`], in the export's format.
    Connections(Option<serde_json::Value>),
    /// Answer to [`Query::Scrub`], in the mount's format.
    Scrub(Option<serde_json::Value>),
    /// Answer to [`Query::Zones`].
    Zones(Vec<ZoneFacts>),
    /// Answer to [`Query::Zone`]: the condition that was set.
    Zone(ZoneSetting),
    /// Answer to [`Query::Badblocks`]: first and last sector of each bad range.
    Badblocks(Vec<(u64, u64)>),
    /// Answer to an invalid or failed query.
    Error(String),
}

/// Error of opening or querying a control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The directory for sockets is not private to the caller.
    #[error("{}: cannot be used for control sockets: {what}", .path.display())]
    Directory {
        /// Directory.
        path: PathBuf,
        /// Problem with it.
        what: String,
    },
    /// The path is used by a running server, or is not a socket.
    #[error("{}: in use", .path.display())]
    InUse {
        /// Path.
        path: PathBuf,
    },
    /// An operating system call failed.
    #[error("{}: {doing}: {source}", .path.display())]
    Io {
        /// Socket or directory.
        path: PathBuf,
        /// Action that failed.
        doing: &'static str,
        /// Cause.
        source: std::io::Error,
    },
    /// The server's thread cannot be started.
    #[error("{}: {source}", .path.display())]
    Thread {
        /// Socket.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The server did not answer in time.
    #[error("{}: no answer within {} s", .path.display(), ANSWER_TIME_MAX.as_secs())]
    TimedOut {
        /// Socket.
        path: PathBuf,
    },
    /// This version cannot parse the answer.
    #[error("{}: cannot read the answer: {what}", .path.display())]
    Malformed {
        /// Socket.
        path: PathBuf,
        /// Problem with the answer.
        what: String,
    },
    /// The server rejected the query.
    #[error("{}: request refused: {what}", .path.display())]
    Refused {
        /// Socket.
        path: PathBuf,
        /// Error text of the server.
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
