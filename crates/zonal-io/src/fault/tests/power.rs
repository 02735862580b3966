//! Power cuts.

use super::*;

const GONE: CommandResult = Err(DeviceError::Gone);

#[test]
fn nothing_in_flight_is_confirmed_after_a_cut() {
    for options in [options(), polled()] {
        let device = Fault::new(ram(&options), Plan::of(1, [Rule::new(Effect::Delay(Nanos(100)))]));
        let mut host = Host::new(&device);
        host.pends(0, 1, Op::Write, START, 2);
        host.pends(0, 2, Op::Append, 2 * START, 2);
        device.power_cut(InFlight::Fail);
        let mut answers = host.poll(0).0;
        answers.sort_by_key(|a| a.0);
        assert_eq!(answers, [(1, GONE), (2, GONE)]);
        assert_eq!(host.poll(1000), (vec![], None));
    }
}

#[test]
fn without_power_everything_is_refused_until_it_is_back() {
    for device in both(refuse(DeviceError::Medium).times(0)) {
        assert_eq!(write(&device, START, 2, 1), Ok(()));
        device.power_cut(InFlight::Fail);
        for op in [Op::Read, Op::Write, Op::Append, Op::Flush, Op::ZoneReset, Op::ResetAll, Op::Report] {
            assert_eq!(run(&device, op, START, 2, 1), GONE);
        }
        assert_eq!(device.settle(Nanos(0), ZoneIndex(1)), Settled::Never(DeviceError::Gone));
        device.restore();
        assert_eq!(shape(&device, 1).1, Some(2));
        assert_eq!(write(&device, START + 2, 2, 1), Ok(()));
        assert_eq!(device.settle(Nanos(0), ZoneIndex(1)), Settled::Yes);
    }
}

#[test]
fn lost_commands_never_end() {
    for device in both(Rule::new(Effect::PowerCut(InFlight::Lose)).on(Ops::of(&[Op::Flush])).nth(2)) {
        device.inject(Rule::new(Effect::Delay(Nanos(100))));
        let mut host = Host::new(&device);
        host.pends(0, 1, Op::Write, START, 2);
        host.pends(0, 2, Op::Flush, 0, 0);
        host.pends(0, 3, Op::Flush, 0, 0);
        host.pends(0, 4, Op::Read, START, 2);
        assert_eq!(host.poll(u64::MAX), (vec![], None));
        assert_eq!(device.lost(), 4);
        device.restore();
        assert_eq!(host.poll(u64::MAX), (vec![], None));
        assert_eq!(act(&device, Op::Report, START), Ok(()));
    }
}

#[test]
fn cut_reaches_gathered_commands_and_forgets_late_ones() {
    let late = Effect::TimeOut { after: Nanos(10), carried: Carried::Late(Late::After(Nanos(10))) };
    let device = faulty(Rule::new(late).on(Ops::of(&[Op::Append])));
    device.inject(
        Rule::new(Effect::Reorder { what: Reordered::Execution, window: 9, hold: Nanos(9999) })
            .on(Ops::of(&[Op::Write])),
    );
    let mut host = Host::new(&device);
    host.pends(0, 1, Op::Append, START, 2);
    host.pends(0, 2, Op::Write, 2 * START, 2);
    assert_eq!(host.poll(10).0, [(1, Err(DeviceError::TimedOut))]);
    device.power_cut(InFlight::Fail);
    assert_eq!(host.poll(10).0, [(2, GONE)]);
    device.restore();
    assert_eq!(host.poll(99_999).0, []);
    assert_eq!((shape(&device, 1).1, shape(&device, 2).1), (Some(0), Some(0)));
}

#[test]
fn command_that_cuts_power_is_not_carried_out() {
    for device in both(Rule::new(Effect::PowerCut(InFlight::Fail)).on(Ops::WRITES).nth(2)) {
        assert_eq!(write(&device, START, 2, 1), Ok(()));
        assert_eq!(write(&device, START + 2, 2, 1), Err(DeviceError::Gone));
        device.restore();
        assert_eq!(shape(&device, 1).1, Some(2));
    }
}
