//! Hibernation of a drive's link.

use std::sync::Arc;
use zonal_core::{DeviceError, Nanos, Op, Sector, ZoneError};
use zonal_io::device::{Command, CommandResult, Context, Device, Output, Submitted};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_sim::{Profile, Timed};

const MICROS: u64 = 1000;
const SLEEPS: [(&str, &str); 2] = [("hibernate_after_us", "100"), ("wake_us", "1000")];

fn drive(more: &[(&str, &str)]) -> Arc<dyn Device> {
    let changes: Vec<_> = SLEEPS.iter().chain(more).copied().collect();
    Profile::open("ufs-zoned", &changes).unwrap().simulated("sim").unwrap()
}

/// Submits the `n`th write of the first zone.
fn write(device: &dyn Device, now: Nanos, n: u64) {
    let command = Command::new(Op::Write, Sector(n * 8), 8);
    let submitted = device.submit(now, 0, &command, &mut Some(Context::token(n)));
    assert!(matches!(submitted, Submitted::Accepted), "{submitted:?}");
}

/// Polls until nothing is pending. Returns the completions with their times.
fn drain(device: &dyn Device, mut now: Nanos) -> Vec<(u64, u64, CommandResult)> {
    let mut ends = Vec::new();
    loop {
        let due = device.poll(now, 0, 100, &mut |done| {
            ends.push((now.0, done.context.into_token(), done.result));
        });
        match due {
            Some(due) => now = now.max(due),
            None => return ends,
        }
    }
}

/// Time of the `n`th write, alone at `now`.
fn latency(device: &dyn Device, now: u64, n: u64) -> u64 {
    write(device, Nanos(now), n);
    let [(at, _, Ok(Output::Done))] = drain(device, Nanos(now))[..] else { panic!("one write ends") };
    at - now
}

#[test]
fn link_sleeps_after_its_time_without_commands_and_takes_its_time_to_wake() {
    let device = drive(&[]);
    let awake = latency(&*device, 99 * MICROS, 0);
    let idle_since = 99 * MICROS + awake;
    assert_eq!(latency(&*device, idle_since + 100 * MICROS - 1, 1), awake);
    let idle_since = idle_since + 100 * MICROS - 1 + awake;
    assert_eq!(latency(&*device, idle_since + 100 * MICROS, 2), awake + 1000 * MICROS);
    let always = Profile::open("ufs-zoned", &[("wake_us", "1000")]).unwrap().simulated("sim").unwrap();
    assert_eq!(latency(&*always, 1_000_000 * MICROS, 0), awake, "off by default");
}

/// Results of eight writes, the first of which wakes the link.
fn woken(device: &dyn Device) -> Vec<(u64, u64, CommandResult)> {
    (0..8).for_each(|n| write(device, Nanos((1000 + n) * MICROS), n));
    let ends = drain(device, Nanos(1007 * MICROS));
    let mut tokens: Vec<u64> = ends.iter().map(|(_, token, _)| *token).collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..8), "each ends once");
    ends
}

#[test]
fn commands_that_wait_for_the_link_keep_their_order_unless_it_reorders() {
    let ends = woken(&*drive(&[]));
    assert!(ends.iter().map(|(_, token, _)| *token).eq(0..8), "{ends:?}");
    assert!(ends.iter().all(|(at, _, result)| *at >= 2000 * MICROS && result.is_ok()), "{ends:?}");
    let reorders = [("hibernate_reorders", "1")];
    let ends = woken(&*drive(&reorders));
    let misplaced = Err(DeviceError::Zone(ZoneError::InvalidWrite));
    let refused = ends.iter().filter(|(_, _, result)| *result == misplaced).count();
    assert!(refused > 0 && ends.iter().all(|(_, _, r)| r.is_ok() || *r == misplaced), "{ends:?}");
    assert_eq!(woken(&*drive(&reorders)), ends, "the order can be repeated");
}

#[test]
fn commands_wait_on_in_order_while_the_inner_device_is_busy() {
    let options = EmulatedOptions::default()
        .with_complete(CompleteMode::Poll)
        .with_hw_queue_depth(2)
        .with_preserves_write_order(true);
    let inner: Arc<dyn Device> = Arc::new(Emulated::new("null", &options, Null).unwrap());
    let profile = Profile::open("ufs-zoned", &SLEEPS).unwrap();
    let timed = Timed::new(inner.clone(), profile.model(inner.info().geometry));
    let ends = woken(&timed);
    assert!(ends.iter().map(|(_, token, _)| *token).eq(0..8), "{ends:?}");
    assert!(ends.iter().all(|(_, _, result)| result.is_ok()), "{ends:?}");
}
