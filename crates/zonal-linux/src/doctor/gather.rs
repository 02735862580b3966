//! Collection of evidence from the kernel, without writing anything.

use super::log::{Log, LogLine, Names};
use super::{Access, CacheType, Evidence, KernelVersion, Machine, Module, Pointers, SgOnly, Uses};
use crate::ioctl::Source;
use crate::stale::{KernelTable, report_all};
use crate::sysfs::{Facts, FactsError, Zoned, text};
use crate::{BlkOptions, BlockDevice};
use io_uring::IoUring;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zonal_io::owner::{self, Owner};

/// Longest record of `/dev/kmsg`.
const RECORD_MAX: usize = 8192;

/// SCSI device type of host-managed disks.
const HOST_MANAGED: &str = "20";

/// Modules of optional features.
const MODULES: [(&str, &str); 3] = [
    ("fuse", "`zonal mount`"),
    ("ublk_drv", "`zonal serve --ublk`"),
    ("nvme_tcp", "the kernel's access to the drives of `zonal serve`"),
];

/// Evidence about the block device at `path`.
///
/// # Errors
/// [`FactsError`] if it is not a block device that the kernel knows.
pub fn drive(path: &Path) -> Result<Evidence, FactsError> {
    let facts = Facts::of(path)?;
    let kernel = KernelVersion::running();
    let mut evidence = Evidence {
        kernel,
        zones_built: zones_built(&facts),
        state: text(&facts.directory.join("device/state")),
        cache: cache_of(&facts),
        access: Access::Allowed,
        uses: Uses::of(&facts),
        zones: Ok(Vec::new()),
        owner: None,
        pointers: Pointers::Compared(Vec::new()),
        log: log_of(&Names::of(&facts.name, &facts.directory)),
        facts,
    };
    // Opening for writing would make udev probe the drive afterwards.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let file = match (opened, rustix::fs::access(path, rustix::fs::Access::WRITE_OK)) {
        (Ok(file), Ok(())) => file,
        (Err(error), _) => {
            evidence.access = refused(path, &error);
            return Ok(evidence);
        }
        // Without write permission there is still something to see, and with a read-only device
        // the kernel refuses it, too.
        (Ok(file), Err(Errno::ROFS)) => file,
        (Ok(file), Err(error)) => {
            evidence.access = refused(path, &error.into());
            file
        }
    };
    if evidence.facts.zoned == Some(Zoned::HostManaged) && evidence.facts.partition_of.is_none() {
        evidence.zones =
            report_all(&file, evidence.facts.sectors, Source::Drive).map_err(|error| error.to_string());
        if evidence.zones.is_ok() {
            evidence.owner = owner_of(path);
            evidence.pointers = pointers_of(&file, &evidence.facts);
        }
    }
    Ok(evidence)
}

/// Refused access to a device file, with what its owner says of it.
fn refused(path: &Path, error: &io::Error) -> Access {
    let group = fs::metadata(path).ok().filter(|file| file.gid() != 0 && file.mode() & 0o060 == 0o060);
    Access::Refused {
        error: error.to_string(),
        group: group.and_then(|file| group_name(file.gid())),
        is_root: rustix::process::geteuid().is_root(),
    }
}

/// Name of a group in `/etc/group`.
fn group_name(gid: u32) -> Option<String> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    })
}

/// Evidence about this machine.
pub fn machine() -> Machine {
    let devices = Facts::all().unwrap_or_default();
    let is_zoned = |facts: &&Facts| !matches!(facts.zoned, None | Some(Zoned::None));
    let zoned = devices.iter().filter(is_zoned).count();
    let built = if zoned > 0 { Some(true) } else { zones_compiled_in() };
    let number = |path: &str| text(Path::new(path))?.parse().ok();
    Machine {
        release: release(),
        zones_built: built,
        zoned,
        sg_only: sg_only(built),
        uring_error: IoUring::new(1).err().map(|error| error.to_string()),
        uring_setting: number("/proc/sys/kernel/io_uring_disabled").map(|setting| setting as u32),
        aio: number("/proc/sys/fs/aio-nr").zip(number("/proc/sys/fs/aio-max-nr")),
        modules: MODULES
            .map(|(name, feature)| Module { name, feature, available: is_available(name) })
            .to_vec(),
    }
}

/// Release of the kernel, as `uname -r` prints it.
pub(super) fn release() -> String {
    text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default()
}

/// True if the kernel was built with zones; `None` if unknown.
pub(crate) fn zones_built(facts: &Facts) -> Option<bool> {
    match facts.zoned {
        Some(Zoned::HostManaged | Zoned::HostAware) => Some(true),
        Some(Zoned::None) | None => zones_compiled_in(),
    }
}

/// True if the kernel has the functions of zones; `None` if unknown.
fn zones_compiled_in() -> Option<bool> {
    let symbols = BufReader::new(File::open("/proc/kallsyms").ok()?);
    let mut has_block_layer = false;
    for line in symbols.split(b'\n').map_while(Result::ok) {
        if line.ends_with(b" blkdev_report_zones") {
            return Some(true);
        }
        has_block_layer |= line.ends_with(b" submit_bio");
    }
    // Not all kernels list their functions.
    has_block_layer.then_some(false)
}

/// Write cache as the driver of SCSI disks reports it.
fn cache_of(facts: &Facts) -> Option<CacheType> {
    let disks = fs::read_dir(facts.directory.join("device/scsi_disk")).ok()?;
    let kind = disks.flatten().find_map(|disk| text(&disk.path().join("cache_type")))?;
    Some(if kind.starts_with("write back") { CacheType::WriteBack } else { CacheType::WriteThrough })
}

/// Host-managed disks without a block device.
fn sg_only(zones_built: Option<bool>) -> Vec<SgOnly> {
    let devices = fs::read_dir("/sys/class/scsi_generic").into_iter().flatten().flatten();
    let mut found: Vec<SgOnly> = devices
        .filter_map(|entry| {
            let device = entry.path().join("device");
            let is_host_managed = text(&device.join("type"))? == HOST_MANAGED;
            let has_block_device =
                fs::read_dir(device.join("block")).is_ok_and(|mut names| names.next().is_some());
            (is_host_managed && !has_block_device).then(|| SgOnly {
                sg: format!("/dev/{}", entry.file_name().to_string_lossy()),
                model: text(&device.join("model")).unwrap_or_default(),
                zones_built,
            })
        })
        .collect();
    found.sort_by(|a, b| a.sg.cmp(&b.sg));
    found
}

/// True if a module is built in, loaded or installed; `None` if unknown.
fn is_available(name: &str) -> Option<bool> {
    if Path::new("/sys/module").join(name).exists() {
        return Some(true);
    }
    let directory = Path::new("/lib/modules").join(release());
    let lists = ["modules.builtin", "modules.dep"].map(|list| fs::read_to_string(directory.join(list)));
    let [Ok(builtin), Ok(installed)] = lists else { return None };
    Some(lists_module(&builtin, name) || lists_module(&installed, name))
}

/// True if a list of paths such as `kernel/drivers/block/ublk_drv.ko.xz: ...` has the module. Names
/// of files may have hyphens in place of underscores.
fn lists_module(list: &str, name: &str) -> bool {
    let file = |line: &str| {
        let path = line.split(':').next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default().replace('-', "_")
    };
    list.lines().any(|line| file(line) == name)
}

/// Lines of the kernel log about a drive.
fn log_of(names: &Names) -> Log {
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open("/dev/kmsg");
    let read = opened.and_then(|file| read_log(file, names));
    read.map_or_else(|error| Log::Unreadable(format!("/dev/kmsg: {error}")), Log::Lines)
}

fn read_log(mut log: impl Read, names: &Names) -> io::Result<Vec<LogLine>> {
    let mut found = Vec::new();
    let mut record = [0; RECORD_MAX];
    loop {
        match log.read(&mut record) {
            Ok(0) => return Ok(found),
            Ok(len) => found.extend(LogLine::parse(&record[..len]).filter(|line| names.are_in(line))),
            // No more records.
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(found),
            // The record was overwritten; the next read returns the oldest one.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Owner of the data on a drive; `None` also if its zones are not supported.
fn owner_of(path: &Path) -> Option<Owner> {
    let options = BlkOptions::default().with_force(true);
    let device = BlockDevice::open(path, &path.to_string_lossy(), &options).ok()?;
    owner::find(&device)
}

/// Comparison of the kernel's write pointers with those of the drive.
fn pointers_of(file: &File, facts: &Facts) -> Pointers {
    match KernelTable::of(file, &facts.name) {
        KernelTable::Hidden(reason) => Pointers::Unknown(reason),
        table => table
            .settled(file, facts.sectors)
            .map_or_else(|error| Pointers::Unknown(error.to_string()), Pointers::Compared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Returns a record of the log, or an error, for each read.
    struct Records(VecDeque<Result<&'static str, ErrorKind>>);

    impl Read for Records {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let record = self.0.pop_front().unwrap_or(Err(ErrorKind::WouldBlock))?;
            buffer[..record.len()].copy_from_slice(record.as_bytes());
            Ok(record.len())
        }
    }

    #[test]
    fn log_is_read_to_its_end_past_overwritten_records() {
        let records = Records(VecDeque::from([
            Ok("6,1,10,-;sd 2:0:0:0: [sdb] Attached SCSI disk\n"),
            Err(ErrorKind::BrokenPipe),
            Ok("6,7,20,-;sd 3:0:0:0: [sdc] Attached SCSI disk\n"),
            Ok("3,8,30,-;sd 2:0:0:0: rejecting I/O to offline device\n DEVICE=+scsi:2:0:0:0\n"),
        ]));
        let names = Names::of("sdb", Path::new("/sys/devices/host2/2:0:0:0/block/sdb"));
        let lines = read_log(records, &names).unwrap();
        assert_eq!(lines.iter().map(|line| line.us).collect::<Vec<_>>(), [10, 30]);
        let failing = Records([Err(ErrorKind::PermissionDenied)].into());
        assert!(read_log(failing, &names).is_err());
    }

    #[test]
    fn module_is_found_by_its_file() {
        let list = "kernel/drivers/nvme/host/nvme-tcp.ko.zst: kernel/drivers/nvme/host/nvme-core.ko.zst\n";
        assert!(lists_module(list, "nvme_tcp"));
        assert!(!lists_module(list, "nvme_core") && !lists_module(list, "fuse"));
    }

    #[test]
    fn machine_is_examined_without_privileges() {
        let machine = machine();
        assert!(KernelVersion::parse(&machine.release).is_some(), "{machine:?}");
    }
}
