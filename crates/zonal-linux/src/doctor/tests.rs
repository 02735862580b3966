//! A test that makes each finding, and none on healthy drives and machines.

use super::*;
use crate::ioctl::Reported;
use crate::sysfs::{Facts, Transport, Zoned};
use std::path::PathBuf;
use zonal_io::owner::Owner;

const ZONE: u64 = 524_288;

fn zones(count: u64, conventional: u64) -> Vec<Reported> {
    let zone = |index| {
        let (kind, condition) = if index < conventional { (1, 0) } else { (2, 1) };
        let start = index * ZONE;
        Reported { start, sectors: ZONE, capacity: ZONE, pointer: start, kind, condition }
    };
    (0..count).map(zone).collect()
}

/// A namespace with nothing to note.
fn healthy() -> Evidence {
    let facts = Facts {
        name: "nvme0n1".to_owned(),
        directory: PathBuf::new(),
        number: (259, 0),
        partition_of: None,
        sectors: 64 * ZONE,
        zoned: Some(Zoned::HostManaged),
        transport: Transport::Nvme,
        model: "model".to_owned(),
        serial: "serial".to_owned(),
        identity: None,
        zone_sectors: ZONE,
        zones: 64,
        open_max: 8,
        active_max: 12,
        logical_block: 4096,
        physical_block: 4096,
        write_unit: 4096,
        command_max: 1 << 20,
        command_max_hardware: 2 << 20,
        append_max: 1 << 20,
        memory_align: 4,
        write_back: true,
        fua: true,
        rotational: false,
        read_only: false,
        requests_max: 1023,
        scheduler: "none".to_owned(),
        qd1_writes: None,
        wbt_us: None,
        holders: Vec::new(),
    };
    Evidence {
        kernel: Some(KernelVersion { major: 6, minor: 19 }),
        zones_built: Some(true),
        facts,
        state: Some("live".to_owned()),
        cache: None,
        access: Access::Allowed,
        uses: Uses::default(),
        zones: Ok(zones(64, 4)),
        owner: None,
        pointers: Pointers::Compared(Vec::new()),
        log: Log::Lines(vec![line("nvme nvme0: 4/0/0 default/read/poll queues")]),
    }
}

/// A disk with nothing to mend.
fn disk() -> Evidence {
    let mut disk = healthy();
    disk.facts.name = "sda".to_owned();
    disk.facts.transport = Transport::Scsi;
    disk.facts.rotational = true;
    disk.facts.scheduler = "mq-deadline".to_owned();
    disk.state = Some("running".to_owned());
    disk.cache = Some(CacheType::WriteBack);
    disk
}

fn line(text: &str) -> LogLine {
    LogLine { us: 1_500_000, text: text.to_owned() }
}

fn keys(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(Finding::key).collect()
}

fn refused(group: Option<&str>, is_root: bool) -> Access {
    Access::Refused { error: "Permission denied".to_owned(), group: group.map(str::to_owned), is_root }
}

/// A change of evidence about a drive, or about a machine.
type Change<T = Evidence> = fn(&mut T);

/// Sets the conditions of the zones from the fourth on.
fn set(evidence: &mut Evidence, count: usize, condition: u8) {
    let zones = evidence.zones.as_mut().unwrap();
    zones.iter_mut().skip(4).take(count).for_each(|zone| zone.condition = condition);
}

#[test]
fn healthy_drives_have_no_findings() {
    assert_eq!(examine(&healthy()), []);
    assert_eq!(examine(&disk()), []);
}

#[test]
fn each_change_of_a_healthy_namespace_makes_its_finding() {
    let changes: [(&str, Change); 31] = [
        ("kernel-too-old", |e| e.kernel = KernelVersion::parse("5.4.0-150-generic")),
        ("kernel-without-zones", |e| e.facts.zoned = None),
        ("kernel-without-zones", |e| (e.facts.zoned, e.zones_built) = (Some(Zoned::None), Some(false))),
        ("not-zoned", |e| e.facts.zoned = Some(Zoned::None)),
        ("host-aware", |e| e.facts.zoned = Some(Zoned::HostAware)),
        ("offline", |e| e.facts.sectors = 0),
        ("offline", |e| e.state = Some("dead".to_owned())),
        ("partition", |e| e.facts.partition_of = Some("nvme0n1".to_owned())),
        ("no-access", |e| e.access = refused(None, false)),
        ("no-report", |e| e.zones = Err("Inappropriate ioctl for device".to_owned())),
        ("read-only", |e| e.facts.read_only = true),
        ("other-data", |e| e.owner = Some(Owner::FileSystem("btrfs"))),
        ("other-data", |e| e.owner = Some(Owner::PartitionTable("GPT"))),
        ("file-system", |e| e.owner = Some(Owner::Zonal { label: "films".to_owned() })),
        ("mounted", |e| e.uses.mounts.push(PathBuf::from("/mnt"))),
        ("swap", |e| e.uses.swap = true),
        ("held", |e| e.uses.holders.push("dm-0".to_owned())),
        ("in-use", |e| e.uses.processes.push(4711)),
        ("scheduler", |e| e.facts.scheduler = "mq-deadline".to_owned()),
        ("small-commands", |e| e.facts.command_max = 128 << 10),
        ("zones-read-only", |e| set(e, 2, 13)),
        ("zones-offline", |e| set(e, 3, 15)),
        ("open-zones", |e| set(e, 8, 3)),
        ("active-zones", |e| set(e, 12, 4)),
        ("append-emulated", |e| e.facts.append_max = 0),
        ("no-conventional-zones", |e| e.zones = Ok(zones(64, 0))),
        ("capacity-below-size", |e| e.zones.as_mut().unwrap()[63].capacity = 275_712),
        ("write-unit", |e| e.facts.logical_block = 512),
        ("pointers-unknown", |e| e.pointers = Pointers::Unknown("no debugfs".to_owned())),
        ("stale-pointer", |e| {
            e.pointers = Pointers::Compared(vec![Stale { zone: 7, drive: 64, kernel: 128 }]);
        }),
        ("log-unreadable", |e| e.log = Log::Unreadable("Operation not permitted".to_owned())),
    ];
    for (key, change) in changes {
        let mut evidence = healthy();
        change(&mut evidence);
        assert_eq!(keys(&examine(&evidence)), [key]);
    }
}

#[test]
fn each_change_of_a_healthy_disk_makes_its_finding() {
    let changes: [(&str, Change); 6] = [
        ("cache-off", |e| (e.facts.write_back, e.cache) = (false, Some(CacheType::WriteThrough))),
        ("flushes-off", |e| e.facts.write_back = false),
        ("write-throttling", |e| e.facts.wbt_us = Some(75_000)),
        ("kernel-log", |e| e.log = Log::Lines(vec![line("ata1: hard resetting link")])),
        ("lost-writes", |e| {
            e.log =
                Log::Lines(vec![line("Buffer I/O error on dev sda, logical block 9, lost async page write")]);
        }),
        ("offline", |e| e.state = Some("offline".to_owned())),
    ];
    for (key, change) in changes {
        let mut evidence = disk();
        change(&mut evidence);
        assert_eq!(keys(&examine(&evidence)), [key]);
    }
}

#[test]
fn flash_without_a_volatile_cache_has_no_finding() {
    let mut evidence = healthy();
    evidence.facts.write_back = false;
    assert_eq!(examine(&evidence), []);
}

#[test]
fn open_zones_of_a_user_and_implicitly_opened_ones_are_no_finding() {
    let mut evidence = healthy();
    set(&mut evidence, 8, 2);
    assert_eq!(examine(&evidence), [], "the drive closes these by itself");
    let mut evidence = healthy();
    set(&mut evidence, 12, 3);
    evidence.uses.processes.push(4711);
    assert_eq!(keys(&examine(&evidence)), ["in-use"]);
}

#[test]
fn small_commands_that_the_drive_requires_are_no_finding() {
    let mut evidence = healthy();
    (evidence.facts.command_max, evidence.facts.command_max_hardware) = (256 << 10, 256 << 10);
    assert_eq!(examine(&evidence), []);
}

#[test]
fn unusable_drive_has_its_reason_first_and_no_advice_on_settings() {
    let mut evidence = healthy();
    evidence.zones = Err("Inappropriate ioctl for device".to_owned());
    evidence.facts.scheduler = "bfq".to_owned();
    evidence.uses.mounts.push(PathBuf::from("/mnt"));
    evidence.log = Log::Lines(vec![line("nvme nvme0: I/O tag 3 QID 1 timeout, aborting")]);
    let found = examine(&evidence);
    assert_eq!(keys(&found), ["no-report", "mounted", "kernel-log"]);
    assert_eq!(found[0].severity(), Severity::Unusable);
}

#[test]
fn device_without_zones_has_no_other_finding() {
    let mut evidence = healthy();
    (evidence.facts.zoned, evidence.facts.sectors) = (Some(Zoned::None), 0);
    evidence.access = refused(None, true);
    evidence.uses.mounts.push(PathBuf::from("/"));
    evidence.log = Log::Lines(vec![line("nvme nvme0: I/O tag 3 QID 1 timeout, aborting")]);
    assert_eq!(keys(&examine(&evidence)), ["not-zoned"]);
}

#[test]
fn advice_fits_the_mount_and_the_refusal() {
    let command = |change: Change| {
        let mut evidence = healthy();
        change(&mut evidence);
        examine(&evidence)[0].text("nvme0n1").command
    };
    assert_eq!(command(|e| e.uses.mounts.push(PathBuf::from("/srv/a"))), "sudo umount /srv/a");
    assert_eq!(command(|e| e.uses.mounts.push(PathBuf::from("/"))), "");
    assert_eq!(command(|e| e.uses.mounts.push(PathBuf::from("/var/lib"))), "");
    let of_zonal = |e: &mut Evidence| {
        e.uses.mounts.push(PathBuf::from("/srv/a"));
        e.uses.processes.push(4711);
    };
    assert_eq!(command(of_zonal), "sudo zonal unmount /srv/a");
    assert_eq!(command(|e| e.access = refused(Some("disk"), false)), "sudo usermod -aG disk $USER");
    assert_eq!(command(|e| e.access = refused(None, false)), "sudo zonal doctor /dev/nvme0n1");
    assert_eq!(command(|e| e.access = refused(Some("disk"), true)), "");
}

#[test]
fn zones_are_counted_and_the_first_is_named() {
    let mut evidence = healthy();
    set(&mut evidence, 3, 15);
    assert_eq!(examine(&evidence), [Finding::OfflineZones { count: 3, first: 4 }]);
}

#[test]
fn each_finding_of_a_machine_is_made() {
    let healthy = || Machine {
        release: "6.12.48+deb13-amd64".to_owned(),
        zones_built: Some(true),
        aio: Some((0, 65_536)),
        modules: vec![Module { name: "fuse", feature: "`zonal mount`", available: Some(true) }],
        ..Machine::default()
    };
    assert_eq!(examine_machine(&healthy()), []);
    let changes: [(&str, Change<Machine>); 6] = [
        ("kernel-too-old", |m| m.release = "4.19.0-27-amd64".to_owned()),
        ("kernel-without-zones", |m| m.zones_built = Some(false)),
        ("sg-only", |m| {
            let disk = SgOnly { sg: "/dev/sg1".to_owned(), model: String::new(), zones_built: Some(true) };
            m.sg_only.push(disk);
        }),
        ("io-uring-refused", |m| m.uring_error = Some("Operation not permitted".to_owned())),
        ("aio-used-up", |m| m.aio = Some((65_000, 65_536))),
        ("module-missing", |m| m.modules[0].available = Some(false)),
    ];
    for (key, change) in changes {
        let mut machine = healthy();
        change(&mut machine);
        assert_eq!(keys(&examine_machine(&machine)), [key]);
    }
}

#[test]
fn texts_have_evidence_a_reason_and_a_command() {
    let zones = (0..20).map(|zone| Stale { zone, drive: 64, kernel: 128 }).collect();
    let text = Finding::StalePointers { zones }.text("sda");
    assert!(text.evidence.starts_with("zone 0: drive at sector 64, kernel at 128; zone 1"), "{text:?}");
    assert!(text.evidence.ends_with("; and 12 more"), "{text:?}");
    assert_eq!(text.command, "zonal doctor /dev/sda --heal");
    let text = Finding::SmallCommands { max: 128 << 10, hardware: 32_767 << 10 }.text("sda");
    assert_eq!(text.evidence, "max_sectors_kb is 128, and the drive takes 32767");
    assert_eq!(text.command, "echo 1024 | sudo tee /sys/block/sda/queue/max_sectors_kb");
}

#[test]
fn release_has_a_version() {
    let parsed = |release| KernelVersion::parse(release).map(|version| version.to_string());
    assert_eq!(parsed("6.18.44-fc").as_deref(), Some("6.18"));
    assert_eq!(parsed("7.2-rc1\n").as_deref(), Some("7.2"));
    assert_eq!(parsed("unknown"), None);
    assert!(KernelVersion::parse("5.9.16") < Some(KERNEL_MIN));
}
