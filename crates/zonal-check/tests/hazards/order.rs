//! One write in many commands, and many writes in one.

use super::*;

fn places(rig: &Rig) -> Vec<(u32, u32, u32)> {
    rig.asked().into_iter().map(|(_, zone, offset, sectors)| (zone, offset, sectors)).collect()
}

#[test]
fn h27_parts_of_a_cross_zone_write_are_issued_in_order_before_later_writes() {
    for mode in PLUGGED {
        let rig = Rig::new(whole_zones(), mode);
        let before = rig.write(1, 0, 56);
        rig.settle();
        let across = rig.write(1, 56, 8 + ZONE as u32 + 20);
        let behind = [rig.write(3, 20, 8), rig.append(3, 8)];
        let asked_before = rig.asked().len();
        assert_eq!(asked_before, 4 + 3, "each zone has its first piece at once");
        rig.settle();
        assert_eq!(rig.ends([before, across]), [DONE; 2]);
        assert_eq!(rig.ends(behind), [DONE, appended(&rig, 3, 28)]);
        let places = places(&rig);
        assert_eq!(places[4..7], [(1, 56, 8), (2, 0, 16), (3, 0, 16)]);
        for zone in 2..=3 {
            let writes = rig.asked().into_iter().filter(|c| c.0 == Op::Write && c.1 == zone);
            let offsets: Vec<_> = writes.map(|c| c.2).collect();
            assert!(offsets.is_sorted(), "zone {zone}: {offsets:?}");
        }
        let whole: Vec<_> = (0..u64::from(8 + ZONE as u32 + 20)).map(|n| (across, n)).collect();
        let written = [rig.tags(1, 56, 8), rig.tags(2, 0, ZONE as u32), rig.tags(3, 0, 20)].concat();
        assert_eq!(written, whole);
    }
}

#[test]
fn h27_write_across_zones_ends_once_with_the_error_of_its_lowest_address() {
    let rig = Rig::new(whole_zones(), WriteMode::PerZone);
    // The write pointer of zone 1 is not at its last sectors: that part is refused, the other is
    // written.
    let across = rig.write(1, 56, 16);
    rig.settle();
    let error = DeviceError::Zone(ZoneError::InvalidWrite);
    let in_part = RequestError::InPart { sector: rig.sector(1, 56), written: 8, error };
    assert_eq!(rig.end(across), Some(Err(in_part)), "and with what the other part wrote");
    assert!(in_part.is_uncertain());
    assert_eq!(rig.buf(across).len(), 16 * 512, "the buffer is whole again");
    assert_eq!(rig.asked(), [(Op::Write, 2, 0, 8)]);
}

#[test]
fn write_across_zones_failing_in_all_parts_counts_as_one_failure() {
    let failures = |fail: fn(&Rig)| {
        let rig = Rig::new(whole_zones(), WriteMode::PerZone);
        fail(&rig);
        rig.settle();
        rig.volume.statistics().failed
    };
    let refused = |rig: &Rig| {
        rig.write(2, 0, 8);
        rig.settle();
        rig.write(1, 56, 16);
    };
    let failed_by_the_device = |rig: &Rig| {
        rig.write(1, 0, 56);
        rig.settle();
        rig.write(1, 56, 16);
        rig.step(MEDIUM);
        rig.step(MEDIUM);
    };
    let aborted = |rig: &Rig| {
        rig.write(1, 0, 56);
        rig.reset(2);
        rig.write(1, 56, 16);
        rig.reset(1);
        rig.reset(2);
    };
    assert_eq!([refused, failed_by_the_device, aborted].map(failures), [1; 3]);
}

#[test]
fn h28_write_beyond_the_largest_command_is_one_write_to_its_zone() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let long = rig.write(1, 0, 40);
        let behind = rig.write(1, 40, 8);
        assert_eq!(rig.plug(1).map(|p| (p.pending, p.write_pointer)), Some((1, 40)));
        rig.settle();
        assert_eq!(rig.ends([long, behind]), [DONE; 2]);
        assert_eq!(places(&rig), [(1, 0, 16), (1, 16, 16), (1, 32, 8), (1, 40, 8)]);
        rig.assert_written(1, 0, 40, long);
        let read = rig.submit(Request::read(rig.sector(1, 0), 40, payload(0, 40)));
        rig.settle();
        assert_eq!(zonal_check::rig::tags(&rig.buf(read)), rig.tags(1, 0, 40));
    }
}

#[test]
fn h22_write_that_fails_half_way_is_an_error() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let long = rig.write(1, 0, 40);
        rig.step(Answer::Obey);
        rig.step(Answer::Torn(3, DeviceError::Medium));
        rig.settle();
        assert_eq!(rig.end(long), Some(failed(DeviceError::Medium)));
        assert_eq!(places(&rig), [(1, 0, 16), (1, 16, 16)], "the rest is not tried");
        assert_eq!(rig.pointer(1), Some(19), "the zone goes on where the device says");
    }
}

#[test]
fn h22_merged_writes_fail_together() {
    let rig = Rig::per_zone();
    let first = rig.write(1, 0, 8);
    let merged = [rig.write(1, 8, 8), rig.write(1, 16, 8)];
    rig.step(Answer::Obey);
    assert_eq!(places(&rig), [(1, 0, 8), (1, 8, 16)]);
    rig.step(Answer::Torn(9, DeviceError::Medium));
    rig.settle();
    assert_eq!(rig.ends([first]), [DONE]);
    assert_eq!(rig.ends(merged).map(|e| e == failed(DeviceError::Medium)), [true, true]);
    assert_eq!(rig.pointer(1), Some(17));
}
