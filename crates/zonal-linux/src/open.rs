//! Opening of block devices.

use crate::device::{BlockDevice, Parts};
use crate::doctor::{Uses, gather::zones_built};
use crate::ioctl::{self, Reported, Source};
use crate::queue::{Queue, QueueError};
use crate::say;
use crate::stale::{self, HealError, KernelTable};
use crate::sysfs::{Facts, FactsError, Transport, Zoned};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zonal_core::{Geometry, GeometryError, Personality, Sectors};
use zonal_io::device::{DeviceInfo, OpenMode};
use zonal_io::lock::{self, Holder, LockError};

/// Largest default of commands in flight on a queue.
const DEPTH_DEFAULT_MAX: u32 = 128;

/// Attempts to lock a device that udev, or a process that has just ended, holds: for three seconds.
const LOCK_TRIES: u32 = 300;

/// Pause between two attempts.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Largest transfer in bytes that the kernel does not cut short: `MAX_RW_COUNT`.
const TRANSFER_MAX: u64 = (1 << 31) - 4096;

/// Options for opening a block device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BlkOptions {
    /// Reading or writing.
    pub mode: OpenMode,
    /// Number of queues, at least 1.
    pub queues: u32,
    /// Commands in flight on a queue before it is busy; by default as many as the kernel has
    /// requests for, at most 128.
    pub depth: Option<u32>,
    /// True to open the device although it is mounted or held: for reading only.
    pub force: bool,
}

impl Default for BlkOptions {
    fn default() -> BlkOptions {
        BlkOptions { mode: OpenMode::default(), queues: 1, depth: None, force: false }
    }
}

zonal_core::setters! {
    BlkOptions
    /// Reading or writing.
    with_mode mode: OpenMode;
    /// Number of queues, at least 1.
    with_queues queues: u32;
    /// Commands in flight on a queue before it is busy.
    with_depth depth: u32;
    /// True to open the device although it is mounted or held: for reading only.
    with_force force: bool;
}

/// Reason why a block device cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct BlkError {
    /// Path as given.
    pub path: PathBuf,
    /// The problem.
    pub problem: BlkProblem,
}

/// Problem of a block device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlkProblem {
    /// It cannot be examined.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// It is a partition.
    #[error("is a partition of {0}; zones belong to the whole drive: use /dev/{0}")]
    Partition(String),
    /// The kernel has no support for zones.
    #[error("this kernel was built without zoned block devices (CONFIG_BLK_DEV_ZONED); use another kernel")]
    KernelWithoutZones,
    /// It is no host-managed drive.
    #[error(
        "{label} is not host-managed: the kernel's zone model is {}; {}",
        model.name(),
        match model {
            Zoned::HostAware => "a host-aware drive takes writes anywhere, so use it as an ordinary disk",
            _ => "an ordinary disk, or an SMR disk that manages its zones itself, needs no zones",
        }
    )]
    NotHostManaged {
        /// Model and serial number.
        label: String,
        /// Zone model.
        model: Zoned,
    },
    /// The drive was pulled.
    #[error("the drive is gone: its block device has no sectors any more")]
    Gone,
    /// No permission.
    #[error(
        "permission denied: reading and writing drives needs root, or membership in the group of the device file"
    )]
    Permission,
    /// A Zonal process has it open.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// It is mounted, or held by another driver or process.
    #[error("is in use: {by}{}", if *may_force { "; with the option `force` it is opened for reading all the same" } else { "" })]
    Held {
        /// Description of the users.
        by: String,
        /// True if it was to be opened for reading.
        may_force: bool,
    },
    /// Zones that Zonal does not support.
    #[error("its zones are not supported: {0}")]
    Zones(String),
    /// The zones do not form a geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The zones cannot be reported.
    #[error("the zones cannot be reported: {0}")]
    Report(io::Error),
    /// No context for asynchronous I/O.
    #[error("asynchronous I/O is not available: {0}; raise fs.aio-max-nr: sysctl fs.aio-max-nr=1048576")]
    Aio(io::Error),
    /// Asynchronous I/O is not allowed.
    #[error("asynchronous I/O (io_setup) is not available: {0}")]
    NoAio(io::Error),
    /// Another call failed.
    #[error("{0}")]
    Io(io::Error),
}

impl From<io::Error> for BlkProblem {
    fn from(error: io::Error) -> BlkProblem {
        match error.kind() {
            io::ErrorKind::PermissionDenied => BlkProblem::Permission,
            _ => BlkProblem::Io(error),
        }
    }
}

impl BlockDevice {
    /// Opens the block device at `path` as a device named `name`. Opening for writing sets stale
    /// write pointers of the kernel right: see [`stale`].
    ///
    /// # Errors
    /// [`BlkError`]. Nothing was written.
    pub fn open(path: &Path, name: &str, options: &BlkOptions) -> Result<BlockDevice, BlkError> {
        open(path, name, options).map_err(|problem| BlkError { path: path.to_owned(), problem })
    }
}

fn open(path: &Path, name: &str, options: &BlkOptions) -> Result<BlockDevice, BlkProblem> {
    let facts = Facts::of(path)?;
    check_kind(&facts, zones_built)?;
    let mode = if options.force { OpenMode::Reading } else { options.mode };
    let mut file = OpenOptions::new();
    file.read(true).write(mode == OpenMode::Writing).custom_flags(OFlags::DIRECT.bits() as i32);
    let file = file.open(path)?;
    let locks = if options.force { Vec::new() } else { lock(path, &facts, mode)? };
    // Another drive may have got the name before it was opened.
    let facts = Facts::of(path)?;
    for opened in locks.iter().chain([&file]) {
        let number = opened.metadata().map_err(BlkProblem::Io)?.rdev();
        if (rustix::fs::major(number), rustix::fs::minor(number)) != facts.number {
            return Err(BlkProblem::Gone);
        }
    }
    let zones =
        stale::report_all(&file, facts.sectors, Source::Drive).map_err(
            |error| match Errno::from_io_error(&error) {
                Some(Errno::NOTTY) => BlkProblem::Zones(
                    "its driver reports none, such as a device-mapper target on a drive without zones".into(),
                ),
                _ if ioctl::size(&file).is_ok_and(|size| size == 0) => BlkProblem::Gone,
                _ => BlkProblem::Report(error),
            },
        )?;
    let geometry = geometry(&facts, &zones)?;
    let table = KernelTable::of(&file, &facts.name);
    if mode == OpenMode::Writing {
        heal(&file, name, &table, &facts);
    }
    let share = facts.requests_max / options.queues.max(1);
    let depth = options.depth.unwrap_or(share.min(DEPTH_DEFAULT_MAX)).max(1);
    let queue = |_| {
        Queue::new(file.try_clone()?.into(), depth, facts.memory_align.max(facts.logical_block)).map_err(
            |error| match error {
                QueueError::Aio(error) if error.kind() == io::ErrorKind::WouldBlock => BlkProblem::Aio(error),
                QueueError::Aio(error) => BlkProblem::NoAio(error),
                QueueError::Other(error) => BlkProblem::Io(error),
            },
        )
    };
    let queues = (0..options.queues.max(1)).map(queue).collect::<Result<Vec<_>, _>>()?;
    let info = info(name, &facts, geometry, mode, queues.len())?;
    let write_unit = info.block_sectors * zonal_core::SECTOR_BYTES as u32;
    let (name, directory) = (facts.name, facts.directory);
    let parts = Parts { info, name, directory, file, locks, write_unit, table, queues, depth };
    Ok(BlockDevice::start(parts)?)
}

/// Locks the device. The lock lasts as long as the files. They are none that io_uring knows, which
/// closes its files with a delay.
fn lock(path: &Path, facts: &Facts, mode: OpenMode) -> Result<Vec<File>, BlkProblem> {
    let held = |by| BlkProblem::Held { by, may_force: mode == OpenMode::Reading };
    let ours = File::open(path)?;
    // First the lock, which names a process of Zonal.
    let mut tries = 0;
    while let Err(error) = lock::lock(&ours, mode) {
        // udev locks a drive while it looks at it, after every close by a writer.
        let is_udev = |holder: &Holder| {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", holder.pid));
            name.is_ok_and(|name| name.contains("udev"))
        };
        match &error {
            LockError::Held(held) if tries < LOCK_TRIES && held.holders().iter().all(is_udev) => {}
            _ => return Err(error.into()),
        }
        tries += 1;
        std::thread::sleep(LOCK_PAUSE);
    }
    if mode == OpenMode::Reading {
        // An exclusive claim would keep others from mounting it, and readers from each other.
        let uses = Uses { processes: Vec::new(), ..Uses::of(facts) };
        return if uses.is_empty() { Ok(vec![ours]) } else { Err(held(uses.to_string())) };
    }
    let claim = OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(path);
    let claim = claim.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => held(users(facts)),
        _ => error.into(),
    })?;
    Ok(vec![ours, claim])
}

fn check_kind(facts: &Facts, zones_built: impl Fn(&Facts) -> Option<bool>) -> Result<(), BlkProblem> {
    if let Some(whole) = &facts.partition_of {
        return Err(BlkProblem::Partition(whole.clone()));
    }
    match facts.zoned {
        None => return Err(BlkProblem::KernelWithoutZones),
        Some(Zoned::HostManaged) => {}
        // Such a kernel calls every disk an ordinary one.
        Some(Zoned::None) if zones_built(facts) == Some(false) => {
            return Err(BlkProblem::KernelWithoutZones);
        }
        Some(model) => return Err(BlkProblem::NotHostManaged { label: facts.label(), model }),
    }
    if facts.sectors == 0 {
        return Err(BlkProblem::Gone);
    }
    Ok(())
}

/// Derives the geometry from a report of all zones.
fn geometry(facts: &Facts, zones: &[Reported]) -> Result<Geometry, BlkProblem> {
    let unfit = |what: String| Err(BlkProblem::Zones(what));
    if zones.is_empty() {
        return Err(BlkProblem::Gone);
    }
    let conventional = zones.iter().take_while(|zone| zone.kind == 1).count();
    let mut capacity = None;
    for (n, zone) in zones.iter().enumerate() {
        let start = zone.start;
        if zone.start != n as u64 * facts.zone_sectors {
            return unfit(format!("zone {n} begins at sector {start}, not at a multiple of the zone size"));
        }
        match zone.kind {
            1 if n >= conventional => {
                return unfit(format!("zone {n}, a conventional one, follows sequential ones"));
            }
            1 if zone.capacity < zone.sectors => {
                return unfit(format!("zone {n}, a conventional one, has a gap behind its capacity"));
            }
            1 => {}
            2 => {
                // The last zone may be smaller.
                let is_whole = zone.sectors == facts.zone_sectors;
                if is_whole && *capacity.get_or_insert(zone.capacity) != zone.capacity {
                    return unfit(format!("the capacity of zone {n} differs from that of others"));
                }
            }
            kind => return unfit(format!("zone {n} is of an unknown type, {kind}")),
        }
    }
    let total = zones.last().map_or(0, |zone| zone.start + zone.sectors);
    if total != facts.sectors {
        return unfit(format!("they end at sector {total}, the drive at sector {}", facts.sectors));
    }
    let capacity = capacity.unwrap_or(0);
    Ok(Geometry::new(
        Sectors(facts.sectors),
        Sectors(facts.zone_sectors),
        Sectors(capacity),
        conventional as u32,
    )?)
}

fn info(
    name: &str,
    facts: &Facts,
    geometry: Geometry,
    mode: OpenMode,
    queues: usize,
) -> Result<DeviceInfo, BlkProblem> {
    let (open_max, active_max) = geometry.limits(facts.open_max, facts.active_max)?;
    let block_sectors = (facts.write_unit.max(facts.logical_block) / zonal_core::SECTOR_BYTES as u32).max(1);
    if !block_sectors.is_power_of_two() || block_sectors > 8 {
        return Err(BlkProblem::Zones(format!("the unit of writes is {} bytes", facts.write_unit)));
    }
    let largest = (facts.command_max.min(TRANSFER_MAX) / zonal_core::SECTOR_BYTES) as u32;
    Ok(DeviceInfo {
        identity: facts.identity,
        label: Some(facts.label()),
        block_sectors,
        open_max,
        active_max,
        command_sectors_max: (largest / block_sectors * block_sectors).max(block_sectors),
        memory_align: facts.memory_align.max(facts.logical_block),
        volatile_cache: facts.write_back,
        fua: facts.write_back && facts.fua,
        rotational: facts.rotational,
        read_only: mode == OpenMode::Reading || facts.read_only,
        personality: match facts.transport {
            Transport::Nvme => Personality::Zns,
            Transport::Scsi | Transport::Other => Personality::Zbc,
        },
        queues,
        ..DeviceInfo::new(name, geometry)
    })
}

/// Sets the kernel's stale pointers right, and says so. A zone that stays stale is found again by
/// its first write.
fn heal(file: &File, name: &str, table: &KernelTable, facts: &Facts) {
    for stale in table.settled(file, facts.sectors).unwrap_or_default() {
        match stale::heal(
            file,
            table,
            &facts.directory,
            facts.zone_sectors,
            stale,
            facts.write_unit.max(facts.logical_block),
        ) {
            Ok(()) => say(name, format_args!("{stale}; the kernel has been told")),
            // After a failed write up to its end, the kernel may take a zone for full and accept
            // writes nevertheless.
            Err(HealError::Full(_)) => {}
            Err(error) => say(name, error),
        }
    }
}

/// Users of a block device that is held, in words.
fn users(facts: &Facts) -> String {
    match Uses::of(facts) {
        uses if uses.is_empty() => {
            "held by another process, such as a mount of another mount namespace; see `fuser -v`".to_owned()
        }
        uses => uses.to_string(),
    }
}

/// True if `path` is a block device.
pub fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            name: "sdz".into(),
            directory: PathBuf::new(),
            number: (8, 0),
            partition_of: None,
            sectors: 10 * 128,
            zoned: Some(Zoned::HostManaged),
            transport: Transport::Scsi,
            model: "Drive".into(),
            serial: "S1".into(),
            identity: None,
            zone_sectors: 128,
            zones: 10,
            open_max: 4,
            active_max: 0,
            logical_block: 512,
            physical_block: 4096,
            write_unit: 4096,
            command_max: 1 << 20,
            command_max_hardware: 1 << 20,
            append_max: 0,
            memory_align: 4,
            write_back: true,
            fua: false,
            rotational: true,
            read_only: false,
            requests_max: 64,
            scheduler: "none".into(),
            qd1_writes: None,
            wbt_us: None,
            holders: Vec::new(),
        }
    }

    fn zones(facts: &Facts, conventional: u64, capacity: u64) -> Vec<Reported> {
        let zone = |n: u64| {
            let start = n * facts.zone_sectors;
            let sectors = facts.zone_sectors.min(facts.sectors - start);
            let is_conventional = n < conventional;
            Reported {
                start,
                sectors,
                capacity: if is_conventional { sectors } else { sectors.min(capacity) },
                pointer: start,
                kind: if is_conventional { 1 } else { 2 },
                condition: u8::from(!is_conventional),
            }
        };
        (0..facts.sectors.div_ceil(facts.zone_sectors)).map(zone).collect()
    }

    #[test]
    fn geometry_follows_the_report() {
        let facts = facts();
        let found = geometry(&facts, &zones(&facts, 2, 96)).unwrap();
        assert_eq!((found.zones(), found.conventional_zones(), found.zone_capacity()), (10, 2, Sectors(96)));
        let runt = Facts { sectors: 9 * 128 + 40, ..facts.clone() };
        let found = geometry(&runt, &zones(&runt, 0, 128)).unwrap();
        assert_eq!((found.zones(), found.sectors()), (10, Sectors(9 * 128 + 40)));
        let huge = Facts { sectors: 1 << 36, zone_sectors: 1 << 31, ..facts.clone() };
        assert_eq!(geometry(&huge, &zones(&huge, 1, 1 << 31)).unwrap().zones(), 32);
    }

    #[test]
    fn zones_that_are_not_supported_are_named() {
        let facts = facts();
        let good = zones(&facts, 2, 96);
        let refused = |change: fn(&mut Vec<Reported>)| {
            let mut zones = good.clone();
            change(&mut zones);
            geometry(&facts, &zones).unwrap_err().to_string()
        };
        assert!(refused(|zones| zones[5].kind = 1).contains("zone 5, a conventional one, follows"));
        assert!(refused(|zones| zones[5].capacity = 64).contains("capacity of zone 5"));
        assert!(refused(|zones| zones[1].capacity = 64).contains("gap"));
        assert!(refused(|zones| zones[5].kind = 3).contains("unknown type, 3"));
        assert!(refused(|zones| _ = zones.pop()).contains("they end at sector"));
        assert!(refused(|zones| _ = zones.remove(3)).contains("zone 3 begins"));
        assert!(refused(Vec::clear).contains("gone"));
    }

    #[test]
    fn facts_become_the_description_of_the_drive() {
        let facts = facts();
        let geometry = geometry(&facts, &zones(&facts, 2, 96)).unwrap();
        let of = |facts: &Facts, mode| info("blk:/dev/sdz", facts, geometry, mode, 2).unwrap();
        let found = of(&facts, OpenMode::Writing);
        assert_eq!((found.block_sectors, found.command_sectors_max, found.queues), (8, 2048, 2));
        assert_eq!((found.open_max, found.active_max, found.personality), (4, 0, Personality::Zbc));
        assert_eq!((found.memory_align, found.append_sectors_max), (512, 0));
        assert!(found.volatile_cache && !found.fua && found.rotational && !found.read_only);
        assert!(of(&facts, OpenMode::Reading).read_only);
        assert!(of(&Facts { read_only: true, ..facts }, OpenMode::Writing).read_only);
    }

    #[test]
    fn drives_that_are_not_host_managed_are_refused_with_the_reason() {
        let refused = |facts: Facts| check_kind(&facts, |_| Some(true)).unwrap_err().to_string();
        let without = check_kind(&Facts { zoned: Some(Zoned::None), ..facts() }, |_| Some(false));
        assert!(without.unwrap_err().to_string().contains("CONFIG_BLK_DEV_ZONED"));
        assert!(refused(Facts { partition_of: Some("sda".into()), ..facts() }).contains("/dev/sda"));
        assert!(refused(Facts { zoned: None, ..facts() }).contains("CONFIG_BLK_DEV_ZONED"));
        let ordinary = refused(Facts { zoned: Some(Zoned::None), ..facts() });
        assert!(ordinary.contains("S1") && ordinary.contains("manages its zones itself"), "{ordinary}");
        assert!(refused(Facts { zoned: Some(Zoned::HostAware), ..facts() }).contains("host-aware"));
        assert!(refused(Facts { sectors: 0, ..facts() }).contains("gone"));
    }
}
