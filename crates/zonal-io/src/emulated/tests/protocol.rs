//! Queues, completion modes, and commands in flight.

use super::*;
use std::time::{Duration, Instant};

fn submit(device: &dyn Device, now: u64, command: Command, token: u64) -> Submitted {
    device.submit(Nanos(now), 0, &command, &mut Some(Context::token(token)))
}

fn pending(device: &dyn Device, now: u64, command: Command, token: u64) {
    assert!(matches!(submit(device, now, command, token), Submitted::Accepted));
}

/// Tokens and results returned at `now`, and the next deadline.
fn poll(device: &dyn Device, now: u64, budget: usize) -> (Vec<(u64, CommandResult)>, Option<u64>) {
    let mut out = Vec::new();
    let next = device.poll(Nanos(now), 0, budget, &mut |c| out.push((c.context.into_token(), c.result)));
    (out, next.map(|n| n.0))
}

#[test]
fn inline_device_has_nothing_to_poll() {
    let d = null(&small());
    let mut context = Some(Context::token(1));
    assert!(matches!(d.submit(Nanos(0), 0, &command(Op::Write, 64, 8), &mut context), Submitted::Done(_)));
    assert!(context.is_some(), "the context stays with the caller");
    assert_eq!(poll(&d, 0, 9), (vec![], None));
}

#[test]
fn second_positional_write_is_refused_until_the_first_is_handed_out() {
    let d = null(&polled(small()));
    pending(&d, 0, command(Op::Write, 64, 8), 1);
    pending(&d, 0, command(Op::Write, 64 + 8, 8), 2);
    pending(&d, 0, command(Op::Write, 128, 8), 3);
    let refused = Err(DeviceError::Zone(ZoneError::InvalidWrite));
    let done = Ok(Output::Done);
    assert_eq!(poll(&d, 0, 9), (vec![(1, done.clone()), (2, refused), (3, done.clone())], None));
    pending(&d, 0, command(Op::Write, 64 + 8, 8), 4);
    assert_eq!(poll(&d, 0, 9), (vec![(4, done)], None));
    assert_eq!(shape(&d, 1), imp_open(16));
}

#[test]
fn h09_reset_does_not_end_a_write_in_flight() {
    let d = null(&polled(small()));
    pending(&d, 0, command(Op::Write, 64, 8), 1);
    pending(&d, 0, command(Op::ZoneReset, 64, 0), 2);
    pending(&d, 0, command(Op::Write, 64, 8), 3);
    let (out, _) = poll(&d, 0, 9);
    let results: Vec<_> = out.into_iter().map(|(_, r)| r.is_ok()).collect();
    assert_eq!(results, [true, true, false]);
    assert_eq!(shape(&d, 1), EMPTY);
    assert_eq!(act(&d, Op::Write, 64, 8), Ok(()));
}

#[test]
fn ordered_device_takes_many_positional_writes() {
    let d = null(&polled(EmulatedOptions { preserves_write_order: true, ..small() }));
    assert!(d.info().keeps_order);
    for i in 0..6 {
        pending(&d, 0, command(Op::Write, 64 + 8 * i, 8), i);
    }
    let (out, _) = poll(&d, 0, 9);
    assert_eq!(out.len(), 6);
    assert!(out.iter().all(|(_, r)| r.is_ok()));
    assert_eq!(shape(&d, 1), FULL);
}

#[test]
fn h58_every_admitted_append_succeeds_and_the_zone_is_full_at_admission() {
    let d = null(&polled(small()));
    for i in 0..7 {
        pending(&d, 0, command(Op::Append, 64, 8), i);
    }
    let (out, _) = poll(&d, 0, 9);
    for (i, result) in &out[..6] {
        assert_eq!(*result, Ok(Output::Appended(Sector(64 + 8 * i))));
    }
    assert_eq!(out[6].1, Err(DeviceError::Zone(ZoneError::Full)));
    assert_eq!(shape(&d, 1), FULL);
}

#[test]
fn appends_and_a_positional_write_may_be_in_flight_together() {
    let d = null(&polled(small()));
    pending(&d, 0, command(Op::Append, 64, 8), 1);
    pending(&d, 0, command(Op::Write, 64 + 8, 8), 2);
    pending(&d, 0, command(Op::Append, 64, 8), 3);
    let (out, _) = poll(&d, 0, 9);
    assert_eq!(out[1].1, Ok(Output::Done));
    assert_eq!(out[2].1, Ok(Output::Appended(Sector(64 + 16))));
}

#[test]
fn queue_is_busy_beyond_its_depth() {
    let d = null(&polled(EmulatedOptions { hw_queue_depth: 2, submit_queues: 2, ..small() }));
    pending(&d, 0, command(Op::Read, 64, 8), 1);
    pending(&d, 0, command(Op::Read, 64, 8), 2);
    let mut context = Some(Context::token(3));
    let write = command(Op::Write, 64, 8);
    assert!(matches!(d.submit(Nanos(0), 0, &write, &mut context), Submitted::Busy));
    assert!(context.is_some(), "a busy queue leaves the context");
    assert_eq!(zone(&null(&small()), 1).condition, ZoneCondition::Empty);
    assert!(matches!(d.submit(Nanos(0), 1, &write, &mut context), Submitted::Accepted));
    assert_eq!(poll(&d, 0, 1).0.len(), 1);
    pending(&d, 0, command(Op::Read, 64, 8), 4);
}

#[test]
fn busy_write_has_not_happened() {
    let d = null(&polled(EmulatedOptions { hw_queue_depth: 1, ..small() }));
    pending(&d, 0, command(Op::Write, 128, 8), 1);
    assert!(matches!(submit(&d, 0, command(Op::Write, 64, 8), 2), Submitted::Busy));
    assert_eq!(poll(&d, 0, 9).0.len(), 1);
    assert_eq!(shape(&d, 1), EMPTY);
}

#[test]
fn delay_implies_poll_and_gives_the_deadline() {
    let d = null(&EmulatedOptions { completion_nsec: 100, ..small() });
    pending(&d, 1000, command(Op::Write, 64, 8), 1);
    pending(&d, 1010, command(Op::Write, 128, 8), 2);
    assert_eq!(poll(&d, 1050, 9), (vec![], Some(1100)));
    assert_eq!(poll(&d, 1100, 9), (vec![(1, Ok(Output::Done))], Some(1110)));
    assert_eq!(poll(&d, 1200, 9), (vec![(2, Ok(Output::Done))], None));
}

#[test]
fn poll_over_budget_requests_an_immediate_poll() {
    let d = null(&polled(small()));
    for i in 0..5 {
        pending(&d, 0, command(Op::Read, 64, 8), i);
    }
    let (out, next) = poll(&d, 50, 3);
    assert_eq!((out.len(), next), (3, Some(50)));
    let (out, next) = poll(&d, 50, 3);
    assert_eq!((out.len(), next), (2, None));
}

#[test]
fn wait_returns_early_only_for_commands_no_poll_has_seen() {
    let d = null(&EmulatedOptions { completion_nsec: 1_000_000_000, ..small() });
    pending(&d, 0, command(Op::Read, 64, 8), 1);
    let long = Duration::from_secs(60);
    let started = Instant::now();
    d.wait(0, long);
    assert!(started.elapsed() < long, "something was submitted that no poll has seen");
    assert_eq!(poll(&d, 0, 9), (vec![], Some(1_000_000_000)));
    let short = Duration::from_millis(5);
    let started = Instant::now();
    d.wait(0, short);
    assert!(started.elapsed() >= short, "its deadline is known to who polled");
}

#[test]
fn wait_is_woken_by_another_threads_submission() {
    let d = null(&polled(small()));
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            pending(&d, 0, command(Op::Read, 64, 8), 1);
        });
        let started = Instant::now();
        d.wait(0, Duration::from_secs(60));
        assert!(started.elapsed() < Duration::from_secs(60));
    });
    assert_eq!(poll(&d, 0, 9).0.len(), 1);
}

#[test]
fn write_that_moves_no_data_still_meets_the_one_in_flight() {
    let d = null(&small());
    let placed = d.zones().begin(crate::emulated::WriteKind::Exclusive, ZoneIndex(1), 0, 8).unwrap();
    let refused = Err(DeviceError::Zone(ZoneError::InvalidWrite));
    assert_eq!(act(&d, Op::Write, 64 + 8, 8), refused);
    d.zones().end(&placed, placed.sectors);
    assert_eq!(act(&d, Op::Write, 64 + 8, 8), refused, "ended, but its answer is not out");
    d.zones().release(placed);
    assert_eq!(act(&d, Op::Write, 64 + 8, 8), Ok(()));
}
