//! Transfers that fail after the zone has accepted the write.

use super::*;
use crate::emulated::{Extent, Storage};
use std::sync::atomic::{AtomicU64, Ordering};

/// Fails the given number of writes, and keeps no data.
#[derive(Default)]
struct Failing {
    left: AtomicU64,
}

impl Storage for Failing {
    const KEEPS_DATA: bool = true;

    fn write(&self, _: Extent, _: &Data) -> Result<(), DeviceError> {
        let fails = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if fails.is_ok() { Err(DeviceError::Medium) } else { Ok(()) }
    }

    fn write_zeroes(&self, to: Extent) -> Result<(), DeviceError> {
        self.write(to, &Data::NONE)
    }

    fn read(&self, _: Extent, _: &Data) -> Result<(), DeviceError> {
        Ok(())
    }

    fn punch(&self, _: Extent) {}

    fn discard(&self, _: ZoneIndex, _: u32) {}
}

fn failing(options: &EmulatedOptions, times: u64) -> Emulated<Failing> {
    Emulated::new("failing", options, Failing { left: AtomicU64::new(times) }).unwrap()
}

/// Fails every third write.
#[derive(Default)]
struct Unreliable {
    writes: AtomicU64,
}

impl Storage for Unreliable {
    const KEEPS_DATA: bool = true;

    fn write(&self, _: Extent, _: &Data) -> Result<(), DeviceError> {
        match self.writes.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Err(DeviceError::Medium),
            _ => Ok(()),
        }
    }

    fn write_zeroes(&self, to: Extent) -> Result<(), DeviceError> {
        self.write(to, &Data::NONE)
    }

    fn read(&self, _: Extent, _: &Data) -> Result<(), DeviceError> {
        Ok(())
    }

    fn punch(&self, _: Extent) {}

    fn discard(&self, _: ZoneIndex, _: u32) {}
}

const MEDIUM: Result<(), DeviceError> = Err(DeviceError::Medium);

#[test]
fn h61_failed_write_does_not_move_the_pointer() {
    for options in [small(), polled(small()), EmulatedOptions { preserves_write_order: true, ..small() }] {
        let d = failing(&options, 2);
        assert_eq!(write_filled(&d, 64, 8, 1), MEDIUM);
        assert_eq!(act(&d, Op::WriteZeroes, 64, 8), MEDIUM);
        assert_eq!(shape(&d, 1), imp_open(0));
        assert_eq!(write_filled(&d, 64, 8, 1), Ok(()));
        assert_eq!(shape(&d, 1), imp_open(8));
    }
}

#[test]
fn h55_failed_first_write_leaves_a_zone_that_can_be_closed_written_and_reset() {
    let options = EmulatedOptions { zone_max_open: 1, personality: zonal_core::Personality::Zbc, ..small() };
    let d = failing(&options, 1);
    assert_eq!(write_filled(&d, 64, 8, 1), MEDIUM);
    assert_eq!(shape(&d, 1), imp_open(0));
    // Takes the only open resource, so the unwritten zone is closed and thereby becomes empty.
    assert_eq!(write_filled(&d, 128, 8, 1), Ok(()));
    assert_eq!((shape(&d, 1), shape(&d, 2)), (EMPTY, imp_open(8)));
    d.zones().check().unwrap();
}

#[test]
fn h61_failed_filling_write_leaves_the_zone_open_for_another_try() {
    let d = failing(&EmulatedOptions { zone_max_open: 1, ..small() }, 1);
    assert_eq!(write_filled(&d, 64, 48, 1), MEDIUM);
    assert_eq!(shape(&d, 1), imp_open(0));
    assert_eq!(write_filled(&d, 64, 48, 1), Ok(()));
    assert_eq!(shape(&d, 1), FULL);
    d.zones().check().unwrap();
}

#[test]
fn h61_failed_append_gives_its_place_to_the_next() {
    let d = failing(&small(), 1);
    let mut bytes = [0; 4096];
    assert_eq!(transfer(&d, Op::Append, 64, &mut bytes), Err(DeviceError::Medium));
    assert_eq!(transfer(&d, Op::Append, 64, &mut bytes), Ok(Output::Appended(Sector(64))));
}

#[test]
fn failed_write_to_a_zone_reset_meanwhile_does_not_touch_its_pointer() {
    let d = failing(&polled(small()), 0);
    let zones = d.zones();
    let zone = ZoneIndex(1);
    let placed = zones.begin(super::super::WriteKind::Exclusive, zone, 0, 8).unwrap();
    zones.apply(zone, zonal_core::device::ZoneEvent::Reset).unwrap();
    assert_eq!(act(&d, Op::Append, 64, 8), Err(DeviceError::InvalidField), "needs a payload");
    assert_eq!(transfer(&d, Op::Append, 64, &mut [0; 4096]), Ok(Output::Appended(Sector(64))));
    zones.end(&placed, 0);
    zones.release(placed);
    assert_eq!(shape(&d, 1), imp_open(8));
}

#[test]
fn h61_acknowledged_appends_stay_disjoint_whatever_fails_around_them() {
    for zone_max_open in [0, 2] {
        let d =
            Emulated::new("unreliable", &EmulatedOptions { zone_max_open, ..small() }, Unreliable::default());
        let d = d.unwrap();
        let all = parking_lot::Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for t in 0..4usize {
                let (d, all) = (&d, &all);
                s.spawn(move || {
                    let mut mine = Vec::new();
                    for i in 0..600 {
                        let index = 1 + (i + t as u64) % 7;
                        let mut bytes = vec![0; 512 * (1 + t % 3)];
                        if i % 5 == 0 {
                            let Some(Sector(pointer)) = zone(d, index).write_pointer else { continue };
                            if transfer(d, Op::Write, pointer, &mut bytes).is_ok() {
                                mine.push((pointer, bytes.len() as u64 / 512));
                            }
                        } else if let Ok(Output::Appended(at)) =
                            transfer(d, Op::Append, index * 64, &mut bytes)
                        {
                            mine.push((at.0, bytes.len() as u64 / 512));
                        }
                    }
                    all.lock().extend(mine);
                });
            }
        });
        let mut all = all.into_inner();
        all.sort_unstable();
        for pair in all.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
        }
        assert!(all.iter().all(|(at, n)| at % 64 + n <= 48));
        d.zones().check().unwrap();
    }
}
