//! Status of a file system as exported to programs: sizes in bytes, zones by index.
//!
//! The fields are documented in docs/FS.md.

use super::core::Shared;
use super::scrub::Scrub;
use crate::BLOCK_BYTES;
use crate::space::victims::{Histogram, Reason};
use crate::space::zone::ZoneState;
use crate::space::{self, Lifetime, Owner};
use zonal_core::ZoneIndex;

/// Status of a file system and its space.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// UUID, in hexadecimal digits.
    pub uuid: String,
    /// Label.
    pub label: String,
    /// Bytes of data that files can have in total.
    pub size: u64,
    /// Free or reclaimable bytes out of these.
    pub free: u64,
    /// Bytes that can be written before garbage collection is necessary.
    pub available: u64,
    /// Bytes of live data.
    pub used: u64,
    /// Bytes of live data in read-only zones, which will be moved elsewhere.
    pub read_only_bytes: u64,
    /// Bytes of data lost with offline zones.
    pub offline_bytes: u64,
    /// Zones for data, by state.
    pub zones: ZoneCounts,
    /// Zones being written.
    pub open_zones: Vec<OpenZoneStatus>,
    /// Histogram of full zones by live data, in tenths of the amount at which collecting a zone
    /// gains nothing. The last bin has the zones from there on.
    pub victims: Histogram,
    /// Resets of zones for data.
    pub resets: Resets,
    /// Last saved scrub, if there is one.
    pub scrub: Option<Scrub>,
    /// Reason for refusing all changes.
    pub read_only: Option<String>,
    /// Activity since the mount; `None` for an inspection.
    pub activity: Option<Activity>,
}

/// Numbers of zones for data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct ZoneCounts {
    /// All zones.
    pub total: u32,
    /// Empty zones.
    pub free: u32,
    /// Zones being written.
    pub open: u32,
    /// Full zones with live data.
    pub full: u32,
    /// Zones without live data, to be reset.
    pub dead: u32,
    /// Read-only zones.
    pub read_only: u32,
    /// Lost zones.
    pub offline: u32,
    /// Maximum number of open zones, including the collector's.
    pub open_max: u32,
}

/// Zone being written.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct OpenZoneStatus {
    /// Zone index.
    pub zone: u32,
    /// Owner: `user` or `collector`.
    pub owner: String,
    /// Expected lifetime of its data.
    pub lifetime: String,
    /// Capacity in bytes.
    pub capacity: u64,
    /// Bytes written, including headers.
    pub written: u64,
    /// Bytes of live data.
    pub used: u64,
}

/// Resets since the file system was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Resets {
    /// Total of all zones.
    pub total: u64,
    /// Number for the zone with the fewest.
    pub least: u32,
    /// Number for the zone with the most.
    pub most: u32,
    /// First zone with the most; `None` if no zone was reset.
    pub most_zone: Option<u32>,
}

/// Activity of a file system since the mount.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Activity {
    /// Data written for users.
    pub written_bytes: u64,
    /// Data copied by the collector.
    pub moved_bytes: u64,
    /// Copied data that was obsolete on completion: the file had been overwritten or deleted.
    pub moved_late_bytes: u64,
    /// Bytes written by users and the collector, divided by those of users.
    pub write_amplification: f64,
    /// Zones collected.
    pub victims: u64,
    /// Live data of victims when they were chosen.
    pub victims_bytes: u64,
    /// Reason why garbage collection is needed now.
    pub reason: Option<String>,
    /// Reason for the last garbage collection.
    pub last_reason: Option<String>,
    /// Zones reset.
    pub resets: u64,
    /// Commits of metadata.
    pub commits: u64,
    /// Number of writers that had to wait for space.
    pub stalls: u64,
    /// Total time of these waits, in nanoseconds.
    pub stalled_ns: u64,
    /// Longest of these waits, in nanoseconds.
    pub stall_max_ns: u64,
    /// Number of writers waiting now.
    pub waiting: u32,
    /// Units that failed and were sent to another zone, or given up.
    pub failed_units: u64,
    /// Blocks that the collector could not read or verify.
    pub damaged_blocks: u64,
}

fn bytes(blocks: impl Into<u64>) -> u64 {
    blocks.into() * u64::from(BLOCK_BYTES)
}

impl Shared {
    /// Returns the present status. Does not process pending answers; that is left to threads that
    /// use the file system.
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
            read_only: core.read_only.clone(),
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

/// Name of a lifetime as set with `fcntl(F_SET_RW_HINT)`.
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

/// Describes the reason for garbage collection in words.
fn describe(reason: Reason) -> String {
    let mib = |blocks: u64| bytes(blocks) >> 20;
    match reason {
        Reason::Low { available, wanted } => {
            format!("{} MiB can be written, {} MiB are wanted", mib(available), mib(wanted))
        }
        Reason::Percent { available, free, percent } => {
            let (available, free) = (mib(available), mib(free));
            format!("{available} MiB can be written, less than {percent}% of {free} MiB free")
        }
        Reason::Forced => "requested".to_owned(),
        Reason::ReadOnlyZone => "a zone became read-only".to_owned(),
    }
}
