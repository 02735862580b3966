//! Position of a torn append that was not alone, or not always an append.

use super::*;
use zonal_core::Nanos;
use zonal_io::device::Settled;

fn torn(zone: u32, offset: u32, sectors: u32, error: DeviceError) -> End {
    Err(RequestError::TornAppend { zone: ZoneIndex(zone), offset, sectors, error })
}

/// An emulated append of four sectors, three of which are found, in a volume that has been switched
/// to native appends: its remainder is at the device.
fn rest_after_a_switch() -> (Rig, u64) {
    let rig = Rig::per_zone();
    let append = rig.append(1, 4);
    rig.step(Answer::Torn(3, DeviceError::Aborted));
    rig.volume.switch_mode(Nanos(0), WriteMode::Append).unwrap();
    assert_eq!(rig.step(Answer::Obey).op, Op::Report);
    assert_eq!(rig.step(Answer::Obey).brief(), (Op::Read, 1, 0, 3));
    assert_eq!(rig.volume.mode().0, WriteMode::Append);
    assert_eq!(rig.script.pending()[0].brief(), (Op::Write, 1, 3, 1));
    (rig, append)
}

#[test]
fn u27_rest_of_an_append_that_is_covered_after_a_switch_leaves_it_where_it_began() {
    let (rig, append) = rest_after_a_switch();
    rig.step(Answer::Torn(1, DeviceError::Os(5)));
    rig.settle();
    assert_eq!(rig.end(append), Some(appended(&rig, 1, 0)));
    rig.assert_written(1, 0, 4, append);
}

#[test]
fn u27_rest_of_an_append_that_the_medium_spoils_is_garbage_from_its_beginning() {
    for landed in [0, 1] {
        let (rig, append) = rest_after_a_switch();
        rig.step(if landed == 0 { MEDIUM } else { Answer::Torn(landed, DeviceError::Medium) });
        let next = rig.append(1, 4);
        rig.settle();
        assert_eq!(rig.end(append), Some(torn(1, 0, 3 + landed, DeviceError::Medium)));
        assert_eq!(rig.end(next), Some(appended(&rig, 1, 3 + landed)));
    }
}

/// Two appends in flight: the first times out and is executed late, the second is executed before
/// it and damaged.
#[test]
fn u28_spoilt_append_that_overtook_another_does_not_name_the_others_sectors() {
    let rig = Rig::append_mode();
    rig.script.settle_with(Settled::NotYet(None));
    let [late, spoilt] = [rig.append(1, 4), rig.append(1, 4)];
    rig.finish(0, Answer::Late);
    rig.finish(0, Answer::Torn(4, DeviceError::Medium));
    assert_eq!(rig.script.execute_late(), 1);
    rig.script.settle_with(Settled::Yes);
    rig.settle();
    rig.assert_written(1, 0, 4, spoilt);
    rig.assert_written(1, 4, 4, late);
    assert_eq!(rig.end(spoilt), Some(failed(DeviceError::Medium)));
}

/// A damaged append, with another one that succeeded before or after it.
#[test]
fn u28_spoilt_append_names_its_sectors_only_where_they_are_found() {
    for overtaken in [false, true] {
        let rig = Rig::append_mode();
        let [spoilt, other] = [rig.append(1, 8), rig.append(1, 4)];
        if overtaken {
            rig.finish(1, Answer::Obey);
            rig.finish(0, Answer::Torn(3, DeviceError::Medium));
        } else {
            rig.finish(0, Answer::Torn(3, DeviceError::Medium));
            rig.finish(0, Answer::Obey);
        }
        rig.settle();
        let (end, at) = match overtaken {
            true => (failed(DeviceError::Medium), 0),
            false => (torn(1, 0, 3, DeviceError::Medium), 3),
        };
        assert_eq!(rig.end(spoilt), Some(end));
        assert_eq!(rig.end(other), Some(appended(&rig, 1, at)));
    }
}
