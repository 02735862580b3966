//! Texts of findings, for people.

use super::{Finding, KERNEL_MIN};
use crate::stale::Stale;
use std::path::Path;
use zonal_io::volume::size_text;

/// Maximum number of zones named in a text.
const NAMED_MAX: usize = 8;

/// Command that reports errors of a drive, for findings that software cannot mend.
const HEALTH: &str = "smartctl -a";

/// Text of a finding: one sentence or clause each, without a full stop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    /// The problem.
    pub what: String,
    /// Numbers and names that show it.
    pub evidence: String,
    /// Consequence.
    pub why: String,
    /// Command that mends it, or the next step; empty for a note without one.
    pub command: String,
}

/// True if a directory belongs to the running system, so that it must not be unmounted.
fn is_of_the_system(dir: &Path) -> bool {
    const DIRECTORIES: [&str; 7] = ["/boot", "/usr", "/var", "/home", "/etc", "/opt", "/root"];
    dir == Path::new("/") || DIRECTORIES.iter().any(|of| dir.starts_with(of))
}

impl Finding {
    /// Text about the drive with the kernel name `name`; empty for the machine.
    pub fn text(&self, name: &str) -> Text {
        let device = format!("/dev/{}", name.replace('!', "/"));
        let attribute = |value: &str, key: &str| format!("echo {value} | sudo tee /sys/block/{name}/{key}");
        let health = || format!("sudo {HEALTH} {device}");
        let text = |what: &str, evidence: String, why: &str, command: String| Text {
            what: what.to_owned(),
            evidence,
            why: why.to_owned(),
            command,
        };
        match self {
            Finding::KernelTooOld { version } => text(
                "the kernel is too old",
                format!("Linux {version}; needed: {KERNEL_MIN} or later"),
                "Zonal relies on the capacity of zones and the limits of open and active zones that newer kernels report",
                "install a newer kernel, and reboot".to_owned(),
            ),
            Finding::KernelWithoutZones => text(
                "the kernel was built without zones",
                "CONFIG_BLK_DEV_ZONED is not set".to_owned(),
                "host-managed disks and zoned namespaces get no block device",
                "boot a kernel with CONFIG_BLK_DEV_ZONED=y".to_owned(),
            ),
            Finding::SgOnly(disk) => text(
                "a host-managed disk has no block device",
                format!("{} ({}): SCSI device type 20, and no block device", disk.sg, disk.label()),
                "it accepts SCSI passthrough only, and neither Zonal nor a file system can use it",
                disk.command(),
            ),
            Finding::UringRefused { error, setting } => text(
                "io_uring is not allowed",
                match setting {
                    Some(setting) => format!("{error}; kernel.io_uring_disabled = {setting}"),
                    None => error.clone(),
                },
                "exports as ublk devices need it, and reads of local drives are slower without it",
                match setting {
                    Some(_) => "sudo sysctl kernel.io_uring_disabled=0".to_owned(),
                    None => {
                        "allow io_uring_setup in the seccomp profile of the container or service".to_owned()
                    }
                },
            ),
            Finding::AioUsedUp { used, max } => text(
                "asynchronous I/O is nearly used up",
                format!("{used} of {max} requests are reserved (fs.aio-nr, fs.aio-max-nr)"),
                "io_setup fails once none is left, and a drive cannot be opened",
                format!("sudo sysctl fs.aio-max-nr={}", (max * 4).max(1 << 20)),
            ),
            Finding::ModuleMissing { module, feature } => text(
                &format!("the kernel module {module} is missing"),
                "neither built in nor installed for this kernel; install it first".to_owned(),
                &format!("{feature} needs it"),
                format!("sudo modprobe {module}"),
            ),
            Finding::Offline { sectors, state } => text(
                "the drive is offline or was pulled",
                match state {
                    Some(state) => format!("{sectors} sectors, state {state}"),
                    None => format!("{sectors} sectors"),
                },
                "all commands fail; check power and cables; the kernel also gives a drive whose zones it refuses a size of 0",
                format!("sudo dmesg | grep -w {name}"),
            ),
            Finding::NoDevice => text(
                "there is no such device",
                "no file of this name".to_owned(),
                "the drive is not connected, has another name, or has no block device",
                "zonal list".to_owned(),
            ),
            Finding::NotZoned => text(
                "the device has no zones",
                "the kernel's attribute queue/zoned is `none`".to_owned(),
                "Zonal writes to the zones of a drive; a drive-managed SMR disk hides its zones, and cannot be told from an ordinary disk",
                "use a host-managed disk or a zoned namespace, or make a drive in a file with `zonal create`"
                    .to_owned(),
            ),
            Finding::HostAware => text(
                "the drive is host-aware",
                "the kernel's attribute queue/zoned is `host-aware`".to_owned(),
                "its zones accept writes anywhere, and newer kernels treat it as an ordinary disk",
                "use a host-managed drive".to_owned(),
            ),
            Finding::Partition { of } => text(
                "the device is a partition",
                format!("a partition of /dev/{of}"),
                "zone numbers and limits belong to the whole drive",
                format!("zonal doctor /dev/{of}"),
            ),
            Finding::NoAccess { error, group, is_root } => text(
                "the device cannot be opened for writing",
                error.clone(),
                match (is_root, group) {
                    (true, _) => {
                        "root may open every device file, so something else forbids it, such as the device list of a container"
                    }
                    (false, Some(_)) => {
                        "Zonal can neither report zones nor write; members of the group may, on all devices of the group, after they have logged in again"
                    }
                    (false, None) => "Zonal can neither report zones nor write",
                },
                match (is_root, group) {
                    (true, _) => String::new(),
                    (false, Some(group)) => format!("sudo usermod -aG {group} $USER"),
                    (false, None) => format!("sudo zonal doctor {device}"),
                },
            ),
            Finding::ReadOnly => text(
                "the device is read-only",
                "the kernel's attribute ro is 1".to_owned(),
                "every write fails",
                format!("sudo blockdev --setrw {device}"),
            ),
            Finding::NoReport { error } => text(
                "the zones cannot be reported",
                error.clone(),
                "Zonal cannot find the write pointers; a device-mapper target without zones below it fails like this",
                format!("sudo blkzone report --count 1 {device}"),
            ),
            Finding::OtherData { owner } => text(
                "the drive contains data of another owner",
                owner.clone(),
                "Zonal refuses to overwrite it without --yes; a reset destroys all data on the drive",
                format!("zonal reset {device} --all --yes"),
            ),
            Finding::FileSystem { label } => text(
                "the drive has a file system of Zonal",
                match label.as_str() {
                    "" => "no label".to_owned(),
                    label => format!("label `{label}`"),
                },
                "`zonal mount` mounts it, and `zonal fsck` checks it",
                String::new(),
            ),
            Finding::Mounted { at, by_zonal } => text(
                "the device is mounted",
                at.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", "),
                match at.iter().any(|dir| is_of_the_system(dir)) {
                    true => "it has files of the running system; use another drive",
                    false => "two writers of one drive destroy each other's data",
                },
                match at.first() {
                    _ if at.iter().any(|dir| is_of_the_system(dir)) => String::new(),
                    Some(dir) if *by_zonal => format!("sudo zonal unmount {}", dir.display()),
                    Some(dir) => format!("sudo umount {}", dir.display()),
                    None => format!("sudo umount {device}"),
                },
            ),
            Finding::Swap => text(
                "the device is used as swap space",
                "listed in /proc/swaps".to_owned(),
                "two writers of one drive destroy each other's data",
                format!("sudo swapoff {device}"),
            ),
            Finding::Held { by } => text(
                "other devices are stacked on the drive",
                by.join(", "),
                "two writers of one drive destroy each other's data",
                match by.first() {
                    Some(md) if md.starts_with("md") => format!("sudo mdadm --stop /dev/{md}"),
                    Some(dm) => format!("sudo dmsetup remove /dev/{dm}"),
                    None => "sudo dmsetup ls --tree".to_owned(),
                },
            ),
            Finding::InUse { pids } => text(
                "a process of Zonal has the device open",
                list(pids.iter().map(|pid| format!("process {pid}"))),
                "other commands are refused meanwhile",
                String::new(),
            ),
            Finding::Scheduler { name } => text(
                "an I/O scheduler delays each command",
                format!("scheduler {name}"),
                "Zonal keeps the writes of each zone in order itself; mq-deadline adds about 2 us to a write",
                attribute("none", "queue/scheduler"),
            ),
            Finding::SmallCommands { max, hardware } => text(
                "the kernel splits large commands",
                format!("max_sectors_kb is {}, and the drive takes {}", max >> 10, hardware >> 10),
                "small commands cost throughput; 512 KiB and more are fast on all drives",
                attribute(&(hardware >> 10).min(1024).to_string(), "queue/max_sectors_kb"),
            ),
            Finding::WriteThrottling { us } => text(
                "the kernel throttles write-back",
                format!("wbt_lat_usec is {us}"),
                "buffered writers of other programs are throttled; direct writes, as those of Zonal, are exempt",
                attribute("0", "queue/wbt_lat_usec"),
            ),
            Finding::CacheOff => text(
                "the drive's write cache is switched off",
                "write_cache is `write through` on a rotational drive".to_owned(),
                "every write waits for the medium; Zonal flushes the cache where data has to be durable",
                format!("sudo sdparm --set WCE=1 {device} || sudo hdparm -W1 {device}"),
            ),
            Finding::FlushesOff => text(
                "the kernel does not flush the drive's write cache",
                "the drive's cache is `write back`, and the kernel's queue/write_cache is `write through`"
                    .to_owned(),
                "a power failure loses data that was reported as durable",
                attribute("'write back'", "queue/write_cache"),
            ),
            Finding::ReadOnlyZones { count, first } => text(
                "zones are read-only",
                format!("{count}, the first is zone {first}"),
                "these zones have failed and accept no more writes; copy their data, which can still be read",
                format!("zonal report {device} --state read-only; {}", health()),
            ),
            Finding::OfflineZones { count, first } => text(
                "zones are offline",
                format!("{count}, the first is zone {first}"),
                "these zones have failed, and their data is lost",
                format!("zonal report {device} --state offline; {}", health()),
            ),
            Finding::OpenZones { explicit, max } => text(
                "explicitly opened zones take up the limit",
                format!("{explicit} zones are explicitly open, and the drive allows {max} open zones"),
                "a drive does not close these by itself, so writes to all other zones fail",
                format!("zonal close {device} --all"),
            ),
            Finding::ActiveZones { active, max } => text(
                "open and closed zones take up the limit of active zones",
                format!("{active} zones are active, and the drive allows {max}"),
                "writes to empty zones fail until `zonal finish` or `zonal reset` ends an active zone",
                format!("zonal report {device} --state active"),
            ),
            Finding::KernelLog { count, last } => text(
                "the kernel logged errors of the drive",
                format!("{count} lines, the last one: {last}"),
                "time-outs and resets take seconds each, and may end with a drive that vanishes; check cables, power and the adapter",
                health(),
            ),
            Finding::LostWrites { count, last } => text(
                "a program lost data that it wrote through the page cache",
                format!("{count} lines in the kernel log, the last one: {last}"),
                "sequential zones take direct writes only; a buffered `dd` or `cp` to the device reports success all the same; write with O_DIRECT or through Zonal",
                format!("dd if=FILE of={device} bs=1M oflag=direct"),
            ),
            Finding::StalePointers { zones } => text(
                "the kernel has wrong write pointers",
                list(zones.iter().map(described)),
                "the zones were changed without the kernel; it refuses all writes at the drive's pointer",
                format!("zonal doctor {device} --heal"),
            ),
            Finding::PointersUnknown { reason } => text(
                "stale write pointers cannot be told",
                reason.clone(),
                "the kernel refuses writes to zones that were changed without it",
                String::new(),
            ),
            Finding::LogUnreadable { error } => text(
                "the kernel log cannot be read",
                error.clone(),
                "time-outs and link resets cannot be told",
                format!("sudo zonal doctor {device}"),
            ),
            Finding::AppendEmulated => text(
                "the kernel reports no zone append",
                "zone_append_max_bytes is 0".to_owned(),
                "Zonal appends with ordinary writes",
                String::new(),
            ),
            Finding::NoConventional => text(
                "the drive has no conventional zones",
                "0 conventional zones".to_owned(),
                "a file system logs its metadata in sequential zones",
                String::new(),
            ),
            Finding::CapacityBelowSize { capacity, size } => text(
                "zones have less capacity than size",
                format!("capacity {}, size {}", size_text(*capacity), size_text(*size)),
                "addresses between capacity and size do not exist",
                String::new(),
            ),
            Finding::LargeWriteUnit { logical, write } => text(
                "writes have a larger unit than reads",
                format!("logical block {logical}, write unit {write}"),
                "writes to sequential zones have to be multiples of the write unit",
                String::new(),
            ),
        }
    }
}

fn described(stale: &Stale) -> String {
    format!("zone {}: drive at sector {}, kernel at {}", stale.zone, stale.drive, stale.kernel)
}

/// Joins the first items, and counts the others.
fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(NAMED_MAX);
    let mut named: Vec<String> = items.take(NAMED_MAX).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join("; ")
}
