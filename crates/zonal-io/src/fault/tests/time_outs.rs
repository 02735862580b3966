//! Time-outs: never executed, executed before, executed late, and settled.

use super::*;

const TIMED_OUT: CommandResult = Err(DeviceError::TimedOut);
const ZONE: ZoneIndex = ZoneIndex(1);

fn time_out(carried: Carried) -> Rule {
    Rule::new(Effect::TimeOut { after: Nanos(100), carried }).times(1)
}

fn late(when: Late) -> Rule {
    time_out(Carried::Late(when))
}

/// Submits an append that times out, and waits until the time-out is reported.
fn timed_out_append(device: &Fault) {
    let mut host = Host::new(device);
    host.pends(0, 7, Op::Append, START, 2);
    assert_eq!(host.poll(99), (vec![], Some(100)));
    assert_eq!(host.poll(100), (vec![(7, TIMED_OUT)], None));
    // The host has its bytes back and reuses them.
    host.bytes[0].fill(0xDD);
}

fn pointer(device: &Fault) -> u64 {
    shape(&*device.inner, 1).1.unwrap()
}

#[test]
fn timed_out_command_was_never_carried_out() {
    for device in both(time_out(Carried::Never)) {
        timed_out_append(&device);
        assert_eq!(device.settle(Nanos(100), ZONE), Settled::Yes);
        assert_eq!(shape(&device, 1).1, Some(0));
        assert!(device.is_transparent());
    }
}

#[test]
fn timed_out_command_was_carried_out_before() {
    for device in both(time_out(Carried::Before)) {
        timed_out_append(&device);
        assert_eq!(shape(&device, 1).1, Some(2));
        assert_eq!(fills(&device, START, 2), Ok(vec![7, 7]));
    }
}

#[test]
fn late_command_executes_after_its_delay_with_its_original_data() {
    for device in both(late(Late::After(Nanos(50)))) {
        timed_out_append(&device);
        let host = Host::new(&device);
        assert_eq!(host.poll(149).0, []);
        assert_eq!(shape(&device, 1).1, Some(0));
        assert_eq!(host.poll(150).0, []);
        assert_eq!(shape(&device, 1).1, Some(2), "the pointer has moved behind the host's back");
        assert_eq!(fills(&device, START, 2), Ok(vec![7, 7]));
    }
}

#[test]
fn late_command_waits_until_the_host_has_heard_of_the_time_out() {
    let device = faulty(late(Late::After(Nanos(0))));
    let mut host = Host::new(&device);
    host.pends(0, 7, Op::Append, START, 2);
    // Another command passes long after the time-out, which has not been polled yet.
    assert!(matches!(host.submit(500, 8, Op::Read, START, 2), Submitted::Done(DONE)));
    assert_eq!(pointer(&device), 0);
    assert_eq!(host.tokens(500), [7]);
    assert_eq!(pointer(&device), 0);
    host.poll(500);
    assert_eq!(pointer(&device), 2);
}

#[test]
fn late_command_follows_the_report_that_the_host_believes() {
    for device in both(late(Late::AfterReport)) {
        timed_out_append(&device);
        assert_eq!(shape(&device, 2).1, Some(0));
        assert_eq!(pointer(&device), 0, "another zone's report");
        assert_eq!(shape(&device, 1).1, Some(0), "what the report says");
        assert_eq!(shape(&device, 1).1, Some(2), "what is true from then on");
    }
}

#[test]
fn settled_zone_sees_no_late_command() {
    for when in [Late::After(Nanos(50)), Late::AfterReport] {
        for device in both(late(when)) {
            timed_out_append(&device);
            assert_eq!(device.settle(Nanos(100), ZONE), Settled::Yes);
            Host::new(&device).poll(9999);
            assert_eq!((shape(&device, 1).1, shape(&device, 1).1), (Some(0), Some(0)));
        }
    }
}

#[test]
fn command_carried_out_while_it_is_settled_is_over_when_it_is() {
    let device = faulty(late(Late::AtSettle));
    timed_out_append(&device);
    assert_eq!(device.settle(Nanos(100), ZONE), Settled::Yes);
    assert_eq!(shape(&device, 1).1, Some(2));

    let device = Fault::new(
        ram(&EmulatedOptions { completion_nsec: 30, ..options() }),
        Plan::of(1, [late(Late::AtSettle)]),
    );
    timed_out_append(&device);
    let host = Host::new(&device);
    assert_eq!(device.settle(Nanos(100), ZONE), Settled::NotYet(None), "it is at the device");
    assert_eq!(host.poll(129).0, []);
    assert_eq!(device.settle(Nanos(129), ZONE), Settled::NotYet(None));
    assert_eq!(host.poll(130).0, [], "the host hears nothing of it");
    assert_eq!(device.settle(Nanos(130), ZONE), Settled::Yes);
    assert_eq!(shape(&device, 1).1, Some(2));
}

#[test]
fn late_command_may_execute_while_its_zone_settles() {
    let plan = Plan { settling: Settling::After(Nanos(40)), ..Plan::of(1, [late(Late::After(Nanos(20)))]) };
    let device = Fault::new(ram(&options()), plan);
    timed_out_append(&device);
    assert_eq!(device.settle(Nanos(110), ZONE), Settled::NotYet(Some(Nanos(150))));
    assert_eq!(pointer(&device), 0);
    assert_eq!(device.settle(Nanos(120), ZONE), Settled::NotYet(Some(Nanos(150))));
    assert_eq!(pointer(&device), 2);
    assert_eq!(device.settle(Nanos(150), ZONE), Settled::Yes);
    assert_eq!(device.settle(Nanos(150), ZONE), Settled::Yes);
}

#[test]
fn zones_without_time_outs_are_settled_at_once() {
    let plan = Plan { settling: Settling::Never, ..Plan::of(1, [time_out(Carried::Never)]) };
    let device = Fault::new(ram(&options()), plan);
    timed_out_append(&device);
    assert_eq!(device.settle(Nanos(100), ZoneIndex(2)), Settled::Yes);
    assert_eq!(device.settle(Nanos(100), ZONE), Settled::Never(DeviceError::Aborted));
}

#[test]
fn time_out_that_the_host_has_not_heard_of_is_not_settled() {
    let device = faulty(late(Late::After(Nanos(50))));
    let mut host = Host::new(&device);
    host.pends(0, 7, Op::Append, START, 2);
    assert_eq!(device.settle(Nanos(0), ZONE), Settled::Yes);
    assert_eq!(host.tokens(100), [7]);
    host.poll(150);
    assert_eq!(pointer(&device), 2, "settling did not concern it");
}

#[test]
fn settling_leaves_time_outs_alone_that_the_host_has_not_heard_of() {
    let device = faulty(late(Late::After(Nanos(50))).times(2));
    timed_out_append(&device);
    let mut host = Host::new(&device);
    host.pends(100, 8, Op::Append, START, 4);
    assert_eq!(device.settle(Nanos(100), ZONE), Settled::Yes);
    assert_eq!(host.tokens(200), [8]);
    host.poll(250);
    assert_eq!(pointer(&device), 4, "the first was given up, the second has come");
}

#[test]
fn late_reset_of_all_zones_concerns_every_zone() {
    for (settles, pointer) in [(false, Some(0)), (true, Some(2))] {
        let device = faulty(late(Late::After(Nanos(50))).on(Ops::of(&[Op::ResetAll])));
        assert_eq!(write(&device, START, 2, 1), Ok(()));
        let mut host = Host::new(&device);
        host.pends(0, 7, Op::ResetAll, 0, 0);
        assert_eq!(host.poll(100).0, [(7, TIMED_OUT)]);
        if settles {
            assert_eq!(device.settle(Nanos(100), ZoneIndex(5)), Settled::Yes);
        }
        host.poll(150);
        assert_eq!(shape(&device, 1).1, pointer);
    }
}

#[test]
fn late_positional_write_is_misplaced_if_the_host_did_not_wait() {
    let device = faulty(late(Late::After(Nanos(50))).on(Ops::of(&[Op::Write])));
    let mut host = Host::new(&device);
    host.pends(0, 7, Op::Write, START, 2);
    assert_eq!(host.tokens(100), [7]);
    assert!(matches!(host.submit(100, 8, Op::Write, START, 2), Submitted::Done(DONE)));
    host.poll(150);
    assert_eq!((pointer(&device), fills(&device, START, 2)), (2, Ok(vec![8, 8])));
}

#[test]
fn refused_time_out_has_to_be_settled_too() {
    let plan =
        Plan { settling: Settling::After(Nanos(9)), ..Plan::of(1, [refuse(DeviceError::TimedOut).nth(1)]) };
    let device = Fault::new(ram(&options()), plan);
    assert_eq!(write(&device, START, 2, 1), Err(DeviceError::TimedOut));
    assert_eq!(device.settle(Nanos(0), ZONE), Settled::NotYet(Some(Nanos(9))));
    assert_eq!(device.settle(Nanos(9), ZONE), Settled::Yes);
}
