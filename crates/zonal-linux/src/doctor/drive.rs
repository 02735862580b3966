//! Findings about a drive.

use super::Pointers;
use super::log::Log;
use super::uses::Uses;
use super::{Finding, KERNEL_MIN, KernelVersion, Severity};
use crate::ioctl::Reported;
use crate::ioctl::condition::{EXPLICITLY_OPEN, OFFLINE, READ_ONLY};
use crate::sysfs::{Facts, Zoned};
use zonal_io::owner::Owner;

/// Command size in bytes below which throughput suffers.
const COMMAND_MIN: u64 = 512 << 10;

/// Type of a conventional zone in a report.
const CONVENTIONAL: u8 = 1;

/// Result of opening a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// It may be written.
    Allowed,
    /// It cannot be opened, or not for writing.
    Refused {
        /// Error of the operating system.
        error: String,
        /// Group that may read and write the device file, unless that is root's.
        group: Option<String>,
        /// True if root was refused.
        is_root: bool,
    },
}

/// Write cache of a drive, as its driver reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheType {
    /// Volatile, and on.
    WriteBack,
    /// None, or off.
    WriteThrough,
}

/// Everything known about a drive.
#[derive(Clone, PartialEq, Debug)]
pub struct Evidence {
    /// Version of the kernel; `None` if unknown.
    pub kernel: Option<KernelVersion>,
    /// True if the kernel was built with zones; `None` if unknown.
    pub zones_built: Option<bool>,
    /// Properties.
    pub facts: Facts,
    /// State of the device, such as `running` or `live`, if its driver has one.
    pub state: Option<String>,
    /// Write cache as reported by the driver of SCSI disks; the kernel's own attribute can be
    /// changed by the user.
    pub cache: Option<CacheType>,
    /// Right to open it.
    pub access: Access,
    /// Users.
    pub uses: Uses,
    /// Zones in ascending order, or the error of reporting them. Empty if they were not read.
    pub zones: Result<Vec<Reported>, String>,
    /// Owner of its data.
    pub owner: Option<Owner>,
    /// Comparison of the write pointers.
    pub pointers: Pointers,
    /// Lines of the kernel log about it.
    pub log: Log,
}

/// Findings about a drive, the most severe first.
pub fn examine(evidence: &Evidence) -> Vec<Finding> {
    let mut found = Vec::new();
    obstacles(evidence, &mut found);
    let is_drive = |finding: &Finding| {
        use Finding::{HostAware, KernelWithoutZones, NotZoned, Offline};
        !matches!(finding, Offline { .. } | NotZoned | HostAware | KernelWithoutZones)
    };
    if found.iter().all(is_drive) {
        users(evidence, &mut found);
    }
    // Limits and attributes of a device that cannot be used would only distract.
    if found.iter().all(|finding| finding.severity() < Severity::Unusable) {
        data(evidence, &mut found);
        settings(evidence, &mut found);
        zones(evidence, &mut found);
        pointers(evidence, &mut found);
    }
    if evidence.facts.zoned == Some(Zoned::HostManaged) {
        log(&evidence.log, &mut found);
    }
    // The sort is stable: the order above is that of importance.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity()));
    found
}

/// Reasons why the drive cannot be used. Nothing else is said of a device without zones: it is the
/// wrong device, and advice on its users could do harm.
fn obstacles(evidence: &Evidence, found: &mut Vec<Finding>) {
    let facts = &evidence.facts;
    if let Some(version) = evidence.kernel.filter(|version| *version < KERNEL_MIN) {
        found.push(Finding::KernelTooOld { version });
    }
    match (facts.zoned, evidence.zones_built) {
        // Newer kernels have the attribute also without zones.
        (None, _) | (Some(Zoned::None), Some(false)) => return found.push(Finding::KernelWithoutZones),
        (Some(Zoned::None), _) => return found.push(Finding::NotZoned),
        (Some(Zoned::HostAware), _) => return found.push(Finding::HostAware),
        (Some(Zoned::HostManaged), _) => {}
    }
    let is_well = evidence.state.as_deref().is_none_or(|state| matches!(state, "running" | "live"));
    if facts.sectors == 0 || !is_well {
        return found.push(Finding::Offline { sectors: facts.sectors, state: evidence.state.clone() });
    }
    if let Some(of) = &facts.partition_of {
        found.push(Finding::Partition { of: of.clone() });
    }
    match (&evidence.access, &evidence.zones) {
        (Access::Refused { error, group, is_root }, _) => {
            found.push(Finding::NoAccess { error: error.clone(), group: group.clone(), is_root: *is_root });
        }
        (Access::Allowed, Err(error)) => found.push(Finding::NoReport { error: error.clone() }),
        (Access::Allowed, Ok(_)) => {}
    }
}

/// Users of the drive.
fn users(evidence: &Evidence, found: &mut Vec<Finding>) {
    let Uses { mounts, swap, holders, processes } = &evidence.uses;
    if !mounts.is_empty() {
        found.push(Finding::Mounted { at: mounts.clone(), by_zonal: !processes.is_empty() });
    }
    if *swap {
        found.push(Finding::Swap);
    }
    if !holders.is_empty() {
        found.push(Finding::Held { by: holders.clone() });
    }
    if !processes.is_empty() {
        found.push(Finding::InUse { pids: processes.clone() });
    }
}

/// Data on the drive.
fn data(evidence: &Evidence, found: &mut Vec<Finding>) {
    match &evidence.owner {
        Some(Owner::Zonal { label }) => found.push(Finding::FileSystem { label: label.clone() }),
        Some(owner) => found.push(Finding::OtherData { owner: owner.to_string() }),
        None => {}
    }
}

/// Settings of the kernel and the drive that cost time or safety.
fn settings(evidence: &Evidence, found: &mut Vec<Finding>) {
    let facts = &evidence.facts;
    if facts.read_only {
        found.push(Finding::ReadOnly);
    }
    match (facts.write_back, evidence.cache) {
        (false, Some(CacheType::WriteBack)) => found.push(Finding::FlushesOff),
        // Flash without a volatile cache protects its buffers, and is not slower.
        (false, Some(CacheType::WriteThrough)) if facts.rotational => found.push(Finding::CacheOff),
        _ => {}
    }
    if facts.command_max < COMMAND_MIN && facts.command_max_hardware > facts.command_max {
        let (max, hardware) = (facts.command_max, facts.command_max_hardware);
        found.push(Finding::SmallCommands { max, hardware });
    }
    // On a disk the time of a scheduler is lost in that of the seeks.
    if !facts.rotational && !matches!(facts.scheduler.as_str(), "" | "none") {
        found.push(Finding::Scheduler { name: facts.scheduler.clone() });
    }
    if let Some(us) = facts.wbt_us.filter(|us| *us > 0 && facts.rotational) {
        found.push(Finding::WriteThrottling { us });
    }
    if facts.append_max == 0 {
        found.push(Finding::AppendEmulated);
    }
    if facts.logical_block < facts.write_unit {
        found.push(Finding::LargeWriteUnit { logical: facts.logical_block, write: facts.write_unit });
    }
}

/// Conditions and shapes of zones.
fn zones(evidence: &Evidence, found: &mut Vec<Finding>) {
    let Ok(zones) = &evidence.zones else { return };
    let facts = &evidence.facts;
    let in_condition = |condition: u8| {
        let mut all = zones.iter().enumerate().filter(move |(_, zone)| zone.condition == condition);
        let first = all.next().map(|(index, _)| index)?;
        Some((1 + all.count(), first))
    };
    if let Some((count, first)) = in_condition(OFFLINE) {
        found.push(Finding::OfflineZones { count, first });
    }
    if let Some((count, first)) = in_condition(READ_ONLY) {
        found.push(Finding::ReadOnlyZones { count, first });
    }
    // The zones that a process or a file system keeps open are in use.
    if evidence.uses.is_empty() {
        let count = |is: fn(u8) -> bool| zones.iter().filter(|zone| is(zone.condition)).count() as u32;
        // A drive closes implicitly opened zones by itself when it needs to open another one.
        let explicit = count(|condition| condition == EXPLICITLY_OPEN);
        if facts.open_max > 0 && explicit >= facts.open_max {
            found.push(Finding::OpenZones { explicit, max: facts.open_max });
        }
        let active = count(|condition| matches!(condition, 2..=4));
        if facts.active_max > 0 && active >= facts.active_max {
            found.push(Finding::ActiveZones { active, max: facts.active_max });
        }
    }
    let sequential = || zones.iter().filter(|zone| zone.kind != CONVENTIONAL);
    if sequential().count() == zones.len() && !zones.is_empty() {
        found.push(Finding::NoConventional);
    }
    if let Some(zone) = sequential().find(|zone| zone.capacity < zone.sectors) {
        found.push(Finding::CapacityBelowSize { capacity: zone.capacity << 9, size: zone.sectors << 9 });
    }
}

/// Write pointers of the kernel.
fn pointers(evidence: &Evidence, found: &mut Vec<Finding>) {
    match &evidence.pointers {
        Pointers::Compared(stale) if stale.is_empty() => {}
        Pointers::Compared(stale) => found.push(Finding::StalePointers { zones: stale.clone() }),
        Pointers::Unknown(reason) => found.push(Finding::PointersUnknown { reason: reason.clone() }),
    }
}

/// Lines of the kernel log.
fn log(log: &Log, found: &mut Vec<Finding>) {
    let lines = match log {
        Log::Lines(lines) => lines,
        Log::Unreadable(error) => {
            found.push(Finding::LogUnreadable { error: error.clone() });
            return;
        }
    };
    let lost = lines.iter().filter(|line| line.is_loss());
    if let Some(last) = lost.clone().next_back() {
        found.push(Finding::LostWrites { count: lost.count(), last: last.clone() });
    }
    let trouble = lines.iter().filter(|line| line.is_trouble() && !line.is_loss());
    if let Some(last) = trouble.clone().next_back() {
        found.push(Finding::KernelLog { count: trouble.count(), last: last.clone() });
    }
}
