//! Write pointers and ends of zones.

use super::*;
use zonal_core::Nanos;
use zonal_io::emulated::{Emulated, EmulatedOptions, Null};
use zonal_io::volume::Volume;

#[test]
fn h13_pointer_is_known_before_the_first_write() {
    use ZoneCondition::{Closed, Full, ImpOpen, Offline, ReadOnly};
    for mode in PLUGGED {
        let script = Arc::new(Script::new(script::info()));
        script.set_zone(1, ImpOpen, 10);
        script.set_zone(2, Closed, 20);
        script.set_zone(3, Full, CAPACITY);
        script.set_zone(4, ReadOnly, 5);
        script.set_zone(5, Offline, 0);
        let rig = Rig::on(script, VolumeOptions::default().with_mode(mode).with_merge(true).without_park());
        let zone = |z| ZoneIndex(z);
        let strays = [(1, 0), (2, 24), (3, 0), (4, 5), (5, 0)].map(|(z, offset)| rig.write(z, offset, 4));
        assert_eq!(
            rig.ends(strays),
            [
                misplaced(1, 10, 0),
                misplaced(2, 20, 24),
                full(3),
                refused(RequestError::ZoneReadOnly { zone: zone(4) }),
                refused(RequestError::ZoneOffline { zone: zone(5) }),
            ]
        );
        assert_eq!(rig.asked(), [], "none of them reached the device");
        let placed = [rig.write(1, 10, 4), rig.write(2, 20, 4), rig.write(6, 0, 4)];
        rig.settle();
        assert_eq!(rig.ends(placed), [DONE; 3]);
    }
}

#[test]
fn h14_write_across_the_capacity_is_refused_although_it_lies_in_the_zone() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        let beyond =
            |end| refused(RequestError::BeyondCapacity { zone: ZoneIndex(1), end, capacity: CAPACITY });
        let at_once = rig.write(1, 0, CAPACITY + 1);
        assert_eq!(rig.end(at_once), Some(beyond(CAPACITY + 1)));
        rig.write(1, 0, 16);
        let waited = [rig.write(1, 16, 28), rig.write(1, 44, 5), rig.append(1, 5), rig.write(1, 44, 4)];
        rig.settle();
        assert_eq!(rig.ends(waited), [DONE, beyond(49), beyond(49), DONE]);
        assert_eq!(rig.script.zone(1), (ZoneCondition::Full, CAPACITY));
    }
}

#[test]
fn h15_smaller_last_zone_is_full_at_its_own_end() {
    let geometry = Geometry::new(Sectors(7 * ZONE + 24), Sectors(ZONE), Sectors(0), 1).unwrap();
    for mode in PLUGGED {
        let rig = Rig::new(DeviceInfo { geometry, ..script::info() }, mode);
        let written = [rig.write(7, 0, 12), rig.write(7, 12, 8)];
        rig.settle();
        let too_long = rig.append(7, 8);
        let fits = rig.append(7, 4);
        rig.settle();
        let more = [rig.append(7, 4), rig.append(7, 8)];
        rig.settle();
        assert_eq!(rig.ends(written), [DONE; 2]);
        let beyond = RequestError::BeyondCapacity { zone: ZoneIndex(7), end: 28, capacity: 24 };
        assert_eq!(rig.ends([too_long, fits]), [refused(beyond), appended(&rig, 7, 20)]);
        assert_eq!(rig.ends(more), [full(7), full(7)]);
        assert_eq!((rig.script.zone(7), rig.plug(7)), ((ZoneCondition::Full, 24), None));
    }
}

#[test]
fn h16_full_zone_takes_nothing_and_its_pointer_stays() {
    for mode in PLUGGED {
        let rig = Rig::new(script::info(), mode);
        rig.write(1, 0, 40);
        let (filling, waiting) = (rig.append(1, 8), [rig.write(1, 48, 1), rig.append(1, 1)]);
        rig.settle();
        assert_eq!(rig.ends([filling]), [appended(&rig, 1, 40)]);
        assert_eq!(rig.ends(waiting), [full(1), full(1)]);
        let asked = rig.asked().len();
        for _ in 0..3 {
            let late = [rig.write(1, 48, 1), rig.append(1, 1), rig.write(1, 0, 1)];
            assert_eq!(rig.ends(late), [full(1), full(1), full(1)]);
        }
        assert_eq!((rig.asked().len(), rig.pointer(1)), (asked, Some(CAPACITY)));
    }
}

/// The write ends where the next zone begins: it belongs to the zone of its start.
#[test]
fn h24_write_that_ends_a_zone_belongs_to_it_and_not_to_the_next() {
    for mode in PLUGGED {
        let rig = Rig::new(whole_zones(), mode);
        let ends_zone = rig.write(1, 0, ZONE as u32);
        let neighbour = rig.write(2, 0, 8);
        // All pieces of the first complete before the neighbour does.
        rig.finish(0, Answer::Obey);
        for _ in 0..3 {
            rig.finish(1, Answer::Obey);
        }
        assert_eq!((rig.end(ends_zone), rig.plug(1)), (Some(DONE), None));
        let plug = rig.plug(2).unwrap();
        assert_eq!((plug.references, plug.write_pointer), (2, 8), "the neighbour's write is out");
        let next = rig.write(2, 8, 8);
        rig.settle();
        assert_eq!(rig.ends([neighbour, next]), [DONE; 2]);
    }
}

#[test]
fn h40_addresses_beyond_2_pow_32_sectors_are_exact() {
    let options = EmulatedOptions::default().with_size(16 << 40).with_zone_size(256 << 20);
    let zone = ((1_u64 << 34) / (256 << 11)) as u32 + 5;
    let start = u64::from(zone) * (256 << 11);
    assert!(start > 1 << 34);
    for mode in PLUGGED {
        let device = Arc::new(Emulated::new("null:16T", &options, Null).unwrap());
        let volume = Volume::open(
            device.clone(),
            VolumeOptions::default().with_mode(mode).with_merge(true).without_park(),
        )
        .unwrap();
        let (sender, ends) = std::sync::mpsc::channel();
        let channel = volume.channel(move |c| sender.send(c.result).unwrap());
        let submit = |request| {
            volume.submit(Nanos(0), &channel, request);
            ends.recv().unwrap()
        };
        assert_eq!(submit(Request::write(Sector(start), 8, payload(0, 8))), DONE);
        let appended = submit(Request::append(Sector(start), 8, payload(0, 8)));
        assert_eq!(appended, Ok(Output::Appended(Sector(start + 8))));
        let misplaced = submit(Request::write(Sector(start + 8), 8, payload(0, 8)));
        assert_eq!(misplaced, self::misplaced(zone, 16, 8));
        assert_eq!(volume.write_pointer(ZoneIndex(zone)), Some(Sector(start + 16)));
        assert_eq!(device.zones().state(ZoneIndex(zone)).written, 16);
        let Ok(Output::Zones(zones)) = submit(Request::report(Sector(start), 1)) else { panic!("no report") };
        assert_eq!((zones[0].start, zones[0].write_pointer), (Sector(start), Some(Sector(start + 16))));
    }
}
