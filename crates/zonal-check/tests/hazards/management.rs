//! Resets, finishes and similar operations.

use super::*;

#[test]
fn h36_reset_of_all_zones_reaches_those_with_and_without_a_plug() {
    use ZoneCondition::{Empty, Full, NotWp, Offline, ReadOnly};
    for mode in PLUGGED {
        let script = Arc::new(Script::new(script::info()));
        script.set_zone(3, Full, CAPACITY);
        script.set_zone(4, ReadOnly, 8);
        script.set_zone(5, Offline, 0);
        let rig = Rig::on(script, VolumeOptions::default().with_mode(mode).with_merge(true).without_park());
        let conventional = rig.write(0, 5, 8);
        rig.write(2, 0, 8);
        rig.settle();
        let out = rig.write(1, 0, 8);
        let waiting = rig.write(1, 8, 8);
        let all = rig.submit(Request::reset_all());
        let after = [rig.write(1, 0, 4), rig.append(2, 4), rig.write(3, 0, 4), rig.write(6, 0, 4)];
        assert_eq!(rig.script.pending().len(), 1, "it waits for the write that is out");
        assert_eq!(rig.end(waiting), Some(aborted(1)));
        rig.settle();
        assert_eq!(rig.ends([conventional, out, all]), [DONE; 3]);
        assert_eq!(rig.ends(after), [DONE, appended(&rig, 2, 0), DONE, DONE]);
        assert_eq!(rig.asked().iter().filter(|c| c.0 == Op::ResetAll).count(), 1);
        let zones: Vec<_> = (0..8).map(|z| rig.script.zone(z).0).collect();
        let open = ZoneCondition::ImpOpen;
        assert_eq!(zones, [NotWp, open, open, open, ReadOnly, Offline, open, Empty]);
        rig.assert_written(0, 5, 8, conventional);
        let still = [rig.write(4, 8, 4), rig.write(5, 0, 4)];
        let zone = |z| ZoneIndex(z);
        assert_eq!(
            rig.ends(still),
            [
                refused(RequestError::ZoneReadOnly { zone: zone(4) }),
                refused(RequestError::ZoneOffline { zone: zone(5) })
            ]
        );
    }
}

#[test]
fn resets_of_all_zones_take_turns() {
    let rig = Rig::per_zone();
    rig.write(1, 0, 8);
    let all = [(); 3].map(|()| rig.submit(Request::reset_all()));
    let zone = rig.reset(2);
    let after = rig.write(1, 0, 8);
    rig.settle();
    assert_eq!(rig.ends(all), [DONE; 3]);
    assert_eq!(rig.ends([zone]), [DONE]);
    // It was submitted after the first reset and before the others began: one of those aborted it,
    // or none.
    assert!(matches!(rig.end(after), Some(Ok(Output::Done)) | Some(Err(RequestError::Aborted { .. }))));
    assert_eq!(rig.volume.plugs().iter().filter(|p| p.pending > 0).count(), 0);
}

#[test]
fn failed_reset_of_all_zones_leaves_every_pointer_to_be_asked_for() {
    let rig = Rig::per_zone();
    rig.write(1, 0, 8);
    rig.write(2, 0, 8);
    rig.settle();
    let all = rig.submit(Request::reset_all());
    // It had reset one zone when it failed.
    rig.script.set_zone(1, ZoneCondition::Empty, 0);
    rig.step(MEDIUM);
    let after = [rig.write(1, 0, 8), rig.write(2, 8, 8)];
    rig.settle();
    assert_eq!(rig.end(all), Some(failed(DeviceError::Medium)));
    assert_eq!(rig.ends(after), [DONE; 2]);
    assert_eq!(rig.resyncs(), 7);
}

#[test]
fn h38_management_of_a_conventional_zone_does_not_reach_the_device() {
    for mode in [WriteMode::PerZone, WriteMode::Append, WriteMode::Direct] {
        let rig = Rig::new(script::info(), mode);
        let ops = [Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose];
        let conventional = refused(RequestError::Conventional { zone: ZoneIndex(0) });
        for op in ops {
            let token = rig.manage(op, 0);
            assert_eq!(rig.end(token), Some(conventional.clone()), "{op:?} {mode}");
        }
        let append = rig.append(0, 8);
        assert_eq!(rig.end(append), Some(conventional));
        assert_eq!(rig.asked(), []);
    }
}

/// The zone is found to be read-only while the reset of all zones waits for the report. It is
/// released like the others.
#[test]
fn u13_zone_that_changes_its_class_under_a_reset_of_all_zones_is_released() {
    for condition in [ZoneCondition::ReadOnly, ZoneCondition::Offline] {
        let rig = Rig::per_zone();
        rig.write(1, 0, 8);
        rig.step(MEDIUM);
        let all = rig.submit(Request::reset_all());
        rig.script.set_zone(1, condition, 0);
        rig.settle();
        assert_eq!(rig.end(all), Some(DONE));
        let reset = rig.reset(1);
        rig.settle();
        assert_eq!(rig.end(reset), Some(failed(DeviceError::Zone(ZoneError::InvalidTransition))));
        let plug = rig.plug(1);
        assert_eq!(plug, None);
        // Conversely, the zone becomes writable, which is reported during the next reset.
        rig.write(2, 0, 8);
        let all = rig.submit(Request::reset_all());
        rig.script.set_zone(1, ZoneCondition::Empty, 0);
        rig.volume.resync(zonal_core::Nanos(0), ZoneIndex(1));
        rig.settle();
        let write = rig.write(1, 0, 8);
        rig.settle();
        assert_eq!(rig.ends([all, write]), [DONE; 2]);
    }
}
