//! REPORT ZONES, compared with the zones of the device.

use crate::rig::{DRIVE, DRIVE_4K, GAPS, Rig, UNTOUCHED, parse, report_zones};
use proptest::prelude::*;
use zerocopy::IntoBytes;
use zonal_core::{Sector, ZoneDescriptor, ZoneType};
use zonal_io::device::ZoneSetting;
use zonal_io::volume;
use zonal_scsi::sense::SenseCode;
use zonal_scsi::wire::*;

/// Drive with zones in all conditions.
fn mixed(device: &str) -> Rig {
    let mut rig = Rig::new(device);
    let zone = rig.zone_blocks();
    rig.must_write(5 * zone, 3, 0x11);
    rig.act(ZoneAction::Open, 6 * zone).good();
    rig.must_write(7 * zone, 3, 0x11);
    rig.act(ZoneAction::Close, 7 * zone).good();
    rig.act(ZoneAction::Finish, 8 * zone).good();
    rig.set_zone(9, ZoneSetting::ReadOnly);
    rig.set_zone(10, ZoneSetting::Offline);
    rig
}

/// Expected report, derived from the device's zones in the simplest way.
fn expected(rig: &Rig, lba: u64, option: u8) -> Vec<ReportedZone> {
    let block = u64::from(rig.disk.block_len() / 512);
    let zones = volume::report(&**rig.disk.volume().device(), Sector(0), u32::MAX).unwrap();
    let mut all = Vec::new();
    for zone in &zones {
        let ZoneDescriptor { start, size, capacity, condition, write_pointer, zone_type, .. } = *zone;
        all.push(ReportedZone {
            zone_type: if zone_type == ZoneType::Conventional { 1 } else { 2 },
            condition: (condition as u8) << 4,
            len: (capacity.0 / block).into(),
            start: (start.0 / block).into(),
            write_pointer: write_pointer.map_or(u64::MAX, |sector| sector.0 / block).into(),
            ..ReportedZone::default()
        });
        if capacity < size {
            all.push(ReportedZone {
                zone_type: 5,
                len: ((size.0 - capacity.0) / block).into(),
                start: ((start.0 + capacity.0) / block).into(),
                write_pointer: u64::MAX.into(),
                ..ReportedZone::default()
            });
        }
    }
    let condition = [99, 1, 2, 3, 4, 0xE, 0xD, 0xF];
    all.retain(|zone| {
        zone.start.get() + zone.len.get() > lba
            && match option {
                0 => true,
                1..=7 => zone.condition >> 4 == condition[usize::from(option)] && zone.zone_type != 5,
                0x3E => zone.zone_type != 5,
                0x3F => zone.condition == 0,
                _ => false,
            }
    });
    all
}

const OPTIONS: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 0x10, 0x11, 0x3E, 0x3F];

#[test]
fn every_option_reports_the_zones_that_it_names() {
    let gaps = format!("{GAPS},zone_nr_conv=3");
    for device in [DRIVE, DRIVE_4K, &gaps] {
        let mut rig = mixed(device);
        for option in OPTIONS {
            let (header, zones) = rig.report(0, option);
            assert_eq!(zones, expected(&rig, 0, option), "{device} option {option:x}");
            assert_eq!(header.last_lba, rig.disk.blocks() - 1);
        }
        for option in (0..0x40).filter(|option| !OPTIONS.contains(option)) {
            rig.ask(report_zones(0, 64, option), &[], 64).is_wrong_at(14);
        }
    }
}

/// Zones and gaps are contiguous, as Linux requires, and start at multiples of the granularity.
#[test]
fn zones_and_gaps_cover_the_disk() {
    for device in [DRIVE, GAPS, "null:size=10M,zone_size=4M"] {
        let mut rig = Rig::new(device);
        let (header, zones) = rig.report(0, 0);
        let mut at = 0;
        for zone in &zones {
            assert_eq!(zone.start, at);
            at += zone.len.get();
            let is_zone = zone.zone_type != ReportedZone::GAP;
            assert!(header.granularity == 0 || !is_zone || zone.start.get() % header.granularity.get() == 0);
        }
        assert_eq!(at, header.last_lba.get() + 1);
    }
}

#[test]
fn same_field_reflects_equal_zone_types_and_lengths() {
    let table = [
        ("null:size=16M,zone_size=1M", 1),
        ("null:size=10M,zone_size=4M", 2),
        ("null:size=16M,zone_size=1M,zone_nr_conv=2", 3),
        ("null:size=10M,zone_size=4M,zone_nr_conv=1", 0),
        (GAPS, 0),
    ];
    for (device, same) in table {
        assert_eq!(Rig::new(device).report(0, 0).0.same, same, "{device}");
    }
}

#[test]
fn report_begins_with_the_zone_that_has_the_block() {
    let mut rig = Rig::new(GAPS);
    for lba in [0, 1, 1535, 1536, 2047, 2048, 15 * 2048 + 1535, 15 * 2048 + 1536, 16 * 2048 - 1] {
        for option in OPTIONS {
            assert_eq!(rig.report(lba, option).1, expected(&rig, lba, option), "{lba} option {option:x}");
        }
    }
    for lba in [16 * 2048, u64::MAX] {
        rig.ask(report_zones(lba, 64, 0), &[], 64).fails_with(SenseCode::LBA_OUT_OF_RANGE);
    }
}

#[test]
fn header_alone_counts_all_zones() {
    let mut rig = Rig::new(DRIVE);
    let header = parse::<ReportHeader>(&rig.data(report_zones(0, 64, 0), 64));
    assert_eq!(header.len, 64 * 64);
    let header = parse::<ReportHeader>(&rig.data(report_zones(0, 64, bits::PARTIAL), 64));
    assert_eq!(header.len, 0);
    assert!(rig.data(report_zones(0, 0, 0), 64).is_empty());
    assert_eq!(rig.data(report_zones(0, 7, 0), 64), [0, 0, 16, 0, 3, 0, 0]);
}

#[test]
fn header_alone_counts_from_the_gap_that_has_the_block() {
    let mut rig = Rig::new(&format!("{GAPS},zone_nr_conv=2"));
    for lba in [0, 2047, 3 * 2048 - 1, 3 * 2048, 4 * 2048 - 1, 16 * 2048 - 1] {
        for option in OPTIONS {
            let report = report_zones(lba, 64, option);
            let header = parse::<ReportHeader>(&rig.data(report, 64));
            assert_eq!(header.len.get() as usize, expected(&rig, lba, option).len() * 64, "{lba} {option:x}");
        }
    }
}

/// Reports of more than one piece, on a drive like the largest ones.
#[test]
fn drive_of_a_hundred_thousand_zones_is_reported_in_pieces() {
    let mut rig = Rig::new("null:size=100000M,zone_size=1M");
    let zone = rig.zone_blocks();
    for option in [0, 1, 0x3E] {
        let report = report_zones(0, 64, option);
        let header = parse::<ReportHeader>(&rig.data(report, 64));
        assert_eq!(header.len, 6_400_000, "option {option:x}");
    }
    let data = rig.data(report_zones(0, 7 << 20, bits::PARTIAL | 1), 7 << 20);
    assert_eq!(data.len(), 64 + 6_400_000);
    let mut zones = data[64..].chunks_exact(64).map(parse::<ReportedZone>);
    assert!(zones.by_ref().enumerate().all(|(n, reported)| reported.start == n as u64 * zone));
}

proptest! {
    /// Arbitrary lengths: descriptors that fit are correct, the rest of the buffer is unchanged,
    /// and the count follows the option.
    #[test]
    fn report_of_any_length_is_the_beginning_of_the_whole(
        has_gaps: bool, first in 0..16u64, offset in 0..2048u64, option in 0..OPTIONS.len(),
        len in 0..3000u32, memory in 0..3000usize, is_partial: bool,
    ) {
        let device = if has_gaps { "ram:size=16M,zone_size=1M,zone_capacity=768K,zone_nr_conv=3" } else {
            "ram:size=16M,zone_size=1M,zone_nr_conv=3"
        };
        let mut rig = mixed(device);
        let (lba, option) = (first * 2048 + offset, OPTIONS[option]);
        let all = expected(&rig, lba, option);
        let options = if is_partial { bits::PARTIAL | option } else { option };
        let reply = rig.ask(report_zones(lba, len, options), &[], memory);
        reply.good();
        let room = memory.min(len as usize);
        let fits = room.saturating_sub(64) / 64;
        let counted = if is_partial { all.len().min(fits) } else { all.len() };
        let mut bytes = rig.report(lba, 0).0.as_bytes().to_vec();
        bytes[..4].copy_from_slice(&(counted as u32 * 64).to_be_bytes());
        bytes.extend_from_slice(all[..counted].as_bytes());
        bytes.truncate(room);
        prop_assert_eq!(reply.transferred as usize, bytes.len());
        prop_assert_eq!(&reply.data[..bytes.len()], &bytes[..]);
        prop_assert!(reply.data[bytes.len()..].iter().all(|byte| *byte == UNTOUCHED));
    }
}
