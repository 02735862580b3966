//! Zone rules as seen by a host. The rules themselves are tested with the state machine in core;
//! these tests check that every path through the device obeys them.

use super::*;
use crate::changes::ZoneSetting;
use crate::emulated::Locking;
use zonal_core::Personality;

/// All ways of executing and completing a command.
fn every_path() -> Vec<(&'static str, EmulatedOptions)> {
    let limited = EmulatedOptions { zone_max_open: 3, zone_max_active: 4, ..small() };
    vec![
        ("inline", small()),
        ("polled", polled(small())),
        ("inline, limited", limited.clone()),
        ("polled, limited", polled(limited)),
        ("inline, device lock", EmulatedOptions { lock: Locking::Device, ..small() }),
        ("polled, device lock", polled(EmulatedOptions { lock: Locking::Device, ..small() })),
        ("inline, ordered", EmulatedOptions { preserves_write_order: true, ..small() }),
        ("polled, ordered", polled(EmulatedOptions { preserves_write_order: true, ..small() })),
    ]
}

#[test]
fn h56_every_path_keeps_the_zone_rules() {
    for (path, options) in every_path() {
        let d = null(&options);
        let at = 2 * 64;
        assert_eq!(act(&d, Op::Write, at + 8, 8), refused(ZoneError::InvalidWrite), "{path}");
        assert_eq!(shape(&d, 2), EMPTY, "{path}");
        assert_eq!(act(&d, Op::Write, at, 8), Ok(()), "{path}");
        assert_eq!(shape(&d, 2), imp_open(8), "{path}");
        assert_eq!(act(&d, Op::Write, at, 8), refused(ZoneError::InvalidWrite), "{path}");
        assert_eq!(act(&d, Op::Write, at + 8, 41), refused(ZoneError::Boundary), "{path}");
        let appended = run(&d, &command(Op::Append, at, 8));
        assert_eq!(appended, Ok(Output::Appended(Sector(at + 8))), "{path}");
        assert_eq!(act(&d, Op::WriteZeroes, at + 16, 32), Ok(()), "{path}");
        assert_eq!(shape(&d, 2), FULL, "{path}");
        assert_eq!(act(&d, Op::Write, at + 48, 1), refused(ZoneError::Full), "{path}");
        assert_eq!(act(&d, Op::Append, at, 1), refused(ZoneError::Full), "{path}");
        assert_eq!(act(&d, Op::ZoneOpen, at, 0), refused(ZoneError::InvalidTransition), "{path}");
        assert_eq!(act(&d, Op::ZoneReset, at, 0), Ok(()), "{path}");
        assert_eq!(shape(&d, 2), EMPTY, "{path}");
        d.zones().check().unwrap();
    }
}

#[test]
fn commands_that_are_wrong_in_themselves_are_refused_before_the_zone_is_asked() {
    let d = null(&EmulatedOptions { blocksize: 4096, max_sectors: 32, ..small() });
    let end = 8 * 64;
    for (op, sector, sectors, error) in [
        (Op::Write, 128, 0, DeviceError::InvalidField),
        (Op::Write, 128, 4, DeviceError::InvalidField),
        (Op::Write, 132, 8, DeviceError::InvalidField),
        (Op::Write, 128, 40, DeviceError::InvalidField),
        (Op::Read, 128, 40, DeviceError::InvalidField),
        (Op::Write, end, 8, DeviceError::OutOfRange),
        (Op::Read, end - 8, 16, DeviceError::OutOfRange),
        (Op::Write, u64::MAX - 7, 8, DeviceError::OutOfRange),
        (Op::Append, 136, 8, DeviceError::InvalidField),
        (Op::Append, 128, 40, DeviceError::InvalidField),
        (Op::Append, 0, 8, ZoneError::Conventional.into()),
        (Op::ZoneReset, 136, 0, DeviceError::InvalidField),
        (Op::ZoneReset, end, 0, DeviceError::OutOfRange),
        (Op::ZoneReset, 0, 0, ZoneError::Conventional.into()),
        (Op::Read, 64 + 56, 16, ZoneError::Boundary.into()),
        (Op::Write, 56, 16, ZoneError::Boundary.into()),
    ] {
        assert_eq!(act(&d, op, sector, sectors), Err(error), "{op:?} {sector}+{sectors}");
    }
    assert_eq!(act(&d, Op::Flush, 0, 0), Ok(()));
    assert_eq!(act(&d, Op::Write, 48, 16), Ok(()));
    assert_eq!(act(&d, Op::Write, 16, 8), Ok(()));
}

#[test]
fn missing_append_and_write_zeroes_are_reported_as_unsupported() {
    let options = EmulatedOptions { zone_append_max_sectors: 0, write_zeroes_max_sectors: 0, ..small() };
    let d = null(&options);
    assert_eq!((d.info().append_sectors_max, d.info().write_zeroes_sectors_max), (0, 0));
    assert_eq!(act(&d, Op::Append, 64, 8), Err(DeviceError::Unsupported));
    assert_eq!(act(&d, Op::WriteZeroes, 64, 8), Err(DeviceError::Unsupported));
}

#[test]
fn append_limit_is_whole_blocks_and_no_more_than_a_zone() {
    let limit = |options: EmulatedOptions| null(&options).info().append_sectors_max;
    assert_eq!(limit(small()), 48);
    assert_eq!(limit(EmulatedOptions { zone_append_max_sectors: 15, blocksize: 4096, ..small() }), 8);
    assert_eq!(limit(EmulatedOptions { max_sectors: 16, ..small() }), 16);
}

#[test]
fn smaller_last_zone_fills_at_its_own_end() {
    let options = EmulatedOptions { size: (7 * 64 + 24) * 512, zone_capacity: 0, ..small() };
    let d = null(&options);
    assert_eq!(act(&d, Op::Write, 7 * 64, 24), Ok(()));
    assert_eq!(shape(&d, 7), FULL);
    assert_eq!(act(&d, Op::Write, 7 * 64 + 24, 8), Err(DeviceError::OutOfRange));
}

#[test]
fn zone_full_starts_full() {
    let d = null(&EmulatedOptions { zone_full: true, ..small() });
    assert_eq!(zone(&d, 0).condition, ZoneCondition::NotWp);
    assert_eq!(shape(&d, 1), FULL);
    assert_eq!(act(&d, Op::ResetAll, 0, 0), Ok(()));
    assert_eq!(shape(&d, 1), EMPTY);
}

#[test]
fn h36_reset_all_leaves_read_only_and_offline_zones() {
    let d = null(&small());
    for z in 1..5 {
        act(&d, Op::Write, z * 64, 8).unwrap();
    }
    act(&d, Op::ZoneFinish, 4 * 64, 0).unwrap();
    d.set_zone(ZoneIndex(2), ZoneSetting::ReadOnly).unwrap();
    d.set_zone(ZoneIndex(3), ZoneSetting::Offline).unwrap();
    assert_eq!(d.set_zone(ZoneIndex(0), ZoneSetting::Offline), Err(ZoneError::Conventional.into()));
    assert_eq!(act(&d, Op::ResetAll, 0, 0), Ok(()));
    let conditions: Vec<_> = (0..5).map(|z| zone(&d, z).condition).collect();
    use ZoneCondition::{Empty, NotWp, Offline, ReadOnly};
    assert_eq!(conditions, [NotWp, Empty, ReadOnly, Offline, Empty]);
    assert_eq!(act(&d, Op::Read, 2 * 64, 8), Ok(()));
    assert_eq!(act(&d, Op::Read, 3 * 64, 8), refused(ZoneError::Offline));
    assert_eq!(act(&d, Op::Write, 2 * 64 + 8, 8), refused(ZoneError::ReadOnly));
    d.zones().check().unwrap();
}

#[test]
fn h54_closed_zone_reopens_at_the_active_limit_with_an_open_resource_only() {
    let d = null(&EmulatedOptions { zone_max_open: 2, zone_max_active: 3, ..small() });
    for z in 1..4 {
        act(&d, Op::Write, z * 64, 8).unwrap();
    }
    assert_eq!(shape(&d, 1), closed(8));
    assert_eq!(act(&d, Op::Write, 4 * 64, 8), refused(ZoneError::TooManyActive));
    assert_eq!(act(&d, Op::Write, 64 + 8, 8), Ok(()));
    assert_eq!([shape(&d, 1), shape(&d, 2), shape(&d, 3)], [imp_open(16), closed(8), imp_open(8)]);
    d.zones().check().unwrap();
}

#[test]
fn explicitly_open_zones_are_never_closed_for_others() {
    let d = null(&EmulatedOptions { zone_max_open: 2, ..small() });
    act(&d, Op::ZoneOpen, 64, 0).unwrap();
    act(&d, Op::ZoneOpen, 2 * 64, 0).unwrap();
    assert_eq!(act(&d, Op::Write, 3 * 64, 8), refused(ZoneError::TooManyOpen));
    assert_eq!(act(&d, Op::Write, 64, 8), Ok(()));
    assert_eq!(act(&d, Op::ZoneClose, 2 * 64, 0), Ok(()));
    assert_eq!(act(&d, Op::Write, 3 * 64, 8), Ok(()));
    d.zones().check().unwrap();
}

#[test]
fn closing_an_unwritten_zone_depends_on_the_personality() {
    let d = null(&small());
    act(&d, Op::ZoneOpen, 64, 0).unwrap();
    act(&d, Op::ZoneClose, 64, 0).unwrap();
    assert_eq!(shape(&d, 1), closed(0));
    let d = null(&EmulatedOptions { personality: Personality::Zbc, ..small() });
    act(&d, Op::ZoneOpen, 64, 0).unwrap();
    act(&d, Op::ZoneClose, 64, 0).unwrap();
    assert_eq!(shape(&d, 1), EMPTY);
}

#[test]
fn finished_zone_is_full_whatever_was_written() {
    let d = null(&small());
    act(&d, Op::Write, 64, 8).unwrap();
    act(&d, Op::ZoneFinish, 64, 0).unwrap();
    act(&d, Op::ZoneFinish, 2 * 64, 0).unwrap();
    assert_eq!((shape(&d, 1), shape(&d, 2)), (FULL, FULL));
}
