//! Properties of a block device, from the kernel's `sysfs`.
//!
//! An attribute that a kernel does not have is `None`, or has the value that its absence means.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use zonal_io::identity::Identity;

/// Directory of `sysfs`.
const SYSFS: &str = "/sys";

/// Zone model of a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zoned {
    /// No zones that the kernel knows of: an ordinary disk, or an SMR disk that manages its zones
    /// itself.
    None,
    /// Zones that accept writes anywhere.
    HostAware,
    /// Zones that accept writes only at their write pointer.
    HostManaged,
}

impl Zoned {
    /// Name in `sysfs`.
    pub const fn name(self) -> &'static str {
        match self {
            Zoned::None => "none",
            Zoned::HostAware => "host-aware",
            Zoned::HostManaged => "host-managed",
        }
    }
}

/// Driver of a block device, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// SCSI or ATA disk: the rules of ZBC.
    Scsi,
    /// NVMe namespace: the rules of ZNS.
    Nvme,
    /// Another driver, such as null_blk, zloop or ublk. The kernel's own follow the rules of ZBC.
    Other,
}

/// Properties of a block device. Sizes are in sectors of 512 bytes unless stated otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Kernel name, such as `sda`.
    pub name: String,
    /// Directory of the device in `sysfs`.
    pub directory: PathBuf,
    /// Major and minor number.
    pub number: (u32, u32),
    /// Name of the whole device, if this is a partition.
    pub partition_of: Option<String>,
    /// Size; 0 after the drive was pulled.
    pub sectors: u64,
    /// Zone model; `None` if the kernel does not state one. A kernel without zones
    /// (`CONFIG_BLK_DEV_ZONED`) may state [`Zoned::None`] for every drive.
    pub zoned: Option<Zoned>,
    /// Driver.
    pub transport: Transport,
    /// Model, as stated by the drive; empty if it states none.
    pub model: String,
    /// Serial number, as stated by the drive; empty if it states none.
    pub serial: String,
    /// Unique and permanent identity, if the drive has one.
    pub identity: Option<Identity>,
    /// Zone size.
    pub zone_sectors: u64,
    /// Number of zones.
    pub zones: u32,
    /// Maximum of open zones; 0: no limit.
    pub open_max: u32,
    /// Maximum of active zones; 0: no limit.
    pub active_max: u32,
    /// Logical block size in bytes, the unit of reads.
    pub logical_block: u32,
    /// Physical block size in bytes.
    pub physical_block: u32,
    /// Unit of writes to sequential zones, in bytes.
    pub write_unit: u32,
    /// Largest command that the kernel sends, in bytes.
    pub command_max: u64,
    /// Largest command that the drive takes, in bytes.
    pub command_max_hardware: u64,
    /// Largest zone append of the drive, in bytes; 0: none, or emulated by the kernel.
    pub append_max: u64,
    /// Alignment of memory that the drive requires, in bytes.
    pub memory_align: u32,
    /// True if the drive has a volatile write cache, and it is on.
    pub write_back: bool,
    /// True if the drive can make a single write durable.
    pub fua: bool,
    /// True for a rotational drive.
    pub rotational: bool,
    /// True if the kernel treats the device as read-only.
    pub read_only: bool,
    /// Requests that the kernel keeps in flight.
    pub requests_max: u32,
    /// Selected I/O scheduler, such as `none` or `mq-deadline`; empty if there is no choice.
    pub scheduler: String,
    /// True if the kernel sends one write at a time to the whole drive; `None` on kernels without
    /// the attribute.
    pub qd1_writes: Option<bool>,
    /// Target latency of write-back throttling in microseconds; 0 is off, `None` if not available.
    pub wbt_us: Option<u64>,
    /// Kernel names of devices that are stacked on this one.
    pub holders: Vec<String>,
}

/// Reason why a path is not a usable block device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FactsError {
    /// The path cannot be examined.
    #[error("cannot be examined: {0}")]
    Stat(#[source] io::Error),
    /// The path is something else.
    #[error("is not a block device")]
    NotABlockDevice,
    /// The kernel does not list the device.
    #[error("is not listed in {}: {source}; is sysfs mounted, and the drive still there?", directory.display())]
    NotListed {
        /// Directory that should describe it.
        directory: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// An attribute has no valid value.
    #[error("the kernel's attribute {} cannot be read: {reason}", path.display())]
    Attribute {
        /// File of the attribute.
        path: PathBuf,
        /// Description of the problem.
        reason: String,
    },
}

impl Facts {
    /// Properties of the block device at `path`, which may be a link.
    ///
    /// # Errors
    /// [`FactsError`].
    pub fn of(path: &Path) -> Result<Facts, FactsError> {
        let found = fs::metadata(path).map_err(FactsError::Stat)?;
        if !found.file_type().is_block_device() {
            return Err(FactsError::NotABlockDevice);
        }
        let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        let link = Path::new(SYSFS).join(format!("dev/block/{}:{}", number.0, number.1));
        let directory =
            link.canonicalize().map_err(|source| FactsError::NotListed { directory: link, source })?;
        Facts::read(directory, number)
    }

    /// Properties of the zoned block devices of this machine, by name. Devices that vanish meanwhile
    /// are left out.
    ///
    /// # Errors
    /// Those of listing the devices.
    pub fn all_zoned() -> io::Result<Vec<Facts>> {
        let mut found = Facts::all()?;
        found.retain(|facts| !matches!(facts.zoned, None | Some(Zoned::None)));
        Ok(found)
    }

    /// Properties of the block devices of this machine without partitions, by name. Devices that
    /// vanish meanwhile are left out.
    ///
    /// # Errors
    /// Those of listing the devices.
    pub fn all() -> io::Result<Vec<Facts>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(Path::new(SYSFS).join("block"))? {
            let Ok(directory) = entry?.path().canonicalize() else { continue };
            let Some(number) = attribute(&directory, "dev").as_deref().and_then(parse_number) else {
                continue;
            };
            found.extend(Facts::read(directory, number).ok());
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Reads the attributes in `directory`.
    fn read(directory: PathBuf, number: (u32, u32)) -> Result<Facts, FactsError> {
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_partition = directory.join("partition").exists();
        let whole = match directory.parent().filter(|_| is_partition) {
            Some(parent) => parent.to_owned(),
            None => directory.clone(),
        };
        let partition_of = is_partition
            .then(|| whole.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned()));
        let number_in = |path: &str| match attribute(&whole, path) {
            None => Ok(None),
            Some(text) => match text.parse::<u64>() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(FactsError::Attribute {
                    path: whole.join(path),
                    reason: format!("{text:?} is not a number"),
                }),
            },
        };
        let queue = |key: &str| number_in(&format!("queue/{key}"));
        let needed = |key: &str| {
            queue(key)?.ok_or_else(|| FactsError::Attribute {
                path: whole.join("queue").join(key),
                reason: "it does not exist".to_owned(),
            })
        };
        let zoned = attribute(&whole, "queue/zoned").map(|text| match text.as_str() {
            "host-managed" => Zoned::HostManaged,
            "host-aware" => Zoned::HostAware,
            _ => Zoned::None,
        });
        let transport = transport(&whole);
        let logical_block = needed("logical_block_size")? as u32;
        let physical_block = queue("physical_block_size")?.map_or(logical_block, |n| n as u32);
        // Before Linux 5.12 the unit has no attribute: the physical block of SCSI disks.
        let write_unit = match (queue("zone_write_granularity")?, transport) {
            (Some(unit), _) if unit > 0 => unit as u32,
            (None, Transport::Scsi) => physical_block,
            _ => logical_block,
        };
        let holders = fs::read_dir(directory.join("holders")).into_iter().flatten().flatten();
        let mut holders: Vec<String> =
            holders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        holders.sort();
        let text = |key: &str| attribute(&whole, key).unwrap_or_default();
        Ok(Facts {
            number,
            partition_of,
            sectors: attribute(&directory, "size").and_then(|text| text.parse().ok()).unwrap_or(0),
            zoned,
            transport,
            model: text("device/model"),
            serial: serial(&whole, transport),
            identity: identity(&whole, transport),
            zone_sectors: queue("chunk_sectors")?.unwrap_or(0),
            zones: queue("nr_zones")?.unwrap_or(0) as u32,
            open_max: queue("max_open_zones")?.unwrap_or(0) as u32,
            active_max: queue("max_active_zones")?.unwrap_or(0) as u32,
            logical_block,
            physical_block,
            write_unit,
            command_max: needed("max_sectors_kb")? << 10,
            command_max_hardware: needed("max_hw_sectors_kb")? << 10,
            append_max: queue("zone_append_max_bytes")?.unwrap_or(0),
            // Before Linux 6.0 direct I/O requires the alignment of a logical block.
            memory_align: queue("dma_alignment")?.map_or(logical_block, |mask| mask as u32 + 1),
            write_back: text("queue/write_cache") == "write back",
            fua: queue("fua")? == Some(1),
            rotational: queue("rotational")? == Some(1),
            read_only: number_in("ro")? == Some(1),
            requests_max: queue("nr_requests")?.map_or(64, |n| n as u32),
            scheduler: selected(&text("queue/scheduler")),
            qd1_writes: queue("zoned_qd1_writes")?.map(|on| on != 0),
            wbt_us: attribute(&whole, "queue/wbt_lat_usec").and_then(|text| text.parse().ok()),
            holders,
            name,
            directory,
        })
    }

    /// Model and serial number for messages: what a person can compare with the label of the drive.
    pub fn label(&self) -> String {
        let model = if self.model.is_empty() { "a drive without a model name" } else { &self.model };
        match self.serial.as_str() {
            "" => format!("{model} (no serial number)"),
            serial => format!("{model} (serial number {serial})"),
        }
    }
}

/// Value of an attribute without surrounding spaces; `None` if there is none.
fn attribute(directory: &Path, key: &str) -> Option<String> {
    text(&directory.join(key))
}

/// Text of a small file without surrounding spaces; `None` if it cannot be read.
pub(crate) fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    // Drives pad their names, some with bytes that are not text.
    let text = String::from_utf8_lossy(&bytes);
    Some(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
}

/// Parses `MAJOR:MINOR`.
fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the name in brackets of a list such as `[none] mq-deadline`.
fn selected(list: &str) -> String {
    let found = list.split_ascii_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    found.unwrap_or_default().to_owned()
}

/// Driver of a device, or of the first device below a stacked one.
fn transport(whole: &Path) -> Transport {
    let below = fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten().next();
    if let Some(below) = below.and_then(|entry| entry.path().canonicalize().ok()) {
        return transport(&below);
    }
    let subsystem = |of: &str| {
        let link = whole.join(of).join("subsystem").canonicalize().ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    };
    match subsystem("device").as_deref() {
        Some("scsi") => Transport::Scsi,
        Some("nvme" | "nvme-subsystem") => Transport::Nvme,
        _ => Transport::Other,
    }
}

fn serial(whole: &Path, transport: Transport) -> String {
    match transport {
        // Vital product data, page 80h (SPC-5 7.7.22): a header of four bytes.
        Transport::Scsi => {
            let page = fs::read(whole.join("device/vpd_pg80")).unwrap_or_default();
            String::from_utf8_lossy(page.get(4..).unwrap_or_default()).trim().to_owned()
        }
        Transport::Nvme | Transport::Other => {
            attribute(whole, "device/serial").or_else(|| attribute(whole, "serial")).unwrap_or_default()
        }
    }
}

/// UUID or NGUID of a namespace, or the NAA designator of a SCSI disk, padded with zeroes.
fn identity(whole: &Path, transport: Transport) -> Option<Identity> {
    match transport {
        Transport::Nvme => ["uuid", "nguid"].iter().find_map(|key| attribute(whole, key)?.parse().ok()),
        Transport::Scsi => {
            let wwid = attribute(whole, "device/wwid")?;
            let digits = wwid.strip_prefix("naa.")?;
            let padded = format!("{digits:0<32}");
            let value = u128::from_str_radix(&padded, 16).ok().filter(|_| padded.len() == 32)?;
            Identity::from_bytes(value.to_be_bytes())
        }
        Transport::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory like that of a drive in `sysfs`.
    fn drive(attributes: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("sdz");
        fs::create_dir_all(directory.join("queue")).unwrap();
        fs::create_dir_all(directory.join("device")).unwrap();
        let usual = [
            ("size", "58593280"),
            ("queue/logical_block_size", "512"),
            ("queue/physical_block_size", "4096"),
            ("queue/max_sectors_kb", "1280"),
            ("queue/max_hw_sectors_kb", "32767"),
        ];
        for (key, value) in usual.iter().chain(attributes) {
            fs::write(directory.join(key), format!("{value}\n")).unwrap();
        }
        (root, directory)
    }

    #[test]
    fn attributes_of_a_disk_are_read() {
        let (_root, directory) = drive(&[
            ("queue/zoned", "host-managed"),
            ("queue/chunk_sectors", "524288"),
            ("queue/nr_zones", "112"),
            ("queue/max_open_zones", "128"),
            ("queue/zone_write_granularity", "4096"),
            ("queue/scheduler", "none [mq-deadline] bfq"),
            ("queue/write_cache", "write back"),
            ("queue/rotational", "1"),
            ("queue/zoned_qd1_writes", "1"),
            ("device/model", "HSH7xxxxxxxx    "),
        ]);
        let facts = Facts::read(directory, (8, 0)).unwrap();
        assert_eq!((facts.name.as_str(), facts.zoned), ("sdz", Some(Zoned::HostManaged)));
        assert_eq!((facts.sectors, facts.zone_sectors, facts.zones), (58_593_280, 524_288, 112));
        assert_eq!((facts.open_max, facts.active_max), (128, 0));
        assert_eq!((facts.logical_block, facts.write_unit), (512, 4096));
        assert_eq!((facts.command_max, facts.command_max_hardware), (1280 << 10, 32767 << 10));
        assert_eq!((facts.scheduler.as_str(), facts.qd1_writes), ("mq-deadline", Some(true)));
        assert!(facts.write_back && facts.rotational && !facts.fua);
        assert_eq!(facts.label(), "HSH7xxxxxxxx (no serial number)");
    }

    #[test]
    fn attributes_that_an_old_kernel_lacks_have_safe_values() {
        let (_root, directory) = drive(&[]);
        let facts = Facts::read(directory, (8, 0)).unwrap();
        assert_eq!((facts.zoned, facts.qd1_writes, facts.wbt_us), (None, None, None));
        assert_eq!((facts.write_unit, facts.memory_align), (512, 512));
        assert_eq!((facts.open_max, facts.zones), (0, 0));
    }

    #[test]
    fn attribute_that_is_no_number_is_named() {
        let (_root, directory) = drive(&[("queue/nr_zones", "many")]);
        let error = Facts::read(directory, (8, 0)).unwrap_err().to_string();
        assert!(error.contains("queue/nr_zones") && error.contains("\"many\""), "{error}");
    }

    #[test]
    fn partition_has_the_zones_of_its_drive() {
        let (_root, whole) = drive(&[("queue/zoned", "host-managed")]);
        let part = whole.join("sdz1");
        fs::create_dir(&part).unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        fs::write(part.join("size"), "2048\n").unwrap();
        let facts = Facts::read(part, (8, 1)).unwrap();
        assert_eq!(facts.partition_of.as_deref(), Some("sdz"));
        assert_eq!((facts.sectors, facts.zoned), (2048, Some(Zoned::HostManaged)));
    }

    #[test]
    fn file_is_not_a_block_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(Facts::of(file.path()), Err(FactsError::NotABlockDevice)));
    }
}
