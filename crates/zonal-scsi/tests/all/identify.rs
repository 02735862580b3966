//! Identification of the disk.

use crate::rig::{DRIVE, DRIVE_4K, GAPS, IDENTITY, Rig, cdb, filled, memory, parse, volume};
use std::sync::Arc;
use zonal_core::{Geometry, Sectors};
use zonal_io::Volume;
use zonal_io::device::{Device, DeviceInfo, Wrapper};
use zonal_io::registry::Registry;
use zonal_io::volume::VolumeOptions;
use zonal_scsi::sense::SenseCode;
use zonal_scsi::wire::cdb::PreventAllowMediumRemoval;
use zonal_scsi::wire::*;
use zonal_scsi::{Disk, DiskOptions, Task};

fn luns(select: u8) -> Cdb {
    cdb_of(&ReportLuns { select, len: 16.into(), ..ReportLuns::default() })
}

fn page(rig: &mut Rig, page: u8) -> Vec<u8> {
    let data = rig.data(cdb_of(&Inquiry { flags: bits::EVPD, page, len: 512.into() }), 512);
    let header = parse::<VpdHeader>(&data);
    assert_eq!((header.peripheral, header.page, usize::from(header.len.get())), (0x14, page, data.len() - 4));
    data[4..].to_vec()
}

#[test]
fn inquiry_names_a_host_managed_disk() {
    let mut rig = Rig::new(DRIVE);
    let data = rig.data(cdb_of(&Inquiry { len: 255.into(), ..Inquiry::default() }), 255);
    let inquiry = parse::<InquiryData>(&data);
    assert_eq!((inquiry.peripheral, inquiry.version), (0x14, 6));
    assert_eq!(&inquiry.vendor, b"ZONAL   ");
    assert_eq!(usize::from(inquiry.len) + 5, data.len());
    assert_eq!(inquiry.standards[3], 0x0620);
    // Many initiators request 36 bytes first.
    assert_eq!(rig.data(cdb_of(&Inquiry { len: 36.into(), ..Inquiry::default() }), 255), data[..36]);
}

#[test]
fn pages_are_all_that_the_list_of_pages_has() {
    let mut rig = Rig::new(DRIVE);
    let pages = page(&mut rig, vpd::SUPPORTED_PAGES);
    assert!(pages.is_sorted());
    for code in 0..=255 {
        let reply = rig.ask(cdb_of(&Inquiry { flags: bits::EVPD, page: code, len: 512.into() }), &[], 512);
        match pages.contains(&code) {
            true => reply.good(),
            false => reply.is_wrong_at(2),
        }
    }
}

#[test]
fn names_follow_from_the_identity_alone() {
    let (mut one, mut other) = (Rig::new(DRIVE), Rig::new(GAPS));
    let designators = page(&mut one, vpd::DEVICE_IDENTIFICATION);
    assert_eq!(designators, page(&mut other, vpd::DEVICE_IDENTIFICATION));
    let all = Designator::parse_all(&designators).unwrap();
    assert_eq!((all[0].designator_type, all[0].bytes.len(), all[0].bytes[0] >> 4), (Designator::NAA, 8, 3));
    assert!(all[1].bytes.starts_with(b"ZONAL   ZONED DISK      67e55044"));
    assert_eq!(page(&mut one, vpd::UNIT_SERIAL_NUMBER), IDENTITY.replace('-', "").into_bytes());
    let identity = "67e55044-10b1-426f-9247-bb680e5fe0c9".parse().unwrap();
    let mut third = Rig::of(volume(DRIVE), DiskOptions::new(identity));
    assert_ne!(designators, page(&mut third, vpd::DEVICE_IDENTIFICATION));
}

#[test]
fn limits_are_those_of_the_device() {
    let mut rig = Rig::new(DRIVE_4K);
    let limits = parse::<BlockLimits>(&page(&mut rig, vpd::BLOCK_LIMITS));
    // 1 MiB per command and per zone, four conventional zones.
    assert_eq!(
        (limits.transfer_max.get(), limits.transfer_best.get(), limits.write_same_max.get()),
        (8192, 256, 256)
    );
    assert_eq!((limits.unmap_blocks_max.get(), limits.unmap_ranges_max.get()), (1024, 256));
    assert_eq!(limits.flags, BlockLimits::WSNZ);
    let mut rig = Rig::new(GAPS);
    let limits = parse::<BlockLimits>(&page(&mut rig, vpd::BLOCK_LIMITS));
    assert_eq!((limits.unmap_blocks_max.get(), limits.unmap_ranges_max.get()), (0, 0));
    let provisioning = parse::<BlockProvisioning>(&page(&mut rig, vpd::LOGICAL_BLOCK_PROVISIONING));
    assert_eq!(provisioning, BlockProvisioning::default());
}

#[test]
fn characteristics_tell_rotation_and_zones() {
    for (rotational, rotation) in [(0, 1), (1, 7200)] {
        let mut rig = Rig::new(&format!("{DRIVE},rotational={rotational}"));
        let characteristics = page(&mut rig, vpd::BLOCK_DEVICE_CHARACTERISTICS);
        let characteristics = parse::<BlockCharacteristics>(&characteristics);
        assert_eq!((characteristics.rotation.get(), characteristics.zoned), (rotation, 0));
        let zoned = page(&mut rig, vpd::ZONED_BLOCK_DEVICE_CHARACTERISTICS);
        let zoned = parse::<ZonedCharacteristics>(&zoned);
        assert_eq!(zoned.flags, ZonedCharacteristics::URSWRZ);
        assert_eq!((zoned.open_max.get(), zoned.alignment, zoned.granularity.get()), (8, 1, 0));
    }
    let mut rig = Rig::new(GAPS);
    let zoned = page(&mut rig, vpd::ZONED_BLOCK_DEVICE_CHARACTERISTICS);
    let zoned = parse::<ZonedCharacteristics>(&zoned);
    assert_eq!((zoned.open_max.get(), zoned.alignment, zoned.granularity.get()), (u32::MAX, 8, 2048));
}

#[test]
fn capacity_is_the_whole_disk_in_both_forms() {
    for (device, block_len, last_lba) in [(DRIVE, 512, 131_071), (DRIVE_4K, 4096, 16_383)] {
        let mut rig = Rig::new(device);
        let short = parse::<Capacity10>(&rig.data(cdb_of(&ReadCapacity10::default()), 8));
        assert_eq!((short.last_lba.get(), short.block_len.get()), (last_lba, block_len));
        let long = parse::<Capacity16>(
            &rig.data(cdb_of(&ReadCapacity16 { len: 32.into(), ..ReadCapacity16::default() }), 32),
        );
        assert_eq!(
            (long.last_lba.get(), long.block_len.get(), long.basis),
            (last_lba.into(), block_len, 0x10)
        );
        assert_eq!(long.flags, Capacity16::LBPME | Capacity16::LBPRZ);
    }
}

/// 3 TiB in blocks of 512 bytes exceed 32 bits.
#[test]
fn capacity_beyond_32_bits_refers_to_the_longer_command() {
    let mut rig = Rig::new("null:size=3T,zone_size=256M");
    assert_eq!(parse::<Capacity10>(&rig.data(cdb_of(&ReadCapacity10::default()), 8)).last_lba, u32::MAX);
    let long = parse::<Capacity16>(
        &rig.data(cdb_of(&ReadCapacity16 { len: 32.into(), ..ReadCapacity16::default() }), 32),
    );
    assert_eq!(long.last_lba, (3 << 31) - 1);
}

#[test]
fn missing_logical_unit_is_reported() {
    let mut rig = Rig::new(DRIVE);
    let reply = rig.ask_lun(1, cdb_of(&Inquiry { len: 96.into(), ..Inquiry::default() }), &[], 96);
    reply.good();
    assert_eq!(reply.data[0], 0x7F);
    let reply =
        rig.ask_lun(1, cdb_of(&RequestSense { flags: 0, len: 18, ..RequestSense::default() }), &[], 18);
    reply.good();
    assert_eq!(SenseData::parse(&reply.data).unwrap().asc, 0x25);
    for command in [cdb_of(&TestUnitReady::default()), Read { lba: 0, blocks: 1, fua: false }.emit(), luns(0)]
    {
        rig.ask_lun(7, command, &[], 512).fails_with(SenseCode::LOGICAL_UNIT_NOT_SUPPORTED);
    }
}

#[test]
fn units_ready_and_sense_are_answered() {
    let mut rig = Rig::new(DRIVE);
    rig.ask(cdb_of(&TestUnitReady::default()), &[], 0).good();
    assert_eq!(rig.data(luns(0), 16)[..4], [0, 0, 0, 8]);
    assert_eq!(rig.data(luns(1), 16), [0; 8]);
    rig.ask(luns(9), &[], 16).is_wrong_at(2);
    let fixed = rig.data(cdb_of(&RequestSense { flags: 0, len: 252, ..RequestSense::default() }), 252);
    let descriptor =
        rig.data(cdb_of(&RequestSense { flags: bits::DESC, len: 252, ..RequestSense::default() }), 252);
    assert_eq!((fixed[0], fixed.len()), (0x70, 18));
    assert_eq!((descriptor[0], descriptor.len()), (0x72, 8));
    rig.ask(cdb_of(&StartStopUnit { flags: bits::START, ..StartStopUnit::default() }), &[], 0).good();
    rig.ask(cdb_of(&StartStopUnit::default()), &[], 0).good();
    rig.ask(cdb_of(&PreventAllowMediumRemoval { prevent: 1, ..Default::default() }), &[], 0).good();
    rig.ask(cdb_of(&PreventAllowMediumRemoval { prevent: 2, ..Default::default() }), &[], 0).is_wrong_at(4);
}

#[test]
fn mode_pages_tell_cache_and_protection() {
    let mut rig = Rig::with(DRIVE, |options| options.with_read_only(true));
    let sense = ModeSense6 { page: 0x3F, len: 255, ..ModeSense6::default() };
    let data = rig.data(cdb_of(&sense), 255);
    let header = parse::<ModeHeader6>(&data);
    assert_eq!(usize::from(header.len) + 1, data.len());
    assert_eq!(header.flags, ModeHeader6::WP | ModeHeader6::DPOFUA);
    let descriptor = parse::<BlockDescriptor>(&data[4..]);
    assert_eq!((descriptor.blocks.get(), descriptor.block_len), (131_072, [0, 2, 0]));
    let caching = parse::<CachingPage>(&data[12..]);
    assert_eq!((caching.page, caching.flags), (8, 0));
    assert_eq!(parse::<ControlPage>(&data[32..]).page, 0x0A);

    let mut rig = Rig::new(&format!("{DRIVE_4K},fua=0"));
    let long = ModeSense10 { flags: bits::LLBAA, page: 8, len: 255.into(), ..ModeSense10::default() };
    let data = rig.data(cdb_of(&long), 255);
    let header = parse::<ModeHeader10>(&data);
    assert_eq!(
        (usize::from(header.len.get()) + 2, header.long, header.descriptors_len.get()),
        (data.len(), 1, 16)
    );
    assert_eq!(header.flags, 0);
    assert_eq!(parse::<LongBlockDescriptor>(&data[8..]).blocks, 16_384);
    assert_eq!(data.len(), 8 + 16 + 20);
}

#[test]
fn mode_values_that_can_be_changed_are_none() {
    let mut rig = Rig::new(DRIVE);
    let sense = ModeSense6 { flags: bits::DBD, page: 1 << 6 | 0x3F, len: 255, subpage: 0 };
    let data = rig.data(cdb_of(&sense), 255);
    assert_eq!(data[4..6], [8, 18]);
    assert!(data[6..24].iter().all(|byte| *byte == 0));
    assert!(data[26..].iter().all(|byte| *byte == 0));
    let saved = ModeSense6 { page: 3 << 6 | 0x3F, ..sense };
    rig.ask(cdb_of(&saved), &[], 255).fails_with(SenseCode::SAVING_PARAMETERS_NOT_SUPPORTED);
    rig.ask(cdb_of(&ModeSense6 { page: 1 << 6 | 1, ..sense }), &[], 255).is_wrong_at(2);
    rig.ask(cdb_of(&ModeSense6 { subpage: 1, ..sense }), &[], 255).is_wrong_at(3);
}

#[test]
fn mode_select_is_taken_if_it_changes_nothing() {
    let mut rig = Rig::new(DRIVE);
    let mut list = rig.data(cdb_of(&ModeSense6 { page: 0x3F, len: 255, ..ModeSense6::default() }), 255);
    list[0] = 0;
    let select = |len| cdb_of(&ModeSelect6 { flags: bits::PF, len, ..ModeSelect6::default() });
    let reply = rig.ask(select(list.len() as u8), &list, 0);
    reply.good();
    assert_eq!(reply.transferred as usize, list.len());
    rig.ask(select(0), &[], 0).good();
    // Enable the cache.
    list[14] |= 4;
    let reply = rig.ask(select(list.len() as u8), &list, 0);
    reply.fails_with(SenseCode::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(reply.sense.unwrap().field.unwrap().byte, 14);
    list[14] &= !4;
    rig.ask(select(list.len() as u8 - 1), &list, 0).fails_with(SenseCode::PARAMETER_LIST_LENGTH_ERROR);
    rig.ask(select(2), &list, 0).fails_with(SenseCode::PARAMETER_LIST_LENGTH_ERROR);
    rig.ask(select(list.len() as u8), &list[..5], 0).fails_with(SenseCode::DATA_PHASE_ERROR);
    // Different block size.
    list[10] = 16;
    rig.ask(select(list.len() as u8), &list, 0).fails_with(SenseCode::INVALID_FIELD_IN_PARAMETER_LIST);
    let saving = ModeSelect6 { flags: bits::PF | bits::SP, ..ModeSelect6::default() };
    rig.ask(cdb_of(&saving), &[], 0).is_wrong_at(1);
    let ten = ModeSelect10 { flags: bits::PF, len: 8.into(), ..ModeSelect10::default() };
    rig.ask(cdb_of(&ten), &[0; 8], 0).good();
}

#[test]
fn log_pages_are_all_that_the_list_of_pages_has() {
    let mut rig = Rig::new(DRIVE);
    let ask = |page: u8, subpage| {
        cdb_of(&LogSense { page: 1 << 6 | page, subpage, len: 255.into(), ..LogSense::default() })
    };
    let pages = rig.data(ask(0, 0), 255)[4..].to_vec();
    assert_eq!(pages, [0, 0x2F]);
    assert_eq!(rig.data(ask(0, 0xFF), 255)[4..], [0, 0, 0, 0xFF, 0x2F, 0]);
    for page in 0..0x40 {
        let reply = rig.ask(ask(page, 0), &[], 255);
        match pages.contains(&page) {
            true => reply.good(),
            false => reply.is_wrong_at(2),
        }
    }
    rig.ask(ask(0x2F, 1), &[], 255).is_wrong_at(3);
}

/// Device with conventional zones only, such as a range of a drive.
struct Conventional(Arc<dyn Device>, DeviceInfo);

impl Wrapper for Conventional {
    fn inner(&self) -> &dyn Device {
        &*self.0
    }

    fn info(&self) -> &DeviceInfo {
        &self.1
    }
}

#[test]
fn device_without_sequential_zones_is_no_disk() {
    let drive = Registry::default().open(DRIVE).unwrap();
    let four = Geometry::of_part(Sectors(4 << 11), Sectors(1 << 11), Sectors(0), 4).unwrap();
    let info = DeviceInfo { geometry: four, ..drive.info().clone() };
    let volume = Volume::open(Arc::new(Conventional(drive, info)), VolumeOptions::default()).unwrap();
    let disk = Disk::new(Arc::new(volume), DiskOptions::new(IDENTITY.parse().unwrap()));
    assert!(disk.is_err_and(|error| error.to_string().contains("sequential")));
}

/// Tasks with equal tags are independent.
#[test]
fn tags_need_not_differ() {
    let mut rig = Rig::new(DRIVE);
    for _ in 0..2 {
        let task = Task {
            tag: 9,
            lun: 0,
            cdb: cdb(&[0x12, 0, 0, 0, 5, 0]),
            data_out: filled(&[]),
            data_in: memory(5),
        };
        rig.queue.submit(rig.now, task);
    }
    assert_eq!([rig.wait().tag, rig.wait().tag], [9, 9]);
    assert!(rig.queue.take().is_none());
}
