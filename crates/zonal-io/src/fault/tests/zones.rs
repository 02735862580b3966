//! Zones that become read-only or offline.

use super::*;

const FELL: ZoneIndex = ZoneIndex(1);

fn refused(error: ZoneError) -> Result<(), DeviceError> {
    Err(error.into())
}

/// Devices on which zone 1, with four sectors of ones, is degraded.
fn degraded(to: Degraded) -> [Fault; 2] {
    both(refuse(DeviceError::Medium).times(0)).map(|device| {
        write(&device, START, 4, 1).unwrap();
        device.degrade(FELL, to).unwrap();
        device
    })
}

#[test]
fn read_only_zone_answers_as_a_drives_does() {
    for device in degraded(Degraded::ReadOnly) {
        assert_eq!(shape(&device, 1), (ZoneCondition::ReadOnly, None));
        assert_eq!(fills(&device, START, 4), Ok(vec![1; 4]));
        assert_eq!(write(&device, START + 4, 2, 2), refused(ZoneError::ReadOnly));
        assert_eq!(append(&device, START, 2, 2).map(drop), refused(ZoneError::ReadOnly));
        for op in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose] {
            assert_eq!(act(&device, op, START), refused(ZoneError::InvalidTransition));
        }
        assert_eq!(write(&device, 2 * START, 2, 2), Ok(()));
    }
}

#[test]
fn offline_zone_answers_as_a_drives_does() {
    for device in degraded(Degraded::Offline) {
        assert_eq!(shape(&device, 1), (ZoneCondition::Offline, None));
        assert_eq!(fills(&device, START, 4).map(drop), refused(ZoneError::Offline));
        assert_eq!(write(&device, START + 4, 2, 2), refused(ZoneError::Offline));
        assert_eq!(act(&device, Op::ZoneReset, START), refused(ZoneError::InvalidTransition));
        assert_eq!(device.degrade(FELL, Degraded::ReadOnly), Err(ZoneError::InvalidTransition));
    }
}

#[test]
fn reset_of_all_zones_leaves_fallen_ones_alone() {
    for device in degraded(Degraded::ReadOnly) {
        for zone in [3, 5] {
            write(&device, zone * START, 2, 3).unwrap();
        }
        act(&device, Op::ZoneFinish, 6 * START).unwrap();
        assert_eq!(act(&device, Op::ResetAll, 0), Ok(()));
        for zone in 2..8 {
            assert_eq!(shape(&device, zone), (ZoneCondition::Empty, Some(0)), "{zone}");
        }
        assert_eq!(fills(&device, START, 4), Ok(vec![1; 4]));
    }
}

#[test]
fn reset_all_completes_with_a_queue_depth_of_one() {
    let inner = ram(&EmulatedOptions { hw_queue_depth: 1, ..polled() });
    let device = Fault::new(inner, Plan::default());
    for zone in 2..8 {
        write(&device, zone * START, 2, 3).unwrap();
    }
    device.degrade(FELL, Degraded::Offline).unwrap();
    assert_eq!(act(&device, Op::ResetAll, 0), Ok(()));
    assert!((2..8).all(|z| shape(&device, z).1 == Some(0)));
}

#[test]
fn fallen_zone_gives_its_resources_back() {
    for options in [options(), polled()] {
        let device = Fault::new(ram(&EmulatedOptions { zone_max_active: 1, ..options }), Plan::default());
        write(&device, START, 2, 1).unwrap();
        assert_eq!(write(&device, 2 * START, 2, 1), refused(ZoneError::TooManyActive));
        device.degrade(FELL, Degraded::Offline).unwrap();
        assert_eq!(write(&device, 2 * START, 2, 1), Ok(()));
    }
}

#[test]
fn rule_lets_the_zone_of_a_command_fall_and_the_command_meets_it() {
    for (to, error) in [(Degraded::ReadOnly, ZoneError::ReadOnly), (Degraded::Offline, ZoneError::Offline)] {
        for device in both(Rule::new(Effect::Degrade(to)).on(Ops::WRITES).zone(ZoneIndex(2)).nth(2)) {
            assert_eq!(write(&device, START, 2, 1), Ok(()));
            assert_eq!(write(&device, 2 * START, 2, 1), Ok(()));
            assert_eq!(write(&device, 2 * START + 2, 2, 1), refused(error));
            assert_eq!(write(&device, START + 2, 2, 1), Ok(()));
        }
    }
}

#[test]
fn late_command_does_not_reach_a_zone_that_fell() {
    for op in [Op::ZoneReset, Op::ResetAll] {
        let late = Effect::TimeOut { after: Nanos(1), carried: Carried::Late(Late::AtSettle) };
        let device = faulty(Rule::new(late).on(Ops::of(&[op])));
        assert_eq!(write(&device, START, 2, 1), Ok(()));
        assert_eq!(act(&device, op, START), Err(DeviceError::TimedOut));
        device.degrade(FELL, Degraded::ReadOnly).unwrap();
        assert_eq!(device.settle(Nanos(1), FELL), Settled::Yes);
        assert_eq!(fills(&device, START, 2), Ok(vec![1, 1]));
    }
}

#[test]
fn commands_that_were_gathered_meet_a_zone_that_fell_meanwhile() {
    let reorder = Effect::Reorder { what: Reordered::Execution, window: 9, hold: Nanos(100) };
    let device = faulty(Rule::new(reorder).on(Ops::of(&[Op::ResetAll, Op::Write])).after(2));
    assert_eq!(write(&device, START, 2, 1), Ok(()));
    assert_eq!(write(&device, 2 * START, 2, 1), Ok(()));
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::ResetAll, 0, 0);
    host.pends(0, 2, Op::Write, START + 2, 2);
    device.degrade(FELL, Degraded::ReadOnly).unwrap();
    let mut answers = host.poll(100).0;
    answers.sort_by_key(|a| a.0);
    assert_eq!(answers, [(1, DONE), (2, Err(ZoneError::ReadOnly.into()))]);
    assert_eq!((fills(&device, START, 2), shape(&device, 2).1), (Ok(vec![1, 1]), Some(0)));
}

#[test]
fn conventional_zone_does_not_fall() {
    let device = faulty(Rule::new(Effect::Degrade(Degraded::Offline)));
    assert_eq!(device.degrade(ZoneIndex(0), Degraded::Offline), Err(ZoneError::Conventional));
    assert_eq!(write(&device, 0, 2, 1), Ok(()));
}
