//! Zone actions, compared with the zone states of the device.

use crate::rig::{DRIVE, DRIVE_4K, Rig};
use zonal_core::ZoneCondition::{self, *};
use zonal_io::device::ZoneSetting;
use zonal_scsi::sense::SenseCode;
use zonal_scsi::wire::{ReportedZone, WriteSame, ZoneAction, ZoneOut};

const ACTIONS: [ZoneAction; 4] = ZoneAction::ALL;

/// Brings a fresh zone into a condition reachable by commands.
fn bring(rig: &mut Rig, zone: u64, condition: ZoneCondition) {
    let lba = zone * rig.zone_blocks();
    match condition {
        Empty => {}
        ImpOpen => rig.must_write(lba, 1, 0x11),
        ExpOpen => rig.act(ZoneAction::Open, lba).good(),
        Closed => {
            rig.must_write(lba, 1, 0x11);
            rig.act(ZoneAction::Close, lba).good();
        }
        Full => rig.act(ZoneAction::Finish, lba).good(),
        _ => unreachable!("no command does that"),
    }
    assert_eq!(rig.condition(zone), condition);
}

/// ZBC 4.4.3: resulting condition of each action. Devices of either standard behave alike.
#[test]
fn zone_actions_lead_to_the_specified_conditions() {
    let table = [
        (Empty, [Empty, Full, ExpOpen, Empty]),
        (ImpOpen, [Closed, Full, ExpOpen, Empty]),
        (ExpOpen, [Empty, Full, ExpOpen, Empty]),
        (Closed, [Closed, Full, ExpOpen, Empty]),
        (Full, [Full, Full, Full, Empty]),
    ];
    for device in [format!("{DRIVE},personality=zbc"), DRIVE.to_owned(), DRIVE_4K.to_owned()] {
        let mut rig = Rig::new(&device);
        for (condition, results) in table {
            for (action, expected) in ACTIONS.into_iter().zip(results) {
                bring(&mut rig, 6, condition);
                let lba = 6 * rig.zone_blocks();
                rig.act(action, lba).good();
                assert_eq!(rig.condition(6), expected, "{device} {condition} {action:?}");
                rig.act(ZoneAction::Reset, lba).good();
            }
        }
    }
}

#[test]
fn actions_not_at_the_start_of_a_sequential_zone_are_refused() {
    let mut rig = Rig::new(DRIVE);
    let zone = rig.zone_blocks();
    for action in ACTIONS {
        rig.act(action, 5 * zone + 1).is_wrong_at(2);
        rig.act(action, 3 * zone).is_wrong_at(2);
        rig.act(action, 64 * zone).fails_with(SenseCode::LBA_OUT_OF_RANGE);
        rig.act(action, u64::MAX).fails_with(SenseCode::LBA_OUT_OF_RANGE);
    }
}

#[test]
fn zones_that_are_read_only_or_offline_say_so() {
    let mut rig = Rig::new(DRIVE);
    let zone = rig.zone_blocks();
    rig.must_write(6 * zone, 8, 0x11);
    rig.set_zone(6, ZoneSetting::ReadOnly);
    rig.set_zone(7, ZoneSetting::Offline);
    assert_eq!((rig.condition(6), rig.condition(7)), (ReadOnly, Offline));
    for action in ACTIONS {
        rig.act(action, 6 * zone).fails_with(SenseCode::ZONE_IS_READ_ONLY);
        rig.act(action, 7 * zone).fails_with(SenseCode::ZONE_IS_OFFLINE);
    }
    rig.write(6 * zone + 8, &[0; 512]).fails_with(SenseCode::ZONE_IS_READ_ONLY);
    rig.write(7 * zone, &[0; 512]).fails_with(SenseCode::ZONE_IS_OFFLINE);
    let read = zonal_scsi::wire::Read { lba: 7 * zone, blocks: 1, fua: false };
    rig.ask(read.emit(), &[], 512).fails_with(SenseCode::ZONE_IS_OFFLINE);
    assert_eq!(rig.read(6 * zone, 1), [0x11; 512]);
    // Actions on all zones skip these two.
    for action in ACTIONS {
        rig.act_on_all(action).good();
    }
    assert_eq!((rig.condition(6), rig.condition(7)), (ReadOnly, Offline));
}

fn conditions(rig: &mut Rig) -> Vec<ZoneCondition> {
    let zones = rig.report(0, 0).1;
    zones.iter().map(|zone| ZoneCondition::from_code(zone.condition >> 4).unwrap()).collect()
}

/// Brings zones 5 to 9 into one condition each.
fn bring_all(rig: &mut Rig) {
    for (zone, condition) in (5..).zip([Empty, ImpOpen, ExpOpen, Closed, Full]) {
        bring(rig, zone, condition);
    }
}

#[test]
fn actions_on_all_zones_select_the_specified_zones() {
    let table = [
        (ZoneAction::Close, [Empty, Closed, Empty, Closed, Full]),
        (ZoneAction::Finish, [Empty, Full, Full, Full, Full]),
        (ZoneAction::Open, [Empty, ImpOpen, ExpOpen, ExpOpen, Full]),
        (ZoneAction::Reset, [Empty; 5]),
    ];
    for device in [DRIVE, DRIVE_4K] {
        for (action, expected) in table {
            let mut rig = Rig::new(device);
            bring_all(&mut rig);
            rig.act_on_all(action).good();
            let all = conditions(&mut rig);
            assert_eq!(all[5..10], expected, "{action:?}");
            assert!(all[..4].iter().all(|condition| *condition == NotWp));
            assert!(all[10..].iter().all(|condition| *condition == Empty));
        }
    }
}

/// A device of the other standard has such a zone closed, using an active zone resource.
#[test]
fn zone_that_is_closed_without_a_written_block_is_empty() {
    for device in [format!("{DRIVE},personality=zbc"), DRIVE.to_owned(), DRIVE_4K.to_owned()] {
        let mut rig = Rig::new(&device);
        let zone = rig.zone_blocks();
        for n in 10..20 {
            rig.act(ZoneAction::Open, n * zone).good();
            rig.act(ZoneAction::Close, n * zone).good();
        }
        assert_eq!(rig.report(0, 4).1, [], "{device}: none is closed");
        assert_eq!(rig.report(10 * zone, 1).1.len(), 54, "{device}: all are empty");
        // More zones are opened and closed than may be open. None is opened again or finished.
        rig.act_on_all(ZoneAction::Open).good();
        rig.act_on_all(ZoneAction::Finish).good();
        assert!(conditions(&mut rig)[10..20].iter().all(|condition| *condition == Empty), "{device}");
        rig.act(ZoneAction::Close, 10 * zone).good();
        rig.must_write(10 * zone, 1, 0x11);
        assert_eq!(rig.condition(10), ImpOpen);
    }
}

#[test]
fn zone_address_is_not_looked_at_for_all_zones() {
    let mut rig = Rig::new(DRIVE);
    bring(&mut rig, 6, Full);
    rig.ask(ZoneOut { action: ZoneAction::Reset, lba: u64::MAX, is_all: true }.emit(), &[], 0).good();
    assert_eq!(rig.condition(6), Empty);
}

/// Eight zones may be open; nine are closed.
#[test]
fn opening_all_closed_zones_is_all_or_nothing() {
    let mut rig = Rig::new(DRIVE);
    for zone in 10..19 {
        bring(&mut rig, zone, Closed);
    }
    rig.act_on_all(ZoneAction::Open).fails_with(SenseCode::INSUFFICIENT_ZONE_RESOURCES);
    assert!(conditions(&mut rig)[10..19].iter().all(|condition| *condition == Closed));
    let zone = rig.zone_blocks();
    rig.act(ZoneAction::Finish, 18 * zone).good();
    rig.act_on_all(ZoneAction::Open).good();
    assert!(conditions(&mut rig)[10..18].iter().all(|condition| *condition == ExpOpen));
}

/// The drive refuses some opens: the zones opened before are closed again.
#[test]
fn opening_that_fails_half_way_is_taken_back() {
    let mut has_failed = false;
    for seed in 0..20 {
        let mut rig = Rig::new(&format!("fault:too-many-open=0.2,seed={seed}+{DRIVE}"));
        let zone = rig.zone_blocks();
        let mut closed = Vec::new();
        for n in 10..18 {
            let is_written = rig.write(n * zone, &[0; 512]).status == 0;
            if is_written && rig.act(ZoneAction::Close, n * zone).status == 0 {
                closed.push(n);
            }
        }
        let reply = rig.act_on_all(ZoneAction::Open);
        let expected = if reply.status == 0 { ExpOpen } else { Closed };
        if reply.status != 0 {
            reply.fails_with(SenseCode::INSUFFICIENT_ZONE_RESOURCES);
            has_failed = true;
        }
        for n in closed {
            assert_eq!(rig.condition(n), expected, "seed {seed} zone {n}");
        }
    }
    assert!(has_failed, "no seed has an open that is refused");
}

/// All open zone resources are in use, in the last of three pieces, with a closed zone before it.
#[test]
fn finishing_all_zones_begins_with_open_ones() {
    let mut rig = Rig::new("null:size=10000M,zone_size=1M,zone_max_open=2,personality=zbc");
    bring(&mut rig, 0, Closed);
    bring(&mut rig, 9998, ExpOpen);
    bring(&mut rig, 9999, ExpOpen);
    rig.act_on_all(ZoneAction::Finish).good();
    assert_eq!([0, 9998, 9999].map(|zone| rig.condition(zone)), [Full; 3]);
}

#[test]
fn open_zones_are_limited_by_the_drive() {
    let mut rig = Rig::new(DRIVE);
    let zone = rig.zone_blocks();
    for n in 10..18 {
        rig.act(ZoneAction::Open, n * zone).good();
    }
    rig.act(ZoneAction::Open, 20 * zone).fails_with(SenseCode::INSUFFICIENT_ZONE_RESOURCES);
    rig.write(20 * zone, &[0; 512]).fails_with(SenseCode::INSUFFICIENT_ZONE_RESOURCES);
    let same = WriteSame { lba: 20 * zone, blocks: 8, is_unmap: false, has_data: true };
    rig.ask(same.emit(), &[1; 512], 0).fails_with(SenseCode::INSUFFICIENT_ZONE_RESOURCES);
    rig.act(ZoneAction::Close, 10 * zone).good();
    rig.write(20 * zone, &[0; 512]).good();
}

/// A little more than two pieces of zones.
#[test]
fn actions_on_all_zones_reach_beyond_one_piece() {
    let mut rig = Rig::new("null:size=10000M,zone_size=1M");
    let zone = rig.zone_blocks();
    for n in [0, 4095, 4096, 9999] {
        rig.must_write(n * zone, 1, 0);
    }
    rig.act_on_all(ZoneAction::Finish).good();
    let (header, full) = rig.report(0, 5);
    assert_eq!(header.len.get() as usize, 4 * size_of::<ReportedZone>());
    assert_eq!(full.iter().map(|one| one.start.get() / zone).collect::<Vec<_>>(), [0, 4095, 4096, 9999]);
}
