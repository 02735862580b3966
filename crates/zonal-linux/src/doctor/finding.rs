//! Findings, their keys and severities.

use super::log::LogLine;
use super::{KernelVersion, SgOnly};
use crate::stale::Stale;
use std::path::PathBuf;

/// Consequence of a finding, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Property worth knowing that needs no action.
    Note,
    /// Problem that can be mended; the drive works meanwhile, at least in part.
    Finding,
    /// Reason why the drive, or any drive of this machine, cannot be used.
    Unusable,
}

impl Severity {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Finding => "finding",
            Severity::Unusable => "unusable",
        }
    }
}

/// A finding with its evidence. Sizes are in bytes unless stated otherwise.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// The kernel is older than [`KERNEL_MIN`](super::KERNEL_MIN).
    KernelTooOld {
        /// Its version.
        version: KernelVersion,
    },
    /// The kernel was built without `CONFIG_BLK_DEV_ZONED`.
    KernelWithoutZones,
    /// A host-managed disk has no block device.
    SgOnly(SgOnly),
    /// `io_uring` is not allowed.
    UringRefused {
        /// Error of setting up a ring.
        error: String,
        /// Value of `kernel.io_uring_disabled`, if the kernel has it.
        setting: Option<u32>,
    },
    /// Nearly all requests of `fs.aio-max-nr` are reserved.
    AioUsedUp {
        /// Reserved requests.
        used: u64,
        /// Maximum.
        max: u64,
    },
    /// A kernel module of an optional feature is missing.
    ModuleMissing {
        /// Name of the module.
        module: &'static str,
        /// Feature that needs it.
        feature: &'static str,
    },
    /// The drive was pulled or is offline.
    Offline {
        /// Size in sectors.
        sectors: u64,
        /// State of the device, if its driver has one.
        state: Option<String>,
    },
    /// There is no such device.
    NoDevice,
    /// The kernel knows of no zones.
    NotZoned,
    /// The zones accept writes anywhere.
    HostAware,
    /// The device is a partition.
    Partition {
        /// Name of the whole device.
        of: String,
    },
    /// The device cannot be opened, or not for writing.
    NoAccess {
        /// Error of the operating system.
        error: String,
        /// Group that may read and write the device file, unless that is root's.
        group: Option<String>,
        /// True if root was refused.
        is_root: bool,
    },
    /// The kernel treats the device as read-only.
    ReadOnly,
    /// The zones cannot be reported.
    NoReport {
        /// Error of the operating system.
        error: String,
    },
    /// The drive has a file system or a partition table of another owner.
    OtherData {
        /// The owner.
        owner: String,
    },
    /// The drive has a file system of Zonal.
    FileSystem {
        /// Label, possibly empty.
        label: String,
    },
    /// The device is mounted.
    Mounted {
        /// Directories.
        at: Vec<PathBuf>,
        /// True if a process of Zonal has it open.
        by_zonal: bool,
    },
    /// The device is used as swap space.
    Swap,
    /// Other devices are stacked on this one.
    Held {
        /// Kernel names of these devices.
        by: Vec<String>,
    },
    /// Processes of Zonal have the device open.
    InUse {
        /// Process IDs.
        pids: Vec<u32>,
    },
    /// A scheduler delays each command of a fast drive.
    Scheduler {
        /// Its name.
        name: String,
    },
    /// The kernel splits commands that the drive would accept whole.
    SmallCommands {
        /// Largest command of the kernel.
        max: u64,
        /// Largest command of the drive.
        hardware: u64,
    },
    /// The kernel throttles write-back.
    WriteThrottling {
        /// Target latency in microseconds.
        us: u64,
    },
    /// The volatile write cache of a rotational drive is switched off.
    CacheOff,
    /// The drive has a volatile write cache that the kernel never flushes.
    FlushesOff,
    /// Zones are read-only.
    ReadOnlyZones {
        /// Their number.
        count: usize,
        /// The first one.
        first: usize,
    },
    /// Zones are offline.
    OfflineZones {
        /// Their number.
        count: usize,
        /// The first one.
        first: usize,
    },
    /// Explicitly opened zones take up the limit of open zones.
    OpenZones {
        /// Explicitly opened zones.
        explicit: u32,
        /// Limit.
        max: u32,
    },
    /// Open and closed zones take up the limit of active zones.
    ActiveZones {
        /// Open and closed zones.
        active: u32,
        /// Limit.
        max: u32,
    },
    /// The kernel logged time-outs, resets or errors of the drive.
    KernelLog {
        /// Number of such lines.
        count: usize,
        /// The last one.
        last: LogLine,
    },
    /// A buffered writer lost data.
    LostWrites {
        /// Number of such lines in the kernel log.
        count: usize,
        /// The last one.
        last: LogLine,
    },
    /// The kernel's write pointers differ from those of the drive.
    StalePointers {
        /// The zones.
        zones: Vec<Stale>,
    },
    /// The kernel's write pointers cannot be read.
    PointersUnknown {
        /// Reason.
        reason: String,
    },
    /// The kernel log cannot be read.
    LogUnreadable {
        /// Error of the operating system.
        error: String,
    },
    /// The drive has no zone append that the kernel reports.
    AppendEmulated,
    /// The drive has no conventional zones.
    NoConventional,
    /// Zones have less capacity than size.
    CapacityBelowSize {
        /// Capacity of the first such zone.
        capacity: u64,
        /// Its size.
        size: u64,
    },
    /// Writes have a larger unit than reads.
    LargeWriteUnit {
        /// Logical block.
        logical: u32,
        /// Unit of writes.
        write: u32,
    },
}

impl Finding {
    /// Stable name, for programs.
    pub const fn key(&self) -> &'static str {
        match self {
            Finding::KernelTooOld { .. } => "kernel-too-old",
            Finding::KernelWithoutZones => "kernel-without-zones",
            Finding::SgOnly(_) => "sg-only",
            Finding::UringRefused { .. } => "io-uring-refused",
            Finding::AioUsedUp { .. } => "aio-used-up",
            Finding::ModuleMissing { .. } => "module-missing",
            Finding::Offline { .. } => "offline",
            Finding::NoDevice => "no-device",
            Finding::NotZoned => "not-zoned",
            Finding::HostAware => "host-aware",
            Finding::Partition { .. } => "partition",
            Finding::NoAccess { .. } => "no-access",
            Finding::ReadOnly => "read-only",
            Finding::NoReport { .. } => "no-report",
            Finding::OtherData { .. } => "other-data",
            Finding::FileSystem { .. } => "file-system",
            Finding::Mounted { .. } => "mounted",
            Finding::Swap => "swap",
            Finding::Held { .. } => "held",
            Finding::InUse { .. } => "in-use",
            Finding::Scheduler { .. } => "scheduler",
            Finding::SmallCommands { .. } => "small-commands",
            Finding::WriteThrottling { .. } => "write-throttling",
            Finding::CacheOff => "cache-off",
            Finding::FlushesOff => "flushes-off",
            Finding::ReadOnlyZones { .. } => "zones-read-only",
            Finding::OfflineZones { .. } => "zones-offline",
            Finding::OpenZones { .. } => "open-zones",
            Finding::ActiveZones { .. } => "active-zones",
            Finding::KernelLog { .. } => "kernel-log",
            Finding::LostWrites { .. } => "lost-writes",
            Finding::StalePointers { .. } => "stale-pointer",
            Finding::PointersUnknown { .. } => "pointers-unknown",
            Finding::LogUnreadable { .. } => "log-unreadable",
            Finding::AppendEmulated => "append-emulated",
            Finding::NoConventional => "no-conventional-zones",
            Finding::CapacityBelowSize { .. } => "capacity-below-size",
            Finding::LargeWriteUnit { .. } => "write-unit",
        }
    }

    /// Severity.
    pub const fn severity(&self) -> Severity {
        match self {
            Finding::KernelTooOld { .. }
            | Finding::KernelWithoutZones
            | Finding::Offline { .. }
            | Finding::NoDevice
            | Finding::NotZoned
            | Finding::HostAware
            | Finding::Partition { .. }
            | Finding::NoAccess { .. }
            | Finding::NoReport { .. } => Severity::Unusable,
            Finding::SgOnly(_)
            | Finding::UringRefused { .. }
            | Finding::AioUsedUp { .. }
            | Finding::ReadOnly
            | Finding::OtherData { .. }
            | Finding::Mounted { .. }
            | Finding::Swap
            | Finding::Held { .. }
            | Finding::Scheduler { .. }
            | Finding::SmallCommands { .. }
            | Finding::CacheOff
            | Finding::FlushesOff
            | Finding::ReadOnlyZones { .. }
            | Finding::OfflineZones { .. }
            | Finding::OpenZones { .. }
            | Finding::ActiveZones { .. }
            | Finding::KernelLog { .. }
            | Finding::LostWrites { .. }
            | Finding::StalePointers { .. } => Severity::Finding,
            Finding::ModuleMissing { .. }
            | Finding::FileSystem { .. }
            | Finding::InUse { .. }
            | Finding::WriteThrottling { .. }
            | Finding::PointersUnknown { .. }
            | Finding::LogUnreadable { .. }
            | Finding::AppendEmulated
            | Finding::NoConventional
            | Finding::CapacityBelowSize { .. }
            | Finding::LargeWriteUnit { .. } => Severity::Note,
        }
    }
}
