//! A file system in the form that leaves the process, for programs: sizes in bytes, zones by index.
//!
//! docs/FS.md says what each field is.

use super::core::Shared;
use super::scrub::Scrub;
use crate::BLOCK_BYTES;
use crate::space::victims::{Histogram, Reason};
use crate::space::zone::ZoneState;
use crate::space::{self, Lifetime, Owner};
use zonal_core::ZoneIndex;

/// A file system and its space.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// Its name for itself, in hexadecimal digits.
    pub uuid: String,
    /// Its name for people.
    pub label: String,
    /// Bytes of data that files can ever have.
    pub size: u64,
    /// Bytes of these that are free or can be freed.
    pub free: u64,
    /// Bytes that can be written before zones have to be collected.
    pub available: u64,
    /// Bytes of data that files have.
    pub used: u64,
    /// Bytes of data in zones that became read-only, which are moved elsewhere.
    pub read_only_bytes: u64,
    /// Bytes of data that are lost with zones that are offline.
    pub offline_bytes: u64,
    /// Zones for data, by what they are.
    pub zones: ZoneCounts,
    /// Zones that are being written.
    pub open_zones: Vec<OpenZoneStatus>,
    /// Full zones by tenths of the live data from which on collecting a zone gains nothing, and then zones from there on.
    pub victims: Histogram,
    /// How often zones for data were reset.
    pub resets: Resets,
    /// The scrub that was kept last, if there was one.
    pub scrub: Option<Scrub>,
    /// Why nothing is changed any more.
    pub read_only: Option<String>,
    /// What has happened since it was opened; nothing if it is only looked at.
    pub activity: Option<Activity>,
}

/// Zones for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ZoneCounts {
    /// All.
    pub total: u32,
    /// Empty.
    pub free: u32,
    /// Being written.
    pub open: u32,
    /// Written, with live data.
    pub full: u32,
    /// Without live data, to be reset.
    pub dead: u32,
    /// That can only be read.
    pub read_only: u32,
    /// That are lost.
    pub offline: u32,
    /// Most that may be open at once, the collector's included.
    pub open_max: u32,
}

/// A zone that is written.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct OpenZoneStatus {
    /// Its index.
    pub zone: u32,
    /// Whose it is: `user` or `collector`.
    pub owner: String,
    /// How long its data is expected to live.
    pub lifetime: String,
    /// Bytes that can be written.
    pub capacity: u64,
    /// Bytes that are written, headers included.
    pub written: u64,
    /// Live data.
    pub used: u64,
}

/// Resets since the file system was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Resets {
    /// Of all zones.
    pub total: u64,
    /// Of the zone with the fewest.
    pub least: u32,
    /// Of the zone with the most.
    pub most: u32,
    /// The first zone with the most; none if no zone was reset.
    pub most_zone: Option<u32>,
}

/// What a file system has done since it was opened.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Activity {
    /// Data written for users.
    pub written_bytes: u64,
    /// Data that the collector copied.
    pub moved_bytes: u64,
    /// Data of this that came too late: the file had been written or was gone.
    pub moved_late_bytes: u64,
    /// Data written, by users and the collector, for each byte of users.
    pub write_amplification: f64,
    /// Zones that were collected.
    pub victims: u64,
    /// Live data in them when they were chosen.
    pub victims_bytes: u64,
    /// Why the collector has to run now.
    pub reason: Option<String>,
    /// Why it ran last.
    pub last_reason: Option<String>,
    /// Zones that were reset.
    pub resets: u64,
    /// Commits of metadata.
    pub commits: u64,
    /// Writers that had to wait for space.
    pub stalls: u64,
    /// How long they waited together, in nanoseconds.
    pub stalled_ns: u64,
    /// The longest wait, in nanoseconds.
    pub stall_max_ns: u64,
    /// Writers that wait now.
    pub waiting: u32,
    /// Units that failed, and went to another zone or were given up.
    pub failed_units: u64,
    /// Blocks that the collector could not read or verify.
    pub damaged_blocks: u64,
}

fn bytes(blocks: impl Into<u64>) -> u64 {
    blocks.into() * u64::from(BLOCK_BYTES)
}

impl Shared {
    /// The status of this moment. It takes in no answers: threads that use the file system do that.
    pub(super) fn status(&self) -> Status {
        let scrub = self.kept_scrub().ok().flatten();
        let core = self.core.lock();
        let usage = core.usage();
        let low_space = self.options.low_space_percent;
        let space_of_files = self.space.lock();
        let (space, book) = (space_of_files.statistics(low_space), &space_of_files.book);
        let count = |state| book.count(state);
        let zones = ZoneCounts {
            total: usage.zones,
            free: space.free,
            open: count(ZoneState::Open),
            full: count(ZoneState::Full),
            dead: space.dead,
            read_only: count(ZoneState::ReadOnly),
            offline: count(ZoneState::Offline),
            open_max: space.open_max,
        };
        let ours = book.iter().filter(|(_, zone)| zone.state != ZoneState::Reserved);
        let least = ours.map(|(zone, _)| book.resets(zone)).min().unwrap_or(0);
        let resets = Resets {
            total: space.resets,
            least,
            most: space.resets_max.map_or(0, |(_, most)| most),
            most_zone: space.resets_max.map(|(ZoneIndex(zone), _)| zone),
        };
        Status {
            uuid: self.superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
            label: self.superblock.label.clone(),
            size: bytes(usage.blocks),
            free: bytes(usage.free),
            available: bytes(usage.available),
            used: bytes(usage.used),
            read_only_bytes: bytes(usage.read_only),
            offline_bytes: bytes(usage.offline),
            zones,
            open_zones: space.open.iter().map(OpenZoneStatus::of).collect(),
            victims: space.histogram,
            resets,
            scrub,
            read_only: core.dead.clone(),
            activity: Some(Activity::of(&core.statistics, &space)),
        }
    }
}

impl OpenZoneStatus {
    fn of(view: &space::OpenView) -> OpenZoneStatus {
        let owner = match view.open.owner {
            Owner::User => "user",
            Owner::Gc => "collector",
        };
        OpenZoneStatus {
            zone: view.open.opened.zone.0,
            owner: owner.to_owned(),
            lifetime: name(view.open.hint).to_owned(),
            capacity: bytes(view.capacity),
            written: bytes(view.written),
            used: bytes(view.used),
        }
    }
}

/// As it is set with `fcntl(F_SET_RW_HINT)`.
fn name(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::NotSet => "not set",
        Lifetime::None => "none",
        Lifetime::Short => "short",
        Lifetime::Medium => "medium",
        Lifetime::Long => "long",
        Lifetime::Extreme => "extreme",
    }
}

impl Activity {
    fn of(counted: &super::Statistics, space: &space::Statistics) -> Activity {
        Activity {
            written_bytes: bytes(counted.written_blocks),
            moved_bytes: bytes(counted.gc_blocks),
            moved_late_bytes: bytes(counted.gc_skipped_blocks),
            write_amplification: counted.write_amplification(),
            victims: counted.gc_victims,
            victims_bytes: bytes(counted.gc_victims_blocks),
            reason: space.gc.map(describe),
            last_reason: counted.reason.map(describe),
            resets: counted.resets,
            commits: counted.commits,
            stalls: counted.stalls,
            stalled_ns: counted.stalled_nanos,
            stall_max_ns: counted.stall_nanos_max,
            waiting: space.waiting,
            failed_units: counted.failed_units,
            damaged_blocks: counted.damaged_blocks,
        }
    }
}

/// Why the collector runs, in words.
fn describe(reason: Reason) -> String {
    let mib = |blocks: u64| bytes(blocks) >> 20;
    match reason {
        Reason::Low { available, wanted } => {
            format!("{} MiB can be written, {} MiB are wanted", mib(available), mib(wanted))
        }
        Reason::Percent { available, free, percent } => {
            let (available, free) = (mib(available), mib(free));
            format!("{available} MiB can be written, less than {percent}% of {free} MiB that are free")
        }
        Reason::Forced => "it was asked for".to_owned(),
        Reason::ReadOnlyZone => "a zone became read-only".to_owned(),
    }
}
